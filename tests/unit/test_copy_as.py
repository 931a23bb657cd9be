"""What a page shows or does, as a command and as curl."""

from __future__ import annotations

import shlex
from typing import Any

import pytest

from monque.web.copy_as import OpsRequest, OpsWay, way

ROOT = "https://ops.example.org/monque/"
ID = "65f1c0ffee65f1c0ffee0001"
AS_OF = "2026-01-01T00:00:00.000Z"


def ways(path: str, method: str = "GET", body: dict[str, Any] | None = None, **more: Any) -> OpsWay:
    return way(OpsRequest.model_validate({"method": method, "path": path, "body": body, **more}), ROOT)


def bulk(action: str, **more: Any) -> OpsWay:
    return ways("/bulk", "POST", {"action": action, "asOf": AS_OF, "limit": 5000, **more})


def test_a_list_has_both_languages_and_no_secret() -> None:
    found = ways("/jobs?name=send%2Femail&limit=25")

    assert found.command == "monque jobs list --name send/email --limit 25 --sort id --descending"
    assert found.curl == (
        'curl -H "Authorization: Bearer $MONQUE_TOKEN" '
        "'https://ops.example.org/monque/api/ops/v1/jobs?name=send%2Femail&limit=25'"
    )


def test_an_inclusive_end_becomes_an_exclusive_one() -> None:
    assert "--created-before 2026-01-01T00:00:00.001Z" in str(ways(f"/jobs?createdAtTo={AS_OF}").command)


@pytest.mark.parametrize(
    ("query", "command"),
    [
        ("due=now", "--status pending --due-before 0s"),
        ("status=processing&status=pending&due=now", "--status pending --status processing --due-before 0s"),
        (
            "name=a%20b&status=failed&payload.a.b=%22x%22",
            "--name 'a b' --status failed --payload 'a.b=\"x\"'",
        ),
        ("recurring=false", "--not-recurring"),
        ("status=failed&status=cancelled", "--status cancelled --status failed"),
        ("status=pending&due=later", "--status pending --due-after 0s"),
        (f"scheduleId={ID}", f"--schedule-id {ID}"),
        (f"id={ID}", f"--id {ID}"),
    ],
)
def test_filters_become_options(query: str, command: str) -> None:
    assert str(ways(f"/jobs?{query}").command).startswith(f"monque jobs list {command} --limit 50 ")


@pytest.mark.parametrize("query", ["failed=0123456789ab", "status=odd", "id=odd"])
def test_a_list_that_no_command_prints_has_none(query: str) -> None:
    assert ways(f"/jobs?{query}").command is None


def test_jobs_that_ended_badly_are_listed_as_the_page_lists_them() -> None:
    request = OpsRequest(path="/jobs?status=failed")

    assert "--sort updated_at" in str(way(request, ROOT, by_failure=True).command)


def test_a_value_that_begins_with_a_dash_is_no_option() -> None:
    assert "--name=--all --claimed-by=-x " in str(ways("/jobs?name=--all&claimedBy=-x").command)
    assert ways("/queue/pause", "POST", {"name": "-x"}).command == "monque pause -- -x"


def test_hostile_text_is_one_word() -> None:
    name = "it's; rm -rf / \u202e\r\n"
    found = ways("/queue/pause", "POST", {"name": name})

    assert shlex.split(str(found.command)) == ["monque", "pause", name]
    assert shlex.split(found.curl)[-1] == f"{ROOT}api/ops/v1/queue/pause"


def test_actions_on_one_job() -> None:
    assert ways(f"/jobs/{ID}", "DELETE").command == f"monque jobs delete {ID}"
    assert f"-X DELETE {ROOT}api/ops/v1/jobs/{ID}" in ways(f"/jobs/{ID}", "DELETE").curl
    assert ways(f"/jobs/{ID}/run-now", "POST", {}).command == f"monque jobs run-now {ID}"
    assert ways(f"/jobs/{ID}/stop", "POST", {}).command == f"monque jobs stop {ID}"
    assert ways(f"/jobs/{ID}/reschedule", "POST", {}).command is None
    later = ways(f"/jobs/{ID}/reschedule", "POST", {"nextRunAt": AS_OF})
    assert later.command == f"monque jobs reschedule --at {AS_OF} {ID}"
    priority = ways(f"/jobs/{ID}/priority", "POST", {"priority": 1})
    assert priority.command == f"monque jobs priority 1 {ID}"
    assert ways(f"/jobs/{ID}/enqueue-again", "POST", {}).command is None


