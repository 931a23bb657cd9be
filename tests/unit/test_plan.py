"""When a schedule runs: crons and intervals within bounds, with a jitter that everyone computes alike."""

from __future__ import annotations

import subprocess
import sys
from datetime import UTC, datetime, timedelta
from itertools import islice, pairwise
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from monque import ConfigurationError, InvalidCronError, next_runs
from monque._time.cron import Cron
from monque._time.plan import Plan, nearest_cron

BERLIN = ZoneInfo("Europe/Berlin")
NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
SECOND, MINUTE, HOUR, DAY = (timedelta(seconds=size) for size in (1, 60, 3600, 86400))


def plan(cron: str = "0 * * * *", timezone: str = "UTC", **fields: Any) -> Plan:
    return Plan(cron=Cron.parse(cron, timezone), **fields)


def interval(every: timedelta, **fields: Any) -> Plan:
    return plan(nearest_cron(every), every=every, **{"anchor": NOON, **fields})


def first(times: Plan, count: int, after: datetime = NOON) -> list[datetime]:
    return list(islice(times.runs_after(after), count))


def test_an_interval_first_runs_one_interval_after_it_was_declared() -> None:
    assert first(interval(30 * SECOND), 3) == [NOON + n * 30 * SECOND for n in (1, 2, 3)]


def test_an_interval_with_a_start_first_runs_at_it() -> None:
    start = NOON + 10 * SECOND

    assert first(interval(30 * SECOND, start=start), 2) == [start, start + 30 * SECOND]
    assert first(interval(30 * SECOND, start=NOON - DAY), 1) == [NOON + 30 * SECOND]


@given(
    every=st.integers(1_000, 10**9),
    late=st.integers(0, 10**10),
)
def test_an_interval_never_drifts_and_passes_over_what_it_missed(every: int, late: int) -> None:
    step, moment = timedelta(milliseconds=every), NOON + timedelta(milliseconds=late)
    following = interval(step).next_after(moment)

    assert following is not None
    assert (following - NOON) % step == timedelta(0)
    assert moment < following <= max(moment, NOON) + step


@pytest.mark.parametrize("day", [datetime(2026, 3, 28), datetime(2026, 10, 24)], ids=["spring", "autumn"])  # noqa: DTZ001
def test_an_interval_of_a_day_is_24_hours_also_when_the_clocks_change(day: datetime) -> None:
    """A cron stays at its time on the clock; an interval stays at its distance."""
    nine = day.replace(hour=9, tzinfo=BERLIN).astimezone(UTC)
    by_interval = first(interval(DAY, start=nine), 3, after=nine - SECOND)
    by_cron = first(plan("0 9 * * *", "Europe/Berlin"), 3, after=nine - SECOND)

    assert [later - earlier for earlier, later in pairwise(by_interval)] == [DAY, DAY]
    assert [time.astimezone(BERLIN).hour for time in by_cron] == [9, 9, 9]
    assert by_interval[2] != by_cron[2]


@pytest.mark.parametrize("day", [datetime(2026, 3, 29), datetime(2026, 10, 25)], ids=["spring", "autumn"])  # noqa: DTZ001
def test_a_short_interval_runs_through_the_hour_that_is_skipped_or_repeated(day: datetime) -> None:
    midnight = day.replace(tzinfo=BERLIN).astimezone(UTC)
    times = first(interval(20 * MINUTE, start=midnight), 15, after=midnight - SECOND)

    assert {later - earlier for earlier, later in pairwise(times)} == {20 * MINUTE}


def test_nothing_runs_before_the_start_or_after_the_end() -> None:
    times = plan(start=NOON + 2 * HOUR, end=NOON + 4 * HOUR)

    assert first(times, 9) == [NOON + n * HOUR for n in (2, 3, 4)]
    assert times.next_after(NOON + 4 * HOUR) is None


def test_an_interval_ends_before_the_years_do() -> None:
    assert interval(DAY, anchor=datetime.max.replace(tzinfo=UTC) - HOUR).next_after(NOON) is None


def test_a_jitter_is_never_negative_nor_too_long_and_differs_from_time_to_time() -> None:
    exact, spread = plan(), plan(jitter=10 * MINUTE, seed="report")
    later = first(spread, 50, NOON + 10 * MINUTE)
    delays = [run_at - time for time, run_at in zip(first(exact, 50), later, strict=True)]

    assert all(timedelta(0) <= delay <= 10 * MINUTE for delay in delays)
    assert len(set(delays)) > 40


