"""Reports what became of a schedule beside its runs: it skipped one, or it has ended."""

from __future__ import annotations

import logging

from monque._engine.claimed import Settlement
from monque._engine.context import Context
from monque._events import Event, ScheduleEnded, ScheduleSkipped
from monque._observe.logs import about
from monque._status import JobStatus
from monque._store.document import Document
from monque._store.planning import skip_count_of, to_schedule

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
