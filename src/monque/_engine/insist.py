"""What happens if the first write of a result does not succeed: write it again until the answer is known."""

from __future__ import annotations

import asyncio
import logging

from pymongo.errors import InvalidOperation, PyMongoError

from monque._connect import deadlines
from monque._engine.claimed import Run, Settlement
from monque._engine.context import Context
from monque._observe.logs import about
from monque._store.document import is_recurring, unique_key_of
from monque._store.settle import LOST, Answer, Doubtful, Lost, Settled
from monque._store.transitions.transition import take_over
from monque._time.clock import elapsed
from monque._time.waiting import Pauses
from monque._values.events import ClaimLost, JobError
from monque._values.words import driver_reason

logger = logging.getLogger("monque")


async def insist(
    settlement: Settlement, answer: Answer, context: Context
) -> tuple[Settlement, Settled | Lost]:
    """Settle again after a first *answer* that is no success, until it is one or the claim is lost.

    If the schedule has changed under the run, or a later call with the same key was noted, the settlement is
    decided again: it may be another one.

    A failed write is not a failed job: the outcome is kept and written again for as long as an owner may be
    silent. Whether the claim is lost is for the database to say, also if the process stood still in between:
    the write applies only to a claim that still holds. Heartbeats do not cover the run any more, so its claim
    cannot look alive for ever.
    """
    run, tries = settlement.run, Tries(context.store.silence)
    while not isinstance(answer, Settled):
        if isinstance(answer, Doubtful):
            if gives_up(run, answer.error, tries, context):
                return settlement, LOST
            await tries.rest()
        tries.begin()
        if isinstance(answer, Lost):
            try:
                changed = await _says_more(run, context)
            except PyMongoError as error:
                answer = Doubtful(error)
                continue
            if not changed:
                lose(run, "its result was not stored", context)
                return settlement, LOST
            settlement = Settlement.of(run, settlement.outcome, context.store)
        answer = await context.store.settler.settle(settlement.claim, settlement.transition)
    return settlement, answer


async def _says_more(run: Run, context: Context) -> bool:
    """Whether the claim still holds and the document says more than the run knew; then it takes that over.

    Somebody changed the schedule, or a later call with the same key was noted in the job.
    """
    if not is_recurring(run.claim) and unique_key_of(run.claim) is None:
        return False
    claim = take_over(run.claim, await context.store.get(run.claim["_id"]))
    run.claim = claim or run.claim
    return claim is not None


def lose(run: Run, consequence: str, context: Context) -> None:
    """Log and emit that the claim does not hold any more."""
    message = "lost the claim on job %s (%s): %s"
    logger.warning(message, run.job.id, run.job.name, consequence, extra=about(run.job))
    context.bus.emit(ClaimLost(job=run.job))


class Tries:
    """How long to try again to write one result.

    Counts the time spent on trying: of each try at most the time limit of a command. Time in which the
    process stood still proves nothing, because nobody asked the database.
    """

    def __init__(self, limit: float) -> None:
        self._left = limit
        # The first pause is longer than a failover's shortest error burst and too short to be noticed; the
        # longest one bounds how late a result is stored after an outage. Twice or half of either changes
        # only how many attempts an outage sees.
        self._pauses = Pauses(first=0.05, longest=2.0)
        self._began = elapsed()

    def begin(self) -> None:
        """A try begins."""
        self._began = elapsed()

    def is_last(self) -> bool:
        """Whether no time is left, now that this try has failed."""
        self._left -= min(elapsed() - self._began, deadlines.OPERATION_TIMEOUT)
        return self._left <= 0

    async def rest(self) -> None:
        """Wait before the next try, each time longer."""
        pause = self._pauses.next()
        await asyncio.sleep(pause)
        self._left -= pause


def gives_up(run: Run, error: Exception, tries: Tries, context: Context) -> bool:
    """Whether it is too late to try again; log which."""
    # InvalidOperation: the client was closed, so no later try can succeed.
    if tries.is_last() or isinstance(error, InvalidOperation):
        message = "gave up settling job %s (%s): %s"
        logger.error(message, run.job.id, run.job.name, driver_reason(error), extra=about(run.job))
        context.bus.emit(JobError(error=error, job=run.job))
        lose(run, "its result was not stored", context)
        return True
    message = "settling job %s (%s) failed, trying again: %s"
    logger.warning(message, run.job.id, run.job.name, driver_reason(error), extra=about(run.job))
    return False
