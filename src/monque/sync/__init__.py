"""Monque for code that does not use asyncio: scripts, Flask, Django.

A thin facade: an event loop in a thread of its own runs a `Monque`, and every method waits for the
one of the same name there. `twins.py` has those that do only this; it is made from `Monque`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterable, Callable, Coroutine, Iterable, Mapping
from concurrent.futures import wait
from contextlib import AbstractAsyncContextManager, AbstractContextManager, suppress
from dataclasses import fields
from datetime import datetime, timedelta
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Protocol, Self, TypeAlias, Unpack, cast, overload

from pymongo import AsyncMongoClient
from pymongo.asynchronous.database import AsyncDatabase

from monque import (
    BulkResult,
    ConfigurationError,
    EnqueueOptions,
    Event,
    EventKind,
    Job,
    JobFilter,
    Middleware,
    Monque,
    NewJob,
    NotOpenError,
    Observer,
    Operation,
    OperationOptions,
    Options,
    ScheduleOptions,
    SyncMiddleware,
    Worker,
    Workers,
    WorkerSettings,
)
from monque._signals import installed_for_threads
from monque.sync.caller_thread import CallerThread
from monque.sync.loop_thread import LoopThread, R, Session, T
from monque.sync.twins import _Twins

if TYPE_CHECKING:
    from typing_extensions import TypeVar  # type checkers know it, also where it is not installed

    R_co = TypeVar("R_co", default=Any, covariant=True)
else:
    from typing import TypeVar

    R_co = TypeVar("R_co")

M = TypeVar("M")
HookT = TypeVar("HookT", bound=Callable[[], Any])
Lifespan: TypeAlias = Callable[
    ["SyncMonque"],
    AbstractContextManager[Mapping[str, Any] | None] | AbstractAsyncContextManager[Mapping[str, Any] | None],
]
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
        return self._owner().enqueue(self, data, **options)

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
        return self._owner().schedule(cron, self, data, **options)

    def _owner(self) -> SyncMonque:
        owner: SyncMonque = self._home.owner(self.name, self._advice, blocking=True)
        return owner


class SyncRegisters(Protocol):
    """The decorator that registers a handler, for type checkers."""

    @overload
    def __call__(self, handler: Callable[[Job[T]], Coroutine[Any, Any, R]], /) -> SyncWorker[T, R]: ...

    @overload
    def __call__(self, handler: Callable[[Job[T]], R], /) -> SyncWorker[T, R]: ...


class SyncWorkerMethod(Protocol):
    """`worker` for type checkers, as that of a `Monque`."""

    @overload
    def __call__(
        self,
        name: str,
        handler: None = None,
        *,
        concurrency: int | None = None,
        replace: bool = False,
        **settings: Unpack[WorkerSettings],
    ) -> SyncRegisters: ...

    @overload
    def __call__(
        self,
        name: str,
        handler: Callable[[Job[T]], Coroutine[Any, Any, R]],
        *,
        concurrency: int | None = None,
        replace: bool = False,
        **settings: Unpack[WorkerSettings],
    ) -> SyncWorker[T, R]: ...

    @overload
    def __call__(
        self,
        name: str,
        handler: Callable[[Job[T]], R],
        *,
        concurrency: int | None = None,
        replace: bool = False,
        **settings: Unpack[WorkerSettings],
    ) -> SyncWorker[T, R]: ...


def _registers(method: Callable[..., Any]) -> SyncWorkerMethod:
    return cast("SyncWorkerMethod", method)


class SyncWorkers(Workers):
    """A set of workers for a `SyncMonque`: as `Workers`, and the methods of its workers block.

    Examples:
        >>> workers = SyncWorkers()
        >>> @workers.worker("send-email", concurrency=3)
        ... def send_email(job: Job[dict[str, str]]) -> None: ...
        >>> monque = SyncMonque(workers=workers)
        >>> send_email.enqueue({"to": "ada@example.org"})
    """

    @_registers
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


class SyncMonque(_Twins):
    """A `Monque` whose methods block the thread that calls them, and no other. Values are the same.

    `def` handlers run in threads and may call it; `async def` handlers run on its own loop and must not,
    since they would wait for themselves. Listeners and observers are called in the thread of that loop.

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
        middleware: Iterable[Middleware | SyncMiddleware] = (),
    ) -> None:
        if isinstance(database, Monque):
            if options != Options() or workers is not None or lifespan is not None or middleware:
                raise ConfigurationError(
                    "a Monque has options, workers and a lifespan of its own, and middleware; pass it alone"
                )
            self._monque = database
        else:
            # Once it is the owner of its workers, the lifespan is given this instance.
            given = cast("Any", lifespan)
            self._monque = Monque(
                database, options=options, workers=workers, lifespan=given, middleware=middleware
            )
            self._monque._owner.hand_over(self)
        self._thread = LoopThread(self._monque)

    def __repr__(self) -> str:
        return f"<Sync{repr(self._monque)[1:]}"

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

    @_registers
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
        caller = CallerThread()
        storing = self._monque._enqueue_many(
            jobs, session, return_jobs=return_jobs, on_progress=on_progress, call=caller.call
        )
        return self._call(storing, caller.serve)

    def bulk(
        self,
        operation: Operation | str,
        filter: JobFilter,  # noqa: A002 - as in `Monque`
        *,
        as_of: datetime | None = None,
        limit: int | None = None,
        after: str | None = None,
        on_piece: Callable[[BulkResult], object] | None = None,
        actor: str | None = None,
        via: Literal["web", "cli"] | None = None,
        note: str | None = None,
        address: str | None = None,
        request_id: str | None = None,
        recorded_as: Mapping[str, Any] | None = None,
        **options: Unpack[OperationOptions],
    ) -> BulkResult:
        """As `Monque.bulk`. *on_piece* is called in the thread that calls this method."""
        caller = CallerThread()
        acting = self._monque.bulk(
            operation,
            filter,
            as_of=as_of,
            limit=limit,
            after=after,
            on_piece=partial(caller.call, on_piece) if callable(on_piece) else on_piece,
            actor=actor,
            via=via,
            note=note,
            address=address,
            request_id=request_id,
            recorded_as=recorded_as,
            **options,
        )
        return self._call(acting, caller.serve)

    def server_time(self) -> datetime:
        """As `Monque.server_time`."""
        self._thread.require_open()
        return self._monque.server_time()

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
