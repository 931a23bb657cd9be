"""The loops of a running instance: claim, heartbeat, recover, prune, watch; and how they end."""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import timedelta
from functools import partial

from bson import ObjectId
from pymongo.errors import OperationFailure, PyMongoError

from monque._errors import ShutdownTimeoutError
from monque._events import (
    ClaimLost,
    JobError,
    WatchClosed,
    WatchConnected,
    WatchFailed,
    WatchUnavailable,
)
from monque._execute import Context, Interruption, Run, execute
from monque._store import transitions
from monque._store.document import Document, attempt_of
from monque._store.store import Look
from monque._store.watch import Watch, WatchUnavailableError
from monque._upkeep import prune, recover
from monque._wakeup import WakeUp
from monque._workers import Workers

logger = logging.getLogger("monque")

# How long cancelled handlers get to clean up, and releases to be written, after the shutdown timeout.
_GRACE = 3.0
_LONGEST_PAUSE = 5.0


class Runner:
    """Everything that runs between `start()` and `stop()`; made anew by each start.

    Invariant: a job is in `_runs` from before its task starts until after it is settled, so slots in
    use are never understated.
    """

    def __init__(self, context: Context, workers: Workers, active: Counter[str], *, watch: bool) -> None:
        self._context = context
        self._workers = workers
        self._active = active  # by name, shared with earlier and later runners of the same instance
        self._watching = watch
        self.bell = WakeUp(context.clock)
        self._runs: dict[tuple[ObjectId, int], Run] = {}
        self._leftover: set[Run] = set()
        self._live = False
        self.in_contact = True
        self._closing = asyncio.Event()
        self._late = asyncio.Event()
        self._upkeep_over = asyncio.Event()
        self._deadline: asyncio.TimerHandle | None = None
        self._claiming: asyncio.Task[None] | None = None
        self._idle_waiters: list[asyncio.Future[None]] = []
        self._stopping: asyncio.Task[None] | None = None
        self.failure: BaseException | None = None
        self.ended = asyncio.Event()

    # Life

    def start(self) -> None:
        """Begin to work, in the background of the running loop."""
        self._supervisor = asyncio.create_task(self._supervise(), name="monque")

    async def stop(self, timeout: float) -> None:
        """Stop in order; concurrent calls share one drain and the earliest deadline."""
        self._hurry(timeout)
        self._closing.set()
        self.bell.ring()
        if self._stopping is None:
            self._stopping = asyncio.create_task(self._shut_down(), name="monque-stop")
        await asyncio.shield(self._stopping)

    async def wait_idle(self) -> None:
        """Wait until nothing is due and nothing runs here."""
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._idle_waiters.append(waiter)
        self.bell.ring()
        await waiter

    @property
    def is_running(self) -> bool:
        """Started, not stopping, and no bug has ended it."""
        return not self._closing.is_set() and self.failure is None

    async def _supervise(self) -> None:
        """Own the loops. They survive database errors; anything else is a bug and ends us loudly."""
        try:
            async with asyncio.TaskGroup() as group:
                self._claiming = group.create_task(self._claim_loop())
                group.create_task(self._every(self._context.options.heartbeat_interval, self._beat))
                if self._context.options.recover_stale_jobs:
                    group.create_task(self._every(self._context.options.heartbeat_interval, self._recover))
                if self._context.options.retention is not None:
                    group.create_task(
                        self._every(self._context.options.retention.interval, self._prune, at_once=True)
                    )
                if self._watching:
                    group.create_task(self._watch_loop())
        except BaseExceptionGroup as bugs:
            self._crash(bugs.exceptions[0])
        finally:
            self._dismiss_idle_waiters()

    def _crash(self, bug: BaseException) -> None:
        if self.failure is None:
            self.failure = bug
            logger.critical("the scheduler has a bug and stops", exc_info=bug)
            self._context.bus.tell(JobError(error=bug))
        self._hurry(0)
        self._closing.set()
        if self._stopping is None:
            self._stopping = asyncio.create_task(self._shut_down(), name="monque-stop")

    # Claiming

    async def _claim_loop(self) -> None:
        pause = 0.1
        while not self._closing.is_set():
            # Clear the bell before looking: a job inserted while we look must be able to ring it again.
            self.bell.clear()
            waiters = list(self._idle_waiters)
            try:
                again = await self._look(waiters)
            except PyMongoError as error:
                self._out_of_contact("looking for work", error)
                if isinstance(error, OperationFailure):
                    await self._restore_indexes()
                await self._rest(pause)
                pause = min(pause * 2, _LONGEST_PAUSE)
                continue
            pause = 0.1
            if not again:
                await self.bell.wait(self._poll_seconds())

    async def _look(self, waiters: list[asyncio.Future[None]]) -> bool:
        """Claim what there is room for and start it; whether to look again at once."""
        slots, limit = self._free_slots()
        if limit == 0:
            if not self._runs:
                self._tell_idle(waiters)  # there are no workers at all
            return False
        sent = time.monotonic()
        look = await self._context.store.claim(slots, limit)
        self.in_contact = True
        await self._begin(look, sent)
        if look.next_due is not None:
            self.bell.ring_at(look.next_due)
        if not look.claimed and not look.more and not look.missed and not self._runs:
            self._tell_idle(waiters)
        if look.missed and not look.claimed:
            # Others were faster each time, or the server's clock is behind the one we knew.
            await self._context.clock.refresh(self._context.store.hello)
            await self._rest(random.uniform(0.001, 0.02))  # noqa: S311 - spreads contenders
        return look.more or look.missed > 0

    def _free_slots(self) -> tuple[dict[str, int], int]:
        options = self._context.options
        free = {
            worker.name: room
            for worker in self._workers
            if (room := (worker.concurrency or options.worker_concurrency) - self._active[worker.name]) > 0
        }
        limit = sum(free.values())
        if options.instance_concurrency is not None:
            limit = min(limit, options.instance_concurrency - self._active.total())
        return free, max(limit, 0)

    async def _begin(self, look: Look, sent: float) -> None:
        if self._closing.is_set():
            # stop() came while the claim was under way: these must not start any more.
            await asyncio.gather(*(self._release(claim) for claim in look.claimed))
            return
        for claim in look.claimed:
            worker = self._workers.get(claim["name"])
            key = (claim["_id"], attempt_of(claim))
            if worker is not None and key not in self._runs:
                run = Run(claim, worker, last_write=sent)
                self._runs[key] = run
                self._active[worker.name] += 1
                run.task = asyncio.create_task(execute(run, self._context))
                run.task.add_done_callback(partial(self._finished, run, key))

    def _finished(self, run: Run, key: tuple[ObjectId, int], _task: asyncio.Task[None]) -> None:
        del self._runs[key]
        self._leftover.discard(run)
        self._active[run.worker.name] -= 1
        self.bell.ring()
        if self._closing.is_set() and not self._runs:
            self._late.set()
        if not run.task.cancelled() and (bug := run.task.exception()) is not None:
            self._crash(bug)

    async def _release(self, claim: Document) -> None:
        with suppress(PyMongoError):  # not released, it becomes stale and is recovered
            await self._context.settler.settle(claim, transitions.release(claim))

    def _tell_idle(self, waiters: list[asyncio.Future[None]]) -> None:
        for waiter in waiters:
            self._idle_waiters.remove(waiter)
            if not waiter.done():
                waiter.set_result(None)

    def _dismiss_idle_waiters(self) -> None:
        for waiter in self._idle_waiters:
            if waiter.done():
                continue
            if self.failure is not None:
                waiter.set_exception(self.failure)
            else:
                waiter.set_result(None)

    def _poll_seconds(self) -> float:
        options = self._context.options
        return (options.safety_poll_interval if self._live else options.poll_interval).total_seconds()

    async def _restore_indexes(self) -> None:
        """Somebody may have dropped the collection, and our indexes with it."""
        if self._context.options.create_indexes:
            with suppress(PyMongoError):
                await self._context.store.create_indexes()

    # Upkeep

    async def _every(
        self, interval: timedelta, duty: Callable[[], Awaitable[None]], *, at_once: bool = False
    ) -> None:
        """Do *duty* after each interval, until upkeep is over; a database error waits for the next time.

        The interval is varied a little, so that instances started together do not act together.
        """
        if at_once:
            await self._do(duty)
        while not self._upkeep_over.is_set():
            with suppress(TimeoutError):
                async with asyncio.timeout(interval.total_seconds() * random.uniform(0.9, 1.0)):  # noqa: S311
                    await self._upkeep_over.wait()
                    return
            await self._do(duty)

    async def _do(self, duty: Callable[[], Awaitable[None]]) -> None:
        try:
            await duty()
            self.in_contact = True
        except PyMongoError as error:
            self._out_of_contact(duty.__name__.strip("_"), error)

    async def _beat(self) -> None:
        """Mark what really runs here as alive; cancel what turns out not to be ours any more."""
        await self._context.clock.refresh(self._context.store.hello)
        runs = [run for run in self._runs.values() if not run.settling]
        if not runs:
            return
        sent = time.monotonic()
        lost = {id(claim) for claim in await self._context.store.heartbeat([run.claim for run in runs])}
        for run in runs:
            if id(run.claim) not in lost:
                run.last_write = sent
            elif not run.settling and run.interruption is not Interruption.LOST:
                self._lose(run)

    def _lose(self, run: Run) -> None:
        logger.warning("lost the claim on job %s (%s): its handler is cancelled", run.job.id, run.job.name)
        run.interrupt(Interruption.LOST)
        self._context.bus.tell(ClaimLost(job=run.job))

    async def _recover(self) -> None:
        if await recover(self._context):
            self.bell.ring()

    async def _prune(self) -> None:
        await prune(self._context)

    # Watching

    async def _watch_loop(self) -> None:
        pause = 0.1
        while True:
            try:
                watch = await Watch.open(self._context.store)
            except WatchUnavailableError as error:
                logger.warning("no change streams on this server, polling instead: %s", error)
                self._context.bus.tell(WatchUnavailable(reason=str(error)))
                return
            except PyMongoError as error:
                self._watch_failed(error)
            else:
                pause = 0.1
                await self._listen(watch)
            await asyncio.sleep(pause * random.uniform(0.5, 1.0))  # noqa: S311 - spreads instances
            pause = min(pause * 2, _LONGEST_PAUSE)

    async def _listen(self, watch: Watch) -> None:
        self._live = True
        self._context.bus.tell(WatchConnected())
        self.bell.ring()  # whatever was stored before the stream was open is found by looking
        try:
            async for hint in watch.hints():
                if hint.name is not None and hint.name not in self._workers:
                    continue
                if hint.run_at is None:
                    self.bell.ring()
                else:
                    self.bell.ring_at(hint.run_at)
            self._context.bus.tell(WatchClosed())
            await self._restore_indexes()
        except asyncio.CancelledError:
            self._context.bus.tell(WatchClosed())
            raise
        except PyMongoError as error:
            self._watch_failed(error)
        finally:
            self._live = False
            self.bell.ring()  # from now on the short interval counts, not the long one being waited for
            with suppress(PyMongoError):
                await watch.close()

    def _watch_failed(self, error: PyMongoError) -> None:
        self.in_contact = False
        logger.warning("the change stream broke, polling until it is back: %s", error)
        self._context.bus.tell(WatchFailed(error=error))

    # Ending

    def _hurry(self, timeout: float) -> None:
        """The earliest deadline counts."""
        loop = asyncio.get_running_loop()
        when = loop.time() + timeout
        if self._deadline is None or when < self._deadline.when():
            if self._deadline is not None:
                self._deadline.cancel()
            self._deadline = loop.call_at(when, self._late.set)

    async def _shut_down(self) -> None:
        """Intake first, then drain (heartbeats go on), then cancel and release, then upkeep."""
        self.bell.ring()
        await self._end_intake()
        if self._runs:
            await self._late.wait()
        if self._runs:
            await self._interrupt()
        self._upkeep_over.set()
        await self._end_loops()
        remaining = self._deadline.when() - asyncio.get_running_loop().time() if self._deadline else 0.0
        await self._context.bus.settle(max(remaining, 0.1))
        if self._deadline is not None:
            self._deadline.cancel()
        self.bell.close()
        self.ended.set()

    async def _end_intake(self) -> None:
        """Wait for a claim under way: what it takes must be released, not forgotten."""
        if self._claiming is None:
            return
        late = asyncio.create_task(self._late_and_idle())
        await asyncio.wait({self._claiming, late}, return_when=asyncio.FIRST_COMPLETED)
        late.cancel()
        self._claiming.cancel()

    async def _late_and_idle(self) -> None:
        await self._late.wait()
        await asyncio.sleep(_GRACE)

    async def _interrupt(self) -> None:
        """The time is up: cancel what can be cancelled and tell what could not be finished."""
        incomplete = list(self._runs.values())
        for run in incomplete:
            run.interrupt(Interruption.SHUTDOWN)
        cancelled = [run.task for run in incomplete if run.interruption or run.settling]
        if cancelled:
            await asyncio.wait(cancelled, timeout=_GRACE)
        # Threads, and handlers that swallow the cancellation, keep their claims and go on; what they
        # come to is still settled if the claim holds by then.
        self._leftover.update(self._runs.values())
        error = ShutdownTimeoutError([run.job for run in incomplete])
        logger.warning("%s", error)
        self._context.bus.tell(JobError(error=error))

    async def _end_loops(self) -> None:
        self._supervisor.cancel()
        with suppress(asyncio.CancelledError):
            await self._supervisor

    # Trouble

    def _out_of_contact(self, doing: str, error: PyMongoError) -> None:
        self.in_contact = False
        logger.warning("%s failed, trying again: %s", doing, error)
        self._context.bus.tell(JobError(error=error))

    async def _rest(self, seconds: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._closing.wait()
