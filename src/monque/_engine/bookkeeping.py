"""What a running instance writes for operators, beside its jobs: who it is, and what happens over time."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterator
from typing import Any

from monque._connect.contact import Contact
from monque._engine.context import Context
from monque._engine.keeping import TrendKeeper
from monque._engine.register import Register
from monque._engine.trends import TrendWriter

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
            self._parts.append(TrendWriter(store, context.tally, trends, over))
            self._parts.append(TrendKeeper(store, trends, over))

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
