"""Worker processes that die or hang in the middle of a job."""

from __future__ import annotations

import asyncio
import logging
import signal
from collections import Counter
from contextlib import AsyncExitStack
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from monque import JobError
from support.aliases import Collection, Failing, Make
from support.clocks import ago, now
from support.jobs import claimed, document, find_one, only
from support.options import QUICK
from support.programs.child import child
from support.servers import Servers
from support.waiting import Events, eventually

# As in the program: a second of silence is death.
WATCHFUL = replace(
    QUICK,
    heartbeat_interval=timedelta(milliseconds=200),
    heartbeat_tolerance=timedelta(seconds=1),
    max_retries=2,
)


@pytest.fixture
def uri(host: Servers, collection: Collection) -> str:
    return host.uri(collection.database.name)


async def survivor(make_monque: Make, name: str) -> Events:
    """An instance in this process that does the job of a dead one."""
    monque = await make_monque(options=WATCHFUL).open()
    monque.worker(name, lambda job: None)
    events = Events(monque)
    await monque.start()
    return events


async def test_another_process_runs_the_job_of_a_killed_one(
    uri: str, collection: Collection, make_monque: Make
) -> None:
    await collection.insert_one(document(name="endless"))
    async with child("fault_worker", uri) as victim:
        await victim.wait_for("job:start endless")
        events = await survivor(make_monque, "endless")
        victim.send(signal.SIGKILL)
        await victim.ends()
        [completed] = await events.wait("job:complete")

    assert completed.job.attempt == 2
    assert sum(event.count for event in events.of("stale:recovered")) == 1
    assert (await only(collection))["status"] == "completed"


async def test_a_process_that_hung_for_too_long_finds_its_claim_lost(
    uri: str, collection: Collection, make_monque: Make
) -> None:
    """While it hangs, another instance does its job; back again, it stops and changes nothing."""
    await collection.insert_one(document(name="endless"))
    async with child("fault_worker", uri) as victim:
        await victim.wait_for("job:start endless")
        events = await survivor(make_monque, "endless")
        victim.send(signal.SIGSTOP)
        await events.wait("job:complete")
        done = await only(collection)
        victim.send(signal.SIGCONT)
        await victim.wait_for("job:lost endless")
        await victim.wait_for("cancelled")
        victim.send(signal.SIGTERM)
        assert await victim.ends() == 0

    assert "job:complete endless" not in victim.said
    assert (await only(collection)) == done


@pytest.mark.parametrize("way", ["exits", "killed"])
async def test_a_job_that_kills_its_process_is_failed_for_good(
    uri: str, collection: Collection, way: str
) -> None:
    """Two processes are allowed to die of it; the third gives it up and lives to do the next job."""
    await collection.insert_one(document(name=way))
    for _ in range(2):
        async with child("fault_worker", uri) as victim:
            await victim.wait_for(f"job:start {way}")
            assert await victim.ends() != 0
    async with child("fault_worker", uri) as third:
        await third.wait_for("stale:recovered")
        await collection.insert_one(document(name="quick"))
        await third.wait_for("job:complete quick")
        third.send(signal.SIGTERM)
        assert await third.ends() == 0

    poison = await find_one(collection, {"name": way})
    assert poison["status"] == "failed"
    assert "process died 2 time" in poison["failReason"]
    assert (poison["failCount"], poison["attempt"], poison["crashCount"]) == (0, 2, 2)


async def test_a_schedule_that_kills_its_process_goes_on_and_keeps_the_failed_run(
    uri: str, collection: Collection, make_monque: Make
) -> None:
    schedule = document(
        name="exits", repeatInterval="0 0 1 1 *", timezone="UTC", uniqueKey="yearly", crashCount=1
    )
    await collection.insert_one(schedule)
    async with child("fault_worker", uri) as victim:
        await victim.wait_for("job:start exits")
        assert await victim.ends() != 0
    events = await survivor(make_monque, "exits")
    await events.wait("stale:recovered")

    after = await find_one(collection, {"_id": schedule["_id"]})
    assert (after["status"], after["failCount"]) == ("pending", 0)
    assert after["nextRunAt"] > now()
    assert "crashCount" not in after
    [kept] = await collection.find({"scheduleId": schedule["_id"]}).to_list()
    assert kept["status"] == "failed"
    assert "process died 2 time" in kept["failReason"]
    assert events.of("job:start") == []


async def test_killing_processes_in_the_middle_of_their_work_loses_no_job(
    uri: str, collection: Collection
) -> None:
    """Of three that share the work, two are killed and not replaced."""
    async with AsyncExitStack() as running:
        workers = [await running.enter_async_context(child("fault_worker", uri)) for _ in range(3)]
        await asyncio.gather(*(worker.wait_for("changestream:connected") for worker in workers))
        await collection.insert_many([document(name="quick") for _ in range(600)])

        async def done(count: int) -> None:
            by_status = Counter([job["status"] async for job in collection.find()])
            assert by_status["completed"] >= count, by_status

        await eventually(lambda: done(60))
        for victim in workers[:2]:
            victim.send(signal.SIGKILL)
        await eventually(lambda: done(600), within=40)

    assert sum(worker.said.count("job:complete quick") for worker in workers) <= 600


def abandoned(number: int, **fields: Any) -> dict[str, Any]:
    return claimed("dead", data=number, lastHeartbeat=ago(hours=1), heartbeatInterval=100, **fields)


@pytest.mark.parametrize("times", [1, None], ids=["once", "always"])
@pytest.mark.parametrize("count", [5, 30], ids=["one by one", "in one write"])
async def test_a_server_that_is_slow_is_no_reason_to_leave_jobs_of_dead_owners(
    victim: str,
    failing: Failing,
    collection: Collection,
    make_monque: Make,
    caplog: pytest.LogCaptureFixture,
    times: int | None,
    count: int,
) -> None:
    """Three tenths of a second for a write are as long as an owner's heartbeats are apart here."""
    await collection.insert_many(abandoned(number, crashCount=5 * (number == 0)) for number in range(count))
    events: list[JobError] = []
    monque = make_monque(victim, options=WATCHFUL)
    monque.on(JobError, events.append)
    commands = ["findAndModify", "update", "ping"]
    async with failing(commands, times=times, blockConnection=True, blockTimeMS=300):
        await monque.open()

    states = Counter([job["status"] async for job in collection.find()])
    assert states == {"pending": count - 1, "failed": 1}
    assert events == []
    assert [record.getMessage() for record in caplog.records if "cannot be changed" in record.msg] == []


async def test_a_job_in_an_open_transaction_is_left_for_later_with_the_reason_and_the_others_are_not(
    collection: Collection, make_monque: Make, caplog: pytest.LogCaptureFixture
) -> None:
    await make_monque().open()  # the server does not create indexes beside an open transaction
    jobs = [abandoned(number) for number in range(20)]
    await collection.insert_many(jobs)
    async with collection.database.client.start_session() as session, await session.start_transaction():
        await collection.update_one({"_id": jobs[3]["_id"]}, {"$set": {"data": "changed"}}, session=session)
        monque = await make_monque(options=WATCHFUL).open()

        assert await collection.count_documents({"status": "pending"}) == 19
        await monque.start()

        def told() -> None:
            lines = [each.getMessage() for each in caplog.records if each.levelno >= logging.ERROR]
            assert lines == [
                f"job {jobs[3]['_id']} of a dead owner cannot be changed and is left as it is: "
                "a transaction that is open has changed it"
            ]

        await eventually(told)
        await session.abort_transaction()
