"""`Job.complete_in`: completing a job inside its handler's own transaction, and what becomes of that."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine
from contextlib import suppress
from functools import partial
from typing import Any, TypeAlias

from pymongo.client_session import ClientSession
from pymongo.errors import PyMongoError

from monque._connect.deadlines import limited
from monque._connect.sessions import here
from monque._engine.claimed import Completion, Run, Settlement, check_outside_step
from monque._engine.context import Context
from monque._engine.decide import Outcome
from monque._engine.insist import HEARTBEAT_LIMIT, beat, until_free
from monque._observe.logs import about
from monque._store.progress import report
from monque._store.settle import LOST, Lost, Settled, settle_in
from monque._store.store import Store
from monque._store.transitions.run import heartbeat as still_alive
from monque._store.transitions.transition import Transition, is_owned, take_over, was_settled
from monque._time.clock import elapsed
from monque._values.errors import ClaimLostError, ConfigurationError, NotCommittedError, driver_errors
from monque._values.events import JobError
from monque._values.history import Report
from monque._values.words import bounded
from monque._workers.results import Kept, keep

logger = logging.getLogger("monque")

Unwritten: TypeAlias = Callable[[Run], Report | None]
"""Returns what a run has reported and is not written yet."""


def complete_in(
    context: Context, unwritten: Unwritten, run: Run, session: object, result: object
) -> Coroutine[Any, Any, None] | None:
    """Settle a running job as part of a transaction: at once in a blocking session, else when awaited."""
    # The step could not be stored any more: the job would have ended before it.
    check_outside_step("complete_in", run.claim.id)
    blocking = isinstance(session, ClientSession)
    store, joined = context.store.join(session, call=here if blocking else asyncio.to_thread)
    if not joined.in_transaction:
        raise ConfigurationError(
            "complete_in needs a transaction: call it after session.start_transaction() and before the "
            "commit, or in the function that you give to session.with_transaction()"
        )
    # Set before anything is written: from now on heartbeats leave the job alone. They would wait for the
    # transaction's end, or make it abort.
    limit = context.store.options.max_result_size
    kept = None if result is ... else keep(result, job_name=run.worker.name, limit=limit)
    completion, earlier = Completion(_success(run, kept, context), joined, kept), run.completion
    if earlier is None:
        # The first of all: it may find that the job is completed, and nothing else may be written then.
        run.finish_with(partial(_conclude, run, context), first=True)
    run.completion = completion
    settling = _settle_in(completion, run, store, context, unwritten, is_again=earlier is not None)
    if not blocking:
        return settling
    _finish(settling)
    return None


def _success(run: Run, kept: Kept | None, context: Context) -> Transition:
    outcome = Outcome(time.perf_counter() - run.started, kept=kept)
    return Settlement.decided(run, outcome, context.store, context.bus, may_remove=False).transition


async def _settle_in(
    completion: Completion,
    run: Run,
    store: Store,
    context: Context,
    unwritten: Unwritten,
    *,
    is_again: bool,
) -> None:
    session = completion.session
    if is_again:
        await _beat_between(run, store)
    with driver_errors("complete the job"):
        # The transaction holds the document from now on, so it writes what the handler has reported, too.
        # That is kept in case that the transaction does not commit.
        if (reported := unwritten(run)) is not None:
            written = report([run.claim], [reported])
            await settle_in(store.collection, run.claim, written, session, store.clock)
        while not await settle_in(store.collection, run.claim, completion.transition, session, store.clock):
            seen = await store.get(run.claim.id, session)
            if (changed := take_over(run.claim, seen)) is not None:
                run.claim, completion.transition = changed, _success(run, completion.kept, context)
                continue
            if not was_settled(run.claim, completion.transition, seen):
                raise _lost(run)
            # Settled: by an earlier call in this very transaction, which nobody else can see yet, or by an
            # earlier transaction. Then this one would add its writes to those of the earlier one.
            if not is_owned(run.claim, await store.get(run.claim.id)):
                raise _completed_before(run)
            return


async def _beat_between(run: Run, store: Store) -> None:
    """Mark a job as alive before another transaction holds it: the earlier one was rolled back.

    At most once in an interval: if this transaction has read already, the heartbeat makes it abort.
    """
    sent = elapsed()
    if sent - run.last_write > store.options.heartbeat_interval.total_seconds():
        with suppress(PyMongoError), limited(HEARTBEAT_LIMIT):
            if await store.change(run.claim.id, still_alive(run.claim), read=run.claim.document) is not None:
                run.last_write = sent


def _finish(settling: Coroutine[Any, Any, None]) -> None:
    """Run a coroutine to its end that never waits for the event loop."""
    with suppress(StopIteration):
        settling.send(None)
        raise RuntimeError("a blocking session had to wait for the event loop")


def _lost(run: Run) -> ClaimLostError:
    return ClaimLostError(
        f"job {run.job.id} ({run.job.name!r}) does not belong to this run any more: its owner was taken for "
        "dead, and another run may do its work; let the transaction abort",
        job_id=run.job.id,
    )


def _completed_before(run: Run) -> ClaimLostError:
    return ClaimLostError(
        f"an earlier transaction of this run has completed job {run.job.id} ({run.job.name!r}) already; let "
        "this one abort",
        job_id=run.job.id,
    )


async def heartbeat(completion: Completion, run: Run, store: Store) -> bool:
    """Mark a job as alive that a transaction is to complete; False if the claim turns out to be lost.

    Nothing is written while the transaction is open: it holds the document, so nobody can take the job.
    """
    if completion.is_done or completion.is_open:
        return True
    if await beat(run, store) is False:
        with suppress(PyMongoError), limited(HEARTBEAT_LIMIT):
            document = await store.get(run.claim.id)
            completion.is_done = was_settled(run.claim, completion.transition, document)
            return completion.is_done
    return True


async def _conclude(
    run: Run, context: Context, outcome: Outcome
) -> Outcome | tuple[Settlement, Settled | Lost]:
    """Find out whether the last transaction of the handler has completed the job: its finisher."""
    completion = run.completion
    assert completion is not None  # noqa: S101 - set with the finisher
    document = await until_free(run, context, partial(was_settled, run.claim, completion.transition))
    if isinstance(document, Lost):
        return Settlement(run.claim, completion.transition, run, outcome), LOST
    if document is not None:
        _report_late_failure(run, outcome, context)
        success = Outcome(outcome.seconds, ended=outcome.ended, kept=completion.kept)
        return Settlement(run.claim, completion.transition, run, success), Settled(document)
    if outcome.error is not None:
        return outcome
    return Outcome(
        outcome.seconds,
        NotCommittedError(
            "the handler called complete_in and returned, but the transaction was not committed, so nothing "
            "that it wrote is stored; commit it, or let the error that ended it leave the handler",
            job_id=run.job.id,
        ),
        ended=outcome.ended,
    )


def _report_late_failure(run: Run, outcome: Outcome, context: Context) -> None:
    """Report a handler that failed after its transaction had completed the job."""
    if outcome.error is not None and outcome.interruption is None:
        logger.error(
            "the handler of job %s (%s) failed after its transaction had completed the job",
            run.job.id,
            run.job.name,
            exc_info=bounded(outcome.error),
            extra=about(run.job, outcome.duration),
        )
        context.bus.emit(JobError(error=outcome.error, job=run.job))
