"""A claimed job on its way through this instance: held until it has a slot, run, settled."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass, field
from datetime import timedelta
from inspect import CORO_CREATED, getcoroutinestate
from typing import Any, NamedTuple, Protocol, TypeAlias

from pymongo.asynchronous.client_session import AsyncClientSession

from monque._engine.decide import Outcome, decide, is_removed, reason_of
from monque._observe.telemetry import Audience
from monque._store.document import ON_FAILURE, Claim, Document, Key, on_failure_of
from monque._store.job import Read, to_job
from monque._store.settle import Lost, Settled
from monque._store.store import Store
from monque._store.transitions.run import remove
from monque._store.transitions.transition import Transition
from monque._time.clock import elapsed
from monque._values.errors import JobTimeoutError, StepError
from monque._values.events import EventBus, JobCancelled, JobFailed, JobSnoozed, JobWaiting
from monque._values.history import remote_trace_of, set_remote_trace
from monque._values.job import Job
from monque._values.state import State
from monque._values.status import Interruption, JobStatus
from monque._workers.results import Kept
from monque._workers.workers import Worker

# The server ends a transaction after so many seconds, and the process does not know. From then on others may
# take the job, so heartbeats are sent again.
LONGEST_TRANSACTION = 60.0

# Two threads may add finishers to one run: a handler, and the plain function of a step.
_adding = threading.Lock()

# Set in the function of a step, and in whatever that calls, in tasks and threads, too.
inside_step: contextvars.ContextVar[bool] = contextvars.ContextVar("monque_inside_step", default=False)


def check_outside_step(method: str, job_id: Any) -> None:
    """Refuse a method of a job that is called inside of the function of a step."""
    if inside_step.get():
        raise StepError(
            f"{method} was called inside of a step; call it in the handler itself (job {job_id})",
            job_id=job_id,
        )


Call: TypeAlias = tuple[str, object, Coroutine[Any, Any, Any]]
"""A call of `Job.step` or of those behind it: the names of the method and of the step."""


def forgotten(calls: list[Call]) -> str | None:
    """The problem of calls that nobody has awaited; None if all were. Those of tasks have begun by now."""
    left = [each for each in calls if getcoroutinestate(each[2]) == CORO_CREATED]
    for _, _, call in left:
        call.close()  # else Python warns of it, too
    return f"{left[0][0]} {left[0][1]!r} was never awaited, so it has done nothing" if left else None


@dataclass(slots=True, eq=False)
class Held:
    """A claimed job that waits for a slot."""

    claim: Claim
    worker: Worker[Any]
    last_write: float
    """The time at which the last successful write of this claim was sent (`elapsed`)."""
    since: float
    """The time at which the job began to wait (`time.perf_counter`)."""
    audience: Audience | None
    """The observers and tracers at the time of the claim; None if there are none."""
    earlier: Key | None
    """The attempt before this one, if it was still being settled here when this one was claimed."""
    by_age: bool = False
    """It was claimed for its age, whatever its priority is."""


@dataclass(slots=True, eq=False)
class Limit:
    """The time that a handler may take, as it has pushed it, and the one timer that watches it."""

    soft: timedelta
    hard: timedelta | None
    began: float
    """The time of the call, by the clock of the event loop."""
    timer: asyncio.TimerHandle | None = None

    @property
    def soft_at(self) -> float:
        """The time when the handler is told to stop, by the clock of the event loop."""
        return self.began + self.soft.total_seconds()

    @property
    def hard_at(self) -> float | None:
        """The time when the child process is killed, by the clock of the event loop."""
        return None if self.hard is None else self.began + self.hard.total_seconds()

    def extend(self, by: timedelta) -> None:
        """Push both limits. The timer finds out when it fires: this may be called in any thread."""
        self.soft += by
        if self.hard is not None:
            self.hard += by

    def end(self) -> None:
        """The handler has ended."""
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None

    def passed(self, job_id: Any, cause: BaseException | None = None) -> JobTimeoutError:
        """The error of a run that took longer, and that ended with *cause* when it was told to stop."""
        late = JobTimeoutError(job_id=job_id, limit=self.soft)
        if cause is not None:
            late.__cause__, late.__traceback__ = cause, cause.__traceback__
            if (trace := remote_trace_of(cause)) is not None:
                set_remote_trace(late, trace)
        return late


@dataclass(slots=True, eq=False)
class Completion:
    """The transaction of a handler that completes the job, if it commits."""

    transition: Transition
    session: AsyncClientSession
    kept: Kept | None = None
    """The result that the transaction stores."""
    is_done: bool = False
    """The transaction is known to have committed."""
    began: float = field(default_factory=elapsed)

    @property
    def is_open(self) -> bool:
        """Return whether the transaction holds the document, as far as the process can know."""
        return self.session.in_transaction and elapsed() - self.began < LONGEST_TRANSACTION


class Durable(Protocol):
    """The durable steps of a run; see `_engine/steps.py`."""

    def call(self, method: str, *args: Any) -> Coroutine[Any, Any, Any]:
        """Call the method of this name, see `Job.step` and those behind it."""

    async def landed(self) -> None:
        """Wait until none of them is in flight: the handler has ended."""


class JobServices(NamedTuple):
    """Functions and values that a handler uses through its job; one for all runs of an instance."""

    read: Read
    state: State
    complete_in: Callable[[Run, object, object], Any]
    add_progress: Callable[[Run, object, object, object], None]
    add_line: Callable[[Run, object, object], None]
    forget: Callable[[Run], None]
    """Drops what a run has reported: it is over."""
    durable: Callable[[Run, str], Durable]
    """Makes the durable steps of a run, for its first call of this method; see `_engine/steps.py`."""


class Caller(Protocol):
    """Calls handlers in one kind of place, see `_engine/callers.py`."""

    def call(self, run: Run) -> Awaitable[Outcome]:
        """Call the handler of a run, unless there is a reason not to."""

    def stop(self, run: Run, why: Interruption) -> None:
        """Tell the handler to stop."""

    def kill(self, run: Run) -> None:
        """End the handler at once, where that can be done."""


@dataclass(slots=True, eq=False)
class Run:
    """A job whose handler runs, or has ended and is being settled."""

    claim: Claim
    worker: Worker[Any]
    last_write: float
    """The time at which the last successful write of this claim was sent (`elapsed`)."""
    audience: Audience | None
    variables: contextvars.Context
    """The context variables of the handler; listeners that hear of this run see them too."""
    services: JobServices
    caller: Caller
    task: asyncio.Task[None] | None = None
    """The task of the handler, and later the one that settles, if settling needs one."""
    started: float = 0.0
    """The time at which the handler was called (`time.perf_counter`); 0 before that."""
    why_interrupted: Interruption | None = None
    """The first reason to tell the handler to stop, see `Job.interruption`; only `waiting` gives way."""
    is_lost: bool = False
    """The claim is known not to hold any more, whatever the first reason was: nothing is settled."""
    limit: Limit | None = None
    """The time limit of the handler; None if it has none."""
    completion: Completion | None = None
    """The handler asked to complete the job in a transaction of its own."""
    outcome: Outcome | None = None
    """The result of the call; None while the handler runs."""
    finishers: tuple[Finisher, ...] = ()
    """Work before the settlement, in this order; see `finish_with`. A list for each run would be one object
    more for the garbage collector to follow: about 0.5 µs of CPU a job."""
    over: asyncio.Future[None] | None = None
    """Resolved when nothing is left to do for this run, if somebody waits for that."""
    flow: Durable | None = None
    """The durable steps of the run, since its handler has asked for one."""
    in_transaction: int = 0
    """Transactions of durable steps that hold the document: heartbeats and reports would wait for them."""
    held_since: float = 0.0
    """The time at which the last attempt of such a transaction began (`elapsed`)."""
    _job: Job[Any] | None = None

    @property
    def job(self) -> Job[Any]:
        """The job as claimed; with the decoded payload once the handler gets it."""
        if self._job is None:
            self._job = to_job(self.claim.document, self.services.read)
        return self._job

    def decode(self) -> Job[Any]:
        """Give the job its payload in the type that the handler expects."""
        data = self.worker.codec.decode(self.claim.document.get("data"), job_name=self.worker.name)
        self._job = job = to_job(self.claim.document, self.services.read, data=data)
        return job

    def complete_in(self, session: object, result: object) -> Any:
        """Complete the job inside its handler's own transaction, see `Job.complete_in`."""
        return self.services.complete_in(self, session, result)

    def durable(self, method: str, *args: Any) -> Coroutine[Any, Any, Any]:
        """Call a method of the run's durable steps, see `Job.step`."""
        return (self.flow or self.services.durable(self, method)).call(method, *args)

    def finish_with(self, finisher: Finisher, *, first: bool = False) -> None:
        """Have something done before the settlement, after or before what is there; called in any thread."""
        with _adding:
            self.finishers = (finisher, *self.finishers) if first else (*self.finishers, finisher)

    @property
    def state(self) -> State:
        """The namespace that hooks have filled, see `Job.state`."""
        return self.services.state

    @property
    def title(self) -> str:
        """The job in a log line."""
        return f"{self.worker.name} {self.claim.id}"

    @property
    def is_running(self) -> bool:
        """Return whether the handler has not ended."""
        return self.outcome is None

    @property
    def needs_heartbeat(self) -> bool:
        """Return whether heartbeats cover this run: not while it is settled or a transaction completes it."""
        return self.outcome is None and self.completion is None and not self.in_transaction

    @property
    def is_overdue(self) -> bool:
        """Return whether the server may have ended the transaction of a durable step that goes on here."""
        return self.in_transaction > 0 and elapsed() - self.held_since >= LONGEST_TRANSACTION

    @property
    def was_released(self) -> bool:
        """Return whether the handler was stopped and the job put back."""
        return self.outcome is not None and self.outcome.is_released(self.claim)

    def extend(self, by: timedelta) -> None:
        """See `Job.extend_timeout`."""
        if self.limit is not None:
            self.limit.extend(by)

    def report_progress(self, done: object, total: object, message: object) -> None:
        """See `Job.report_progress`."""
        self.services.add_progress(self, done, total, message)

    def add_log(self, text: object, level: object) -> None:
        """See `Job.add_log`."""
        self.services.add_line(self, text, level)

    @property
    def is_cancel_requested(self) -> bool:
        """See `Job.cancel_requested`."""
        return self.claim.is_cancel_requested

    def interrupt(self, why: Interruption) -> bool:
        """Tell the handler to stop, if it still runs; whether it has to be told for this reason.

        A thread sees this flag: nothing is thrown into it from outside, because that can break whatever it is
        in the middle of. Its result counts, unless the claim is lost. The others are told by their callers.
        """
        if not self.is_running:
            return False
        self.is_lost |= why == "lost"
        gives_way = self.why_interrupted == "waiting" and why in _STRONGER
        if self.why_interrupted is not None and not gives_way:
            return False
        self.why_interrupted = why
        return True


