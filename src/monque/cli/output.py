"""What commands print: tables and colours on a terminal, plain text elsewhere, JSON if asked."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import fields
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

import click
from bson import ObjectId
from bson.json_util import RELAXED_JSON_OPTIONS, dumps, loads

from monque import Attempt, Job, LogLine, Progress, QueueDepth
from monque.cli.times import stamp

if TYPE_CHECKING:
    from rich.text import Text

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


def print_json(values: Mapping[str, Any]) -> None:
    """One object on one line; what JSON does not know is written as MongoDB's Extended JSON."""
    click.echo(
        dumps({name: plain(value) for name, value in values.items()}, json_options=RELAXED_JSON_OPTIONS)
    )


def plain(value: Any) -> Any:
    """A value for `--json`: times as text, durations in seconds."""
    if isinstance(value, datetime):
        return value.isoformat(timespec="milliseconds")
    if isinstance(value, timedelta):
        return value.total_seconds()
    return value


def job_fields(job: Job[Any]) -> dict[str, Any]:
    """A job for `--json`: the fields of `Job`, absent ones as null; times as text, durations in seconds."""
    return {field.name: getattr(job, field.name) for field in fields(Job)} | {
        "id": shown_id(job.id),
        "schedule_id": None if job.schedule_id is None else shown_id(job.schedule_id),
        "progress": None if job.progress is None else _progress_fields(job.progress),
        "history": [plain_fields(attempt) for attempt in job.history],
        "log": [plain_fields(line) for line in job.log],
    }


def plain_fields(value: Attempt | LogLine | Progress | QueueDepth) -> dict[str, Any]:
    """The fields of a value for `--json`."""
    return {field.name: plain(getattr(value, field.name)) for field in fields(value)}


def _progress_fields(progress: Progress) -> dict[str, Any]:
    return {**plain_fields(progress), "fraction": progress.fraction}


def shown_progress(progress: Progress | None) -> str:
    """How far a job is, in a few words: `3 of 4 (75 %), writing`."""
    if progress is None:
        return ""
    amount = _shown_amount(progress.done)
    if progress.total is not None and progress.fraction is not None:
        amount += f" of {_shown_amount(progress.total)} ({progress.fraction:.0%})".replace("%", " %")
    return f"{amount}, {progress.message}" if progress.message else amount


def _shown_amount(amount: float) -> str:
    return str(amount) if isinstance(amount, int) else f"{amount:g}"


def print_log(lines: Sequence[LogLine]) -> None:
    """What the handler has told of its runs, the oldest line first."""
    click.echo("log:")
    for line in lines:
        click.echo(clean(f"  {stamp(line.at)} {line.level}: {line.text}"))


def print_attempts(attempts: Sequence[Attempt], *, traces: bool) -> None:
    """The runs that did not succeed, a line each, the oldest first; with their traces if asked."""
    click.echo("attempts that did not succeed:")
    for attempt in attempts:
        ran = ""
        if attempt.started_at is not None and attempt.finished_at is not None:
            ran = f" after {(attempt.finished_at - attempt.started_at).total_seconds():.3f} s"
        what = f"{attempt.error}: {attempt.message}" if attempt.message else attempt.error
        where = f"at {stamp(attempt.finished_at)}{ran} in {attempt.instance}"
        click.echo(clean(f"  {attempt.number}. {attempt.outcome} {where}: {what}"))
        for line in (attempt.traceback or "").splitlines() if traces else ():
            click.echo(f"       {clean(line)}")


def shown_id(job_id: Any) -> str:
    """An id as text that commands take again: other kinds than `ObjectId` and text as Extended JSON."""
    plain = isinstance(job_id, ObjectId) or type(job_id) is str
    return str(job_id) if plain else dumps(job_id, json_options=RELAXED_JSON_OPTIONS)


def ids_meant(text: str) -> list[Any]:
    """What an id on the command line may mean: the text, or the value that it is the Extended JSON of."""
    try:
        value = loads(text, json_options=RELAXED_JSON_OPTIONS)
    except Exception:  # noqa: BLE001 - the codec raises many kinds of errors: the text is an id, not JSON
        return [text]
    return [text, value]


def print_table(
    columns: Sequence[str], rows: Sequence[Sequence[object]], *, numbers: Sequence[str] = ()
) -> None:
    """Rows below their headings; *numbers* are the columns that stand to the right."""
    if sys.stdout.isatty():
        from rich.console import Console

        console = Console(highlight=False)
        for line in coloured_table(columns, rows, numbers=numbers):
            console.print(line, no_wrap=True, overflow="ellipsis")
        return
    for cells in _padded(columns, rows, numbers):
        click.echo("  ".join(cells).rstrip())


def coloured_table(
    columns: Sequence[str], rows: Sequence[Sequence[object]], *, numbers: Sequence[str] = ()
) -> list[Text]:
    """The same lines for a terminal, cut where it ends."""
    from rich.text import Text

    lines = [Text(no_wrap=True, overflow="ellipsis") for _ in range(len(rows) + 1)]
    for number, (line, cells) in enumerate(zip(lines, _padded(columns, rows, numbers), strict=True)):
        for cell in cells:
            line.append(f"{cell}  ", style=STYLES.get(cell.strip(), "") if number else "bold")
        line.rstrip()
    return lines


def _padded(
    columns: Sequence[str], rows: Sequence[Sequence[object]], numbers: Sequence[str]
) -> list[list[str]]:
    """The headings and the rows, each cell as wide as its column."""
    lines = [list(columns), *([clean(cell) for cell in row] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return [
        [
            cell.rjust(width) if column in numbers else cell.ljust(width)
            for column, cell, width in zip(columns, line, widths, strict=True)
        ]
        for line in lines
    ]


def clean(cell: object) -> str:
    """Text that cannot steer a terminal: whoever stored a job may have written anything into it."""
    text = "" if cell is None else str(cell)
    return _CONTROL.sub(lambda found: " " if found[0] in "\n\t" else repr(found[0])[1:-1], text)


@contextmanager
def waiting(label: str) -> Iterator[None]:
    """Something that moves while nobody knows how long it takes; on a terminal only."""
    if not sys.stderr.isatty():
        yield
        return
    from rich.console import Console

    with Console(stderr=True).status(label):
        yield


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


@contextmanager
def reading_progress(label: str, size: int | None) -> Iterator[Callable[[int, int], None]]:
    """A bar for a file of *size* bytes (None: unknown) with jobs in it; on a terminal only.

    It is moved by calling what this gives with the bytes that were read and the jobs that are stored.
    """
    if not sys.stderr.isatty():
        yield lambda _read, _stored: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

    stored = TextColumn("{task.description} {task.fields[stored]:,} jobs")
    columns = (stored, BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(label, total=size, stored=0)
        yield lambda read, stored: bar.update(task, completed=read, stored=stored)
