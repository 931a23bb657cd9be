"""What the commands about pauses share: which name is meant, and how a pause is shown."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from monque import Pause
from monque.cli.times import stamp

F = TypeVar("F", bound=Callable[..., Any])


def takes_name(command: F) -> F:
    """Give a command the argument NAME and the option `--all`."""
    everything = click.option("--all", "everything", is_flag=True, help="All names, instead of NAME.")
    return click.argument("name", required=False)(everything(command))


def chosen_name(name: str | None, everything: bool) -> str | None:
    """The name that is meant; None for all of them, which nobody gets by forgetting the name."""
    if (name is None) != everything:
        raise click.UsageError("say which jobs: give either a NAME or --all")
    return name


def scope(name: str | None) -> str:
    """What a pause is about."""
    return "all names" if name is None else name


def pause_fields(pause: Pause) -> dict[str, Any]:
    """A pause for `--json`."""
    return {
        "name": pause.name,
        "since": pause.since,
        "until": pause.until,
        "reason": pause.reason,
        "by": pause.by,
    }


def pause_row(pause: Pause) -> list[object]:
    """A pause as a line of a table: name, since, until, by, reason."""
    return [scope(pause.name), stamp(pause.since), stamp(pause.until), pause.by, pause.reason]
