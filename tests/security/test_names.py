"""A hook that refuses one job name is asked wherever that name is known, and the name is told nowhere."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import pytest

from monque import OPERATIONS, Monque
from monque.web import Action, Actor, Dashboard, Limits, dashboard
from monque.web.access.permissions import Access
from monque.web.groups import shape_of
from monque.web.route import Route
from support.aliases import Collection
from support.asgi_stream import asgi_stream
from support.clocks import ago, ahead
from support.examples import BODIES, routes, send
from support.jobs import claimed, document
from support.register import in_the_register
from support.walking import There, walk
from support.web import client_of

NAME = "payroll"
KEY = "march"
REASON = "ValueError: no such account"


def allows(access: Access) -> bool:
    return True


def refuses_one_name(access: Access) -> bool:
    """As the guide has it; a filter without a name is allowed."""
    name = access.job.name if access.job else access.filter.name if access.filter else None
    return name != NAME


async def asks_somebody(access: Access) -> bool:
    return refuses_one_name(access)


def board_of(monque: Monque, authorize: Any, **options: Any) -> Dashboard:
    actor = Actor("mallory")
    return dashboard(monque, auth=lambda _: actor, authorize=authorize, allow_enqueue=True, **options)


class Jobs:
    """Jobs of the name in every state, and one of another name that no worker takes."""

    def __init__(self, collection: Collection) -> None:
        self._collection = collection
        schedule = {"repeatInterval": "0 9 * * *", "uniqueKey": "nightly", "nextRunAt": ahead(hours=1)}
        stale = claimed("web-9", lastHeartbeat=ago(hours=1), lockedAt=ago(hours=1))
        self.failed = document(status="failed", failReason=REASON, data={"pin": 1234})
        self.schedule = document(**schedule)
        mine = [
            *(self.failed, self.schedule, document(nextRunAt=ago(hours=1), uniqueKey=KEY), stale),
            *(claimed("web-1", data={"pin": 1234}), document(status="completed", finishedAt=ago(seconds=1))),
        ]
        self.mine = [{**each, "name": NAME} for each in mine]
        self.other = document(name="work", nextRunAt=ago(hours=1))

    @property
    def there(self) -> There:
        return There(
            name=NAME,
            job=str(self.failed["_id"]),
            schedule=str(self.schedule["_id"]),
            fingerprint=shape_of(REASON).fingerprint,
            key=KEY,
        )

    async def restore(self) -> None:
        await self._collection.delete_many({})
        await self._collection.insert_many([*self.mine, self.other])

    async def stored(self) -> list[dict[str, Any]]:
        return await self._collection.find({"name": NAME}).sort("_id").to_list()


@pytest.fixture
async def jobs(monque: Monque, collection: Collection) -> AsyncIterator[Jobs]:
    await monque.begin_use("failures")
    database, name = collection.database, collection.name
    await database[f"{name}_instances"].insert_one(in_the_register("web-1", NAME, "mail"))
    await monque.pause(NAME)
    await monque.record_action(actor="ada", via="web", action="retry", outcome="done", name=NAME)
    filtered = {"actor": "ada", "via": "web", "action": "retryBulk", "outcome": "done"}
    await monque.record_action(**filtered, filter={"name": NAME})
    made = Jobs(collection)
    await made.restore()
    yield made
    await collection.delete_many({})


@pytest.mark.parametrize("authorize", [refuses_one_name, asks_somebody])
async def test_a_hook_that_refuses_one_name_is_obeyed_on_every_route_and_the_name_is_told_on_none(
    monque: Monque, jobs: Jobs, authorize: Any
) -> None:
    before = sorted(jobs.mine, key=lambda each: each["_id"])
    async with board_of(monque, authorize) as board, client_of(board) as client:
        for request in walk(jobs.there):
            answer = await request.send(client)
            assert NAME not in answer.text, f"{request}: {answer.text}"
            assert answer.status_code != 500, request
            if request.is_named:
                assert answer.status_code == 403, f"{request}: {answer.status_code} {answer.text}"
            assert await jobs.stored() == before, request
        export = await client.get("/api/ops/v1/audit/export")
        assert (export.status_code, NAME in export.text) == (200, False)
        assert "mallory" in export.text
    assert [pause.name for pause in await monque.paused()] == [NAME]


async def test_the_same_requests_are_answered_to_whom_the_hook_allows_the_name(
    monque: Monque, jobs: Jobs
) -> None:
    told = set()
    async with board_of(monque, allows) as board, client_of(board) as client:
        for request in walk(jobs.there):
            await jobs.restore()
            answer = await request.send(client)
            assert answer.status_code in (200, 404, 409, 412), f"{request}: {answer.text}"
            if NAME in answer.text:
                told.add(request.route.operation)
    silent = {route.operation for route in routes(writing=False)} - told
    assert silent == SILENT


# What tells no job name to anybody, or nothing of these jobs: none has a batch, was lost, or ended lately.
SILENT = {
    *("opsAuditChoices", "opsBatch", "opsInstanceLost", "opsLatencyKinds"),
    *(
        "getSchedulerHealth",
        "getCapabilities",
        "getJobStats",
        "opsDocument",
        "opsMe",
        "opsTrends",
        "opsLatency",
    ),
    *("opsCount", "opsPayload", "opsAttempts", "opsLanes", "opsCopyAs", "opsSchedulePreview"),
}


def refuses_the_trail_of_one_name(access: Access) -> bool:
    return access.action is not Action.AUDIT or refuses_one_name(access)


async def test_who_may_not_read_the_trail_of_a_name_is_told_nowhere_who_acted_on_its_jobs(
    monque: Monque, jobs: Jobs
) -> None:
    about = [str(each["_id"]) for each in (jobs.failed, jobs.schedule)]
    for each in about:
        done = {"actor": "ada", "via": "web", "action": "retry", "outcome": "done"}
        await monque.record_action(**done, job_id=each, name=NAME)
    paths = [f"/api/ops/v1/{kind}/{each}" for kind, each in zip(("jobs", "schedules"), about, strict=True)]
    quick = Limits(tick=timedelta(milliseconds=50))
    async with (
        board_of(monque, refuses_the_trail_of_one_name, limits=quick) as board,
        board_of(monque, allows, limits=quick) as other,
        client_of(board) as blind,
        client_of(other) as client,
        asgi_stream(board) as stream,
    ):
        for path in paths:
            assert "audit" not in (await blind.get(path)).json(), path
            assert [each["actor"] for each in (await client.get(path)).json()["audit"]] == ["ada"], path
        await stream.until("snapshot")
        for name in (NAME, "work"):
            await client.post("/api/ops/v1/queue/resume", json={"name": name, "note": "a reason"})
        told = [(await stream.until("action")).data for _ in range(2)]

    assert [each["name"] for each in told] == [NAME, "work"]
    assert [(each.get("actor"), each.get("note")) for each in told] == [
        (None, None),
        ("mallory", "a reason"),
    ]


async def test_the_stream_tells_no_name_that_the_hook_refuses(monque: Monque, jobs: Jobs) -> None:
    quick = Limits(tick=timedelta(milliseconds=50))
    async with (
        board_of(monque, asks_somebody, limits=quick) as board,
        board_of(monque, allows, limits=quick) as other,
        client_of(other) as client,
        asgi_stream(board) as stream,
        asgi_stream(other) as seeing,
    ):
        shown = (await stream.until("snapshot")).data
        assert NAME in str((await seeing.until("snapshot")).data["names"])
        assert [row[0] for row in shown["names"]] == ["mail", "work"]
        for name in (NAME, "work"):
            answer = await client.post("/api/ops/v1/queue/resume", json={"name": name})
            assert answer.status_code == 200
        assert (await seeing.until("action")).data["name"] == NAME
        while (told := await stream.next()).event != "action":
            assert NAME not in str(told.data)
        assert told.data["name"] == "work"


async def test_a_stream_sees_no_name_go_that_the_hook_refuses(
    monque: Monque, jobs: Jobs, collection: Collection
) -> None:
    """A delta lists the names that are gone: those must not be told, either."""
    await monque.resume(NAME)
    await collection.database[f"{collection.name}_instances"].delete_many({})
    quick = Limits(tick=timedelta(milliseconds=50))
    async with board_of(monque, refuses_one_name, limits=quick) as board, asgi_stream(board) as stream:
        await stream.until("snapshot")
        await collection.delete_many({})
        gone: list[str] = []
        while "work" not in gone:
            told = await stream.until("delta")
            assert NAME not in str(told.data)
            gone += told.data["gone"]


def needed(route: Route) -> set[Action]:
    """The rights without which a route refuses its usual request."""
    if route.operation == "opsPayload":
        return {Action.READ, Action.PAYLOAD}
    if route.rights or "action" not in BODIES.get(route.operation, {}):
        return set(route.rights)
    looks = {Action.READ} if route.looks else set()
    return looks | set(map(Action, OPERATIONS[BODIES[route.operation]["action"]].bulk_rights))


@pytest.mark.parametrize("missing", list(Action), ids=str)
async def test_each_route_needs_its_rights_and_no_others(monque: Monque, jobs: Jobs, missing: Action) -> None:
    actor = Actor("mallory", may=set(Action) - {missing})
    async with (
        dashboard(monque, auth=lambda _: actor, allow_enqueue=True) as board,
        client_of(board) as client,
    ):
        for route in routes():
            await jobs.restore()
            answer = await send(client, route, jobs.there.job)
            is_refused = answer.status_code == 403
            assert is_refused == (missing in needed(route)), f"{route.operation}: {answer.text}"
            assert not is_refused or await jobs.stored() == sorted(jobs.mine, key=lambda each: each["_id"])
