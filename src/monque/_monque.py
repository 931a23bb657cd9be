"""Monque: what users hold. Short methods that check, delegate and wake."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import uuid
import weakref
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime, timedelta, tzinfo
from types import TracebackType
from typing import Any, Self, TypeVar, overload

import pymongo
from bson import ObjectId
from pymongo import AsyncMongoClient
from pymongo.asynchronous.client_session import AsyncClientSession
from pymongo.asynchronous.database import AsyncDatabase

from monque._clock import Clock
from monque._connect import Connection, Connector
from monque._cron import Cron
from monque._errors import (
    ConfigurationError,
    InstanceConflictError,
    NotOpenError,
    driver_errors,
)
from monque._events import Event, EventBus, Listener, event_class
from monque._execute import Context
from monque._job import Job
from monque._management import Management
from monque._newjob import NewJob, build, build_schedule, decode
from monque._options import Options
from monque._runner import Runner
from monque._sessions import Session, join
from monque._signals import install, on_signals
from monque._store.document import Document, to_job
from monque._store.settler import Settler
from monque._store.store import Store
from monque._storing import insert, insert_all, insert_or_update_schedule
from monque._subscribe import EventKind, check_listener, subscribes
from monque._telemetry import Observer, Telemetry
from monque._threads import ThreadPool
from monque._typescript import warn_if_misread
from monque._upkeep import recover
from monque._workers import Handler, Worker, Workers

logger = logging.getLogger("monque")

T = TypeVar("T")

# MongoDB 6.0 speaks this version; older servers cannot build the index for unique keys.
_OLDEST_WIRE_VERSION = 17
# From 7.0 on, a mongos can find and change one document of a sharded collection without the shard key.
_OLDEST_SHARDING_WIRE_VERSION = 21

_OTHER_LOOP = (
    "this Monque was opened in another event loop and works only there; open one in each loop, send the "
    "call to its loop with asyncio.run_coroutine_threadsafe, or use a SyncMonque from threads"
)


@dataclass(frozen=True, slots=True)
class _Opened:
    """What exists between `open()` and `close()`."""

    connection: Connection
    context: Context
    loop: asyncio.AbstractEventLoop


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
        self, database: object = None, *, options: Options = Options(), workers: Workers | None = None
    ) -> None:
        if not isinstance(options, Options):
            raise ConfigurationError(f"options must be an Options(...), got {options!r}")
        if workers is not None and not isinstance(workers, Workers):
            raise ConfigurationError(f"workers must be a Workers(), got {workers!r}")
        self._connector = Connector(database)
        self._options = options
        self._workers = workers if workers is not None else Workers()
        self._bond = self._workers._home.bind(self)
        self._bus = EventBus()
        self._telemetry = Telemetry()
        self._threads = ThreadPool()
        self._active: Counter[str] = Counter()
        self._instance_id = self._options.instance_id or str(uuid.uuid4())
        self._opened: _Opened | None = None
        self._opening: tuple[asyncio.AbstractEventLoop, asyncio.Lock] | None = None
        self._runner: Runner | None = None
        _instances.add(self)

    def __repr__(self) -> str:
        state = ("running" if self._is_running() else "open") if self._is_open() else "closed"
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
        """What this instance writes into the jobs it claims."""
        return self._instance_id

    @property
    def database(self) -> AsyncDatabase[Any]:
        """The native database in use."""
        return self._open().connection.database

    @property
    def client(self) -> AsyncMongoClient[Any]:
        """The native client in use, for example to start a session."""
        return self.database.client

    def reconfigure(self, *, database: object = None, options: Options | None = None) -> None:
        """Change what this instance was made with, before it is opened; what is not given stays.

        For programs that run an instance made elsewhere, as the command line does.

        Raises:
            ConfigurationError: It is open, or what is given cannot be used.

        Examples:
            >>> monque.reconfigure(options=replace(monque.options, worker_concurrency=50))
        """
        if self._is_open():
            raise ConfigurationError(
                "this Monque is open, and its database and options can be changed only before; open it "
                "later, or give it the right ones when it is made"
            )
        if options is not None and not isinstance(options, Options):
            raise ConfigurationError(f"options must be an Options(...), got {options!r}")
        if database is not None:
            self._connector = Connector(database)
        if options is not None:
            self._options = options
            self._instance_id = options.instance_id or self._instance_id

    async def open(self) -> Self:
        """Connect, check the server, create indexes, put back the jobs of dead owners. Idempotent.

        Raises:
            ConnectionError: The server cannot be reached; told within a few seconds.
            ConfigurationError: The server is older than MongoDB 6.0, or its indexes are in the way.
            InstanceConflictError: The instance id is alive elsewhere.
        """
        loop = await self._enter_loop()
        async with self._one_at_a_time():
            if self._opened is None:
                connection = await self._connector.connect()
                try:
                    self._opened = _Opened(connection, await self._prepare(connection), loop)
                except BaseException:
                    await connection.close()
                    raise
                self._bond.is_closed = False
        return self

    async def close(self) -> None:
        """Stop if running, then disconnect. Idempotent.

        A handler cannot close the instance that runs it, as its own result could not be stored then; it
        may call `stop()`.
        """
        await self._enter_loop()
        if self._runner is not None:
            if self._runner.is_called_by_handler:
                raise ConfigurationError(
                    "a handler cannot close the Monque that runs it, because its result could not be stored "
                    "any more; let it call stop(), and close where you opened"
                )
            await self._runner.end(self._options.shutdown_timeout.total_seconds())
        async with self._one_at_a_time():
            opened, self._opened = self._opened, None
            self._bond.is_closed = True
            if opened is not None:
                await opened.connection.close()

    async def __aenter__(self) -> Self:
        return await self.open()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def start(self) -> None:
        """Begin to process jobs in the background of the running loop; opens if needed."""
        await self.open()
        runner = await self._running()
        if self._options.change_streams:
            runner.watch()
        if not runner.lasting:
            runner.lasting = True
            runner.announce()

    async def stop(self, *, timeout: timedelta | float | None = None) -> None:
        """Take no new jobs, wait for running ones, then stop. Without `start()` it does nothing.

        What still runs after *timeout* (default: `Options.shutdown_timeout`) is cancelled and put
        back, and told by a `job:error` event with a `ShutdownTimeoutError`.

        A handler may call this. It then waits for all other jobs, not for its own, which ends as usual
        when the handler returns.
        """
        seconds = _timeout(timeout, self._options.shutdown_timeout)
        if self._runner is not None:
            await self._enter_loop()
        if self._runner is not None:
            await self._runner.stop(seconds)

    async def run(self) -> None:
        """Process jobs until SIGINT or SIGTERM, then stop gracefully; a second signal stops at once.

        Every `run()` of the process hears a signal, and so does a handler that was set before. A third
        signal does what it does without Monque.

        Raises:
            Exception: A bug in Monque ended the scheduler; the error is raised here.
        """
        await self._enter_loop()
        starting, runner = asyncio.timeout(None), None

        def stop(_number: signal.Signals, times: int) -> None:
            if runner is not None:
                runner.begin_stop(self._options.shutdown_timeout.total_seconds() if times == 1 else 0)
            elif times == 1:
                starting.reschedule(asyncio.get_running_loop().time())

        # The second signal stops at once; a third one does what it does without us: it ends the process.
        with on_signals(stop, whose=self._instance_id, yields_after=2):
            if not await self._started(starting):
                return
            runner = self._runner
            assert runner is not None  # noqa: S101 - just started
            install()  # a web server that was started meanwhile would keep the signals from us
            try:
                if starting.expired():
                    await self.stop()
                await runner.ended.wait()
            except asyncio.CancelledError:
                await self.stop()
                raise
        if runner.failure is not None:
            raise runner.failure

    async def _started(self, starting: asyncio.Timeout) -> bool:
        """Start; False if a signal came before that was done."""
        try:
            async with starting:
                await self.start()
        except TimeoutError:
            if not starting.expired():
                raise
            logger.info("instance %s was told to stop before it had started", self._instance_id)
            return False
        return True

    async def run_until_idle(self) -> None:
        """Process everything that is due, then return: for scripts and tests.

        Jobs of names without a worker here, jobs that are due later (also because they failed and
        wait for their next try), and jobs that other instances run are not waited for. A handler that
        outlived an earlier `stop()` keeps its slot: a due job that needs this slot is waited for.

        Raises:
            ConfigurationError: A handler of this instance calls it, and would wait for itself.
        """
        await self.open()
        runner = await self._running()
        if runner.is_called_by_handler:
            raise ConfigurationError(
                "a handler cannot wait until the Monque that runs it is idle, because that waits for the "
                "handler to return; call run_until_idle() where the Monque was opened"
            )
        if not runner.lasting and not runner.guests:
            runner.announce()
        runner.guests += 1
        try:
            await runner.wait_idle()
        finally:
            runner.guests -= 1
            if not runner.guests and not runner.lasting:
                # This runner, not the one that is there by now: somebody may have stopped and started again.
                await runner.stop(self._options.shutdown_timeout.total_seconds())

    def is_healthy(self) -> bool:
        """Whether it is open and running, and reaches the database: what a readiness probe wants to know.

        False within five seconds after the connection is refused or reset, and within fifteen after the
        server or the network went silent; true again soon after the database is back. Asks nobody, and may
        be called from any thread. After a long block of the event loop, or a suspend of the machine, it is
        false until the database has answered.
        """
        if self._runner is None or not self._is_open():
            return False
        return self._is_running() and self._runner.contact.is_good

    @overload
    def worker(
        self, name: str, handler: None = None, *, concurrency: int | None = None, replace: bool = False
    ) -> Callable[[Handler[T]], Worker[T]]: ...

    @overload
    def worker(
        self, name: str, handler: Handler[T], *, concurrency: int | None = None, replace: bool = False
    ) -> Worker[T]: ...

    def worker(
        self,
        name: str,
        handler: Handler[T] | None = None,
        *,
        concurrency: int | None = None,
        replace: bool = False,
    ) -> Worker[T] | Callable[[Handler[T]], Worker[T]]:
        """Register the handler of a job name, before or after start; a decorator without *handler*.

        Args:
            name: The job name.
            handler: Called with one `Job`. `async def` runs on the loop, `def` in a thread.
            concurrency: How many of these jobs run at once here; default `Options.worker_concurrency`.
            replace: Take the place of a worker registered before; its running jobs go on.

        Raises:
            WorkerRegistrationError: The name has a worker, and *replace* is not set; or the handler cannot be
                used: it does not take one argument, or it is a generator function.
        """
        if handler is None:
            register = self._workers.worker(name, concurrency=concurrency, replace=replace)
            return lambda handler: self._registered(register(handler))
        return self._registered(self._workers.worker(name, handler, concurrency=concurrency, replace=replace))

    @overload
    async def enqueue(
        self,
        job: Worker[None] | str,
        data: None = None,
        *,
        run_at: datetime | None = None,
        delay: timedelta | None = None,
        unique_key: str | None = None,
        session: Session | None = None,
    ) -> Job[None]: ...

    @overload
    async def enqueue(
        self,
        job: Worker[T] | str,
        data: T,
        *,
        run_at: datetime | None = None,
        delay: timedelta | None = None,
        unique_key: str | None = None,
        session: Session | None = None,
    ) -> Job[T]: ...

    async def enqueue(
        self,
        job: Worker[Any] | str,
        data: Any = None,
        *,
        run_at: datetime | None = None,
        delay: timedelta | None = None,
        unique_key: str | None = None,
        session: Session | None = None,
    ) -> Job[Any]:
        """Store a job and return it; it runs as soon as it is due and a worker is free.

        Args:
            job: A job name or a `Worker`.
            data: The payload: a dataclass, a pydantic model, or anything BSON can hold.
            run_at: When to run it, as an aware datetime; default now. The past is fine.
            delay: How long from now to run it, instead of *run_at*.
            unique_key: If a job of this name with this key is pending or processing, that one is
                returned and nothing is stored. Its data is of the worker's type where that is known and
                the data fits, else as it is stored.
            session: Make the job part of this session's transaction: it exists, and workers are
                woken, only when the transaction commits. A session of `monque.client`, or of the
                blocking or Motor client that was handed to Monque.

        Raises:
            PayloadError: The data cannot be stored, or does not fit what the worker expects.
            PayloadTooLargeError: The data exceeds `Options.max_payload_size`.
            ConnectionError: The database cannot be reached or refused.

        Examples:
            >>> await monque.enqueue(send_email, Email(to="ada@example.org"), unique_key="welcome-ada")
        """
        context, joined = self._within(session)
        new = NewJob(job, data, run_at=run_at, delay=delay, unique_key=unique_key)
        document = build(new, self._workers, self._options, now=context.clock.now())
        with driver_errors("store the job"), self._telemetry.storing([document]) as note:
            stored = await insert(context.store, document, joined)
            note([stored])
        self._wake([stored], joined)
        return self._stored_job(new, document, stored)

    async def enqueue_many(
        self, jobs: Iterable[NewJob[Any]], *, session: Session | None = None
    ) -> list[Job[Any]]:
        """Store many jobs in few round trips; each is returned as by `enqueue`, in the same order.

        Everything is checked before anything is stored. Unique keys are honoured one by one, also
        among the jobs given.
        """
        context, joined = self._within(session)
        news = _new_jobs(jobs)
        now = context.clock.now()
        documents = [build(new, self._workers, self._options, now=now) for new in news]
        with driver_errors("store the jobs"), self._telemetry.storing(documents) as note:
            stored = await insert_all(context.store, documents, joined)
            note(stored)
        self._wake(stored, joined)
        return [
            self._stored_job(new, document, there)
            for new, document, there in zip(news, documents, stored, strict=True)
        ]

    @overload
    async def now(self, name: Worker[None] | str, data: None = None) -> Job[None]: ...

    @overload
    async def now(self, name: Worker[T] | str, data: T) -> Job[T]: ...

    async def now(self, name: Worker[Any] | str, data: Any = None) -> Job[Any]:
        """Store a job that is due now."""
        job: Job[Any] = await self.enqueue(name, data)
        return job

    @overload
    async def schedule(
        self,
        cron: str,
        job: Worker[None] | str,
        data: None = None,
        *,
        unique_key: str | None = None,
        timezone: str | tzinfo = "UTC",
        session: Session | None = None,
    ) -> Job[None]: ...

    @overload
    async def schedule(
        self,
        cron: str,
        job: Worker[T] | str,
        data: T,
        *,
        unique_key: str | None = None,
        timezone: str | tzinfo = "UTC",
        session: Session | None = None,
    ) -> Job[T]: ...

    async def schedule(
        self,
        cron: str,
        job: Worker[Any] | str,
        data: Any = None,
        *,
        unique_key: str | None = None,
        timezone: str | tzinfo = "UTC",
        session: Session | None = None,
    ) -> Job[Any]:
        """Store a recurring job, or bring the one that is there up to date; safe at every start.

        An unchanged call changes nothing. Another payload keeps the next time; another cron or zone
        computes it anew; while it runs, a change takes effect after that run. Only a next time that does
        not fit the cron is repaired: a TypeScript instance may leave one.

        Args:
            cron: Five fields, or a name such as @daily or @hourly.
            job: A job name or a `Worker`.
            data: The payload of every run.
            unique_key: Tells schedules of one job name apart; default: the name.
            timezone: The IANA zone the fields are meant in, as a name or a `ZoneInfo`; daylight saving as in
                vixie cron.
            session: As in `enqueue`.

        Raises:
            InvalidCronError: The expression cannot be used; nothing is stored.
            JobStateError: An active one-off job holds the key.

        Examples:
            >>> await monque.schedule("0 9 * * MON-FRI", "report", timezone="Europe/Berlin")
        """
        context, joined = self._within(session)
        parsed = Cron.parse(cron, timezone)
        new = NewJob(job, data, unique_key=unique_key)
        await warn_if_misread(self._open_here().context.store, parsed)
        with driver_errors("store the schedule"):
            while True:
                document = build_schedule(parsed, new, self._workers, self._options, now=context.clock.now())
                with self._telemetry.storing([document]) as note:
                    stored = await insert_or_update_schedule(context.store, document, joined)
                    if stored is not None:
                        note([stored])
                if stored is not None:
                    self._wake([stored], joined)
                    return to_job(stored, data=data)

    @subscribes
    def on(self, event: str | type[Event], listener: Listener[Any] | None = None) -> Any:
        """Call *listener* on each *event*, given by class or by kind; a decorator without *listener*.

        Listeners may be sync or async; one that raises is logged and disturbs nothing.

        Examples:
            >>> @monque.on(JobFailed)
            ... def alert(event: JobFailed) -> None:
            ...     print(event.job.name, event.error)
        """
        return self._listen(event, listener, once=False)

    @subscribes
    def once(self, event: str | type[Event], listener: Listener[Any] | None = None) -> Any:
        """As `on`, for the next such event only."""
        return self._listen(event, listener, once=True)

    def off(self, event: EventKind | type[Event], listener: Listener[Any]) -> None:
        """Stop calling *listener* on *event*."""
        self._bus.remove(event, listener)

    def observe(self, observer: Observer) -> None:
        """Tell *observer* in numbers what happens here: how many jobs are stored, wait, run and end.

        For metrics; `monque.prometheus` has one ready.

        Examples:
            >>> monque.observe(StatsdObserver())
        """
        self._telemetry.add(observer)

    async def _prepare(self, connection: Connection) -> Context:
        clock = Clock()
        store = Store(connection.database, self._options, clock, self._instance_id)
        context = Context(
            store=store,
            settler=Settler(store),
            connection=connection,
            bus=self._bus,
            options=self._options,
            clock=clock,
            threads=self._threads,
            telemetry=self._telemetry,
        )
        with driver_errors("open the database"):
            with pymongo.timeout(connection.open_timeout), _one_loop():
                hello = await store.hello()
                check_server(hello)
                await check_sharding(hello, store)
                await clock.refresh(store.hello)
            if self._options.create_indexes:
                await store.create_indexes()
            if self._options.instance_id and await store.is_alive_elsewhere(besides=self._kept_claims()):
                raise InstanceConflictError(self._instance_id)
            if self._options.recover_stale_jobs:
                await recover(context)
        return context

    def _is_open(self) -> bool:
        return self._opened is not None and not self._opened.loop.is_closed()

    def _open(self) -> _Opened:
        if self._opened is None:
            raise NotOpenError(
                "this Monque is not open; use `async with monque:` or `await monque.open()` first"
            )
        return self._opened

    def _context(self) -> Context:
        return self._open_here().context

    def _clock(self) -> Clock:
        return self._open().context.clock

    def _open_here(self) -> _Opened:
        """What was opened, for a call that works in the running event loop."""
        opened = self._open()
        if _running_loop() is not opened.loop:
            raise ConfigurationError(_OTHER_LOOP)
        return opened

    async def _enter_loop(self) -> asyncio.AbstractEventLoop:
        """The running loop. What was opened must belong to it, or to a loop that has ended."""
        loop, opened = _running_loop(), self._opened
        if opened is not None and opened.loop is not loop:
            if not opened.loop.is_closed():
                raise ConfigurationError(_OTHER_LOOP)
            self._forget()
            await opened.connection.abandon()
        return loop

    def _forget(self) -> None:
        """Be as new: nothing can be awaited that belonged to a loop which will never run again."""
        self._opened = self._opening = self._runner = None
        self._threads = ThreadPool()
        self._active = Counter()
        self._bus.forget_tasks()

    def _begin_afresh_in_child(self) -> None:
        """In a forked child: leave the connection, the loop and the instance id to the parent process."""
        _inherited.append((self._opened, self._runner, self._threads))
        self._forget()
        self._instance_id = self._options.instance_id or str(uuid.uuid4())

    def _within(self, session: Session | None) -> tuple[Context, AsyncClientSession | None]:
        """What to store with, so that it is part of the caller's transaction if there is one."""
        opened = self._open_here()
        if session is None:
            return opened.context, None
        store, joined = join(session, opened.context.store, opened.connection)
        return replace(opened.context, store=store), joined

    def _stored_job(self, new: NewJob[Any], document: Document, stored: Document) -> Job[Any]:
        """The new job with the data object as given, or the holder of its key with the holder's own data."""
        is_new = stored["_id"] == document["_id"]
        return to_job(stored, data=new.data if is_new else decode(new, stored, self._workers))

    def _is_running(self) -> bool:
        return self._runner is not None and self._runner.is_running

    async def _running(self) -> Runner:
        """The runner that runs; a new one if there is none."""
        while self._runner is None or not self._is_running():
            if self._runner is not None and not self._runner.ended.is_set():
                # One that is still stopping must be gone before the next one starts.
                if self._runner.is_called_by_handler:
                    raise ConfigurationError(
                        "a handler that has stopped its Monque cannot start it again, because that waits for "
                        "the handler to return; start it where you started it first"
                    )
                await self._runner.end(self._options.shutdown_timeout.total_seconds())
                continue
            before, self._runner = self._runner, Runner(self._open().context, self._workers, self._active)
            if before is not None:
                before.successor = self._runner
            self._runner.start()
        return self._runner

    def _kept_claims(self) -> list[ObjectId]:
        """The jobs whose handlers outlived the last stop: their claims are alive, but not elsewhere."""
        return [] if self._runner is None else self._runner.claims

    def _one_at_a_time(self) -> asyncio.Lock:
        """The lock of opening and closing; one that was waited for belongs to its event loop for ever."""
        loop = asyncio.get_running_loop()
        if self._opening is None or self._opening[0] is not loop:
            self._opening = (loop, asyncio.Lock())
        return self._opening[1]

    def _registered(self, worker: Worker[T]) -> Worker[T]:
        if self._is_running() and self._runner is not None:
            self._runner.bell.ring_from_any_thread()
        return worker

    def _wake(self, documents: Sequence[Document], session: AsyncClientSession | None = None) -> None:
        """Ring for jobs stored here. In a transaction nobody can see them before the commit."""
        runner = self._runner
        if runner is None or not runner.is_running or (session is not None and session.in_transaction):
            return
        due: dict[str, datetime] = {}
        for document in documents:
            name, run_at = document.get("name"), document.get("nextRunAt")
            if type(name) is not str or not isinstance(run_at, datetime):
                continue  # somebody else wrote it, and nobody can claim it
            if name not in due or run_at < due[name]:
                due[name] = run_at
        job_id = documents[0]["_id"] if len(documents) == 1 else None
        if not isinstance(job_id, ObjectId):
            job_id = None
        for name, run_at in due.items():
            if self._workers.serves(name):
                runner.wake_for_stored(name, run_at, job_id)

    def _wake_all(self) -> None:
        if self._is_running() and self._runner is not None:
            self._runner.wake()

    def _listen(self, event: str | type[Event], listener: Listener[Any] | None, *, once: bool) -> Any:
        event_class(event)  # refuses what is no event, also while there is no listener yet

        def add(listener: Listener[Any]) -> Listener[Any]:
            if callable(listener):
                check_listener(event, listener)
            self._bus.add(event, listener, once=once)
            return listener

        return add if listener is None else add(listener)


