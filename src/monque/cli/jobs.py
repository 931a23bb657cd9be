"""`monque jobs`: look at jobs and act on them."""

from __future__ import annotations

from dataclasses import fields
from datetime import datetime, timedelta
from itertools import islice
from typing import Any

import click

from monque import Job
from monque.cli.actions import (
    DELETE,
    RUN_NOW,
    acts,
    await_ends,
    cancelling,
    explained,
    perform,
    prioritizing,
    rescheduling,
    retrying,
    unknown_id,
)
from monque.cli.output import (
    as_json,
    clean,
    ids_meant,
    job_fields,
    print_attempts,
    print_json,
    print_log,
    print_table,
    shown_id,
    shown_progress,
)
from monque.cli.reasons import explanation_fields, print_explanation
from monque.cli.selection import Selection, selects
from monque.cli.session import Database, connects
from monque.cli.times import duration, moment, stamp

SORTS = click.Choice(["id", "created_at", "updated_at", "next_run_at"])


@click.group()
def jobs() -> None:
    """List, show, explain, wait for, cancel, retry, reschedule, run, prioritize and delete jobs.

    Filters are options. Times are given with a zone (2030-05-01T09:00Z) or as an age (2h).

    \b
    Examples:
      monque jobs list --status failed --updated-after 1h
      monque jobs retry --name send-email --status failed
    """


@jobs.command("list")
@selects
@click.option("--limit", type=click.IntRange(min=1), default=50, show_default=True, help="At most so many.")
@click.option("--all", "everything", is_flag=True, help="All that match, however many.")
@click.option("--sort", type=SORTS, default="id", show_default=True, help="In which order.")
@click.option("--descending", is_flag=True, help="Turn the order around: the youngest first.")
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

    With --json: a line for each job, as soon as it is read.

    \b
    Examples:
      monque jobs list --status failed --sort updated_at --descending
      monque jobs list --name send-email --all --json
      monque jobs list --cancelled-by expiry --updated-after 1d
    """
    with database.open() as monque:
        wanted = selection.filter(now=monque.server_time())
        found = monque.iter_jobs(wanted, sort=sort, descending=descending) if wanted else iter(())
        shown = found if everything else islice(found, limit)
        if as_json:
            for job in shown:
                print_json(job_fields(job))
            return
        rows = [_row(job) for job in shown]
        more = next(found, None) is not None
    print_table(["id", "name", "status", "due", "failures", "reason"], rows, numbers=["failures"])
    if more:
        click.echo(f"These are the first {limit}; see more with --limit or --all.", err=True)


def _row(job: Job[Any]) -> list[object]:
    reason = job.fail_reason if job.cancelled_by is None else job.cancel_reason or job.fail_reason
    return [shown_id(job.id), job.name, job.status, stamp(job.next_run_at), job.fail_count, reason]


@jobs.command()
@click.argument("job_id", metavar="ID")
@click.option("--traces", is_flag=True, help="Show where the errors of failed attempts were raised.")
@as_json
@connects
def show(job_id: str, traces: bool, as_json: bool, database: Database) -> None:
    """Show everything about one job: its progress, result and log, and its attempts that did not succeed.

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
    for field, value in {**job_fields(job), "progress": shown_progress(job.progress) or None}.items():
        if value != _USUAL[field] and field not in _LISTS:
            click.echo(f"{field:<{_WIDTH}} {_shown(value)}")
    if job.history:
        print_attempts(job.history, traces=traces)
    if job.log:
        print_log(job.log)


# A line that says what nearly every job has would only push the others away. Lists are printed by themselves.
_USUAL = {field.name: field.default for field in fields(Job)}
_LISTS = ("history", "log")
_WIDTH = max(map(len, _USUAL))


def _shown(value: object) -> str:
    return clean(stamp(value) if isinstance(value, datetime) else value)


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
        found = explained(monque, job_id)
    print_json(explanation_fields(job_id, found)) if as_json else print_explanation(found)


