"""`monque jobs`: look at jobs and act on them."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, fields
from datetime import timedelta
from itertools import islice
from typing import Any, get_args

import bson
import click

from monque import Job, JobNotFoundError, JobStateError, JobStatus, Slowness, Sort, WaitTimeoutError
from monque._views.text import shown_id
from monque.cli.actions import commands, meant, unknown_id
from monque.cli.editing import edit
from monque.cli.lines import payload
from monque.cli.output import (
    Columns,
    as_json,
    clean,
    ids_meant,
    job_fields,
    print_all,
    print_attempts,
    print_explanation,
    print_json,
    print_log,
    print_steps,
    shown,
    shown_progress,
    shown_wait,
)
from monque.cli.selection import Selection, selects
from monque.cli.session import Database, connects, recording
from monque.cli.times import duration
from monque.sync import SyncMonque

# Seconds in which an end that has come already is read, also after the time is up: enough for a server far
# away, and little beside a short --timeout.
_ONE_LOOK = 1.0

_SLOWNESS = get_args(Slowness)
SORTS = click.Choice([*get_args(Sort), *_SLOWNESS])


@click.group()
def jobs() -> None:
    """Look at jobs and act on them.

    Filters are options. Times are given with a zone (2030-05-01T09:00Z) or as an age (2h).

    \b
    Examples:
      monque jobs list --status failed --updated-after 1h
      monque jobs retry --name send-email --status failed
    """


@jobs.command("list")
@selects
@click.option("--limit", type=click.IntRange(min=1), default=50, show_default=True, help="The most to list.")
@click.option("--all", "everything", is_flag=True, help="All that match, however many.")
@click.option("--sort", type=SORTS, default="id", show_default=True, help="The order.")
@click.option("--descending", is_flag=True, help="Reverse the order: the newest first.")
@as_json
@connects
def list_jobs(
    selection: Selection,
    limit: int,
    everything: bool,
    sort: Any,
    descending: bool,
    as_json: bool,
    database: Database,
) -> None:
    """List jobs.

    With --json: a line for each job, as soon as it is read. Sorted by ran or waited: those that have
    ended and took longest, at most 1000, the longest first.

    \b
    Examples:
      monque jobs list --status failed --sort updated_at --descending
      monque jobs list --name send-email --all --json
      monque jobs list --cancelled-by expiry --updated-after 1d
      monque jobs list --sort ran --updated-after 1h --ran-at-least 10s
    """
    if sort in _SLOWNESS:
        if descending or everything:
            raise click.UsageError(
                f"--sort {sort} lists the longest first, at most 1000: leave --descending and --all out"
            )
        _list_slowest(selection, limit, sort, as_json, database)
        return
    with database.open() as monque:
        wanted = selection.filter(now=monque.server_time())
        found = monque.iter_jobs(wanted, sort=sort, descending=descending) if wanted else iter(())
        chosen = found if everything else islice(found, limit)
        print_all(chosen, job_fields, _COLUMNS, as_json=as_json, numbers=["failures"])
        if not as_json and next(found, None) is not None:
            click.echo(f"These are the first {limit}; see more with --limit or --all.", err=True)


def _list_slowest(selection: Selection, limit: int, by: Slowness, as_json: bool, database: Database) -> None:
    with database.open() as monque:
        wanted = selection.filter(now=monque.server_time())
        found = None if wanted is None else monque.slowest_jobs(wanted, by=by, limit=min(limit, _MOST_SLOW))
    print_all(found or (), job_fields, _SLOW_COLUMNS, as_json=as_json, numbers=["ran", "waited"])
    if found is not None and found.capped:
        click.echo(
            f"Looked for among the {found.looked_at:,} that changed last; more match: give --updated-after, "
            "--updated-before or --name to look at others.",
            err=True,
        )


# As the core has it.
_MOST_SLOW = 1_000


def _reason(job: Job[Any]) -> str | None:
    if (wait := job.waits_for) is not None:
        return f"waits {'' if wait.why == 'time' else 'for '}{shown_wait(wait)}"
    return job.fail_reason if job.cancelled_by is None else job.cancel_reason or job.fail_reason


_COLUMNS: Columns = {
    "id": lambda job: shown_id(job.id),
    "name": "name",
    "status": "status",
    "due": "next_run_at",
    "failures": "fail_count",
    "reason": _reason,
}


_SLOW_COLUMNS: Columns = {
    "id": lambda job: shown_id(job.id),
    "name": "name",
    "status": "status",
    "ran": lambda job: job.ran,
    "waited": lambda job: job.waited,
    "ended": "updated_at",
}


@jobs.command()
@click.argument("job_id", metavar="ID")
@click.option("--traces", is_flag=True, help="Show where the errors of failed attempts were raised.")
@as_json
@connects
def show(job_id: str, traces: bool, as_json: bool, database: Database) -> None:
    """Show everything about one job: its steps, result and log, and its attempts that did not succeed.

    \b
    Examples:
      monque jobs show 65f1c0ffee65f1c0ffee0001 --traces
      monque jobs show 65f1c0ffee65f1c0ffee0001 --json
    """
    with database.open() as monque:
        job = next(filter(None, map(monque.get_job, ids_meant(job_id))), None)
    if job is None:
        raise click.ClickException(unknown_id(job_id))
    if as_json:
        print_json(job_fields(job))
        return
    for field in fields(Job):
        value = getattr(job, field.name)
        # A line that says what nearly every job has would only push the others away.
        if value != field.default and field.name not in _LISTS:
            click.echo(f"{field.name:<{_WIDTH}} {clean(_SHOWN.get(field.name, shown)(value))}")
    if job.steps:
        print_steps(job.steps)
    if job.history:
        print_attempts(job.history, traces=traces)
    if job.log:
        print_log(job.log)


_SHOWN: Mapping[str, Callable[[Any], object]] = {
    "id": shown_id,
    "schedule_id": shown_id,
    "progress": shown_progress,
    "waits_for": shown_wait,
    "signals": lambda signals: ", ".join(each.name for each in signals),
    "parent": lambda parent: f"{shown_id(parent.job_id)}, in its step {parent.step}",
}
_LISTS = ("history", "log", "steps")
"""Printed by themselves."""
_WIDTH = max(len(field.name) for field in fields(Job))


@jobs.command()
@click.argument("job_id", metavar="ID")
@as_json
@connects
def why(job_id: str, as_json: bool, database: Database) -> None:
    """Say why a job does not run, or what it does instead, and what would help.

    \b
    Examples:
      monque jobs why 65f1c0ffee65f1c0ffee0001
      monque jobs why 65f1c0ffee65f1c0ffee0001 --json
    """
    with database.open() as monque:
        try:
            found = monque.explain(meant(monque, job_id))
        except JobNotFoundError:
            raise click.ClickException(unknown_id(job_id)) from None
    print_json({"id": job_id, **asdict(found)}) if as_json else print_explanation(found)


@jobs.command("signal")
@click.argument("job_id", metavar="ID")
@click.argument("name")
@click.argument("data", metavar="[JSON]", type=payload, required=False)
@click.option("--id", "signal_id", metavar="TEXT", help="A second signal with the same id is ignored.")
@click.option("--note", help="Why; kept in the audit trail.")
@as_json
@connects
def send_signal(
    job_id: str,
    name: str,
    data: Any,
    signal_id: str | None,
    note: str | None,
    as_json: bool,
    database: Database,
) -> None:
    """Send a signal to a job that waits for it, or will. The exit code is 1 if the job has ended.

    \b
    Examples:
      monque jobs signal 65f1c0ffee65f1c0ffee0001 approved
      monque jobs signal 65f1c0ffee65f1c0ffee0001 picked-up '{"by": "DHL"}' --id evt_1
    """
    with database.open() as monque:
        error = _signal(monque, meant(monque, job_id), name, data, signal_id, note)
    if as_json:
        print_json({"id": job_id, "done": error is None, "error": error})
    elif error is None:
        click.echo(f"sent {name} to {job_id}")
    else:
        click.echo(f"Error: {error}", err=True)
    if error is not None:
        click.get_current_context().exit(1)


def _signal(
    monque: SyncMonque, job_id: Any, name: str, data: Any, signal_id: str | None, note: str | None
) -> str | None:
    """Send it, and return the error as text. The trail has its name and its size, never its data."""
    before = monque.get_job(job_id)
    if before is None:
        return unknown_id(job_id)
    try:
        with recording(monque, "signal", before, after={"signal": name}, note=note) as known:
            if not monque.signal(before, name, data, id=signal_id):
                raise _ended(monque.get_job(job_id) or before)
            known["after"] = {"signal": name, "size": len(bson.encode({"v": data}))}
    except JobStateError as error:
        return str(error)
    return None


def _ended(job: Job[Any]) -> JobStateError:
    return JobStateError(
        f"cannot signal job {shown_id(job.id)}: it is {job.status}, so nothing receives it",
        job_id=job.id,
        current_status=job.status,
        attempted_action="signal",
    )


@jobs.command()
@click.argument("ids", nargs=-1, metavar="ID...", required=True)
@click.option("--timeout", type=duration, help="Wait at most this long, for example 5m. Default: no limit.")
@as_json
@connects
def wait(ids: tuple[str, ...], timeout: timedelta | None, as_json: bool, database: Database) -> None:
    """Wait until jobs are completed, failed or cancelled, and say which.

    The exit code is 0 if all of them are completed, and 1 otherwise, also if the time is up. With --json: a
    line for each job, with its result.

    \b
    Examples:
      monque jobs wait 65f1c0ffee65f1c0ffee0001 --timeout 5m
      monque jobs wait 65f1c0ffee65f1c0ffee0001 --json
    """
    deadline = None if timeout is None else time.monotonic() + timeout.total_seconds()
    problems = 0
    with database.open() as monque:
        for job_id in ids:
            try:
                job = monque.wait_for(meant(monque, job_id), timeout=_left(deadline))
            except (JobNotFoundError, JobStateError, WaitTimeoutError) as error:
                problems += 1
                click.echo(f"Error: {_why_no_end(job_id, error)}", err=True)
                continue
            problems += job.status != JobStatus.COMPLETED
            print_json(job_fields(job)) if as_json else click.echo(f"{job.status} {job_id}")
    if problems:
        click.get_current_context().exit(1)


def _left(deadline: float | None) -> timedelta | None:
    return None if deadline is None else timedelta(seconds=max(deadline - time.monotonic(), _ONE_LOOK))


def _why_no_end(job_id: str, error: Exception) -> str:
    if isinstance(error, JobNotFoundError):
        return unknown_id(job_id)
    return (
        f"job {job_id} has not ended in time; it goes on" if isinstance(error, TimeoutError) else str(error)
    )


for _each in (*commands(), edit):
    jobs.add_command(_each)
