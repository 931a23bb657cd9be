"""From what a handler did to the transition that records it. No I/O."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from monque._observe.observer import Ending
from monque._store.document import (
    Claim,
    Document,
    cancel_reason_of,
    carried,
    failed_occurrence,
    policy_of,
)
from monque._store.job import reader, to_job
from monque._store.schedules import time_after_run
from monque._store.transitions import calls, flows, occurrences, run
from monque._store.transitions.flows import Waiting
from monque._store.transitions.transition import Transition, recent_run
from monque._time.backoff import backoff
from monque._values.errors import ConfigurationError, JobInterrupted, JobTimeoutError, WaitTimeoutError
from monque._values.history import AttemptOutcome, HistoryEntry, entry_of
from monque._values.job import Job
from monque._values.options import Options
from monque._values.rules import check_duration
from monque._values.schedule import RunOutcome
from monque._values.settings import Rules, WorkerSettings, resolve
from monque._values.status import Interruption, JobStatus
from monque._values.verdicts import Cancel, Fail, RetryAfter, Snooze, Verdict
from monque._values.words import describe, log_raised, text_of
from monque._workers.results import Kept

_NO_SETTINGS = WorkerSettings()


@dataclass(slots=True, eq=False)
class Outcome:
    """The result of a call: what the handler did."""

    seconds: float
    error: BaseException | None = None
    interruption: Interruption | None = None
    """The handler was told to stop and ended by that, or was never called."""
    ended: datetime | None = None
    """The time at which the handler returned, by the server's clock; only if somebody observes the run."""
    kept: Kept | None = None
    """The part of the returned value that is stored; None if nothing is to be stored."""
    wait: Waiting | None = None
    """The wait in which the handler ended, see `Job.sleep`; a later run goes on."""

    @property
    def duration(self) -> timedelta:
        """The time that the handler ran."""
        return timedelta(seconds=self.seconds)

    @property
    def interrupted(self) -> bool:
        """Return whether the handler was told to stop and ended by that, which is no failure of the job."""
        return self.interruption not in (None, "timeout")

    @classmethod
    def of_uncalled(cls) -> Outcome:
        """The outcome of a job whose handler is not called: its claim may be lost, or it is to end."""
        return cls(0.0, asyncio.CancelledError(), interruption="lost")

    @classmethod
    def of_gated(cls) -> Outcome:
        """The outcome of a job that is settled without a call: it is not released, but has ended."""
        return cls(0.0, asyncio.CancelledError(), interruption="requested")

    @property
    def was_gated(self) -> bool:
        """Return whether the handler was not called because the job had ended: see `of_gated`."""
        return self.interruption == "requested" and not self.seconds

    def is_released(self, claim: Claim) -> bool:
        """Return whether the job is put back as if nobody had claimed it."""
        return self.interruption in _RELEASING and not claim.is_cancel_requested


# What follows from these has nothing to do with the job: it runs again, here or elsewhere.
_RELEASING: tuple[Interruption, ...] = ("shutdown", "lost")


def ended_by(
    why: Interruption, error: BaseException, *, can_be_ended: bool, is_cancel_requested: bool
) -> Interruption | None:
    """The reason for which the handler was told to stop, if it has ended by that.

    A cancelled coroutine, or a child process that was told to end, may end with any error. A thread only sees
    a flag, so it ended by that only if it says so; any other error is its own. After a request to cancel, no
    error counts. After a timeout, a verdict is what the handler has to say.
    """
    if why == "timeout" and isinstance(error, Verdict):
        return None
    return why if can_be_ended or isinstance(error, JobInterrupted) or is_cancel_requested else None


def decide(
    claim: Claim,
    outcome: Outcome,
    options: Options,
    now: Callable[[], datetime],
    *,
    settings: WorkerSettings = _NO_SETTINGS,
    job: Job[Any] | None = None,
) -> Transition:
    """Turn what the handler did into the one transition that records it. Only schedules ask for the time.

    *settings* are those of the worker. *job* is given to the worker's own function of the wait.
    """
    if outcome.error is None:
        if not claim.is_recurring:
            if claim.has_again:
                return run.cancel_run(claim) if claim.is_cancel_requested else calls.run_again(claim)
            return run.complete(claim, ran=outcome.seconds, kept=outcome.kept)
        if claim.is_cancel_requested:
            return run.cancel_run(claim, ended=_run("completed", outcome, now()))
        return _repeat(claim, outcome, now())
    if claim.is_cancel_requested:
        return _cancel_asked(claim, outcome, outcome.error, options, now)
    if outcome.wait is not None:
        return _suspend(claim, outcome.wait, outcome, now)
    if outcome.is_released(claim):
        return run.release(claim)
    if outcome.was_gated:
        # A schedule that was changed under its gate comes to it again with its next claim.
        return run.release(claim) if claim.is_recurring else run.expire(claim)

    if isinstance(outcome.error, Snooze):
        return _snooze(claim, outcome.error, now)
    if isinstance(outcome.error, Cancel):
        return _cancel(claim, outcome, outcome.error, options, now)
    rules = resolve(policy_of(claim.document), settings, options)
    job = job or to_job(claim.document, reader(lambda _: rules.max_attempts))
    delay = wait_after(outcome.error, claim.fails, rules, options, job)
    if delay is not None and _expires_before(claim, delay, None, now):
        delay = None  # a retry would come too late to be worth anything
    return _fail(claim, outcome, outcome.error, delay, options, now)


