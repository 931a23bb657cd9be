"""Many worker processes on one collection: each job runs once, and they do not stand in each other's way."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
from pymongo import AsyncMongoClient

from monque import Job, Monque, NewJob
from monque.embedded import EmbeddedMongo
from support.aliases import Collection, Database
from support.programs.child import child, uri_of
from support.waiting import Events, eventually, start

JOBS = 5_000
PROCESSES = 4


async def write_conflicts(client: AsyncMongoClient[dict[str, Any]]) -> int:
    status = await client.admin.command("serverStatus")
    conflicts: int = status["metrics"]["operation"].get("writeConflicts", 0)
    return conflicts


@pytest.mark.parametrize("concurrency", [5, 50])
async def test_four_processes_run_each_of_many_jobs_once(
    concurrency: int,
    server: EmbeddedMongo,
    client: AsyncMongoClient[dict[str, Any]],
    database: Database,
    collection: Collection,
    monque: Monque,
    tmp_path: Path,
) -> None:
    """SC-006, and the trap: claims aimed at the same head document gave 39 000 write conflicts."""
    jobs = await monque.enqueue_many([NewJob("work", n) for n in range(JOBS)])
    files = [tmp_path / f"worker-{n}" for n in range(PROCESSES)]

    async with AsyncExitStack() as running:
        workers = [
            await running.enter_async_context(
                child("wire_worker", uri_of(server, database), str(file), str(concurrency))
            )
            for file in files
        ]
        for worker in workers:
            await worker.wait_for("ready")
        before = await write_conflicts(client)
        for worker in workers:
            worker.write("go")

        async def all_is_done() -> None:
            assert await collection.count_documents({"status": "completed"}) == JOBS

        await eventually(all_is_done, within=60)
        conflicts = await write_conflicts(client) - before
        for worker in workers:
            worker.write("stop")
        codes = [await worker.ends(within=60) for worker in workers]

    assert codes == [0] * PROCESSES, "\n".join(worker.complaints for worker in workers)
    ran = Counter(line for file in files for line in file.read_text().split())
    assert ran == Counter(str(job.id) for job in jobs)
    # One in ten at most: how many claims meet is up to the machine, but not whether all of them do.
    assert conflicts < JOBS / 10
    assert await collection.count_documents({"failCount": 0}) == JOBS


async def test_a_backlog_that_lasts_ends_the_change_stream_and_not_the_scheduler(monque: Monque) -> None:
    """During a backlog the stream is closed. That takes a while, and polls go on meanwhile."""

    @monque.worker("work", concurrency=50)
    async def work(job: Job[int]) -> None:
        await asyncio.sleep(random.uniform(0.11, 0.2))

    events = await start(monque)
    await monque.enqueue_many([NewJob("work", n) for n in range(700)])
    await events.wait("changestream:closed")
    await events.wait("job:complete", 700, within=60)

    assert monque.is_healthy()
    assert events.of("job:error") == []
    await events.wait("changestream:connected", 2)


async def test_the_change_stream_is_not_opened_before_a_backlog_is_gone(
    monque: Monque, events: Events
) -> None:
    """The stream costs the server something for each write, and during a backlog it is of no use."""

    @monque.worker("work", concurrency=20)
    async def work(job: Job[int]) -> None:
        await asyncio.sleep(0.03)

    await monque.enqueue_many([NewJob("work", n) for n in range(1_000)])
    await monque.start()
    await events.wait("job:complete", 1_000, within=60)
    await events.wait("changestream:connected")

    kinds = events.kinds()
    assert kinds[: kinds.index("changestream:connected")].count("job:start") > 800
