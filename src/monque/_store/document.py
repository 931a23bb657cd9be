"""The stored form of a job: fields, and how they are read; documents may hold anything."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from copy import copy
from dataclasses import fields
from datetime import MAXYEAR, MINYEAR, UTC, datetime, timedelta
from functools import lru_cache
from typing import Any, TypeAlias, TypedDict

import bson
from bson import Int64, ObjectId
from bson.codec_options import CodecOptions, DatetimeConversion

from monque._values.history import Attempt, HistoryEntry
from monque._values.limits import Turn, key_of_line
from monque._values.rules import HIGHEST_PRIORITY, NO_TIME
from monque._values.settings import Policy
from monque._values.status import Interruption, JobStatus
from monque._values.words import camel

Document: TypeAlias = dict[str, Any]


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

# The name of the job that follows if a job fails for good; and the mark of one whose follow-up is not stored.
ON_FAILURE, FOLLOW_UP = "onFailure", "followUp"

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

# Between the name of a job and its line, in the key of what waits for a turn.
SEPARATOR = "\x1f"

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
    on_failure: str | None = None,
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
    if on_failure is not None:
        document[ON_FAILURE] = on_failure
    return document


def key_of(job_id: Any) -> bytes:
    """An id as a key for dicts and sets; two keys are equal exactly if MongoDB treats the ids as equal.

    Any BSON value but an array may be an `_id`. Some cannot be hashed (a document), some are equal in
    Python only (`1` and `True`). No BSON document of this shape has the twelve bytes of an `ObjectId`.
    """
    return job_id.binary if type(job_id) is ObjectId else bson.encode({"_id": job_id})


def is_inexact(value: object) -> bool:
    """Return whether a value that was read may differ from the stored one.

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


Key: TypeAlias = tuple[bytes, int]
"""The key of a job's id, and the attempt: no two claims have the same."""


class UnclaimableError(Exception):
    """A claimed document that cannot be a claim; the text says why."""


