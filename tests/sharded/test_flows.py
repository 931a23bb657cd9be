"""Limits, batches, children, follow-ups and names that are not kept, under each shard key that works."""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from monque import FailedJob, Job, Keep, Limit, Monque, NewJob
from support.aliases import Collection, Make
from support.crowds import Stay, crowds
from support.options import QUICK
from support.waiting import Events, eventually

# One on each shard, if they are sharded by name.
HERE, THERE = "name-1", "name-19"


async def all_are(collection: Collection, count: int, **query: Any) -> None:
    """Wait until so many jobs are as asked for."""

    async def there() -> None:
        assert await collection.count_documents(query) == count

    await eventually(there, within=120)


@pytest.mark.parametrize(
    ("limit", "most"),
    [(Limit(3), 3), (Limit(1), 1), (Limit(2, by="key"), 2), (Limit(1, by="key", ordered=True), 1)],
    ids=["whole name", "one at a time", "by key", "ordered"],
)
async def test_a_limit_holds_over_all_instances(
    make_monque: Make, collection: Collection, limit: Limit, most: int
) -> None:
    stays: list[Stay] = []
    loop = asyncio.get_running_loop()

    async def work(job: Job[Any]) -> None:
        since = loop.time()
        await asyncio.sleep(0.01)
        stays.append(Stay((job.name, job.data["key"]) if limit.by else job.name, since, loop.time(), job.id))

    crew = [await make_monque(options=QUICK).open() for _ in range(3)]
    for instance in crew:
        for name in (HERE, THERE):
            instance.worker(name, work, limit=limit)
    jobs = [NewJob(name, {"key": number % 4}) for number in range(20) for name in (HERE, THERE)]
    stored = await crew[0].enqueue_many(jobs)
    for instance in crew:
        await instance.start()
    await all_are(collection, len(jobs), status="completed")

    assert list(crowds(stays, most)) == []
    assert len(stays) == len(jobs)
    if limit.ordered:
        ran = defaultdict(list)
        for stay in sorted(stays, key=lambda stay: stay.since):
            ran[stay.line].append(stay.run)
        for name, key in ran:
            assert ran[name, key] == [job.id for job in stored if (job.name, job.data["key"]) == (name, key)]


async def test_what_follows_a_batch_over_two_shards_runs_once_when_all_have_ended(
    make_monque: Make, collection: Collection
) -> None:
    ended: Counter[str] = Counter()
    seen: list[int] = []

    async def work(job: Job[Any]) -> None:
        ended[job.name] += 1

    async def follow(job: Job[Any]) -> None:
        seen.append(ended.total())

    for _ in range(2):
        instance = await make_monque(options=QUICK).open()
        for name in (HERE, THERE):
            instance.worker(name, work)
        instance.worker("name-7", follow)
        await instance.start()
    batch = [NewJob(name, batch="import") for name in (HERE, THERE) for _ in range(25)]
    await instance.enqueue_many(batch)
    await instance.enqueue("name-7", after_batch="import")
    await all_are(collection, 51, status="completed")

    assert seen == [50]


async def test_a_parent_waits_for_its_children_on_another_shard(
    monque: Monque, collection: Collection
) -> None:
    results: list[Any] = []

    @monque.worker(HERE, concurrency=1)
    async def ask(job: Job[Any]) -> None:
        children = await job.run_jobs("ask", [NewJob(THERE, number) for number in range(5)])
        results.extend(child.result for child in children if child is not None)

    @monque.worker(THERE, concurrency=1)
    async def answer(job: Job[int]) -> int:
        return job.data * 2

    await monque.start()
    await monque.enqueue(HERE)
    await all_are(collection, 6, status="completed")

    assert results == [0, 2, 4, 6, 8]


async def test_what_follows_a_failure_is_stored_once_on_another_shard(
    make_monque: Make, collection: Collection
) -> None:
    monque = await make_monque(options=replace(QUICK, max_retries=1)).open()
    dead: list[Any] = []

    async def fail(job: Job[Any]) -> None:
        raise ValueError("no")

    async def bury(job: Job[FailedJob]) -> None:
        dead.append(job.data.job_id)

    monque.worker(HERE, fail, on_failure=THERE)
    monque.worker(THERE, bury)
    stored = await monque.enqueue_many([NewJob(HERE, number) for number in range(10)])
    await monque.start()
    await all_are(collection, 10, name=THERE, status="completed")

    assert sorted(map(str, dead)) == sorted(str(job.id) for job in stored)
    assert await collection.count_documents({"followUp": {"$exists": True}}) == 0


async def test_what_is_not_kept_is_removed_when_it_completes(
    make_monque: Make, collection: Collection
) -> None:
    monque = await make_monque(options=QUICK).open()
    for name in (HERE, THERE):
        monque.worker(name, lambda job: None, keep=Keep(completed=timedelta(0)))
    events = Events(monque)
    await monque.enqueue_many([NewJob(name) for name in (HERE, THERE) for _ in range(50)])
    await monque.start()
    await events.wait("job:complete", 100, within=120)

    assert await collection.count_documents({}) == 0
