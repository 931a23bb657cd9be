"""The set of runs: what is claimed here, from the claim until it is settled."""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter, deque
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from typing import Any, Protocol

from monque._connect.deadlines import without_deadline
from monque._engine.capacity import Capacity, Prefetch
from monque._engine.claimed import Held, Key, Lent, Run, Settlement, key_of_claim
from monque._engine.complete_in import complete_in
from monque._engine.context import Context
from monque._engine.decide import Outcome
from monque._engine.gates import gate
from monque._engine.pauses import Control
from monque._engine.progress import Reporting
from monque._engine.threads import Places
from monque._store.document import Claim, priority_of, size_of
from monque._store.settle import Answer
from monque._store.transitions.transition import Transition
from monque._values.job import Job
from monque._values.settings import Timeout
from monque._values.status import JobStatus
from monque._workers.workers import Workers

# Handlers that start in one turn of the event loop. Behind hundreds of them, the answers of the database
# would wait, and the next claim would be late. With twice as many, a poll under load takes a third longer;
# with half as many, the turns of the loop themselves begin to cost.
_STARTS_IN_ONE_TURN = 16


class Owner(Protocol):
    """The runner, as its runs see it."""

    @property
    def reporting(self) -> Reporting:
        """Where handlers report how far they are."""

    def on_room(self) -> None:
        """A slot is free, and the claim loop waits for one."""

    def on_put_back(self, name: str) -> None:
        """A job of this name waits again, for its next attempt or its next time."""

    def on_bug(self, bug: BaseException) -> None:
        """A bug of ours was met: end loudly."""

    def limit(self, run: Run, timeout: Timeout) -> None:
        """Watch how long the handler of this run takes, from now on."""

    def on_late_end(self, run: Run) -> None:
        """The handler of a run has ended that was given up before."""

    def is_loop_ending(self) -> bool:
        """Whether the event loop is about to be closed, and cancels all tasks."""


