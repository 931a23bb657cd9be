"""Numbers over time: counted, stored by the minute, added up by the hour, read back.

A document has the numbers of one job name in one minute (`r: "m"`) or hour (`"h"`), or how many jobs of it
waited in a minute (`"g"`, a gauge):

    {_id: {r, t, n}, completed, retried, failed, cancelled, snoozed, ranMs, waitedMs,
     ran: {bucket: count}, waited: {bucket: count}, expireAt}
    {_id: {r: "g", t, n}, due, later, processing, oldestDueMs, expireAt}

`t` is the server's time at which the minute or hour begins, `n` the job name. All instances add to the same
minutes, and store nothing that is 0. One instance, the holder of the lease, writes gauges and adds minutes up
to hours:

    {_id: "lease", by, until}
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Literal, NamedTuple, TypeAlias

from bson import Int64
from pymongo import IndexModel, UpdateOne
from pymongo.asynchronous.collection import AsyncCollection
from pymongo.errors import BulkWriteError, PyMongoError

from monque._ops import counts as counting
from monque._ops.companion import EXPIRES, WRITE_LIMIT, Companion
from monque._ops.counts import aggregate
from monque._store import decoding
from monque._store.document import Document, count_of, name_of, time_of
from monque._store.store import Store
from monque._time.clock import Clock, elapsed, happens, raise_lost_cancellation
from monque._values.errors import AggregationTimeoutError
from monque._values.trends import BOUNDS, Histogram, TrendPoint, Trends
from monque._values.views import QueueDepth

logger = logging.getLogger("monque")

SUFFIX = "_trends"
"""The end of the name of the collection, behind the name of the jobs collection."""

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
    """The begin of the step in which a moment lies; steps are counted from 1970 on, in UTC."""
    return moment - (moment - _EPOCH) % step


@dataclass(slots=True, eq=False)
class Counts:
    """Counts of the jobs of one name that are not stored yet."""

    endings: dict[str, int] = field(default_factory=lambda: dict.fromkeys(ENDINGS, 0))
    ran: float = 0.0
    """The seconds that all runs took."""
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


def folded(since: datetime, until: datetime, into: str, *, keep: timedelta) -> list[Document]:
    """Add up the minutes of whole hours and store the sums; done twice, it stores the same."""
    hour = {"r": "h", "t": "$_id.t", "n": "$_id.n"}
    expires = {"$add": ["$_id.t", Int64(keep // _MILLISECOND)]}
    return [
        *summed([between("m", since, until, None)], HOUR, by_name=True),
        {"$replaceWith": {"$mergeObjects": ["$$ROOT", {"_id": hour, "expireAt": expires}]}},
        {"$merge": {"into": into, "on": "_id", "whenMatched": "replace", "whenNotMatched": "insert"}},
    ]


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


class Entry(NamedTuple):
    """Counts of the jobs of one name in one minute."""

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
    writes = [
        UpdateOne(
            {"_id": {"r": "g", "t": minute, "n": depth.name}},
            {
                "$set": {
                    "due": Int64(depth.due),
                    "later": Int64(depth.later),
                    "processing": Int64(depth.processing),
                    "oldestDueMs": Int64(depth.oldest_due // _MILLISECOND),
                    "expireAt": minute + keep,
                }
            },
            upsert=True,
        )
        for depth in depths
    ]
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
    me = {"$literal": instance_id}
    over = {"$or": [{"$ne": [{"$type": "$until"}, "date"]}, {"$lte": ["$until", "$$NOW"]}]}
    mine = {"$or": [{"$eq": ["$by", me]}, over]}
    until = {"$add": ["$$NOW", _LEASE_MILLISECONDS]}
    take = [{"$set": {"by": {"$cond": [mine, me, "$by"]}, "until": {"$cond": [mine, until, "$until"]}}}]
    lease = await companion.write(lambda into: decoding.find_one_and_update(into, LEASE, take, upsert=True))
    return lease is not None and lease.get("by") == instance_id


async def release_lease(companion: Companion, instance_id: str, *, within: float) -> None:
    """Let the next instance that asks have the lease, if this one holds it."""
    mine, now = {**LEASE, "by": {"$eq": instance_id}}, [{"$set": {"until": "$$NOW"}}]
    await companion.write(lambda into: into.update_one(mine, now), within=within)


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
    """The begin of the last hour that was added up from its minutes."""
    limit = None if max_time is None else max(max_time // timedelta(milliseconds=1), 1)
    hours = {"_id": {"$gte": {"r": "h"}, "$lt": {"r": "i"}}}
    last = await decoding.find_one(collection, hours, {"_id": 1}, sort={"_id": -1}, max_time_ms=limit)
    key = None if last is None else last.get("_id")
    return time_of(key, "t") if isinstance(key, dict) else None


def stretches(span: Span, folded: datetime | None) -> list[tuple[Kind, datetime, datetime]]:
    """Return where to read: the hours that are folded, if *folded* says so, and the minutes of all others.

    Every hour up to the last folded one is folded, and none of their minutes changes any more.
    """
    since, until, _ = span
    if folded is None or folded < since:
        return [("m", since, until)]
    border = min(folded + HOUR, until)
    rest: list[tuple[Kind, datetime, datetime]] = [("m", border, until)] if border < until else []
    return [("h", since, border), *rest]


# Instances that started together must not write together: each interval differs by up to this part.
_JITTER = 0.2

# How old a minute may get before it is dropped: an hour must be final some time. It outlasts most failovers.
LONGEST_DELAY = timedelta(minutes=10)

# In seconds. The last bucket has no end.
_BOUNDS = [bound / 1000 for bound in BOUNDS[:-1]]
_FIRST = _BOUNDS[0]


class Tally:
    """Counts each run that is settled, from one cut to the next."""

    __slots__ = ("_by_name", "_clock", "_counter", "_now", "_resumed")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._by_name: dict[str, Counts] = {}
        # The server's time at one moment, naive as in claims, and `time.perf_counter` at the same moment. No
        # run needs a clock of its own then.
        self._now = datetime.fromtimestamp(0, UTC).replace(tzinfo=None)
        self._counter = 0.0
        self._resumed: dict[str | None, datetime] = {}

    def count(
        self,
        name: str,
        how: str,
        ran: float = 0.0,
        started: float = 0.0,
        due: datetime | None = None,
        stored: timedelta | None = None,
    ) -> None:
        """Count a run that took *ran* seconds and *started* then (`time.perf_counter`; 0: it never did).

        *due* is the time of its job, naive as in claims. The histogram takes the run time as it is *stored*,
        so that a filter finds the jobs of a bucket.
        """
        counts = self._by_name.get(name) or self._begin(name)
        counts.endings[how] += 1
        if not started or due is None:
            return
        counts.ran += ran
        if stored is not None:
            ran = stored.total_seconds()
        counts.ran_by_bucket[0 if ran < _FIRST else bisect_right(_BOUNDS, ran)] += 1
        if self._resumed:
            due = max([due, *(at for of, at in self._resumed.items() if of in (name, None))])
        waited = (self._now - due).total_seconds() + started - self._counter
        if waited < 0.0:  # the server's clock is known to some milliseconds
            waited = 0.0
        counts.waited += waited
        counts.waited_by_bucket[bisect_right(_BOUNDS, waited)] += 1

    def resume(self, name: str | None) -> None:
        """Measure waits from now on only: a pause of this name (None: of all) is over."""
        self._resumed[name] = self._clock.now().replace(tzinfo=None)

    def _begin(self, name: str) -> Counts:
        if len(self._by_name) >= MOST_NAMES:
            name = OTHERS
        return self._by_name.setdefault(name, Counts())

    def cut(self) -> dict[str, Counts]:
        """Return what was counted since the last cut, and begin anew."""
        self._now, self._counter = self._clock.now().replace(tzinfo=None), time.perf_counter()
        counted, self._by_name = self._by_name, {}
        return counted


class TrendWriter:
    """Cuts the tally at each minute of the server's clock, and writes it at each interval, until *over*."""

    def __init__(
        self, store: Store, companion: Companion, tally: Tally, settings: Trends, over: asyncio.Event
    ) -> None:
        self._store = store
        self._companion = companion
        self._tally = tally
        self._settings = settings
        self._over = over
        self._minute = begin_of(MINUTE, store.clock.now())
        self._unwritten: dict[datetime, dict[str, Counts]] = {}
        self._flush_at = 0.0
        self._keep(self._minute, tally.cut())  # what an earlier runner has left, or recovery at open

    async def loop(self) -> None:
        """Cut and write until it is over; `close` writes the rest."""
        self._plan_flush()
        while not await happens(self._over, self._seconds_to_next()):
            self._cut()
            if elapsed() >= self._flush_at:
                await self._flush(WRITE_LIMIT)
                raise_lost_cancellation()
                self._plan_flush()

    async def close(self, within: float) -> None:
        """Write what is left."""
        self._cut()
        await self._flush(within)

    def _plan_flush(self) -> None:
        interval = self._settings.interval.total_seconds()
        self._flush_at = elapsed() + interval * random.uniform(1 - _JITTER, 1 + _JITTER)  # noqa: S311 - spreads

    def _seconds_to_next(self) -> float:
        """Until the next write or the end of the minute, whichever comes first."""
        to_minute = self._store.clock.seconds_until(self._minute + MINUTE)
        return max(min(self._flush_at - elapsed(), to_minute), 0.001)

    def _cut(self) -> None:
        """Note what was counted under the minute in which that began."""
        self._keep(self._minute, self._tally.cut())
        self._minute = begin_of(MINUTE, self._store.clock.now())

    def _keep(self, minute: datetime, counted: Mapping[str, Counts]) -> None:
        if not counted or not self._companion.may_write:
            return
        kept = self._unwritten.setdefault(minute, {})
        for name, counts in counted.items():
            shown = name if name in kept or len(kept) < MOST_NAMES else OTHERS
            if shown in kept:
                kept[shown].add(counts)
            else:
                kept[shown] = counts

    async def _flush(self, within: float) -> None:
        """Write all that is not written yet, in one command; what fails waits for the next one."""
        if not self._unwritten:
            return
        unwritten, self._unwritten = self._unwritten, {}
        entries = [Entry(minute, *item) for minute, counted in unwritten.items() for item in counted.items()]
        keep = self._settings.minutes
        for failed in await add(self._companion, entries, keep=keep, within=within):
            self._keep(failed.minute, {failed.name: failed.counts})
        self._drop_old()

    def _drop_old(self) -> None:
        """The numbers of a long outage must not fill memory, nor reach an hour that is added up."""
        oldest = self._store.clock.now() - LONGEST_DELAY
        old = [minute for minute in self._unwritten if minute < oldest]
        for minute in old:
            del self._unwritten[minute]
        if old:
            message = "the trends of %d minute(s) since %s UTC could not be written for too long and are lost"
            fields = {"instance_id": self._store.instance_id}
            logger.warning(message, len(old), f"{min(old):%H:%M}", extra=fields)


