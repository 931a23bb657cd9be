"""Waiting for facts, never for time."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from typing import Any

from monque import Event, Monque


async def eventually(check: Callable[[], Any], *, within: float = 10.0) -> Any:
    """Run *check* (sync or async) until its assertions hold; fail with the last one when time is up."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + within
    while True:
        try:
            result = check()
            return await result if inspect.isawaitable(result) else result
        except AssertionError:
            if loop.time() > deadline:
                raise
        await asyncio.sleep(0.01)


async def reaches(count: Callable[[], Awaitable[int]], goal: int, *, standstill: float = 60.0) -> None:
    """Wait until *count* is *goal*, for as long as it grows: how fast it grows is up to the machine."""
    reached = await count()
    while reached < goal:

        async def grows(before: int = reached) -> int:
            now = await count()
            assert now > before
            return now

        reached = await eventually(grows, within=standstill)


async def healthy(monque: Monque, expected: bool = True, *, within: float = 20.0) -> None:
    """Wait until `is_healthy()` is as expected."""

    def check() -> None:
        assert monque.is_healthy() is expected

    await eventually(check, within=within)


class Events:
    """The events that a Monque has emitted since this was made, in order, and a way to wait for more."""

    def __init__(self, monque: Monque) -> None:
        self.all: list[Event] = []
        self._changed = asyncio.Event()
        monque.on(Event, self._record)

    def _record(self, event: Event) -> None:
        self.all.append(event)
        self._changed.set()

    def kinds(self) -> list[str]:
        return [event.kind for event in self.all]

    def of(self, kind: str) -> list[Any]:
        return [event for event in self.all if event.kind == kind]

    async def wait(self, kind: str, count: int = 1, *, within: float = 15.0) -> list[Any]:
        """Wait until *count* events of a kind were emitted, and return them."""
        async with asyncio.timeout(within):
            while len(self.of(kind)) < count:
                self._changed.clear()
                await self._changed.wait()
        return self.of(kind)[:count]


async def start(monque: Monque, *, until: str = "changestream:connected") -> Events:
    """Start *monque* and wait for an event: its change stream is live. Return the events since the start."""
    events = Events(monque)
    await monque.start()
    await events.wait(until)
    return events
