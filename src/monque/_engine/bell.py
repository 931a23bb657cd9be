"""Many reasons to poll, one place to wait."""

from __future__ import annotations

import asyncio
from datetime import datetime

from monque._time.clock import Clock
from monque._time.waiting import happens

# Timers are not set further ahead than this: the poll that follows sets the next one. Half or twice of it
# changes only how often an instance without work for hours polls for nothing.
_FARTHEST = 3600.0


class Bell:
    """A bell with a due time.

    A ring is a hint, never a fact: whoever wakes up polls. Any number of rings before a poll count as one, so
    a burst of inserts costs one poll, and steady inserts can never put off the poll as a restarted timer
    would.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        self._rung = asyncio.Event()
        self._timer: asyncio.TimerHandle | None = None
        self._due: datetime | None = None

    def ring(self) -> None:
        """It may be worth while to poll now."""
        self._rung.set()

    def ring_from_any_thread(self) -> None:
        """As `ring`, for callers that may not be on the loop."""
        self._loop.call_soon_threadsafe(self.ring)

    def ring_at(self, due: datetime) -> None:
        """It may be worth while to poll at *due*, by the server's clock."""
        seconds = self._clock.seconds_until(due)
        if seconds <= 0:
            self.ring()
        elif self._due is None or due < self._due:
            self._disarm()
            self._due = due
            # A millisecond late rather than early: a poll before the time finds nothing.
            self._timer = self._loop.call_later(min(seconds + 0.001, _FARTHEST), self._fire)

    def clear(self) -> None:
        """Forget all rings so far. Call it before a poll: a ring during the poll must count."""
        self._rung.clear()

    async def wait(self, timeout: float) -> None:
        """Wait for a ring, at most *timeout* seconds."""
        await happens(self._rung, timeout)

    def close(self) -> None:
        """Leave no timer behind."""
        self._disarm()

    def _fire(self) -> None:
        self._disarm()
        self.ring()

    def _disarm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._due = None
