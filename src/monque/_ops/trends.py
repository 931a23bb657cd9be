"""Numbers over time: counted in memory, stored by the minute and by the hour, read back.

A document has the numbers of one job name in one minute (`r: "m"`) or hour (`"h"`), or how many jobs of it
waited in a minute (`"g"`, a gauge):

    {_id: {r, t, n}, completed, retried, failed, cancelled, snoozed, ranMs, waitedMs,
     ran: {bucket: count}, waited: {bucket: count}, expireAt}
    {_id: {r: "g", t, n}, due, later, processing, oldestDueMs, expireAt}

`t` is the server's time at which the minute or hour begins, `n` the job name. All instances add to the same
minutes, and store nothing that is 0. One instance, the holder of the lease, writes gauges and adds minutes up
to hours:

    {_id: "lease", by, until}

What is written, and the pipelines that read it; no I/O.
"""

from __future__ import annotations

import time
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Literal, NamedTuple, TypeAlias

from bson import Int64
from pymongo import IndexModel, UpdateOne
from pymongo.asynchronous.collection import AsyncCollection
from pymongo.errors import BulkWriteError, PyMongoError

from monque._ops.bulk import aggregate
from monque._ops.companion import EXPIRES, WRITE_LIMIT, Companion
from monque._store import decoding
from monque._store.document import Document, count_of, name_of, time_of
from monque._time.clock import Clock
from monque._values.trends import BOUNDS, Histogram, TrendPoint, Trends
from monque._values.views import QueueDepth

# In seconds. The last bucket has no end.
_BOUNDS = [bound / 1000 for bound in BOUNDS[:-1]]
_FIRST = _BOUNDS[0]


class Tally:
    """Counts each run that is settled, from one cut to the next."""

    __slots__ = ("_by_name", "_clock", "_counter", "_now")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._by_name: dict[str, Counts] = {}
        # The server's time at one moment, naive as in claims, and `time.perf_counter` at the same moment. No
        # run needs a clock of its own then.
        self._now = datetime.fromtimestamp(0, UTC).replace(tzinfo=None)
        self._counter = 0.0

    def count(self, name: str, ending: str, ran: float, started: float, claim: Mapping[str, Any]) -> None:
        """Count a run that took *ran* seconds and *started* then (`time.perf_counter`; 0: it never did)."""
        counts = self._by_name.get(name) or self._begin(name)
        counts.endings[ending] += 1
        if not started:
            return
        counts.ran += ran
        counts.ran_by_bucket[0 if ran < _FIRST else bisect_right(_BOUNDS, ran)] += 1
        due: Any = claim.get("nextRunAt")
        try:
            waited = (self._now - due).total_seconds() + started - self._counter
        except TypeError:
            if type(due) is not datetime:
                return  # somebody has written something else by hand
            waited = (self._now - due.replace(tzinfo=None)).total_seconds() + started - self._counter
        if waited < 0.0:  # the server's clock is known to some milliseconds
            waited = 0.0
        counts.waited += waited
        counts.waited_by_bucket[bisect_right(_BOUNDS, waited)] += 1

    def _begin(self, name: str) -> Counts:
        if len(self._by_name) >= MOST_NAMES:
            name = OTHERS
        return self._by_name.setdefault(name, Counts())

    def cut(self) -> dict[str, Counts]:
        """Return what was counted since the last cut, and begin anew."""
        self._now, self._counter = self._clock.now().replace(tzinfo=None), time.perf_counter()
        counted, self._by_name = self._by_name, {}
        return counted


SUFFIX = "_trends"
"""What the name of the collection has behind the name of the jobs collection."""

# The first finds the minutes of one name, the second lets the server remove what is old.
INDEXES = [IndexModel({"_id.n": 1, "_id.r": 1, "_id.t": 1}, name="monque_trends"), EXPIRES]

Kind: TypeAlias = Literal["m", "h", "g"]
"""Minute, hour, gauge."""

MINUTE, HOUR = timedelta(minutes=1), timedelta(hours=1)
_MILLISECOND = timedelta(milliseconds=1)
_EPOCH = datetime.fromtimestamp(0, UTC)

OTHERS = "…"
"""The name under which everything is counted that is one name too many."""

MOST_NAMES = 500
"""More job names at once are a mistake, such as an id in a name: they must not fill memory, nor the disk."""

LEASE: Document = {"_id": "lease"}
# The holder renews it once a minute; ten seconds are left for a slow server. With twice as much, gauges are
# missing for two minutes after the holder has died.
_LEASE_MILLISECONDS = 70_000

ENDINGS = ("completed", "retried", "failed", "cancelled", "snoozed")
_SUMS = (*ENDINGS, "ranMs", "waitedMs")
_GAUGES = ("due", "later", "processing", "oldestDueMs")
_BUCKETS = range(len(BOUNDS))


