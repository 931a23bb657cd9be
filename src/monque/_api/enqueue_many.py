"""Many new jobs: chunks of checked documents that fit into memory, written as they come."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import (
    AsyncGenerator,
    AsyncIterable,
    AsyncIterator,
    Awaitable,
    Callable,
    Coroutine,
    Iterable,
    Iterator,
)
from contextlib import aclosing
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, TypeAlias

from monque._api.newjob import NewJob, build
from monque._connect.sessions import Call
from monque._store.document import Document, any_has_key
from monque._store.unique import Terms
from monque._time.clock import Clock
from monque._values.errors import ConfigurationError, note_stored
from monque._values.job import Job
from monque._values.options import Options
from monque._workers.workers import Workers

# How many jobs a chunk has, which is what one command carries. With twice as many a command takes twice as
# long, and its documents wait as long in memory; with half as many there are twice as many round trips.
_MOST_JOBS = 1000

# How many bytes of payload a chunk has, however few jobs these are; the last payload may lead beyond it.
# Three chunks are in memory at a time, each as Python objects and as the bytes of a command. Twice as much
# would double that for large payloads and gain nothing: a write of this size takes ten times a round trip.
# With half as much, payloads of 4 KB would no longer fill a chunk.
_MOST_BYTES = 4 * 1024 * 1024


@dataclass(slots=True)
class Chunk:
    """Documents that are written together."""

    documents: list[Document] = field(default_factory=list)
    news: list[NewJob[Any]] = field(default_factory=list)
    """What they were made of, if the caller wants the jobs."""
    size: int = 0
    has_keys: bool = False
    terms: dict[int, Terms] = field(default_factory=dict)
    """What some of the calls want if a job with their key is there, by place."""

    @property
    def is_full(self) -> bool:
        """Whether it is time to write it."""
        return len(self.documents) >= _MOST_JOBS or self.size >= _MOST_BYTES

    def close(self) -> Chunk:
        """No more jobs come: see whether some of them have keys."""
        self.has_keys = any_has_key(self.documents)
        return self


@dataclass(frozen=True, slots=True)
class Chunker:
    """Makes chunks of what was handed to `enqueue_many`.

    *call* calls the functions that consume a plain iterable: here, or in the thread that the iterable belongs
    to.
    """

    workers: Workers
    options: Options
    clock: Clock
    returns_jobs: bool
    call: Call

    def chunks(self, jobs: object) -> AsyncGenerator[Chunk, None]:
        """Return all chunks, in order. A list or tuple is checked whole before the first chunk comes."""
        if isinstance(jobs, list | tuple):
            return self._of_checked(tuple(jobs))
        if isinstance(jobs, AsyncIterable):
            return self._of_async(jobs)
        if isinstance(jobs, Iterable):
            return self._of_iterable(jobs)
        raise ConfigurationError(
            f"enqueue_many takes an iterable or async iterable of NewJob(...) values, got {jobs!r}"
        )

    async def _of_checked(self, jobs: tuple[object, ...]) -> AsyncGenerator[Chunk, None]:
        """If the jobs are returned, their documents are kept anyway: they are made once.

        Else the documents of the check are dropped, and made a second time when they are written. That costs
        a few microseconds a job; holding all of them would cost a kilobyte each.
        """
        now, kept = self.clock.now(), list[Chunk]()
        rest = iter(jobs)
        while (chunk := await self.call(self._take, rest, now)).documents:
            if self.returns_jobs:
                kept.append(chunk)
            await asyncio.sleep(0)  # a million jobs take seconds to check: heartbeats must not wait for that
        for chunk in kept:
            yield chunk
        rest = iter(() if kept else jobs)
        while (chunk := await self.call(self._take, rest, now)).documents:
            yield chunk

    async def _of_iterable(self, jobs: Iterable[object]) -> AsyncGenerator[Chunk, None]:
        rest = await self.call(iter, jobs)
        while (chunk := await self.call(self._take, rest, self.clock.now())).documents:
            yield chunk

    def _take(self, rest: Iterator[object], now: datetime) -> Chunk:
        chunk = Chunk()
        for job in rest:
            self._add(job, chunk, now)
            if chunk.is_full:
                break
        return chunk.close()

    async def _of_async(self, jobs: AsyncIterable[object]) -> AsyncGenerator[Chunk, None]:
        rest = aiter(jobs)
        try:
            while (chunk := await self._take_async(rest)).documents:
                yield chunk
        finally:
            # A `with` block inside of it must end now, not when the garbage collector finds the generator.
            if isinstance(rest, AsyncGenerator):
                await rest.aclose()

    async def _take_async(self, rest: AsyncIterator[object]) -> Chunk:
        chunk, now = Chunk(), self.clock.now()
        async for job in rest:
            self._add(job, chunk, now)
            if chunk.is_full:
                break
        return chunk.close()

    def _add(self, job: object, chunk: Chunk, now: datetime) -> None:
        if not isinstance(job, NewJob):
            raise ConfigurationError(f"enqueue_many takes NewJob(...) values, got {job!r}")
        document, size, terms = build(job, self.workers, self.options, now=now)
        if terms is not None:
            chunk.terms[len(chunk.documents)] = _checked(terms)
        chunk.documents.append(document)
        chunk.size += size
        if self.returns_jobs:
            chunk.news.append(job)


def _checked(terms: Terms) -> Terms:
    if terms.on_conflict == "raise":
        raise ConfigurationError(
            'enqueue_many cannot be used with on_conflict="raise": some jobs would be stored, some not; '
            "keep what is there, and ask Job.enqueued of each job that is returned"
        )
    return terms


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
