"""`monque enqueue`."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import click
from bson import ObjectId

from monque.cli.output import as_json, job_fields, print_json
from monque.cli.payload import payload
from monque.cli.session import Database, connects
from monque.cli.times import duration, moment, stamp


@click.command()
@click.argument("name")
@click.argument("data", metavar="[JSON]", type=payload, required=False)
@click.option("--delay", type=duration, help="How long from now, for example 5m; 1h30m; 2d.")
@click.option("--at", type=moment, help="When, with a zone, for example 2030-05-01T09:00+02:00.")
@click.option("--unique-key", help="If a job with this name and key is pending or processing, store none.")
@as_json
@connects
def enqueue(
    name: str,
    data: Any,
    delay: timedelta | None,
    at: datetime | None,
    unique_key: str | None,
    as_json: bool,
    database: Database,
) -> None:
    """Store a job.

    NAME is the job name, JSON its payload (- reads it from standard input).

    \b
    Examples:
      monque enqueue clean-up
      monque enqueue send-email '{"to": "ada@example.org"}' --delay 5m
      monque enqueue sync-user 7 --unique-key user-7
    """
    if delay is not None and at is not None:
        raise click.UsageError("--delay and --at cannot be given together; give one of them")
    before = ObjectId()
    with database.open(create_indexes=True) as monque:
        job = monque.enqueue(name, data, delay=delay, run_at=at, unique_key=unique_key)
    stored = _was_made(job.id, after=before)
    if as_json:
        print_json({**job_fields(job), "stored": stored})
        return
    click.echo(f"{job.id} {job.name} is {job.status}, due at {stamp(job.next_run_at)}")
    if not stored:
        click.echo(f"nothing was stored: that job holds the key {unique_key!r}", err=True)


def _was_made(job_id: object, *, after: ObjectId) -> bool:
    """Whether this process made the id after that other one: both begin with the same random bytes then."""
    return isinstance(job_id, ObjectId) and job_id.binary[4:9] == after.binary[4:9] and job_id > after
