"""How handlers say how they ended, and what they and listeners see of it; read by `mypy`, see `calls.py`."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Literal, assert_type

from monque import (
    Attempt,
    Cancel,
    Fail,
    Job,
    JobCancelled,
    JobCancelling,
    JobFilter,
    JobInterrupted,
    JobSettings,
    JobSnoozed,
    JobStuck,
    JobTimeoutError,
    Monque,
    Retry,
    RetryAfter,
    Snooze,
    Verdict,
)

Interruption = Literal["requested", "timeout", "shutdown", "lost", "waiting"]

monque = Monque()
MINUTE = timedelta(minutes=1)

verdicts: list[Verdict] = [
    Snooze(MINUTE, whole_name=True),
    Snooze(until=datetime.now(UTC)),
    RetryAfter(MINUTE),
    Fail("no such card"),
    Cancel(),
    Cancel("the customer has left"),
]


@monque.worker("charge", timeout=MINUTE)
def charge(job: Job[int]) -> None:
    assert_type(job.history, tuple[Attempt, ...])
    assert_type([attempt.traceback for attempt in job.history], list[str | None])
    assert_type(job.interrupted, bool)
    assert_type(job.interruption, Interruption | None)
    assert_type(job.cancel_requested, bool)
    assert_type(job.cancelled_by, Literal["operator", "handler", "expiry", "batch"] | None)
    job.extend_timeout(MINUTE)
    try:
        job.checkpoint()
    except JobInterrupted as told:
        assert_type(told.why, Interruption)
        raise


@monque.on("job:snoozed")
def on_snoozed(event: JobSnoozed) -> None:
    assert_type(event.delay, timedelta)


@monque.on(JobStuck)
def on_stuck(event: JobStuck) -> None:
    assert_type(event.why, Interruption)
    assert_type(event.running_for, timedelta)


@monque.on("job:cancelling")
def on_cancelling(event: JobCancelling) -> None:
    print(event.job.cancel_reason)


settings: JobSettings = {"retry": Retry.fixed(MINUTE, 3), "timeout": MINUTE, "expires": datetime.now(UTC)}


async def store() -> None:
    assert_type(await monque.enqueue(charge, 5, **settings), Job[int, None])
    asked = await monque.cancel_jobs(_filter(), running=True, reason="wrong customer")
    assert_type(asked.requested, int)


def _filter() -> JobFilter:
    return JobFilter(cancelled_by="operator", expired=True)


def wrong(error: JobTimeoutError) -> None:
    assert_type(error.limit, timedelta)
    Snooze(5)  # type: ignore[arg-type]  # not a timedelta
    RetryAfter()  # type: ignore[call-arg]  # how long?
    Fail(ValueError("no"))  # type: ignore[arg-type]  # not text
    JobFilter(cancelled_by="me")  # type: ignore[arg-type]  # nobody of that name


@monque.on(JobSnoozed)  # type: ignore[arg-type]  # another event
def wrong_listener(event: JobCancelled) -> None: ...