def _suspend(claim: Claim, wait: Waiting, outcome: Outcome, now: Callable[[], datetime]) -> Transition:
    """Let the job wait; for a sleep past its expiry, there is nothing to wait for."""
    delay = None if wait.delay is None else timedelta(milliseconds=wait.delay)
    if wait.kind == "sleep" and _expires_before(claim, delay, wait.until, now):
        return run.expire(claim)
    return flows.suspend(claim, wait, ran=outcome.seconds)


def _snooze(claim: Claim, verdict: Snooze, now: Callable[[], datetime]) -> Transition:
    """Put the job off; if that is past its expiry, there is nothing to wait for.

    If a later call is noted, that one runs: it need not wait for what this run waits for, and a job that
    snoozes each time would starve it. A job that has steps goes on with them first.
    """
    if claim.has_again and not claim.has_steps:
        return calls.run_again(claim)
    if _expires_before(claim, verdict.delay, verdict.until, now):
        return run.expire(claim)
    return run.snooze(claim, delay=verdict.delay, until=verdict.until)


def _expires_before(
    claim: Claim, delay: timedelta | None, until: datetime | None, now: Callable[[], datetime]
) -> bool:
    """Return whether the job will have expired after this wait, or at this time."""
    if (expires_at := claim.expires_at) is None:
        return False
    end = until if delay is None else now() + delay
    return end is not None and end >= expires_at


def _fail(
    claim: Claim,
    outcome: Outcome,
    error: BaseException,
    delay: timedelta | None,
    options: Options,
    now: Callable[[], datetime],
) -> Transition:
    """Record a failure; without a *delay* it is final."""
    reason = reason_of(error)
    how: AttemptOutcome = "failed" if delay is None else "retried"
    entry = _entry(error, "timed_out" if isinstance(error, JobTimeoutError) else how, outcome, options)
    goes_on = delay is not None and claim.has_steps  # then the call that is noted waits for the end of these
    if claim.has_again and not goes_on:
        return _again(claim, reason, entry, None if delay is not None else now())
    if delay is not None:
        return run.retry(claim, delay=delay, reason=reason, entry=entry)
    if claim.is_recurring:
        return _give_up(claim, outcome, reason, entry, now())
    return run.fail(claim, reason=reason, entry=entry)


def _cancel(
    claim: Claim, outcome: Outcome, verdict: Cancel, options: Options, now: Callable[[], datetime]
) -> Transition:
    """The handler says that its job is not needed any more; of a schedule that ends this run only."""
    entry = _entry(verdict, "cancelled", outcome, options)
    if claim.is_recurring:
        return _repeat(claim, outcome, now(), entry)
    reason = None if verdict.reason is None else text_of(verdict)
    return run.cancel_run(claim, by="handler", reason=reason, entry=entry)


def _run(how: RunOutcome, outcome: Outcome, now: datetime) -> Document:
    """The record that a schedule keeps of a run that has ended."""
    return recent_run(how, now, outcome.duration)


def _cancel_asked(
    claim: Claim,
    outcome: Outcome,
    error: BaseException,
    options: Options,
    now: Callable[[], datetime],
) -> Transition:
    """An operator has asked for it. A run that was never called leaves nothing in the history."""
    if not outcome.seconds:
        return run.cancel_run(claim)
    is_stopped = isinstance(error, asyncio.CancelledError | JobInterrupted)
    message = cancel_reason_of(claim.document) or "an operator has asked for it"
    entry = _entry(error, "cancelled", outcome, options, message=message if is_stopped else None)
    ended = _run("cancelled", outcome, now()) if claim.is_recurring else None
    return run.cancel_run(claim, entry=entry, ended=ended)


def _entry(
    error: BaseException,
    how: AttemptOutcome,
    outcome: Outcome,
    options: Options,
    *,
    message: str | None = None,
) -> HistoryEntry | None:
    """The entry for the job's history: of a verdict that was raised from an error, the error."""
    shown = error
    if isinstance(error, Verdict) and error.__cause__ is not None:
        shown = error.__cause__
        message = text_of(error) if isinstance(error, Fail | Cancel) else None
    keep, traces = options.attempt_history, options.attempt_traces
    return entry_of(shown, how, ran=outcome.seconds, keep=keep, traces=traces, message=message)


