"""Many new jobs: chunks of checked documents that fit into memory, written as they come."""

from __future__ import annotations

import asyncio
import inspect
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
    Sequence,
)
from contextlib import aclosing
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, TypeAlias

from pymongo.asynchronous.client_session import AsyncClientSession

from monque._api.enqueue import NOT_WAITING, NewJob, Storing, build
from monque._connect.sessions import Call, Session, here
from monque._store.children import MOST_CHILDREN
from monque._store.document import Document, any_has_key
from monque._store.job import to_job
from monque._store.lines import is_lined_up
from monque._store.store import Store
from monque._store.transitions.calls import Terms
from monque._store.unique import Answered, plainly
from monque._time.clock import Clock
from monque._values.errors import ConfigurationError, driver_errors, note_stored
from monque._values.job import Job
from monque._values.options import Options
from monque._values.rules import check_flag
from monque._values.status import Enqueued
from monque._workers.workers import Workers

# How many jobs a chunk has, which is what one command carries: round trips do not count any more, and no
# command takes long.
_MOST_JOBS = 1000

# How many bytes of payload a chunk has, however few jobs these are; the last payload may lead beyond it.
# Three chunks are in memory at a time, each as Python objects and as the bytes of a command. A write of this
# size takes ten times a round trip.
_MOST_BYTES = 4 * 1024 * 1024


OnProgress: TypeAlias = Callable[[int], object]
"""Called with how many jobs are stored so far; it may be async."""


async def enqueue_many(
    storing: Storing,
    jobs: object,
    session: Session | None,
    *,
    return_jobs: bool,
    on_progress: OnProgress | None,
    call: Call = here,
) -> list[Job[Any]] | int:
    """Store many jobs, in chunks; return them, or how many they are.

    *call* calls what is the user's: a plain iterable and *on_progress*.
    """
    _check(return_jobs, on_progress)
    own = storing.opening.here().store
    store, joined = (own, None) if session is None else own.join(session)
    chunker = Chunker(storing.workers, own.options, own.clock, return_jobs, call)

    async def write(chunk: Chunk) -> list[Job[Any]]:
        documents = chunk.documents
        with driver_errors("store the jobs"), storing.telemetry.storing(documents) as count:
            if needed := own.uses.needed_by(documents):
                await storing.begin(own, needed, joined)
            if chunk.waiting:
                await storing.expect_batches(own, store, chunk.waiting, joined)
            lines = await storing.line_up(own, documents, joined) if chunk.has_lines else ()
            answers = await _insert(store, chunk, joined) if chunk.has_keys else None
            if answers is None:
                await store.inserter.insert_all(documents, joined)
            if count is not None:
                count(documents if answers is None else [there for there, _ in answers])
            if chunk.waiting:
                labels = {document["afterBatch"] for document, _ in chunk.waiting}
                await storing.look_at_batches(own, labels, joined)
        if lines:
            await storing.hand_over(own, lines)
        if answers is None:
            return _all_new(storing, chunk, own, joined)
        return _answered(storing, chunk, answers, own, joined)

    async def report(stored: int) -> None:
        if on_progress is not None and inspect.isawaitable(answer := await call(on_progress, stored)):
            await answer

    writer = ChunkWriter(write, report, in_session=joined is not None)
    await writer.load(chunker.chunks(jobs))
    return writer.jobs if return_jobs else writer.stored


def _all_new(
    storing: Storing, chunk: Chunk, store: Store, session: AsyncClientSession | None
) -> list[Job[Any]]:
    """Return the jobs of a chunk without keys: every job of it is new."""
    storing.processing.wake(chunk.documents, session)
    pairs = zip(chunk.news, chunk.documents, strict=False)  # no *news* if the jobs are not wanted
    return [to_job(document, store.read, data=new.data, enqueued=Enqueued.NEW) for new, document in pairs]


def _answered(
    storing: Storing,
    chunk: Chunk,
    answers: Sequence[Answered],
    store: Store,
    session: AsyncClientSession | None,
) -> list[Job[Any]]:
    """Return the jobs of a chunk with keys: some jobs may have been there."""
    storing.processing.wake([there for there, how in answers if how not in NOT_WAITING], session)
    storing.report([to_job(there, store.read, enqueued=how) for there, how in answers], session)
    pairs = zip(chunk.news, answers, strict=False)
    return [storing.job(new, *answer, store.read) for new, answer in pairs]


async def _insert(store: Store, chunk: Chunk, session: AsyncClientSession | None) -> Sequence[Answered]:
    if chunk.terms:
        return await store.inserter.insert_all_on_terms(chunk.documents, chunk.terms, session)
    stored = await store.inserter.insert_all(chunk.documents, session)
    return list(map(plainly, chunk.documents, stored))


def _check(return_jobs: object, on_progress: object) -> None:
    check_flag("return_jobs", return_jobs)
    if on_progress is not None and not callable(on_progress):
        raise ConfigurationError(
            f"on_progress must be a function that takes how many jobs are stored, got {on_progress!r}"
        )


