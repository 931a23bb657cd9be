"""What a page shows or does, as a command, as Python and as curl."""

from __future__ import annotations

import shlex
from typing import Any

import pytest

from monque.management.copying import way
from monque.management.ops import OpsRequest, OpsWay

ROOT = "https://ops.example.org/monque/"
ID = "65f1c0ffee65f1c0ffee0001"
AS_OF = "2026-01-01T00:00:00.000Z"


def ways(path: str, method: str = "GET", body: dict[str, Any] | None = None, **more: Any) -> OpsWay:
    return way(OpsRequest.model_validate({"method": method, "path": path, "body": body, **more}), ROOT)


def bulk(action: str, **more: Any) -> OpsWay:
    return ways("/bulk", "POST", {"action": action, "asOf": AS_OF, "limit": 5000, **more})


def test_a_list_has_all_languages_and_no_secret() -> None:
    found = ways("/jobs?name=send%2Femail&limit=25")

    assert found.command == "monque jobs list --name send/email --limit 25 --sort id --descending"
    assert found.python == (
        "from monque import JobFilter\n\n"
        "page = await monque.list_jobs(JobFilter(name='send/email'), limit=25, sort='id', descending=True)"
    )
    assert found.curl == (
        'curl -H "Authorization: Bearer $MONQUE_TOKEN" '
        "'https://ops.example.org/monque/api/ops/v1/jobs?name=send%2Femail&limit=25'"
    )


def test_an_inclusive_end_becomes_an_exclusive_one() -> None:
    found = ways(f"/jobs?createdAtTo={AS_OF}")

    assert "--created-before 2026-01-01T00:00:00.001Z" in str(found.command)
    assert "created_before=datetime.fromisoformat('2026-01-01T00:00:00.001Z')" in str(found.python)
    assert str(found.python).startswith("from datetime import datetime\n")


@pytest.mark.parametrize(
    ("query", "command"),
    [
        ("due=now", "--status pending --due-before 0s"),
        (
            "name=a%20b&status=failed&payload.a.b=%22x%22",
            "--name 'a b' --status failed --payload 'a.b=\"x\"'",
        ),
        ("recurring=false", "--not-recurring"),
        ("status=failed&status=cancelled", "--status failed --status cancelled"),
    ],
)
def test_filters_become_options(query: str, command: str) -> None:
    assert str(ways(f"/jobs?{query}").command).startswith(f"monque jobs list {command} --limit 50 ")


@pytest.mark.parametrize("query", ["failed=0123456789ab", f"scheduleId={ID}", f"id={ID}"])
def test_a_filter_without_an_option_gives_no_command(query: str) -> None:
    assert ways(f"/jobs?{query}").command is None


def test_jobs_that_ended_badly_are_listed_as_the_page_lists_them() -> None:
    request = OpsRequest(path="/jobs?status=failed")

    assert "--sort updated_at" in str(way(request, ROOT, lists_failures=True).command)


def test_a_value_that_begins_with_a_dash_is_no_option() -> None:
    assert "--name=--all --claimed-by=-x " in str(ways("/jobs?name=--all&claimedBy=-x").command)
    assert ways("/queue/pause", "POST", {"name": "-x"}).command == "monque pause -- -x"


def test_hostile_text_is_one_word_and_one_literal() -> None:
    name = "it's; rm -rf / \u202e\r\n"
    found = ways("/queue/pause", "POST", {"name": name})

    assert shlex.split(str(found.command)) == ["monque", "pause", name]
    assert found.python == f"await monque.pause({name!r})"
    assert "\u202e" not in str(found.python)
    assert shlex.split(found.curl)[-1] == f"{ROOT}api/ops/v1/queue/pause"


def test_actions_on_one_job() -> None:
    assert ways(f"/jobs/{ID}", "DELETE").command == f"monque jobs delete {ID}"
    assert f"-X DELETE {ROOT}api/ops/v1/jobs/{ID}" in ways(f"/jobs/{ID}", "DELETE").curl
    assert ways(f"/jobs/{ID}/run-now", "POST", {}).python == f"await monque.run_now({ID!r})"
    assert ways(f"/jobs/{ID}/stop", "POST", {}).command == f"monque jobs cancel --running {ID}"
    assert ways(f"/jobs/{ID}/reschedule", "POST", {}).command is None
    later = ways(f"/jobs/{ID}/reschedule", "POST", {"nextRunAt": AS_OF})
    assert later.command == f"monque jobs reschedule --at {AS_OF} {ID}"
    assert f"reschedule_job({ID!r}, datetime.fromisoformat({AS_OF!r}))" in str(later.python)
    assert (
        ways(f"/jobs/{ID}/priority", "POST", {"priority": 1}).python
        == f"await monque.set_priority({ID!r}, 1)"
    )