# How often the holder of the lease counts what waits, and how often others ask for the lease, in seconds.
# With twice of the first, the lease runs out in between; half of it doubles the cost. Others need not be
# quick: only gauges are missing meanwhile.
_ROUND = 60.0
_ASK = 120.0

# The longest that counting what waits may take. If it takes long, it is done less often: the server must have
# better things to do ten elevenths of the time. Half of that doubles the share.
_GAUGE_LIMIT = timedelta(seconds=5)
_PAUSE_PER_SECOND = 10.0

# An hour is final when no instance can add to its minutes any more; two minutes are for a slow write.
_FINAL_AFTER = LONGEST_DELAY + timedelta(minutes=2)


class TrendKeeper:
    """Asks for the lease, and does the work of its holder, until *over*."""

    def __init__(self, store: Store, companion: Companion, settings: Trends, over: asyncio.Event) -> None:
        self._store = store
        self._companion = companion
        self._settings = settings
        self._over = over
        self._holds_lease = False
        self._gauged: frozenset[str] = frozenset()
        """The names that had jobs at the last count."""
        self._folded_to: datetime | None = None

    async def loop(self) -> None:
        """Take a turn soon after the start, then each minute; less often without the lease."""
        pause = self._settings.interval.total_seconds()
        while not await happens(self._over, pause):
            began = time.perf_counter()
            with suppress(PyMongoError, AggregationTimeoutError):  # heartbeats report an outage
                await self._take_turn()
            raise_lost_cancellation()
            took = time.perf_counter() - began
            pause = max(self._pause() - took, took * _PAUSE_PER_SECOND)

    async def close(self, within: float) -> None:
        """Let another instance have the lease."""
        if self._holds_lease:
            with suppress(PyMongoError):
                await release_lease(self._companion, self._store.instance_id, within=within)

    def _pause(self) -> float:
        # The holder keeps to its second of the minute, so that no minute is left out. The others spread.
        return _ROUND if self._holds_lease else _ASK * random.uniform(0.8, 1.2)  # noqa: S311 - spreads

    async def _take_turn(self) -> None:
        self._holds_lease = await take_lease(self._companion, self._store.instance_id)
        if self._holds_lease:
            await self._gauge()
            await self._fold()

    async def _gauge(self) -> None:
        """Store what waits and runs now; of a name that has nothing any more, once that it has nothing."""
        now = self._store.clock.now()
        pipeline = counting.depths(now)
        groups = await aggregate(self._store.collection, pipeline, max_time=_GAUGE_LIMIT)
        depths = _largest(counting.depths_from(groups, besides=self._gauged, now=now))
        minute, keep = begin_of(MINUTE, now), self._settings.minutes
        await set_gauges(self._companion, minute, depths, keep=keep)
        self._gauged = frozenset(depth.name for depth in depths if _size(depth))

    async def _fold(self) -> None:
        until = begin_of(HOUR, self._store.clock.now() - _FINAL_AFTER)
        if self._folded_to is None or self._folded_to < until:
            await fold(self._companion, until, self._settings)
            self._folded_to = until


def _size(depth: QueueDepth) -> int:
    return depth.due + depth.later + depth.processing


def _largest(depths: list[QueueDepth]) -> list[QueueDepth]:
    """Very many names are a mistake, such as an id in a name; they must not fill the disk."""
    return sorted(depths, key=_size, reverse=True)[:MOST_NAMES]