def begin_of(step: timedelta, moment: datetime) -> datetime:
    """When the step begins in which a moment lies; steps are counted from 1970 on, in UTC."""
    return moment - (moment - _EPOCH) % step


@dataclass(slots=True, eq=False)
class Counts:
    """What has happened to the jobs of one name and is not stored yet."""

    endings: dict[str, int] = field(default_factory=lambda: dict.fromkeys(ENDINGS, 0))
    ran: float = 0.0
    """How many seconds all runs took."""
    waited: float = 0.0
    ran_by_bucket: list[int] = field(default_factory=lambda: [0] * len(BOUNDS))
    waited_by_bucket: list[int] = field(default_factory=lambda: [0] * len(BOUNDS))

    def add(self, other: Counts) -> None:
        """Count what *other* has counted, too."""
        for ending, count in other.endings.items():
            self.endings[ending] += count
        self.ran += other.ran
        self.waited += other.waited
        for bucket in _BUCKETS:
            self.ran_by_bucket[bucket] += other.ran_by_bucket[bucket]
            self.waited_by_bucket[bucket] += other.waited_by_bucket[bucket]


def add_counts(minute: datetime, name: str, counts: Counts, *, keep: timedelta) -> UpdateOne:
    """Add to the numbers of a minute, whoever else adds to them."""
    increments: dict[str, int] = dict(counts.endings)
    increments["ranMs"] = round(counts.ran * 1000)
    increments["waitedMs"] = round(counts.waited * 1000)
    for bucket in _BUCKETS:
        increments[f"ran.{bucket}"] = counts.ran_by_bucket[bucket]
        increments[f"waited.{bucket}"] = counts.waited_by_bucket[bucket]
    return UpdateOne(
        {"_id": {"r": "m", "t": minute, "n": name}},
        {
            "$inc": {field: Int64(number) for field, number in increments.items() if number},
            "$set": {"expireAt": minute + keep},
        },
        upsert=True,
    )


