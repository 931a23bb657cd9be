"""A pair of sockets between a worker process and its supervisor.

The worker says in lines how it is. When the other end is closed, the supervisor is gone, however it
ended, and the worker stops too.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress

LOADED, READY, WAITING = "loaded", "ready", "waiting"

BROKEN = "broken"
"""Its code cannot be loaded, which it tells itself."""

LOOK = "look"
"""From the supervisor: another process has died, and its jobs may be taken."""

ENDS_WITHIN = "ends within"
"""Followed by the seconds in which the worker ends once it is told to."""

_TICK = 0.1

# How often a worker says how it is if nothing changed, and how long its word counts. A worker whose event
# loop is blocked says nothing, so its last word must not count for ever.
_REPEAT = 1.0
WORD_LASTS = 5.0


class Link:
    """The worker's end."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @classmethod
    @asynccontextmanager
    async def attached(cls, descriptor: int) -> AsyncIterator[Link]:
        """Use the socket that the supervisor handed down."""
        reader, writer = await asyncio.open_connection(sock=socket.socket(fileno=descriptor))
        try:
            yield cls(reader, writer)
        finally:
            writer.close()

    def say(self, word: str) -> None:
        """Tell the supervisor."""
        if not self._writer.is_closing():
            self._writer.write(f"{word}\n".encode())

    @asynccontextmanager
    async def kept(
        self, is_ready: Callable[[], bool], on_look: Callable[[], object], on_end: Callable[[], object]
    ) -> AsyncIterator[None]:
        """While this lasts, tell how ready this process is, and hear of the end of others.

        It calls *on_look* if another process has died, and *on_end* if the supervisor is gone.
        """
        listening = asyncio.create_task(self._listen(on_look, on_end))
        tasks = [asyncio.create_task(self._tell(is_ready)), listening]
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _tell(self, is_ready: Callable[[], bool]) -> None:
        loop = asyncio.get_running_loop()
        said, said_at = None, 0.0
        while True:
            word = READY if is_ready() else WAITING
            if word != said or loop.time() - said_at >= _REPEAT:
                self.say(word)
                said, said_at = word, loop.time()
            await asyncio.sleep(_TICK)

    async def _listen(self, on_look: Callable[[], object], on_end: Callable[[], object]) -> None:
        with suppress(OSError):
            async for line in self._reader:
                if line.decode().strip() == LOOK:
                    on_look()
        on_end()