class Claim:
    """A claimed job, made from whatever its document holds: the one gate for documents that others wrote.

    What a run depends on is checked here, once, so that nobody has to look at it again. Any other field of
    the document may be missing or hold anything. A claim never changes: `with_request` and others make a new
    one.

    The times of the document are naive, and UTC, as `NAIVE_CODEC_OPTIONS` reads them; those in `data` are
    made aware here. A claim is made for each run: one that reads a field of every job costs all of them.
    """

    __slots__ = (
        *("attempt", "cancel", "claimed_by", "document", "due", "has_again", "id", "is_recurring", "key"),
        *("name", "policy", "priority", "schedule"),
    )

    def __init__(self, document: Document) -> None:
        """Read the document.

        Raises:
            UnclaimableError: It has no name, no due time or no whole number of attempts.
        """
        get: Callable[[str], Any] = document.get
        job_id, name, attempt, due = document["_id"], get("name"), get("attempt"), get("nextRunAt")
        if type(attempt) is not int or type(name) is not str or type(due) is not datetime:
            attempt = _checked_attempt(name, attempt, due)
        if (data := get("data")) is not None:
            document["data"] = made_aware(data)
        self.document = document
        self.id = job_id
        # The bytes of an id stand for it: they are hashed without a Python call.
        self.key: Key = job_id.binary if type(job_id) is ObjectId else key_of(job_id), attempt
        self.name: str = name
        self.attempt: int = attempt
        self.due: datetime = due
        self.claimed_by: str = get("claimedBy")
        # A plain job has none of these, and each costs one look.
        self.is_recurring = "repeatInterval" in document and is_recurring(document)
        self.has_again = "again" in document and has_again(document)
        self.priority = priority_of(document) if "priority" in document else 0
        self.cancel = _subdocument(document["cancel"]) if "cancel" in document else None
        self.policy = _subdocument(document["policy"]) if "policy" in document else None
        self.schedule = _subdocument(document["schedule"]) if "schedule" in document else None

    @classmethod
    def of_read(cls, document: Document) -> Claim:
        """The claim of a document that was read with aware times."""
        times = {
            field: value.replace(tzinfo=None) for field, value in document.items() if type(value) is datetime
        }
        return cls({**document, **times})

    @property
    def fails(self) -> int:
        """The job's failures, including that of this run."""
        return min(count_of(self.document, "failCount") + 1, LARGEST_INT32)

    @property
    def expires_at(self) -> datetime | None:
        """The time from which the job is not worth running, if the call gave one; for no schedule."""
        return None if self.policy is None or self.is_recurring else time_of(self.policy, "expiresAt")

    @property
    def is_cancel_requested(self) -> bool:
        """Return whether an operator wants the job to stop, see `is_cancel_requested`."""
        return self.cancel is not None and self.cancel.get("by") == "operator"

    @property
    def ends_after_run(self) -> bool:
        """Return whether an operator wants the schedule to end when its run has."""
        return self.cancel is not None and is_ended_after_run(self.document)

    @property
    def has_steps(self) -> bool:
        """Return whether the job has durable steps: then it goes on behind them."""
        return "steps" in self.document

    def with_steps(self, entries: Sequence[Document]) -> Claim:
        """The claim as it is since these steps are recorded: its failures count from here.

        Failures are set from the claim, not incremented: with the old one, the next failure would store the
        old count and one.
        """
        stored = self.document.get("steps")
        before = stored if isinstance(stored, list) else []
        return self.with_fields(steps=[*before, *entries], failCount=0)

    def with_turn(self, turn: Document) -> Claim:
        """The claim as it is since the job has a turn."""
        return self.with_fields(turn=turn)

    def with_request(self, cancel: Any) -> Claim:
        """The claim as it is since an operator has asked for its end."""
        claim = self.with_fields(cancel=cancel)
        claim.cancel = _subdocument(cancel)
        return claim

    def with_stuck(self, why: Interruption, since: datetime) -> Claim:
        """The claim as it is since its handler is stuck: told to stop at *since*, it still runs."""
        mark = {"why": why, "since": since, "by": self.claimed_by, "attempt": self.attempt}
        return self.with_fields(stuck=mark)

    def with_fields(self, **fields: Any) -> Claim:
        """The claim as it is since its document has these fields. Its attributes stay as they were."""
        claim = copy(self)  # no second look at the payload, which may be large, for each of a thousand steps
        claim.document = {**self.document, **fields}
        return claim


def _checked_attempt(name: object, attempt: object, due: object) -> int:
    """The attempt of a claim, which may come as another kind of number."""
    if type(name) is not str:
        raise UnclaimableError("its name is not a text")
    if type(due) is not datetime:
        raise UnclaimableError("its nextRunAt is not a date")
    # Nothing could settle a run of another one: queries compare it with the number that we know.
    if isinstance(attempt, int) or (isinstance(attempt, float) and _whole(attempt) == attempt):
        return int(attempt)
    raise UnclaimableError("its attempt is not a whole number")


def _subdocument(value: object) -> Document | None:
    """A subdocument; None if somebody stored something else there."""
    return value if type(value) is dict else None


# What the copy of a failed run has in common with its schedule, or with the job that runs once more.
_OF_FAILED_RUN = ("policy", "priority", "steps", "signals", "onFailure")


def failed_occurrence(
    schedule: Mapping[str, Any], *, reason: str, fail_count: int, now: datetime
) -> Document:
    """A run of a schedule that was given up, as a job of its own that can be inspected and retried.

    Its id follows from the claim, so a second try, or a second instance that recovers the same run, stores
    the same document. A schedule that was written by hand may lack fields.
    """
    return {
        "_id": derived_id(
            {"_id": schedule["_id"], "attempt": attempt_of(schedule)}, time_of(schedule, "lockedAt")
        ),
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
        # An operator may retry it: what the call said of its runs still counts, and its steps are done.
        **{field: schedule[field] for field in _OF_FAILED_RUN if field in schedule},
        **trace_of(schedule),
    }


