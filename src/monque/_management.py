"""The operator's side of `Monque`: look at jobs and act on them, one and many."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, TypeVar

from bson import ObjectId
from pymongo.asynchronous.client_session import AsyncClientSession
from pymongo.errors import DuplicateKeyError

from monque._clock import Clock
from monque._diagnosis import Diagnosis
from monque._errors import ConfigurationError, JobNotFoundError, JobStateError, driver_errors
from monque._events import (
    EventBus,
    JobCancelled,
    JobDeleted,
    JobRetried,
    JobsCancelled,
    JobsDeleted,
    JobsRetried,
)
from monque._execute import Context
from monque._job import Job, JobStatus, StatusName, check_time, ids_meant
from monque._options import Options
from monque._store import facts, operations, reads, transitions
from monque._store.document import Document, name_of, status_of, to_job
from monque._store.reads import Listing, Position
from monque._views import (
    BulkResult,
    Direction,
    JobFilter,
    JobPage,
    QueueStats,
    QueueView,
    Sort,
    WorkerView,
    check_choice,
    check_filter,
    check_range,
    check_spread,
)
from monque._workers import Workers

R = TypeVar("R")

# How often a retried job may find its unique key taken, and its holder gone a moment later.
_TRIES = 20


class Management:
    """Methods to inspect jobs and to act on them; `Monque` has them all."""

    _options: Options
    _bus: EventBus
    _workers: Workers
    _active: Counter[str]

    def _context(self) -> Context:
        """What is open, for use in the running event loop."""
        raise NotImplementedError

    def _clock(self) -> Clock:
        """The server's clock, which may be read in any thread."""
        raise NotImplementedError

    def _wake(self, documents: Sequence[Document], session: AsyncClientSession | None = None) -> None:
        raise NotImplementedError

    def server_time(self) -> datetime:
        """The time of the database server, by which everything here goes; it costs no round trip."""
        return self._clock().now()

    async def get_job(self, id: ObjectId | str) -> Job[Any] | None:  # noqa: A002 - part of the public API
        """The job with this id (an `ObjectId` or 24 hex characters), or None.

        A document that others wrote may have any `_id`: give the one that `Job.id` shows.
        """
        context = self._context()

        async def get(job_id: Any) -> Job[Any]:
            return to_job({**await _found(context, job_id), "_id": job_id})

        with driver_errors("read the job"), suppress(JobNotFoundError):
            return await _of_job(id, get)
        return None

    async def get_jobs(
        self,
        *,
        name: str | None = None,
        status: JobStatus | StatusName | Iterable[JobStatus | StatusName] | None = None,
        limit: int = 100,
        skip: int = 0,
    ) -> list[Job[Any]]:
        """Jobs by name and status, the earliest `next_run_at` first. For many, use `iter_jobs`."""
        context = self._context()
        check_range("limit", limit, 1, 100_000)
        check_range("skip", skip, 0, 2**31 - 1)
        query = reads.matching(JobFilter(name=name, status=status))
        with driver_errors("read the jobs"):
            found = await operations.read_earliest(context.store.collection, query, skip=skip, limit=limit)
        return [to_job(document) for document in found]

    async def list_jobs(
        self,
        filter: JobFilter = JobFilter(),  # noqa: A002 - part of the public API
        *,
        cursor: str | None = None,
        limit: int = 50,
        direction: Direction = "forward",
        sort: Sort = "id",
        descending: bool = False,
    ) -> JobPage:
        """One page of jobs, stable while others are stored, deleted and change state.

        Args:
            filter: Which jobs.
            cursor: Where to go on, from an earlier page of the same filter and sort. Backward
                without one starts at the end.
            limit: How many jobs a page has, 1 to 1000.
            direction: Which way to read; a page itself is always in the order of the sort.
            sort: id, created_at, updated_at or next_run_at.
            descending: Turn the sort around.

        Raises:
            InvalidCursorError: The cursor comes from another sort or filter, or was changed.

        Examples:
            >>> page = await monque.list_jobs(JobFilter(status="failed"), sort="updated_at")
            >>> more = await monque.list_jobs(
            ...     JobFilter(status="failed"), sort="updated_at", cursor=page.cursor
            ... )
        """
        context = self._context()
        check_range("limit", limit, 1, 1000)
        listing = _listing(filter, sort, descending, direction)
        start = None if cursor is None else listing.read_cursor(cursor)
        with driver_errors("list the jobs"):
            return await _page(context, listing, start, direction, limit)

    async def iter_jobs(
        self,
        filter: JobFilter = JobFilter(),  # noqa: A002 - part of the public API
        *,
        cursor: str | None = None,
        limit: int = 200,
        direction: Direction = "forward",
        sort: Sort = "id",
        descending: bool = False,
    ) -> AsyncIterator[Job[Any]]:
        """All jobs, page by page (*limit* jobs each); backward, from the last to the first.

        Examples:
            >>> async for job in monque.iter_jobs(JobFilter(name="send-email")):
            ...     print(job.id, job.status)
        """
        while True:
            page = await self.list_jobs(
                filter, cursor=cursor, limit=limit, direction=direction, sort=sort, descending=descending
            )
            for job in page.jobs if direction == "forward" else reversed(page.jobs):
                yield job
            cursor = page.cursor
            if cursor is None:
                return

    async def count_jobs(self, filter: JobFilter = JobFilter()) -> int:  # noqa: A002 - part of the public API
        """How many jobs match."""
        context, query = self._context(), reads.matching(check_filter(filter))
        with driver_errors("count the jobs"):
            return await context.store.collection.count_documents(query)

    async def diagnose(self) -> Diagnosis:
        """What an operator should know of the server and of the jobs that wait. Changes nothing.

        Raises:
            AggregationTimeoutError: Looking at the waiting jobs took longer than 30 seconds.
        """
        context = self._context()
        with driver_errors("examine the database"):
            return await facts.examine(context.store, self._options)

    async def queue_stats(self, *, name: str | None = None) -> QueueStats:
        """How many jobs are in each state, of one name or of all.

        Raises:
            AggregationTimeoutError: It took longer than 30 seconds.
        """
        context = self._context()
        JobFilter(name=name)  # refuses what cannot be a name
        with driver_errors("read the statistics"):
            groups = await operations.aggregate(context.store.collection, reads.statistics(name))
        return reads.stats_from(groups)

    async def queue_views(self) -> list[QueueView]:
        """What there is of each job name: statistics and the local worker; sorted by name.

        Raises:
            AggregationTimeoutError: It took longer than 30 seconds.
        """
        context = self._context()
        with driver_errors("read the statistics"):
            groups = await operations.aggregate(context.store.collection, reads.statistics(by_name=True))
        stored: dict[str, list[Document]] = {worker.name: [] for worker in self._workers}
        for group in groups:
            stored.setdefault(name_of(group["_id"].get("name")), []).append(group)
        return [self._view(name, stored[name]) for name in sorted(stored)]

    def _view(self, name: str, groups: list[Document]) -> QueueView:
        worker = self._workers.get(name)
        local = None
        if worker is not None:
            local = WorkerView(
                concurrency=worker.concurrency or self._options.worker_concurrency,
                active_count=self._active[name],
            )
        return QueueView(
            name=name,
            stats=reads.stats_from(groups),
            has_persisted_jobs=bool(groups),
            has_registered_worker=worker is not None,
            worker=local,
        )

    async def cancel_job(self, id: ObjectId | str) -> Job[Any]:  # noqa: A002 - part of the public API
        """Keep a pending job from running. Cancelling a cancelled job returns it, without an event.

        Raises:
            JobNotFoundError: There is no such job.
            JobStateError: It is processing, completed or failed.
        """
        context = self._context()

        async def cancel(job_id: Any) -> Job[Any]:
            while (after := await context.store.change(job_id, transitions.cancel())) is None:
                before = await _found(context, job_id)
                if status_of(before) is JobStatus.CANCELLED:
                    return to_job(before)
                _check_state(before, "cancel", JobStatus.PENDING)
            job = to_job(after)
            self._bus.tell(JobCancelled(job=job))
            return job

        with driver_errors("cancel the job"):
            return await _of_job(id, cancel)

    async def retry_job(self, id: ObjectId | str) -> Job[Any]:  # noqa: A002 - part of the public API
        """Put a failed or cancelled job back, due now, with all its retries before it.

        Raises:
            JobNotFoundError: There is no such job.
            JobStateError: It is pending, processing or completed, or its unique key is taken.
        """
        context = self._context()

        async def retry(job_id: Any) -> Job[Any]:
            after, refusals = None, 0
            while after is None:
                before = await _found(context, job_id)
                _check_state(before, "retry", JobStatus.CANCELLED, JobStatus.FAILED)
                outcome = await operations.retry_one(context.store.collection, job_id, before["status"])
                if isinstance(outcome, DuplicateKeyError):
                    refusals += 1
                    await _refuse_taken_key(context, before, for_good=refusals == _TRIES)
                else:
                    after = outcome
            job = to_job(after)
            self._wake([after])
            self._bus.tell(JobRetried(job=job, previous_status=status_of(before)))
            return job

        with driver_errors("retry the job"):
            return await _of_job(id, retry)

    async def reschedule_job(self, id: ObjectId | str, run_at: datetime) -> Job[Any]:  # noqa: A002
        """Let a pending job run at another time.

        Raises:
            JobNotFoundError: There is no such job.
            JobStateError: It is not pending.
        """
        context = self._context()
        transition = transitions.reschedule_by_operator(run_at=check_time("run_at", run_at))

        async def reschedule(job_id: Any) -> Job[Any]:
            while (after := await context.store.change(job_id, transition)) is None:
                _check_state(await _found(context, job_id), "reschedule", JobStatus.PENDING)
            self._wake([after])
            return to_job(after)

        with driver_errors("reschedule the job"):
            return await _of_job(id, reschedule)

    async def delete_job(self, id: ObjectId | str) -> None:  # noqa: A002 - part of the public API
        """Remove a job in whatever state. A running one has its handler cancelled when its owner notices.

        Raises:
            JobNotFoundError: There is no such job.
        """
        context = self._context()

        async def delete(job_id: Any) -> None:
            if not await operations.delete_one(context.store.collection, job_id):
                raise JobNotFoundError(job_id)
            self._bus.tell(JobDeleted(job_id=job_id))

        with driver_errors("delete the job"):
            await _of_job(id, delete)

    async def cancel_jobs(self, filter: JobFilter) -> BulkResult:  # noqa: A002 - part of the public API
        """Cancel all pending jobs that match; others are left alone. `JobFilter()` means all."""
        context, query = self._context(), reads.matching(check_filter(filter))
        with driver_errors("cancel the jobs"):
            count = await operations.cancel_many(context.store.collection, query)
        if count:
            self._bus.tell(JobsCancelled(count=count))
        return BulkResult(count=count, errors=[])

    async def retry_jobs(
        self,
        filter: JobFilter,  # noqa: A002 - part of the public API
        *,
        spread: timedelta = timedelta(0),
    ) -> BulkResult:
        """Put back all failed and cancelled jobs that match; others are left alone.

        Args:
            filter: Which jobs; `JobFilter()` means all.
            spread: Let them become due at random times within this duration instead of all at once,
                so that what they call is not overrun.

        Returns:
            How many were put back; under `errors` those whose unique key is taken.
        """
        context, query = self._context(), reads.matching(check_filter(filter))
        check_spread(spread)
        with driver_errors("retry the jobs"):
            count, errors = await operations.retry_many(context.store.collection, query, spread=spread)
        if count:
            self._wake_all()
            self._bus.tell(JobsRetried(count=count))
        return BulkResult(count=count, errors=errors)

    async def delete_jobs(self, filter: JobFilter) -> BulkResult:  # noqa: A002 - part of the public API
        """Remove all jobs that match, in whatever state. To delete everything, say `JobFilter()`."""
        context, query = self._context(), reads.matching(check_filter(filter))
        with driver_errors("delete the jobs"):
            count = await operations.delete_many(context.store.collection, query)
        if count:
            self._bus.tell(JobsDeleted(count=count))
        return BulkResult(count=count, errors=[])

    def _wake_all(self) -> None:
        raise NotImplementedError


