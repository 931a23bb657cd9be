"""Statistics, counts and depths: pipelines, and what their groups add up to. No I/O."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from monque._status import JobStatus
from monque._store.document import EARLIEST, PARKED, Document, name_of
from monque._views import JobCounts, QueueDepth, QueueStats

_STATUSES = frozenset(status.value for status in JobStatus)

# A run is measured only if both of its stamps lie between `EARLIEST` and this: the server fails on the
# difference of other values, and on one that is too large. Nothing but a date sorts between two dates.
_LATEST = datetime.max.replace(tzinfo=UTC)


def statistics(name: str | None = None, *, by_name: bool = False) -> list[Document]:
    """Count jobs by status (and by name), with the average duration of completed ones."""
    run = {"$subtract": ["$finishedAt", "$startedAt"]}
    dates = [
        condition
        for stamp in ("$startedAt", "$finishedAt")
        for condition in ({"$gte": [stamp, EARLIEST]}, {"$lte": [stamp, _LATEST]})
    ]
    measured = {"$and": [{"$eq": ["$status", "completed"]}, *dates]}
    return [
        *([{"$match": {"name": {"$eq": name}}}] if name is not None else []),
        {
            "$group": {
                "_id": {"status": "$status", **({"name": "$name"} if by_name else {})},
                "count": {"$sum": 1},
                # $avg ignores nulls, so jobs without both stamps do not count.
                "duration": {"$avg": {"$cond": [measured, run, None]}},
            }
        },
    ]


def stats_from(groups: Iterable[Mapping[str, Any]]) -> QueueStats:
    """Add up the groups of one name, or of all names."""
    counts: Counter[str] = Counter()
    average = None
    for group in groups:
        status = group["_id"].get("status")
        known = type(status) is str and status in _STATUSES
        counts[status if known else "other"] += group["count"]
        if status == "completed" and group["duration"] is not None:
            average = timedelta(milliseconds=group["duration"])
    return QueueStats(**counts, avg_processing_duration=average)


def counts(query: Document, limit: int) -> list[Document]:
    """Count jobs by status and name, at most *limit* of them."""
    group = {"$group": {"_id": {"status": "$status", "name": "$name"}, "count": {"$sum": 1}}}
    return [{"$match": query}, {"$limit": limit}, group]


def counts_from(groups: Iterable[Mapping[str, Any]], limit: int) -> JobCounts:
    """Add up the groups; one job more than *limit* says that there are more."""
    by_status: Counter[str] = Counter()
    by_name: Counter[str] = Counter()
    for group in groups:
        by_status[name_of(group["_id"].get("status"))] += group["count"]
        by_name[name_of(group["_id"].get("name"))] += group["count"]
    count = sum(by_status.values())
    return JobCounts(
        count=min(count, limit), by_status=dict(by_status), by_name=dict(by_name), capped=count > limit
    )


def depths(now: datetime) -> list[Document]:
    """Count the jobs that wait or run, by name, from the index of active jobs alone."""
    # A job whose time is not a date never runs, so it is not due.
    due = {"$and": [{"$gte": ["$nextRunAt", EARLIEST]}, {"$lte": ["$nextRunAt", now]}]}
    # Not left out by the match: such a condition makes the server read the documents.
    parked = {"$eq": ["$nextRunAt", PARKED]}
    return [
        {"$match": {"status": {"$in": ["pending", "processing"]}}},
        {
            "$group": {
                "_id": {"name": "$name", "status": "$status", "due": due, "parked": parked},
                "count": {"$sum": 1},
                "oldest": {"$min": "$nextRunAt"},
            }
        },
    ]


def depths_from(
    groups: Iterable[Mapping[str, Any]], *, besides: Iterable[str], now: datetime
) -> list[QueueDepth]:
    """Add up the groups to depths, sorted by name; the names in *besides* are included even without jobs."""
    found = {name: QueueDepth(name=name) for name in besides}
    for group in groups:
        name = name_of(group["_id"].get("name"))
        depth, count = found.get(name, QueueDepth(name=name)), group["count"]
        if group["_id"]["status"] == "processing":
            depth = replace(depth, processing=depth.processing + count)
        elif group["_id"]["due"]:
            oldest_due = max(depth.oldest_due, now - group["oldest"])
            depth = replace(depth, due=depth.due + count, oldest_due=oldest_due)
        elif not group["_id"]["parked"]:
            depth = replace(depth, later=depth.later + count)
        found[name] = depth
    return [found[name] for name in sorted(found)]


def badly_ended() -> list[Document]:
    """Count the failed and the cancelled jobs by name, from the index of these alone."""
    return [
        {"$match": {"status": {"$in": ["failed", "cancelled"]}}},
        {"$group": {"_id": {"name": "$name", "status": "$status"}, "count": {"$sum": 1}}},
    ]


def with_failures(depths: Iterable[QueueDepth], groups: Iterable[Mapping[str, Any]]) -> list[QueueDepth]:
    """Add how many jobs of each name have failed or are cancelled; also names with nothing else."""
    found = {depth.name: replace(depth, failed=0, cancelled=0) for depth in depths}
    for group in groups:
        name, status = name_of(group["_id"].get("name")), group["_id"]["status"]
        depth = found.get(name, QueueDepth(name=name, failed=0, cancelled=0))
        found[name] = replace(depth, **{status: (getattr(depth, status) or 0) + group["count"]})
    return [found[name] for name in sorted(found)]
