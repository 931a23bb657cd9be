"""Limits over processes that are killed and stopped: never one job too many, and nothing is left behind."""

from __future__ import annotations

import asyncio
import random
import signal
import time
from contextlib import AsyncExitStack
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from monque import Job, Limit, NewJob, Rate
from support.aliases import Collection, Make
from support.crowds import Stay, crowds, hasty
from support.jobs import statuses
from support.options import QUICK, WATCHFUL
from support.programs.child import Child, child
from support.proxy import Proxy
from support.scale import FULL, at_scale
from support.servers import Servers, failing
from support.waiting import Events, eventually, reaches


@pytest.fixture
def uri(host: Servers, collection: Collection) -> str:
    return host.uri(collection.database.name)


def stays(said: list[str], killed_at: float) -> list[Stay]:
    """The runs of a process that was killed: one that did not end ended with it."""
    begins = {tuple(line.split()[1:3]): float(line.split()[3]) for line in said if line.startswith("begins")}
    ends = {tuple(line.split()[1:3]): float(line.split()[3]) for line in said if line.startswith("ends")}
    return [Stay("work", since, ends.get(run, killed_at), run) for run, since in begins.items()]


@pytest.mark.timeout(at_scale(590, 120))
@pytest.mark.parametrize("limit", [1, 2, 7] if FULL else [2])
@pytest.mark.usefixtures("brief_transactions")  # one that dies within its recovery leaves one open
async def test_processes_that_are_killed_never_run_one_too_many(
    uri: str, make_monque: Make, collection: Collection, limit: int
) -> None:
    # For ten minutes, and by key: test_killed_lines.py.
    processes, seconds, jobs = (20, 60.0, 500 * limit) if FULL else (3, 1.0, 60)
    monque = await make_monque().open()
    await monque.enqueue_many([NewJob("work") for _ in range(jobs)])
    runs: list[Stay] = []
    until = time.monotonic() + seconds
    async with AsyncExitStack() as stack:

        async def one() -> Child:
            return await stack.enter_async_context(child("limited_worker", uri, str(limit), "0.02", "60"))

        workers = [await one() for _ in range(processes)]
        for worker in workers:
            await worker.wait_for("started", within=120)
        while time.monotonic() < until:
            victim = workers.pop(0)
            known = len(victim.said)
            await eventually(lambda each=victim, was=known: _grows(each, was), within=60)
            killed_at = time.monotonic()  # before the signal: what it did later is not counted
            victim.send(signal.SIGKILL)
            await victim.ends()
            runs += stays(victim.said, killed_at)
            workers.append(await one())

        async def done() -> int:
            return (await statuses(collection))["completed"]

        await reaches(done, jobs)
        for worker in workers:
            runs += stays(worker.said, time.monotonic())
    assert list(crowds(runs, limit)) == []
    assert await collection.count_documents({"turn": {"$exists": True}}) == 0


def _grows(worker: Child, was: int) -> None:
    """It has said something since, or there is nothing left to do for it."""
    assert len(worker.said) > was or worker.has_ended or random.random() < 0.02


async def test_a_process_that_stood_still_for_too_long_takes_nobody_s_turn(
    uri: str, make_monque: Make, collection: Collection
) -> None:
    """Its job is recovered, and so is its turn. When it wakes up, it settles nothing."""
    monque = await make_monque(options=WATCHFUL).open()
    at_once: list[int] = []
    running = 0

    async def work(job: Job[Any]) -> None:
        nonlocal running
        running += 1
        at_once.append(running)
        await asyncio.sleep(0.01)
        running -= 1

    monque.worker("work", work, limit=1, concurrency=5)
    events = Events(monque)
    async with child("limited_worker", uri, "1", "0.01", "1") as stopped:
        await stopped.wait_for("started", within=120)
        first = await monque.enqueue("work", 3600.0)
        await eventually(lambda: _has_begun(stopped), within=60)
        stopped.send(signal.SIGSTOP)
        await monque.enqueue_many([NewJob("work", 0.0) for _ in range(5)])
        await monque.start()
        await events.wait("job:complete", 6, within=60)
        done = await collection.find_one({"_id": first.id})
        await monque.stop()
        stopped.send(signal.SIGCONT)
        await stopped.wait_for("job:lost work", within=60)
        last = await monque.enqueue("work", 0.0)
        await stopped.wait_for("job:complete work", within=60)

    assert max(at_once) == 1
    assert await collection.find_one({"_id": first.id}) == done
    assert (await monque.get_job(last.id)).status == "completed"  # type: ignore[union-attr]


def _has_begun(worker: Child) -> None:
    assert any(line.startswith("begins") for line in worker.said)