def check_server(hello: Document) -> None:
    """Refuse servers that cannot hold the index for unique keys."""
    if hello.get("maxWireVersion", 0) < _OLDEST_WIRE_VERSION:
        raise ConfigurationError(
            "this MongoDB server is older than 6.0; Monque needs 6.0 or newer "
            f"(it speaks wire version {hello.get('maxWireVersion')}, 6.0 speaks {_OLDEST_WIRE_VERSION})"
        )


async def check_sharding(hello: Document, store: Store) -> None:
    """Refuse a sharded collection where one job cannot be changed by its id alone."""
    if hello["maxWireVersion"] < _OLDEST_SHARDING_WIRE_VERSION and await store.is_sharded():
        raise ConfigurationError(
            "the jobs collection is sharded, and this MongoDB cluster is older than 7.0, where a job cannot "
            "be changed by its id alone; use 7.0 or newer, or leave the collection unsharded"
        )


def _new_jobs(jobs: object) -> list[NewJob[Any]]:
    if not isinstance(jobs, Iterable):
        raise ConfigurationError(f"enqueue_many takes an iterable of NewJob(...) values, got {jobs!r}")
    news = list(jobs)
    for job in news:
        if not isinstance(job, NewJob):
            raise ConfigurationError(f"enqueue_many takes NewJob(...) values, got {job!r}")
    return news


