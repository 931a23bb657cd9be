"""Durable steps of a job, and what a job waits for."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeAlias

from bson import ObjectId

from monque._values.errors import ConfigurationError, StepError

if TYPE_CHECKING:
    from typing_extensions import TypeVar  # type checkers know it, also where it is not installed

    D = TypeVar("D", default=Any)
else:
    from typing import TypeVar

    D = TypeVar("D")

WaitKind: TypeAlias = Literal["time", "signal", "batch", "turn"]
StepKind: TypeAlias = Literal["step", "transaction", "sleep", "signal", "jobs"]

# Characters of the name of a step or a signal: it stands in a line of a timeline.
_LONGEST_LABEL = 255


@dataclass(frozen=True, slots=True, kw_only=True)
class FailedJob(Generic[D]):
    """The payload of a job that was stored by `on_failure`, because another one has failed for good.

    For type checkers and for the handler, `FailedJob[T]` has the failed job's payload as a T.

    Attributes:
        job_id: The id of the failed job; of a schedule's run, of the job that is kept of this run.
        name: Its name.
        data: Its payload.
        reason: Why it failed, as its `fail_reason`.
        attempts: How often it failed, as its `fail_count`.
        failed_at: When it failed for good.

    Examples:
        >>> @monque.worker("charge.dead")
        ... async def tell_support(job: Job[FailedJob[Charge]]) -> None: ...
    """

    job_id: Any
    name: str
    data: D
    reason: str
    attempts: int
    failed_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One durable step of a job, as it is stored.

    Attributes:
        name: Its name, unique in the job.
        kind: `step`, `transaction`, `sleep`, `signal` or `jobs`.
        at: When it was stored: a step when it was done, a wait when it began. None where a document that
            somebody else wrote has no date.
        duration: How long it took; of a wait, how long the run took that ended there.
        value: What its function returned, or what the signal carried, as it is stored: dataclasses and models
            are dicts. Of `run_jobs`, a letter a job: `c` completed, `f` failed, `x` cancelled, `-` gone. None
            if the job was read with others (`list_jobs`, `get_jobs`, `iter_jobs`).
        until: Of a sleep, its end; of a signal, the time until which the job waits or waited for it.
        over: When a wait for a signal or for jobs ended; None of one that goes on, and of other steps.
        batch: Of `run_jobs`, the label of its jobs, for `JobFilter(batch=…)`.
    """

    name: str
    kind: StepKind
    at: datetime | None
    duration: timedelta | None = None
    value: Any = None
    until: datetime | None = None
    over: datetime | None = None
    batch: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Signal:
    """A signal that has come and that the job has not received yet.

    Attributes:
        name: Its name.
        at: When it came; None where a document that somebody else wrote has no date.
        value: What it carries. None if the job was read with others (`list_jobs`, `get_jobs`, `iter_jobs`).
    """

    name: str
    at: datetime | None
    value: Any = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Parent:
    """The job that runs this one with `run_jobs`.

    Attributes:
        job_id: Its id.
        step: The name of its step.
    """

    job_id: Any
    step: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Wait:
    """The event that a pending job waits for, without a slot and without a process.

    Attributes:
        why: `time` (it sleeps), `signal`, `batch` (for the end of all jobs of a batch), or `turn`: a limit by
            key lets no more jobs of its key run now.
        since: When it began to wait.
        until: When it runs again in any case: the end of its sleep, the timeout of its wait for a signal, or
            the time at which it expires. None if only a signal, or the end of a batch, ends the wait.
        signal: The name of the signal that it waits for.
        batch: The label of the batch that it waits for.
        line: The key of the line in which it waits for its turn, as text.
    """

    why: WaitKind
    since: datetime | None
    until: datetime | None = None
    signal: str | None = None
    batch: str | None = None
    line: str | None = None


def check_label(what: str, value: object, example: str = "charge") -> str:
    """Return *value* if it may name a step or a signal: text of 1 to 255 characters."""
    with suppress(UnicodeEncodeError):
        # No filter finds a blank one.
        if isinstance(value, str) and len(value) <= _LONGEST_LABEL and value.strip() and value.encode():
            return str.__str__(value)  # of a subclass only the text: BSON has a type of its own for some
    raise ConfigurationError(
        f"{what} must be text of 1 to {_LONGEST_LABEL} characters, such as {example!r}, got {value!r:.80}"
    )


def cannot_wait(method: str, job_id: ObjectId, why: str) -> StepError:
    """The error of a handler that can have no durable steps, with the reason and what to do."""
    return StepError(
        f"{method} is for `async def` handlers that run in the instance itself, and {why}; write the handler "
        f"of job {job_id} as `async def`: a step of it may be a plain function",
        job_id=job_id,
    )
