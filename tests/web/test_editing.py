"""Editing jobs, running them again with changes, and new schedules over HTTP: rights, conditions, secrets."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from monque import Monque
from monque.web import Action, Actor, Redaction, dashboard
from support.aliases import Collection
from support.clocks import ago
from support.jobs import document
from support.web import Client, Connect

OPS = "/api/ops/v1"
TIME = "2031-01-01T00:00:00.000Z"


@pytest.fixture
def editor(monque: Monque, connect: Connect) -> Client:
    return connect(dashboard(monque, allow_enqueue=True))


async def do(client: Client, path: str, expected: int = 200, **body: Any) -> Any:
    answer = await client.post(f"{OPS}{path}", json=body)
    assert answer.status_code == expected, answer.text
    return answer.json()


async def shown(client: Client, job_id: object) -> Any:
    return (await client.get(f"{OPS}/jobs/{job_id}")).json()


async def test_a_waiting_job_is_edited_if_it_is_as_it_was_shown(monque: Monque, editor: Client) -> None:
    job = await monque.enqueue("charge", {"amount": {"$numberLong": "7"}, "n": 1}, delay=timedelta(hours=1))
    seen = await shown(editor, job.id)

    after = await do(
        editor,
        f"/jobs/{job.id}/edit",
        updatedAt=seen["updatedAt"],
        payload={"at": {"$date": TIME}, "n": 2},
        priority=4,
        runAt=TIME,
        note="wrong amount",
    )

    assert (after["payload"], after["priority"], after["nextRunAt"]) == (
        {"at": {"$date": TIME}, "n": 2},
        4,
        TIME,
    )
    refused = await do(editor, f"/jobs/{job.id}/edit", 412, updatedAt=seen["updatedAt"], payload={"n": 3})
    assert refused["type"] == "urn:monque:problem:changed"
    assert (await shown(editor, job.id))["payload"] == after["payload"]
    failed, done = (await editor.get(f"{OPS}/audit", params={"job": str(job.id)})).json()["entries"]
    assert (failed["outcome"], done["outcome"], done["action"], done["note"]) == (
        "failed",
        "done",
        "edit",
        "wrong amount",
    )
    assert done["after"] == {"run_at": TIME, "priority": 4, "payload": "changed"}
    await do(editor, f"/jobs/{job.id}/edit", 400, updatedAt=after["updatedAt"])
    await do(editor, f"/jobs/{job.id}/edit", 400, priority=1)


async def test_an_edit_needs_the_rights_to_what_it_changes(monque: Monque, connect: Connect) -> None:
    job = await monque.enqueue("charge", {"n": 1}, delay=timedelta(hours=1))
    of_payload = {Action.READ, Action.RESCHEDULE, Action.ENQUEUE, Action.PAYLOAD}
    cases: list[tuple[set[Action], dict[str, Any], int]] = [
        ({Action.READ}, {"runAt": TIME}, 403),
        ({Action.READ, Action.RESCHEDULE}, {"runAt": TIME}, 200),
        ({Action.READ, Action.RESCHEDULE}, {"priority": 3}, 403),
        ({Action.READ, Action.RESCHEDULE, Action.PRIORITIZE}, {"priority": 3}, 200),
        (of_payload - {Action.PAYLOAD}, {"payload": {"n": 2}}, 403),
        (of_payload - {Action.ENQUEUE}, {"payload": {"n": 2}}, 403),
        (of_payload, {"payload": {"n": 2}}, 200),
    ]
    for may, body, expected in cases:
        app = dashboard(monque, allow_enqueue=True, auth=lambda _, may=may: Actor(name="ada", may=may))  # type: ignore[misc]
        seen = (await monque.get_job(job.id)) or job
        updated_at = seen.updated_at.isoformat(timespec="milliseconds").replace("+00:00", "Z")
        await do(connect(app), f"/jobs/{job.id}/edit", expected, updatedAt=updated_at, **body)
    closed = connect(dashboard(monque))
    seen = await shown(closed, job.id)
    await do(closed, f"/jobs/{job.id}/edit", 403, updatedAt=seen["updatedAt"], payload={"n": 3})


async def test_a_job_runs_again_with_changes_however_it_has_ended(
    editor: Client, collection: Collection
) -> None:
    for status in ("completed", "failed", "cancelled"):
        job = document(status=status, name="charge", data={"n": 1})
        await collection.insert_one(job)
        body = {"payload": {"n": 2}, "runAt": TIME, "priority": 3}

        again = await do(editor, f"/jobs/{job['_id']}/enqueue-again", **body)

        assert (again["payload"], again["nextRunAt"], again["priority"]) == ({"n": 2}, TIME, 3)
        assert await collection.find_one({"_id": job["_id"]}) == job


async def test_a_hidden_value_is_neither_stored_as_it_is_shown_nor_lost(
    monque: Monque, connect: Connect, collection: Collection
) -> None:
    """Whoever changes the rest of a payload must not send the secret in it to another place."""

    def without_iban(_job: Any, data: Any, _actor: Actor) -> Any:
        return {key: value for key, value in data.items() if key != "iban"}

    data = {"to": "ada", "pages": [{"token": "4111"}], "iban": "DE1", "url": "https://ada:pw@example.org/"}
    job = document(status="completed", name="pay-out", data=data)
    await collection.insert_one(job)
    app = dashboard(monque, allow_enqueue=True, redact=Redaction(by_name={"pay-out": without_iban}))
    client, path = connect(app), f"/jobs/{job['_id']}/enqueue-again"
    seen = (await shown(client, job["_id"]))["payload"]

    refused = await do(client, path, 400, payload={**seen, "to": "eve"})

    hidden = {each["where"] for each in refused["errors"]}
    assert hidden == {"payload.pages.0.token", "payload.iban", "payload.url"}
    assert await collection.count_documents({}) == 1
    whole = {"to": "eve", "pages": [{"token": "4242"}], "iban": "DE2", "url": "https://other.example.org/"}
    await do(client, path, payload=whole)
    stored = await collection.find_one({"status": "pending"})
    assert stored is not None
    assert stored["data"] == whole


async def test_a_schedule_is_stored_once_and_audited(monque: Monque, editor: Client) -> None:
    stored = await do(
        editor, "/schedules", name="report", cron="0 9 * * *", timezone="Asia/Tokyo", payload=[1]
    )
    every = await do(editor, "/schedules", name="poll", everyMs=30_000, uniqueKey="a", paused=True)

    assert (stored["cron"], stored["timezone"], stored["payload"]) == ("0 9 * * *", "Asia/Tokyo", [1])
    assert (every["everyMs"], every["key"], every["state"]) == (30_000, "a", "paused")
    taken = await do(editor, "/schedules", 409, name="report", cron="0 10 * * *")
    assert "already" in taken["detail"]
    wrong: list[dict[str, Any]] = [
        {"cron": "0 99 * * *"},
        {"cron": "0 9 * * *", "everyMs": 5000},
        {},
        {"everyMs": 1},
        {"cron": "0 9 * * *", "timezone": "Mars/Base"},
    ]
    for each in wrong:
        await do(editor, "/schedules", 400, name="other", **each)
    assert [each.name for each in await monque.list_schedules()] == ["poll", "report"]
    entries = (await editor.get(f"{OPS}/audit", params={"action": "schedule"})).json()["entries"]
    assert {each["outcome"] for each in entries} == {"done", "failed"}


async def test_the_slowest_jobs_are_one_page_that_says_when_it_is_not_all(
    editor: Client, collection: Collection
) -> None:
    for ran in (1, 5, 3):
        times = {"startedAt": ago(seconds=60), "finishedAt": ago(seconds=60 - ran)}
        await collection.insert_one(document(status="completed", **times))

    found = (await editor.get(f"{OPS}/jobs", params={"sort": "ran", "ranAtLeastMs": "2000"})).json()

    assert [round(job["durationMs"], -3) for job in found["jobs"]] == [5000, 3000]
    assert (found["lookedAt"], found["capped"], found["hasNext"]) == (2, False, False)
    for wrong in ({"order": "asc"}, {"failed": "0123456789ab"}, {"cursor": "x"}):
        refused = await editor.get(f"{OPS}/jobs", params={"sort": "waited", **wrong})
        assert refused.status_code == 400, wrong
