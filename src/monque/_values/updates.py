"""Updates: what `Monque.watch` tells of one job.

JobUpdate
├── StateUpdate       it is in this state, in this attempt
├── ProgressUpdate    what its handler has reported
├── LogUpdate         one more line of its log
├── StepUpdate        a durable step or wait is stored
├── WaitUpdate        it waits for something, or for nothing more
└── EndUpdate         it has ended; nothing comes after it

They are found by comparing the job with the job as it was seen before. So a reader that is slow, or begins
late, gets what is new since then, and nothing is kept for it but the newest job.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from monque._values.flows import Step, Wait
from monque._values.history import LogLine, Progress
from monque._values.job import Job
from monque._values.status import JobStatus


@dataclass(frozen=True, slots=True, kw_only=True)
class JobUpdate:
    """Something that has happened to a watched job: the base of all updates."""

    kind: ClassVar[str] = "*"
    """A word for each class, such as `progress`: the event of a stream, a key of a log."""
    job_id: Any


@dataclass(frozen=True, slots=True, kw_only=True)
class StateUpdate(JobUpdate):
    """The job is in this state now, in this attempt; the first update of each watch is one.

    States between two looks are left out: a job that failed and runs again may be seen running twice.
    """

    kind: ClassVar[str] = "state"
    status: JobStatus | str
    attempt: int
    fail_count: int
    snooze_count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgressUpdate(JobUpdate):
    """The newest progress that the handler has reported."""

    kind: ClassVar[str] = "progress"
    progress: Progress


@dataclass(frozen=True, slots=True, kw_only=True)
class LogUpdate(JobUpdate):
    """One more line of the job's log."""

    kind: ClassVar[str] = "log"
    line: LogLine


@dataclass(frozen=True, slots=True, kw_only=True)
class StepUpdate(JobUpdate):
    """A durable step is stored, a wait has begun, or the value of a signal is there."""

    kind: ClassVar[str] = "step"
    step: Step


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitUpdate(JobUpdate):
    """The job waits for something, without a slot; *wait* is None when it waits for nothing more."""

    kind: ClassVar[str] = "wait"
    wait: Wait | None


@dataclass(frozen=True, slots=True, kw_only=True)
class EndUpdate(JobUpdate):
    """The job is completed, failed or cancelled: the last update, with the job as `wait_for` returns it."""

    kind: ClassVar[str] = "end"
    job: Job[Any]


def updates_of(job: Job[Any], before: Job[Any] | None) -> Iterator[JobUpdate]:
    """Everything that has happened to a job that goes on since it was as *before*; None: since it began."""
    state = _state(job)
    if before is None or state != _state(before):
        yield state
    yield from _told(job, before)


def last_updates_of(job: Job[Any], before: Job[Any] | None) -> Iterator[JobUpdate]:
    """As `updates_of`, of a job that has ended."""
    yield from _told(job, before)
    yield EndUpdate(job_id=job.id, job=job)


def _state(job: Job[Any]) -> StateUpdate:
    return StateUpdate(
        job_id=job.id,
        status=job.status,
        attempt=job.attempt,
        fail_count=job.fail_count,
        snooze_count=job.snooze_count,
    )


def _told(job: Job[Any], before: Job[Any] | None) -> Iterator[JobUpdate]:
    known = {} if before is None else {step.name: step for step in before.steps}
    for step in job.steps:
        if known.get(step.name) != step:
            yield StepUpdate(job_id=job.id, step=step)
    if job.progress is not None and (before is None or job.progress != before.progress):
        yield ProgressUpdate(job_id=job.id, progress=job.progress)
    for line in new_lines(job.log, () if before is None else before.log):
        yield LogUpdate(job_id=job.id, line=line)
    if job.waits_for != (None if before is None else before.waits_for):
        yield WaitUpdate(job_id=job.id, wait=job.waits_for)


def new_lines(log: Sequence[LogLine], before: Sequence[LogLine]) -> Sequence[LogLine]:
    """The lines of a log after those that were there before; the oldest of these may be gone by now."""
    for dropped in range(len(before)):
        left = before[dropped:]
        if log[: len(left)] == left:
            return log[len(left) :]
    return log
