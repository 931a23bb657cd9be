"""The tasks of a running instance, and who owns them."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from monque._connect.deadlines import without_deadline

R = TypeVar("R")

# Time enough for a cancelled loop to end: the driver may have to wait for a lock before. With half of it, a
# second cancellation may come while the driver waits; twice of it only delays the rare stop that needs it.
_BETWEEN_CANCELLATIONS = 1.0


class Loops:
    """Owns the loops of a runner. They survive database errors; anything else is a bug, told to *on_bug*."""

    def __init__(self, on_bug: Callable[[BaseException], None]) -> None:
        self._on_bug = on_bug
        self._group: asyncio.TaskGroup | None = None
        self._tasks: list[asyncio.Task[Any]] = []

    def start(self, begin: Callable[[], None], on_end: Callable[[], None]) -> None:
        """Call *begin*, which spawns the loops, in the background, and *on_end* when all of them are over."""
        supervising = self._supervise(begin, on_end)
        self._supervisor = asyncio.create_task(supervising, name="monque", context=without_deadline())

    @property
    def have_begun(self) -> bool:
        """Whether loops can be spawned."""
        return self._group is not None

    @property
    def are_cancelled(self) -> bool:
        """Whether they have ended, or somebody has cancelled them."""
        return self._supervisor.done() or self._supervisor.cancelling() > 0

    def spawn(
        self, loop: Coroutine[Any, Any, R], context: contextvars.Context | None = None
    ) -> asyncio.Task[R]:
        """Run one more loop."""
        assert self._group is not None  # noqa: S101 - only called once they have begun
        task = self._group.create_task(loop, context=context)
        task.add_done_callback(self._ended)
        self._tasks.append(task)
        return task

    async def end(self) -> None:
        """Cancel all loops and wait for their end."""
        self._supervisor.cancel()  # which cancels the loops
        # In Python 3.11 a cancellation that meets the end of a wait in the driver gets lost: cancel again.
        # Not at once: a second one while the driver waits for its lock leaves that lock taken for ever.
        while not (await asyncio.wait({self._supervisor}, timeout=_BETWEEN_CANCELLATIONS))[0]:
            for task in (self._supervisor, *self._tasks):
                task.cancel()

    async def _supervise(self, begin: Callable[[], None], on_end: Callable[[], None]) -> None:
        try:
            async with asyncio.TaskGroup() as self._group:
                begin()
        except BaseExceptionGroup as bugs:
            self._on_bug(bugs.exceptions[0])
        finally:
            on_end()

    def _ended(self, loop: asyncio.Task[Any]) -> None:
        self._tasks.remove(loop)
        # Not left to the group, which waits for all other loops to end first: one of them may lose its
        # cancellation (see `end`), and nobody would ever hear of the bug.
        if not loop.cancelled() and (bug := loop.exception()) is not None:
            self._on_bug(bug)
