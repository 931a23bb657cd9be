"""What `monque jobs` does to jobs: to some by id, or to many by filters after asking."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, TypeAlias, TypeVar

import click
from bson import ObjectId

from monque import (
    BulkResult,
    Explanation,
    Job,
    JobFilter,
    JobNotFoundError,
    JobStateError,
    JobStatus,
    WaitTimeoutError,
)
from monque.cli.output import ids_meant, job_fields, print_json, progress, shown_id
from monque.cli.record import recording
from monque.cli.selection import Selection, selects
from monque.cli.session import Database
from monque.sync import SyncMonque

# Seconds in which an end that has come already is read, also after the time is up. Half may be too short for
# a server far away; twice makes a short --timeout take longer than anybody expects.
_ONE_LOOK = 1.0

# Jobs of one piece: as many as an entry of the audit trail keeps ids of. With half, the trail has twice the
# entries for one command.
_PIECE = 10_000

F = TypeVar("F", bound=Callable[..., Any])

Tell: TypeAlias = Callable[[int], None]
"""Called with how many jobs are done."""

Many: TypeAlias = Callable[[SyncMonque, JobFilter, Any, Tell], BulkResult]
"""Does it to jobs that match, beyond an id if one is given; `BulkResult.next` is where it goes on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Action:
    """One way to change jobs."""

    verb: str
    done: str
    of_many: str
    """What the audit trail calls it if it is done to many."""
    note: str | None = None
    """Why it is done, for the audit trail."""
    among: frozenset[str] | None = None
    """The states it applies to; None for all."""
    leaves_running: bool = False
    """Whether it passes over jobs that run, which an option would include."""
    creates_indexes: bool = False
    """Whether it may need an index that is not there yet."""
    one: Callable[[SyncMonque, Any], object]
    many: Many


def acts(command: F) -> F:
    """The arguments of `perform` as those of a command."""
    for decorate in (
        click.option("--yes", is_flag=True, help="Do not ask."),
        click.option("--all", "everything", is_flag=True, help="All jobs there are, instead of filters."),
        selects,
        click.argument("ids", nargs=-1, metavar="[ID]..."),
    ):
        command = decorate(command)
    return command


def perform(
    action: Action,
    database: Database,
    *,
    ids: tuple[str, ...],
    selection: Selection,
    everything: bool,
    yes: bool,
    as_json: bool,
) -> None:
    """Do it to the jobs that are meant; what is meant must be said in exactly one way."""
    if [bool(ids), bool(selection), everything].count(True) != 1:
        raise click.UsageError(f"say which jobs to {action.verb}: by ID, by filters, or --all")
    with database.open(create_indexes=action.creates_indexes) as monque:
        if ids:
            _by_id(action, monque, ids, as_json)
        else:
            _by_filter(action, monque, selection, yes, as_json)


def _by_id(action: Action, monque: SyncMonque, ids: tuple[str, ...], as_json: bool) -> None:
    problems = 0
    for job_id in ids:
        result, error = _try_recorded(action, monque, _meant(monque, job_id))
        problems += error is not None
        cancels, is_running = action.verb == "cancel", isinstance(result, Job) and _runs(result)
        is_asked = cancels and is_running
        if as_json:
            asked = {"requested": is_asked} if cancels else {}
            print_json({"id": job_id, "done": error is None, "error": error, **asked})
        elif error is None:
            click.echo(f"asked {job_id} to stop" if is_asked else f"{action.done} {job_id}")
        else:
            click.echo(f"Error: {error}", err=True)
    if problems:
        click.get_current_context().exit(1)


def _runs(job: Job[Any]) -> bool:
    return job.status is JobStatus.PROCESSING


def _meant(monque: SyncMonque, text: str) -> Any:
    """The id that a text means: itself, unless there is only a job with the value that it is the JSON of."""
    itself, *values = ids_meant(text)
    if not values or monque.get_job(itself) is not None:
        return itself
    return next((value for value in values if monque.get_job(value) is not None), itself)


def _try_recorded(action: Action, monque: SyncMonque, job_id: Any) -> tuple[object, str | None]:
    """What the action returned, and what is in its way; the audit trail has it, too."""
    before = monque.get_job(job_id)
    name = before.name if before is not None and isinstance(before.name, str) else None
    about = {"job_id": job_id, "name": name, "before": before}
    try:
        with recording(monque, action.verb, **about, note=action.note) as known:
            result = action.one(monque, job_id)
            known["after"] = result if isinstance(result, Job) else None
    except (JobNotFoundError, JobStateError) as error:
        return None, _explained(error, monque, job_id)
    return result, None


