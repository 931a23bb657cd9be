"""All commands by name. The file of one is imported when it is used, so that `monque` starts quickly."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

import click
from click.shell_completion import CompletionItem, get_completion_class

from monque import __version__

COMMANDS = {
    "worker": "Run the workers of a Monque, of a web app that has one, or of a factory.",
    "dev": "Run workers on an embedded MongoDB, and again at each change of the source.",
    "enqueue": "Store a job, or many.",
    "schedule": "Store a recurring job, or change it.",
    "schedules": "List, show, edit, pause, resume, trigger and remove recurring jobs.",
    "jobs": "Look at jobs and act on them.",
    "pause": "Start no more jobs of NAME, on all instances, until it is resumed.",
    "resume": "Let jobs of a paused NAME start again, within two seconds.",
    "paused": "List the names that are paused.",
    "audit": "Show what operators did, the newest first.",
    "stats": "Count the jobs by name and status.",
    "lines": "Show how many jobs of each key of a limited NAME run and wait.",
    "instances": "List the instances that process jobs, or did so within the last 24 hours.",
    "trends": "Show how runs ended over time, and how long they and their waits took.",
    "top": "Watch what happens: counts, rates, running jobs, paused names, recent failures.",
    "web": "Serve the dashboard of the jobs and its HTTP API; no job is run.",
    "doctor": "Check the server and the jobs, and say what to do.",
    "indexes": "Show the indexes, and create those that are missing.",
    "demo": "See it work: a live show on an embedded MongoDB.",
    "completion": "Print the script that teaches your shell to complete.",
}

# The file of each command that stands with others in one; all others have a file of their name.
_FILES = {
    "dev": "worker",
    "schedule": "schedules",
    **dict.fromkeys(("pause", "resume", "paused"), "pauses"),
    **dict.fromkeys(("audit", "stats", "lines", "instances", "trends"), "reports"),
    "indexes": "doctor",
    "completion": "commands",
}

INTERRUPTED = 130


class Commands(click.Group):
    """A group that knows its commands without importing them."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        if name not in self.list_commands(ctx):
            return None
        file = import_module(f"monque.cli.{_FILES.get(name, name)}")
        command: click.Command = getattr(file, name)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, COMMANDS[name]) for name in self.list_commands(ctx)])

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        names = [name for name in self.list_commands(ctx) if name.startswith(incomplete)]
        commands = [CompletionItem(name, help=COMMANDS[name]) for name in names]
        return commands + click.Command.shell_complete(self, ctx, incomplete)

    def invoke(self, ctx: click.Context) -> object:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            click.echo(err=True)
            ctx.exit(INTERRUPTED)


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="monque")
def monque() -> None:
    """A job scheduler on MongoDB.

    \b
    Examples:
      monque demo
      monque worker shop.jobs:monque
      monque enqueue send-email '{"to": "ada@example.org"}'
      monque jobs list --status failed

    The database is the one of --uri, else of the app (--app or MONQUE_APP), else of MONQUE_URI, else an
    embedded MongoDB on this machine.

    Exit codes: 0 done, 1 it did not work, 2 wrong input and nothing was changed, 130 interrupted.
    """


class HostedCommands(Commands):
    """The commands of `monque` that are about the jobs of an app."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [name for name in super().list_commands(ctx) if name not in ("demo", "completion")]


def group(use: Callable[..., Any], text: str) -> click.Group:
    """A group `monque` in the command line of a web framework, for the jobs of its app.

    *use* is called first, to say in MONQUE_APP which app is meant.
    """
    return HostedCommands("monque", callback=use, help=text)


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print the script that teaches your shell to complete.

    \b
    Examples:
      monque completion bash >> ~/.bashrc
      monque completion zsh >> ~/.zshrc
      monque completion fish > ~/.config/fish/completions/monque.fish
    """
    script = get_completion_class(shell)
    assert script is not None  # noqa: S101 - these three come with click
    click.echo(script(monque, {}, "monque", "_MONQUE_COMPLETE").source())
