"""From a document to the `Job` that it describes, each of whose fields is read when somebody asks for it.

Most handlers look at the data of their job and at nothing else. Where thousands of jobs run in a second,
making the other values of each would cost as much as all the rest.
"""

from __future__ import annotations

import copyreg
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields
from datetime import datetime
from operator import attrgetter, itemgetter
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar, get_args

from monque._store.document import (
    PAYLOAD_SIZE,
    attempt_of,
    attempts_of,
    cancel_of,
    cancel_reason_of,
    claimed_at_of,
    count_of,
    duration_of,
    expires_at_of,
    is_cancel_requested,
    is_parked,
    made_aware,
    priority_of,
    result_error_of,
    status_of,
    stuck_since,
    text_of,
    time_of,
    turn_of,
)
from monque._store.flows import parent_of, signals_of, steps_of, wait_of
from monque._store.progress import log_of, progress_of
from monque._values.job import Controls, Job
from monque._values.status import CancelledBy, Enqueued, JobStatus
from monque._workers.results import Kept

T = TypeVar("T")


Read: TypeAlias = Mapping[str, Callable[[Any], Any]]
"""By the fields of a job, what reads each from what the job was made of."""


def reader(attempts: Callable[[Mapping[str, Any]], int]) -> Read:
    """Return what reads the fields of a job; *attempts* says how often the job of a document is tried."""
    return {**_READERS, "max_attempts": attempts}


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


def to_listed(document: Mapping[str, Any], read: Read) -> Job[Any]:
    """Return the job that a document describes, for those who look at most of its fields.

    Most fields of a document are missing. What follows from that is known at once: to read it one by one
    takes longer than all the rest of a row.
    """
    job, usual = to_job(document, read), _USUAL.copy()
    for field in document:
        for name in _READ_FROM.get(field, ()):
            usual.pop(name, None)
    vars(job).update(usual)
    return job


def _stored(field: str) -> Callable[[Mapping[str, Any]], Any]:
    return lambda document: document.get(field)


def _time(field: str) -> Callable[[Mapping[str, Any]], Any]:
    return lambda document: time_of(document, field)


def _count(field: str) -> Callable[[Mapping[str, Any]], Any]:
    return lambda document: count_of(document, field)


def _cancelled_by(document: Mapping[str, Any]) -> Any:
    if document.get("status") != "cancelled":
        return None
    # Only operators cancel without leaving a record: those who gave no reason, and other implementations.
    by = cancel_of(document).get("by")
    return by if by in get_args(CancelledBy) else "operator"


# Each is read when somebody asks for it, and then known.
_READERS: Mapping[str, Callable[[Mapping[str, Any]], Any]] = {
    "id": itemgetter("_id"),
    "name": _stored("name"),
    "status": status_of,
    "next_run_at": lambda document: None if is_parked(document) else time_of(document, "nextRunAt"),
    "is_parked": is_parked,
    "priority": priority_of,
    "fail_count": _count("failCount"),
    "fail_reason": _stored("failReason"),
    "snooze_count": _count("snoozeCount"),
    "history": attempts_of,
    "cron": _stored("repeatInterval"),
    "timezone": _stored("timezone"),
    "run_count": _count("runCount"),
    "last_run_at": _time("lastRunAt"),
    "schedule_id": _stored("scheduleId"),
    "planned_for": _time("plannedFor"),
    "unique_key": _stored("uniqueKey"),
    "claimed_by": _stored("claimedBy"),
    "claimed_at": claimed_at_of,
    "locked_at": _time("lockedAt"),
    "last_heartbeat": _time("lastHeartbeat"),
    "heartbeat_interval": lambda document: duration_of(document.get("heartbeatInterval")),
    "attempt": attempt_of,
    "crash_count": _count("crashCount"),
    "started_at": _time("startedAt"),
    "finished_at": _time("finishedAt"),
    "traceparent": lambda document: text_of(document, "traceparent"),
    "expires_at": expires_at_of,
    "stuck_since": stuck_since,
    "cancel_requested": is_cancel_requested,
    "cancel_requested_at": lambda document: (
        time_of(cancel_of(document), "at") if is_cancel_requested(document) else None
    ),
    "cancel_reason": cancel_reason_of,
    "cancelled_by": _cancelled_by,
    "enqueued": lambda _: None,
    "progress": progress_of,
    "log": log_of,
    "result": lambda document: made_aware(document.get("result")),
    "result_error": result_error_of,
    "steps": steps_of,
    "signals": signals_of,
    "waits_for": wait_of,
    "batch": lambda document: text_of(document, "batch"),
    "parent": parent_of,
    "turn": turn_of,
    "payload_size": _stored(PAYLOAD_SIZE),
    "created_at": _time("createdAt"),
    "updated_at": _time("updatedAt"),
}


class _Empty(Mapping[str, Any]):
    """A document without fields, which notes those that are looked for."""

    def __init__(self) -> None:
        self.fields: set[str] = set()

    def __getitem__(self, field: str) -> Any:
        self.fields.add(field)
        raise KeyError(field)

    def __iter__(self) -> Iterator[str]:
        raise NotImplementedError

    __len__ = __iter__  # type: ignore[assignment]  # a reader looks for single fields


_USUAL: dict[str, Any] = {}
_READ_FROM: dict[str, list[str]] = {}
"""The fields of a job that may have another value than the usual one if a document has this field."""

for _name, _read in _READERS.items():
    if _name != "id":
        # Invariant: a reader that looks for these fields alone, and finds none, returns the same each time.
        _USUAL[_name] = _read(_empty := _Empty())
        for _of in _empty.fields:
            _READ_FROM.setdefault(_of, []).append(_name)


class LazyJob(Job[T]):
    """Behaves like a `Job` in everything: comparing, hashing, printing, copying, `replace`.

    Its attributes are those fields that are known, `_read` and `_source` for the others, `_run` while its
    handler runs, and `_worker` if it was stored for one.
    """

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
        # Other threads may be doing the same, and find the same.
        known = vars(job)
        value = known[self._name] = known["_read"][self._name](known["_source"])
        return value


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


def attach(job: Job[Any], run: Controls) -> None:
    """Give the job to its handler, with what only a handler may do with it."""
    vars(job)["_run"] = run


def detach(job: Job[Any]) -> None:
    """End what `attach` began: the handler has returned."""
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
    known = {"status": JobStatus.COMPLETED, "updated_at": now, "_read": _COMPLETED, "_source": job}
    known["data"] = job.data
    if kept is not None:
        known.update(result=kept.value, result_error=kept.error)
    object.__setattr__(after, "__dict__", known)
    return after


_UNCLAIMED = ("claimed_by", "claimed_at", "locked_at", "last_heartbeat", "fail_reason")
_COMPLETED: Read = {
    **{field.name: attrgetter(field.name) for field in fields(Job)},
    **dict.fromkeys(_UNCLAIMED, lambda _: None),
}


def _values(job: Job[Any]) -> dict[str, Any]:
    return {field.name: getattr(job, field.name) for field in fields(job)}
