"""Between `Job` and its document: the only place, with its neighbours here, that knows field names."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from datetime import MAXYEAR, MINYEAR, UTC, datetime, timedelta
from functools import lru_cache
from typing import Any, TypeAlias

import bson
from bson import ObjectId
from bson.codec_options import CodecOptions, DatetimeConversion

from monque._job import Job, JobStatus, read_later

Document: TypeAlias = dict[str, Any]

# What a claim writes and what settling takes away again. `heartbeatInterval` stays, as the
# TypeScript implementation leaves it.
CLAIM_FIELDS = ("claimedBy", "lockedAt", "lastHeartbeat")

# The contract has counts and intervals as int32.
LARGEST_INT32 = 2**31 - 1

# The W3C trace context of whoever stored the job. Nothing ever takes it away: each run links to it.
TRACE_FIELDS = ("traceparent", "tracestate")

# What the W3C wants to be passed on at least. Longer ones are left out rather than stored with every job.
_LONGEST_TRACESTATE = 512

# Aware datetimes whatever the user's client is set to. A date that Python cannot hold (a foreign
# writer's year 10000) is clamped, and bytes that are no UTF-8 are replaced, rather than made an error: one
# such job must not stop all others.
CODEC_OPTIONS: CodecOptions[Document] = CodecOptions(
    tz_aware=True,
    tzinfo=UTC,
    datetime_conversion=DatetimeConversion.DATETIME_CLAMP,
    unicode_decode_error_handler="replace",
)

# Aware datetimes cost the driver more than all the rest of decoding a job. Where many come at once they
# are read without a zone: a date in BSON is always UTC. `made_aware` gives it to those that users see.
NAIVE_CODEC_OPTIONS: CodecOptions[Document] = CODEC_OPTIONS.with_options(tz_aware=False, tzinfo=None)

# A date that Python cannot represent stays what it is: for values by which a document is to be found again.
EXACT_CODEC_OPTIONS: CodecOptions[Document] = CODEC_OPTIONS.with_options(
    datetime_conversion=DatetimeConversion.DATETIME_AUTO
)

# MongoDB compares a date with dates only; with this bound a query leaves out texts, numbers and the like.
EARLIEST = datetime.min.replace(tzinfo=UTC)

_EPOCH = datetime.fromtimestamp(0, UTC)
_NAIVE_EPOCH = _EPOCH.replace(tzinfo=None)


def made_aware(value: Any) -> Any:
    """The value with UTC at the datetimes in it that have no zone; dicts and lists are changed in place."""
    kind = type(value)
    if kind is datetime:
        # A tenth of what `replace` costs.
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
    cron: str | None = None,
    timezone: str | None = None,
) -> Document:
    """A pending job as it is stored; keys that do not apply are left out, never null."""
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
    if cron is not None:
        document["repeatInterval"] = cron
        document["timezone"] = timezone
    return document


def key_of(job_id: Any) -> bytes:
    """An id as a key for dicts and sets, equal exactly if MongoDB takes the ids for the same.

    Any BSON value but an array may be an `_id`. Some cannot be hashed (a document), some are equal in
    Python only (`1` and `True`). No BSON document of this shape has the twelve bytes of an `ObjectId`.
    """
    return job_id.binary if type(job_id) is ObjectId else bson.encode({"_id": job_id})


def is_inexact(value: object) -> bool:
    """Whether a value that was read may stand for one that Python cannot represent.

    A date was clamped then; in a text, bytes that are no UTF-8 were replaced.
    """
    if isinstance(value, datetime):
        return value.year in (MINYEAR, MAXYEAR)
    return isinstance(value, str) and "\ufffd" in value


def size_of(document: Document) -> int:
    """How many bytes it has where it is stored."""
    return len(bson.encode(document))


def failed_occurrence(
    schedule: Mapping[str, Any], *, reason: str, fail_count: int, now: datetime
) -> Document:
    """The run of a schedule that gave up, as a job of its own: it can be inspected and retried.

    Its id follows from the claim, so that storing it again (a second try, a second instance that
    recovers the same run) stores it once. A schedule written by hand may lack fields.
    """
    return {
        "_id": _occurrence_id(schedule),
        "name": schedule.get("name"),
        "data": schedule.get("data"),
        "status": "failed",
        "nextRunAt": _time(schedule.get("nextRunAt")) or now,
        "failCount": fail_count,
        "failReason": reason,
        "createdAt": now,
        "updatedAt": now,
        "scheduleId": schedule["_id"],
        "attempt": attempt_of(schedule),
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
    """What a job looked like after its settlement, from how it looks *later*, after others changed it.

    A *reason* is why the run failed.
    """
    kept = {field: value for field, value in later.items() if field not in (*CLAIM_FIELDS, "failReason")}
    failure = {} if reason is None else {"failCount": failures_with(claim), "failReason": reason}
    return {**kept, **failure, "status": status.value, "attempt": attempt_of(claim)}


def to_job(document: Mapping[str, Any], *, data: Any = ...) -> Job[Any]:
    """The job a document describes; *data* takes the place of the stored payload.

    Every document has one. Operators must be able to see what somebody wrote by hand: a field holds
    what is stored, and a time that is no date is None.
    """
    return read_later(_fields, document, data=document.get("data") if data is ... else data)


def _fields(document: Mapping[str, Any]) -> dict[str, Any]:
    get = document.get
    return {
        "id": document["_id"],
        "name": get("name"),
        "status": status_of(document),
        "next_run_at": _time(get("nextRunAt")),
        "fail_count": count_of(document, "failCount"),
        "fail_reason": get("failReason"),
        "cron": get("repeatInterval"),
        "timezone": get("timezone"),
        "unique_key": get("uniqueKey"),
        "claimed_by": get("claimedBy"),
        "locked_at": _time(get("lockedAt")),
        "last_heartbeat": _time(get("lastHeartbeat")),
        "heartbeat_interval": _duration(get("heartbeatInterval")),
        "attempt": attempt_of(document),
        "created_at": _time(get("createdAt")),
        "updated_at": _time(get("updatedAt")),
    }


def status_of(document: Mapping[str, Any]) -> Any:
    """The status of a job; what is stored if that is none of ours."""
    status = document.get("status")
    # Not an instance of a subclass: `bson.Code` is one that cannot be hashed. The same holds for names.
    return _STATUS.get(status, status) if type(status) is str else status


def name_of(name: object) -> str:
    """A stored name as text: a document that somebody wrote by hand may have any value there, or none."""
    return name if type(name) is str else str(name)


def _time(value: Any) -> datetime | None:
    return made_aware(value) if isinstance(value, datetime) else None


def attempt_of(document: Mapping[str, Any]) -> int:
    """How often the job was claimed by one of us; documents of others have no such count."""
    attempt = document.get("attempt")
    return attempt if type(attempt) is int else _whole(attempt)


def count_of(document: Mapping[str, Any], field: str) -> int:
    """A count that a document has; 0 for what is none: one that somebody wrote by hand may hold anything."""
    return max(_whole(document.get(field)), 0)


def failures_with(claim: Mapping[str, Any]) -> int:
    """How often the job has failed, now that this run of it did: what is stored of it from now on."""
    return min(count_of(claim, "failCount") + 1, LARGEST_INT32)


def _whole(value: object) -> int:
    if isinstance(value, int):
        return int(value)
    return int(value) if isinstance(value, float) and abs(value) < _LARGEST_EXACT_FLOAT else 0


def trace_of(document: Mapping[str, Any]) -> dict[str, str]:
    """The trace context that came with the job, if any."""
    return {field: document[field] for field in TRACE_FIELDS if type(document.get(field)) is str}


def put_trace(document: Document, trace: Mapping[str, str]) -> None:
    """Let a job that is about to be stored carry a trace context."""
    for field in TRACE_FIELDS:
        if trace.get(field) and (field == "traceparent" or len(trace[field]) <= _LONGEST_TRACESTATE):
            document[field] = trace[field]


def milliseconds(duration: timedelta) -> int:
    """The duration as BSON keeps it: whole milliseconds."""
    return round(duration / timedelta(milliseconds=1))


def _duration(interval: object) -> timedelta | None:
    if not isinstance(interval, int | float):
        return None
    try:
        return _milliseconds(interval)
    except (ValueError, OverflowError):  # not a number, or more days than there are
        return None


@lru_cache(maxsize=64)  # the same few come again and again
def _milliseconds(interval: float) -> timedelta:
    return timedelta(milliseconds=interval)


# Beyond this a float does not tell whole numbers apart.
_LARGEST_EXACT_FLOAT = 2**53

_STATUS = {status.value: status for status in JobStatus}