def derived_id(of: Document, moment: datetime | None) -> ObjectId:
    """The id that follows from a value and a moment: whoever stores the same stores it under the same id."""
    seconds = 0 if moment is None else int(moment.timestamp()) % 2**32
    return ObjectId(seconds.to_bytes(4, "big") + hashlib.blake2b(bson.encode(of), digest_size=8).digest())


def as_settled(claim: Claim, status: JobStatus, reason: str | None, later: Mapping[str, Any]) -> Document:
    """The document as our settlement left it, made from a *later* one that others have changed since.

    *reason* says why the run failed; None if it succeeded.
    """
    kept = {field: value for field, value in later.items() if field not in (*CLAIM_FIELDS, "failReason")}
    failure = {} if reason is None else {"failCount": claim.fails, "failReason": reason}
    return {**kept, **failure, "status": status.value, "attempt": claim.attempt}


def completed_and_gone(claim: Claim, began: datetime, ended: datetime) -> Document:
    """The document of a completed job as it would be, had it been kept."""
    stamps = {"startedAt": began, "finishedAt": ended, "updatedAt": ended}
    settled: Document = made_aware({**as_settled(claim, JobStatus.COMPLETED, None, claim.document), **stamps})
    return settled


def cancelled_occurrence(claim: Claim, reason: str | None, after: Mapping[str, Any]) -> Document:
    """The run of a schedule that its handler ended, as it is reported; nothing of it is stored."""
    run = {field: value for field, value in claim.document.items() if field not in CLAIM_FIELDS}
    changed = {field: after[field] for field in ("history", "updatedAt") if field in after}
    record = {"by": "handler"} if reason is None else {"by": "handler", "reason": reason}
    return {**run, **changed, "status": "cancelled", "cancel": record}


def on_failure_of(document: Mapping[str, Any]) -> str | None:
    """The name of the job that follows if this one fails for good; None of one that is such a job itself."""
    return text_of(document, ON_FAILURE) or None


def is_recurring(document: Mapping[str, Any]) -> bool:
    """Return whether the job is a schedule."""
    return document.get("repeatInterval") is not None


def has_again(document: Mapping[str, Any]) -> bool:
    """Return whether a later call with the same key is noted in the job; as `transitions` queries for it."""
    if "again" not in document:
        return False
    again = document["again"]
    return isinstance(again, Mapping) or (
        isinstance(again, list) and any(isinstance(each, Mapping) for each in again)
    )


def is_cancel_requested(document: Mapping[str, Any]) -> bool:
    """Return whether an operator wants the job to stop, or wanted it.

    The `cancel` of a handler or of an expiry is a record of how the job ended, not a request.
    """
    return cancel_of(document).get("by") == "operator"


def cancel_of(document: Mapping[str, Any]) -> Mapping[str, Any]:
    """The request for the end of the job, or the record of who ended it; empty without one."""
    cancel = document.get("cancel")
    return cancel if isinstance(cancel, Mapping) else _NOTHING


def is_ended_after_run(document: Mapping[str, Any]) -> bool:
    """Return whether an operator wants the schedule to end when its run has, without stopping the run."""
    return is_cancel_requested(document) and cancel_of(document).get("afterRun") is True


def stuck_since(document: Mapping[str, Any]) -> datetime | None:
    """The time at which the handler was told to stop that is stuck now; None if none is.

    Nobody removes the mark when the run ends: it counts for the claim that it names, and for no later one.
    """
    mark = document.get("stuck")
    if not isinstance(mark, Mapping) or status_of(document) is not JobStatus.PROCESSING:
        return None
    named = mark.get("by"), mark.get("attempt")
    return time_of(mark, "since") if named == (document.get("claimedBy"), document.get("attempt")) else None


