"""The stop of a runner, in order: intake, drain (heartbeats continue), cancel and release, upkeep, hooks."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from monque._connect.contact import Contact
from monque._connect.deadlines import without_deadline
from monque._engine.claim import Claiming
from monque._engine.claimed import Run
from monque._engine.context import Context
from monque._engine.interrupts import Interrupts
from monque._engine.runs import Runs
from monque._engine.upkeep import Upkeep
from monque._observe import logs
from monque._signals import is_listening
from monque._time.clock import happens
from monque._values.ended import ShutdownTimeoutError
from monque._values.events import JobError

# Seconds for cancelled handlers to clean up, and for releases to be written, after the shutdown timeout. With
# half of it a slow database is too late; with twice, a second Ctrl-C feels ignored.
_GRACE = 3.0

# While stopping: how often to check whether the database is gone, so that waiting for its answer is in vain.
_CONTACT_CHECK = 0.5


class Stopping:
    """Ends a runner once; concurrent calls share one drain and the earliest deadline."""

    def __init__(
        self,
        context: Context,
        end_rest: Callable[[asyncio.Event], Awaitable[None]],
        runs: Runs,
        interrupts: Interrupts,
        claiming: Claiming,
        upkeep: Upkeep,
        contact: Contact,
    ) -> None:
        self._context = context
        self._end_rest = end_rest
        self._runs = runs
        self._interrupts = interrupts
        self._claiming = claiming
        self._upkeep = upkeep
        self._contact = contact
        self._late = asyncio.Event()
        self._deadline = math.inf
        """The time when running jobs are cancelled, by the clock of the loop."""
        self._timer: asyncio.Handle | None = None
        self._timeout = 0.0
        """Seconds that running jobs were given to finish, in the end."""
        self._task: asyncio.Task[None] | None = None
        self._callers: set[asyncio.Task[Any]] = set()
        # A handler may call stop(): what follows from it has nothing to do with the job that it runs.
        self._variables = without_deadline()
        self.others_over = asyncio.Event()
        """No job runs any more but those whose handlers called `stop()`."""
        self.ended = asyncio.Event()

    def begin(self, timeout: float) -> asyncio.Task[None]:
        """Take no new jobs from now on; the task that ends with the last one, or soon after *timeout*."""
        self._hurry(timeout)
        self._claiming.closing.set()
        self._runs.close()
        self._claiming.bell.ring()
        if self._task is None:
            self._variables.run(self._log_begin, timeout)
            self._task = asyncio.create_task(self._stop(), name="monque-stop", context=self._variables)
        return self._task

    async def wait(self, timeout: float) -> None:
        """Stop, and wait for the very end."""
        if (caller := asyncio.current_task()) is not None:
            self._callers.add(caller)
        await asyncio.shield(self.begin(timeout))

    async def wait_for_others(self, own: Run, timeout: float) -> None:
        """As `wait`, for the handler of a run: it would wait for itself, so it waits for all other jobs."""
        self._runs.ignore_on_stop(own)
        self.begin(timeout)
        await self.others_over.wait()

    def _hurry(self, timeout: float) -> None:
        """Move the deadline to this timeout, unless an earlier one counts."""
        loop = asyncio.get_running_loop()
        when = loop.time() + timeout
        if when < self._deadline:
            if self._timer is not None:
                self._timer.cancel()
            # uvloop's handle of a timer that is due now does not say when it is due.
            self._deadline, self._timer = when, loop.call_at(when, self._late.set)
            self._timeout = timeout

    def _log_begin(self, timeout: float) -> None:
        hears = is_listening(self._context.store.instance_id)
        names = [run.worker.name for run in self._runs.awaited]
        by_job = bool(self._runs.ignored)
        text = logs.stops(names, timeout=timeout, hears_signals=hears, by_job=by_job)
        self._context.log(logging.INFO, text)

    async def _stop(self) -> None:
        began = asyncio.get_running_loop().time()
        await self._end_intake()
        await _first_of(self._runs.empty.wait(), self._late.wait())
        await self._interrupt(self._runs.awaited)
        self.others_over.set()
        await self._end_ignored()
        self._upkeep.stop()
        await self._end_rest(self._late)
        remaining = self._deadline - asyncio.get_running_loop().time()
        await self._context.bus.settle(max(remaining, 0.1), besides=self._callers)
        if self._timer is not None:
            self._timer.cancel()
        self._claiming.bell.close()
        self._log_end(asyncio.get_running_loop().time() - began)
        self.ended.set()

    def _log_end(self, seconds: float) -> None:
        still_running = sum(run.is_running for run in self._runs.unsettled)
        not_stored = len(self._runs) - still_running
        self._context.log(logging.INFO, logs.stopped(seconds, still_running, not_stored))

    async def _end_intake(self) -> None:
        """Release what has not started; wait for a claim in progress: what it takes is released, too.

        A claim that gets no answer is left to end with the other loops: cancelled once, not twice.
        """
        if (claim_loop := self._claiming.task) is None:
            return
        releasing = asyncio.create_task(self._claiming.release_held())
        late = asyncio.create_task(self._late_or_lost())
        for ending in (claim_loop, releasing):
            await asyncio.wait({ending, late}, return_when=asyncio.FIRST_COMPLETED)
        releasing.cancel()
        late.cancel()

    async def _late_or_lost(self) -> None:
        """Wait until an answer is not worth waiting for: after the deadline, or without a database."""
        while not self._contact.is_lost and not await happens(self._late, _CONTACT_CHECK):
            pass
        await asyncio.sleep(_GRACE)

    async def _end_ignored(self) -> None:
        """See to the end of the runs whose handlers called `stop()`: that has just returned there."""
        if not (callers := self._runs.ignored):
            return
        await _first_of(self._runs.wait_over(callers), self._late.wait())
        # The others may have taken all the time that was given.
        await self._runs.wait_over(callers, within=_GRACE)
        await self._interrupt([run for run in self._runs.unsettled if run in callers])

    async def _interrupt(self, runs: list[Run]) -> None:
        """Tell these runs to stop, give them time to be released, and report what could not be finished.

        Threads without checkpoints, and handlers that swallow the cancellation, keep their claims and
        continue; what they come to is still settled if the claim holds by then.
        """
        if not runs:
            return
        for run in runs:
            self._interrupts.tell(run, "shutdown")
        await self._runs.wait_over(runs, within=_GRACE)
        error = ShutdownTimeoutError([run.job for run in runs], timeout=self._timeout)
        left = self._runs.unsettled
        unfinished = logs.unfinished(
            put_back=[run.title for run in runs if run not in left and run.was_released],
            still_running=[run.title for run in runs if run in left and run.is_running],
            not_stored=[run.title for run in runs if run in left and not run.is_running],
        )
        text, jobs = f"did not finish all jobs: {error}; {unfinished}", [str(run.job.id) for run in runs]
        self._context.log(logging.WARNING, text, job_ids=jobs)
        self._context.bus.emit(JobError(error=error))


async def _first_of(*waits: Coroutine[Any, Any, object]) -> None:
    tasks = {asyncio.create_task(wait) for wait in waits}
    await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    for task in tasks:
        task.cancel()
