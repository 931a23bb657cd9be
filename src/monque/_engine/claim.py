"""The claim loop: what wakes it, how it claims what there is room for, and who waits until it is idle."""

from __future__ import annotations

import asyncio
import random
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence, Set
from contextlib import suppress
from datetime import datetime
from typing import Any

from bson import ObjectId
from pymongo.errors import OperationFailure, PyMongoError

from monque._connect.contact import Contact
from monque._engine.claimed import Gate, Held
from monque._engine.context import Context
from monque._engine.limits import Limits
from monque._engine.lines import Lines
from monque._engine.listen import ANYTHING, IndexRepair, Listening
from monque._engine.runs import Runs
from monque._store.document import Claim
from monque._store.hints import CancelHint, Hint
from monque._store.settle import Doubtful
from monque._store.transitions.run import release
from monque._time.clock import Backoff, Clock, happens
from monque._workers.workers import Workers

# Timers are not set further ahead than this: the poll that follows sets the next one.
_FARTHEST = 3600.0


class Bell:
    """A bell with a due time.

    A ring is a hint, never a fact: whoever wakes up polls. Any number of rings before a poll count as one, so
    a burst of inserts costs one poll, and steady inserts can never put off the poll as a restarted timer
    would.
    """

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self._loop = asyncio.get_running_loop()
        self._rung = asyncio.Event()
        self._timer: asyncio.TimerHandle | None = None
        self._due: datetime | None = None

    @property
    def is_rung(self) -> bool:
        """Return whether it was rung since it was cleared."""
        return self._rung.is_set()

    def ring(self) -> None:
        """It may be worth while to poll now."""
        self._rung.set()

    def ring_from_any_thread(self) -> None:
        """As `ring`, for callers that may not be on the loop."""
        self._loop.call_soon_threadsafe(self.ring)

    def ring_at(self, due: datetime) -> None:
        """It may be worth while to poll at *due*, by the server's clock."""
        seconds = self.clock.seconds_until(due)
        if seconds <= 0:
            self.ring()
        elif self._due is None or due < self._due:
            self._disarm()
            self._due = due
            # A millisecond late rather than early: a poll before the time finds nothing.
            self._timer = self._loop.call_later(min(seconds + 0.001, _FARTHEST), self._fire)

    def clear(self) -> None:
        """Forget all rings so far. Call it before a poll: a ring during the poll must count."""
        self._rung.clear()

    async def wait(self, timeout: float) -> None:
        """Wait for a ring, at most *timeout* seconds."""
        await happens(self._rung, timeout)

    def close(self) -> None:
        """Leave no timer behind."""
        self._disarm()

    def _fire(self) -> None:
        self._disarm()
        self.ring()

    def _disarm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._due = None


# The pauses between polls while the database fails: work resumes that long after an outage at the latest.
_FIRST_PAUSE = 0.1
_LONGEST_PAUSE = 5.0

# While the change stream is closed for a backlog, a poll of all names this often finds a new job of an idle
# name. More often, these polls become a visible cost.
_BACKLOG_POLL = 0.1

# A prefetched job should have started long before this. If it has not, jobs take longer than they did, and
# another instance may have a slot for it. A short stall of the machine must not release jobs.
_LONGEST_HOLD = 1.0

# Between two checks whether a job has to be released because it waits too long: half of the limit above.
_HOLD_CHECK = 0.5

# While a name is paused, the control document is read once a second. If a read takes long or fails, the next
# poll comes after this pause at the earliest.
_SHORTEST_WATCH = 0.1

# The server's clock is read again after a lost claim only if the last reading is older than this: contention
# must not cause a command each time.
_CLOCK_LASTS = 1.0

# After a poll in which other instances took every job, wait a random time, so that they do not meet again. It
# is in the order of a round trip.
_CONTENDED_PAUSE = (0.001, 0.02)

# The number of new jobs to remember after the first word of each. The second comes within milliseconds, if at
# all. Beyond it a second one is followed in vain, which costs a command or two.
_MOST_REMEMBERED = 1_000


