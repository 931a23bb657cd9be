"""Opening, starting, stopping and closing: the connection, its event loop, and one runner at a time."""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import logging
import signal
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, contextmanager
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar

import pymongo
from bson import ObjectId
from pymongo.asynchronous.client_session import AsyncClientSession

from monque._connect.connector import Connection, Connector
from monque._engine.context import Context
from monque._engine.hooks import Life
from monque._engine.recovery import keeps_of, recover
from monque._engine.runner import Runner
from monque._engine.threads import ThreadPool
from monque._importing import refuse_while_importing
from monque._ops import register
from monque._signals import install, on_signals
from monque._store.document import Document, Key, any_urgent, earliest_due
from monque._store.lines import has_lines
from monque._store.pauses import Settings
from monque._store.store import Store, wrong_shard_key
from monque._values.errors import ConfigurationError, InstanceConflictError, NotOpenError, driver_errors
from monque._values.options import Options
from monque._workers.home import Owner
from monque._workers.middleware import AnyMiddleware, Around
from monque._workers.signature import is_async, is_generator_function, name_of
from monque._workers.workers import Workers

M = TypeVar("M")
Lifespan: TypeAlias = Callable[[M], AbstractAsyncContextManager[Mapping[str, Any] | None]]
"""Takes the Monque and returns what is entered before the first job and left after the last one."""


def bind_lifespan(lifespan: Callable[[Any], object] | None, owner: Owner) -> Callable[[], object] | None:
    """Check a lifespan, and return it as a function without arguments, for the Monque of *owner*.

    The function does not keep that alive. A `SyncMonque` may take its place later.

    Raises:
        ConfigurationError: It is no function of one argument, or it lacks its decorator.
    """
    if lifespan is None:
        return None
    _check(lifespan)
    return lambda: lifespan(owner.monque())


def _check(lifespan: Any) -> None:
    if not callable(lifespan):
        raise ConfigurationError(f"lifespan is a function that takes the Monque, got {lifespan!r}")
    if hasattr(lifespan, "__aenter__") or hasattr(lifespan, "__enter__"):
        raise ConfigurationError(
            "lifespan is the function itself; it is called when jobs are to be processed, each time anew. "
            f"Write lifespan=connect, not lifespan=connect(); got {lifespan!r}"
        )
    if is_generator_function(lifespan) or is_async(lifespan):
        raise ConfigurationError(
            f"the lifespan {name_of(lifespan)} returns no context manager; decorate it with "
            "@contextlib.asynccontextmanager (one that blocks, of a SyncMonque: contextmanager)"
        )
    try:
        inspect.signature(lifespan).bind("the Monque")
    except TypeError as error:
        raise ConfigurationError(
            f"a lifespan takes one argument, the Monque; {name_of(lifespan)} does not ({error})"
        ) from error
    except ValueError:
        return  # a function written in C may not tell what it takes


logger = logging.getLogger("monque")

# MongoDB 6.0 speaks this version; older servers cannot build the index for unique keys.
_OLDEST_WIRE_VERSION = 17
# From 7.0 on, a mongos can find and change one document of a sharded collection without the shard key.
_OLDEST_SHARDING_WIRE_VERSION = 21

# How long to recover jobs before an instance is open, in seconds; the rest follows with its heartbeats. Jobs
# that cannot be changed take half a second each, and must not keep an instance from opening.
_LONGEST_RECOVERY = 30.0


async def prepare(context: Context, *, timeout: float | None, own_claims: Mapping[Key, Any]) -> None:
    """Make a collection ready for use.

    Args:
        context: Of the instance that is being opened.
        timeout: How long the first contact may take.
        own_claims: The ids of the jobs whose handlers outlived a stop of this very instance: their claims are
            alive, but not elsewhere.
    """
    store, options = context.store, context.store.options
    with driver_errors("open the database"):
        with pymongo.timeout(timeout), _one_loop():
            hello = await store.server.hello()
            check_server(hello)
            await check_sharding(hello, store)
            await store.clock.refresh(store.server.hello)
        if options.create_indexes:
            await store.create_indexes()
        else:
            await store.uses.read()
        for use in options.uses:
            await store.uses.begin(use)
        if options.instance_id and await store.is_alive_elsewhere(besides=own_claims.values()):
            await _take_over(context)
        if options.recover_stale_jobs:
            await recover(context, own=own_claims, within=_LONGEST_RECOVERY, is_opening=not own_claims)
        if options.instance_id:
            await register.forget(context.companions.register, store.instance_id)


