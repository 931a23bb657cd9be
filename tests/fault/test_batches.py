"""Batches whatever dies, and when: their callback runs once, and not before all of their jobs have ended."""

from __future__ import annotations

import asyncio
import random
import signal
from contextlib import AsyncExitStack
from datetime import timedelta

import pytest

from monque import NewJob
from support.aliases import Collection, Make
from support.jobs import find_one
from support.options import QUICK
from support.programs.child import child
from support.scale import at_scale
from support.servers import Servers
from support.waiting import reaches


@pytest.fixture
def uri(host: Servers, collection: Collection) -> str:
    return host.uri(collection.database.name)


class TestKilledProcesses:
    @pytest.mark.timeout(900)
    @pytest.mark.usefixtures("brief_transactions")  # one that dies within its recovery leaves one open
    async def test_a_callback_of_many_jobs_runs_once_and_not_early_though_processes_are_killed(
        self, uri: str, collection: Collection, make_monque: Make
    ) -> None:
        """Of three processes one is killed at random and started anew, until all jobs have ended."""
        count, rng = at_scale(10_000, 300), random.Random(7)
        monque = await make_monque(options=QUICK).open()
        await monque.enqueue_many([NewJob("work", batch="import") for _ in range(count)])
        callback = await monque.enqueue("report", "import", after_batch="import")
        ended = {"batch": "import", "status": "completed"}

        async with AsyncExitStack() as stack:
            alive = [await stack.enter_async_context(child("batch_worker", uri)) for _ in range(3)]
            for goal in range(count // 6, count, count // 6):
                await reaches(lambda: collection.count_documents(ended), goal, standstill=120)
                victim = alive.pop(rng.randrange(len(alive)))
                victim.send(signal.SIGKILL)
                await victim.ends()
                alive.append(await stack.enter_async_context(child("batch_worker", uri)))
            done = await monque.wait_for(callback, timeout=timedelta(minutes=5))

        assert await collection.count_documents(ended) == count
        reports = await collection.database["reports"].find().to_list()
        assert [each["active"] for each in reports] == [0] * len(reports)
        # Only attempts of killed processes come before the last one; one may die before it can report.
        assert 1 <= len(reports) <= done.attempt == 1 + done.crash_count

    @pytest.mark.timeout(300)
    @pytest.mark.parametrize("point", ["look", "wake"])
    async def test_the_sweep_of_another_process_wakes_the_callback_of_one_that_died_before_it_could(
        self, uri: str, collection: Collection, make_monque: Make, point: str
    ) -> None:
        monque = await make_monque(options=QUICK).open()
        await monque.enqueue("work", batch="import")
        callback = await monque.enqueue("report", "import", after_batch="import")
        async with child("batch_worker", uri, point) as victim:
            assert await victim.ends(within=120) == -signal.SIGKILL
        stored = await find_one(collection, {"_id": callback.id})
        assert (stored["status"], stored["parked"]["key"]) == ("pending", "import")

        async with child("batch_worker", uri):
            done = await monque.wait_for(callback, timeout=timedelta(minutes=2))
        assert (done.attempt, done.crash_count) == (1, 0)
        [report] = await collection.database["reports"].find().to_list()
        assert report["active"] == 0


async def test_batches_that_many_end_at_once_are_each_over_once(make_monque: Make) -> None:
    """Forty batches of five jobs, four instances: each callback runs once."""
    runs: list[str] = []
    instances = [await make_monque(options=QUICK).open() for _ in range(4)]
    for monque in instances:
        monque.worker("work", nothing, concurrency=10)

        @monque.worker("report")
        async def report(job):  # type: ignore[no-untyped-def]
            runs.append(job.data)

    labels = [f"batch-{number}" for number in range(40)]
    for label in labels:
        await instances[0].enqueue_many([NewJob("work", batch=label) for _ in range(5)])
    callbacks = await instances[0].enqueue_many([NewJob("report", each, after_batch=each) for each in labels])
    await asyncio.gather(*(monque.start() for monque in instances))
    for callback in callbacks:
        await instances[0].wait_for(callback, timeout=timedelta(minutes=2))

    assert sorted(runs) == sorted(labels)


async def nothing(job):  # type: ignore[no-untyped-def]
    """The work of a job of a batch."""
