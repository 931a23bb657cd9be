"""`/api/v1` as TypeScript has it, through a client that is made from the contract."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from importlib.resources import files
from typing import Any

import httpx2
import pytest
import uvicorn
from bson import ObjectId

from monque import Monque
from monque.web import Action, Actor, Dashboard, dashboard
from support.aliases import Collection
from support.contract_client import FILE, ContractClient
from support.jobs import claimed, document
from support.waiting import eventually
from support.web import Client, Connect, key_cookie

WHEN = datetime(2026, 5, 1, 9, tzinfo=UTC)
EIGHT = {"read", "cancel", "cancelBulk", "retry", "retryBulk", "reschedule", "delete", "deleteBulk"}
NO_JOB = str(ObjectId())


@pytest.fixture
def contract(api: Client) -> ContractClient:
    return ContractClient(api)


@pytest.fixture
async def served(board: Dashboard) -> AsyncIterator[Client]:
    """The dashboard on a real port."""
    server = uvicorn.Server(uvicorn.Config(board, port=0, log_level="error", lifespan="off"))
    serving = asyncio.create_task(server.serve())
    await eventually(lambda: check(server.started))
    port = server.servers[0].sockets[0].getsockname()[1]
    async with httpx2.AsyncClient(base_url=f"http://127.0.0.1:{port}", cookies=key_cookie(port)) as client:
        yield client
    server.should_exit = True
    await serving


def check(fact: bool) -> None:
    assert fact


def acting(*may: str) -> Any:
    return lambda connection: Actor(name="ada", may=[Action(each) for each in may])


def iso(moment: datetime) -> str:
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def test_the_contract_is_shipped_as_it_is() -> None:
    assert files("monque.web").joinpath("contract.json").read_bytes() == FILE.read_bytes()


async def test_a_client_made_from_the_contract_drives_every_operation(
    served: Client, collection: Collection
) -> None:
    contract = ContractClient(served)
    pending, failed, doomed = (
        document(name="a/b.c%d"),
        document(name="x", status="failed"),
        document(name="x"),
    )
    await collection.insert_many([pending, failed, doomed, claimed("web-1", name="größe")])

    assert await contract.get("getSchedulerHealth") == {
        "status": "unavailable",
        "scheduler": {"healthy": False},
    }
    capabilities = await contract.get("getCapabilities")
    assert capabilities == {"readOnly": False, "actions": dict.fromkeys(EIGHT, True)}
    views = await contract.get("listQueueViews")
    assert {view["name"] for view in views["queueViews"]} == {"a/b.c%d", "x", "größe"}
    assert (await contract.get("getJobStats", query={"name": "x"}))["total"] == 2
    listed = await contract.get("listJobs", query={"name": "a/b.c%d"})
    assert [job["id"] for job in listed["jobs"]] == [str(pending["_id"])]
    job = await contract.get("getJob", id=str(pending["_id"]))
    assert job == listed["jobs"][0]

    later = await contract.get("rescheduleJob", id=job["id"], body={"nextRunAt": "2031-01-01T00:00:00.000Z"})
    assert later["nextRunAt"] == "2031-01-01T00:00:00.000Z"
    assert (await contract.get("cancelJob", id=job["id"]))["status"] == "cancelled"
    assert (await contract.get("retryJob", id=str(failed["_id"])))["status"] == "pending"
    assert await contract.get("deleteJob", id=str(doomed["_id"])) == {"deleted": True}
    assert (await contract.get("retryJobs", body={"status": ["cancelled", "failed"]}))["count"] == 1
    assert (await contract.get("cancelJobs", body={"status": "pending"}))["count"] == 2
    assert (await contract.get("deleteJobs", body={}))["count"] == 3
    assert contract.called == contract.operations


async def test_pages_of_jobs_with_equal_times_lose_and_repeat_nothing(
    contract: ContractClient, collection: Collection
) -> None:
    jobs = [document(createdAt=WHEN, updatedAt=WHEN, nextRunAt=WHEN) for _ in range(25)]
    await collection.insert_many(jobs)
    for sort in ("identifier", "createdAt", "updatedAt", "nextRunAt"):
        for direction in ("asc", "desc"):
            seen: list[str] = []
            query = {"limit": "10", "sortBy": sort, "sortDirection": direction}
            while True:
                page = await contract.get("listJobs", query=query)
                seen += [job["id"] for job in page["jobs"]]
                if not page["hasNextPage"]:
                    assert page["cursor"] is None
                    break
                query["cursor"] = page["cursor"]
            expected = sorted(str(job["_id"]) for job in jobs)
            assert seen == (expected if direction == "asc" else expected[::-1])


@pytest.mark.parametrize(
    "query",
    [
        [("status", "failed"), ("status", "cancelled")],
        [("status[0]", "failed"), ("status[1]", "cancelled")],
        [("status[]", "failed"), ("status[]", "cancelled")],
    ],
)
async def test_status_may_be_repeated(contract: ContractClient, collection: Collection, query: Any) -> None:
    states = ("pending", "failed", "cancelled", "completed")
    await collection.insert_many([document(status=each) for each in states])
    page = await contract.get("listJobs", query=query)
    assert {job["status"] for job in page["jobs"]} == {"failed", "cancelled"}


@pytest.mark.parametrize("field", ["createdAt", "updatedAt", "nextRunAt"])
async def test_bounds_of_lists_are_inclusive(
    contract: ContractClient, collection: Collection, field: str
) -> None:
    jobs = [document(**{field: WHEN + timedelta(milliseconds=each)}) for each in range(5)]
    await collection.insert_many(jobs)
    query = {
        f"{field}From": iso(jobs[1][field]),
        f"{field}To": iso(jobs[3][field]),
        "sortBy": field,
        "sortDirection": "asc",
    }
    page = await contract.get("listJobs", query=query)
    assert [job["id"] for job in page["jobs"]] == [str(job["_id"]) for job in jobs[1:4]]


async def test_bounds_of_bulk_actions_are_exclusive(contract: ContractClient, collection: Collection) -> None:
    jobs = [document(createdAt=WHEN + timedelta(milliseconds=each)) for each in range(4)]
    await collection.insert_many(jobs)
    body = {"newerThan": iso(WHEN), "olderThan": iso(WHEN + timedelta(milliseconds=3))}
    assert await contract.get("deleteJobs", body=body) == {"count": 2, "errors": []}
    assert {job["_id"] async for job in collection.find()} == {jobs[0]["_id"], jobs[3]["_id"]}


@pytest.mark.parametrize(
    ("query", "text"),
    [
        ({"limit": "0"}, "Invalid limit"),
        ({"limit": "ten"}, "Invalid limit"),
        ({"limit": ""}, "Invalid limit"),
        ({"status": "odd"}, "Input validation failed"),
        ({"name": ""}, "Input validation failed"),
        ({"createdAtFrom": "2026-05-01"}, "Input validation failed"),
        ({"createdAtFrom": "2026-05-01T09:00:00+02:00"}, "Input validation failed"),
        ({"sortBy": "name"}, "Input validation failed"),
        ({"sortDirection": "up"}, "Input validation failed"),
    ],
)
async def test_wrong_queries_have_the_texts_of_the_contract(
    contract: ContractClient, query: Any, text: str
) -> None:
    assert await contract.call("listJobs", query=query) == (400, {"error": text})


async def test_a_cursor_of_others_is_refused_with_a_text_of_its_own(contract: ContractClient) -> None:
    status, body = await contract.call("listJobs", query={"cursor": "eyJpZCI6MX0="})
    assert status == 400
    assert "cursor" in body["error"]
    assert (await contract.call("listJobs", query={"cursor": "x" * 600}))[0] == 400


@pytest.mark.parametrize(
    "body",
    [
        {"name": ""},
        {"name": None},
        {"name": {"$ne": ""}},
        {"status": []},
        {"status": "odd"},
        {"status": {"$in": ["failed"]}},
        {"olderThan": "yesterday"},
        {"olderthan": "2026-05-01T09:00:00.000Z"},
        {"$where": "1"},
        [],
        "all",
    ],
)
async def test_a_wrong_selector_deletes_nothing(api: Client, collection: Collection, body: Any) -> None:
    await collection.insert_one(document())
    answer = await api.post("/api/v1/jobs/actions/delete", json=body)
    assert (answer.status_code, answer.json()) == (400, {"error": "Input validation failed"})
    assert await collection.count_documents({}) == 1


async def test_wrong_ids_and_states_have_the_texts_of_the_contract(
    contract: ContractClient, collection: Collection
) -> None:
    running = claimed("web-1")
    await collection.insert_one(running)
    for operation in ("getJob", "cancelJob", "retryJob", "deleteJob"):
        assert await contract.call(operation, id="nonsense") == (400, {"error": "Invalid job id"})
        assert await contract.call(operation, id=NO_JOB) == (404, {"error": "Job not found"})
    time = {"nextRunAt": "2031-01-01T00:00:00.000Z"}
    assert await contract.call("rescheduleJob", id=NO_JOB, body=time) == (404, {"error": "Job not found"})
    for operation, body in (("cancelJob", None), ("retryJob", None), ("rescheduleJob", time)):
        status, answer = await contract.call(operation, id=str(running["_id"]), body=body)
        assert status == 409
        verb = operation.removesuffix("Job")
        assert answer["error"].startswith(f"cannot {verb} job {running['_id']}: it is processing; only a")


@pytest.mark.parametrize("path", ["capabilities", "queue-views", "jobs", "jobs/stats", "jobs/nonsense"])
async def test_every_read_but_health_refuses_unknown_query_keys(api: Client, path: str) -> None:
    answer = await api.get(f"/api/v1/{path}?fields=name")
    assert (answer.status_code, answer.json()) == (400, {"error": "Input validation failed"})


async def test_bodies_of_single_actions_are_not_read_except_that_of_reschedule(
    api: Client, collection: Collection
) -> None:
    jobs = [document(), document(status="failed"), document(status="failed")]
    await collection.insert_many(jobs)
    junk = {"content": b"{not json", "headers": {"content-type": "application/json"}}
    ids = [job["_id"] for job in jobs]
    assert (await api.post(f"/api/v1/jobs/{ids[0]}/actions/cancel", **junk)).status_code == 200
    assert (await api.post(f"/api/v1/jobs/{ids[1]}/actions/retry", **junk)).status_code == 200
    assert (await api.request("DELETE", f"/api/v1/jobs/{ids[2]}", **junk)).status_code == 200
    answer = await api.post(f"/api/v1/jobs/{ids[1]}/actions/reschedule", **junk)
    assert (answer.status_code, answer.json()) == (400, {"error": "Input validation failed"})


@pytest.mark.parametrize("right", sorted(EIGHT))
async def test_each_capability_is_that_of_the_actor(monque: Monque, connect: Connect, right: str) -> None:
    contract = ContractClient(connect(dashboard(monque, auth=acting(right))))
    capabilities = await contract.get("getCapabilities")
    assert capabilities["actions"] == {each: each == right for each in EIGHT}


async def test_a_read_only_surface_says_so_and_changes_nothing(
    monque: Monque, connect: Connect, collection: Collection
) -> None:
    job = document()
    await collection.insert_one(job)
    contract = ContractClient(connect(dashboard(monque, read_only=True)))
    capabilities = await contract.get("getCapabilities")
    assert capabilities == {"readOnly": True, "actions": {each: each == "read" for each in EIGHT}}
    for operation in contract.operations - {
        each for each in contract.operations if each.startswith(("get", "list"))
    }:
        body = {"nextRunAt": "2031-01-01T00:00:00.000Z"} if operation == "rescheduleJob" else {}
        refused = await contract.call(operation, id=str(job["_id"]), body=body)
        assert refused == (403, {"error": "Management surface is read-only"})
    assert await collection.find_one() == job


async def test_who_may_not_is_told_403_before_404(monque: Monque, connect: Connect) -> None:
    contract = ContractClient(connect(dashboard(monque, auth=acting("read"))))
    for job_id in (NO_JOB, "nonsense"):
        assert await contract.call("deleteJob", id=job_id) == (403, {"error": "Action denied"})
    blind = ContractClient(connect(dashboard(monque, auth=acting("cancel"))))
    assert await blind.call("getJob", id=NO_JOB) == (403, {"error": "Read access denied"})
    assert await blind.call("listJobs", query={"limit": "0"}) == (403, {"error": "Read access denied"})


async def test_errors_that_the_contract_does_not_know_have_its_shape(
    monque: Monque, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    def nobody(connection: Any) -> None:
        return None

    contract = ContractClient(connect(dashboard(monque, auth=nobody)))
    assert (await contract.call("listJobs"))[0] == 401

    async def broken(*_: Any, **__: Any) -> Any:
        raise RuntimeError("a bug with a secret")

    monkeypatch.setattr(monque, "list_jobs", broken)
    contract = ContractClient(connect(dashboard(monque)))
    assert await contract.call("listJobs") == (500, {"error": "Internal server error"})


async def test_a_job_that_is_as_it_was_is_not_sent_again(api: Client, collection: Collection) -> None:
    job = document()
    await collection.insert_one(job)
    path = f"/api/v1/jobs/{job['_id']}"
    tag = (await api.get(path)).headers["etag"]
    assert (await api.get(path, headers={"if-none-match": tag})).status_code == 304
    await api.post(f"{path}/actions/cancel")
    assert (await api.get(path, headers={"if-none-match": tag})).json()["status"] == "cancelled"


async def test_a_job_that_changed_since_it_was_seen_is_left_alone(
    api: Client, collection: Collection
) -> None:
    job = document()
    await collection.insert_one(job)
    path = f"/api/v1/jobs/{job['_id']}"
    seen = {"if-match": (await api.get(path)).headers["etag"]}
    assert (await api.post(f"{path}/actions/cancel", headers=seen)).status_code == 200
    for refused in (
        await api.post(f"{path}/actions/retry", headers=seen),
        await api.post(
            f"{path}/actions/reschedule", headers=seen, json={"nextRunAt": "2031-01-01T00:00:00.000Z"}
        ),
        await api.delete(path, headers=seen),
    ):
        assert refused.status_code == 412
        assert "changed" in refused.json()["error"]


async def test_answers_are_utf8_json(api: Client, collection: Collection) -> None:
    await collection.insert_one(document(name="größe", data={"n": 2**60, "x": float("inf")}))
    answer = await api.get("/api/v1/jobs")
    assert "größe" in answer.content.decode()
    payload = json.loads(answer.content)["jobs"][0]["payload"]
    assert payload == {"n": str(2**60), "x": "Infinity"}
