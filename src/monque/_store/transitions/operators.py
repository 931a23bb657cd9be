"""Transitions by operators, who change jobs and schedules by hand or by a program.

    pending           ──cancel─────────────────────────────────► cancelled
    failed, cancelled ──retry_by_operator──────────────────────► pending
    pending           ──set_priority, reschedule_by_operator,──► pending
                        run_now_by_operator, edit
    processing        ──request_cancel, end_after_run──────────► processing, and the owner learns of it

`change_schedule`, `pause_schedule`, `trigger_schedule` and `count_extra_job` leave a schedule where it is.
Only a change by which its end has come completes it.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from monque._store.document import CLAIM_FIELDS, EARLIEST, PARKED, Document, milliseconds, time_of
from monque._store.flows import entries_of, wait_of
from monque._store.transitions.transition import (
    AWAITS_BATCH,
    AWAITS_TURN,
    CRASH_FIELDS,
    FORGET_OLD_CRASHES,
    MOVE_COUNTS,
    NOT_REQUESTED,
    REQUESTED,
    RESULT_FIELDS,
    Transition,
    as_read,
    counter,
    said_by,
)
from monque._values.errors import ConfigurationError
from monque._values.status import JobStatus

# What runs leave behind for people: an operator's retry begins without it.
_RUN_FIELDS = (*RESULT_FIELDS, "progress", "log")

# What a job has that waits, or that somebody may send a signal to. One that was cancelled has none of these.
_WAIT_FIELDS = ("parked", "signals", "turn")

# The entry of a receive that has a timeout and is not over. Without a timeout only the signal ends the wait,
# and no operator can move it.
_ENDING: Document = {"k": "signal", "until": {"$type": "date"}, "over": {"$exists": False}}
_MOVABLE: Document = {"$nor": [{"parked.why": "signal", "steps": {"$not": {"$elemMatch": _ENDING}}}]}

# The run itself is to stop. The end of a schedule may also be asked for after its run.
_STOPPING = {"$and": [REQUESTED, {"$ne": ["$cancel.afterRun", True]}]}


def cancel(*, reason: str | None = None) -> Transition:
    """pending -> cancelled, by an operator; a *reason* is kept. A later call that is noted goes, too."""
    then: Document | list[Document]
    removed = ("again", *_WAIT_FIELDS)
    if reason is None:
        stamp = {"$currentDate": {"updatedAt": True}}
        then = {"$set": {"status": "cancelled"}, "$unset": dict.fromkeys(removed, ""), **stamp}
    else:
        said = {"status": "cancelled", "cancel": said_by("operator", reason), "updatedAt": "$$NOW"}
        then = [{"$set": said}, {"$unset": [*removed]}]
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


def retry_by_operator(
    *, spread: timedelta = timedelta(0), from_step: str | None = None, from_start: bool = False
) -> Transition:
    """failed or cancelled -> pending, due now (or at a random time within *spread*), all counts at zero.

    The run goes on behind the stored steps. *from_step* removes this one and those behind it, and applies
    only if it is there; *from_start* removes all of them, and the signals. A job that follows a batch waits
    for that again.
    `attempt` is not reset: it distinguishes the next claim from all earlier ones.
    """
    if from_start and from_step is not None:
        raise ConfigurationError("give from_step or from_start, not both")
    stored: Document = {} if from_step is None else {"steps": {"$elemMatch": {"n": {"$eq": from_step}}}}
    wait: Any = 0
    if spread:
        wait = {"$toLong": {"$multiply": [{"$rand": {}}, milliseconds(spread)]}}
    due, follows = {"$add": ["$$NOW", wait]}, {"$eq": [{"$type": "$afterBatch"}, "string"]}
    parked = {"why": "batch", "key": "$afterBatch", "since": "$$NOW", **({"dueAt": due} if spread else {})}
    return Transition(
        to=JobStatus.PENDING,
        when={"status": {"$in": ["failed", "cancelled"]}, **stored},
        then=[
            {
                "$set": {
                    "status": "pending",
                    "failCount": 0,
                    "nextRunAt": {"$cond": [follows, PARKED, due]},
                    "parked": {"$cond": [follows, {"$mergeObjects": [parked]}, "$$REMOVE"]},
                    "updatedAt": "$$NOW",
                }
            },
            # `movedTo` marks a later time as intended, so that nobody repairs it (see `schedules.py`).
            *([{"$set": {"movedTo": "$nextRunAt"}}] if spread else []),
            *([_redone(from_step)] if from_start or stored else []),
            *([{"$unset": ["steps", "signals"]}] if from_start else []),
            {"$unset": [*CLAIM_FIELDS, *CRASH_FIELDS, *_RUN_FIELDS, "failReason", "snoozeCount", "cancel"]},
            # Whoever puts a schedule back wants it to run, also if it was paused.
            {"$unset": ["schedule.pausedAt", "schedule.triggeredAt", "turn"]},
        ],
    )


def _redone(from_step: str | None) -> Document:
    """Count that steps are done again, and keep those before *from_step*."""
    fields: Document = {"redo": {"$add": [counter("$redo"), 1]}}
    if from_step is not None:
        names = {"$map": {"input": "$steps", "in": "$$this.n"}}
        place = {"$indexOfArray": [names, {"$literal": from_step}]}
        before = {"$slice": ["$steps", place]}
        fields["steps"] = {"$cond": [{"$eq": [place, 0]}, "$$REMOVE", before]}
    return {"$set": fields}


def set_priority(*, priority: int) -> Transition:
    """pending -> pending, more or less urgent; a normal job has no such field."""
    change: Document = {"$set": {"priority": priority}} if priority else {"$unset": {"priority": ""}}
    return Transition(
        to=JobStatus.PENDING,
        when={"status": "pending"},
        then={**change, "$currentDate": {"updatedAt": True}},
    )


def reschedule_by_operator(*, run_at: datetime) -> Transition:
    """pending -> pending, at another time. A wait ends at that time."""
    return Transition(to=JobStatus.PENDING, when={"status": "pending", **_MOVABLE}, then=_moved_to(run_at))


def edit(
    job: Mapping[str, Any], *, data: Any = ..., run_at: datetime | None = None, priority: int | None = None
) -> Transition:
    """pending -> pending, with another payload, time or priority, unless somebody changed the *job*.

    With another payload, one that waits for its turn may have another line: it meets the gate again. One that
    has steps is in the middle of its run, and keeps its payload.
    """
    keeps_steps = {} if data is ... else {"steps": {"$exists": False}}
    movable = {} if run_at is None else _MOVABLE
    fields: Document = {} if data is ... else {"data": {"$literal": data}}
    if priority:
        fields["priority"] = priority
    stages: list[Document] = [{"$set": {**fields, "updatedAt": "$$NOW"}}]
    if priority == 0:
        stages.append({"$unset": ["priority"]})
    if run_at is not None:
        stages += _moved_to(run_at)
    elif data is not ...:
        left = {"nextRunAt": "$$NOW", "parked": "$$REMOVE"}
        out = {field: {"$cond": [AWAITS_TURN, value, f"${field}"]} for field, value in left.items()}
        stages += [{"$set": out}, {"$unset": ["turn"]}]
    read = as_read(job, ("updatedAt", "nextRunAt", "attempt"))
    return Transition(
        to=JobStatus.PENDING,
        when={**read, "status": "pending", "repeatInterval": None, **keeps_steps, **movable},
        then=stages,
    )


def run_now_by_operator() -> Transition:
    """pending, and not due yet -> pending, due now by the server's clock. A parked job waits for no time."""
    timed = {"$and": [{"$gt": ["$nextRunAt", "$$NOW"]}, {"$ne": ["$nextRunAt", PARKED]}]}
    waits = {"$or": [timed, {"$and": [AWAITS_BATCH, {"$gt": ["$parked.dueAt", "$$NOW"]}]}]}
    return Transition(
        to=JobStatus.PENDING,
        when={"status": "pending", "$expr": waits, **_MOVABLE},
        then=_moved_to("$$NOW"),
    )


