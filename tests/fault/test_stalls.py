"""A blocked event loop: the log names the handler that blocked it, and lost claims are noticed at once."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from pymongo import AsyncMongoClient

from monque import Job, NewJob, Observer
from support.aliases import Collection, Database, Failing, Make
from support.jobs import document, find_one
from support.options import QUICK, WATCHFUL
from support.proxy import Proxy, Trap, command
from support.servers import Servers
from support.traffic import Traffic
from support.waiting import Events, eventually
from support.working import Pause

BLOCK = 1.6


class Stalls(Observer):
    def __init__(self) -> None:
        self.durations: list[timedelta] = []

    def stalled(self, duration: timedelta) -> None:
        self.durations.append(duration)


def logged(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.message for record in caplog.records if "stood still" in record.message]


async def test_a_handler_that_blocks_the_loop_is_named_and_counted(
    collection: Collection, make_monque: Make, caplog: pytest.LogCaptureFixture
) -> None:
    monque = await make_monque().open()
    monque.observe(stalls := Stalls())
    events = Events(monque)
    patient = monque.worker("patient", pause := Pause())

    @monque.worker("in-a-thread")
    def in_a_thread(job: Job[None]) -> None:
        time.sleep(BLOCK)

    @monque.worker("blocks")
    async def blocks(job: Job[None]) -> None:
        time.sleep(BLOCK)  # noqa: ASYNC251 - that is the fault

    await monque.start()
    await monque.enqueue(patient)
    await monque.enqueue(in_a_thread)
    await events.wait("job:start", 2)
    culprit = await monque.enqueue(blocks)
    await events.wait("job:complete", 2)

    def is_logged() -> None:
        assert logged(caplog)

    await eventually(is_logged)
    pause.go_on.set()
    await events.wait("job:complete", 3)

    [message] = logged(caplog)
    assert f"blocks (job {culprit.id}, for 1.6 s)" in message
    assert "patient (job" in message
    assert "in-a-thread" not in message
    assert "`def`" in message
    [duration] = stalls.durations
    assert 1 < duration.total_seconds() < 10


async def test_a_loop_blocked_by_other_code_is_logged_too(
    make_monque: Make, caplog: pytest.LogCaptureFixture
) -> None:
    monque = await make_monque().open()
    await monque.start()
    time.sleep(BLOCK)  # noqa: ASYNC251 - that is the fault

    def is_logged() -> None:
        assert len(logged(caplog)) == 1

    await eventually(is_logged)
    assert "no async handler ran" in logged(caplog)[0]


async def test_a_block_of_little_more_than_a_second_is_logged_whenever_it_begins(
    make_monque: Make, caplog: pytest.LogCaptureFixture
) -> None:
    monque = await make_monque().open()
    for times in range(1, 4):
        await monque.start()
        await asyncio.sleep(0.03 * times)  # the watch has just begun
        time.sleep(1.2)  # noqa: ASYNC251 - that is the fault

        def is_logged(times: int = times) -> None:
            assert len(logged(caplog)) == times

        await eventually(is_logged)
        await monque.stop()


async def test_a_job_lost_while_the_loop_was_blocked_is_cancelled_at_once(
    host: Servers, collection: Collection, make_monque: Make
) -> None:
    """The next heartbeat is half a minute away; meanwhile two runs of the job would overlap."""
    assert QUICK.heartbeat_interval == timedelta(seconds=10)
    monque = await make_monque().open()
    events = Events(monque)
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
    await events.wait("job:start")
    await monque.enqueue(blocks)
    [lost] = await events.wait("job:lost", within=10)

    assert lost.job.name == "innocent"
    await asyncio.wait_for(cancelled.wait(), 5)
    await events.wait("job:complete")
    await collection.delete_many({})


async def test_a_heartbeat_follows_at_once_even_if_one_was_under_way_when_the_loop_was_blocked(
    proxy: Proxy, collection: Collection, make_monque: Make, caplog: pytest.LogCaptureFixture
) -> None:
    """That one was sent before, and says nothing about what happened meanwhile."""
    second = timedelta(seconds=1)
    options = replace(QUICK, heartbeat_interval=5 * second, heartbeat_tolerance=30 * second)
    monque = await make_monque(proxy.uri(collection.database.name), options=options).open()
    events = Events(monque)
    work = monque.worker("work", pause := Pause())
    await monque.start()
    await monque.enqueue(work)
    await events.wait("job:start")
    under_way = proxy.hold(command("update"))
    await under_way.wait()
    time.sleep(BLOCK)  # noqa: ASYNC251 - that is the fault

    def is_logged() -> None:
        assert logged(caplog)

    await eventually(is_logged)
    following = proxy.hold(command("update"))
    under_way.release()
    await following.wait(within=2.5)  # the interval is twice as long
    following.release()
    pause.go_on.set()
    await events.wait("job:complete")


async def test_a_heartbeat_that_failed_is_sent_again_soon(
    victim: str, failing: Failing, collection: Collection, make_monque: Make
) -> None:
    """Not after another interval of three seconds."""
    second = timedelta(seconds=1)
    options = replace(QUICK, heartbeat_interval=3 * second, heartbeat_tolerance=20 * second)
    monque = await make_monque(victim, options=options).open()
    events = Events(monque)
    monque.worker("work", pause := Pause())
    await monque.start()
    await collection.insert_one(document())
    await events.wait("job:start")
    claimed = await find_one(collection)
    async with failing(["update"], times=2, errorCode=8):
        await events.wait("job:error")

        async def has_beaten() -> None:
            assert await collection.count_documents({"lastHeartbeat": {"$gt": claimed["lastHeartbeat"]}}) == 1

        await eventually(has_beaten, within=1.5)
    pause.go_on.set()
    await events.wait("job:complete")


def reads_pauses(message: bytes) -> bool:
    """Match the reading of the control document."""
    return command("find")(message) and b"_control" in message


async def test_a_job_that_expires_while_its_claim_is_checked_before_its_start_is_not_run(
    proxy: Proxy, collection: Collection, make_monque: Make
) -> None:
    """Two jobs are claimed together; the first handler blocks the event loop, so the second is checked again.

    It has not expired when its turn comes, but has when the database answers.
    """
    monque = await make_monque(proxy.uri(collection.database.name), options=WATCHFUL).open()
    ran: list[str] = []
    traps: list[Trap] = []
    expires_at = datetime.now(UTC) + timedelta(seconds=3)

    @monque.worker("work")
    async def work(job: Job[str]) -> None:
        ran.append(job.data)
        if job.data == "blocks":
            time.sleep((expires_at - datetime.now(UTC)).total_seconds() - 0.8)  # noqa: ASYNC251 - the fault
            traps.append(proxy.hold(reads_pauses))

    await collection.insert_many(
        [document(data="blocks"), document(data="waits", policy={"expiresAt": expires_at})]
    )
    events = Events(monque)
    await monque.start()
    await events.wait("job:complete")
    await traps[0].wait()
    assert datetime.now(UTC) < expires_at, "it had expired before its turn came"
    await asyncio.sleep((expires_at - datetime.now(UTC)).total_seconds() + 0.1)
    traps[0].release()
    [cancelled] = await events.wait("job:cancelled")

    assert (cancelled.job.data, cancelled.job.cancelled_by) == ("waits", "expiry")
    assert ran == ["blocks"]


async def test_after_a_block_hundreds_of_jobs_ask_together_whether_they_are_still_ours(
    host: Servers, database: Database, make_monque: Make
) -> None:
    """One of 200 claimed jobs blocks the loop until what is known of pauses is too old for the others.

    A loop that stands still has much to do, and often its database, too: a heartbeat for each would be more.
    """
    traffic = Traffic("update")
    async with AsyncMongoClient[dict[str, Any]](host.uri(), event_listeners=[traffic]) as client:
        options = replace(QUICK, worker_concurrency=200)
        monque = await make_monque(client[database.name], options=options).open()
        events = Events(monque)

        @monque.worker("one-blocks")
        async def one_blocks(job: Job[int]) -> None:
            if job.data == 0:
                time.sleep(2)  # noqa: ASYNC251 - that is the fault

        await monque.enqueue_many([NewJob(one_blocks, number) for number in range(200)])
        await monque.start()
        await events.wait("job:complete", 200)
        await monque.close()

    statements = [command["updates"][0] for command in traffic.commands]
    beats = [
        each for each in statements if "lastHeartbeat" in str(each["u"]) and "status" not in str(each["u"])
    ]
    assert 1 <= len(beats) <= 10
