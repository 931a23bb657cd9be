"""What a live view shows at one moment, and how two moments differ; pure functions.

The pulse (`pulse.py`) takes a snapshot each tick and publishes the difference from the one before. A client
that was away for some ticks gets these differences merged into one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, NamedTuple, TypeAlias

from monque import Instance, QueueDepth, TrendPoint
from monque.management.values import iso, iso_or_none, milliseconds

COLUMNS = (
    "name",
    "due",
    "later",
    "processing",
    "oldestDueMs",
    "failed",
    "completedPerMin",
    "retriedPerMin",
    "failedPerMin",
    "waitP95Ms",
    "slots",
    "paused",
)

Row: TypeAlias = tuple[str | int | bool | None, ...]
"""The values of one job name, in the order of `COLUMNS`."""

_NAME, _DUE, _LATER, _PROCESSING, _OLDEST, _FAILED, _COMPLETED_RATE, _RETRIED_RATE, _FAILED_RATE = range(9)
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
    """What one tick has read; *failures* is None without the index `monque_failed`.

    In *paused*, None means all names.
    """

    at: datetime
    depths: Sequence[QueueDepth]
    points: Sequence[TrendPoint]
    instances: Sequence[Instance]
    paused: frozenset[str | None]
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
    """What changed since an earlier snapshot; *gone* names and instances are not there any more."""

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
    """What turns *before* into *after*."""
    return Delta(
        newest=after,
        rows=_changed(before.rows, after.rows),
        gone=frozenset(before.rows.keys() - after.rows.keys()),
        instances=_changed(before.instances, after.instances),
        gone_instances=frozenset(before.instances.keys() - after.instances.keys()),
    )


def merged(deltas: Sequence[Delta]) -> Delta:
    """One delta that does what *deltas*, of successive ticks, do one after the other."""
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
    """What brings a client that has seen tick *seq* up to *newest*; None if it is there already.

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
    slots = _slots(reading.instances)
    failed = {} if reading.failures is None else reading.failures.failed
    names = {*depths, *rates, *slots, *failed, *filter(None, reading.paused)}
    return {
        name: (
            *_depth(depths.get(name) or QueueDepth(name=name)),
            None if reading.failures is None else failed.get(name, 0),
            *rates.get(name, NO_RATE),
            slots.get(name, 0),
            name in reading.paused or None in reading.paused,
        )
        for name in sorted(names)
    }


def _depth(depth: QueueDepth) -> Row:
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
    """How many jobs of each name the instances that live can run at once."""
    found: dict[str, int] = {}
    for instance in instances:
        if instance.alive and instance.state == "running":
            for worker in instance.workers:
                own = 0 if worker.off else min(worker.concurrency, instance.slots)
                found[worker.name] = found.get(worker.name, 0) + own
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
    """Which part of what a point counts belongs to the last minute, if jobs ended evenly."""
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
    active = {"due": _sum(rows, _DUE), "later": _sum(rows, _LATER), "processing": _sum(rows, _PROCESSING)}
    failed, cancelled, completed = _ended(reading, sum(active.values()))
    alive = [instance for instance in reading.instances if instance.alive]
    return {
        **active,
        "failed": failed,
        "cancelled": cancelled,
        "stored": reading.stored,
        "completed": completed,
        "completedPerMin": _sum(rows, _COMPLETED_RATE),
        "retriedPerMin": _sum(rows, _RETRIED_RATE),
        "failedPerMin": _sum(rows, _FAILED_RATE),
        "oldestDueMs": max((int(row[_OLDEST] or 0) for row in rows), default=0),
        "slots": sum(instance.slots for instance in alive),
        "busy": sum(instance.busy for instance in alive),
    }


def _ended(reading: Reading, active: int) -> tuple[int | None, int | None, int | None]:
    """Failed, cancelled and completed jobs; nobody counts the completed ones, who may be millions."""
    if reading.failures is None:
        return None, None, None
    failed, cancelled = sum(reading.failures.failed.values()), reading.failures.cancelled
    return failed, cancelled, max(0, reading.stored - active - failed - cancelled)


def _sum(rows: Iterable[Row], column: int) -> int:
    return sum(int(row[column] or 0) for row in rows)


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
