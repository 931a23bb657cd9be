"""How a job is shown, and what may be done with it in its state; pure functions."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from datetime import datetime, timedelta
from hashlib import blake2b
from typing import Any

from bson import ObjectId

from monque import Attempt, Job, JobStatus
from monque.management.actions import Action
from monque.management.errors import BadRequestError, ChangedError
from monque.management.ops import Display, JobAction, OpsJob
from monque.management.texts import is_text
from monque.management.values import LARGEST, from_extended, iso, iso_or_none, milliseconds, text_of

# The rule of the core: an owner may miss so many heartbeats.
_MISSED_BEATS = 3

RIGHTS: Mapping[JobAction, Action] = {
    "cancel": Action.CANCEL,
    "retry": Action.RETRY,
    "reschedule": Action.RESCHEDULE,
    "run-now": Action.RESCHEDULE,
    "stop": Action.STOP,
    "priority": Action.PRIORITIZE,
    "delete": Action.DELETE,
}
"""The right that each action on one job needs."""

_FITTING: Mapping[Display, tuple[JobAction, ...]] = {
    "due": ("cancel", "reschedule", "priority", "delete"),
    "later": ("run-now", "cancel", "reschedule", "priority", "delete"),
    "retrying": ("run-now", "cancel", "reschedule", "priority", "delete"),
    "waiting": ("cancel", "delete"),
    "running": ("stop", "delete"),
    "stopping": ("stop", "delete"),
    "owner-silent": ("delete",),
    "completed": ("delete",),
    "failed": ("retry", "delete"),
    "cancelled": ("retry", "delete"),
}


def is_stale(job: Job[Any], *, now: datetime, tolerance: timedelta) -> bool:
    """Whether the owner of a processing job has been silent for longer than it may."""
    if job.status is not JobStatus.PROCESSING:
        return False
    if job.last_heartbeat is None:
        return True
    interval = job.heartbeat_interval or timedelta(0)
    return now - job.last_heartbeat > max(tolerance, _MISSED_BEATS * interval)


def display_of(job: Job[Any], *, now: datetime, stale: bool) -> Display:
    """The word by which people know the state of a job."""
    match job.status:
        case JobStatus.PENDING:
            return _pending(job, now)
        case JobStatus.PROCESSING:
            return "owner-silent" if stale else "stopping" if job.cancel_requested else "running"
        case JobStatus.COMPLETED:
            return "completed"
        case JobStatus.FAILED:
            return "failed"
        case JobStatus.CANCELLED:
            return "cancelled"
    return "waiting"  # a status that somebody else wrote: nothing runs it


def _pending(job: Job[Any], now: datetime) -> Display:
    if job.is_parked:
        return "waiting"
    if job.next_run_at is not None and job.next_run_at <= now:
        return "due"
    return "retrying" if job.fail_count else "later"


def actions_for(display: Display, rights: Collection[Action]) -> list[JobAction]:
    """What whoever has these rights may do with a job that is shown so."""
    return [action for action in _FITTING[display] if RIGHTS[action] in rights]


def id_text(job_id: object) -> str:
    """An id as text: 24 hex characters, or Extended JSON for what somebody else stored."""
    return str(job_id) if isinstance(job_id, ObjectId) else text_of(job_id)


def id_of(text: str) -> Any:
    """The id that such a text stands for.

    Raises:
        BadRequestError: It is neither.
    """
    if ObjectId.is_valid(text):
        return ObjectId(text)
    try:
        return from_extended(text)
    except ValueError:
        raise BadRequestError(
            f"an id has 24 hex characters, got {text!r:.60}",
            errors=[("id", "has 24 hex characters")],
            v1_text="Invalid job id",
        ) from None


def version_of(job: Job[Any] | OpsJob) -> str:
    """What an action with `If-Match` compares: status, attempt, failures and the next time, and nothing else.

    Heartbeats, progress and who asks do not change it.
    """
    next_run_at = job.next_run_at if isinstance(job, OpsJob) else iso_or_none(job.next_run_at)
    what = f"{job.status} {job.attempt} {job.fail_count} {next_run_at}"
    return blake2b(what.encode(errors="replace"), digest_size=6).hexdigest()


def refuse_changed(job: Job[Any], seen: str | None) -> None:
    """Refuse an action if the job has another version than the caller saw; None: they do not mind.

    Raises:
        ChangedError: It has.
    """
    if seen is not None and seen != version_of(job):
        raise ChangedError(f"The job has changed since you looked: it is {job.status} now.")


def stamps_of(job: Job[Any]) -> dict[str, Any]:
    """When its last run began and ended, how long it ran and waited; what is not known is left out."""
    started, finished = _run_of(job)
    stamps: dict[str, Any] = {}
    if started is not None:
        stamps["started_at"] = iso(started)
        # The due time of a job that runs again or was put off is not that of its last run.
        if job.next_run_at is not None and job.cron is None and started >= job.next_run_at:
            stamps["wait_ms"] = milliseconds(started - job.next_run_at)
    if finished is not None:
        stamps["finished_at"] = iso(finished)
        if started is not None and finished >= started:
            stamps["duration_ms"] = milliseconds(finished - started)
    return stamps


def _run_of(job: Job[Any]) -> tuple[datetime | None, datetime | None]:
    if job.status is JobStatus.PROCESSING:
        return job.claimed_at, None
    if job.status is JobStatus.COMPLETED:
        return job.started_at, job.finished_at
    if job.status in (JobStatus.FAILED, JobStatus.CANCELLED) and job.history:
        return job.history[-1].started_at, job.history[-1].finished_at
    return None, None


def plain_fields(job: Job[Any]) -> dict[str, Any]:
    """The fields that everybody who may read sees, without those that do not apply."""
    shown: dict[str, Any] = {
        "id": id_text(job.id),
        "name": job.name if is_text(job.name) else text_of(job.name),
        "status": str(job.status)
        if isinstance(job.status, JobStatus) or is_text(job.status)
        else text_of(job.status),
        "attempt": min(job.attempt, LARGEST),
        "fail_count": min(job.fail_count, LARGEST),
        **stamps_of(job),
    }
    times = {
        "next_run_at": job.next_run_at,
        "created_at": job.created_at,
        "updated_at": job.updated_at,
        "last_heartbeat": job.last_heartbeat,
        "expires_at": job.expires_at,
    }
    shown |= {field: iso(time) for field, time in times.items() if isinstance(time, datetime)}
    shown |= {field: value for field, value in _if_set(job).items() if value}
    if job.heartbeat_interval is not None:
        shown["heartbeat_interval_ms"] = milliseconds(job.heartbeat_interval)
    return shown


def _if_set(job: Job[Any]) -> dict[str, Any]:
    return {
        "schedule_id": None if job.schedule_id is None else id_text(job.schedule_id),
        "claimed_by": job.claimed_by if is_text(job.claimed_by) else None,
        "crash_count": min(job.crash_count, LARGEST),
        "traceparent": job.traceparent,
        "priority": job.priority,
        "snooze_count": min(job.snooze_count, LARGEST),
        "cancelled_by": job.cancelled_by,
    }


def attempt_fields(attempt: Attempt) -> dict[str, Any]:
    """An attempt without its error."""
    shown: dict[str, Any] = {
        "number": attempt.number,
        "outcome": attempt.outcome,
        "instance": attempt.instance,
    }
    times = {"started_at": attempt.started_at, "finished_at": attempt.finished_at}
    return shown | {field: iso(time) for field, time in times.items() if time is not None}


def success_of(job: Job[Any]) -> dict[str, Any] | None:
    """The last run of a completed job, from its stamps: a history keeps only what did not succeed."""
    if job.status is not JobStatus.COMPLETED or job.finished_at is None:
        return None
    shown: dict[str, Any] = {
        "number": job.attempt,
        "outcome": "completed",
        "finished_at": iso(job.finished_at),
    }
    return shown if job.started_at is None else {**shown, "started_at": iso(job.started_at)}


# Characters of a payload in a list.
_LONGEST_PREVIEW = 200


def preview(payload: Any) -> str:
    """The beginning of a payload as JSON."""
    text = json.dumps(payload, ensure_ascii=False, separators=(", ", ": "))
    return text if len(text) <= _LONGEST_PREVIEW else text[: _LONGEST_PREVIEW - 1] + "…"
