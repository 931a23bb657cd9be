"""Numbers over time as rows, percentiles and heat maps; pure functions over trend points."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import Any

from monque import Histogram, TrendPoint
from monque.management.ops import OpsHeat, OpsPercentiles, OpsRecent
from monque.management.values import iso, milliseconds

COLUMNS = (
    "at",
    "completed",
    "retried",
    "failed",
    "cancelled",
    "snoozed",
    "ranMs",
    "waitedMs",
    "due",
    "later",
    "processing",
    "oldestDueMs",
)
_SHARES = {"p50_ms": 0.5, "p90_ms": 0.9, "p95_ms": 0.95, "p99_ms": 0.99}


def row_of(point: TrendPoint) -> list[int | str | None]:
    """The numbers of one step, in the order of `COLUMNS`; gauges are null where nobody counted."""
    return [
        iso(point.at),
        point.completed,
        point.retried,
        point.failed,
        point.cancelled,
        point.snoozed,
        milliseconds(point.ran_total),
        milliseconds(point.waited_total),
        point.due,
        point.later,
        point.processing,
        None if point.oldest_due is None else milliseconds(point.oldest_due),
    ]


def percentiles(histogram: Histogram) -> OpsPercentiles:
    """About how long it took for these shares, at most."""
    shown: dict[str, Any] = {"count": histogram.count}
    for field, share in _SHARES.items():
        if (time := histogram.quantile(share)) is not None:
            shown[field] = round(time.total_seconds() * 1000, 3)
    return OpsPercentiles(**shown)


def heat(histograms: Sequence[Histogram]) -> OpsHeat:
    """Percentiles over all steps and in each, and how many fell into which bucket."""
    total = sum(histograms, Histogram())
    buckets = range(min(total.counts, default=0), max(total.counts, default=-1) + 1)
    return OpsHeat(
        percentiles=percentiles(total),
        lines=[percentiles(each) for each in histograms],
        buckets=[round(Histogram.bounds(each)[0].total_seconds() * 1000, 3) for each in buckets],
        matrix=[[each.counts.get(bucket, 0) for each in histograms] for bucket in buckets],
    )


def recent(points: Iterable[TrendPoint], since: datetime, steps: int) -> dict[str, OpsRecent]:
    """What ended in each of the steps from *since* on, by name; *points* are those of single names."""
    completed: dict[str, list[int]] = {}
    ran: dict[str, Histogram] = {}
    for point in points:
        name, place = str(point.name), (point.at - since) // point.step
        if 0 <= place < steps:
            completed.setdefault(name, [0] * steps)[place] += point.completed
            ran[name] = ran.get(name, Histogram()) + point.ran
    return {name: _recent(counts, ran[name].quantile(0.95)) for name, counts in completed.items()}


def _recent(completed: list[int], p95: timedelta | None) -> OpsRecent:
    if p95 is None:
        return OpsRecent(completed=completed)
    return OpsRecent(completed=completed, run_p95_ms=round(p95.total_seconds() * 1000, 3))