async def _take_over(context: Context) -> None:
    """Use the id of an earlier process that is gone, though its claims look alive for a while.

    Raises:
        InstanceConflictError: It may be alive.
    """
    store = context.store
    if not await register.gone_among(context.companions.register, store, [store.instance_id]):
        raise InstanceConflictError(store.instance_id)
    logger.warning("the earlier process of instance %r is gone; this one takes its place", store.instance_id)


def check_server(hello: Document) -> None:
    """Refuse servers that cannot hold the index for unique keys."""
    if hello.get("maxWireVersion", 0) < _OLDEST_WIRE_VERSION:
        raise ConfigurationError(
            "this MongoDB server is older than 6.0; Monque needs 6.0 or newer "
            f"(it speaks wire version {hello.get('maxWireVersion')}, 6.0 speaks {_OLDEST_WIRE_VERSION})"
        )


async def check_sharding(hello: Document, store: Store) -> None:
    """Refuse a sharded collection where a promise cannot be kept.

    On an old cluster, a job cannot be changed by its id alone. Unless the name alone is the shard key, an
    index that begins with the name cannot be unique.
    """
    shard_key = await store.server.shard_key()
    if shard_key and hello["maxWireVersion"] < _OLDEST_SHARDING_WIRE_VERSION:
        raise ConfigurationError(
            "the jobs collection is sharded, and this MongoDB cluster is older than 7.0, where a job cannot "
            "be changed by its id alone; use 7.0 or newer, or leave the collection unsharded"
        )
    if not shard_key <= {"name"}:
        raise wrong_shard_key(store.collection)


@contextmanager
def _one_loop() -> Iterator[None]:
    """Say in our own words that a client belongs to the loop in which it was first used."""
    try:
        yield
    except RuntimeError as error:
        if "event loop" not in str(error):
            raise
        raise ConfigurationError(
            "this AsyncMongoClient was used in another event loop before and cannot be used in this one; "
            "make the client inside this loop, or pass a URI"
        ) from error


_OTHER_LOOP = (
    "this Monque was opened in another event loop and works only there; open one in each loop, send the "
    "call to its loop with asyncio.run_coroutine_threadsafe, or use a SyncMonque from threads"
)


@dataclass(frozen=True, slots=True)
class Opened:
    """The parts that exist between `open()` and `close()`."""

    connection: Connection
    context: Context
    store: Store
    loop: asyncio.AbstractEventLoop


