"""`make trace` shows the path of one job, and counts what it crosses."""

from __future__ import annotations

from typing import Any

import pytest
from pymongo.asynchronous.database import AsyncDatabase

from bench.trace import Call, Function, Trace, describe, draw, trace_job

# What it crosses today, and a little room: on a busy machine a timer slips in. Lower them when they can be.
MOST_FILES = 41
MOST_FUNCTIONS = 172
MOST_SWITCHES = 175


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
    assert "2 files and 3 functions, and switches file 2 times" in describe(small_trace)


def test_the_outline_indents_what_is_called_and_folds_repeats(small_trace: Trace) -> None:
    assert draw(small_trace).splitlines() == [
        "_monque.py: Monque.enqueue",
        "  _store/store.py: Store.insert x 2",
        "_store/store.py: Store.claim",
        "_monque.py: Monque.enqueue (resumed)",
    ]


async def test_one_lone_job_stays_within_the_limits(database: AsyncDatabase[dict[str, Any]]) -> None:
    trace = await trace_job(database, rounds=10)

    files, functions, switches = trace.size
    assert 0 < files <= MOST_FILES
    assert files < functions <= MOST_FUNCTIONS
    assert files <= switches <= MOST_SWITCHES


async def test_the_path_begins_with_enqueue_and_holds_no_code_without_a_name(
    database: AsyncDatabase[dict[str, Any]],
) -> None:
    trace = await trace_job(database, rounds=1)

    assert draw(trace).splitlines()[0].endswith(": Monque.enqueue")
    assert not [function for function in trace.functions if "<" in function.name.replace("<locals>", "")]
