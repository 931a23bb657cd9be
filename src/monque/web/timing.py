"""How long a request may take, and what becomes of one that takes longer.

A read that takes too long is cancelled. A write goes on: nobody could say how far it came, and the audit
trail tells how it ends.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from monque.web.problems import too_slow

T = TypeVar("T")

logger = logging.getLogger("monque.web")

# A whole request. Half as long would cut reads that the server may work on for five seconds; nobody looks at
# a page that takes twice as long.
REQUEST_SECONDS = 10.0
# How long a close waits for writes that took too long already: a host must stop within three seconds.
_CLOSING_SECONDS = 1.0

_LATE_READ = (
    "The answer took longer than 10 s. A name, a status or a shorter range helps, and so does: "
    "monque indexes --create --listing"
)
_LATE_WRITE = (
    "The action takes longer than 10 s and goes on; the audit trail tells how it ends. "
    "Fewer jobs at once take less."
)


def deadline() -> float:
    """When a request that begins now must be answered, by the clock of the event loop."""
    return asyncio.get_running_loop().time() + REQUEST_SECONDS


@asynccontextmanager
async def until(when: float) -> AsyncIterator[None]:
    """Cancel what is done within when its time is over.

    Raises:
        Problem: It took too long.
    """
    try:
        async with asyncio.timeout_at(when) as limit:
            yield
    except TimeoutError:
        if limit.expired():
            raise too_slow(_LATE_READ) from None
        raise


class LateWrites:
    """The writes that took too long, and go on without anybody who waits for them."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[Any]] = set()

    async def finish(self, work: Coroutine[Any, Any, T], *, until: float) -> T:
        """What a write returns, if it returns in time; else it goes on.

        Raises:
            Problem: It takes too long.
        """
        task = asyncio.create_task(work)
        try:
            # A server may cancel a request whose client is gone: the write goes on all the same.
            await asyncio.wait([task], timeout=max(0.0, until - asyncio.get_running_loop().time()))
        finally:
            if not task.done():
                self._leave(task)
        return _result(task)

    async def close(self) -> None:
        """Wait a moment for all of them, and cancel those that need longer."""
        if self._tasks:
            _, later = await asyncio.wait(self._tasks, timeout=_CLOSING_SECONDS)
            for task in later:
                task.cancel()

    def _leave(self, task: asyncio.Task[Any]) -> None:
        self._tasks.add(task)
        task.add_done_callback(self._forget)

    def _forget(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            logger.warning("a write failed after its request was answered: %s", type(error).__name__)


def _result(task: asyncio.Task[T]) -> T:
    if not task.done():
        raise too_slow(_LATE_WRITE)
    return task.result()
