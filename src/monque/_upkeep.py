"""What every instance does for all: put back the jobs of dead owners, remove what is old."""

from __future__ import annotations

import logging
import math
from dataclasses import dataclass
from typing import Any

from monque._clock import elapsed
from monque._errors import ConfigurationError, ProcessDiedError
from monque._events import JobFailed, StaleJobsRecovered
from monque._execute import Context, next_time
from monque._store import transitions
from monque._store.document import Document, count_of, failed_occurrence, to_job
from monque._store.store import STALE_AT_ONCE

logger = logging.getLogger("monque")

# This many jobs get a log line of their own, of those put back and of those given up: a machine that was
# killed may leave thousands.
_MOST_LINES = 10


@dataclass(slots=True, kw_only=True)
class _Taken:
    """How many jobs one recovery took from dead owners."""

    put_back: int = 0
    given_up: int = 0

    @property
    def count(self) -> int:
        return self.put_back + self.given_up


async def recover(context: Context, *, within: float = math.inf) -> int:
    """Take the jobs whose owner is dead, to put them back or to give them up; how many.

    Ends soon after *within* seconds. What is left then is for the next time.
    """
    taken, until = _Taken(), elapsed() + within
    try:
        while await _take_some(taken, context, until):
            pass
    finally:  # also if the database is gone halfway: what was taken was taken
        if taken.count:
            _summarize(taken, context)
            context.bus.tell(StaleJobsRecovered(count=taken.count))
    return taken.count


async def _take_some(taken: _Taken, context: Context, until: float) -> bool:
    """Take those that one read finds; whether there may be more, and there is time for them."""
    found, before = await context.store.stale(), taken.count
    await _put_back([job for job in found if not job["hopeless"]], taken, context)
    for job in found:
        if job["hopeless"]:
            await _give_up(job, taken, context)
            if elapsed() > until:
                return False
    # Without progress the same would be read again.
    return len(found) == STALE_AT_ONCE and taken.count > before and elapsed() <= until


async def _put_back(found: list[Document], taken: _Taken, context: Context) -> None:
    """Let jobs run again: a few one by one, to know for certain which ones we took, the rest in one write."""
    single = max(_MOST_LINES - taken.put_back, 0)
    for job in found[:single]:
        if await context.store.put_back(job) is not None:
            taken.put_back += 1
            message = "recovered job %s (%s): its owner %s is dead; it will run again"
            logger.warning(message, *_named(job), extra=_fields(job, context))
    taken.put_back += await context.store.put_back_many(found[single:])


async def _give_up(found: Document, taken: _Taken, context: Context) -> None:
    """End a job that killed its process each time, and tell it as every job that failed for good is told."""
    recurring = isinstance(found.get("repeatInterval"), str)
    failed = await (_abandon(found, context) if recurring else context.store.give_up(found))
    if failed is None:
        return
    taken.given_up += 1
    crashes = context.options.max_retries
    error = ProcessDiedError(transitions.crash_reason(crashes), job_id=failed["_id"], crashes=crashes)
    if taken.given_up <= _MOST_LINES:
        message = "job %s (%s) of the dead owner %s was given up: %s"
        logger.error(message, *_named(found), error, extra=_fields(found, context))
    if (audience := context.telemetry.audience()) is not None:
        audience.gave_up(str(found.get("name")), error)
    context.bus.tell(JobFailed(job=to_job(failed), error=error, will_retry=False))


async def _abandon(found: Document, context: Context) -> Document | None:
    """Let a schedule go on whose run killed its process each time; that run, kept as failed."""
    schedule = await context.store.stale_schedule(found)
    if schedule is None:
        return None
    now = context.clock.now()
    reason = transitions.crash_reason(context.options.max_retries)
    try:
        run_at = next_time(schedule, now)
    except ConfigurationError:
        ended = transitions.abandon_schedule(schedule, reason=reason)
        return await context.store.abandon(schedule, ended)
    leaves = failed_occurrence(schedule, reason=reason, fail_count=count_of(schedule, "failCount"), now=now)
    transition = transitions.abandon_occurrence(schedule, run_at=run_at, leaves=leaves)
    return None if await context.store.abandon(schedule, transition) is None else leaves


def _summarize(taken: _Taken, context: Context) -> None:
    """Log the numbers, where not every job was named."""
    fields = {"instance_id": context.store.instance_id}
    if taken.put_back > _MOST_LINES:
        logger.warning("recovered %d job(s) of dead owners in all", taken.put_back, extra=fields)
    if taken.given_up > _MOST_LINES:
        message = "gave up %d job(s) in all whose owners died too often"
        logger.error(message, taken.given_up, extra=fields)


def _named(found: Document) -> tuple[object, object, object]:
    return found["_id"], found.get("name"), found.get("claimedBy")


def _fields(found: Document, context: Context) -> dict[str, Any]:
    return {
        "job_id": str(found["_id"]),
        "job_name": found.get("name"),
        "job_attempt": found.get("attempt"),
        "instance_id": context.store.instance_id,
    }


async def prune(context: Context) -> None:
    """Remove finished jobs that are older than the retention says."""
    retention = context.options.retention
    if retention is None:
        return
    for status in ("completed", "failed", "cancelled"):
        age = getattr(retention, status)
        if age is not None:
            count = await context.store.prune(status, age)
            logger.debug("removed %d %s job(s) older than %s", count, status, age)
