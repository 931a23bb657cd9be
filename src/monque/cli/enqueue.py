"""`monque enqueue`: one job, or one for each line of a file."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from functools import partial
from typing import Any

import click
from click.core import ParameterSource

from monque import Enqueued, MonqueError, NewJob, PayloadError, SyncMonque
from monque.cli.lines import BadLineError, Lines, open_lines, payload
from monque.cli.output import as_json, job_fields, print_json, reading_progress
from monque.cli.session import Database, connects
from monque.cli.times import duration, later, moment, stamp


@click.command()
@click.argument("name")
@click.argument("data", metavar="[JSON]", type=payload, required=False)
@click.option(
    "--from",
    "path",
    metavar="FILE",
    help="Store a job for each line of a file, whose payload is the JSON of that line; - for standard input.",
)
@click.option("--delay", type=duration, help="How long from now, for example 5m; 1h30m; 2d.")
@click.option("--at", type=moment, help="When, with a zone, for example 2030-05-01T09:00+02:00.")
@click.option("--unique-key", help="Store none if a job with this name and key is pending or processing.")
@click.option(
    "--debounce",
    type=duration,
    help="Run it once no job with this name and key was stored for this long; the last one counts.",
)
@click.option("--max-attempts", type=click.IntRange(min=1), help="The most attempts, if it fails.")
@click.option("--priority", type=click.IntRange(0, 9), help="From 0 (normal) to 9, which comes first.")
@click.option("--expires", type=later, metavar="TIME|DURATION", help="Do not start it after this.")
@click.option("--batch", help="The label of the batch that it belongs to.")
@click.option("--after-batch", metavar="BATCH", help="Wait until no job of that batch is active.")
@click.option(
    "--if-failed",
    type=click.Choice(["cancel", "run"]),
    help="With --after-batch, if a job of it did not complete: cancel this one (default), or run it.",
)
@click.option("--on-failure", metavar="NAME", help="Store a job of this name if it fails for good.")
@as_json
@connects
def enqueue(
    name: str,
    data: Any,
    path: str | None,
    delay: timedelta | None,
    at: datetime | None,
    unique_key: str | None,
    debounce: timedelta | None,
    as_json: bool,
    database: Database,
    **settings: Any,
) -> None:
    """Store a job, or many.

    NAME is the job name, JSON its payload (- reads it from standard input). With --from, each line of a
    file is the payload of a job; blank lines are skipped.

    \b
    Examples:
      monque enqueue clean-up
      monque enqueue send-email '{"to": "ada@example.org"}' --delay 5m
      monque enqueue sync-user 7 --unique-key user-7 --max-attempts 3
      monque enqueue reindex '{"shop": 7}' --unique-key shop-7 --debounce 5s
      monque enqueue send-code '{"to": "ada@example.org"}' --expires 5m
      monque enqueue send-email '{"to": "ada@example.org"}' --priority 5
      monque enqueue send-email --from addresses.jsonl --batch newsletter-7
      monque enqueue report --after-batch newsletter-7 --if-failed run
      monque enqueue charge '{"order": 7}' --on-failure charge.dead
    """
    if delay is not None and at is not None:
        raise click.UsageError("--delay and --at cannot be given together; give one of them")
    if debounce is not None and unique_key is None:
        raise click.UsageError("--debounce needs --unique-key: it says which jobs replace each other")
    if path is not None:
        _check_alone(unique_key)
        make = partial(NewJob, name, delay=delay, run_at=at, **settings)
        load_lines(path, make, name, database, as_json=as_json)
        return
    with database.open(create_indexes=True) as monque:
        job = monque.enqueue(
            name, data, delay=delay, run_at=at, unique_key=unique_key, debounce=debounce, **settings
        )
    if as_json:
        print_json({**job_fields(job), "stored": job.enqueued is Enqueued.NEW})
        return
    click.echo(f"{job.id} {job.name} is {job.status}, due at {stamp(job.next_run_at)}")
    if job.enqueued in _INSTEAD:
        click.echo(f"{_INSTEAD[job.enqueued]} holds the key {unique_key!r}", err=True)


_INSTEAD = {
    Enqueued.KEPT: "nothing was stored: that job",
    Enqueued.REPLACED: "no new job was stored, this one was replaced: it",
    Enqueued.AGAIN: "no new job was stored, this one runs and will run once more: it",
}


def _check_alone(unique_key: str | None) -> None:
    """Refuse what is about a single job. A payload of `null` is None, too, so its source decides."""
    source = click.get_current_context().get_parameter_source("data")
    if source is ParameterSource.COMMANDLINE:
        raise click.UsageError("JSON and --from cannot be given together; the payloads are in the file")
    if unique_key is not None:
        raise click.UsageError("--unique-key and --from cannot be given together: all jobs had one key")


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
    """Return the number of stored jobs, and the error that kept the others from it."""
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
