"""Storing jobs: build the document, insert it, wake the runner, return the job."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from pymongo.asynchronous.client_session import AsyncClientSession

from monque._api.answers import Answers
from monque._api.enqueue_many import Chunk, Chunker, Loading
from monque._api.life import Opening, Processing
from monque._api.newjob import NewJob, build, build_schedule, decode
from monque._connect.sessions import Call, Session, here
from monque._observe.telemetry import Telemetry
from monque._store.deduplicate import Answered, insert_all_on_terms, insert_on_terms, plainly
from monque._store.document import Document
from monque._store.job import Read, remember_worker, to_job
from monque._store.schedules import insert_or_update_schedule
from monque._store.store import Store
from monque._time.clock import elapsed
from monque._values.errors import ConfigurationError, driver_errors
from monque._values.events import EventBus, JobDeduplicated
from monque._values.job import Job
from monque._values.rules import check_flag
from monque._values.schedule import Declared
from monque._values.status import Enqueued
from monque._values.unique import DuplicateJobError
from monque._workers.workers import Workers

OnProgress: TypeAlias = Callable[[int], object]
"""Called with how many jobs are stored so far; it may be async."""

# The job is not pending: there is nothing to claim.
_NOT_WAITING = (Enqueued.AGAIN, Enqueued.THROTTLED)


@dataclass(frozen=True, slots=True)
class Storing:
    """What `enqueue`, `enqueue_many` and `schedule` of one `Monque` store with."""

    opening: Opening
    workers: Workers
    telemetry: Telemetry
    processing: Processing
    bus: EventBus
    answers: Answers = field(default_factory=Answers)

    async def enqueue(self, new: NewJob[Any], session: Session | None) -> Job[Any]:
        """Store one job."""
        own = self.opening.here().store
        store, joined = (own, None) if session is None else own.join(session)
        document, _, terms = build(new, self.workers, own.options, now=own.clock.now())
        with driver_errors("store the job"), self.telemetry.storing([document]) as count:
            if needed := own.uses.needed_by([document]):
                await self._begin(own, needed, joined)
            if terms is None:
                stored, how = plainly(document, await store.inserter.insert(document, joined))
            else:
                stored, how = await insert_on_terms(store, document, terms, joined)
            if count is not None:
                count([stored])
        if how not in _NOT_WAITING:
            self.processing.wake([stored], joined, new=document["_id"] if how is Enqueued.NEW else None)
        job = self._job(new, stored, how, own.read)
        if how is not Enqueued.NEW:
            self._report([job], joined)
            if terms is not None and terms.on_conflict == "raise" and how is not Enqueued.AGAIN:
                raise DuplicateJobError(job)
        return job

    async def enqueue_many(
        self,
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
        own = self.opening.here().store
        store, joined = (own, None) if session is None else own.join(session)
        chunker = Chunker(self.workers, own.options, own.clock, return_jobs, call)

        async def write(chunk: Chunk) -> list[Job[Any]]:
            documents = chunk.documents
            with driver_errors("store the jobs"), self.telemetry.storing(documents) as count:
                if needed := own.uses.needed_by(documents):
                    await self._begin(own, needed, joined)
                answers = await _insert(store, chunk, joined) if chunk.has_keys else None
                if answers is None:
                    await store.inserter.insert_all(documents, joined)
                if count is not None:
                    count(documents if answers is None else [there for there, _ in answers])
            if answers is None:
                return self._all_new(chunk, own, joined)
            return self._answered(chunk, answers, own, joined)

        async def report(stored: int) -> None:
            if on_progress is not None and inspect.isawaitable(answer := await call(on_progress, stored)):
                await answer

        loading = Loading(write, report, in_session=joined is not None)
        await loading.load(chunker.chunks(jobs))
        return loading.jobs if return_jobs else loading.stored

    def _all_new(self, chunk: Chunk, store: Store, session: AsyncClientSession | None) -> list[Job[Any]]:
        """What becomes of a chunk without keys: every job of it is new."""
        self.processing.wake(chunk.documents, session)
        pairs = zip(chunk.news, chunk.documents, strict=False)  # no *news* if the jobs are not wanted
        return [to_job(document, store.read, data=new.data, enqueued=Enqueued.NEW) for new, document in pairs]

    def _answered(
        self, chunk: Chunk, answers: Sequence[Answered], store: Store, session: AsyncClientSession | None
    ) -> list[Job[Any]]:
        """What becomes of a chunk with keys: some jobs may have been there."""
        self.processing.wake([there for there, how in answers if how not in _NOT_WAITING], session)
        self._report([to_job(there, store.read, enqueued=how) for there, how in answers], session)
        pairs = zip(chunk.news, answers, strict=False)
        return [self._job(new, *answer, store.read) for new, answer in pairs]

    async def schedule(self, declared: Declared, new: NewJob[Any], session: Session | None) -> Job[Any]:
        """Store a recurring job, or bring the one that is there up to date."""
        own = self.opening.here().store
        store, joined = (own, None) if session is None else own.join(session)
        with driver_errors("store the schedule"):
            stored = None
            while stored is None:  # the schedule that is there changed while it was being brought up to date
                document = build_schedule(new, declared, self.workers, own.options, now=own.clock.now())
                with self.telemetry.storing([document]) as count:
                    if needed := own.uses.needed_by([document]):
                        await self._begin(own, needed, joined)
                    stored = await insert_or_update_schedule(store, document, joined)
                    if stored is not None and count is not None:
                        count([stored])
        self.processing.wake([stored], joined)
        return to_job(stored, own.read, data=new.data)

    async def _begin(self, store: Store, uses: set[str], session: AsyncClientSession | None) -> None:
        """Begin what new jobs need, outside of the caller's transaction."""
        in_transaction = session is not None and session.in_transaction
        for use in uses:
            sent = elapsed()
            if (settings := await store.uses.begin(use, in_transaction=in_transaction)) is not None:
                self.processing.learn(settings, sent)

    def _job(self, new: NewJob[Any], stored: Document, how: Enqueued, read: Read) -> Job[Any]:
        """Return the job with the data object as given, or the one that was there with its own data."""
        is_given = how in (Enqueued.NEW, Enqueued.REPLACED)
        data = new.data if is_given else decode(new, stored, self.workers)
        job = to_job(stored, read, data=data, enqueued=how)
        if type(new.job) is not str:
            remember_worker(job, new.job)
        return job

    def _report(self, jobs: Sequence[Job[Any]], session: AsyncClientSession | None) -> None:
        """Emit that the jobs were there; not in a transaction: nobody knows yet whether it commits."""
        for job in jobs:
            if job.enqueued not in (None, Enqueued.NEW):
                self.answers.remember(job.id, job.enqueued)
        if session is not None and session.in_transaction:
            return
        if self.bus.has_listeners(JobDeduplicated):
            for job in jobs:
                if job.enqueued not in (None, Enqueued.NEW):
                    self.bus.emit(JobDeduplicated(job=job, how=job.enqueued))


async def _insert(store: Store, chunk: Chunk, session: AsyncClientSession | None) -> Sequence[Answered]:
    if chunk.terms:
        return await insert_all_on_terms(store, chunk.documents, chunk.terms, session)
    stored = await store.inserter.insert_all(chunk.documents, session)
    return list(map(plainly, chunk.documents, stored))


def _check(return_jobs: object, on_progress: object) -> None:
    check_flag("return_jobs", return_jobs)
    if on_progress is not None and not callable(on_progress):
        raise ConfigurationError(
            f"on_progress must be a function that takes how many jobs are stored, got {on_progress!r}"
        )
