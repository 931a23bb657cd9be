"""Checks between the claim of a job and the call of its handler, and what becomes of a schedule there.

They go by what the document holds, one job at a time. What a worker says, for all jobs of a claim, is checked
by the gates that `_engine/runner.py` makes.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import datetime

from monque._engine.claimed import Settlement
from monque._engine.context import Context
from monque._observe.logs import about
from monque._store.document import Claim, Document, made_aware, run_count_of, skip_count_of
from monque._store.schedules import (
    is_moved,
    is_over,
    is_paused,
    is_too_late,
    next_time,
    occurrence,
    stores_jobs,
    time_after_run,
    to_schedule,
)
from monque._store.transitions import occurrences, run
from monque._store.transitions.transition import SpawnedJob, Transition, recent_run
from monque._values.errors import ConfigurationError
from monque._values.events import Event, ScheduleEnded, ScheduleSkipped
from monque._values.limits import Limit
from monque._values.settings import WorkerSettings
from monque._values.status import JobStatus


def gate(claim: Claim, settings: WorkerSettings, now: Callable[[], datetime]) -> Transition | None:
    """The transition that settles a claimed job without calling its handler; None if it may start.

    Jobs that are settled for the same reason share one transition, and so one write. For a plain job this
    costs four comparisons. *settings* are those of the worker; *now* tells the server's time.
    """
    if claim.cancel is not None and claim.is_cancel_requested:
        # It was put back before its owner heard of the request.
        return run.cancel_run(claim)
    if claim.is_recurring and (claim.schedule is not None or "limit" in settings):
        return _gate_schedule(claim, settings, now())
    if (claim.policy is not None or settings) and _is_expired(claim, settings, now):
        return run.expire(claim)
    return None


def _is_expired(claim: Claim, settings: WorkerSettings, now: Callable[[], datetime]) -> bool:
    """Return whether it is too late to start: by the call's own time, else by the worker's patience.

    That is for the first start: a job that has steps has begun, however long it waits.
    """
    if (expires_at := claim.expires_at) is not None:
        return now() >= expires_at
    patience = settings.get("expires")
    if patience is None or claim.is_recurring or claim.has_steps:
        return False
    return bool(now() - made_aware(claim.due) > patience)


def _gate_schedule(claim: Claim, settings: WorkerSettings, now: datetime) -> Transition | None:
    """Let a schedule go on without a call: it ends, waits, skips this run or makes a job of its own.

    It cannot wait in a line, because its time says when it runs: the job that it stores can.
    """
    schedule, limit = claim.document, settings.get("limit")
    if is_over(schedule):
        return occurrences.end_schedule(claim)
    if is_paused(schedule) and not is_moved(schedule):
        return occurrences.park(claim)
    try:
        if is_too_late(schedule, now):
            return _skip(claim, now)
        if stores_jobs(schedule) or (isinstance(limit, Limit) and limit.by is not None):
            run_at, job = time_after_run(schedule, now), occurrence(schedule, now)
            return occurrences.spawn(
                claim,
                run_at=run_at,
                spawns=job,
                otherwise=_skip(claim, now),
                ended=recent_run("stored", now),
            )
    except ConfigurationError:
        pass  # it cannot be continued: its run fails and says so
    return None


def _skip(claim: Claim, now: datetime) -> Transition:
    """Go on without a run, which does not count against the limit."""
    run_at = next_time(claim.document, now, runs=run_count_of(claim.document))
    return occurrences.skip(claim, run_at=run_at, ended=recent_run("skipped", now))


logger = logging.getLogger("monque")


def tell_step(context: Context, settlement: Settlement, document: Document | None) -> None:
    """Log and emit what a settled transition means for its schedule."""
    run, claim, transition = settlement.run, settlement.claim, settlement.transition
    if transition.step is None or document is None:
        return
    # A job of its own may have been refused, because the one before is active: that is a skipped run, too.
    if skip_count_of(document) > skip_count_of(claim.document):
        logger.info("schedule %s (%s) skipped a run", run.job.id, run.job.name, extra=about(run.job))
        _emit(ScheduleSkipped, document, settlement, context)
        if isinstance(transition.beside, SpawnedJob):
            transition = transition.beside.otherwise
    if transition.to is JobStatus.COMPLETED:
        logger.info("schedule %s (%s) has ended", run.job.id, run.job.name, extra=about(run.job))
        _emit(ScheduleEnded, document, settlement, context)


def _emit(
    kind: type[ScheduleSkipped | ScheduleEnded], document: Document, settlement: Settlement, context: Context
) -> None:
    if context.bus.has_listeners(kind):
        whole = {**document, "data": settlement.claim.document.get("data")}  # a batch is read back without it
        event: Event = kind(schedule=to_schedule(whole, context.store.clock.now()))
        settlement.run.variables.run(context.bus.emit, event)