def _explained(error: JobNotFoundError | JobStateError, monque: SyncMonque, job_id: Any) -> str:
    if isinstance(error, JobNotFoundError):
        return unknown_id(error.job_id)
    running = error.attempted_action == "cancel" and error.current_status == JobStatus.PROCESSING
    return _how_to_end(job_id, monque.get_job(job_id)) if running else str(error)


def await_ends(monque: SyncMonque, ids: tuple[str, ...], timeout: timedelta | None, as_json: bool) -> None:
    """Wait for the end of these jobs, all within the same time; exit with 1 unless all are completed."""
    deadline = None if timeout is None else time.monotonic() + timeout.total_seconds()
    problems = 0
    for job_id in ids:
        left = None if deadline is None else timedelta(seconds=max(deadline - time.monotonic(), _ONE_LOOK))
        try:
            job = monque.wait_for(_meant(monque, job_id), timeout=left)
        except (JobNotFoundError, JobStateError, WaitTimeoutError) as error:
            problems += 1
            click.echo(f"Error: {_why_no_end(job_id, error)}", err=True)
            continue
        problems += job.status != JobStatus.COMPLETED
        print_json(job_fields(job)) if as_json else click.echo(f"{job.status} {job_id}")
    if problems:
        click.get_current_context().exit(1)


def _why_no_end(job_id: str, error: Exception) -> str:
    if isinstance(error, JobNotFoundError):
        return unknown_id(job_id)
    return (
        f"job {job_id} has not ended in time; it goes on" if isinstance(error, TimeoutError) else str(error)
    )


def explained(monque: SyncMonque, job_id: str) -> Explanation:
    """Why the job with this id does not run."""
    try:
        return monque.explain(_meant(monque, job_id))
    except JobNotFoundError:
        raise click.ClickException(unknown_id(job_id)) from None


def unknown_id(job_id: object) -> str:
    """That there is no such job; if it does not look like an id, how one looks."""
    looks_like_one = ObjectId.is_valid(str(job_id))
    advice = (
        "" if looks_like_one else "; an id has 24 hexadecimal characters, as `monque jobs list` shows them"
    )
    return f"no job with id {job_id}{advice}"


def _how_to_end(job_id: Any, job: Job[Any] | None) -> str:
    where = "" if job is None or job.claimed_by is None else f" in the instance {job.claimed_by}"
    return f"cannot cancel job {shown_id(job_id)}: it runs{where}; to tell it to stop, add --running"


def _by_filter(action: Action, monque: SyncMonque, selection: Selection, yes: bool, as_json: bool) -> None:
    wanted = selection.filter(now=monque.server_time(), among=action.among)
    count = monque.count_jobs(wanted) if wanted else 0
    if count and not yes:
        states = "" if action.among is None else f" that are {' or '.join(sorted(action.among))}"
        click.confirm(
            f"{action.verb.capitalize()} {count:,} job(s){states} ({selection})?", abort=True, err=True
        )
    result = BulkResult(count=0, errors=[])
    if wanted and count:
        with progress(f"{action.verb} {count:,} jobs", count) as tell:
            result = _do_to_all(action, monque, wanted, tell)
    running = _left_running(action, monque, selection)
    _report(action, result, as_json)
    if running:
        click.echo(f"{running:,} run; add --running to stop them", err=True)
    if result.errors:
        click.get_current_context().exit(1)


def _do_to_all(action: Action, monque: SyncMonque, wanted: JobFilter, tell: Tell) -> BulkResult:
    """Do it piece by piece. The audit trail has each piece, with the jobs that it changed."""
    total, piece = BulkResult(count=0, errors=[]), None
    while piece is None or piece.next is not None:
        about = {"name": wanted.name, "filter": wanted, "note": action.note}
        with recording(monque, action.of_many, **about) as known:
            piece = action.many(monque, wanted, piece and piece.next, tell)
            refused = {error.job_id for error in piece.errors}
            known |= {"count": piece.count + piece.requested, "errors": len(refused)}
            known["job_ids"] = [job_id for job_id in piece.job_ids if job_id not in refused]
        total = BulkResult(
            count=total.count + piece.count,
            errors=[*total.errors, *piece.errors],
            requested=total.requested + piece.requested,
        )
        tell(total.count + total.requested + len(total.errors))
    return total


