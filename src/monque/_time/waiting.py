"""Waiting for an event with a time limit, and pauses that double between attempts."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from contextlib import suppress


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


class Pauses:
    """The seconds to wait before each new attempt: *first*, then twice as long, up to *longest*.

    *jitter* is a fraction: 0.5 shortens each pause by a random part of up to 50 %, so that instances which
    failed together do not try again together.

    Examples:
        >>> pauses = Pauses(first=0.1, longest=0.3)
        >>> [pauses.next() for _ in range(4)]
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
