"""The next 24 hours of a schedule as bands, and what the clocks do to it."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, cast

from monque import Schedule
from monque.web.schedule_times import DAY, edges_of, lane_of

NOW = datetime(2026, 11, 17, 12, 30, tzinfo=UTC)
HOUR = timedelta(hours=1)


def schedule(**fields: Any) -> Schedule:
    given = {"id": "1", "name": "report", "key": "report", "cron": None, "every": None, "timezone": "UTC"}
    given |= {"next_run_at": NOW + HOUR, "paused_at": None}
    blank = dict.fromkeys(Schedule.__dataclass_fields__)
    return cast(Schedule, Schedule(**{**blank, **given, **fields}))


def test_each_run_of_an_hourly_schedule_is_a_band() -> None:
    lane = lane_of(schedule(cron="0 * * * *"), now=NOW)

    assert [band.first for band in lane] == [NOW.replace(minute=0) + each * HOUR for each in range(1, 25)]
    assert {band.runs for band in lane} == {1}


def test_runs_that_are_too_near_to_each_other_are_one_band() -> None:
    [band] = lane_of(schedule(cron="* * * * *"), now=NOW)

    assert (band.first, band.last, band.runs) == (NOW, NOW + DAY, 24 * 60 + 1)


def test_intervals() -> None:
    assert len(lane_of(schedule(every=HOUR), now=NOW)) == 24
    [often] = lane_of(schedule(every=timedelta(seconds=7)), now=NOW)
    assert (often.first, often.last, often.runs) == (NOW + HOUR, NOW + DAY, None)
    assert lane_of(schedule(every=HOUR, next_run_at=NOW + 2 * DAY), now=NOW) == []


def test_what_is_paused_or_makes_no_sense_has_no_bands() -> None:
    hourly = schedule(cron="0 * * * *")

    assert lane_of(replace(hourly, paused_at=NOW), now=NOW) == []
    assert lane_of(replace(hourly, timezone="No/Where"), now=NOW) == []


def test_only_clock_changes_that_touch_a_run_are_told() -> None:
    [edge] = edges_of("30 2 * * *", "America/New_York", now=NOW)

    assert edge.effect == "14 March 2027: 02:30 does not exist, it runs at 03:00"
    assert edges_of("30 12 * * *", "America/New_York", now=NOW) == []
