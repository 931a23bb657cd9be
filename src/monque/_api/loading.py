"""One call of `enqueue_many`: it writes chunks as they come, and counts what is stored."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from monque._api.chunks import Chunk
from monque._errors import note_stored
from monque._job import Job

# How many writes are in progress at a time. A second one keeps the server busy while the answer of the first
# is on its way; a third one was no faster, and is one more chunk in memory.
_AT_ONCE = 2

Write: TypeAlias = Callable[[Chunk], Coroutine[Any, Any, list[Job[Any]]]]


@dataclass(eq=False, slots=True)
class Loading:
    """Writes chunks, with *write*, which returns the jobs of a chunk if they are wanted.

    Invariant: `stored` counts jobs from the first one on. A chunk that was written counts only after all
    chunks before it, so whoever goes on after an error knows where.
    """

    write: Write
    on_stored: Callable[[int], Awaitable[None]]
    in_session: bool
    stored: int = 0
    jobs: list[Job[Any]] = field(default_factory=list)
    _writes: deque[tuple[int, asyncio.Task[list[Job[Any]]]]] = field(default_factory=deque)

    async def load(self, chunks: AsyncGenerator[Chunk, None]) -> None:
        """Write all chunks; an error says how many jobs are stored."""
        try:
            async with aclosing(chunks), aclosing(self._unless_failed(chunks)) as given:
                async for chunk in given:
                    await self._write_beside(chunk)
            await self._wait_for_writes()
        except BaseException as error:
            await self._end_writes(cancel=not isinstance(error, Exception))
            note_stored(error, self.stored)
            raise

    async def _unless_failed(self, chunks: AsyncGenerator[Chunk, None]) -> AsyncGenerator[Chunk, None]:
        """Pass the chunks on. If making one fails, wait for the writes in progress before raising that.

        They store jobs that were given earlier: these count, and an error of theirs comes first.
        """
        try:
            async for chunk in chunks:
                yield chunk
        except Exception:
            await self._wait_for_writes()
            raise

    async def _write_beside(self, chunk: Chunk) -> None:
        """Begin to write a chunk while the one before may still be written.

        With unique keys it waits for all chunks before: of two jobs with the same key, the first is stored.
        In a session it is waited for: the iterable may use the same session, and a session does one thing at
        a time.
        """
        await self._wait_for_writes(besides=0 if chunk.has_keys else _AT_ONCE - 1)
        write = asyncio.create_task(self.write(chunk), name="monque-write")
        self._writes.append((len(chunk.documents), write))
        if self.in_session:
            await self._wait_for_writes()
        else:
            await asyncio.sleep(0)  # send it before the next chunk is made

    async def _wait_for_writes(self, *, besides: int = 0) -> None:
        """Wait, in order, until only so many writes are in progress."""
        while len(self._writes) > besides:
            _, write = self._writes[0]
            await asyncio.wait([write])  # if we are cancelled meanwhile, `_end_writes` cancels the write
            self._count_first()
            await self.on_stored(self.stored)

    def _count_first(self) -> None:
        """Count the first chunk that is written; if that failed, raise its error and leave it where it is."""
        count, write = self._writes[0]
        self.jobs += write.result()
        self.stored += count
        self._writes.popleft()

    async def _end_writes(self, *, cancel: bool) -> None:
        """Leave no write in progress, and count what was written without a gap."""
        for _, write in self._writes:
            if cancel:
                write.cancel()
        await asyncio.gather(*(write for _, write in self._writes), return_exceptions=True)
        while self._writes and _has_succeeded(self._writes[0][1]):
            self._count_first()


def _has_succeeded(write: asyncio.Task[Any]) -> bool:
    return not write.cancelled() and write.exception() is None
