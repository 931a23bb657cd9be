"""Reading jobs: one, pages of them, numbers, and the wait for the end of one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pymongo
from bson import ObjectId
from pymongo.errors import OperationFailure, PyMongoError, ServerSelectionTimeoutError

from monque._api import acting
from monque._api.life import Opening, Processing
from monque._engine.waits import Waits
from monque._ops import bulk, counts, facts
from monque._ops.lists import Listing, Position
from monque._store import filters
from monque._store.document import Document, has_result, name_of, result_error_of, status_of
from monque._store.job import Read, to_job
from monque._store.store import Store
from monque._values.ended import JobCancelledError, JobFailedError
from monque._values.errors import (
    ConfigurationError,
    JobNotFoundError,
    ReadTimeoutError,
    ResultError,
    WaitTimeoutError,
    driver_errors,
)
from monque._values.job import Job, id_of
from monque._values.options import Options, UseName, check_uses
from monque._values.rules import check_count, check_duration, check_flag, check_time, ids_meant
from monque._values.status import JobStatus, StatusName
from monque._values.views import (
    Diagnosis,
    Direction,
    FailedJob,
    JobFilter,
    JobPage,
    Pause,
    QueueStats,
    QueueView,
    Sort,
    WorkerView,
    check_choice,
    check_filter,
    check_range,
)
from monque._workers.workers import Workers


@contextmanager
def reading(doing: str, max_time: timedelta | None = None) -> Iterator[None]:
    """Turn errors of the driver into ours; let all commands inside take at most *max_time* together.

    The server ends a command whose time is up. A database that cannot be reached is no slow read: that stays
    a `ConnectionError`.
    """
    with driver_errors(doing):
        if max_time is None:
            yield
            return
        seconds = check_duration("max_time", max_time).total_seconds()
        try:
            with pymongo.timeout(seconds):
                yield
        except PyMongoError as error:
            if not error.timeout or isinstance(error, ServerSelectionTimeoutError):
                raise
            raise ReadTimeoutError(f"could not {doing} within {seconds:g} s; {_advice(error)}") from error


def _advice(error: PyMongoError) -> str:
    """The server itself ends a read that takes too long, just before our time is up."""
    if isinstance(error, OperationFailure):
        return "ask for less: one name, one status, fewer jobs or a shorter time"
    return "the database did not answer at all: it hangs, or has too much to do; ask again later"


async def ended(waits: Waits, job: object, timeout: timedelta | None) -> Document:
    """The document of the job, given by itself or its id, when it has ended."""
    given = id_of(job)
    if timeout is not None:
        check_duration("timeout", timeout)
    if not (ids := ids_meant(given)):
        raise JobNotFoundError(str(given))
    limit = asyncio.timeout(None if timeout is None else timeout.total_seconds())
    try:
        async with limit:
            return await waits.until_ended(given, ids)
    except TimeoutError:
        if timeout is None or not limit.expired():
            raise
        raise WaitTimeoutError(job_id=given, timeout=timeout) from None


def result_in(document: Document, read: Read) -> Any:
    """The result of a job that has ended, or the error that says why there is none."""
    job = to_job(document, read)
    if status_of(document) is JobStatus.FAILED:
        raise JobFailedError(job)
    if status_of(document) is JobStatus.CANCELLED:
        raise JobCancelledError(job)
    if has_result(document):
        return job.result
    why = result_error_of(document) or (
        "it was completed, and no result was stored; set store_result=True for the worker or the call, or "
        "give one to complete_in(..., result=...)"
    )
    raise ResultError(f"job {job.id} ({job.name!r}) has no result: {why}", job_id=job.id)


def listing(jobs: object, sort: Sort, descending: bool, direction: Direction) -> Listing:
    """Check the arguments of `list_jobs`: which jobs, in which order."""
    check_choice("sort", sort, Sort)
    check_choice("direction", direction, Direction)
    if not isinstance(descending, bool):
        raise ConfigurationError(f"descending must be True or False, got {descending!r}")
    return Listing(check_filter(jobs), sort, descending)


async def read_page(
    store: Store,
    listing: Listing,
    start: Position | None,
    direction: Direction,
    limit: int,
    payload_limit: int | None,
) -> JobPage:
    """Read at most *limit* jobs in one direction, beginning after *start*."""
    collection = store.collection
    found, more = await bulk.read_page(collection, listing, start, direction, limit, payload_limit)
    back: Direction = "backward" if direction == "forward" else "forward"
    if found:
        first = listing.position_of(bulk.exact(found[0]), direction)
        last = listing.position_of(bulk.exact(found[-1]), direction)
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
    behind = start is not None and await bulk.is_there_any(collection, listing, first, back)
    onward = listing.write_cursor(last) if more else None
    backward = listing.write_cursor(first) if behind else None
    forwards = direction == "forward"
    in_order = found if forwards else reversed(found)
    return JobPage(
        jobs=[to_job(bulk.decoded(document), store.read) for document in in_order],
        cursor=onward,
        next_cursor=onward if forwards else backward,
        previous_cursor=backward if forwards else onward,
        has_next_page=more if forwards else behind,
        has_previous_page=behind if forwards else more,
    )


class Looking:
    """Methods to inspect jobs; `Monque` has them all."""

    _opening: Opening
    _processing: Processing
    _options: Options
    _workers: Workers

    def server_time(self) -> datetime:
        """The database server's time, which decides when jobs are due. It costs no round trip."""
        return self._opening.anywhere().store.clock.now()

    async def get_job(
        self,
        id: Job[Any] | ObjectId | str,  # noqa: A002 - part of the public API
        *,
        max_time: timedelta | None = None,
    ) -> Job[Any] | None:
        """The job with this id (an `ObjectId` or 24 hex characters) as it is now, or None.

        A document that others wrote may have any `_id`: give the one that `Job.id` shows. Its history has
        tracebacks, and its log its lines.

        Args:
            id: The job, or its id.
            max_time: How long the read may take.

        Raises:
            ReadTimeoutError: It took longer than *max_time*. So it is with all methods that take one.
        """
        store = self._store()
        with reading("read the job", max_time), suppress(JobNotFoundError):
            return to_job(await acting.find(store, id), store.read)
        return None

    async def get_jobs(
        self,
        *,
        name: str | None = None,
        status: JobStatus | StatusName | Iterable[JobStatus | StatusName] | None = None,
        limit: int = 100,
        skip: int = 0,
        max_time: timedelta | None = None,
    ) -> list[Job[Any]]:
        """Jobs by name and status, the earliest `next_run_at` first. For many, use `iter_jobs`.

        Their history has no tracebacks, and their log no lines; `get_job` reads those.
        """
        store = self._store()
        check_range("limit", limit, 1, 100_000)
        check_range("skip", skip, 0, 2**31 - 1)
        query = filters.matching(JobFilter(name=name, status=status))
        with reading("read the jobs", max_time):
            found = await bulk.read_earliest(store.collection, query, skip=skip, limit=limit)
        return [to_job(document, store.read) for document in found]

    async def list_jobs(
        self,
        filter: JobFilter = JobFilter(),  # noqa: A002 - part of the public API
        *,
        cursor: str | None = None,
        limit: int = 50,
        direction: Direction = "forward",
        sort: Sort = "id",
        descending: bool = False,
        payload_limit: int | None = None,
        max_time: timedelta | None = None,
    ) -> JobPage:
        """One page of jobs, stable while others are stored, deleted and change state.

        Their history has no tracebacks, and their log no lines; `get_job` reads those.

        Args:
            filter: Which jobs.
            cursor: Where to continue, from an earlier page of the same filter and sort. Reading
                backward without a cursor starts at the end.
            limit: How many jobs a page has, 1 to 1000.
            direction: Which way to read; a page itself is always in the order of the sort.
            sort: id, created_at, updated_at or next_run_at.
            descending: Reverse the order.
            payload_limit: Payloads and results of more bytes stay in the database: `Job.data` is None then,
                and `Job.payload_size` says how large the payload is. None sends all of them.
            max_time: How long the read may take.

        Raises:
            InvalidCursorError: The cursor comes from another sort or filter, or was changed.
            ReadTimeoutError: It took longer than *max_time*.

        Examples:
            >>> page = await monque.list_jobs(JobFilter(status="failed"), sort="updated_at")
            >>> more = await monque.list_jobs(
            ...     JobFilter(status="failed"), sort="updated_at", cursor=page.cursor
            ... )
        """
        store = self._store()
        check_range("limit", limit, 1, 1000)
        jobs = listing(filter, sort, descending, direction)
        start = None if cursor is None else jobs.read_cursor(cursor)
        if payload_limit is not None:
            check_range("payload_limit", payload_limit, 0, 2**31 - 1)
        with reading("list the jobs", max_time):
            return await read_page(store, jobs, start, direction, limit, payload_limit)

    async def iter_jobs(
        self,
        filter: JobFilter = JobFilter(),  # noqa: A002 - part of the public API
        *,
        cursor: str | None = None,
        limit: int = 200,
        direction: Direction = "forward",
        sort: Sort = "id",
        descending: bool = False,
        payload_limit: int | None = None,
        max_time: timedelta | None = None,
    ) -> AsyncIterator[Job[Any]]:
        """All jobs, page by page (*limit* jobs each); backward, from the last to the first.

        *payload_limit* is as for `list_jobs`, and *max_time* counts for each page.

        Their history has no tracebacks, and their log no lines; `get_job` reads those.

        Examples:
            >>> async for job in monque.iter_jobs(JobFilter(name="send-email")):
            ...     print(job.id, job.status)
        """
        while True:
            page = await self.list_jobs(
                filter,
                cursor=cursor,
                limit=limit,
                direction=direction,
                sort=sort,
                descending=descending,
                payload_limit=payload_limit,
                max_time=max_time,
            )
            for job in page.jobs if direction == "forward" else reversed(page.jobs):
                yield job
            cursor = page.cursor
            if cursor is None:
                return

    async def count_jobs(
        self,
        filter: JobFilter = JobFilter(),  # noqa: A002 - part of the public API
        *,
        limit: int | None = None,
        max_time: timedelta | None = None,
    ) -> int:
        """How many jobs match.

        Args:
            filter: Which jobs.
            limit: Where to stop counting: the answer is at most this.
            max_time: How long it may take.

        Raises:
            ReadTimeoutError: It took longer than *max_time*.

        Examples:
            >>> await monque.count_jobs(JobFilter(status="failed"), limit=100_000)
        """
        store, query = self._store(), filters.matching(check_filter(filter))
        most: dict[str, Any] = {}
        if limit is not None:
            most = {"limit": check_count("limit", limit, limit=2**31 - 1)}
        with reading("count the jobs", max_time):
            return await store.collection.count_documents(query, **most)

    async def jobs_ahead(
        self, job: Job[Any] | ObjectId | str, *, limit: int = 10_000, max_time: timedelta | None = None
    ) -> int:
        """How many pending jobs of the same name start before this one: those due earlier or more urgent.

        It reads entries of an index only, at most *limit* of them for each question. It is 0 for a job that
        does not wait.

        Args:
            job: The job, as it was read, or its id.
            limit: Where to stop counting, up to 1,000,000: the answer is at most this.
            max_time: How long it may take.

        Raises:
            JobNotFoundError: There is no such job.
            ReadTimeoutError: It took longer than *max_time*.

        Examples:
            >>> await monque.jobs_ahead(job)
        """
        store = self._store()
        check_count("limit", limit)
        with reading("count the jobs before it", max_time):
            known = job if isinstance(job, Job) else to_job(await acting.find(store, job), store.read)
            return await counts.count(store, known, limit)

    async def recent_failures(
        self,
        *,
        name: str | None = None,
        since: datetime | None = None,
        cancelled: bool = False,
        limit: int = 10_000,
        max_time: timedelta | None = None,
    ) -> list[FailedJob]:
        """The jobs that failed for good, the newest first, as small rows: no payloads, no tracebacks.

        It needs the index of the use `failures`: begin that with `begin_use` or `Options.uses`.

        Args:
            name: Of one job name.
            since: Failed at this time or later.
            cancelled: Also those that were cancelled.
            limit: How many at most, up to 100,000.
            max_time: How long it may take.

        Raises:
            ConfigurationError: The index is not there; the message names the command that creates it.
            ReadTimeoutError: It took longer than *max_time*.

        Examples:
            >>> await monque.begin_use("failures")
            >>> for job in await monque.recent_failures(limit=20):
            ...     print(job.at, job.name, job.reason)
        """
        JobFilter(name=name)  # refuses what cannot be a name
        check_count("limit", limit, limit=100_000)
        with_cancelled, store = check_flag("cancelled", cancelled), self._store()
        since = None if since is None else check_time("since", since)
        with reading("read what failed", max_time):
            return await counts.read_recent(
                store.collection, name=name, since=since, cancelled=with_cancelled, limit=limit
            )

    async def diagnose(
        self, *, uses: Collection[UseName] = (), max_time: timedelta | None = None
    ) -> Diagnosis:
        """Examine the server and the waiting jobs. Changes nothing.

        Args:
            uses: What the collection is going to be used for; see `Options.uses`. Their indexes are listed as
                `missing` if they are not there yet.
            max_time: How long all of it may take.

        Raises:
            ConfigurationError: There is no such use.
            ReadTimeoutError: It took longer than *max_time*.
            AggregationTimeoutError: Counting the waiting jobs took longer than 30 seconds.
        """
        store, uses = self._store(), check_uses(tuple(uses))
        with reading("examine the database", max_time):
            return await facts.examine(store, self._options, uses)

    async def queue_stats(self, *, name: str | None = None, max_time: timedelta | None = None) -> QueueStats:
        """How many jobs are in each state, of one name or of all.

        Raises:
            AggregationTimeoutError: It took longer than 30 seconds.
            ReadTimeoutError: It took longer than *max_time*.
        """
        store = self._store()
        JobFilter(name=name)  # refuses what cannot be a name
        with reading("read the statistics", max_time):
            pipeline = counts.statistics(name)
            groups = await bulk.aggregate(store.collection, pipeline, max_time=max_time)
        return counts.stats_from(groups)

    async def queue_views(self, *, max_time: timedelta | None = None) -> list[QueueView]:
        """Statistics and the local worker of each job name, sorted by name.

        Raises:
            AggregationTimeoutError: It took longer than 30 seconds.
            ReadTimeoutError: It took longer than *max_time*.
        """
        store, pipeline = self._store(), counts.statistics(by_name=True)
        with reading("read the statistics", max_time):
            groups = await bulk.aggregate(store.collection, pipeline, max_time=max_time)
            settings = await store.control.read_if_allowed()
        stored: dict[str, list[Document]] = {worker.name: [] for worker in self._workers}
        for group in groups:
            stored.setdefault(name_of(group["_id"].get("name")), []).append(group)
        now = store.clock.now()
        return [self._view(name, stored[name], settings.pause_of(name, now)) for name in sorted(stored)]

    def _view(self, name: str, groups: list[Document], paused: Pause | None) -> QueueView:
        worker = self._workers.get(name)
        local = None
        if worker is not None:
            local = WorkerView(
                concurrency=worker.concurrency or self._options.worker_concurrency,
                active_count=self._processing.active[name],
            )
        return QueueView(
            name=name,
            stats=counts.stats_from(groups),
            has_persisted_jobs=bool(groups),
            has_registered_worker=worker is not None,
            worker=local,
            paused=paused,
        )

    def _store(self) -> Store:
        """Return the jobs collection, for a call that works in the running event loop."""
        return self._opening.here().store
