"""The jobs claimed here: waiting for a slot, running, being settled."""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from datetime import datetime
from functools import partial
from typing import Any

from bson import ObjectId
from pymongo.errors import PyMongoError

from monque._clock import elapsed
from monque._completing import Completion, beat
from monque._deadlines import without_deadline
from monque._events import ClaimLost, JobCompleted, JobFailed
from monque._execute import (
    Context,
    Interruption,
    Key,
    Outcome,
    Run,
    attend,
    conclude,
    decide,
    insist,
    record,
    report,
)
from monque._job import JobStatus
from monque._logs import about
from monque._raised import is_closing
from monque._slots import Slots
from monque._stalls import Handling
from monque._store import transitions
from monque._store.document import EARLIEST, Document, attempt_of, key_of, size_of
from monque._store.transitions import Transition
from monque._workers import Workers

logger = logging.getLogger("monque")

# A job claimed ahead should have started long before this. If it has not, jobs take longer than they
# did, and another instance may have a slot for it.
_LONGEST_HOLD = 1.0

_STARTS_IN_ONE_TURN = 16

# Handlers that ran for less than this while the event loop stood still did not block it.
_SHORTEST_SHARE = 0.05


class Running:
    """Takes claims and sees each through to its end.

    Invariant: a run is in `_runs` from its claim until after it is settled, so that heartbeats cover
    it and a shutdown waits for it. It takes a slot only while its handler runs.
    """

    def __init__(
        self,
        context: Context,
        workers: Workers,
        slots: Slots,
        *,
        on_room: Callable[[], None],
        on_bug: Callable[[BaseException], None],
        is_loop_ending: Callable[[], bool],
    ) -> None:
        self._context = context
        self._loop = asyncio.get_running_loop()
        self._workers = workers
        self._slots = slots
        self._on_room = on_room
        self._on_bug = on_bug
        self._is_loop_ending = is_loop_ending
        self._answer = self._written  # one for all runs
        self._runs: dict[Key | None, Run] = {}
        self._held: dict[str, deque[Run]] = {}
        self._next: deque[str] = deque()  # of each of these names one more may be able to start
        self._starting = False
        self._excused: set[Run] = set()
        self._ending: set[Run] = set()
        self._ended = asyncio.Event()
        self._closed = False
        # A job is often started by the end of another: it must not find that one's context variables.
        self._variables = without_deadline()
        self.empty = asyncio.Event()
        """Nothing is left to wait for."""
        self.empty.set()

    def __len__(self) -> int:
        return len(self._runs)

    @property
    def unsettled(self) -> list[Run]:
        """Every run that is not over yet."""
        return list(self._runs.values())

    @property
    def awaited(self) -> list[Run]:
        """Every run that a stop has to wait for and that is not over yet."""
        return [run for run in self._runs.values() if run not in self._excused]

    @property
    def excused(self) -> list[Run]:
        """Runs whose handlers wait for a stop, and that are not over yet."""
        return list(self._excused)

    def excuse(self, run: Run) -> None:
        """Do not wait for this run: its handler waits for us."""
        self._excused.add(run)
        if len(self._excused) == len(self._runs):
            self.empty.set()

    @property
    def holds_any(self) -> bool:
        """Whether claimed jobs wait for a slot."""
        return any(self._held.values())

    def take(self, claims: Sequence[Document], *, sent: float) -> None:
        """Start claimed jobs, oldest first, as far as there are slots; hold the rest."""
        if len(claims) > 1:  # a lone one is not claimed ahead, and is not to wait for being weighed
            self._slots.weigh(size_of(random.choice(claims)))  # noqa: S311 - one of them stands for all
        audience = self._context.telemetry.audience()
        now = time.monotonic()
        for claim in claims:
            name: Any = claim.get("name")
            # Somebody may have changed the name by hand since the job was chosen.
            worker = self._workers.get(name) if type(name) is str else None
            key = _key_of(claim)
            if worker is None or key in self._runs:
                continue
            self._runs[key] = run = Run(claim, worker, self._context, sent, now, key, audience)
            if key[1] > 1:
                self._line_up(run, (key[0], key[1] - 1))
            if name not in self._held:
                self._held[name] = deque()
            self._held[name].append(run)
            self._slots.hold(name)
            self._next.append(name)
        if self._runs:
            self.empty.clear()
        if not self._starting:
            self._start_some()

    def _line_up(self, run: Run, earlier_key: Key) -> None:
        """Have a job's next attempt wait for the answer to how the one before it ended.

        The server may have put the job back, and we claimed it again, before that answer is here:
        nobody is to hear of the next start before the last end.
        """
        earlier = self._runs.get(earlier_key)
        if earlier is not None and earlier.settling:
            run.earlier, earlier.is_followed = earlier, True

    def _start_some(self) -> None:
        """Start what may start, a few in each turn of the event loop.

        The answers of the database are to be heard between them: behind hundreds of handlers in one
        turn, the next claim would be late.
        """
        started = 0
        while self._next and started < _STARTS_IN_ONE_TURN:
            started += self._start_next(self._next.popleft())
        self._starting = bool(self._next)
        if started:
            self._on_room()
        if self._starting:
            self._loop.call_soon(self._start_some, context=self._variables)

    def _start_next(self, name: str) -> bool:
        """Start the oldest job of a name that waits, if there is a slot."""
        run = None if self._closed else self._ready(name)
        if run is None:
            return False
        self._held[name].remove(run)
        self._start(run)
        return True

    def _ready(self, name: str) -> Run | None:
        """The oldest job of a name that may start now."""
        held = self._held.get(name)
        if not held or not self._slots.may_start(name):
            return None
        for run in held:
            if run.earlier is None or run.earlier.key not in self._runs:
                return run
        return None  # each is started when its earlier attempt is over

    def _start(self, run: Run) -> None:
        self._slots.start(run.worker.name, waited=time.monotonic() - run.held_since)
        run.earlier = None  # else each run of a recurring job could keep all before it
        run.variables = self._variables.copy()
        run.task = self._loop.create_task(self._see_through(run), name=run.worker.name, context=run.variables)

    async def _see_through(self, run: Run) -> None:
        """The task of a run: its handler, and what follows at once from how that ended."""
        try:
            self._handled(run, await attend(run, self._is_loop_ending))
        except Exception as bug:  # noqa: BLE001 - told loudly
            self._break_off(run, bug)
        except GeneratorExit as error:
            if is_closing(error, run.task):
                raise  # the event loop is gone, and everything with it
            # A future that the handler awaited has raised it: that closed the coroutines of the handler and
            # reaches us here.
            self._handled(run, Outcome(time.perf_counter() - run.started, error))
        except BaseException as end:
            self._break_off(run, end)
            raise

    def _break_off(self, run: Run, bug: BaseException) -> None:
        if not run.settling:
            run.settling = True
            self._slots.end(run.worker.name, 0.0)
        self._over(run, bug)

    def _handled(self, run: Run, outcome: Outcome) -> None:
        """A handler has ended: its slot is for the next one, while its result is written."""
        run.settling = True
        run.task = None  # it is about to end; what waits for its settlement keeps nothing that it needs not
        if run.audience is not None:
            run.ended = self._context.clock.now()
        run.outcome = outcome
        self._slots.end(run.worker.name, outcome.seconds)
        self._fill_slot(run.worker.name)
        if run.interruption is Interruption.LOST:
            self._over(run)  # told when it was noticed; another owner may have it by now
            return
        self._on_room()
        if run.completion is None:
            self._settle(run)
        else:
            self._go_on(run, self._conclude(run, run.completion))

    def _settle(self, run: Run) -> None:
        run.transition = decide(run.claim, run.outcome, self._context)
        self._context.settler.put(run, self._answer)

    async def _conclude(self, run: Run, completion: Completion) -> None:
        """The handler's own transaction was to complete the job: see whether it has."""
        left = await conclude(run, completion)
        if left is None:
            self._over(run, again=completion.transition)
        else:
            run.outcome = left
            self._settle(run)

    def _fill_slot(self, name: str) -> None:
        if self._context.options.instance_concurrency is None:
            if self._held.get(name):
                self._next.append(name)
        else:
            # A slot of one name is a slot for all: for the oldest of them.
            if ready := [run for run in map(self._ready, self._held) if run is not None]:
                oldest = min(ready, key=lambda run: (_due(run), run.key))
                self._next.append(oldest.worker.name)
        if self._next and not self._starting:
            self._start_some()

    def _written(self, run: Run, answer: object) -> None:
        """The first write of the result is over; mostly it has succeeded, and that was all."""
        try:
            if isinstance(answer, dict):
                self._settled(run, answer)
            else:
                self._go_on(run, self._insist(run, answer))
        except Exception as bug:  # noqa: BLE001 - told loudly; nothing else would ever end this run
            self._over(run, bug)

    async def _insist(self, run: Run, answer: object) -> None:
        self._settled(run, await insist(run, answer))

    def _settled(self, run: Run, document: Document | None) -> None:
        if document is not None and not run.outcome.interrupted:
            if run.audience is not None or run.outcome.error is not None:
                # In the context of this run: many results are written by the task that one of them started.
                run.variables.run(record, run)
            bus = self._context.bus
            if bus.hears(JobCompleted) or bus.hears(JobFailed):
                run.variables.run(bus.tell, report(run, document))
        self._over(run, again=run.transition)

    def _go_on(self, run: Run, rest: Coroutine[Any, Any, None]) -> None:
        """What is left to do for this run takes time: it gets a task of its own."""
        run.task = asyncio.create_task(rest, context=run.variables.copy())
        run.task.add_done_callback(partial(self._gone_on, run))

    def _gone_on(self, run: Run, task: asyncio.Task[None]) -> None:
        if task.cancelled():
            self._over(run)
        elif (bug := task.exception()) is not None:
            self._over(run, bug)

    def _over(self, run: Run, bug: BaseException | None = None, *, again: Transition | None = None) -> None:
        """Nothing is left to do for this run; the job may have something to do *again*."""
        self._forget(run)
        if run.is_followed:
            self._fill_slot(run.worker.name)
        if again is not None and again.to is JobStatus.PENDING:
            self._context.store.wake(run.worker.name)
        if bug is not None and not isinstance(bug, asyncio.CancelledError | KeyboardInterrupt):
            self._on_bug(bug)
        self._on_room()

    def _forget(self, run: Run) -> None:
        del self._runs[run.key]
        if self._excused:
            self._excused.discard(run)
        if not self._runs or len(self._runs) == len(self._excused):
            self.empty.set()
        if run in self._ending:
            self._ending.remove(run)
            if not self._ending:
                self._ended.set()

    def handling(self, seconds: float) -> list[Handling]:
        """The handlers that ran on the event loop during the last *seconds*, in which it stood still."""
        now = time.perf_counter()
        found = []
        for run in self._runs.values():
            if run.worker.is_async and run.started:
                ended = run.started + run.outcome.seconds if run.settling else now
                # Not what began when the loop went on, nor what ended before it stood still.
                if ended - max(run.started, now - seconds) > _SHORTEST_SHARE:
                    found.append(Handling(run.worker.name, run.claim["_id"], ended - run.started))
        return found

    def close(self) -> None:
        """Start nothing any more; what runs goes on."""
        self._closed = True

    async def beat(self) -> None:
        """Mark what is held or runs as alive; let go of what turns out not to be ours any more."""
        runs = [run for run in self._runs.values() if not run.settling and run.completion is None]
        if not runs:
            return
        sent = elapsed()
        # By job and attempt: while the heartbeat is under way, a run may get another document of its claim.
        lost = {_key_of(claim) for claim in await self._context.store.heartbeat([run.claim for run in runs])}
        for run in runs:
            if run.key not in lost:
                run.last_write = sent
            elif run.task is None:
                self._drop(run)
            elif run.completion is None:  # else it may have been completed meanwhile
                self._lose(run)

    async def beat_completing(self) -> None:
        """The same for what is to be completed in a transaction: each alone, for it may have to wait."""
        completing = [run for run in self._runs.values() if run.completion is not None and not run.settling]
        await asyncio.gather(*map(self._beat_completing, completing))

    async def _beat_completing(self, run: Run) -> None:
        if run.completion is not None and not await beat(run.completion, run, self._context):
            self._lose(run)

    def _lose(self, run: Run) -> None:
        if not run.settling and run.interruption is not Interruption.LOST:
            message = "lost the claim on job %s (%s): its handler is cancelled"
            logger.warning(message, run.job.id, run.job.name, extra=about(run.job))
            run.interrupt(Interruption.LOST)
            self._context.bus.tell(ClaimLost(job=run.job))

    def _drop(self, run: Run) -> None:
        """Forget a job that waits for a slot."""
        held = self._held[run.worker.name]
        if run in held:  # else it has started since, or was given back
            held.remove(run)
            self._slots.let_go(run.worker.name)
            self._forget(run)

    async def release_overdue(self) -> None:
        """Give back what waits longer than it should."""
        limit = time.monotonic() - _LONGEST_HOLD
        if not any(held and held[0].held_since < limit for held in self._held.values()):
            return  # those that came first have waited longest
        overdue = [run for held in self._held.values() for run in held if run.held_since < limit]
        for run in overdue:
            self._slots.waited(run.worker.name, _LONGEST_HOLD)
        await self._release(overdue)

    async def release_held(self) -> None:
        """Give back everything that has not started."""
        await self._release([run for held in self._held.values() for run in held])

    async def _release(self, runs: list[Run]) -> None:
        for run in runs:
            self._drop(run)
        await self.give_back([run.claim for run in runs])

    async def give_back(self, claims: list[Document]) -> None:
        """Release claims that were never started."""
        await asyncio.gather(*(self._give_back(claim) for claim in claims))

    async def _give_back(self, claim: Document) -> None:
        for pause in (0.0, 0.1, 0.5):  # what is not released in the end becomes stale, and is recovered
            await asyncio.sleep(pause)
            with suppress(PyMongoError):
                await self._context.settler.settle(claim, transitions.release(claim))
                break
        self._context.store.wake(claim["name"])

    async def interrupt(self, runs: list[Run], grace: float) -> None:
        """Cancel what can be cancelled and give it time to be released.

        Threads, and handlers that swallow the cancellation, keep their claims and go on; what they
        come to is still settled if the claim holds by then.
        """
        for run in runs:
            run.interrupt(Interruption.SHUTDOWN)
        over = self.on_end_of([run for run in runs if run.settling or (run.task and run.interruption)])
        with suppress(TimeoutError):
            async with asyncio.timeout(grace):
                await over.wait()

    def on_end_of(self, runs: list[Run]) -> asyncio.Event:
        """An event that is set when all of these are over; for one caller at a time."""
        self._ending, self._ended = set(runs), asyncio.Event()
        if not runs:
            self._ended.set()
        return self._ended


def _due(run: Run) -> datetime:
    # Somebody may have replaced the time by hand since the job was chosen.
    due: datetime | None = run.job.next_run_at
    return EARLIEST if due is None else due


def _key_of(claim: Document) -> Key:
    # The bytes of an id stand for it: their hash costs no call, and the garbage collector leaves them alone.
    job_id = claim["_id"]
    return job_id.binary if type(job_id) is ObjectId else key_of(job_id), attempt_of(claim)