def _left_running(action: Action, monque: SyncMonque, selection: Selection) -> int:
    """How many jobs that match were passed over because they run."""
    if not action.leaves_running:
        return 0
    wanted = selection.filter(now=monque.server_time(), among=frozenset({JobStatus.PROCESSING}))
    return monque.count_jobs(wanted) if wanted else 0


def _report(action: Action, result: BulkResult, as_json: bool) -> None:
    errors = [{"id": shown_id(error.job_id), "error": error.error} for error in result.errors]
    if as_json:
        asked = {"requested": result.requested} if action.verb == "cancel" else {}
        print_json({"count": result.count, "errors": errors, **asked})
    else:
        click.echo(f"{action.done} {result.count:,} job(s)")
        if result.requested:
            click.echo(f"asked {result.requested:,} running job(s) to stop")
        for error in errors:
            click.echo(f"Error: {error['id']}: {error['error']}", err=True)


def _in_pieces(method: Callable[..., BulkResult]) -> Many:
    """A method that does it to many at once: to the first of them beyond an id."""

    def many(monque: SyncMonque, jobs: JobFilter, after: Any, _tell: Tell) -> BulkResult:
        return method(monque, jobs, limit=_PIECE, after=after)

    return many


DELETE = Action(
    verb="delete",
    done="deleted",
    of_many="deleteBulk",
    one=SyncMonque.delete_job,
    many=_in_pieces(SyncMonque.delete_jobs),
)


def cancelling(running: bool, reason: str | None) -> Action:
    """Keep jobs from running; if *running*, also tell those to stop that run."""
    return Action(
        verb="cancel",
        done="cancelled",
        of_many="cancelBulk",
        note=reason,
        among=frozenset({JobStatus.PENDING, JobStatus.PROCESSING} if running else {JobStatus.PENDING}),
        leaves_running=not running,
        one=functools.partial(SyncMonque.cancel_job, running=running, reason=reason),
        many=_in_pieces(functools.partial(SyncMonque.cancel_jobs, running=running, reason=reason)),
    )


def retrying(spread: timedelta) -> Action:
    """Put jobs back; many of them over a while."""
    return Action(
        verb="retry",
        done="retried",
        of_many="retryBulk",
        among=frozenset({JobStatus.FAILED, JobStatus.CANCELLED}),
        one=SyncMonque.retry_job,
        many=_in_pieces(functools.partial(SyncMonque.retry_jobs, spread=spread)),
    )


def prioritizing(priority: int) -> Action:
    """Let jobs come before others, or stand in line again."""
    return Action(
        verb="prioritize",
        done="prioritized",
        of_many="prioritizeBulk",
        among=frozenset({JobStatus.PENDING}),
        creates_indexes=True,
        one=functools.partial(SyncMonque.set_priority, priority=priority),
        many=_in_pieces(functools.partial(SyncMonque.set_priorities, priority=priority)),
    )


def rescheduling(at: datetime | None, delay: timedelta | None) -> Action:
    """Move jobs to a time, or to a while from now by the server's clock."""

    def one(monque: SyncMonque, job_id: Any) -> object:
        return monque.reschedule_job(job_id, at or monque.server_time() + (delay or timedelta(0)))

    return Action(
        verb="reschedule",
        done="rescheduled",
        of_many="rescheduleBulk",
        among=frozenset({JobStatus.PENDING}),
        one=one,
        many=_one_by_one(one),
    )


def _one_by_one(one: Callable[[SyncMonque, Any], object]) -> Many:
    """What is done to one, done to each that matches."""

    def many(monque: SyncMonque, jobs: JobFilter, _after: Any, tell: Tell) -> BulkResult:
        # First all ids, then the changes: a job that was moved must not be met again.
        ids = [job.id for job in monque.iter_jobs(jobs, payload_limit=0)]
        changed: list[Any] = []
        for done, job_id in enumerate(ids, 1):
            with suppress(JobNotFoundError, JobStateError):  # one that began to run meanwhile is left alone
                one(monque, job_id)
                changed.append(job_id)
            tell(done)
        return BulkResult(count=len(changed), errors=[], job_ids=changed)

    return many


RUN_NOW = Action(
    verb="run-now",
    done="due now:",
    of_many="run-nowBulk",
    among=frozenset({JobStatus.PENDING}),
    one=SyncMonque.run_now,
    many=_one_by_one(SyncMonque.run_now),
)
