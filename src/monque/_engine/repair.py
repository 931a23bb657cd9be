"""Creating the indexes again if somebody has dropped them while we run."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any

from pymongo.errors import PyMongoError

from monque._connect.deadlines import limited
from monque._engine.context import Context
from monque._errors import ConfigurationError
from monque._events import JobError

# How long to wait for missing indexes before work continues: to build them for millions of jobs takes
# minutes. Half of it polls a large collection without an index sooner; twice of it delays all work longer.
_PATIENCE = 20.0

# After this long the connection must have died. The server needs at most half an hour for a hundred million
# jobs; twice of it would only leave a dead task around for longer.
_LIMIT = 3600.0

# More than one at a time, because the connection of one may be dead. The server builds each index once, so
# twice as many cost nothing but tasks; with half as many, a dead connection blocks the repair for its limit.
_MOST_AT_ONCE = 3

Spawn = Callable[[Coroutine[Any, Any, None]], "asyncio.Task[None]"]


class IndexRepair:
    """Restores the indexes after the collection was dropped, or an index was."""

    def __init__(self, context: Context, spawn: Spawn, is_running: Callable[[], bool]) -> None:
        self._context = context
        self._spawn = spawn
        self._is_running = is_running
        self._tasks: set[asyncio.Task[None]] = set()

    async def restore(self) -> None:
        """Create the missing indexes and wait a while for them. If that takes longer, work continues."""
        if not self._context.store.options.create_indexes or not self._is_running():
            return
        if len(self._tasks) < _MOST_AT_ONCE:
            self._tasks.add(task := self._spawn(self._create_indexes()))
            task.add_done_callback(self._tasks.discard)
        await asyncio.wait(self._tasks, timeout=_PATIENCE, return_when=asyncio.FIRST_COMPLETED)

    async def _create_indexes(self) -> None:
        try:
            with suppress(PyMongoError), limited(_LIMIT):
                await self._context.store.create_indexes()
        except ConfigurationError as error:
            # Somebody has made another index in its place since we opened. Jobs are found without ours, too.
            self._context.log(logging.ERROR, f"cannot restore its indexes: {error}")
            self._context.bus.emit(JobError(error=error))