class Opening:
    """The connection of one `Monque`. It belongs to the event loop in which it was opened."""

    def __init__(self, connector: Connector, owner: Owner) -> None:
        self.connector = connector
        self._owner = owner
        self._opened: Opened | None = None
        self._lock: tuple[asyncio.AbstractEventLoop, asyncio.Lock] | None = None

    @property
    def is_open(self) -> bool:
        """True if it is open, in a loop that has not ended."""
        return self.loop is not None

    @property
    def loop(self) -> asyncio.AbstractEventLoop | None:
        """The event loop in which it is open, if it is."""
        opened = self._opened
        return None if opened is None or opened.loop.is_closed() else opened.loop

    def anywhere(self) -> Opened:
        """Return what is open, for a call that may come from any thread."""
        if self._opened is None:
            raise NotOpenError(
                "this Monque is not open; use `async with monque:` or `await monque.open()` first"
            )
        return self._opened

    def here(self) -> Opened:
        """Return what is open, for a call that works in the running event loop."""
        opened = self._opened or self.anywhere()
        if running_loop() is not opened.loop:
            raise ConfigurationError(_OTHER_LOOP)
        return opened

    def left_behind(self) -> Opened | None:
        """Return what was opened in a loop that has ended since, and refuse a call from a second loop."""
        loop, opened = running_loop(), self._opened
        if opened is None or opened.loop is loop:
            return None
        if not opened.loop.is_closed():
            raise ConfigurationError(_OTHER_LOOP)
        return opened

    def forget(self) -> Opened | None:
        """Return what is open, and be as new: nothing of a loop that will never run again can be awaited."""
        opened, self._opened, self._lock = self._opened, None, None
        return opened

    async def open(self, prepare: Callable[[Connection], Awaitable[Context]]) -> None:
        """Connect and prepare, unless it is open."""
        refuse_while_importing()
        loop = running_loop()
        async with self._one_at_a_time():
            if self._opened is None:
                connection = await self.connector.connect()
                try:
                    context = await prepare(connection)
                except BaseException:
                    await connection.close()
                    raise
                self._opened = Opened(connection, context, context.store, loop)
                self._owner.is_closed = False

    async def close(self) -> None:
        """Disconnect, if it is open."""
        async with self._one_at_a_time():
            opened, self._opened = self._opened, None
            self._owner.is_closed = True
            if opened is not None:
                opened.context.waits.close()
                await opened.connection.close()

    def _one_at_a_time(self) -> asyncio.Lock:
        """Return the lock of opening and closing, which belongs to the running loop."""
        loop = asyncio.get_running_loop()
        if self._lock is None or self._lock[0] is not loop:
            self._lock = (loop, asyncio.Lock())
        return self._lock[1]


def running_loop() -> asyncio.AbstractEventLoop:
    """Return the running event loop, or say what a program without one can do."""
    try:
        return asyncio.get_running_loop()
    except RuntimeError as error:
        raise ConfigurationError(
            "Monque needs asyncio, and no asyncio event loop runs here; start the program with "
            "asyncio.run(...), choose the asyncio backend in AnyIO (trio does not work), or use a SyncMonque"
        ) from error


# The uses that settings of workers need.
_USES = {"on_failure": "follow_up", "keep": "keep"}


