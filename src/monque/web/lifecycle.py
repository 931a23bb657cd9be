"""The time limits of requests, and the Monque of a dashboard from its opening to its end."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from monque import ConfigurationError, ConnectionError, Monque, MonqueError, NotOpenError
from monque.web.errors import DatabaseAwayError, TooSlowError, internal
from monque.web.outage import Outage

T = TypeVar("T")

logger = logging.getLogger("monque.web")

# A whole request: longer than the five seconds that the server may work on one read.
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
_DOUBTFUL_WRITE = (
    "The database does not answer. The action may still be done once it does, and the audit trail tells how "
    "it ends."
)


def deadline() -> float:
    """Return the moment by which a request that begins now is answered, by the clock of the event loop."""
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
            raise TooSlowError(_LATE_READ) from None
        raise


class LateWrites:
    """The writes that took too long, and go on without anybody who waits for them."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[Any]] = set()

    async def finish(self, work: Coroutine[Any, Any, T], *, until: float, outage: Outage) -> T:
        """Return the result of a write, if it comes in time; else the write goes on.

        Raises:
            Problem: It takes too long, or the database does not answer.
        """
        task = asyncio.create_task(work)
        try:
            # A server may cancel a request whose client is gone: the write goes on all the same.
            async with asyncio.timeout_at(until):
                await outage.wait(task)
        except TimeoutError:
            raise TooSlowError(_LATE_WRITE) from None
        except ConnectionError:
            raise DatabaseAwayError(_DOUBTFUL_WRITE) from None
        finally:
            if not task.done():
                self._leave(task)
        return task.result()

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


# Seconds that the first requests wait for the index of failures. A small collection has it in milliseconds;
# for a large one, all but failures can be shown at once.
_PREPARED_WITHIN = 2.0

# Seconds that a request waits for a Monque that is being opened. The driver looks for a server for 30 s; a
# page says after five that there is none.
_OPENED_WITHIN = 5.0

_OTHER_LOOP = (
    "This request came on another event loop than the first one. A dashboard and its Monque belong to one "
    "event loop: serve it from one thread, and make one for each loop."
)


class Life:
    """The opening and closing of a dashboard's Monque.

    Mounts run no lifespan, so the first request opens the Monque, unless the host has. What the host opened
    stays the host's.
    """

    def __init__(self, monque: Monque, prepare: Callable[[], Awaitable[None]]) -> None:
        self._monque = monque
        self._prepare = prepare
        self._loop: asyncio.AbstractEventLoop | None = None
        self._opening: asyncio.Task[None] | None = None
        self._preparing: asyncio.Task[None] | None = None
        self._is_ours = False
        self._is_closed = False

    def check_loop(self) -> None:
        """Belong to the event loop of the first request.

        Raises:
            Problem: This is another one.
        """
        loop = asyncio.get_running_loop()
        if self._loop is None:
            self._loop = loop
        if self._loop is not loop:
            raise internal(_OTHER_LOOP)

    async def open(self) -> None:
        """Open the Monque unless it is open. Requests that come together share one attempt.

        Raises:
            Problem: The database does not answer, or the dashboard is closed.
        """
        if self._is_closed:
            raise DatabaseAwayError("This dashboard is closed: its host is stopping.")
        if self._opening is None or _has_failed(self._opening):
            self._opening = asyncio.create_task(self._open())
        # A request that is given up must not end the opening for the others.
        ended, _ = await asyncio.wait([self._opening], timeout=_OPENED_WITHIN)
        if not ended:
            raise DatabaseAwayError("The database has not answered since the dashboard was started.")
        self._opening.result()

    async def _open(self) -> None:
        was_open = is_open(self._monque)
        try:
            await self._monque.open()
        except ConfigurationError as error:
            raise internal(str(error)) from error
        except MonqueError as error:
            raise DatabaseAwayError(f"The database cannot be reached: {error}.") from error
        self._is_ours = not was_open
        if self._monque.options.create_indexes:
            self._preparing = asyncio.create_task(self._prepared())
            await asyncio.wait([self._preparing], timeout=_PREPARED_WITHIN)

    async def _prepared(self) -> None:
        try:
            await self._prepare()
        except MonqueError as error:
            logger.warning("failures are not grouped, because their index cannot be made: %s", error)

    async def close(self) -> None:
        """Close the Monque if it was opened here. Requests that come later are refused."""
        self._is_closed = True
        for task in (self._opening, self._preparing):
            if task is not None:
                task.cancel()
                await asyncio.wait([task])
        if self._is_ours:
            self._is_ours = False
            await self._monque.close()

    def renew(self) -> None:
        """Be as new, after a close."""
        self._loop = self._opening = self._preparing = None
        self._is_closed = False


def is_open(monque: Monque) -> bool:
    """Return whether a Monque is open."""
    try:
        return monque.database is not None
    except NotOpenError:
        return False


def _has_failed(task: asyncio.Task[None]) -> bool:
    return task.done() and (task.cancelled() or task.exception() is not None)
