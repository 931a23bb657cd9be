"""`make trace` shows the path of one job, and counts what it crosses."""

from __future__ import annotations

from typing import Any

import pytest
from pymongo.asynchronous.database import AsyncDatabase

from bench.trace import STORIES, Call, Function, Trace, describe, draw, trace_story

# Files, functions and file switches of each story, as they are today: lower them when they can be.
RATCHETS = {
    "lone": (36, 145, 139),
    "unique": (39, 155, 138),
    "retry": (46, 245, 356),
    "occurrence": (39, 203, 191),
    "cancel": (39, 149, 173),
    "schedule": (24, 81, 74),
    "recovery": (39, 203, 265),  # in a transaction, which never waits for the document
}
# On a busy machine a timer or a second poll slips in, which adds switches above all.
ROOM = (1.1, 1.08, 1.25)


@pytest.fixture
def small_trace() -> Trace:
    enqueue, insert, claim = (
        Function("_monque.py", "Monque.enqueue"),
        Function("_store/store.py", "Store.insert"),
        Function("_store/store.py", "Store.claim"),
    )
    return Trace(
        [
            Call(enqueue, 0, resumed=False),
            Call(insert, 1, resumed=False),
            Call(insert, 1, resumed=False),
            Call(claim, 0, resumed=False),
            Call(enqueue, 0, resumed=True),
        ]
    )


def test_functions_count_once_and_switches_count_each_time(small_trace: Trace) -> None:
    assert small_trace.size == (2, 3, 2)
    assert "2 files and 3 functions, and switches file 2 times" in describe(small_trace, STORIES["lone"])


def test_the_outline_indents_what_is_called_and_folds_repeats(small_trace: Trace) -> None:
    assert draw(small_trace).splitlines() == [
        "_monque.py: Monque.enqueue",
        "  _store/store.py: Store.insert x 2",
        "_store/store.py: Store.claim",
        "_monque.py: Monque.enqueue (resumed)",
    ]


@pytest.mark.parametrize("name", STORIES)
async def test_each_story_stays_within_its_ratchet(
    name: str, database: AsyncDatabase[dict[str, Any]]
) -> None:
    most = tuple(figure * room for figure, room in zip(RATCHETS[name], ROOM, strict=True))
    for rounds in (5, 15, 45):  # a disturbance only adds: on a busy machine it takes more rounds to have none
        size = (await trace_story(database, STORIES[name], rounds=rounds)).size
        if is_within(size, most):
            break
    assert is_within(size, most), (size, most)


def is_within(size: tuple[int, ...], most: tuple[float, ...]) -> bool:
    return all(found <= limit for found, limit in zip(size, most, strict=True))


async def test_the_path_begins_with_enqueue_and_holds_no_code_without_a_name(
    database: AsyncDatabase[dict[str, Any]],
) -> None:
    trace = await trace_story(database, STORIES["lone"], rounds=1)

    # Whatever looks up the method comes first.
    assert any(line.endswith(": Monque.enqueue") for line in draw(trace).splitlines()[:2])
    assert not [function for function in trace.functions if "<" in function.name.replace("<locals>", "")]
