"""The register of instances, on a real server, and what an instance sends beside its jobs."""

from __future__ import annotations

import asyncio
import os
import platform
import socket
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from pymongo import AsyncMongoClient

from monque import Instance, Job, Monque, Options, Trends, __version__
from monque.embedded import EmbeddedMongo
from support.aliases import Collection, Database, Make
from support.clocks import ago
from support.options import QUICK
from support.traffic import Traffic
from support.waiting import eventually
from support.working import Pause

REGISTERED = replace(QUICK, register=True, heartbeat_interval=timedelta(seconds=1))


async def described(monque: Monque, **expected: Any) -> Instance:
    """Wait until the only instance describes itself so."""

    async def check() -> Instance:
        found = await monque.instances()
        assert len(found) == 1
        [instance] = found
        assert {field: getattr(instance, field) for field in expected} == expected
        return instance

    found: Instance = await eventually(check)
    return found


async def test_an_instance_describes_itself_while_it_processes_jobs(
    make_monque: Make, collection: Collection
) -> None:
    options = replace(REGISTERED, instance_id="web-1", release="4f2a", instance_concurrency=4)
    monque = await make_monque(options=options, companions=True).open()
    waits = Pause()
    monque.worker("waits", waits, concurrency=3)
    monque.worker("other", waits, concurrency=7)
    assert await monque.instances() == []

    before = monque.server_time()
    await monque.start()
    instance = await described(monque, change_stream="live")

    assert (instance.id, instance.release, instance.state, instance.alive) == (
        "web-1",
        "4f2a",
        "running",
        True,
    )
    assert (instance.host, instance.pid) == (socket.gethostname(), os.getpid())
    assert (instance.version, instance.python) == (__version__, platform.python_version())
    assert instance.started_at is not None
    assert before <= instance.started_at <= monque.server_time()
    assert (instance.slots, instance.busy) == (4, 0)
    assert [(each.name, each.concurrency, each.off) for each in instance.workers] == [
        ("other", 7, False),
        ("waits", 3, False),
    ]
    assert instance.settings["instance_concurrency"] == 4
    assert instance.settings["heartbeat_interval"] == timedelta(seconds=1)
    assert instance.interval == timedelta(seconds=3)

    await monque.enqueue("waits")
    await waits.wait()
    instance = await described(monque, busy=1)
    assert [each.active for each in instance.workers] == [0, 1]

    stopping = asyncio.create_task(monque.stop())
    await described(monque, state="stopping", alive=True)
    waits.go_on.set()
    await stopping
    await described(monque, state="stopped", alive=False, busy=0)
    stored = await collection.database["monque_jobs_instances"].find_one({"_id": "web-1"})
    assert stored is not None
    assert timedelta(hours=23) < stored["expireAt"] - stored["seenAt"] <= timedelta(hours=24)


async def test_a_worker_that_is_switched_off_is_said_to_be(make_monque: Make) -> None:
    monque = await make_monque(options=REGISTERED, companions=True).open()
    monque.worker("mail", lambda job: None)
    monque.worker("reports", lambda job: None)
    monque.workers.restrict(excluding=["reports"])
    await monque.start()

    instance = await described(monque, slots=5)

    assert {each.name: each.off for each in instance.workers} == {"mail": False, "reports": True}


async def test_an_instance_that_is_silent_is_not_alive(make_monque: Make, collection: Collection) -> None:
    monque = await make_monque(options=REGISTERED, companions=True).open()
    register = collection.database["monque_jobs_instances"]
    common = {"state": "running", "intervalMs": 1000}
    await register.insert_many(
        [
            {"_id": "a", "seenAt": ago(minutes=2), **common},
            {"_id": "b", "seenAt": ago(seconds=1), **common},
            {"_id": 7, "seenAt": "yesterday", "workers": 5},
        ]
    )

    assert [(each.id, each.alive) for each in await monque.instances()] == [
        ("b", True),
        ("7", False),
        ("a", False),
    ]


async def test_a_restart_under_the_same_id_takes_the_place_of_the_first(make_monque: Make) -> None:
    for release in ("1", None):
        options = replace(REGISTERED, instance_id="web-1", release=release)
        async with make_monque(options=options, companions=True) as monque:
            monque.worker("work", lambda job: None)
            await monque.start()
            await described(monque, release=release, state="running")


