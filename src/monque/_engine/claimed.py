"""A claimed job on its way through this instance: held until it has a slot, run, settled."""

from __future__ import annotations

import asyncio
import contextvars
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, NamedTuple, Protocol, TypeAlias

from bson import ObjectId
from pymongo.asynchronous.client_session import AsyncClientSession

from monque._engine.decide import Outcome, decide
from monque._observe.telemetry import Audience
from monque._store.document import Claim, attempt_of, is_cancel_requested, key_of
from monque._store.job import Read, to_job
from monque._store.store import Store
from monque._store.transitions.transition import Transition
from monque._values.errors import JobTimeoutError
from monque._values.history import Report
from monque._values.job import Job
from monque._values.settings import Timeout
from monque._values.state import State
from monque._values.status import Interruption
from monque._workers.results import Kept
from monque._workers.workers import Worker

Key: TypeAlias = tuple[bytes, int]
"""The key of a job's id, and the attempt: no two claims have the same."""


def key_of_claim(claim: Claim) -> Key:
    """The key of a claim. The bytes of an id stand for it: they are hashed without a Python call."""
    job_id = claim["_id"]
    return job_id.binary if type(job_id) is ObjectId else key_of(job_id), attempt_of(claim)


@dataclass(slots=True, eq=False)
class Held:
    """A claimed job that waits for a slot."""

    key: Key
    claim: Claim
    worker: Worker[Any]
    last_write: float
    """When the last successful write of this claim was sent (`elapsed`)."""
    since: float
    """When the job began to wait (`time.monotonic`)."""
    audience: Audience | None
    """The observers and tracers at the time of the claim; None if there are none."""
    earlier: Key | None
    """The attempt before this one, if it was still being settled here when this one was claimed."""
    priority: int = 0
    is_aged: bool = False
    """It was claimed for its age, whatever its priority is."""


@dataclass(slots=True, eq=False)
class Stop:
    """The handler was told to stop."""

    why: Interruption
    """The first reason; later ones do not change it."""
    since: float
    """When it was told so (`time.perf_counter`)."""
    is_lost: bool
    """The claim does not hold any more, whatever the first reason was: nothing is settled."""


@dataclass(slots=True, eq=False)
class Limit:
    """How long a handler may run, and the one timer that watches it."""

    timeout: Timeout
    soft_at: float
    """When the handler is told to stop, by the clock of the event loop."""
    extended: float = 0.0
    """By how many seconds the handler has pushed its limits."""
    timer: asyncio.TimerHandle | None = None
    is_abandoned: bool = False
    """The run was settled though its handler still runs."""

    @property
    def hard_at(self) -> float | None:
        """When the run is given up, by the clock of the event loop."""
        if self.timeout.hard is None:
            return None
        return self.soft_at + (self.timeout.hard - self.timeout.soft).total_seconds()

    def extend(self, by: timedelta) -> None:
        """Push both limits. The timer finds out when it fires: this may be called in any thread."""
        self.extended += by.total_seconds()
        self.soft_at += by.total_seconds()

    def end(self) -> None:
        """The handler has ended."""
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None

    def passed(self, job_id: Any) -> JobTimeoutError:
        """The error of a run that took longer."""
        allowed = self.timeout.hard if self.is_abandoned and self.timeout.hard else self.timeout.soft
        limit = allowed + timedelta(seconds=self.extended)
        return JobTimeoutError(job_id=job_id, limit=limit, abandoned=self.is_abandoned)


@dataclass(slots=True, eq=False)
class Completion:
    """How a handler's own transaction completes the job, if it commits."""

    transition: Transition
    session: AsyncClientSession
    kept: Kept | None = None
    """The result that the transaction stores."""
    is_done: bool = False
    """The transaction is known to have committed."""


class Reports(Protocol):
    """Where handlers report, see `_engine/progress.py`."""

    def add_progress(self, run: Run, done: object, total: object, message: object) -> None:
        """Remember how far a run is."""

    def add_line(self, run: Run, text: object, level: object) -> None:
        """Remember a line for the job's log."""

    def unwritten(self, run: Run) -> Report | None:
        """What a run has reported and is not written yet; None if there is nothing."""


class Lent(NamedTuple):
    """What handlers reach through their jobs; one for all runs of an instance."""

    complete_in: Callable[[object, object, Run], Any]
    state: State
    reporting: Reports
    read: Read


