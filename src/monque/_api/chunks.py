"""Many new jobs as chunks of documents: checked, and so few that they fit into memory."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from monque._api.newjob import NewJob, build
from monque._connect.sessions import Call
from monque._errors import ConfigurationError
from monque._options import Options
from monque._store.document import Document, any_has_key
from monque._store.terms import Terms
from monque._time.clock import Clock
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
