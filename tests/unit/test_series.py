"""Numbers over time, as pages show them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from monque import Histogram, TrendPoint
from monque.management.series import recent

NOON = datetime(2026, 11, 17, 12, tzinfo=UTC)
MINUTE = timedelta(minutes=1)


def test_recent_minutes_are_counted_by_name() -> None:
    counted = [(-1, "a", 9), (0, "a", 2), (2, "a", 5), (2, "b", 0), (3, "a", 9)]
    points = [
        TrendPoint(
            at=NOON + each * MINUTE, step=MINUTE, name=name, completed=count, ran=Histogram({11: count})
        )
        for each, name, count in counted
    ]

    found = recent(points, NOON, 3)

    assert {name: each.completed for name, each in found.items()} == {"a": [2, 0, 5], "b": [0, 0, 0]}
    assert 100 < (found["a"].run_p95_ms or 0) < 160
    assert "runP95Ms" not in found["b"].dump()
