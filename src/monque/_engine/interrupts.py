"""Telling handlers to stop: an operator asked for it, time is up, the claim is lost, or the instance stops.

What follows from it is decided in `decide`, when the handler has ended. One that does not end is reported as
stuck; past a hard limit its child process is killed.

Three ways lead here: a hint of the change stream, a look once a second while there is no stream, and a look
with each heartbeat. Each is verified by reading the document, so that an old hint cannot hit a newer run.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterable
from datetime import timedelta
from typing import Any

from pymongo.errors import PyMongoError

from monque._connect.contact import Contact
from monque._connect.deadlines import without_deadline
from monque._engine.claimed import Held, Limit, Run
from monque._engine.context import Context
from monque._engine.insist import lose
from monque._engine.runs import Runs
from monque._observe.logs import about
from monque._store.document import Key, key_of
from monque._store.settle import find_cancel_requests
from monque._store.transitions.run import cancel_run
from monque._time.clock import happens
from monque._values.events import JobStuck
from monque._values.settings import Timeout
from monque._values.status import Interruption

# Without a live change stream, this often (in seconds) the database is asked about handlers that have run for
# as long. With twice of it, a user who presses "stop" begins to wonder.
_INTERVAL = 1.0

# A hint may be about a job whose claim is not answered yet. It is kept for this long, and compared with what
# is claimed here this often; neither sends a command. A claim on a busy server may take a second.
_HINT_LASTS = 2.0
_HINT_INTERVAL = 0.1


class Requests:
    """Finds requests to cancel jobs that run here, and passes them on."""

    def __init__(self, context: Context, runs: Runs, interrupts: Interrupts, contact: Contact) -> None:
        self._context = context
        self._runs = runs
        self._interrupts = interrupts
        self._contact = contact
        self._hinted: dict[bytes, float] = {}
        """The jobs that hints were about, and until when each counts (`time.perf_counter`)."""
        self._hinted_all = False
        self._wake = asyncio.Event()

    def hint(self, job_id: Any) -> None:
        """Look soon whether somebody has asked for the end of this job; None: of any job."""
        if job_id is None:
            self._hinted_all = True
        else:
            self._hinted[key_of(job_id)] = time.perf_counter() + _HINT_LASTS
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

    def _suspects(self, relies_on_stream: bool) -> list[Held | Run]:
        """The claims to look at: those that hints are about; without a stream, handlers that run for long."""
        hinted, now = self._hinted, time.perf_counter()
        every, self._hinted_all = self._hinted_all, False
        before = 0.0 if relies_on_stream else now - _INTERVAL
        if relies_on_stream and not every and not hinted:
            return []
        found = [
            each
            for each in self._runs.all.values()
            if every or each.claim.key[0] in hinted or (isinstance(each, Run) and 0 < each.started < before)
        ]
        known = {each.claim.key[0] for each in found}
        self._hinted = {key: until for key, until in hinted.items() if key not in known and until > now}
        return found

    async def _look_for(self, claimed: Iterable[Held | Run]) -> None:
        claims = [each.claim for each in claimed if _may_be_stopped(each)]
        if claims:
            for key, cancel in await find_cancel_requests(self._context.store.collection, claims):
                self._on_request(key, cancel)

    def _on_request(self, key: Key, cancel: Any) -> None:
        """Follow an operator who has asked for the end of this claim's job by the stored request *cancel*.

        The run keeps it with its claim, also if the handler was told to stop before, for another reason.
        """
        claimed = self._runs.all.get(key)
        if claimed is None:
            return
        claimed.claim = claimed.claim.with_request(cancel)
        if isinstance(claimed, Held):
            self._runs.settle_unstarted(claimed, cancel_run(claimed.claim))
        elif not claimed.claim.ends_after_run:
            self._interrupts.tell(claimed, "requested")


def _may_be_stopped(claimed: Held | Run) -> bool:
    is_over = isinstance(claimed, Run) and not claimed.is_running
    return not is_over and (not claimed.claim.is_cancel_requested or claimed.claim.ends_after_run)


logger = logging.getLogger("monque")

# A handler whose job waits may clean up for longer than others (in seconds): nobody is waiting for its end.
_STUCK_AFTER_WAIT = 300.0

# While a handler is stuck, how often to look whether it has ended, for the gauge.
_STUCK_CHECK = 1.0


class Interrupts:
    """Tells the handlers of one instance to stop, and knows those that do not."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._stuck: list[Run] = []
        self._without_child: set[str] = set()
        """The names whose jobs had a hard limit, and whose handlers run in this process."""
        # A timer must not see the context variables of the job that happened to set it.
        self._variables = without_deadline()

    def tell(self, run: Run, why: Interruption) -> None:
        """Tell the handler to stop, and look later whether it has."""
        if run.interrupt(why):
            run.caller.stop(run, why)
            after = _STUCK_AFTER_WAIT if why == "waiting" else JobStuck._after.total_seconds()
            loop = asyncio.get_running_loop()
            loop.call_later(after, self._check_stuck, run, why, after, context=self._variables)

    def lose(self, run: Run) -> None:
        """Cancel the handler of a job that is not ours any more, as a write has shown."""
        if run.is_running and not run.is_lost:
            self.tell(run, "lost")
            lose(run, "its handler is cancelled", self._context)

    def limit(self, run: Run, timeout: Timeout) -> None:
        """Watch how long the handler of this run takes, from now on."""
        hard = None if run.worker.address is None else timeout.hard
        if hard is not timeout.hard:
            self._say_ignored(run)
        run.limit = Limit(timeout.soft, hard, asyncio.get_running_loop().time())
        self._wait_until(run, run.limit, run.limit.soft_at)

    def _say_ignored(self, run: Run) -> None:
        """Say that the hard limit of a call that did not know the worker means nothing to this handler."""
        if run.worker.name not in self._without_child:
            self._without_child.add(run.worker.name)
            message = (
                'job %s (%s) has a hard time limit, which counts only for workers with mode="process": the '
                "soft one counts; this is said once for each name"
            )
            logger.warning(message, run.job.id, run.worker.name, extra=about(run.job))

    def _wait_until(self, run: Run, limit: Limit, when: float) -> None:
        loop = asyncio.get_running_loop()
        limit.timer = loop.call_at(when, self._on_time, run, limit, context=self._variables)

    def _on_time(self, run: Run, limit: Limit) -> None:
        """Act on a limit that has passed, unless the handler has pushed it since the timer was set."""
        now = asyncio.get_running_loop().time()
        if not run.is_running:
            return
        if now < limit.soft_at and run.why_interrupted is None:
            self._wait_until(run, limit, limit.soft_at)
            return
        self.tell(run, "timeout")
        if limit.hard_at is not None and now < limit.hard_at:
            self._wait_until(run, limit, limit.hard_at)
        elif limit.hard_at is not None:
            run.caller.kill(run)

    def _check_stuck(self, run: Run, why: Interruption, after: float) -> None:
        if not run.is_running or run.why_interrupted != why:
            return  # it has ended, or was told for another reason since, which has a timer of its own
        running_for = timedelta(seconds=time.perf_counter() - run.started)
        since = self._context.store.clock.now() - timedelta(seconds=after)
        run.claim = run.claim.with_stuck(why, since)  # its heartbeats tell others
        message = "job %s (%s) is stuck: it was told to stop (%s) %.0f s ago and still runs"
        fields = about(run.job, running_for)
        logger.warning(message, run.job.id, run.worker.name, why, after, extra=fields)
        event = JobStuck(job=run.job, why=why, running_for=running_for)
        run.variables.run(self._context.bus.emit, event)
        self._stuck.append(run)
        self._report_stuck(run.worker.name)
        if len(self._stuck) == 1:
            self._watch_stuck()

    def _watch_stuck(self) -> None:
        """See to it that the gauge falls again when a stuck handler has ended after all."""
        ended = [run for run in self._stuck if not run.is_running]
        self._stuck = [run for run in self._stuck if run not in ended]
        for name in {run.worker.name for run in ended}:
            self._report_stuck(name)
        if self._stuck:
            loop = asyncio.get_running_loop()
            loop.call_later(_STUCK_CHECK, self._watch_stuck, context=self._variables)

    def _report_stuck(self, name: str) -> None:
        if (audience := self._context.telemetry.audience()) is not None:
            audience.stuck(name, sum(run.worker.name == name for run in self._stuck))
