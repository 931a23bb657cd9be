"""What one instance does for all, by a lease: counts what waits once a minute, and adds finished hours up."""

from __future__ import annotations

import asyncio
import random
from contextlib import suppress
from datetime import datetime, timedelta

from pymongo.errors import PyMongoError

from monque._engine.trends import LONGEST_DELAY
from monque._errors import AggregationTimeoutError
from monque._store import counting, operations, trend_writes
from monque._store.store import Store
from monque._store.trends import HOUR, MINUTE, MOST_NAMES, begin_of
from monque._time.clock import elapsed
from monque._time.waiting import happens, raise_lost_cancellation
from monque._trends import Trends
from monque._views import QueueDepth

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

    def __init__(self, store: Store, settings: Trends, over: asyncio.Event) -> None:
        self._store = store
        self._companion = store.companions.trends
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
        groups = await operations.aggregate(self._store.collection, pipeline, max_time=_GAUGE_LIMIT)
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
