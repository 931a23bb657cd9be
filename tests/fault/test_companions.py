"""Trends and the register are a service, never a condition: what they survive, and that jobs go on."""

from __future__ import annotations

import asyncio
import signal
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from monque import Monque, NewJob, Trends
from monque._ops.trends import HOUR, MINUTE
from support.aliases import Collection, Failing, Make
from support.options import QUICK
from support.programs.child import child
from support.proxy import Proxy
from support.servers import Servers
from support.waiting import eventually

OFTEN = replace(
    QUICK,
    trends=Trends(interval=timedelta(milliseconds=100)),
    register=True,
    heartbeat_interval=timedelta(milliseconds=200),
)
UNAUTHORIZED, OUT_OF_DISK_SPACE, TOO_SLOW = 13, 14031, 50
# The driver does not try again after this, and we do.
INTERRUPTED = 11601
WRITES = ["update", "findAndModify", "createIndexes", "insert", "aggregate"]
SUFFIXES = ("trends", "instances")


async def completed(monque: Monque) -> int:
    """How many completed jobs the trends of the last hour have."""
    now = monque.server_time()
    points = await monque.trends(since=now - HOUR, until=now + MINUTE, step=MINUTE)
    return sum(point.completed for point in points)


async def run(monque: Monque, jobs: int) -> None:
    await monque.enqueue_many([NewJob("work", None) for _ in range(jobs)])
    await monque.run_until_idle()


async def has_counted(monque: Monque, jobs: int) -> None:
    async def check() -> None:
        assert await completed(monque) == jobs

    await eventually(check)


@pytest.fixture
async def monque(victim: str, make_monque: Make) -> Monque:
    monque = await make_monque(victim, options=OFTEN, companions=True).open()
    monque.worker("work", lambda job: None)
    return monque


async def test_a_killed_process_loses_at_most_one_interval(
    host: Servers, collection: Collection, make_monque: Make
) -> None:
    """What has ended longer ago than an interval is counted, whatever comes then."""
    looking = await make_monque().open()
    async with child("counting_worker", host.uri(collection.database.name)) as worker:
        await worker.wait_for("open")
        await looking.enqueue_many([NewJob("work", None) for _ in range(100)])
        await has_counted(looking, 100)
        await looking.enqueue_many([NewJob("work", None) for _ in range(50)])

        async def all_ended() -> None:
            assert await collection.count_documents({"status": "completed"}) == 150

        await eventually(all_ended)
        worker.send(signal.SIGKILL)
        await worker.ends()

    assert 100 <= await completed(looking) <= 150

    async def silent() -> None:
        [instance] = await looking.instances()
        assert (instance.state, instance.alive) == ("running", False)

    looking = await make_monque(
        options=replace(
            QUICK, heartbeat_interval=timedelta(milliseconds=200), heartbeat_tolerance=timedelta(seconds=1)
        )
    ).open()
    await eventually(silent)


async def test_an_outage_loses_nothing(
    proxy: Proxy, make_monque: Make, collection: Collection, caplog: pytest.LogCaptureFixture
) -> None:
    uri = proxy.uri(collection.database.name, "serverSelectionTimeoutMS=200")
    monque = await make_monque(uri, options=OFTEN, companions=True).open()
    monque.worker("work", lambda job: None)
    await monque.start()
    await run(monque, 20)
    await proxy.cut()
    await asyncio.sleep(0.5)
    await proxy.restore()

    async def back() -> None:
        assert monque.is_healthy()

    await eventually(back)
    await run(monque, 30)
    await has_counted(monque, 50)
    assert monque.companions["trends"]
    assert "cannot be stored" not in caplog.text


async def test_a_flush_that_fails_is_merged_into_the_next(
    monque: Monque, collection: Collection, failing: Failing
) -> None:
    await monque.start()
    await run(monque, 1)
    await has_counted(monque, 1)
    trends = f"{collection.full_name}_trends"
    async with failing(["update"], namespace=trends, errorCode=INTERRUPTED):
        for _ in range(3):
            await run(monque, 10)
            await asyncio.sleep(0.15)
        assert await completed(monque) == 1
    await has_counted(monque, 31)


async def test_what_cannot_be_written_for_too_long_is_dropped_with_one_line(
    monque: Monque,
    collection: Collection,
    failing: Failing,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    await monque.start()
    trends = f"{collection.full_name}_trends"
    async with failing(["update", "createIndexes"], namespace=trends, errorCode=INTERRUPTED):
        await run(monque, 10)
        # Not before all of them are counted: the rest would be dropped apart, or written in the end.
        monkeypatch.setattr("monque._ops.trends.LONGEST_DELAY", timedelta(minutes=-2))

        def dropped() -> None:
            assert caplog.text.count("for too long and are lost") == 1

        await eventually(dropped)
    monkeypatch.undo()
    await run(monque, 5)
    await has_counted(monque, 5)


@pytest.mark.parametrize("code", [UNAUTHORIZED, OUT_OF_DISK_SPACE, TOO_SLOW])
@pytest.mark.parametrize("suffix", SUFFIXES)
async def test_refused_writes_turn_the_feature_off_with_one_line(
    monque: Monque,
    collection: Collection,
    failing: Failing,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    suffix: str,
    code: int,
) -> None:
    feature = {"instances": "register"}.get(suffix, suffix)

    def is_off() -> None:
        assert monque.companions == {"trends": True, "register": True, "audit": True, feature: False}

    async def goes_off() -> None:
        await run(monque, 1)
        is_off()

    async with failing(WRITES, namespace=f"{collection.full_name}_{suffix}", errorCode=code):
        await monque.start()
        await eventually(lambda: goes_off())
        await run(monque, 10)
        assert await collection.count_documents({"status": {"$ne": "completed"}}) == 0
        assert caplog.text.count("jobs go on") == 1
    # It rests for a while, and is tried again then.
    monkeypatch.setattr("monque._ops.companion._REST", 0)

    def is_on() -> None:
        assert monque.companions[feature]

    async def works_again() -> None:
        await run(monque, 1)
        is_on()

    await eventually(works_again)
    assert caplog.text.count("jobs go on") == 1


@pytest.mark.parametrize("suffix", SUFFIXES)
async def test_a_write_that_hangs_delays_neither_jobs_nor_the_stop(
    monque: Monque, collection: Collection, failing: Failing, suffix: str
) -> None:
    await monque.start()
    await run(monque, 1)
    await has_counted(monque, 1)
    hangs: dict[str, Any] = {"blockConnection": True, "blockTimeMS": 4_000}
    loop = asyncio.get_running_loop()
    async with failing(["update"], namespace=f"{collection.full_name}_{suffix}", times=1, **hangs):
        began = loop.time()
        await run(monque, 50)
        await monque.stop()
        took = loop.time() - began

    assert took < 3.5, "a stop waits a second for the last writes"
