"""`monque pause`."""

from __future__ import annotations

from datetime import datetime, timedelta

import click

from monque import Pause
from monque.cli.output import as_json, clean, print_json
from monque.cli.pauses import chosen_name, pause_fields, scope, takes_name
from monque.cli.record import recording
from monque.cli.session import Database, connects
from monque.cli.times import later, stamp


@click.command()
@takes_name
@click.option(
    "--until",
    type=later,
    metavar="TIME|DURATION",
    help="When it ends by itself: with a zone (2030-05-01T09:00Z), or from now (30m).",
)
@click.option("--reason", help="Shown to whoever asks what is paused.")
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
        print_json(pause_fields(done))
    if _is_over(done):
        # Who goes on as if the name rested must not take this for success.
        raise click.ClickException(
            f"{clean(scope(name))}: {stamp(done.until)} is past, so nothing was paused"
        )
    if not as_json:
        how_long = "until it is resumed" if done.until is None else f"until {stamp(done.until)}"
        click.echo(f"{clean(scope(name))}: paused {how_long}")


def _is_over(pause: Pause) -> bool:
    """Whether it was over when it was stored: both times are by the server's clock."""
    return pause.until is not None and pause.since is not None and pause.until <= pause.since