def cancel_reason_of(document: Mapping[str, Any]) -> str | None:
    """The reason why the job was cancelled, or is to be; None if nobody gave one."""
    return text_of(cancel_of(document), "reason")


def has_result(document: Mapping[str, Any]) -> bool:
    """Return whether a result is stored; it may be null."""
    return "result" in document


def result_error_of(document: Mapping[str, Any]) -> str | None:
    """The reason why the result is not stored; None if it is, or if nobody wanted it to be."""
    return text_of(document, "resultError")


def expires_at_of(document: Mapping[str, Any]) -> datetime | None:
    """The time from which the job is not worth running, if the call gave one. A schedule has none."""
    policy = document.get("policy")
    if not isinstance(policy, Mapping) or is_recurring(document):
        return None
    return time_of(policy, "expiresAt")


def due_of(document: Mapping[str, Any]) -> datetime | None:
    """The time at which the job is due; None if somebody stored something that is not a date."""
    return time_of(document, "nextRunAt")


def is_parked(document: Mapping[str, Any]) -> bool:
    """Return whether a pending job has no time yet."""
    return document.get("status") == "pending" and due_of(document) == PARKED


def unique_key_of(document: Mapping[str, Any]) -> Any:
    """The unique key as it is stored; None without one."""
    return document.get("uniqueKey")


def any_has_key(documents: Iterable[Mapping[str, Any]]) -> bool:
    """Return whether one of them has a unique key."""
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
    """The time at which the run in progress was claimed, if its owner wrote that.

    Other implementations leave the field of an earlier claim: it counts only while the job is processing.
    """
    return time_of(document, "claimedAt") if document.get("status") == "processing" else None


def time_of(document: Mapping[str, Any], field: str) -> datetime | None:
    """A stored time, with its zone; None if somebody stored something that is not a date."""
    value = document.get(field)
    return made_aware(value) if isinstance(value, datetime) else None


def text_of(document: Mapping[str, Any], field: str) -> str | None:
    """A stored text; None if somebody stored something else there."""
    value = document.get(field)
    return value if type(value) is str else None


def subdocuments(document: Mapping[str, Any], field: str) -> list[Document]:
    """The subdocuments in a stored array. Others may have written it: whatever is none is left out."""
    stored = document.get(field)
    return [each for each in stored if isinstance(each, dict)] if isinstance(stored, list) else []


def turn_of(document: Mapping[str, Any]) -> Turn | None:
    """The turn that a limit has given to the job. Others may have written the field."""
    line = line_of_turn(document)
    return None if line is None else Turn(line=key_of_line(line), slot=int(document["turn"]["slot"]))


def line_of_turn(document: Mapping[str, Any]) -> str | None:
    """The line in which the job has a turn, as it is stored; empty for that of a whole name.

    Others may have written the field: without a slot that is a whole number it is no turn.
    """
    turn = document.get("turn")
    if not isinstance(turn, dict) or type(turn.get("slot")) not in (int, Int64):
        return None
    return text_of(turn, "line")


def attempt_of(document: Mapping[str, Any]) -> int:
    """The number of claims by Python instances; documents of other implementations have no count."""
    attempt = document.get("attempt")
    return attempt if type(attempt) is int else _whole(attempt)


def count_of(document: Mapping[str, Any], field: str) -> int:
    """A counter field, at least 0. Anything but a number counts as 0: documents may be written by hand."""
    return max(_whole(document.get(field)), 0)


def priority_of(document: Mapping[str, Any]) -> int:
    """The priority of the job. Others may have written the document: anything but a number is normal."""
    return min(count_of(document, "priority"), HIGHEST_PRIORITY) if "priority" in document else 0


def any_urgent(documents: Iterable[Mapping[str, Any]]) -> bool:
    """Return whether one of these jobs has a priority."""
    return any("priority" in document for document in documents)


def failures_before(document: Mapping[str, Any]) -> int:
    """The number of failures of the job so far."""
    return count_of(document, "failCount")


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