@dataclass(slots=True, eq=False)
class Run:
    """A job whose handler runs, or has ended and is being settled."""

    key: Key
    claim: Claim
    worker: Worker[Any]
    last_write: float
    """When the last successful write of this claim was sent (`elapsed`)."""
    audience: Audience | None
    variables: contextvars.Context
    """The context variables of the handler; listeners that hear of this run see them too."""
    lent: Lent
    task: asyncio.Task[None] | None = None
    """The task of the handler, and later the one that settles, if settling needs one."""
    started: float = 0.0
    """When the handler was called (`time.perf_counter`); 0 before that."""
    stop: Stop | None = None
    """Set once the handler was told to stop."""
    limit: Limit | None = None
    """How long the handler may run; None for any time."""
    completion: Completion | None = None
    """The handler asked to complete the job in a transaction of its own."""
    outcome: Outcome | None = None
    """What the handler did; None while it runs."""
    over: asyncio.Future[None] | None = None
    """Resolved when nothing is left to do for this run, if somebody waits for that."""
    _job: Job[Any] | None = None

    @property
    def job(self) -> Job[Any]:
        """The job as claimed; with the decoded payload once the handler gets it."""
        if self._job is None:
            self._job = to_job(self.claim, self.lent.read)
        return self._job

    def decode(self) -> Job[Any]:
        """Give the job its payload in the type that the handler expects."""
        data = self.worker.codec.decode(self.claim.get("data"), job_name=self.worker.name)
        self._job = job = to_job(self.claim, self.lent.read, data=data)
        return job

    def complete_in(self, session: object, result: object) -> Any:
        """Complete the job inside its handler's own transaction, see `Job.complete_in`."""
        return self.lent.complete_in(session, result, self)

    @property
    def state(self) -> State:
        """What hooks have made, see `Job.state`."""
        return self.lent.state

    @property
    def title(self) -> str:
        """The job in a log line."""
        return f"{self.worker.name} {self.claim['_id']}"

    @property
    def is_running(self) -> bool:
        """Whether the handler has not ended."""
        return self.outcome is None

    @property
    def needs_heartbeat(self) -> bool:
        """Whether heartbeats cover this run: not while it is settled, nor if a transaction completes it."""
        return self.outcome is None and self.completion is None

    @property
    def was_released(self) -> bool:
        """Whether the handler was stopped and the job put back."""
        return self.outcome is not None and self.outcome.is_released(self.claim)

    @property
    def is_abandoned(self) -> bool:
        """Whether the run was given up though its handler still runs."""
        return self.limit is not None and self.limit.is_abandoned

    def extend(self, by: timedelta) -> None:
        """See `Job.extend_timeout`."""
        if self.limit is not None:
            self.limit.extend(by)

    def report_progress(self, done: object, total: object, message: object) -> None:
        """See `Job.report_progress`."""
        self.lent.reporting.add_progress(self, done, total, message)

    def add_log(self, text: object, level: object) -> None:
        """See `Job.add_log`."""
        self.lent.reporting.add_line(self, text, level)

    @property
    def is_lost(self) -> bool:
        """Whether the claim is known not to hold any more."""
        return self.stop is not None and self.stop.is_lost

    @property
    def why_interrupted(self) -> Interruption | None:
        """See `Job.interruption`."""
        return None if self.stop is None else self.stop.why

    @property
    def is_cancel_requested(self) -> bool:
        """See `Job.cancel_requested`."""
        return is_cancel_requested(self.claim)

    def interrupt(self, why: Interruption) -> bool:
        """Tell the handler to stop, if it still runs; whether this is the first time.

        A coroutine is cancelled, once. A thread sees a flag: nothing is thrown into it from outside, because
        that can break whatever it is in the middle of. Its result counts, unless the claim is lost. A child
        process has to be told, too (`Children.stop`).
        """
        if not self.is_running:
            return False
        if self.stop is not None:
            self.stop.is_lost |= why == "lost"
            return False
        self.stop = Stop(why, time.perf_counter(), is_lost=why == "lost")
        # Before the handler is called, a cancelled task would end without settling anything.
        if self.task is not None and self.started and self.worker.is_async:
            self.task.cancel()
        return True


@dataclass(slots=True, eq=False)
class Settlement:
    """How a run ended, on its way to the database."""

    claim: Claim
    transition: Transition
    run: Run
    outcome: Outcome

    @classmethod
    def of(cls, run: Run, outcome: Outcome, store: Store) -> Settlement:
        """Decide how the run is recorded."""
        options, now, settings = store.options, store.clock.now, run.worker.settings
        job = None if outcome.error is None else run.job  # only a failure asks for it
        transition = decide(run.claim, outcome, options, now, settings=settings, job=job)
        return cls(run.claim, transition, run, outcome)