def reason_of(error: BaseException) -> str:
    """The reason of a failure as it is stored: that of a `Fail`, else the type and text of the error."""
    if isinstance(error, Fail):
        return text_of(error)
    if isinstance(error, RetryAfter) and error.__cause__ is not None:
        return describe(error.__cause__)
    return describe(error)


def wait_after(
    error: BaseException, failures: int, rules: Rules, options: Options, job: Job[Any]
) -> timedelta | None:
    """The wait after this failure, one of so many; None if the job has failed for good.

    That a wait of the job itself took too long is stored: each later run would get the same answer.
    """
    is_stored = isinstance(error, WaitTimeoutError) and error.job_id == job.id
    if isinstance(error, Fail) or is_stored or failures >= rules.max_attempts:
        return None
    if isinstance(error, RetryAfter):
        return error.delay
    if rules.is_final(error):
        return None
    asked = None
    if rules.wait.delay is not None and (asked := _ask(rules.wait.delay, job, error)) is None:
        return None
    return backoff(
        failures,
        base=options.base_retry_interval,
        limit=options.max_backoff_delay,
        jitter=options.retry_jitter,
        retry=rules.wait,
        asked=None if asked is _DEFAULT else asked,
    )


def _ask(
    delay: Callable[[Job[Any], BaseException], timedelta | None], job: Job[Any], error: BaseException
) -> timedelta | None:
    """The wait that the worker's own function asks for; the default if it fails or returns nonsense."""
    try:
        wait = delay(job, error)
        if wait is not None:
            check_duration("what the function of a Retry's delay returns", wait, shortest=timedelta(0))
    except BaseException as failure:  # noqa: BLE001 - whatever the user's function raises, the job waits
        log_raised(failure, "the delay function of job %s failed: it waits as by default", job.id)
        return _DEFAULT
    return wait


# Told apart by identity: nobody else can ask for exactly this object.
_DEFAULT = timedelta(-1)


def _repeat(claim: Claim, outcome: Outcome, now: datetime, entry: HistoryEntry | None = None) -> Transition:
    """Let the schedule wait for its next time; if none comes, it has ended."""
    ended = _run("completed" if outcome.error is None else "cancelled", outcome, now)
    try:
        run_at = time_after_run(claim.document, now)
    except ConfigurationError as unreadable:
        reason = f"its schedule cannot be continued: {unreadable}"
        return run.fail(claim, reason=reason, ended=ended)
    if run_at is None:
        return occurrences.end_schedule(
            claim, ran=outcome.seconds, entry=entry, kept=outcome.kept, ended=ended
        )
    return occurrences.repeat(claim, run_at=run_at, entry=entry, kept=outcome.kept, ended=ended)


def _give_up(
    claim: Claim, outcome: Outcome, reason: str, entry: HistoryEntry | None, now: datetime
) -> Transition:
    """Keep the failed run of a schedule as a job of its own, and let the schedule continue."""
    ended = _run("failed", outcome, now)
    try:
        run_at = time_after_run(claim.document, now)
    except ConfigurationError:
        return run.fail(claim, reason=reason, entry=entry, ended=ended)
    copy = failed_occurrence(claim.document, reason=reason, fail_count=claim.fails, now=now)
    leaves = carried(copy, claim.document, entry, now)
    if run_at is None:
        return occurrences.end_schedule(claim, ran=outcome.seconds, entry=entry, leaves=leaves, ended=ended)
    return occurrences.give_up_occurrence(claim, run_at=run_at, leaves=leaves, entry=entry, ended=ended)


def _again(claim: Claim, reason: str, entry: HistoryEntry | None, failed_at: datetime | None) -> Transition:
    """Run once more for a later call, at once; a run that failed for good is kept as a job of its own."""
    if failed_at is None:
        return calls.run_again(claim, entry=entry)
    copy = failed_occurrence(claim.document, reason=reason, fail_count=claim.fails, now=failed_at)
    return calls.run_again(claim, entry=entry, leaves=carried(copy, claim.document, entry, failed_at))


def is_removed(claim: Claim, outcome: Outcome, transition: Transition, settings: WorkerSettings) -> bool:
    """Return whether the job is deleted now that it is completed, see `Keep`."""
    keep = settings.get("keep")
    if keep is None or keep.completed != timedelta(0) or transition.to is not JobStatus.COMPLETED:
        return False
    return outcome.error is None and outcome.kept is None and run.is_removable(claim)


def ending(outcome: Outcome, transition: Transition) -> Ending:
    """The end of a run in a word, for logs and metrics."""
    if transition.to is JobStatus.CANCELLED:
        return "cancelled"
    if transition.fails:
        return "failed"
    if isinstance(outcome.error, Snooze):
        return "snoozed"
    if isinstance(outcome.error, Cancel):
        return "cancelled"
    if outcome.wait is not None:
        return "waiting"
    return "completed" if outcome.error is None else "retried"
