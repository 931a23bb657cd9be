"""`monque schedules`: look at recurring jobs and act on them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from datetime import datetime, timedelta
from typing import Any, TypeVar

import click

from monque import JobNotFoundError, Schedule
from monque.cli.output import as_json, clean, print_json, print_table, shown_id
from monque.cli.payload import payload
from monque.cli.record import recording
from monque.cli.session import Database, connects
from monque.cli.times import cron_or_duration, span, stamp

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
    if as_json:
        for each in found:
            print_json(schedule_fields(each))
        return
    columns = ["name", "key", "when", "state", "next", "last", "runs", "skipped"]
    print_table(columns, [_row(each) for each in found], numbers=["runs", "skipped"])


def _row(schedule: Schedule) -> list[object]:
    times = [stamp(schedule.next_run_at), stamp(schedule.last_run_at)]
    counts = [schedule.run_count, schedule.skip_count]
    return [schedule.name, schedule.key, _when(schedule), schedule.state, *times, *counts]


def _when(schedule: Schedule) -> str:
    return f"every {span(schedule.every)}" if schedule.every is not None else str(schedule.cron)


def schedule_fields(schedule: Schedule) -> dict[str, Any]:
    """A schedule for `--json`: the names of `Schedule`; times as text, durations in seconds."""
    named = [field.name for field in fields(schedule) if field.name not in ("id", "times")]
    return {"id": shown_id(schedule.id), **{name: getattr(schedule, name) for name in named}}


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
    for field, value in schedule_fields(schedule).items():
        if value is not None:
            click.echo(f"{field:<12} {_shown(value)}")


def _shown(value: object) -> str:
    if isinstance(value, timedelta):
        return span(value)
    return clean(stamp(value) if isinstance(value, datetime) else value)


@schedules.command()
@names_schedule
@click.option("--cron", type=cron_or_duration, help="Another expression, or another interval such as 30s.")
@click.option("--timezone", help="Another IANA zone that the fields are meant in.")
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
    if as_json:
        print_json(schedule_fields(schedule))
    else:
        key = None if schedule.key == schedule.name else schedule.key
        click.echo(f"{_named(schedule.name, key)}: {done}")


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
    if as_json:
        print_json({"id": shown_id(job.id), "name": job.name})
    else:
        click.echo(f"{_named(name, unique_key)}: runs now, as job {shown_id(job.id)}")


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
    if as_json:
        print_json({"name": name, "key": unique_key or name, "removed": True})
    else:
        click.echo(f"{_named(name, unique_key)}: removed")


@schedules.command("next")
@names_schedule
@click.option("--count", type=click.IntRange(1, 1000), default=5, show_default=True, help="How many.")
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
        if as_json:
            print_json({"run_at": run_at, "past": past})
        else:
            click.echo(f"{stamp(run_at)} (past)" if past else stamp(run_at))


def _named(name: str, unique_key: str | None) -> str:
    return clean(name if unique_key is None else f"{name} {unique_key}")
