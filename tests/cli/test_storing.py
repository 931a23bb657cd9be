"""`monque enqueue` and `monque schedule`."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import fields
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result
from pymongo.collection import Collection

from monque import Job
from support.clocks import ahead, now

Call = Callable[..., Result]
Jobs = Collection[dict[str, Any]]


def test_a_job_is_stored_with_its_payload(call: Call, jobs: Jobs) -> None:
    told = call("enqueue", "send-email", '{"to": "ada@example.org", "copies": [1, 2.5, null]}')

    assert told.exit_code == 0
    [stored] = jobs.find()
    assert (stored["name"], stored["status"]) == ("send-email", "pending")
    assert stored["data"] == {"to": "ada@example.org", "copies": [1, 2.5, None]}
    assert told.output.startswith(f"{stored['_id']} send-email is pending, due at ")


def test_a_job_needs_no_payload(call: Call, jobs: Jobs) -> None:
    call("enqueue", "clean-up")

    assert [job["data"] for job in jobs.find()] == [None]


def test_a_payload_can_come_from_standard_input(call: Call, jobs: Jobs) -> None:
    call("enqueue", "import", "-", typed='["many", "things"]')

    assert [job["data"] for job in jobs.find()] == [["many", "things"]]


@pytest.mark.parametrize(
    ("given", "meant"),
    [("90s", timedelta(seconds=90)), ("1h30m", timedelta(minutes=90)), ("2d", timedelta(days=2))],
)
def test_a_delay_is_counted_from_now(given: str, meant: timedelta, call: Call, jobs: Jobs) -> None:
    call("enqueue", "work", "--delay", given)

    [stored] = jobs.find()
    assert stored["nextRunAt"] - stored["createdAt"] == meant


def test_a_time_is_taken_as_given(call: Call, jobs: Jobs) -> None:
    call("enqueue", "work", "--at", "2031-05-01T09:00+02:00")

    assert [job["nextRunAt"].isoformat() for job in jobs.find()] == ["2031-05-01T07:00:00+00:00"]


def test_a_unique_key_is_stored_once(call: Call, jobs: Jobs) -> None:
    first = json.loads(call("enqueue", "sync", "1", "--unique-key", "user-7", "--json").stdout)
    second = json.loads(call("enqueue", "sync", "2", "--unique-key", "user-7", "--json").stdout)

    assert (first["id"], first["data"]) == (second["id"], second["data"]) == (first["id"], 1)
    assert jobs.count_documents({}) == 1
    assert (first["stored"], second["stored"]) == (True, False)

    told = call("enqueue", "sync", "3", "--unique-key", "user-7")
    assert told.exit_code == 0
    assert told.stdout.startswith(f"{first['id']} sync is pending, due at ")
    assert told.stderr == "nothing was stored: that job holds the key 'user-7'\n"
    other = call("enqueue", "sync", "3", "--unique-key", "user-8")
    assert other.stderr == ""


def test_of_debounced_jobs_the_last_one_counts(call: Call, jobs: Jobs) -> None:
    debounced = ("--unique-key", "shop-7", "--debounce", "1h")
    first = json.loads(call("enqueue", "reindex", "1", *debounced, "--json").stdout)
    second = call("enqueue", "reindex", "2", *debounced)
    [stored] = jobs.find()

    assert (first["enqueued"], first["stored"], stored["data"]) == ("new", True, 2)
    assert "this one was replaced: it holds the key 'shop-7'" in second.stderr
    assert stored["nextRunAt"] > ahead(minutes=59)


def test_json_tells_the_whole_job(call: Call) -> None:
    told = json.loads(call("enqueue", "work", '{"n": 1}', "--json").stdout)

    assert set(told) == {field.name for field in fields(Job)} | {"stored"}
    assert (told["name"], told["status"], told["data"], told["attempt"]) == ("work", "pending", {"n": 1}, 0)


def test_a_job_may_be_urgent(call: Call, jobs: Jobs, tmp_path: Path) -> None:
    told = json.loads(call("enqueue", "work", "--priority", "7", "--json").stdout)
    (tmp_path / "lines").write_text("1\n2\n")
    call("enqueue", "work", "--from", str(tmp_path / "lines"), "--priority", "7")

    assert told["priority"] == 7
    assert [stored["priority"] for stored in jobs.find()] == [7, 7, 7]
    assert "monque_urgent" in jobs.index_information()


@pytest.mark.parametrize("expires", ["5m", "2040-01-01T00:00Z"])
def test_a_job_may_expire(call: Call, jobs: Jobs, expires: str) -> None:
    told = json.loads(call("enqueue", "work", "--expires", expires, "--json").stdout)
    [stored] = jobs.find()

    assert stored["policy"].keys() == {"expiresAt"}
    assert stored["policy"]["expiresAt"] > now()
    assert told["expires_at"] is not None


def test_a_schedule_is_stored_and_changed_by_the_same_name(call: Call, jobs: Jobs) -> None:
    told = call("schedule", "0 9 * * MON-FRI", "report", '"daily"', "--timezone", "Europe/Berlin")
    [stored] = jobs.find()

    assert told.exit_code == 0
    assert told.output.startswith(
        f"{stored['_id']} report runs at '0 9 * * MON-FRI' in Europe/Berlin, next at "
    )
    assert (stored["data"], stored["timezone"]) == ("daily", "Europe/Berlin")
    assert stored["nextRunAt"] > now()

    again = json.loads(call("schedule", "@hourly", "report", '"hourly"', "--json").stdout)

    assert (again["id"], again["cron"], again["timezone"]) == (str(stored["_id"]), "@hourly", "UTC")
    assert jobs.count_documents({}) == 1


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["enqueue"], "Missing argument 'NAME'"),
        (["enqueue", "two words"], "must not contain whitespace"),
        (["enqueue", ""], "must not be empty"),
        (["enqueue", "work", "{not json}"], "not valid JSON"),
        (["enqueue", "work", "NaN"], "NaN is no JSON"),
        (["enqueue", "work", "1", "2"], "unexpected extra argument"),
        (["enqueue", "work", "--delay", "soon"], "'soon' is no duration"),
        (["enqueue", "work", "--delay", "5"], "'5' is no duration"),
        (["enqueue", "work", "--delay", "-5m"], "is no duration"),
        (["enqueue", "work", "--delay", "99999999999w"], "is too long"),
        (["enqueue", "work", "--delay", "600000w"], "leads beyond the year 9999"),
        (["enqueue", "work", "--at", "tomorrow"], "'tomorrow' is no time"),
        (
            ["enqueue", "work", "--at", "2031-05-01T09:00"],
            "has no zone; write for example 2031-05-01T09:00:00Z",
        ),
        (["enqueue", "work", "--at", "2031-05-01T09:00Z", "--delay", "5m"], "cannot be given together"),
        (["enqueue", "work", "--unique-key", " "], "must not be blank"),
        (["enqueue", "work", "--debounce", "5s"], "--debounce needs --unique-key"),
        (["enqueue", "work", "--debounce", "5s", "--unique-key", "k", "--delay", "5m"], "debounce says when"),
        (["schedule", "* * *", "work"], "has 3 fields instead of 5"),
        (["schedule", "0 25 * * *", "work"], "hour"),
        (["schedule", "0 9 31 2 *", "work"], "never"),
        (["schedule", "@hourly", "work", "--timezone", "Mars/Olympus"], "Mars/Olympus"),
        (["schedule", "@hourly", "work", "[1"], "not valid JSON"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
def test_wrong_input_is_told_with_exit_code_2_and_nothing_is_stored(
    arguments: list[str], problem: str, call: Call, jobs: Jobs
) -> None:
    told = call(*arguments)

    assert told.exit_code == 2
    assert told.output.startswith(f"Usage: monque {arguments[0]} ")
    assert problem in told.output
    assert jobs.count_documents({}) == 0


def test_a_job_can_have_its_own_number_of_attempts(call: Call, jobs: Jobs) -> None:
    assert call("enqueue", "work", "--max-attempts", "3").exit_code == 0
    [stored] = jobs.find()

    assert stored["policy"] == {"maxAttempts": 3}
    assert call("enqueue", "work", "--max-attempts", "0").exit_code == 2
