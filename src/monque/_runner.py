"""The loops of a running instance: claim, heartbeat, recover, prune, watch; and how they end."""

from __future__ import annotations

import asyncio
import logging
import math
import random
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Any

from bson import ObjectId
from pymongo.errors import OperationFailure, PyMongoError

from monque import _notices
from monque._clock import elapsed
from monque._contact import Contact
from monque._deadlines import limited, without_deadline
from monque._errors import ConfigurationError, ShutdownTimeoutError
from monque._events import JobError
from monque._execute import Context, Run
from monque._explain import explain
from monque._listening import Listening
from monque._logs import current_job
from monque._running import Running
from monque._signals import is_heard_by
from monque._slots import Slots
from monque._stalls import StallWatch, describe_stall
from monque._store.watch import Hint
from monque._survey import survey
from monque._upkeep import prune, recover
from monque._wakeup import WakeUp
from monque._workers import Workers

logger = logging.getLogger("monque")

# How long cancelled handlers get to clean up, and releases to be written, after the shutdown timeout.
_GRACE = 3.0
_LONGEST_PAUSE = 5.0

# A heartbeat that failed is tried again after this long, then twice as long, up to the longest pause.
_FIRST_PAUSE = 0.1

# After an outage longer than the tolerance every running job looks dead, here and elsewhere. Each owner
# says within one interval that it lives; nobody's jobs are taken before that. One interval would be too
# close to that, two would let the third heartbeat pass, which may come a little early.
_INTERVALS_BEFORE_RECOVERY = 1.5

# While stopping: how often to see whether the database is gone, and so waiting for its answer is in vain.
_CONTACT_CHECK = 0.5

# Time enough for a loop that was cancelled to end: the driver may have to wait for a lock before.
_BETWEEN_CANCELLATIONS = 1.0

# While the change stream is closed for a backlog, a new job of an idle name is found by looking at all
# names this often.
_BACKLOG_POLL = 0.1

# How long to wait for missing indexes before work goes on, and after which time to try again: the connection
# may have died, but to build them for millions of jobs takes minutes.
_REPAIR_PATIENCE = 20.0
_REPAIR_LIMIT = 3600.0

# More than one at a time, for the connection of one may be dead. The server builds each index once.
_MOST_REPAIRS = 3

# Before this many seconds have passed, the server's clock is what it was.
_CLOCK_LASTS = 1.0

# Jobs stored here that the change stream has not told back yet.
_MOST_ECHOES = 10_000


