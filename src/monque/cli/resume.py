"""`monque resume`."""

from __future__ import annotations

import click

from monque.cli.output import as_json, clean, print_json
from monque.cli.pauses import chosen_name, scope, takes_name
from monque.cli.record import recording
from monque.cli.session import Database, connects


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
    if as_json:
        print_json({"name": name, "resumed": was_paused})
    else:
        click.echo(f"{clean(scope(name))}: {'resumed' if was_paused else 'was not paused'}")
