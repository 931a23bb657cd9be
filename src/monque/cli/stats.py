"""`monque stats`."""

from __future__ import annotations

from typing import Any

import click

from monque import JobStatus, QueueStats
from monque.cli.output import as_json, print_json, print_table
from monque.cli.session import Database, connects, takes_app
from monque.cli.times import span

STATUSES = [status.value for status in JobStatus]


@click.command()
@takes_app
@click.option("--name", help="Only jobs of this name.")
@as_json
@connects
def stats(name: str | None, as_json: bool, database: Database) -> None:
    """Count the jobs by name and status.

    \b
    Examples:
      monque stats shop.jobs:monque
      monque stats
      monque stats --name send-email --json
    """
    with database.open() as monque:
        total = monque.queue_stats(name=name)
        views = [] if name is not None else monque.queue_views()
    if as_json:
        names = {} if name is not None else {"names": [{"name": v.name, **fields(v.stats)} for v in views]}
        print_json({"name": name, **fields(total), **names})
        return
    rows = [_row(view.name, view.stats) for view in views] + [_row(name or "all", total)]
    columns = ["name", *STATUSES, "total", "average run"]
    print_table(columns, rows, numbers=columns[1:])


def fields(stats: QueueStats) -> dict[str, Any]:
    """Statistics for `--json`; the average in seconds, null without data."""
    average = stats.avg_processing_duration
    return {
        **{status: getattr(stats, status) for status in STATUSES},
        "other": stats.other,
        "total": stats.total,
        "avg_processing_duration": None if average is None else average.total_seconds(),
    }


def _row(name: str, stats: QueueStats) -> list[object]:
    average = stats.avg_processing_duration
    counts = [getattr(stats, status) for status in STATUSES]
    return [name, *counts, stats.total, "" if average is None else span(average)]
