"""Opening and closing: the connection of a `Monque`, and the event loop that it belongs to."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from monque._birth import refuse_while_importing
from monque._connect.connector import Connection, Connector
from monque._engine.context import Context
from monque._errors import ConfigurationError, NotOpenError
from monque._store.store import Store
from monque._workers.home import Bond

_OTHER_LOOP = (
    "this Monque was opened in another event loop and works only there; open one in each loop, send the "
    "call to its loop with asyncio.run_coroutine_threadsafe, or use a SyncMonque from threads"
)


@dataclass(frozen=True, slots=True)
class Opened:
    """What exists between `open()` and `close()`."""

    connection: Connection
    context: Context
    store: Store
    loop: asyncio.AbstractEventLoop


class Opening:
    """The connection of one `Monque`. It belongs to the event loop in which it was opened."""

    def __init__(self, connector: Connector, bond: Bond) -> None:
        self.connector = connector
        self._bond = bond
        self._opened: Opened | None = None
        self._lock: tuple[asyncio.AbstractEventLoop, asyncio.Lock] | None = None

    @property
    def is_open(self) -> bool:
        """Whether it is open, in a loop that has not ended."""
        return self.loop is not None

    @property
    def loop(self) -> asyncio.AbstractEventLoop | None:
        """The event loop in which it is open, if it is."""
        opened = self._opened
        return None if opened is None or opened.loop.is_closed() else opened.loop

    def anywhere(self) -> Opened:
        """Return what is open, for a call that may come from any thread."""
        if self._opened is None:
            raise NotOpenError(
                "this Monque is not open; use `async with monque:` or `await monque.open()` first"
            )
        return self._opened

    def here(self) -> Opened:
        """Return what is open, for a call that works in the running event loop."""
        opened = self._opened or self.anywhere()
        if running_loop() is not opened.loop:
            raise ConfigurationError(_OTHER_LOOP)
        return opened

    def left_behind(self) -> Opened | None:
        """Return what was opened in a loop that has ended since, and refuse a call from a second loop."""
        loop, opened = running_loop(), self._opened
        if opened is None or opened.loop is loop:
            return None
        if not opened.loop.is_closed():
            raise ConfigurationError(_OTHER_LOOP)
        return opened

    def forget(self) -> Opened | None:
        """Return what is open, and be as new: nothing of a loop that will never run again can be awaited."""
        opened, self._opened, self._lock = self._opened, None, None
        return opened

    async def open(self, prepare: Callable[[Connection], Awaitable[Context]]) -> None:
        """Connect and prepare, unless it is open."""
        refuse_while_importing()
        loop = running_loop()
        async with self._one_at_a_time():
            if self._opened is None:
                connection = await self.connector.connect()
                try:
                    context = await prepare(connection)
                except BaseException:
                    await connection.close()
                    raise
                self._opened = Opened(connection, context, context.store, loop)
                self._bond.is_closed = False

    async def close(self) -> None:
        """Disconnect, if it is open."""
        async with self._one_at_a_time():
            opened, self._opened = self._opened, None
            self._bond.is_closed = True
            if opened is not None:
                opened.context.waits.close()
                await opened.connection.close()

    def _one_at_a_time(self) -> asyncio.Lock:
        """Return the lock of opening and closing, which belongs to the running loop."""
        loop = asyncio.get_running_loop()
        if self._lock is None or self._lock[0] is not loop:
            self._lock = (loop, asyncio.Lock())
        return self._lock[1]


def running_loop() -> asyncio.AbstractEventLoop:
    """Return the running event loop, or say what a program without one can do."""
    try:
        return asyncio.get_running_loop()
    except RuntimeError as error:
        raise ConfigurationError(
            "Monque needs asyncio, and no asyncio event loop runs here; start the program with "
            "asyncio.run(...), choose the asyncio backend in AnyIO (trio does not work), or use a SyncMonque"
        ) from error
