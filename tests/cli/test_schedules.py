"""`monque schedules`, and the options of `monque schedule`."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import timedelta
from typing import Any

from click.testing import Result

from monque.sync import SyncMonque
from support.aliases import Collection
from support.clocks import ago

Call = Callable[..., Result]


def test_a_schedule_is_stored_listed_paused_resumed_triggered_and_removed(call: Call, uri: str) -> None:
    told = call("schedule", "30s", "poll-mailbox", "--jitter", "3s", "--grace", "10s", "--limit", "9")
    assert " poll-mailbox runs every 30s, next at " in told.output
    heading, line = call("schedules", "list").output.splitlines()
    assert heading.split() == ["name", "key", "when", "state", "next", "last", "runs", "skipped"]
    assert line.split()[:5] == ["poll-mailbox", "poll-mailbox", "every", "30s", "active"]

    assert call("schedules", "pause", "poll-mailbox").output == "poll-mailbox: paused until it is resumed\n"
    assert call("schedules", "next", "poll-mailbox").output == ""
    assert call("schedules", "resume", "poll-mailbox").output.startswith("poll-mailbox: resumed, next at 2")
    assert len(call("schedules", "next", "poll-mailbox", "--count", "3").output.splitlines()) == 3
    assert call("schedules", "trigger", "poll-mailbox").output.startswith("poll-mailbox: runs now, as job ")
    with SyncMonque(uri) as monque:
        schedule = monque.get_schedule("poll-mailbox")
    assert (schedule.every, schedule.grace, schedule.limit) == (
        timedelta(seconds=30),
        timedelta(seconds=10),
        9,
    )
    assert call("schedules", "remove", "poll-mailbox").output == "poll-mailbox: removed\n"
    assert len(call("schedules", "list").output.splitlines()) == 1


def test_a_new_schedule_can_run_at_once(call: Call, uri: str) -> None:
    call("schedule", "@yearly", "warm-up", "--run-now")

    with SyncMonque(uri) as monque:
        schedule = monque.get_schedule("warm-up")
    assert schedule.next_run_at == schedule.created_at


def test_what_is_given_of_a_schedule_is_changed_and_the_rest_stays(call: Call, uri: str) -> None:
    call("schedule", "@daily", "report", '{"to": "ada"}', "--unique-key", "k", "--timezone", "Asia/Tokyo")
    edit = ("schedules", "edit", "report", "--unique-key", "k")

    assert call(*edit, "--cron", "0 8 * * *").output.startswith("report k: changed, next at 2")
    assert json.loads(call(*edit, "--data", "null", "--json").output)["cron"] == "0 8 * * *"
    assert call(*edit, "--cron", "no cron").exit_code == 2
    assert call(*edit, "--data", "{").exit_code == 2
    nothing = call(*edit)
    assert (nothing.exit_code, "--cron, --timezone or --data" in nothing.output) == (2, True)

    with SyncMonque(uri) as monque:
        schedule = monque.get_schedule("report", "k")
        job = monque.get_job(schedule.id)
    assert (schedule.cron, schedule.timezone) == ("0 8 * * *", "Asia/Tokyo")
    assert job is not None
    assert job.data is None


def test_as_json_the_fields_are_those_of_a_schedule(call: Call) -> None:
    call("schedule", "@daily", "report", "--unique-key", "k", "--as-jobs", "--overlap", "skip", "--paused")
    [line] = call("schedules", "list", "--name", "report", "--json").output.splitlines()
    shown: dict[str, Any] = json.loads(line)

    assert json.loads(call("schedules", "show", "report", "--unique-key", "k", "--json").output) == shown
    assert (shown["name"], shown["key"], shown["cron"], shown["state"]) == ("report", "k", "@daily", "paused")
    assert (shown["as_jobs"], shown["overlap"], shown["next_run_at"]) == (True, "skip", None)
    assert "overlap      skip" in call("schedules", "show", "report", "--unique-key", "k").output
    triggered = json.loads(call("schedules", "trigger", "report", "--unique-key", "k", "--json").output)
    assert triggered["id"] != shown["id"]


def test_a_schedule_that_has_run_shows_its_recent_runs(call: Call, uri: str) -> None:
    with SyncMonque(uri) as monque:
        monque.worker("report", lambda job: None)
        monque.schedule("@daily", "report", run_now=True)
        monque.run_until_idle()

    shown = json.loads(call("schedules", "show", "report", "--json").output)
    [run] = shown["recent_runs"]
    assert (run["outcome"], run["job_id"], run["duration"] < 60) == ("completed", None, True)
    assert json.loads(call("schedules", "list", "--json").output) == shown
    assert "  completed after " in call("schedules", "show", "report").output


def test_an_unknown_schedule_is_exit_code_1(call: Call) -> None:
    for command in ("show", "pause", "resume", "trigger", "remove", "next"):
        told = call("schedules", command, "report", "--unique-key", "k")
        assert told.exit_code == 1
        assert "no schedule" in told.output
    told = call("schedules", "edit", "report", "--timezone", "UTC")
    assert (told.exit_code, "no schedule" in told.output) == (1, True)


def test_a_schedule_that_has_ended_or_is_paused_says_so(call: Call) -> None:
    assert call("schedule", "@daily", "a", "--end", "2020-01-01T00:00Z").output.endswith(", and has ended\n")
    assert call("schedule", "@daily", "b", "--paused").output.endswith(", paused\n")


async def test_times_that_are_past_are_marked(call: Call, collection: Collection) -> None:
    """Nobody runs the schedule: its next time is past, and so are some after that."""
    call("schedule", "1h", "report")
    declared, first = ago(minutes=150), ago(minutes=90)
    await collection.update_one({}, {"$set": {"nextRunAt": first, "schedule.anchor": declared}})

    lines = call("schedules", "next", "report", "--count", "4").output.splitlines()
    assert [line.endswith(" (past)") for line in lines] == [True, True, False, False]
    told = call("schedules", "next", "report", "--count", "4", "--json").output.splitlines()
    assert [json.loads(line)["past"] for line in told] == [True, True, False, False]


async def test_the_doctor_names_expressions_that_typescript_misreads(
    call: Call, collection: Collection
) -> None:
    call("schedule", "0 9 * * MON-FRI,5", "report")
    assert "misread" not in call("doctor").output
    await collection.create_index({"claimedBy": 1, "status": 1}, name="claimedBy_1_status_1")

    assert "TypeScript instances misread 0 9 * * MON-FRI,5" in call("doctor").output


async def test_the_doctor_names_schedules_that_never_ran(call: Call, collection: Collection) -> None:
    call("schedule", "@daily", "report")
    assert "all that had their time have run" in call("doctor").output
    await collection.update_one({}, {"$set": {"nextRunAt": ago(hours=1)}})

    assert "never ran: report report" in call("doctor").output
