"""Writes for operators: the description of this instance, what happens over time, the totals of all."""

from __future__ import annotations

import asyncio
import logging
import random
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Any

from pymongo.errors import PyMongoError

from monque._connect.contact import Contact
from monque._engine.claim import Claiming
from monque._engine.context import Context
from monque._engine.runs import Runs
from monque._ops import bulk, register
from monque._ops import counts as counting
from monque._ops import trends as trend_writes
from monque._ops.companion import WRITE_LIMIT, Companion
from monque._ops.trends import HOUR, MINUTE, MOST_NAMES, OTHERS, Counts, Entry, Tally, begin_of
from monque._store.document import Document
from monque._store.store import Store
from monque._time.clock import elapsed
from monque._time.waiting import happens, raise_lost_cancellation
from monque._values.errors import AggregationTimeoutError
from monque._values.records import ChangeStreamState, InstanceState, InstanceWorker
from monque._values.trends import Trends
from monque._values.views import QueueDepth
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
        context: Context,
        workers: Workers,
        active: Counter[str],
        claiming: Claiming,
        runs: Runs,
        listens: Callable[[], bool],
        over: asyncio.Event,
    ) -> None:
        store = context.store
        self._store = store
        self._companion = context.companions.register
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
                    self._companion,
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


logger = logging.getLogger("monque")

# Instances that started together must not write together: each interval differs by up to this part. Half of
# it spreads them less; twice of it makes the interval a poor promise.
_JITTER = 0.2

# How old a minute may get before it is dropped: an hour must be final some time. Half of it loses more in a
# long failover; twice of it makes hours late, and an outage take more memory.
LONGEST_DELAY = timedelta(minutes=10)


class TrendWriter:
    """Cuts the tally at each minute of the server's clock, and writes it at each interval, until *over*."""

    def __init__(
        self, store: Store, companion: Companion, tally: Tally, settings: Trends, over: asyncio.Event
    ) -> None:
        self._store = store
        self._companion = companion
        self._tally = tally
        self._settings = settings
        self._over = over
        self._minute = begin_of(MINUTE, store.clock.now())
        self._unwritten: dict[datetime, dict[str, Counts]] = {}
        self._flush_at = 0.0
        self._keep(self._minute, tally.cut())  # what an earlier runner has left, or recovery at open

    async def loop(self) -> None:
        """Cut and write until it is over; `close` writes the rest."""
        self._plan_flush()
        while not await happens(self._over, self._seconds_to_next()):
            self._cut()
            if elapsed() >= self._flush_at:
                await self._flush(WRITE_LIMIT)
                raise_lost_cancellation()
                self._plan_flush()

    async def close(self, within: float) -> None:
        """Write what is left."""
        self._cut()
        await self._flush(within)

    def _plan_flush(self) -> None:
        interval = self._settings.interval.total_seconds()
        self._flush_at = elapsed() + interval * random.uniform(1 - _JITTER, 1 + _JITTER)  # noqa: S311 - spreads

    def _seconds_to_next(self) -> float:
        """Until the next write or the end of the minute, whichever comes first."""
        to_minute = self._store.clock.seconds_until(self._minute + MINUTE)
        return max(min(self._flush_at - elapsed(), to_minute), 0.001)

    def _cut(self) -> None:
        """Note what was counted under the minute in which that began."""
        self._keep(self._minute, self._tally.cut())
        self._minute = begin_of(MINUTE, self._store.clock.now())

    def _keep(self, minute: datetime, counted: Mapping[str, Counts]) -> None:
        if not counted or not self._companion.may_write:
            return
        kept = self._unwritten.setdefault(minute, {})
        for name, counts in counted.items():
            shown = name if name in kept or len(kept) < MOST_NAMES else OTHERS
            if shown in kept:
                kept[shown].add(counts)
            else:
                kept[shown] = counts

    async def _flush(self, within: float) -> None:
        """Write all that is not written yet, in one command; what fails waits for the next one."""
        if not self._unwritten:
            return
        unwritten, self._unwritten = self._unwritten, {}
        entries = [Entry(minute, *item) for minute, counted in unwritten.items() for item in counted.items()]
        keep = self._settings.minutes
        for failed in await trend_writes.add(self._companion, entries, keep=keep, within=within):
            self._keep(failed.minute, {failed.name: failed.counts})
        self._drop_old()

    def _drop_old(self) -> None:
        """The numbers of a long outage must not fill memory, nor reach an hour that is added up."""
        oldest = self._store.clock.now() - LONGEST_DELAY
        old = [minute for minute in self._unwritten if minute < oldest]
        for minute in old:
            del self._unwritten[minute]
        if old:
            message = "the trends of %d minute(s) since %s UTC could not be written for too long and are lost"
            fields = {"instance_id": self._store.instance_id}
            logger.warning(message, len(old), f"{min(old):%H:%M}", extra=fields)


