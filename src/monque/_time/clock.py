"""The database server's time, as well as a client can know it."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any


def elapsed() -> float:
    """Seconds since some moment in the past; they pass also while the machine is suspended.

    CLOCK_MONOTONIC stands still during a suspend: a laptop that slept for an hour would believe that the
    server's clock stands where it was, and that its claims are fresh.
    """
    return time.monotonic() if _BOOT_CLOCK is None else time.clock_gettime(_BOOT_CLOCK)


_BOOT_CLOCK: int | None = getattr(time, "CLOCK_BOOTTIME", None)

_EPOCH = datetime.fromtimestamp(0, UTC)


class Clock:
    """A lower bound of the server's time: it may be milliseconds late, never early.

    The client's own wall clock is not used at all. Each reading of the server's clock is taken as
    having been made when its answer *arrived*; the true moment was up to a round trip earlier, so
    the server's clock is at least that far by now.
    """

    def __init__(self) -> None:
        self._server_minus_elapsed: float | None = None
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

    def seconds_until(self, moment: datetime) -> float:
        """How long until the server's clock shows *moment*; negative if it did already."""
        return (moment - self.now()).total_seconds()

    @property
    def age(self) -> float:
        """Seconds since the server's clock was read."""
        return elapsed() - self._read_at

    async def refresh(self, hello: Callable[[], Any]) -> None:
        """Read the server's clock a few times and keep the tightest bound.

        The old bound is dropped, not kept as a maximum: after a failover another server's clock
        counts, and it may be behind.
        """
        best: float | None = None
        for _ in range(3):
            answer = await hello()
            bound = answer["localTime"].timestamp() - elapsed()
            best = bound if best is None else max(best, bound)
        self._server_minus_elapsed = best
        self._read_at = elapsed()
