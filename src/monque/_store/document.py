"""Between `Job` and its document: the only place, with its neighbours here, that knows field names."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, TypeAlias

from bson import ObjectId
from bson.codec_options import CodecOptions, DatetimeConversion

from monque._job import Job, JobStatus

Document: TypeAlias = dict[str, Any]

# What a claim writes and what settling takes away again. `heartbeatInterval` stays, as the
# TypeScript implementation leaves it.
CLAIM_FIELDS = ("claimedBy", "lockedAt", "lastHeartbeat")

# Aware datetimes whatever the user's client is set to. A date that Python cannot hold (a foreign
# writer's year 10000) is clamped rather than made an error: one such job must not stop all others.
CODEC_OPTIONS: CodecOptions[Document] = CodecOptions(
    tz_aware=True, tzinfo=UTC, datetime_conversion=DatetimeConversion.DATETIME_CLAMP
)


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


def failed_occurrence(
    schedule: Mapping[str, Any], *, reason: str, fail_count: int, now: datetime
) -> Document:
    """The run of a schedule that gave up, as a job of its own: it can be inspected and retried.

    Its id follows from the claim, so that storing it again (a second try, a second instance that
    recovers the same run) stores it once.
    """
    return {
        "_id": _occurrence_id(schedule),
        "name": schedule["name"],
        "data": schedule.get("data"),
        "status": "failed",
        "nextRunAt": schedule["nextRunAt"],
        "failCount": fail_count,
        "failReason": reason,
        "createdAt": now,
        "updatedAt": now,
        "scheduleId": schedule["_id"],
        "attempt": attempt_of(schedule),
    }


def _occurrence_id(schedule: Mapping[str, Any]) -> ObjectId:
    claimed_at = int(schedule["lockedAt"].timestamp()) if schedule.get("lockedAt") else 0
    run = schedule["_id"].binary + attempt_of(schedule).to_bytes(8, "big")
    return ObjectId(claimed_at.to_bytes(4, "big") + hashlib.blake2b(run, digest_size=8).digest())


def completed(claim: Mapping[str, Any], now: datetime) -> Document:
    """What a claimed job looks like after it was completed; the stamp may be milliseconds off."""
    gone = (*CLAIM_FIELDS, "failReason", "crashCount")
    kept = {field: value for field, value in claim.items() if field not in gone}
    return {**kept, "status": "completed", "updatedAt": now, "finishedAt": now}


def to_job(document: Mapping[str, Any], *, data: Any = ...) -> Job[Any]:
    """The job a document describes; *data* takes the place of the stored payload.

    Only what a claim needs must be there: a document that somebody wrote by hand, without stamps,
    must not stop the others.
    """
    get = document.get
    interval = get("heartbeatInterval")
    return Job(
        id=document["_id"],
        name=document["name"],
        data=get("data") if data is ... else data,
        status=_STATUS[document["status"]],
        next_run_at=document["nextRunAt"],
        fail_count=get("failCount") or 0,
        fail_reason=get("failReason"),
        cron=get("repeatInterval"),
        timezone=get("timezone"),
        unique_key=get("uniqueKey"),
        claimed_by=get("claimedBy"),
        locked_at=get("lockedAt"),
        last_heartbeat=get("lastHeartbeat"),
        heartbeat_interval=timedelta(milliseconds=interval) if isinstance(interval, int | float) else None,
        attempt=attempt_of(document),
        created_at=get("createdAt") or document["nextRunAt"],
        updated_at=get("updatedAt") or document["nextRunAt"],
    )


def attempt_of(document: Mapping[str, Any]) -> int:
    """How often the job was claimed by one of us; documents of others have no such count."""
    return document.get("attempt") or 0


def milliseconds(duration: timedelta) -> int:
    """The duration as BSON keeps it: whole milliseconds."""
    return round(duration / timedelta(milliseconds=1))


_STATUS = {status.value: status for status in JobStatus}
