"""Reports a run that is settled to the log, to observers and to listeners of events."""

from __future__ import annotations

import logging
from datetime import datetime, timedelta
from typing import Any

from monque._engine.claimed import Run, Settlement
from monque._engine.context import Context
from monque._engine.decide import Outcome, ending, reason_of
from monque._observe.logs import about, log_cancelled, log_failure, log_snoozed, log_success, log_waiting
from monque._ops.trends import Tally
from monque._store.document import (
    Claim,
    Document,
    as_settled,
    attempt_of,
    cancel_reason_of,
    cancelled_occurrence,
    result_error_of,
)
from monque._store.job import Read, completed, to_job
from monque._store.transitions.flows import Waiting
from monque._store.transitions.transition import FailedRun, Transition
from monque._values.errors import ConfigurationError, ResultError
from monque._values.events import (
    Event,
    JobCancelled,
    JobCompleted,
    JobError,
    JobFailed,
    JobSnoozed,
    JobWaiting,
)
from monque._values.flows import Wait
from monque._values.job import Job
from monque._values.status import JobStatus
from monque._values.verdicts import Cancel, Snooze
from monque._values.words import text_of
from monque._workers.results import Kept

logger = logging.getLogger("monque")


def count_run(tally: Tally, settlement: Settlement, _document: Document | None) -> None:
    """Count a run that is settled."""
    run, outcome, transition = settlement.run, settlement.outcome, settlement.transition
    if outcome.error is None and transition.to is JobStatus.COMPLETED:
        due = settlement.claim.due
        tally.count(run.worker.name, "completed", outcome.seconds, run.started, due, transition.ran)
    elif settlement.is_run:
        how = ending(outcome, transition)
        if how == "waiting":
            return  # the run goes on later: it is counted once, with its end
        tally.count(run.worker.name, how, outcome.seconds, run.started, settlement.claim.due)


def tell_run(context: Context, settlement: Settlement, document: Document | None) -> None:
    """Report a run that is settled: to the log, to observers and to listeners of events.

    Always in the context variables of the run: one task writes the results of many runs.
    """
    run, outcome, bus = settlement.run, settlement.outcome, context.bus
    if outcome.error is not None and not settlement.is_run:
        return
    if run.audience is not None or outcome.error is not None:
        run.variables.run(_record, settlement)
    # Asked each time: users add and remove their listeners while jobs run.
    completes = outcome.error is None and settlement.transition.to is not JobStatus.CANCELLED
    if any(map(bus.has_listeners, _REPORTS if completes else _OTHER_REPORTS)):
        if document is None and not completes:
            return  # nobody listened when it was settled
        if document is None:
            event = event_unread(run.job, outcome, context.store.clock.now())
        else:
            event = event_of(
                run.job, settlement.claim, outcome, settlement.transition, document, context.store.read
            )
        run.variables.run(bus.emit, event)
    if outcome.kept is not None and (why := _why_not_stored(outcome.kept, document)) is not None:
        run.variables.run(_report_result, run, why, context)


def _why_not_stored(kept: Kept, document: Document | None) -> str | None:
    """Return why a result was not stored: it was wrong or too large, or the document had no room for it."""
    return kept.error or (None if document is None else result_error_of(document))


def _report_result(run: Run, why: str, context: Context) -> None:
    message = "job %s (%s) is completed, but its result is not stored: %s"
    logger.warning(message, run.job.id, run.job.name, why, extra=about(run.job))
    context.bus.emit(JobError(error=ResultError(why, job_id=run.job.id), job=run.job))