# How often the holder of the lease counts what waits, and how often others ask for the lease, in seconds.
# With twice of the first, the lease runs out in between; half of it doubles the cost. Others need not be
# quick: only gauges are missing meanwhile.
_ROUND = 60.0
_ASK = 120.0

# The longest that counting what waits may take. If it takes long, it is done less often: the server must have
# better things to do ten elevenths of the time. Half of that doubles the share.
_GAUGE_LIMIT = timedelta(seconds=5)
_PAUSE_PER_SECOND = 10.0

# An hour is final when no instance can add to its minutes any more; two minutes are for a slow write.
_FINAL_AFTER = LONGEST_DELAY + timedelta(minutes=2)


class TrendKeeper:
    """Asks for the lease, and does the work of its holder, until *over*."""

    def __init__(self, store: Store, companion: Companion, settings: Trends, over: asyncio.Event) -> None:
        self._store = store
        self._companion = companion
        self._settings = settings
        self._over = over
        self._holds_lease = False
        self._gauged: frozenset[str] = frozenset()
        """The names that had jobs at the last count."""
        self._folded_to: datetime | None = None

    async def loop(self) -> None:
        """Take a turn soon after the start, then each minute; less often without the lease."""
        pause = self._settings.interval.total_seconds()
        while not await happens(self._over, pause):
            began = elapsed()
            with suppress(PyMongoError, AggregationTimeoutError):  # heartbeats report an outage
                await self._take_turn()
            raise_lost_cancellation()
            took = elapsed() - began
            pause = max(self._pause() - took, took * _PAUSE_PER_SECOND)

    async def close(self, within: float) -> None:
        """Let another instance have the lease."""
        if self._holds_lease:
            with suppress(PyMongoError):
                await trend_writes.release_lease(self._companion, self._store.instance_id, within=within)

    def _pause(self) -> float:
        # The holder keeps to its second of the minute, so that no minute is left out. The others spread.
        return _ROUND if self._holds_lease else _ASK * random.uniform(0.8, 1.2)  # noqa: S311 - spreads

    async def _take_turn(self) -> None:
        self._holds_lease = await trend_writes.take_lease(self._companion, self._store.instance_id)
        if self._holds_lease:
            await self._gauge()
            await self._fold()

    async def _gauge(self) -> None:
        """Store what waits and runs now; of a name that has nothing any more, once that it has nothing."""
        now = self._store.clock.now()
        pipeline = counting.depths(now)
        groups = await bulk.aggregate(self._store.collection, pipeline, max_time=_GAUGE_LIMIT)
        depths = _largest(counting.depths_from(groups, besides=self._gauged, now=now))
        minute, keep = begin_of(MINUTE, now), self._settings.minutes
        await trend_writes.set_gauges(self._companion, minute, depths, keep=keep)
        self._gauged = frozenset(depth.name for depth in depths if _size(depth))

    async def _fold(self) -> None:
        until = begin_of(HOUR, self._store.clock.now() - _FINAL_AFTER)
        if self._folded_to is None or self._folded_to < until:
            await trend_writes.fold(self._companion, until, self._settings)
            self._folded_to = until


def _size(depth: QueueDepth) -> int:
    return depth.due + depth.later + depth.processing


def _largest(depths: list[QueueDepth]) -> list[QueueDepth]:
    """Very many names are a mistake, such as an id in a name; they must not fill the disk."""
    return sorted(depths, key=_size, reverse=True)[:MOST_NAMES]


# How long a stop waits for the last writes, in seconds. Half of it is short for a busy server; with twice, a
# stop becomes noticeably longer for numbers that nobody must have.
_LAST_WRITES = 1.0


class Bookkeeping:
    """Its loops survive database errors, and end when *over* is set; `close` writes the rest."""

    def __init__(self, context: Context, register: Register, contact: Contact, over: asyncio.Event) -> None:
        store, trends = context.store, context.store.options.trends
        self._contact = contact
        self._parts: list[Register | TrendWriter | TrendKeeper] = []
        if store.options.register:
            self._parts.append(register)
        if trends is not None and context.tally is not None:
            companion = context.companions.trends
            self._parts.append(TrendWriter(store, companion, context.tally, trends, over))
            self._parts.append(TrendKeeper(store, companion, trends, over))

    def loops(self) -> Iterator[Coroutine[Any, Any, None]]:
        """What has to run until it is over."""
        return (part.loop() for part in self._parts)

    async def close(self) -> None:
        """Write what is left, within a second; nothing if the database does not answer."""
        if self._parts and not self._contact.is_lost:
            closing = [asyncio.create_task(part.close(_LAST_WRITES)) for part in self._parts]
            # A loop may still wait for a write that hangs, and its part for that; both end with the loops.
            await asyncio.wait(closing, timeout=_LAST_WRITES)
            for task in closing:
                task.cancel()
