"""Clocks that are wrong or jump: only the server's time counts.

That a client an hour ahead or behind does everything at the right time is shown by
`test_an_instance_with_a_wrong_clock_does_everything_at_the_right_time` among the user stories.
"""

from __future__ import annotations

import signal
from datetime import datetime, timedelta
from typing import Any

import pytest

from support.aliases import Collection
from support.clocks import ahead, now
from support.jobs import claimed, document, find_one
from support.programs.child import child
from support.servers import Servers
from support.waiting import eventually

# What a loaded machine may add to any of the times below.
SLACK = timedelta(seconds=20)


@pytest.fixture
def uri(host: Servers, collection: Collection) -> str:
    return host.uri(collection.database.name)


async def stored(collection: Collection, **query: Any) -> dict[str, Any]:
    return await find_one(collection, query)


@pytest.mark.parametrize("jumps", [(1, -2), (-1, 2), (24 * 400,), (-24 * 400,)], ids=repr)
async def test_a_clock_that_jumps_during_a_run_changes_nothing(
    uri: str, collection: Collection, jumps: tuple[int, ...]
) -> None:
    """A job runs and beats, another is due later, one belongs to another live instance."""
    later = document(name="work", data="later", nextRunAt=ahead(minutes=30))
    live = claimed("another", data="live", lastHeartbeat=ahead(seconds=60))
    await collection.insert_many([later, live, document(name="long")])
    async with child("jumping_worker", uri) as worker:
        await worker.wait_for("job:start")
        for hours in jumps:
            worker.write(f"jump {hours}")
        await worker.wait_for("did jump")
        before = await stored(collection, name="long")

        async def beats() -> dict[str, Any]:
            beaten = await stored(collection, name="long")
            assert beaten["lastHeartbeat"] > before["lastHeartbeat"] + timedelta(milliseconds=400)
            return beaten

        beaten = await eventually(beats)
        worker.write("store work 0")
        worker.write("store made 1800")
        worker.write("store fails 0")
        await worker.wait_for("job:complete")
        await worker.wait_for("job:fail")
        worker.write("let go")
        worker.send(signal.SIGTERM)
        assert await worker.ends() == 0, worker.complaints

    assert about_now(beaten["lastHeartbeat"])
    assert await stored(collection, _id=later["_id"]) == later
    assert await stored(collection, _id=live["_id"]) == live
    made = await stored(collection, name="made")
    assert about_now(made["createdAt"])
    assert made["nextRunAt"] - made["createdAt"] == timedelta(minutes=30)
    long = await stored(collection, name="long")
    assert (long["status"], long["attempt"]) == ("completed", 1)
    assert about_now(long["updatedAt"])
    assert timedelta(0) <= long["finishedAt"] - long["startedAt"] < SLACK
    failed = await stored(collection, name="fails")
    assert abs(failed["nextRunAt"] - failed["updatedAt"] - timedelta(seconds=200)) < timedelta(seconds=1)
    assert "ran later" not in worker.said


@pytest.mark.parametrize("hours", [1, -1])
async def test_a_job_of_the_near_future_runs_at_its_time_although_the_clock_jumps_while_it_waits(
    uri: str, collection: Collection, hours: int
) -> None:
    async with child("jumping_worker", uri) as worker:
        await worker.wait_for("changestream:connected")
        worker.write("store work 2")
        await worker.wait_for("did store")
        worker.write(f"jump {hours}")
        await worker.wait_for("job:complete")
        worker.send(signal.SIGTERM)
        assert await worker.ends() == 0, worker.complaints

    ran = await stored(collection, name="work")
    assert timedelta(0) <= ran["startedAt"] - ran["nextRunAt"] + timedelta(milliseconds=5) < SLACK


@pytest.mark.parametrize("asleep", [False, True])
@pytest.mark.parametrize("hours", [1, -1])
async def test_a_sleep_lasts_as_long_as_it_should_although_the_clock_jumps(
    uri: str, collection: Collection, hours: int, asleep: bool
) -> None:
    """Its beginning, its end and the stamp of the claim that passes it are the server's."""
    async with child("jumping_worker", uri) as worker:
        await worker.wait_for("changestream:connected")
        orders = ["store naps 0", f"jump {hours}"] if asleep else [f"jump {hours}", "store naps 0"]
        for order in orders:
            worker.write(order)
            await worker.wait_for(f"did {order.split()[0]}")
        await worker.wait_for("job:waiting")
        await worker.wait_for("job:complete")
        worker.send(signal.SIGTERM)
        assert await worker.ends() == 0, worker.complaints

    slept = await stored(collection, name="naps")
    [nap] = slept["steps"]
    assert nap["until"] - nap["at"] == timedelta(seconds=2)
    assert slept["attempt"] == 2
    assert about_now(nap["at"])
    assert nap["until"] <= slept["finishedAt"] + timedelta(milliseconds=50)
    assert slept["finishedAt"] - nap["until"] < SLACK


def about_now(stamp: datetime) -> bool:
    return abs(stamp - now()) < SLACK
