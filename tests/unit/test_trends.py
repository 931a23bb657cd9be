"""Numbers over time as values: buckets, quantiles, tallies, and where a span is read."""

from __future__ import annotations

import math
import time
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from bson import ObjectId
from hypothesis import given
from hypothesis import strategies as st

from monque import ConfigurationError, Histogram, QueueDepth, TrendPoint, Trends
from monque._ops import trends
from monque._ops.counts import with_failures
from monque._ops.trends import MOST_NAMES, OTHERS, Counts, Span, Tally, begin_of, stretches
from monque._store.document import Claim, UnclaimableError
from monque._time.clock import Clock

NOON = datetime(2026, 11, 17, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)
MINUTE = timedelta(minutes=1)


class FixedClock(Clock):
    """Noon, whenever one asks."""

    def now(self) -> datetime:
        return NOON


@given(st.floats(min_value=0.0, max_value=1e9))
def test_buckets_are_five_a_decade(milliseconds: float) -> None:
    bucket = Histogram.bucket_of(milliseconds)

    exact = 5 * math.log10(milliseconds) if milliseconds >= 1 else -1.0
    if abs(exact - round(exact)) > 1e-9:  # on an edge both neighbours are right
        assert bucket == (0 if milliseconds < 1 else min(math.floor(exact) + 1, 40))
    begin, end = Histogram.bounds(bucket)
    assert begin <= timedelta(milliseconds=milliseconds + 0.001)
    assert timedelta(milliseconds=milliseconds - 0.001) <= end or bucket == 40


@pytest.mark.parametrize(
    ("milliseconds", "bucket"), [(0, 0), (0.99, 0), (1, 1), (10, 6), (1000, 16), (1e8, 40)]
)
def test_a_bucket_begins_with_its_lower_bound(milliseconds: float, bucket: int) -> None:
    assert Histogram.bucket_of(milliseconds) == bucket


@given(st.lists(st.floats(min_value=0.0, max_value=1e8), min_size=1), st.floats(0, 1))
def test_a_quantile_lies_in_the_bucket_of_the_true_one(durations: list[float], share: float) -> None:
    counts: dict[int, int] = {}
    for duration in durations:
        bucket = Histogram.bucket_of(duration)
        counts[bucket] = counts.get(bucket, 0) + 1
    true = sorted(durations)[max(math.ceil(share * len(durations)) - 1, 0)]

    found = Histogram(counts).quantile(share)

    begin, end = Histogram.bounds(Histogram.bucket_of(true))
    assert found is not None
    assert begin <= found <= end


def test_a_histogram_without_durations_has_no_quantile() -> None:
    assert Histogram().quantile(0.5) is None
    assert Histogram().count == 0


def test_histograms_add_up() -> None:
    together = Histogram({1: 2, 7: 1}) + Histogram({7: 3})

    assert together == Histogram({1: 2, 7: 4})
    assert list(together) == [(1, 2), (7, 4)]
    with pytest.raises(TypeError):
        together + 1


@pytest.mark.parametrize("share", [-0.1, 1.1, math.nan])
def test_a_quantile_is_a_share(share: float) -> None:
    with pytest.raises(ConfigurationError, match="share from 0 to 1"):
        Histogram({1: 1}).quantile(share)


@pytest.mark.parametrize("bucket", [-1, 41])
def test_there_is_no_other_bucket(bucket: int) -> None:
    with pytest.raises(ConfigurationError, match="from 0 to 40"):
        Histogram.bounds(bucket)


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        ({"interval": 10}, "trends.interval must be a timedelta"),
        ({"interval": timedelta(minutes=6)}, "at most 5 minutes"),
        ({"minutes": timedelta(hours=1)}, "at least 2 hours"),
        ({"hours": timedelta(hours=47)}, "at least trends.minutes"),
    ],
)
def test_wrong_settings_are_refused(wrong: dict[str, Any], text: str) -> None:
    with pytest.raises(ConfigurationError, match=text):
        Trends(**wrong)


def tally() -> Tally:
    begun = Tally(FixedClock())
    begun.cut()
    return begun


def due(moment: datetime) -> datetime:
    """The time of a claim: times in claims are naive."""
    return moment.replace(tzinfo=None)


def test_a_tally_counts_runs_by_name_and_ending() -> None:
    counting = tally()
    for ending in ("completed", "completed", "retried", "failed", "cancelled", "snoozed"):
        counting.count("work", ending, 0.5, time.perf_counter(), due(NOON))
    counting.count("other", "completed", 2.0, time.perf_counter(), due(NOON - timedelta(seconds=10)))

    counted = counting.cut()

    assert counted["work"].endings == {
        "completed": 2,
        "retried": 1,
        "failed": 1,
        "cancelled": 1,
        "snoozed": 1,
    }
    assert counted["work"].ran == pytest.approx(3.0)
    assert counted["work"].ran_by_bucket[Histogram.bucket_of(500)] == 6
    assert counted["other"].waited == pytest.approx(10, abs=1)
    assert counted["other"].waited_by_bucket[Histogram.bucket_of(10_050)] == 1
    assert counting.cut() == {}


def test_a_wait_is_never_negative() -> None:
    counting = tally()
    counting.count("work", "completed", 0.1, time.perf_counter(), due(NOON + HOUR))

    counts = counting.cut()["work"]
    assert counts.waited == 0.0
    assert counts.waited_by_bucket[0] == 1


