"""`monque lines`, and jobs in a line on the command line."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from click.testing import Result
from pymongo.collection import Collection

from monque import SyncMonque
from support.clocks import ago
from support.jobs import document
from support.waits import STEPS, after_batch, in_line, with_turn

Call = Callable[..., Result]
Jobs = Collection[dict[str, Any]]


def told(result: Result) -> list[dict[str, Any]]:
    assert result.exit_code == 0, result.output
    return [json.loads(line) for line in result.stdout.splitlines()]


def test_the_lines_of_a_name_are_shown_with_the_most_waiting_first(call: Call, jobs: Jobs) -> None:
    jobs.insert_many([with_turn("a"), in_line("a"), with_turn("b"), in_line("b"), in_line("b")])
    jobs.insert_many([in_line("c", name="other"), document()])

    heading, *rows = call("lines", "work").stdout.splitlines()
    [first, second] = told(call("lines", "work", "--json"))

    assert heading.split() == ["key", "running", "waiting", "oldest"]
    assert [row.split()[:3] for row in rows] == [["b", "1", "2"], ["a", "1", "1"]]
    assert (first["key"], first["running"], first["waiting"]) == ("b", 1, 2)
    assert told(call("lines", "work", "--json", "--limit", "1")) == [first]
    assert second["oldest"] is not None


def test_a_list_says_that_a_job_waits_for_its_turn(call: Call, jobs: Jobs) -> None:
    jobs.insert_one(in_line())

    assert "waits for its turn in customer-7" in call("jobs", "list").stdout


def test_why_a_job_waits_for_its_turn(call: Call, jobs: Jobs) -> None:
    jobs.insert_many([with_turn(), first := in_line(), behind := in_line()])

    [one] = told(call("jobs", "why", str(first["_id"]), "--json"))
    [two] = told(call("jobs", "why", str(behind["_id"]), "--json"))

    assert one["sentence"].endswith(": 1 of customer-7 runs, 0 wait before it.")
    assert two["sentence"].endswith(": 1 of customer-7 runs, 1 wait before it.")
    assert [each["command"] for each in one["remedies"]] == ["monque lines work"]


@pytest.fixture
def used(uri: str) -> None:
    """The collection is used for batches and limits."""
    with SyncMonque(uri) as monque:
        for use in ("batch", "parked", "limit"):
            monque.begin_use(use)


def test_waits_that_nobody_ends_and_lines_that_stand_still_are_found(
    call: Call, used: None, jobs: Jobs
) -> None:
    late, recent = {"since": ago(minutes=5)}, {"since": ago(seconds=30)}
    over, woken = after_batch("over"), after_batch("over")
    alone, soon = in_line("alone"), in_line("soon")
    jobs.insert_many(
        [
            {**over, "parked": {**over["parked"], **late}},
            {**woken, "parked": {**woken["parked"], **recent}},
            after_batch("runs"),
            document(batch="runs"),
            alone,
            {**soon, "parked": {**soon["parked"], **recent}},
            *(in_line("served"), with_turn("served")),
        ]
    )
    stands = {"why": "signal", "key": "paid", "since": ago(hours=2)}
    waits = document(turn={"line": "k:s:x", "slot": 0}, parked=stands, steps=STEPS, attempt=1)
    jobs.insert_one({**waits, "nextRunAt": ago(hours=2) + timedelta(days=9)})

    found = {line["check"]: line for line in told(call("doctor", "--json"))}

    stranded = found["waits that nobody ends"]
    assert stranded["level"] == "warning"
    assert {str(over["_id"]), str(alone["_id"])} == {
        word for word in stranded["message"].replace(",", "").split() if len(word) == 24
    }
    assert found["lines that stand still"]["message"] == f"work {waits['_id']}"
