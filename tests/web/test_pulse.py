"""The pulse on a real database: what it reads, for whom, and when."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import ExitStack
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from pymongo import AsyncMongoClient

from monque import Monque, Options
from monque.embedded import EmbeddedMongo
from monque.web.live.broadcast import Message
from monque.web.live.pulse import Listener, Pulse
from support.aliases import Collection, Database, Make
from support.jobs import document
from support.options import QUICK
from support.traffic import Traffic
from support.waiting import eventually

TICK = timedelta(milliseconds=50)


@pytest.fixture
def traffic() -> Traffic:
    return Traffic()


@pytest.fixture
async def looked_at(
    server: EmbeddedMongo, database: Database, make_monque: Make, traffic: Traffic
) -> AsyncIterator[Monque]:
    """A Monque that runs nothing; its client is watched."""
    async with AsyncMongoClient(server.uri, tz_aware=True, event_listeners=[traffic]) as client:
        options = replace(QUICK, uses=("failures",))
        monque = await make_monque(client[database.name], options=options).open()
        traffic.clear()
        yield monque
        await monque.close()


@pytest.fixture
async def pulse(looked_at: Monque) -> AsyncIterator[Pulse]:
    pulse = Pulse(looked_at, tick=TICK)
    yield pulse
    await pulse.close()


async def heard(listener: Listener) -> list[Message]:
    messages = await listener.next(within=20)
    assert messages, "nothing came"
    return messages


async def one(listener: Listener) -> Message:
    (message,) = await heard(listener)
    return message


async def test_nobody_listens_and_nothing_is_read(pulse: Pulse, traffic: Traffic) -> None:
    with pulse.listen() as listener:
        await one(listener)
    await pulse.close()  # a read that was under way has ended
    traffic.clear()
    await asyncio.sleep(3 * TICK.total_seconds())

    assert traffic.sent == {}


async def test_a_client_sees_jobs_come_and_go(pulse: Pulse, looked_at: Monque) -> None:
    with pulse.listen() as listener:
        first = await one(listener)
        job = await looked_at.enqueue("send-email", {})
        assert (first.event, first.data["names"]) == ("snapshot", [])

        delta = await until(listener, "send-email")
        assert (delta.event, delta.data["names"][0][:4]) == ("delta", ("send-email", 1, 0, 0))
        assert delta.data["totals"]["due"] == 1

        await looked_at.delete_job(job.id)
        while "send-email" not in (message := await one(listener)).data["gone"]:
            assert message.event == "delta"


async def until(listener: Listener, name: str) -> Message:
    while True:
        message = await one(listener)
        if any(row[0] == name for row in message.data["names"]):
            return message


async def test_two_hundred_listeners_cost_as_much_as_one(pulse: Pulse, traffic: Traffic) -> None:
    """A tick in which what changes slowly is read, and nine without it."""

    async def ten_ticks(*listeners: Listener) -> dict[str, int]:
        """What was sent for ticks 2 to 11."""
        for _ in range(11):
            messages = [message for each in listeners for message in await heard(each)]
            assert len({id(message) for message in messages}) == 1
            if messages[0].seq == 1:
                traffic.clear()
        return dict(traffic.sent)

    with pulse.listen() as listener:
        alone = await ten_ticks(listener)
    await pulse.close()
    fresh = Pulse(pulse._monque, tick=TICK)
    with ExitStack() as stack:
        together = await ten_ticks(*(stack.enter_context(fresh.listen()) for _ in range(200)))
    await fresh.close()

    # The driver or the clock may have asked for something of their own meanwhile.
    assert sum(together.values()) <= sum(alone.values()) + 3
    assert sum(alone.values()) <= 10 * 6 + 2 + 3


async def test_ticks_are_numbered_without_a_gap(pulse: Pulse) -> None:
    with pulse.listen() as listener:
        numbers = [(await one(listener)).seq for _ in range(6)]

    assert numbers == [1, 2, 3, 4, 5, 6]


async def test_a_client_comes_back_within_the_ring_though_nobody_listened_meanwhile(
    pulse: Pulse, looked_at: Monque
) -> None:
    with pulse.listen() as listener:
        seen = await one(listener)
    await looked_at.enqueue("send-email", {})
    with pulse.listen(last_seen=f"{pulse.epoch}-{seen.seq}") as listener:
        message = await one(listener)

    assert (message.event, [row[0] for row in message.data["names"]]) == ("delta", ["send-email"])


async def test_an_action_is_told_at_once(pulse: Pulse) -> None:
    """Not with the next tick, which may be far away."""
    slow = Pulse(pulse._monque, tick=timedelta(minutes=1))
    with slow.listen() as ada, slow.listen(with_actor=False) as bob:
        await one(ada)
        await one(bob)
        slow.announce(action="retry", outcome="done", actor="eve", job_id="6" * 24, note="again")
        told, told_less = await one(ada), await one(bob)
    await slow.close()

    assert told.event == told_less.event == "action"
    assert told.data["actor"] == "eve"
    assert {key: value for key, value in told_less.data.items() if key != "at"} == {
        "via": "web",
        "action": "retry",
        "words": "retry",
        "outcome": "done",
        "jobId": "6" * 24,
    }
    assert set(told.data) - set(told_less.data) == {"actor", "note"}


async def test_who_acts_sees_the_counts_that_are_read_seldom_anew(
    pulse: Pulse, collection: Collection
) -> None:
    await pulse._monque.begin_use("failures")
    await collection.insert_many([document(name="work", status="failed") for _ in range(3)])
    assert (await pulse.look()).totals["failed"] == 3
    await collection.update_one({"status": "failed"}, {"$set": {"status": "pending"}})
    pulse.announce(action="retry", outcome="done", actor="eve")
    assert (await pulse.look()).totals["failed"] == 2
    await collection.delete_one({"status": "failed"})
    pulse.touch()

    assert (await pulse.look()).totals["failed"] == 1


async def test_an_action_is_told_by_all_pulses_of_the_instance(pulse: Pulse, make_monque: Make) -> None:
    """A program may have two dashboards: one for everybody, one for operators."""
    slow, other = (Pulse(pulse._monque, tick=timedelta(minutes=1)) for _ in range(2))
    stranger = Pulse(await make_monque().open(), tick=timedelta(minutes=1))
    with slow.listen() as ada, stranger.listen() as bob:
        await one(ada)
        await one(bob)
        other.announce(action="retry", outcome="done", actor="eve")
        assert (await one(ada)).data["action"] == "retry"
        assert bob._take() == []
    await slow.close()
    await stranger.close()


async def test_equal_looks_are_one(pulse: Pulse, traffic: Traffic) -> None:
    slow = Pulse(pulse._monque, tick=timedelta(minutes=1))
    first, *others = await asyncio.gather(*(slow.look() for _ in range(20)))
    sent = traffic.sent["aggregate"]

    assert all(other is first for other in others)
    assert await slow.look() is first
    assert traffic.sent["aggregate"] == sent


async def test_a_look_after_an_action_is_a_fresh_one(pulse: Pulse, looked_at: Monque) -> None:
    slow = Pulse(looked_at, tick=timedelta(minutes=1))
    before = await slow.look()
    await looked_at.enqueue("send-email", {})
    slow.announce(action="enqueue", outcome="done", actor="eve")

    assert "send-email" not in before.rows
    assert "send-email" in (await slow.look()).rows


async def test_the_register_and_the_trends_are_shown(
    make_monque: Make, pulse: Pulse, database: Database
) -> None:
    def handler(job: Any) -> None: ...

    working = await make_monque(options=Options(), companions=True).open()
    working.worker("send-email", handler, concurrency=7)
    await working.enqueue("send-email", {})
    await working.start()
    with pulse.listen() as listener:

        async def shows() -> None:
            snapshot = await pulse.look()
            assert [each["id"] for each in snapshot.instances.values()] == [working.instance_id]
            assert snapshot.rows["send-email"][10] == 7

        await one(listener)
        await eventually(shows)
    await working.stop()  # it writes what it has counted
    pulse.announce(action="stop", outcome="done", actor="eve")

    assert (await pulse.look()).rows["send-email"][6] == 1


async def test_the_task_does_not_have_the_context_of_a_request(pulse: Pulse) -> None:
    """`pymongo.timeout` around the first request would end the reads of all."""
    import pymongo

    with pymongo.timeout(0.2), pulse.listen() as listener:
        await one(listener)
        await asyncio.sleep(0.3)
        later = [await listener.next(within=5) for _ in range(2)]

    assert all(message.event != "trouble" for messages in later for message in messages)
