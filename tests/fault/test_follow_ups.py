"""`on_failure` whatever dies, and when: one follow-up for each failure that is stored, none for others."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from monque import Fail, Job, NewJob
from support.aliases import Collection, Failing, Make
from support.clocks import ago
from support.jobs import document, find_one
from support.options import QUICK
from support.programs.child import child
from support.proxy import Proxy, command
from support.waiting import Events, eventually

ONCE = replace(QUICK, max_retries=1)


@pytest.fixture
def busy_sweep(monkeypatch: pytest.MonkeyPatch) -> None:
    """The sweep comes ten times a second, and leaves nobody the time to do it first."""
    monkeypatch.setattr("monque._store.follow_ups._PATIENCE", timedelta(0))
    monkeypatch.setattr("monque._engine.upkeep.SWEEP_INTERVAL", 0.1)
    monkeypatch.setattr("monque._store.pauses._SWEPT_FOR", 0)


def is_follow_up(message: bytes) -> bool:
    """The insert of a follow-up."""
    return command("insert")(message) and b"onFailure\0" in message


def is_receipt(message: bytes) -> bool:
    """The write that says that a follow-up is stored."""
    return command("update")(message) and b"followUp.attempt\0" in message


async def follow_ups(collection: Collection) -> list[dict[str, Any]]:
    return await collection.find({"name": "dead"}).to_list()


async def each_has_one(collection: Collection, jobs: int) -> None:
    """Wait until nothing is owed, and compare."""

    async def nothing_is_owed() -> None:
        assert await collection.count_documents({"status": "failed", "followUp": {"$exists": False}}) == jobs

    await eventually(nothing_is_owed, within=60)
    failed = {job["_id"] async for job in collection.find({"name": "charge"})}
    stored = [each["data"]["job_id"] for each in await follow_ups(collection)]
    assert sorted(stored) == sorted(failed)


@pytest.mark.usefixtures("busy_sweep")
@pytest.mark.parametrize("jobs", [1, 3])
@pytest.mark.parametrize("caught", [is_follow_up, is_receipt], ids=["before the insert", "after the insert"])
async def test_a_process_that_is_killed_after_the_failing_write_leaves_the_rest_to_the_sweep(
    proxy: Proxy,
    collection: Collection,
    make_monque: Make,
    caught: Callable[[bytes], bool],
    jobs: int,
) -> None:
    monque = await make_monque().open()
    await monque.enqueue_many([NewJob("charge", number) for number in range(jobs)])
    trap = proxy.hold(caught)
    async with child("charging_worker", proxy.uri(collection.database.name)) as victim:
        await trap.wait(within=60)
    owed = await collection.count_documents({"followUp.at": {"$exists": True}})
    assert owed >= 1

    await (await make_monque().open()).start()
    await each_has_one(collection, jobs)
    assert victim.has_ended


@pytest.mark.usefixtures("busy_sweep")
@pytest.mark.parametrize("caught", [is_follow_up, is_receipt], ids=["insert", "receipt"])
async def test_an_answer_that_is_lost_makes_no_second_one(
    proxy: Proxy, collection: Collection, make_monque: Make, caught: Callable[[bytes], bool]
) -> None:
    """The driver repeats the write, while the sweep of another instance does the same."""
    other = await make_monque(options=replace(ONCE, uses=("follow_up",))).open()
    await other.start()
    monque = await make_monque(proxy.uri(collection.database.name), options=ONCE).open()
    monque.worker("charge", fail, on_failure="dead")
    trap = proxy.lose_answer(caught)
    await monque.enqueue("charge")
    await monque.run_until_idle()

    assert trap.caught.is_set()
    await each_has_one(collection, 1)


@pytest.mark.parametrize("jobs", [1, 20], ids=["one", "many"])
async def test_a_failing_write_that_is_in_doubt_is_followed_once(
    victim: str, failing: Failing, collection: Collection, make_monque: Make, jobs: int
) -> None:
    monque = await make_monque(victim, options=ONCE).open()
    go_on = asyncio.Event()

    @monque.worker("charge", on_failure="dead", concurrency=jobs)
    async def charge(job: Job[Any]) -> None:
        await go_on.wait()
        raise Fail("no luck")

    events = Events(monque)
    await monque.start()
    await monque.enqueue_many([NewJob(charge) for _ in range(jobs)])
    await events.wait("job:start", jobs)
    doubt = {"writeConcernError": {"code": 64, "errmsg": "waiting for replication timed out"}}
    async with failing(["findAndModify", "update"], times=3, **doubt):
        go_on.set()
        await events.wait("job:fail", jobs)
    await monque.stop()

    await each_has_one(collection, jobs)


async def test_without_the_database_the_follow_up_waits_for_the_sweep_of_another_instance(
    proxy: Proxy, collection: Collection, make_monque: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("monque._connect.deadlines.OPERATION_TIMEOUT", 1.0)
    monque = await make_monque(proxy.uri(collection.database.name), options=ONCE).open()
    monque.worker("charge", fail, on_failure="dead")
    events = Events(monque)
    trap = proxy.hold(is_follow_up)
    await monque.start()
    await monque.enqueue("charge")
    await trap.wait()
    await proxy.cut()
    await events.wait("job:error")

    monkeypatch.setattr("monque._store.follow_ups._PATIENCE", timedelta(0))
    monkeypatch.setattr("monque._engine.upkeep.SWEEP_INTERVAL", 0.1)
    monkeypatch.setattr("monque._store.pauses._SWEPT_FOR", 0)
    await (await make_monque().open()).start()
    await each_has_one(collection, 1)


@pytest.mark.usefixtures("busy_sweep")
async def test_sweeps_of_many_instances_store_each_once(collection: Collection, make_monque: Make) -> None:
    asked = {"name": "dead", "attempt": 1, "reason": "no luck", "at": ago(seconds=30)}
    owing = {"status": "failed", "attempt": 1, "onFailure": "dead", "followUp": asked}
    await collection.insert_many([document(name="charge", **owing) for _ in range(250)])
    instances = [await make_monque(options=replace(QUICK, uses=("follow_up",))).open() for _ in range(3)]
    await asyncio.gather(*(monque.start() for monque in instances))

    await each_has_one(collection, 250)


@pytest.mark.usefixtures("busy_sweep")
async def test_follow_ups_that_the_server_refuses_keep_no_other_one_waiting_and_are_told_once(
    collection: Collection,
    make_monque: Make,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Two at a time are read here. A rule of the user's own refuses three, which are older."""
    monkeypatch.setattr("monque._store.follow_ups._AT_ONCE", 2)
    monque = await make_monque(options=replace(QUICK, uses=("follow_up",))).open()
    rule = {"$or": [{"name": {"$ne": "bad"}}, {"data.data": "fine"}]}
    await collection.database.command("collMod", collection.name, validator=rule)

    def owing(name: str, seconds: int) -> dict[str, Any]:
        asked = {"name": name, "attempt": 1, "reason": "no luck", "at": ago(seconds=seconds)}
        fields = {"status": "failed", "attempt": 1, "onFailure": name, "followUp": asked}
        return document(name="charge", data="secret", **fields)

    await collection.insert_many([*(owing("bad", 60) for _ in range(3)), owing("dead", 30)])
    await monque.start()
    for sweeps in (1, 2):

        async def others_are_stored(stored: int = sweeps) -> None:
            assert len(await follow_ups(collection)) == stored

        await eventually(others_are_stored, within=60)
        await collection.insert_one(owing("dead", 30))
    await monque.stop()

    assert await collection.count_documents({"followUp.name": "bad"}) == 3
    assert caplog.text.count("cannot be stored: WriteError 121") == 3
    assert "secret" not in caplog.text


