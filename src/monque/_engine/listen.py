"""The change stream: kept open, turned into hints. And indexes that were dropped: created again."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from typing import Any

from pymongo.errors import PyMongoError

from monque._connect.contact import Contact
from monque._connect.deadlines import limited
from monque._engine.context import Context
from monque._store.hints import CancelHint, Hint, Watch, WatchUnavailableError
from monque._time.clock import Backoff, happens
from monque._values.errors import ConfigurationError
from monque._values.events import JobError, WatchClosed, WatchConnected, WatchFailed, WatchUnavailable
from monque._values.words import driver_reason

logger = logging.getLogger("monque")

# The server pays for each write that passes a change stream. After this long with always more work at hand,
# nobody needs hints: the stream is closed until the backlog is gone. A short burst must not close it.
_BACKLOG_SECONDS = 0.2

# At the start the stream is not opened before it is known whether there is a backlog, or for this long: long
# jobs may take all slots at once, and then no poll tells.
_DECISION_SECONDS = 1.0

# Between attempts to open a stream. Meanwhile hints are missing, and polling takes their place.
_FIRST_PAUSE = 0.1
_LONGEST_PAUSE = 5.0

ANYTHING = Hint(name=None, run_at=None)
"""The hint to poll for all names, and to look for requests to cancel: the stream may have missed some."""


class Listening:
    """Opens a change stream again and again, and says whether one is live.

    Nothing depends on it: a poll finds whatever it misses, and it asks for one each time the stream opens
    or ends.
    """

    def __init__(
        self,
        context: Context,
        on_hint: Callable[[Hint | CancelHint], None],
        contact: Contact,
        on_collection_gone: Callable[[], Awaitable[None]],
    ) -> None:
        self._context = context
        self._on_hint = on_hint
        self._contact = contact
        self._on_collection_gone = on_collection_gone
        self._stream_limit: asyncio.Timeout | None = None
        self._backlog_since: float | None = None
        self._caught_up = asyncio.Event()
        self._caught_up.set()
        self._decided = asyncio.Event()
        self.live = False

    @property
    def closed_for_backlog(self) -> bool:
        """Return whether there is so much to do that the stream is not needed."""
        return not self._caught_up.is_set()

    def note_backlog(self, backlog: bool) -> None:
        """Record whether a poll left due jobs behind."""
        now = time.perf_counter()
        if not backlog:
            self._backlog_since = None
            self._caught_up.set()
            self._decided.set()
        elif self._backlog_since is None:
            self._backlog_since = now
        elif now - self._backlog_since > _BACKLOG_SECONDS:
            self._caught_up.clear()
            self._decided.set()
            # An expired limit takes a while to end the stream, and polls continue meanwhile.
            if self._stream_limit is not None and not self._stream_limit.expired():
                self._stream_limit.reschedule(asyncio.get_running_loop().time())

    async def run(self) -> None:
        """Listen until cancelled, or until the server says that it has no change streams."""
        backoff = Backoff(first=_FIRST_PAUSE, longest=_LONGEST_PAUSE, jitter=0.5)
        await happens(self._decided, _DECISION_SECONDS)
        while True:
            await self._caught_up.wait()
            try:
                watch = await Watch.open(self._context.store)
            except WatchUnavailableError as error:
                logger.warning("no change streams on this server, polling instead: %s", error)
                self._context.bus.emit(WatchUnavailable(reason=str(error)))
                return
            except PyMongoError as error:
                self._failed(error)
            else:
                opened = time.perf_counter()
                # A stream that opens and breaks at once must not be opened in a busy loop.
                if await self._listen(watch) or time.perf_counter() - opened > _LONGEST_PAUSE:
                    backoff.reset()
            await asyncio.sleep(backoff.next())

    async def _listen(self, watch: Watch) -> bool:
        """Pass on hints until the stream ends; False if it broke."""
        broke = gone = False
        self.live = True
        self._contact.worked()
        self._context.bus.emit(WatchConnected())
        self._on_hint(ANYTHING)  # for whatever was stored before the stream was open
        try:
            async with asyncio.timeout(None) as self._stream_limit:
                async for hint in watch.hints():
                    self._on_hint(hint)
            gone = True
            self._context.bus.emit(WatchClosed())
        except (TimeoutError, asyncio.CancelledError) as ending:
            self._context.bus.emit(WatchClosed())
            if isinstance(ending, asyncio.CancelledError):
                raise
        except PyMongoError as error:
            broke = True
            self._failed(error)
        finally:
            self._stream_limit = None
            self.live = False
            # From now on the short poll interval counts, not the long one that the claim loop waits for.
            self._on_hint(ANYTHING)
            with suppress(PyMongoError):
                await watch.close()
        if gone:
            await self._on_collection_gone()
        return not broke

    def _failed(self, error: PyMongoError) -> None:
        self._contact.failed(error)
        logger.warning("the change stream broke, polling until it is back: %s", driver_reason(error))
        self._context.bus.emit(WatchFailed(error=error))


# How long to wait for missing indexes before work continues: to build them for millions of jobs takes
# minutes, and polling a large collection without an index is slow.
_PATIENCE = 20.0

# After this long the connection must have died. The server needs at most half an hour for a hundred million
# jobs.
_LIMIT = 3600.0

# More than one at a time, because the connection of one may be dead. The server builds each index once.
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
