"""Numbers over time, in a collection of their own beside the jobs.

A document has the numbers of one job name in one minute (`r: "m"`) or hour (`"h"`), or how many jobs of it
waited in a minute (`"g"`, a gauge):

    {_id: {r, t, n}, completed, retried, failed, cancelled, snoozed, ranMs, waitedMs,
     ran: {bucket: count}, waited: {bucket: count}, expireAt}
    {_id: {r: "g", t, n}, due, later, processing, oldestDueMs, expireAt}

`t` is the server's time at which the minute or hour begins, `n` the job name. What is 0 is not stored. All
instances add to the same documents. The pipelines that read and fold them are here, too; no I/O.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Literal, TypeAlias

from bson import Int64
from pymongo import IndexModel

from monque._store.companion import EXPIRES
from monque._store.document import Document, count_of, name_of, time_of
from monque._trends import BOUNDS, Histogram, TrendPoint

SUFFIX = "_trends"
"""What the name of the collection has behind the name of the jobs collection."""

# The first finds the minutes of one name, the second lets the server remove what is old.
INDEXES = [IndexModel({"_id.n": 1, "_id.r": 1, "_id.t": 1}, name="monque_trends"), EXPIRES]

Kind: TypeAlias = Literal["m", "h", "g"]
"""Minute, hour, gauge."""

MINUTE, HOUR = timedelta(minutes=1), timedelta(hours=1)
_MILLISECOND = timedelta(milliseconds=1)
_EPOCH = datetime.fromtimestamp(0, UTC)

ENDINGS = ("completed", "retried", "failed", "cancelled", "snoozed")
_SUMS = (*ENDINGS, "ranMs", "waitedMs")
_GAUGES = ("due", "later", "processing", "oldestDueMs")
_BUCKETS = range(len(BOUNDS))


def begin_of(step: timedelta, moment: datetime) -> datetime:
    """When the step begins in which a moment lies; steps are counted from 1970 on, in UTC."""
    return moment - (moment - _EPOCH) % step


def between(kind: Kind, since: datetime, until: datetime, name: str | None) -> Document:
    """Match the documents of a kind from *since* to before *until*, by an index."""
    if name is not None:
        return {"_id.n": {"$eq": name}, "_id.r": kind, "_id.t": {"$gte": since, "$lt": until}}
    # The server compares documents field by field, so this is a range of the index of ids.
    return {"_id": {"$gte": {"r": kind, "t": since}, "$lt": {"r": kind, "t": until}}}


def summed(stretches: list[Document], step: timedelta, *, by_name: bool) -> list[Document]:
    """Add up the numbers of each step, of each name or of all names together."""
    sums: Document = {field: {"$sum": f"${field}"} for field in _SUMS}
    for field, letter in (("ran", "r"), ("waited", "w")):
        sums |= {f"{letter}{bucket}": {"$sum": f"${field}.{bucket}"} for bucket in _BUCKETS}
    return [
        {"$match": stretches[0] if len(stretches) == 1 else {"$or": stretches}},
        {"$group": {"_id": {"t": _begin(step)} | ({"n": "$_id.n"} if by_name else {}), **sums}},
        {"$project": dict.fromkeys(_SUMS, 1) | {"ran": _buckets("r"), "waited": _buckets("w")}},
    ]


def peaks(stretch: Document, step: timedelta, *, by_name: bool) -> list[Document]:
    """The largest gauge of each step, of each name or of all names together."""
    together: list[Document] = []
    if not by_name:
        sums: Document = {field: {"$sum": f"${field}"} for field in _GAUGES}
        together = [
            {"$group": {"_id": {"t": "$_id.t"}, **sums, "oldestDueMs": {"$max": "$oldestDueMs"}}},
        ]
    return [
        {"$match": stretch},
        *together,
        {
            "$group": {
                "_id": {"t": _begin(step)} | ({"n": "$_id.n"} if by_name else {}),
                **{field: {"$max": f"${field}"} for field in _GAUGES},
            }
        },
    ]


def _begin(step: timedelta) -> Document:
    moment = {"$toLong": "$_id.t"}
    return {"$toDate": {"$subtract": [moment, {"$mod": [moment, Int64(step // _MILLISECOND)]}]}}


def _buckets(letter: str) -> Document:
    """A histogram as it is stored, out of one sum a bucket."""
    pairs = [{"k": str(bucket), "v": f"${letter}{bucket}"} for bucket in _BUCKETS]
    return {"$arrayToObject": {"$filter": {"input": pairs, "cond": {"$gt": ["$$this.v", 0]}}}}


def points_from(
    sums: Iterable[Document], gauges: Iterable[Document], step: timedelta, *, name: str | None
) -> list[TrendPoint]:
    """The points of what was read, sorted by time and name; *name* is that of those which have none."""
    found: dict[tuple[datetime, str | None], Document] = {}
    for group in (*sums, *gauges):
        found.setdefault(_place(group, name), {}).update(group)
    order = sorted(found, key=lambda place: (place[0], place[1] or ""))
    return [_point(at, of, step, found[at, of]) for at, of in order]


def _place(group: Document, name: str | None) -> tuple[datetime, str | None]:
    key = group["_id"]
    return key["t"], name_of(key["n"]) if "n" in key else name


def _point(at: datetime, name: str | None, step: timedelta, found: Document) -> TrendPoint:
    oldest = _gauge(found, "oldestDueMs")
    return TrendPoint(
        at=at,
        step=step,
        name=name,
        **{field: count_of(found, field) for field in ENDINGS},
        ran_total=count_of(found, "ranMs") * _MILLISECOND,
        waited_total=count_of(found, "waitedMs") * _MILLISECOND,
        ran=_histogram(found.get("ran")),
        waited=_histogram(found.get("waited")),
        due=_gauge(found, "due"),
        later=_gauge(found, "later"),
        processing=_gauge(found, "processing"),
        oldest_due=None if oldest is None else oldest * _MILLISECOND,
    )


def _gauge(found: Document, field: str) -> int | None:
    return None if found.get(field) is None else count_of(found, field)


def _histogram(stored: Mapping[str, Any] | None) -> Histogram:
    return Histogram({int(bucket): int(count) for bucket, count in (stored or {}).items()})


def filled(
    points: Iterable[TrendPoint], since: datetime, until: datetime, step: timedelta, name: str | None
) -> list[TrendPoint]:
    """One point for each step, also for those in which nothing happened."""
    there = {point.at: point for point in points}
    steps = range(-((since - until) // step))
    times = [since + each * step for each in steps]
    return [there.get(at) or TrendPoint(at=at, step=step, name=name) for at in times]


def hour_of(document: Document | None) -> datetime | None:
    """When the hour of a document begins; None if there is no such document."""
    key = None if document is None else document.get("_id")
    return time_of(key, "t") if isinstance(key, dict) else None
