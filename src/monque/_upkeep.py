"""What every instance does for all: put back the jobs of dead owners, remove what is old."""

from __future__ import annotations

import logging

from monque._errors import ConfigurationError
from monque._events import StaleJobsRecovered
from monque._execute import Context, next_time
from monque._store import transitions
from monque._store.document import Document, count_of, failed_occurrence

logger = logging.getLogger("monque")


async def recover(context: Context) -> int:
    """Put back the jobs whose owner is dead; how many."""
    count = await context.store.recover()
    for schedule in await context.store.hopeless_schedules():
        count += await _abandon(schedule, context)
    if count:
        fields = {"instance_id": context.store.instance_id}
        logger.warning("recovered %d job(s) of dead owners", count, extra=fields)
        context.bus.tell(StaleJobsRecovered(count=count))
    return count


async def _abandon(schedule: Document, context: Context) -> bool:
    """Let a schedule go on whose run killed its process each time, and keep that run as failed."""
    now = context.clock.now()
    reason = transitions.crash_reason(context.options.max_retries)
    try:
        run_at = next_time(schedule, now)
    except ConfigurationError:
        ended = transitions.abandon_schedule(schedule, reason=reason)
        return await context.store.change(schedule["_id"], ended) is not None
    leaves = failed_occurrence(schedule, reason=reason, fail_count=count_of(schedule, "failCount"), now=now)
    transition = transitions.abandon_occurrence(schedule, run_at=run_at, leaves=leaves)
    return await context.store.abandon(schedule, transition)


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
