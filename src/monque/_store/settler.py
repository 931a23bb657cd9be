"""Settlements, gathered into as few writes as possible."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import NamedTuple, TypeAlias, TypeVar, cast

from pymongo.errors import OperationFailure, PyMongoError

from monque._store.document import Document
from monque._store.gather import Answer, Gather
from monque._store.store import Settlement, Store
from monque._store.transitions import Transition

# Nobody waits for a settlement, so it can wait for company. One write at a time: beside the claims, two would
# get in each other's way and cost the server a tenth more for each job.
_MANY = 1_000
_AT_ONCE = 1

_Answer: TypeAlias = Document | Exception | None
S = TypeVar("S", bound=Settlement)


class _Settlement(NamedTuple):
    claim: Document
    transition: Transition


class Settler:
    """Records how runs ended."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._gather: Gather[Settlement, Document | None] = Gather(self._send, many=_MANY, at_once=_AT_ONCE)

    def put(self, settlement: S, answer: Answer[S, Document | None]) -> None:
        """As `settle`, for callers who do not wait: *answer* is called with the result or the error."""
        self._gather.put(settlement, cast("Answer[Settlement, Document | None]", answer))

    async def settle(self, claim: Document, transition: Transition) -> Document | None:
        """Record how a run ended; the document after it, or None if the claim was lost.

        Raises the driver's error when it is not known whether the write happened: settle again, the
        same settlement twice does no harm.
        """
        return await self._gather.add(_Settlement(claim, transition))

    async def _send(self, batch: list[Settlement]) -> Sequence[_Answer]:
        if not any(settlement.transition.leaves for settlement in batch):
            return await self._send_shared(batch)
        # A settlement that stores a document beside its job takes writes of its own; the others share theirs.
        shared = [settlement for settlement in batch if settlement.transition.leaves is None]
        single = [settlement for settlement in batch if settlement.transition.leaves is not None]
        answers = await asyncio.gather(self._send_shared(shared), self._send_each(single))
        of_shared, of_single = map(iter, answers)
        return [next(of_shared if each.transition.leaves is None else of_single) for each in batch]

    async def _send_shared(self, batch: list[Settlement]) -> Sequence[_Answer]:
        if len(batch) <= 1:
            return await self._send_each(batch)
        try:
            return await self._store.settle_many(batch)
        except OperationFailure:
            # The server refused something in the batch. One bad settlement must not spoil the others.
            return await self._send_each(batch)
        except PyMongoError as error:
            return [error] * len(batch)

    async def _send_each(self, batch: list[Settlement]) -> Sequence[_Answer]:
        return await asyncio.gather(*map(self._send_one, batch))

    async def _send_one(self, settlement: Settlement) -> _Answer:
        try:
            return await self._store.settle_one(settlement.claim, settlement.transition)
        except PyMongoError as error:
            return error
