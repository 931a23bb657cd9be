"""Monque: what users hold. Short methods that check and delegate."""

from __future__ import annotations

import os
import uuid
import weakref
from collections.abc import AsyncIterable, Iterable
from datetime import datetime, timedelta, tzinfo
from functools import partial
from types import TracebackType
from typing import Any, Literal, Self, TypeVar, Unpack, overload

from pymongo import AsyncMongoClient
from pymongo.asynchronous.database import AsyncDatabase

from monque._api.enqueue import NewJob, Storing
from monque._api.enqueue_many import OnProgress, child_documents, enqueue_many
from monque._api.life import Lifespan, Opening, Processing, bind_lifespan, prepare
from monque._api.management import Management
from monque._connect.connector import Connection, Connector
from monque._connect.sessions import Session
from monque._engine.context import Context
from monque._engine.waits import Waits
from monque._observe.observer import Observer
from monque._observe.telemetry import Telemetry
from monque._ops.companions import Companions
from monque._ops.trends import Tally
from monque._store.store import Store
from monque._time.clock import Clock
from monque._unawaited import noting_calls
from monque._values.errors import ConfigurationError
from monque._values.events import Event, EventBus, Listener
from monque._values.job import Job, R
from monque._values.options import Options
from monque._values.schedule import Overlap, ScheduleSettings, declare
from monque._values.settings import JobSettings, WorkerSettings, check_job_settings
from monque._values.state import State
from monque._workers.home import EnqueueOptions, ScheduleOptions
from monque._workers.hooks import HookT
from monque._workers.middleware import Middleware, SyncMiddleware, check_middleware
from monque._workers.subscribe import EventKind, subscribe, subscribes
from monque._workers.workers import Handler, Worker, Workers, registers

T = TypeVar("T")


