"""The collections beside the jobs that are written for operators only, and what an instance writes there."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from functools import cached_property
from typing import TYPE_CHECKING, Any

from pymongo import IndexModel

from monque._connect.contact import Contact
from monque._ops import register, trends
from monque._ops.companion import EXPIRES, Companion
from monque._ops.register import Load, Register
from monque._ops.trends import Tally, TrendKeeper, TrendWriter
from monque._store.store import Store

if TYPE_CHECKING:
    from monque._ops.audit import AuditTrail


class Companions:
    """The trends, the register of instances and the audit trail; making them writes nothing yet."""

    def __init__(self, store: Store) -> None:
        self.store, options = store, store.options
        self.trends = self._companion(
            trends.SUFFIX, "what happens over time", trends.INDEXES, is_on=options.trends is not None
        )
        self.register = self._companion(
            register.SUFFIX, "the register of instances", [EXPIRES], is_on=options.register
        )

    @cached_property
    def audit(self) -> AuditTrail:
        """The audit trail, which only operators write."""
        from monque._ops import audit

        creates = self.store.options.create_indexes
        return audit.AuditTrail(self.store.beside(audit.SUFFIX), create_indexes=creates)

    def _companion(self, suffix: str, what: str, indexes: list[IndexModel], *, is_on: bool) -> Companion:
        creates = self.store.options.create_indexes
        return Companion(self.store.beside(suffix), what, indexes, is_on=is_on, creates_indexes=creates)


# How long a stop waits for the last writes, in seconds: nobody must have these numbers.
_LAST_WRITES = 1.0


class Bookkeeping:
    """Its loops survive database errors, and end when *over* is set; `close` writes the rest."""

    def __init__(
        self,
        companions: Companions,
        tally: Tally | None,
        load: Callable[[], Load],
        contact: Contact,
        closing: asyncio.Event,
        over: asyncio.Event,
    ) -> None:
        store, trends = companions.store, companions.store.options.trends
        self._contact = contact
        self._parts: list[Register | TrendWriter | TrendKeeper] = []
        if store.options.register:
            self._parts.append(Register(store, companions.register, load, closing, over))
        if trends is not None and tally is not None:
            self._parts.append(TrendWriter(store, companions.trends, tally, trends, over))
            self._parts.append(TrendKeeper(store, companions.trends, trends, over))

    def loops(self) -> Iterator[Coroutine[Any, Any, None]]:
        """The loops that run until it is over."""
        return (part.loop() for part in self._parts)

    async def close(self) -> None:
        """Write what is left, within a second; nothing if the database does not answer."""
        if self._parts and not self._contact.is_lost:
            closing = [asyncio.create_task(part.close(_LAST_WRITES)) for part in self._parts]
            # A loop may still wait for a write that hangs, and its part for that; both end with the loops.
            await asyncio.wait(closing, timeout=_LAST_WRITES)
            for task in closing:
                task.cancel()
