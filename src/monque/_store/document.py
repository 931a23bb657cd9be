"""The stored form of a job: fields, and how they are read; documents may hold anything."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields
from datetime import MAXYEAR, MINYEAR, UTC, datetime, timedelta
from typing import Any, TypeAlias, TypedDict, cast

import bson
from bson import Int64, ObjectId
from bson.codec_options import CodecOptions, DatetimeConversion

from monque._values.history import Attempt, HistoryEntry
from monque._values.rules import HIGHEST_PRIORITY, NO_TIME
from monque._values.settings import Policy
from monque._values.status import CancelledBy, Interruption, JobStatus

Document: TypeAlias = dict[str, Any]


class Claim(TypedDict, total=False):
    """A claimed document. Its own times are naive, and UTC, as `NAIVE_CODEC_OPTIONS` reads them.

    The times inside of `data` are aware. Others may have written the document: any field but `_id` may be
    missing, and one of type `Any` may hold anything.
    """

    _id: Any
    name: Any
    data: Any
    status: Any
    nextRunAt: Any
    claimedBy: str
    attempt: int
    failCount: Any
    failReason: Any
    crashCount: Any
    repeatInterval: Any
    timezone: Any
    uniqueKey: Any
    again: Any
    cancel: Any
    policy: Any
    priority: Any
    snoozeCount: Any
    history: Any
    result: Any
    resultError: Any
    progress: Any
    log: Any
    schedule: Any
    runCount: Any
    skipCount: Any
    recentRuns: Any
    movedTo: Any


class Entry(TypedDict):
    """A pending job as its entry in the index has it; the time is naive, and UTC."""

    _id: Any
    name: str
    nextRunAt: datetime


# A claim writes these fields, and settling removes them. `heartbeatInterval` stays, as the TypeScript
# implementation leaves it.
CLAIM_FIELDS = ("claimedBy", "claimedAt", "lockedAt", "lastHeartbeat")

# How large the payload is that a page of jobs was read without. It is never stored.
PAYLOAD_SIZE = "_payloadSize"

# The changed document would be larger than MongoDB allows: BSONObjectTooLarge, and the codes of updates; the
# last one is that of MongoDB 8 for a sharded collection.
TOO_LARGE = (10334, 17419, 17420, 8375908)

# The wire format has counts and intervals as int32.
LARGEST_INT32 = 2**31 - 1

# The W3C trace context of the caller that stored the job. Nothing removes it: each run links to it.
TRACE_FIELDS = ("traceparent", "tracestate")

# The W3C asks for at least this many characters to be passed on. A longer one is left out: it would be stored
# with every job.
_LONGEST_TRACESTATE = 512

# Aware datetimes, whatever the user's client is set to. A date that Python cannot hold (the year 10000) is
# clamped, and bytes that are not UTF-8 are replaced: as errors, one such job would stop all others.
CODEC_OPTIONS: CodecOptions[Document] = CodecOptions(
    tz_aware=True,
    tzinfo=UTC,
    datetime_conversion=DatetimeConversion.DATETIME_CLAMP,
    unicode_decode_error_handler="replace",
)

# Aware datetimes cost the driver more than all the rest of decoding a job. So claims are read with naive
# ones: a date in BSON is always UTC. `made_aware` adds the zone to those that users see.
NAIVE_CODEC_OPTIONS: CodecOptions[Document] = CODEC_OPTIONS.with_options(tz_aware=False, tzinfo=None)

# Keeps a date that Python cannot represent as it is: for values by which a document must be found again.
EXACT_CODEC_OPTIONS: CodecOptions[Document] = CODEC_OPTIONS.with_options(
    datetime_conversion=DatetimeConversion.DATETIME_AUTO
)

# MongoDB compares a date with dates only: with this lower bound a query leaves out texts, numbers and so on.
EARLIEST = datetime.min.replace(tzinfo=UTC)

# No implementation claims a job with this time. A parked job is pending, and waits for whatever will give it
# another one.
PARKED = NO_TIME

_EPOCH = datetime.fromtimestamp(0, UTC)
_NAIVE_EPOCH = _EPOCH.replace(tzinfo=None)


def made_aware(value: Any) -> Any:
    """Add UTC to the naive datetimes in a value; dicts and lists are changed in place."""
    kind = type(value)
    if kind is datetime:
        # This takes a tenth of the time of `replace`.
        return value if value.tzinfo is not None else _EPOCH + (value - _NAIVE_EPOCH)
    if kind is dict or kind is list:
        for place, entry in value.items() if kind is dict else enumerate(value):
            if type(entry) in _HOLD_DATES:
                value[place] = made_aware(entry)
    return value


_HOLD_DATES = frozenset({datetime, dict, list})


def as_claim(document: Document) -> Claim:
    """A document that was read with aware times as a claim: its own times become naive."""
    times = {
        field: value.replace(tzinfo=None) for field, value in document.items() if type(value) is datetime
    }
    return cast("Claim", {**document, **times})


def new_document(
    *,
    name: str,
    data: Any,
    run_at: datetime,
    now: datetime,
    unique_key: str | None = None,
    has_window: bool = False,
    policy: Document | None = None,
    priority: int = 0,
    schedule: Document | None = None,
) -> Document:
    """A new pending job. Fields that do not apply are left out, never null."""
    document: Document = {
        "_id": ObjectId(),
        "name": name,
        "data": data,
        "status": "pending",
        "nextRunAt": run_at,
        "failCount": 0,
        "createdAt": now,
        "updatedAt": now,
    }
    if unique_key is not None:
        document["uniqueKey"] = unique_key
        if has_window:
            document["windowKey"] = unique_key
    if schedule is not None:
        document |= schedule
    if policy is not None:
        document["policy"] = policy
    if priority:
        document["priority"] = priority
    return document


def key_of(job_id: Any) -> bytes:
    """An id as a key for dicts and sets; two keys are equal exactly if MongoDB treats the ids as equal.

    Any BSON value but an array may be an `_id`. Some cannot be hashed (a document), some are equal in
    Python only (`1` and `True`). No BSON document of this shape has the twelve bytes of an `ObjectId`.
    """
    return job_id.binary if type(job_id) is ObjectId else bson.encode({"_id": job_id})


def is_inexact(value: object) -> bool:
    """Whether a value that was read may differ from the stored one.

    Dates that Python cannot represent were clamped, and bytes that are not UTF-8 were replaced.
    """
    if isinstance(value, datetime):
        return value.year in (MINYEAR, MAXYEAR)
    if isinstance(value, Mapping):
        return any(is_inexact(each) for each in value.values())
    return isinstance(value, str) and "\ufffd" in value


def size_of(document: Mapping[str, Any]) -> int:
    """The size of a document as BSON, in bytes."""
    return len(bson.encode(document))


def failed_occurrence(
    schedule: Mapping[str, Any], *, reason: str, fail_count: int, now: datetime
) -> Document:
    """A run of a schedule that was given up, as a job of its own that can be inspected and retried.

    Its id follows from the claim, so a second try, or a second instance that recovers the same run, stores
    the same document. A schedule that was written by hand may lack fields.
    """
    return {
        "_id": _occurrence_id(schedule),
        "name": schedule.get("name"),
        "data": schedule.get("data"),
        "status": "failed",
        "nextRunAt": time_of(schedule, "nextRunAt") or now,
        "failCount": fail_count,
        "failReason": reason,
        "createdAt": now,
        "updatedAt": now,
        "scheduleId": schedule["_id"],
        "attempt": attempt_of(schedule),
        # An operator may retry it: what the call said of its runs still counts.
        **{field: schedule[field] for field in ("policy", "priority") if field in schedule},
        **trace_of(schedule),
    }


def _occurrence_id(schedule: Mapping[str, Any]) -> ObjectId:
    locked_at = made_aware(schedule.get("lockedAt"))
    claimed_at = int(locked_at.timestamp()) % 2**32 if isinstance(locked_at, datetime) else 0
    run = bson.encode({"_id": schedule["_id"], "attempt": attempt_of(schedule)})
    return ObjectId(claimed_at.to_bytes(4, "big") + hashlib.blake2b(run, digest_size=8).digest())


def as_settled(
    claim: Mapping[str, Any], status: JobStatus, reason: str | None, later: Mapping[str, Any]
) -> Document:
    """The document as our settlement left it, made from a *later* one that others have changed since.

    *reason* says why the run failed; None if it succeeded.
    """
    kept = {field: value for field, value in later.items() if field not in (*CLAIM_FIELDS, "failReason")}
    failure = {} if reason is None else {"failCount": failures_with(claim), "failReason": reason}
    return {**kept, **failure, "status": status.value, "attempt": attempt_of(claim)}


def cancelled_occurrence(claim: Mapping[str, Any], reason: str | None, after: Mapping[str, Any]) -> Document:
    """The run of a schedule that its handler ended, as it is reported; nothing of it is stored."""
    run = {field: value for field, value in claim.items() if field not in CLAIM_FIELDS}
    changed = {field: after[field] for field in ("history", "updatedAt") if field in after}
    record = {"by": "handler"} if reason is None else {"by": "handler", "reason": reason}
    return {**run, **changed, "status": "cancelled", "cancel": record}


def is_recurring(document: Mapping[str, Any]) -> bool:
    """Whether the job is a schedule."""
    return document.get("repeatInterval") is not None


def has_again(document: Mapping[str, Any]) -> bool:
    """Whether a later call with the same key is noted in the job; as `transitions` queries for it."""
    if "again" not in document:
        return False
    again = document["again"]
    return isinstance(again, Mapping) or (
        isinstance(again, list) and any(isinstance(each, Mapping) for each in again)
    )


def is_cancel_requested(document: Mapping[str, Any]) -> bool:
    """Whether an operator wants the job to stop, or wanted it.

    The `cancel` of a handler or of an expiry is a record of how the job ended, not a request.
    """
    cancel = document.get("cancel")
    return isinstance(cancel, Mapping) and cancel.get("by") == "operator"


def cancel_requested_at(document: Mapping[str, Any]) -> datetime | None:
    """When an operator asked for the end of the job; None if nobody did."""
    return time_of(document["cancel"], "at") if is_cancel_requested(document) else None


def is_ended_after_run(document: Mapping[str, Any]) -> bool:
    """Whether an operator wants the schedule to end when its run has, without stopping the run."""
    return is_cancel_requested(document) and document["cancel"].get("afterRun") is True


def with_request(claim: Claim, cancel: Any) -> Claim:
    """The claim as it is since an operator has asked for its end."""
    return cast("Claim", {**claim, "cancel": cancel})


def with_stuck(claim: Claim, why: Interruption, since: datetime) -> Claim:
    """The claim as it is since its handler is stuck: told to stop at *since*, it still runs."""
    mark = {"why": why, "since": since, "by": claim.get("claimedBy"), "attempt": attempt_of(claim)}
    return cast("Claim", {**claim, "stuck": mark})


def stuck_since(document: Mapping[str, Any]) -> datetime | None:
    """When the handler was told to stop that is stuck now; None if none is.

    Nobody removes the mark when the run ends: it counts for the claim that it names, and for no later one.
    """
    mark = document.get("stuck")
    if not isinstance(mark, Mapping) or status_of(document) is not JobStatus.PROCESSING:
        return None
    named = mark.get("by"), mark.get("attempt")
    return time_of(mark, "since") if named == (document.get("claimedBy"), document.get("attempt")) else None


def cancelled_by(document: Mapping[str, Any]) -> CancelledBy | None:
    """Who cancelled the job; None if it is not cancelled.

    Only operators cancel without leaving a record: those who gave no reason, and other implementations.
    """
    if status_of(document) is not JobStatus.CANCELLED:
        return None
    cancel = document.get("cancel")
    by = cancel.get("by") if isinstance(cancel, Mapping) else None
    return by if by in ("handler", "expiry") else "operator"


def cancel_reason_of(document: Mapping[str, Any]) -> str | None:
    """Why the job was cancelled, or is to be; None if nobody gave a reason."""
    cancel = document.get("cancel")
    reason = cancel.get("reason") if isinstance(cancel, Mapping) else None
    return reason if isinstance(reason, str) else None


def has_result(document: Mapping[str, Any]) -> bool:
    """Whether a result is stored; it may be null."""
    return "result" in document


def result_error_of(document: Mapping[str, Any]) -> str | None:
    """Why the result of the job is not stored; None if it is, or if nobody wanted it to be."""
    error = document.get("resultError")
    return error if isinstance(error, str) else None


def expires_at_of(document: Mapping[str, Any]) -> datetime | None:
    """When the job is not worth running any more, if the call that stored it said so. A schedule has none."""
    policy = document.get("policy")
    if not isinstance(policy, Mapping) or is_recurring(document):
        return None
    return time_of(policy, "expiresAt")


def due_of(document: Mapping[str, Any]) -> datetime | None:
    """When the job is due; None if somebody stored something that is not a date."""
    return time_of(document, "nextRunAt")


def is_parked(document: Mapping[str, Any]) -> bool:
    """Whether a pending job has no time yet."""
    return document.get("status") == "pending" and due_of(document) == PARKED


def unique_key_of(document: Mapping[str, Any]) -> Any:
    """The unique key as it is stored; None without one."""
    return document.get("uniqueKey")


def any_has_key(documents: Iterable[Mapping[str, Any]]) -> bool:
    """Whether one of them has a unique key."""
    return any("uniqueKey" in document for document in documents)


def status_of(document: Mapping[str, Any]) -> Any:
    """The status of a job; the stored value if it is not one of ours."""
    status = document.get("status")
    # Not an instance of a subclass: `bson.Code` is one that cannot be hashed. The same holds for names.
    return _STATUS.get(status, status) if type(status) is str else status


def name_of(name: object) -> str:
    """A stored name as text. A document that was written by hand may hold any value there, or none."""
    return name if type(name) is str else str(name)


def earliest_due(documents: Iterable[Mapping[str, Any]]) -> dict[str, datetime]:
    """Return when the first of these jobs is due, by name.

    A parked job is left out, and so is a document that somebody wrote by hand without a name or a time:
    nobody can claim it.
    """
    due: dict[str, datetime] = {}
    for document in documents:
        name, run_at = document.get("name"), document.get("nextRunAt")
        if type(name) is not str or not isinstance(run_at, datetime) or run_at == PARKED:
            continue
        if name not in due or run_at < due[name]:
            due[name] = run_at
    return due


def claimed_at_of(document: Mapping[str, Any]) -> datetime | None:
    """When the run in progress was claimed, if its owner wrote that.

    Other implementations leave the field of an earlier claim: it counts only while the job is processing.
    """
    return time_of(document, "claimedAt") if document.get("status") == "processing" else None


def time_of(document: Mapping[str, Any], field: str) -> datetime | None:
    """A stored time, with its zone; None if somebody stored something that is not a date."""
    value = document.get(field)
    return made_aware(value) if isinstance(value, datetime) else None


def attempt_of(document: Mapping[str, Any]) -> int:
    """How often a Python instance has claimed the job; documents of other implementations have no count."""
    attempt = document.get("attempt")
    return attempt if type(attempt) is int else _whole(attempt)


def count_of(document: Mapping[str, Any], field: str) -> int:
    """A counter field, at least 0. Anything but a number counts as 0: documents may be written by hand."""
    return max(_whole(document.get(field)), 0)


def priority_of(document: Mapping[str, Any]) -> int:
    """How urgent the job is. Others may have written the document: anything but a number is normal."""
    return min(count_of(document, "priority"), HIGHEST_PRIORITY) if "priority" in document else 0


def any_urgent(documents: Iterable[Mapping[str, Any]]) -> bool:
    """Whether one of these jobs has a priority."""
    return any("priority" in document for document in documents)


def failures_before(document: Mapping[str, Any]) -> int:
    """How often the job has failed so far."""
    return count_of(document, "failCount")


def failures_with(claim: Mapping[str, Any]) -> int:
    """The job's failures, including that of this claim's run."""
    return min(count_of(claim, "failCount") + 1, LARGEST_INT32)


def _whole(value: object) -> int:
    if isinstance(value, int):
        return int(value)
    return int(value) if isinstance(value, float) and abs(value) < _LARGEST_EXACT_FLOAT else 0


def trace_of(document: Mapping[str, Any]) -> dict[str, str]:
    """The trace context that is stored with the job, if any."""
    return {field: document[field] for field in TRACE_FIELDS if type(document.get(field)) is str}


def put_trace(document: Document, trace: Mapping[str, str]) -> None:
    """Add a trace context to a job that is about to be stored."""
    for field in TRACE_FIELDS:
        if trace.get(field) and (field == "traceparent" or len(trace[field]) <= _LONGEST_TRACESTATE):
            document[field] = trace[field]


def milliseconds(duration: timedelta) -> int:
    """A duration in whole milliseconds, as it is stored."""
    return round(duration / timedelta(milliseconds=1))


# Beyond this a float cannot represent every whole number.
_LARGEST_EXACT_FLOAT = 2**53

_STATUS = {status.value: status for status in JobStatus}


def stored_policy(policy: Policy) -> Document:
    """The subdocument of a policy: what the call gave, durations in milliseconds."""
    values = {name: getattr(policy, field) for field, name in _NAMES.items()}
    return {name: _stored(value) for name, value in values.items() if value is not None}


def policy_of(document: Mapping[str, Any]) -> Policy | None:
    """The policy of a job; None without one. Others may have written it: wrong values count as absent."""
    stored = document.get("policy")
    if not isinstance(stored, dict):
        return None
    values = {field: _READ[field](stored[name]) for field, name in _NAMES.items() if name in stored}
    return Policy.of_stored(values)


def _stored(value: Any) -> Any:
    if isinstance(value, timedelta):
        return Int64(milliseconds(value))
    if isinstance(value, tuple):
        return [_stored(each) for each in value]
    return value


def _duration(value: object) -> object:
    if not isinstance(value, int | float) or isinstance(value, bool):
        return None
    try:
        return timedelta(milliseconds=value)
    except (ValueError, OverflowError):  # not a number, or more days than there are
        return None


def _durations(value: object) -> object:
    return tuple(map(_duration, value)) if isinstance(value, list) else None


def _as_stored(value: object) -> object:
    return value


# By the type that `Policy` declares. MongoDB may return a whole number as a double, and the other way around.
_BY_TYPE: dict[str, Callable[[Any], object]] = {
    "int": lambda value: int(value) if isinstance(value, float) and value.is_integer() else value,
    "float": _as_stored,
    "timedelta": _duration,
    "tuple[timedelta, ...]": _durations,
    "datetime": lambda value: made_aware(value) if isinstance(value, datetime) else None,
    "bool": _as_stored,
}


def _camel(name: str) -> str:
    first, *others = name.split("_")
    return first + "".join(map(str.capitalize, others))


_NAMES = {field.name: _camel(field.name) for field in fields(Policy)}
_READ = {field.name: _BY_TYPE[str(field.type).removesuffix(" | None")] for field in fields(Policy)}


# A document that is larger gets no entry. Beside it the reason of a failure (32 kB), one entry (20 kB) and
# the fields of a claim must fit into the 16 MiB of a document: a job that cannot be claimed any more would
# stay for ever. With half of the 64 KiB they would not fit; with twice, fewer jobs would have a history.
LARGEST_WITH_HISTORY = 16 * 1024 * 1024 - 64 * 1024

_ENTRIES = {"$cond": [{"$isArray": "$history"}, "$history", []]}
_HAS_ROOM = {"$lt": [{"$bsonSize": "$$ROOT"}, LARGEST_WITH_HISTORY]}


def append(entry: HistoryEntry, claim: Mapping[str, Any]) -> Document:
    """The stage of a pipeline that adds what a run leaves."""
    text = {"$literal": _constant(entry, claim)}
    times = {"startedAt": {"$subtract": ["$$NOW", round(entry.ran * 1000)]}, "finishedAt": "$$NOW"}
    return _append({"$mergeObjects": [text, times]}, entry.keep)


def append_lost(entry: HistoryEntry) -> Document:
    """The stage that adds a run whose owner is dead. Others may have written its claim."""
    alive = {"$cond": [{"$eq": [{"$type": "$lockedAt"}, "date"]}, "$lockedAt", "$$NOW"]}
    claim = {
        "attempt": {"$cond": [{"$isNumber": "$attempt"}, "$attempt", 0]},
        "by": {"$cond": [{"$eq": [{"$type": "$claimedBy"}, "string"]}, "$claimedBy", ""]},
    }
    times = {"startedAt": alive, "finishedAt": "$$NOW"}
    return _append({"$mergeObjects": [claim, {"$literal": _text(entry)}, times]}, entry.keep)


def _append(entry: Document, keep: int) -> Document:
    with_it = {"$slice": [{"$concatArrays": [_ENTRIES, [entry]]}, -keep]}
    without = {"$ifNull": ["$history", "$$REMOVE"]}
    return {"$set": {"history": {"$cond": [_HAS_ROOM, with_it, without]}}}


def carried(
    document: Document, claim: Mapping[str, Any], entry: HistoryEntry | None, now: datetime
) -> Document:
    """The copy of a failed run, with the history of its schedule and what this run adds."""
    earlier = claim.get("history")
    entries = list(earlier) if isinstance(earlier, list) else []
    if entry is not None:
        started = now - timedelta(milliseconds=round(entry.ran * 1000))
        stored = {**_constant(entry, claim), "startedAt": started, "finishedAt": now}
        entries = [*entries, stored][-entry.keep :]
    if not entries:
        return document
    whole = {**document, "history": entries}
    return whole if size_of(whole) < LARGEST_WITH_HISTORY else document


def attempts_of(document: Mapping[str, Any]) -> tuple[Attempt, ...]:
    """The history as users see it. Others may have written it: what is no entry is left out."""
    entries = document.get("history")
    if not isinstance(entries, list):
        return ()
    return tuple(_attempt(entry) for entry in entries if isinstance(entry, dict))


def _attempt(entry: Mapping[str, Any]) -> Attempt:
    text = {field: entry.get(field) for field in ("by", "outcome", "error", "message")}
    shown: dict[str, Any] = {field: "" if value is None else str(value) for field, value in text.items()}
    trace = entry.get("trace")
    return Attempt(
        number=attempt_of(entry),
        instance=shown["by"],
        started_at=time_of(entry, "startedAt"),
        finished_at=time_of(entry, "finishedAt"),
        outcome=shown["outcome"],
        error=shown["error"],
        message=shown["message"],
        traceback=trace if isinstance(trace, str) else None,
    )


def _constant(entry: HistoryEntry, claim: Mapping[str, Any]) -> Document:
    return {"attempt": attempt_of(claim), "by": str(claim.get("claimedBy") or ""), **_text(entry)}


def _text(entry: HistoryEntry) -> Document:
    text = {"outcome": entry.outcome, "error": entry.error, "message": entry.message}
    return text if entry.trace is None else {**text, "trace": entry.trace}
