"""Much of everything: jobs, names, bytes, instances, listeners. Each bounded to some seconds."""

from __future__ import annotations

import asyncio
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from monque import Event, Job, PayloadTooLargeError
from support.aliases import Collection, Make
from support.filling import fill
from support.jobs import document
from support.options import QUICK
from support.programs.child import child
from support.scale import at_scale
from support.servers import Servers
from support.waiting import Events, eventually

NAMES = 2_000
MANY = at_scale(200_000, 40_000)


async def count(collection: Collection, **query: Any) -> int:
    return int(await collection.count_documents(query))


async def test_very_many_pending_jobs_of_2_000_names_do_not_hold_up_a_new_one(
    collection: Collection, make_monque: Make
) -> None:
    """The backlog has other names; a job of ours, a future one and one whose name has none, are found."""
    name = {"$concat": ["name-", {"$toString": {"$mod": ["$n", NAMES]}}]}
    await fill(collection, MANY, name=name)
    monque = await make_monque(options=replace(QUICK, worker_concurrency=50)).open()
    runs: Counter[Any] = Counter()

    async def work(job: Job[Any]) -> None:
        runs[job.name] += 1

    for number in range(NAMES, NAMES + 100):
        monque.worker(f"name-{number}", work)
    events = Events(monque)
    await monque.start()
    for number in range(NAMES, NAMES + 100):
        await monque.enqueue(f"name-{number}")
    await events.wait("job:complete", 100, within=30)

    assert set(runs.values()) == {1}
    assert await count(collection, status="pending") == MANY


async def test_an_instance_with_2_000_workers_takes_from_all_of_them_oldest_first(
    collection: Collection, make_monque: Make
) -> None:
    """Of very many jobs the first 2,000 are done; each name gets its turn."""
    spread = {"$mod": [{"$multiply": ["$n", 797]}, NAMES]}
    await fill(
        collection,
        MANY,
        name={"$concat": ["name-", {"$toString": spread}]},
        data="$n",
        nextRunAt={"$toDate": {"$add": [1_000_000_000_000, "$n"]}},
    )
    monque = await make_monque(options=replace(QUICK, instance_concurrency=100)).open()
    numbers: list[int] = []
    enough = asyncio.Event()

    async def work(job: Job[int]) -> None:
        numbers.append(job.data)
        if len(numbers) >= NAMES:
            enough.set()

    for number in range(NAMES):
        monque.worker(f"name-{number}", work, concurrency=1)
    await monque.start()
    async with asyncio.timeout(60):
        await enough.wait()
    await monque.stop()

    assert len(numbers) == len(set(numbers))
    assert max(numbers[:NAMES]) < 3 * NAMES
    assert await count(collection, status="completed") == len(numbers)


@pytest.mark.parametrize("size", [1, 1_000, 100_000, 1_000_000, 15 * 1024 * 1024])
async def test_payloads_of_every_size_come_and_go(
    collection: Collection, make_monque: Make, size: int
) -> None:
    monque = await make_monque().open()
    seen: list[bytes] = []
    monque.worker("work", lambda job: seen.append(job.data))
    payload = bytes([7]) * size
    await monque.enqueue("work", payload)
    await monque.run_until_idle()

    assert seen == [payload]
    assert await count(collection, status="completed") == 1


async def test_several_of_the_largest_payloads_are_claimed_together(
    collection: Collection, make_monque: Make
) -> None:
    """Together they are more than one answer of the server may hold."""
    payload = b"x" * (15 * 1024 * 1024)
    monque = await make_monque(options=replace(QUICK, worker_concurrency=8)).open()
    sizes: list[int] = []
    monque.worker("work", lambda job: sizes.append(len(job.data)))
    for _ in range(6):
        await collection.insert_one(document(data=payload))
    await monque.run_until_idle()

    assert sizes == [len(payload)] * 6
    with pytest.raises(PayloadTooLargeError):
        await monque.enqueue("work", b"x" * (16 * 1024 * 1024))


async def test_20_instances_on_one_collection_do_each_job_once(
    collection: Collection, make_monque: Make
) -> None:
    runs: Counter[Any] = Counter()

    async def work(job: Job[Any]) -> None:
        runs[job.data] += 1
        await asyncio.sleep(0.002)

    instances = [await make_monque(options=replace(QUICK, worker_concurrency=5)).open() for _ in range(20)]
    for monque in instances:
        monque.worker("work", work)
        await monque.start()
    await collection.insert_many([document(data=number) for number in range(2_000)])

    def done() -> None:
        assert len(runs) == 2_000

    await eventually(done, within=60)

    async def settled() -> None:
        assert await count(collection, status="completed", attempt=1) == 2_000

    await eventually(settled, within=60)
    assert set(runs.values()) == {1}
    assert all(monque.is_healthy() for monque in instances)


async def test_500_listeners_receive_every_event_and_hold_nothing_up(make_monque: Make) -> None:
    """Half of them are async, some of them raise."""
    monque = await make_monque(options=replace(QUICK, worker_concurrency=50)).open()
    events: Counter[int] = Counter()

    def listener(number: int) -> Callable[[Event], Any]:
        def hear(event: Event) -> None:
            events[number] += event.kind == "job:complete"
            if number % 100 == 0:
                raise RuntimeError("a listener that is broken")

        async def hear_later(event: Event) -> None:
            await asyncio.sleep(0)
            hear(event)

        return hear if number % 2 else hear_later

    for number in range(500):
        monque.on(Event, listener(number))
    monque.worker("work", lambda job: None)
    for number in range(100):
        await monque.enqueue("work", number)
    await monque.run_until_idle()
    await monque.stop()

    def all_heard() -> None:
        assert events == dict.fromkeys(range(500), 100)

    await eventually(all_heard, within=30)
    assert (await monque.queue_stats()).completed == 100


@pytest.mark.skipif(sys.platform != "linux", reason="looks at the process through /proc")
async def test_the_memory_of_a_worker_stays_flat(host: Servers, collection: Collection) -> None:
    """Twenty thousand jobs to warm up, twenty thousand more: its memory does not grow with them."""
    jobs = 20_000
    await fill(collection, jobs, data={"text": {"$concat": ["payload ", {"$toString": "$n"}]}})
    async with child("steady_worker", host.uri(collection.database.name), str(jobs), "2") as worker:

        async def first_round_over() -> None:
            assert await count(collection, name="next-round") == 1

        await eventually(first_round_over, within=60)
        copy = [{"$match": {"name": "work"}}, {"$unset": "_id"}, {"$set": {"status": "pending"}}]
        merge = {"$merge": {"into": collection.name, "whenMatched": "fail"}}
        await (await collection.aggregate([*copy, merge])).to_list()
        assert await worker.ends(within=60) == 0, worker.complaints

    (blocks, size), (blocks_later, size_later) = (
        map(int, line.split()[1:]) for line in worker.said if line.startswith("round")
    )
    assert blocks_later - blocks < jobs / 4  # a single object kept for each job would be more
    assert size_later - size < 25