@noting_calls
class Monque(Management):
    """A job scheduler on MongoDB.

    Creating one does no I/O. `open()` (or `async with`) connects; from then on jobs can be stored
    and managed. `start()` or `run()` begins to process them.

    Args:
        database: A `mongodb://` URI, an `AsyncDatabase` or an `AsyncMongoClient` (which stay yours
            to close), or what other libraries hold: a blocking `Database` or `MongoClient`, one of
            Motor, a Beanie document class, the alias of a MongoEngine connection. None for the
            environment variable `MONQUE_URI`, and without it an embedded MongoDB on this machine.
        options: How it behaves.
        workers: Workers declared apart, see `Workers`.
        lifespan: Takes this Monque and returns an async context manager, as an `@asynccontextmanager`
            function does. It is entered before the first job is claimed and left after the last one has
            ended, once a start. What it yields, a mapping or nothing, updates `state`.
        middleware: Hooks around each run, the outermost first: see `Middleware` and `SyncMiddleware`. Those
            of *workers* come inside of them.

    Examples:
        >>> monque = Monque("mongodb://localhost:27017/shop")
        >>> @monque.worker("send-email", concurrency=3)
        ... async def send_email(job: Job[Email]) -> None:
        ...     print(job.data.to)
        >>> async with monque:
        ...     await monque.enqueue(send_email, Email(to="ada@example.org"))
        ...     await monque.run()
    """

    def __init__(
        self,
        database: object = None,
        *,
        options: Options = Options(),
        workers: Workers | None = None,
        lifespan: Lifespan[Monque] | None = None,
        middleware: Iterable[Middleware | SyncMiddleware] = (),
    ) -> None:
        self._options = _check_options(options)
        if workers is not None and not isinstance(workers, Workers):
            raise ConfigurationError(f"workers must be a Workers(), got {workers!r}")
        connector = Connector(database)
        self._workers = workers if workers is not None else Workers()
        self._state = State()
        self._owner = self._workers._home.bind(self, self._state)
        self._bus = EventBus()
        self._workers._listeners.join(self._bus)
        self._telemetry = Telemetry()
        self._opening = Opening(connector, self._owner)
        self._processing = Processing(
            self._opening,
            self._workers,
            bind_lifespan(lifespan, self._owner),
            check_middleware(middleware),
        )
        self._storing = Storing(self._opening, self._workers, self._telemetry, self._processing, self._bus)
        self._enqueue_many = partial(enqueue_many, self._storing)
        self._instance_id = options.instance_id or str(uuid.uuid4())
        _instances.add(self)

    def __repr__(self) -> str:
        state = ("running" if self._processing.is_running else "open") if self._opening.is_open else "closed"
        return f"<Monque {self._options.collection!r} {state}, instance {self._instance_id}>"

    @property
    def options(self) -> Options:
        """The options this instance was made with."""
        return self._options

    @property
    def workers(self) -> Workers:
        """The workers registered here."""
        return self._workers

    @property
    def instance_id(self) -> str:
        """The id that this instance writes into the jobs it claims."""
        return self._instance_id

    @property
    def state(self) -> State:
        """A namespace for what start hooks and the lifespan make; handlers reach it through `job.state`.

        It is this Monque's for good: no stop empties it, and the next start sets again what it makes.
        """
        return self._state

    @property
    def database(self) -> AsyncDatabase[Any]:
        """The native database in use."""
        return self._opening.anywhere().connection.database

    @property
    def client(self) -> AsyncMongoClient[Any]:
        """The native client in use, for example to start a session."""
        return self.database.client

    def reconfigure(self, *, database: object = None, options: Options | None = None) -> None:
        """Change the database or the options, before the instance is opened; what is not given stays.

        For programs that run an instance made elsewhere, as the command line does.

        Raises:
            ConfigurationError: It is open, or what is given cannot be used.

        Examples:
            >>> monque.reconfigure(options=replace(monque.options, worker_concurrency=50))
        """
        if self._opening.is_open:
            raise ConfigurationError(
                "this Monque is open, and its database and options can be changed only before; open it "
                "later, or give it the right ones when it is made"
            )
        options = self._options if options is None else _check_options(options)
        if database is not None:
            self._opening.connector = Connector(database)
        self._options = options
        self._instance_id = options.instance_id or self._instance_id

    async def open(self) -> Self:
        """Connect, check the server, create indexes, put back the jobs of dead owners. Idempotent.

        Raises:
            ConnectionError: The server cannot be reached; raised within a few seconds.
            ConfigurationError: The server is older than MongoDB 6.0, or its indexes are in the way.
            InstanceConflictError: The instance id is alive elsewhere.
        """
        await self._enter_loop()
        await self._opening.open(self._prepare)
        return self

    async def close(self) -> None:
        """Stop if running, then disconnect. Idempotent. It ends calls of `wait_for` with a `NotOpenError`.

        A handler cannot close the instance that runs it, as its own result could not be stored then; it
        may call `stop()`.
        """
        await self._enter_loop()
        await self._processing.end(self._options.shutdown_timeout.total_seconds())
        await self._opening.close()

    async def __aenter__(self) -> Self:
        return await self.open()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def start(self) -> None:
        """Begin to process jobs in the background of the running loop; opens if needed.

        Before the first job is claimed, the lifespan is entered and the start hooks are called. What they
        raise is raised here: what they had begun is undone, nothing runs, and the next call begins anew. If
        `stop()` is called meanwhile, they are cancelled and undone, and this returns.
        """
        await self.open()
        await self._processing.start(self._options)

    async def stop(self, *, timeout: timedelta | float | None = None) -> None:
        """Take no new jobs, wait for running ones, then stop. Without `start()` it does nothing.

        Jobs that still run after *timeout* (default: `Options.shutdown_timeout`) are cancelled and put
        back, and a `job:error` event reports them with a `ShutdownTimeoutError`. Then the stop hooks are
        called, and the lifespan is left.

        A handler may call this. It then waits for all other jobs, not for its own, which ends as usual
        when the handler returns.
        """
        seconds = _timeout(timeout, self._options.shutdown_timeout)
        if self._processing.has_begun:
            await self._enter_loop()
            await self._processing.stop(seconds)

    async def run(self) -> None:
        """Process jobs until SIGINT or SIGTERM, then stop gracefully; a second signal stops at once.

        Every `run()` of the process hears a signal, and so does a handler that was set before. A third
        signal does what it does without Monque.

        Raises:
            Exception: A bug in Monque ended the scheduler; the error is raised here.
        """
        await self._enter_loop()
        await self._processing.run(self.start, self._options, self._instance_id)

    async def run_until_idle(self) -> None:
        """Process everything that is due, then return: for scripts and tests.

        Start and stop hooks are called around it, as by `start()` and `stop()`, unless it runs already.

        Jobs of names that have no worker here or are paused, jobs that are due later (also because they
        failed and wait for their next try), and jobs that other instances run are not waited for. A handler
        that outlived an earlier `stop()` keeps its slot: a due job that needs this slot is waited for.
        Async listeners are waited for as in `stop()`, and what they store is processed.

        Raises:
            ConfigurationError: A handler of this instance calls it, and would wait for itself.
        """
        await self.open()
        await self._processing.run_until_idle(self._options)

    def on_start(self, hook: HookT) -> HookT:
        """Call *hook* before the first job is claimed, in each `start()`, `run()` and `run_until_idle()`.

        Start hooks are called in the order in which they were declared, after the lifespan was entered. What
        one raises ends the start: the stop hooks that were declared above it are called, and the error is
        raised where the start was called. A hook declared later than that counts from the next start on.

        Args:
            hook: Called without arguments. `async def` runs on the loop, `def` in a thread.

        Raises:
            ConfigurationError: It cannot be called without arguments, or it is a generator function.

        Examples:
            >>> @monque.on_start
            ... async def connect() -> None:
            ...     monque.state.http = httpx.AsyncClient()
        """
        return self._workers.on_start(hook)

    def on_stop(self, hook: HookT) -> HookT:
        """Call *hook* after the last job has ended, in each `stop()`: the last one declared comes first.

        What a stop hook raises is logged, and the others are called all the same. Together they have what is
        left of the shutdown timeout and three seconds more; then the one that runs is cancelled, and every
        three seconds whichever runs by then. A handler that outlived the timeout may still run.

        Args:
            hook: As in `on_start`.

        Raises:
            ConfigurationError: As in `on_start`.

        Examples:
            >>> @monque.on_stop
            ... async def disconnect() -> None:
            ...     await monque.state.http.aclose()
        """
        return self._workers.on_stop(hook)

    def add_middleware(self, middleware: Middleware | SyncMiddleware) -> None:
        """Put one more middleware around all others, from the next start on; see `Middleware`.

        Raises:
            ConfigurationError: It cannot be called with a job and `call_next`.

        Examples:
            >>> monque.add_middleware(Timing())
        """
        self._processing.middleware = (*check_middleware([middleware]), *self._processing.middleware)

    def is_healthy(self) -> bool:
        """Return whether it is open, running and in contact with the database: for a readiness probe.

        It becomes false within five seconds after the connection is refused or reset, and within fifteen
        after the server or the network went silent. It becomes true again soon after the database is back.
        It sends no command, and may be called from any thread. After a long block of the event loop, or a
        suspend of the machine, it is false until the database has answered.
        """
        return self._opening.is_open and self._processing.is_healthy

    def look_for_dead(self) -> None:
        """Look at once for jobs whose owners have died: for a supervisor that has seen a process die.

        A running instance looks by itself, every half minute and whenever an owner may have been silent for
        too long. This lets the next look come now, and does nothing if it does not run. It may be called from
        any thread.
        """
        self._processing.look_for_dead()

    @registers
    def worker(
        self,
        name: str,
        handler: Handler[Any] | None = None,
        *,
        concurrency: int | None = None,
        replace: bool = False,
        **settings: Unpack[WorkerSettings],
    ) -> Any:
        """Register the handler of a job name, before or after start; a decorator without *handler*.

        Args:
            name: The job name.
            handler: Called with one `Job`. `async def` runs on the loop, `def` in a thread.
            concurrency: How many of these jobs run at once here; default `Options.worker_concurrency`.
            replace: Take the place of a worker registered before; its running jobs go on.
            settings: How its jobs run: see `WorkerSettings`.

        Raises:
            ConfigurationError: A setting is wrong or unknown; the message names it.
            WorkerRegistrationError: The name has a worker, and *replace* is not set; or the handler cannot be
                used: it does not take one argument, or it is a generator function.
        """
        if handler is None:
            register = self._workers.worker(name, concurrency=concurrency, replace=replace, **settings)
            return lambda handler: self._registered(register(handler))
        worker = self._workers.worker(name, handler, concurrency=concurrency, replace=replace, **settings)
        return self._registered(worker)

    @overload
    async def enqueue(
        self,
        job: Worker[None, R] | str,
        data: None = None,
        **options: Unpack[EnqueueOptions],
    ) -> Job[None, R]: ...

    @overload
    async def enqueue(
        self,
        job: Worker[T, R] | str,
        data: T,
        **options: Unpack[EnqueueOptions],
    ) -> Job[T, R]: ...

    async def enqueue(
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
        """Store a job and return it; it runs as soon as it is due and a worker is free.

        Args:
            job: A job name or a `Worker`. Where mypy "cannot infer" a type parameter, `worker.enqueue(data)`
                says what is wrong with the data, and takes the literal of a `TypedDict`.
            data: The payload: a dataclass, a pydantic model, or anything BSON can hold.
            run_at: When to run it, as an aware datetime; default now. The past is fine.
            delay: How long from now to run it, instead of *run_at*.
            unique_key: If a job of this name with this key is pending or processing, that one is
                returned and nothing is stored. Its data is of the worker's type where that is known and
                the data fits, else as it is stored. `Job.enqueued` says what became of the call;
                `unique=Unique(...)` says more.
            session: Make the job part of this session's transaction: it exists, and workers are
                woken, only when the transaction commits. A session of `monque.client`, or of the
                blocking or Motor client that was handed to Monque.
            settings: How this job runs, stored with it: see `JobSettings`.

        Raises:
            ConfigurationError: An argument is wrong or unknown; the message names it.
            PayloadError: The data cannot be stored, or does not fit what the worker expects.
            PayloadTooLargeError: The data exceeds `Options.max_payload_size`.
            DuplicateJobError: The job is there, and the call said `on_conflict="raise"`.
            JobStateError: The call wants to replace a schedule.
            ConnectionError: The database cannot be reached or refused.

        Examples:
            >>> await monque.enqueue(send_email, Email(to="ada@example.org"), unique_key="welcome-ada")
        """
        if settings:
            check_job_settings(settings)
        new = NewJob(job, data, run_at=run_at, delay=delay, unique_key=unique_key, **settings)
        return await self._storing.enqueue(new, session)

    @overload
    async def enqueue_many(
        self,
        jobs: Iterable[NewJob[Any]] | AsyncIterable[NewJob[Any]],
        *,
        session: Session | None = None,
        return_jobs: Literal[True] = True,
        on_progress: OnProgress | None = None,
    ) -> list[Job[Any]]: ...

    @overload
    async def enqueue_many(
        self,
        jobs: Iterable[NewJob[Any]] | AsyncIterable[NewJob[Any]],
        *,
        session: Session | None = None,
        return_jobs: Literal[False],
        on_progress: OnProgress | None = None,
    ) -> int: ...

    @overload
    async def enqueue_many(
        self,
        jobs: Iterable[NewJob[Any]] | AsyncIterable[NewJob[Any]],
        *,
        session: Session | None = None,
        return_jobs: bool,
        on_progress: OnProgress | None = None,
    ) -> list[Job[Any]] | int: ...

    async def enqueue_many(
        self,
        jobs: Iterable[NewJob[Any]] | AsyncIterable[NewJob[Any]],
        *,
        session: Session | None = None,
        return_jobs: bool = True,
        on_progress: OnProgress | None = None,
    ) -> list[Job[Any]] | int:
        """Store any number of jobs, in chunks of up to 1,000 jobs or 4 MB.

        A list or tuple is checked whole before anything is stored. Any other iterable, such as a generator,
        is consumed and checked a chunk at a time; with `return_jobs=False` only three chunks are in
        memory, however many jobs there are. Unique keys are honoured one by one, also among the
        jobs given: the first one is stored.

        An error stops it, whether it comes from a wrong job, the database, the iterable itself or
        *on_progress*. It is raised as it is, and says how many jobs are stored: a `MonqueError` in its
        attribute `stored`, every error in a note, unless there are none. These are the first jobs that were
        given. After a `ConnectionError` or a cancellation, up to two more chunks may be stored, too.
        An async generator is closed.

        Args:
            jobs: The jobs, as an iterable or async iterable of `NewJob` values.
            session: As in `enqueue`. The jobs exist when the transaction commits.
            return_jobs: Whether to return the jobs, each as by `enqueue`, in the same order, about a kilobyte
                each; False returns how many they are.
            on_progress: A function, also an async one, that is called after each chunk with how many
                jobs are stored so far.

        Raises:
            PayloadError: As in `enqueue`.
            ConfigurationError: A value is not a `NewJob`, or has a wrong argument.
            ConnectionError: The database cannot be reached or refused.

        Examples:
            >>> jobs = (NewJob(send_email, Email(to=to)) for to in addresses)
            >>> await monque.enqueue_many(jobs, return_jobs=False, on_progress=print)
        """
        return await self._enqueue_many(jobs, session, return_jobs=return_jobs, on_progress=on_progress)

    @overload
    async def now(
        self, name: Worker[None, R] | str, data: None = None, **settings: Unpack[JobSettings]
    ) -> Job[None, R]: ...

    @overload
    async def now(self, name: Worker[T, R] | str, data: T, **settings: Unpack[JobSettings]) -> Job[T, R]: ...

    async def now(
        self, name: Worker[Any] | str, data: Any = None, **settings: Unpack[JobSettings]
    ) -> Job[Any]:
        """Store a job that is due now; *settings* as in `enqueue`."""
        if settings:
            check_job_settings(settings)
        job: Job[Any] = await self.enqueue(name, data, **settings)
        return job

    @overload
    async def schedule(
        self,
        cron: str | timedelta,
        job: Worker[None] | str,
        data: None = None,
        **options: Unpack[ScheduleOptions],
    ) -> Job[None]: ...

    @overload
    async def schedule(
        self,
        cron: str | timedelta,
        job: Worker[T] | str,
        data: T,
        **options: Unpack[ScheduleOptions],
    ) -> Job[T]: ...

    async def schedule(
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
        """Store a recurring job, or bring the one that is there up to date; safe at every start.

        An unchanged call changes nothing. Another payload keeps the next time; another cron, zone, interval,
        jitter or start computes it anew; while it runs, a change takes effect after that run. A pause stays.
        Only a next time that does not fit the cron is repaired: a TypeScript instance may leave one. A
        schedule that has come to its end, and is declared again as it was, stays completed.

        Args:
            cron: Five fields, a name such as @daily or @hourly, or an interval of at least a second. An
                interval is counted from *start* or from the first declaration, not from the end of a run.
            job: A job name or a `Worker`.
            data: The payload of every run.
            unique_key: Tells schedules of one job name apart; default: the name.
            timezone: The IANA zone the fields are meant in, as a name or a `ZoneInfo`; daylight saving as in
                vixie cron.
            session: As in `enqueue`.
            grace: A run that cannot start within this after its time is skipped; default: it runs, once,
                however late.
            jitter: Each run is later than its time by at most this. How much follows from the schedule and
                the time, so every instance computes the same.
            start: The first possible time. An interval first runs at it.
            end: The last possible time. Then the schedule is completed.
            limit: How many runs there are in all. Then the schedule is completed.
            as_jobs: At its time the schedule stores a job of its own, and goes on at once.
            overlap: With *as_jobs*: "skip" stores no job while the one before is pending or processing.
            paused: Store it paused; see `resume_schedule`. It counts only if this call creates it.
            run_now: Let the first run be due at once, and the others at their times. It counts only if this
                call creates the schedule: the next start of the program adds no run.
            settings: How its runs run, stored with it: see `JobSettings`.

        Raises:
            ConfigurationError: An argument is wrong or unknown; the message names it.
            InvalidCronError: The expression cannot be used; nothing is stored.
            JobStateError: An active one-off job holds the key.

        Examples:
            >>> await monque.schedule("0 9 * * MON-FRI", "report", timezone="Europe/Berlin")
            >>> await monque.schedule(timedelta(seconds=30), "poll-mailbox", jitter=timedelta(seconds=3))
            >>> await monque.schedule("@hourly", "refresh-rates", run_now=True)
        """
        if settings:
            check_job_settings(settings)
        when = ScheduleSettings(
            grace=grace,
            jitter=jitter,
            start=start,
            end=end,
            limit=limit,
            as_jobs=as_jobs,
            overlap=overlap,
            paused=paused,
            run_now=run_now,
        )
        new = NewJob(job, data, unique_key=unique_key, **settings)
        return await self._storing.schedule(declare(cron, timezone, when), new, session)

    @subscribes
    def on(self, event: str | type[Event], listener: Listener[Any] | None = None) -> Any:
        """Call *listener* on each *event*, given by class or by kind; a decorator without *listener*.

        Listeners may be sync or async; one that raises is logged and disturbs nothing.

        Examples:
            >>> @monque.on(JobFailed)
            ... def alert(event: JobFailed) -> None:
            ...     print(event.job.name, event.error)
        """
        return subscribe(self._bus.add, event, listener)

    @subscribes
    def once(self, event: str | type[Event], listener: Listener[Any] | None = None) -> Any:
        """As `on`, for the next such event only."""
        return subscribe(partial(self._bus.add, once=True), event, listener)

    def off(self, event: EventKind | type[Event], listener: Listener[Any]) -> None:
        """Stop calling *listener* on *event*."""
        self._bus.remove(event, listener)

    def observe(self, observer: Observer) -> None:
        """Report to *observer* how many jobs are stored, wait, run and end here.

        For metrics; `monque.prometheus` has one ready.

        Examples:
            >>> monque.observe(StatsdObserver())
        """
        self._telemetry.add(observer)

    async def _prepare(self, connection: Connection) -> Context:
        database, lender = connection.database, connection.lender
        store = Store(
            database, self._options, Clock(), self._instance_id, lender=lender, workers=self._workers
        )
        tally = None if self._options.trends is None else Tally(store.clock)
        beside = Companions(store)
        new = partial(child_documents, self._workers, store, self._processing.wake)
        context = Context(store, self._bus, self._telemetry, self._state, Waits(store), beside, new, tally)
        await prepare(context, timeout=connection.open_timeout, own_claims=self._processing.claims)
        return context

    async def _enter_loop(self) -> None:
        """Begin afresh in the running loop if that of the connection has ended; refuse any other loop."""
        if (left := self._opening.left_behind()) is not None:
            self._forget()
            await left.connection.abandon()

    def _forget(self) -> object:
        """Be as new, and return what there was."""
        self._bus.forget_tasks()
        return self._opening.forget(), self._processing.forget()

    def _begin_afresh_in_child(self) -> object:
        """In a forked child, leave the connection, the loop and the instance id to the parent process."""
        self._instance_id = self._options.instance_id or str(uuid.uuid4())
        return self._forget(), dict(vars(self._state))

    def _context(self) -> Context:
        return self._opening.here().context

    def _registered(self, worker: Worker[Any]) -> Worker[Any]:
        self._processing.wake_for_new_worker()
        return worker


def _check_options(options: object) -> Options:
    if not isinstance(options, Options):
        raise ConfigurationError(f"options must be an Options(...), got {options!r}")
    return options


def _timeout(given: timedelta | float | None, default: timedelta) -> float:
    if given is None:
        return default.total_seconds()
    seconds = given.total_seconds() if isinstance(given, timedelta) else float(given)
    if not seconds >= 0:
        raise ConfigurationError(f"timeout must not be negative, got {given}")
    return seconds


_instances: weakref.WeakSet[Monque] = weakref.WeakSet()
# Kept for ever: finalising a client or a loop of the parent could change what both processes share.
_inherited: list[object] = []


def _begin_afresh_in_child() -> None:
    _inherited.extend(monque._begin_afresh_in_child() for monque in list(_instances))


if hasattr(os, "register_at_fork"):  # not on Windows
    os.register_at_fork(after_in_child=_begin_afresh_in_child)
