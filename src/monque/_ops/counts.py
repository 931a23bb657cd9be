"""Statistics, counts and depths as pipelines; what failed; the jobs that start before one."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, get_args

from pymongo.asynchronous.collection import AsyncCollection
from pymongo.errors import ExecutionTimeout, OperationFailure

from monque._store import decoding, indexes
from monque._store.document import (
    EARLIEST,
    EXACT_CODEC_OPTIONS,
    PARKED,
    Document,
    beyond_id,
    count_of,
    name_of,
    status_of,
)
from monque._store.indexes import FAILED, USES
from monque._store.store import Store
from monque._values.errors import AggregationTimeoutError
from monque._values.flows import WaitKind
from monque._values.job import Job
from monque._values.options import UseName
from monque._values.status import JobStatus
from monque._values.views import FailureRow, JobCounts, QueueDepth, QueueStats
from monque._workers.workers import Workers

_NO_SUCH_INDEX = 2
_STATUSES = frozenset(status.value for status in JobStatus)

# A run is measured only if both of its stamps lie between `EARLIEST` and this: the server fails on the
# difference of other values, and on one that is too large. Nothing but a date sorts between two dates.
_LATEST = datetime.max.replace(tzinfo=UTC)

# Statistics walk through whole indexes. A shorter limit would fail on large collections.
_STATISTICS_LIMIT = timedelta(seconds=30)


async def aggregate(
    collection: AsyncCollection[Document],
    pipeline: list[Document],
    *,
    max_time: timedelta | None = None,
    hint: str | None = None,
) -> list[Document]:
    """Run a pipeline within a time limit, by default that of statistics."""
    limit = _STATISTICS_LIMIT if max_time is None else max_time
    more: dict[str, Any] = {} if hint is None else {"hint": hint}
    try:
        within = max(limit // timedelta(milliseconds=1), 1)
        return await decoding.aggregate(collection, pipeline, maxTimeMS=within, allowDiskUse=True, **more)
    except ExecutionTimeout as error:
        raise AggregationTimeoutError(
            f"the statistics took longer than {limit.total_seconds():g} s; "
            "ask for one name, or remove old jobs with Options(retention=...)"
        ) from error


async def estimate(collection: AsyncCollection[Document], *, max_time: timedelta | None = None) -> int:
    """About how many documents there are, without counting them."""
    limit = {} if max_time is None else {"maxTimeMS": max(max_time // timedelta(milliseconds=1), 1)}
    try:
        return await collection.estimated_document_count(**limit)
    except ExecutionTimeout as error:
        raise AggregationTimeoutError("the server took too long to say how many jobs it has") from error


def statistics(name: str | None = None, *, batch: str | None = None, by_name: bool = False) -> list[Document]:
    """Count jobs by status (and by name), with the average duration of completed ones."""
    of = {"name": name, "batch": batch}
    matched = {field: {"$eq": value} for field, value in of.items() if value is not None}
    run = {"$subtract": ["$finishedAt", "$startedAt"]}
    dates = [
        condition
        for stamp in ("$startedAt", "$finishedAt")
        for condition in ({"$gte": [stamp, EARLIEST]}, {"$lte": [stamp, _LATEST]})
    ]
    measured = {"$and": [{"$eq": ["$status", "completed"]}, *dates]}
    return [
        *([{"$match": matched}] if matched else []),
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
        elif group["_id"]["parked"]:
            depth = replace(depth, parked=depth.parked + count)
        else:
            depth = replace(depth, later=depth.later + count)
        found[name] = depth
    return [found[name] for name in sorted(found)]


async def read_depths(
    store: Store, workers: Workers, *, failures: bool = False, max_time: timedelta | None = None
) -> list[QueueDepth]:
    """The jobs that wait or run, by name, and whether it is paused; also names served here without jobs."""
    now = store.clock.now()
    groups = await aggregate(store.collection, depths(now), max_time=max_time)
    settings = await store.control.read_if_allowed()
    served = [worker.name for worker in workers if workers.serves(worker.name)]
    found = depths_from(groups, besides=served, now=now)
    if failures:
        found = await _with_failures(store, found, max_time)
    if "waiting" in settings.uses:
        found = await _with_waits(store, found, max_time)
    return [replace(depth, paused=settings.pause_of(depth.name, now) is not None) for depth in found]


async def _with_failures(
    store: Store, depths: list[QueueDepth], max_time: timedelta | None
) -> list[QueueDepth]:
    groups = await _by_index(store, "failures", badly_ended(), max_time)
    return depths if groups is None else with_failures(depths, groups)


async def _with_waits(store: Store, depths: list[QueueDepth], max_time: timedelta | None) -> list[QueueDepth]:
    groups = await _by_index(store, "waiting", waits(), max_time)
    return depths if groups is None else with_waits(depths, groups)


async def _by_index(
    store: Store, use: UseName, pipeline: list[Document], max_time: timedelta | None
) -> list[Document] | None:
    """The groups, read from the index of a use; None if that is not there."""
    index = USES[use].index_name
    try:
        return await aggregate(store.collection, pipeline, max_time=max_time, hint=index)
    except OperationFailure as error:
        if error.code != _NO_SUCH_INDEX:
            raise
        return None


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


def waits() -> list[Document]:
    """Count the jobs that wait by name and reason, from the index of these alone."""
    return [
        {"$match": {"status": "pending", "parked.why": {"$in": [*get_args(WaitKind)]}}},
        {"$group": {"_id": {"name": "$name", "why": "$parked.why"}, "count": {"$sum": 1}}},
    ]


def with_waits(depths: Iterable[QueueDepth], groups: Iterable[Mapping[str, Any]]) -> list[QueueDepth]:
    """Add how many jobs of each name wait, by reason."""
    found: dict[str, Counter[WaitKind]] = defaultdict(Counter)
    for group in groups:
        found[name_of(group["_id"].get("name"))][group["_id"]["why"]] += group["count"]
    return [
        replace(depth, waiting={why: found[depth.name][why] for why in get_args(WaitKind)})
        for depth in depths
    ]


# Ten thousand reasons of this length are 10 MB.
_LONGEST_REASON = 1_000

# The server has no such index: the code of a hint that leads nowhere.
_BAD_HINT = 2
_INDEX_NAME: str = FAILED.document["name"]


async def read_recent(
    collection: AsyncCollection[Document],
    *,
    name: str | None,
    since: datetime | None,
    cancelled: bool,
    limit: int,
) -> list[FailureRow]:
    """The newest jobs that failed (or were *cancelled*).

    Raises:
        ConfigurationError: The index is not there.
    """
    query: Document = {
        "status": {"$in": ["failed", "cancelled"] if cancelled else ["failed"]},
        "updatedAt": {"$gte": EARLIEST if since is None else since},
    }
    if name is not None:
        query["name"] = {"$eq": name}
    try:
        found = await _find(collection, query, limit, _short)
    except OperationFailure as error:
        if error.code == _BAD_HINT and "hint" in str(error):
            raise indexes.missing(USES["failures"]) from error
        if error.code != _NOT_UTF8:
            raise
        found = await _find(collection, query, limit, _whole)
    return [_row(document) for document in found if isinstance(document.get("updatedAt"), datetime)]


async def _find(
    collection: AsyncCollection[Document], query: Document, limit: int, cut: Callable[[str], Document]
) -> list[Document]:
    fields: Document = {
        **dict.fromkeys(("name", "status", "updatedAt", "failCount"), 1),
        "reason": {
            "$cond": [{"$eq": ["$status", "cancelled"]}, cut("$cancel.reason"), cut("$failReason")],
        },
        # Others may have written a history that is no array.
        "error": {"$cond": [{"$isArray": "$history.error"}, {"$last": "$history.error"}, None]},
    }
    exact = collection.with_options(codec_options=EXACT_CODEC_OPTIONS)
    order = {"updatedAt": -1, "_id": -1}
    return await decoding.find(
        exact, query, fields, sort=order, limit=limit, hint=_INDEX_NAME, batch_size=limit
    )


# What the server says of `$substrCP` if a text is not UTF-8: others may store such.
_NOT_UTF8 = 34459


def _short(field: str) -> Document:
    return _text(field, {"$substrCP": [field, 0, _LONGEST_REASON]})


def _whole(field: str) -> Document:
    return _text(field, field)


def _text(field: str, shown: Any) -> Document:
    return {"$cond": [{"$eq": [{"$type": field}, "string"]}, shown, None]}


def _row(document: Mapping[str, Any]) -> FailureRow:
    reason, error = document.get("reason"), document.get("error")
    status: JobStatus = status_of(document)
    return FailureRow(
        id=document["_id"],
        name=name_of(document.get("name")),
        status=status,
        at=document["updatedAt"],
        reason=reason[:_LONGEST_REASON] if isinstance(reason, str) else None,
        fail_count=count_of(document, "failCount"),
        attempt_error_type=error if isinstance(error, str) else None,
    )


async def count(store: Store, job: Job[Any], limit: int) -> int:
    """Count index entries, up to *limit*. That one of eight jobs is the oldest, is left out."""
    due = job.next_run_at
    if job.status is not JobStatus.PENDING or due is None or type(job.name) is not str:
        return 0
    found = 0
    for query in before(job, due, store.clock.now(), uses_priorities=store.uses.is_noted("priority")):
        if found < limit:
            found += await store.collection.count_documents(query, limit=limit - found)
    return found


def before(job: Job[Any], due: datetime, now: datetime, *, uses_priorities: bool) -> list[Document]:
    """Queries without a job in common, each a range of one index. Jobs of one time start by their ids."""
    waiting: Document = {"status": "pending", "name": job.name}
    earlier = [
        {"nextRunAt": {"$gte": EARLIEST, "$lt": due}},
        {"nextRunAt": due, **beyond_id(job.id, "$lt")},
    ]
    if not uses_priorities:
        return [{**waiting, **each} for each in earlier]
    if not job.priority:
        urgent = {"priority": {"$gte": 1}, "nextRunAt": {"$gte": due, "$lte": now}}
        return [{**waiting, **earlier[0]}, {**waiting, **urgent}, {**waiting, **earlier[1], "priority": None}]
    return [higher(job, now), *({**waiting, "priority": job.priority, **each} for each in earlier)]


def higher(job: Job[Any], now: datetime) -> Document:
    """Match the due jobs of its name with a higher priority."""
    due = {"$gte": EARLIEST, "$lte": now}
    # Not `$gt: 0`: the server would not see that the index, which begins at 1, has them all.
    more = {"$gte": job.priority + 1}
    return {"status": "pending", "name": job.name, "priority": more, "nextRunAt": due}
