"""Keeps claims alive and the collection in order: heartbeats, pruning, counting, stalls of the loop.

One timer of the loop measures how late it is called. That costs a few microseconds ten times a second, and no
command.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from functools import partial
from typing import NamedTuple

from pymongo.errors import OperationFailure, PyMongoError

from monque._connect.contact import Contact
from monque._connect.deadlines import limited
from monque._engine import complete_in
from monque._engine.claim import Claiming
from monque._engine.claimed import Held, Run
from monque._engine.context import Context
from monque._engine.follow_ups import sweep as sweep_follow_ups
from monque._engine.insist import beat
from monque._engine.interrupts import Interrupts, Requests
from monque._engine.recovery import keeps_of, prune, recover
from monque._engine.runs import Runs
from monque._engine.substitute import Substitute
from monque._ops import counts
from monque._store.document import Document
from monque._store.recover import time_to_return
from monque._store.store import Store
from monque._time.clock import Backoff, elapsed, happens
from monque._values.errors import AggregationTimeoutError
from monque._values.options import Retention, UseName
from monque._values.words import driver_reason
from monque._workers.workers import Workers

# A block that begins just after a tick seems shorter than it is, by at most this much. Each tick costs an
# idle process a little.
_TICK = 0.1

# The latency of everything else shows shorter stalls; longer ones cost heartbeats in the end.
_STALL = 1.0

# Handlers that ran for less than this while the event loop stood still did not block it.
_SHORTEST_SHARE = 0.05

# A log line with more names is not read.
_MOST_NAMED = 5


class Handling(NamedTuple):
    """A handler that ran on the event loop while that stood still."""

    name: str
    job_id: object
    seconds: float


class StallWatch:
    """Calls *on_stall* when the process goes on after it stood still for longer than a second.

    *on_stall* gets the seconds for which the event loop was blocked: 0 if the machine was suspended, which is
    nobody's fault.
    """

    def __init__(self, on_stall: Callable[[float], None]) -> None:
        self._on_stall = on_stall
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self.ticked = 0.0
        """The time (`elapsed`) at which the loop was last seen to go on; any thread may ask."""

    def start(self) -> None:
        """Watch from now on."""
        self.ticked = elapsed()
        self._timer = self._loop.call_later(_TICK, self._tick)

    def stop(self) -> None:
        """Watch no more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _tick(self) -> None:
        assert self._timer is not None  # noqa: S101 - it has just called
        late = self._loop.time() - self._timer.when()
        stood_still = elapsed() - self.ticked - _TICK
        self.start()
        if stood_still > _STALL:
            self._on_stall(late if late > _STALL else 0.0)


def handlers_during(seconds: float, runs: Iterable[Run]) -> list[Handling]:
    """The handlers that ran on the event loop during the last *seconds*, in which it stood still."""
    now = time.perf_counter()
    found = []
    for run in runs:
        if run.worker.is_async and run.started:
            ended = now if run.outcome is None else run.started + run.outcome.seconds
            # Not those that began when the loop continued, nor those that ended before it stood still.
            if ended - max(run.started, now - seconds) > _SHORTEST_SHARE:
                found.append(Handling(run.worker.name, run.claim.id, ended - run.started))
    return found


def describe_stall(seconds: float, handlers: Sequence[Handling], *, is_over: bool = True) -> str:
    """Tell for how long the loop stood still, which handlers ran then, and what to do about it."""
    told = f"the event loop has stood still for {seconds:.1f} s: a thread sends the heartbeats of its jobs"
    if is_over:
        told = f"the event loop stood still for {seconds:.1f} s: no other handler went on"
    if not handlers:
        return f"{told}; no async handler ran: something else blocked this process, or the machine is busy"
    longest = sorted(handlers, key=lambda handler: handler.seconds, reverse=True)
    named = [f"{each.name} (job {each.job_id}, for {each.seconds:.1f} s)" for each in longest[:_MOST_NAMED]]
    if len(longest) > _MOST_NAMED:
        named.append(f"and {len(longest) - _MOST_NAMED} more")
    return (
        f"{told}; running then: {', '.join(named)}. Write a handler that blocks as `def` instead of "
        "`async def`: it then runs in a thread and does not block the loop"
    )


logger = logging.getLogger("monque")

# After a failed heartbeat the next one comes after this pause, then after twice as long, up to the longest.
_FIRST_PAUSE = 0.1
_LONGEST_PAUSE = 5.0

# Seconds by which a look comes later than an owner becomes silent for too long, at most: instances differ.
_LATER = 1.0

# Seconds between two looks at most. Where the answers to pings, every five seconds, do not fill the time that
# an owner may be silent, each heartbeat interval has one: see `_may_recover`.
_LONGEST_LOOK = 30.0
_FILLED_BY_PINGS = 15.0

# Seconds between two prunings at most where workers say how long jobs are kept: this says that they still do.
_LONGEST_PRUNING = 3600.0

# Instances that started together must not act together: each interval is shortened by up to this part.
_JITTER = 0.1

# How often to count the waiting jobs for observers, and how long that may take. Most dashboards ask as often.
_SURVEY_INTERVAL = 15.0
_SURVEY_LIMIT = 10.0

