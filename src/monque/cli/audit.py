"""`monque audit`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields
from itertools import islice
from typing import Any

import click

from monque import AuditEntry
from monque.cli.output import as_json, print_json, print_table, shown_id
from monque.cli.session import Database, connects
from monque.cli.times import stamp
from monque.sync import SyncMonque

# As many as one read takes.
_PAGE = 1000


@click.command()
@click.option("--job", metavar="ID", help="Only what was done to this job.")
@click.option("--actor", help="Only what this one did.")
@click.option("--action", help="Only this action, for example cancel or retryBulk.")
@click.option("--limit", type=click.IntRange(min=1), default=50, show_default=True, help="At most so many.")
@as_json
@connects
def audit(
    job: str | None, actor: str | None, action: str | None, limit: int, as_json: bool, database: Database
) -> None:
    """Show what operators did, the newest first.

    They are those of this command line and of the management API, also what was refused or failed. Entries
    are kept for 90 days. With --json: a line for each.

    \b
    Examples:
      monque audit --limit 10
      monque audit --job 65f1c0ffee65f1c0ffee0001
      monque audit --actor ada --action cancel --json
    """
    with database.open() as monque:
        found = list(islice(_entries(monque, min(limit, _PAGE), job=job, actor=actor, action=action), limit))
    if as_json:
        for entry in found:
            print_json(_fields(entry))
        return
    columns = ["at", "actor", "via", "action", "outcome", "about", "note"]
    print_table(columns, [_row(entry) for entry in found])


def _entries(monque: SyncMonque, page: int, **which: Any) -> Iterator[AuditEntry]:
    cursor = None
    while True:
        found = monque.audit(cursor=cursor, limit=page, **which)
        yield from found.entries
        if (cursor := found.cursor) is None:
            return


def _fields(entry: AuditEntry) -> dict[str, Any]:
    found = {field.name: getattr(entry, field.name) for field in fields(entry)}
    return {**found, "id": str(entry.id), "job_id": None if entry.job_id is None else shown_id(entry.job_id)}


def _row(entry: AuditEntry) -> list[object]:
    return [
        stamp(entry.at),
        entry.actor,
        entry.via,
        entry.action,
        entry.outcome,
        _about(entry),
        entry.note,
    ]


def _about(entry: AuditEntry) -> str:
    """Which jobs it was about, in a few words."""
    words = [] if entry.job_id is None else [str(shown_id(entry.job_id))]
    words += [] if entry.name is None else [entry.name]
    words += [f"{name}={value}" for name, value in (entry.filter or {}).items()]
    words += [] if entry.count is None else [f"({entry.count:,} jobs)"]
    return " ".join(words)
