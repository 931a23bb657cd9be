"""Everything between `start()` and `stop()`: the parts of a running instance, and its tasks."""

from __future__ import annotations

import asyncio
import contextvars
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from functools import partial
from typing import Any, TypeAlias, TypeVar

from monque._connect.contact import Contact
from monque._connect.deadlines import without_deadline
from monque._engine.callers import Callers
from monque._engine.claim import Claiming
from monque._engine.claimed import Durable, Gate, JobServices, Listener, Run
from monque._engine.complete_in import complete_in
from monque._engine.context import Context
from monque._engine.follow_ups import note_on_failure
from monque._engine.gates import tell_step
from monque._engine.interrupts import Interrupts
from monque._engine.listen import IndexRepair
from monque._engine.pauses import Control
from monque._engine.progress import Reporting
from monque._engine.report import count_run, tell_run
from monque._engine.run import answered, execute
from monque._engine.runs import Runs
from monque._engine.steps import Steps
from monque._engine.stop import Stopping
from monque._engine.threads import ThreadPool
from monque._engine.upkeep import Upkeep, doubtful_gap
from monque._observe import logs
from monque._observe.logs import current_job
from monque._ops.companions import Bookkeeping
from monque._ops.register import Load
from monque._store.document import Key
from monque._store.pauses import Settings
from monque._store.store import Store
from monque._values.events import JobError
from monque._values.records import InstanceWorker
from monque._workers.middleware import Around
from monque._workers.workers import Workers

R = TypeVar("R")

# Time enough for a cancelled loop to end: the driver may have to wait for a lock before. With half of it, a
# second cancellation may come while the driver waits; twice of it only delays the rare stop that needs it.
_BETWEEN_CANCELLATIONS = 1.0


class Loops:
    """Owns the loops of a runner. They survive database errors; anything else is a bug, told to *on_bug*."""

    def __init__(self, on_bug: Callable[[BaseException], None]) -> None:
        self._on_bug = on_bug
        self._group: asyncio.TaskGroup | None = None
        self._tasks: list[asyncio.Task[Any]] = []

    def start(self, begin: Callable[[], None], on_end: Callable[[], None]) -> None:
        """Call *begin*, which spawns the loops, in the background, and *on_end* when all of them are over."""
        supervising = self._supervise(begin, on_end)
        self._supervisor = asyncio.create_task(supervising, name="monque", context=without_deadline())

    @property
    def have_begun(self) -> bool:
        """Return whether loops can be spawned."""
        return self._group is not None

    @property
    def are_cancelled(self) -> bool:
        """Return whether they have ended, or somebody has cancelled them."""
        return self._supervisor.done() or self._supervisor.cancelling() > 0

    def spawn(
        self, loop: Coroutine[Any, Any, R], context: contextvars.Context | None = None
    ) -> asyncio.Task[R]:
        """Run one more loop."""
        assert self._group is not None  # noqa: S101 - only called once they have begun
        task = self._group.create_task(loop, context=context)
        task.add_done_callback(self._ended)
        self._tasks.append(task)
        return task

    async def end(self) -> None:
        """Cancel all loops and wait for their end."""
        self._supervisor.cancel()  # which cancels the loops
        # In Python 3.11 a cancellation that meets the end of a wait in the driver gets lost: cancel again.
        # Not at once: a second one while the driver waits for its lock leaves that lock taken for ever.
        while not (await asyncio.wait({self._supervisor}, timeout=_BETWEEN_CANCELLATIONS))[0]:
            for task in (self._supervisor, *self._tasks):
                task.cancel()

    async def _supervise(self, begin: Callable[[], None], on_end: Callable[[], None]) -> None:
        try:
            async with asyncio.TaskGroup() as self._group:
                begin()
        except BaseExceptionGroup as bugs:
            self._on_bug(bugs.exceptions[0])
        finally:
            on_end()

    def _ended(self, loop: asyncio.Task[Any]) -> None:
        self._tasks.remove(loop)
        # Not left to the group, which waits for all other loops to end first: one of them may lose its
        # cancellation (see `end`), and nobody would ever hear of the bug.
        if not loop.cancelled() and (bug := loop.exception()) is not None:
            self._on_bug(bug)


logger = logging.getLogger("monque")

EndLife: TypeAlias = Callable[[asyncio.Event], Awaitable[None]]
"""Calls the stop hooks; they have to hurry once the event is set."""


