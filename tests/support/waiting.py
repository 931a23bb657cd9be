"""Waiting for facts, never for time."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
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


class Heard:
    """Everything a Monque tells, in order, and a way to wait for it."""

    def __init__(self, monque: Monque) -> None:
        self.events: list[Event] = []
        self._changed = asyncio.Event()
        monque.on(Event, self._hear)

    def _hear(self, event: Event) -> None:
        self.events.append(event)
        self._changed.set()

    def kinds(self) -> list[str]:
        return [event.kind for event in self.events]

    def of(self, kind: str) -> list[Any]:
        return [event for event in self.events if event.kind == kind]

    async def wait(self, kind: str, count: int = 1, *, within: float = 15.0) -> list[Any]:
        """The first *count* events of a kind, as soon as that many were told."""
        async with asyncio.timeout(within):
            while len(self.of(kind)) < count:
                self._changed.clear()
                await self._changed.wait()
        return self.of(kind)[:count]