def test_two_schedules_with_one_cron_do_not_run_at_once() -> None:
    assert first(plan(jitter=HOUR, seed="a"), 3) != first(plan(jitter=HOUR, seed="b"), 3)


@given(moment=st.integers(0, 10**8), jitter=st.integers(1, 10**7))
def test_whoever_asks_between_two_runs_gets_the_same_next_run(moment: int, jitter: int) -> None:
    times = plan("*/7 * * * *", jitter=timedelta(milliseconds=jitter), seed="x")
    asked = NOON + timedelta(milliseconds=moment)
    following = times.next_after(asked)

    assert following is not None
    assert times.next_after(asked + (following - asked) / 2) == following
    assert times.next_after(following - timedelta(milliseconds=1)) == following
    after_it = times.next_after(following)
    assert after_it is not None
    assert after_it > following


@given(jitter=st.integers(1, 100_000))
def test_the_time_behind_a_run_is_found_again(jitter: int) -> None:
    times = plan("*/5 * * * *", jitter=timedelta(milliseconds=jitter), seed="x")
    for run_at in first(times, 5):
        time = times.time_of(run_at)

        assert (time.minute % 5, time.second, time.microsecond) == (0, 0, 0)
        assert time <= run_at <= time + timedelta(milliseconds=jitter)
    assert times.time_of(NOON + 4 * MINUTE) == NOON + 4 * MINUTE  # an operator's time is for none of them


def test_a_jitter_is_equal_in_two_processes() -> None:
    code = (
        "from datetime import *; from itertools import islice\n"
        "from monque._time.cron import Cron; from monque._time.plan import Plan\n"
        "plan = Plan(cron=Cron.parse('0 * * * *'), jitter=timedelta(minutes=10), seed='räport\\0k')\n"
        "noon = datetime(2026, 3, 1, 12, tzinfo=UTC)\n"
        "print(*(run.isoformat() for run in islice(plan.runs_after(noon), 5)))"
    )
    outputs = [
        subprocess.check_output([sys.executable, "-c", code], text=True, env={"PYTHONHASHSEED": seed}).split()
        for seed in ("1", "2")
    ]
    here = [run.isoformat() for run in first(plan(jitter=10 * MINUTE, seed="räport\0k"), 5)]

    assert outputs == [here, here]


@pytest.mark.parametrize(
    ("every", "text"),
    [
        (SECOND, "* * * * *"),
        (59 * SECOND, "* * * * *"),
        (MINUTE, "*/1 * * * *"),
        (90 * SECOND, "*/2 * * * *"),
        (7 * MINUTE, "*/10 * * * *"),
        (30 * MINUTE, "*/30 * * * *"),
        (45 * MINUTE, "0 */1 * * *"),
        (HOUR, "0 */1 * * *"),
        (61 * MINUTE, "0 */2 * * *"),
        (5 * HOUR, "0 */6 * * *"),
        (12 * HOUR, "0 */12 * * *"),
        (13 * HOUR, "@daily"),
        (DAY, "@daily"),
        (30 * DAY, "@daily"),
    ],
)
def test_an_interval_has_a_cron_text_for_those_who_know_no_intervals(every: timedelta, text: str) -> None:
    assert nearest_cron(every) == text
    assert Cron.parse(text).expression == text


def test_the_next_runs_of_an_expression_need_no_database() -> None:
    runs = next_runs("30 2 * * *", "Europe/Berlin", after=datetime(2026, 3, 28, tzinfo=UTC), count=3)

    shown = [run.astimezone(BERLIN).strftime("%d %H:%M") for run in runs]
    assert shown == ["28 02:30", "29 03:00", "30 02:30"]
    assert len(next_runs("@hourly")) == 5
    assert next_runs("@hourly")[0] > datetime.now(UTC)


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"cron": "* * *"}, InvalidCronError),
        ({"cron": "@daily", "timezone": "Mars"}, ConfigurationError),
        ({"cron": "@daily", "after": datetime(2026, 1, 1)}, ConfigurationError),  # noqa: DTZ001
        ({"cron": "@daily", "count": 0}, ConfigurationError),
    ],
)
def test_the_next_runs_of_a_wrong_expression_are_an_error(arguments: Any, error: type[Exception]) -> None:
    with pytest.raises(error):
        next_runs(**arguments)
