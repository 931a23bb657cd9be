"""`monque jobs` and `monque stats`: looking, and acting on one and on many."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import fields
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from bson import ObjectId
from click.testing import Result
from pymongo.collection import Collection

from monque import Job, SyncMonque
from support.clocks import ago, ahead, now
from support.jobs import claimed, document
from support.waits import STEPS, receiving, sleeping

Call = Callable[..., Result]
Jobs = Collection[dict[str, Any]]

NOBODY = "0123456789abcdef01234567"


def lines(told: Result) -> list[dict[str, Any]]:
    return [json.loads(line) for line in told.stdout.splitlines()]


@pytest.fixture
def three(jobs: Jobs) -> list[dict[str, Any]]:
    """One pending, one failed, one completed; the last one long ago."""
    documents = [
        document(name="mail", data={"to": "ada"}, nextRunAt=ahead(hours=1)),
        document(name="mail", status="failed", failCount=10, failReason="SMTPError: refused"),
        document(name="report", status="completed", updatedAt=ago(days=40), createdAt=ago(days=41)),
    ]
    jobs.insert_many(documents)
    return documents


# Looking


def test_jobs_are_listed_as_plain_text(call: Call, three: list[dict[str, Any]]) -> None:
    told = call("jobs", "list")

    heading, *rows = told.stdout.splitlines()
    assert heading.split() == ["id", "name", "status", "due", "failures", "reason"]
    assert [row.split()[:3] for row in rows] == [
        [str(job["_id"]), job["name"], job["status"]] for job in three
    ]
    assert rows[1].endswith("10  SMTPError: refused")
    assert "\x1b" not in told.output


def test_jobs_are_listed_as_json_lines(call: Call, three: list[dict[str, Any]]) -> None:
    told = lines(call("jobs", "list", "--json"))

    assert [job["id"] for job in told] == [str(job["_id"]) for job in three]
    assert told[0]["data"] == {"to": "ada"}
    assert told[0]["next_run_at"] == three[0]["nextRunAt"].isoformat(timespec="milliseconds")
    assert told[1]["fail_reason"] == "SMTPError: refused"


@pytest.mark.parametrize(
    ("filters", "found"),
    [
        (["--name", "mail"], [0, 1]),
        (["--status", "failed"], [1]),
        (["--status", "failed", "--status", "pending"], [0, 1]),
        (["--name", "report", "--status", "failed"], []),
        (["--updated-before", "30d"], [2]),
        (["--updated-after", "1h"], [0, 1]),
        (["--created-before", "30d"], [2]),
        (["--created-after", "40d12h"], [0, 1]),
        (["--due-after", "2000-01-01T00:00Z", "--due-before", "2001-01-01T00:00Z"], []),
        (["--sort", "updated_at"], [2, 0, 1]),
        (["--descending"], [2, 1, 0]),
        (["--limit", "2"], [0, 1]),
    ],
    ids=lambda value: " ".join(map(str, value)),
)
def test_filters_and_order(
    filters: list[str], found: list[int], call: Call, three: list[dict[str, Any]]
) -> None:
    told = lines(call("jobs", "list", "--json", *filters))

    assert [job["id"] for job in told] == [str(three[place]["_id"]) for place in found]


@pytest.mark.parametrize(
    ("filters", "found"),
    [
        (["--expired"], [0]),
        (["--expired", "--status", "cancelled"], []),
        (["--not-expired"], [1, 2, 3]),
        (["--cancelled-by", "expiry"], [2]),
        (["--cancelled-by", "operator"], [3]),
        (["--cancelled-by", "handler"], []),
    ],
    ids=lambda value: " ".join(map(str, value)),
)
def test_expired_jobs_and_those_that_somebody_cancelled_are_found(
    filters: list[str], found: list[int], call: Call, ended: list[dict[str, Any]]
) -> None:
    told = lines(call("jobs", "list", "--json", *filters))

    assert [job["id"] for job in told] == [str(ended[place]["_id"]) for place in found]


def test_jobs_of_an_instance_and_schedules_are_found(call: Call, jobs: Jobs) -> None:
    there = [claimed("web-1", claimedAt=ago(hours=2)), claimed("web-2"), document(repeatInterval="@daily")]
    jobs.insert_many(there)

    def found(*filters: str) -> list[int]:
        told = [job["id"] for job in lines(call("jobs", "list", "--json", *filters))]
        return [place for place, job in enumerate(there) if str(job["_id"]) in told]

    assert found("--claimed-by", "web-1") == [0]
    assert found("--claimed-before", "1h") == [0]
    assert found("--claimed-after", "1h") == []
    assert found("--recurring") == [2]
    assert found("--not-recurring") == [0, 1]
    asked = call("jobs", "delete", "--claimed-by", "web-1", "--not-recurring", typed="y\n")
    assert "(claimed by web-1, not recurring)" in asked.stderr


def test_jobs_run_now(call: Call, jobs: Jobs) -> None:
    later = [document(nextRunAt=ahead(hours=1)) for _ in range(3)]
    done, schedule = document(status="completed"), document(repeatInterval="@daily", nextRunAt=ahead(hours=1))
    running = claimed("me", repeatInterval="@daily")
    jobs.insert_many([*later, done, schedule, running])

    assert call("jobs", "run-now", str(later[0]["_id"])).output == f"due now: {later[0]['_id']}\n"
    refused = call("jobs", "run-now", str(done["_id"]))
    assert refused.exit_code == 1
    assert "it is completed; only a pending one can be" in refused.stderr
    assert call("jobs", "run-now", str(running["_id"])).output == f"due now: {running['_id']}\n"
    asked = call("jobs", "run-now", "--due-after", "2000-01-01T00:00Z", "--not-recurring", "--yes")
    assert asked.output == "due now: 2 job(s)\n"  # the first one is due already
    assert jobs.count_documents({"nextRunAt": {"$gt": ahead(minutes=30)}, "status": "pending"}) == 1
    call("jobs", "run-now", str(schedule["_id"]))
    assert jobs.count_documents({"nextRunAt": {"$gt": ahead(minutes=30)}, "status": "pending"}) == 0


@pytest.fixture
def ended(jobs: Jobs) -> list[dict[str, Any]]:
    """One past its expiry, one not yet, one cancelled by expiry, one by an operator."""
    documents = [
        document(policy={"expiresAt": ago(minutes=1)}),
        document(policy={"expiresAt": ahead(hours=1)}),
        document(status="cancelled", cancel={"at": ago(minutes=1), "by": "expiry", "reason": "expired"}),
        document(status="cancelled"),
    ]
    jobs.insert_many(documents)
    return documents


def test_expired_jobs_are_cancelled_retried_and_deleted(
    call: Call, jobs: Jobs, ended: list[dict[str, Any]]
) -> None:
    """`--expired` alone says which jobs are meant, and so does `--cancelled-by`."""
    asked = call("jobs", "cancel", "--expired", typed="y\n")
    assert "Cancel 1 job(s) that are pending (expired)?" in asked.output
    assert jobs.find_one({"_id": ended[0]["_id"]})["status"] == "cancelled"

    asked = call("jobs", "retry", "--cancelled-by", "expiry", typed="y\n")
    assert "Retry 1 job(s) that are cancelled or failed (cancelled by expiry)?" in asked.output
    assert jobs.find_one({"_id": ended[2]["_id"]})["status"] == "pending"

    assert call("jobs", "delete", "--cancelled-by", "operator", "--yes").output == "deleted 2 job(s)\n"
    assert {job["_id"] for job in jobs.find()} == {ended[1]["_id"], ended[2]["_id"]}


def test_the_list_says_why_a_job_was_cancelled(call: Call, jobs: Jobs) -> None:
    asked = {"at": ago(minutes=1), "by": "operator", "reason": "wrong customer"}
    jobs.insert_many(
        [
            document(status="cancelled", cancel=asked, failReason="ValueError: an earlier attempt"),
            document(status="cancelled", failReason="ValueError: the only reason"),
            document(status="failed", cancel=asked, failReason="ValueError: it failed before"),
        ]
    )
    listed = call("jobs", "list").stdout.splitlines()

    ends = ["wrong customer", "ValueError: the only reason", "ValueError: it failed before"]
    assert [line for line, end in zip(listed[1:], ends, strict=True) if line.endswith(end)] == listed[1:]


def test_a_list_that_is_cut_says_so(call: Call, jobs: Jobs) -> None:
    jobs.insert_many(document() for _ in range(51))

    cut, whole = call("jobs", "list"), call("jobs", "list", "--all")

    assert len(cut.stdout.splitlines()) == 51  # the heading, and fifty
    assert cut.stderr == "These are the first 50; see more with --limit or --all.\n"
    assert len(whole.stdout.splitlines()) == 52
    assert whole.stderr == ""


def test_what_a_job_holds_cannot_steer_a_terminal(call: Call, jobs: Jobs) -> None:
    jobs.insert_one(document(status="failed", failReason="bad\x1b[2J\nnews [red]"))

    assert call("jobs", "list").stdout.endswith("bad\\x1b[2J news [red]\n")


def test_the_attempts_of_a_job_are_shown(call: Call, jobs: Jobs) -> None:
    ended = ago(hours=1)
    entry = {"by": "host-1", "startedAt": ended - timedelta(seconds=2), "finishedAt": ended}
    failure = {
        "outcome": "retried",
        "error": "SMTPError",
        "message": "refused\x1b[2J",
        "trace": "line 1\nline 2",
    }
    lost = {"outcome": "lost", "error": "ProcessDiedError", "message": "died"}
    history = [{"attempt": 1, **entry, **failure}, {"attempt": 2, **entry, **lost}]
    jobs.insert_one(job := document(history=history, attempt=2))

    told = call("jobs", "show", str(job["_id"]))
    *_, heading, first, second = told.stdout.splitlines()

    assert heading == "attempts that did not succeed:"
    assert first.startswith("  1. retried at ")
    assert first.endswith(" after 2.000 s in host-1: SMTPError: refused\\x1b[2J")
    assert second.endswith("ProcessDiedError: died")
    traced = call("jobs", "show", str(job["_id"]), "--traces").stdout
    assert "\n       line 1\n       line 2\n" in traced
    shown = json.loads(call("jobs", "show", str(job["_id"]), "--json").stdout)
    assert [each["outcome"] for each in shown["history"]] == ["retried", "lost"]
    assert shown["history"][0]["traceback"] == "line 1\nline 2"
    assert shown["history"][0]["finished_at"] == ended.isoformat(timespec="milliseconds")


def test_one_job_is_shown(call: Call, three: list[dict[str, Any]]) -> None:
    told = call("jobs", "show", str(three[1]["_id"]))

    assert "status              failed\n" in told.stdout
    assert "fail_reason         SMTPError: refused\n" in told.stdout
    assert "cron" not in told.stdout
    assert "is_parked" not in told.stdout
    assert "snooze_count" not in told.stdout


# A value of each field on the wire that `Job` reads, none of them the usual one.
FULL = {
    "data": {"n": 1},
    "status": "processing",
    "priority": 3,
    "failCount": 2,
    "failReason": "OSError: refused",
    "snoozeCount": 1,
    "history": [{"n": 1, "outcome": "retried", "error": "OSError", "finishedAt": now(), "by": "web-1"}],
    "repeatInterval": "@daily",
    "timezone": "Europe/Berlin",
    "runCount": 4,
    "lastRunAt": ago(days=1),
    "scheduleId": ObjectId(),
    "plannedFor": ago(hours=1),
    "uniqueKey": "k",
    "claimedBy": "web-1",
    "claimedAt": ago(minutes=3),
    "lockedAt": ago(minutes=2),
    "lastHeartbeat": ago(minutes=1),
    "heartbeatInterval": 30_000,
    "attempt": 3,
    "policy": {"maxAttempts": 5},
    "crashCount": 1,
    "startedAt": ago(days=1, minutes=2),
    "finishedAt": ago(days=1, minutes=1),
    "traceparent": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
    "stuck": {"why": "timeout", "since": ago(minutes=1), "by": "web-1", "attempt": 3},
    "cancel": {"at": ago(minutes=1), "by": "operator", "reason": "wrong customer"},
    "progress": {"done": 3.0, "at": now()},
    "log": [{"at": now(), "level": "info", "text": "began"}],
    "result": {"rows": 3},
    "resultError": "too large",
    "steps": [{"n": "charge", "k": "step", "at": ago(minutes=2), "ms": 40, "v": {"receipt": 7}}],
    "batch": "import-42",
    "turn": {"line": "k:s:ada", "slot": 1},
    "signals": [{"n": "picked-up", "at": ago(minutes=1), "v": None}],
    "parent": {"id": ObjectId(), "step": "pack", "at": 0},
}
# This one is a schedule, so it does not expire. It has a time and its payload, was read, is not cancelled and
# runs, so that it does not wait.
ABSENT = {"expires_at", "is_parked", "payload_size", "enqueued", "cancelled_by", "waits_for"}


def test_a_shown_job_lacks_no_field_of_job(call: Call, jobs: Jobs) -> None:
    jobs.insert_one(job := document(**FULL))
    told = call("jobs", "show", str(job["_id"])).stdout
    [as_json] = lines(call("jobs", "show", str(job["_id"]), "--json"))
    every = {field.name for field in fields(Job)}

    assert set(as_json) == every
    assert {name for name, value in as_json.items() if value in (None, False)} == ABSENT
    shown = {line.split()[0] for line in told.splitlines() if not line.startswith(" ")}
    assert shown == (every | {"attempts", "log:", "steps:"}) - {"history", "log", "steps"} - ABSENT


def test_that_a_job_is_parked_or_was_put_off_is_shown(call: Call, jobs: Jobs) -> None:
    parked = datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC)
    jobs.insert_one(job := document(nextRunAt=parked, snoozeCount=2))
    told = call("jobs", "show", str(job["_id"]))

    assert "is_parked           True\n" in told.stdout
    assert "snooze_count        2\n" in told.stdout


def test_a_list_says_what_its_jobs_wait_for(call: Call, jobs: Jobs) -> None:
    until = datetime(2040, 1, 1, tzinfo=UTC)
    jobs.insert_many([receiving(), receiving(until), sleeping(until)])
    told = call("jobs", "list", "--waiting", "--sort", "id").stdout.splitlines()[1:]

    assert [line.partition(" 0  ")[2].strip() for line in told] == [
        "waits for the signal picked-up",
        "waits for the signal picked-up, until 2040-01-01T00:00:00Z",
        "waits until 2040-01-01T00:00:00Z",
    ]


def test_the_steps_of_a_job_and_its_wait_are_shown(call: Call, jobs: Jobs) -> None:
    jobs.insert_one(job := receiving(until := datetime(2040, 1, 1, tzinfo=UTC)))
    told = call("jobs", "show", str(job["_id"])).stdout
    [as_json] = lines(call("jobs", "show", str(job["_id"]), "--json"))

    assert "waits_for           the signal picked-up, until 2040-01-01T00:00:00Z\n" in told
    assert " step charge after 0.012 s: {'payment': 7}\n" in told
    assert " signal courier until 2040-01-01T00:00:00Z\n" in told  # not how long the run before it took
    assert as_json["waits_for"]["until"] == until.isoformat(timespec="milliseconds")
    assert [step["name"] for step in as_json["steps"]] == ["charge", "pause", "book", "courier"]
    assert as_json["steps"][0]["value"] == {"payment": 7}


def test_the_jobs_that_a_job_has_run_are_shown_by_their_states(call: Call, jobs: Jobs) -> None:
    entry = {"n": "pack", "k": "jobs", "at": datetime(2040, 1, 1, tzinfo=UTC), "ms": 40, "jobs": 3}
    jobs.insert_one(job := receiving(steps=[{**entry, "v": "cf-", "over": datetime.now(UTC)}]))

    told = call("jobs", "show", str(job["_id"])).stdout

    assert "2040-01-01T00:00:00Z jobs pack: cf-\n" in told


def test_a_job_is_retried_from_a_step(call: Call, jobs: Jobs) -> None:
    jobs.insert_one(job := document(status="failed", steps=STEPS))

    refused = call("jobs", "retry", str(job["_id"]), "--from-step", "ship")
    done = call("jobs", "retry", "--name", "work", "--from-step", "book", "--yes", "--json")
    call("jobs", "cancel", str(job["_id"]))
    again = call("jobs", "retry", str(job["_id"]), "--from-start")

    assert (refused.exit_code, done.exit_code, again.exit_code) == (1, 0, 0)
    assert refused.stderr.endswith("from the step 'ship': it has no such step\n")
    assert lines(done) == [{"count": 1, "errors": []}]
    assert "steps" not in (jobs.find_one({"_id": job["_id"]}) or {"steps": ()})


def test_a_signal_is_sent_and_recorded_without_its_data(call: Call, jobs: Jobs, uri: str) -> None:
    jobs.insert_many([waits := receiving(), ended := document(status="completed")])
    data = '{"pin": 4711}'

    sent = call("jobs", "signal", str(waits["_id"]), "picked-up", data, "--id", "evt_1", "--note", "by phone")
    again = call("jobs", "signal", str(waits["_id"]), "picked-up", data, "--id", "evt_1", "--json")
    late = call("jobs", "signal", str(ended["_id"]), "picked-up", data)
    nobody = call("jobs", "signal", NOBODY, "picked-up")
    wrong = call("jobs", "signal", str(waits["_id"]), "picked-up", "{")

    assert (sent.exit_code, sent.stdout) == (0, f"sent picked-up to {waits['_id']}\n")
    assert lines(again) == [{"id": str(waits["_id"]), "done": True, "error": None}]
    told = f"Error: cannot signal job {ended['_id']}: it is completed, so nothing receives it\n"
    assert (late.exit_code, late.stderr) == (1, told)
    assert (nobody.exit_code, wrong.exit_code) == (1, 2)
    [signal] = (jobs.find_one({"_id": waits["_id"]}) or {})["signals"]
    assert (signal["n"], signal["v"], signal["id"]) == ("picked-up", {"pin": 4711}, "evt_1")
    with SyncMonque(uri) as monque:
        refused, _, entry = monque.audit().entries
    assert (entry.action, entry.note, entry.after) == (
        "signal",
        "by phone",
        {"signal": "picked-up", "size": 22},
    )
    assert (refused.outcome, refused.after) == ("failed", {"signal": "picked-up"})
    assert "4711" not in f"{entry}{refused}"


def test_the_slowest_jobs_are_listed(call: Call, jobs: Jobs) -> None:
    due = ago(minutes=10)
    for ran in (2, 90, 3):
        times = {"nextRunAt": due, "startedAt": due, "finishedAt": due + timedelta(seconds=ran)}
        jobs.insert_one(document(name=f"ran-{ran}", status="completed", **times))

    told = call("jobs", "list", "--sort", "ran", "--ran-at-least", "2.5s", "--updated-after", "1h")
    as_json = lines(call("jobs", "list", "--sort", "waited", "--limit", "1", "--json"))
    wrong = call("jobs", "list", "--sort", "ran", "--all")

    heading, *rows = told.stdout.splitlines()
    assert heading.split() == ["id", "name", "status", "ran", "waited", "ended"]
    assert [row.split()[1:4] for row in rows] == [
        ["ran-90", "completed", "1m"],
        ["ran-3", "completed", "3.0s"],
    ]
    assert [job["status"] for job in as_json] == ["completed"]
    assert (wrong.exit_code, "the longest first" in wrong.stderr) == (2, True)


def test_a_waiting_job_is_edited_and_that_is_recorded_without_its_payload(
    call: Call, jobs: Jobs, uri: str
) -> None:
    jobs.insert_many([waits := document(nextRunAt=ahead(hours=1)), ended := document(status="completed")])

    edited = call(
        "jobs", "edit", str(waits["_id"]), "--data", '{"pin": 4711}', "--priority", "3", "--note", "typo"
    )
    moved = lines(call("jobs", "edit", str(waits["_id"]), "--data", "null", "--delay", "2h", "--json"))
    late = call("jobs", "edit", str(ended["_id"]), "--priority", "1")
    nobody = call("jobs", "edit", NOBODY, "--priority", "1")
    nothing = call("jobs", "edit", str(waits["_id"]))

    assert (edited.exit_code, edited.stdout.startswith(f"edited {waits['_id']}, due at ")) == (0, True)
    assert [(job["data"], job["priority"]) for job in moved] == [(None, 3)]
    assert (late.exit_code, late.stderr) == (
        1,
        f"Error: cannot edit job {ended['_id']}: it is completed; only a pending one can be\n",
    )
    assert (nobody.exit_code, nothing.exit_code) == (1, 2)
    with SyncMonque(uri) as monque:
        refused, _, entry = monque.audit().entries
    assert (entry.action, entry.note, entry.after) == ("edit", "typo", {"priority": 3, "payload": "changed"})
    assert (refused.outcome, "4711" in f"{entry}") == ("failed", False)


def test_what_json_does_not_know_is_shown_as_extended_json(call: Call, jobs: Jobs) -> None:
    other = ObjectId()
    jobs.insert_one(document(data={"at": now(), "other": other, "raw": b"\x00\x01"}))

    [told] = lines(call("jobs", "list", "--json"))
    assert json.loads(call("jobs", "show", told["id"], "--json").stdout) == told
    assert told["data"]["other"] == {"$oid": str(other)}
    assert "$date" in told["data"]["at"]


def test_a_job_that_is_not_there_is_exit_code_1(call: Call) -> None:
    told = call("jobs", "show", NOBODY)

    assert (told.exit_code, told.stderr) == (1, f"Error: no job with id {NOBODY}\n")


def test_statistics_by_name(call: Call, three: list[dict[str, Any]], jobs: Jobs) -> None:
    stamps = {"startedAt": ago(seconds=12), "finishedAt": ago(seconds=10)}
    jobs.update_one({"_id": three[2]["_id"]}, {"$set": stamps})

    rows = [row.split() for row in call("stats").stdout.splitlines()]
    assert rows[0][:3] == ["name", "pending", "processing"]
    assert rows[1:] == [
        ["mail", "1", "0", "0", "1", "0", "2"],
        ["report", "0", "0", "1", "0", "0", "1", "2.0s"],
        ["all", "1", "0", "1", "1", "0", "3", "2.0s"],
    ]


def test_statistics_as_one_object(call: Call, three: list[dict[str, Any]]) -> None:
    counts = {
        "pending": 1,
        "processing": 0,
        "completed": 0,
        "failed": 1,
        "cancelled": 0,
        "other": 0,
        "total": 2,
    }
    mail = {"name": "mail", **counts, "avg_processing_duration": None}

    assert lines(call("stats", "--name", "mail", "--json")) == [mail]
    [everything] = lines(call("stats", "--json"))
    assert (everything["total"], everything["name"]) == (3, None)
    assert [each["name"] for each in everything["names"]] == ["mail", "report"]
    assert everything["names"][0] == mail


def test_looking_changes_nothing(call: Call, jobs: Jobs) -> None:
    """Not even what a worker would put right at its start."""
    stale = claimed("dead", lastHeartbeat=ago(hours=2), lockedAt=ago(hours=2))
    jobs.insert_one(stale)
    for command in (["jobs", "list"], ["stats"], ["top"], ["doctor"], ["indexes"]):
        call(*command)

    assert jobs.find_one()["status"] == "processing"
    assert list(jobs.index_information()) == ["_id_"]


def test_a_job_is_shown_with_progress_result_and_log(call: Call, jobs: Jobs) -> None:
    at = datetime(2030, 5, 1, 12, tzinfo=UTC)
    job = document(
        status="completed",
        progress={"done": 1_234_567.0, "message": "rows", "at": at},
        log=[{"at": at, "level": "warning", "text": "slow\x1b[31m"}],
        result={"rows": 3},
    )
    jobs.insert_one(job)

    told = call("jobs", "show", str(job["_id"])).stdout
    [as_json] = lines(call("jobs", "show", str(job["_id"]), "--json"))

    assert "progress            1234567, rows" in told
    assert "result              {'rows': 3}" in told
    assert "warning: slow" in told
    assert "\x1b" not in told
    assert as_json["progress"] == {
        "done": 1_234_567,
        "total": None,
        "message": "rows",
        "at": "2030-05-01T12:00:00.000+00:00",
        "fraction": None,
    }
    assert (as_json["result"], as_json["log"][0]["level"]) == ({"rows": 3}, "warning")


# Waiting


def test_waiting_says_how_each_job_ended(call: Call, three: list[dict[str, Any]]) -> None:
    _, failed, completed = (str(job["_id"]) for job in three)

    alone = call("jobs", "wait", completed)
    both = call("jobs", "wait", failed, completed)

    assert (alone.exit_code, alone.stdout) == (0, f"completed {completed}\n")
    assert (both.exit_code, both.stdout) == (1, f"failed {failed}\ncompleted {completed}\n")
    assert [job["status"] for job in lines(call("jobs", "wait", completed, "--json"))] == ["completed"]


def test_waiting_ends_with_the_time_that_is_given(call: Call, three: list[dict[str, Any]]) -> None:
    told = call("jobs", "wait", str(three[0]["_id"]), NOBODY, "--timeout", "50ms")

    assert told.exit_code == 1
    assert "has not ended in time" in told.stderr
    assert f"no job with id {NOBODY}" in told.stderr


# Acting on some


def test_a_job_is_cancelled_retried_rescheduled_and_deleted_by_id(call: Call, jobs: Jobs) -> None:
    job = document()
    jobs.insert_one(job)
    job_id = str(job["_id"])

    assert call("jobs", "cancel", job_id).output == f"cancelled {job_id}\n"
    assert jobs.find_one()["status"] == "cancelled"
    assert call("jobs", "retry", job_id).output == f"retried {job_id}\n"
    assert jobs.find_one()["status"] == "pending"
    assert call("jobs", "reschedule", job_id, "--at", "2031-05-01T09:00Z").output == f"rescheduled {job_id}\n"
    assert jobs.find_one()["nextRunAt"].year == 2031
    assert call("jobs", "delete", job_id).output == f"deleted {job_id}\n"
    assert jobs.find_one() is None


def test_a_delay_moves_a_job_by_the_clock_of_the_server(call: Call, jobs: Jobs) -> None:
    job = document()
    jobs.insert_one(job)
    call("jobs", "reschedule", str(job["_id"]), "--delay", "2h")

    assert abs(jobs.find_one()["nextRunAt"] - ahead(hours=2)) < timedelta(minutes=1)


def test_what_cannot_be_done_is_told_and_the_rest_is_done(call: Call, jobs: Jobs) -> None:
    running, waiting = claimed("somebody"), document()
    jobs.insert_many([running, waiting])

    told = call("jobs", "cancel", str(running["_id"]), NOBODY, str(waiting["_id"]))

    assert told.exit_code == 1
    assert told.stdout == f"cancelled {waiting['_id']}\n"
    assert "it runs in the instance somebody; to tell it to stop, add --running" in told.stderr
    assert f"no job with id {NOBODY}" in told.stderr

    again = lines(call("jobs", "cancel", "--json", NOBODY, str(waiting["_id"])))
    assert [(each["done"], each["error"]) for each in again] == [
        (False, f"no job with id {NOBODY}"),
        (True, None),
    ]


# Acting on many


def test_many_jobs_are_counted_and_asked_for(call: Call, jobs: Jobs, three: list[dict[str, Any]]) -> None:
    told = call("jobs", "delete", "--name", "mail", typed="y\n")

    assert "Delete 2 job(s) (name mail)? [y/N]" in told.output
    assert told.stdout.endswith("deleted 2 job(s)\n")
    assert [job["name"] for job in jobs.find()] == ["report"]


@pytest.mark.parametrize("typed", ["n\n", "\n", ""], ids=["no", "enter", "nobody there"])
def test_without_a_yes_nothing_is_done(
    typed: str, call: Call, jobs: Jobs, three: list[dict[str, Any]]
) -> None:
    told = call("jobs", "delete", "--all", typed=typed)

    assert told.exit_code == 1
    assert "Delete 3 job(s) (all names)?" in told.output
    assert jobs.count_documents({}) == 3


def test_yes_skips_the_question(call: Call, jobs: Jobs, three: list[dict[str, Any]]) -> None:
    told = call("jobs", "retry", "--status", "failed", "--yes", "--json")

    assert json.loads(told.stdout) == {"count": 1, "errors": []}
    assert told.stderr == ""
    assert jobs.count_documents({"status": "pending"}) == 2


def test_only_jobs_in_a_state_that_fits_are_counted(call: Call, three: list[dict[str, Any]]) -> None:
    assert "Cancel 1 job(s) that are pending (name mail)?" in call("jobs", "cancel", "--name", "mail").output
    assert call("jobs", "retry", "--status", "completed").stdout == "retried 0 job(s)\n"
    assert call("jobs", "retry", "--name", "nobody").stdout == "retried 0 job(s)\n"


def test_many_jobs_are_rescheduled(call: Call, jobs: Jobs) -> None:
    jobs.insert_many(
        [*(document(name="mail") for _ in range(30)), document(name="other"), claimed("a", name="mail")]
    )
    told = call("jobs", "reschedule", "--name", "mail", "--at", "2031-05-01T09:00Z", "--yes")

    assert told.output == "rescheduled 30 job(s)\n"
    assert jobs.count_documents({"nextRunAt": {"$gt": ahead(days=1)}}) == 30


def test_everything_of_a_customer_is_cancelled(call: Call, jobs: Jobs) -> None:
    jobs.insert_many(
        [document(name="mail", data={"customer": {"id": 7}, "to": to}, uniqueKey=to) for to in ("ada", "bob")]
    )
    jobs.insert_one(document(name="mail", data={"customer": {"id": "7"}}))

    selected = ("--name", "mail", "--payload", "customer.id=7")
    assert len(call("jobs", "list", *selected, "--json").stdout.splitlines()) == 2
    assert call("jobs", "cancel", *selected, "--payload", "to=ada", "--yes").output == "cancelled 1 job(s)\n"
    asked = call("jobs", "delete", *selected, typed="n\n").output
    assert "Delete 2 job(s) (name mail, customer.id 7)?" in asked
    assert call("jobs", "delete", "--unique-key", "bob", "--yes").output == "deleted 1 job(s)\n"
    assert (
        call("jobs", "list", "--name", "mail", "--payload", 'customer.id="7"', "--json").stdout.count("\n")
        == 1
    )
    assert "needs a name" in call("jobs", "list", "--payload", "customer.id=7").output
    assert "is not PATH=VALUE" in call("jobs", "list", "--payload", "customer.id").output


def test_jobs_are_prioritized_by_id_and_by_filters(call: Call, jobs: Jobs) -> None:
    jobs.insert_many([job := document(name="mail"), document(name="mail"), document(name="other")])
    job_id = str(job["_id"])

    assert call("jobs", "priority", "9", job_id).output == f"prioritized {job_id}\n"
    assert call("jobs", "priority", "3", "--name", "mail", "--yes").output == "prioritized 2 job(s)\n"
    assert [job["name"] for job in jobs.find({"priority": 3})] == ["mail", "mail"]
    assert len(call("jobs", "list", "--priority", "3", "--json").stdout.splitlines()) == 2
    assert "priority            3\n" in call("jobs", "show", job_id).stdout
    assert call("jobs", "priority", "0", "--priority", "1", "--yes").output == "prioritized 2 job(s)\n"
    assert jobs.count_documents({"priority": {"$exists": True}}) == 0
    assert "priority" not in call("jobs", "show", job_id).stdout
    assert "0<=x<=9" in call("jobs", "priority", "10", job_id).output


def test_many_retried_jobs_can_be_spread(call: Call, jobs: Jobs) -> None:
    jobs.insert_many(document(status="failed") for _ in range(50))
    call("jobs", "retry", "--all", "--spread", "10h", "--yes")

    latest = max(job["nextRunAt"] for job in jobs.find())
    assert ahead(hours=1) < latest < ahead(hours=11)


def test_a_job_whose_key_is_taken_is_told(call: Call, jobs: Jobs) -> None:
    call("enqueue", "sync", "--unique-key", "user-7")
    jobs.insert_many(document(name="sync", status="failed", uniqueKey=key) for key in ("user-7", "user-8"))

    told = call("jobs", "retry", "--name", "sync", "--yes")

    assert told.exit_code == 1
    assert told.stdout == "retried 1 job(s)\n"
    assert "its unique key is held by another active job" in told.stderr


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["cancel"], "say which jobs to cancel: by ID, by filters, or --all"),
        (["delete", "--yes"], "say which jobs to delete"),
        (["delete", "--name", "", "--yes"], "a filter's name must be a job name"),
        (["delete", NOBODY, "--name", "mail", "--yes"], "say which jobs"),
        (["delete", NOBODY, "--all", "--yes"], "say which jobs"),
        (["delete", "--all", "--status", "failed", "--yes"], "say which jobs"),
        (["delete", "--status", "done", "--yes"], "'done' is not one of"),
        (
            ["delete", "--updated-before", "yesterday", "--yes"],
            "'yesterday' is no time; write for example 2030-05-01T09:00Z, or an age such as 2h",
        ),
        (["delete", "--cancelled-by", "me", "--yes"], "'me' is not one of"),
        (["delete", "--updated-before", "300000w", "--yes"], "beyond the year 1"),
        (["reschedule", "--all", "--yes"], "either --at or --delay"),
        (
            ["reschedule", "--all", "--at", "2031-05-01T09:00Z", "--delay", "1h", "--yes"],
            "either --at or --delay",
        ),
        (["retry", "--all", "--spread", "x", "--yes"], "'x' is no duration"),
        (["retry", NOBODY, "--spread", "10m"], "--spread is for many jobs"),
        (["list", "--limit", "0"], "0 is not in the range"),
        (["list", "--sort", "name"], "'name' is not one of"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
def test_wrong_input_is_told_with_exit_code_2_and_nothing_is_changed(
    arguments: list[str], problem: str, call: Call, jobs: Jobs, three: list[dict[str, Any]]
) -> None:
    told = call("jobs", *arguments)

    assert told.exit_code == 2
    assert told.output.startswith(f"Usage: monque jobs {arguments[0]} ")
    assert problem in told.output
    assert list(jobs.find()) == three


@pytest.mark.parametrize("words", [["show", "abc"], ["cancel", "abc"], ["delete", "abc"]], ids=" ".join)
def test_what_is_no_id_is_answered_with_how_one_looks(call: Call, words: list[str]) -> None:
    told = call("jobs", *words)

    assert told.exit_code == 1
    assert told.stderr == (
        "Error: no job with id abc; an id has 24 hexadecimal characters, as `monque jobs list` shows them\n"
    )


def test_cancelling_a_running_job_says_what_can_be_done(call: Call, jobs: Jobs) -> None:
    job = claimed("me", name="render")
    jobs.insert_one(job)
    told = call("jobs", "cancel", str(job["_id"]))

    assert told.exit_code == 1
    assert told.stderr == (
        f"Error: cannot cancel job {job['_id']}: it runs in the instance me; "
        "to tell it to stop, add --running\n"
    )


def test_a_running_job_is_asked_to_stop(call: Call, jobs: Jobs) -> None:
    runs, waits = claimed("me"), document()
    jobs.insert_many([runs, waits])
    told = call("jobs", "cancel", "--running", "--reason", "enough", str(runs["_id"]), str(waits["_id"]))
    again = lines(call("jobs", "cancel", "--running", "--json", str(runs["_id"])))

    assert told.stdout == f"asked {runs['_id']} to stop\ncancelled {waits['_id']}\n"
    assert again == [{"id": str(runs["_id"]), "done": True, "error": None, "requested": True}]
    assert [job["cancel"]["reason"] for job in jobs.find()] == ["enough", "enough"]
    assert [job["status"] for job in jobs.find().sort("status")] == ["cancelled", "processing"]


def test_running_jobs_are_asked_to_stop_by_id_and_by_filters(call: Call, jobs: Jobs) -> None:
    first, second, waits = claimed("me"), claimed("me"), document()
    jobs.insert_many([first, second, waits])

    told = call("jobs", "stop", str(first["_id"]), "--note", "enough")
    assert told.stdout == f"asked {first['_id']} to stop\n"
    assert jobs.find_one({"_id": first["_id"]})["cancel"]["reason"] == "enough"
    refused = call("jobs", "stop", str(waits["_id"]))
    assert (refused.exit_code, "only a processing one can be" in refused.stderr) == (1, True)
    asked = call("jobs", "stop", "--claimed-by", "me", typed="y\n")
    assert "Stop 2 job(s) that are processing (claimed by me)?" in asked.output
    assert asked.stdout.endswith(" running job(s) to stop\n")
    as_json = lines(call("jobs", "stop", "--name", "nobody", "--json"))
    assert as_json == [{"count": 0, "errors": [], "requested": 0}]
    assert jobs.count_documents({"status": "processing", "cancel": {"$exists": True}}) == 2


def test_jobs_that_run_and_are_passed_over_are_counted(call: Call, jobs: Jobs) -> None:
    jobs.insert_many([claimed("me"), claimed("me"), claimed("me", name="other"), document()])

    told = call("jobs", "cancel", "--name", "work", "--yes")
    assert (told.exit_code, told.stdout) == (0, "cancelled 1 job(s)\n")
    assert told.stderr == "2 run; add --running to stop them\n"

    none_waits = call("jobs", "cancel", "--status", "processing", "--json")
    assert json.loads(none_waits.stdout) == {"count": 0, "errors": [], "requested": 0}
    assert none_waits.stderr == "3 run; add --running to stop them\n"
    assert call("jobs", "cancel", "--status", "pending", "--yes").stderr == ""
    assert call("jobs", "cancel", "--name", "work", "--running", "--yes").stderr == ""
    assert call("jobs", "retry", "--name", "work", "--yes").stderr == ""


def test_many_running_jobs_are_asked_to_stop(call: Call, jobs: Jobs) -> None:
    jobs.insert_many([claimed("me"), claimed("me"), document(), document(status="completed")])
    asked = call("jobs", "cancel", "--running", "--name", "work", typed="y\n")
    told = json.loads(call("jobs", "cancel", "--running", "--name", "work", "--yes", "--json").stdout)

    assert "Cancel 3 job(s) that are pending or processing (name work)?" in asked.output
    assert asked.stdout.endswith("cancelled 1 job(s)\nasked 2 running job(s) to stop\n")
    assert told == {"count": 0, "errors": [], "requested": 2}


# Documents that others wrote


ODD_IDS: list[Any] = ["text", 7, {"tenant": 7, "number": 1}, b"bytes", None, True, "ab" * 12]


def test_jobs_that_others_wrote_are_listed_shown_counted_and_deleted(call: Call, jobs: Jobs) -> None:
    jobs.insert_many([{"_id": _id, "name": "odd", "status": "parked"} for _id in ODD_IDS])
    jobs.insert_one({"name": ["odd"], "status": ["failed"], "nextRunAt": "soon", "updatedAt": 7})
    listed = lines(call("jobs", "list", "--json"))
    plain = call("jobs", "list", "--sort", "updated_at")
    stats = json.loads(call("stats", "--json").stdout)

    assert len(listed) == len(ODD_IDS) + 1
    assert plain.exit_code == 0, plain.output
    assert len(plain.stdout.splitlines()) == len(ODD_IDS) + 2
    assert stats["total"] == len(ODD_IDS) + 1
    for job in listed:
        shown = call("jobs", "show", job["id"])
        assert shown.exit_code == 0, shown.output
        assert json.loads(call("jobs", "show", job["id"], "--json").stdout) == job
        told = call("jobs", "delete", job["id"])
        assert (told.exit_code, told.stdout) == (0, f"deleted {job['id']}\n")
    assert jobs.count_documents({}) == 0


def test_top_shows_jobs_that_others_wrote(call: Call, jobs: Jobs) -> None:
    jobs.insert_many([{"_id": {"a": n}, "name": "odd", "status": "failed", "updatedAt": n} for n in range(3)])
    jobs.insert_many([{"_id": {"b": n}, "name": "odd", "status": "processing"} for n in range(3)])

    assert call("top").exit_code == 0
    assert len(json.loads(call("top", "--json").stdout)["failures"]) == 3
