"""The set of runs: what is claimed here, from the claim until it is settled."""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from collections.abc import Callable, Coroutine, Mapping, Sequence
from functools import partial
from typing import Any, Protocol

from monque._connect.deadlines import without_deadline
from monque._engine.batches import Batches
from monque._engine.capacity import Capacity
from monque._engine.claimed import Caller, Held, JobServices, Listener, Run, Settlement
from monque._engine.context import Context
from monque._engine.decide import Outcome
from monque._engine.gates import gate
from monque._engine.pauses import Control
from monque._store.document import Claim, Key, size_of
from monque._store.settle import Answer
from monque._store.transitions.transition import Transition
from monque._values.job import Job
from monque._values.settings import Timeout
from monque._values.status import JobStatus
from monque._workers.workers import Worker, Workers

# Handlers that start in one turn of the event loop. Behind hundreds of them, the answers of the database
# would wait, and the next claim would be late: with twice as many, a poll under load takes a third longer.
_STARTS_IN_ONE_TURN = 16


class Owner(Protocol):
    """The runner, as its runs see it."""

    def on_room(self) -> None:
        """A slot is free, and the claim loop waits for one."""

    def on_put_back(self, name: str) -> None:
        """A job of this name waits again, for its next attempt or its next time."""

    def on_bug(self, bug: BaseException) -> None:
        """A bug of ours was met: end loudly."""

    def is_loop_ending(self) -> bool:
        """Return whether the event loop is about to be closed, and cancels all tasks."""


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
        control: Control,
        owner: Owner,
        services: JobServices,
        listeners: tuple[Listener, ...],
        limit: Callable[[Run, Timeout], None],
        execute: Callable[[Run, Runs], Coroutine[Any, Any, None]],
        on_answer: Callable[[Runs, Settlement, Answer | BaseException], None],
    ) -> None:
        self.context = context
        self.control = control
        """The pauses, as far as they are known here."""
        self.limit = limit
        """Watches how long the handler of a run takes, from now on."""
        self._execute = execute
        self._services = services
        self.listeners = listeners
        self.on_answer = partial(on_answer, self)
        """Called with a settlement and the answer to its first write."""
        self.empty = asyncio.Event()
        """There is nothing left to wait for."""
        self.empty.set()
        self.callers: Mapping[Worker[Any], Caller] = {}
        """The caller of each worker; the runner has them."""
        self.owner = owner
        self._workers = workers
        self.all: dict[Key, Held | Run] = {}
        self.earlier: Runs | None = None
        """The runs of an earlier start, if some of them have outlived its stop."""
        options, chooser = context.store.options, context.store.claimer.chooser
        self.capacity = Capacity(workers, options, active, self.all, chooser.shares, control)
        self.batches = Batches(
            context, lambda name: owner.on_put_back(name) if workers.serves(name) else None, owner.on_bug
        )
        self._starting = False
        self._ignored: set[Run] = set()
        # The end of one job often starts another. The new one must not see that one's context variables.
        self._variables = without_deadline()

    def __len__(self) -> int:
        return len(self.all)

    @property
    def claims(self) -> dict[Key, Any]:
        """The ids of the jobs that are claimed here and not settled, also since an earlier start."""
        earlier = {} if self.earlier is None else self.earlier.claims
        return earlier | {key: claimed.claim.id for key, claimed in self.all.items()}

    @property
    def outlived(self) -> Runs | None:
        """These runs if some are not over, else those of an earlier start of which some are not."""
        return self if self.all else None if self.earlier is None else self.earlier.outlived

    @property
    def unsettled(self) -> list[Run]:
        """Every run that has started and is not settled; any thread may ask."""
        return [run for run in list(self.all.values()) if isinstance(run, Run)]

    @property
    def removing(self) -> list[Key]:
        """The claims of ended runs whose jobs are not kept, if they are completed."""
        return [run.claim.key for run in self.unsettled if run.outcome and "keep" in run.worker.settings]

    @property
    def awaited(self) -> list[Run]:
        """Every run that a stop has to wait for."""
        return [run for run in self.unsettled if run not in self._ignored]

    @property
    def ignored(self) -> list[Run]:
        """The runs whose handlers wait for a stop."""
        return list(self._ignored)

    def of(self, job: Job[Any]) -> Run | None:
        """The run whose handler has this job and has not ended."""
        return next((run for run in self.unsettled if run.is_running and run.job is job), None)

    def ignore_on_stop(self, run: Run) -> None:
        """Do not wait for this run: its handler waits for us."""
        self._ignored.add(run)
        self._check_empty()

    def without_known(self, claims: list[Claim]) -> list[Claim]:
        """Those of the claims that are not here yet: a running job may be chosen again from an old read."""
        known = self.all if self.earlier is None else self.claims
        return [claim for claim in claims if claim.key not in known]

    def take(self, claims: Sequence[Claim], *, sent: float, by_age: frozenset[bytes] = frozenset()) -> None:
        """Start claimed jobs as far as there are slots, urgent ones and then the oldest first; hold the rest.

        *by_age* has the keys of those that were claimed for their age, whatever their priority is.
        """
        if len(claims) > 1:  # a single claim is no prefetch, so its size does not matter
            one = random.choice(claims)  # noqa: S311 - it stands for all
            self.capacity.record_size(size_of(one.document))
        audience = self.context.telemetry.audience()
        now = time.perf_counter()
        waiting: list[Held] = []
        for claim in claims:
            worker, key = self._workers.get(claim.name), claim.key
            if worker is None:  # somebody has changed the name by hand since the job was chosen
                continue
            earlier = self._earlier(key) if key[1] > 1 else None
            is_by_age = claim.priority > 0 and key[0] in by_age
            self.all[key] = held = Held(claim, worker, sent, now, audience, earlier, is_by_age)
            waiting.append(held)
        self.capacity.hold(waiting)
        if self.all:
            self.empty.clear()
        if not self._starting:
            self._start_some()

    def _earlier(self, key: Key) -> Key | None:
        """The attempt before this one, if it is still being settled here."""
        earlier = self.all.get((key[0], key[1] - 1))
        if not isinstance(earlier, Run) or earlier.is_running:
            return None
        return earlier.claim.key

    def _start_some(self) -> None:
        """Start what may start, a few in each turn of the event loop."""
        started = 0
        while self.capacity.offers and started < _STARTS_IN_ONE_TURN:
            if (held := self.capacity.next()) is None:
                break
            started += 1
            gated = gate(held.claim, held.worker.settings, self.context.store.clock.now)
            if gated is None:
                self._start(held)
            else:  # it takes no slot: the next job may have it
                self.settle_unstarted(held, gated)
                self.capacity.offer_again(held.worker.name)
        self._starting = bool(self.capacity.offers)
        if started and self.capacity.is_awaited:
            self.owner.on_room()
        if self._starting:
            asyncio.get_running_loop().call_soon(self._start_some, context=self._variables)

    def _start(self, held: Held) -> None:
        self.capacity.start(held)
        run = self._become_run(held)
        loop = asyncio.get_running_loop()
        run.task = loop.create_task(self._execute(run, self), name=held.worker.name, context=run.variables)

    def _become_run(self, held: Held) -> Run:
        worker, audience, variables = held.worker, held.audience, self._variables.copy()
        caller, services = self.callers[worker], self._services
        run = Run(held.claim, worker, held.last_write, audience, variables, services, caller)
        self.all[held.claim.key] = run
        return run

    def settle_unstarted(self, held: Held, transition: Transition) -> None:
        """Settle a job without calling its handler; it takes no slot."""
        self.capacity.skip(held)
        run = self._become_run(held)
        run.outcome = outcome = Outcome.of_gated()
        if run.audience is not None:
            outcome.ended = self.context.store.clock.now()
        settlement = Settlement(run.claim, transition.without_wait(run.claim), run, outcome)
        self.context.store.settler.put(settlement, self.on_answer)

    def free_slot(self, run: Run, outcome: Outcome) -> None:
        """The handler has ended: give its slot to the next job, while the result is written."""
        run.outcome = outcome
        if run.limit is not None:
            run.limit.end()
        run.task = None  # it is about to end; what waits for the settlement keeps only what it needs
        if run.audience is not None:
            outcome.ended = self.context.store.clock.now()
        self.capacity.end(run.worker.name, outcome.seconds)
        if self.capacity.waiting:
            self._fill_slot(run.worker.name)
        if self.capacity.is_awaited:
            self.owner.on_room()

    def _fill_slot(self, name: str) -> None:
        self.capacity.offer(name)
        if not self._starting:
            self._start_some()

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
        if run.finishers:
            self._services.forget(run)
        job, attempt = run.claim.key
        if (job, attempt + 1) in self.all:  # the next attempt waits for this one
            self._fill_slot(run.worker.name)
        if transition is not None and transition.to is JobStatus.PENDING:
            self.owner.on_put_back(run.worker.name)
        if self.capacity.is_awaited:
            self.owner.on_room()

    def drop(self, held: Held) -> None:
        """Forget a job that waits for a slot; one that has started since is left alone."""
        if self.capacity.remove(held):
            self._forget(held)

    def _forget(self, claimed: Held | Run) -> None:
        del self.all[claimed.claim.key]
        if isinstance(claimed, Run):
            self._ignored.discard(claimed)
            if claimed.over is not None:
                claimed.over.set_result(None)
        self._check_empty()

    def _check_empty(self) -> None:
        if len(self.all) == len(self._ignored):
            self.empty.set()

    def close(self) -> None:
        """Start nothing any more; what runs continues, and its slots are for the next runner."""
        self.capacity.close()

    async def wait_over(self, runs: Sequence[Run], *, within: float | None = None) -> None:
        """Wait until nothing is left to do for these runs, at most *within* seconds (None: any time)."""
        loop = asyncio.get_running_loop()
        for run in runs:
            run.over = run.over or loop.create_future()
            if run.claim.key not in self.all and not run.over.done():
                run.over.set_result(None)
        if runs:
            await asyncio.wait([run.over for run in runs if run.over is not None], timeout=within)
