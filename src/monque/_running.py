"""The jobs claimed here: waiting for a slot, running, being settled."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial

from bson import ObjectId
from pymongo.errors import PyMongoError

from monque._events import ClaimLost
from monque._execute import Context, Interruption, Outcome, Run, execute
from monque._slots import Slots
from monque._store import transitions
from monque._store.document import Document, attempt_of
from monque._workers import Workers

logger = logging.getLogger("monque")

# A job claimed ahead should have started long before this. If it has not, jobs take longer than they
# did, and another instance may have a slot for it.
_LONGEST_HOLD = 1.0


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
    ) -> None:
        self._context = context
        self._workers = workers
        self._slots = slots
        self._on_room = on_room
        self._on_bug = on_bug
        self._runs: dict[tuple[ObjectId, int], Run] = {}
        self._held: dict[str, deque[Run]] = {}
        self._closed = False
        self.empty = asyncio.Event()
        self.empty.set()

    def __len__(self) -> int:
        return len(self._runs)

    @property
    def unsettled(self) -> list[Run]:
        """Every run that is not over yet."""
        return list(self._runs.values())

    @property
    def holds_any(self) -> bool:
        """Whether claimed jobs wait for a slot."""
        return any(self._held.values())

    def take(self, claims: Iterable[Document], *, sent: float) -> None:
        """Start claimed jobs, oldest first, as far as there are slots; hold the rest."""
        taken = []
        for claim in claims:
            worker = self._workers.get(claim["name"])
            key = (claim["_id"], attempt_of(claim))
            if worker is not None and key not in self._runs:
                run = Run(claim, worker, last_write=sent, held_since=sent)
                self._runs[key] = run
                self.empty.clear()
                self._held.setdefault(worker.name, deque()).append(run)
                self._slots.hold(worker.name)
                taken.append(worker.name)
        for name in taken:
            self._start_next(name)

    def _start_next(self, name: str) -> None:
        """Start the oldest job of a name that waits, if there is a slot."""
        held = self._held.get(name)
        if held and not self._closed and self._slots.may_start(name):
            self._start(held.popleft())

    def _start(self, run: Run) -> None:
        self._slots.let_go(run.worker.name)
        self._slots.start(run.worker.name)
        run.task = asyncio.create_task(execute(run, self._context, self._handled))
        run.task.add_done_callback(partial(self._finished, run))

    def _handled(self, run: Run, outcome: Outcome) -> None:
        """A handler has ended: its slot is for the next one, while its result is written."""
        self._slots.end(run.worker.name, outcome.duration.total_seconds())
        if self._context.options.instance_concurrency is None:
            self._start_next(run.worker.name)
        else:
            # A slot of one name is a slot for all: for the oldest of them.
            waiting = [held[0] for name, held in self._held.items() if held and self._slots.may_start(name)]
            if waiting:
                oldest = min(waiting, key=lambda run: (run.job.next_run_at, run.job.id))
                self._start_next(oldest.worker.name)
        self._on_room()

    def _finished(self, run: Run, task: asyncio.Task[None]) -> None:
        self._forget(run)
        if run.runs_again:
            self._context.store.wake(run.worker.name)
        if task.cancelled() or task.exception() is not None:
            if not run.settling:
                self._slots.end(run.worker.name, 0.0)
            if not task.cancelled() and (bug := task.exception()) is not None:
                self._on_bug(bug)
        self._on_room()

    def _forget(self, run: Run) -> None:
        del self._runs[run.claim["_id"], attempt_of(run.claim)]
        if not self._runs:
            self.empty.set()

    def close(self) -> None:
        """Start nothing any more; what runs goes on."""
        self._closed = True

    async def beat(self) -> None:
        """Mark what is held or runs as alive; let go of what turns out not to be ours any more."""
        runs = [run for run in self._runs.values() if not run.settling]
        if not runs:
            return
        sent = time.monotonic()
        lost = {id(claim) for claim in await self._context.store.heartbeat([run.claim for run in runs])}
        for run in runs:
            if id(run.claim) not in lost:
                run.last_write = sent
            elif run.task is None:
                self._drop(run)
            elif not run.settling and run.interruption is not Interruption.LOST:
                logger.warning(
                    "lost the claim on job %s (%s): its handler is cancelled", run.job.id, run.job.name
                )
                run.interrupt(Interruption.LOST)
                self._context.bus.tell(ClaimLost(job=run.job))

    def _drop(self, run: Run) -> None:
        """Forget a job that waited for a slot."""
        with suppress(ValueError):  # it may have started since
            self._held[run.worker.name].remove(run)
            self._slots.let_go(run.worker.name)
            self._forget(run)

    async def release_overdue(self) -> None:
        """Give back what waits longer than it should."""
        limit = time.monotonic() - _LONGEST_HOLD
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

    async def interrupt(self, grace: float) -> list[Run]:
        """Cancel what can be cancelled and give it time to be released; what was still running.

        Threads, and handlers that swallow the cancellation, keep their claims and go on; what they
        come to is still settled if the claim holds by then.
        """
        incomplete = self.unsettled
        for run in incomplete:
            run.interrupt(Interruption.SHUTDOWN)
        ending = [run.task for run in incomplete if run.task and (run.interruption or run.settling)]
        if ending:
            await asyncio.wait(ending, timeout=grace)
        return incomplete
