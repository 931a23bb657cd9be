"""Snapshots of a live view, the reads behind them, and the differences between two of them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, NamedTuple, TypeVar

from pydantic.alias_generators import to_camel

from monque import ConnectionError, Instance, Monque, Pause, QueueDepth, TrendPoint
from monque._views.text import iso, iso_or_none, milliseconds


class Row(NamedTuple):
    """The numbers of one job name; None where nobody counted.

    *processing* is a state: claimed, and not settled. Of these, handlers run *running*; the others are
    *claimed_ahead*: they wait for a slot, or have ended and are being stored. Instances tell which, seconds
    later. With jobs of 20 ms in 8 slots, 33 are claimed: 21 wait, 8 run, and 4 are being stored.
    """

    name: str
    due: int = 0
    later: int = 0
    processing: int = 0
    oldest_due_ms: int = 0
    failed: int | None = None
    completed_per_min: int | None = None
    retried_per_min: int | None = None
    failed_per_min: int | None = None
    wait_p95_ms: int | None = None
    slots: int = 0
    paused: bool = False
    running: int = 0
    claimed_ahead: int = 0
    parked: int = 0


COLUMNS = tuple(map(to_camel, Row._fields))
"""The fields of a row, as the pages call them."""

_MINUTE = timedelta(minutes=1)

RECENT = 2 * _MINUTE
"""The time to read back for rates: the last minute began in the bucket before the current one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trouble:
    """The database does not answer: since when, and what it says."""

    since: datetime
    text: str

    def wire(self) -> dict[str, Any]:
        return {"since": iso(self.since), "text": self.text}


@dataclass(frozen=True, slots=True, kw_only=True)
class Failures:
    """Failed jobs by name and cancelled ones in all; read less often than the rest."""

    failed: Mapping[str, int] = field(default_factory=dict)
    cancelled: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """The values that one tick has read; *failures* is None without the index `monque_failed`."""

    at: datetime
    depths: Sequence[QueueDepth]
    points: Sequence[TrendPoint]
    instances: Sequence[Instance]
    pauses: Sequence[Pause]
    failures: Failures | None
    stored: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """All numbers of the live view at one moment.

    Attributes:
        at: When, by the server's clock.
        seq: The number of the tick.
        every: How long it is from this tick to the next.
        took: How long the reads took.
        totals: The sums over all names. *failed*, *cancelled* and *completed* are None without the index
            `monque_failed`: *completed* is what is stored less the rest.
        rows: One row a job name, its values in the order of `COLUMNS`.
        instances: The instances in the register, by id.
        trouble: Set while the database does not answer; the numbers are then the last ones known.
    """

    at: datetime
    seq: int
    every: timedelta
    took: timedelta
    totals: Mapping[str, int | None]
    rows: Mapping[str, Row]
    instances: Mapping[str, Mapping[str, Any]]
    trouble: Trouble | None = None

    def wire(self) -> dict[str, Any]:
        """The data of the event `snapshot`."""
        return _wire(self, self.rows, self.instances)


@dataclass(frozen=True, slots=True, kw_only=True)
class Delta:
    """The changes since an earlier snapshot; *gone* names and instances are not there any more."""

    newest: Snapshot
    rows: Mapping[str, Row]
    gone: frozenset[str]
    instances: Mapping[str, Mapping[str, Any]]
    gone_instances: frozenset[str]

    def wire(self) -> dict[str, Any]:
        """The data of the event `delta`: as a snapshot, with what changed alone."""
        return {
            **_wire(self.newest, self.rows, self.instances),
            "gone": sorted(self.gone),
            "goneInstances": sorted(self.gone_instances),
        }


def difference(before: Snapshot, after: Snapshot) -> Delta:
    """Return the changes that turn *before* into *after*."""
    return Delta(
        newest=after,
        rows=_changed(before.rows, after.rows),
        gone=frozenset(before.rows.keys() - after.rows.keys()),
        instances=_changed(before.instances, after.instances),
        gone_instances=frozenset(before.instances.keys() - after.instances.keys()),
    )


def merged(deltas: Sequence[Delta]) -> Delta:
    """Return one delta that does what *deltas*, of successive ticks, do one after the other."""
    newest = deltas[-1].newest
    rows = {name for delta in deltas for name in delta.rows}
    instances = {each for delta in deltas for each in delta.instances}
    return Delta(
        newest=newest,
        rows={name: newest.rows[name] for name in sorted(rows) if name in newest.rows},
        gone=frozenset().union(*(delta.gone for delta in deltas)) - newest.rows.keys(),
        instances={each: newest.instances[each] for each in sorted(instances) if each in newest.instances},
        gone_instances=frozenset().union(*(delta.gone_instances for delta in deltas))
        - newest.instances.keys(),
    )


