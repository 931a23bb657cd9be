"""One job, from its claim to its end: run, decide, settle, tell."""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import logging
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import Enum, auto
from typing import Any, TypeAlias, cast

from pymongo.errors import InvalidOperation, PyMongoError

from monque._backoff import backoff
from monque._clock import Clock, elapsed
from monque._completing import Completion, committed, complete_in
from monque._connect import Connection
from monque._cron import Cron
from monque._errors import ConfigurationError, NotCommittedError
from monque._events import ClaimLost, Event, EventBus, JobCompleted, JobError, JobFailed, JobStarted
from monque._explain import explain
from monque._handlers import refuse_generator
from monque._job import Job, JobStatus, completed, hand, take_back
from monque._logs import about, log_failure, log_success, running
from monque._options import Options
from monque._raised import bounded, describe, is_closing, is_ctrl_c
from monque._store import transitions
from monque._store.document import (
    Document,
    as_settled,
    attempt_of,
    failed_occurrence,
    failures_with,
    to_job,
)
from monque._store.owners import allowed_silence
from monque._store.settler import Settler
from monque._store.store import OPERATION_TIMEOUT, Store
from monque._store.transitions import Transition
from monque._telemetry import Audience, Ending, Telemetry
from monque._threads import ThreadPool
from monque._workers import Worker

logger = logging.getLogger("monque")

# The key of a job's id, and the attempt.
Key: TypeAlias = tuple[bytes, int]

_NO_ANSWER = object()


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """What every run and every loop of an open instance shares."""

    store: Store
    settler: Settler
    connection: Connection
    bus: EventBus
    options: Options
    clock: Clock
    threads: ThreadPool
    telemetry: Telemetry
    silence: float = field(init=False)
    """Seconds without a sign of life after which others take a job."""

    def __post_init__(self) -> None:
        options = self.options
        silence = allowed_silence(tolerance=options.heartbeat_tolerance, interval=options.heartbeat_interval)
        object.__setattr__(self, "silence", silence.total_seconds())


class Interruption(Enum):
    """Why we stopped a handler that was still running."""

    LOST = auto()
    SHUTDOWN = auto()


@dataclass(slots=True, eq=False, repr=False)  # not all of its fields have a value from the beginning
class Run:
    """One claimed job on its way through this instance."""

    claim: Document
    worker: Worker[Any]
    context: Context
    last_write: float
    """When the last write of this claim that succeeded was sent (`elapsed`)."""
    held_since: float = 0.0
    """When it began to wait for a slot (`time.monotonic`)."""
    key: Key | None = None
    """The job and its attempt: no two runs have the same."""
    audience: Audience | None = None
    """Whoever looks on."""
    earlier: Run | None = None
    """The attempt before this one, if that was still being settled here when this one was claimed."""
    _job: Job[Any] | None = field(default=None, init=False)
    task: asyncio.Task[Any] | None = None
    settling: bool = False
    is_followed: bool = False
    """The job was claimed here again before the answer to its settlement was heard: that run waits for it."""
    interruption: Interruption | None = None
    variables: contextvars.Context = field(init=False)
    """The context variables of its handler; listeners that hear of it see them too."""
    completion: Completion | None = None
    """The handler asked to complete the job in a transaction of its own."""
    begun: bool = False
    """Its task has begun; before that, a cancelled task would end without a word."""
    started: float = 0.0
    """When its handler was called (`time.perf_counter`)."""
    ended: datetime | None = None
    """When its handler returned, by the server's clock; only if somebody looks on."""
    outcome: Outcome = field(init=False)
    """What the handler did, once it has ended."""
    transition: Transition = field(init=False)
    """What follows from it."""

    @property
    def job(self) -> Job[Any]:
        """The job as claimed; its payload is decoded once the handler is about to get it."""
        if self._job is None:
            self._job = to_job(self.claim)
        return self._job

    @property
    def title(self) -> str:
        """The job in a log line."""
        return f"{self.worker.name} {self.claim['_id']}"

    @property
    def has_started(self) -> bool:
        """Whether its handler was called; else it waits for a slot."""
        return self.task is not None or self.settling

    @property
    def was_released(self) -> bool:
        """Whether its handler was cancelled and the job put back."""
        outcome: Outcome | None = getattr(self, "outcome", None)  # it has none before its handler has ended
        return outcome is not None and outcome.interrupted

    def is_of(self, job: Job[Any] | None) -> bool:
        """Whether this is the run whose handler has *job*, and that handler has not ended."""
        return self._job is job and not self.settling

    def complete_in(self, session: object) -> Any:
        """Complete the job inside its handler's own transaction."""

        def decided() -> Transition:
            outcome = Outcome(time.perf_counter() - self.started)
            return decide(self.claim, outcome, self.context)

        return complete_in(session, self, self.context, decided)

    def interrupt(self, why: Interruption) -> None:
        """Stop the handler, if it still runs and can be stopped; cancel it once, whatever comes later.

        A thread cannot: at shutdown it keeps its claim and its result still counts; a lost claim's
        result does not. A claim that is lost stays lost: a shutdown has nothing to release any more.
        """
        if self.settling or self.interruption is Interruption.LOST:
            return
        if why is Interruption.SHUTDOWN and not self.worker.is_async:
            return
        is_first, self.interruption = self.interruption is None, why
        if is_first and self.task is not None and self.begun and self.worker.is_async:
            self.task.cancel()


