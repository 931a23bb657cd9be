"""`Job.complete_in`: completing a job inside its handler's own transaction, and what becomes of that."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any

from pymongo.client_session import ClientSession
from pymongo.errors import PyMongoError

from monque._connect.deadlines import limited
from monque._connect.sessions import here
from monque._engine.claimed import Completion, Run, Settlement
from monque._engine.context import Context
from monque._engine.decide import Outcome
from monque._engine.insist import Tries, gives_up
from monque._observe.logs import about
from monque._store.document import Document
from monque._store.progress import report
from monque._store.settle import settle_in
from monque._store.store import Store
from monque._store.transitions.run import heartbeat as still_alive
from monque._store.transitions.transition import Transition, is_owned, take_over, was_settled
from monque._time.clock import elapsed
from monque._values.errors import ClaimLostError, ConfigurationError, NotCommittedError, driver_errors
from monque._values.events import JobError
from monque._values.words import bounded
from monque._workers.results import Kept, keep

logger = logging.getLogger("monque")

# A heartbeat may have to wait for a transaction that we believe to be over and the server does not yet. With
# half of it, such heartbeats fail on a busy server; with twice, they delay the rest of the heartbeat round.
_HEARTBEAT_LIMIT = 1.0


def complete_in(
    session: object, result: object, run: Run, context: Context
) -> Coroutine[Any, Any, None] | None:
    """Settle a running job as part of a transaction: at once in a blocking session, else when awaited."""
    if run.is_abandoned:
        raise _given_up(run)
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
    run.completion = Completion(_success(run, kept, context), joined, kept)
    settling = _settle_in(run.completion, run, store, context)
    if not blocking:
        return settling
    _finish(settling)
    return None


def _success(run: Run, kept: Kept | None, context: Context) -> Transition:
    outcome = Outcome(time.perf_counter() - run.started, kept=kept)
    return Settlement.of(run, outcome, context.store).transition


async def _settle_in(completion: Completion, run: Run, store: Store, context: Context) -> None:
    session = completion.session
    with driver_errors("complete the job"):
        await _report_in(completion, run, store)
        while not await settle_in(store.collection, run.claim, completion.transition, session, store.clock):
            seen = await store.get(run.claim["_id"], session)
            if (changed := take_over(run.claim, seen)) is not None:
                run.claim, completion.transition = changed, _success(run, completion.kept, context)
                continue
            if not was_settled(run.claim, completion.transition, seen):
                raise _lost(run)
            # Settled: by an earlier call in this very transaction, which nobody else can see yet, or by an
            # earlier transaction. Then this one would add its writes to those of the earlier one.
            if not is_owned(run.claim, await store.get(run.claim["_id"])):
                raise _completed_before(run)
            return


async def _report_in(completion: Completion, run: Run, store: Store) -> None:
    """Write what the handler has reported as part of its transaction, which holds the document from now on.

    It is kept in case that the transaction does not commit.
    """
    if (reported := run.lent.reporting.unwritten(run)) is not None:
        transition = report([run.claim], [reported])
        await settle_in(store.collection, run.claim, transition, completion.session, store.clock)


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


def _given_up(run: Run) -> ClaimLostError:
    return ClaimLostError(
        f"this run of job {run.job.id} ({run.job.name!r}) was given up at its hard time limit, and another "
        "run may do its work; let the transaction abort",
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
    if completion.is_done or completion.session.in_transaction:
        return True
    sent = elapsed()
    with suppress(PyMongoError), limited(_HEARTBEAT_LIMIT):
        if await store.settler.heartbeat([run.claim]):
            document = await store.get(run.claim["_id"])
            completion.is_done = was_settled(run.claim, completion.transition, document)
            return completion.is_done
        run.last_write = sent
    return True


async def conclude_transaction(
    completion: Completion, run: Run, outcome: Outcome, context: Context
) -> tuple[Settlement, Document] | Outcome | None:
    """Find out whether the transaction has completed the job.

    Return the settlement and the document if it has, the outcome that is left to settle if it has not, and
    None if the claim is lost.
    """
    tries = Tries(context.store.silence)
    while True:
        tries.begin()
        try:
            document = await _committed(completion, run, context.store)
            break
        except PyMongoError as error:
            if gives_up(run, error, tries, context):
                return None
            await tries.rest()
    if document is not None:
        _report_late_failure(run, outcome, context)
        success = Outcome(outcome.seconds, ended=outcome.ended, kept=completion.kept)
        return Settlement(run.claim, completion.transition, run, success), document
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


async def _committed(completion: Completion, run: Run, store: Store) -> Document | None:
    """The document, if the transaction has completed the job; None if it has not and never will.

    The document is the truth, whatever the driver believes: the answer to a commit may be lost.
    """
    claim = run.claim
    with limited():
        while True:
            document = await store.get_majority(claim["_id"])
            if was_settled(claim, completion.transition, document):
                return document
            if not is_owned(claim, document):
                return None
            # A commit may still be on its way. A write waits until the transaction has ended, one way or
            # the other; if it finds the claim then, nobody but us can complete the job any more.
            if await store.change(claim["_id"], still_alive(claim)) is not None:
                return None


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
