"""`monque schedules` and `monque schedule`: look at recurring jobs, store them and act on them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from datetime import datetime, timedelta
from typing import Any, TypeVar

import click

from monque import JobNotFoundError, Schedule
from monque._views.text import shown_id
from monque.cli.lines import payload
from monque.cli.output import Columns, as_json, clean, job_fields, print_all, print_json, shown, tell
from monque.cli.session import Database, connects, recording
from monque.cli.times import cron_or_duration, duration, moment, span, stamp

F = TypeVar("F", bound=Callable[..., Any])


@click.group()
def schedules() -> None:
    """List, show, edit, pause, resume, trigger and remove recurring jobs.

    A schedule is found by its job name, and by --unique-key if that is not the name.

    \b
    Examples:
      monque schedules list
      monque schedules pause poll-mailbox
      monque schedules next report --count 3
    """


def names_schedule(command: F) -> F:
    """Give a command the argument NAME and the option `--unique-key`."""
    key = click.option("--unique-key", help="The key of the schedule; default: its name.")
    return click.argument("name")(key(command))


@schedules.command("list")
@click.option("--name", help="Only those of this job name.")
@as_json
@connects
def list_schedules(name: str | None, as_json: bool, database: Database) -> None:
    """List the schedules that wait or run.

    With --json: a line for each.

    \b
    Examples:
      monque schedules list
      monque schedules list --name report --json
    """
    with database.open() as monque:
        found = monque.list_schedules(name=name)
    print_all(found, schedule_fields, _COLUMNS, as_json=as_json, numbers=["runs", "skipped"])


def _when(schedule: Schedule) -> str:
    return f"every {span(schedule.every)}" if schedule.every is not None else str(schedule.cron)


_COLUMNS: Columns = {
    "name": "name",
    "key": "key",
    "when": _when,
    "state": "state",
    "next": "next_run_at",
    "last": "last_run_at",
    "runs": "run_count",
    "skipped": "skip_count",
}


def schedule_fields(schedule: Schedule) -> dict[str, Any]:
    """A schedule for `--json`: the names of `Schedule`; times as text, durations in seconds."""
    from monque._views.schedule import ScheduleRecord

    return ScheduleRecord.printed(schedule)


@schedules.command()
@names_schedule
@as_json
@connects
def show(name: str, unique_key: str | None, as_json: bool, database: Database) -> None:
    """Show everything about one schedule.

    \b
    Examples:
      monque schedules show report
      monque schedules show report --unique-key weekly --json
    """
    with database.open() as monque:
        schedule = monque.get_schedule(name, unique_key)
    if as_json:
        print_json(schedule_fields(schedule))
        return
    for field in fields(schedule):
        value = getattr(schedule, field.name)
        if value is not None and field.name not in ("times", "recent_runs"):
            click.echo(f"{field.name:<12} {clean(shown_id(value) if field.name == 'id' else shown(value))}")
    for run in schedule.recent_runs:
        click.echo(f"{'ran':<12} {stamp(run.at)}  {run.outcome} after {span(run.duration)}")


@schedules.command()
@names_schedule
@click.option("--cron", type=cron_or_duration, help="Another expression, or another interval such as 30s.")
@click.option("--timezone", help="Another IANA time zone for the expression.")
@click.option("--data", metavar="JSON", help="Another payload, for its next runs.")
@as_json
@connects
def edit(
    name: str,
    unique_key: str | None,
    cron: str | timedelta | None,
    timezone: str | None,
    data: str | None,
    as_json: bool,
    database: Database,
) -> None:
    """Change the times, the zone or the payload of a schedule; the rest stays as it is.

    \b
    Examples:
      monque schedules edit report --cron '0 8 * * MON-FRI'
      monque schedules edit report --unique-key weekly --timezone Europe/Berlin
    """
    if cron is timezone is data is None:
        raise click.UsageError("say what to change: --cron, --timezone or --data")
    given = ... if data is None else payload(data)
    with database.open() as monque, recording(monque, "schedule-edit", name=name) as known:
        known["before"] = monque.get_schedule(name, unique_key)
        schedule = monque.edit_schedule(name, unique_key, cron=cron, timezone=timezone, data=given)
        known |= {"job_id": schedule.id, "after": schedule}
    _tell(schedule, f"changed, {_following(schedule)}", as_json=as_json)


def _following(schedule: Schedule) -> str:
    at = schedule.next_run_at
    return "it has no next run" if at is None else f"next at {stamp(at)}"


@schedules.command()
@names_schedule
@as_json
@connects
def pause(name: str, unique_key: str | None, as_json: bool, database: Database) -> None:
    """Let a schedule wait until it is resumed; a run in progress goes on to its end.

    \b
    Examples:
      monque schedules pause poll-mailbox
    """
    with database.open() as monque, recording(monque, "schedule-pause", name=name) as known:
        schedule = monque.pause_schedule(name, unique_key)
        known |= {"job_id": schedule.id, "after": schedule}
    _tell(schedule, "paused until it is resumed", as_json=as_json)


@schedules.command()
@names_schedule
@as_json
@connects
def resume(name: str, unique_key: str | None, as_json: bool, database: Database) -> None:
    """Let a paused schedule go on with its next time from now.

    \b
    Examples:
      monque schedules resume poll-mailbox
    """
    with database.open() as monque, recording(monque, "schedule-resume", name=name) as known:
        schedule = monque.resume_schedule(name, unique_key)
        known |= {"job_id": schedule.id, "after": schedule}
    following = "it has ended" if schedule.next_run_at is None else f"next at {stamp(schedule.next_run_at)}"
    _tell(schedule, f"resumed, {following}", as_json=as_json)


def _tell(schedule: Schedule, done: str, *, as_json: bool) -> None:
    key = None if schedule.key == schedule.name else schedule.key
    tell(schedule_fields(schedule), f"{_named(schedule.name, key)}: {done}", as_json=as_json)


@schedules.command()
@names_schedule
@as_json
@connects
def trigger(name: str, unique_key: str | None, as_json: bool, database: Database) -> None:
    """Let a schedule run now, beside its times; if it runs, once more after that.

    \b
    Examples:
      monque schedules trigger report
    """
    with database.open() as monque, recording(monque, "schedule-run-now", name=name) as known:
        job = monque.trigger_schedule(name, unique_key)
        known["job_id"] = job.id
    done = f"{_named(name, unique_key)}: runs now, as job {shown_id(job.id)}"
    tell({"id": shown_id(job.id), "name": job.name}, done, as_json=as_json)


@schedules.command()
@names_schedule
@as_json
@connects
def remove(name: str, unique_key: str | None, as_json: bool, database: Database) -> None:
    """Remove a schedule: it is cancelled; if it runs, after that run.

    \b
    Examples:
      monque schedules remove report --unique-key weekly
    """
    try:
        with database.open() as monque, recording(monque, "unschedule", name=name) as known:
            schedule = monque.get_schedule(name, unique_key)
            known |= {"job_id": schedule.id, "before": schedule}
            monque.unschedule(name, unique_key)
    except JobNotFoundError:
        raise click.ClickException(f"there is no schedule {_named(name, unique_key)}") from None
    done = {"name": name, "key": unique_key or name, "removed": True}
    tell(done, f"{_named(name, unique_key)}: removed", as_json=as_json)


@schedules.command("next")
@names_schedule
@click.option("--count", type=click.IntRange(1, 1000), default=5, show_default=True, help="How many times.")
@as_json
@connects
def next_times(name: str, unique_key: str | None, count: int, as_json: bool, database: Database) -> None:
    """Print the next times of a schedule, in UTC, a line each; nothing while it is paused.

    A time that is past is marked: the schedule waits for a worker, and runs once for all of these.

    \b
    Examples:
      monque schedules next report --count 3
    """
    with database.open() as monque:
        schedule, now = monque.get_schedule(name, unique_key), monque.server_time()
    for run_at in schedule.next_runs(count):
        past = run_at <= now
        text = f"{stamp(run_at)} (past)" if past else stamp(run_at)
        tell({"run_at": run_at, "past": past}, text, as_json=as_json)


def _named(name: str, unique_key: str | None) -> str:
    return clean(name if unique_key is None else f"{name} {unique_key}")


@click.command()
@click.argument("cron", type=cron_or_duration)
@click.argument("name")
@click.argument("data", metavar="[JSON]", type=payload, required=False)
@click.option("--timezone", default="UTC", show_default=True, help="The IANA time zone of the expression.")
@click.option("--unique-key", help="Tells schedules of one job name apart; default: the name.")
@click.option("--grace", type=duration, help="Skip a run that cannot start within this: 5m.")
@click.option("--jitter", type=duration, help="Delay each run by a random time of up to this.")
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
    cron: str | timedelta, name: str, data: Any, as_json: bool, database: Database, **settings: Any
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
    when = f"every {span(cron)}" if isinstance(cron, timedelta) else f"at {job.cron!r} in {job.timezone}"
    done = f"{job.id} {job.name} runs {when}, {_next(job.next_run_at, job.status)}"
    tell(job_fields(job), done, as_json=as_json)


def _next(run_at: datetime | None, status: str) -> str:
    if status == "completed":
        return "and has ended"
    return "paused" if run_at is None else f"next at {stamp(run_at)}"