def set_gauge(minute: datetime, depth: QueueDepth, *, keep: timedelta) -> UpdateOne:
    """Store how many jobs of a name waited in a minute."""
    gauges = {
        "due": Int64(depth.due),
        "later": Int64(depth.later),
        "processing": Int64(depth.processing),
        "oldestDueMs": Int64(depth.oldest_due // _MILLISECOND),
        "expireAt": minute + keep,
    }
    return UpdateOne({"_id": {"r": "g", "t": minute, "n": depth.name}}, {"$set": gauges}, upsert=True)


def folded(since: datetime, until: datetime, into: str, *, keep: timedelta) -> list[Document]:
    """Add up the minutes of whole hours and store the sums; done twice, it stores the same."""
    hour = {"r": "h", "t": "$_id.t", "n": "$_id.n"}
    expires = {"$add": ["$_id.t", Int64(keep // _MILLISECOND)]}
    return [
        *summed([between("m", since, until, None)], HOUR, by_name=True),
        {"$replaceWith": {"$mergeObjects": ["$$ROOT", {"_id": hour, "expireAt": expires}]}},
        {"$merge": {"into": into, "on": "_id", "whenMatched": "replace", "whenNotMatched": "insert"}},
    ]


def lease_update(instance_id: str) -> list[Document]:
    """Hold the lease from now on, unless another instance does."""
    me = {"$literal": instance_id}
    over = {"$or": [{"$ne": [{"$type": "$until"}, "date"]}, {"$lte": ["$until", "$$NOW"]}]}
    mine = {"$or": [{"$eq": ["$by", me]}, over]}
    until = {"$add": ["$$NOW", _LEASE_MILLISECONDS]}
    return [{"$set": {"by": {"$cond": [mine, me, "$by"]}, "until": {"$cond": [mine, until, "$until"]}}}]


def is_held_by(instance_id: str, lease: Document | None) -> bool:
    """Whether an instance holds the lease."""
    return lease is not None and lease.get("by") == instance_id


RELEASE_LEASE: list[Document] = [{"$set": {"until": "$$NOW"}}]
"""Let the next instance that asks have the lease."""


def between(kind: Kind, since: datetime, until: datetime, name: str | None) -> Document:
    """Match the documents of a kind from *since* to before *until*, by an index."""
    if name is not None:
        return {"_id.n": {"$eq": name}, "_id.r": kind, "_id.t": {"$gte": since, "$lt": until}}
    # The server compares documents field by field, so this is a range of the index of ids.
    return {"_id": {"$gte": {"r": kind, "t": since}, "$lt": {"r": kind, "t": until}}}


def summed(stretches: list[Document], step: timedelta, *, by_name: bool) -> list[Document]:
    """Add up the numbers of each step, of each name or of all names together."""
    sums: Document = {field: {"$sum": f"${field}"} for field in _SUMS}
    for histogram, letter in (("ran", "r"), ("waited", "w")):
        sums |= {f"{letter}{bucket}": {"$sum": f"${histogram}.{bucket}"} for bucket in _BUCKETS}
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


class Entry(NamedTuple):
    """What has happened to the jobs of one name in one minute."""

    minute: datetime
    name: str
    counts: Counts


async def add(
    companion: Companion, entries: Sequence[Entry], *, keep: timedelta, within: float = WRITE_LIMIT
) -> Sequence[Entry]:
    """Add numbers to those of their minutes, in one command; return the entries that are not stored."""
    writes = [add_counts(*entry, keep=keep) for entry in entries]
    try:
        await companion.write(lambda into: into.bulk_write(writes, ordered=False), within=within)
    except BulkWriteError as error:
        return [entries[failure["index"]] for failure in (error.details or {}).get("writeErrors", ())]
    except PyMongoError:  # heartbeats report an outage
        return entries
    return ()


async def set_gauges(
    companion: Companion, minute: datetime, depths: Iterable[QueueDepth], *, keep: timedelta
) -> None:
    """Store how many jobs waited in a minute."""
    writes = [set_gauge(minute, depth, keep=keep) for depth in depths]
    if writes:
        await companion.write(lambda into: into.bulk_write(writes, ordered=False))


async def fold(companion: Companion, until: datetime, settings: Trends) -> None:
    """Add up the minutes of all hours before *until* that are not added up yet, in one command."""
    oldest = begin_of(HOUR, until - settings.minutes) + HOUR
    last = await last_folded(companion.collection)
    since = oldest if last is None else max(last + HOUR, oldest)
    if since < until:
        stages = folded(since, until, companion.collection.name, keep=settings.hours)
        await companion.write(lambda into: _run(into, stages))


async def _run(collection: AsyncCollection[Document], stages: list[Document]) -> None:
    await (await collection.aggregate(stages)).close()


async def take_lease(companion: Companion, instance_id: str) -> bool:
    """Take the lease, or keep it; False if another instance holds it."""
    lease = await companion.write(
        lambda into: decoding.find_one_and_update(into, LEASE, lease_update(instance_id), upsert=True)
    )
    return is_held_by(instance_id, lease)


async def release_lease(companion: Companion, instance_id: str, *, within: float) -> None:
    """Let the next instance that asks have the lease, if this one holds it."""
    mine = {**LEASE, "by": {"$eq": instance_id}}
    await companion.write(lambda into: into.update_one(mine, RELEASE_LEASE), within=within)


class Span(NamedTuple):
    """The steps that somebody asks for: from *since* to before *until*, each *step* long."""

    since: datetime
    until: datetime
    step: timedelta


async def read(
    collection: AsyncCollection[Document],
    span: Span,
    *,
    name: str | None,
    by_name: bool,
    max_time: timedelta | None,
) -> list[TrendPoint]:
    """The points of a span, of one name or of all."""
    since, until, step = span
    folded = await last_folded(collection, max_time) if not step % HOUR else None
    parts = [between(*part, name) for part in stretches(span, folded)]
    sums = await aggregate(collection, summed(parts, step, by_name=by_name), max_time=max_time)
    gauged = peaks(between("g", since, until, name), step, by_name=by_name)
    gauges = await aggregate(collection, gauged, max_time=max_time)
    points = points_from(sums, gauges, step, name=name)
    return points if by_name else filled(points, since, until, step, name)


async def last_folded(
    collection: AsyncCollection[Document], max_time: timedelta | None = None
) -> datetime | None:
    """When the last hour begins that was added up from its minutes."""
    limit = None if max_time is None else max(max_time // timedelta(milliseconds=1), 1)
    hours = {"_id": {"$gte": {"r": "h"}, "$lt": {"r": "i"}}}
    last = await decoding.find_one(collection, hours, {"_id": 1}, sort={"_id": -1}, max_time_ms=limit)
    return hour_of(last)


def stretches(span: Span, folded: datetime | None) -> list[tuple[Kind, datetime, datetime]]:
    """Where to read: the hours that are folded, if *folded* says so, and the minutes of all others.

    Every hour up to the last folded one is folded, and none of their minutes changes any more.
    """
    since, until, _ = span
    if folded is None or folded < since:
        return [("m", since, until)]
    border = min(folded + HOUR, until)
    rest: list[tuple[Kind, datetime, datetime]] = [("m", border, until)] if border < until else []
    return [("h", since, border), *rest]
