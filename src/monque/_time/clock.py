"""The server's clock, the time that has passed here, waits with a limit, pauses between attempts."""

from __future__ import annotations

import asyncio
import math
import random
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

elapsed: Callable[[], float] = (
    partial(time.clock_gettime, time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else time.monotonic
)
"""Return the seconds since some moment in the past; they pass also while the machine is suspended.

CLOCK_MONOTONIC stands still during a suspend: a laptop that slept for an hour would believe that the server's
clock stands where it was, and that its claims are fresh.
"""

# The server tells its time without what is left of a millisecond.
_MILLISECOND = 0.001

_EPOCH = datetime.fromtimestamp(0, UTC)


class Clock:
    """A lower bound of the server's time: it may be milliseconds late, never early.

    The client's own wall clock is not used at all. Each reading of the server's clock is taken as
    having been made when its answer *arrived*; the true moment was up to a round trip earlier, so
    the server's clock is at least that far by now.
    """

    def __init__(self) -> None:
        self._server_minus_elapsed: float | None = None
        self._latest_minus_elapsed = 0.0
        self._last = (-1, _EPOCH)
        self._read_at = 0.0

    def now(self) -> datetime:
        """The server's time, to the millisecond as BSON keeps it."""
        if self._server_minus_elapsed is None:
            raise RuntimeError("the server's time is not known yet")
        milliseconds = int((self._server_minus_elapsed + elapsed()) * 1000)
        if milliseconds != self._last[0]:  # asked for far more often than each millisecond
            self._last = (milliseconds, _EPOCH + timedelta(milliseconds=milliseconds))
        return self._last[1]

    def latest(self) -> datetime:
        """The latest time that the server's clock may show: `now` is late by up to a round trip."""
        return datetime.fromtimestamp(self._latest_minus_elapsed + elapsed(), UTC)

    def seconds_until(self, moment: datetime) -> float:
        """Return the seconds until the server's clock shows *moment*; negative if it did already."""
        return (moment - self.now()).total_seconds()

    @property
    def age(self) -> float:
        """Seconds since the server's clock was read."""
        return elapsed() - self._read_at

    async def refresh(self, hello: Callable[[], Any]) -> None:
        """Read the server's clock a few times and keep the tightest bounds.

        An old bound is dropped, not kept as a maximum: after a failover another server's clock
        counts, and it may be behind.
        """
        earliest, latest = -math.inf, math.inf
        for _ in range(3):
            sent = elapsed()
            shown = (await hello())["localTime"].timestamp()
            earliest = max(earliest, shown - elapsed())
            latest = min(latest, shown + _MILLISECOND - sent)
        self._server_minus_elapsed, self._latest_minus_elapsed = earliest, latest
        self._read_at = elapsed()


async def happens(event: asyncio.Event, within: float | None) -> bool:
    """Wait for *event*, at most *within* seconds (None: without a limit); return whether it is set.

    An event that is set already costs no turn of the loop, whatever the limit.
    """
    with suppress(TimeoutError):
        async with asyncio.timeout(within):
            await event.wait()
    return event.is_set()


def raise_lost_cancellation() -> None:
    """End a loop that was cancelled during a command.

    In Python 3.11 a cancellation that meets the end of a wait in the driver gets lost. Where nobody cancels
    again, as at the end of `asyncio.run`, the loop would go on, and the program would never end.
    """
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        raise asyncio.CancelledError


class Backoff:
    """The seconds to wait before each new attempt: *first*, then twice as long, up to *longest*.

    *jitter* is a fraction: 0.5 shortens each pause by a random part of up to 50 %, so that instances which
    failed together do not try again together.

    Examples:
        >>> backoff = Backoff(first=0.1, longest=0.3)
        >>> [backoff.next() for _ in range(4)]
        [0.1, 0.2, 0.3, 0.3]
    """

    __slots__ = ("_first", "_jitter", "_longest", "_next", "_rng")

    def __init__(
        self, *, first: float, longest: float, jitter: float = 0.0, rng: Callable[[], float] = random.random
    ) -> None:
        self._first = self._next = min(first, longest)
        self._longest = longest
        self._jitter = jitter
        self._rng = rng

    def next(self) -> float:
        """Return the pause before the next attempt, and double the one after it."""
        pause = self._next
        self._next = min(pause * 2, self._longest)
        return pause * (1 - self._jitter * self._rng()) if self._jitter else pause

    def reset(self) -> None:
        """Begin with the first pause again; call it after a success."""
        self._next = self._first


class Refusals:
    """Remembers since when the server refuses something that no job needs: each new one is reported once.

    To try again at once would be in vain: what is missing is a right, or space.
    """

    __slots__ = ("_last",)

    def __init__(self) -> None:
        self._last: float | None = None

    def __bool__(self) -> bool:
        """Return whether the last try was refused."""
        return self._last is not None

    def allow_after(self, rest: float) -> bool:
        """Return whether to try: nothing was refused, or that is *rest* seconds ago."""
        return self._last is None or elapsed() - self._last >= rest

    def add(self) -> bool:
        """Note that a try was refused; return whether that is new, and so to be reported."""
        is_new, self._last = self._last is None, elapsed()
        return is_new

    def clear(self) -> None:
        """Note that a try has succeeded."""
        self._last = None
