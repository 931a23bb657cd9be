"""The judges of histories find one run too many, one start too many, and one job before its turn."""

from __future__ import annotations

import pytest

from support.crowds import Stay, crowds, hasty, overtaking


def runs(*times: tuple[float, float], line: str = "a") -> list[Stay]:
    return [Stay(line, since, until) for since, until in times]


@pytest.mark.parametrize("most", [1, 2, 7])
def test_as_many_as_the_limit_may_run_at_once_and_the_next_one_as_soon_as_one_has_ended(most: int) -> None:
    full = runs(*[(number / 10, 5.0) for number in range(most)])

    assert list(crowds([*full, *runs((5.0, 6.0))], most)) == []


@pytest.mark.parametrize("most", [1, 2, 7])
def test_one_too_many_is_found_with_those_that_ran_beside_it(most: int) -> None:
    full = runs(*[(number / 10, 5.0) for number in range(most)])
    [extra] = runs((4.9, 6.0))

    assert list(crowds([extra, *full], most)) == [(extra, full)]


def test_lines_do_not_count_for_each_other() -> None:
    assert list(crowds([*runs((1.0, 3.0)), *runs((1.0, 3.0), line="b")], 1)) == []


def test_a_run_whose_process_died_counts_until_its_death() -> None:
    dead, early, late = runs((1.0, 3.0), (2.0, 2.5), (3.5, 4.0))

    assert list(crowds([dead, early, late], 1)) == [(early, [dead])]


def test_a_run_that_others_had_to_take_for_dead_does_not_count() -> None:
    ghost, other, third = runs((1.0, 9.0), (6.0, 7.0), (6.5, 7.5))

    found = crowds([ghost, other, third], 1, counts=lambda stay, at: stay is not ghost or at < 5.0)

    assert list(found) == [(third, [other])]


def test_a_stretch_with_one_start_too_many() -> None:
    assert hasty([(0.0, 0.1), (0.4, 0.5), (0.8, 0.9), (1.0, 1.1), (1.4, 1.5)], 3, 1.0) == []
    assert hasty([(0.0, 0.1), (0.4, 0.5), (0.8, 0.9), (0.9, 0.99)], 3, 1.0) == [(0.0, 4)]


def test_a_start_that_may_have_been_granted_later_is_not_counted() -> None:
    assert hasty([(0.0, 0.1), (0.4, 0.5), (0.8, 0.9), (0.9, 1.1)], 3, 1.0) == []


def test_a_job_that_overtakes_another_between_two_of_its_runs() -> None:
    assert overtaking([("first", 1.0, 4.0), ("second", 4.0, 5.0), ("third", 5.5, 6.0)]) == []
    assert overtaking([("first", 1.0, 4.0), ("second", 2.0, 3.0), ("third", 3.5, 6.0)]) == [
        ("first", "second"),
        ("first", "third"),
    ]
