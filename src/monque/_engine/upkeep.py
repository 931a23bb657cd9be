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
from dataclasses import replace
from datetime import timedelta
from typing import NamedTuple

from pymongo.errors import PyMongoError

from monque._connect.contact import Contact
from monque._connect.deadlines import limited
from monque._engine import complete_in
from monque._engine.claimed import Completion, Held, Run, key_of_claim
from monque._engine.context import Context
from monque._engine.interrupts import Interrupts, Requests
from monque._engine.recovery import prune, recover
from monque._ops import bulk, counts
from monque._time.clock import elapsed
from monque._time.waiting import Pauses, happens
from monque._values.errors import AggregationTimeoutError
from monque._values.views import QueueDepth
from monque._values.words import driver_reason
from monque._workers.workers import Workers

# A block that begins just after a tick seems shorter than it is, by at most this much. Half of it doubles the
# cost of an idle process; twice of it blurs what is measured.
_TICK = 0.1

# The latency of everything else shows shorter stalls; longer ones cost heartbeats in the end. With half of it
# a busy machine causes warnings; with twice, a handler that blocks for seconds is noticed late.
_STALL = 1.0

# Handlers that ran for less than this while the event loop stood still did not block it. Half of it names
# innocent ones; twice of it misses one of several that blocked in turn.
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
        self._ticked = 0.0

    def start(self) -> None:
        """Watch from now on."""
        self._ticked = elapsed()
        self._timer = self._loop.call_later(_TICK, self._tick)

    def stop(self) -> None:
        """Watch no more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _tick(self) -> None:
        assert self._timer is not None  # noqa: S101 - it has just called
        late = self._loop.time() - self._timer.when()
        stood_still = elapsed() - self._ticked - _TICK
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
                found.append(Handling(run.worker.name, run.claim["_id"], ended - run.started))
    return found


def describe_stall(seconds: float, handlers: Sequence[Handling]) -> str:
    """Tell for how long the loop stood still, which handlers ran then, and what to do about it."""
    told = f"the event loop stood still for {seconds:.1f} s: no heartbeat was sent, no other handler went on"
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
# With half of the first, an outage begins with more commands; with twice, a claim is closer to being lost.
_FIRST_PAUSE = 0.1
_LONGEST_PAUSE = 5.0

# After an outage longer than the tolerance every running job looks dead, here and elsewhere. Each owner sends
# a heartbeat within one interval after its driver found the server again; nobody's jobs are recovered before
# that. One interval would be too close to it; two would let the third heartbeat pass, which may come a little
# early.
_INTERVALS_BEFORE_RECOVERY = 1.5

# Our driver may find the server before the driver of an owner does: each asks twice a second, then connects
# and may have to log in. With half of these seconds a busy machine loses jobs of live owners if the interval
# is short; with twice, jobs of dead owners wait longer after an outage.
_RECONNECTING = 2.0

# Instances that started together must not act together: each interval is shortened by up to this part. Half
# of it spreads them less; twice of it makes the interval a poor promise.
_JITTER = 0.1

# How often to count the waiting jobs for observers, and how long that may take. Half of the interval doubles
# its cost on the server; twice of it is slower than most dashboards ask.
_SURVEY_INTERVAL = 15.0
_SURVEY_LIMIT = 10.0

# Counting reads one index entry for each job that waits or runs. If it takes long, it is done less often: the
# server must have better things to do ten elevenths of the time. Half of it doubles that share.
_PAUSE_PER_SECOND = 10.0


class Upkeep:
    """The loops that keep claims alive and the collection in order, until `over` is set."""

    def __init__(
        self,
        context: Context,
        workers: Workers,
        interrupts: Interrupts,
        contact: Contact,
        on_recovered: Callable[[], None],
    ) -> None:
        self._context = context
        self._workers = workers
        self._runs = interrupts.runs
        self.interrupts = interrupts
        self.requests = Requests(context, interrupts, contact)
        self._contact = contact
        self._on_recovered = on_recovered
        self._interval = context.store.options.heartbeat_interval.total_seconds()
        self._last_beat = elapsed()
        self._recovers_from = 0.0
        self._beat_now = asyncio.Event()
        self._stalls = StallWatch(self._on_stall)
        self.over = asyncio.Event()

    def start(self) -> None:
        """Watch the event loop for stalls from now on."""
        self._stalls.start()

    def stop(self) -> None:
        """Let all loops end."""
        self.over.set()
        self._beat_now.set()
        self._stalls.stop()

    async def heartbeats(self) -> None:
        """Beat at each interval; at once after the process stood still, and soon again after a failure."""
        pauses = Pauses(first=_FIRST_PAUSE, longest=min(_LONGEST_PAUSE, self._interval))
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
                pauses.reset()
            else:
                pause = pauses.next()

    async def prune_regularly(self) -> None:
        """Remove old finished jobs now and at each interval of the retention, if there is one."""
        retention = self._context.store.options.retention
        while retention is not None and not self.over.is_set():
            await self._do("pruning", lambda: prune(self._context))
            await happens(self.over, _varied(retention.interval.total_seconds()))

    async def survey(self) -> None:
        """Count the waiting jobs again and again for observers; at the end, say that nothing is known."""
        collection = self._context.store.collection.full_name
        try:
            while not self.over.is_set():
                began = time.monotonic()
                audience = self._context.telemetry.audience()
                if audience is not None and audience.observers:
                    try:
                        audience.surveyed(await depths(self._context, self._workers), collection)
                    except (PyMongoError, AggregationTimeoutError) as error:
                        logger.warning(
                            "counting the waiting jobs failed, trying again: %s", driver_reason(error)
                        )
                took = time.monotonic() - began
                await happens(self.over, max(_SURVEY_INTERVAL, took * _PAUSE_PER_SECOND))
        finally:
            if (audience := self._context.telemetry.audience()) is not None:
                audience.surveyed([], collection)

    async def _do(self, name: str, duty: Callable[[], Awaitable[None]]) -> bool:
        """Do *duty*; whether it succeeded."""
        try:
            await duty()
        except PyMongoError as error:
            self._contact.failed(error)
            self._context.report_failure(name, error)
            return False
        self._contact.worked()
        return True

    async def _beat(self) -> None:
        # Heartbeats first: after the process stood still, what was lost meanwhile must not continue.
        await self._beat_runs()
        await self._beat_completing()
        await self.requests.look()
        await self._context.store.server.refresh_clock()
        if self._may_recover() and self._context.store.options.recover_stale_jobs:
            await self._do("recovery", self._recover)

    async def _beat_runs(self) -> None:
        """Mark what is held or runs as alive; let go of what turns out not to be ours any more."""
        everything = list(self._runs.all.values())
        claimed = [each for each in everything if isinstance(each, Held) or each.needs_heartbeat]
        if not claimed:
            return
        sent = elapsed()
        claims = [each.claim for each in claimed]
        lost = {key_of_claim(claim) for claim in await self._context.store.settler.heartbeat(claims)}
        for key in [each.key for each in claimed]:
            # By key: during the heartbeat, a held job may have started, or a run ended.
            current = self._runs.all.get(key)
            if current is not None and key not in lost:
                current.last_write = sent
            elif isinstance(current, Held):
                self._runs.drop(current)
            elif current is not None and current.completion is None:  # else it may be completed by now
                self.interrupts.lose(current)

    async def _beat_completing(self) -> None:
        """The same for jobs that a transaction is to complete: each alone, because it may have to wait."""
        running = [run for run in self._runs.unsettled if run.is_running]
        completing = [(run.completion, run) for run in running if run.completion is not None]
        await asyncio.gather(*(self._beat_completing_one(*each) for each in completing))

    async def _beat_completing_one(self, completion: Completion, run: Run) -> None:
        if not await complete_in.heartbeat(completion, run, self._context.store):
            self.interrupts.lose(run)

    def _may_recover(self) -> bool:
        """Whether other owners cannot look dead only because of a gap in our own contact."""
        now = elapsed()
        # An owner whose heartbeat came just before the gap is silent for up to one interval longer than it.
        if now - self._last_beat > self._context.store.silence - self._interval:
            self._recovers_from = now + _INTERVALS_BEFORE_RECOVERY * self._interval + _RECONNECTING
        self._last_beat = now
        return now >= self._recovers_from

    async def _recover(self) -> None:
        # Recovery gives jobs up one by one, and no heartbeat is sent meanwhile. A quarter of the allowed
        # silence, added to an interval, is no gap by which `_may_recover` would doubt.
        if await recover(self._context, within=self._context.store.silence / 4):
            self._on_recovered()

    def _on_stall(self, blocked: float) -> None:
        """The process continues after it stood still, because the event loop was *blocked* or a suspend."""
        self._beat_now.set()
        if blocked:
            handlers = handlers_during(blocked, self._runs.unsettled)
            fields = {"instance_id": self._context.store.instance_id}
            logger.warning("%s", describe_stall(blocked, handlers), extra=fields)
            if (audience := self._context.telemetry.audience()) is not None:
                audience.stalled(timedelta(seconds=blocked))


def _varied(seconds: float) -> float:
    return seconds * random.uniform(1 - _JITTER, 1.0)  # noqa: S311 - spreads instances


async def depths(context: Context, workers: Workers) -> Sequence[QueueDepth]:
    """The jobs that wait or run, by name, and whether it is paused; also names served here without jobs."""
    now = context.store.clock.now()
    with limited(_SURVEY_LIMIT):
        groups = await bulk.aggregate(context.store.collection, counts.depths(now))
        settings = await context.store.control.read_if_allowed()
    served = [worker.name for worker in workers if workers.serves(worker.name)]
    found = counts.depths_from(groups, besides=served, now=now)
    return [replace(depth, paused=settings.pause_of(depth.name, now) is not None) for depth in found]
