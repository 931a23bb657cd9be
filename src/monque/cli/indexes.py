"""`monque indexes`."""

from __future__ import annotations

from typing import get_args

import click

from monque import UseName
from monque.cli.output import as_json, print_json, print_table, waiting
from monque.cli.record import record
from monque.cli.session import Database, connects


@click.command()
@click.option("--create", is_flag=True, help="Create those that are missing.")
@click.option("--listing", is_flag=True, help="With those for paging through very many jobs by any sort.")
@click.option("--retention", is_flag=True, help="With the one for removing old jobs.")
@click.option(
    "--for",
    "uses",
    multiple=True,
    type=click.Choice(get_args(UseName)),
    help="With the one for this use, which so begins; can be repeated.",
)
@as_json
@connects
def indexes(
    create: bool,
    listing: bool,
    retention: bool,
    uses: tuple[UseName, ...],
    as_json: bool,
    database: Database,
) -> None:
    """Show the indexes, and create those that are missing.

    An index is needed, optional (Monque uses it if it is there), missing, different (its name is taken by
    another) or superfluous (Monque does not use it). With --json: a line for each.

    \b
    Examples:
      monque indexes
      monque indexes --create --retention
      monque indexes --create --for priority
    """
    with (
        waiting("creating the indexes" if create else "looking"),
        database.open(
            create_indexes=create, listing_indexes=listing, retention=retention, uses=uses
        ) as monque,
    ):
        found = monque.diagnose(uses=uses).indexes
        if create:  # this also creates the indexes of the audit trail
            record(monque, "createIndexes")
    if as_json:
        for index in found:
            print_json({"name": index.name, "keys": list(index.keys), "state": index.state})
        return
    print_table(
        ["name", "state", "keys"], [[index.name, index.state, ", ".join(index.keys)] for index in found]
    )