def test_to_stop_many_means_those_that_run_alone() -> None:
    assert bulk("stop", ids=[ID]).command is None
    found = bulk("stop", filter={"name": "x"})
    assert found.command == "monque jobs cancel --running --name x --status processing"
    assert "cancel_jobs(JobFilter(name='x', status=['processing']), running=True)" in str(found.python)


def test_to_act_on_all_takes_all() -> None:
    found = bulk("retry", filter={}, spreadMs=60_000)

    assert found.command == "monque jobs retry --spread 60000ms --all"
    assert "retry_jobs(JobFilter(), spread=timedelta(milliseconds=60000))" in str(found.python)


def test_actions_on_ids_name_them() -> None:
    assert bulk("prioritize", ids=[ID], priority=3).command == f"monque jobs priority 3 {ID}"


def test_queues() -> None:
    assert ways("/queues").command == "monque stats"
    assert ways("/queue?name=a%27b%2Fc%3F").python == 'counts = await monque.queue_stats(name="a\'b/c?")'
    assert ways("/queue/resume", "POST", {"name": None}).command == "monque resume --all"


def test_an_edit_of_a_schedule_says_only_what_changes() -> None:
    body = {"cron": "0 8 * * *", "payload": {"to": "it's"}, "note": "early"}
    found = ways(f"/schedules/{ID}", "PUT", body, name="report", key="a b")
    assert found.command == (
        "monque schedules edit --unique-key 'a b' --cron '0 8 * * *' --data '{\"to\": \"it'\"'\"'s\"}' report"
    )
    assert found.python == (
        "await monque.edit_schedule('report', 'a b', cron='0 8 * * *', data={'to': \"it's\"})"
    )
    zone = ways(f"/schedules/{ID}", "PUT", {"timezone": "Asia/Tokyo"}, name="report", key="report")
    assert zone.command == "monque schedules edit --timezone Asia/Tokyo report"
    assert "-X PUT" in zone.curl

    typed = ways(f"/schedules/{ID}", "PUT", {"payload": {"at": [{"$date": AS_OF}]}}, name="report")
    assert (typed.command, typed.python) == (None, None)
    assert ways(f"/schedules/{ID}", "PUT", {}, name="report").command is None


def test_an_action_of_the_trail_is_named_as_the_command_takes_it() -> None:
    found = ways("/audit?action=retry%20many&actor=ada")
    assert found.command == "monque audit --actor ada --action retryBulk"
    assert found.python == "page = await monque.audit(actor='ada', action='retryBulk')"


def test_schedules_are_found_by_name_and_key() -> None:
    assert ways(f"/schedules/{ID}", name="report", key="report").command == "monque schedules show report"
    found = ways(f"/schedules/{ID}/run-now", "POST", {}, name="report", key="a b")
    assert found.command == "monque schedules trigger --unique-key 'a b' report"
    assert found.python == "await monque.trigger_schedule('report', 'a b')"
    deleted = ways(f"/schedules/{ID}", "DELETE", name="report", key=None)
    assert deleted.command == "monque schedules remove report"


def test_numbers_ask_for_their_window() -> None:
    found = ways("/latency?window=6h&name=x")

    assert found.command == "monque trends --name x --since 6h"
    assert "monque.trends(name='x', since=datetime.now(UTC) - timedelta(hours=6))" in str(found.python)
    assert ways("/latency?window=__import__").python is None


def test_the_trail_with_its_filters() -> None:
    found = ways("/audit?limit=50&actor=ada&action=retry")

    assert found.command == "monque audit --actor ada --action retry"
    assert found.python == "page = await monque.audit(actor='ada', action='retry')"


def test_what_has_no_words_has_curl_alone() -> None:
    found = ways("/failures?window=1h")

    assert (found.command, found.python) == (None, None)
    assert found.curl.endswith("'https://ops.example.org/monque/api/ops/v1/failures?window=1h'")