@dataclass(slots=True, eq=False)
class Outcome:
    """What the handler did."""

    seconds: float
    error: BaseException | None = None
    interrupted: bool = False

    @property
    def duration(self) -> timedelta:
        """How long it took."""
        return timedelta(seconds=self.seconds)


def attend(run: Run, is_loop_ending: Callable[[], bool]) -> Awaitable[Outcome]:
    """Call the handler of a claimed job, unless it is somebody else's by now."""
    if run.interruption is not None:
        return _leave_alone()
    if elapsed() - run.last_write > run.context.silence:
        return _attend_late(run, is_loop_ending)
    run.begun = True
    calling = call(run, is_loop_ending)
    return calling if run.audience is None else run.audience.attend(run, calling)


async def _leave_alone() -> Outcome:
    return Outcome(0.0, asyncio.CancelledError(), interrupted=True)


async def _attend_late(run: Run, is_loop_ending: Callable[[], bool]) -> Outcome:
    """Call the handler if a heartbeat shows that the claim still holds.

    The process stood still since the claim, for so long that another owner may have run the job by now.
    """
    sent = elapsed()
    try:
        is_lost = bool(await run.context.store.heartbeat([run.claim]))
    except PyMongoError:
        is_lost = True  # perhaps: it is released, and whoever claims it next runs it
    if is_lost:
        return await _leave_alone()
    run.last_write = sent
    return await attend(run, is_loop_ending)


async def call(run: Run, is_loop_ending: Callable[[], bool]) -> Outcome:
    """Call the handler with the decoded job and catch whatever comes of it."""
    run.started = time.perf_counter()
    error: BaseException | None = None
    worker, task = run.worker, run.task
    try:
        job = _decoded(run)
        if worker.is_async:
            result = await worker.handler(job)
        else:
            result = await run.context.threads.run(worker.handler, job)
            if result is not None and inspect.isawaitable(result):
                result = await result
        if result is not None:
            refuse_generator(result)
    except asyncio.CancelledError as cancelled:
        if run.interruption is not None or task is None or not task.cancelling():
            error = cancelled
        elif is_loop_ending():
            raise  # nothing can be settled any more: recovery puts the job back
        else:
            error = _cancelled_from_inside(cancelled)
        while task is not None and task.uncancel():
            pass
    except BaseException as failure:  # a handler may raise anything, also SystemExit
        if is_closing(failure, task) or (worker.is_async and is_ctrl_c(failure)):
            raise
        error = failure
    take_back(run.job)
    seconds = time.perf_counter() - run.started
    return Outcome(seconds, error, interrupted=error is not None and run.interruption is not None)


def _cancelled_from_inside(cancelled: asyncio.CancelledError) -> asyncio.CancelledError:
    """The same error with a text that says what happened: most cancellations have none."""
    message = "the handler's task was cancelled, not by Monque but by its own code or a library that it uses"
    if cancelled.args:
        message += f": {cancelled}"
    return asyncio.CancelledError(message).with_traceback(cancelled.__traceback__)


