"""What people do to jobs and schedules, by hand or by a program.

    pending           ──cancel─────────────────────────────────► cancelled
    failed, cancelled ──retry_by_operator──────────────────────► pending
    pending           ──set_priority, reschedule_by_operator,──► pending
                        run_now_by_operator
    processing        ──request_cancel, end_after_run──────────► processing, and the owner learns of it

`change_schedule`, `pause_schedule`, `trigger_schedule` and `count_extra_job` leave a schedule where it is.
Only a change by which its end has come completes it.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from monque._store.document import CLAIM_FIELDS, EARLIEST, PARKED, Document, milliseconds
from monque._store.transitions.transition import (
    CRASH_FIELDS,
    FORGET_OLD_CRASHES,
    MOVE_COUNTS,
    REQUESTED,
    RESULT_FIELDS,
    Transition,
    as_read,
    counter,
    said_by,
)
from monque._values.status import JobStatus

# What runs leave behind for people: an operator's retry begins without it.
_RUN_FIELDS = (*RESULT_FIELDS, "progress", "log")

# The run itself is to stop. The end of a schedule may also be asked for after its run.
_STOPPING = {"$and": [REQUESTED, {"$ne": ["$cancel.afterRun", True]}]}


def cancel(*, reason: str | None = None) -> Transition:
    """pending -> cancelled, by an operator; a *reason* is kept. A later call that is noted goes, too."""
    then: Document | list[Document]
    if reason is None:
        stamp = {"$currentDate": {"updatedAt": True}}
        then = {"$set": {"status": "cancelled"}, "$unset": {"again": ""}, **stamp}
    else:
        said = {"status": "cancelled", "cancel": said_by("operator", reason), "updatedAt": "$$NOW"}
        then = [{"$set": said}, {"$unset": ["again"]}]
    return Transition(to=JobStatus.CANCELLED, when={"status": "pending"}, then=then)


def request_cancel(*, reason: str | None = None) -> Transition:
    """processing -> processing, with the request of an operator to stop the run.

    A second request changes nothing: the first one stays, with its time and its reason. One that was to end a
    schedule after its run makes way.
    """
    return Transition(
        to=JobStatus.PROCESSING,
        when={"status": "processing", "$nor": [{"$expr": _STOPPING}]},
        then=[{"$set": {"cancel": said_by("operator", reason, unless=_STOPPING), "updatedAt": "$$NOW"}}],
    )


def stopping() -> Document:
    """Match the running jobs whose end somebody has asked for."""
    return {"status": "processing", "$expr": _STOPPING}


def stuck(*, asked_before: datetime) -> Document:
    """Match jobs that still run though their owner told them to stop, or somebody asked for it long ago.

    The mark of the owner counts only for the claim that it names (see `stuck_since`).
    """
    same_claim = [{"$eq": ["$stuck.by", "$claimedBy"]}, {"$eq": ["$stuck.attempt", "$attempt"]}]
    asked = {"$and": [stopping(), {"cancel.at": {"$gt": EARLIEST, "$lt": asked_before}}]}
    marked = {"status": "processing", "stuck.since": {"$type": "date"}, "$expr": {"$and": same_claim}}
    return {"$or": [asked, marked]}


def retry_by_operator(*, spread: timedelta = timedelta(0)) -> Transition:
    """failed or cancelled -> pending, due now (or at a random time within *spread*), all counts at zero.

    `attempt` is not reset: it distinguishes the next claim from all earlier ones.
    """
    wait: Any = 0
    if spread:
        wait = {"$toLong": {"$multiply": [{"$rand": {}}, milliseconds(spread)]}}
    return Transition(
        to=JobStatus.PENDING,
        when={"status": {"$in": ["failed", "cancelled"]}},
        then=[
            {
                "$set": {
                    "status": "pending",
                    "failCount": 0,
                    "nextRunAt": {"$add": ["$$NOW", wait]},
                    "updatedAt": "$$NOW",
                }
            },
            # `movedTo` marks a later time as intended, so that nobody repairs it (see `schedules.py`).
            *([{"$set": {"movedTo": "$nextRunAt"}}] if spread else []),
            {"$unset": [*CLAIM_FIELDS, *CRASH_FIELDS, *_RUN_FIELDS, "failReason", "snoozeCount", "cancel"]},
            # Whoever puts a schedule back wants it to run, also if it was paused.
            {"$unset": ["schedule.pausedAt", "schedule.triggeredAt"]},
        ],
    )


def set_priority(*, priority: int) -> Transition:
    """pending -> pending, more or less urgent; a normal job has no such field."""
    change: Document = {"$set": {"priority": priority}} if priority else {"$unset": {"priority": ""}}
    return Transition(
        to=JobStatus.PENDING,
        when={"status": "pending"},
        then={**change, "$currentDate": {"updatedAt": True}},
    )


def reschedule_by_operator(*, run_at: datetime) -> Transition:
    """pending -> pending, at another time."""
    return Transition(to=JobStatus.PENDING, when={"status": "pending"}, then=_moved_to(run_at))


def run_now_by_operator() -> Transition:
    """pending, and not due yet -> pending, due now by the server's clock. A parked job waits for no time."""
    waits = {"$and": [{"$gt": ["$nextRunAt", "$$NOW"]}, {"$ne": ["$nextRunAt", PARKED]}]}
    return Transition(
        to=JobStatus.PENDING, when={"status": "pending", "$expr": waits}, then=_moved_to("$$NOW")
    )


