"""All commands by name. The file of one is imported when it is used, so that `monque` starts quickly."""

from __future__ import annotations

from importlib import import_module

import click
from click.shell_completion import CompletionItem

from monque import __version__

COMMANDS = {
    "worker": "Run the workers of a Monque, of a web app that has one, or of a factory.",
    "dev": "Run workers on an embedded MongoDB, and again at each change of the source.",
    "enqueue": "Store a job, or many.",
    "schedule": "Store a recurring job, or change it.",
    "schedules": "List, show, edit, pause, resume, trigger and remove recurring jobs.",
    "jobs": "List, show, explain, wait for, cancel, retry, reschedule, run, prioritize and delete jobs.",
    "pause": "Start no more jobs of NAME, on all instances, until it is resumed.",
    "resume": "Let jobs of a paused NAME start again, within two seconds.",
    "paused": "List the names that are paused.",
    "audit": "Show what operators did, the newest first.",
    "stats": "Count the jobs by name and status.",
    "instances": "List the instances that process jobs, or did so within the last 24 hours.",
    "trends": "Show how runs ended over time, and how long they and their waits took.",
    "top": "Watch what happens: counts, rates, running jobs, paused names, recent failures.",
    "web": "Serve the dashboard of the jobs and its HTTP API; no job is run.",
    "doctor": "Check the server and the jobs, and say what to do.",
    "indexes": "Show the indexes, and create those that are missing.",
    "demo": "See it work: a live show on an embedded MongoDB.",
    "completion": "Print the script that teaches your shell to complete.",
}

INTERRUPTED = 130


class Commands(click.Group):
    """A group that knows its commands without importing them."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:  # noqa: ARG002
        if name not in COMMANDS:
            return None
        command: click.Command = getattr(import_module(f"monque.cli.{name}"), name)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        names = [name for name in COMMANDS if name.startswith(incomplete)]
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