def _decoded(run: Run) -> Job[Any]:
    """The job for its handler; told to have started, also if its payload turns out not to fit."""
    try:
        data = run.worker.codec.decode(run.claim.get("data"), job_name=run.worker.name)
        run._job = job = to_job(run.claim, data=data)
        hand(job, run)
    finally:
        running.set(run.job)
        bus = run.context.bus
        if bus.hears(JobStarted):
            bus.tell(JobStarted(job=run.job))
    return job


async def conclude(run: Run, completion: Completion) -> Outcome | None:
    """See what became of the transaction that was to complete the job; what is left to settle, if any."""
    outcome, tries = run.outcome, Tries(run.context.silence)
    while True:
        try:
            tries.begin()
            document = await committed(completion, run, run.context)
            break
        except PyMongoError as error:
            if _gives_up(run, error, tries):
                return None
            await tries.rest()
    if document is not None:
        _tell_completed(run, completion, document)
        return None
    if outcome.error is not None:
        return outcome
    return Outcome(
        outcome.seconds,
        NotCommittedError(
            "the handler called complete_in and returned, but the transaction was not committed, so nothing "
            "that it wrote is stored; commit it, or let the error that ended it leave the handler",
            job_id=run.job.id,
        ),
    )


def _tell_completed(run: Run, completion: Completion, document: Document) -> None:
    outcome, bus = run.outcome, run.context.bus
    if outcome.error is not None and not outcome.interrupted:
        logger.error(
            "the handler of job %s (%s) failed after its transaction had completed the job",
            run.job.id,
            run.job.name,
            exc_info=bounded(outcome.error),
            extra=about(run.job, outcome.duration),
        )
        bus.tell(JobError(error=outcome.error, job=run.job))
    run.outcome, run.transition = Outcome(outcome.seconds), completion.transition
    if run.audience is not None:
        record(run)
    bus.tell(report(run, document))


def decide(claim: Document, outcome: Outcome, context: Context) -> Transition:
    """Turn what the handler did into the one transition that records it."""
    if outcome.interrupted:
        return transitions.release(claim)
    recurring = claim.get("repeatInterval") is not None
    if outcome.error is None:
        if recurring:
            return _repeat(claim, context.clock.now())
        return transitions.complete(claim, ran=outcome.seconds)

    reason = describe(outcome.error)
    fail_count = failures_with(claim)
    options = context.options
    if fail_count < options.max_retries:
        delay = backoff(
            fail_count,
            base=options.base_retry_interval,
            limit=options.max_backoff_delay,
            jitter=options.retry_jitter,
        )
        return transitions.retry(claim, delay=delay, reason=reason)
    if recurring:
        return give_up(claim, reason, fail_count=fail_count, now=context.clock.now())
    return transitions.fail(claim, reason=reason)


def _repeat(claim: Document, now: datetime) -> Transition:
    try:
        return transitions.repeat(claim, run_at=next_time(claim, now))
    except ConfigurationError as unreadable:
        return transitions.fail(claim, reason=f"its schedule cannot be continued: {unreadable}")


def give_up(claim: Document, reason: str, *, fail_count: int, now: datetime) -> Transition:
    """Keep the failed run of a schedule as a job of its own, and let the schedule go on."""
    try:
        run_at = next_time(claim, now)
    except ConfigurationError:
        return transitions.fail(claim, reason=reason)
    leaves = failed_occurrence(claim, reason=reason, fail_count=fail_count, now=now)
    return transitions.give_up_occurrence(claim, run_at=run_at, leaves=leaves)


def next_time(schedule: Document, now: datetime) -> datetime:
    """The next time of a stored schedule; other implementations store no zone and mean their own."""
    return Cron.parse(schedule["repeatInterval"], schedule.get("timezone") or "UTC").next_after(now)


async def insist(run: Run, answer: Any) -> Document | None:
    """Go on settling a run after a first *answer* that is no success.

    Gives the document as it is in the end, or None if the claim was lost.

    A write that fails is not a job that failed: the outcome is kept and written again for as long as an
    owner may be silent. Whether the claim is lost is for the database to say, also if the process stood
    still in between: the write only applies to a claim that still holds. The run is not covered by
    heartbeats any more, so its claim cannot look alive for ever.
    """
    tries = Tries(run.context.silence)
    while True:
        try:
            tries.begin()
            if answer is _NO_ANSWER:
                answer = await run.context.settler.settle(run.claim, run.transition)
            if isinstance(answer, BaseException):
                raise answer
            if answer is None and await _schedule_changed(run):
                run.transition = decide(run.claim, run.outcome, run.context)
                answer = _NO_ANSWER
                continue
            if answer is None:
                _lose(run)
            return cast("Document | None", answer)
        except PyMongoError as error:
            if _gives_up(run, error, tries):
                return None
            await tries.rest()
            answer = _NO_ANSWER