class Runs:
    """Takes claims and sees each through to its end.

    Invariant: a claim is in `all` until after it is settled, so that a stop waits for it and heartbeats
    cover it until its handler has ended. It takes a slot only while its handler runs.
    """

    def __init__(
        self,
        context: Context,
        workers: Workers,
        active: Counter[str],
        places: Places,
        control: Control,
        owner: Owner,
        *,
        execute: Callable[[Run, Runs], Coroutine[Any, Any, None]],
        on_answer: Callable[[Runs, Settlement, Answer | BaseException], None],
    ) -> None:
        self.context = context
        self.places = places
        self._execute = execute
        self._lent = Lent(
            partial(complete_in, context=context), context.state, owner.reporting, context.store.read
        )
        self.on_answer = partial(on_answer, self)
        """Called with a settlement and the answer to its first write."""
        self.empty = asyncio.Event()
        """There is nothing left to wait for."""
        self.empty.set()
        self.owner = owner
        self._workers = workers
        self.all: dict[Key, Held | Run] = {}
        self.prefetch = Prefetch(self.all, context.store.claimer.shares)
        self.capacity = Capacity(workers, context.store.options, active, self.prefetch, control)
        self._next: deque[str] = deque()  # one more job of each of these names may be able to start
        self._starting = False
        self._excused: set[Run] = set()
        # The end of one job often starts another. The new one must not see that one's context variables.
        self._variables = without_deadline()

    def __len__(self) -> int:
        return len(self.all)

    @property
    def unsettled(self) -> list[Run]:
        """Every run that has started and is not settled."""
        return [run for run in self.all.values() if isinstance(run, Run)]

    @property
    def awaited(self) -> list[Run]:
        """Every run that a stop has to wait for."""
        return [run for run in self.unsettled if run not in self._excused]

    @property
    def excused(self) -> list[Run]:
        """The runs whose handlers wait for a stop."""
        return list(self._excused)

    def of(self, job: Job[Any]) -> Run | None:
        """The run whose handler has this job and has not ended."""
        return next((run for run in self.unsettled if run.is_running and run.job is job), None)

    def excuse(self, run: Run) -> None:
        """Do not wait for this run: its handler waits for us."""
        self._excused.add(run)
        self._check_empty()

    def take(self, claims: Sequence[Claim], *, sent: float, aged: frozenset[bytes] = frozenset()) -> None:
        """Start claimed jobs as far as there are slots, urgent ones and then the oldest first; hold the rest.

        *aged* has the keys of those that were claimed for their age, whatever their priority is.
        """
        if len(claims) > 1:  # a single claim is no prefetch, so its size does not matter
            self.capacity.record_size(size_of(random.choice(claims)))  # noqa: S311 - one of them stands for all
        audience = self.context.telemetry.audience()
        now = time.monotonic()
        free: dict[str, int] = {}
        for claim in claims:
            name: Any = claim.get("name")
            # Somebody may have changed the name by hand since the job was chosen.
            worker = self._workers.get(name) if type(name) is str else None
            key = key_of_claim(claim)
            if worker is None or key in self.all:
                continue
            held = Held(key, claim, worker, sent, now, audience, self._earlier(key))
            if priority := priority_of(claim):
                held.priority, held.is_aged = priority, key[0] in aged
            self.all[key] = held
            self.prefetch.add(held)
            if name not in free:
                free[name] = self.capacity.free_slots(worker)
            if free[name] > 0:  # each of the others starts when a job ends
                free[name] -= 1
                self._next.append(name)
        if self.all:
            self.empty.clear()
        if not self._starting:
            self._start_some()

    def _earlier(self, key: Key) -> Key | None:
        """The attempt before this one, if it is still being settled here."""
        if key[1] <= 1:
            return None
        earlier = self.all.get((key[0], key[1] - 1))
        if not isinstance(earlier, Run) or earlier.is_running:
            return None
        return earlier.key

    def _start_some(self) -> None:
        """Start what may start, a few in each turn of the event loop."""
        started = 0
        while self._next and started < _STARTS_IN_ONE_TURN:
            name = self._next.popleft()
            if self.prefetch.urgent:
                name = self.capacity.next_name(name)
            held = self.prefetch.next_of(name)
            if held is None or not self.capacity.may_start(held.worker):
                continue
            started += 1
            gated = gate(held.claim, held.worker.settings, self.context.store.clock.now)
            if gated is None:
                self._start(held)
            else:  # it takes no slot: the next job may have it
                self.pass_by(held, gated)
                self._next.appendleft(self.capacity.next_name(name))
        self._starting = bool(self._next)
        if started:
            self._offer_room()
        if self._starting:
            asyncio.get_running_loop().call_soon(self._start_some, context=self._variables)

    def _start(self, held: Held) -> None:
        worker = held.worker
        self.capacity.start(worker.name, waited=time.monotonic() - held.since)
        self.prefetch.count_start(held)
        run = self._become_run(held)
        loop = asyncio.get_running_loop()
        run.task = loop.create_task(self._execute(run, self), name=worker.name, context=run.variables)

    def _become_run(self, held: Held) -> Run:
        self.prefetch.remove(held)
        variables = self._variables.copy()
        run = Run(held.key, held.claim, held.worker, held.last_write, held.audience, variables, self._lent)
        self.all[held.key] = run
        return run

    def pass_by(self, held: Held, transition: Transition) -> None:
        """Settle a job without calling its handler; it takes no slot."""
        self.capacity.passed_by(held.worker.name)
        run = self._become_run(held)
        run.outcome = outcome = Outcome.of_gated()
        if run.audience is not None:
            outcome.ended = self.context.store.clock.now()
        self.context.store.settler.put(Settlement(run.claim, transition, run, outcome), self.on_answer)

    def free_slot(self, run: Run, outcome: Outcome) -> None:
        """The handler has ended: give its slot to the next job, while the result is written."""
        run.outcome = outcome
        if run.limit is not None:
            run.limit.end()
        run.task = None  # it is about to end; what waits for the settlement keeps only what it needs
        if run.audience is not None:
            outcome.ended = self.context.store.clock.now()
        self.capacity.end(run.worker.name, outcome.seconds)
        self._fill_slot(run.worker.name)
        self._offer_room()

    def _fill_slot(self, name: str) -> None:
        if self.prefetch.count:
            self._next.append(self.capacity.next_name(name))
            if not self._starting:
                self._start_some()

    def _offer_room(self) -> None:
        if self.capacity.is_awaited:
            self.owner.on_room()

    def continue_in_task(self, run: Run, rest: Coroutine[Any, Any, None]) -> None:
        """Do what is left for this run in a task of its own."""
        run.task = asyncio.create_task(rest, context=run.variables.copy())
        run.task.add_done_callback(partial(self._task_done, run))

    def _task_done(self, run: Run, task: asyncio.Task[None]) -> None:
        if task.cancelled():
            self.finish(run)
        elif (bug := task.exception()) is not None:
            self.break_off(run, bug)

    def break_off(self, run: Run, bug: BaseException) -> None:
        """As `finish`, after a bug, or because the event loop is being closed."""
        if run.is_running:
            run.outcome = Outcome(0.0, bug)
            self.capacity.end(run.worker.name, 0.0)
        self.finish(run)
        if not isinstance(bug, asyncio.CancelledError | KeyboardInterrupt):
            self.owner.on_bug(bug)

    def finish(self, run: Run, transition: Transition | None = None) -> None:
        """Nothing is left to do for this run; the *transition* says what became of its job."""
        self._forget(run)
        if run in self.owner.reporting.reports:
            self.owner.reporting.forget(run)
        if (run.key[0], run.key[1] + 1) in self.all:  # the next attempt waits for this one
            self._fill_slot(run.worker.name)
        if transition is not None and transition.to is JobStatus.PENDING:
            self.owner.on_put_back(run.worker.name)
        self._offer_room()

    def drop(self, held: Held) -> None:
        """Forget a job that waits for a slot; one that has started since is left alone."""
        if self.prefetch.remove(held):
            self._forget(held)

    def _forget(self, claimed: Held | Run) -> None:
        del self.all[claimed.key]
        if isinstance(claimed, Run):
            self._excused.discard(claimed)
            if claimed.over is not None:
                claimed.over.set_result(None)
        self._check_empty()

    def _check_empty(self) -> None:
        if len(self.all) == len(self._excused):
            self.empty.set()

    def close(self) -> None:
        """Start nothing any more; what runs continues, and its slots are for the next runner."""
        self.capacity.close()

    async def wait_over(self, runs: Sequence[Run], *, within: float | None = None) -> None:
        """Wait until nothing is left to do for these runs, at most *within* seconds (None: any time)."""
        loop = asyncio.get_running_loop()
        for run in runs:
            run.over = run.over or loop.create_future()
            if run.key not in self.all and not run.over.done():
                run.over.set_result(None)
        if runs:
            await asyncio.wait([run.over for run in runs if run.over is not None], timeout=within)
