"""Checks between the claim of a job and the call of its handler, and what becomes of a schedule there."""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import datetime

from monque._engine.claimed import Settlement
from monque._engine.context import Context
from monque._observe.logs import about
from monque._store import planning
from monque._store.document import Claim, Document, due_of, expires_at_of, is_cancel_requested, is_recurring
from monque._store.planning import (
    is_moved,
    is_over,
    is_paused,
    is_too_late,
    next_time,
    occurrence,
    run_count_of,
    skip_count_of,
    stores_jobs,
    time_after_run,
    to_schedule,
)
from monque._store.transitions import occurrences, run
from monque._store.transitions.transition import Transition
from monque._values.errors import ConfigurationError
from monque._values.events import Event, ScheduleEnded, ScheduleSkipped
from monque._values.settings import WorkerSettings
from monque._values.status import JobStatus


def gate(claim: Claim, settings: WorkerSettings, now: Callable[[], datetime]) -> Transition | None:
    """The transition that settles a claimed job without calling its handler; None if it may start.

    Jobs that are settled for the same reason share one transition, and so one write. For a plain job this
    costs three looks into a dict. *settings* are those of the worker; *now* tells the server's time.
    """
    if "cancel" in claim and is_cancel_requested(claim):
        # It was put back before its owner heard of the request.
        return run.cancel_run(claim)
    if "schedule" in claim and is_recurring(claim):
        return _gate_schedule(claim, now())
    if ("policy" in claim or settings) and _is_expired(claim, settings, now):
        return run.expire(claim)
    return None


def _is_expired(claim: Claim, settings: WorkerSettings, now: Callable[[], datetime]) -> bool:
    """Whether it is too late to start: by the time that the call gave, else by the worker's patience."""
    if (expires_at := expires_at_of(claim)) is not None:
        return now() >= expires_at
    patience, due = settings.get("expires"), due_of(claim)
    if patience is None or due is None or is_recurring(claim):
        return False
    return now() - due > patience


def _gate_schedule(claim: Claim, now: datetime) -> Transition | None:
    """What becomes of a schedule without a call: it ends, waits, skips this run or makes a job of its own."""
    if is_over(claim):
        return occurrences.end_schedule(claim)
    if is_paused(claim) and not is_moved(claim):
        return occurrences.park(claim)
    try:
        if is_too_late(claim, now):
            return _skip(claim, now)
        if stores_jobs(claim):
            run_at, job = time_after_run(claim, now), occurrence(claim, now)
            return occurrences.spawn(
                claim,
                run_at=run_at,
                spawns=job,
                otherwise=_skip(claim, now),
                ended=planning.run("stored", now),
            )
    except ConfigurationError:
        pass  # it cannot be continued: its run fails and says so
    return None


def _skip(claim: Claim, now: datetime) -> Transition:
    """Go on without a run, which does not count against the limit."""
    run_at = next_time(claim, now, runs=run_count_of(claim))
    return occurrences.skip(claim, run_at=run_at, ended=planning.run("skipped", now))


logger = logging.getLogger("monque")


def tell_step(settlement: Settlement, document: Document, context: Context) -> None:
    """Log and emit what a settled transition means for its schedule."""
    run, claim, transition = settlement.run, settlement.claim, settlement.transition
    # A job of its own may have been refused, because the one before is active: that is a skipped run, too.
    if skip_count_of(document) > skip_count_of(claim):
        logger.info("schedule %s (%s) skipped a run", run.job.id, run.job.name, extra=about(run.job))
        _emit(ScheduleSkipped, document, settlement, context)
        transition = transition.otherwise or transition
    if transition.to is JobStatus.COMPLETED:
        logger.info("schedule %s (%s) has ended", run.job.id, run.job.name, extra=about(run.job))
        _emit(ScheduleEnded, document, settlement, context)


def _emit(
    kind: type[ScheduleSkipped | ScheduleEnded], document: Document, settlement: Settlement, context: Context
) -> None:
    if context.bus.has_listeners(kind):
        whole = {**document, "data": settlement.claim.get("data")}  # a batch is read back without it
        event: Event = kind(schedule=to_schedule(whole, context.store.clock.now()))
        settlement.run.variables.run(context.bus.emit, event)