def _running_loop() -> asyncio.AbstractEventLoop:
    try:
        return asyncio.get_running_loop()
    except RuntimeError as error:
        raise ConfigurationError(
            "Monque needs asyncio, and no asyncio event loop runs here; start the program with "
            "asyncio.run(...), choose the asyncio backend in AnyIO (trio does not work), or use a SyncMonque"
        ) from error


def _timeout(given: timedelta | float | None, default: timedelta) -> float:
    if given is None:
        return default.total_seconds()
    seconds = given.total_seconds() if isinstance(given, timedelta) else float(given)
    if not seconds >= 0:
        raise ConfigurationError(f"timeout must not be negative, got {given}")
    return seconds


@contextmanager
def _one_loop() -> Iterator[None]:
    """A client belongs to the loop it was first used in; say so in our own words."""
    try:
        yield
    except RuntimeError as error:
        if "event loop" not in str(error):
            raise
        raise ConfigurationError(
            "this AsyncMongoClient was used in another event loop before and cannot be used in this one; "
            "make the client inside this loop, or pass a URI"
        ) from error


_instances: weakref.WeakSet[Monque] = weakref.WeakSet()
# Kept for ever: finalising a client or a loop of the parent could change what both processes share.
_inherited: list[object] = []


def _begin_afresh_in_child() -> None:
    for monque in list(_instances):
        monque._begin_afresh_in_child()


if hasattr(os, "register_at_fork"):  # not on Windows
    os.register_at_fork(after_in_child=_begin_afresh_in_child)
