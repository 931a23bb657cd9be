"""`/api/ops/v1` on a real server. Each answer is checked against the OpenAPI document by the client."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from bson import ObjectId

from monque import Monque, Trends
from monque._views.text import iso
from monque.web import Action, Actor, Limits, dashboard
from support.aliases import Collection, Make
from support.clocks import ago
from support.examples import TIME, routes, send
from support.jobs import claimed, document
from support.options import QUICK
from support.register import in_the_register
from support.waiting import eventually
from support.web import Client, Connect

OPS = "/api/ops/v1"
ODD_NAMES = ["a/b.c%d", 'quo"te', "größe#1?x=y&z", "%2F", "..", "x" * 255]


@pytest.fixture
async def full(make_monque: Make) -> Monque:
    """An open instance with trends and register, and with the index of failures."""
    options = replace(QUICK, trends=Trends(), register=True)
    monque = await make_monque(options=options, companions=True).open()
    await monque.begin_use("failures")
    return monque


async def store(collection: Collection, **fields: Any) -> str:
    job = document(**fields)
    await collection.insert_one(job)
    return str(job["_id"])


async def answer_of(client: Client, path: str, expected: int = 200, **query: Any) -> Any:
    answer = await client.get(f"{OPS}{path}", params=query or None)
    assert answer.status_code == expected, answer.text
    return answer.json()


async def do(client: Client, path: str, expected: int = 200, **body: Any) -> Any:
    answer = await client.post(f"{OPS}{path}", json=body)
    assert answer.status_code == expected, answer.text
    return answer.json()


async def test_every_read_answers(full: Monque, connect: Connect, collection: Collection) -> None:
    api = connect(dashboard(full))
    failed = await store(collection, status="failed", failReason="ValueError: no 7", updatedAt=ago(seconds=1))
    schedule = await full.schedule("0 9 * * *", "report", None, timezone="Europe/Berlin")
    await collection.insert_one(claimed("web-1", claimedAt=ago(seconds=5), batch="import-42"))
    await collection.database[f"{collection.name}_instances"].insert_one(in_the_register("web-1", "work"))
    [group] = (await answer_of(api, "/failures"))["groups"]
    for route in routes(writing=False):
        if route.method != "GET" or not route.path.startswith(OPS):
            continue
        target = str(schedule.id) if "/schedules/" in route.path else failed
        if route.part == "fingerprint":
            await answer_of(api, f"/failures/{group['fingerprint']}")
            continue
        answer = await send(api, route, target)
        assert answer.status_code == 200, f"{route.operation}: {answer.text}"
        if route.media_type != "application/json":
            continue
        assert answer.json()["serverTime"].endswith("Z"), route.operation


async def test_failures_of_a_range(full: Monque, connect: Connect, collection: Collection) -> None:
    api = connect(dashboard(full))
    register = collection.database[f"{collection.name}_instances"]
    await register.insert_one(in_the_register("web-1", "work", release="4f2a", startedAt=ago(hours=3)))
    for hours in (1, 2, 5):
        await store(collection, status="failed", failReason="ValueError: no 7", updatedAt=ago(hours=hours))
    between = {"from": iso(ago(hours=6)), "to": iso(ago(hours=4))}

    [then] = (await answer_of(api, "/failures", **between))["groups"]
    [now] = (await answer_of(api, "/failures", **{"from": iso(ago(hours=3, minutes=-30))}))["groups"]

    assert (then["count"], then["isNew"], now["count"]) == (1, False, 2)
    assert (now["isNew"], now["newSince"]) == (True, "4f2a")
    await answer_of(api, "/failures", 400, **{"from": between["to"], "to": between["from"]})


async def test_latency_of_a_range(full: Monque, connect: Connect) -> None:
    api = connect(dashboard(full))
    between = {"from": "2026-01-01T10:00:00.000Z", "to": "2026-01-01T10:10:00.000Z"}

    found = await answer_of(api, "/latency", **between)

    assert (found["from"], found["to"]) == (between["from"], between["to"])
    await answer_of(api, "/latency", 400, **{"from": between["to"], "to": between["from"]})


async def test_the_trail_tells_its_actors_and_actions_and_what_changed(
    full: Monque, connect: Connect
) -> None:
    api = connect(dashboard(full))
    await full.schedule("0 7 * * *", "report")
    before = await full.get_schedule("report")
    await do(api, "/queue/pause", name="work")
    await full.schedule("0 6 * * *", "report")
    after = await full.get_schedule("report")
    await full.record_action(
        actor="grace", via="cli", action="schedule-edit", outcome="done", before=before, after=after
    )

    choices = await answer_of(api, "/audit/choices")
    assert "grace" in choices["actors"]
    assert {"words": "delete", "actions": ["delete", "deleteBulk"]} in choices["actions"]
    found = await answer_of(api, "/audit", action=["schedule-edit", "deleteBulk"], to="2100-01-01T00:00:00Z")
    [entry] = found["entries"]
    assert {"field": "cron", "before": "0 7 * * *", "after": "0 6 * * *"} in entry["changes"]
    assert "state" not in {each["field"] for each in entry["changes"]}
    assert (await answer_of(api, "/audit", to="2000-01-01T00:00:00Z"))["entries"] == []


async def test_the_trail_is_exported_as_json_lines(full: Monque, connect: Connect) -> None:
    board = dashboard(full, limits=Limits(page=2))
    api = connect(board)
    for _ in range(5):
        await do(api, "/queue/pause", name="work")
        await do(api, "/queue/resume", name="work")

    answer = await api.get(f"{OPS}/audit/export", params={"action": "pause"})

    assert answer.headers["content-disposition"] == 'attachment; filename="audit.jsonl"'
    assert [json.loads(line)["action"] for line in answer.text.splitlines()] == ["pause"] * 5


async def test_the_next_day_of_schedules_as_lanes(full: Monque, connect: Connect) -> None:
    api = connect(dashboard(full))
    schedule = await full.schedule("0 * * * *", "report")

    lane = (await answer_of(api, "/schedules/lanes"))["lanes"][str(schedule.id)]

    assert len(lane) == 24
    assert lane[0]["from"] == lane[0]["to"]
    assert lane[0]["runs"] == 1


async def test_silent_instances_are_a_problem_with_what_they_ran_last(
    full: Monque, connect: Connect, collection: Collection
) -> None:
    api = connect(dashboard(full))
    register = collection.database[f"{collection.name}_instances"]
    await register.insert_one(in_the_register("web-1", "work", seenAt=ago(minutes=9), busy=3))

    [found] = (await answer_of(api, "/overview"))["problems"]

    assert (found["cause"], found["href"]) == ("silent", "instances?state=silent")
    assert found["message"] == "box:1 is silent; last known: 3 runs"


async def test_who_asks_what_they_may_and_what_there_is(monque: Monque, connect: Connect) -> None:
    ada = Actor("ada", may={Action.READ, Action.RETRY}, details={"team": "shop"})
    board = dashboard(
        monque, auth=lambda _: ada, title="Shop", badge="production", links={"wiki": "https://wiki.example"}
    )
    me = await answer_of(connect(board), "/me")
    assert me["actor"] == {"name": "ada", "details": {"team": "shop"}}
    assert set(me["actions"]) == {"read", "retry"}
    assert (me["title"], me["badge"], me["links"]) == ("Shop", "production", {"wiki": "https://wiki.example"})
    assert me["readOnly"] is False
    assert {"trends", "register", "listingIndexes"} <= set(me["offers"])


@pytest.mark.parametrize("name", ODD_NAMES)
async def test_names_may_hold_anything(api: Client, collection: Collection, name: str) -> None:
    job = await store(collection, name=name)
    assert [each["id"] for each in (await answer_of(api, "/jobs", name=name))["jobs"]] == [job]
    assert (await answer_of(api, "/queue", name=name))["name"] == name
    assert (await do(api, "/queue/pause", name=name, note="why not"))["name"] == name
    assert (await do(api, "/queue/resume", name=name))["resumed"] is True
    done = await do(api, "/bulk", action="cancel", filter={"name": name}, asOf=TIME)
    assert done["count"] == 1


async def test_each_action_on_one_job_answers_the_job_as_it_is_then(
    api: Client, collection: Collection
) -> None:
    job = await store(collection, nextRunAt=ago(seconds=-3600))
    assert (await do(api, f"/jobs/{job}/reschedule", nextRunAt=TIME))["nextRunAt"] == TIME
    assert (await do(api, f"/jobs/{job}/run-now", note="now"))["display"] == "due"
    assert (await do(api, f"/jobs/{job}/priority", priority=9))["priority"] == 9
    assert (await do(api, f"/jobs/{job}/cancel"))["status"] == "cancelled"
    assert (await api.post(f"{OPS}/jobs/{job}/retry")).json()["status"] == "pending"
    answer = await api.delete(f"{OPS}/jobs/{job}")
    assert (answer.status_code, answer.json()["deleted"]) == (200, True)
    await do(api, f"/jobs/{job}/retry", 404)

    running = claimed("web-1")
    await collection.insert_one(running)
    assert (await do(api, f"/jobs/{running['_id']}/stop", note="too long"))["display"] == "stopping"
    problem = await do(api, f"/jobs/{running['_id']}/cancel", 409)
    assert problem["type"] == "urn:monque:problem:conflict"


async def test_a_taken_key_is_a_conflict_of_its_own(api: Client, collection: Collection) -> None:
    await store(collection, uniqueKey="k")
    failed = await store(collection, uniqueKey="k", status="failed")
    problem = await do(api, f"/jobs/{failed}/retry", 409)
    assert problem["type"] == "urn:monque:problem:key-taken"


async def test_a_job_that_changed_since_it_was_seen_is_left_alone(
    api: Client, collection: Collection
) -> None:
    job = await store(collection)
    seen = (await api.get(f"{OPS}/jobs/{job}")).headers["etag"]
    fine = await api.post(f"{OPS}/jobs/{job}/cancel", headers={"if-match": seen})
    assert fine.status_code == 200
    for path in ("retry", "cancel", "run-now"):
        refused = await api.post(f"{OPS}/jobs/{job}/{path}", headers={"if-match": seen})
        assert (refused.status_code, refused.json()["type"]) == (412, "urn:monque:problem:changed")
    assert (await api.delete(f"{OPS}/jobs/{job}", headers={"if-match": seen})).status_code == 412
    assert (await api.delete(f"{OPS}/jobs/{job}", headers={"if-match": "*"})).status_code == 200


async def test_a_heartbeat_is_no_change(api: Client, collection: Collection) -> None:
    job = claimed("web-1")
    await collection.insert_one(job)
    seen = (await api.get(f"{OPS}/jobs/{job['_id']}")).headers["etag"]
    await collection.update_one({}, {"$currentDate": {"lastHeartbeat": True, "updatedAt": True}})
    fine = await api.post(f"{OPS}/jobs/{job['_id']}/stop", headers={"if-match": seen})
    assert fine.status_code == 200, fine.text


@pytest.mark.parametrize("path", ["/jobs/{id}", "/overview", "/trends", "/schedules", "/instances"])
async def test_what_is_as_it_was_is_not_sent_again(
    full: Monque, connect: Connect, collection: Collection, path: str
) -> None:
    api = connect(dashboard(full))
    url = OPS + path.format(id=await store(collection, status="completed"))
    query = (
        {"from": "2026-01-01T00:00:00.000Z", "to": "2026-01-01T01:00:00.000Z"} if path == "/trends" else None
    )
    first = await api.get(url, params=query)
    tag = first.headers["etag"]
    assert tag.startswith('W/"')
    assert first.headers["cache-control"] == "private, no-cache"
    for known in (tag, f'"x", {tag}', "*"):
        again = await api.get(url, params=query, headers={"if-none-match": known})
        assert (again.status_code, again.content, again.headers["etag"]) == (304, b"", tag)
    assert (await api.get(url, params=query, headers={"if-none-match": 'W/"other"'})).status_code == 200
    await store(collection, name="another", status="failed")
    await collection.update_many({}, {"$set": {"failCount": 7}})
    if path == "/jobs/{id}":
        assert (await api.get(url, headers={"if-none-match": tag})).status_code == 200


async def test_a_payload_is_downloaded_under_a_fixed_name(api: Client, collection: Collection) -> None:
    job = await store(collection, name='x"\r\nset-cookie: a=b', data={"a": 1, "password": "p"})
    answer = await api.get(f"{OPS}/jobs/{job}/payload")
    assert answer.headers["content-disposition"] == 'attachment; filename="payload.json"'
    assert answer.headers["content-type"] == "application/json"
    assert answer.json()["payload"] == {"a": 1, "password": "•••"}
    assert "set-cookie" not in answer.headers


@pytest.mark.parametrize("body", ["[]", "7", "null", "true"])
async def test_a_body_that_is_no_object_is_told_in_plain_words(api: Client, body: str) -> None:
    answer = await api.post(f"{OPS}/queue/resume", content=body, headers={"content-type": "application/json"})

    assert (answer.status_code, answer.json()["detail"]) == (400, "body: it must be an object.")


async def test_unknown_fields_are_named(api: Client, collection: Collection) -> None:
    problem = await answer_of(api, "/jobs", 400, nmae="x", limt=3)
    assert {error["where"] for error in problem["errors"]} == {"query.nmae", "query.limt"}
    assert "nmae" in problem["detail"]
    job = await store(collection)
    problem = await do(api, f"/jobs/{job}/cancel", 400, noote="x")
    assert [error["where"] for error in problem["errors"]] == ["body.noote"]
    assert "noote" in (await answer_of(api, "/me", 400, noote=1))["detail"]


@pytest.mark.parametrize(
    ("path", "query"),
    [
        ("/jobs", {"limit": "0"}),
        ("/jobs", {"limit": "many"}),
        ("/jobs", {"status": "odd"}),
        ("/jobs", {"name": ""}),
        ("/jobs", {"cursor": "x" * 4_097}),
        ("/jobs", {"cursor": "nonsense"}),
        ("/jobs", {"id": ["0" * 24] * 101}),
        ("/jobs", {"id": "nonsense"}),
        ("/jobs", {"createdAtFrom": "2026-01-01"}),
        ("/jobs", {"createdAtFrom": "2026-01-01T00:00:00+01:00"}),
        ("/jobs", {"failed": "nonsense"}),
        ("/jobs", {"due": "soon"}),
        ("/jobs", {"sort": "name"}),
        ("/jobs", {"payload.a": "1"}),
        ("/jobs", {"name": "work", "payload.$where": "1"}),
        ("/jobs", {"name": "work", "payload.a": '{"$gt": 1}'}),
        ("/jobs", {"name": "work", "payload.a": "x"}),
        ("/jobs", {"name": "work", "payload.a": "1", "payload.b": "1", "payload.c": "1", "payload.d": "1"}),
        ("/jobs", {"name": "work", "payload": "1"}),
        ("/overview", {"window": "1y"}),
        ("/trends", {"step": "1"}),
        ("/trends", {"from": "yesterday"}),
        ("/queue", {}),
        ("/instance", {}),
        ("/search", {"q": ""}),
        ("/audit", {"cursor": "nonsense"}),
        ("/failures", {"window": "forever"}),
    ],
)
async def test_wrong_queries_are_400_and_say_where(api: Client, path: str, query: Any) -> None:
    problem = await answer_of(api, path, 400, **query)
    assert problem["type"] == "urn:monque:problem:bad-request"
    assert problem["detail"]


@pytest.mark.parametrize(
    "path",
    ["/jobs/{}", "/jobs/{}/payload", "/jobs/{}/attempts", "/jobs/{}/explanation", "/schedules/{}"],
)
async def test_what_is_not_there_is_404(api: Client, path: str) -> None:
    problem = await answer_of(api, path.format(ObjectId()), 404)
    assert problem["type"] == "urn:monque:problem:not-found"
    assert (await answer_of(api, "/failures/0123456789ab", 404))["status"] == 404
    assert (await answer_of(api, "/instance", 404, id="nobody"))["status"] == 404


async def test_a_bulk_filter_takes_values_of_payloads_as_a_query_does(
    api: Client, collection: Collection
) -> None:
    large = 2**60 + 1
    await collection.insert_many([document(data={"n": large + more}) for more in (-1, 0, 1)])

    for values in ({"payload.n": str(large)}, {"payload": {"n": large}}):
        found = await do(api, "/bulk/preview", action="cancel", filter={"name": "work", **values})
        assert found["count"] == 1


async def test_many_jobs_are_changed_in_pieces_as_of_the_preview(api: Client, collection: Collection) -> None:
    await collection.insert_many([document(status="failed", updatedAt=ago(seconds=9)) for _ in range(25)])
    preview = await do(api, "/bulk/preview", action="retry", filter={"status": ["failed"]})
    assert (preview["count"], preview["willChange"], preview["byStatus"]) == (25, 25, {"failed": 25})
    late = await store(collection, status="failed", updatedAt=ago(seconds=-60))

    after, counts = None, []
    while True:
        body = {"action": "retry", "filter": {"status": ["failed"]}, "asOf": preview["asOf"], "limit": 10}
        piece = await do(api, "/bulk", **body, **({} if after is None else {"after": after}))
        counts.append(piece["count"])
        after = piece["next"]
        if after is None:
            break
    assert sum(counts) == 25
    assert [str(each["_id"]) async for each in collection.find({"status": "failed"})] == [late]


@pytest.mark.parametrize(
    "body",
    [
        {"action": "retry"},
        {"action": "retry", "filter": {}, "ids": []},
        {"action": "explode", "filter": {}},
        {"action": "retry", "ids": ["0" * 24] * 101},
        {"action": "retry", "filter": {"$where": "1"}},
        {"action": "retry", "filter": {"name": {"$ne": ""}}},
        {"action": "retry", "filter": {"name": ""}},
        {"action": "retry", "filter": {"payload.a": {"$gt": 1}, "name": "work"}},
        {"action": "retry", "filter": {}, "limit": 5_001},
        {"action": "retry", "filter": {}, "priority": 3},
        {"action": "delete", "filter": {}, "spreadMs": 5},
    ],
)
async def test_wrong_bulk_actions_change_nothing(api: Client, collection: Collection, body: Any) -> None:
    await store(collection, status="failed")
    await do(api, "/bulk", 400, **{"asOf": TIME, **body})
    assert await collection.count_documents({"status": "failed"}) == 1


async def test_a_canary_is_retried_and_then_the_rest(
    monque: Monque, api: Client, collection: Collection
) -> None:
    await monque.begin_use("failures")
    for number in range(3):
        await store(
            collection,
            status="failed",
            failReason=f"ValueError: no {number}",
            updatedAt=ago(seconds=number + 1),
        )
    [group] = (await answer_of(api, "/failures", window="1h"))["groups"]
    assert (group["count"], group["type"]) == (3, "ValueError")
    path = f"/failures/{group['fingerprint']}"
    assert (await answer_of(api, path))["count"] == 3
    listed = await answer_of(api, "/jobs", failed=group["fingerprint"])
    assert len(listed["jobs"]) == 3
    canary = await do(api, f"{path}/canary")
    assert (canary["status"], canary["others"]) == ("pending", 2)
    rest = await do(api, f"{path}/bulk", action="retry", asOf=TIME, spreadMs=1000)
    assert rest["count"] == 2


async def test_schedules_are_looked_at_run_paused_and_ended(
    monque: Monque, api: Client, collection: Collection
) -> None:
    schedule = await monque.schedule("30 2 * * *", "report", {"a": 1}, timezone="Europe/Berlin")
    path = f"/schedules/{schedule.id}"
    [listed] = (await answer_of(api, "/schedules"))["schedules"]
    assert (listed["cron"], listed["timezone"], len(listed["nextRuns"])) == ("30 2 * * *", "Europe/Berlin", 5)
    whole = await answer_of(api, path)
    assert {edge["kind"] for edge in whole["edges"]} == {"skipped", "repeated"}
    assert (await do(api, f"{path}/pause"))["state"] == "paused"
    await do(api, f"{path}/resume")
    assert (await do(api, f"{path}/run-now"))["name"] == "report"
    assert (await api.put(f"{OPS}{path}", json={"cron": "0 5 * * *"})).status_code == 403
    assert (await api.delete(f"{OPS}{path}")).json()["deleted"] is True
    await answer_of(api, path, 404)


async def test_with_allow_enqueue_jobs_are_stored_and_schedules_edited(
    monque: Monque, connect: Connect, collection: Collection
) -> None:
    client = connect(dashboard(monque, allow_enqueue=True))
    stored = await do(client, "/jobs", name="a/b", payload={"n": 1}, uniqueKey="k")
    assert stored["created"] is True
    again = await do(client, "/jobs", name="a/b", payload={"n": 1}, uniqueKey="k")
    assert (again["created"], again["id"]) == (False, stored["id"])
    large = await client.post(f"{OPS}/jobs", json={"name": "large", "payload": "x" * 500_000})
    assert large.status_code == 200
    too_large = await client.post(f"{OPS}/jobs", json={"name": "large", "payload": "x" * 1_100_000})
    assert too_large.status_code == 413
    schedule = await monque.schedule("0 9 * * *", "report", {"a": 1})
    edited = await client.put(
        f"{OPS}/schedules/{schedule.id}", json={"cron": "0 10 * * *", "timezone": "UTC", "payload": {"a": 2}}
    )
    assert edited.status_code == 200, edited.text
    assert (edited.json()["cron"], edited.json()["payload"]) == ("0 10 * * *", {"a": 2})


async def test_an_ended_job_is_enqueued_again_with_its_payload_as_it_is_stored(
    monque: Monque, connect: Connect, collection: Collection
) -> None:
    client = connect(dashboard(monque, allow_enqueue=True))
    job = await monque.enqueue("charge", {"card": "4111", "n": 7})
    refused = await do(client, f"/jobs/{job.id}/enqueue-again", 409)
    assert "ended" in refused["detail"]
    (tried,) = (await answer_of(client, f"/audit?job={job.id}"))["entries"]
    assert (tried["action"], tried["outcome"], tried["name"]) == ("enqueue", "failed", "charge")
    await collection.update_one(
        {"_id": job.id}, {"$set": {"status": "completed"}, "$unset": {"nextRunAt": 1}}
    )

    again = await do(client, f"/jobs/{job.id}/enqueue-again", note="lost mail")

    assert (again["created"], again["name"], again["display"]) == (True, "charge", "due")
    assert again["payload"] == {"card": "•••", "n": 7}
    stored = await collection.find_one({"status": "pending"})
    assert stored is not None
    assert stored["data"] == {"card": "4111", "n": 7}
    (entry,) = (await answer_of(client, f"/audit?job={again['id']}"))["entries"]
    assert (entry["action"], entry["note"]) == ("enqueue", "lost mail")


async def test_requests_are_written_in_other_languages(api: Client) -> None:
    asked = {"root": "http://x/", "requests": [{"path": "/jobs?status=failed"}, {"path": "/failures"}]}

    found = (await do(api, "/copy-as", **asked))["ways"]

    assert [each.get("command", "").split(" --limit")[0] for each in found] == [
        "monque jobs list --status failed",
        "",
    ]
    assert found[1] == {"curl": 'curl -H "Authorization: Bearer $MONQUE_TOKEN" http://x/api/ops/v1/failures'}


async def test_without_allow_enqueue_nothing_is_stored(api: Client, collection: Collection) -> None:
    problem = await do(api, "/jobs", 403, name="work", payload=None)
    assert "allow_enqueue" in problem["detail"]
    assert await collection.count_documents({}) == 0


@pytest.mark.parametrize(
    ("cron", "timezone", "status"),
    [
        ("30 2 * * *", "Europe/Berlin", 200),
        ("* * * * * *", "UTC", None),
        ("not cron", "UTC", 400),
        ("0 0 30 2 *", "UTC", None),
        ("0 9 * * *", "Mars/Phobos", 400),
        ("0 9 * * *", "../../etc/passwd", 400),
        ("*/0 * * * *", "UTC", 400),
        (",".join(["*"] * 90) + " * * * *", "UTC", None),
        ("0-59/1,0-59/1 * * * *" + " " * 100, "UTC", None),
        ("9" * 199, "UTC", 400),
        ("x" * 500, "UTC", 400),
        ("\x00 * * * *", "UTC", 400),
    ],
)
async def test_any_cron_can_be_tried(api: Client, cron: str, timezone: str, status: int | None) -> None:
    answer = await api.post(f"{OPS}/schedules/preview", json={"cron": cron, "timezone": timezone})
    assert answer.status_code in ((200, 400) if status is None else (status,)), answer.text
    if answer.status_code == 200:
        assert len(answer.json()["nextRuns"]) <= 20


async def test_the_trail_tells_who_did_what(api: Client, collection: Collection) -> None:
    job = await store(collection)
    await do(api, f"/jobs/{job}/cancel", note="not needed")

    async def check() -> None:
        [entry] = (await answer_of(api, "/audit", job=job))["entries"]
        assert (entry["actor"], entry["via"], entry["action"], entry["outcome"]) == (
            "local",
            "web",
            "cancel",
            "done",
        )
        assert (entry["note"], entry["address"], entry["jobId"]) == ("not needed", "127.0.0.1", job)
        assert len(entry["requestId"]) == 32

    await eventually(check)
    assert (await answer_of(api, "/audit", actor="nobody"))["entries"] == []


async def test_pages_lead_both_ways(api: Client, collection: Collection) -> None:
    ids = [await store(collection) for _ in range(5)]
    first = await answer_of(api, "/jobs", limit=2)
    assert [job["id"] for job in first["jobs"]] == ids[:2:-1]
    assert (first["hasNext"], first["hasPrevious"]) == (True, False)
    second = await answer_of(api, "/jobs", limit=2, cursor=first["nextCursor"])
    assert [job["id"] for job in second["jobs"]] == ids[2:0:-1]
    back = await answer_of(api, "/jobs", limit=2, cursor=second["previousCursor"], direction="backward")
    assert [job["id"] for job in back["jobs"]] == ids[:2:-1]
    assert (await answer_of(api, "/jobs/count"))["count"] == 5


async def test_equal_questions_at_once_are_one_query(
    monque: Monque, api: Client, collection: Collection, monkeypatch: pytest.MonkeyPatch
) -> None:
    await store(collection)
    asked, list_jobs = [], monque.list_jobs

    async def counted(*args: Any, **more: Any) -> Any:
        asked.append(1)
        await asyncio.sleep(0)
        return await list_jobs(*args, **more)

    monkeypatch.setattr(monque, "list_jobs", counted)
    answers = await asyncio.gather(*(answer_of(api, "/jobs") for _ in range(10)))
    assert len(asked) == 1
    assert all(answer["jobs"] == answers[0]["jobs"] for answer in answers)


async def test_ones_own_action_is_seen_at_once(api: Client, collection: Collection) -> None:
    job = await store(collection, nextRunAt=ago(seconds=-3600))
    await answer_of(api, "/jobs")
    await do(api, f"/jobs/{job}/cancel")
    assert [each["status"] for each in (await answer_of(api, "/jobs"))["jobs"]] == ["cancelled"]


async def test_too_many_questions_at_once_are_503_with_a_time_to_wait(
    monque: Monque, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    never = asyncio.Event()

    async def stuck(*_: Any, **__: Any) -> None:
        await never.wait()

    monkeypatch.setattr(monque, "list_jobs", stuck)
    board = dashboard(monque, limits=Limits(queries_at_once=1))
    client = connect(board)
    blocked = asyncio.create_task(client.get(f"{OPS}/jobs"))
    await asyncio.sleep(0.05)
    answer = await client.get(f"{OPS}/jobs", params={"name": "other"})
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "2")
    assert answer.json()["type"] == "urn:monque:problem:too-busy"
    never.set()
    await asyncio.wait([blocked], timeout=timedelta(seconds=5).total_seconds())
