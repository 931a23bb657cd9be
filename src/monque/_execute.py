"""One job, from its claim to its end: run, decide, settle, tell."""

from __future__ import annotations

import asyncio
import inspect
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import Enum, auto
from typing import Any

from pymongo.errors import InvalidOperation, PyMongoError

from monque._backoff import backoff
from monque._clock import Clock
from monque._cron import Cron
from monque._errors import ConfigurationError
from monque._events import ClaimLost, Event, EventBus, JobCompleted, JobError, JobFailed, JobStarted
from monque._job import Job, JobStatus
from monque._options import Options
from monque._store import transitions
from monque._store.document import Document, completed, failed_occurrence, to_job
from monque._store.settler import Settler
from monque._store.store import Store
from monque._store.transitions import Transition
from monque._threads import ThreadPool
from monque._workers import Worker

logger = logging.getLogger("monque")

# Enough for a message; not enough to push a document over MongoDB's size limit.
_LONGEST_REASON = 8_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """What every run and every loop of an open instance shares."""

    store: Store
    settler: Settler
    bus: EventBus
    options: Options
    clock: Clock
    threads: ThreadPool


class Interruption(Enum):
    """Why we stopped a handler that was still running."""

    LOST = auto()
    SHUTDOWN = auto()


@dataclass(slots=True, eq=False)
class Run:
    """One claimed job on its way through this instance."""

    claim: Document
    worker: Worker[Any]
    last_write: float
    """When the last write of this claim that succeeded was sent (`time.monotonic`)."""
    held_since: float = 0.0
    """When it began to wait for a slot (`time.monotonic`)."""
    _job: Job[Any] | None = field(default=None, init=False)
    task: asyncio.Task[None] | None = None
    settling: bool = False
    runs_again: bool = False
    """Settled, and pending again: its name has something to do."""
    interruption: Interruption | None = None

    @property
    def job(self) -> Job[Any]:
        """The job as claimed; its payload is decoded once the handler is about to get it."""
        if self._job is None:
            self._job = to_job(self.claim)
        return self._job

    @job.setter
    def job(self, job: Job[Any]) -> None:
        self._job = job

    def interrupt(self, why: Interruption) -> None:
        """Stop the handler, if it still runs and can be stopped.

        A thread cannot: at shutdown it keeps its claim and its result still counts; a lost claim's
        result does not.
        """
        if self.settling or (why is Interruption.SHUTDOWN and not self.worker.is_async):
            return
        self.interruption = why
        if self.task is not None and self.worker.is_async:
            self.task.cancel()


@dataclass(frozen=True, slots=True)
class Outcome:
    """What the handler did."""

    duration: timedelta
    error: BaseException | None = None
    interrupted: bool = False


async def execute(run: Run, context: Context, handled: Callable[[Run, Outcome], None]) -> None:
    """Run one claimed job to its end; *handled* hears when its slot is free again."""
    outcome = await call(run, context)
    run.settling = True
    handled(run, outcome)
    if run.interruption is Interruption.LOST:
        return  # told when it was noticed; another owner may have it by now
    transition = decide(run.claim, outcome, context.options, now=context.clock.now())
    document = await settle(run, transition, outcome, context)
    run.runs_again = transition.to is JobStatus.PENDING
    heard = context.bus.hears(JobCompleted) or context.bus.hears(JobFailed)
    if heard and document is not None and not outcome.interrupted:
        context.bus.tell(report(run, transition, outcome, document, now=context.clock.now()))


async def call(run: Run, context: Context) -> Outcome:
    """Call the handler with the decoded job and catch whatever comes of it."""
    started = time.perf_counter()
    error: BaseException | None = None
    try:
        await _handle(run, context)
    except asyncio.CancelledError as cancelled:
        task = asyncio.current_task()
        if run.interruption is None and task is not None and task.cancelling():
            raise  # not ours: the event loop is being closed
        if run.interruption is not None and task is not None:
            task.uncancel()
        error = cancelled
    except (KeyboardInterrupt, GeneratorExit):
        raise
    except BaseException as failure:  # noqa: BLE001 - a handler may raise anything, also SystemExit
        error = failure
    duration = timedelta(seconds=time.perf_counter() - started)
    return Outcome(duration, error, interrupted=error is not None and run.interruption is not None)


