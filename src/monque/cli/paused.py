"""`monque paused`."""

from __future__ import annotations

import click

from monque.cli.output import as_json, print_json, print_table
from monque.cli.pauses import pause_fields, pause_row
from monque.cli.session import Database, connects, takes_app


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
    if as_json:
        for each in found:
            print_json(pause_fields(each))
        return
    print_table(["name", "since", "until", "by", "reason"], [pause_row(each) for each in found])
