"""The commands inside the command line of a web framework, for the jobs of its app."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from monque.cli.commands import COMMANDS, Commands

# These are about no app.
_ELSEWHERE = ("demo", "completion")


class HostedCommands(Commands):
    """The commands of `monque` that are about the jobs of an app."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [name for name in super().list_commands(ctx) if name not in _ELSEWHERE]

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        return None if name in _ELSEWHERE else super().get_command(ctx, name)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, COMMANDS[name]) for name in self.list_commands(ctx)])


def group(use: Callable[..., Any], text: str) -> click.Group:
    """A group `monque`; *use* is called first, to say in MONQUE_APP which app is meant."""
    return HostedCommands("monque", callback=use, help=text)
