"""A `JobFilter` as a query. No I/O."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any, get_args

from bson.datetime_ms import DatetimeMS

from monque._ops.durations import lasting
from monque._store.document import PARKED, Document
from monque._values.filter import JobFilter
from monque._values.flows import WaitKind
from monque._values.rules import ids_meant
from monque._values.status import CancelledBy

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)

# The filters whose value a stored field must have, and that field.
_EQUAL = {"name": "name", "batch": "batch", "unique_key": "uniqueKey", "schedule_id": "scheduleId"}


def matching(jobs: JobFilter) -> Document:
    """The query for a filter."""
    query: Document = {
        field: {"$eq": value} for name, field in _EQUAL.items() if (value := getattr(jobs, name)) is not None
    }
    if jobs.statuses:
        query["status"] = {"$in": [status.value for status in jobs.statuses]}
    times = {
        "createdAt": (jobs.created_after, jobs.created_before),
        "updatedAt": (jobs.updated_after, jobs.updated_before),
        "nextRunAt": (jobs.due_after, jobs.due_before),
    }
    for field, (after, before) in times.items():
        if bounds := _within(after, before):
            # A parked job has no time, so it is never due, whatever the bounds are.
            query[field] = {**bounds, "$ne": PARKED} if field == "nextRunAt" else bounds
    if jobs.priority is not None:
        query["priority"] = {"$gte": jobs.priority}
    if jobs.lost_by is not None:
        query["history"] = {"$elemMatch": {"by": {"$eq": jobs.lost_by}, "outcome": "lost"}}
    if jobs.ids is not None:
        query["_id"] = {"$in": [meant for each in jobs.ids for meant in ids_meant(each)]}
    for path, value in (jobs.payload or {}).items():
        # A missing value would equal null.
        query[f"data.{path}"] = {"$type": "null"} if value is None else {"$eq": value}
    if jobs.recurring is not None:
        query["repeatInterval"] = {"$ne": None} if jobs.recurring else {"$eq": None}
    more = []
    if claim := _claim(jobs):
        more.append(claim)
    ran, waited = (jobs.ran_at_least, jobs.ran_less_than), (jobs.waited_at_least, jobs.waited_less_than)
    if took := lasting(ran, waited):
        more.append(took)
    if jobs.cancelled_by is not None:
        more.append(_cancelled_by(jobs.cancelled_by))
    if jobs.expired is not None:
        more.append(expired() if jobs.expired else {"$nor": [expired()]})
    more += _waits(jobs)
    return {"$and": [query, *more]} if more else query


def _waits(jobs: JobFilter) -> Iterator[Document]:
    if jobs.waiting is not None:
        yield _waiting() if jobs.waiting else {"$nor": [_waiting()]}
    if jobs.waits_for is not None:
        yield _waiting(jobs.waits_for)
    if jobs.awaits is not None:  # not a turn: its key is a value of a payload
        yield {**_waiting("batch", "signal"), "parked.key": {"$eq": jobs.awaits}}


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


def _waiting(*reasons: WaitKind) -> Document:
    """Match the jobs in a wait, for one of these *reasons* or any. What is stored counts while pending."""
    return {"status": "pending", "parked.why": {"$in": [*(reasons or get_args(WaitKind))]}}


def _cancelled_by(who: CancelledBy) -> Document:
    """As `Job.cancelled_by` tells it: whoever left no record is an operator."""
    others = [each for each in get_args(CancelledBy) if each != "operator"]
    record: Any = {"$nin": others} if who == "operator" else who
    return {"status": "cancelled", "cancel.by": record}


def whole_milliseconds(moment: datetime) -> int:
    """The first whole millisecond that is not before *moment*.

    BSON stores whole milliseconds, so a stored time is at or after *moment* exactly if it is at or after
    this. Rounding down would include a job of the millisecond before.
    """
    return -((_EPOCH - moment) // _MILLISECOND)