@pytest.mark.usefixtures("busy_sweep")
async def test_a_connection_that_dies_silently_does_not_stop_the_sweep(
    proxy: Proxy, collection: Collection, make_monque: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("monque._connect.deadlines.OPERATION_TIMEOUT", 1.0)
    options = replace(QUICK, uses=("follow_up",))
    monque = await make_monque(proxy.uri(collection.database.name), options=options).open()
    trap = proxy.hold(lambda message: command("findAndModify")(message) and b"followUps\0" in message)
    asked = {"name": "dead", "attempt": 1, "reason": "no luck", "at": ago(seconds=30)}
    failed = {"status": "failed", "attempt": 1, "onFailure": "dead", "followUp": asked}
    await monque.start()
    await trap.wait(within=60)
    await collection.insert_one(document(name="charge", **failed))

    await each_has_one(collection, 1)


@pytest.mark.usefixtures("busy_sweep")
async def test_a_follow_up_runs_where_the_sweep_stored_it(collection: Collection, make_monque: Make) -> None:
    asked = {"name": "dead", "attempt": 1, "reason": "no luck", "at": ago(seconds=30)}
    never = replace(QUICK, poll_interval=timedelta(minutes=5), change_streams=False, uses=("follow_up",))
    monque = await make_monque(options=never).open()
    events = Events(monque)
    monque.worker("dead", lambda _: None)
    await monque.start()
    await collection.insert_one(document(status="failed", attempt=1, onFailure="dead", followUp=asked))
    await events.wait("job:complete", within=60)

    assert (await find_one(collection, {"name": "dead"}))["status"] == "completed"


async def fail(job: Job[Any]) -> None:
    raise ValueError("no luck")