def _listing(jobs: object, sort: Sort, descending: bool, direction: Direction) -> Listing:
    check_choice("sort", sort, Sort)
    check_choice("direction", direction, Direction)
    if not isinstance(descending, bool):
        raise ConfigurationError(f"descending must be True or False, got {descending!r}")
    return Listing(check_filter(jobs), sort, descending)


async def _page(
    context: Context, listing: Listing, start: Position | None, direction: Direction, limit: int
) -> JobPage:
    collection = context.store.collection
    found, more = await operations.read_page(collection, listing, start, direction, limit)
    back: Direction = "backward" if direction == "forward" else "forward"
    if found:
        first = listing.position_of(found[0], direction)
        last = listing.position_of(found[-1], direction)
    elif start is not None:
        first = last = replace(start, beyond=direction)
    else:
        return JobPage(
            jobs=[],
            cursor=None,
            next_cursor=None,
            previous_cursor=None,
            has_next_page=False,
            has_previous_page=False,
        )
    # Without a start the page begins where the list does, so nothing is behind it.
    behind = start is not None and await operations.is_there_any(collection, listing, first, back)
    onward = listing.write_cursor(last) if more else None
    backward = listing.write_cursor(first) if behind else None
    forwards = direction == "forward"
    return JobPage(
        jobs=[to_job(operations.decoded(document)) for document in (found if forwards else reversed(found))],
        cursor=onward,
        next_cursor=onward if forwards else backward,
        previous_cursor=backward if forwards else onward,
        has_next_page=more if forwards else behind,
        has_previous_page=behind if forwards else more,
    )


