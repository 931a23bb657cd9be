"""What each instance does for all: put back the jobs of dead owners, remove old jobs."""

from __future__ import annotations

import logging
import math
from dataclasses import dataclass
from typing import Any

from monque._engine.context import Context
from monque._store import planning
from monque._store import recover as recovering
from monque._store.document import Document, carried, failed_occurrence, failures_before
from monque._store.job import to_job
from monque._store.planning import next_time, run_count_of, to_schedule
from monque._store.recover import STALE_AT_ONCE
from monque._store.transitions import recovery
from monque._time.clock import elapsed
from monque._values.errors import ConfigurationError, ProcessDiedError
from monque._values.events import JobCancelled, JobFailed, ScheduleEnded, StaleJobsRecovered

logger = logging.getLogger("monque")

# This many jobs get a log line of their own, of those put back and of those given up: a machine that was
# killed may leave thousands. Twice as many hide what else is in the log; half as many may hide a pattern.
_MOST_LINES = 10


@dataclass(slots=True, kw_only=True)
class _Taken:
    """How many jobs one recovery took from dead owners."""

    put_back: int = 0
    given_up: int = 0
    cancelled: int = 0

    @property
    def count(self) -> int:
        return self.put_back + self.given_up + self.cancelled


async def recover(context: Context, *, within: float = math.inf) -> int:
    """Take the jobs of dead owners, put them back, give them up or cancel them, and return how many.

    It ends soon after *within* seconds and leaves the rest for the next time.
    """
    taken, until = _Taken(), elapsed() + within
    try:
        while await _take_some(taken, context, until):
            pass
    finally:  # also if the database fails halfway: report what was taken until then
        if taken.count:
            _summarize(taken, context)
            context.bus.emit(StaleJobsRecovered(count=taken.count))
    return taken.count


async def _take_some(taken: _Taken, context: Context, until: float) -> bool:
    """Take the jobs that one read finds; whether there may be more, and there is time for them."""
    found, before = await recovering.find_stale(context.store), taken.count
    free = recovering.without_resting(context.store, found)
    again = [job for job in free if not job["hopeless"] and not job["requested"]]
    await _put_back(again, taken, context, until)
    for job in free:
        if job["hopeless"] or job["requested"]:
            await (_cancel if job["requested"] else _give_up)(job, taken, context)
            if elapsed() > until:
                return False
    # Without progress the next read would find the same jobs.
    return len(found) == STALE_AT_ONCE and taken.count > before and elapsed() <= until


async def _put_back(found: list[Document], taken: _Taken, context: Context, until: float) -> None:
    """Let jobs run again: a few one by one, so that the log names those we took; the rest in one write."""
    single = max(_MOST_LINES - taken.put_back, 0)
    await _put_back_each(found[:single], taken, context, until)
    if elapsed() > until:
        return
    count = await recovering.put_back_many(context.store, found[single:])
    if count is None:
        await _put_back_each(found[single:], taken, context, until)
    else:
        taken.put_back += count


async def _put_back_each(found: list[Document], taken: _Taken, context: Context, until: float) -> None:
    for job in found:
        if await recovering.put_back(context.store, job) is not None:
            taken.put_back += 1
            if taken.put_back <= _MOST_LINES:
                message = "recovered job %s (%s): its owner %s is dead; it will run again"
                logger.warning(message, *_named(job), extra=_fields(job, context))
        if elapsed() > until:
            return


async def _cancel(found: Document, taken: _Taken, context: Context) -> None:
    """End a job whose owner died before it could follow a request to cancel."""
    cancelled = await recovering.cancel(context.store, found)
    if cancelled is None:
        return
    taken.cancelled += 1
    if taken.cancelled <= _MOST_LINES:
        message = "cancelled job %s (%s) of the dead owner %s, as an operator had asked"
        logger.warning(message, *_named(found), extra=_fields(found, context))
    _count(found, "cancelled", context)
    context.bus.emit(JobCancelled(job=to_job(cancelled, context.store.read)))


