"""Urgent jobs as values: the share of the oldest, when to look, and what a priority may be."""

from __future__ import annotations

from typing import Any

import pytest

from monque import ConfigurationError, JobFilter
from monque._store.choose import Share, Shares, Urgent
from monque._store.document import new_document, priority_of
from monque._values.rules import check_priority
from support.clocks import now


@pytest.mark.parametrize("batch", [1, 3, 5, 8, 50, 64])
def test_one_of_eight_is_the_oldest_however_many_are_claimed_at_once(batch: int) -> None:
    share, aged = Share(), 0
    for _ in range(400):
        held = share.for_oldest(batch)
        urgent = batch - held
        while urgent or held:  # as held jobs start
            is_turn = held > 0 and (share.is_turn_of_oldest or not urgent)
            share.started(urgent=not is_turn)
            aged, held, urgent = aged + is_turn, held - is_turn, urgent - (not is_turn)

    assert aged == pytest.approx(400 * batch / 8, abs=2)


def test_an_hour_of_urgent_jobs_alone_is_not_paid_back_with_a_thousand_normal_ones() -> None:
    share = Share()
    for _ in range(100_000):
        share.started(urgent=True)

    assert share.for_oldest(1) == 1
    assert share.for_oldest(64) <= 16


def test_names_have_one_share_where_they_compete_and_else_one_each() -> None:
    apart, together = Shares(shared=False), Shares(shared=True)
    assert not apart.is_counting

    assert apart.of("a") is not apart.of("b")
    assert together.of("a") is together.of("b")
    assert apart.is_counting
    assert [names for _, names in apart.groups(["a", "b"])] == [["a"], ["b"]]
    assert [names for _, names in together.groups(["a", "b"])] == [["a", "b"]]


def test_urgent_jobs_are_looked_for_only_where_they_are_used_and_may_wait(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    used, clock = [False], [100.0]
    monkeypatch.setattr("monque._store.choose.time.perf_counter", lambda: clock[0])
    nowhere: Any = None
    urgent = Urgent(nowhere, lambda: used[0], Shares(shared=False), use_index=True)
    urgent.expect()
    assert not urgent.is_look_due()

    used[0] = True
    assert urgent.is_look_due()

    urgent._is_expected, urgent._last_look = False, 100.0  # as a look that found none leaves it
    urgent.note_backlog(is_backlog=False)
    clock[0] = 200.0
    assert not urgent.is_look_due()
    urgent.note_backlog(is_backlog=True)
    assert urgent.is_look_due()
    clock[0] = 100.05
    assert not urgent.is_look_due()


async def test_a_job_that_is_stored_during_a_look_is_looked_for_again() -> None:
    class Meanwhile:
        """A collection without urgent jobs; one is stored while it is read."""

        def find(self, *_query: Any, **_how: Any) -> Meanwhile:
            return self

        async def to_list(self) -> list[Any]:
            urgent.expect()
            return []

    nowhere: Any = Meanwhile()
    urgent = Urgent(nowhere, lambda: True, Shares(shared=False), use_index=True)
    urgent.note_backlog(is_backlog=False)
    urgent.expect()

    assert await urgent.look(["work"], 0, now()) == []
    assert urgent.is_look_due()


@pytest.mark.parametrize("wrong", [10, 1.0, True, "3", None])
def test_a_priority_is_a_whole_number_from_0_to_9(wrong: Any) -> None:
    with pytest.raises(ConfigurationError, match="whole number from 0 to 9"):
        check_priority(wrong)
    assert [check_priority(number) for number in (0, 9)] == [0, 9]


def test_a_negative_priority_is_refused_with_what_to_do_instead() -> None:
    with pytest.raises(ConfigurationError, match="leave the backfill at 0 and give the name's other jobs"):
        check_priority(-1)


@pytest.mark.parametrize("wrong", [0, 10, "high", 1.5, True])
def test_a_filter_takes_a_priority_from_1_to_9(wrong: Any) -> None:
    with pytest.raises(ConfigurationError, match="a filter's priority must be a whole number from 1 to 9"):
        JobFilter(priority=wrong)


def test_a_normal_job_is_stored_without_a_priority() -> None:
    stamp = now()
    plain = new_document(name="work", data=None, run_at=stamp, now=stamp, priority=0)
    urgent = new_document(name="work", data=None, run_at=stamp, now=stamp, priority=7)

    assert "priority" not in plain
    assert (priority_of(plain), priority_of(urgent)) == (0, 7)


@pytest.mark.parametrize(
    ("stored", "read"),
    [(3, 3), (3.0, 3), (100, 9), (-4, 0), ("9", 0), ([9], 0), (None, 0), (float("nan"), 0)],
)
def test_a_priority_that_others_have_stored_is_read_as_one(stored: Any, read: int) -> None:
    assert priority_of({"priority": stored}) == read
