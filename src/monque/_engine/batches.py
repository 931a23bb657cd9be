"""Batches on the side of those who run their jobs: look after each end, wake what waits, say so."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial

from pymongo.errors import PyMongoError

from monque._connect.deadlines import limited
from monque._engine.context import Context
from monque._ops import counts
from monque._store import batches
from monque._store.batching import Batching
from monque._store.document import Document
from monque._store.job import to_job
from monque._values.errors import AggregationTimeoutError
from monque._values.events import BatchEnded, JobCancelled


class Batches:
    """Looks whether batches are over. Jobs that end while a look is under way share the next one."""

    def __init__(
        self, context: Context, on_woken: Callable[[str], None], on_bug: Callable[[BaseException], None]
    ) -> None:
        self._store = context.store
        self._bus = context.bus
        self._on_woken = on_woken
        self._on_bug = on_bug
        self._looks: Batching[str, None] = Batching(self._look, many=100, at_once=1)
        self._ended: Batching[Document, None] = Batching(self._look_after_all, many=100, at_once=1)

    def put(self, label: str, on_looked: Callable[[], None]) -> None:
        """Look at a batch of which a job has ended, or for which one waits; then call *on_looked*."""
        # Whoever stored the job has noted that before: from now on this instance sweeps.
        self._store.uses.assume_noted("batch", "parked")
        self._looks.put(label, partial(self._looked, on_looked))

    def _looked(self, tell: Callable[[], None], _item: object, result: BaseException | None) -> None:
        tell()
        if isinstance(result, Exception):
            self._on_bug(result)

    def look_after(self, ended: Document) -> None:
        """As `batches.look_after`, for who must not wait: somebody's transaction may hold what is written."""
        self._ended.put(ended, partial(self._looked, lambda: None))

    async def _look_after_all(self, ended: list[Document]) -> Sequence[None]:
        for job in ended:
            for name in await batches.look_after(self._store, job):
                self._on_woken(name)
        return [None] * len(ended)

    async def sweep(self) -> None:
        """Look at batches that jobs wait for, if it is this instance's turn."""
        control = self._store.control
        if (turn := await control.may_sweep("batches")) is not None:
            woken, last = await batches.sweep(self._store, turn.after, self._tell)
            if last != turn.after:
                await control.swept("batches", last)
            for name in woken:
                self._on_woken(name)

    async def _look(self, labels: list[str]) -> Sequence[None]:
        await asyncio.gather(*map(self._look_at, set(labels)))
        return [None] * len(labels)

    async def _look_at(self, label: str) -> None:
        names = await batches.look(self._store, label, self._tell)
        if names is None:
            return
        for name in set(names):
            self._on_woken(name)
        if self._bus.has_listeners(BatchEnded):
            with suppress(PyMongoError, AggregationTimeoutError), limited():
                found = await counts.aggregate(self._store.collection, counts.statistics(batch=label))
                self._bus.emit(BatchEnded(batch=label, stats=counts.stats_from(found)))

    def _tell(self, cancelled: Document) -> None:
        if self._bus.has_listeners(JobCancelled):
            self._bus.emit(JobCancelled(job=to_job(cancelled, self._store.read)))
