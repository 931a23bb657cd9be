"""Output of commands: tables and colours on a terminal, plain text elsewhere, JSON if asked."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import fields
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, TypeAlias

import click
from bson.json_util import RELAXED_JSON_OPTIONS, dumps, loads

from monque import Attempt, Explanation, Job, LogLine, Pause, Progress, QueueDepth, Step, Wait
from monque.cli.times import span, stamp

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

Columns: TypeAlias = Mapping[str, str | Callable[[Any], object]]
"""The cells of a table below each heading: a field of the value, or a function of it."""

as_json = click.option("--json", "as_json", is_flag=True, help="Print JSON, with stable field names.")


def print_json(values: Mapping[str, Any]) -> None:
    """Print one object on one line; what JSON does not know is written as MongoDB's Extended JSON."""
    click.echo(
        dumps({name: plain(value) for name, value in values.items()}, json_options=RELAXED_JSON_OPTIONS)
    )


def tell(values: Mapping[str, Any], text: str, *, as_json: bool) -> None:
    """Print what was done: the values as JSON if asked, else the text."""
    print_json(values) if as_json else click.echo(text)


def plain(value: Any) -> Any:
    """A value for `--json`: times as text, durations in seconds."""
    if isinstance(value, datetime):
        return value.isoformat(timespec="milliseconds")
    if isinstance(value, timedelta):
        return value.total_seconds()
    return value


def job_fields(job: Job[Any]) -> dict[str, Any]:
    """A job for `--json`: the fields of `Job`, absent ones as null; times as text, durations in seconds."""
    from monque._views.job import JobRecord

    return JobRecord.printed(job)


def plain_fields(value: QueueDepth | Pause) -> dict[str, Any]:
    """The fields of a value for `--json`."""
    return {field.name: plain(getattr(value, field.name)) for field in fields(value)}


def shown(value: object) -> object:
    """A value for people: a time to the second, a duration in its two largest units."""
    if isinstance(value, datetime):
        return stamp(value)
    return span(value) if isinstance(value, timedelta) else value


def shown_progress(progress: Progress | None) -> str:
    """Return the progress of a job in a few words: `3 of 4 (75 %), writing`."""
    if progress is None:
        return ""
    amount = _shown_amount(progress.done)
    if progress.total is not None and progress.fraction is not None:
        amount += f" of {_shown_amount(progress.total)} ({progress.fraction:.0%})".replace("%", " %")
    return f"{amount}, {progress.message}" if progress.message else amount


def _shown_amount(amount: float) -> str:
    return str(amount) if isinstance(amount, int) else f"{amount:g}"


def print_log(lines: Sequence[LogLine]) -> None:
    """Print the log lines of a job, the oldest first."""
    click.echo("log:")
    for line in lines:
        click.echo(clean(f"  {stamp(line.at)} {line.level}: {line.text}"))


def shown_wait(wait: Wait | None) -> str:
    """Return what a job waits for in a few words: `the signal paid, until 2030-05-01T09:00:00Z`."""
    if wait is None:
        return ""
    what = {
        "signal": f"the signal {wait.signal}",
        "batch": f"the batch {wait.batch}",
        "turn": f"its turn in {wait.line}",
    }
    until = "" if wait.until is None else f"until {stamp(wait.until)}"
    return ", ".join(filter(None, (what.get(wait.why), until)))


def print_steps(steps: Sequence[Step]) -> None:
    """The stored steps and waits of a job, a line each, in their order."""
    click.echo("steps:")
    for step in steps:
        is_wait = step.kind in ("sleep", "signal", "jobs")  # its duration is that of the run before it
        took = "" if is_wait or step.duration is None else f" after {step.duration.total_seconds():.3f} s"
        until = "" if step.until is None else f" until {stamp(step.until)}"
        value = "" if step.value is None else f": {step.value}"
        click.echo(clean(f"  {stamp(step.at)} {step.kind} {step.name}{took}{until}{value}"))


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


def print_explanation(why: Explanation) -> None:
    """The sentence, what it rests on, and what would help."""
    click.echo(clean(why.sentence) + ("" if why.certainty == "certain" else " (likely)"))
    width = max((len(each.label) for each in why.evidence), default=0)
    for each in why.evidence:
        click.echo(f"  {each.label:<{width}}  {clean(each.value)}")
    for remedy in why.remedies:
        if remedy.command is not None:
            click.echo(f"  → {remedy.label}: {clean(remedy.command)}")


def ids_meant(text: str) -> list[Any]:
    """Return the values that an id on the command line may mean: the text, and its value as Extended JSON."""
    try:
        value = loads(text, json_options=RELAXED_JSON_OPTIONS)
    except Exception:  # noqa: BLE001 - the codec raises many kinds of errors: the text is an id, not JSON
        return [text]
    return [text, value]


def print_all(
    values: Iterable[object],
    fields: Callable[[Any], Mapping[str, Any]],
    columns: Columns,
    *,
    as_json: bool,
    numbers: Sequence[str] = (),
) -> None:
    """A line with all *fields* for each value, or a table."""
    if as_json:
        for value in values:
            print_json(fields(value))
    else:
        print_table(list(columns), rows_of(values, columns), numbers=numbers)


def rows_of(values: Iterable[object], columns: Columns) -> list[list[object]]:
    """The cells of a table."""
    return [
        [shown(getattr(value, cell) if isinstance(cell, str) else cell(value)) for cell in columns.values()]
        for value in values
    ]


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