def test_an_action_on_many_takes_the_filters_of_the_page() -> None:
    assert bulk("stop", filter={"name": "x"}).command == "monque jobs stop --name x"
    assert bulk("delete", filter={"failed": "0123456789ab"}).command is None
    assert bulk("odd", filter={}).command is None


def test_to_act_on_all_takes_all() -> None:
    found = bulk("retry", filter={}, spreadMs=60_000)

    assert found.command == "monque jobs retry --spread 60000ms --all"


def test_actions_on_ids_name_them() -> None:
    assert bulk("prioritize", ids=[ID], priority=3).command == f"monque jobs priority 3 {ID}"
    assert bulk("stop", ids=[ID]).command == f"monque jobs stop {ID}"
    assert bulk("retry", ids=[ID]).command == f"monque jobs retry {ID}"


def test_ids_with_an_option_for_many_are_filters() -> None:
    found = bulk("retry", ids=[ID, "-x"], spreadMs=60_000)

    assert found.command == f"monque jobs retry --spread 60000ms --id {ID} --id=-x"


def test_queues() -> None:
    assert ways("/queues").command == "monque stats"
    assert shlex.split(str(ways("/queue?name=a%27b%2Fc%3F").command))[-1] == "a'b/c?"
    assert ways("/queue/resume", "POST", {"name": None}).command == "monque resume --all"


def test_an_edit_of_a_schedule_says_only_what_changes() -> None:
    body = {"cron": "0 8 * * *", "payload": {"to": "it's"}, "note": "early"}
    found = ways(f"/schedules/{ID}", "PUT", body, name="report", key="a b")
    assert found.command == (
        "monque schedules edit --unique-key 'a b' --cron '0 8 * * *' --data '{\"to\": \"it'\"'\"'s\"}' report"
    )
    zone = ways(f"/schedules/{ID}", "PUT", {"timezone": "Asia/Tokyo"}, name="report", key="report")
    assert zone.command == "monque schedules edit --timezone Asia/Tokyo report"
    assert "-X PUT" in zone.curl

    typed = ways(f"/schedules/{ID}", "PUT", {"payload": {"at": [{"$date": AS_OF}]}}, name="report")
    assert typed.command is None
    assert ways(f"/schedules/{ID}", "PUT", {}, name="report").command is None


def test_an_action_of_the_trail_is_named_as_the_command_takes_it() -> None:
    found = ways("/audit?action=retry%20many&actor=ada")
    assert found.command == "monque audit --actor ada --action retryBulk"


def test_schedules_are_found_by_name_and_key() -> None:
    assert ways(f"/schedules/{ID}", name="report", key="report").command == "monque schedules show report"
    found = ways(f"/schedules/{ID}/run-now", "POST", {}, name="report", key="a b")
    assert found.command == "monque schedules trigger --unique-key 'a b' report"
    deleted = ways(f"/schedules/{ID}", "DELETE", name="report", key=None)
    assert deleted.command == "monque schedules remove report"


def test_numbers_ask_for_their_window() -> None:
    assert ways("/latency?name=x&window=6h").command == "monque trends --name x --since 6h"


def test_the_trail_with_its_filters() -> None:
    found = ways("/audit?limit=50&actor=ada&action=retry")

    assert found.command == "monque audit --actor ada --action retry"


def test_what_has_no_words_has_curl_alone() -> None:
    found = ways("/failures?window=1h")

    assert found.command is None
    assert found.curl.endswith("'https://ops.example.org/monque/api/ops/v1/failures?window=1h'")