def _moved_to(run_at: Any) -> list[Document]:
    moved = {"$cond": [MOVE_COUNTS, run_at, "$$REMOVE"]}
    return [
        FORGET_OLD_CRASHES,
        {"$set": {"nextRunAt": run_at, "movedTo": moved, "updatedAt": "$$NOW"}},
    ]


# What a schedule may be declared without: None removes it. A payload of None is one.
_REMOVABLE = ("policy", "priority", "schedule", "cancel")


def change_schedule(schedule: Mapping[str, Any], *, changes: Document) -> Transition:
    """pending or processing -> the same, with another cron, zone, payload, policy, priority or settings.

    It applies only if nobody changed the schedule since it was read. A running one keeps its claim, and
    its settlement goes by the new values. A waiting one whose end has come by the change is completed.
    """
    removed = {field: "" for field in _REMOVABLE if changes.get(field, ...) is None}
    kept = {field: value for field, value in changes.items() if field not in removed}
    then: Document = {"$set": kept, "$unset": removed, "$currentDate": {"updatedAt": True}}
    return Transition(
        to=JobStatus.COMPLETED if changes.get("status") == "completed" else _stays(schedule),
        when=as_read(schedule, ("status", "updatedAt", "repeatInterval", "schedule")),
        then={operator: fields for operator, fields in then.items() if fields},
    )


def pause_schedule(schedule: Mapping[str, Any]) -> Transition:
    """pending -> parked; processing -> processing, and parked after the run."""
    parked = {"nextRunAt": PARKED} if schedule["status"] == "pending" else {}
    return Transition(
        to=_stays(schedule),
        when=as_read(schedule, ("status", "updatedAt", "repeatInterval", "schedule")),
        then=[{"$set": {"schedule.pausedAt": "$$NOW", **parked, "updatedAt": "$$NOW"}}],
    )


def trigger_schedule(schedule: Mapping[str, Any]) -> Transition:
    """pending -> pending, due now; processing -> processing, and due again when the run has ended."""
    is_running = schedule["status"] == "processing"
    now = {"schedule.triggeredAt": "$$NOW"} if is_running else {"nextRunAt": "$$NOW", "movedTo": "$$NOW"}
    return Transition(
        to=_stays(schedule),
        when=as_read(schedule, ("status", "repeatInterval")),
        then=[*([] if is_running else [FORGET_OLD_CRASHES]), {"$set": {**now, "updatedAt": "$$NOW"}}],
    )


def count_extra_job(schedule: Mapping[str, Any]) -> Transition:
    """pending or processing -> the same, with one more job that it has stored."""
    counted = {"runCount": {"$add": [counter("$runCount"), 1]}, "lastRunAt": "$$NOW", "updatedAt": "$$NOW"}
    return Transition(
        to=_stays(schedule),
        when={"status": {"$in": ["pending", "processing"]}},
        then=[{"$set": counted}],
    )


def end_after_run() -> Transition:
    """processing -> processing, with the request to cancel the schedule when its run has ended."""
    said = {"$mergeObjects": [{"at": "$$NOW", "by": "operator", "afterRun": True}]}
    return Transition(
        to=JobStatus.PROCESSING,
        when={"status": "processing", "$nor": [{"$expr": REQUESTED}]},
        then=[{"$set": {"cancel": said, "updatedAt": "$$NOW"}}],
    )


def _stays(schedule: Mapping[str, Any]) -> JobStatus:
    """The state that an operator's change leaves alone. Others may have stored something else there."""
    return JobStatus.PROCESSING if schedule["status"] == "processing" else JobStatus.PENDING
