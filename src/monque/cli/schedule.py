"""`monque schedule`."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import click

from monque.cli.output import as_json, job_fields, print_json
from monque.cli.payload import payload
from monque.cli.record import recording
from monque.cli.session import Database, connects
from monque.cli.times import cron_or_duration, duration, moment, span, stamp


@click.command()
@click.argument("cron", type=cron_or_duration)
@click.argument("name")
@click.argument("data", metavar="[JSON]", type=payload, required=False)
@click.option("--timezone", default="UTC", show_default=True, help="The IANA zone the fields are meant in.")
@click.option("--unique-key", help="Tells schedules of one job name apart; default: the name.")
@click.option("--grace", type=duration, help="Skip a run that cannot start within this: 5m.")
@click.option("--jitter", type=duration, help="Let each run be later by at most this.")
@click.option("--start", type=moment, help="The first possible time, with a zone.")
@click.option("--end", type=moment, help="The last possible time; then it is completed.")
@click.option("--limit", type=click.IntRange(min=1), help="Runs in all; then it is completed.")
@click.option("--as-jobs", is_flag=True, help="Each run is a job of its own; runs may overlap.")
@click.option(
    "--overlap",
    type=click.Choice(["allow", "skip"]),
    default="allow",
    show_default=True,
    help="With --as-jobs: whether a job is stored while the one before is active.",
)
@click.option("--paused", is_flag=True, help="If this stores a new schedule, store it paused.")
@click.option("--run-now", is_flag=True, help="If this stores a new schedule, let it run at once, too.")
@as_json
@connects
def schedule(
    cron: str | timedelta,
    name: str,
    data: Any,
    as_json: bool,
    database: Database,
    **settings: Any,
) -> None:
    """Store a recurring job, or change it.

    CRON has five fields, or is a name such as @daily or @hourly, or an interval such as 30s or 1h. The same
    NAME (and key) again changes the schedule that is there; settings that are not given again go.

    \b
    Examples:
      monque schedule '0 9 * * MON-FRI' daily-report --timezone Europe/Berlin
      monque schedule @hourly clean-up '{"days": 7}'
      monque schedule 30s poll-mailbox --jitter 3s --grace 10s
    """
    with database.open(create_indexes=True) as monque, recording(monque, "schedule", name=name) as known:
        job = monque.schedule(cron, name, data, **settings)
        known |= {"job_id": job.id, "after": {"cron": job.cron, "timezone": job.timezone}}
    if as_json:
        print_json(job_fields(job))
        return
    when = f"every {span(cron)}" if isinstance(cron, timedelta) else f"at {job.cron!r} in {job.timezone}"
    click.echo(f"{job.id} {job.name} runs {when}, {_next(job.next_run_at, job.status)}")


def _next(run_at: datetime | None, status: str) -> str:
    if status == "completed":
        return "and has ended"
    return "paused" if run_at is None else f"next at {stamp(run_at)}"
