"""Whether the database answers: known from the work of all loops, else by asking it now and then.

Two things are free: what the loops experience anyway, and what the driver's own monitors know of the servers
(they notice at once that a connection is refused or reset). A server that hangs with its connections open is
noticed by neither in time, so an instance that heard nothing for a while sends one small command.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any

from pymongo import AsyncMongoClient
from pymongo.errors import OperationFailure, PyMongoError

from monque._clock import elapsed
from monque._deadlines import limited
from monque._explain import explain

logger = logging.getLogger("monque")

# How often to see, without a command, whether the driver knows a server that takes writes. One glance without
# one means little: after any network error the driver forgets the server for a moment and looks again.
_GLANCE = 0.5
_GLANCES_WITHOUT_SERVER = 2

# After this long without any answer the server is asked, and has as long to answer. So a server that hangs is
# noticed after twice as long; half of it would send an idle instance's server a command every other second.
_QUIET = 5.0

# Facts that are older say nothing. They are that old only if the event loop was blocked or the machine slept.
_OLDEST_FACTS = 15.0


class Contact:
    """The contact of one instance with the database; all of its loops report to it."""

    def __init__(self, client: AsyncMongoClient[Any], ping: Callable[[], Awaitable[object]]) -> None:
        self._client = client
        self._ping = ping
        self._heard = elapsed()
        self._work_fails = False
        self._no_answer = False
        self._lost_since: float | None = None

    @property
    def is_good(self) -> bool:
        """Whether work succeeds and the database answered a moment ago; may be asked from any thread."""
        return not self._work_fails and not self._no_answer and elapsed() - self._heard < _OLDEST_FACTS

    @property
    def is_lost(self) -> bool:
        """Whether nothing reaches the database at present."""
        return self._lost_since is not None

    def worked(self) -> None:
        """A loop did its work."""
        self._work_fails = False
        self._answered()

    def failed(self, error: BaseException) -> None:
        """A loop could not do its work."""
        self._work_fails = True
        if not isinstance(error, OperationFailure):  # else the database is there, and refuses
            self._lose()

    async def watch(self) -> None:
        """Notice when the database is gone and when it is back, until cancelled."""
        without_server = 0
        while True:
            await asyncio.sleep(_GLANCE)
            if not self._client.topology_description.has_writable_server():
                without_server += 1
                if without_server >= _GLANCES_WITHOUT_SERVER:
                    self._went_silent(self._last_error() or "no server takes writes")
                continue
            without_server = 0
            if self._no_answer or elapsed() - self._heard > _QUIET:
                await self._ask()

    async def _ask(self) -> None:
        try:
            with limited(_QUIET):
                await self._ping()
        except OperationFailure:
            self._answered()
        except PyMongoError as error:
            self._went_silent(error)
            await asyncio.sleep(_GLANCE)
        else:
            self._answered()

    def _answered(self) -> None:
        self._no_answer = False
        if self._lost_since is not None and not self._work_fails:
            logger.info("the database is back; it had not answered for %.1f s", elapsed() - self._lost_since)
            self._lost_since = None
        self._heard = elapsed()

    def _went_silent(self, reason: object) -> None:
        if not self._no_answer:
            told = explain(reason) if isinstance(reason, BaseException) else reason
            logger.warning("the database does not answer: %s", told)
        self._no_answer = True
        self._lose()

    def _lose(self) -> None:
        if self._lost_since is None:
            self._lost_since = self._heard

    def _last_error(self) -> Exception | None:
        servers = self._client.topology_description.server_descriptions().values()
        return next((server.error for server in servers if server.error is not None), None)
