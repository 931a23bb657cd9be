"""Keeping out of the way of other instances."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from bson import ObjectId

from monque._store.others import Others

Entry = dict[str, Any]


def entries(count: int, name: str = "work") -> list[Entry]:
    return [
        {"_id": ObjectId(), "name": name, "nextRunAt": datetime(2030, 1, 1, tzinfo=UTC)} for _ in range(count)
    ]


def disturbed() -> Others:
    others = Others()
    others.learn(chosen=100, won=10)
    return others


def test_alone_nobody_is_near() -> None:
    others = Others()
    others.learn(chosen=100, won=100)
    others.learn(chosen=0, won=0)
    assert not others.are_near


@pytest.mark.parametrize("won", [0, 50, 99])
def test_whoever_takes_one_of_the_chosen_is_near(won: int) -> None:
    others = Others()
    others.learn(chosen=100, won=won)
    assert others.are_near


def test_after_many_claims_without_a_loss_they_are_gone() -> None:
    others = disturbed()
    claims = 0
    while others.are_near:
        others.learn(chosen=10, won=10)
        claims += 1
        assert claims < 100
    assert claims > 4


def test_a_job_that_was_left_and_is_gone_was_taken_by_others() -> None:
    others, seen = Others(), entries(3)
    others.leave(seen[1:])
    assert others.have_taken({"work"}, seen[2:], complete=False)


def test_a_job_that_was_left_and_is_still_there_tells_of_nobody() -> None:
    others, seen = Others(), entries(3)
    others.leave(seen[1:])
    assert not others.have_taken({"work"}, seen[1:], complete=True)


def test_a_job_behind_older_ones_is_not_taken_for_gone() -> None:
    older, left = entries(2), entries(1)
    others = Others()
    others.leave(left)
    assert not others.have_taken({"work"}, older, complete=False)
    others.leave(left)
    assert others.have_taken({"work"}, older, complete=True)


def test_who_is_wary_keeps_out_of_the_way_although_nothing_was_lost() -> None:
    others = Others()
    others.beware()
    assert others.are_near


def test_a_look_at_other_names_tells_nothing_of_the_job_that_was_left() -> None:
    others = Others()
    others.leave(entries(1, name="mail"))
    assert not others.have_taken({"work"}, entries(1), complete=True)


def test_the_first_of_a_sample_differ_from_instance_to_instance_and_none_is_forgotten() -> None:
    due = entries(1000)
    samples = [disturbed().sample(due, 500) for _ in range(2)]
    firsts = [{entry["_id"] for entry in sample[:500]} for sample in samples]
    assert 100 < len(firsts[0] & firsts[1]) < 400
    for sample in samples:
        assert sorted(entry["_id"] for entry in sample) == [entry["_id"] for entry in due]


def test_places_differ_from_instance_to_instance_and_are_kept_while_nothing_is_lost() -> None:
    first, second = disturbed(), disturbed()
    places = [{others.place(100) for _ in range(200)} - {0} for others in (first, second)]
    assert [len(of_one) for of_one in places] == [1, 1]
    assert places[0] != places[1]


def test_who_takes_one_job_at_a_time_stays_near_the_oldest() -> None:
    assert all(disturbed().place(2) < 16 for _ in range(100))


def test_the_oldest_jobs_are_gone_to_now_and_then() -> None:
    others = disturbed()
    assert 0 in {others.place(100) for _ in range(1000)}


def test_where_there_is_little_nobody_goes_far_or_takes_much() -> None:
    others = disturbed()
    others.saw(400)
    assert others.place(100) < 400
    assert others.leave_some(500) == 50
    assert others.share(entries(40)) == 10
    assert others.share(entries(2)) >= 2