class Tries:
    """Writes of one result that failed: how long to go on.

    Counts the time spent on trying, at most so much for each try as it is allowed to take. Time in which the
    process stood still proves nothing: nobody asked the database.
    """

    def __init__(self, limit: float) -> None:
        self._left = limit
        self._pause = 0.05
        self._began = 0.0

    def begin(self) -> None:
        """A try begins."""
        self._began = elapsed()

    def is_last(self) -> bool:
        """Whether no time is left, now that this try has failed."""
        self._left -= min(elapsed() - self._began, OPERATION_TIMEOUT)
        return self._left <= 0

    async def rest(self) -> None:
        """Wait before the next try, each time longer."""
        await asyncio.sleep(self._pause)
        self._left -= self._pause
        self._pause = min(self._pause * 2, 2.0)


def _gives_up(run: Run, error: PyMongoError, tries: Tries) -> bool:
    """Whether it is too late to try again."""
    # InvalidOperation: the client was closed, no later try can succeed.
    if tries.is_last() or isinstance(error, InvalidOperation):
        message = "gave up settling job %s (%s): %s"
        logger.error(message, run.job.id, run.job.name, explain(error), extra=about(run.job))
        run.context.bus.tell(JobError(error=error, job=run.job))
        _lose(run)
        return True
    message = "settling job %s (%s) failed, trying again: %s"
    logger.warning(message, run.job.id, run.job.name, explain(error), extra=about(run.job))
    return False


async def _schedule_changed(run: Run) -> bool:
    """Whether the claim still holds and only the schedule is another one; then take it over."""
    if "repeatInterval" not in run.claim:
        return False
    document = await run.context.store.get(run.claim["_id"])
    if document is None or not transitions.is_owned(run.claim, document):
        return False
    # A failed occurrence is kept with the payload that it ran with.
    run.claim = {**document, "data": run.claim.get("data")}
    return True


def _lose(run: Run) -> None:
    message = "lost the claim on job %s (%s): its result was not stored"
    logger.warning(message, run.job.id, run.job.name, extra=about(run.job))
    run.context.bus.tell(ClaimLost(job=run.job))


def record(run: Run) -> None:
    """Log how a run ended, and tell whoever looks on."""
    outcome, transition = run.outcome, run.transition
    ending: Ending = "completed"
    if transition.to is JobStatus.FAILED or transition.leaves is not None:
        ending = "failed"
    elif outcome.error is not None:
        ending = "retried"
    if ending == "completed":
        log_success(run.job, outcome.duration)
    else:
        reason = describe(outcome.error) if outcome.error else "its schedule cannot be continued"
        log_failure(run.job, outcome.duration, reason, outcome.error, will_retry=ending == "retried")
    if run.audience is not None and run.ended is not None:
        run.audience.ended(run.job, ending, outcome, at=run.ended)


def report(run: Run, document: Document) -> Event:
    """The event that tells a settlement, with the job as it is after it."""
    outcome = run.outcome
    if document is run.claim:  # completed in a batch and not read back
        return JobCompleted(job=completed(run.job, run.context.clock.now()), duration=outcome.duration)
    to = run.transition.to
    if attempt_of(document) > attempt_of(run.claim) or document["status"] != to.value:
        # Others changed it before we read it back: tell how this run left it.
        reason = None if outcome.error is None else describe(outcome.error)
        document = as_settled(run.claim, to, reason, document)
    job = to_job(run.transition.leaves or document, data=run.job.data)
    if outcome.error is not None:
        return JobFailed(job=job, error=outcome.error, will_retry=job.status is JobStatus.PENDING)
    if job.status is JobStatus.FAILED:  # it went well, but its schedule cannot be continued
        return JobFailed(job=job, error=ConfigurationError(job.fail_reason), will_retry=False)
    return JobCompleted(job=job, duration=outcome.duration)
