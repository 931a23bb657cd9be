"""Staying out of the way of other instances."""

from __future__ import annotations

from datetime import datetime

import pytest
from bson import ObjectId

from monque._store.choose import Contention, spread
from monque._store.document import Entry


def contended() -> Contention:
    contention = Contention()
    contention.record_claim(chosen=100, won=10)
    return contention


def test_an_instance_that_loses_nothing_is_alone() -> None:
    contention = Contention()
    contention.record_claim(chosen=100, won=100)
    contention.record_claim(chosen=0, won=0)
    assert not contention.is_contended
    assert contention.skip(100) == 0


@pytest.mark.parametrize("won", [0, 50, 99])
def test_losing_one_of_the_chosen_jobs_is_contention(won: int) -> None:
    contention = Contention()
    contention.record_claim(chosen=100, won=won)
    assert contention.is_contended


def test_contention_ends_after_many_claims_without_a_loss() -> None:
    contention = contended()
    claims = 0
    while contention.is_contended:
        contention.record_claim(chosen=10, won=10)
        claims += 1
        assert claims < 100
    assert claims > 4


def test_batches_grow_from_few_upwards_and_have_a_limit() -> None:
    contention, batches = Contention(), []
    for _ in range(5):
        batches.append(contention.fair_batch(5_000))
        contention.record_claim(chosen=batches[-1], won=batches[-1])
    assert batches[0] < 50
    assert batches == sorted(batches)
    assert batches[-1] == batches[-2] < 5_000


def test_a_batch_is_never_larger_than_its_limit() -> None:
    assert Contention().fair_batch(3) == 3
    assert contended().fair_batch(3) == 3


def test_a_claim_that_gets_nothing_makes_the_next_one_smaller() -> None:
    contention = Contention()
    for _ in range(5):
        contention.record_claim(chosen=(chosen := contention.fair_batch(500)), won=chosen)
    before = contention.fair_batch(500)
    contention.record_claim(chosen=before, won=0)
    contention.record_claim(chosen=before, won=0)
    assert contention.fair_batch(500) < before


def test_an_idle_instance_begins_with_few_again() -> None:
    contention = Contention()
    contention.record_claim(chosen=400, won=400)
    contention.record_claim(chosen=0, won=0)
    assert contention.fair_batch(500) == Contention().fair_batch(500)


def test_places_differ_from_instance_to_instance_and_are_kept_while_little_is_lost() -> None:
    instances = [contended() for _ in range(20)]
    places = [contention.skip(100) for contention in instances]
    assert len(set(places)) > 10
    for contention in instances:
        contention.record_claim(chosen=100, won=95)
    assert [contention.skip(100) for contention in instances] == places


def test_an_instance_that_loses_much_moves_to_another_place() -> None:
    instances = [contended() for _ in range(20)]
    before = [contention.skip(100) for contention in instances]
    for contention in instances:
        contention.record_claim(chosen=100, won=50)
    after = [contention.skip(100) for contention in instances]
    assert sum(one != other for one, other in zip(before, after, strict=True)) > 10


def test_an_instance_that_takes_one_job_at_a_time_stays_near_the_oldest() -> None:
    assert all(contended().skip(2) < 16 for _ in range(100))


def test_where_little_is_due_nobody_skips_or_takes_much() -> None:
    contention = contended()
    contention.record_depth(60, is_all=True)
    assert contention.skip(100) == 0
    assert contention.fair_batch(500) == 16


def test_of_the_last_due_jobs_an_instance_takes_a_larger_share() -> None:
    contention = contended()
    contention.record_claim(chosen=1_000, won=999)
    contention.record_depth(800, is_all=True)
    assert contention.fair_batch(500) == 200
    contention.record_depth(640, is_all=False)
    assert contention.fair_batch(500) == 125


def test_a_depth_that_was_seen_in_part_grows_step_by_step() -> None:
    contention = contended()
    contention.record_claim(chosen=1_000, won=999)
    contention.record_depth(800, is_all=True)
    batches = []
    for _ in range(3):
        contention.record_depth(300, is_all=False)
        batches.append(contention.fair_batch(500))
    assert batches == [125, 156, 195]


def test_an_instance_can_assume_contention_although_nothing_was_lost() -> None:
    contention = Contention()
    contention.record_claim(chosen=400, won=400)
    contention.record_depth(0, is_all=True)
    contention.assume_contention()
    assert contention.is_contended
    assert contention.fair_batch(500) == Contention().fair_batch(500)


def test_a_place_where_nothing_is_due_leads_to_one_further_in_front() -> None:
    contention = contended()
    contention.record_depth(8, is_all=True)
    assert contention.skip(16) == 0


def test_now_and_then_a_contended_instance_goes_to_the_oldest_jobs_all_the_same() -> None:
    contention, skips = contended(), []
    for _ in range(64):
        contention.record_claim(chosen=100, won=50)
        skips.append(contention.skip(100))

    assert 2 <= sum(skip == 0 for skip in skips) <= 8


def entries(count: int) -> list[Entry]:
    due = datetime(2030, 1, 1)  # noqa: DTZ001 - naive, as all times of entries
    return [{"_id": ObjectId(), "name": "work", "nextRunAt": due} for _ in range(count)]


def test_two_instances_at_one_place_share_about_half_of_what_they_take() -> None:
    due = entries(1_000)
    taken = [{entry["_id"] for entry in spread(due, 500)[0]} for _ in range(2)]
    assert 100 < len(taken[0] & taken[1]) < 400


def test_jobs_are_taken_in_their_order_and_each_once() -> None:
    due = entries(100)
    ids = [entry["_id"] for entry in spread(due, 50)[0]]
    assert 50 <= len(ids) < 60
    assert ids == sorted(set(ids), key=[entry["_id"] for entry in due].index)


def test_what_is_not_taken_is_left_in_its_order() -> None:
    due = entries(100)
    chosen, rest = spread(due, 50)
    assert sorted([*chosen, *rest], key=due.index) == due
    assert rest == sorted(rest, key=due.index)


@pytest.mark.parametrize("count", [0, 1, 5])
def test_of_few_jobs_all_are_taken(count: int) -> None:
    due = entries(count)
    assert spread(due, 5) == (due, [])
