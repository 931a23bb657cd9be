"""The shop of `monque demo --web`, as values: what comes, what fails, and what the day before has left."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime, timedelta
from functools import cache
from itertools import pairwise
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from examples.shop.catalog import AFTER, BEFORE, BY_NAME, PAST, SCHEDULES, WORKS
from examples.shop.past import Past, day_before, recent_runs
from examples.shop.plan import (
    BURST_EVERY,
    DEATH_EVERY,
    EXPORTER,
    Incident,
    arrivals,
    fate,
    incidents,
    pick_ups,
    release_after,
)
from examples.shop.replay import minute_of
from monque.web.groups import shape_of

pytestmark = pytest.mark.thorough

NOW = datetime(2026, 11, 17, 12, 0, tzinfo=UTC)


@cache
def past(seed: int) -> Past:
    """The day before `NOW`, which takes a second to make."""
    return day_before(seed, NOW)


def names_in(seconds: range, *, quiet: bool = False) -> Counter[str]:
    return Counter(job.name for second in seconds for job in arrivals(7, second, quiet=quiet))


def test_the_same_seed_gives_the_same_day_and_another_one_does_not() -> None:
    assert [arrivals(7, second) for second in range(30)] == [arrivals(7, second) for second in range(30)]
    assert day_before(7, NOW) == past(7)
    assert arrivals(7, 5) != arrivals(8, 5)
    assert past(8) != past(7)


def test_there_are_seventeen_names_of_which_nobody_serves_one() -> None:
    assert len(BY_NAME) == len(WORKS) == 17
    assert [work.name for work in WORKS if not work.slots] == ["print-label"]


def test_traffic_comes_in_waves_and_never_stops() -> None:
    counts = [len(arrivals(7, second)) for second in range(4, BURST_EVERY)]

    assert min(counts) >= 3
    assert max(counts) >= 3 * min(counts)


def test_a_burst_comes_every_two_minutes_and_not_in_quiet_hours() -> None:
    bursts = [second for second in range(4 * BURST_EVERY) if len(arrivals(7, second)) > 100]

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
            for number in range(400)
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
        for number in range(3_000)
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
    minutes = {entry["_id"]["t"] for entry in past(7).trends if entry["_id"]["r"] == "m"}

    assert len(minutes) == 24 * 60
    assert max(minutes) == NOW - timedelta(minutes=1)


def test_the_past_has_as_much_to_do_as_the_present() -> None:
    """Else the opening of the shop would look like an incident, or like its end."""
    completed: Counter[datetime] = Counter()
    for entry in past(7).trends:
        completed[entry["_id"]["t"]] += int(entry.get("completed", 0))
    last = sum(completed[NOW - timedelta(minutes=back)] for back in range(1, 11)) / 10

    assert 0.9 < last / (names_in(range(4, 604)).total() / 10) < 1.1
    assert 0.8 < completed[NOW - timedelta(hours=23, minutes=50)] / last < 1.2
    assert completed[NOW - timedelta(hours=12)] < last / 3


def test_each_minute_of_the_past_has_its_jobs() -> None:
    """Completed ones as long as they are kept, failed ones of the whole day."""
    ended = Counter((job["status"], job["name"], minute_of(job["updatedAt"])) for job in past(7).jobs)

    for entry in past(7).trends:
        minute, name = entry["_id"]["t"], entry["_id"]["n"]
        if entry["_id"]["r"] == "g":
            continue  # how many waited
        assert entry.get("failed", 0) == ended["failed", name, minute]
        if minute >= NOW - PAST:
            assert entry.get("completed", 0) == ended["completed", name, minute]


def test_orders_wait_for_their_courier_when_the_shop_opens_and_every_courier_comes() -> None:
    waiting = {job["uniqueKey"] for job in past(7).waiting if job.get("parked", {}).get("why") == "signal"}
    comes = Counter(order for second in range(80) for order, _ in pick_ups(7, second))

    assert len(waiting) >= 5
    assert waiting <= comes.keys()
    assert set(comes.values()) == {1}


def test_orders_of_the_past_ran_as_long_as_their_steps_took() -> None:
    orders = [job for job in past(7).jobs if job["name"] == "fulfil-order"]

    assert orders
    for job in orders:
        worked = sum(step["ms"] for step in job["steps"] if step["k"] == "step")
        assert 0 <= (job["finishedAt"] - job["startedAt"]).total_seconds() * 1000 - worked < 50


def test_a_customer_at_its_limit_waits_when_the_shop_opens() -> None:
    running = past(7).running.keys()
    exports = [job for job in past(7).waiting if job["name"] == "export-orders"]
    runs = Counter(job["data"]["customer"] for job in exports if job["_id"] in running)
    waits = Counter(job["data"]["customer"] for job in exports if job["_id"] not in running)

    assert runs[EXPORTER] == max(runs.values()) == BY_NAME["export-orders"].limit
    assert waits[EXPORTER] >= 3


def test_the_guide_shows_the_order_as_it_is() -> None:
    root = Path(__file__).parents[2]
    assert (root / "examples/shop/orders.py").read_text() in (root / "docs/guides/examples.md").read_text()


def test_the_day_before_has_jobs_of_each_end_and_none_from_the_future() -> None:
    jobs = past(7).jobs

    assert {job["status"] for job in jobs} == {"failed", "completed", "cancelled"}
    assert len({job["_id"] for job in jobs}) == len(jobs)
    assert all(NOW - timedelta(hours=25) < job["updatedAt"] < NOW for job in jobs)
    assert all(job["createdAt"] <= job["updatedAt"] for job in jobs)


def test_jobs_of_the_day_before_were_tried_as_often_as_they_may_be() -> None:
    failed = [job for job in past(7).jobs if job["status"] == "failed"]

    assert failed
    assert all(job["attempt"] == BY_NAME[job["name"]].attempts for job in failed)


def test_a_schedule_remembers_ten_runs() -> None:
    for schedule in SCHEDULES:
        runs = recent_runs(7, schedule, NOW)["$set"]["recentRuns"]

        assert len(runs) == 10
        assert [run["at"] for run in runs] == sorted(run["at"] for run in runs)
