"""`monque top` without a terminal, and what it works out."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest
from click.testing import Result
from pymongo.collection import Collection

from monque import JobStuck, Options
from monque.cli.top import Watcher
from monque.sync import SyncMonque
from support.clocks import ago, now
from support.jobs import claimed, document

Call = Callable[..., Result]
Jobs = Collection[dict[str, Any]]


@pytest.fixture
def watcher(uri: str) -> Iterator[Watcher]:
    with SyncMonque(uri) as monque:
        yield Watcher(monque)


def test_without_a_terminal_it_is_one_look_in_plain_text(call: Call, jobs: Jobs) -> None:
    jobs.insert_one(document(name="mail"))
    told = call("top")

    assert told.exit_code == 0
    assert told.stdout.splitlines()[3].split() == ["mail", "1", "0", "0", "0", "0"]
    assert "\x1b" not in told.stdout


def test_as_json_each_look_is_a_line(call: Call, jobs: Jobs) -> None:
    jobs.insert_many(
        [document(name="mail"), claimed("me", name="render"), document(name="mail", status="failed")]
    )
    first, second = (
        json.loads(line)
        for line in call("top", "--json", "--count", "2", "--interval", "0.1").stdout.splitlines()
    )

    assert [line["name"] for line in first["names"]] == ["mail", "render"]
    assert set(first["names"][0]) == {
        *("name", "due", "later", "waiting", "processing", "oldest_due", "failed", "cancelled", "paused"),
        *("parked", "completed_per_min", "failed_per_min"),
    }
    assert set(first) == {"taken_at", "names", "running", "failures", "retries", "paused"}
    run = {"id", "name", "attempt", "claimed_by", "age", "age_is_exact", "state", "progress"}
    assert set(first["running"][0]) == run
    assert set(first["failures"][0]) == {"id", "name", "status", "fail_count", "fail_reason", "updated_at"}
    assert first["taken_at"] < second["taken_at"]


def test_a_run_that_was_told_to_stop_is_marked(
    watcher: Watcher, jobs: Jobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = {"at": ago(minutes=5), "by": "operator"}
    jobs.insert_many([claimed("me", name="plain"), claimed("me", name="asked", cancel=asked)])
    first = {run.job.name: run.state for run in watcher.look().running}
    monkeypatch.setattr(JobStuck, "_after", timedelta(0))
    second = {run.job.name: run.state for run in watcher.look().running}

    assert first == {"plain": "", "asked": "stopping"}
    assert second == {"plain": "", "asked": "stuck"}


def test_a_job_that_waits_for_its_next_try_is_not_listed_as_failed(
    call: Call, watcher: Watcher, jobs: Jobs
) -> None:
    failed = document(name="mail", status="failed", failReason="for good", failCount=10)
    waiting = document(name="mail", failReason="for now", failCount=1, nextRunAt=ago(seconds=-3600))
    jobs.insert_many([failed, waiting])
    look = watcher.look()

    assert [job.id for job in look.failures] == [failed["_id"]]
    assert [job.id for job in look.retries] == [waiting["_id"]]
    printed = call("top").stdout
    assert "for good" in printed.partition("failed job")[2].partition("job to retry")[0]
    assert "for now" in printed.partition("job to retry")[2]
    assert "in 59m" in printed.partition("job to retry")[2]


def test_the_age_of_a_run_is_exact_if_its_beginning_was_seen(watcher: Watcher, jobs: Jobs) -> None:
    """A heartbeat moves the time of the claim; the run does not become younger by it."""
    before = claimed("me", lockedAt=ago(seconds=20))
    jobs.insert_one(before)
    watcher.look()
    began = claimed("me", lockedAt=ago(seconds=10))
    jobs.insert_one(began)
    watcher.look()
    jobs.update_many({}, {"$currentDate": {"lockedAt": True}})

    runs = {run.job.id: run for run in watcher.look().running}
    assert not runs[before["_id"]].is_exact
    assert runs[began["_id"]].is_exact
    assert runs[before["_id"]].age.total_seconds() >= 20
    assert 10 <= runs[began["_id"]].age.total_seconds() < runs[before["_id"]].age.total_seconds()


def test_a_new_attempt_is_a_new_run(watcher: Watcher, jobs: Jobs) -> None:
    job = claimed("me", lockedAt=ago(hours=1))
    jobs.insert_one(job)
    watcher.look()
    jobs.update_one({}, {"$inc": {"attempt": 1}, "$currentDate": {"lockedAt": True}})

    [run] = watcher.look().running
    assert run.is_exact
    assert run.age.total_seconds() < 60


def test_the_age_of_a_run_is_exact_at_the_first_look_if_its_claim_tells(watcher: Watcher, jobs: Jobs) -> None:
    """A heartbeat has moved the time of its lock since."""
    jobs.insert_one(claimed("me", claimedAt=ago(seconds=600), lockedAt=ago(seconds=0)))

    [run] = watcher.look().running
    assert run.is_exact
    assert 600 <= run.age.total_seconds() < 1200


def test_rates_are_those_of_the_last_minute(watcher: Watcher, jobs: Jobs) -> None:
    """They are read from the trends, also for a name of which nothing waits."""
    minute = now().replace(second=0)
    counts = {"completed": 30, "failed": 2}
    for earlier in (0, 1, 2):
        key = {"r": "m", "t": minute - timedelta(minutes=earlier), "n": "mail"}
        jobs.database["monque_jobs_trends"].insert_one({"_id": key, **counts})

    [line] = watcher.look().names
    assert (line.depth.name, line.depth.due) == ("mail", 0)
    assert line.rate is not None
    assert 30 <= line.rate.completed <= 60
    assert 2 <= line.rate.failed <= 4


def test_where_no_trends_are_kept_there_are_no_rates(uri: str, jobs: Jobs) -> None:
    jobs.insert_one(document(name="mail"))
    with SyncMonque(uri, options=Options(trends=None)) as monque:
        [line] = Watcher(monque).look().names

    assert line.rate is None
    assert (line.fields()["completed_per_min"], line.fields()["due"]) == (None, 1)


def test_finished_jobs_are_not_counted(watcher: Watcher, jobs: Jobs) -> None:
    """There may be millions. Failed ones are, where an index leads to them."""
    jobs.insert_many([document(name="old", status="completed"), document(name="new", status="failed")])
    assert watcher.look().names == []

    watcher._monque.begin_use("failures")
    [line] = watcher.look().names
    assert (line.depth.name, line.depth.failed) == ("new", 1)


def test_paused_names_are_shown_where_there_are_any(call: Call, uri: str, jobs: Jobs) -> None:
    jobs.insert_one(document(name="mail"))
    assert "paused name" not in call("top").stdout
    with SyncMonque(uri) as monque:
        monque.pause("mail", reason="the bank is down")

    assert "the bank is down" in call("top").stdout
    [pause] = json.loads(call("top", "--json").stdout)["paused"]
    assert (pause["name"], pause["until"], pause["reason"]) == ("mail", None, "the bank is down")


def test_a_run_that_does_not_stop_is_stuck_whoever_told_it_to(call: Call, jobs: Jobs) -> None:
    """Its owner has marked it; a mark of an earlier claim does not count."""
    mark = {"why": "timeout", "since": ago(minutes=5), "by": "me", "attempt": 1}
    later = claimed("me", name="send", attempt=2, stuck=mark)
    jobs.insert_many([claimed("me", name="render", stuck=mark), later])
    runs = json.loads(call("top", "--json").stdout)["running"]

    assert {run["name"]: run["state"] for run in runs} == {"render": "stuck", "send": "running"}


def test_it_shows_how_far_running_jobs_are(call: Call, jobs: Jobs) -> None:
    progress = {"done": 3.0, "total": 4.0, "message": "writing", "at": ago(seconds=1)}
    jobs.insert_many([claimed("me", name="import", progress=progress), claimed("me", name="other")])

    assert "3 of 4 (75 %), writing" in call("top").stdout
    found = json.loads(call("top", "--json").stdout)["running"]
    assert {run["name"]: run["progress"] for run in found} == {"import": 0.75, "other": None}
