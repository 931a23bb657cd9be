"""`monque schedule`."""

from __future__ import annotations

from typing import Any

import click

from monque.cli.output import as_json, job_fields, print_json
from monque.cli.payload import payload
from monque.cli.session import Database, connects
from monque.cli.times import stamp


@click.command()
@click.argument("cron")
@click.argument("name")
@click.argument("data", metavar="[JSON]", type=payload, required=False)
@click.option("--timezone", default="UTC", show_default=True, help="The IANA zone the fields are meant in.")
@click.option("--unique-key", help="Tells schedules of one job name apart; default: the name.")
@as_json
@connects
def schedule(
    cron: str,
    name: str,
    data: Any,
    timezone: str,
    unique_key: str | None,
    as_json: bool,
    database: Database,
) -> None:
    """Store a recurring job, or change it.

    CRON has five fields, or is a name such as @daily or @hourly. The same NAME (and key) again
    changes the schedule that is there.

    \b
    Examples:
      monque schedule '0 9 * * MON-FRI' daily-report --timezone Europe/Berlin
      monque schedule @hourly clean-up '{"days": 7}'
    """
    with database.open(create_indexes=True) as monque:
        job = monque.schedule(cron, name, data, timezone=timezone, unique_key=unique_key)
    if as_json:
        print_json(job_fields(job))
    else:
        click.echo(
            f"{job.id} {job.name} runs at {job.cron!r} in {job.timezone}, next at {stamp(job.next_run_at)}"
        )
