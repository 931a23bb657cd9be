"""Methods of `SyncMonque`. `make sync` (tools/make_sync.py) writes this file: do not edit it."""
# ruff: noqa: A002 - the names of parameters are those of `Monque`

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta, tzinfo
from typing import Any, Literal, Unpack, overload

from bson import ObjectId

from monque import (
    AuditPage,
    BulkResult,
    Diagnosis,
    Direction,
    EnqueueOptions,
    Explanation,
    FailureRow,
    Instance,
    Job,
    JobCounts,
    JobFilter,
    JobPage,
    JobSettings,
    JobStatus,
    JobUpdate,
    Line,
    Middleware,
    Operation,
    OperationOptions,
    Options,
    Overlap,
    Pause,
    QueueDepth,
    QueueStats,
    QueueView,
    Schedule,
    ScheduleOptions,
    SlowestJobs,
    Slowness,
    Sort,
    State,
    StatusName,
    SyncMiddleware,
    TrendPoint,
    UseName,
    Worker,
    Workers,
)
from monque.sync.loop_thread import Blocking, R, Session, T


class _Twins(Blocking):
    """Methods that wait for those of the same name in `Monque`."""

    def act(
        self,
        operation: Operation | str,
        job: Job[Any] | ObjectId | str,
        *,
        note: str | None = None,
        **options: Unpack[OperationOptions],
    ) -> Job[Any] | None:
        """As `Monque.act`."""
        return self._call(self._monque.act(operation, job, note=note, **options))

    def add_middleware(self, middleware: Middleware | SyncMiddleware) -> None:
        """As `Monque.add_middleware`."""
        return self._monque.add_middleware(middleware)

    def audit(
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
        """As `Monque.audit`."""
        return self._call(
            self._monque.audit(
                job=job,
                actor=actor,
                action=action,
                since=since,
                until=until,
                cursor=cursor,
                limit=limit,
                max_time=max_time,
            )
        )

    def begin_use(self, name: UseName) -> None:
        """As `Monque.begin_use`."""
        return self._call(self._monque.begin_use(name))

    def cancel_job(
        self, id: Job[Any] | ObjectId | str, *, running: bool = False, reason: str | None = None
    ) -> Job[Any]:
        """As `Monque.cancel_job`."""
        return self._call(self._monque.cancel_job(id, running=running, reason=reason))

    def cancel_jobs(
        self,
        filter: JobFilter,
        *,
        running: bool = False,
        reason: str | None = None,
        limit: int | None = None,
        after: ObjectId | str | None = None,
    ) -> BulkResult:
        """As `Monque.cancel_jobs`."""
        return self._call(
            self._monque.cancel_jobs(filter, running=running, reason=reason, limit=limit, after=after)
        )

    @property
    def companions(self) -> Mapping[str, bool]:
        """As `Monque.companions`."""
        return self._monque.companions

    def count_jobs(
        self, filter: JobFilter = JobFilter(), *, limit: int | None = None, max_time: timedelta | None = None
    ) -> int:
        """As `Monque.count_jobs`."""
        return self._call(self._monque.count_jobs(filter, limit=limit, max_time=max_time))

    def delete_job(self, id: Job[Any] | ObjectId | str) -> None:
        """As `Monque.delete_job`."""
        return self._call(self._monque.delete_job(id))

    def delete_jobs(
        self, filter: JobFilter, *, limit: int | None = None, after: ObjectId | str | None = None
    ) -> BulkResult:
        """As `Monque.delete_jobs`."""
        return self._call(self._monque.delete_jobs(filter, limit=limit, after=after))

    def diagnose(self, *, uses: Collection[UseName] = (), max_time: timedelta | None = None) -> Diagnosis:
        """As `Monque.diagnose`."""
        return self._call(self._monque.diagnose(uses=uses, max_time=max_time))

    def edit_job(
        self,
        id: Job[Any] | ObjectId | str,
        *,
        data: Any = ...,
        run_at: datetime | None = None,
        priority: int | None = None,
    ) -> Job[Any]:
        """As `Monque.edit_job`."""
        return self._call(self._monque.edit_job(id, data=data, run_at=run_at, priority=priority))

    def edit_schedule(
        self,
        name: str,
        unique_key: str | None = None,
        *,
        cron: str | timedelta | None = None,
        timezone: str | None = None,
        data: Any = ...,
    ) -> Schedule:
        """As `Monque.edit_schedule`."""
        return self._call(
            self._monque.edit_schedule(name, unique_key, cron=cron, timezone=timezone, data=data)
        )

    @overload
    def enqueue(
        self, job: Worker[None, R] | str, data: None = None, **options: Unpack[EnqueueOptions]
    ) -> Job[None, R]: ...

    @overload
    def enqueue(self, job: Worker[T, R] | str, data: T, **options: Unpack[EnqueueOptions]) -> Job[T, R]: ...

    def enqueue(
        self,
        job: Worker[Any] | str,
        data: Any = None,
        *,
        run_at: datetime | None = None,
        delay: timedelta | None = None,
        unique_key: str | None = None,
        session: Session | None = None,
        **settings: Unpack[JobSettings],
    ) -> Job[Any]:
        """As `Monque.enqueue`."""
        return self._call(
            self._monque.enqueue(
                job, data, run_at=run_at, delay=delay, unique_key=unique_key, session=session, **settings
            )
        )

    def estimated_count(self, *, max_time: timedelta | None = None) -> int:
        """As `Monque.estimated_count`."""
        return self._call(self._monque.estimated_count(max_time=max_time))

    def explain(
        self, id: Job[Any] | ObjectId | str, *, texts: bool = True, max_time: timedelta | None = None
    ) -> Explanation:
        """As `Monque.explain`."""
        return self._call(self._monque.explain(id, texts=texts, max_time=max_time))

    def get_job(self, id: Job[Any] | ObjectId | str, *, max_time: timedelta | None = None) -> Job[Any] | None:
        """As `Monque.get_job`."""
        return self._call(self._monque.get_job(id, max_time=max_time))

    def get_jobs(
        self,
        *,
        name: str | None = None,
        status: JobStatus | StatusName | Iterable[JobStatus | StatusName] | None = None,
        limit: int = 100,
        skip: int = 0,
        max_time: timedelta | None = None,
    ) -> list[Job[Any]]:
        """As `Monque.get_jobs`."""
        return self._call(
            self._monque.get_jobs(name=name, status=status, limit=limit, skip=skip, max_time=max_time)
        )

    def get_schedule(
        self, name: str, unique_key: str | None = None, *, max_time: timedelta | None = None
    ) -> Schedule:
        """As `Monque.get_schedule`."""
        return self._call(self._monque.get_schedule(name, unique_key, max_time=max_time))

    @property
    def instance_id(self) -> str:
        """As `Monque.instance_id`."""
        return self._monque.instance_id

    def instances(self, *, max_time: timedelta | None = None) -> list[Instance]:
        """As `Monque.instances`."""
        return self._call(self._monque.instances(max_time=max_time))

    def is_healthy(self) -> bool:
        """As `Monque.is_healthy`."""
        return self._monque.is_healthy()

    def iter_jobs(
        self,
        filter: JobFilter = JobFilter(),
        *,
        cursor: str | None = None,
        limit: int = 200,
        direction: Direction = "forward",
        sort: Sort = "id",
        descending: bool = False,
        payload_limit: int | None = None,
        max_time: timedelta | None = None,
    ) -> Iterator[Job[Any]]:
        """As `Monque.iter_jobs`."""
        yield from self._each(
            self._monque.iter_jobs(
                filter,
                cursor=cursor,
                limit=limit,
                direction=direction,
                sort=sort,
                descending=descending,
                payload_limit=payload_limit,
                max_time=max_time,
            )
        )

    def job_counts(
        self, filter: JobFilter = JobFilter(), *, limit: int = 100000, max_time: timedelta | None = None
    ) -> JobCounts:
        """As `Monque.job_counts`."""
        return self._call(self._monque.job_counts(filter, limit=limit, max_time=max_time))

    def jobs_ahead(
        self, job: Job[Any] | ObjectId | str, *, limit: int = 10000, max_time: timedelta | None = None
    ) -> int:
        """As `Monque.jobs_ahead`."""
        return self._call(self._monque.jobs_ahead(job, limit=limit, max_time=max_time))

    def lines(
        self, name: Worker[Any] | str, *, limit: int = 100, max_time: timedelta | None = None
    ) -> list[Line]:
        """As `Monque.lines`."""
        return self._call(self._monque.lines(name, limit=limit, max_time=max_time))

    def list_jobs(
        self,
        filter: JobFilter = JobFilter(),
        *,
        cursor: str | None = None,
        limit: int = 50,
        direction: Direction = "forward",
        sort: Sort = "id",
        descending: bool = False,
        payload_limit: int | None = None,
        max_time: timedelta | None = None,
    ) -> JobPage:
        """As `Monque.list_jobs`."""
        return self._call(
            self._monque.list_jobs(
                filter,
                cursor=cursor,
                limit=limit,
                direction=direction,
                sort=sort,
                descending=descending,
                payload_limit=payload_limit,
                max_time=max_time,
            )
        )

    def list_schedules(self, *, name: str | None = None, max_time: timedelta | None = None) -> list[Schedule]:
        """As `Monque.list_schedules`."""
        return self._call(self._monque.list_schedules(name=name, max_time=max_time))

    def look_for_dead(self) -> None:
        """As `Monque.look_for_dead`."""
        return self._monque.look_for_dead()

    @overload
    def now(
        self, name: Worker[None, R] | str, data: None = None, **settings: Unpack[JobSettings]
    ) -> Job[None, R]: ...

    @overload
    def now(self, name: Worker[T, R] | str, data: T, **settings: Unpack[JobSettings]) -> Job[T, R]: ...

    def now(self, name: Worker[Any] | str, data: Any = None, **settings: Unpack[JobSettings]) -> Job[Any]:
        """As `Monque.now`."""
        return self._call(self._monque.now(name, data, **settings))

    @property
    def options(self) -> Options:
        """As `Monque.options`."""
        return self._monque.options

    def pause(
        self,
        name: str | None = None,
        *,
        until: datetime | timedelta | None = None,
        reason: str | None = None,
        by: str | None = None,
    ) -> Pause:
        """As `Monque.pause`."""
        return self._call(self._monque.pause(name, until=until, reason=reason, by=by))

    def pause_schedule(self, name: str, unique_key: str | None = None) -> Schedule:
        """As `Monque.pause_schedule`."""
        return self._call(self._monque.pause_schedule(name, unique_key))

    def paused(self, *, max_time: timedelta | None = None) -> list[Pause]:
        """As `Monque.paused`."""
        return self._call(self._monque.paused(max_time=max_time))

    def queue_depths(self, *, failures: bool = False, max_time: timedelta | None = None) -> list[QueueDepth]:
        """As `Monque.queue_depths`."""
        return self._call(self._monque.queue_depths(failures=failures, max_time=max_time))

    def queue_stats(
        self, *, name: str | None = None, batch: str | None = None, max_time: timedelta | None = None
    ) -> QueueStats:
        """As `Monque.queue_stats`."""
        return self._call(self._monque.queue_stats(name=name, batch=batch, max_time=max_time))

    def queue_views(self, *, max_time: timedelta | None = None) -> list[QueueView]:
        """As `Monque.queue_views`."""
        return self._call(self._monque.queue_views(max_time=max_time))

    def recent_failures(
        self,
        *,
        name: str | None = None,
        since: datetime | None = None,
        cancelled: bool = False,
        limit: int = 10000,
        max_time: timedelta | None = None,
    ) -> list[FailureRow]:
        """As `Monque.recent_failures`."""
        return self._call(
            self._monque.recent_failures(
                name=name, since=since, cancelled=cancelled, limit=limit, max_time=max_time
            )
        )

    def reconfigure(self, *, database: object = None, options: Options | None = None) -> None:
        """As `Monque.reconfigure`."""
        return self._monque.reconfigure(database=database, options=options)

    def record_action(
        self,
        *,
        actor: str,
        via: Literal["web", "cli"],
        action: str,
        outcome: Literal["done", "refused", "failed"],
        job_id: Job[Any] | ObjectId | str | None = None,
        job_ids: Sequence[Job[Any] | ObjectId | str] = (),
        name: str | None = None,
        filter: JobFilter | Mapping[str, Any] | None = None,
        count: int | None = None,
        errors: int | None = None,
        before: Job[Any] | Schedule | Mapping[str, Any] | None = None,
        after: Job[Any] | Schedule | Mapping[str, Any] | None = None,
        note: str | None = None,
        address: str | None = None,
        request_id: str | None = None,
    ) -> None:
        """As `Monque.record_action`."""
        return self._call(
            self._monque.record_action(
                actor=actor,
                via=via,
                action=action,
                outcome=outcome,
                job_id=job_id,
                job_ids=job_ids,
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
        )

    def reschedule_job(self, id: Job[Any] | ObjectId | str, run_at: datetime) -> Job[Any]:
        """As `Monque.reschedule_job`."""
        return self._call(self._monque.reschedule_job(id, run_at))

    @overload
    def result_of(self, job: Job[Any, R], *, timeout: timedelta | None = None) -> R: ...

    @overload
    def result_of(self, job: ObjectId | str, *, timeout: timedelta | None = None) -> Any: ...

    def result_of(self, job: Job[Any] | ObjectId | str, *, timeout: timedelta | None = None) -> Any:
        """As `Monque.result_of`."""
        return self._call(self._monque.result_of(job, timeout=timeout))

    def resume(self, name: str | None = None) -> bool:
        """As `Monque.resume`."""
        return self._call(self._monque.resume(name))

    def resume_schedule(self, name: str, unique_key: str | None = None) -> Schedule:
        """As `Monque.resume_schedule`."""
        return self._call(self._monque.resume_schedule(name, unique_key))

    def retry_job(
        self, id: Job[Any] | ObjectId | str, *, from_step: str | None = None, from_start: bool = False
    ) -> Job[Any]:
        """As `Monque.retry_job`."""
        return self._call(self._monque.retry_job(id, from_step=from_step, from_start=from_start))

    def retry_jobs(
        self,
        filter: JobFilter,
        *,
        spread: timedelta = timedelta(0),
        limit: int | None = None,
        after: ObjectId | str | None = None,
    ) -> BulkResult:
        """As `Monque.retry_jobs`."""
        return self._call(self._monque.retry_jobs(filter, spread=spread, limit=limit, after=after))

    def run_now(self, id: Job[Any] | ObjectId | str) -> Job[Any]:
        """As `Monque.run_now`."""
        return self._call(self._monque.run_now(id))

    @overload
    def schedule(
        self,
        cron: str | timedelta,
        job: Worker[None] | str,
        data: None = None,
        **options: Unpack[ScheduleOptions],
    ) -> Job[None]: ...

    @overload
    def schedule(
        self, cron: str | timedelta, job: Worker[T] | str, data: T, **options: Unpack[ScheduleOptions]
    ) -> Job[T]: ...

    def schedule(
        self,
        cron: str | timedelta,
        job: Worker[Any] | str,
        data: Any = None,
        *,
        unique_key: str | None = None,
        timezone: str | tzinfo = "UTC",
        session: Session | None = None,
        grace: timedelta | None = None,
        jitter: timedelta | None = None,
        start: datetime | None = None,
        end: datetime | None = None,
        limit: int | None = None,
        as_jobs: bool = False,
        overlap: Overlap = "allow",
        paused: bool = False,
        run_now: bool = False,
        **settings: Unpack[JobSettings],
    ) -> Job[Any]:
        """As `Monque.schedule`."""
        return self._call(
            self._monque.schedule(
                cron,
                job,
                data,
                unique_key=unique_key,
                timezone=timezone,
                session=session,
                grace=grace,
                jitter=jitter,
                start=start,
                end=end,
                limit=limit,
                as_jobs=as_jobs,
                overlap=overlap,
                paused=paused,
                run_now=run_now,
                **settings,
            )
        )

    def set_priorities(
        self,
        filter: JobFilter,
        priority: int,
        *,
        limit: int | None = None,
        after: ObjectId | str | None = None,
    ) -> BulkResult:
        """As `Monque.set_priorities`."""
        return self._call(self._monque.set_priorities(filter, priority, limit=limit, after=after))

    def set_priority(self, id: Job[Any] | ObjectId | str, priority: int) -> Job[Any]:
        """As `Monque.set_priority`."""
        return self._call(self._monque.set_priority(id, priority))

    def signal(
        self,
        job: Job[Any] | Worker[Any] | ObjectId | str,
        name: str,
        data: Any = None,
        *,
        unique_key: str | None = None,
        id: str | None = None,
        session: Session | None = None,
    ) -> bool:
        """As `Monque.signal`."""
        return self._call(self._monque.signal(job, name, data, unique_key=unique_key, id=id, session=session))

    def slowest_jobs(
        self,
        filter: JobFilter = JobFilter(),
        *,
        by: Slowness = "ran",
        each_name: bool = False,
        limit: int = 50,
        payload_limit: int | None = None,
        max_time: timedelta | None = None,
    ) -> SlowestJobs:
        """As `Monque.slowest_jobs`."""
        return self._call(
            self._monque.slowest_jobs(
                filter,
                by=by,
                each_name=each_name,
                limit=limit,
                payload_limit=payload_limit,
                max_time=max_time,
            )
        )

    @property
    def state(self) -> State:
        """As `Monque.state`."""
        return self._monque.state

    def trends(
        self,
        *,
        name: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        step: timedelta | None = None,
        by_name: bool = False,
        max_time: timedelta | None = None,
    ) -> list[TrendPoint]:
        """As `Monque.trends`."""
        return self._call(
            self._monque.trends(
                name=name, since=since, until=until, step=step, by_name=by_name, max_time=max_time
            )
        )

    def trigger_schedule(self, name: str, unique_key: str | None = None) -> Job[Any]:
        """As `Monque.trigger_schedule`."""
        return self._call(self._monque.trigger_schedule(name, unique_key))

    def unschedule(self, name: str, unique_key: str | None = None) -> bool:
        """As `Monque.unschedule`."""
        return self._call(self._monque.unschedule(name, unique_key))

    def wait_for(self, job: Job[Any] | ObjectId | str, *, timeout: timedelta | None = None) -> Job[Any]:
        """As `Monque.wait_for`."""
        return self._call(self._monque.wait_for(job, timeout=timeout))

    def watch(
        self, job: Job[Any] | ObjectId | str, *, timeout: timedelta | None = None
    ) -> Iterator[JobUpdate]:
        """As `Monque.watch`."""
        yield from self._each(self._monque.watch(job, timeout=timeout))

    @property
    def workers(self) -> Workers:
        """As `Monque.workers`."""
        return self._monque.workers
