"""From a document to the `Job` that it describes, whose fields are read when somebody asks for one of them.

Most handlers look at the data of their job and at nothing else. Where thousands of jobs run in a second,
making the other values of each would cost as much as all the rest.
"""

from __future__ import annotations

import copyreg
from collections.abc import Callable, Mapping
from dataclasses import fields
from datetime import datetime, timedelta
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, TypeVar

from monque._store.document import (
    PAYLOAD_SIZE,
    attempt_of,
    attempts_of,
    cancel_reason_of,
    cancel_requested_at,
    cancelled_by,
    claimed_at_of,
    count_of,
    expires_at_of,
    is_cancel_requested,
    is_parked,
    made_aware,
    priority_of,
    result_error_of,
    status_of,
    stuck_since,
    time_of,
)
from monque._store.progress import log_of, progress_of
from monque._values.errors import JobInterrupted
from monque._values.job import Job
from monque._values.rules import check_duration
from monque._values.state import State
from monque._values.status import Enqueued, Interruption, JobStatus
from monque._workers.results import Kept

T = TypeVar("T")


Read: TypeAlias = Callable[[Mapping[str, Any]], dict[str, Any]]
"""Reads the fields of a job from its document."""


def reader(attempts: Callable[[Mapping[str, Any]], int]) -> Read:
    """Return what reads the fields of a job; *attempts* says how often the job of a document is tried."""
    return partial(_fields, attempts=attempts)


def to_job(
    document: Mapping[str, Any], read: Read, *, data: Any = ..., enqueued: Enqueued | None = None
) -> Job[Any]:
    """Return the job that a document describes; *data* takes the place of the stored payload.

    *enqueued* is what became of the call that returns it.

    Every document has one. Operators must be able to see what somebody wrote by hand: a field holds
    what is stored, and a time that is not a date is None.
    """
    known = {"data": document.get("data") if data is ... else data, "_read": read, "_source": document}
    if enqueued is not None:
        known["enqueued"] = enqueued
    job: LazyJob[Any] = LazyJob.__new__(LazyJob)
    object.__setattr__(job, "__dict__", known)  # not copied: there are two jobs for each run
    return job


def _fields(document: Mapping[str, Any], attempts: Callable[[Mapping[str, Any]], int]) -> dict[str, Any]:
    get = document.get
    return {
        "id": document["_id"],
        "name": get("name"),
        "status": status_of(document),
        "next_run_at": None if is_parked(document) else time_of(document, "nextRunAt"),
        "is_parked": is_parked(document),
        "priority": priority_of(document),
        "fail_count": count_of(document, "failCount"),
        "fail_reason": get("failReason"),
        "snooze_count": count_of(document, "snoozeCount"),
        "history": attempts_of(document),
        "cron": get("repeatInterval"),
        "timezone": get("timezone"),
        "run_count": count_of(document, "runCount"),
        "last_run_at": time_of(document, "lastRunAt"),
        "schedule_id": get("scheduleId"),
        "planned_for": time_of(document, "plannedFor"),
        "unique_key": get("uniqueKey"),
        "claimed_by": get("claimedBy"),
        "claimed_at": claimed_at_of(document),
        "locked_at": time_of(document, "lockedAt"),
        "last_heartbeat": time_of(document, "lastHeartbeat"),
        "heartbeat_interval": _duration(get("heartbeatInterval")),
        "attempt": attempt_of(document),
        "max_attempts": attempts(document),
        "crash_count": count_of(document, "crashCount"),
        "started_at": time_of(document, "startedAt"),
        "finished_at": time_of(document, "finishedAt"),
        "traceparent": _text(get("traceparent")),
        "expires_at": expires_at_of(document),
        "stuck_since": stuck_since(document),
        "cancel_requested": is_cancel_requested(document),
        "cancel_requested_at": cancel_requested_at(document),
        "cancel_reason": cancel_reason_of(document),
        "cancelled_by": cancelled_by(document),
        "enqueued": None,
        **_left_by_handler(document),
        "payload_size": get(PAYLOAD_SIZE),
        "created_at": time_of(document, "createdAt"),
        "updated_at": time_of(document, "updatedAt"),
    }


def _left_by_handler(document: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "progress": progress_of(document),
        "log": log_of(document),
        "result": made_aware(document.get("result")),
        "result_error": result_error_of(document),
    }


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None


def _duration(interval: object) -> timedelta | None:
    if not isinstance(interval, int | float):
        return None
    try:
        return _milliseconds(interval)
    except (ValueError, OverflowError):  # not a number, or more days than there are
        return None


@lru_cache(maxsize=64)  # a collection has few different intervals
def _milliseconds(interval: float) -> timedelta:
    return timedelta(milliseconds=interval)


class Controls(Protocol):
    """The run of a job, as its handler may use it."""

    @property
    def state(self) -> State:
        """See `Job.state`."""

    def complete_in(self, session: Any, result: Any) -> Any:
        """See `Job.complete_in`; *result* is `...` if none was given."""

    @property
    def why_interrupted(self) -> Interruption | None:
        """See `Job.interruption`."""

    @property
    def is_cancel_requested(self) -> bool:
        """See `Job.cancel_requested`."""

    def extend(self, by: timedelta) -> None:
        """See `Job.extend_timeout`."""

    def report_progress(self, done: object, total: object, message: object) -> None:
        """See `Job.report_progress`."""

    def add_log(self, text: object, level: object) -> None:
        """See `Job.add_log`."""