class Runner:
    """Everything that goes on between `start()` and `stop()`; made anew by each start."""

    def __init__(self, context: Context, workers: Workers, active: Counter[str]) -> None:
        self._context = context
        self._workers = workers
        self._watching = False
        self._loops: asyncio.TaskGroup | None = None
        self._loop_tasks: list[asyncio.Task[None]] = []
        self.lasting = False
        """Started to run until it is stopped."""
        self.guests = 0
        """How many wait for it to be idle; if it is not lasting, it ends with the last of them."""
        self.successor: Runner | None = None
        """The runner that a later start made, if there was one."""
        self.bell = WakeUp(context.clock)
        self._slots = Slots(workers, context.options, active)
        self._running = Running(
            context,
            workers,
            self._slots,
            on_room=self._tell_room,
            on_bug=self._crash,
            is_loop_ending=self._is_loop_ending,
        )
        self.contact = Contact(context.connection.database.client, context.store.ping)
        self._listening = Listening(context, self, self.contact, self._restore_indexes)
        self._echoes: set[ObjectId] = set()
        self._last_thorough = 0.0
        self._thorough_wanted = True
        self._last_beat = elapsed()
        self._recovers_from = 0.0
        self._beat_due = asyncio.Event()
        self._stalls = StallWatch(self._stood_still)
        self._closing = asyncio.Event()
        self._late = asyncio.Event()
        self._upkeep_over = asyncio.Event()
        self._deadline = math.inf
        """When running jobs are cancelled, by the clock of the loop."""
        self._deadline_timer: asyncio.Handle | None = None
        self._claiming: asyncio.Task[None] | None = None
        self._idle_waiters: list[asyncio.Future[None]] = []
        self._stopping: asyncio.Task[None] | None = None
        self._repairs: set[asyncio.Task[None]] = set()
        self._stoppers: set[asyncio.Task[Any]] = set()
        self._granted = 0.0
        """How many seconds running jobs were given to finish, in the end."""
        self._others_over = asyncio.Event()
        """While stopping: no job runs any more but those whose handlers called `stop()`."""
        # A handler may call stop(): what follows from it has nothing to do with the job that it runs.
        self._variables = without_deadline()
        self.failure: BaseException | None = None
        self.ended = asyncio.Event()

    # Life

    def start(self) -> None:
        """Begin to work, in the background of the running loop."""
        self._supervisor = asyncio.create_task(self._supervise(), name="monque", context=without_deadline())
        self._stalls.start()

    def announce(self) -> None:
        """Log what is worked on, where, and how new jobs are found."""
        options, store = self._context.options, self._context.store
        served = [worker for worker in self._workers if self._workers.serves(worker.name)]
        by_stream = self._watching and store.has_change_streams
        text = _notices.starts(
            {worker.name: worker.concurrency or options.worker_concurrency for worker in served},
            place=store.collection.full_name,
            instance_concurrency=options.instance_concurrency,
            poll=None if by_stream else options.poll_interval.total_seconds(),
        )
        self._log(logging.INFO, text)

    async def stop(self, timeout: float) -> None:
        """Stop in order; concurrent calls share one drain and the earliest deadline.

        A handler that calls this would wait for itself: it waits until all other jobs have ended.
        """
        if (own := self._own_run()) is None:
            await self.end(timeout)
        else:
            self._running.excuse(own)
            self.begin_stop(timeout)
            await self._others_over.wait()

    async def end(self, timeout: float) -> None:
        """As `stop`, but wait for the very end, whoever calls this."""
        if (caller := asyncio.current_task()) is not None:
            self._stoppers.add(caller)
        await asyncio.shield(self.begin_stop(timeout))

    @property
    def is_called_by_handler(self) -> bool:
        """Whether a handler that runs here asks this, itself or in a task or thread that it has started."""
        return self._own_run() is not None

    def _own_run(self) -> Run | None:
        """The run whose handler calls this, or None if none does."""
        if self._context.bus.is_listener(asyncio.current_task()):
            return None  # it is called in the context of a job, but is no part of its run
        job = current_job()
        runs = self._running.unsettled if job is not None else ()
        return next((run for run in runs if run.is_of(job)), None)

    def watch(self) -> None:
        """Listen to the change stream, from now on."""
        if not self._watching:
            self._watching = True
            if self._loops is not None:
                self._spawn(self._listening.run())

    async def wait_idle(self) -> None:
        """Wait until nothing is due and nothing runs here."""
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._idle_waiters.append(waiter)
        self.wake()
        await waiter

    @property
    def is_running(self) -> bool:
        """Started, not stopping, and no bug has ended it."""
        return not self._closing.is_set() and self.failure is None

    @property
    def claims(self) -> list[ObjectId]:
        """The jobs claimed here that are not settled; after a stop, those that outlived it."""
        return [run.claim["_id"] for run in self._running.unsettled]

    async def _supervise(self) -> None:
        """Own the loops. They survive database errors; anything else is a bug and ends us loudly."""
        try:
            async with asyncio.TaskGroup() as group:
                self._loops = group
                self._claiming = self._spawn(self._claim_loop())
                self._spawn(self._beat_loop())
                self._spawn(self.contact.watch())
                self._spawn(survey(self._context, self._workers, self._upkeep_over))
                if self._context.options.retention is not None:
                    self._spawn(
                        self._every(self._context.options.retention.interval, self._prune, at_once=True)
                    )
                if self._watching:
                    self._spawn(self._listening.run())
        except BaseExceptionGroup as bugs:
            self._crash(bugs.exceptions[0])
        finally:
            self._dismiss_idle_waiters()

    def _is_loop_ending(self) -> bool:
        """Whether the tasks of the event loop are being cancelled because it is about to be closed.

        `asyncio.run` cancels all of them before any of them can react. While handlers run that we have not
        interrupted ourselves, nobody else has a reason to cancel the supervisor.
        """
        return self._supervisor.done() or self._supervisor.cancelling() > 0

    def _spawn(self, loop: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        assert self._loops is not None  # noqa: S101 - only called while they are owned
        task = self._loops.create_task(loop)
        task.add_done_callback(self._loop_ended)
        self._loop_tasks.append(task)
        return task

    def _loop_ended(self, loop: asyncio.Task[None]) -> None:
        self._loop_tasks.remove(loop)
        # Not left to the group, which waits for all others to end first: one of them may lose its
        # cancellation (see `_end_loops`), and the bug would never be heard of.
        if not loop.cancelled() and (bug := loop.exception()) is not None:
            self._crash(bug)

    def _crash(self, bug: BaseException) -> None:
        if self.failure is None:
            self.failure = bug
            logger.critical("the scheduler has a bug and stops", exc_info=bug)
            self._context.bus.tell(JobError(error=bug))
        self.begin_stop(0)

    # Claiming

    async def _claim_loop(self) -> None:
        pause = 0.1
        while not self._closing.is_set():
            # Clear the bell before looking: a job inserted while we look must be able to ring it again.
            self.bell.clear()
            waiters = list(self._idle_waiters)
            try:
                again = await self._look(waiters, thorough=self._is_time_for_all_names())
            except PyMongoError as error:
                self._failed("looking for work", error)
                if isinstance(error, OperationFailure):
                    await self._restore_indexes()
                await self._rest(pause)
                pause = min(pause * 2, _LONGEST_PAUSE)
                continue
            pause = 0.1
            if not again:
                await self.bell.wait(self._longest_wait())
        with suppress(PyMongoError):
            # The answer to the last claim may have been lost; what it took, nobody here will run.
            await self._running.give_back(await self._context.store.claimed_in_doubt())

    def _is_time_for_all_names(self) -> bool:
        """Wake-ups may get lost: at the poll interval, also names are looked at that had nothing to do."""
        now = time.monotonic()
        interval = _BACKLOG_POLL if self._listening.closed_for_backlog else self._poll_seconds()
        if now - self._last_thorough < interval and not self._thorough_wanted:
            return False
        self._last_thorough, self._thorough_wanted = now, False
        self._context.store.wake()
        return True

    async def _look(self, waiters: list[asyncio.Future[None]], *, thorough: bool) -> bool:
        """Claim what there is room for and start it; whether to look again at once."""
        await self._running.release_overdue()
        wanted, limit = self._slots.wanted(len(self._running))
        if limit == 0:
            await self._tell_if_idle(waiters)  # there are no workers, or no slots
            return False
        sent = elapsed()
        look = await self._context.store.claim(wanted, limit)
        self.contact.worked()
        if self._closing.is_set():
            # stop() came while the claim was under way: these must not start any more.
            await self._running.give_back(look.claimed)
            return False
        self._running.take(look.claimed, sent=sent)
        self._listening.note_backlog(look.backlog)
        if look.next_due is not None:
            self.bell.ring_at(look.next_due)
        if waiters and not look.claimed and not look.more and not look.missed and not self._running:
            if not thorough:
                self._thorough_wanted = True
                return True
            await self._tell_if_idle(waiters)
        if look.missed and not look.claimed:
            # Others were faster each time, or the server's clock is behind the one we knew.
            if self._context.clock.age > _CLOCK_LASTS:
                await self._context.store.refresh_clock()
            await self._rest(random.uniform(0.001, 0.02))  # noqa: S311 - spreads contenders
        return look.more or look.missed > 0

    def wake(
        self, name: str | None = None, *, run_at: datetime | None = None, job_id: ObjectId | None = None
    ) -> None:
        """There may be work of this name (of any, without one) at that time (now, without one): this job."""
        is_due = run_at is None or self._context.clock.seconds_until(run_at) <= 0
        self._context.store.wake(name, job_id if is_due else None)
        if run_at is None:
            self.bell.ring()
        else:
            self.bell.ring_at(run_at)

    def wake_for_stored(self, name: str, run_at: datetime, job_id: ObjectId | None) -> None:
        """Jobs were stored here; *job_id* if it is a single one."""
        if job_id is not None and self._listening.live:
            if len(self._echoes) >= _MOST_ECHOES:
                self._echoes.clear()
            self._echoes.add(job_id)
        self.wake(name, run_at=run_at, job_id=job_id)

    def _tell_room(self) -> None:
        """A slot is free. What outlived a stop takes a slot from the next runner until it ends."""
        if self._slots.low:
            self.bell.ring()
        if self.successor is not None:
            self.successor._tell_room()

    async def _tell_if_idle(self, waiters: list[asyncio.Future[None]]) -> None:
        """Nothing could be claimed: answer who waits for idleness, unless something runs or has to wait.

        Handlers that outlived an earlier stop are not run by this runner, but they hold slots of it. What is
        due for these slots will run here.
        """
        if not waiters or self._running:
            return
        names = self._slots.full_names
        if not names or not await self._context.store.is_any_due(names):
            self._tell_idle(waiters)

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

    def _longest_wait(self) -> float:
        if self._running.holds_any:
            return 0.5
        return self._poll_seconds()

    def _poll_seconds(self) -> float:
        options = self._context.options
        # Through a mongos a change stream tells nothing before every shard has said that nothing came before
        # it; a shard without writes says so every ten seconds.
        relies_on_stream = self._listening.live and not self._context.store.routed
        return (options.safety_poll_interval if relies_on_stream else options.poll_interval).total_seconds()

    async def _restore_indexes(self) -> None:
        """Create the indexes again: somebody may have dropped the collection, and our indexes with it.

        Waits a while for it. With many jobs the server takes longer, and work goes on meanwhile.
        """
        if not self._context.options.create_indexes or not self.is_running:
            return
        if len(self._repairs) < _MOST_REPAIRS:
            self._repairs.add(repair := self._spawn(self._create_indexes()))
            repair.add_done_callback(self._repairs.discard)
        await asyncio.wait(self._repairs, timeout=_REPAIR_PATIENCE, return_when=asyncio.FIRST_COMPLETED)

    async def _create_indexes(self) -> None:
        try:
            with suppress(PyMongoError), limited(_REPAIR_LIMIT):
                await self._context.store.create_indexes()
        except ConfigurationError as error:
            # Somebody has made another index in its place since we opened. Jobs are found without ours, too.
            self._log(logging.ERROR, f"cannot restore its indexes: {error}")
            self._context.bus.tell(JobError(error=error))

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

    async def _do(self, duty: Callable[[], Awaitable[None]]) -> bool:
        """Do *duty*; whether it succeeded."""
        try:
            await duty()
        except PyMongoError as error:
            self._failed(duty.__name__.strip("_"), error)
            return False
        self.contact.worked()
        return True

    async def _beat_loop(self) -> None:
        """Beat at each interval; at once after the process stood still, and soon again if it failed."""
        interval = self._context.options.heartbeat_interval.total_seconds()
        pause = interval
        while not self._upkeep_over.is_set():
            with suppress(TimeoutError):
                async with asyncio.timeout(pause * random.uniform(0.9, 1.0)):  # noqa: S311 - as in `_every`
                    await self._beat_due.wait()
            # Before the heartbeat: one that was under way while the process stood still was sent before that.
            self._beat_due.clear()
            if self._upkeep_over.is_set():
                return
            if await self._do(self._beat):
                pause = interval
            else:
                pause = min(_FIRST_PAUSE if pause == interval else pause * 2, _LONGEST_PAUSE, interval)

    async def _beat(self) -> None:
        # First of all: after the process stood still, what was lost meanwhile must not go on.
        await self._running.beat()
        await self._running.beat_completing()
        await self._context.store.refresh_clock()
        if self._may_recover() and self._context.options.recover_stale_jobs:
            await self._do(self._recover)

    def _may_recover(self) -> bool:
        """Whether no gap in our own heartbeats means that others, too, may seem dead without being it."""
        interval = self._context.options.heartbeat_interval.total_seconds()
        now = elapsed()
        # Whoever beat just before the gap began is silent for up to one interval longer than the gap.
        if now - self._last_beat > self._context.silence - interval:
            self._recovers_from = now + _INTERVALS_BEFORE_RECOVERY * interval
        self._last_beat = now
        return now >= self._recovers_from

    def _stood_still(self, blocked: float) -> None:
        """The process goes on after it stood still, because the event loop was *blocked* or for all of it."""
        self._beat_due.set()
        if blocked:
            logger.warning(
                "%s",
                describe_stall(blocked, self._running.handling(blocked)),
                extra={"instance_id": self._context.store.instance_id},
            )
            if (audience := self._context.telemetry.audience()) is not None:
                audience.stalled(timedelta(seconds=blocked))

    async def _recover(self) -> None:
        # Jobs are given up one by one, and no heartbeat is sent meanwhile. A quarter of the silence that is
        # allowed, added to an interval, is no gap by which `_may_recover` would doubt.
        if await recover(self._context, within=self._context.silence / 4):
            self.wake()

    async def _prune(self) -> None:
        await prune(self._context)

    # Listening

    def wake_for(self, hint: Hint) -> None:
        """The change stream told something."""
        if hint.name is not None and hint.job_id in self._echoes:
            self._echoes.remove(hint.job_id)  # stored here: we knew it before the stream did
        elif hint.name is None or self._workers.serves(hint.name):
            self.wake(hint.name, run_at=hint.run_at, job_id=hint.job_id)

    # Ending

    def begin_stop(self, timeout: float) -> asyncio.Task[None]:
        """Take no new jobs from now on; the task that ends with the last one, or soon after *timeout*."""
        self._hurry(timeout)
        self._closing.set()
        self._running.close()
        self.bell.ring()
        if self._stopping is None:
            self._variables.run(self._log_stopping, timeout)
            self._stopping = asyncio.create_task(
                self._shut_down(), name="monque-stop", context=self._variables
            )
        return self._stopping

    def _hurry(self, timeout: float) -> None:
        """The earliest deadline counts."""
        loop = asyncio.get_running_loop()
        when = loop.time() + timeout
        if when < self._deadline:
            if self._deadline_timer is not None:
                self._deadline_timer.cancel()
            # uvloop's handle of a timer that is due now does not say when it is due.
            self._deadline, self._deadline_timer = when, loop.call_at(when, self._late.set)
            self._granted = timeout

    def _log_stopping(self, timeout: float) -> None:
        hears = is_heard_by(self._context.store.instance_id)
        names = [run.worker.name for run in self._running.awaited if run.has_started]
        by_job = bool(self._running.excused)
        self._log(logging.INFO, _notices.stops(names, timeout=timeout, hears_signals=hears, by_job=by_job))

    async def _shut_down(self) -> None:
        """Intake first, then drain (heartbeats go on), then cancel and release, then upkeep."""
        began = asyncio.get_running_loop().time()
        await self._end_intake()
        await self._first_of(self._running.empty, self._late)
        await self._interrupt(self._running.awaited)
        self._others_over.set()
        await self._end_excused()
        self._upkeep_over.set()
        self._beat_due.set()
        self._stalls.stop()
        await self._end_loops()
        remaining = self._deadline - asyncio.get_running_loop().time()
        await self._context.bus.settle(max(remaining, 0.1), besides=self._stoppers)
        if self._deadline_timer is not None:
            self._deadline_timer.cancel()
        self.bell.close()
        seconds = asyncio.get_running_loop().time() - began
        still_running = sum(not run.settling for run in self._running.unsettled)
        not_stored = len(self._running) - still_running
        self._log(logging.INFO, _notices.stopped(seconds, still_running, not_stored))
        self.ended.set()

    async def _end_excused(self) -> None:
        """See to the end of the runs whose handlers called `stop()`: that has just returned there."""
        if not (callers := self._running.excused):
            return
        over = self._running.on_end_of(callers)
        await self._first_of(over, self._late)
        with suppress(TimeoutError):  # the others may have taken all the time that was given
            async with asyncio.timeout(_GRACE):
                await over.wait()
        await self._interrupt([run for run in self._running.unsettled if run in callers])

    async def _end_intake(self) -> None:
        """Give back what has not started; wait for a claim under way: what it takes is given back, too.

        A claim that gets no answer is left to end with the other loops: cancelled once, not twice.
        """
        if self._claiming is None:
            return
        releasing = asyncio.create_task(self._running.release_held())
        late = asyncio.create_task(self._late_or_lost())
        for ending in (self._claiming, releasing):
            await asyncio.wait({ending, late}, return_when=asyncio.FIRST_COMPLETED)
        releasing.cancel()
        late.cancel()

    async def _late_or_lost(self) -> None:
        """Wait until an answer is not worth waiting for: after the deadline, or without a database."""
        while not self._late.is_set() and not self.contact.is_lost:
            with suppress(TimeoutError):
                async with asyncio.timeout(_CONTACT_CHECK):
                    await self._late.wait()
        await asyncio.sleep(_GRACE)

    async def _first_of(self, *events: asyncio.Event) -> None:
        waits = {asyncio.create_task(event.wait()) for event in events}
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        for wait in waits:
            wait.cancel()

    async def _interrupt(self, runs: list[Run]) -> None:
        """The time is up: cancel what can be cancelled, and report what could not be finished."""
        if not runs:
            return
        await self._running.interrupt(runs, _GRACE)
        error = ShutdownTimeoutError([run.job for run in runs], timeout=self._granted)
        left = self._running.unsettled
        unfinished = _notices.unfinished(
            put_back=[run.title for run in runs if run not in left and run.was_released],
            still_running=[run.title for run in runs if run in left and not run.settling],
            not_stored=[run.title for run in runs if run in left and run.settling],
        )
        text, jobs = f"did not finish all jobs: {error}; {unfinished}", [str(run.job.id) for run in runs]
        self._log(logging.WARNING, text, job_ids=jobs)
        self._context.bus.tell(JobError(error=error))

    async def _end_loops(self) -> None:
        self._supervisor.cancel()  # which cancels the loops
        # In Python 3.11 a cancellation that meets the end of a wait in the driver gets lost: insist. Not at
        # once: there, a second one while the driver waits for its lock leaves that lock taken for ever.
        while not (await asyncio.wait({self._supervisor}, timeout=_BETWEEN_CANCELLATIONS))[0]:
            for task in (self._supervisor, *self._loop_tasks):
                task.cancel()

    def _log(self, level: int, text: str, **fields: object) -> None:
        """Log a line of this instance's life."""
        instance_id = self._context.store.instance_id
        fields = {"instance_id": instance_id, **fields}
        logger.log(level, "instance %s %s", instance_id, text, extra=fields)

    # Trouble

    def _failed(self, doing: str, error: PyMongoError) -> None:
        self.contact.failed(error)
        fields = {"instance_id": self._context.store.instance_id}
        logger.warning("%s failed, trying again: %s", doing, explain(error), extra=fields)
        self._context.bus.tell(JobError(error=error))

    async def _rest(self, seconds: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._closing.wait()
