"""`Job.transaction`: the writes of a step and its checkpoint in one commit.

The first command of the transaction is a write to the document of the job, on the condition that the claim
holds. From then on the transaction holds the document. So nobody can take the job before it has ended, and a
run that lost its job cannot commit. Heartbeats and reports would wait for the document: they hold still
meanwhile, and a heartbeat is sent as soon as an attempt has ended.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Protocol

from pymongo import ReadPreference, WriteConcern
from pymongo.asynchronous.client_session import AsyncClientSession
from pymongo.errors import PyMongoError

from monque._engine.claimed import Run
from monque._engine.context import Context
from monque._engine.decide import Outcome
from monque._engine.insist import beat, to_the_end, until_free
from monque._engine.interrupts import Interrupts
from monque._store.document import Document
from monque._store.flows import entries_of
from monque._store.settle import Lost, settle_in
from monque._store.transitions.flows import hold, record_steps
from monque._store.transitions.transition import Transition
from monque._time.clock import Backoff, elapsed
from monque._values.errors import ClaimLostError, ConfigurationError, StepError
from monque._values.flows import StepKind

_TRANSIENT = "TransientTransactionError"
_UNKNOWN = "UnknownTransactionCommitResult"

# Seconds in which a transaction that was rolled back is done again: as many as the driver's own
# `with_transaction` takes.
_LONGEST = 120.0


class Record(Protocol):
    """The steps of a run, as a transaction needs them; see `Flow`."""

    def entry(self, name: str, kind: StepKind, began: float, result: Any) -> Document: ...
    def done(self, entries: list[Document]) -> None: ...
    def error(self, message: str, step: str | None = None) -> StepError: ...
    def lost(self) -> ClaimLostError: ...


@dataclass(slots=True, eq=False)
class Transaction:
    """A step of a run that is done in a transaction."""

    flow: Record
    run: Run
    context: Context
    interrupts: Interrupts
    name: str
    call: Callable[[AsyncClientSession], Awaitable[Any]]

    async def commit(self) -> Document:
        """Do the step until it is committed; its entry.

        Raises:
            ClaimLostError: The job does not belong to this run any more.
        """
        server = self.context.store.server
        if not server.has_change_streams:
            raise ConfigurationError("job.transaction needs a replica set or a sharded cluster; use job.step")
        self.run.in_transaction += 1
        try:
            return await self._until_committed()
        except asyncio.CancelledError:
            self.run.finish_with(self._let_go, first=True)
            raise
        except Exception:
            if not self.run.is_lost and not await to_the_end(self._beat()):
                self.run.finish_with(self._let_go, first=True)
            raise
        finally:
            self.run.in_transaction -= 1

    async def _until_committed(self) -> Document:
        began, backoff = elapsed(), Backoff(first=0.005, longest=0.5, jitter=0.5)
        collection = self.context.store.collection
        async with collection.database.client.start_session() as session:
            while True:
                try:
                    return await self._attempt(session)
                except PyMongoError as error:
                    if not error.has_error_label(_TRANSIENT) or elapsed() - began > _LONGEST:
                        raise
                # It was rolled back, and its function may take long again.
                await to_the_end(self._beat())
                await asyncio.sleep(backoff.next())

    async def _attempt(self, session: AsyncClientSession) -> Document:
        majority, primary = WriteConcern("majority"), ReadPreference.PRIMARY
        self.run.held_since = elapsed()
        await session.start_transaction(write_concern=majority, read_preference=primary)
        began = time.perf_counter()
        try:
            await self._write(hold(self.run.claim, self.name), session)
            result = await self.call(session)
            if not session.in_transaction:
                raise self.flow.error(
                    f"{self.name!r} ended its transaction itself, by its function", self.name
                )
            entry, sent = self.flow.entry(self.name, "transaction", began, result), elapsed()
            await self._write(record_steps(self.run.claim, [entry]), session)
            return await to_the_end(self._commit(session, entry, sent))
        except BaseException:
            if session.in_transaction:
                await to_the_end(session.abort_transaction())
            raise

    async def _write(self, transition: Transition, session: AsyncClientSession) -> None:
        store = self.context.store
        if not await settle_in(store.collection, self.run.claim, transition, session, store.clock):
            self.interrupts.lose(self.run)
            raise self.flow.lost()

    async def _commit(self, session: AsyncClientSession, entry: Document, sent: float) -> Document:
        """Commit. The document says whether that has happened, if the answer was lost twice."""
        try:
            await session.commit_transaction()  # the driver sends it once more
        except PyMongoError as error:
            if not error.has_error_label(_UNKNOWN):
                raise
            found = await until_free(self.run, self.context, self._is_stored)
            if isinstance(found, Lost):
                self.interrupts.tell(self.run, "lost")
                raise self.flow.lost() from error
            if found is None:
                raise PyMongoError("the transaction was not committed", error_labels=[_TRANSIENT]) from error
        self.run.last_write = sent
        self.flow.done([entry])
        return entry

    def _is_stored(self, document: Document | None) -> bool:
        return any(entry["n"] == self.name for entry in entries_of(document or {}))

    async def _beat(self) -> bool:
        """Mark the job as alive after an attempt; False if the document may still be held.

        Raises:
            ClaimLostError: Others have taken it.
        """
        if (is_ours := await beat(self.run, self.context.store)) is False:
            self.interrupts.lose(self.run)
            raise self.flow.lost()
        return is_ours is True

    async def _let_go(self, outcome: Outcome) -> Outcome:
        """Wait until the transaction has ended, alone: the settlement shares its write with other jobs."""
        await until_free(self.run, self.context, lambda _: False)
        return outcome
