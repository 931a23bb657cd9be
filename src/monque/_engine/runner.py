"""Everything between `start()` and `stop()`: the parts of a running instance, and its tasks."""

from __future__ import annotations

import asyncio
import contextvars
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from typing import Any, TypeAlias, TypeVar

from bson import ObjectId

from monque._connect.contact import Contact
from monque._connect.deadlines import without_deadline
from monque._engine.bookkeeping import Bookkeeping, Register
from monque._engine.claim import Claiming
from monque._engine.claimed import Run
from monque._engine.context import Context
from monque._engine.interrupts import Abandoned, Interrupts
from monque._engine.listen import IndexRepair
from monque._engine.pauses import Control
from monque._engine.progress import Reporting
from monque._engine.run import answered, execute
from monque._engine.runs import Runs
from monque._engine.stop import Stopping
from monque._engine.threads import Places
from monque._engine.upkeep import Upkeep
from monque._observe import notices
from monque._observe.logs import current_job
from monque._store.pauses import Settings
from monque._values.events import JobError
from monque._values.settings import Timeout
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
        """Whether loops can be spawned."""
        return self._group is not None

    @property
    def are_cancelled(self) -> bool:
        """Whether they have ended, or somebody has cancelled them."""
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
        places: Places,
        abandoned: Abandoned,
        *,
        end_life: EndLife | None = None,
    ) -> None:
        self._context = context
        self._workers = workers
        store = context.store
        self.contact = Contact(store.collection.database.client, store.server.ping)
        self._loops = Loops(self.on_bug)
        control = Control(
            context, workers, self._loops.spawn, lambda: self.is_running, self._on_pauses_changed
        )
        self.reporting = Reporting(context, self._on_lost, self.on_bug)
        self._runs = Runs(
            context, workers, active, places, control, owner=self, execute=execute, on_answer=answered
        )
        repair = IndexRepair(context, self._loops.spawn, lambda: self.is_running)
        self.claiming = Claiming(context, workers, self._runs, self.contact, repair)
        interrupts = Interrupts(self._runs, abandoned)
        self._upkeep = Upkeep(context, workers, interrupts, self.contact, on_recovered=self.claiming.wake)
        self.claiming.on_cancel_hint = self._upkeep.requests.hint
        register = Register(
            context, workers, active, self.claiming, self._runs, lambda: self._watching, self._upkeep.over
        )
        self._books = Bookkeeping(context, register, self.contact, self._upkeep.over)
        self._stopping = Stopping(
            context, partial(self._end_rest, end_life), interrupts, self.claiming, self._upkeep, self.contact
        )
        self._watching = False
        self.lasting = False
        """`start()` was called: it runs until it is stopped."""
        self.idle_waiters: set[asyncio.Task[Any] | None] = set()
        """The tasks that are in `run_until_idle`. Unless `start()` was called, it stops with the last one."""
        self.successor: Runner | None = None
        """The runner that a later start made, if there was one."""
        self.failure: BaseException | None = None

    def start(self) -> None:
        """Begin to work, in the background of the running loop."""
        self._loops.start(self._begin_loops, lambda: self.claiming.end_idle_waits(self.failure))
        self._upkeep.start()

    def announce(self) -> None:
        """Log what is worked on, where, and how new jobs are found."""
        store = self._context.store
        options = store.options
        served = [worker for worker in self._workers if self._workers.serves(worker.name)]
        by_stream = self._watching and store.server.has_change_streams
        text = notices.starts(
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
        """Whether a handler that runs here calls this, itself or in a task or thread that it has started."""
        return self._own_run() is not None

    def _own_run(self) -> Run | None:
        """The run whose handler calls this."""
        if self._context.bus.is_listener(asyncio.current_task()):
            return None  # a listener runs in the context of a job, but is no part of its run
        job = current_job()
        return None if job is None else self._runs.of(job)

    @property
    def is_running(self) -> bool:
        """Whether it was started, is not stopping, and no bug has ended it."""
        return not self.claiming.closing.is_set() and self.failure is None

    @property
    def claims(self) -> list[ObjectId]:
        """The jobs claimed here that are not settled; after a stop, those that outlived it."""
        return [claimed.claim["_id"] for claimed in self._runs.all.values()]

    def _begin_loops(self) -> None:
        self.claiming.task = self._loops.spawn(self.claiming.loop())
        self._loops.spawn(self._upkeep.heartbeats())
        self._loops.spawn(self._upkeep.requests.loop(self.claiming.relies_on_stream))
        self._loops.spawn(self.reporting.loop())
        self._loops.spawn(self.contact.watch())
        self._loops.spawn(self._upkeep.survey())
        self._loops.spawn(self._upkeep.prune_regularly())
        for loop in self._books.loops():
            self._loops.spawn(loop)
        if self._watching:
            self._loops.spawn(self.claiming.listening.run())

    def learn(self, settings: Settings, sent: float) -> None:
        """Somebody has changed the control document here, at *sent* or later."""
        self._runs.capacity.control.learn_written(settings, sent)

    def _on_lost(self, run: Run) -> None:
        """A write has shown that the job of this run is not ours any more."""
        self._upkeep.interrupts.lose(run)

    def _on_pauses_changed(self) -> None:
        self.claiming.on_pauses_changed()

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

    def limit(self, run: Run, timeout: Timeout) -> None:
        """Watch how long the handler of this run takes, from now on."""
        self._upkeep.interrupts.limit(run, timeout)

    def on_late_end(self, run: Run) -> None:
        """The handler of a run has ended that was given up before."""
        self._upkeep.interrupts.on_late_end(run)

    @property
    def has_lost_slots(self) -> bool:
        """Whether runs that were given up hold slots."""
        return self._upkeep.interrupts.has_lost_slots

    def is_loop_ending(self) -> bool:
        """Whether the tasks of the event loop are being cancelled because it is about to be closed.

        `asyncio.run` cancels all of them before any of them can react. While handlers run that we have not
        interrupted ourselves, nobody else has a reason to cancel the supervisor.
        """
        return self._loops.are_cancelled

    async def _end_rest(self, end_life: EndLife | None, late: asyncio.Event) -> None:
        """The last job has ended: end the loops, and then what hooks have made."""
        await self._books.close()
        await self._loops.end()
        await self._runs.places.end_children()
        if end_life is not None:
            await end_life(late)
