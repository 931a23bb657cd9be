"""The management API: nobody does or learns what they may not. The tables are made from the routes."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any
from urllib.parse import quote

import pytest
from bson import ObjectId

from monque import Monque
from monque.web import Action, Actor, Dashboard, dashboard
from monque.web.access.permissions import Access
from monque.web.route import Need, Route
from support.aliases import Collection
from support.documented import whole
from support.examples import FINGERPRINT, QUERIES, TIME, routes, send
from support.jobs import document
from support.traffic import Traffic
from support.waiting import eventually
from support.web import client_of

SECRET = "hush-4711"
ACTOR = Actor(name="mallory")
NO_JOB = "0" * 24


@pytest.fixture
async def job(collection: Collection) -> dict[str, Any]:
    """A job that has the secret in all that is a payload."""
    made = document(
        name="work",
        status="failed",
        data={"note": SECRET, "uri": f"mongodb://ada:{SECRET}@host"},
        failReason=f"ValueError: {SECRET}",
        uniqueKey=SECRET,
    )
    await collection.insert_one(made)
    return made


def written(traffic: Traffic) -> list[str]:
    """The commands that changed something, except in the audit trail."""
    return [
        name
        for command in traffic.commands
        if (name := next(iter(command))) in {"insert", "update", "delete", "findAndModify", "createIndexes"}
        and not str(command[name]).endswith("_audit")
    ]


async def trail(monque: Monque, outcome: str, count: int) -> None:
    """There must be so many entries with this outcome in the trail, and no others."""

    async def check() -> None:
        page = await monque.audit(limit=100)
        assert [entry.outcome for entry in page.entries] == [outcome] * count
        assert {entry.actor for entry in page.entries} <= {"mallory", "local"}
        assert SECRET not in str(page)

    await eventually(check)


async def try_all(
    board: Dashboard, traffic: Traffic, tried: Sequence[Route], job_id: str, status: int
) -> list[Any]:
    """Send the request of each of these routes; each must be answered with this status."""
    traffic.clear()
    answers = []
    async with client_of(board) as client:
        for route in tried:
            answer = await send(client, route, job_id)
            assert answer.status_code == status, f"{route.operation}: {answer.text}"
            assert SECRET not in answer.text, route.operation
            assert "ValueError" not in answer.text, route.operation
            assert written(traffic) == [], route.operation
            answers.append(answer)
    return answers


WRITING = routes(writing=True)
NEEDING = [route for route in routes(streaming=True) if route.right is not Need.IDENTITY]


async def test_without_identity_nothing_happens_and_nothing_is_told(
    watched: Monque, collection: Collection, job: dict[str, Any], traffic: Traffic
) -> None:
    nobody: Any = lambda connection: None  # noqa: E731 - shorter
    async with dashboard(watched, auth=nobody, allow_enqueue=True) as board:
        await try_all(board, traffic, routes(streaming=True), str(job["_id"]), 401)
    assert traffic.sent.total() == 0
    assert await collection.find().to_list() == [job]


async def test_read_only_lets_no_write_through(
    watched: Monque, collection: Collection, job: dict[str, Any], traffic: Traffic
) -> None:
    async with dashboard(watched, read_only=True, allow_enqueue=True) as board:
        for answer in await try_all(board, traffic, WRITING, str(job["_id"]), 403):
            assert "read-only" in answer.text
    assert await collection.find().to_list() == [job]
    await trail(watched, "refused", len(WRITING))


def lacking(route: Route) -> set[Action]:
    """All rights but the one that a route needs."""
    if isinstance(route.right, Need):
        return {Action.READ, Action.PAYLOAD, Action.AUDIT}
    return set(Action) - {route.right}


@pytest.mark.parametrize("is_there", [True, False], ids=["there", "not there"])
async def test_without_the_one_right_nothing_happens_and_nothing_is_told(
    watched: Monque, collection: Collection, job: dict[str, Any], traffic: Traffic, is_there: bool
) -> None:
    target = str(job["_id"] if is_there else ObjectId())
    for route in NEEDING:
        actor = Actor(name="mallory", may=lacking(route))
        async with dashboard(watched, auth=lambda _, actor=actor: actor, allow_enqueue=True) as board:
            await try_all(board, traffic, [route], target, 403)
    assert await collection.find().to_list() == [job]
    await trail(watched, "refused", len(NEEDING))


async def test_a_hook_that_denies_is_obeyed(
    watched: Monque, collection: Collection, job: dict[str, Any], traffic: Traffic
) -> None:
    async def authorize(access: Access) -> bool:
        assert (access.actor, access.request.method) == (ACTOR, access.request.scope["method"])
        return False

    async with dashboard(watched, auth=lambda _: ACTOR, authorize=authorize, allow_enqueue=True) as board:
        await try_all(board, traffic, NEEDING, str(job["_id"]), 403)
    assert await collection.find().to_list() == [job]
    await trail(watched, "refused", len(NEEDING))


async def test_a_hook_that_denies_one_target_is_obeyed(
    watched: Monque, collection: Collection, job: dict[str, Any], traffic: Traffic
) -> None:
    def authorize(access: Access) -> bool:
        return access.job is None and access.filter is None

    targeted = [route for route in NEEDING if route.operation in TARGETED]
    async with dashboard(watched, auth=lambda _: ACTOR, authorize=authorize) as board:
        await try_all(board, traffic, targeted, str(job["_id"]), 403)
    assert await collection.find().to_list() == [job]
    await trail(watched, "refused", len([route for route in targeted if route.writes]))


# Routes that are about one job or about jobs that a filter names.
TARGETED = {
    *("listJobs", "getJobStats", "getJob", "cancelJob", "retryJob", "rescheduleJob", "deleteJob"),
    *("cancelJobs", "retryJobs", "deleteJobs"),
    *("opsJobs", "opsCount", "opsJob", "opsPayload", "opsAttempts", "opsExplanation"),
    *("opsCancel", "opsRetry", "opsReschedule", "opsRunNow", "opsStop", "opsPriority", "opsDelete"),
    *("opsBulkPreview", "opsBulk"),
}


async def test_a_hook_that_raises_denies_and_its_text_is_told_to_nobody(
    watched: Monque,
    collection: Collection,
    job: dict[str, Any],
    traffic: Traffic,
    caplog: pytest.LogCaptureFixture,
) -> None:
    def authorize(access: Access) -> bool:
        raise LookupError("no such role: treasurer")

    caplog.set_level(logging.CRITICAL, "monque.web")
    async with dashboard(watched, authorize=authorize, allow_enqueue=True) as board:
        for answer in await try_all(board, traffic, NEEDING, str(job["_id"]), 500):
            assert "treasurer" not in answer.text
    assert await collection.find().to_list() == [job]
    await trail(watched, "failed", len(NEEDING))


CROSS_SITE: list[dict[str, str]] = [
    {"sec-fetch-site": "cross-site"},
    {"sec-fetch-site": "same-site"},
    {"sec-fetch-site": "cross-site", "origin": "https://evil.example"},
    {"origin": "https://evil.example"},
    {"origin": "null"},
    {"origin": "null", "sec-fetch-site": "cross-site"},
    {"origin": "http://localhost.evil.example"},
    {"origin": "http://localhost:1"},
    {"x-forwarded-host": "localhost"},
    {"host": "evil.example"},
    {"host": "evil.example", "sec-fetch-site": "same-origin"},
    {"host": "evil.example", "origin": "http://evil.example"},
]


@pytest.mark.parametrize("headers", CROSS_SITE, ids=str)
async def test_pages_of_others_can_do_and_read_nothing(
    watched: Monque, collection: Collection, job: dict[str, Any], traffic: Traffic, headers: dict[str, str]
) -> None:
    traffic.clear()
    async with dashboard(watched, allow_enqueue=True) as board, client_of(board) as client:
        for route in routes(streaming=True):
            answer = await send(client, route, str(job["_id"]), headers=headers)
            assert answer.status_code == 403, route.operation
            assert "access-control-allow-origin" not in answer.headers
            assert SECRET not in answer.text
    assert traffic.sent.total() == 0


@pytest.mark.parametrize(
    "content_type", ["application/x-www-form-urlencoded", "multipart/form-data; boundary=x", "text/plain"]
)
async def test_a_form_can_do_nothing(
    watched: Monque, collection: Collection, job: dict[str, Any], traffic: Traffic, content_type: str
) -> None:
    traffic.clear()
    form: Any = {"content": b"a=b", "headers": {"content-type": content_type}}
    async with dashboard(watched, allow_enqueue=True) as board, client_of(board) as client:
        for route in routes():
            if route.method != "GET":
                path = route.path.replace("{id}", str(job["_id"])).replace("{fingerprint}", FINGERPRINT)
                answer = await client.request(route.method, path, **form)
                assert answer.status_code == 415, route.operation
    assert written(traffic) == []
    assert await collection.find().to_list() == [job]


async def test_credentials_of_uris_leave_for_nobody(watched: Monque, collection: Collection) -> None:
    uri = f"mongodb://ada:{SECRET}@host/db"
    job = document(status="failed", data={"uri": uri, "password": SECRET}, failReason=f"OSError: {uri}")
    await collection.insert_one(job)
    async with dashboard(watched) as board, client_of(board) as client:
        for route in routes(writing=False):
            answer = await send(client, route, str(job["_id"]))
            assert SECRET not in answer.text, route.operation


HOSTILE = [
    "x\r\nset-cookie: a=b",
    "\x00",
    "\u202e\u2066",
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "$where",
    "$ne",
    "{$gt: 1}",
    "a.$[]",
    "__proto__",
    "../../etc/passwd",
    "%00%0d%0a",
    "x" * 3_000,
]


@pytest.mark.parametrize("text", HOSTILE)
async def test_hostile_text_is_data_in_every_query(watched: Monque, traffic: Traffic, text: str) -> None:
    traffic.clear()
    async with dashboard(watched) as board, client_of(board) as client:
        for route in routes(writing=False):
            names = parameters(route)
            for name in names:
                query = {**(QUERIES.get(route.operation) or {}), name: text}
                path = route.path.replace("{id}", NO_JOB).replace("{fingerprint}", FINGERPRINT)
                answer = await client.get(path, params=query)
                assert answer.status_code in (200, 400, 404), f"{route.operation} {name}: {answer.text}"
                assert "set-cookie" not in answer.headers
                assert all(value.isprintable() for value in answer.headers.values())
            if route.part and route.method == "GET":
                answer = await client.get(route.path.replace("{" + route.part + "}", quote(text, safe="")))
                assert answer.status_code in (400, 404), f"{route.operation}: {answer.text}"
    assert written(traffic) == []
    assert '"$where"' not in str(traffic.commands)


def parameters(route: Route) -> list[str]:
    """The names in the query of a route, by the document."""
    operation = whole()["paths"][route.path]["get"] if route.method == "GET" else {}
    names = [each["name"] for each in operation.get("parameters", ()) if each["in"] == "query"]
    return [*names, "payload.a"] if "uniqueKey" in names else names


@pytest.mark.parametrize("key", ["$where", "$expr", "name.$ne", "$or", "status.$in", "__proto__"])
async def test_no_key_of_a_filter_becomes_an_operator(
    watched: Monque, collection: Collection, job: dict[str, Any], key: str
) -> None:
    bulk = {"action": "delete", "asOf": TIME}
    async with dashboard(watched, allow_enqueue=True) as board, client_of(board) as client:
        for path, body in (
            ("/api/v1/jobs/actions/delete", {key: "1"}),
            ("/api/v1/jobs/actions/delete", {"name": {key: "1"}}),
            ("/api/v1/jobs/actions/delete", {"status": {key: "1"}}),
            ("/api/v1/jobs/actions/delete", {"olderThan": {key: "1"}}),
            ("/api/ops/v1/bulk", {**bulk, "filter": {key: "1"}}),
            ("/api/ops/v1/bulk", {**bulk, "filter": {"name": {key: "1"}}}),
            ("/api/ops/v1/bulk", {**bulk, "filter": {"name": "work", f"payload.{key}": 1}}),
            ("/api/ops/v1/bulk", {**bulk, "filter": {"name": "work", "payload": {key: {"$gt": ""}}}}),
            ("/api/ops/v1/bulk", {**bulk, "ids": [{key: "1"}]}),
            ("/api/ops/v1/queue/pause", {"name": {key: "1"}}),
        ):
            answer = await client.post(path, json=body)
            is_plain = f"payload.{key}" in str(body) and "$" not in key
            assert answer.status_code == (200 if is_plain else 400), f"{path} {body}: {answer.text}"
        for path in ("/api/v1/jobs", "/api/ops/v1/jobs"):
            for query in ({key: "1"}, {f"name[{key}]": "1"}, {f"status[{key}]": "failed"}):
                assert (await client.get(path, params=query)).status_code == 400, query
    assert await collection.find().to_list() == [job]
