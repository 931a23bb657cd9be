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
from monque._engine.claimed import Held
from monque._engine.context import Context
from monque._engine.listen import ANYTHING, IndexRepair, Listening
from monque._engine.runs import Runs
from monque._store.document import Claim
from monque._store.hints import CancelHint, Hint
from monque._store.settle import Doubtful
from monque._store.transitions import run
from monque._time.clock import Clock, elapsed
from monque._time.waiting import Pauses, happens
from monque._workers.workers import Workers

# Timers are not set further ahead than this: the poll that follows sets the next one. Half or twice of it
# changes only how often an instance without work for hours polls for nothing.
_FARTHEST = 3600.0


class Bell:
    """A bell with a due time.

    A ring is a hint, never a fact: whoever wakes up polls. Any number of rings before a poll count as one, so
    a burst of inserts costs one poll, and steady inserts can never put off the poll as a restarted timer
    would.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        self._rung = asyncio.Event()
        self._timer: asyncio.TimerHandle | None = None
        self._due: datetime | None = None

    def ring(self) -> None:
        """It may be worth while to poll now."""
        self._rung.set()

    def ring_from_any_thread(self) -> None:
        """As `ring`, for callers that may not be on the loop."""
        self._loop.call_soon_threadsafe(self.ring)

    def ring_at(self, due: datetime) -> None:
        """It may be worth while to poll at *due*, by the server's clock."""
        seconds = self._clock.seconds_until(due)
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


# The pauses between polls while the database fails. With half of them an outage sees twice as many polls;
# with twice, work resumes up to ten seconds after it is over.
_FIRST_PAUSE = 0.1
_LONGEST_PAUSE = 5.0

# While the change stream is closed for a backlog, a poll of all names this often finds a new job of an idle
# name. Half of it makes these polls a visible cost; twice of it is a delay that users notice.
_BACKLOG_POLL = 0.1

# A prefetched job should have started long before this. If it has not, jobs take longer than they did, and
# another instance may have a slot for it. Half of it would release jobs after a short stall of the machine;
# twice of it makes them wait twice as long in vain.
_LONGEST_HOLD = 1.0

# Between two checks whether a job has to be released because it waits too long: half of the limit above.
_HOLD_CHECK = 0.5

# While a name is paused, the control document is read once a second. If a read takes long or fails, the next
# poll comes after this pause at the earliest. Half of it doubles the polls of an outage; twice of it delays
# the end of a pause by as much.
_SHORTEST_WATCH = 0.1

# The server's clock is read again after a lost claim only if the last reading is older than this. Half of it
# doubles these commands under contention; twice of it lets a clock that was set back delay jobs for longer.
_CLOCK_LASTS = 1.0

# After a poll in which other instances took every job, wait a random time, so that they do not meet again. It
# is in the order of a round trip: half of it spreads less, twice of it costs throughput.
_CONTENDED_PAUSE = (0.001, 0.02)

# How many new jobs to remember after the first hint of each. Their second hint comes within milliseconds, if
# at all. Beyond it a second hint is followed in vain, which costs a command or two: with half as many that
# begins in smaller bursts; twice as many take twice the memory.
_MOST_HINTED = 1_000


