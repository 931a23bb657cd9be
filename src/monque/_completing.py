"""Completing a job inside its handler's own transaction, and finding out what became of that."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pymongo.asynchronous.client_session import AsyncClientSession
from pymongo.client_session import ClientSession
from pymongo.errors import PyMongoError

from monque._clock import elapsed
from monque._deadlines import limited
from monque._errors import ClaimLostError, ConfigurationError, driver_errors
from monque._sessions import here, join
from monque._store import transitions
from monque._store.document import Document
from monque._store.store import OPERATION_TIMEOUT, Store
from monque._store.transitions import Transition

if TYPE_CHECKING:
    from monque._execute import Context, Run

# A heartbeat may meet a transaction that we take to be over and the server does not yet. It must not hold
# up those of other jobs for long.
_HEARTBEAT_PATIENCE = 1.0


@dataclass(slots=True, eq=False)
class Completion:
    """How a handler's transaction completes the job, if it commits."""

    transition: Transition
    session: AsyncClientSession
    is_done: bool = False
    """It is known to have committed."""


def complete_in(
    session: object, run: Run, context: Context, decide: Callable[[], Transition]
) -> Coroutine[Any, Any, None] | None:
    """Settle a running job as part of a transaction: at once in a blocking session, else when awaited."""
    blocking = isinstance(session, ClientSession)
    store, joined = join(
        session, context.store, context.connection, call=here if blocking else asyncio.to_thread
    )
    if not joined.in_transaction:
        raise ConfigurationError(
            "complete_in needs a transaction: call it after session.start_transaction() and before the "
            "commit, or in the function that you give to session.with_transaction()"
        )
    # Noted before anything is written: from now on heartbeats leave the job alone. They would wait for the
    # transaction's end, or make it abort.
    run.completion = Completion(decide(), joined)
    settling = _settle_in(run.completion, run, store, decide)
    if not blocking:
        return settling
    _finish(settling)
    return None


async def _settle_in(
    completion: Completion, run: Run, store: Store, decide: Callable[[], Transition]
) -> None:
    with driver_errors("complete the job"):
        while not await store.settle_in(run.claim, completion.transition, completion.session):
            seen = await store.get(run.claim["_id"], completion.session)
            if seen is not None and transitions.is_owned(run.claim, seen):
                # Only the schedule is another one by now.
                run.claim = {**seen, "data": run.claim.get("data")}
                completion.transition = decide()
                continue
            if not transitions.was_settled(run.claim, completion.transition, seen):
                raise _lost(run)
            # Settled: by an earlier call in this very transaction, which nobody else can see yet, or by an
            # earlier transaction. What this one writes would then come on top.
            if not transitions.is_owned(run.claim, await store.get(run.claim["_id"])):
                raise _completed_before(run)
            return


def _finish(settling: Coroutine[Any, Any, None]) -> None:
    """Run to its end what never waits for the event loop."""
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


async def committed(completion: Completion, run: Run, context: Context) -> Document | None:
    """The document, if the transaction has completed the job; None if it has not and never will.

    The document is the truth, whatever the driver believes: the answer to a commit may be lost.
    """
    store, claim = context.store, run.claim
    with limited(OPERATION_TIMEOUT):
        while True:
            document = await store.get_lasting(claim["_id"])
            if transitions.was_settled(claim, completion.transition, document):
                return document
            if not transitions.is_owned(claim, document):
                return None
            # A commit may still be on its way. A write waits until the transaction has ended, one way or
            # the other; if it finds the claim then, nothing can complete the job any more but we.
            if await store.change(claim["_id"], transitions.heartbeat(claim)) is not None:
                return None


async def beat(completion: Completion, run: Run, context: Context) -> bool:
    """Mark a job as alive that a transaction was to complete; False if the claim turns out to be lost.

    Nothing is written while the transaction is open: it holds the document, so nobody can take the job.
    """
    if completion.is_done or completion.session.in_transaction:
        return True
    sent = elapsed()
    with suppress(PyMongoError), limited(_HEARTBEAT_PATIENCE):
        if await context.store.heartbeat([run.claim]):
            document = await context.store.get(run.claim["_id"])
            completion.is_done = transitions.was_settled(run.claim, completion.transition, document)
            return completion.is_done
        run.last_write = sent
    return True