def catch_up(ring: Sequence[Delta], newest: Snapshot, seq: int) -> Snapshot | Delta | None:
    """Return what brings a client that has seen tick *seq* up to *newest*; None if it is there already.

    *ring* holds the deltas of the last ticks, the newest one last.
    """
    if seq == newest.seq:
        return None
    missed = [delta for delta in ring if delta.newest.seq > seq]
    if 0 < seq < newest.seq and len(missed) == newest.seq - seq:
        return merged(missed)
    return newest


def take(reading: Reading, *, every: timedelta, took: timedelta) -> Snapshot:
    """The snapshot that shows *reading*; whoever publishes it gives it its number."""
    rows = _rows(reading)
    return Snapshot(
        at=reading.at,
        seq=0,
        every=every,
        took=took,
        totals=_totals(reading, rows.values()),
        rows=rows,
        instances={each.id: _instance(each) for each in reading.instances},
    )


def _wire(
    newest: Snapshot, rows: Mapping[str, Row], instances: Mapping[str, Mapping[str, Any]]
) -> dict[str, Any]:
    return {
        "at": iso(newest.at),
        "seq": newest.seq,
        "everyMs": milliseconds(newest.every),
        "tookMs": milliseconds(newest.took),
        "columns": COLUMNS,
        "totals": dict(newest.totals),
        "names": list(rows.values()),
        "instances": list(instances.values()),
        "trouble": None if newest.trouble is None else newest.trouble.wire(),
    }


def _changed(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in after.items() if before.get(key) != value}


def _rows(reading: Reading) -> dict[str, Row]:
    depths = {depth.name: depth for depth in reading.depths}
    rates = rates_of(reading.points, reading.at)
    slots, bounds = _slots(reading.instances), _bounds(reading.instances)
    failed = {} if reading.failures is None else reading.failures.failed
    paused = {pause.name for pause in reading.pauses}
    names = {*depths, *rates, *slots, *failed, *filter(None, paused)}
    return {
        name: Row(
            *_depth(depths.get(name) or QueueDepth(name=name)),
            None if reading.failures is None else failed.get(name, 0),
            *rates.get(name, NO_RATE),
            slots.get(name, 0),
            name in paused or None in paused,  # None: all names
            *split(depths[name].processing if name in depths else 0, bounds.get(name, 0)),
            depths[name].parked if name in depths else 0,
        )
        for name in sorted(names)
    }


def split(processing: int, bound: int) -> tuple[int, int]:
    """The numbers of claimed jobs that run, and of those that do not yet or not any more.

    No more handlers run than there are slots, and as long as more are claimed, each slot has one. Instances
    that report no slots (TypeScript, or older) run what they claim.
    """
    running = min(processing, bound) if bound else processing
    return running, processing - running


def _depth(depth: QueueDepth) -> tuple[str, int, int, int, int]:
    return depth.name, depth.due, depth.later, depth.processing, milliseconds(depth.oldest_due)


class Rate(NamedTuple):
    """The jobs that ended in the last minute, by outcome, and the wait of 95 % of them, in milliseconds."""

    completed: int
    retried: int
    failed: int
    wait_p95: int | None


NO_RATE = Rate(0, 0, 0, None)


def rates_of(points: Iterable[TrendPoint], now: datetime) -> dict[str, Rate]:
    """The rate of each name; *points* are those of single names in the last two minutes."""
    found: dict[str, list[TrendPoint]] = {}
    for point in points:
        if point.name is not None:
            found.setdefault(point.name, []).append(point)
    return {name: _rate_of(own, now) for name, own in found.items()}


def _slots(instances: Iterable[Instance]) -> dict[str, int]:
    """Return the number of jobs of each name that the living instances can run at once."""
    found: dict[str, int] = {}
    for instance in instances:
        if instance.alive and instance.state == "running":
            for worker in instance.workers:
                own = 0 if worker.off else min(worker.concurrency, instance.slots)
                found[worker.name] = found.get(worker.name, 0) + own
    return found


def _bounds(instances: Iterable[Instance]) -> dict[str, int]:
    """Return the number of handlers of each name that can run: also of instances that are about to stop."""
    found: dict[str, int] = {}
    for instance in instances:
        for worker in instance.workers if instance.alive else ():
            own = 0 if worker.off else min(worker.concurrency, instance.slots)
            found[worker.name] = found.get(worker.name, 0) + max(own, worker.active)
    return found


def _rate_of(points: Sequence[TrendPoint], now: datetime) -> Rate:
    weighed = [(point, _share(point, now)) for point in points]
    waited = [point.waited for point in points if point.waited.count]
    longest = sum(waited[1:], waited[0]).quantile(0.95) if waited else None
    return Rate(
        _per_minute((point.completed, share) for point, share in weighed),
        _per_minute((point.retried, share) for point, share in weighed),
        _per_minute((point.failed, share) for point, share in weighed),
        None if longest is None else milliseconds(longest),
    )