# A handler that unwinds because its job waits may hear of these: then the job does not wait, but is
# cancelled, released or left alone. A time limit that passes meanwhile changes nothing.
_STRONGER: tuple[Interruption, ...] = ("requested", "shutdown", "lost")

# The events about a run after which its job waits again; that of a schedule may be cancelled alone.
_OF_PENDING = (JobFailed, JobSnoozed, JobCancelled, JobWaiting)


@dataclass(slots=True, eq=False)
class Settlement:
    """The end of a run, on its way to the database."""

    claim: Claim
    transition: Transition
    run: Run
    outcome: Outcome
    bus: EventBus | None = None
    """The events of the instance, if nobody but a listener may want to see the job afterwards."""
    follow_up: str | None = None
    """The name of the job that is to be stored after it, because this one has failed for good."""

    @classmethod
    def decided(
        cls, run: Run, outcome: Outcome, store: Store, bus: EventBus, *, may_remove: bool = True
    ) -> Settlement:
        """Decide how the run is recorded. A transaction *may_remove* nothing: nobody could tell if it did."""
        options, now, settings = store.options, store.clock.now, run.worker.settings
        job = None if outcome.error is None else run.job  # only a failure asks for it
        transition = decide(run.claim, outcome, options, now, settings=settings, job=job)
        if run.claim.attempt > 1 or run.flow is not None or "limit" in settings:  # it may have waited
            keeps_turn = "turn" in run.claim.document and _keeps_turn(run, outcome, transition)
            transition = transition.without_wait(run.claim, keeps_turn=keeps_turn)
        if "keep" in settings and may_remove and is_removed(run.claim, outcome, transition, settings):
            transition = remove(run.claim)
        if ON_FAILURE not in run.claim.document or not transition.fails:
            return cls(run.claim, transition, run, outcome, bus)
        if (name := on_failure_of(run.claim.document)) is not None:
            error = outcome.error
            reason = "its schedule cannot be continued" if error is None else reason_of(error)
            transition = transition.followed_by(name, run.claim.attempt, reason, now())
        return cls(run.claim, transition, run, outcome, bus, name)

    @property
    def last_write(self) -> float:
        """The time at which the last successful write of the claim was sent (`elapsed`)."""
        return self.run.last_write

    @property
    def needs_document(self) -> bool:
        """Return whether somebody wants to see the job as it is afterwards.

        Nobody does if it failed, waits for its retry, and there are no listeners.
        """
        bus, transition = self.bus, self.transition
        if bus is None or self.outcome.error is None or transition.step is not None:
            return True
        return transition.to is not JobStatus.PENDING or any(map(bus.has_listeners, _OF_PENDING))

    @property
    def is_run(self) -> bool:
        """Return whether a run has ended; a schedule may also take a step without one."""
        return not self.outcome.was_gated or self.transition.to is JobStatus.CANCELLED


def _keeps_turn(run: Run, outcome: Outcome, transition: Transition) -> bool:
    """Return whether a run that ends keeps its turn in a line: it is put back, or the line is in order.

    In an ordered line a job that is tried again, or waits, goes on before those behind it.
    """
    limit = run.worker.limit
    is_ordered = limit is not None and limit.ordered and not run.claim.is_recurring
    goes_on = outcome.error is not None and transition.to is JobStatus.PENDING
    return outcome.is_released(run.claim) or (is_ordered and goes_on)


Finisher: TypeAlias = Callable[[Outcome], Awaitable[Outcome | tuple[Settlement, Settled | Lost]]]
"""Returns the outcome that is left to settle, or the settlement that it has found to be made."""

Gate: TypeAlias = Callable[[list[Claim]], Awaitable[list[Claim]]]
"""Gets what was claimed and returns what may start; it sees to the others itself."""

Listener: TypeAlias = Callable[[Settlement, Document | None], None]
"""Hears of a settlement that is stored. There is no document if a batch of completions was not read back."""
