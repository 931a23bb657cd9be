"""Reading: jobs, pages, numbers, what happened, why a job does not run; waiting for the end of a job."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import aclosing, contextmanager, suppress
from dataclasses import replace
from datetime import datetime, timedelta
from types import MappingProxyType
from typing import Any

import pymongo
from bson import ObjectId
from pymongo.errors import OperationFailure, PyMongoError, ServerSelectionTimeoutError

from monque._api.life import Opening, Processing
from monque._engine.waits import Waits
from monque._ops import ops
from monque._store import lines
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
from monque._values.events import EventBus
from monque._values.filter import JobFilter, check_filter
from monque._values.job import Job, id_of
from monque._values.limits import Line
from monque._values.options import Options, UseName, check_uses
from monque._values.records import AuditPage, Instance, Outcome, Via
from monque._values.rules import check_count, check_duration, check_flag, check_name, check_time, ids_meant
from monque._values.schedule import Schedule
from monque._values.status import JobStatus, StatusName
from monque._values.trends import TrendPoint
from monque._values.views import (
    Diagnosis,
    Direction,
    Explanation,
    FailureRow,
    JobCounts,
    JobPage,
    Pause,
    QueueDepth,
    QueueStats,
    QueueView,
    SlowestJobs,
    Slowness,
    Sort,
    WorkerView,
    check_choice,
)
from monque._workers.workers import Worker, Workers

# A point for each minute of two days: the server and a browser take no noticeable time for it.
_MOST_STEPS = 3_000

# Without a step, there are at most so many points: about what a chart can show.
_STEPS_SHOWN = 200
_STEPS = tuple(timedelta(minutes=each) for each in (1, 5, 15, 60, 6 * 60, 24 * 60))

# Counting more takes longer than anybody waits.
_MOST_COUNTED = 10_000_000


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


async def changes(
    waits: Waits, job: object, timeout: timedelta | None
) -> AsyncGenerator[tuple[Document, bool], None]:
    """The document of the job, given by itself or its id, after each change, and whether it has ended."""
    given = id_of(job)
    loop = asyncio.get_running_loop()
    seconds = None if timeout is None else check_duration("timeout", timeout).total_seconds()
    deadline = None if seconds is None else loop.time() + seconds
    if not (ids := ids_meant(given)):
        raise JobNotFoundError(str(given))
    async with aclosing(waits.changes(given, ids)) as changing:
        is_over = False
        while not is_over:
            # Around each change alone: while the reader has the last one, its own cancellation is not ours.
            limit = asyncio.timeout_at(deadline)
            try:
                async with limit:
                    document, is_over = await anext(changing)
            except TimeoutError:
                if timeout is None or not limit.expired():
                    raise
                raise WaitTimeoutError(job_id=given, timeout=timeout) from None
            yield document, is_over


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


class Opened:
    """The parts of an instance that the methods of `Monque` work with."""

    _opening: Opening
    _processing: Processing
    _options: Options
    _workers: Workers
    _bus: EventBus

    def _store(self) -> Store:
        """Return the jobs collection, for a call that works in the running event loop."""
        return self._opening.here().store


class JobReads(Opened):
    """Methods to inspect jobs and all instances; `Monque` has them all."""

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
            return to_job(await ops.actions.find(store, id), store.read)
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
        check_count("limit", limit, limit=100_000)
        check_count("skip", skip, least=0, limit=2**31 - 1)
        query = ops.filters.matching(JobFilter(name=name, status=status))
        with reading("read the jobs", max_time):
            found = await ops.lists.read_earliest(store.collection, query, skip=skip, limit=limit)
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
        check_count("limit", limit, limit=1000)
        jobs = ops.lists.listing(filter, sort, descending, direction)
        start = None if cursor is None else jobs.read_cursor(cursor)
        if payload_limit is not None:
            check_count("payload_limit", payload_limit, least=0, limit=2**31 - 1)
        with reading("list the jobs", max_time):
            return await ops.lists.read_page(store, jobs, start, direction, limit, payload_limit)

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

    async def slowest_jobs(
        self,
        filter: JobFilter = JobFilter(),  # noqa: A002 - part of the public API
        *,
        by: Slowness = "ran",
        each_name: bool = False,
        limit: int = 50,
        payload_limit: int | None = None,
        max_time: timedelta | None = None,
    ) -> SlowestJobs:
        """The jobs that have ended and took longest, the longest first.

        They are looked for among the 50,000 that match and changed last; `SlowestJobs.capped` says if there
        are more. `Options.listing_indexes` and `Options.retention` have an index that leads to them; without
        either, the server reads all jobs: see the page on indexes.

        Args:
            filter: Which jobs, such as `JobFilter(updated_after=…)`. Those that have not ended are left out.
            by: `ran`: how long the last run took. `waited`: how long after the job was due it began.
            each_name: Only the slowest job of each name.
            limit: How many jobs, 1 to 1000.
            payload_limit: As for `list_jobs`.
            max_time: How long the read may take.

        Raises:
            ReadTimeoutError: It took longer than *max_time*.

        Examples:
            >>> hour = JobFilter(updated_after=monque.server_time() - timedelta(hours=1))
            >>> for job in await monque.slowest_jobs(hour, limit=10):
            ...     print(job.id, job.name, job.ran)
        """
        store, jobs = self._store(), check_filter(filter)
        check_choice("by", by, Slowness)
        check_count("limit", limit, limit=1000)
        if payload_limit is not None:
            check_count("payload_limit", payload_limit, least=0, limit=2**31 - 1)
        with reading("find the slowest jobs", max_time):
            return await ops.lists.read_slowest(
                store, jobs, by, limit, payload_limit, each_name=check_flag("each_name", each_name)
            )

    async def count_jobs(
        self,
        filter: JobFilter = JobFilter(),  # noqa: A002 - part of the public API
        *,
        limit: int | None = None,
        max_time: timedelta | None = None,
    ) -> int:
        """Count the jobs that match.

        Args:
            filter: Which jobs.
            limit: Where to stop counting: the answer is at most this.
            max_time: How long it may take.

        Raises:
            ReadTimeoutError: It took longer than *max_time*.

        Examples:
            >>> await monque.count_jobs(JobFilter(status="failed"), limit=100_000)
        """
        store, query = self._store(), ops.filters.matching(check_filter(filter))
        most: dict[str, Any] = {}
        if limit is not None:
            most = {"limit": check_count("limit", limit, limit=2**31 - 1)}
        with reading("count the jobs", max_time):
            return await store.collection.count_documents(query, **most)

    async def jobs_ahead(
        self, job: Job[Any] | ObjectId | str, *, limit: int = 10_000, max_time: timedelta | None = None
    ) -> int:
        """Count the pending jobs of its name that start before this one: those due earlier or more urgent.

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
            known = job if isinstance(job, Job) else to_job(await ops.actions.find(store, job), store.read)
            return await ops.counts.count(store, known, limit)

    async def recent_failures(
        self,
        *,
        name: str | None = None,
        since: datetime | None = None,
        cancelled: bool = False,
        limit: int = 10_000,
        max_time: timedelta | None = None,
    ) -> list[FailureRow]:
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
            return await ops.counts.read_recent(
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
            return await ops.facts.examine(store, self._options, uses)

    async def queue_stats(
        self, *, name: str | None = None, batch: str | None = None, max_time: timedelta | None = None
    ) -> QueueStats:
        """Count the jobs in each state, of one name, of one batch, or of all.

        Raises:
            AggregationTimeoutError: It took longer than 30 seconds.
            ReadTimeoutError: It took longer than *max_time*.
        """
        store = self._store()
        JobFilter(name=name, batch=batch)  # refuses what cannot be one
        with reading("read the statistics", max_time):
            pipeline = ops.counts.statistics(name, batch=batch)
            groups = await ops.counts.aggregate(store.collection, pipeline, max_time=max_time)
        return ops.counts.stats_from(groups)

    async def lines(
        self, name: Worker[Any] | str, *, limit: int = 100, max_time: timedelta | None = None
    ) -> list[Line]:
        """The lines of a limit by key: how many jobs of each key have a turn, and how many wait for one.

        Those with the most waiting jobs come first. A name without a limit by key has none.

        Args:
            name: The worker, or the name of its jobs.
            limit: The most lines to return.
            max_time: How long it may take.

        Raises:
            ReadTimeoutError: It took longer than *max_time*.

        Examples:
            >>> for line in await monque.lines("sync"):
            ...     print(line.key, line.running, line.waiting)
        """
        store = self._store()
        check_count("limit", limit, limit=100_000)
        of = name.name if isinstance(name, Worker) else check_name(name)
        with reading("read the lines", max_time):
            return await lines.read(store, of, limit)

    async def queue_views(self, *, max_time: timedelta | None = None) -> list[QueueView]:
        """Statistics and the local worker of each job name, sorted by name.

        Raises:
            AggregationTimeoutError: It took longer than 30 seconds.
            ReadTimeoutError: It took longer than *max_time*.
        """
        store, pipeline = self._store(), ops.counts.statistics(by_name=True)
        with reading("read the statistics", max_time):
            groups = await ops.counts.aggregate(store.collection, pipeline, max_time=max_time)
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
            stats=ops.counts.stats_from(groups),
            has_persisted_jobs=bool(groups),
            has_registered_worker=worker is not None,
            worker=local,
            paused=paused,
        )

    @property
    def companions(self) -> Mapping[str, bool]:
        """Which of the small collections beside the jobs are written: `trends`, `register` and `audit`.

        False if the options say so, or if the server has refused a write: for lack of a right or of space.
        """
        beside = self._opening.anywhere().context.companions
        trends, register, audit = beside.trends.is_on, beside.register.is_on, beside.audit.is_on
        return MappingProxyType({"trends": trends, "register": register, "audit": audit})

    async def instances(self, *, max_time: timedelta | None = None) -> list[Instance]:
        """The instances that process jobs, or did so within the last 24 hours; those alive come first.

        Instances with `Options(register=False)`, older versions and the TypeScript implementation are not
        among them.

        Args:
            max_time: The longest that the read may take.

        Raises:
            AggregationTimeoutError: It took longer.

        Examples:
            >>> for instance in await monque.instances():
            ...     print(instance.id, instance.host, instance.alive, instance.busy)
        """
        store, max_time = self._store(), _check_max_time(max_time)
        collection = self._opening.here().context.companions.register.collection
        with driver_errors("read the register of instances"):
            found = await ops.counts.aggregate(collection, [{"$sort": {"_id": 1}}], max_time=max_time)
        now, tolerance = store.clock.now(), self._options.tolerance
        seen = [ops.register.to_instance(document, now, tolerance=tolerance) for document in found]
        return sorted(seen, key=lambda instance: not instance.alive)

    async def trends(
        self,
        *,
        name: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        step: timedelta | None = None,
        by_name: bool = False,
        max_time: timedelta | None = None,
    ) -> list[TrendPoint]:
        """Read what happened over time, the earliest step first; the last one may still be going on.

        It knows the runs of all instances that write trends, up to a few seconds ago. Minutes are kept for 48
        hours and hours for 90 days, unless `Options.trends` says otherwise.

        Args:
            name: Of this job name; None for all names together.
            since: From the step on in which this lies; by default an hour before *until*.
            until: Up to this time; by default now.
            step: How long a step is, in whole minutes: steps of whole hours reach further back. By default
                as long that there are at most 200.
            by_name: One point for each step *and* name in which something happened, instead of one for each
                step.
            max_time: The longest that the read may take.

        Raises:
            ConfigurationError: The times make no sense, or there would be more than 3,000 steps.
            AggregationTimeoutError: It took longer than *max_time*.

        Examples:
            >>> for point in await monque.trends(name="send-email", step=timedelta(minutes=5)):
            ...     print(point.at, point.completed, point.failed, point.waited.quantile(0.95))
        """
        store, max_time = self._store(), _check_max_time(max_time)
        JobFilter(name=name)  # refuses what cannot be a name
        span = _span(since, until, step, store.clock.now())
        by_name = check_flag("by_name", by_name)
        collection = self._opening.here().context.companions.trends.collection
        with driver_errors("read the trends"):
            return await ops.trends.read(collection, span, name=name, by_name=by_name, max_time=max_time)

    async def queue_depths(
        self, *, failures: bool = False, max_time: timedelta | None = None
    ) -> list[QueueDepth]:
        """Count the jobs of each name that wait or run, on all instances together, sorted by name.

        It reads one index entry for each job that waits or runs, and no finished one. Names that are served
        here are included without jobs, too.

        Args:
            failures: Also count the failed and the cancelled jobs of each name. That takes the index of the
                use `failures`; without it, these numbers stay None.
            max_time: The longest that each read may take.

        Raises:
            AggregationTimeoutError: It took longer than *max_time*, or 30 seconds.
        """
        store, max_time = self._store(), _check_max_time(max_time)
        check_flag("failures", failures)
        with driver_errors("count the waiting jobs"):
            return await ops.counts.read_depths(store, self._workers, failures=failures, max_time=max_time)

    async def job_counts(
        self,
        filter: JobFilter = JobFilter(),  # noqa: A002 - as in other methods
        *,
        limit: int = 100_000,
        max_time: timedelta | None = None,
    ) -> JobCounts:
        """Count the jobs that match, by state and by name, in one read.

        Args:
            filter: Which jobs.
            limit: Where to stop counting, up to 10,000,000.
            max_time: The longest that the read may take.

        Raises:
            AggregationTimeoutError: It took longer than *max_time*, or 30 seconds.

        Examples:
            >>> counts = await monque.job_counts(JobFilter(created_before=monday))
            >>> counts.by_status.get("failed", 0)
        """
        store, max_time = self._store(), _check_max_time(max_time)
        query = ops.filters.matching(check_filter(filter))
        check_count("limit", limit, limit=_MOST_COUNTED)
        with driver_errors("count the jobs"):
            groups = await ops.counts.aggregate(
                store.collection, ops.counts.counts(query, limit + 1), max_time=max_time
            )
        return ops.counts.counts_from(groups, limit)

    async def estimated_count(self, *, max_time: timedelta | None = None) -> int:
        """About how many jobs there are in all states together, from what the server knows without counting.

        Raises:
            AggregationTimeoutError: It took longer than *max_time*.
        """
        store, max_time = self._store(), _check_max_time(max_time)
        with driver_errors("estimate the number of jobs"):
            return await ops.counts.estimate(store.collection, max_time=max_time)

    async def explain(
        self,
        id: Job[Any] | ObjectId | str,  # noqa: A002 - part of the public API
        *,
        texts: bool = True,
        max_time: timedelta | None = None,
    ) -> Explanation:
        """Explain why a job does not run, or what it does instead, with evidence and what would help.

        It looks at the job, what is paused, the register of instances, the queue before the job, and how long
        jobs of its name lately took: at most five reads. Instances that do not register (with
        `Options(register=False)`, older ones, and the TypeScript implementation) are known only by the jobs
        that they run; the certainty is `likely` then.

        Args:
            id: The job, or its id.
            texts: False leaves out what may hold data: texts of errors, reasons of cancellations, unique keys
                and keys of lines. For those who may not see payloads.
            max_time: The longest that all reads together may take.

        Raises:
            JobNotFoundError: There is no such job.
            ReadTimeoutError: It took longer than *max_time*.

        Examples:
            >>> why = await monque.explain(job.id)
            >>> print(why.code, why.sentence)
        """
        context = self._opening.here().context
        store = context.store
        check_flag("texts", texts)
        with reading("explain the job", max_time):
            document = await ops.actions.find(store, id)
            job = to_job(document, store.read)
            own = store.instance_id if self._processing.is_running else None
            facts = await ops.surroundings.read_facts(store, context.companions, document, job, own=own)
        return ops.explain.explain(job if texts else _without_texts(job), facts)

    async def audit(
        self,
        *,
        job: Job[Any] | ObjectId | str | None = None,
        actor: str | None = None,
        action: str | Sequence[str] | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        cursor: str | None = None,
        limit: int = 50,
        max_time: timedelta | None = None,
    ) -> AuditPage:
        """Read what operators did, the newest first: through the management API and the command line.

        Entries are kept for 90 days. What a program does by calling methods of `Monque` is not among them,
        unless it calls `record_action`.

        Args:
            job: Only what was done to this job, or to the one with this id.
            actor: Only what this one did.
            action: Only this action, for example "cancel", or only these.
            since: Only what was done at this time or later.
            until: Only what was done before this time.
            cursor: Where to continue, from an earlier page of the same question.
            limit: How many entries a page has, 1 to 1000.
            max_time: The longest that it may take.

        Raises:
            InvalidCursorError: The cursor comes from another question, or was changed.
            ReadTimeoutError: It took longer than *max_time*.

        Examples:
            >>> page = await monque.audit(actor="ada", action="retry")
            >>> for entry in page.entries:
            ...     print(entry.at, entry.job_id, entry.outcome)
        """
        trail = self._opening.here().context.companions.audit
        check_count("limit", limit, limit=1000)
        which = ops.audit.Which(
            id_of(job),
            actor,
            [action] if isinstance(action, str) else action,
            None if since is None else check_time("since", since),
            None if until is None else check_time("until", until),
        )
        start = None if cursor is None else which.read_cursor(cursor)
        with reading("read the audit trail", max_time):
            entries, more = await trail.read(which, start, limit)
        return AuditPage(entries=entries, cursor=None if more is None else which.write_cursor(more))

    async def record_action(
        self,
        *,
        actor: str,
        via: Via,
        action: str,
        outcome: Outcome,
        job_id: Job[Any] | ObjectId | str | None = None,
        job_ids: Sequence[Job[Any] | ObjectId | str] = (),
        name: str | None = None,
        filter: JobFilter | Mapping[str, Any] | None = None,  # noqa: A002 - as in other methods
        count: int | None = None,
        errors: int | None = None,
        before: Job[Any] | Schedule | Mapping[str, Any] | None = None,
        after: Job[Any] | Schedule | Mapping[str, Any] | None = None,
        note: str | None = None,
        address: str | None = None,
        request_id: str | None = None,
    ) -> None:
        """Log and store what an operator did, or tried to do; see `AuditEntry` for the fields.

        It never fails what was done: an entry that cannot be stored is in the log of `monque.audit` all the
        same. Values of payloads and unique keys in a filter are replaced; of a job its state and times are
        kept, of a schedule its times. *job_ids* are the jobs of an action on many: `audit(job=…)` finds the
        entry for each of them.

        Examples:
            >>> job = await monque.cancel_job(job.id)
            >>> await monque.record_action(
            ...     actor="ada", via="web", action="cancel", outcome="done", job_id=job.id, after=job
            ... )
        """
        entry = ops.audit.new_entry(
            actor=actor,
            via=via,
            action=action,
            outcome=outcome,
            job_id=id_of(job_id),
            job_ids=[id_of(each) for each in job_ids],
            name=name,
            filter=filter,
            count=count,
            errors=errors,
            before=before,
            after=after,
            note=note,
            address=address,
            request_id=request_id,
        )
        ops.audit.log(entry)
        if self._opening.is_open:
            await self._opening.here().context.companions.audit.write(entry)