@dataclass(slots=True)
class Chunk:
    """Documents that are written together."""

    documents: list[Document] = field(default_factory=list)
    news: list[NewJob[Any]] = field(default_factory=list)
    """The calls that they were made of, if the caller wants the jobs."""
    size: int = 0
    has_keys: bool = False
    has_lines: bool = False
    """Some of the jobs have a limit by key."""
    terms: dict[int, Terms] = field(default_factory=dict)
    """The terms of some of the calls, by place."""
    batches: set[str] = field(default_factory=set)
    """The batches that jobs of the chunk belong to."""
    waiting: list[tuple[Document, bool]] = field(default_factory=list)
    """The jobs of the chunk that wait for a batch, and whether that may be empty."""
    is_ended: bool = False
    """The next job waits for a batch of this chunk: it must be stored afterwards."""

    @property
    def is_full(self) -> bool:
        """True if it is time to write it."""
        return len(self.documents) >= _MOST_JOBS or self.size >= _MOST_BYTES or self.is_ended

    @property
    def waits(self) -> bool:
        """True if all chunks before it are to be stored first."""
        return self.has_keys or self.has_lines or bool(self.waiting)

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
    begun: list[Chunk] = field(default_factory=list)
    """The next chunk, if its first job has ended the one before."""
    keyless: bool = False
    """The jobs have no keys, whatever their workers say."""

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
        chunk = self._begin()
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
        chunk, now = self._begin(), self.clock.now()
        async for job in rest:
            self._add(job, chunk, now)
            if chunk.is_full:
                break
        return chunk.close()

    def _add(self, job: object, chunk: Chunk, now: datetime) -> None:
        if not isinstance(job, NewJob):
            raise ConfigurationError(f"enqueue_many takes NewJob(...) values, got {job!r}")
        document, size, terms = build(job, self.workers, self.options, now=now, keyless=self.keyless)
        if job.batch is not None or job.after_batch is not None:
            chunk = self._in_order(job, document, chunk)
        if terms is not None:
            chunk.terms[len(chunk.documents)] = _checked(terms)
        chunk.has_lines |= is_lined_up(document)
        chunk.documents.append(document)
        chunk.size += size
        if self.returns_jobs:
            chunk.news.append(job)

    def _begin(self) -> Chunk:
        return self.begun.pop() if self.begun else Chunk()

    def _in_order(self, job: NewJob[Any], document: Document, chunk: Chunk) -> Chunk:
        """Return the chunk for a job of a batch, or for one that waits: behind the jobs that it waits for."""
        if job.after_batch in chunk.batches:
            chunk.is_ended = True
            chunk = Chunk()
            self.begun.append(chunk)
        if job.after_batch is not None:
            chunk.waiting.append((document, bool(job.allow_empty)))
        if job.batch is not None:
            chunk.batches.add(job.batch)
        return chunk


def _checked(terms: Terms) -> Terms:
    if terms.on_conflict == "raise":
        raise ConfigurationError(
            'enqueue_many cannot be used with on_conflict="raise": some jobs would be stored, some not; '
            "keep what is there, and ask Job.enqueued of each job that is returned"
        )
    return terms


# A parent waits for every job that it runs, so no key may let one of them be another job, or none.
_NOT_FOR_CHILDREN = ("unique_key", "unique", "debounce", "batch", "after_batch", "if_failed", "allow_empty")


async def child_documents(
    workers: Workers, store: Store, on_stored: Callable[[list[Document]], None], jobs: object
) -> AsyncGenerator[list[Document], None]:
    """The documents of the jobs of `Job.run_jobs`, in chunks; all of them are checked before the first.

    Whoever asks for the next chunk has stored the one before.
    """
    chunker = Chunker(workers, store.options, store.clock, returns_jobs=False, call=here, keyless=True)
    async with aclosing(chunker.chunks(check_children(jobs))) as chunks:
        async for chunk in chunks:
            yield chunk.documents
            on_stored(chunk.documents)


def check_children(jobs: object) -> tuple[NewJob[Any], ...]:
    """The jobs of `Job.run_jobs`, if they are no others and not too many."""
    if isinstance(jobs, str) or not isinstance(jobs, Sequence) or len(jobs) > MOST_CHILDREN:
        many = f"{len(jobs):,} jobs" if isinstance(jobs, list | tuple) else repr(jobs)[:80]
        raise ConfigurationError(f"run_jobs takes a list of at most {MOST_CHILDREN:,} jobs, got {many}")
    for place, job in enumerate(jobs):
        if not isinstance(job, NewJob):
            raise ConfigurationError(f"run_jobs takes NewJob(...) values, got {job!r}")
        for setting in _NOT_FOR_CHILDREN:
            if getattr(job, setting, None) is not None:
                raise ConfigurationError(f"{setting} does not apply to a job of run_jobs (see job {place})")
    return tuple(jobs)


# How many writes are in progress at a time. A second one keeps the server busy while the answer of the first
# is on its way; a third one was no faster, and is one more chunk in memory.
_AT_ONCE = 2

Write: TypeAlias = Callable[[Chunk], Coroutine[Any, Any, list[Job[Any]]]]


@dataclass(eq=False, slots=True)
class ChunkWriter:
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
        So does one with a job that waits for a batch, or with lines, whose first jobs get the first turns.
        In a session it is waited for: the iterable may use the same session, and a session does one thing at
        a time.
        """
        await self._wait_for_writes(besides=0 if chunk.waits else _AT_ONCE - 1)
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