class LazyJob(Job[T]):
    """Behaves like a `Job` in everything: comparing, hashing, printing, copying, `replace`.

    Its attributes are those fields that are known, `_read` and `_source` until the others are read, `_run`
    while its handler runs, and `_worker` if it was stored for one.
    """

    def complete_in(self, session: Any, *, result: Any = ...) -> Any:
        """See `Job.complete_in`."""
        run = self._controls
        return Job.complete_in(self, session) if run is None else run.complete_in(session, result)

    @property
    def state(self) -> State:
        """See `Job.state`."""
        run = self._controls
        return super().state if run is None else run.state

    @property
    def interruption(self) -> Interruption | None:
        """See `Job.interruption`."""
        run = self._controls
        return None if run is None else run.why_interrupted

    def checkpoint(self) -> None:
        """See `Job.checkpoint`."""
        run = self._controls
        if run is None:
            Job.checkpoint(self)
        elif (why := run.why_interrupted) is not None:
            raise JobInterrupted(why)

    def extend_timeout(self, by: timedelta) -> None:
        """See `Job.extend_timeout`."""
        run = self._controls
        if run is None:
            Job.extend_timeout(self, by)
        else:
            run.extend(check_duration("by", by))

    def report_progress(self, done: float, total: float | None = None, message: str | None = None) -> None:
        """See `Job.report_progress`."""
        run = self._controls
        if run is None:
            Job.report_progress(self, done, total, message)
        else:
            run.report_progress(done, total, message)

    def add_log(self, text: str, level: str = "info") -> None:
        """See `Job.add_log`."""
        run = self._controls
        if run is None:
            Job.add_log(self, text, level)
        else:
            run.add_log(text, level)

    @property
    def _controls(self) -> Controls | None:
        return vars(self).get("_run")

    def __reduce__(self) -> tuple[Any, ...]:
        """Copy and pickle the value as a plain `Job`, without the hold that the handler was given."""
        return copyreg.__newobj__, (Job,), _values(self)  # type: ignore[attr-defined]  # not in typeshed

    if not TYPE_CHECKING:  # a type checker need not know
        # Whatever compares, prints or replaces a dataclass asks for this, and so takes both for the same.
        __class__ = property(lambda _: Job)


class _ReadLater:
    """A field that is not known yet. Once it is known, Python finds it in the job and does not come here."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __get__(self, job: LazyJob[Any] | None, _owner: type) -> Any:
        if job is None:
            return self
        # Other threads may be doing the same. The source is removed last and asked for first.
        known = vars(job)
        source, read = known.get("_source"), known.get("_read")
        if read is not None:
            known.update({**read(source), **known})
            known.pop("_read", None)
            known.pop("_source", None)
        return known[self._name]


class _Requested(_ReadLater):
    """`cancel_requested`: while the handler runs, a request may come at any time."""

    def __get__(self, job: LazyJob[Any] | None, owner: type) -> Any:
        if job is None:
            return self
        run = job._controls
        if run is not None and run.is_cancel_requested:
            return True
        known = vars(job)
        return known[self._name] if self._name in known else super().__get__(job, owner)

    def __set__(self, job: LazyJob[Any], value: object) -> None:
        """Makes Python ask here even when the value is known; a job is frozen, so nobody sets it."""
        raise AttributeError(f"cannot set {self._name}")


for _field in fields(Job):
    setattr(LazyJob, _field.name, _ReadLater(_field.name))
setattr(LazyJob, "cancel_requested", _Requested("cancel_requested"))  # noqa: B010 - as the others

# What Python's own messages and tracebacks call it.
LazyJob.__name__ = LazyJob.__qualname__ = Job.__name__


def hand(job: Job[Any], run: Controls) -> None:
    """Give the job to its handler, with what only a handler may do with it."""
    vars(job)["_run"] = run


def take_back(job: Job[Any]) -> None:
    """End what `hand` began: the handler has returned."""
    vars(job).pop("_run", None)


def remember_worker(job: Job[Any], worker: object) -> None:
    """Note for which worker a job was stored: `Monque.result_of` rebuilds what its handler returns."""
    vars(job)["_worker"] = worker


def worker_of(job: Job[Any]) -> Any:
    """The worker for which a job was stored; None of a job that was read, or stored for a name."""
    return vars(job).get("_worker")


def completed(job: Job[T], now: datetime, kept: Kept | None = None) -> Job[T]:
    """Return a claimed job as it is after it was completed; the stamp may be milliseconds off."""
    after: LazyJob[T] = LazyJob.__new__(LazyJob)
    known = {"status": JobStatus.COMPLETED, "updated_at": now, "_read": _completed, "_source": job}
    known["data"] = job.data
    if kept is not None:
        known.update(result=kept.value, result_error=kept.error)
    object.__setattr__(after, "__dict__", known)
    return after


def _completed(job: Job[Any]) -> dict[str, Any]:
    unclaimed = {"claimed_by": None, "claimed_at": None, "locked_at": None, "last_heartbeat": None}
    return {**_values(job), **unclaimed, "fail_reason": None}


def _values(job: Job[Any]) -> dict[str, Any]:
    return {field.name: getattr(job, field.name) for field in fields(job)}