class Processing:
    """The runner of one `Monque`: a new one each time that processing begins."""

    def __init__(
        self,
        opening: Opening,
        workers: Workers,
        lifespan: Callable[[], object] | None = None,
        middleware: tuple[AnyMiddleware, ...] = (),
    ) -> None:
        self._opening = opening
        self._workers = workers
        self._lifespan = lifespan
        self.middleware = middleware
        """In order; that of the workers comes inside of it."""
        self._runner: Runner | None = None
        self._life: Life | None = None
        """The hooks of the runner, or of the one that is about to be."""
        self._threads = ThreadPool()
        self.active: Counter[str] = Counter()
        """The number of jobs of each name that run here, also those that outlived a stop."""

    @property
    def has_begun(self) -> bool:
        """True if there is a runner, be it one that has stopped, or start hooks run."""
        return self._runner is not None or self._life is not None

    @property
    def is_running(self) -> bool:
        """True if jobs are being processed."""
        return self._runner is not None and self._runner.is_running

    @property
    def is_healthy(self) -> bool:
        """True if jobs are being processed and the database answers; any thread may ask."""
        runner = self._runner
        return runner is not None and runner.is_running and runner.contact.is_good

    def look_for_dead(self) -> None:
        """Look at once for jobs of dead owners, if jobs are being processed; any thread may ask."""
        if (runner := self._runner) is not None and runner.is_running:
            runner.look_for_dead()

    @property
    def claims(self) -> Mapping[Key, Any]:
        """The ids of the jobs whose claims are alive here: after a stop, those whose handlers outlived it."""
        return {} if self._runner is None else self._runner.claims

    async def start(self, options: Options) -> None:
        """Process jobs until `stop` is called."""
        runner = await self._ensure_runner(options)
        if runner is None:
            return
        if options.change_streams:
            runner.watch()
        if not runner.lasting:
            runner.lasting = True
            runner.announce()

    async def run_until_idle(self, options: Options) -> None:
        """Process jobs until nothing is due."""
        runner = await self._ensure_runner(options)
        if runner is None:
            return
        if runner.is_called_by_handler:
            raise ConfigurationError(
                "a handler cannot wait until the Monque that runs it is idle, because that waits for the "
                "handler to return; call run_until_idle() where the Monque was opened"
            )
        if not runner.lasting and not runner.idle_waiters:
            runner.announce()
        timeout, caller = options.shutdown_timeout.total_seconds(), asyncio.current_task()
        runner.idle_waiters.add(caller)
        try:
            await runner.claiming.wait_idle(runner.idle_waiters, timeout)
        finally:
            runner.idle_waiters.discard(caller)
            if not runner.idle_waiters and not runner.lasting:
                # This runner, not the one that is there by now: somebody may have stopped and started again.
                await runner.stop(timeout)

    async def run(self, start: Callable[[], Awaitable[None]], options: Options, instance_id: str) -> None:
        """Process jobs until a signal comes or `stop` is called; raise the bug that ended it, if one did."""
        starting, runner = asyncio.timeout(None), None

        def stop(_number: signal.Signals, times: int) -> None:
            if runner is not None:
                runner.begin_stop(options.shutdown_timeout.total_seconds() if times == 1 else 0)
            elif times == 1:
                starting.reschedule(asyncio.get_running_loop().time())

        with on_signals(stop, whose=instance_id, yields=True):
            if not await _started(start, starting):
                logger.info("instance %s was told to stop before it had started", instance_id)
                return
            runner = self._runner
            if runner is None or runner.ended.is_set():
                return  # `stop` was called while start hooks ran
            install()  # a web server that was started meanwhile would keep the signals from us
            try:
                if starting.expired():
                    await self.stop(options.shutdown_timeout.total_seconds())
                await runner.ended.wait()
            except asyncio.CancelledError:
                await self.stop(options.shutdown_timeout.total_seconds())
                raise
        if runner.failure is not None:
            raise runner.failure

    async def stop(self, timeout: float) -> None:
        """Take no new jobs, and wait for running ones, but not for the handler that calls this."""
        self._refuse_hooks()
        if self._life is not None and self._life.is_starting:
            await self._life.end()
        elif self._runner is not None:
            await self._runner.stop(timeout)

    async def end(self, timeout: float) -> None:
        """As `stop`, for good: afterwards nothing can be stored any more."""
        self._refuse_hooks()
        if self._life is not None and self._life.is_starting:
            await self._life.end()
        if self._runner is None:
            return
        if self._runner.is_called_by_handler:
            raise ConfigurationError(
                "a handler cannot close the Monque that runs it, because its result could not be stored "
                "any more; let it call stop(), and close where you opened"
            )
        await self._runner.end(timeout)

    def forget(self) -> object:
        """Return what there is, and be as new: nothing of a loop that will never run again can be awaited."""
        left = self._runner, self._life
        if self._runner is not None:
            self._runner.abandon()
        self._runner, self._life, self._threads, self.active = None, None, ThreadPool(), Counter()
        return left

    def wake(
        self,
        documents: Sequence[Document],
        session: AsyncClientSession | None = None,
        *,
        new: ObjectId | None = None,
    ) -> None:
        """Claim jobs that were stored or changed here, but not in a transaction: nobody can see them yet.

        *new* is the id of a single job that did not exist before: the change stream tells of it, too.
        """
        runner = self._runner
        if runner is None or (session is not None and session.in_transaction):
            return
        urgent = any_urgent(documents)
        for name, run_at in earliest_due(documents).items():
            runner.claiming.wake_for_stored(name, run_at, new, urgent=urgent)

    def learn(self, settings: Settings, sent: float) -> None:
        """Let what was written to the control document here, at *sent* or later, count here at once."""
        if self._runner is not None and self._runner.is_running:
            self._runner.learn(settings, sent)

    def wake_all(self, *, urgent: bool = False) -> None:
        """Poll for every name: many jobs became due, or *urgent*."""
        if self._runner is not None and self._runner.is_running:
            self._runner.claiming.wake(urgent=urgent)

    def wake_name(self, name: str) -> None:
        """Poll for a name: jobs of it became due."""
        if self._runner is not None and self._runner.is_running and self._workers.serves(name):
            self._runner.claiming.wake(name)

    def look_at_lines(self, document: Document | None) -> None:
        """Hand over the turn that a job may have had, which an operator has changed; None: of many jobs."""
        if self._runner is not None and self._runner.is_running and any(map(has_lines, self._workers)):
            name = None if document is None else document.get("name")
            self._runner.claiming.lines.on_changed(name, document)

    def wake_for_new_worker(self) -> None:
        """Poll, now that a worker was registered, in whatever thread."""
        if self._runner is not None and self._runner.is_running:
            self._runner.on_worker()

    async def _ensure_runner(self, options: Options) -> Runner | None:
        """Return the runner that runs; make one if there is none, after the start hooks.

        None if `stop` was called meanwhile: there is nothing to run any more.
        """
        self._refuse_hooks()
        if self._workers.has_limits:
            with driver_errors("begin the use"):
                for use in ("limit", "parked") if any(map(has_lines, self._workers)) else ("limit",):
                    await self._opening.here().store.uses.begin(use)
        if not self.is_running:
            self._around()
            await self._begin_uses()
        while not self.is_running:
            if self._runner is not None and not self._runner.ended.is_set():
                await self._wait_for_end(self._runner, options)
            elif self._life is None or not self._life.is_starting:
                self._begin()
            else:
                was_ending = self._life.is_ending
                if await self._life.started() or not was_ending:
                    return self._runner if self.is_running else None
        return self._runner

    def _around(self) -> Around:
        """The middleware of the next runner; it is known when it starts, as its hooks are."""
        around = Around.of((*self.middleware, *self._workers.middleware))
        if any(worker.address is not None for worker in self._workers.served):
            around.addresses()  # an error is one of the start, not of each run
        return around

    async def _begin_uses(self) -> None:
        """Begin what the settings of workers need, and let all instances know how long jobs are kept."""
        store, served = self._opening.anywhere().store, self._workers.served
        with driver_errors("begin to process jobs"):
            for setting, use in _USES.items():
                if any(setting in worker.settings for worker in served):
                    await store.uses.begin(use)
            if store.uses.is_noted("keep"):
                await store.control.keep(keeps_of(served), [worker.name for worker in served])

    async def _wait_for_end(self, runner: Runner, options: Options) -> None:
        """A runner that is still stopping must be gone before the next one starts."""
        if runner.is_called_by_handler:
            raise ConfigurationError(
                "a handler that has stopped its Monque cannot start it again, because that waits for "
                "the handler to return; start it where you started it first"
            )
        await runner.end(options.shutdown_timeout.total_seconds())

    def _begin(self) -> None:
        """Make a runner, at once if there are no hooks, else when they have succeeded."""
        context, hooks = self._opening.anywhere().context, self._workers._hooks.declared
        if not hooks and self._lifespan is None:
            self._life = None
            self._make_runner(context)
            return
        self._life = Life(context, hooks, self._lifespan, self._threads)
        # Handlers see the context variables of whoever has started, not those that a hook has set for itself.
        variables = contextvars.copy_context()
        self._life.begin(lambda: variables.run(self._make_runner, context), self._on_lost)

    def _make_runner(self, context: Context) -> None:
        before, end_life = self._runner, None if self._life is None else self._life.end
        self._runner = Runner(
            context, self._workers, self.active, self._threads, around=self._around(), end_life=end_life
        )
        if before is not None:
            self._runner.follow(before)
        self._runner.start()

    def _on_lost(self, error: BaseException) -> None:
        if self._runner is not None and not self._runner.is_loop_ending():
            self._runner.fail(error, "the lifespan has ended by itself, so the scheduler stops")

    def _refuse_hooks(self) -> None:
        if self._life is not None and self._life.is_caller:
            raise ConfigurationError(
                "a hook cannot start, stop or close the Monque that calls it, because that waits for the "
                "hook to return; to prevent a start, raise an error in a start hook"
            )


async def _started(start: Callable[[], Awaitable[None]], starting: asyncio.Timeout) -> bool:
    """Start; return False if *starting* ran out before that was done."""
    try:
        async with starting:
            await start()
    except TimeoutError:
        if not starting.expired():
            raise
        return False
    return True
