"""Groups of failures as values."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from bson import ObjectId

from monque import FailureRow, Instance, JobStatus
from monque.web.groups import differing_keys, grouped, releases

NOW = datetime(2026, 5, 1, 12, tzinfo=UTC)


def failed(reason: str | None, *, minutes: float = 1, name: str = "work") -> FailureRow:
    return FailureRow(
        id=ObjectId(),
        name=name,
        status=JobStatus.FAILED,
        at=NOW - timedelta(minutes=minutes),
        reason=reason,
        fail_count=1,
        attempt_error_type=None,
    )


def instance(release: str | None, *, minutes: float) -> Instance:
    return Instance(
        id=str(ObjectId()),
        host="a",
        pid=1,
        version="1",
        python="3.11",
        release=release,
        started_at=NOW - timedelta(minutes=minutes),
        seen_at=NOW,
        state="running",
        alive=True,
        interval=timedelta(seconds=30),
        settings={},
    )


def test_the_largest_group_comes_first_with_names_times_and_samples() -> None:
    rows = [failed(f"AnError: {each}", minutes=each, name="a" if each < 4 else "b") for each in range(1, 6)]
    rows.insert(2, failed("Y: other", minutes=2.5))

    first, second = grouped(rows)

    assert (first.count, second.count, first.type) == (5, 1, "AnError")
    assert first.names == ["a", "b"]
    assert (first.last_seen, first.first_seen) == (NOW - timedelta(minutes=1), NOW - timedelta(minutes=5))
    assert len(first.samples) == 3
    assert first.samples[0] == rows[0].id
    assert second.samples == [rows[2].id]


def test_a_trend_has_24_bars_over_the_window() -> None:
    [group] = grouped([failed("X", minutes=each) for each in (0, 1, 2, 59, 60)])

    bars = group.trend(NOW - timedelta(hours=1), NOW)

    assert (len(bars), sum(bars)) == (24, 5)
    assert (bars[0], bars[-1]) == (2, 3)


def test_a_group_is_new_if_it_was_first_seen_after_the_newest_release() -> None:
    [old] = grouped([failed("X", minutes=1), failed("X", minutes=30)])
    [new] = grouped([failed("X", minutes=1)])
    marks = releases([instance("a", minutes=60), instance("b", minutes=10)])

    assert (old.new_since(marks), new.new_since(marks), new.new_since([])) == (None, "b", None)


def test_a_release_mark_is_the_first_start_of_that_release() -> None:
    found = releases(
        [
            instance("b", minutes=5),
            instance("a", minutes=60),
            instance("b", minutes=9),
            instance(None, minutes=1),
        ]
    )

    assert found == [("a", NOW - timedelta(minutes=60)), ("b", NOW - timedelta(minutes=9))]


def test_payload_keys_that_differ() -> None:
    assert differing_keys([{"a": 1, "b": 2}, {"a": 1, "b": 3, "c": None}]) == ["b", "c"]
    assert differing_keys([{"a": 1}]) == differing_keys(["text", 7]) == []
