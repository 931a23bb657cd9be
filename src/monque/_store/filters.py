"""Which jobs are meant: filters and ids as queries. No I/O."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from bson import ObjectId
from bson.datetime_ms import DatetimeMS

from monque._store.document import PARKED, Document
from monque._values.rules import ids_meant
from monque._values.status import CancelledBy
from monque._values.views import JobFilter

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)


def matching(jobs: JobFilter) -> Document:
    """The query for a filter."""
    query: Document = {}
    if jobs.name is not None:
        query["name"] = {"$eq": jobs.name}
    if jobs.statuses:
        query["status"] = {"$in": [status.value for status in jobs.statuses]}
    for field, (after, before) in times_of(jobs).items():
        if bounds := _within(after, before):
            # A parked job has no time, so it is never due, whatever the bounds are.
            query[field] = {**bounds, "$ne": PARKED} if field == "nextRunAt" else bounds
    if jobs.priority is not None:
        query["priority"] = {"$gte": jobs.priority}
    if jobs.unique_key is not None:
        query["uniqueKey"] = {"$eq": jobs.unique_key}
    if jobs.ids is not None:
        query["_id"] = {"$in": [meant for each in jobs.ids for meant in ids_meant(each)]}
    for path, value in (jobs.payload or {}).items():
        # A missing value would equal null.
        query[f"data.{path}"] = {"$type": "null"} if value is None else {"$eq": value}
    if jobs.schedule_id is not None:
        query["scheduleId"] = jobs.schedule_id
    if jobs.recurring is not None:
        query["repeatInterval"] = {"$ne": None} if jobs.recurring else {"$eq": None}
    more = []
    if claim := _claim(jobs):
        more.append(claim)
    if jobs.cancelled_by is not None:
        more.append(_cancelled_by(jobs.cancelled_by))
    if jobs.expired is not None:
        more.append(expired() if jobs.expired else {"$nor": [expired()]})
    return {"$and": [query, *more]} if more else query


def _within(after: datetime | None, before: datetime | None) -> Document:
    return {
        operator: DatetimeMS(whole_milliseconds(moment))
        for operator, moment in (("$gte", after), ("$lt", before))
        if moment is not None
    }


def _claim(jobs: JobFilter) -> Document:
    """Match by the claim. Only running jobs have one: the index of active jobs leads to them."""
    claim: Document = {} if jobs.claimed_by is None else {"claimedBy": {"$eq": jobs.claimed_by}}
    if bounds := _within(jobs.claimed_after, jobs.claimed_before):
        claim["claimedAt"] = bounds
    return {"status": "processing", **claim} if claim else {}


def expired() -> Document:
    """Match the pending jobs that are past their own expiry, by the server's clock."""
    at = "$policy.expiresAt"
    is_past = {"$and": [{"$eq": [{"$type": at}, "date"]}, {"$lte": [at, "$$NOW"]}]}
    return {"status": "pending", "policy.expiresAt": {"$exists": True}, "$expr": is_past}


def _cancelled_by(who: CancelledBy) -> Document:
    """As `document.cancelled_by` tells it: whoever left no record is an operator."""
    record: Any = {"$nin": ["handler", "expiry"]} if who == "operator" else who
    return {"status": "cancelled", "cancel.by": record}


def times_of(jobs: JobFilter) -> dict[str, tuple[datetime | None, datetime | None]]:
    """The bounds of a filter for each time that a job has."""
    return {
        "createdAt": (jobs.created_after, jobs.created_before),
        "updatedAt": (jobs.updated_after, jobs.updated_before),
        "nextRunAt": (jobs.due_after, jobs.due_before),
    }


def whole_milliseconds(moment: datetime) -> int:
    """The first whole millisecond that is not before *moment*.

    BSON stores whole milliseconds, so a stored time is at or after *moment* exactly if it is at or after
    this. Rounding down would include a job of the millisecond before.
    """
    return -((_EPOCH - moment) // _MILLISECOND)


def with_id(job_id: Any) -> Document:
    """Match the job with this id. An id that a user gave cannot act as an operator."""
    return {"_id": job_id if type(job_id) is ObjectId else {"$eq": job_id}}


def beyond_id(job_id: Any, comparison: str) -> Document:
    """Match the jobs whose id comes before or after this one, whatever the types of both are.

    A plain `$gt` compares values of one type only: ids of another type would be skipped. The server
    uses the index for this form, too.
    """
    return compared("_id", comparison, job_id)


def compared(field: str, comparison: str, value: Any) -> Document:
    """Match by a comparison that knows the order of all types."""
    return {"$expr": {comparison: [f"${field}", {"$literal": value}]}}
