"""`monque enqueue`."""

from __future__ import annotations

from datetime import datetime, timedelta
from functools import partial
from typing import Any

import click
from click.core import ParameterSource

from monque import Enqueued, NewJob
from monque.cli.load import load_lines
from monque.cli.output import as_json, job_fields, print_json
from monque.cli.payload import payload
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
@click.option("--unique-key", help="If a job with this name and key is pending or processing, store none.")
@click.option(
    "--debounce",
    type=duration,
    help="Run it when no job with this name and key was stored for that long; the last one counts.",
)
@click.option("--max-attempts", type=click.IntRange(min=1), help="Run it so often at most, if it fails.")
@click.option("--priority", type=click.IntRange(0, 9), help="From 0 (normal) to 9, which comes first.")
@click.option("--expires", type=later, metavar="TIME|DURATION", help="Do not start it after this.")
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
    max_attempts: int | None,
    priority: int | None,
    expires: datetime | timedelta | None,
    as_json: bool,
    database: Database,
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
      monque enqueue send-email --from addresses.jsonl
    """
    if delay is not None and at is not None:
        raise click.UsageError("--delay and --at cannot be given together; give one of them")
    if debounce is not None and unique_key is None:
        raise click.UsageError("--debounce needs --unique-key: it says which jobs replace each other")
    if path is not None:
        _check_alone(unique_key)
        settings = {"max_attempts": max_attempts, "priority": priority, "expires": expires}
        make = partial(NewJob, name, delay=delay, run_at=at, **settings)
        load_lines(path, make, name, database, as_json=as_json)
        return
    with database.open(create_indexes=True) as monque:
        job = monque.enqueue(
            name,
            data,
            delay=delay,
            run_at=at,
            unique_key=unique_key,
            debounce=debounce,
            max_attempts=max_attempts,
            priority=priority,
            expires=expires,
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
