"""The Monque of a dashboard: opened if nobody has, in the one event loop that serves the requests."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from monque import ConfigurationError, Monque, MonqueError, NotOpenError
from monque.web.problems import Problem, away, internal

logger = logging.getLogger("monque.web")

# Seconds that the first requests wait for the index of failures. A small collection has it in milliseconds;
# with twice as long, a large one would seem slow, though all but failures can be shown at once.
_PREPARED_WITHIN = 2.0

_OTHER_LOOP = (
    "This request came on another event loop than the first one. A dashboard and its Monque belong to one "
    "event loop: serve it from one thread, and make one for each loop."
)


class Life:
    """When the Monque of a dashboard is open, and who closes it.

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
            raise away("This dashboard is closed: its host is stopping.")
        if self._opening is None or _has_failed(self._opening):
            self._opening = asyncio.create_task(self._open())
        # A request that is given up must not end the opening for the others.
        await asyncio.shield(self._opening)

    async def _open(self) -> None:
        was_open = is_open(self._monque)
        try:
            await self._monque.open()
        except ConfigurationError as error:
            raise internal(str(error)) from error
        except MonqueError as error:
            raise _unopened(error) from error
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
    """Whether a Monque is open."""
    try:
        return monque.database is not None
    except NotOpenError:
        return False


def _has_failed(task: asyncio.Task[None]) -> bool:
    return task.done() and (task.cancelled() or task.exception() is not None)


def _unopened(error: MonqueError) -> Problem:
    return away(f"The database cannot be reached: {error}.")
