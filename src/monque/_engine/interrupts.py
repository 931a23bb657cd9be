"""Telling handlers to stop: an operator asked for it, time is up, the claim is lost, or the instance stops.

What follows from it is decided in `decide`, when the handler has ended. One that does not end is reported as
stuck; past a hard limit its run is given up.

Three ways lead here: a hint of the change stream, a look once a second while there is no stream, and a look
with each heartbeat. Each is verified by reading the document, so that an old hint cannot hit a newer run.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterable, Sequence
from datetime import timedelta
from typing import Any

from pymongo.errors import PyMongoError

from monque._connect.contact import Contact
from monque._connect.deadlines import without_deadline
from monque._engine.claimed import Held, Key, Limit, Run, key_of_claim
from monque._engine.context import Context
from monque._engine.decide import Outcome
from monque._engine.insist import lose
from monque._engine.run import conclude
from monque._engine.runs import Runs
from monque._observe.logs import about
from monque._store.document import is_cancel_requested, is_ended_after_run, key_of, with_request, with_stuck
from monque._store.settle import find_requests
from monque._store.transitions.run import cancel_run
from monque._time.waiting import happens
from monque._values.events import JobStuck
from monque._values.settings import Timeout
from monque._values.status import Interruption

# Without a live change stream, this often (in seconds) the database is asked about handlers that have run for
# as long. Half of it doubles these commands; with twice, a user who presses "stop" begins to wonder.
_INTERVAL = 1.0

# A hint may be about a job whose claim is not answered yet. It is kept for this long, and compared with what
# is claimed here this often; neither sends a command. Half of the first is short for a claim on a busy
# server, twice keeps hints about jobs of other instances for longer; half or twice of the second is no
# difference that a user notices.
_HINT_LASTS = 2.0
_HINT_INTERVAL = 0.1


class Requests:
    """Finds requests to cancel jobs that run here, and passes them on."""

    def __init__(self, context: Context, interrupts: Interrupts, contact: Contact) -> None:
        self._context = context
        self._runs = interrupts.runs
        self._interrupts = interrupts
        self._contact = contact
        self._hinted: dict[bytes, float] = {}
        """The jobs that hints were about, and until when each counts (`time.monotonic`)."""
        self._hinted_all = False
        self._wake = asyncio.Event()

    def hint(self, job_id: Any) -> None:
        """Somebody may have asked for the end of this job; None: of any job."""
        if job_id is None:
            self._hinted_all = True
        else:
            self._hinted[key_of(job_id)] = time.monotonic() + _HINT_LASTS
        self._wake.set()

    async def loop(self, relies_on_stream: Callable[[], bool]) -> None:
        """Follow hints; without a live stream, look by ourselves. An idle instance sends no command."""
        while True:
            await happens(self._wake, _HINT_INTERVAL if self._hinted else _INTERVAL)
            self._wake.clear()
            try:
                await self._look_for(self._suspects(relies_on_stream()))
            except PyMongoError as error:  # the next heartbeat looks again
                self._contact.failed(error)
                self._context.report_failure("looking for requests to cancel", error)

    async def look(self) -> None:
        """Look for requests to cancel whatever is claimed here."""
        await self._look_for(self._runs.all.values())

    def _suspects(self, relies_on_stream: bool) -> list[Held | Run]:
        """The claims to look at: those that hints are about; without a stream, handlers that run for long."""
        hinted, now = self._hinted, time.monotonic()
        every, self._hinted_all = self._hinted_all, False
        before = 0.0 if relies_on_stream else time.perf_counter() - _INTERVAL
        if relies_on_stream and not every and not hinted:
            return []
        found = [
            each
            for each in self._runs.all.values()
            if every or each.key[0] in hinted or (isinstance(each, Run) and 0 < each.started < before)
        ]
        known = {each.key[0] for each in found}
        self._hinted = {key: until for key, until in hinted.items() if key not in known and until > now}
        return found

    async def _look_for(self, claimed: Iterable[Held | Run]) -> None:
        claims = [each.claim for each in claimed if _may_be_stopped(each)]
        if claims:
            for found in await find_requests(self._context.store.collection, claims):
                self._interrupts.on_request(key_of_claim(found), found["cancel"])


def _may_be_stopped(claimed: Held | Run) -> bool:
    is_over = isinstance(claimed, Run) and not claimed.is_running
    return not is_over and (not is_cancel_requested(claimed.claim) or is_ended_after_run(claimed.claim))


logger = logging.getLogger("monque")

# A handler that has not ended this long (in seconds) after it was told to stop will hardly do so by itself.
# With half of it, handlers that clean up slowly are reported; with twice, an operator hears of it late.
_STUCK_AFTER = 30.0

# While a handler is stuck, how often to look whether it has ended, for the gauge. Half of it costs twice as
# much for nothing that anybody sees; with twice, the gauge is late.
_STUCK_CHECK = 1.0


class Abandoned:
    """The runs of an instance that were given up and whose handlers still run; a stop does not end them."""

    def __init__(self) -> None:
        self.tasks: dict[Run, asyncio.Task[None] | None] = {}
        """Their tasks, which must not be forgotten."""
        self.holding_slots: set[Run] = set()
        """Those that keep their slots."""

    def slots_freed(self, name: str) -> int:
        """How many handlers of this name run beside the slots."""
        return sum(run.worker.name == name for run in self.tasks if run not in self.holding_slots)


class Interrupts:
    """Tells the handlers of one instance to stop, and knows those that do not."""

    def __init__(self, runs: Runs, abandoned: Abandoned) -> None:
        self.runs = runs
        self._abandoned = abandoned
        self._stuck: list[Run] = []
        # A timer must not see the context variables of the job that happened to set it.
        self._variables = without_deadline()

    def tell(self, run: Run, why: Interruption) -> None:
        """Tell the handler to stop, and have a look at it later."""
        if run.interrupt(why):
            if (children := self.runs.places.children) is not None:
                children.stop(run, why)
            loop = asyncio.get_running_loop()
            loop.call_later(_STUCK_AFTER, self._check_stuck, run, context=self._variables)

    def on_request(self, key: Key, cancel: Any) -> None:
        """An operator has asked for the end of this claim's job; *cancel* is the request as it is stored.

        The run keeps it with its claim, also if the handler was told to stop before, for another reason.
        """
        claimed = self.runs.all.get(key)
        if claimed is None:
            return
        claimed.claim = with_request(claimed.claim, cancel)
        if isinstance(claimed, Held):
            self.runs.pass_by(claimed, cancel_run(claimed.claim))
        elif not is_ended_after_run(claimed.claim):
            self.tell(claimed, "requested")

    def lose(self, run: Run) -> None:
        """A heartbeat has shown that the job is not ours any more: cancel its handler."""
        if run.is_running and not run.is_lost:
            self.tell(run, "lost")
            lose(run, "its handler is cancelled", self.runs.context)

    async def shut_down(self, runs: Sequence[Run], grace: float) -> None:
        """Tell these runs to stop, and give them time to be released.

        Threads without checkpoints, and handlers that swallow the cancellation, keep their claims and
        continue; what they come to is still settled if the claim holds by then.
        """
        for run in runs:
            self.tell(run, "shutdown")
        await self.runs.wait_over(runs, within=grace)

    def limit(self, run: Run, timeout: Timeout) -> None:
        """Watch how long the handler of this run takes, from now on."""
        run.limit = Limit(timeout, asyncio.get_running_loop().time() + timeout.soft.total_seconds())
        self._wait_until(run, run.limit, run.limit.soft_at)

    def _wait_until(self, run: Run, limit: Limit, when: float) -> None:
        loop = asyncio.get_running_loop()
        limit.timer = loop.call_at(when, self._on_time, run, limit, context=self._variables)

    def _on_time(self, run: Run, limit: Limit) -> None:
        """A limit may have passed. The handler may have pushed it since the timer was set."""
        now = asyncio.get_running_loop().time()
        if not run.is_running:
            return
        if now < limit.soft_at and run.stop is None:
            self._wait_until(run, limit, limit.soft_at)
            return
        self.tell(run, "timeout")
        if limit.hard_at is not None and now < limit.hard_at:
            self._wait_until(run, limit, limit.hard_at)
        elif limit.hard_at is not None and run.worker.address is not None:
            self._kill(run)
        elif limit.hard_at is not None:
            self._abandon(run, limit)

    def _kill(self, run: Run) -> None:
        """A child process need not be given up: it can be ended for certain."""
        if (children := self.runs.places.children) is not None:
            children.kill_of(run)

    def _abandon(self, run: Run, limit: Limit) -> None:
        """Settle a run whose handler does not end, and let the handler be.

        At most as many runs as the worker has slots are given up with their slots. The slots of further ones
        stay taken: a worker whose handlers all hang must not start more and more of them.
        """
        limit.is_abandoned = True
        name, seconds = run.worker.name, time.perf_counter() - run.started
        outcome = Outcome(seconds, limit.passed(run.job.id), "timeout")
        slots_freed = self._abandoned.slots_freed(name)
        self._abandoned.tasks[run] = run.task
        message = "job %s (%s) %s; from now on it may run twice at once"
        logger.warning(message, run.job.id, name, outcome.error, extra=about(run.job))
        if slots_freed < self.runs.capacity.slots_of(run.worker):
            self.runs.free_slot(run, outcome)
        else:
            self._abandoned.holding_slots.add(run)
            run.outcome, run.task = outcome, None
            if run.audience is not None:
                outcome.ended = self.runs.context.store.clock.now()
        run.variables.run(conclude, run, outcome, self.runs)

    def on_late_end(self, run: Run) -> None:
        """The handler of a run has ended that was given up before: what it came to is dropped."""
        message = "the handler of job %s (%s) has ended after its run was given up; its result is dropped"
        logger.warning(message, run.job.id, run.worker.name, extra=about(run.job))
        self._abandoned.tasks.pop(run, None)
        if run in self._abandoned.holding_slots and run.outcome is not None:
            self._abandoned.holding_slots.discard(run)
            self.runs.free_slot(run, run.outcome)

    @property
    def has_lost_slots(self) -> bool:
        """Whether runs that were given up hold slots."""
        return bool(self._abandoned.holding_slots)

    def _check_stuck(self, run: Run) -> None:
        if not self._still_runs(run) or run.stop is None:
            return
        running_for = timedelta(seconds=time.perf_counter() - run.started)
        if run.is_running:  # its heartbeats tell others
            since = self.runs.context.store.clock.now() - timedelta(seconds=_STUCK_AFTER)
            run.claim = with_stuck(run.claim, run.stop.why, since)
        message = "job %s (%s) is stuck: it was told to stop (%s) %.0f s ago and still runs"
        fields = about(run.job, running_for)
        logger.warning(message, run.job.id, run.worker.name, run.stop.why, _STUCK_AFTER, extra=fields)
        event = JobStuck(job=run.job, why=run.stop.why, running_for=running_for)
        run.variables.run(self.runs.context.bus.emit, event)
        self._stuck.append(run)
        self._report_stuck(run.worker.name)
        if len(self._stuck) == 1:
            self._watch_stuck()

    def _watch_stuck(self) -> None:
        """See to it that the gauge falls again when a stuck handler has ended after all."""
        ended = [run for run in self._stuck if not self._still_runs(run)]
        self._stuck = [run for run in self._stuck if run not in ended]
        for name in {run.worker.name for run in ended}:
            self._report_stuck(name)
        if self._stuck:
            loop = asyncio.get_running_loop()
            loop.call_later(_STUCK_CHECK, self._watch_stuck, context=self._variables)

    def _report_stuck(self, name: str) -> None:
        if (audience := self.runs.context.telemetry.audience()) is not None:
            audience.stuck(name, sum(run.worker.name == name for run in self._stuck))

    def _still_runs(self, run: Run) -> bool:
        return run.is_running or run in self._abandoned.tasks