def _share(point: TrendPoint, now: datetime) -> float:
    """Return the part of a point's counts that belongs to the last minute, if jobs ended evenly."""
    end = min(point.at + point.step, now)
    if end <= point.at:  # our clock is a little behind the server's
        return 1.0
    return max(0.0, min(1.0, (end - max(point.at, now - _MINUTE)) / (end - point.at)))


def _per_minute(counts: Iterable[tuple[int, float]]) -> int:
    """Whole jobs a minute: a rate that is not zero is at least 1."""
    total = sum(count * share for count, share in counts)
    return max(1, round(total)) if total > 0 else 0


def _totals(reading: Reading, rows: Iterable[Row]) -> dict[str, int | None]:
    rows = list(rows)
    active = {each: _sum(rows, each) for each in ("due", "later", "parked", "processing")}
    failed, cancelled, completed = _ended(reading, sum(active.values()))
    alive = [instance for instance in reading.instances if instance.alive]
    slots, bounds = sum(instance.slots for instance in alive), _bounds(alive)
    # Names may share the slots of an instance.
    among = min(sum(row.running for row in rows if bounds.get(row.name)), slots)
    running = among + sum(row.running for row in rows if not bounds.get(row.name))
    return {
        **active,
        "running": running,
        "claimedAhead": active["processing"] - running,
        "failed": failed,
        "cancelled": cancelled,
        "stored": reading.stored,
        "completed": completed,
        "completedPerMin": _sum(rows, "completed_per_min"),
        "retriedPerMin": _sum(rows, "retried_per_min"),
        "failedPerMin": _sum(rows, "failed_per_min"),
        "oldestDueMs": max((row.oldest_due_ms for row in rows), default=0),
        "slots": slots,
    }


def _ended(reading: Reading, active: int) -> tuple[int | None, int | None, int | None]:
    """Failed, cancelled and completed jobs; nobody counts the completed ones, who may be millions."""
    if reading.failures is None:
        return None, None, None
    failed, cancelled = sum(reading.failures.failed.values()), reading.failures.cancelled
    return failed, cancelled, max(0, reading.stored - active - failed - cancelled)


def _sum(rows: Iterable[Row], field: str) -> int:
    return sum(getattr(row, field) or 0 for row in rows)


def _instance(instance: Instance) -> dict[str, Any]:
    return {
        "id": instance.id,
        "host": instance.host,
        "pid": instance.pid,
        "release": instance.release,
        "version": instance.version,
        "state": instance.state,
        "alive": instance.alive,
        "seenAt": iso_or_none(instance.seen_at),
        "slots": instance.slots,
        "busy": instance.busy,
    }


T = TypeVar("T")

# Failed jobs and the size of the collection change slowly; counting failures takes 12 ms among a million
# jobs.
_SELDOM = 10

# A server that is slow ends the read itself, after the time limit. One that is gone does not: so much later
# we do. With less, a busy network would look like an outage; with more, pages would hear of one later.
_GRACE = timedelta(seconds=1)


class LiveReads:
    """Reads the numbers of one Monque: six commands a tick, and two more at every tenth."""

    def __init__(self, monque: Monque, *, limit: timedelta) -> None:
        self._monque = monque
        self._limit = limit
        self._count = 0
        self._failures: Failures | None = None
        self._stored = 0

    def begin(self) -> None:
        """Read everything next time, also what changes slowly."""
        self._count = 0

    async def read(self) -> Reading:
        """Read once.

        Raises:
            ConnectionError: The database does not answer.
            AggregationTimeoutError: A read took too long.
        """
        monque, limit, seldom = self._monque, self._limit, self._count % _SELDOM == 0
        depths = await self._answer(monque.queue_depths(failures=seldom, max_time=limit))
        if seldom:
            self._failures = _failures(depths)
            self._stored = await self._answer(monque.estimated_count(max_time=limit))
        since = monque.server_time() - RECENT
        points = await self._answer(monque.trends(since=since, by_name=True, max_time=limit))
        instances = await self._answer(monque.instances(max_time=limit))
        # Also a name of which no job waits may be paused.
        pauses = await self._answer(monque.paused())
        self._count += 1
        return Reading(
            at=monque.server_time(),
            depths=depths,
            points=points,
            instances=instances,
            pauses=pauses,
            failures=self._failures,
            stored=self._stored,
        )

    async def _answer(self, read: Awaitable[T]) -> T:
        seconds = (self._limit + _GRACE).total_seconds()
        try:
            async with asyncio.timeout(seconds):
                return await read
        except TimeoutError as error:
            raise ConnectionError(f"the database has not answered for {seconds:.0f} s") from error


def _failures(depths: Sequence[QueueDepth]) -> Failures | None:
    """Return the failures that were counted with the depths; None without the index `monque_failed`."""
    if any(depth.failed is None for depth in depths):
        return None
    return Failures(
        failed={depth.name: depth.failed for depth in depths if depth.failed},
        cancelled=sum(depth.cancelled or 0 for depth in depths),
    )