class Claiming:
    """Claims jobs whenever there may be some and there is room for them."""

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
        self._control = runs.capacity.control
        self._runs = runs
        self._contact = contact
        self._repair = repair
        self.bell = Bell(context.store.clock)
        self.listening = Listening(context, self, contact, repair.restore)
        self.closing = asyncio.Event()
        """No new jobs are claimed from now on."""
        self.task: asyncio.Task[None] | None = None
        """The task of the loop, once it runs."""
        self._hinted: OrderedDict[ObjectId, None] = OrderedDict()
        self._last_full_poll = 0.0
        self._full_poll_wanted = True
        self._idle_waiters: list[asyncio.Future[None]] = []
        self.on_cancel_hint: Callable[[Any], None] = lambda _job_id: None
        """Called with the id of a job that somebody may want to cancel; None: with any."""

    async def loop(self) -> None:
        """Claim and start jobs until `closing` is set."""
        pauses = Pauses(first=_FIRST_PAUSE, longest=_LONGEST_PAUSE)
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
                    await self._repair.restore()
                await happens(self.closing, pauses.next())
                continue
            pauses.reset()
            if not poll_again:
                await self.bell.wait(self._seconds_to_wait())
        with suppress(PyMongoError):
            # The answer to the last claim may have been lost; nobody here will run what it took.
            await self.give_back(await self._context.store.claimer.claimed_in_doubt())

    def _is_full_poll_due(self) -> bool:
        """Hints may get lost: at the poll interval, idle names are polled too."""
        now = time.monotonic()
        interval = _BACKLOG_POLL if self.listening.closed_for_backlog else self._poll_seconds()
        if now - self._last_full_poll < interval and not self._full_poll_wanted:
            return False
        self._last_full_poll, self._full_poll_wanted = now, False
        self._context.store.claimer.wake()
        self._context.store.claimer.expect_urgent()
        return True

    async def _poll(self, waiters: list[asyncio.Future[None]], *, full: bool) -> bool:
        """Claim what there is room for and start it; whether to poll again at once."""
        if self._runs.prefetch.count:
            await self._release_overdue()
        await self._watch_pauses(wait=bool(waiters))
        wanted, limit = self._runs.capacity.wanted(len(self._runs))
        if limit == 0:
            await self._control.renewed()
            await self._answer_if_idle(waiters)  # there are no workers, or no slots
            return False
        sent = elapsed()
        poll = await self._context.store.claimer.claim(wanted, limit, on_chosen=self._control.renew)
        self._contact.worked()
        admitted = await self._admit(poll.claimed)
        if self.closing.is_set():
            return False
        if admitted:
            self._runs.take(admitted, sent=sent, aged=poll.aged)
        if poll.backlog or self._idle_waiters:
            self._runs.capacity.is_awaited = True
        self.listening.note_backlog(poll.backlog)
        if poll.next_due is not None:
            self.bell.ring_at(poll.next_due)
        if waiters and not poll.claimed and not poll.more and not poll.missed and not self._runs:
            if not full:
                self._full_poll_wanted = True
                return True
            await self._answer_if_idle(waiters)
        if poll.missed and not poll.claimed:
            await self._let_others_pass()
        return poll.more or poll.missed > 0 or len(admitted) < len(poll.claimed)

    async def _watch_pauses(self, *, wait: bool) -> None:
        """Notice the end of a pause, and a pause of what is held, although there is nothing to claim."""
        if not self._control.notice() and not self._runs.prefetch.count:
            return
        for end in self._control.ends:
            self.bell.ring_at(end)
        self._control.renew()
        if wait:
            await self._control.renewed()

    async def _admit(self, claims: list[Claim]) -> list[Claim]:
        """Release what must not start; return the other claims.

        This waits for the read of the control document that began with the claim. As a rule that is over
        by now: the claim had to wait for a majority.
        """
        if not claims:
            await self._control.renewed()
            return []
        try:
            await self._control.confirmed()
        except PyMongoError:
            await self.give_back(claims)
            raise
        admitted, held_back = claims, list[Claim]()
        if self._control.has_pauses:
            # Each is asked about once: a pause may begin or end while the others are released.
            admitted = []
            for claim in claims:
                (held_back if self._control.holds_back(claim.get("name")) else admitted).append(claim)
            await self.give_back(held_back)
        if self.closing.is_set():
            # stop() was called during the claim or the release: these must not start any more.
            await self.give_back(admitted)
            return []
        return admitted

    def on_pauses_changed(self) -> None:
        """A name was paused: release what is held of it. Or one was resumed: poll for it."""
        self.wake()

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
        claimer = self._context.store.claimer
        if urgent:
            claimer.expect_urgent()
        if run_at is None or self._context.store.clock.seconds_until(run_at) <= 0:
            claimer.wake(name, job_id)
            self.bell.ring()
        else:
            claimer.expect(name, run_at)
            self.bell.ring_at(run_at)

    def wake_for_stored(self, name: str, run_at: datetime, job_id: ObjectId | None, *, urgent: bool) -> None:
        """Jobs were stored or changed here; *job_id* if it is a single new one."""
        if self.closing.is_set() or not self._workers.serves(name):
            return
        if job_id is None or self._is_first_hint(job_id):
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
        elif self._workers.serves(hint.name) and (hint.job_id is None or self._is_first_hint(hint.job_id)):
            self.wake(hint.name, run_at=hint.run_at, job_id=hint.job_id, urgent=hint.urgent)

    def _is_first_hint(self, job_id: ObjectId) -> bool:
        """Whether nobody has told of this new job before.

        Of a job stored here two hints come, the answer to the insert and the change event, in either order.
        """
        if job_id in self._hinted:
            del self._hinted[job_id]
            return False
        if len(self._hinted) >= _MOST_HINTED:
            self._hinted.popitem(last=False)
        self._hinted[job_id] = None
        return True

    def on_room(self) -> None:
        """A slot is free."""
        if self._runs.capacity.is_low:
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

    async def _answer_if_idle(self, waiters: list[asyncio.Future[None]]) -> None:
        """Nothing could be claimed: end the waits for idleness, unless something runs or has to wait.

        Handlers that outlived an earlier stop are not run by this runner, but they hold slots of it. A job
        that is due for such a slot will run here.
        """
        if not waiters or self._runs:
            return
        if self._runs.capacity.full_names:
            self._control.renew()  # nobody waits for a slot of a paused name
            await self._control.renewed()
        names = self._runs.capacity.full_names
        if names and await self._context.store.claimer.is_any_due(names):
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
        seconds = _HOLD_CHECK if self._runs.prefetch.count else self._poll_seconds()
        if not self._control.is_watching:
            return seconds
        return min(seconds, max(self._control.seconds_to_renewal, _SHORTEST_WATCH))

    def relies_on_stream(self) -> bool:
        """Whether the change stream delivers what happens at once.

        Through a mongos it delivers nothing before every shard has said that nothing came before it; a shard
        without writes says so every ten seconds.
        """
        return self.listening.live and not self._context.store.server.routed

    def _poll_seconds(self) -> float:
        options = self._context.store.options
        interval = options.safety_poll_interval if self.relies_on_stream() else options.poll_interval
        return interval.total_seconds()

    async def _release_overdue(self) -> None:
        """Release jobs that wait for a slot longer than they should, and those whose name is paused."""
        overdue = self._runs.prefetch.overdue(time.monotonic() - _LONGEST_HOLD)
        for held in overdue:
            self._runs.capacity.waited(held.worker.name, _LONGEST_HOLD)
        await self._release(overdue)
        if self._control.is_watching:
            held_back = self._control.holds_back
            await self._release([held for held in self._runs.prefetch if held_back(held.worker.name)])

    async def release_held(self) -> None:
        """Release everything that has not started."""
        await self._release(list(self._runs.prefetch))

    async def _release(self, overdue: list[Held]) -> None:
        for held in overdue:
            self._runs.drop(held)
        await self.give_back([held.claim for held in overdue])

    async def give_back(self, claims: Sequence[Claim]) -> None:
        """Release claims whose jobs were never started."""
        await asyncio.gather(*map(self._give_back, claims))

    async def _give_back(self, claim: Claim) -> None:
        store = self._context.store
        for pause in (0.0, 0.1, 0.5):  # a job that is not released in the end becomes stale, and is recovered
            await asyncio.sleep(pause)
            answer = await store.settler.settle(claim, run.release(claim))
            if not isinstance(answer, Doubtful):
                break
        name = claim.get("name")  # somebody may have changed it by hand
        store.claimer.wake(name if type(name) is str else None)