_NOTHING: Mapping[str, Any] = {}


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


def duration_of(value: object) -> timedelta | None:
    """A stored duration; None if somebody stored something that is none."""
    if not isinstance(value, int | float) or isinstance(value, bool):
        return None
    try:
        return _from_milliseconds(value)
    except (ValueError, OverflowError):  # not a number, or more days than there are
        return None


@lru_cache(maxsize=64)  # a collection has few different durations
def _from_milliseconds(value: float) -> timedelta:
    return timedelta(milliseconds=value)


def _durations(value: object) -> object:
    return tuple(map(duration_of, value)) if isinstance(value, list) else None


def _as_stored(value: object) -> object:
    return value


# By the type that `Policy` declares. MongoDB may return a whole number as a double, and the other way around.
_BY_TYPE: dict[str, Callable[[Any], object]] = {
    "int": lambda value: int(value) if isinstance(value, float) and value.is_integer() else value,
    "float": _as_stored,
    "timedelta": duration_of,
    "tuple[timedelta, ...]": _durations,
    "datetime": lambda value: made_aware(value) if isinstance(value, datetime) else None,
    "bool": _as_stored,
}


_NAMES = {field.name: camel(field.name) for field in fields(Policy)}
_READ = {field.name: _BY_TYPE[str(field.type).removesuffix(" | None")] for field in fields(Policy)}


# A document that is larger gets no entry. Beside it the reason of a failure (32 kB), one entry (20 kB) and
# the fields of a claim must fit into the 16 MiB of a document: a job that cannot be claimed any more would
# stay for ever. With half of the 64 KiB they would not fit; with twice, fewer jobs would have a history.
LARGEST_WITH_HISTORY = 16 * 1024 * 1024 - 64 * 1024


def array(field: str) -> Document:
    """A stored array in an expression; an empty one if somebody stored something else."""
    return {"$cond": [{"$isArray": field}, field, []]}


_ENTRIES = array("$history")
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
    """The history as users see it."""
    return tuple(map(_attempt, subdocuments(document, "history")))


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


def settings_of(document: Mapping[str, Any]) -> Mapping[str, Any]:
    """The stored settings of a schedule; of a plain cron, none."""
    settings = document.get("schedule")
    return settings if isinstance(settings, Mapping) else _NOTHING


def is_triggered(document: Mapping[str, Any]) -> bool:
    """Return whether an operator wants the schedule to run once more after the run in progress."""
    return "triggeredAt" in settings_of(document)


def run_count_of(document: Mapping[str, Any]) -> int:
    """The number of runs of the schedule that have ended."""
    return count_of(document, "runCount")


def skip_count_of(document: Mapping[str, Any]) -> int:
    """The number of runs of the schedule that were skipped."""
    return count_of(document, "skipCount")


def with_id(job_id: Any) -> Document:
    """Match the job with this id. An id that a user gave cannot act as an operator."""
    return {"_id": job_id if type(job_id) is ObjectId else {"$eq": job_id}}


def named(names: Collection[str]) -> Document:
    """Match by the name, which is the shard key of a sharded collection: only its shard is asked then."""
    return {"name": next(iter(names)) if len(names) == 1 else {"$in": list(names)}}


def named_as(read: Mapping[str, Any] | None) -> Document:
    """The same for a job that was read, if it was; anything but text may be stored as something else."""
    name = None if read is None else read.get("name")
    return {"name": name} if type(name) is str and not is_inexact(name) else {}


def beyond_id(job_id: Any, comparison: str) -> Document:
    """Match the jobs whose id comes before or after this one, whatever the types of both are.

    A plain `$gt` compares values of one type only: ids of another type would be skipped. The server
    uses the index for this form, too.
    """
    return compared("_id", comparison, job_id)


def compared(field: str, comparison: str, value: Any) -> Document:
    """Match by a comparison that knows the order of all types."""
    return {"$expr": {comparison: [f"${field}", {"$literal": value}]}}
