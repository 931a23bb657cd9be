"""What commands print: tables and colours on a terminal, plain text elsewhere, JSON if asked."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import Any

import click
from bson.json_util import RELAXED_JSON_OPTIONS, dumps

from monque import Job

_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f]")

STYLES = {
    "pending": "cyan",
    "processing": "yellow",
    "completed": "green",
    "failed": "red",
    "cancelled": "dim",
    "ok": "green",
    "warning": "yellow",
    "error": "red",
}

as_json = click.option("--json", "as_json", is_flag=True, help="Print JSON, with stable field names.")


def print_json(fields: Mapping[str, Any]) -> None:
    """One object on one line; what JSON does not know is written as MongoDB's Extended JSON."""
    click.echo(
        dumps({name: _plain(value) for name, value in fields.items()}, json_options=RELAXED_JSON_OPTIONS)
    )


def _plain(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.isoformat(timespec="milliseconds")
    if isinstance(value, timedelta):
        return value.total_seconds()
    return value


def job_fields(job: Job[Any]) -> dict[str, Any]:
    """A job for `--json`: the names of `Job`, absent ones as null; times as text, durations in seconds."""
    return {
        "id": str(job.id),
        "name": job.name,
        "status": job.status.value,
        "data": job.data,
        "next_run_at": job.next_run_at,
        "fail_count": job.fail_count,
        "fail_reason": job.fail_reason,
        "cron": job.cron,
        "timezone": job.timezone,
        "unique_key": job.unique_key,
        "claimed_by": job.claimed_by,
        "locked_at": job.locked_at,
        "last_heartbeat": job.last_heartbeat,
        "heartbeat_interval": job.heartbeat_interval,
        "attempt": job.attempt,
        "created_at": job.created_at,
        "updated_at": job.updated_at,
    }


def print_table(
    columns: Sequence[str], rows: Sequence[Sequence[object]], *, numbers: Sequence[str] = ()
) -> None:
    """Rows below their headings; *numbers* are the columns that stand to the right."""
    cells = [[clean(cell) for cell in row] for row in rows]
    if sys.stdout.isatty():
        from rich.console import Console

        Console(highlight=False).print(rich_table(columns, cells, numbers=numbers))
        return
    widths = [max(map(len, column)) for column in zip(columns, *cells, strict=True)]
    for row in [list(columns), *cells]:
        padded = [
            cell.rjust(width) if column in numbers else cell.ljust(width)
            for column, cell, width in zip(columns, row, widths, strict=True)
        ]
        click.echo("  ".join(padded).rstrip())


def rich_table(
    columns: Sequence[str], rows: Sequence[Sequence[object]], *, numbers: Sequence[str] = ()
) -> Any:
    """The same for a terminal; the last column is cut where the line ends."""
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    for column in columns:
        table.add_column(
            column,
            justify="right" if column in numbers else "left",
            no_wrap=True,
            overflow="ellipsis",
            min_width=None if column == columns[-1] else len(column),
        )
    for row in rows:
        texts = [clean(cell) for cell in row]
        table.add_row(*(Text(text, style=STYLES.get(text, "")) for text in texts))
    return table


def clean(cell: object) -> str:
    """Text that cannot steer a terminal: whoever stored a job may have written anything into it."""
    text = "" if cell is None else str(cell)
    return _CONTROL.sub(lambda found: " " if found[0] in "\n\t" else repr(found[0])[1:-1], text)


@contextmanager
def progress(label: str, total: int) -> Iterator[Callable[[int], None]]:
    """A bar for long work, moved by calling what this gives with how much is done; on a terminal only."""
    if not sys.stderr.isatty():
        yield lambda _done: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(label, total=total)
        yield lambda done: bar.update(task, completed=done, total=max(total, done))
