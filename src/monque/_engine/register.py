"""Describes this instance to operators, while it processes jobs. Nothing waits for it."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress

from pymongo.errors import PyMongoError

from monque._engine.claiming import Claiming
from monque._engine.runs import Runs
from monque._instances import ChangeStreamState, InstanceState, InstanceWorker
from monque._store import register
from monque._store.companion import WRITE_LIMIT
from monque._store.document import Document
from monque._store.store import Store
from monque._time.clock import elapsed
from monque._time.waiting import happens, raise_lost_cancellation
from monque._workers.workers import Workers

# How often to look whether anything has changed, in seconds. With half of it a busy instance writes twice as
# often; with twice, operators see old numbers.
_CHECK = 5.0

# A stop that is over by then is described once, as stopped.
_QUICK_STOP = 0.5


class Register:
    """Writes the description at the start, at each heartbeat interval, when it changes, and at the end."""

    def __init__(
        self,
        store: Store,
        workers: Workers,
        active: Counter[str],
        claiming: Claiming,
        runs: Runs,
        listens: Callable[[], bool],
        over: asyncio.Event,
    ) -> None:
        self._store = store
        self._workers = workers
        self._active = active
        self._claiming = claiming
        self._runs = runs
        self._listens = listens
        self._over = over
        self._identity = register.identity_of(store.options, started_at=store.clock.now())
        self._written: Document = {}
        self._written_at = 0.0
        self._one_at_a_time = asyncio.Lock()

    async def loop(self) -> None:
        """Write the description whenever that is needed; `close` writes the last one."""
        interval = self._store.options.heartbeat_interval.total_seconds()
        await self._write("running", WRITE_LIMIT)
        raise_lost_cancellation()
        while not await self._is_over(min(_CHECK, interval)):
            state: InstanceState = "stopping" if self._claiming.closing.is_set() else "running"
            if elapsed() - self._written_at >= interval or self._describe(state) != self._written:
                await self._write(state, WRITE_LIMIT)
                raise_lost_cancellation()

    async def _is_over(self, within: float) -> bool:
        """Wait for the next check; a stop that takes longer than a moment is told at once."""
        if self._claiming.closing.is_set():
            return await happens(self._over, within)
        return await happens(self._claiming.closing, within) and await happens(self._over, _QUICK_STOP)

    async def close(self, within: float) -> None:
        """Say that the instance has stopped."""
        await self._write("stopped", within)

    async def _write(self, state: InstanceState, within: float) -> None:
        async with self._one_at_a_time:
            written, self._written_at = self._describe(state), elapsed()
            with suppress(PyMongoError):  # heartbeats report an outage
                await register.write(
                    self._store.companions.register,
                    self._store.instance_id,
                    {**self._identity, **written},
                    now=self._store.clock.now(),
                    within=within,
                )
            self._written = written

    def _describe(self, state: InstanceState) -> Document:
        workers = sorted(self._describe_workers(), key=lambda worker: worker.name)
        slots = sum(worker.concurrency for worker in workers if not worker.off)
        limit = self._store.options.instance_concurrency
        return register.described(
            state=state,
            slots=slots if limit is None else min(slots, limit),
            busy=self._active.total(),
            claimed_ahead=self._runs.prefetch.count,
            change_stream=self._change_stream(),
            workers=workers,
        )

    def _describe_workers(self) -> Iterator[InstanceWorker]:
        for worker in self._workers:
            name = worker.name
            yield InstanceWorker(
                name=name,
                concurrency=self._runs.capacity.slots_of(worker),
                active=self._active[name],
                off=not self._workers.serves(name),
            )

    def _change_stream(self) -> ChangeStreamState:
        if not self._listens():
            return "off"
        listening = self._claiming.listening
        return "live" if listening.live or listening.closed_for_backlog else "polling"
