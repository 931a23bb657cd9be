"""Finished jobs are removed after a while where the user wants it, and never otherwise."""

from __future__ import annotations

import random
from datetime import datetime, timedelta
from typing import Any

import bson
import pytest
from bson import ObjectId
from bson.datetime_ms import DatetimeMS
from bson.raw_bson import RawBSONDocument
from pymongo import AsyncMongoClient

from monque import Job, Options, Retention
from monque.embedded import EmbeddedMongo
from support.aliases import Collection, Make
from support.clocks import ago, now
from support.jobs import claimed, document
from support.sharding import NOT_THROUGH_MONGOS
from support.traffic import Traffic
from support.waiting import Events, eventually

HOUR = timedelta(hours=1)


def ended(status: str, at: datetime, **fields: Any) -> dict[str, Any]:
    return document(status=status, updatedAt=at, **fields)


def a_day_old() -> list[dict[str, Any]]:
    """A job of each status, last touched yesterday."""
    yesterday = ago(days=1)
    alive = claimed("somebody", updatedAt=yesterday)
    return [
        document(updatedAt=yesterday, name="nobody"),
        alive,
        *(ended(status, yesterday) for status in ("completed", "failed", "cancelled")),
    ]


async def left(collection: Collection) -> list[str]:
    return sorted([doc["status"] async for doc in collection.find()])


async def ids(collection: Collection) -> set[ObjectId]:
    return {doc["_id"] async for doc in collection.find({}, {"_id": 1})}


async def test_many_old_jobs_are_removed_in_batches(
    server: EmbeddedMongo, make_monque: Make, collection: Collection
) -> None:
    """So that no write takes long, however many there are."""
    await collection.insert_many([ended("completed", ago(days=1)) for _ in range(2_500)])
    traffic = Traffic()
    async with AsyncMongoClient(server.uri, event_listeners=[traffic]) as client:
        options = Options(retention=Retention(completed=HOUR))
        await make_monque(client[collection.database.name], options=options).start()

        async def all_are_gone() -> None:
            assert await collection.count_documents({}) == 0

        await eventually(all_are_gone)

        assert traffic.sent["delete"] == 3


@NOT_THROUGH_MONGOS  # which has no profiler
async def test_each_batch_examines_only_its_own_jobs(make_monque: Make, collection: Collection) -> None:
    """The ids are in another order than the times of the last update, as with many instances."""
    shuffled = random.Random(1).sample([ObjectId() for _ in range(4_000)], 4_000)
    await collection.insert_many(
        [ended("completed", ago(days=1) + timedelta(seconds=n), _id=_id) for n, _id in enumerate(shuffled)]
    )
    await collection.database.command("profile", 2)
    await make_monque(options=Options(retention=Retention(completed=HOUR))).start()

    profile = collection.database["system.profile"]

    async def all_are_gone() -> list[dict[str, Any]]:
        """The server notes a command after its last job is gone."""
        deletes = await profile.find({"op": "remove", "ns": collection.full_name}).to_list()
        assert len(deletes) == 4
        return deletes

    deletes = await eventually(all_are_gone)
    await collection.database.command("profile", 0)
    assert await collection.count_documents({}) == 0
    assert max(entry["docsExamined"] for entry in deletes) == 1_000


