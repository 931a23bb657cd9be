"""What the pulse reads at each tick."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Sequence
from datetime import timedelta
from typing import TypeVar

from monque import ConnectionError, Monque, QueueDepth
from monque.management.snapshot import RECENT, Failures, Reading

T = TypeVar("T")

# Failed jobs and the size of the collection change slowly; counting failures takes 12 ms among a million
# jobs. Twice as often would cost that twice; half as often, and a failure would show after 20 s.
_SELDOM = 10

# A server that is slow ends the read itself, after the time limit. One that is gone does not: so much later
# we do. With less, a busy network would look like an outage; with more, pages would hear of one later.
_GRACE = timedelta(seconds=1)


class LiveReads:
    """Reads the numbers of one Monque: six commands a tick, and two more at every tenth."""

    def __init__(self, monque: Monque, *, limit: timedelta) -> None:
        self._monque = monque
        self._limit = limit
        self._count = 0
        self._failures: Failures | None = None
        self._stored = 0

    def begin(self) -> None:
        """Read everything next time, also what changes slowly."""
        self._count = 0

    async def read(self) -> Reading:
        """Read once.

        Raises:
            ConnectionError: The database does not answer.
            AggregationTimeoutError: A read took too long.
        """
        monque, limit, seldom = self._monque, self._limit, self._count % _SELDOM == 0
        depths = await self._answer(monque.queue_depths(failures=seldom, max_time=limit))
        if seldom:
            self._failures = _failures(depths)
            self._stored = await self._answer(monque.estimated_count(max_time=limit))
        since = monque.server_time() - RECENT
        points = await self._answer(monque.trends(since=since, by_name=True, max_time=limit))
        instances = await self._answer(monque.instances(max_time=limit))
        # Also a name of which no job waits may be paused.
        paused = await self._answer(monque.paused())
        self._count += 1
        return Reading(
            at=monque.server_time(),
            depths=depths,
            points=points,
            instances=instances,
            paused=frozenset(pause.name for pause in paused),
            failures=self._failures,
            stored=self._stored,
        )

    async def _answer(self, read: Awaitable[T]) -> T:
        seconds = (self._limit + _GRACE).total_seconds()
        try:
            async with asyncio.timeout(seconds):
                return await read
        except TimeoutError as error:
            raise ConnectionError(f"the database has not answered for {seconds:.0f} s") from error


def _failures(depths: Sequence[QueueDepth]) -> Failures | None:
    """What was counted with the depths; None without the index `monque_failed`."""
    if any(depth.failed is None for depth in depths):
        return None
    return Failures(
        failed={depth.name: depth.failed for depth in depths if depth.failed},
        cancelled=sum(depth.cancelled or 0 for depth in depths),
    )