class Runner:
    """A running instance. Each start makes a new one.

    Its parts: `claiming` finds jobs, `runs` sees each through, `upkeep` keeps claims alive, `stopping` ends
    it all in order.
    """

    def __init__(
        self,
        context: Context,
        workers: Workers,
        active: Counter[str],
        threads: ThreadPool,
        *,
        around: Around,
        end_life: EndLife | None = None,
    ) -> None:
        self._context = context
        self._workers = workers
        self._active = active
        store = context.store
        self.contact = Contact(store.collection.database.client, store.server.ping, gap=doubtful_gap(store))
        self._loops = Loops(self.on_bug)
        control = Control(  # on a change: release what is held of a paused name, poll for a resumed one
            context, workers, self._loops.spawn, lambda: self.is_running, lambda: self.claiming.wake()
        )
        interrupts = Interrupts(context)
        self._reporting = Reporting(context, interrupts.lose, self.on_bug)
        steps = Steps(context, interrupts, threads, lambda worker: self._runs.capacity.slots_of(worker))
        services, listeners = services_of(context, self._reporting, steps.of), listeners_of(context)
        limit = interrupts.limit
        self._runs = runs = Runs(
            context, workers, active, control, self, services, listeners, limit, execute, answered
        )
        self.callers = runs.callers = Callers(runs, threads, around)
        repair = IndexRepair(context, self._loops.spawn, lambda: self.is_running)
        self.claiming = Claiming(context, workers, runs, self.contact, repair)
        self._upkeep = Upkeep(context, workers, runs, interrupts, self.contact, self.claiming)
        self.claiming.on_cancel_hint = self._upkeep.requests.hint
        closing, over = self.claiming.closing, self._upkeep.over
        self._books = Bookkeeping(context.companions, context.tally, self._load, self.contact, closing, over)
        end = partial(self._end_rest, end_life)
        self._stopping = Stopping(context, end, runs, interrupts, self.claiming, self._upkeep, self.contact)
        self._watching = False
        self.lasting = False
        """`start()` was called: it runs until it is stopped."""
        self.idle_waiters: set[asyncio.Task[Any] | None] = set()
        """The tasks that are in `run_until_idle`. Unless `start()` was called, it stops with the last one."""
        self.successor: Runner | None = None
        """The runner that a later start made, if there was one."""
        self.failure: BaseException | None = None

    def follow(self, before: Runner) -> None:
        """Come after the runner of an earlier start, whose handlers may have outlived its stop."""
        before.successor = self
        self._runs.earlier = before._runs.outlived

    def start(self) -> None:
        """Begin to work, in the background of the running loop."""
        self.on_worker()
        self._context.waits.removing = lambda: self._runs.removing
        self._loops.start(self._begin_loops, lambda: self.claiming.end_idle_waits(self.failure))
        self._upkeep.start()

    def announce(self) -> None:
        """Log what is worked on, where, and how new jobs are found."""
        store = self._context.store
        options = store.options
        served = [worker for worker in self._workers if self._workers.serves(worker.name)]
        by_stream = self._watching and store.server.has_change_streams
        text = logs.starts(
            {worker.name: self._runs.capacity.slots_of(worker) for worker in served},
            place=store.collection.full_name,
            instance_concurrency=options.instance_concurrency,
            poll=None if by_stream else options.poll_interval.total_seconds(),
        )
        self._context.log(logging.INFO, text)

    def watch(self) -> None:
        """Listen to the change stream, from now on."""
        if not self._watching:
            self._watching = True
            if self._loops.have_begun:
                self._loops.spawn(self.claiming.listening.run())

    def on_worker(self) -> None:
        """Take in what workers need between a claim and its start; any thread may register another one."""
        self.claiming.gates = gates_of(self._context.store, self._workers)
        self.claiming.bell.ring_from_any_thread()

    def look_for_dead(self) -> None:
        """Look at once for jobs of dead owners; any thread may ask."""
        self._upkeep.look()

    def abandon(self) -> None:
        """End what does not end with an event loop: child processes, and the thread that watches the loop."""
        self.callers.kill()
        self._upkeep.abandon()

    async def stop(self, timeout: float) -> None:
        """Stop in order. A handler that calls this waits for all other jobs, but not for its own."""
        if (own := self._own_run()) is None:
            await self.end(timeout)
        else:
            await self._stopping.wait_for_others(own, timeout)

    async def end(self, timeout: float) -> None:
        """As `stop`, but wait for the very end, whoever calls this."""
        await self._stopping.wait(timeout)

    def begin_stop(self, timeout: float) -> None:
        """Stop in order, and do not wait for it."""
        self._stopping.begin(timeout)

    @property
    def ended(self) -> asyncio.Event:
        """Set when it has stopped."""
        return self._stopping.ended

    @property
    def is_called_by_handler(self) -> bool:
        """Return whether a handler that runs here calls this, itself or in a task or thread of its own."""
        return self._own_run() is not None

    def _own_run(self) -> Run | None:
        """The run whose handler calls this."""
        if self._context.bus.is_listener(asyncio.current_task()):
            return None  # a listener runs in the context of a job, but is no part of its run
        job = current_job()
        return None if job is None else self._runs.of(job)

    @property
    def is_running(self) -> bool:
        """Return whether it was started, is not stopping, and no bug has ended it."""
        return not self.claiming.closing.is_set() and self.failure is None

    @property
    def claims(self) -> Mapping[Key, Any]:
        """The ids of the jobs claimed here that are not settled; after a stop, those that outlived it."""
        return self._runs.claims

    def _begin_loops(self) -> None:
        self.claiming.task = self._loops.spawn(self.claiming.loop())
        self._loops.spawn(self._upkeep.heartbeats())
        self._loops.spawn(self._upkeep.look_for_dead())
        self._loops.spawn(self._upkeep.requests.loop(self.claiming.relies_on_stream))
        self._loops.spawn(self._reporting.loop())
        self._loops.spawn(self.contact.watch())
        self._loops.spawn(self._upkeep.survey())
        self._loops.spawn(self._upkeep.prune_regularly())
        self._loops.spawn(self._upkeep.sweep_regularly())
        for loop in self._books.loops():
            self._loops.spawn(loop)
        if self._watching:
            self._loops.spawn(self.claiming.listening.run())

    def _load(self) -> Load:
        """The work of this instance at the moment, for the register."""
        store, capacity, listening = self._context.store, self._runs.capacity, self.claiming.listening
        workers = [
            InstanceWorker(
                name=worker.name,
                concurrency=capacity.slots_of(worker),
                active=self._active[worker.name],
                off=not self._workers.serves(worker.name),
            )
            for worker in sorted(self._workers, key=lambda worker: worker.name)
        ]
        slots = sum(each.concurrency for each in workers if not each.off)
        limit, is_live = store.options.instance_concurrency, listening.live or listening.closed_for_backlog
        return Load(
            slots=slots if limit is None else min(slots, limit),
            busy=self._active.total(),
            claimed_ahead=capacity.waiting,
            settling=sum(not run.is_running for run in self._runs.unsettled),
            change_stream="off" if not self._watching else "live" if is_live else "polling",
            workers=workers,
        )

    def learn(self, settings: Settings, sent: float) -> None:
        """Somebody has changed the control document here, at *sent* or later."""
        self._runs.control.learn_written(settings, sent)

    def on_bug(self, bug: BaseException) -> None:
        """A bug of ours was met: end loudly."""
        self.fail(bug, "the scheduler has a bug and stops")

    def fail(self, error: BaseException, why: str) -> None:
        """End at once, and let everybody know of the first error."""
        if self.failure is None:
            self.failure = error
            logger.critical(why, exc_info=error)
            self._context.bus.emit(JobError(error=error))
        self._stopping.begin(0)

    def on_room(self) -> None:
        """A slot is free. A job that outlived a stop takes a slot from the next runner until it ends."""
        self.claiming.on_room()
        if self.successor is not None:
            self.successor.on_room()

    def on_put_back(self, name: str) -> None:
        """A job of this name waits again, for its next attempt or its next time."""
        self.claiming.wake(name)
        if self.successor is not None:
            self.successor.on_put_back(name)

    def is_loop_ending(self) -> bool:
        """Return whether the tasks of the event loop are being cancelled because it is about to be closed.

        `asyncio.run` cancels all of them before any of them can react. While handlers run that we have not
        interrupted ourselves, nobody else has a reason to cancel the supervisor.
        """
        return self._loops.are_cancelled

    async def _end_rest(self, end_life: EndLife | None, late: asyncio.Event) -> None:
        """The last job has ended: end the loops, and then what hooks have made."""
        await self._books.close()
        await self.claiming.lines.close()
        await self._loops.end()
        await self.callers.end()
        if end_life is not None:
            await end_life(late)


def services_of(
    context: Context, reporting: Reporting, durable: Callable[[Run, str], Durable]
) -> JobServices:
    """The features that handlers use through their jobs."""
    return JobServices(
        read=context.store.read,
        state=context.state,
        complete_in=partial(complete_in, context, reporting.unwritten),
        add_progress=reporting.add_progress,
        add_line=reporting.add_line,
        forget=reporting.forget,
        durable=durable,
    )


def gates_of(store: Store, workers: Workers) -> tuple[Gate, ...]:
    """The gates that settings of workers need, in their order; none for plain workers."""
    has_follow_ups = any(worker.settings.get("on_failure") for worker in workers)
    return (partial(note_on_failure, store, workers),) if has_follow_ups else ()


def listeners_of(context: Context) -> tuple[Listener, ...]:
    """The listeners of settlements, in their order. Each costs a plain job one short call."""
    trends = () if context.tally is None else (partial(count_run, context.tally),)
    return (*trends, partial(tell_run, context), partial(tell_step, context), context.waits.on_settled)
