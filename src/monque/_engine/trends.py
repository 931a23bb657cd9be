"""Stores how the runs of this instance end, over time. Nothing waits for it."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Mapping
from datetime import datetime, timedelta

from monque._store import trend_writes
from monque._store.companion import WRITE_LIMIT
from monque._store.store import Store
from monque._store.tally import Tally
from monque._store.trend_writes import Entry
from monque._store.trends import MINUTE, MOST_NAMES, OTHERS, Counts, begin_of
from monque._time.clock import elapsed
from monque._time.waiting import happens, raise_lost_cancellation
from monque._trends import Trends

logger = logging.getLogger("monque")

# Instances that started together must not write together: each interval differs by up to this part. Half of
# it spreads them less; twice of it makes the interval a poor promise.
_JITTER = 0.2

# How old a minute may get before it is dropped: an hour must be final some time. Half of it loses more in a
# long failover; twice of it makes hours late, and an outage take more memory.
LONGEST_DELAY = timedelta(minutes=10)


class TrendWriter:
    """Cuts the tally at each minute of the server's clock, and writes it at each interval, until *over*."""

    def __init__(self, store: Store, tally: Tally, settings: Trends, over: asyncio.Event) -> None:
        self._store = store
        self._companion = store.companions.trends
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