@NOT_THROUGH_MONGOS
async def test_jobs_that_are_left_are_examined_once(
    make_monque: Make, collection: Collection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many children an active parent has, which will read them."""
    monkeypatch.setattr("monque._store.recover._PRUNE_AT_ONCE", 10)
    await collection.insert_one(parent := claimed("somebody", lastHeartbeat=now()))
    of = {"parent": {"id": parent["_id"], "step": "pack", "at": 0}}
    children = [ended("completed", ago(days=2), **of) for _ in range(50)]
    await collection.insert_many([*children, ended("completed", ago(days=1))])
    await collection.database.command("profile", 2)
    await make_monque(options=Options(retention=Retention(completed=HOUR))).start()

    async def the_last_is_gone() -> None:
        assert await collection.count_documents({"status": "completed"}) == 50

    await eventually(the_last_is_gone)
    await collection.database.command("profile", 0)
    cursor = [{"command.sort": {"updatedAt": 1}}, {"originatingCommand.sort": {"updatedAt": 1}}]
    profile = collection.database["system.profile"]
    reads = await profile.find({"ns": collection.full_name, "$or": cursor}).to_list()
    assert 51 <= sum(read["docsExamined"] for read in reads) <= 60


async def test_an_odd_id_keeps_neither_its_job_nor_other_jobs_from_being_removed(
    server: EmbeddedMongo, make_monque: Make, collection: Collection
) -> None:
    """A date beyond the year 9999 in an id; and an id that no query can match, because it is not UTF-8."""
    beyond = [ended("completed", ago(days=1), _id={"at": DatetimeMS(2**62), "n": n}) for n in range(2)]
    good = ended("completed", ago(days=1))
    broken = bson.encode(ended("completed", ago(days=1), _id="broken")).replace(b"broken", b"brok\xff\xfe")
    await collection.insert_many([*beyond, RawBSONDocument(broken), good])
    traffic = Traffic()
    async with AsyncMongoClient(server.uri, event_listeners=[traffic]) as client:
        options = Options(retention=Retention(completed=HOUR))
        monque = make_monque(client[collection.database.name], options=options)
        monque.worker("work", lambda job: None)
        events = Events(monque)
        await monque.start()

        async def only_the_broken_one_is_left() -> None:
            assert await collection.count_documents({}) == 1

        await eventually(only_the_broken_one_is_left)
        for _ in range(5):
            await monque.enqueue("work")
        await events.wait("job:complete", 5)

        assert traffic.sent["delete"] <= 2  # the second removes nothing, and is the last
        await monque.close()
    await collection.delete_many({})


@pytest.mark.parametrize("status", ["completed", "failed", "cancelled"])
async def test_each_status_has_its_own_age(status: str, make_monque: Make, collection: Collection) -> None:
    """At start; the other statuses have no age here, so they stay for ever."""
    await collection.insert_many(a_day_old())
    monque = make_monque(options=Options(retention=Retention(**{status: HOUR})))

    await monque.start()

    async def only_that_is_gone() -> None:
        everything = {"pending", "processing", "completed", "failed", "cancelled"}
        assert await left(collection) == sorted(everything - {status})

    await eventually(only_that_is_gone)


async def test_jobs_that_have_not_ended_are_never_removed(make_monque: Make, collection: Collection) -> None:
    await collection.insert_many(a_day_old())
    monque = make_monque(options=Options(retention=Retention(completed=HOUR, failed=HOUR, cancelled=HOUR)))

    await monque.start()

    async def the_rest_is_gone() -> None:
        assert await left(collection) == ["pending", "processing"]

    await eventually(the_rest_is_gone)


async def test_the_age_counts_from_the_last_update(make_monque: Make, collection: Collection) -> None:
    old, young, just_in_time = (
        ended("completed", ago(minutes=61), createdAt=ago(minutes=61)),
        ended("completed", ago(minutes=1), createdAt=ago(days=9), nextRunAt=ago(days=9)),
        ended("completed", ago(minutes=59), createdAt=ago(days=9)),
    )
    await collection.insert_many([old, young, just_in_time])
    monque = make_monque(options=Options(retention=Retention(completed=HOUR)))

    await monque.start()

    async def the_old_one_is_gone() -> None:
        assert await ids(collection) == {young["_id"], just_in_time["_id"]}

    await eventually(the_old_one_is_gone)


async def test_pruning_is_repeated_after_each_interval(make_monque: Make, collection: Collection) -> None:
    often = Retention(completed=HOUR, interval=timedelta(milliseconds=100))
    monque = make_monque(options=Options(retention=often))
    await monque.start()

    for _ in range(3):
        grown_old = ended("completed", ago(hours=2))
        await collection.insert_one(grown_old)

        async def it_is_gone() -> None:
            assert await ids(collection) == set()

        await eventually(it_is_gone)


async def test_pruning_waits_for_a_long_interval(make_monque: Make, collection: Collection) -> None:
    monque = make_monque(options=Options(retention=Retention(completed=HOUR)))
    first = ended("completed", ago(hours=2))
    await collection.insert_one(first)
    await monque.start()

    async def the_first_is_gone() -> None:
        assert await ids(collection) == set()

    await eventually(the_first_is_gone)

    async def another_stays() -> None:
        """The first pruning looks again before it ends, so it may still take one that comes at once."""
        another = ended("completed", ago(hours=2))
        await collection.insert_one(another)
        await monque.run_until_idle()
        assert await ids(collection) == {another["_id"]}

    await eventually(another_stays)


async def test_a_completed_job_of_ours_is_removed_in_time(make_monque: Make, collection: Collection) -> None:
    soon = Retention(completed=timedelta(milliseconds=50), interval=timedelta(milliseconds=50))
    monque = make_monque(options=Options(retention=soon))
    monque.worker("work", lambda job: None)
    events = Events(monque)
    await monque.start()
    await monque.enqueue("work")
    await events.wait("job:complete")

    async def it_is_gone() -> None:
        assert await ids(collection) == set()

    await eventually(it_is_gone)


async def test_a_failed_occurrence_goes_and_its_schedule_stays(
    make_monque: Make, collection: Collection
) -> None:
    soon = Retention(failed=timedelta(milliseconds=50), interval=timedelta(milliseconds=50))
    monque = await make_monque(options=Options(retention=soon, max_retries=1)).open()
    schedule = await monque.schedule("@hourly", "work")
    await collection.update_one({}, {"$set": {"nextRunAt": ago(minutes=1)}})

    @monque.worker("work")
    async def fail(job: Job[Any]) -> None:
        raise RuntimeError("gateway timeout")

    events = Events(monque)
    await monque.start()
    await events.wait("job:fail")

    async def only_the_schedule_is_left() -> None:
        assert await ids(collection) == {schedule.id}

    await eventually(only_the_schedule_is_left)


async def test_instances_that_remove_together_do_not_disturb_each_other(
    make_monque: Make, collection: Collection
) -> None:
    await collection.insert_many([ended("completed", ago(hours=2)) for _ in range(2_000)])
    often = Retention(completed=HOUR, interval=timedelta(milliseconds=20))
    instances = [make_monque(options=Options(retention=often)) for _ in range(3)]
    heards = [Events(monque) for monque in instances]

    for monque in instances:
        await monque.start()

    async def all_are_gone() -> None:
        assert await ids(collection) == set()

    await eventually(all_are_gone)
    assert [events.of("job:error") for events in heards] == [[], [], []]


async def test_without_a_retention_nothing_is_ever_removed(make_monque: Make, collection: Collection) -> None:
    """Edge case of the specification: permanently failed jobs are kept for inspection."""
    ancient = [ended(status, ago(days=3_000)) for status in ("completed", "failed", "cancelled")]
    await collection.insert_many(ancient)
    monque = make_monque(options=Options(heartbeat_interval=timedelta(milliseconds=20)))
    monque.worker("work", lambda job: None)
    events = Events(monque)

    await monque.start()
    for _ in range(3):
        await monque.enqueue("work")
    await events.wait("job:complete", 3)
    await monque.stop()

    assert await ids(collection) >= {doc["_id"] for doc in ancient}
    assert await collection.count_documents({}) == 6


async def test_a_retention_without_any_age_removes_nothing(make_monque: Make, collection: Collection) -> None:
    ancient = [ended(status, ago(days=3_000)) for status in ("completed", "failed", "cancelled")]
    await collection.insert_many(ancient)
    often = Retention(interval=timedelta(milliseconds=10))
    monque = make_monque(options=Options(retention=often))
    monque.worker("work", lambda job: None)
    events = Events(monque)

    await monque.start()
    await monque.enqueue("work")
    await events.wait("job:complete")
    await monque.stop()

    assert await ids(collection) >= {doc["_id"] for doc in ancient}