async def _handle(run: Run, context: Context) -> None:
    worker = run.worker
    try:
        data = worker.codec.decode(run.claim.get("data"), job_name=worker.name)
        run.job = to_job(run.claim, data=data)
    finally:
        if context.bus.hears(JobStarted):
            context.bus.tell(JobStarted(job=run.job))
    if worker.is_async:
        await worker.handler(run.job)
    else:
        result = await context.threads.run(worker.handler, run.job)
        if inspect.isawaitable(result):
            await result


def decide(claim: Document, outcome: Outcome, options: Options, *, now: datetime) -> Transition:
    """Turn what the handler did into the one transition that records it."""
    if outcome.interrupted:
        return transitions.release(claim)
    recurring = claim.get("repeatInterval") is not None
    if outcome.error is None:
        if recurring:
            return _repeat(claim, now)
        return transitions.complete(claim, ran=outcome.duration)

    reason = describe(outcome.error)
    fail_count = (claim.get("failCount") or 0) + 1
    if fail_count < options.max_retries:
        delay = backoff(
            fail_count,
            base=options.base_retry_interval,
            limit=options.max_backoff_delay,
            jitter=options.retry_jitter,
        )
        return transitions.retry(claim, delay=delay, reason=reason)
    if recurring:
        return give_up(claim, reason, fail_count=fail_count, now=now)
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


def describe(error: BaseException) -> str:
    """The error as it is kept with the job: its type and text, as far as they can be stored."""
    try:
        text = str(error)
    except Exception:  # noqa: BLE001 - whatever a foreign __str__ raises, the job still has to be settled
        text = "(its message cannot be shown)"
    name = type(error).__name__
    reason = f"{name}: {text}" if text else name
    return reason[:_LONGEST_REASON].encode("utf-8", "replace").decode("utf-8")


async def settle(run: Run, transition: Transition, outcome: Outcome, context: Context) -> Document | None:
    """Store how the run ended; the document after it, or None if the claim was lost.

    A write that fails is not a job that failed: the outcome is kept and written again until the claim
    must be taken to be lost. The run is not covered by heartbeats any more, so its claim cannot
    look alive for ever.
    """
    pause = 0.05
    while True:
        try:
            document = await context.settler.settle(run.claim, transition)
            if document is None and "repeatInterval" in run.claim:
                changed = await _schedule_changed(run, context)
                if changed:
                    transition = decide(run.claim, outcome, context.options, now=context.clock.now())
                    continue
            if document is None:
                _lose(run, context)
            return document
        except PyMongoError as error:
            # InvalidOperation: the client was closed, no later try can succeed.
            overdue = time.monotonic() - run.last_write > context.options.heartbeat_tolerance.total_seconds()
            if overdue or isinstance(error, InvalidOperation):
                logger.error("gave up settling job %s (%s): %s", run.job.id, run.job.name, error)
                context.bus.tell(JobError(error=error, job=run.job))
                _lose(run, context)
                return None
            logger.warning("settling job %s (%s) failed, trying again: %s", run.job.id, run.job.name, error)
            await asyncio.sleep(pause)
            pause = min(pause * 2, 2.0)


async def _schedule_changed(run: Run, context: Context) -> bool:
    """Whether the claim still holds and only the schedule is another one; then take it over."""
    document = await context.store.get(run.claim["_id"])
    mine = transitions.owned(run.claim)
    if document is None or any(document.get(field) != value for field, value in mine.items()):
        return False
    # A failed occurrence is kept with the payload that it ran with.
    run.claim = {**document, "data": run.claim.get("data")}
    return True


def _lose(run: Run, context: Context) -> None:
    logger.warning("lost the claim on job %s (%s): its result was not stored", run.job.id, run.job.name)
    context.bus.tell(ClaimLost(job=run.job))


def report(run: Run, transition: Transition, outcome: Outcome, document: Document, *, now: datetime) -> Event:
    """The event that tells a settlement, with the job as it is after it."""
    if document is run.claim:  # settled in a batch and not read back
        document = completed(run.claim, now)
    job = to_job(transition.leaves or document, data=run.job.data)
    if outcome.error is not None:
        return JobFailed(job=job, error=outcome.error, will_retry=job.status is JobStatus.PENDING)
    if job.status is JobStatus.FAILED:  # it went well, but its schedule cannot be continued
        return JobFailed(job=job, error=ConfigurationError(job.fail_reason), will_retry=False)
    return JobCompleted(job=job, duration=outcome.duration)
