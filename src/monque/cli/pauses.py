"""`monque pause`, `monque resume` and `monque paused`."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any, TypeVar

import click

from monque import Pause
from monque.cli.output import Columns, as_json, clean, plain_fields, print_all, print_json, tell
from monque.cli.session import Database, connects, recording, takes_app
from monque.cli.times import later, stamp

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
    """Return the scope of a pause, in words."""
    return "all names" if name is None else name


def pause_columns(heading: str) -> Columns:
    """The columns of a table of pauses, the first one with this heading."""
    others = {name: name for name in ("since", "until", "by", "reason")}
    return {heading: lambda pause: scope(pause.name), **others}


@click.command()
@takes_name
@click.option(
    "--until",
    type=later,
    metavar="TIME|DURATION",
    help="When it ends by itself: with a zone (2030-05-01T09:00Z), or from now (30m).",
)
@click.option("--reason", help="Why; shown to everybody who lists pauses.")
@as_json
@connects
def pause(
    name: str | None,
    everything: bool,
    until: datetime | timedelta | None,
    reason: str | None,
    as_json: bool,
    database: Database,
) -> None:
    """Start no more jobs of NAME, on all instances, until it is resumed.

    It takes effect within two seconds. What runs goes on; jobs are stored as ever. TypeScript instances do
    not know of it. If --until is past, nothing is paused, and the exit code is 1.

    \b
    Examples:
      monque pause charge-card --until 1h --reason 'the bank is down'
      monque pause --all
    """
    name = chosen_name(name, everything)
    with database.open() as monque, recording(monque, "pause", name=name, note=reason) as known:
        done = monque.pause(name, until=until, reason=reason)
        known["after"] = {"until": done.until}
    if as_json:
        print_json(plain_fields(done))
    if _is_over(done):
        # A script that goes on as if the name rested must not take this for success.
        raise click.ClickException(
            f"{clean(scope(name))}: {stamp(done.until)} is past, so nothing was paused"
        )
    if not as_json:
        how_long = "until it is resumed" if done.until is None else f"until {stamp(done.until)}"
        click.echo(f"{clean(scope(name))}: paused {how_long}")


def _is_over(pause: Pause) -> bool:
    """Return whether it was over when it was stored: both times are by the server's clock."""
    return pause.until is not None and pause.since is not None and pause.until <= pause.since


@click.command()
@takes_name
@as_json
@connects
def resume(name: str | None, everything: bool, as_json: bool, database: Database) -> None:
    """Let jobs of a paused NAME start again, within two seconds.

    --all ends the pause of all names; names that are paused by themselves stay so.

    \b
    Examples:
      monque resume charge-card
      monque resume --all
    """
    name = chosen_name(name, everything)
    with database.open() as monque, recording(monque, "resume", name=name):
        was_paused = monque.resume(name)
    done = f"{clean(scope(name))}: {'resumed' if was_paused else 'was not paused'}"
    tell({"name": name, "resumed": was_paused}, done, as_json=as_json)


@click.command()
@takes_app
@as_json
@connects
def paused(as_json: bool, database: Database) -> None:
    """List the names that are paused.

    With --json: a line for each; the name is null if all names are paused.

    \b
    Examples:
      monque paused
      monque paused shop.jobs:monque --json
    """
    with database.open() as monque:
        found = monque.paused()
    print_all(found, plain_fields, pause_columns("name"), as_json=as_json)