async def _give_up(found: Document, taken: _Taken, context: Context) -> None:
    """End a job that killed its process each time, and report it like every job that failed for good."""
    if recovering.is_schedule(found):
        failed = await _abandon(found, context)
    elif recovering.has_again(found):
        failed = await _run_again(found, context)
    else:
        failed = await recovering.give_up(context.store, found)
    if failed is None:
        return
    taken.given_up += 1
    crashes = recovering.crashes_of(found)
    error = ProcessDiedError(recovery.crash_reason(crashes), job_id=failed["_id"], crashes=crashes)
    if taken.given_up <= _MOST_LINES:
        message = "job %s (%s) of the dead owner %s was given up: %s"
        logger.error(message, *_named(found), error, extra=_fields(found, context))
    _count(found, "failed", context)
    if (audience := context.telemetry.audience()) is not None:
        audience.gave_up(str(found.get("name")), error)
    context.bus.emit(JobFailed(job=to_job(failed, context.store.read), error=error, will_retry=False))


def _count(found: Document, how: str, context: Context) -> None:
    """Count a job for the trends; nobody knows how long it waited and ran."""
    if context.tally is not None:
        context.tally.count(str(found.get("name")), how, 0.0, 0.0, found)


async def _abandon(found: Document, context: Context) -> Document | None:
    """Let a schedule continue whose run killed its process each time; return that run, kept as failed."""
    store = context.store
    schedule = await recovering.whole_stale(store, found)
    if schedule is None:
        return None
    now, reason = store.clock.now(), recovery.crash_reason(recovering.crashes_of(found))
    entry, ended = recovering.lost_entry(store.options), planning.run("failed", now)
    try:
        run_at = next_time(schedule, now, runs=run_count_of(schedule) + 1)
    except ConfigurationError:
        failed = recovery.abandon_schedule(schedule, reason=reason, entry=entry, ended=ended)
        return await recovering.abandon(store, schedule, failed)
    copy = failed_occurrence(schedule, reason=reason, fail_count=failures_before(schedule), now=now)
    leaves = carried(copy, schedule, entry, now)
    transition = recovery.abandon_occurrence(schedule, run_at=run_at, leaves=leaves, entry=entry, ended=ended)
    after = await recovering.abandon(store, schedule, transition)
    if after is not None and run_at is None:
        context.bus.emit(ScheduleEnded(schedule=to_schedule(after, now)))
    return None if after is None else leaves


async def _run_again(found: Document, context: Context) -> Document | None:
    """Let a job that killed its process each time run for a later call; return the run, kept as failed."""
    store = context.store
    job = await recovering.whole_stale(store, found)
    if job is None:
        return None
    now, reason = store.clock.now(), recovery.crash_reason(recovering.crashes_of(found))
    entry = recovering.lost_entry(store.options)
    copy = failed_occurrence(job, reason=reason, fail_count=failures_before(job), now=now)
    leaves = carried(copy, job, entry, now)
    transition = recovery.run_again_crashed(job, leaves=leaves, entry=entry)
    return None if await recovering.abandon(store, job, transition) is None else leaves


def _summarize(taken: _Taken, context: Context) -> None:
    """Log the totals, where not every job was named."""
    fields = {"instance_id": context.store.instance_id}
    if taken.put_back > _MOST_LINES:
        logger.warning("recovered %d job(s) of dead owners in all", taken.put_back, extra=fields)
    if taken.given_up > _MOST_LINES:
        message = "gave up %d job(s) in all whose owners died too often"
        logger.error(message, taken.given_up, extra=fields)
    if taken.cancelled > _MOST_LINES:
        logger.warning("cancelled %d job(s) of dead owners in all", taken.cancelled, extra=fields)


def _named(found: Document) -> tuple[object, object, object]:
    return found["_id"], found.get("name"), recovering.owner_of(found)


def _fields(found: Document, context: Context) -> dict[str, Any]:
    return {
        "job_id": str(found["_id"]),
        "job_name": found.get("name"),
        "job_attempt": found.get("attempt"),
        "instance_id": context.store.instance_id,
    }


async def prune(context: Context) -> None:
    """Remove finished jobs that are older than the retention says."""
    retention = context.store.options.retention
    if retention is None:
        return
    for status in ("completed", "failed", "cancelled"):
        age = getattr(retention, status)
        if age is not None:
            count = await recovering.prune(context.store, status, age)
            logger.debug("removed %d %s job(s) older than %s", count, status, age)
