"""A server whose disk is full: storing a job raises, and work goes on when there is room again."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from monque import ConnectionError, Monque, NewJob
from support.aliases import Collection, Make
from support.jobs import document
from support.servers import Servers, failing
from support.waiting import Events, start

VICTIM = "victim"
OUT_OF_DISK_SPACE = 14031
WRITES = ["insert", "update", "findAndModify", "delete"]


@asynccontextmanager
async def full_disk(collection: Collection, *commands: str) -> AsyncIterator[None]:
    """While this lasts, the server refuses writes of the instance under test as one with a full disk does."""
    client = collection.database.client
    async with failing(client, commands or WRITES, app_name=VICTIM, errorCode=OUT_OF_DISK_SPACE):
        yield


@pytest.fixture
async def monque(host: Servers, collection: Collection, make_monque: Make) -> Monque:
    monque = await make_monque(host.uri(collection.database.name, appName=VICTIM)).open()
    monque.worker("work", lambda job: None)
    return monque


@pytest.mark.parametrize(
    "store",
    [
        lambda monque: monque.enqueue("work", 1),
        lambda monque: monque.enqueue("work", 1, unique_key="k"),
        lambda monque: monque.enqueue_many([NewJob("work", 1), NewJob("work", 2, unique_key="k")]),
        lambda monque: monque.enqueue_many([NewJob("work", 1) for _ in range(3_000)]),
        lambda monque: monque.schedule("@daily", "work"),
    ],
    ids=["enqueue", "with a key", "many", "very many", "schedule"],
)
async def test_enqueue_raises_and_nothing_is_stored(
    monque: Monque, collection: Collection, store: Callable[[Monque], Awaitable[Any]]
) -> None:
    async with full_disk(collection):
        with pytest.raises(ConnectionError, match="could not store the") as refused:
            await store(monque)

    assert getattr(refused.value.__cause__, "code", None) == OUT_OF_DISK_SPACE
    assert await collection.count_documents({}) == 0
    await store(monque)
    assert await collection.count_documents({}) > 0


async def test_jobs_that_share_one_refused_write_each_raise(monque: Monque, collection: Collection) -> None:
    """They share one write and its error."""
    async with full_disk(collection):
        outcomes = await asyncio.gather(
            *(monque.enqueue("work", number) for number in range(50)), return_exceptions=True
        )

    assert {type(outcome) for outcome in outcomes} == {ConnectionError}
    assert await collection.count_documents({}) == 0


@pytest.mark.parametrize("command", ["update", "findAndModify"])
async def test_a_worker_waits_for_room_and_goes_on(
    monque: Monque, collection: Collection, command: str
) -> None:
    """Neither claims nor settlements can be written; with one free slot or many, these are two commands."""
    events = await start(monque)
    many = [document(data=number) for number in range(20 if command == "update" else 1)]
    async with full_disk(collection):
        await collection.insert_many(many)
        await events.wait("job:error")
        assert not monque.is_healthy()
        assert events.of("job:complete") == []
    await events.wait("job:complete", len(many))

    assert monque.is_healthy()
    assert await collection.count_documents({"status": "completed", "attempt": 1}) == len(many)


async def test_a_result_that_cannot_be_written_is_kept_until_it_can_be(
    monque: Monque, events: Events, collection: Collection
) -> None:
    let_go = asyncio.Event()
    runs = 0

    async def work(job: object) -> None:
        nonlocal runs
        runs += 1
        await let_go.wait()

    monque.worker("slow", work)
    await monque.start()
    await collection.insert_many([document(name="slow") for _ in range(3)])
    await events.wait("job:start", 3)
    async with full_disk(collection):
        let_go.set()
        with pytest.raises(TimeoutError):
            await events.wait("job:complete", within=1)
    await events.wait("job:complete", 3)

    assert runs == 3
    assert events.of("job:fail") == []
    assert await collection.count_documents({"status": "completed", "failCount": 0, "attempt": 1}) == 3


async def test_management_actions_raise_too(monque: Monque, collection: Collection) -> None:
    job = document()
    await collection.insert_one(job)
    async with full_disk(collection):
        for act in (monque.cancel_job, monque.delete_job):
            with pytest.raises(ConnectionError, match="could not"):
                await act(job["_id"])

    assert await collection.find_one({"_id": job["_id"]}) == job


async def test_the_audit_trail_rests_while_the_disk_is_full(
    monque: Monque, collection: Collection, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def record() -> None:
        await monque.record_action(actor="ada", via="web", action="cancel", outcome="done")

    await record()
    async with full_disk(collection):
        await record()
    await record()
    assert caplog.text.count("cannot write to the audit trail") == 1
    assert len((await monque.audit()).entries) == 1

    monkeypatch.setattr("monque._ops.audit._REST", 0)
    await record()
    assert len((await monque.audit()).entries) == 2
