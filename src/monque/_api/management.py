"""The operator's side of `Monque`: act on jobs, one and many."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any, overload

from bson import ObjectId

from monque._api import acting, jobs
from monque._api.auditing import Auditing
from monque._api.explaining import Explaining
from monque._api.insight import Insight
from monque._api.jobs import Looking, reading
from monque._api.life import Opening, Processing
from monque._api.schedule_management import ScheduleManagement
from monque._engine.waits import Waits
from monque._ops import bulk
from monque._ops.bulk import read_piece
from monque._store import filters
from monque._store.job import to_job, worker_of
from monque._store.store import Store
from monque._time.clock import elapsed
from monque._values.errors import driver_errors
from monque._values.events import (
    EventBus,
    JobCancelled,
    JobCancelling,
    JobDeleted,
    JobRetried,
    JobsCancelled,
    JobsDeleted,
    JobsRetried,
)
from monque._values.job import Job, R
from monque._values.options import Options, UseName, check_uses
from monque._values.rules import check_end, check_flag, check_name, check_priority, check_reason, check_run_at
from monque._values.status import JobStatus
from monque._values.views import BulkResult, JobFilter, Pause, check_filter, check_piece, check_spread
from monque._workers.results import rebuilt
from monque._workers.workers import Workers


class Management(Looking, ScheduleManagement, Auditing, Insight, Explaining):
    """Methods to act on jobs; `Monque` has them all, and those to inspect them."""

    _opening: Opening
    _processing: Processing
    _options: Options
    _bus: EventBus
    _workers: Workers

    async def pause(
        self,
        name: str | None = None,
        *,
        until: datetime | timedelta | None = None,
        reason: str | None = None,
        by: str | None = None,
    ) -> Pause:
        """Start no more jobs of a name, on all instances, until it is resumed.

        Two seconds after this has returned, no instance starts a job of that name. What runs goes on, and
        jobs can be stored, cancelled and retried as ever. The pause survives restarts, and counts for
        instances that start later. It takes the place of an earlier pause of the same name.

        Args:
            name: The job name, whether anybody serves it or not; None for all names.
            until: When the pause ends by itself: a time, or how long from now. None: `resume` ends it.
            reason: Shown to whoever asks what is paused.
            by: Who wants it. None: the id of this instance.

        Raises:
            ConnectionError: The user may not write to the collection of the control document, which is
                named like the jobs collection with `_control` behind it.

        Examples:
            >>> await monque.pause("charge-card", until=timedelta(hours=1), reason="the bank is down")
        """
        store, name = self._store(), None if name is None else check_name(name)
        until, reason = check_end("until", until), check_reason(reason)
        by = check_reason(by, "by") or store.instance_id
        sent = elapsed()
        with driver_errors("pause the jobs"):
            settings = await store.control.pause(name, until=until, reason=reason, by=by)
        self._processing.learn(settings, sent)
        return settings.pauses[name]

    async def resume(self, name: str | None = None) -> bool:
        """Let jobs of a paused name start again, within two seconds; return False if it was not paused.

        Args:
            name: The job name. None ends the pause of all names; names that are paused by themselves stay so.

        Raises:
            ConnectionError: The user may not write to the collection of the control document.
        """
        store, name = self._store(), None if name is None else check_name(name)
        sent = elapsed()
        with driver_errors("resume the jobs"):
            settings, was_paused = await store.control.resume(name, store.clock.now())
        self._processing.learn(settings, sent)
        return was_paused

    async def paused(self, *, max_time: timedelta | None = None) -> list[Pause]:
        """The pauses in force: that of all names first (its name is None), then by name."""
        store = self._store()
        with reading("read what is paused", max_time):
            return (await store.control.read()).in_force(store.clock.now())

    async def cancel_job(
        self,
        id: Job[Any] | ObjectId | str,  # noqa: A002 - part of the public API
        *,
        running: bool = False,
        reason: str | None = None,
    ) -> Job[Any]:
        """Keep a pending job from running or, if *running*, ask for the end of one that runs.

        A running job is returned as it then is: processing, with `cancel_requested`. Its handler is told to
        stop, in under a second as a rule: a coroutine is cancelled, a thread sees `Job.interrupted`. If it
        ends by that, or with any error, the job is cancelled; if it returns, the job is completed.

        Cancelling a cancelled job returns it, and a second request changes nothing; neither emits an event.

        Args:
            id: The job, or its id.
            running: Also if it is processing.
            reason: Why, for whoever looks at the job later; at most 1,000 characters.

        Raises:
            JobNotFoundError: There is no such job.
            JobStateError: It is completed or failed, or it is processing and *running* is False.

        Examples:
            >>> job = await monque.cancel_job(job.id, running=True, reason="wrong customer")
        """
        store, reason = self._store(), check_reason(reason)
        with driver_errors("cancel the job"):
            act = acting.stop if check_flag("running", running) else acting.cancel
            after, is_new = await act(store, id, reason)
        job = to_job(after, store.read)
        if is_new:
            runs = job.status is JobStatus.PROCESSING
            self._bus.emit(JobCancelling(job=job) if runs else JobCancelled(job=job))
        return job

    async def retry_job(self, id: Job[Any] | ObjectId | str) -> Job[Any]:  # noqa: A002 - part of the public API
        """Make a failed or cancelled job pending again: due now, with all its retries left.

        Raises:
            JobNotFoundError: There is no such job.
            JobStateError: It is pending, processing or completed, or its unique key is taken.
        """
        store = self._store()
        with driver_errors("retry the job"):
            after, previous = await acting.retry(store, id)
        self._processing.wake([after])
        job = to_job(after, store.read)
        self._bus.emit(JobRetried(job=job, previous_status=previous))
        return job

    async def reschedule_job(self, id: Job[Any] | ObjectId | str, run_at: datetime) -> Job[Any]:  # noqa: A002
        """Let a pending job run at another time.

        Raises:
            JobNotFoundError: There is no such job.
            JobStateError: It is not pending.
        """
        store, run_at = self._store(), check_run_at("run_at", run_at)
        with driver_errors("reschedule the job"):
            after = await acting.reschedule(store, id, run_at)
        self._processing.wake([after])
        return to_job(after, store.read)

    async def run_now(self, id: Job[Any] | ObjectId | str) -> Job[Any]:  # noqa: A002 - part of the public API
        """Let a pending job run now instead of later. One that is due already is returned as it is.

        A schedule is triggered, as by `trigger_schedule`: its times stay as they are, one that runs does so
        once more, and one with `as_jobs` stores an extra job, which is returned.

        Raises:
            JobNotFoundError: There is no such job.
            JobStateError: It is not pending, or it is parked: it waits for something else than a time.

        Examples:
            >>> job = await monque.run_now(job.id)
        """
        store = self._store()
        with driver_errors("run the job"):
            after = await acting.run_now(store, id)
        self._processing.wake([after])
        return to_job(after, store.read)

    async def set_priority(
        self,
        id: Job[Any] | ObjectId | str,  # noqa: A002 - part of the public API
        priority: int,
    ) -> Job[Any]:
        """Let a pending job come before or after others from now on.

        Args:
            id: The job, or its id.
            priority: From 0 (normal) to 9, which comes first.

        Raises:
            JobNotFoundError: There is no such job.
            JobStateError: It is not pending.
            ConfigurationError: The priority is none; or there is no index for priorities, and
                `Options.create_indexes` is False.

        Examples:
            >>> await monque.set_priority(job.id, 9)
        """
        store, priority = self._store(), check_priority(priority)
        with driver_errors("change the priority of the job"):
            await self._begin_priorities(store, priority)
            after = await acting.set_priority(store, id, priority)
        self._processing.wake([after])
        return to_job(after, store.read)

    async def set_priorities(
        self,
        filter: JobFilter,  # noqa: A002 - part of the public API
        priority: int,
        *,
        limit: int | None = None,
        after: ObjectId | str | None = None,
    ) -> BulkResult:
        """Let all pending jobs that match come before or after others; others are left alone.

        Args:
            filter: Which jobs; `JobFilter()` means all.
            priority: From 0 (normal) to 9, which comes first.
            limit: Only a piece, as in `delete_jobs`.
            after: Where the piece begins.

        Returns:
            How many pending jobs have this priority now because they match.

        Examples:
            >>> await monque.set_priorities(JobFilter(name="invoice", created_before=monday), 1)
        """
        store, query = self._store(), filters.matching(check_filter(filter))
        priority = check_priority(priority)
        check_piece(limit, after)
        with driver_errors("change the priorities of the jobs"):
            await self._begin_priorities(store, priority)
            piece = await read_piece(store.collection, query, limit=limit, after=after)
            count = await bulk.set_priority_many(store.collection, piece.query, priority=priority)
        if count and priority:
            self._processing.wake_all(urgent=True)
        return BulkResult(
            count=count,
            errors=[],
            skipped=piece.skipped("pending"),
            next=piece.next,
            job_ids=piece.met("pending"),
        )

    async def _begin_priorities(self, store: Store, priority: int) -> None:
        """A job that was stored without a priority may get one: the use begins with it."""
        if priority:
            await self._begin(store, "priority")

    async def begin_use(self, name: UseName) -> None:
        """Create the index of a use now, as `Options.uses` does at open; nothing happens if it has begun.

        Args:
            name: Which use: `failures`, whose index lists failed and cancelled jobs, or one that the first
                job of its kind begins anyway.

        Raises:
            ConfigurationError: There is no such use; or its index is missing, and `Options.create_indexes` is
                False; or an index of the collection stands in its way.

        Examples:
            >>> await monque.begin_use("failures")
        """
        (name,), store = check_uses((name,)), self._store()
        with driver_errors("begin the use"):
            await self._begin(store, name)

    async def _begin(self, store: Store, use: UseName) -> None:
        sent = elapsed()
        if (settings := await store.uses.begin(use)) is not None:
            self._processing.learn(settings, sent)

    async def wait_for(self, job: Job[Any] | ObjectId | str, *, timeout: timedelta | None = None) -> Job[Any]:
        """Wait until a job is completed, failed or cancelled, and return it as it then is.

        Whoever runs the job: it works in processes that never call `start()`, and survives failovers of the
        database. The answer comes at once if this instance runs the job, and else late by a tenth of the time
        waited at most, and by a second at most. All waits of an instance share one read.

        Args:
            job: The job, or its id. One that was stored in a transaction exists when that has committed.
            timeout: How long to wait; None for any time.

        Raises:
            WaitTimeoutError: The time is up; the job goes on.
            JobNotFoundError: There is no such job, or it was deleted meanwhile.
            JobStateError: It is a schedule, which has no end.
            NotOpenError: The instance was closed meanwhile.

        Examples:
            >>> await monque.cancel_job(job.id, running=True)
            >>> job = await monque.wait_for(job, timeout=timedelta(minutes=1))
        """
        return to_job(await jobs.ended(self._waits(), job, timeout), self._store().read)

    @overload
    async def result_of(self, job: Job[Any, R], *, timeout: timedelta | None = None) -> R: ...

    @overload
    async def result_of(self, job: ObjectId | str, *, timeout: timedelta | None = None) -> Any: ...

    async def result_of(self, job: Job[Any] | ObjectId | str, *, timeout: timedelta | None = None) -> Any:
        """Wait for the end of a job as `wait_for` does, and return what its handler returned.

        Of the job that a call with a `Worker` has returned, it has the type that the handler's annotation
        names, and type checkers know it. Of any other job, and of an id, it is as it is stored: dataclasses
        and models are dicts, times are in UTC. So is one that does not fit the annotation, such as the result
        of a `complete_in`.

        Args:
            job: The job, or its id. Its worker, or the call that stored it, has set `store_result`.
            timeout: How long to wait; None for any time.

        Raises:
            JobFailedError: It failed for good; the error has the `job`.
            JobCancelledError: It was cancelled; the error has the `job`.
            ResultError: No result was stored: nobody asked for it, or it could not be stored.
            WaitTimeoutError: As in `wait_for`, and so are the other errors.

        Examples:
            >>> job = await render.enqueue(Page(3), store_result=True)
            >>> pdf = await monque.result_of(job, timeout=timedelta(minutes=2))
        """
        stored = jobs.result_in(await jobs.ended(self._waits(), job, timeout), self._store().read)
        worker = worker_of(job) if isinstance(job, Job) else None
        return stored if worker is None else rebuilt(stored, worker)

    async def delete_job(self, id: Job[Any] | ObjectId | str) -> None:  # noqa: A002 - part of the public API
        """Remove a job in any state. If it runs, its handler is cancelled as soon as its instance notices.

        Raises:
            JobNotFoundError: There is no such job.
        """
        store = self._store()
        with driver_errors("delete the job"):
            job_id = await acting.delete(store, id)
        self._bus.emit(JobDeleted(job_id=job_id))

    async def cancel_jobs(
        self,
        filter: JobFilter,  # noqa: A002 - part of the public API
        *,
        running: bool = False,
        reason: str | None = None,
        limit: int | None = None,
        after: ObjectId | str | None = None,
    ) -> BulkResult:
        """Cancel all pending jobs that match and, if *running*, ask for the end of those that run.

        Others are left alone. `JobFilter()` means all.

        Args:
            filter: Which jobs.
            running: Also those that are processing; see `cancel_job`. They emit no `job:cancelling`.
            reason: Why; at most 1,000 characters.
            limit: Only a piece, as in `delete_jobs`.
            after: Where the piece begins.

        Returns:
            How many were cancelled; `requested` says how many run and were asked to stop.
        """
        store, query, reason = self._store(), filters.matching(check_filter(filter)), check_reason(reason)
        running, applicable = check_flag("running", running), ("pending", "processing")[: 1 + running]
        check_piece(limit, after)
        with driver_errors("cancel the jobs"):
            piece = await read_piece(store.collection, query, limit=limit, after=after)
            count, requested = await acting.cancel_many(store, piece.query, running=running, reason=reason)
        if count:
            self._bus.emit(JobsCancelled(count=count))
        return BulkResult(
            count=count,
            errors=[],
            requested=requested,
            skipped=piece.skipped(*applicable),
            next=piece.next,
            job_ids=piece.met(*applicable),
        )

    async def retry_jobs(
        self,
        filter: JobFilter,  # noqa: A002 - part of the public API
        *,
        spread: timedelta = timedelta(0),
        limit: int | None = None,
        after: ObjectId | str | None = None,
    ) -> BulkResult:
        """Make all failed and cancelled jobs that match pending again; others are left alone.

        Args:
            filter: Which jobs; `JobFilter()` means all.
            spread: Let them become due at random times within this duration instead of all at once,
                so that what they call is not overrun.
            limit: Only a piece, as in `delete_jobs`.
            after: Where the piece begins.

        Returns:
            How many are pending again; `errors` lists those whose unique key is taken.
        """
        store, query = self._store(), filters.matching(check_filter(filter))
        check_spread(spread)
        check_piece(limit, after)
        with driver_errors("retry the jobs"):
            piece = await read_piece(store.collection, query, limit=limit, after=after)
            count, errors = await bulk.retry_many(store.collection, piece.query, spread=spread)
        if count:
            self._processing.wake_all()
            self._bus.emit(JobsRetried(count=count))
        return BulkResult(
            count=count,
            errors=errors,
            skipped=piece.skipped("failed", "cancelled"),
            next=piece.next,
            job_ids=piece.met("failed", "cancelled"),
        )

    async def delete_jobs(
        self,
        filter: JobFilter,  # noqa: A002 - part of the public API
        *,
        limit: int | None = None,
        after: ObjectId | str | None = None,
    ) -> BulkResult:
        """Remove all jobs that match, in any state. `JobFilter()` means all.

        Args:
            filter: Which jobs.
            limit: Only a piece: the first so many jobs that match, in the order of their ids; 1 to 10,000.
                `BulkResult.next` says where the next piece begins.
            after: Where the piece begins: the `next` of the one before.

        Examples:
            >>> old, after, more = JobFilter(status="completed"), None, True
            >>> while more:
            ...     piece = await monque.delete_jobs(old, limit=1000, after=after)
            ...     after, more = piece.next, piece.next is not None
        """
        store, query = self._store(), filters.matching(check_filter(filter))
        check_piece(limit, after)
        with driver_errors("delete the jobs"):
            piece = await read_piece(store.collection, query, limit=limit, after=after)
            count = await bulk.delete_many(store.collection, piece.query)
        if count:
            self._bus.emit(JobsDeleted(count=count))
        return BulkResult(count=count, errors=[], next=piece.next, job_ids=piece.met())

    def _waits(self) -> Waits:
        return self._opening.here().context.waits
