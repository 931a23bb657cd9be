"""Numbers over time, as pages show them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from monque import Histogram, TrendPoint
from monque._views.live import Row
from monque.web.outlook import histories, outlook
from monque.web.trends import recent

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


def depths(*due: int, ended: int = 0) -> list[TrendPoint]:
    """A minute each, the last one just before noon."""
    begin = NOON - len(due) * MINUTE
    return [
        TrendPoint(at=begin + each * MINUTE, step=MINUTE, name="a", due=count, processing=2, completed=ended)
        for each, count in enumerate(due)
    ]


@pytest.mark.parametrize(
    ("before", "now", "words", "arrived"),
    [
        ([900, 800, 700, 600, 500], 450, "empty in about 4 min", 20.0),
        ([100, 200, 300, 400, 500], 550, "grows by 100 a minute", 220.0),
        ([5, 5, 5, 5, 5], 5, "stays as it is", 120.0),
        ([900_000, 899_999, 899_998, 899_997, 899_996], 899_995, "shrinks by 1 a minute", 119.1),
        ([9, 8, 7, 6, 0], 0, "empty", 118.2),
    ],
)
def test_the_outlook_of_a_queue_follows_the_slope_of_its_last_five_minutes(
    before: list[int], now: int, words: str, arrived: float
) -> None:
    older = TrendPoint(at=NOON - 6 * MINUTE, step=MINUTE, name="a", due=99_999, completed=99_999)
    found = histories([older, *depths(*before, ended=120)], NOON)["a"]

    shown = outlook(Row("a", due=now, processing=2), found, NOON)

    assert shown is not None
    assert (shown.words, shown.ended_per_min) == (words, 120.0)
    assert shown.arrived_per_min == pytest.approx(arrived, abs=3)
    assert ("emptyInMs" in shown.dump()) == words.startswith("empty")


def test_a_name_without_jobs_had_none_where_others_were_counted_and_else_nobody_knows() -> None:
    counted = histories(depths(3, 3, 3, 3, 3), NOON)
    shown = outlook(Row("new", due=60), counted[None], NOON)
    assert shown is not None
    assert shown.words.startswith("grows by ")
    assert outlook(Row("a", due=60), histories([], NOON)[None], NOON) is None