def _without_texts(job: Job[Any]) -> Job[Any]:
    key = None if job.unique_key in (None, job.name) else ops.audit.HIDDEN
    wait = job.waits_for and replace(job.waits_for, line=None)
    return replace(job, fail_reason=None, cancel_reason=None, unique_key=key, waits_for=wait)


def _check_max_time(max_time: object) -> timedelta | None:
    return None if max_time is None else check_duration("max_time", max_time)


def _span(since: object, until: object, step: object, now: datetime) -> ops.trends.Span:
    """The steps that are asked for."""
    end = now if until is None else _check_counted("until", until)
    begin = end - timedelta(hours=1) if since is None else _check_counted("since", since)
    if begin >= end:
        raise ConfigurationError(f"since must be before until, got {begin} and {end}")
    length = _shortest_step(end - begin) if step is None else check_duration("step", step)
    if length % ops.trends.MINUTE:
        raise ConfigurationError(f"step must be in whole minutes, got {length}")
    begin = ops.trends.begin_of(length, begin)
    if (end - begin) / length > _MOST_STEPS:
        raise ConfigurationError(
            f"from {begin} to {end} there would be more than {_MOST_STEPS:,} steps of {length}; "
            "ask for longer steps or a shorter time"
        )
    return ops.trends.Span(begin, end, length)


def _check_counted(label: str, given: object) -> datetime:
    """Return a time from which steps can be counted in either direction."""
    moment = check_time(label, given)
    if not 1970 <= moment.year <= 9000:
        raise ConfigurationError(f"{label} must lie in the years 1970 to 9000, got {moment}")
    return moment


def _shortest_step(duration: timedelta) -> timedelta:
    return next((step for step in _STEPS if duration / step <= _STEPS_SHOWN), _STEPS[-1])