@pytest.mark.skipif(
    not FULL, reason="takes a minute of all cores; instances of one process are in test_limits.py"
)
async def test_twenty_processes_start_no_more_in_any_stretch_of_time_than_the_rate(
    uri: str, make_monque: Make, collection: Collection
) -> None:
    monque = await make_monque().open()
    await monque.enqueue_many([NewJob("work") for _ in range(1_000)])
    async with AsyncExitStack() as stack:
        rated = [child("limited_worker", uri, "20/1.0", "0.001", "60") for _ in range(20)]
        workers = [await stack.enter_async_context(each) for each in rated]

        async def done() -> int:
            return (await statuses(collection))["completed"]

        await reaches(done, 1_000)
        said = [line.split() for worker in workers for line in worker.said if line.startswith("starts")]
    starts = [(float(claimed), float(line)) for _, claimed, line in said]
    assert len(starts) >= 1_000
    assert hasty(starts, 20, 1.0) == []


async def test_a_rate_holds_over_processes_whose_clocks_are_an_hour_off(
    uri: str, make_monque: Make, collection: Collection
) -> None:
    monque = await make_monque().open()
    await monque.enqueue_many([NewJob("work") for _ in range(30)])
    async with AsyncExitStack() as stack:
        rated = [child("limited_worker", uri, "10/1.0", "0.001", "60", hours) for hours in ("1", "-1", "0")]
        workers = [await stack.enter_async_context(each) for each in rated]

        async def done() -> int:
            return (await statuses(collection))["completed"]

        await reaches(done, 30)
        said = [line.split() for worker in workers for line in worker.said if line.startswith("starts")]
    starts = [(float(claimed), float(line)) for _, claimed, line in said]
    assert len(starts) >= 30
    assert hasty(starts, 10, 1.0) == []


async def test_an_ask_whose_answer_is_lost_wastes_starts_and_adds_none(
    proxy: Proxy, make_monque: Make, collection: Collection
) -> None:
    per, starts = timedelta(seconds=1), list[tuple[datetime, datetime]]()

    async def work(job: Job[int]) -> None:
        assert job.claimed_at is not None
        starts.append((job.claimed_at, datetime.now(UTC)))

    options = replace(QUICK, heartbeat_interval=timedelta(milliseconds=200))
    monque = await make_monque(proxy.uri(collection.database.name), options=options).open()
    monque.worker("work", work, limit=Limit(2, rate=Rate(5, per)))
    trap = proxy.lose_answer(lambda message: b"starts" in message and b"findAndModify" in message)
    await monque.enqueue_many([NewJob("work", number) for number in range(12)])
    await monque.start()
    await trap.wait()

    async def count() -> int:
        return len(starts)

    await reaches(count, 12)
    assert hasty([(claim.timestamp(), line.timestamp()) for claim, line in starts], 5, 1.0) == []


@pytest.mark.parametrize("by", [{}, {"by": "key"}], ids=["whole name", "by key"])
async def test_jobs_of_a_short_rate_start_although_answers_come_late(
    host: Servers, make_monque: Make, collection: Collection, by: dict[str, Any]
) -> None:
    """Each answer takes twice as long as a start may wait on a quick server."""
    database, starts = collection.database, list[tuple[float, float]]()

    async def work(job: Job[Any]) -> None:
        assert job.claimed_at is not None
        starts.append((job.claimed_at.timestamp(), datetime.now(UTC).timestamp()))

    monque = await make_monque(host.uri(database.name, appName="slow")).open()
    monque.worker("work", work, limit=Limit(5, rate=Rate(3, timedelta(seconds=1)), **by))
    await monque.enqueue_many([NewJob("work", {"key": number % 2}) for number in range(8)])
    how = {"namespace": f"{collection.full_name}_control", "blockConnection": True, "blockTimeMS": 200}
    async with failing(database.client, ["findAndModify"], app_name="slow", **how):
        await monque.start()

        async def count() -> int:
            return len(starts)

        await reaches(count, 8)
    assert by or hasty(starts, 3, 1.0) == []


async def test_a_take_whose_answer_is_lost_leaves_no_turn_behind(
    proxy: Proxy, make_monque: Make, collection: Collection
) -> None:
    monque = await make_monque(proxy.uri(collection.database.name), options=QUICK).open()
    events = Events(monque)
    monque.worker("work", lambda job: None, limit=1)
    trap = proxy.lose_answer(lambda message: b"slot" in message and b"$literal" in message)
    await monque.enqueue_many([NewJob("work", number) for number in range(3)])
    await monque.start()
    await trap.wait()
    await events.wait("job:complete", 3, within=60)

    async def none_left() -> None:
        assert await collection.count_documents({"turn": {"$exists": True}}) == 0

    await eventually(none_left)