class Claiming:
    """Claims jobs whenever there may be some and there is room for them.

    A pause, a limit or a stop concerns what has not started: that is released, and counts no failure.
    """

    def __init__(
        self,
        context: Context,
        workers: Workers,
        runs: Runs,
        contact: Contact,
        repair: IndexRepair,
    ) -> None:
        self._context = context
        self._workers = workers
        self._runs = runs
        self._capacity = runs.capacity
        self._control = runs.control
        self._claimer = context.store.claimer
        self._chooser = self._claimer.chooser
        self._contact = contact
        self.repair = repair
        self.bell = Bell(context.store.clock)
        self.listening = Listening(context, self.on_hint, contact, repair.restore)
        self.closing = asyncio.Event()
        """No new jobs are claimed from now on."""
        self.gates: tuple[Gate, ...] = ()
        """Checks that workers need before a job starts: see `gates_of` in `_engine/runner.py`."""
        self.task: asyncio.Task[None] | None = None
        """The task of the loop, once it runs."""
        self._heard_of: OrderedDict[ObjectId, None] = OrderedDict()
        self._last_full_poll = 0.0
        self._full_poll_wanted = True
        self._idle_waiters: list[asyncio.Future[None]] = []
        self.lines = Lines(context, workers, self.wake, self.give_back, runs.owner.on_bug)
        self._limits: Limits | None = None
        """The limits over all processes, since a worker has one."""
        self.on_cancel_hint: Callable[[Any], None] = lambda _job_id: None
        """Called with the id of a job that somebody may want to cancel; None: with any."""

    async def loop(self) -> None:
        """Claim and start jobs until `closing` is set."""
        backoff = Backoff(first=_FIRST_PAUSE, longest=_LONGEST_PAUSE)
        while not self.closing.is_set():
            # Clear the bell before the poll: a job inserted during the poll must be able to ring it again.
            self.bell.clear()
            waiters = list(self._idle_waiters)
            try:
                poll_again = await self._poll(waiters, full=self._is_full_poll_due())
            except PyMongoError as error:
                self._contact.failed(error)
                self._context.report_failure("looking for work", error)
                if isinstance(error, OperationFailure):
                    await self.repair.restore()
                await happens(self.closing, backoff.next())
                continue
            backoff.reset()
            if not poll_again:
                await self.bell.wait(self._seconds_to_wait())
        with suppress(PyMongoError):
            # The answer to the last claim may have been lost; nobody here will run what it took.
            await self.give_back(self._runs.without_known(await self._claimer.claimed_in_doubt()))

    def _is_full_poll_due(self) -> bool:
        """Hints may get lost: at the poll interval, idle names are polled too."""
        now = time.perf_counter()
        interval = _BACKLOG_POLL if self.listening.closed_for_backlog else self._poll_seconds()
        if now - self._last_full_poll < interval and not self._full_poll_wanted:
            return False
        self._last_full_poll, self._full_poll_wanted = now, False
        self._chooser.wake(urgent=True)
        return True

    async def _poll(self, waiters: list[asyncio.Future[None]], *, full: bool) -> bool:
        """Claim what there is room for and start it; return whether to poll again at once."""
        if self._capacity.waiting:
            await self._release_waiting()
        if self._capacity.waiting or self._control.is_paused is not None:
            await self._watch_pauses(wait=bool(waiters))
        if self._workers.has_limits:
            self._limits = self._limits or self._make_limits()
            await self._limits.look(again=bool(waiters))
        wanted, limit = self._capacity.wanted()  # bounds on claims are part of it
        if limit == 0:
            await self._control.renewed()
            await self._answer_if_idle(waiters)  # there are no workers, or no slots
            return False
        poll = await self._claimer.claim(wanted, limit, on_chosen=self._control.renew)
        self._contact.worked()
        claimed = self._runs.without_known(poll.claimed)  # first: nobody may release or park what runs here
        admitted = await self._admit(claimed, poll.sent)
        if admitted:
            self._runs.take(admitted, sent=poll.sent, by_age=poll.by_age)
        if self._limits is not None:
            await self._limits.release()  # after the others have started: rates give no time
        if self.closing.is_set():  # `_admit` has released what it was given
            return False
        if poll.backlog or self._idle_waiters:
            self._capacity.is_awaited = True  # a slot that becomes free is worth a poll
        self.listening.note_backlog(poll.backlog)
        if poll.next_due is not None:
            self.bell.ring_at(poll.next_due)
        if waiters and not poll.claimed and not poll.more and not poll.missed and not self._runs:
            if not full:
                self._full_poll_wanted = True
                return True
            await self._answer_if_idle(waiters, poll.next_due)
        if poll.missed and not poll.claimed:
            await self._let_others_pass()
        return poll.more or poll.missed > 0 or len(admitted) < len(claimed)

    async def _watch_pauses(self, *, wait: bool) -> None:
        """Notice the end of a pause, and a pause of what is held, although there is nothing to claim."""
        self._control.emit_changes()
        if not self._control.in_force and not self._capacity.waiting:
            return
        for pause in self._control.in_force.values():
            if pause.until is not None:
                self.bell.ring_at(pause.until)
        self._control.renew()
        if wait:
            await self._control.renewed()

    async def _admit(self, claims: list[Claim], sent: float) -> list[Claim]:
        """Release what must not start; return the other claims.

        This waits for the read of the control document that began before the claim was *sent*. As a rule
        that is over by now: the claim had to wait for a majority. Gates that ask the job itself come later,
        when it starts (`_engine/gates.py`).
        """
        if not claims:
            await self._control.renewed()
            return []
        admitted = claims
        try:
            await self._control.confirm(sent)
            if (is_paused := self._control.is_paused) is not None:
                # Each is asked about once: a pause may begin or end while the others are released.
                admitted, held_back = [], list[Claim]()
                for claim in claims:
                    (held_back if is_paused(claim.name) else admitted).append(claim)
                await self.give_back(held_back)
            for gate in self.gates:
                admitted = await gate(admitted)
        except PyMongoError:
            await self.give_back(admitted)
            raise
        if self._limits is not None:  # the last one: what a rate gives must start soon
            admitted = await self._limits.admit(admitted)
        if self.closing.is_set():
            # stop() was called during the claim or the release: these must not start any more.
            await self.give_back(admitted)
            return []
        return admitted

    def _make_limits(self) -> Limits:
        repair, ring, give_back = self.repair.restore, self.bell.ring, self.give_back
        limits = Limits(self._context, self._workers, self._may_start, give_back, repair, ring, self.lines)
        self._capacity.limit_by(limits)
        self._runs.listeners += (limits.on_settled,)
        return limits

    def _may_start(self, name: str) -> bool:
        """Return whether a job of the name may be due, and has a slot here."""
        worker = self._workers.get(name)
        return worker is not None and self._capacity.may_start(worker) and self._chooser.may_have(name)

    async def _let_others_pass(self) -> None:
        """Other instances were faster each time, or the server's clock is behind the one that we knew."""
        if self._context.store.clock.age > _CLOCK_LASTS:
            await self._context.store.server.refresh_clock()
        await happens(self.closing, random.uniform(*_CONTENDED_PAUSE))  # noqa: S311 - spreads contenders

    def wake(
        self,
        name: str | None = None,
        *,
        run_at: datetime | None = None,
        job_id: ObjectId | None = None,
        urgent: bool = False,
    ) -> None:
        """Poll for *name* (default: all names) at *run_at* (default: now).

        *job_id* allows a claim without a poll. *urgent*: a poll looks for jobs with a priority, too.
        """
        clock = self.bell.clock
        # Our clock may be late by a round trip. A claim by an id may come early: the server's clock decides.
        if run_at is None or run_at <= (clock.now() if job_id is None else clock.latest()):
            self._chooser.wake(name, job_id, urgent=urgent)
            self.bell.ring()
        else:
            self._chooser.expect(name, run_at, urgent=urgent)
            self.bell.ring_at(run_at)

    def wake_for_stored(
        self, name: str, run_at: datetime | None, job_id: ObjectId | None, *, urgent: bool
    ) -> None:
        """Jobs were stored or changed; *job_id* if it is a single new one."""
        if self.closing.is_set() or not self._workers.serves(name):
            return
        if job_id is None or self._is_news(job_id):
            self.wake(name, run_at=run_at, job_id=job_id, urgent=urgent)

    def on_hint(self, hint: Hint | CancelHint) -> None:
        """The change stream has delivered a hint. Only that of a new job has a name."""
        if isinstance(hint, CancelHint):
            self.on_cancel_hint(hint.job_id)
            return
        if hint is ANYTHING:
            self.on_cancel_hint(None)
        if hint.name is None:
            self.wake(run_at=hint.run_at)
        else:
            self.wake_for_stored(hint.name, hint.run_at, hint.job_id, urgent=hint.urgent)

    def _is_news(self, job_id: ObjectId) -> bool:
        """Return whether nobody has told of this new job before.

        Word of a job stored here comes twice, by the answer to the insert and by the change event, in either
        order.
        """
        if job_id in self._heard_of:
            del self._heard_of[job_id]
            return False
        if len(self._heard_of) >= _MOST_REMEMBERED:
            self._heard_of.popitem(last=False)
        self._heard_of[job_id] = None
        return True

    def on_room(self) -> None:
        """A slot is free."""
        if self._capacity.is_low:
            self.bell.ring()

    async def wait_idle(self, callers: Set[asyncio.Task[Any] | None], patience: float) -> None:
        """Wait until nothing is due, nothing runs here, and no listener may store another job.

        Listeners get as much *patience* as in a stop; the *callers* of this are not waited for.
        """
        bus = self._context.bus
        while self.task is None or not self.task.done():
            was_quiet, begun = bus.is_quiet(besides=callers), bus.begun
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._idle_waiters.append(waiter)
            self.wake()
            await waiter
            # A listener that ran meanwhile may have stored a job after the last poll.
            if (was_quiet and bus.begun == begun) or not await bus.settle(patience, besides=callers):
                return

    async def _answer_if_idle(
        self, waiters: list[asyncio.Future[None]], next_due: datetime | None = None
    ) -> None:
        """Nothing could be claimed: end the waits for idleness, unless something runs or has to wait.

        A job that is due at *next_due* has to wait if it may be due by the server's clock: ours is late.

        Handlers that outlived an earlier stop are not run by this runner, but they hold slots of it. A job
        that is due for such a slot will run here.
        """
        if not waiters or self._runs or self.lines.is_busy:
            return
        if next_due is not None and next_due <= self.bell.clock.latest():
            return  # the bell rings for it
        if self._capacity.full_names:
            self._control.renew()  # nobody waits for a slot of a paused name
            await self._control.renewed()
        if self.bell.is_rung:
            return  # a slot may have become free since the poll, which did not look for jobs of that name
        names = self._capacity.full_names
        if names and await self._claimer.is_any_due(names):
            return
        for waiter in waiters:
            self._idle_waiters.remove(waiter)
            if not waiter.done():
                waiter.set_result(None)

    def end_idle_waits(self, failure: BaseException | None) -> None:
        """No poll will come any more: end all waits for idleness."""
        for waiter in self._idle_waiters:
            if waiter.done():
                continue
            if failure is not None:
                waiter.set_exception(failure)
            else:
                waiter.set_result(None)

    def _seconds_to_wait(self) -> float:
        seconds = _HOLD_CHECK if self._capacity.waiting else self._poll_seconds()
        if self._limits is not None:
            seconds = min(seconds, self._limits.seconds_to_look)
        if not self._control.in_force:
            return seconds
        return min(seconds, max(self._control.seconds_to_renewal, _SHORTEST_WATCH))

    def relies_on_stream(self) -> bool:
        """Return whether the change stream delivers what happens at once.

        Through a mongos it delivers nothing before every shard has said that nothing came before it; a shard
        without writes says so every ten seconds.
        """
        return self.listening.live and not self._context.store.server.routed

    def _poll_seconds(self) -> float:
        options = self._context.store.options
        interval = options.safety_poll_interval if self.relies_on_stream() else options.poll_interval
        return interval.total_seconds()

    async def _release_waiting(self) -> None:
        """Release jobs that wait for a slot longer than they should, and those whose name is paused."""
        overdue = self._capacity.overdue(time.perf_counter() - _LONGEST_HOLD)
        for held in overdue:
            self._capacity.waited(held.worker.name, _LONGEST_HOLD)
        await self._release(overdue)
        if (is_paused := self._control.is_paused) is not None:
            await self._release([held for held in self._capacity.held() if is_paused(held.worker.name)])

    async def release_held(self) -> None:
        """Release everything that has not started."""
        await self._release(list(self._capacity.held()))

    async def _release(self, waiting: list[Held]) -> None:
        for held in waiting:
            self._runs.drop(held)
        await self.give_back([held.claim for held in waiting])

    async def give_back(self, claims: Sequence[Claim]) -> None:
        """Release claims whose jobs were never started."""
        await asyncio.gather(*map(self._give_back, claims))

    async def _give_back(self, claim: Claim) -> None:
        released = release(claim).without_wait(claim, keeps_turn=True)
        for pause in (0.0, 0.1, 0.5):  # a job that is not released is recovered (`_engine/recovery.py`)
            await asyncio.sleep(pause)
            answer = await self._context.store.settler.settle(claim, released)
            if not isinstance(answer, Doubtful):
                break
        self._chooser.wake(claim.name)