def test_a_wait_during_a_pause_does_not_count() -> None:
    counting = tally()
    counting.resume("work")
    for name in ("work", "other"):
        counting.count(name, "completed", 0.1, time.perf_counter(), due(NOON - HOUR))
    counting.resume(None)
    counting.count("third", "completed", 0.1, time.perf_counter(), due(NOON - HOUR))

    waited = {name: counts.waited for name, counts in counting.cut().items()}
    assert waited == {
        "work": pytest.approx(0, abs=5),
        "other": pytest.approx(3600, abs=5),
        "third": pytest.approx(0, abs=5),
    }


def test_a_job_that_never_started_has_no_durations() -> None:
    counting = tally()
    counting.count("work", "cancelled", 0.0, 0.0, due(NOON - HOUR))

    counts = counting.cut()["work"]
    assert counts.endings["cancelled"] == 1
    assert (counts.ran, counts.waited, sum(counts.ran_by_bucket), sum(counts.waited_by_bucket)) == (
        0,
        0,
        0,
        0,
    )


@pytest.mark.parametrize("moment", ["soon", None, 5, {}])
def test_a_due_time_that_is_not_a_date_is_never_counted_for_it_makes_no_claim(moment: object) -> None:
    with pytest.raises(UnclaimableError):
        Claim({"_id": ObjectId(), "name": "work", "attempt": 1, "nextRunAt": moment})


def test_a_claim_that_was_read_again_has_times_with_a_zone() -> None:
    counting = tally()
    claim = Claim.of_read({"_id": ObjectId(), "name": "work", "attempt": 1, "nextRunAt": NOON - HOUR})
    counting.count("work", "completed", 0.1, time.perf_counter(), claim.due)

    assert counting.cut()["work"].waited == pytest.approx(3600, abs=5)


@given(st.floats(min_value=0.0, max_value=1e6))
def test_a_tally_and_a_histogram_agree_about_buckets(duration: float) -> None:
    counting = tally()
    counting.count("work", "completed", duration, time.perf_counter(), due(NOON))

    found = counting.cut()["work"].ran_by_bucket.index(1)
    assert abs(found - Histogram.bucket_of(duration * 1000)) <= (1 if is_edge(duration * 1000) else 0)


def is_edge(milliseconds: float) -> bool:
    return milliseconds > 0 and abs(5 * math.log10(milliseconds) - round(5 * math.log10(milliseconds))) < 1e-9


def test_too_many_names_share_one() -> None:
    counting = tally()
    for number in range(MOST_NAMES + 7):
        counting.count(f"name-{number}", "completed", 0.1)

    counted = counting.cut()
    assert len(counted) == MOST_NAMES + 1
    assert counted[OTHERS].endings["completed"] == 7


def test_counts_add_up() -> None:
    one, other = Counts(), Counts()
    for counts in (one, other):
        counts.endings["completed"] = 2
        counts.ran, counts.waited = 1.5, 2.5
        counts.ran_by_bucket[7] = counts.waited_by_bucket[9] = 2
    one.add(other)

    assert one.endings["completed"] == 4
    assert (one.ran, one.waited) == (3.0, 5.0)
    assert (one.ran_by_bucket[7], one.waited_by_bucket[9]) == (4, 4)


def test_only_what_is_not_zero_is_written() -> None:
    counts = Counts(ran=1.5)
    counts.endings["completed"] = 3
    counts.ran_by_bucket[7] = 3

    written = trends.add_counts(NOON, "a.$b", counts, keep=HOUR)

    assert written._filter == {"_id": {"r": "m", "t": NOON, "n": "a.$b"}}
    assert written._doc == {
        "$inc": {"completed": 3, "ranMs": 1500, "ran.7": 3},
        "$set": {"expireAt": NOON + HOUR},
    }


def test_steps_are_counted_from_1970_on() -> None:
    assert begin_of(HOUR, NOON + timedelta(minutes=59)) == NOON
    assert begin_of(timedelta(minutes=7), NOON) <= NOON


@pytest.mark.parametrize(
    ("folded", "expected"),
    [
        (None, [("m", 0, 10)]),
        (-1, [("m", 0, 10)]),
        (0, [("h", 0, 1), ("m", 1, 10)]),
        (5, [("h", 0, 6), ("m", 6, 10)]),
        (9, [("h", 0, 10)]),
        (20, [("h", 0, 10)]),
    ],
)
def test_folded_hours_are_read_as_hours_and_the_others_as_minutes(
    folded: int | None, expected: list[tuple[str, int, int]]
) -> None:
    span = Span(NOON, NOON + 10 * HOUR, HOUR)
    last = None if folded is None else NOON + folded * HOUR

    assert stretches(span, last) == [(kind, NOON + a * HOUR, NOON + b * HOUR) for kind, a, b in expected]


def test_steps_in_which_nothing_happened_are_filled_in() -> None:
    known = TrendPoint(at=NOON + MINUTE, step=MINUTE, completed=5)

    points = trends.filled([known], NOON, NOON + timedelta(minutes=2, seconds=30), MINUTE, None)

    assert [point.at for point in points] == [NOON, NOON + MINUTE, NOON + 2 * MINUTE]
    assert [point.completed for point in points] == [0, 5, 0]
    assert [point.ended for point in points] == [0, 5, 0]


def test_failures_are_joined_with_depths() -> None:
    groups = [
        {"_id": {"name": "a", "status": "failed"}, "count": 3},
        {"_id": {"name": "b", "status": "cancelled"}, "count": 2},
    ]
    joined = with_failures([QueueDepth(name="a", due=1), QueueDepth(name="c")], groups)

    assert [(each.name, each.due, each.failed, each.cancelled) for each in joined] == [
        ("a", 1, 3, 0),
        ("b", 0, 0, 2),
        ("c", 0, 0, 0),
    ]
