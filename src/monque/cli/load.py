"""What `monque enqueue --from` does: it stores a job for each line of a file."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from monque import MonqueError, NewJob, PayloadError, SyncMonque
from monque.cli.lines import BadLineError, Lines, open_lines
from monque.cli.output import print_json, reading_progress
from monque.cli.session import Database


def load_lines(
    path: str, new_job: Callable[[Any], NewJob[Any]], name: str, database: Database, *, as_json: bool
) -> None:
    """Store the jobs, and say how many were stored, also if not all were."""
    with open_lines(path) as lines, database.open(create_indexes=True) as monque:
        stored, error = _load(monque, lines, new_job)
    if as_json:
        print_json({"name": name, "stored": stored})
    elif error is None:
        click.echo(f"{_were_stored(stored)} as {name}")
    if error is not None:
        raise _failure(error, lines, stored) from error


def _load(
    monque: SyncMonque, lines: Lines, new_job: Callable[[Any], NewJob[Any]]
) -> tuple[int, BadLineError | MonqueError | None]:
    """How many jobs were stored, and the error that kept the others from it."""
    count = 0
    with reading_progress("storing", lines.size) as show:

        def progressed(stored: int) -> None:
            nonlocal count
            count = stored
            show(lines.read, stored)

        try:
            monque.enqueue_many(map(new_job, lines.payloads()), return_jobs=False, on_progress=progressed)
        except (BadLineError, MonqueError) as error:
            return count, error
        except KeyboardInterrupt:
            click.echo(f"\nat least {_were_stored(count)}", err=True)
            raise
    return count, None


def _failure(error: Exception, lines: Lines, stored: int) -> Exception:
    """The error as a sentence; a wrong line is wrong input only as long as nothing was stored."""
    # A payload is checked as soon as it is read, so the wrong one is that of the last line.
    message = f"{lines.place}: {error}" if isinstance(error, PayloadError) else str(error)
    if stored:
        return click.ClickException(f"{message}; {_were_stored(stored)} before")
    return click.UsageError(message) if isinstance(error, BadLineError | PayloadError) else error


def _were_stored(count: int) -> str:
    return "1 job was stored" if count == 1 else f"{count:,} jobs were stored"
