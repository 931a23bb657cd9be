"""The change stream of a running instance: kept open, turned into wake-ups, closed while not needed."""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Protocol

from pymongo.errors import PyMongoError

from monque._contact import Contact
from monque._events import WatchClosed, WatchConnected, WatchFailed, WatchUnavailable
from monque._execute import Context
from monque._explain import explain
from monque._store.watch import Hint, Watch, WatchUnavailableError

logger = logging.getLogger("monque")

# The server pays for each write that passes a change stream. After this long with always more work
# at hand, nobody needs to be woken: the stream is closed until the backlog is gone.
_BACKLOG_SECONDS = 0.2

# At the start it is not opened before that is known, or so long: all slots may be taken by long jobs at once,
# and nobody looks any more.
_DECISION_SECONDS = 1.0

_LONGEST_PAUSE = 5.0


class Ears(Protocol):
    """Who listens."""

    def wake_for(self, hint: Hint) -> None:
        """Something may be worth a look."""


class Listening:
    """Opens a change stream again and again, and says whether one is live.

    Nothing depends on it: whatever it misses is found by looking, which it asks for each time the
    stream opens or ends.
    """

    def __init__(
        self,
        context: Context,
        ears: Ears,
        contact: Contact,
        on_collection_gone: Callable[[], Awaitable[None]],
    ) -> None:
        self._context = context
        self._ears = ears
        self._contact = contact
        self._on_collection_gone = on_collection_gone
        self._patience: asyncio.Timeout | None = None
        self._backlog_since: float | None = None
        self._caught_up = asyncio.Event()
        self._caught_up.set()
        self._decided = asyncio.Event()
        self.live = False

    @property
    def closed_for_backlog(self) -> bool:
        """Whether there is so much to do that the stream is not needed."""
        return not self._caught_up.is_set()

    def note_backlog(self, backlog: bool) -> None:
        """A look left due jobs behind, or did not."""
        now = time.monotonic()
        if not backlog:
            self._backlog_since = None
            self._caught_up.set()
            self._decided.set()
        elif self._backlog_since is None:
            self._backlog_since = now
        elif now - self._backlog_since > _BACKLOG_SECONDS:
            self._caught_up.clear()
            self._decided.set()
            # Once it has expired it takes a while to end, and looks go on meanwhile.
            if self._patience is not None and not self._patience.expired():
                self._patience.reschedule(asyncio.get_running_loop().time())

    async def run(self) -> None:
        """Listen until cancelled, or until the server says that it has no change streams."""
        pause = 0.1
        with suppress(TimeoutError):
            async with asyncio.timeout(_DECISION_SECONDS):
                await self._decided.wait()
        while True:
            await self._caught_up.wait()
            try:
                watch = await Watch.open(self._context.store)
            except WatchUnavailableError as error:
                logger.warning("no change streams on this server, polling instead: %s", error)
                self._context.bus.tell(WatchUnavailable(reason=str(error)))
                return
            except PyMongoError as error:
                self._failed(error)
            else:
                opened = time.monotonic()
                # One that opens and breaks at once must not be opened in a busy loop.
                if await self._listen(watch) or time.monotonic() - opened > _LONGEST_PAUSE:
                    pause = 0.1
            await asyncio.sleep(pause * random.uniform(0.5, 1.0))  # noqa: S311 - spreads instances
            pause = min(pause * 2, _LONGEST_PAUSE)

    async def _listen(self, watch: Watch) -> bool:
        """Ring for what the stream tells, until it ends; False if it broke."""
        broke = gone = False
        self.live = True
        self._contact.worked()
        self._context.bus.tell(WatchConnected())
        self._ears.wake_for(ANYTHING)  # whatever was stored before the stream was open
        try:
            async with asyncio.timeout(None) as self._patience:
                async for hint in watch.hints():
                    self._ears.wake_for(hint)
            gone = True
            self._context.bus.tell(WatchClosed())
        except (TimeoutError, asyncio.CancelledError) as ending:
            self._context.bus.tell(WatchClosed())
            if isinstance(ending, asyncio.CancelledError):
                raise
        except PyMongoError as error:
            broke = True
            self._failed(error)
        finally:
            self._patience = None
            self.live = False
            # From now on the short interval counts, not the long one being waited for.
            self._ears.wake_for(ANYTHING)
            with suppress(PyMongoError):
                await watch.close()
        if gone:
            await self._on_collection_gone()
        return not broke

    def _failed(self, error: PyMongoError) -> None:
        self._contact.failed(error)
        logger.warning("the change stream broke, polling until it is back: %s", explain(error))
        self._context.bus.tell(WatchFailed(error=error))


ANYTHING = Hint(name=None, run_at=None)