@jobs.command()
@click.argument("ids", nargs=-1, metavar="ID...", required=True)
@click.option("--timeout", type=duration, help="At most so long, for example 5m; default: any time.")
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
    with database.open() as monque:
        await_ends(monque, ids, timeout, as_json)


@jobs.command()
@acts
@click.option("--running", is_flag=True, help="Also those that run: their handlers are told to stop.")
@click.option("--reason", help="Why; kept with the jobs.")
@as_json
@connects
def cancel(database: Database, running: bool, reason: str | None, **wish: Any) -> None:
    """Keep pending jobs from running: those named by ID, or all that match the filters.

    With --running, a job that runs is asked to stop. It is cancelled when its handler has ended by that.

    \b
    Examples:
      monque jobs cancel 65f1c0ffee65f1c0ffee0001
      monque jobs cancel 65f1c0ffee65f1c0ffee0001 --running --reason "wrong customer"
      monque jobs cancel --name send-email --due-after 2030-01-01T00:00Z
      monque jobs cancel --expired
      monque jobs cancel --name send-email --payload customer.id=7 --running
    """
    perform(cancelling(running, reason), database, **wish)


@jobs.command()
@acts
@click.option("--spread", type=duration, default="0s", help="Let many become due within this time.")
@as_json
@connects
def retry(database: Database, spread: timedelta, **wish: Any) -> None:
    """Put failed and cancelled jobs back, due now: those named by ID, or all that match the filters.

    \b
    Examples:
      monque jobs retry 65f1c0ffee65f1c0ffee0001
      monque jobs retry --status failed --updated-after 1h --spread 10m --yes
    """
    perform(retrying(spread), database, **wish)


@jobs.command()
@acts
@click.option("--at", type=moment, help="When, with a zone, for example 2030-05-01T09:00+02:00.")
@click.option("--delay", type=duration, help="How long from now, for example 5m.")
@as_json
@connects
def reschedule(database: Database, at: datetime | None, delay: timedelta | None, **wish: Any) -> None:
    """Let pending jobs run at another time: those named by ID, or all that match the filters.

    \b
    Examples:
      monque jobs reschedule 65f1c0ffee65f1c0ffee0001 --delay 10m
      monque jobs reschedule --name report --at 2030-05-01T09:00Z --yes
    """
    if (at is None) == (delay is None):
        raise click.UsageError("say when: give either --at or --delay")
    perform(rescheduling(at, delay), database, **wish)


@jobs.command("run-now")
@acts
@as_json
@connects
def run_now(database: Database, **wish: Any) -> None:
    """Let pending jobs run now instead of later: those named by ID, or all that match the filters.

    A schedule runs once more, beside its times.

    \b
    Examples:
      monque jobs run-now 65f1c0ffee65f1c0ffee0001
      monque jobs run-now --name send-email --due-before 2030-01-01T00:00Z --not-recurring
    """
    perform(RUN_NOW, database, **wish)


@jobs.command()
@click.argument("number", metavar="PRIORITY", type=click.IntRange(0, 9))
@acts
@as_json
@connects
def priority(database: Database, number: int, **wish: Any) -> None:
    """Let pending jobs come before others: those named by ID, or all that match the filters.

    PRIORITY is a number from 0 (normal) to 9, which comes first.

    \b
    Examples:
      monque jobs priority 9 65f1c0ffee65f1c0ffee0001
      monque jobs priority 1 --name send-invoice --created-before 1h --yes
      monque jobs priority 0 --priority 1 --yes
    """
    perform(prioritizing(number), database, **wish)


@jobs.command()
@acts
@as_json
@connects
def delete(database: Database, **wish: Any) -> None:
    """Remove jobs for good, in whatever state: those named by ID, or all that match the filters.

    \b
    Examples:
      monque jobs delete 65f1c0ffee65f1c0ffee0001
      monque jobs delete --status completed --updated-before 30d
    """
    perform(DELETE, database, **wish)