# How often to look for what a process that died has left between two writes, where jobs can be left so.
SWEEP_INTERVAL = 30.0

# Counting reads one index entry for each job that waits or runs. If it takes long, it is done less often: the
# server must have better things to do ten elevenths of the time.
_PAUSE_PER_SECOND = 10.0


def doubtful_gap(store: Store) -> float:
    """Seconds without an answer after which other owners may look dead that are not.

    An owner whose heartbeat came just before a gap is silent for up to one interval longer than it.
    """
    return store.silence - store.options.heartbeat_interval.total_seconds()


class Upkeep:
    """The loops that keep claims alive and the collection in order, until `over` is set."""

    def __init__(
        self,
        context: Context,
        workers: Workers,
        runs: Runs,
        interrupts: Interrupts,
        contact: Contact,
        claiming: Claiming,
    ) -> None:
        self._context = context
        self._store = context.store
        self._workers = workers
        self._runs = runs
        self._interrupts = interrupts
        self.requests = Requests(context, runs, interrupts, contact)
        self._contact = contact
        self._claiming = claiming
        options = context.store.options
        self._interval = options.heartbeat_interval.total_seconds()
        self._beat_now = asyncio.Event()
        self._look_now = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._pause = self._interval
        is_filled = doubtful_gap(context.store) > _FILLED_BY_PINGS
        self._longest_look = min(3 * self._interval, _LONGEST_LOOK) if is_filled else self._interval
        self._stalls = StallWatch(self._on_stall)
        self._substitute = Substitute(
            context.store,
            runs.all,
            lambda: self._stalls.ticked,
            lambda still: describe_stall(still, handlers_during(still, runs.unsettled), is_over=False),
        )
        self.sweeps: list[tuple[UseName, Callable[[], Awaitable[None]]]] = [
            ("parked", runs.batches.sweep),
            ("follow_up", partial(sweep_follow_ups, context.store, runs.owner.on_put_back)),
            ("parked", claiming.lines.sweep),
        ]
        """Sweeps for what died between two writes, each with the use without which there is nothing."""
        self.over = asyncio.Event()

    def start(self) -> None:
        """Watch the event loop for stalls from now on."""
        self._stalls.start()
        self._substitute.start()

    def stop(self) -> None:
        """Let all loops end."""
        self.over.set()
        self._beat_now.set()
        self._look_now.set()
        self._stalls.stop()
        self._substitute.stop()

    def abandon(self) -> None:
        """Watch no more: the loop has ended, and nothing of it can be awaited."""
        self._substitute.stop(wait=True)

    async def heartbeats(self) -> None:
        """Beat at each interval; at once after the process stood still, and soon again after a failure."""
        backoff = Backoff(first=_FIRST_PAUSE, longest=min(_LONGEST_PAUSE, self._interval))
        pause = self._interval
        while not self.over.is_set():
            await happens(self._beat_now, _varied(pause))
            # Clear it before the heartbeat: one that was in progress while the process stood still was sent
            # before that.
            self._beat_now.clear()
            if self.over.is_set():
                return
            if await self._do("the heartbeat", self._beat):
                pause = self._interval
                backoff.reset()
            else:
                pause = backoff.next()
                self._contact.doubt()  # others may be unable to write, too, while reads are answered

    def look(self) -> None:
        """Look for jobs of dead owners at once: one may have died. Any thread may ask."""
        with suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(self._look_now.set)

    async def look_for_dead(self) -> None:
        """Take the jobs of dead owners: whenever one may have been silent for too long, and in between."""
        pause = self._interval
        while not self.over.is_set():
            await happens(self._look_now, pause)
            self._look_now.clear()
            if self.over.is_set():
                return
            self._pause = self._interval
            if not await self._do("recovery", self._recover):
                self._contact.doubt()
            pause = self._pause

    async def prune_regularly(self) -> None:
        """Remove old finished jobs now and at each interval, if a retention or a worker says when."""
        retention, keeps = self._store.options.retention, keeps_of(self._workers.served)
        if retention is None and not keeps:
            return
        interval = (retention or Retention()).interval.total_seconds()
        while not self.over.is_set():
            await self._do("pruning", lambda: prune(self._context, self._workers.served))
            await happens(self.over, _varied(min(interval, _LONGEST_PRUNING) if keeps else interval))

    async def sweep_regularly(self) -> None:
        """Do each sweep at each interval, where its use has begun: elsewhere this sends no command."""
        while not self.over.is_set():
            await happens(self.over, _varied(SWEEP_INTERVAL))
            for use, sweep in self.sweeps:
                if not self.over.is_set() and self._store.uses.is_noted(use):
                    await self._do("the sweep", partial(self._sweep, sweep))

    async def _sweep(self, sweep: Callable[[], Awaitable[None]]) -> None:
        try:
            await sweep()
        except OperationFailure:  # somebody may have dropped an index: it is there for the next sweep
            await self._claiming.repair.restore()
            raise

    async def survey(self) -> None:
        """Count the waiting jobs again and again for observers; at the end, say that nothing is known."""
        collection = self._store.collection.full_name
        try:
            while not self.over.is_set():
                began = time.perf_counter()
                audience = self._context.telemetry.audience()
                if audience is not None and audience.observers:
                    try:
                        with limited(_SURVEY_LIMIT):
                            found = await counts.read_depths(self._store, self._workers)
                        audience.surveyed(found, collection)
                    except (PyMongoError, AggregationTimeoutError) as error:
                        logger.warning(
                            "counting the waiting jobs failed, trying again: %s", driver_reason(error)
                        )
                took = time.perf_counter() - began
                await happens(self.over, max(_SURVEY_INTERVAL, took * _PAUSE_PER_SECOND))
        finally:
            if (audience := self._context.telemetry.audience()) is not None:
                audience.surveyed([], collection)

    async def _do(self, name: str, duty: Callable[[], Awaitable[object]]) -> bool:
        """Do *duty*, which returns False if it sent nothing; whether it succeeded."""
        try:
            sent = await duty()
        except PyMongoError as error:
            self._contact.failed(error)
            self._context.report_failure(name, error)
            return False
        if sent is not False:  # else nothing is known of the database
            self._contact.worked()
        return True

    async def _beat(self) -> bool:
        # Heartbeats first: after the process stood still, what was lost meanwhile must not continue.
        is_sent = await self._beat_runs()
        self.requests.hint(None)  # whatever the change stream has missed
        await self._beat_completing()
        return is_sent

    async def _beat_runs(self) -> bool:
        """Mark what is held or runs as alive, and let go of what is not ours any more; False without any."""
        everything = list(self._runs.all.values())
        claimed = [each for each in everything if isinstance(each, Held) or each.needs_heartbeat]
        if not claimed:
            return False
        sent, claims = elapsed(), [each.claim for each in claimed]
        lost = {claim.key for claim in await self._store.settler.heartbeat(claims)}
        self._substitute.last_beat = sent
        for key in [claim.key for claim in claims]:
            # By key: during the heartbeat, a held job may have started, or a run ended.
            current = self._runs.all.get(key)
            if current is not None and key not in lost:
                if key not in self._store.settler.held:
                    current.last_write = sent
            elif isinstance(current, Held):
                self._runs.drop(current)
            elif current is not None and current.completion is None:  # else it may be completed by now
                self._interrupts.lose(current)
        return True

    async def _beat_completing(self) -> None:
        """The same for jobs of transactions: each alone, because it may have to wait."""
        running = [run for run in self._runs.unsettled if run.is_running]
        await asyncio.gather(*(self._beat_alone(run) for run in running if run.completion or run.is_overdue))

    async def _beat_alone(self, run: Run) -> None:
        if run.completion is None:
            is_ours = await beat(run, self._store)
        else:
            is_ours = await complete_in.heartbeat(run.completion, run, self._store)
        if is_ours is False:
            self._interrupts.lose(run)

    def _may_recover(self) -> bool:
        """Return whether other owners cannot look dead only because of a gap in our own contact.

        After an outage longer than the tolerance every running job looks dead, here and elsewhere: nobody's
        jobs are recovered before each owner has had the time to return.
        """
        return elapsed() >= self._contact.gap_ended + time_to_return(self._store).total_seconds()

    async def _recover(self) -> None:
        await self._store.server.refresh_clock()
        self._contact.worked()  # so that a gap is known before anything is taken
        if not self._store.options.recover_stale_jobs:
            return
        if not self._may_recover():
            return
        # In pieces, so that a gap which begins meanwhile is noticed.
        own, within = self._runs.claims, self._store.silence / 4
        recovered = await recover(self._context, own=own, within=within, on_ended=self._look_after)
        if recovered.taken:
            self._claiming.wake()
        self._pause = 0.0 if recovered.is_cut_off else self._seconds_to_look(recovered.next_look)

    def _look_after(self, ended: Document) -> None:
        """A job of a dead owner does not run again: its batch may be over, and its turn is free."""
        self._runs.batches.look_after(ended)
        self._claiming.lines.on_changed(ended.get("name"), ended)

    def _seconds_to_look(self, due: datetime | None) -> float:
        """The pause until an owner may be dead that is alive now."""
        if due is None:
            return _varied(self._longest_look)
        # A little later: whoever is early finds an owner that is not silent for long enough yet.
        seconds = max(self._store.clock.seconds_until(due), 0) + random.uniform(0.5, 1) * _LATER  # noqa: S311
        return min(seconds, self._longest_look)

    def _on_stall(self, blocked: float) -> None:
        """The process continues after it stood still, because the event loop was *blocked* or a suspend."""
        self._beat_now.set()
        self._look_now.set()
        if blocked:
            handlers = handlers_during(blocked, self._runs.unsettled)
            fields = {"instance_id": self._store.instance_id}
            logger.warning("%s", describe_stall(blocked, handlers), extra=fields)
            if (audience := self._context.telemetry.audience()) is not None:
                audience.stalled(timedelta(seconds=blocked))


def _varied(seconds: float) -> float:
    return seconds * random.uniform(1 - _JITTER, 1.0)  # noqa: S311 - spreads instances
