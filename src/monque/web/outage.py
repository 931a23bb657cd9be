"""Find out soon that the database does not answer: work that takes long is checked by a ping.

The driver alone notices late: a frozen server when the time of a read is over, a lost one after the time for
choosing a server. By then the request has run into a limit that names the wrong thing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from contextlib import suppress
from contextvars import Context
from typing import Any, TypeVar

from pymongo.errors import PyMongoError

from monque import ConnectionError, Monque, NotOpenError
from monque.web.errors import TooBusyError
from monque.web.read_cache import retrieve

T = TypeVar("T")

# Work that takes so many seconds is checked, and so long a ping may take. A busy server needs some tens of
# milliseconds for a ping; together they leave a page told within five seconds, a tick of the pulse included.
_PATIENCE = 1.5
_PING = 1.5


class Outage:
    """The look-out of one dashboard: is it the database that keeps us waiting?"""

    def __init__(self, monque: Monque) -> None:
        self._monque = monque
        self._ping: asyncio.Task[bool] | None = None

    async def check(self, work: Coroutine[Any, Any, T]) -> T:
        """Return the result of *work*, which is cancelled once the database is known to be away.

        Raises:
            ConnectionError: The database does not answer.
        """
        task = asyncio.create_task(work)
        try:
            await self.wait(task)
            return task.result()
        except TooBusyError:
            # The reads that hold all turns may wait for a database that is gone.
            if await self.is_away():
                raise _away() from None
            raise
        finally:
            if not task.done():
                task.cancel()
                task.add_done_callback(retrieve)

    async def wait(self, task: asyncio.Task[Any]) -> None:
        """Wait for the end of a task; while it takes long, ask again and again whether the database is there.

        Raises:
            ConnectionError: It is not, and the task goes on.
        """
        while not (await asyncio.wait([task], timeout=_PATIENCE))[0]:
            if await self.is_away() and not task.done():
                raise _away()

    async def is_away(self) -> bool:
        """Tell whether the database leaves a ping without an answer; those who ask together share one."""
        if self._ping is None or self._ping.done():
            self._ping = asyncio.create_task(self._is_silent(), context=Context())
        return await asyncio.shield(self._ping)

    async def close(self) -> None:
        """End the ping that is under way."""
        if self._ping is not None:
            self._ping.cancel()
            await asyncio.wait([self._ping])
            self._ping = None

    async def _is_silent(self) -> bool:
        with suppress(NotOpenError):  # opening has a limit of its own
            try:
                async with asyncio.timeout(_PING):
                    await self._monque.database.command("ping")
            except (TimeoutError, PyMongoError):
                return True
        return False


def _away() -> ConnectionError:
    return ConnectionError("the database does not answer")