async def _of_job(given: Any, act: Callable[[Any], Awaitable[R]]) -> R:
    """Act on the job that an id means: text of 24 hex characters may be an `ObjectId`, or the very `_id`."""
    for job_id in ids_meant(given):
        with suppress(JobNotFoundError):
            return await act(job_id)
    raise JobNotFoundError(given)


async def _found(context: Context, job_id: Any) -> Document:
    document = await context.store.get(job_id)
    if document is None:
        raise JobNotFoundError(job_id)
    return document


def _check_state(document: Document, action: str, *allowed: JobStatus) -> None:
    status = status_of(document)
    if status not in allowed:
        raise JobStateError(
            f"cannot {action} job {document['_id']}: it is {status}; "
            f"only a {' or '.join(allowed)} one can be",
            job_id=document["_id"],
            current_status=status,
            attempted_action=action,
        )


async def _refuse_taken_key(context: Context, document: Document, *, for_good: bool) -> None:
    """Say who holds the key; if its holder ended meanwhile, return, so that it is tried again.

    Unless that is *for_good*: a key that is no text may be held by a job that no query for the key finds.
    """
    holder = await context.store.holder(document)
    if holder is None and not for_good:
        return
    by = "another active job" if holder is None else f"the {holder['status']} job {holder['_id']}"
    raise JobStateError(
        f"cannot retry job {document['_id']}: its unique key {document['uniqueKey']!r} is held by {by}",
        job_id=document["_id"],
        current_status=status_of(document),
        attempted_action="retry",
    )