def _record(settlement: Settlement) -> None:
    """Log how a run ended, and tell the observers."""
    run, outcome = settlement.run, settlement.outcome
    how = ending(outcome, settlement.transition)
    error = outcome.error
    if how == "completed":
        log_success(run.job, outcome.duration)
    elif how == "cancelled":
        log_cancelled(run.job, outcome.duration, *_why_cancelled(settlement))
        error = None  # it was told to stop, has expired, or its handler said so
    elif how == "waiting":
        log_waiting(run.job, outcome.duration, "" if outcome.wait is None else outcome.wait.name)
        error = None  # a later run goes on
    elif how == "snoozed":
        log_snoozed(run.job, outcome.duration, "" if error is None else text_of(error))
        error = None  # a verdict of the handler, not an error
    else:
        reason = "its schedule cannot be continued" if error is None else reason_of(error)
        log_failure(run.job, outcome.duration, reason, error, will_retry=how == "retried")
    if run.audience is not None and outcome.ended is not None:
        run.audience.ended(run.job, how, ran=outcome.duration, error=error, at=outcome.ended)


def _why_cancelled(settlement: Settlement) -> tuple[str, str | None]:
    """Return how a run came to be cancelled, and the reason that was given."""
    run, error = settlement.run, settlement.outcome.error
    if settlement.claim.is_cancel_requested:
        how = "stopped and cancelled" if run.started else "cancelled before it began"
        return how, cancel_reason_of(settlement.claim.document)
    if isinstance(error, Snooze) or settlement.outcome.wait is not None:
        return "cancelled", "its handler put it off beyond its expiry"
    if isinstance(error, Cancel):
        return "cancelled by its handler", error.reason and text_of(error)
    return "cancelled before it began", "expired"


# The events by which a run is reported.
_REPORTS = (JobCompleted, JobFailed)
_OTHER_REPORTS = (JobFailed, JobSnoozed, JobCancelled, JobWaiting)


def event_unread(job: Job[Any], outcome: Outcome, now: datetime) -> Event:
    """The event for a completion that was not read back, because it was one of a batch."""
    return JobCompleted(job=completed(job, now, outcome.kept), duration=outcome.duration)


def event_of(
    job: Job[Any],
    claim: Claim,
    outcome: Outcome,
    transition: Transition,
    document: Document,
    read: Read,
) -> Event:
    """The event for a settlement, with the job as the *document* shows it after it."""
    to, error = transition.to, outcome.error
    if attempt_of(document) > claim.attempt or document["status"] != to.value:
        # Others changed the job before we read it: report it as this run left it.
        failed = error is not None and not isinstance(error, Snooze | Cancel)
        document = as_settled(claim, to, reason_of(error) if error is not None and failed else None, document)
    kept = transition.beside
    after = to_job(kept.document if isinstance(kept, FailedRun) else document, read, data=job.data)
    if to is JobStatus.CANCELLED:
        return JobCancelled(job=after)
    if to is JobStatus.FAILED and (error is None or isinstance(error, Cancel)):
        # The run did not fail, but its schedule cannot be continued.
        return JobFailed(job=after, error=ConfigurationError(after.fail_reason), will_retry=False)
    if outcome.wait is not None:
        return JobWaiting(job=after, wait=after.waits_for or _ended_wait(outcome.wait, after))
    if error is None:
        return JobCompleted(job=after, duration=outcome.duration)
    if isinstance(error, Snooze):
        delay = _left(after.next_run_at, after) if claim.has_again else _delay(error, after)
        return JobSnoozed(job=after, delay=delay)
    if isinstance(error, Cancel):
        if claim.is_recurring:
            reason = None if error.reason is None else text_of(error)
            after = to_job(cancelled_occurrence(claim, reason, document), read, data=job.data)
        return JobCancelled(job=after)
    return JobFailed(job=after, error=error, will_retry=after.status is JobStatus.PENDING)


def _ended_wait(wait: Waiting, after: Job[Any]) -> Wait:
    """The wait of a job that a signal has woken before it was read."""
    return Wait(why="time" if wait.signal is None else "signal", since=after.updated_at, signal=wait.signal)


def _delay(verdict: Snooze, after: Job[Any]) -> timedelta:
    if verdict.delay is not None or verdict.until is None:
        return verdict.delay or timedelta(0)
    return _left(verdict.until, after)


def _left(run_at: datetime | None, after: Job[Any]) -> timedelta:
    return timedelta(0) if run_at is None else max(run_at - after.updated_at, timedelta(0))
