"""Batches and follow-ups on the command line."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from click.testing import Result
from pymongo.collection import Collection

from monque import SyncMonque
from support.clocks import ago
from support.jobs import document
from support.waits import after_batch

Call = Callable[..., Result]
Jobs = Collection[dict[str, Any]]


def told(result: Result) -> list[dict[str, Any]]:
    assert result.exit_code == 0, result.output
    return [json.loads(line) for line in result.stdout.splitlines()]


def test_jobs_are_stored_into_a_batch_and_behind_it(call: Call, jobs: Jobs) -> None:
    assert call("enqueue", "send", "--batch", "news", "--from", "-", typed="1\n2\n").exit_code == 0
    assert call("enqueue", "report", "--after-batch", "news", "--if-failed", "run").exit_code == 0
    refused = call("enqueue", "report", "--if-failed", "run")

    assert [job["data"] for job in jobs.find({"batch": "news"})] == [1, 2]
    assert [job["data"] for job in told(call("jobs", "list", "--batch", "news", "--json"))] == [1, 2]
    [waits] = told(call("jobs", "list", "--waits-for", "batch", "--json"))
    assert (waits["name"], waits["waits_for"]["batch"]) == ("report", "news")
    assert refused.exit_code != 0
    assert "after_batch" in refused.output


def test_a_job_is_stored_with_the_name_of_what_follows_its_failure(call: Call, jobs: Jobs) -> None:
    assert call("enqueue", "charge", "--on-failure", "charge.dead").exit_code == 0

    assert [job["onFailure"] for job in jobs.find()] == ["charge.dead"]


def test_a_list_says_what_jobs_wait_for(call: Call, jobs: Jobs) -> None:
    jobs.insert_one(after_batch())

    assert "waits for the batch import-42" in call("jobs", "list").stdout


def test_why_a_job_waits_for_a_batch(call: Call, jobs: Jobs) -> None:
    jobs.insert_many([waits := after_batch(), document(batch="import-42")])

    [batch] = told(call("jobs", "why", str(waits["_id"]), "--json"))

    assert batch["sentence"].startswith('It waits for 1 of 1 job of "import-42" since ')
    assert [each["command"] for each in batch["remedies"]] == ["monque jobs list --batch import-42"]


def test_waits_for_a_batch_that_is_over_are_found(call: Call, uri: str, jobs: Jobs) -> None:
    with SyncMonque(uri) as monque:
        monque.begin_use("parked")
    over, soon = after_batch("over"), after_batch("over")
    soon["parked"]["since"] = ago(seconds=30)
    jobs.insert_many([over, soon, after_batch("runs"), document(batch="runs")])

    found = {line["check"]: line for line in told(call("doctor", "--json"))}["waits that nobody ends"]

    assert (found["level"], found["message"]) == ("warning", f"work {over['_id']}")
