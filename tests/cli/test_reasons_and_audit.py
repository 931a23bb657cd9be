"""`monque jobs why` and `monque audit`; and every command that changes something is in the audit trail."""

from __future__ import annotations

import getpass
import json
import socket
from collections.abc import Callable
from typing import Any

import pytest
from bson import ObjectId
from click.testing import Result

from monque._store.indexes import UNIQUE_KEY
from support.clocks import ago, ahead
from support.jobs import claimed, document
from support.register import in_the_register

from .conftest import Documents

Call = Callable[..., Result]


def insert(jobs: Documents, **fields: Any) -> str:
    return str(jobs.insert_one(document(**fields)).inserted_id)


def trail(jobs: Documents) -> list[dict[str, Any]]:
    return list(jobs.database["monque_jobs_audit"].find(sort={"at": 1, "_id": 1}))


def test_why_says_the_reason_what_it_rests_on_and_what_would_help(call: Call, jobs: Documents) -> None:
    jobs.database["monque_jobs_instances"].insert_one(in_the_register("web-1", "send-email"))
    job = insert(jobs, name="send-mail", nextRunAt=ago(seconds=60))

    result = call("jobs", "why", job)

    sentence, due, workers, start, delete = result.output.splitlines()
    assert sentence == "The only live instance has no worker for send-mail. Did you mean send-email?"
    assert due.startswith("  due since      ")
    assert workers == "  workers there  send-email"
    assert start == "  → Start a worker for it: monque worker MODULE:ATTR --only send-mail"
    assert delete == f"  → Delete it: monque jobs delete {job}"

    jobs.insert_one(claimed("ts-1"))
    assert call("jobs", "why", job).output.splitlines()[0].endswith("send-email? (likely)")


def test_why_as_json_has_everything(call: Call, jobs: Documents) -> None:
    job = insert(jobs, status="failed", failCount=3, failReason="OSError: \x1b[31mred")

    found = json.loads(call("jobs", "why", job, "--json").output)

    assert set(found) == {"id", "code", "sentence", "since", "certainty", "evidence", "remedies"}
    assert (found["id"], found["code"], found["certainty"]) == (job, "given-up", "certain")
    assert found["remedies"][0]["command"] == f"monque jobs retry {job}"
    assert "\x1b" not in call("jobs", "why", job).output


def test_why_of_a_job_that_is_not_there(call: Call) -> None:
    result = call("jobs", "why", str(ObjectId()))

    assert result.exit_code == 1
    assert "no job with id" in result.output
    assert "24 hexadecimal characters" in call("jobs", "why", "soon").output


def test_what_is_done_to_one_job_is_recorded_with_how_it_was(call: Call, jobs: Documents) -> None:
    job = insert(jobs, nextRunAt=ahead(hours=1))
    for line in (
        ("cancel", job, "--reason", "wrong customer"),
        ("retry", job, "--note", "ticket 7"),
        ("reschedule", job, "--delay", "1h"),
        ("priority", "3", job),
        ("delete", job),
    ):
        assert call("jobs", *line).exit_code == 0, line

    entries = trail(jobs)
    assert [(each["action"], each["outcome"]) for each in entries] == [
        (action, "done") for action in ("cancel", "retry", "reschedule", "prioritize", "delete")
    ]
    assert {(each["actor"], each["via"], each["address"]) for each in entries} == {
        (getpass.getuser(), "cli", socket.gethostname())
    }
    assert {(each["jobId"], each["name"]) for each in entries} == {(ObjectId(job), "work")}
    cancel, retry, *_, delete = entries
    assert (cancel["before"]["status"], cancel["after"]["status"]) == ("pending", "cancelled")
    assert cancel["note"] == "wrong customer"
    assert (retry["after"]["status"], retry["note"]) == ("pending", "ticket 7")
    assert "after" not in delete


def test_what_did_not_work_is_recorded_and_says_no_unique_key(call: Call, jobs: Documents) -> None:
    jobs.create_indexes([UNIQUE_KEY])
    done = insert(jobs, status="completed")
    insert(jobs, uniqueKey="4242")
    taken = insert(jobs, uniqueKey="4242", status="failed", failReason="x")
    gone = str(ObjectId())

    result = call("jobs", "retry", done, taken, gone, "--note", "ticket 7:")

    assert result.exit_code == 1
    entries = trail(jobs)
    assert [(each["outcome"], each["note"]) for each in entries] == [
        ("failed", "ticket 7: cannot retry it: it is completed"),
        ("failed", "ticket 7: cannot retry it: it is failed"),
        ("failed", "ticket 7: no such job"),
    ]
    assert "4242" not in str(entries)
    assert "monque.audit" not in result.output
    assert "outcome=" not in result.output


def test_what_cannot_be_used_is_recorded_without_what_was_given(call: Call, jobs: Documents) -> None:
    result = call("schedule", "@daily", "report", "--unique-key", "s3cret" * 500)

    assert result.exit_code == 2
    [entry] = trail(jobs)
    assert (entry["outcome"], entry["note"]) == ("failed", "what was given cannot be used")


