"""The shop of `monque demo --web`, as values: what comes, what fails, and what the day before has left."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from zoneinfo import ZoneInfo

import pytest

from monque.management.fingerprint import shape_of
from monque.shop.catalog import AFTER, BEFORE, BY_NAME, SCHEDULES, WORKS
from monque.shop.past import day_before, recent_runs
from monque.shop.plan import (
    BURST_EVERY,
    DEATH_EVERY,
    Incident,
    arrivals,
    fate,
    incidents,
    opening_stock,
    release_after,
)

pytestmark = pytest.mark.thorough

NOW = datetime(2026, 11, 17, 12, 0, tzinfo=UTC)


def names_in(seconds: range, *, quiet: bool = False) -> Counter[str]:
    return Counter(job.name for second in seconds for job in arrivals(7, second, quiet=quiet))


def test_the_same_seed_gives_the_same_day_and_another_one_does_not() -> None:
    assert [arrivals(7, second) for second in range(30)] == [arrivals(7, second) for second in range(30)]
    assert opening_stock(7) == opening_stock(7)
    assert day_before(7, NOW) == day_before(7, NOW)
    assert arrivals(7, 5) != arrivals(8, 5)
    assert day_before(7, NOW) != day_before(8, NOW)


def test_there_are_fourteen_names_of_which_nobody_serves_one() -> None:
    assert len(BY_NAME) == len(WORKS) == 14
    assert [work.name for work in WORKS if not work.slots] == ["print-label"]


def test_traffic_comes_in_waves_and_never_stops() -> None:
    counts = [len(arrivals(7, second)) for second in range(4, BURST_EVERY)]

    assert min(counts) >= 5
    assert max(counts) >= 3 * min(counts)


def test_a_burst_comes_every_two_minutes_and_not_in_quiet_hours() -> None:
    bursts = [second for second in range(4 * BURST_EVERY) if len(arrivals(7, second)) > 300]

    assert len(bursts) == 4
    assert {later - sooner for sooner, later in pairwise(bursts)} == {BURST_EVERY}
    assert "push-offer" not in names_in(range(2 * BURST_EVERY), quiet=True)


def test_quiet_hours_have_a_fifth_of_the_traffic_and_nobody_dies() -> None:
    usual, quiet = names_in(range(4, 120)).total(), names_in(range(4, 120), quiet=True).total()

    assert 0.1 < quiet / usual < 0.3
    assert all(Incident.DEATH not in incidents(second, quiet=True) for second in range(300))


def test_the_slow_queue_gets_more_than_its_slots_can_take_at_its_peak() -> None:
    work = BY_NAME["render-invoice"]
    longest_run = sum(work.seconds) / 2
    at_peak = names_in(range(10, 20))["render-invoice"] / 10

    assert at_peak * longest_run > 3 * work.slots


def test_unique_keys_come_again_while_they_are_taken() -> None:
    keys = Counter(job.key for second in range(20) for job in arrivals(7, second) if job.key is not None)

    assert keys.most_common(1)[0][1] > 1


def test_an_instance_dies_soon_after_the_opening_and_twice_a_minute() -> None:
    deaths = [second for second in range(120) if Incident.DEATH in incidents(second)]

    assert deaths[0] <= 2
    assert len(deaths) == 120 // DEATH_EVERY


def test_jobs_fail_in_five_ways_and_one_of_them_is_new_after_the_release() -> None:
    before, after = (
        {
            shape_of(f"{type(error).__name__}: {error}").sentence
            for work in WORKS
            for number in range(200)
            if (error := fate(7, work.name, number, 1, release).error) is not None
        }
        for release in (BEFORE, AFTER)
    )

    assert len(before) == 4
    assert after - before == {"LookupError: order … has no postcode"}
    assert (release_after(0), release_after(60)) == (BEFORE, AFTER)


def test_some_failures_are_over_at_the_next_attempt_and_some_last() -> None:
    attempts = BY_NAME["charge-card"].attempts
    ends = Counter(
        fate(7, "charge-card", number, attempts, BEFORE).error is None
        for number in range(500)
        if fate(7, "charge-card", number, 1, BEFORE).error is not None
    )

    assert ends[True] > 10
    assert ends[False] > 10


def test_schedules_stand_in_four_zones() -> None:
    zones = {schedule.zone for schedule in SCHEDULES}

    assert len(zones) == 4
    assert all(ZoneInfo(zone) for zone in zones)
    assert all(schedule.name in BY_NAME for schedule in SCHEDULES)


def test_a_day_of_trends_is_stored_without_a_gap() -> None:
    minutes = {entry["_id"]["t"] for entry in day_before(7, NOW).trends if entry["_id"]["r"] == "m"}

    assert len(minutes) == 24 * 60
    assert max(minutes) == NOW - timedelta(minutes=1)


@pytest.mark.parametrize("status", ["failed", "completed", "cancelled"])
def test_the_day_before_has_jobs_of_each_end_and_none_from_the_future(status: str) -> None:
    past = day_before(7, NOW)
    jobs = [job for job in past.jobs if job["status"] == status]

    assert jobs
    assert len({job["_id"] for job in past.jobs}) == len(past.jobs)
    assert all(NOW - timedelta(hours=25) < job["updatedAt"] < NOW for job in jobs)
    assert all(job["createdAt"] <= job["updatedAt"] for job in jobs)


def test_jobs_of_the_day_before_were_tried_as_often_as_they_may_be() -> None:
    failed = [job for job in day_before(7, NOW).jobs if job["status"] == "failed"]

    assert failed
    assert all(job["attempt"] == job["policy"]["maxAttempts"] for job in failed)


def test_a_schedule_remembers_ten_runs() -> None:
    for schedule in SCHEDULES:
        runs = recent_runs(7, schedule, NOW)["$set"]["recentRuns"]

        assert len(runs) == 10
        assert [run["at"] for run in runs] == sorted(run["at"] for run in runs)
