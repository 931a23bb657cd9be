"""Monque for code that does not use asyncio: scripts, Flask, Django.

A thin facade: an event loop in a thread of its own runs a `Monque`, and every method waits for the
one of the same name there. A test holds the signatures to each other.
"""

from __future__ import annotations

import asyncio
import os
import threading
import weakref
from collections.abc import (
    AsyncIterable,
    AsyncIterator,
    Callable,
    Collection,
    Coroutine,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from concurrent.futures import CancelledError, Future, InvalidStateError, wait
from contextlib import AbstractAsyncContextManager, AbstractContextManager, suppress
from dataclasses import fields
from datetime import datetime, timedelta, tzinfo
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Protocol, Self, TypeAlias, Unpack, cast, overload

from bson import ObjectId
from pymongo import AsyncMongoClient
from pymongo.asynchronous.client_session import AsyncClientSession
from pymongo.asynchronous.database import AsyncDatabase
from pymongo.client_session import ClientSession

from monque import (
    AuditPage,
    BulkResult,
    ConfigurationError,
    Diagnosis,
    Direction,
    EnqueueOptions,
    Event,
    EventKind,
    Explanation,
    FailedJob,
    Instance,
    Job,
    JobCounts,
    JobFilter,
    JobPage,
    JobSettings,
    JobStatus,
    Monque,
    NewJob,
    NotOpenError,
    Observer,
    Options,
    Overlap,
    Pause,
    QueueDepth,
    QueueStats,
    QueueView,
    Schedule,
    ScheduleOptions,
    Sort,
    State,
    StatusName,
    TrendPoint,
    UseName,
    Worker,
    Workers,
    WorkerSettings,
)
from monque._errands import Errands
from monque._signals import installed_for_threads

if TYPE_CHECKING:
    from typing_extensions import TypeVar  # type checkers know it, also where it is not installed

    R = TypeVar("R", default=Any)
    R_co = TypeVar("R_co", default=Any, covariant=True)
else:
    from typing import TypeVar

    R, R_co = TypeVar("R"), TypeVar("R_co")

T = TypeVar("T")
M = TypeVar("M")
Handler = Callable[[Job[T]], Any]
HookT = TypeVar("HookT", bound=Callable[[], Any])
Lifespan: TypeAlias = Callable[
    ["SyncMonque"],
    AbstractContextManager[Mapping[str, Any] | None] | AbstractAsyncContextManager[Mapping[str, Any] | None],
]
Session: TypeAlias = AsyncClientSession | ClientSession
OnProgress: TypeAlias = Callable[[int], object]


def _typed_as(_twin: M) -> Callable[[Callable[..., Any]], M]:
    """Let type checkers judge a method as its twin in `Monque`. At run time it is the method itself."""
    return lambda method: cast("M", method)


class SyncWorker(Worker[T, R_co]):
    """A `Worker` whose methods block: what `SyncMonque.worker` and `SyncWorkers.worker` return.

    Examples:
        >>> @monque.worker("send-email")
        ... def send_email(job: Job[Email]) -> None: ...
        >>> send_email.enqueue(Email(to="ada@example.org"), delay=timedelta(minutes=5))
    """

    __slots__ = ()
    _advice = "hand its SyncWorkers() to SyncMonque(workers=...)"

    # Both block, so neither returns what the methods of a `Worker` do.
    @overload  # type: ignore[override]  # it blocks, where `Worker` awaits
    def enqueue(
        self: SyncWorker[None, R], data: None = None, **options: Unpack[EnqueueOptions]
    ) -> Job[None, R]: ...

    @overload
    def enqueue(self, data: T, **options: Unpack[EnqueueOptions]) -> Job[T, R_co]: ...

    def enqueue(self, data: Any = None, **options: Unpack[EnqueueOptions]) -> Job[Any]:
        """As `Worker.enqueue`."""
        owner = self._home.owner(self.name, self._advice, blocking=True)
        job: Job[Any] = owner.enqueue(self, data, **options)
        return job

    @overload  # type: ignore[override]  # it blocks, where `Worker` awaits
    def schedule(
        self: SyncWorker[None], cron: str | timedelta, data: None = None, **options: Unpack[ScheduleOptions]
    ) -> Job[None]: ...

    @overload
    def schedule(self, cron: str | timedelta, data: T, **options: Unpack[ScheduleOptions]) -> Job[T]: ...

    def schedule(
        self, cron: str | timedelta, data: Any = None, **options: Unpack[ScheduleOptions]
    ) -> Job[Any]:
        """As `Worker.schedule`."""
        owner = self._home.owner(self.name, self._advice, blocking=True)
        job: Job[Any] = owner.schedule(cron, self, data, **options)
        return job


class SyncRegisters(Protocol):
    """The decorator that registers a handler, for type checkers."""

    @overload
    def __call__(self, handler: Callable[[Job[T]], Coroutine[Any, Any, R]], /) -> SyncWorker[T, R]: ...

    @overload
    def __call__(self, handler: Callable[[Job[T]], R], /) -> SyncWorker[T, R]: ...


class SyncWorkers(Workers):
    """A set of workers for a `SyncMonque`: as `Workers`, and the methods of its workers block.

    Examples:
        >>> workers = SyncWorkers()
        >>> @workers.worker("send-email", concurrency=3)
        ... def send_email(job: Job[dict[str, str]]) -> None: ...
        >>> monque = SyncMonque(workers=workers)
        >>> send_email.enqueue({"to": "ada@example.org"})
    """

    @overload
    def worker(
        self,
        name: str,
        handler: None = None,
        *,
        concurrency: int | None = None,
        replace: bool = False,
        **settings: Unpack[WorkerSettings],
    ) -> SyncRegisters: ...

    @overload
    def worker(
        self,
        name: str,
        handler: Callable[[Job[T]], Coroutine[Any, Any, R]],
        *,
        concurrency: int | None = None,
        replace: bool = False,
        **settings: Unpack[WorkerSettings],
    ) -> SyncWorker[T, R]: ...

    @overload
    def worker(
        self,
        name: str,
        handler: Callable[[Job[T]], R],
        *,
        concurrency: int | None = None,
        replace: bool = False,
        **settings: Unpack[WorkerSettings],
    ) -> SyncWorker[T, R]: ...

    def worker(
        self,
        name: str,
        handler: Any = None,
        *,
        concurrency: int | None = None,
        replace: bool = False,
        **settings: Unpack[WorkerSettings],
    ) -> Any:
        """As `Workers.worker`."""
        registered = super().worker(name, handler, concurrency=concurrency, replace=replace, **settings)
        return _blocking(registered)


def _blocking(registered: Worker[Any] | Callable[[Any], Worker[Any]]) -> Any:
    """The same worker, or what a decorator makes, with methods that block."""
    if not isinstance(registered, Worker):
        return lambda handler: _blocking(registered(handler))
    return SyncWorker(**{each.name: getattr(registered, each.name) for each in fields(registered)})


class SyncMonque:
    """A `Monque` whose methods block. Handlers, listeners and values are the same.

    `def` handlers run in threads and may call it; `async def` handlers run on its own loop and must not,
    since they would wait for themselves.

    In place of a database it takes a `Monque`: its methods, which block then. If that is open, as in its
    `def` handlers, calls are handed to its event loop, and whoever opened it closes it. A `lifespan` takes
    the `SyncMonque`, and may be a blocking context manager, which is entered and left in a thread.

    Examples:
        >>> with SyncMonque("mongodb://localhost:27017/shop") as monque:
        ...     monque.enqueue("send-email", {"to": "ada@example.org"})
    """

    def __init__(
        self,
        database: object = None,
        *,
        options: Options = Options(),
        workers: Workers | None = None,
        lifespan: Lifespan | None = None,
    ) -> None:
        if isinstance(database, Monque):
            if options != Options() or workers is not None or lifespan is not None:
                raise ConfigurationError(
                    "a Monque has options, workers and a lifespan of its own; pass it alone"
                )
            self._monque = database
        else:
            # Once the bond is handed over, the lifespan is given this instance.
            given = cast("Any", lifespan)
            self._monque = Monque(database, options=options, workers=workers, lifespan=given)
            self._monque._bond.hand_over(self)
        self._thread = _LoopThread(self._monque)

    def __repr__(self) -> str:
        return f"<Sync{repr(self._monque)[1:]}"

    @property
    def options(self) -> Options:
        """The options this instance was made with."""
        return self._monque.options

    @property
    def workers(self) -> Workers:
        """The workers registered here."""
        return self._monque.workers

    @property
    def instance_id(self) -> str:
        """What this instance writes into the jobs it claims."""
        return self._monque.instance_id

    @property
    def state(self) -> State:
        """As `Monque.state`."""
        return self._monque.state

    @property
    def database(self) -> AsyncDatabase[Any]:
        """The native database in use; it is asynchronous, and bound to this instance's own loop."""
        self._thread.require_open()
        return self._monque.database

    @property
    def client(self) -> AsyncMongoClient[Any]:
        """The native client in use; it is asynchronous, and bound to this instance's own loop."""
        self._thread.require_open()
        return self._monque.client

    def reconfigure(self, *, database: object = None, options: Options | None = None) -> None:
        """As `Monque.reconfigure`."""
        self._monque.reconfigure(database=database, options=options)

    def open(self) -> Self:
        """As `Monque.open`. Not needed: the first use of any method opens it."""
        self._thread.open()
        return self

    def close(self) -> None:
        """As `Monque.close`. Calls under way are finished; to use it again, call `open()`."""
        if self._thread.lender is None:
            self.stop()
        self._thread.close()

    def __enter__(self) -> Self:
        return self.open()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def start(self) -> None:
        """As `Monque.start`: processing goes on in the background of this program."""
        self.open()
        self._call(self._monque.start())

    def stop(self, *, timeout: timedelta | float | None = None) -> None:
        """As `Monque.stop`."""
        if self._thread.is_open:
            with suppress(NotOpenError):  # another thread has just closed it
                self._call(self._monque.stop(timeout=timeout))

    def run(self) -> None:
        """As `Monque.run`: blocks until SIGINT or SIGTERM (if called in the main thread) or `stop()`."""
        self.open()
        running = self._submit(self._monque.run())
        self._submit(asyncio.sleep(0)).result()  # by now it listens to signals, in the thread of its loop
        with installed_for_threads():  # and only here, in the main thread, they can be caught
            # In short waits: a signal that comes just as a wait begins is not handled before it is over.
            while not wait([running], timeout=0.5).done:
                pass
        running.result()

    def run_until_idle(self) -> None:
        """As `Monque.run_until_idle`."""
        self.open()
        self._call(self._monque.run_until_idle())

    def on_start(self, hook: HookT) -> HookT:
        """As `Monque.on_start`. A `def` hook may call this instance, except to start, stop or close it."""
        return self._monque.on_start(hook)

    def on_stop(self, hook: HookT) -> HookT:
        """As `Monque.on_stop`."""
        return self._monque.on_stop(hook)

    def is_healthy(self) -> bool:
        """As `Monque.is_healthy`."""
        return self._monque.is_healthy()

    @overload
    def worker(
        self,
        name: str,
        handler: None = None,
        *,
        concurrency: int | None = None,
        replace: bool = False,
        **settings: Unpack[WorkerSettings],
    ) -> SyncRegisters: ...

    @overload
    def worker(
        self,
        name: str,
        handler: Callable[[Job[T]], Coroutine[Any, Any, R]],
        *,
        concurrency: int | None = None,
        replace: bool = False,
        **settings: Unpack[WorkerSettings],
    ) -> SyncWorker[T, R]: ...

    @overload
    def worker(
        self,
        name: str,
        handler: Callable[[Job[T]], R],
        *,
        concurrency: int | None = None,
        replace: bool = False,
        **settings: Unpack[WorkerSettings],
    ) -> SyncWorker[T, R]: ...

    def worker(
        self,
        name: str,
        handler: Any = None,
        *,
        concurrency: int | None = None,
        replace: bool = False,
        **settings: Unpack[WorkerSettings],
    ) -> Any:
        """As `Monque.worker`."""
        worker = self._monque.worker(name, handler, concurrency=concurrency, replace=replace, **settings)
        return _blocking(worker)

    @overload
    def enqueue(
        self,
        job: Worker[None, R] | str,
        data: None = None,
        **options: Unpack[EnqueueOptions],
    ) -> Job[None, R]: ...

    @overload
    def enqueue(
        self,
        job: Worker[T, R] | str,
        data: T,
        **options: Unpack[EnqueueOptions],
    ) -> Job[T, R]: ...

    def enqueue(
        self,
        job: Any,
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

    @overload
    def enqueue_many(
        self,
        jobs: Iterable[NewJob[Any]],
        *,
        session: Session | None = None,
        return_jobs: Literal[True] = True,
        on_progress: OnProgress | None = None,
    ) -> list[Job[Any]]: ...

    @overload
    def enqueue_many(
        self,
        jobs: Iterable[NewJob[Any]],
        *,
        session: Session | None = None,
        return_jobs: Literal[False],
        on_progress: OnProgress | None = None,
    ) -> int: ...

    @overload
    def enqueue_many(
        self,
        jobs: Iterable[NewJob[Any]],
        *,
        session: Session | None = None,
        return_jobs: bool,
        on_progress: OnProgress | None = None,
    ) -> list[Job[Any]] | int: ...

    def enqueue_many(
        self,
        jobs: Iterable[NewJob[Any]],
        *,
        session: Session | None = None,
        return_jobs: bool = True,
        on_progress: OnProgress | None = None,
    ) -> list[Job[Any]] | int:
        """As `Monque.enqueue_many`, from a plain iterable.

        The iterable is consumed, and *on_progress* called, in the thread that calls this method. Both
        may use this `SyncMonque`.
        """
        if isinstance(jobs, AsyncIterable):
            raise ConfigurationError(
                f"enqueue_many of a SyncMonque takes a plain iterable of NewJob(...) values, got {jobs!r}"
            )
        errands = Errands()
        storing = self._monque._storing.enqueue_many(
            jobs, session, return_jobs=return_jobs, on_progress=on_progress, call=errands.call
        )
        return self._call(storing, errands.serve)

    @overload
    def now(
        self, name: Worker[None, R] | str, data: None = None, **settings: Unpack[JobSettings]
    ) -> Job[None, R]: ...

    @overload
    def now(self, name: Worker[T, R] | str, data: T, **settings: Unpack[JobSettings]) -> Job[T, R]: ...

    def now(self, name: Worker[Any] | str, data: Any = None, **settings: Unpack[JobSettings]) -> Job[Any]:
        """As `Monque.now`."""
        return self._call(self._monque.now(name, data, **settings))

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
        self,
        cron: str | timedelta,
        job: Worker[T] | str,
        data: T,
        **options: Unpack[ScheduleOptions],
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

    def list_schedules(self, *, name: str | None = None, max_time: timedelta | None = None) -> list[Schedule]:
        """As `Monque.list_schedules`."""
        return self._call(self._monque.list_schedules(name=name, max_time=max_time))

    def get_schedule(
        self, name: str, unique_key: str | None = None, *, max_time: timedelta | None = None
    ) -> Schedule:
        """As `Monque.get_schedule`."""
        return self._call(self._monque.get_schedule(name, unique_key, max_time=max_time))

    def pause_schedule(self, name: str, unique_key: str | None = None) -> Schedule:
        """As `Monque.pause_schedule`."""
        return self._call(self._monque.pause_schedule(name, unique_key))

    def resume_schedule(self, name: str, unique_key: str | None = None) -> Schedule:
        """As `Monque.resume_schedule`."""
        return self._call(self._monque.resume_schedule(name, unique_key))

    def trigger_schedule(self, name: str, unique_key: str | None = None) -> Job[Any]:
        """As `Monque.trigger_schedule`."""
        return self._call(self._monque.trigger_schedule(name, unique_key))

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

    def unschedule(self, name: str, unique_key: str | None = None) -> bool:
        """As `Monque.unschedule`."""
        return self._call(self._monque.unschedule(name, unique_key))

    def server_time(self) -> datetime:
        """As `Monque.server_time`."""
        self._thread.require_open()
        return self._monque.server_time()

    def get_job(
        self,
        id: Job[Any] | ObjectId | str,  # noqa: A002 - part of the public API
        *,
        max_time: timedelta | None = None,
    ) -> Job[Any] | None:
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

    def list_jobs(
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

    def iter_jobs(
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
    ) -> Iterator[Job[Any]]:
        """As `Monque.iter_jobs`."""
        jobs = self._monque.iter_jobs(
            filter,
            cursor=cursor,
            limit=limit,
            direction=direction,
            sort=sort,
            descending=descending,
            payload_limit=payload_limit,
            max_time=max_time,
        )
        while (job := self._call(_next(jobs))) is not None:
            yield job

    def count_jobs(
        self,
        filter: JobFilter = JobFilter(),  # noqa: A002 - part of the public API
        *,
        limit: int | None = None,
        max_time: timedelta | None = None,
    ) -> int:
        """As `Monque.count_jobs`."""
        return self._call(self._monque.count_jobs(filter, limit=limit, max_time=max_time))

    def jobs_ahead(
        self, job: Job[Any] | ObjectId | str, *, limit: int = 10_000, max_time: timedelta | None = None
    ) -> int:
        """As `Monque.jobs_ahead`."""
        return self._call(self._monque.jobs_ahead(job, limit=limit, max_time=max_time))

    def recent_failures(
        self,
        *,
        name: str | None = None,
        since: datetime | None = None,
        cancelled: bool = False,
        limit: int = 10_000,
        max_time: timedelta | None = None,
    ) -> list[FailedJob]:
        """As `Monque.recent_failures`."""
        return self._call(
            self._monque.recent_failures(
                name=name, since=since, cancelled=cancelled, limit=limit, max_time=max_time
            )
        )

    def begin_use(self, name: UseName) -> None:
        """As `Monque.begin_use`."""
        self._call(self._monque.begin_use(name))

    def diagnose(self, *, uses: Collection[UseName] = (), max_time: timedelta | None = None) -> Diagnosis:
        """As `Monque.diagnose`."""
        return self._call(self._monque.diagnose(uses=uses, max_time=max_time))

    def queue_stats(self, *, name: str | None = None, max_time: timedelta | None = None) -> QueueStats:
        """As `Monque.queue_stats`."""
        return self._call(self._monque.queue_stats(name=name, max_time=max_time))

    def queue_views(self, *, max_time: timedelta | None = None) -> list[QueueView]:
        """As `Monque.queue_views`."""
        return self._call(self._monque.queue_views(max_time=max_time))

    def queue_depths(self, *, failures: bool = False, max_time: timedelta | None = None) -> list[QueueDepth]:
        """As `Monque.queue_depths`."""
        return self._call(self._monque.queue_depths(failures=failures, max_time=max_time))

    def job_counts(
        self,
        filter: JobFilter = JobFilter(),  # noqa: A002 - as in other methods
        *,
        limit: int = 100_000,
        max_time: timedelta | None = None,
    ) -> JobCounts:
        """As `Monque.job_counts`."""
        return self._call(self._monque.job_counts(filter, limit=limit, max_time=max_time))

    def estimated_count(self, *, max_time: timedelta | None = None) -> int:
        """As `Monque.estimated_count`."""
        return self._call(self._monque.estimated_count(max_time=max_time))

    def instances(self, *, max_time: timedelta | None = None) -> list[Instance]:
        """As `Monque.instances`."""
        return self._call(self._monque.instances(max_time=max_time))

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

    @property
    def companions(self) -> Mapping[str, bool]:
        """As `Monque.companions`."""
        return self._monque.companions

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

    def resume(self, name: str | None = None) -> bool:
        """As `Monque.resume`."""
        return self._call(self._monque.resume(name))

    def paused(self, *, max_time: timedelta | None = None) -> list[Pause]:
        """As `Monque.paused`."""
        return self._call(self._monque.paused(max_time=max_time))

    def explain(
        self,
        id: Job[Any] | ObjectId | str,  # noqa: A002 - part of the public API
        *,
        texts: bool = True,
        max_time: timedelta | None = None,
    ) -> Explanation:
        """As `Monque.explain`."""
        return self._call(self._monque.explain(id, texts=texts, max_time=max_time))

    def audit(
        self,
        *,
        job: Job[Any] | ObjectId | str | None = None,
        actor: str | None = None,
        action: str | None = None,
        cursor: str | None = None,
        limit: int = 50,
        max_time: timedelta | None = None,
    ) -> AuditPage:
        """As `Monque.audit`."""
        return self._call(
            self._monque.audit(
                job=job, actor=actor, action=action, cursor=cursor, limit=limit, max_time=max_time
            )
        )

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
        filter: JobFilter | Mapping[str, Any] | None = None,  # noqa: A002 - as in other methods
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

    def cancel_job(
        self,
        id: Job[Any] | ObjectId | str,  # noqa: A002 - part of the public API
        *,
        running: bool = False,
        reason: str | None = None,
    ) -> Job[Any]:
        """As `Monque.cancel_job`."""
        return self._call(self._monque.cancel_job(id, running=running, reason=reason))

    def retry_job(self, id: Job[Any] | ObjectId | str) -> Job[Any]:  # noqa: A002 - part of the public API
        """As `Monque.retry_job`."""
        return self._call(self._monque.retry_job(id))

    def reschedule_job(self, id: Job[Any] | ObjectId | str, run_at: datetime) -> Job[Any]:  # noqa: A002
        """As `Monque.reschedule_job`."""
        return self._call(self._monque.reschedule_job(id, run_at))

    def run_now(self, id: Job[Any] | ObjectId | str) -> Job[Any]:  # noqa: A002 - part of the public API
        """As `Monque.run_now`."""
        return self._call(self._monque.run_now(id))

    def set_priority(self, id: Job[Any] | ObjectId | str, priority: int) -> Job[Any]:  # noqa: A002
        """As `Monque.set_priority`."""
        return self._call(self._monque.set_priority(id, priority))

    def set_priorities(
        self,
        filter: JobFilter,  # noqa: A002 - part of the public API
        priority: int,
        *,
        limit: int | None = None,
        after: ObjectId | str | None = None,
    ) -> BulkResult:
        """As `Monque.set_priorities`."""
        return self._call(self._monque.set_priorities(filter, priority, limit=limit, after=after))

    def wait_for(self, job: Job[Any] | ObjectId | str, *, timeout: timedelta | None = None) -> Job[Any]:
        """As `Monque.wait_for`; it blocks the thread that calls it, and no other."""
        return self._call(self._monque.wait_for(job, timeout=timeout))

    @overload
    def result_of(self, job: Job[Any, R], *, timeout: timedelta | None = None) -> R: ...

    @overload
    def result_of(self, job: ObjectId | str, *, timeout: timedelta | None = None) -> Any: ...

    def result_of(self, job: Job[Any] | ObjectId | str, *, timeout: timedelta | None = None) -> Any:
        """As `Monque.result_of`; it blocks the thread that calls it, and no other."""
        return self._call(self._monque.result_of(job, timeout=timeout))

    def delete_job(self, id: Job[Any] | ObjectId | str) -> None:  # noqa: A002 - part of the public API
        """As `Monque.delete_job`."""
        self._call(self._monque.delete_job(id))

    def cancel_jobs(
        self,
        filter: JobFilter,  # noqa: A002 - part of the public API
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

    def retry_jobs(
        self,
        filter: JobFilter,  # noqa: A002 - part of the public API
        *,
        spread: timedelta = timedelta(0),
        limit: int | None = None,
        after: ObjectId | str | None = None,
    ) -> BulkResult:
        """As `Monque.retry_jobs`."""
        return self._call(self._monque.retry_jobs(filter, spread=spread, limit=limit, after=after))

    def delete_jobs(
        self,
        filter: JobFilter,  # noqa: A002 - part of the public API
        *,
        limit: int | None = None,
        after: ObjectId | str | None = None,
    ) -> BulkResult:
        """As `Monque.delete_jobs`."""
        return self._call(self._monque.delete_jobs(filter, limit=limit, after=after))

    @_typed_as(Monque.on)
    def on(self, event: Any, listener: Any = None) -> Any:
        """As `Monque.on`; listeners are called in this instance's own thread."""
        return self._monque.on(event, listener)

    @_typed_as(Monque.once)
    def once(self, event: Any, listener: Any = None) -> Any:
        """As `Monque.once`."""
        return self._monque.once(event, listener)

    def off(self, event: EventKind | type[Event], listener: Any) -> None:
        """As `Monque.off`."""
        self._monque.off(event, listener)

    def observe(self, observer: Observer) -> None:
        """As `Monque.observe`; the observer is called in the thread of this instance's loop."""
        self._monque.observe(observer)

    def _call(self, method: Coroutine[Any, Any, R], wait: Callable[[Future[R]], R] = Future.result) -> R:
        try:
            return wait(self._submit(method))
        except CancelledError:
            raise NotOpenError(_CLOSED_MEANWHILE) from None

    def _submit(self, method: Coroutine[Any, Any, R]) -> Future[R]:
        return self._thread.submit(method)


async def _next(jobs: AsyncIterator[Job[Any]]) -> Job[Any] | None:
    return await anext(jobs, None)


_CLOSED = "this SyncMonque was closed; call `monque.open()` to use it again"
_CLOSED_MEANWHILE = "this SyncMonque was closed during the call, which may have taken effect or not"
_ON_ITS_OWN_LOOP = (
    "an `async def` handler or a listener cannot call a SyncMonque, it would wait for itself; "
    "make the handler a plain `def`"
)

# Seconds that `close()` waits for calls of other threads. A call needs milliseconds unless there is an
# outage. Half could cut off a call during a failover; twice would delay the end of a program during an
# outage.
_LAST_CALLS = 5.0


class _LoopThread:
    """The event loop of one `Monque`, in a daemon thread: begun at first use, ended by `close()`.

    One lock orders opening, closing and the handing over of calls, so that no call is handed to a loop that
    has ended. It is not held while a call runs. It is reentrant because a signal handler may call `stop()`
    in the thread that holds it.
    """

    def __init__(self, monque: Monque) -> None:
        self._monque = monque
        self.begin_afresh()
        _loop_threads.add(self)

    def begin_afresh(self) -> None:
        """Forget everything: a forked child has no such thread, and the lock may be held for ever."""
        self._lock = threading.RLock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._calls: set[Future[Any]] = set()
        self._is_closed = False

    @property
    def is_open(self) -> bool:
        return self._loop is not None or self.lender is not None

    @property
    def lender(self) -> asyncio.AbstractEventLoop | None:
        """The event loop in which somebody else has opened the `Monque`."""
        return None if self._loop is not None else self._monque._opening.loop

    @property
    def inherited(self) -> object:
        """What belongs to the parent process in a forked child."""
        return self._loop, self._thread, self._calls

    def open(self) -> None:
        """Open, also again."""
        self._refuse_own_thread()
        with self._lock:
            self._is_closed = False
            self._require_open()

    def require_open(self) -> None:
        """Open at first use; refuse if it was closed."""
        self._refuse_own_thread()
        with self._lock:
            self._require_open()

    def submit(self, method: Coroutine[Any, Any, R]) -> Future[R]:
        """Run *method* on the loop; opens at first use."""
        try:
            self._refuse_own_thread()
            if (
                self._is_closed
            ):  # before the lock: a handler that outlived `stop()` must not wait for `close()`
                raise NotOpenError(_CLOSED)
            with self._lock:
                self._require_open()
                return self._hand_over(method, self._loop or self._monque._opening.loop)
        except BaseException:
            method.close()
            raise

    def close(self) -> None:
        """Let the calls under way finish, then close the `Monque` and end the loop."""
        self._refuse_own_thread()
        with self._lock:
            self._is_closed = True
            if self._loop is not None:
                wait(list(self._calls), timeout=_LAST_CALLS)
                try:
                    self._hand_over(self._monque.close(), self._loop).result()
                except ConfigurationError:  # a handler calls this: its result is still to be stored
                    self._is_closed = False
                    raise
                except BaseException:
                    self._end()
                    raise
                self._end()

    def _refuse_own_thread(self) -> None:
        with suppress(RuntimeError):  # no loop runs in this thread
            if asyncio.get_running_loop() in (self._loop, self.lender):
                raise ConfigurationError(_ON_ITS_OWN_LOOP)

    def _require_open(self) -> None:
        if self._is_closed:
            raise NotOpenError(_CLOSED)
        if not self.is_open:
            self._begin()
            try:
                self._hand_over(self._monque.open(), self._loop).result()
            except BaseException:
                self._end()
                raise

    def _hand_over(self, method: Coroutine[Any, Any, R], loop: asyncio.AbstractEventLoop | None) -> Future[R]:
        if loop is None:  # it was lent, and closed in this very moment
            raise NotOpenError(_CLOSED_MEANWHILE)
        call = asyncio.run_coroutine_threadsafe(method, loop)
        self._calls.add(call)
        call.add_done_callback(self._calls.discard)
        return call

    def _begin(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._serve, args=(self._loop,), name="monque", daemon=True)
        self._thread.start()

    def _end(self) -> None:
        assert self._loop is not None  # noqa: S101 - the callers have seen to it
        assert self._thread is not None  # noqa: S101 - it comes and goes with the loop
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop = self._thread = None
        for call in list(
            self._calls
        ):  # a task that ignored its cancellation: whoever waits must get an answer
            with suppress(InvalidStateError):
                call.set_exception(NotOpenError(_CLOSED_MEANWHILE))

    @staticmethod
    def _serve(loop: asyncio.AbstractEventLoop) -> None:
        asyncio.set_event_loop(loop)
        try:
            loop.run_forever()
            loop.run_until_complete(_end_tasks(asyncio.all_tasks(loop)))
            loop.run_until_complete(loop.shutdown_asyncgens())
        finally:
            loop.close()


async def _end_tasks(tasks: set[asyncio.Task[Any]]) -> None:
    """Let what is about to end do so, then cancel the rest: whoever waits for it must get an answer."""
    if tasks:
        _, late = await asyncio.wait(tasks, timeout=0.1)
        for task in late:
            task.cancel()
        if late:
            await asyncio.wait(late, timeout=1)


_loop_threads: weakref.WeakSet[_LoopThread] = weakref.WeakSet()
# Kept for ever: finalising a loop of the parent could change what both share, such as its epoll set.
_inherited: list[object] = []


def _begin_afresh_in_child() -> None:
    for thread in list(_loop_threads):
        _inherited.append(thread.inherited)
        thread.begin_afresh()


if hasattr(os, "register_at_fork"):  # not on Windows
    os.register_at_fork(after_in_child=_begin_afresh_in_child)
