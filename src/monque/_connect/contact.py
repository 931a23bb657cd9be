"""The contact with the database: good, or lost.

Two sources cost nothing: whether the loops' own commands succeed, and the driver's monitors, which notice at
once that a connection is refused or reset. Neither notices in time that a server hangs with its connections
open, so an instance without an answer for a while sends one small command.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Awaitable, Callable
from typing import Any

from pymongo import AsyncMongoClient
from pymongo.errors import OperationFailure, PyMongoError

from monque._connect.deadlines import limited
from monque._time.clock import elapsed
from monque._values.words import driver_reason

logger = logging.getLogger("monque")

# How often to check, without a command, whether the driver knows a writable server. Two checks in a row must
# fail, because the driver forgets the server for a moment after any network error.
_CHECK_INTERVAL = 0.5
_FAILED_CHECKS = 2

# After this many seconds without an answer the server is asked, and has as long to answer. So a hanging
# server is noticed after at most twice as long, as `is_healthy` promises.
_QUIET = 5.0

# After this many seconds without an answer or a failure nothing is known, because the event loop was blocked
# or the machine was suspended. It is longer than a slow answer to the question above takes.
_OLDEST_FACTS = 15.0


class Contact:
    """The contact of one instance with the database; all of its loops report to it."""

    def __init__(
        self, client: AsyncMongoClient[Any], ping: Callable[[], Awaitable[object]], *, gap: float
    ) -> None:
        self._client = client
        self._ping = ping
        self._gap = gap
        self.gap_ended = -math.inf
        """The time (`elapsed`) of the first answer after *gap* seconds without one."""
        self._heard = elapsed()
        self._work_fails = False
        self._no_answer = False
        self._lost_since: float | None = None

    @property
    def is_good(self) -> bool:
        """Return whether commands succeed and the database answered a moment ago; any thread may ask."""
        return not self._work_fails and not self._no_answer and elapsed() - self._heard < _OLDEST_FACTS

    @property
    def is_lost(self) -> bool:
        """Return whether nothing reaches the database at present."""
        return self._lost_since is not None

    def worked(self) -> None:
        """Record that a loop did its work."""
        self._work_fails = False
        self._answered()

    def doubt(self) -> None:
        """Take what was said of others' silence for a gap of ours: something could not be written."""
        self.gap_ended = elapsed()

    def failed(self, error: BaseException) -> None:
        """Record that a loop could not do its work."""
        self._work_fails = True
        if not isinstance(error, OperationFailure):  # else the database is there, and refuses
            self._lose()

    async def watch(self) -> None:
        """Notice when the database is gone and when it is back, until cancelled."""
        without_server = 0
        while True:
            await asyncio.sleep(_CHECK_INTERVAL)
            if not self._client.topology_description.has_writable_server():
                without_server += 1
                if without_server >= _FAILED_CHECKS:
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
            await asyncio.sleep(_CHECK_INTERVAL)
        else:
            self._answered()

    def _answered(self) -> None:
        self._no_answer = False
        if self._lost_since is not None and not self._work_fails:
            logger.info("the database is back; it had not answered for %.1f s", elapsed() - self._lost_since)
            self._lost_since = None
        now = elapsed()
        if now - self._heard > self._gap:
            self.gap_ended = now
        self._heard = now

    def _went_silent(self, reason: object) -> None:
        if not self._no_answer:
            shown = driver_reason(reason) if isinstance(reason, BaseException) else reason
            logger.warning("the database does not answer: %s", shown)
        self._no_answer = True
        self._lose()

    def _lose(self) -> None:
        if self._lost_since is None:
            self._lost_since = self._heard

    def _last_error(self) -> Exception | None:
        servers = self._client.topology_description.server_descriptions().values()
        return next((server.error for server in servers if server.error is not None), None)