def is_movable(document: Mapping[str, Any]) -> bool:
    """Return whether `_MOVABLE` matches a pending job."""
    wait = wait_of(document)
    if wait is None or wait.why != "signal":
        return True
    receives = [each for each in entries_of(document) if each["k"] == "signal" and "over" not in each]
    return any(time_of(each, "until") for each in receives)


def _moved_to(run_at: Any) -> list[Document]:
    moved = {"$cond": [MOVE_COUNTS, run_at, "$$REMOVE"]}
    return [
        FORGET_OLD_CRASHES,
        {
            "$set": {
                "nextRunAt": {"$cond": [AWAITS_BATCH, "$nextRunAt", run_at]},
                "parked": _waiting_until(run_at),
                "movedTo": moved,
                "steps": _ending_at(run_at),
                "updatedAt": "$$NOW",
            }
        },
        {"$unset": ["turn"]},  # others in its line may run before its new time
    ]


def _waiting_until(run_at: Any) -> Document:
    """The wait of a job that is moved: it goes on for a batch. In a line it ends: the gate comes then."""
    later = {"$mergeObjects": ["$parked", {"dueAt": run_at}]}
    return {"$cond": [AWAITS_BATCH, later, {"$cond": [AWAITS_TURN, "$$REMOVE", "$parked"]}]}


def _ending_at(run_at: Any) -> Document:
    """The steps, of which the wait that the job is in ends at *run_at*."""
    # A job may be due before the timeout of its receive, because it expires.
    is_waited_for = {
        "$and": [
            {"$eq": [{"$type": "$$this.until"}, "date"]},
            {"$eq": [{"$type": "$$this.over"}, "missing"]},
            {"$or": [{"$eq": ["$$this.k", "$parked.why"]}, {"$eq": ["$$this.until", "$nextRunAt"]}]},
        ]
    }
    ended = {"$cond": [is_waited_for, {"$mergeObjects": ["$$this", {"until": run_at}]}, "$$this"]}
    is_it = {"$and": [{"$eq": [{"$type": "$parked"}, "object"]}, {"$isArray": "$steps"}]}
    is_waiting = {"$and": [is_it, {"$not": [AWAITS_BATCH]}]}
    return {"$cond": [is_waiting, {"$map": {"input": "$steps", "in": ended}}, "$steps"]}


# What a schedule may be declared without: None removes it. A payload of None is one.
_REMOVABLE = ("policy", "priority", "onFailure", "schedule", "cancel")


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
        when={"status": "processing", **NOT_REQUESTED},
        then=[{"$set": {"cancel": said, "updatedAt": "$$NOW"}}],
    )


def _stays(schedule: Mapping[str, Any]) -> JobStatus:
    """The state that an operator's change leaves alone. Others may have stored something else there."""
    return JobStatus.PROCESSING if schedule["status"] == "processing" else JobStatus.PENDING
