"""Judging a process that the register names, from what was read about it and about this machine."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from monque._machine import Process, Sighting, is_same_machine, judge

EARLIER = Process(boot_id="9d1c", pid_namespace="pid:[4026531836]", pid=4711, start=250_000)


@pytest.mark.parametrize(
    ("seen", "expected"),
    [
        (Sighting(exists=False), "gone"),
        (Sighting(exists=True, is_zombie=True, start=250_000), "gone"),
        (Sighting(exists=True, start=250_001), "gone"),
        (Sighting(exists=True, start=250_000), "alive"),
        (Sighting(exists=True), "alive"),
    ],
    ids=["no such process", "a zombie", "its pid was given again", "the same", "nothing can be read of it"],
)
def test_a_process_of_this_machine_is_judged_by_its_pid_and_start(seen: Sighting, expected: str) -> None:
    assert judge(EARLIER, EARLIER, seen) == expected


@pytest.mark.parametrize("field", ["boot_id", "pid_namespace", "pid", "start"])
@pytest.mark.parametrize("seen", [Sighting(exists=False), Sighting(exists=True, start=1)], ids=str)
def test_where_a_value_is_missing_nothing_is_known(field: str, seen: Sighting) -> None:
    missing: Any = {field: None}

    assert judge(replace(EARLIER, **missing), EARLIER, seen) == "unknown"


@pytest.mark.parametrize("other", [{"boot_id": "77aa"}, {"pid_namespace": "pid:[4026532001]"}], ids=str)
def test_of_another_machine_or_container_nothing_is_known(other: Any) -> None:
    elsewhere = replace(EARLIER, **other)

    assert not is_same_machine(EARLIER, elsewhere)
    assert judge(EARLIER, elsewhere, Sighting(exists=False)) == "unknown"


@pytest.mark.parametrize("field", ["boot_id", "pid_namespace"])
def test_two_values_that_cannot_be_read_are_not_the_same_machine(field: str) -> None:
    unread: Any = {field: None}
    unreadable = replace(EARLIER, **unread)

    assert not is_same_machine(unreadable, unreadable)
