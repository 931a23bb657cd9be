"""An event loop that stands still: who did it is named, and what it cost is noticed at once."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from pymongo.asynchronous.collection import AsyncCollection

from conftest import QUICK
from monque import Job, Monque, Observer
from support.jobs import document
from support.proxy import Proxy, command
from support.servers import Servers, failing
from support.waiting import Heard, eventually

Collection = AsyncCollection[dict[str, Any]]
Make = Callable[..., Monque]

VICTIM = "victim"
BLOCK = 1.6


class Stalls(Observer):
    def __init__(self) -> None:
        self.durations: list[timedelta] = []

    def stalled(self, duration: timedelta) -> None:
        self.durations.append(duration)


def told(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.message for record in caplog.records if "stood still" in record.message]


async def test_a_handler_that_blocks_the_loop_is_named_and_counted(
    collection: Collection, make_monque: Make, caplog: pytest.LogCaptureFixture
) -> None:
    monque = await make_monque().open()
    monque.observe(stalls := Stalls())
    heard = Heard(monque)
    may_end = asyncio.Event()

    @monque.worker("patient")
    async def patient(job: Job[None]) -> None:
        await may_end.wait()

    @monque.worker("in-a-thread")
    def in_a_thread(job: Job[None]) -> None:
        time.sleep(BLOCK)

    @monque.worker("blocks")
    async def blocks(job: Job[None]) -> None:
        time.sleep(BLOCK)  # noqa: ASYNC251 - that is the fault

    await monque.start()
    await monque.enqueue(patient)
    await monque.enqueue(in_a_thread)
    await heard.wait("job:start", 2)
    culprit = await monque.enqueue(blocks)
    await heard.wait("job:complete", 2)

    def is_told() -> None:
        assert told(caplog)

    await eventually(is_told)
    may_end.set()
    await heard.wait("job:complete", 3)

    [message] = told(caplog)
    assert f"blocks (job {culprit.id}, for 1.6 s)" in message
    assert "patient (job" in message
    assert "in-a-thread" not in message
    assert "`def`" in message
    [duration] = stalls.durations
    assert 1 < duration.total_seconds() < 10


async def test_a_loop_blocked_by_something_else_is_told_too(
    make_monque: Make, caplog: pytest.LogCaptureFixture
) -> None:
    monque = await make_monque().open()
    await monque.start()
    time.sleep(BLOCK)  # noqa: ASYNC251 - that is the fault

    def is_told() -> None:
        assert len(told(caplog)) == 1

    await eventually(is_told)
    assert "no async handler ran" in told(caplog)[0]


async def test_a_block_of_little_more_than_a_second_is_told_whenever_it_begins(
    make_monque: Make, caplog: pytest.LogCaptureFixture
) -> None:
    monque = await make_monque().open()
    for times in range(1, 4):
        await monque.start()
        await asyncio.sleep(0.03 * times)  # the watch has just begun
        time.sleep(1.2)  # noqa: ASYNC251 - that is the fault

        def is_told(times: int = times) -> None:
            assert len(told(caplog)) == times

        await eventually(is_told, within=2)
        await monque.stop()


async def test_what_was_lost_while_the_loop_stood_still_is_cancelled_at_once(
    host: Servers, collection: Collection, make_monque: Make
) -> None:
    """The next heartbeat is half a minute away; meanwhile two runs of the job would overlap."""
    assert QUICK.heartbeat_interval == timedelta(seconds=30)
    monque = await make_monque().open()
    heard = Heard(monque)
    cancelled = asyncio.Event()

    @monque.worker("innocent")
    async def innocent(job: Job[None]) -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.set()
            raise

    @monque.worker("blocks")
    async def blocks(job: Job[None]) -> None:
        with host.primary().client() as blocking:
            blocking[collection.database.name][collection.name].update_one(
                {"name": "innocent"},
                {"$set": {"claimedBy": "thief", "lostAttempt": 1}, "$inc": {"attempt": 1}},
            )
        time.sleep(BLOCK)  # noqa: ASYNC251 - that is the fault

    await monque.start()
    await monque.enqueue(innocent)
    await heard.wait("job:start")
    await monque.enqueue(blocks)
    [lost] = await heard.wait("job:lost", within=10)

    assert lost.job.name == "innocent"
    await asyncio.wait_for(cancelled.wait(), 5)
    await heard.wait("job:complete")
    await collection.delete_many({})


async def test_a_heartbeat_follows_at_once_also_if_one_was_under_way_when_the_loop_stood_still(
    proxy: Proxy, collection: Collection, make_monque: Make, caplog: pytest.LogCaptureFixture
) -> None:
    """That one was sent before, and says nothing about what happened meanwhile."""
    second = timedelta(seconds=1)
    options = replace(QUICK, heartbeat_interval=5 * second, heartbeat_tolerance=30 * second)
    monque = await make_monque(proxy.uri(collection.database.name), options=options).open()
    heard = Heard(monque)
    may_end = asyncio.Event()

    @monque.worker("work")
    async def work(job: Job[None]) -> None:
        await may_end.wait()

    await monque.start()
    await monque.enqueue(work)
    await heard.wait("job:start")
    under_way = proxy.hold(command("update"))
    await under_way.wait()
    time.sleep(BLOCK)  # noqa: ASYNC251 - that is the fault

    def is_told() -> None:
        assert told(caplog)

    await eventually(is_told)
    following = proxy.hold(command("update"))
    under_way.release()
    await following.wait(within=2.5)  # the interval is twice as long
    following.release()
    may_end.set()
    await heard.wait("job:complete")


async def test_a_heartbeat_that_failed_is_sent_again_soon(
    host: Servers, collection: Collection, make_monque: Make
) -> None:
    """Not after another interval of three seconds."""
    second = timedelta(seconds=1)
    options = replace(QUICK, heartbeat_interval=3 * second, heartbeat_tolerance=20 * second)
    monque = await make_monque(host.uri(collection.database.name, appName=VICTIM), options=options).open()
    heard = Heard(monque)
    may_end = asyncio.Event()

    @monque.worker("work")
    async def work(job: Job[None]) -> None:
        await may_end.wait()

    await monque.start()
    await collection.insert_one(document())
    await heard.wait("job:start")
    claimed = await collection.find_one()
    assert claimed is not None
    async with failing(collection.database.client, ["update"], app_name=VICTIM, times=2, errorCode=8):
        await heard.wait("job:error")

        async def has_beaten() -> None:
            assert await collection.count_documents({"lastHeartbeat": {"$gt": claimed["lastHeartbeat"]}}) == 1

        await eventually(has_beaten, within=1.5)
    may_end.set()
    await heard.wait("job:complete")
