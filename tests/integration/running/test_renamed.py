"""A job whose name somebody changes by hand while it runs: it stays with its claim, under the new name."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from monque import Job, Monque, NewJob
from support.aliases import Collection, Database, Make
from support.options import QUICK
from support.waiting import Events, eventually, start

NEW_NAMES = pytest.mark.parametrize(
    "new", ["other", {"not": "a text"}, None], ids=["text", "document", "null"]
)


class Renamed:
    """A handler that renames its own job, and then does what the test says."""

    def __init__(self, collection: Collection, new: Any) -> None:
        self._collection = collection
        self._new = new
        self.then: Callable[[Job[Any]], Awaitable[Any]] | None = None

    async def __call__(self, job: Job[Any]) -> None:
        await self._collection.update_one({"_id": job.id}, {"$set": {"name": self._new}})
        if self.then is not None:
            await self.then(job)


async def run(monque: Monque, handler: Renamed, count: int = 1) -> Events:
    monque.worker("work", handler.__call__)
    events = await start(monque)
    await monque.enqueue_many([NewJob("work", number) for number in range(count)])
    return events


@NEW_NAMES
@pytest.mark.parametrize("count", [1, 20])
async def test_it_is_completed_under_its_new_name(
    monque: Monque, collection: Collection, new: Any, count: int
) -> None:
    events = await run(monque, Renamed(collection, new), count)
    await events.wait("job:complete", count)

    async def stored() -> None:
        assert await collection.count_documents({"status": "completed", "name": new, "attempt": 1}) == count

    await eventually(stored)
    assert not events.of("job:lost")


async def test_a_failure_is_stored_under_its_new_name(monque: Monque, collection: Collection) -> None:
    handler = Renamed(collection, "other")

    async def fail(job: Job[Any]) -> None:
        raise ValueError("no")

    handler.then = fail
    events = await run(monque, handler)
    await events.wait("job:fail", 1)

    async def stored() -> None:
        found = await collection.find_one({"name": "other"})
        assert found is not None
        assert (found["status"], found["failCount"], found["failReason"]) == ("pending", 1, "ValueError: no")

    await eventually(stored)


@NEW_NAMES
async def test_its_heartbeats_and_its_progress_are_written(
    make_monque: Make, collection: Collection, new: Any
) -> None:
    monque = await make_monque(options=replace(QUICK, heartbeat_interval=timedelta(milliseconds=100))).open()
    handler, let_go = Renamed(collection, new), asyncio.Event()

    async def report(job: Job[Any]) -> None:
        job.report_progress(1, 2)
        await let_go.wait()

    handler.then = report
    events = await run(monque, handler)

    async def alive() -> None:
        found = await collection.find_one({"name": {"$eq": new}, "progress.done": 1})
        assert found is not None
        assert found["lastHeartbeat"] > found["claimedAt"]

    await eventually(alive)
    let_go.set()
    await events.wait("job:complete", 1)
    assert not events.of("job:lost")


async def test_a_transaction_completes_it(monque: Monque, collection: Collection, database: Database) -> None:
    handler = Renamed(collection, "other")

    async def complete(job: Job[Any]) -> None:
        async with database.client.start_session() as session, await session.start_transaction():
            await job.complete_in(session)

    handler.then = complete
    events = await run(monque, handler)
    await events.wait("job:complete", 1)

    assert await collection.count_documents({"name": "other", "status": "completed"}) == 1
