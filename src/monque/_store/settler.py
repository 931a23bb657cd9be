"""Settlements that arrive together go out together."""

from __future__ import annotations

import asyncio
from typing import TypeAlias

from pymongo.errors import OperationFailure, PyMongoError

from monque._store.document import Document
from monque._store.store import Store
from monque._store.transitions import Transition

_Settled: TypeAlias = "asyncio.Future[Document | None]"

# While the server works on one write the next one is on its way; more would only make them smaller.
_IN_FLIGHT = 2


class Settler:
    """Collects settlements while a write is under way and sends them as one.

    A lone settlement goes out at once: nothing waits for company. Under load the writes grow by
    themselves, since the more jobs end during one write, the more the next one carries.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._waiting: list[tuple[Document, Transition, _Settled]] = []
        self._senders: set[asyncio.Task[None]] = set()

    async def settle(self, claim: Document, transition: Transition) -> Document | None:
        """Record how a run ended; the document after it, or None if the claim was lost.

        Raises the driver's error when it is not known whether the write happened: settle again, the
        same settlement twice does no harm.
        """
        settled: _Settled = asyncio.get_running_loop().create_future()
        self._waiting.append((claim, transition, settled))
        if len(self._senders) < _IN_FLIGHT:
            sender = asyncio.create_task(self._send(), name="monque-settle")
            self._senders.add(sender)
            sender.add_done_callback(self._senders.discard)
        return await settled

    async def _send(self) -> None:
        while self._waiting:
            batch, self._waiting = self._waiting, []
            if len(batch) == 1 or any(transition.leaves for _, transition, _ in batch):
                await asyncio.gather(*(self._send_one(*entry) for entry in batch))
            else:
                await self._send_batch(batch)

    async def _send_batch(self, batch: list[tuple[Document, Transition, _Settled]]) -> None:
        try:
            documents = await self._store.settle_many([(claim, transition) for claim, transition, _ in batch])
        except OperationFailure:
            # The server refused something in the batch. One bad settlement must not spoil the others.
            await asyncio.gather(*(self._send_one(*entry) for entry in batch))
        except PyMongoError as error:
            for _, _, settled in batch:
                _resolve(settled, error)
        else:
            for (_, _, settled), document in zip(batch, documents, strict=True):
                _resolve(settled, document)

    async def _send_one(self, claim: Document, transition: Transition, settled: _Settled) -> None:
        try:
            _resolve(settled, await self._store.settle_one(claim, transition))
        except PyMongoError as error:
            _resolve(settled, error)


def _resolve(settled: _Settled, answer: Document | PyMongoError | None) -> None:
    if settled.done():
        return
    if isinstance(answer, PyMongoError):
        settled.set_exception(answer)
    else:
        settled.set_result(answer)
