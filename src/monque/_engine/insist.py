"""Writes a result again, after a first write that did not succeed, until the answer is known.

The same for a transaction whose commit was not answered (`until_free`); and heartbeats of one job, which a
transaction of its run may hold (`beat`).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any, TypeVar

from pymongo.errors import InvalidOperation, PyMongoError

from monque._connect import deadlines
from monque._connect.deadlines import limited
from monque._engine.claimed import Run, Settlement
from monque._engine.context import Context
from monque._engine.decide import Outcome
from monque._observe.logs import about
from monque._store.document import Claim, Document, unique_key_of
from monque._store.settle import LOST, Answer, Doubtful, Lost, Settled
from monque._store.store import Store
from monque._store.transitions.run import heartbeat
from monque._store.transitions.transition import is_owned, take_over
from monque._time.clock import Backoff, elapsed
from monque._values.events import ClaimLost, JobError
from monque._values.words import driver_reason

logger = logging.getLogger("monque")

R = TypeVar("R")


async def insist(
    settlement: Settlement, answer: Answer, context: Context
) -> tuple[Settlement, Settled | Lost]:
    """Settle again after a first *answer* that is no success, until it is one or the claim is lost.

    If the schedule has changed under the run, or a later call with the same key was noted, the settlement is
    decided again: it may be another one.

    A failed write is not a failed job: the outcome is kept and written again, for 90 seconds by default.
    Whether the claim is lost is for the database to say, also if the process stood still in between:
    the write applies only to a claim that still holds. Heartbeats do not cover the run any more, so its claim
    cannot look alive for ever.
    """
    run, first = settlement.run, [answer]

    async def settle() -> tuple[Settlement, Settled | Lost]:
        nonlocal settlement
        while True:
            answer = first.pop() if first else await _settle(settlement, context)
            if isinstance(answer, Doubtful):
                raise answer.error
            if isinstance(answer, Settled):
                return settlement, answer
            if not await _says_more(run, settlement.outcome, context):
                lose(run, "its result was not stored", context)
                return settlement, LOST
            settlement = Settlement.decided(run, settlement.outcome, context.store, context.bus)

    done = await keep_trying(run, context, settle)
    return (settlement, done) if isinstance(done, Lost) else done


async def _settle(settlement: Settlement, context: Context) -> Answer:
    return await context.store.settler.settle_run(settlement)


async def _says_more(run: Run, outcome: Outcome, context: Context) -> bool:
    """Return whether the claim holds and the document says more than the run knew; take that over then.

    Somebody changed the schedule, a later call with the same key was noted in the job, or its end was asked
    for before it could wait.
    """
    is_plain = not run.claim.is_recurring and unique_key_of(run.claim.document) is None
    if is_plain and outcome.wait is None:
        return False
    claim = take_over(run.claim, await context.store.get(run.claim.id))
    run.claim = claim or run.claim
    return claim is not None


def lose(run: Run, consequence: str, context: Context) -> None:
    """Log and emit that the claim does not hold any more."""
    message = "lost the claim on job %s (%s): %s"
    logger.warning(message, run.job.id, run.job.name, consequence, extra=about(run.job))
    context.bus.emit(ClaimLost(job=run.job))


async def until_free(
    run: Run, context: Context, is_done: Callable[[Document | None], bool]
) -> Document | Lost | None:
    """The document, if a transaction of this run has done its work; None if it has not and never will.

    The document is the truth, whatever the driver believes: the answer to a commit may be lost.
    """
    return await keep_trying(run, context, lambda: _once_free(context.store, run.claim, is_done))


# Seconds for a heartbeat behind a transaction of the run. If the rollback did not arrive, the server holds
# the document; that must delay neither the rest of a heartbeat round nor the next attempt, which ends it.
HEARTBEAT_LIMIT = 1.0


async def beat(run: Run, store: Store) -> bool | None:
    """Mark the job of a run as alive, alone; False if others have taken it, None if it may still be held."""
    sent = elapsed()
    with suppress(PyMongoError), limited(HEARTBEAT_LIMIT):
        if await store.settler.heartbeat([run.claim]):
            return False
        run.last_write = sent
        return True
    return None


# How long a result is written again, in times that an owner may be silent.
_SILENCES = 3


async def keep_trying(
    run: Run, context: Context, work: Callable[[], Coroutine[Any, Any, R]], doing: str = "settling"
) -> R | Lost:
    """Do *work* before a run is settled; again while the database fails, as long as a result is written.

    Counts the time spent on trying: of each try at most the time limit of a command. Time in which the
    process stood still proves nothing, because nobody asked the database.
    """
    job = run.job
    # Longer than others wait before they take the job: they may be away, too.
    left = _SILENCES * context.store.silence
    # The first pause is longer than a failover's shortest error burst and too short to be noticed; the
    # longest one bounds how late a result is stored after an outage.
    backoff = Backoff(first=0.05, longest=2.0)
    while True:
        began = elapsed()
        try:
            return await work()
        except PyMongoError as error:
            left -= min(elapsed() - began, deadlines.OPERATION_TIMEOUT)
            told = (doing, job.id, job.name, driver_reason(error))
            # InvalidOperation: the client was closed, so no later try can succeed.
            if left <= 0 or isinstance(error, InvalidOperation):
                logger.error("gave up %s job %s (%s): %s", *told, extra=about(job))
                context.bus.emit(JobError(error=error, job=job))
                lose(run, "its result was not stored", context)
                return LOST
            logger.warning("%s job %s (%s) failed, trying again: %s", *told, extra=about(job))
            pause = backoff.next()
            await asyncio.sleep(pause)
            left -= pause


async def _once_free(
    store: Store, claim: Claim, is_done: Callable[[Document | None], bool]
) -> Document | None:
    with limited():
        while True:
            document = (await store.read_majority([claim.id])).get(claim.key[0])
            if is_done(document):
                return document
            if not is_owned(claim, document):
                return None
            # A commit may still be on its way. A write waits until the transaction has ended, one way or
            # the other; if it finds the claim then, nobody but us can do that work any more.
            if await store.change(claim.id, heartbeat(claim), read=document) is not None:
                return None


async def to_the_end(work: Coroutine[Any, Any, R]) -> R:
    """Await *work* through cancellations, so that none cuts it in half; raise the last one afterwards.

    A deadline that the caller has set for the driver does not count for it either.
    """
    task, cancelled = asyncio.create_task(work, context=deadlines.without_deadline()), None
    while not task.done():
        try:
            await asyncio.wait({task})
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is None:
        return task.result()
    if not task.cancelled():
        task.exception()  # nobody else asks for it
    raise cancelled
