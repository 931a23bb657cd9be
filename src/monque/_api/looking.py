"""The operator's side of `Monque`, as far as it only reads: jobs, pages of them, and numbers."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Iterable
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Any

from bson import ObjectId

from monque._api import acting
from monque._api.listing import listing, read_page
from monque._api.opening import Opening
from monque._api.processing import Processing
from monque._api.reading import reading
from monque._diagnosis import Diagnosis
from monque._errors import JobNotFoundError, driver_errors
from monque._job import Job
from monque._options import Options, UseName, check_uses
from monque._pause import Pause
from monque._rules import check_count, check_flag, check_time
from monque._status import JobStatus, StatusName
from monque._store import facts, failures, operations, reads
from monque._store.document import Document, name_of
from monque._store.lazy_job import to_job
from monque._store.store import Store
from monque._views import (
    Direction,
    FailedJob,
    JobFilter,
    JobPage,
    QueueStats,
    QueueView,
    Sort,
    WorkerView,
    check_filter,
    check_range,
)
from monque._workers.workers import Workers


class Looking:
    """Methods to inspect jobs; `Monque` has them all."""

    _opening: Opening
    _processing: Processing
    _options: Options
    _workers: Workers

    def server_time(self) -> datetime:
        """The database server's time, which decides when jobs are due. It costs no round trip."""
        return self._opening.anywhere().store.clock.now()

    async def get_job(self, id: ObjectId | str) -> Job[Any] | None:  # noqa: A002 - part of the public API
        """The job with this id (an `ObjectId` or 24 hex characters), or None.

        A document that others wrote may have any `_id`: give the one that `Job.id` shows. Its history has
        tracebacks, and its log its lines.
        """
        store = self._store()
        with driver_errors("read the job"), suppress(JobNotFoundError):
            return to_job(await acting.find(store, id))
        return None

    async def get_jobs(
        self,
        *,
        name: str | None = None,
        status: JobStatus | StatusName | Iterable[JobStatus | StatusName] | None = None,
        limit: int = 100,
        skip: int = 0,
    ) -> list[Job[Any]]:
        """Jobs by name and status, the earliest `next_run_at` first. For many, use `iter_jobs`.

        Their history has no tracebacks, and their log no lines; `get_job` reads those.
        """
        store = self._store()
        check_range("limit", limit, 1, 100_000)
        check_range("skip", skip, 0, 2**31 - 1)
        query = reads.matching(JobFilter(name=name, status=status))
        with driver_errors("read the jobs"):
            found = await operations.read_earliest(store.collection, query, skip=skip, limit=limit)
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

        Their history has no tracebacks, and their log no lines; `get_job` reads those.

        Args:
            filter: Which jobs.
            cursor: Where to continue, from an earlier page of the same filter and sort. Reading
                backward without a cursor starts at the end.
            limit: How many jobs a page has, 1 to 1000.
            direction: Which way to read; a page itself is always in the order of the sort.
            sort: id, created_at, updated_at or next_run_at.
            descending: Reverse the order.

        Raises:
            InvalidCursorError: The cursor comes from another sort or filter, or was changed.

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
        with driver_errors("list the jobs"):
            return await read_page(store, jobs, start, direction, limit)

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

        Their history has no tracebacks, and their log no lines; `get_job` reads those.

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
        store, query = self._store(), reads.matching(check_filter(filter))
        with driver_errors("count the jobs"):
            return await store.collection.count_documents(query)

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
            return await failures.read_recent(
                store.collection, name=name, since=since, cancelled=with_cancelled, limit=limit
            )

    async def diagnose(self, *, uses: Collection[UseName] = ()) -> Diagnosis:
        """Examine the server and the waiting jobs. Changes nothing.

        Args:
            uses: What the collection is going to be used for; see `Options.uses`. Their indexes are listed as
                `missing` if they are not there yet.

        Raises:
            ConfigurationError: There is no such use.
            AggregationTimeoutError: Counting the waiting jobs took longer than 30 seconds.
        """
        store, uses = self._store(), check_uses(tuple(uses))
        with driver_errors("examine the database"):
            return await facts.examine(store, self._options, uses)

    async def queue_stats(self, *, name: str | None = None) -> QueueStats:
        """How many jobs are in each state, of one name or of all.

        Raises:
            AggregationTimeoutError: It took longer than 30 seconds.
        """
        store = self._store()
        JobFilter(name=name)  # refuses what cannot be a name
        with driver_errors("read the statistics"):
            groups = await operations.aggregate(store.collection, reads.statistics(name))
        return reads.stats_from(groups)

    async def queue_views(self) -> list[QueueView]:
        """Statistics and the local worker of each job name, sorted by name.

        Raises:
            AggregationTimeoutError: It took longer than 30 seconds.
        """
        store = self._store()
        with driver_errors("read the statistics"):
            groups = await operations.aggregate(store.collection, reads.statistics(by_name=True))
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
            stats=reads.stats_from(groups),
            has_persisted_jobs=bool(groups),
            has_registered_worker=worker is not None,
            worker=local,
            paused=paused,
        )

    def _store(self) -> Store:
        """Return the jobs collection, for a call that works in the running event loop."""
        return self._opening.here().store
