"""The reasons of jobs that wait for a time."""

from __future__ import annotations

from typing import Any

from monque._english import clock, day, ordinal
from monque._explanation import Explanation, Remedy
from monque._job import Job
from monque._reasons.facts import Facts
from monque._reasons.words import (
    ago,
    failure_evidence,
    last_failure,
    of_schedule,
    recurs,
    run_now,
    schedule_evidence,
    until_due,
)


def backing_off(job: Job[Any], facts: Facts) -> Explanation | None:
    if job.fail_count == 0:
        return None
    failed_at = last_failure(job)
    at = f" at {clock(failed_at, facts.now, seconds=True)}" if failed_at is not None else ""
    return Explanation(
        code="backing-off",
        sentence=f"Attempt {job.fail_count:,} failed{at}; the next is {until_due(job, facts)}.",
        since=failed_at,
        evidence=failure_evidence(job),
        remedies=(run_now(job),),
    )


def scheduled(job: Job[Any], facts: Facts) -> Explanation | None:
    if not recurs(job) or job.next_run_at is None:
        return None
    at = day(job.next_run_at, facts.now, job.timezone)
    return Explanation(
        code="scheduled",
        sentence=f"Its next time is {at}, {until_due(job, facts)}.",
        since=job.last_run_at,
        evidence=schedule_evidence(job, facts),
        remedies=(run_now(job),),
    )


def delayed(job: Job[Any], facts: Facts) -> Explanation | None:
    if job.next_run_at is None:
        return None
    at = clock(job.next_run_at, facts.now, seconds=True)
    if job.snooze_count:
        times = ordinal(job.snooze_count)
        why = f"Its handler has put it off for the {times} time: it runs again at {at}"
    else:
        why = f"It was stored to run at {at}"
    return Explanation(
        code="delayed",
        sentence=f"{why}, {until_due(job, facts)}.",
        since=job.updated_at if job.snooze_count else job.created_at,
        remedies=(run_now(job),),
    )


def parked(job: Job[Any], facts: Facts) -> Explanation | None:
    if not job.is_parked:
        return None
    if not recurs(job):
        sentence = "It is parked: it has no time, and waits for whatever will give it one."
        return Explanation(code="parked", sentence=sentence, since=job.updated_at, remedies=(run_now(job),))
    at = None if facts.schedule is None else facts.schedule.paused_at
    resume = Remedy(label="Resume the schedule", action="resume-schedule", command=of_schedule("resume", job))
    return Explanation(
        code="parked",
        sentence=f"Its schedule was paused{ago(at, facts)} and waits until it is resumed.",
        since=at,
        evidence=schedule_evidence(job, facts),
        remedies=(resume,),
    )