async def test_who_only_stores_jobs_is_not_in_the_register(make_monque: Make, database: Database) -> None:
    async with make_monque(options=Options(), companions=True) as monque:
        await monque.enqueue("work")
        assert await monque.instances() == []

    assert await database.list_collection_names() == ["monque_jobs"]


async def test_without_register_nothing_is_described(make_monque: Make, database: Database) -> None:
    monque = await make_monque(options=replace(REGISTERED, register=False), companions=True).open()
    monque.worker("work", lambda job: None)
    await monque.start()
    await monque.enqueue("work")
    await monque.run_until_idle()
    await monque.stop()

    assert await database.list_collection_names() == ["monque_jobs"]
    assert monque.companions["register"] is False


@asynccontextmanager
async def observed(
    server: EmbeddedMongo, database: Database, options: Options
) -> AsyncIterator[tuple[Monque, Counter[str]]]:
    """An instance with a worker, and what it sends to its companions, by collection and command."""
    sent: Counter[str] = Counter()

    class ToCompanions(Traffic):
        def started(self, event: Any) -> None:
            collection = str(event.command.get(event.command_name))
            if collection.startswith(("monque_jobs_instances", "monque_jobs_trends")):
                sent[f"{collection.removeprefix('monque_jobs_')}: {event.command_name}"] += 1
            elif event.command_name == "aggregate":
                sent["jobs: aggregate"] += 1

    async with (
        AsyncMongoClient(server.uri, event_listeners=[ToCompanions()]) as client,
        Monque(client[database.name], options=options) as monque,
    ):
        monque.worker("work", lambda job: None)
        yield monque, sent


async def test_an_idle_instance_sends_only_its_description_and_the_work_of_the_lease(
    server: EmbeddedMongo, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Short intervals stand for those of 30 s, 10 s and a minute."""
    monkeypatch.setattr("monque._ops.trends._ROUND", 0.5)
    options = replace(
        QUICK,
        register=True,
        trends=Trends(interval=timedelta(milliseconds=100)),
        heartbeat_interval=timedelta(milliseconds=250),
        safety_poll_interval=timedelta(minutes=1),
        change_streams=False,
    )
    async with observed(server, database, options) as (monque, sent):
        loop = asyncio.get_running_loop()
        await monque.start()
        began = loop.time()
        await asyncio.sleep(1.9)
        passed = loop.time() - began
        idle = Counter(sent)

    assert idle.pop("trends: createIndexes") == idle.pop("instances: createIndexes") == 1
    assert 1 <= idle.pop("instances: update") <= passed / 0.25 + 1
    # A round has a lease and a count of what waits; the first one adds finished hours up.
    assert 1 <= idle["trends: findAndModify"] <= passed / 0.5 + 1
    # It also looks for jobs of dead owners.
    assert 1 <= idle.pop("jobs: aggregate") - idle.pop("trends: findAndModify") <= passed / 0.25 + 1
    assert idle.pop("trends: find") == idle.pop("trends: aggregate") == 1
    assert not idle


async def test_trends_are_written_once_in_each_interval_in_which_jobs_ended(
    server: EmbeddedMongo, database: Database
) -> None:
    options = replace(QUICK, trends=Trends(interval=timedelta(milliseconds=400)), change_streams=False)
    async with observed(server, database, options) as (monque, sent):
        loop = asyncio.get_running_loop()
        await monque.start()
        began = loop.time()
        for _ in range(15):
            await monque.enqueue("work")
            await asyncio.sleep(0.1)
        await monque.run_until_idle()
        passed, written = loop.time() - began, sent["trends: update"]
        assert 1 <= written <= passed / 0.32 + 1
        await asyncio.sleep(0.6)
        last = sent["trends: update"]
        await asyncio.sleep(1)
        assert sent["trends: update"] == last, "nothing has ended since"


async def test_a_change_is_told_within_seconds(make_monque: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("monque._ops.register._CHECK", 0.1)
    hour = timedelta(hours=1)
    options = replace(REGISTERED, heartbeat_interval=hour, heartbeat_tolerance=hour)
    monque = await make_monque(options=options, companions=True).open()
    await monque.start()
    await described(monque, workers=())

    async def later(job: Job[Any]) -> None: ...

    monque.worker("later", later)

    assert [each.name for each in (await described(monque, slots=5)).workers] == ["later"]