def test_what_is_done_to_many_is_one_entry_without_values_of_payloads(call: Call, jobs: Documents) -> None:
    for number in (7, 7, 8):
        insert(jobs, name="pay", data={"card": number}, status="failed", failReason="x")

    lines = ["--name", "pay", "--payload", "card=7", "--yes"]
    assert "retried 2 job(s)" in call("jobs", "retry", *lines).output
    assert "cancelled 2 job(s)" in call("jobs", "cancel", "--name", "pay", "--yes", "--reason", "why").output
    assert call("jobs", "delete", "--name", "nobody", "--yes").exit_code == 0
    assert call("jobs", "delete", "--all", typed="n\n").exit_code == 1

    retry, cancel = trail(jobs)
    sevens = [job["_id"] for job in jobs.find({"data.card": 7}, sort={"_id": 1})]
    assert retry["jobIds"] == cancel["jobIds"] == sevens
    assert (retry["action"], retry["name"], retry["count"], retry["errors"]) == ("retryBulk", "pay", 2, 0)
    assert retry["filter"] == {
        "name": "pay",
        "status": ["cancelled", "failed"],
        "payload": {"card": "•••"},
    }
    assert (cancel["action"], cancel["note"]) == ("cancelBulk", "why")


def test_pauses_and_schedules_are_recorded(call: Call, jobs: Documents) -> None:
    for line in (
        "pause work --reason broken --until 1h",
        "resume work",
        "pause --all",
        "resume --all",
        "schedule @daily report",
        "schedules edit report --cron @hourly",
        "schedules pause report",
        "schedules resume report",
        "schedules trigger report",
        "schedules remove report",
    ):
        assert call(*line.split()).exit_code == 0, line
    assert call("schedules", "remove", "report").exit_code == 1
    assert call("schedules", "list").exit_code == 0

    found = [(each["action"], each.get("name"), each["outcome"]) for each in trail(jobs)]
    assert found == [
        ("pause", "work", "done"),
        ("resume", "work", "done"),
        ("pause", None, "done"),
        ("resume", None, "done"),
        *(
            (action, "report", "done")
            for action in (
                *(
                    "schedule",
                    "schedule-edit",
                    "schedule-pause",
                    "schedule-resume",
                    "schedule-run-now",
                    "unschedule",
                ),
            )
        ),
        ("unschedule", "report", "failed"),
    ]
    assert trail(jobs)[0]["note"] == "broken"
    assert (trail(jobs)[5]["before"]["cron"], trail(jobs)[5]["after"]["cron"]) == ("@daily", "@hourly")
    assert trail(jobs)[9]["before"]["cron"] == "@hourly"


def test_commands_that_look_leave_no_trail(call: Call, jobs: Documents) -> None:
    job = insert(jobs)
    for line in (f"jobs show {job}", f"jobs why {job}", "jobs list", "paused", "audit", "stats", "indexes"):
        assert call(*line.split()).exit_code == 0, line

    assert "monque_jobs_audit" not in jobs.database.list_collection_names()


def test_the_trail_gets_its_indexes_with_those_of_the_jobs(call: Call, jobs: Documents) -> None:
    call("pause", "work")
    assert list(jobs.database["monque_jobs_audit"].index_information()) == ["_id_"]

    assert call("indexes", "--create").exit_code == 0

    assert "monque_audit_expiry" in jobs.database["monque_jobs_audit"].index_information()
    assert trail(jobs)[-1]["action"] == "createIndexes"


def test_audit_lists_the_newest_first_and_takes_filters(call: Call, jobs: Documents) -> None:
    job = insert(jobs, nextRunAt=ahead(hours=1))
    call("pause", "work", "--reason", "two\nlines")
    call("jobs", "cancel", job)

    lines = call("audit").output.splitlines()
    assert lines[0].split() == ["at", "actor", "via", "action", "outcome", "about", "note"]
    assert lines[-2].split()[3:] == ["cancel", "done", job, "work"]
    assert "pause" in lines[-1]
    assert "two lines" in lines[-1]
    for which, actions in (
        (["--job", job], ["cancel"]),
        (["--actor", getpass.getuser()], ["cancel", "pause"]),
        (["--action", "pause"], ["pause"]),
        (["--action", "pause", "--action", "cancel"], ["cancel", "pause"]),
        (["--since", "1h"], ["cancel", "pause"]),
        (["--until", "1h"], []),
        (["--actor", "nobody"], []),
        (["--limit", "1"], ["cancel"]),
    ):
        found = [json.loads(line) for line in call("audit", "--json", *which).output.splitlines()]
        assert [each["action"] for each in found] == actions, which


@pytest.mark.parametrize("text", ["x", "{}"])
def test_audit_of_an_odd_id_is_empty(call: Call, text: str) -> None:
    result = call("audit", "--job", text)

    assert result.exit_code == 0
