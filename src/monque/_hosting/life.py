"""A Monque that is open as long as its host lives."""

from __future__ import annotations

import asyncio
import logging
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from monque import Monque
from monque._signals import on_signals

logger = logging.getLogger("monque")


@asynccontextmanager
async def closed_on_exit(monque: Monque) -> AsyncIterator[None]:
    """Open *monque*, and close it gracefully at the end."""
    await monque.open()
    try:
        yield
    finally:
        await _close(monque)


async def _close(monque: Monque) -> None:
    """Close *monque* gracefully, at once if another signal comes, and without waiting if one more comes.

    A web server hears signals itself, but does not hurry a lifespan that it waits for.
    """
    closing = asyncio.ensure_future(monque.close())
    hurrying: set[asyncio.Task[None]] = set()

    def hurry(_number: signal.Signals, times: int) -> None:
        if times == 1:
            hurrying.add(asyncio.ensure_future(monque.stop(timeout=0)))
        else:
            logger.warning("instance %s is no longer waited for: another signal came", monque.instance_id)
            closing.cancel()

    with on_signals(hurry, whose=monque.instance_id):
        try:
            await closing
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise  # the lifespan itself was cancelled
