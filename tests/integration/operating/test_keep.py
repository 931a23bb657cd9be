"""`Keep`: how long finished jobs of one name are kept, known to every instance that removes jobs."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from bson import ObjectId
from pymongo import AsyncMongoClient
from pymongo.asynchronous.client_session import AsyncClientSession

from monque import (
    ConfigurationError,
    Job,
    JobNotFoundError,
    JobStatus,
    Keep,
    Monque,
    NewJob,
    Options,
    Retention,
    Unique,
)
from monque.embedded import EmbeddedMongo
from support.aliases import Collection, Database, Make
from support.clocks import ago, ahead, now
from support.jobs import claimed, document, find_one
from support.options import QUICK
from support.sharding import NOT_THROUGH_MONGOS
from support.traffic import Traffic
from support.waiting import Events, eventually
from support.working import Pause

NOTHING = Keep(completed=timedelta(0))
HOUR, DAY = timedelta(hours=1), timedelta(days=1)


def ended(name: str, hours: float, status: str = "completed", **fields: Any) -> dict[str, Any]:
    return document(name=name, status=status, updatedAt=ago(hours=hours), **fields)


def pruning(**ages: timedelta) -> Options:
    return replace(QUICK, retention=Retention(interval=timedelta(milliseconds=50), **ages))


async def only_are_left(collection: Collection, jobs: Iterable[dict[str, Any]]) -> None:
    expected = {job["_id"] for job in jobs}

    async def is_so() -> None:
        assert {job["_id"] async for job in collection.find({}, {"_id": 1})} == expected

    await eventually(is_so)


async def entries(database: Database) -> list[dict[str, Any]]:
    found = await database["monque_jobs_control"].find_one({"_id": "settings"})
    return [] if found is None else found.get("keep", [])


async def started(make_monque: Make, *, options: Options = QUICK, **keeps: Keep | None) -> Monque:
    monque = await make_monque(options=options).open()
    for name, keep in keeps.items():
        monque.worker(name, lambda _: None, keep=keep)
    await monque.start()
    return monque


@pytest.mark.parametrize(
    "wrong",
    [{}, {"completed": 0}, {"completed": 3600}, {"failed": timedelta(0)}, {"cancelled": -HOUR}],
    ids=repr,
)
def test_wrong_times_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError, match=r"(?i)keep"):
        Keep(**wrong)


async def test_jobs_of_one_name_are_removed_without_any_retention(
    make_monque: Make, collection: Collection
) -> None:
    stays = [ended("ping", 0.5), ended("ping", 2, "failed"), ended("other", 99), document(name="later")]
    await collection.insert_many([*stays, ended("ping", 2), ended("ping", 30, "cancelled")])
    await started(make_monque, ping=Keep(completed=HOUR, cancelled=DAY), other=None)

    await only_are_left(collection, stays)


async def test_it_wins_over_the_retention_which_counts_for_what_it_does_not_name(
    make_monque: Make, collection: Collection
) -> None:
    stays = [ended("ping", 2), ended("other", 0.5), ended("other", 2, "cancelled")]
    await collection.insert_many([*stays, ended("ping", 25), ended("other", 2), ended("ping", 2, "failed")])
    await started(make_monque, options=pruning(completed=HOUR, failed=HOUR), ping=Keep(completed=DAY))

    await only_are_left(collection, stays)


async def test_an_instance_that_knows_nothing_of_the_worker_obeys_it(
    make_monque: Make, collection: Collection
) -> None:
    """Also after the worker has stopped."""
    await (await started(make_monque, ping=Keep(completed=DAY))).stop()
    await collection.insert_many([stays := ended("ping", 2), ended("ping", 25), ended("other", 2)])
    await started(make_monque, options=pruning(completed=HOUR))

    await only_are_left(collection, [stays])


async def test_of_two_versions_the_longer_time_counts_while_both_run(
    make_monque: Make, collection: Collection, database: Database
) -> None:
    await started(make_monque, ping=Keep(completed=DAY))
    await started(make_monque, ping=Keep(completed=HOUR))
    assert len(await entries(database)) == 2
    await collection.insert_many([stays := ended("ping", 2), ended("ping", 25)])
    pruner = await started(make_monque, options=pruning(completed=HOUR))
    await only_are_left(collection, [stays])

    # Nobody has renewed what the old version said: it runs no more.
    control = database["monque_jobs_control"]
    await control.update_one({"keep.completed": 86_400_000}, {"$set": {"keep.$.at": ago(hours=3)}})
    await started(make_monque, ping=Keep(completed=HOUR))
    assert [entry["completed"] for entry in await entries(database)] == [3_600_000]
    await only_are_left(collection, [])
    assert pruner is not None


async def test_an_instance_that_serves_the_name_without_it_ends_it(
    make_monque: Make, collection: Collection, database: Database
) -> None:
    await started(make_monque, ping=Keep(completed=HOUR), other=Keep(failed=DAY))
    await started(make_monque, unknown=None)
    assert len(await entries(database)) == 2
    await started(make_monque, ping=None)

    assert [entry["name"] for entry in await entries(database)] == ["other"]


async def test_an_instance_says_again_what_it_said_an_hour_ago_unless_somebody_took_it_back(
    make_monque: Make, database: Database
) -> None:
    keeps = {"ping": Keep(completed=DAY), "other": Keep(completed=DAY)}
    await started(make_monque, options=pruning(completed=HOUR), **keeps)
    control = database["monque_jobs_control"]
    before = ago(hours=1.5)
    await control.update_one({}, {"$pull": {"keep": {"name": "other"}}})
    await control.update_one({"keep.name": "ping"}, {"$set": {"keep.$.at": before}})

    async def is_renewed() -> None:
        [entry] = await entries(database)
        assert (entry["name"], entry["at"] > before) == ("ping", True)

    await eventually(is_renewed)


async def test_jobs_that_others_still_need_are_left(
    make_monque: Make, collection: Collection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many they are: two at a time are read here."""
    monkeypatch.setattr("monque._store.recover._PRUNE_AT_ONCE", 2)
    parent = claimed("somebody", name="parent", lastHeartbeat=now())
    asked = {"name": "dead", "attempt": 1, "reason": "no", "at": ago(hours=9)}
    stays = [
        parent,
        *(ended("ping", 9, parent={"id": parent["_id"], "step": "pack", "at": at}) for at in range(5)),
        ended("ping", 9, windowKey="k", windowUntil=ahead(hours=1)),
        ended("ping", 9, "failed", onFailure="dead", followUp=asked),
    ]
    goes = [
        *(ended("ping", 2) for _ in range(5)),
        ended("ping", 2, parent={"id": ObjectId(), "step": "pack", "at": 0}),
        ended("ping", 2, parent="odd"),
        ended("ping", 2, windowKey="l", windowUntil=ago(minutes=1)),
    ]
    await collection.insert_many([*stays, *goes])
    await started(make_monque, ping=Keep(completed=HOUR, failed=HOUR))

    await only_are_left(collection, stays)


async def test_a_follow_up_is_kept_for_an_hour_so_that_nobody_stores_it_again(
    make_monque: Make, collection: Collection
) -> None:
    stays = ended("ping", 0.9, onFailure="")
    await collection.insert_many([stays, ended("ping", 0.9), ended("ping", 1.1, onFailure="")])
    await started(make_monque, ping=Keep(completed=timedelta(minutes=1)))

    await only_are_left(collection, [stays])


@pytest.mark.parametrize(
    "odd", ["text", 7, [7, {}, {"name": 7}, {"name": "ping", "completed": "x"}]], ids=repr
)
async def test_whatever_others_have_written_there_removes_nothing(
    make_monque: Make, collection: Collection, database: Database, odd: Any
) -> None:
    await database["monque_jobs_control"].insert_one({"_id": "settings", "keep": odd})
    await collection.insert_many([stays := ended("ping", 9), ended("pong", 9)])
    await started(make_monque, pong=Keep(completed=HOUR))

    await only_are_left(collection, [stays])
    assert {"name": "pong", "completed": 3_600_000} in [
        {field: value for field, value in entry.items() if field != "at"}
        for entry in await entries(database)
        if isinstance(entry, dict)
    ]


class TestRemoved:
    """`Keep(completed=timedelta(0))`: the end of a job deletes it."""

    @pytest.mark.parametrize("jobs", [1, 100], ids=["one", "many"])
    async def test_a_job_is_gone_when_it_completes_and_everybody_hears_of_it(
        self, make_monque: Make, collection: Collection, jobs: int
    ) -> None:
        monque = await make_monque(options=replace(QUICK, max_retries=1)).open()

        @monque.worker("ping", keep=NOTHING, concurrency=50)
        async def ping(job: Job[int]) -> None:
            if job.data == 0:
                raise ValueError("no luck")

        events = Events(monque)
        await monque.enqueue_many([NewJob(ping, number) for number in range(jobs + 1)])
        await monque.run_until_idle()

        assert [job["data"] async for job in collection.find()] == [0]
        ended = [event.job for event in events.of("job:complete")]
        assert sorted(job.data for job in ended) == list(range(1, jobs + 1))
        assert {job.status for job in ended} == {JobStatus.COMPLETED}

    async def test_its_end_is_one_delete(
        self, server: EmbeddedMongo, make_monque: Make, collection: Collection
    ) -> None:
        traffic = Traffic("update", "delete", "findAndModify", "bulkWrite")
        async with AsyncMongoClient(server.uri, event_listeners=[traffic]) as client:
            monque = await make_monque(client[collection.database.name]).open()
            monque.worker("ping", lambda _: None, keep=NOTHING)
            await monque.run_until_idle()
            await monque.enqueue("ping")
            traffic.clear()
            await monque.run_until_idle()
            await monque.close()

        writes = [each for each in traffic.commands if not str(each[next(iter(each))]).endswith("_control")]
        assert [next(iter(each)) for each in writes][1:] == ["delete"]  # after the claim

    async def test_a_call_that_was_noted_runs_before_the_job_is_gone(
        self, make_monque: Make, collection: Collection
    ) -> None:
        monque = await make_monque().open()
        pause, ran = Pause(), list[Any]()

        @monque.worker("ping", keep=NOTHING)
        async def ping(job: Job[int]) -> None:
            ran.append(job.data)
            await pause()

        events = Events(monque)
        await monque.start()
        again = Unique("k", until="start")
        await monque.enqueue(ping, 1, unique=again)
        await pause.wait()
        await monque.enqueue(ping, 2, unique=again)
        pause.go_on.set()
        await events.wait("job:complete", 2)

        assert ran == [1, 2]
        assert await collection.count_documents({}) == 0

    @pytest.mark.parametrize(
        "needed",
        [
            {"scheduleId": ObjectId()},
            {"parent": {"id": ObjectId(), "step": "pack", "at": 0}},
            {"batch": "import"},
            {"windowKey": "k", "uniqueKey": "k"},
            {"policy": {"keepResult": True}},
            {"onFailure": ""},
            {"followUp": {"name": "dead", "attempt": 0, "reason": "no", "at": ago(seconds=1)}},
        ],
        ids=lambda fields: next(iter(fields)),
    )
    async def test_a_job_whose_document_others_need_stays_for_an_hour(
        self, make_monque: Make, collection: Collection, needed: dict[str, Any]
    ) -> None:
        job = document(name="ping", **needed)
        await collection.insert_one(job)
        monque = await make_monque(options=replace(QUICK, uses=("batch", "parked"))).open()
        monque.worker("ping", lambda _: 7, keep=NOTHING)
        await monque.run_until_idle()
        assert (await find_one(collection))["status"] == "completed"

        older = {**ended("ping", 0.9), "_id": ObjectId()}
        await collection.insert_one(older)
        await collection.update_one(
            {"_id": job["_id"]}, {"$set": {"updatedAt": ago(hours=1.1)}, "$unset": {"followUp": ""}}
        )
        await monque.start()
        await only_are_left(collection, [older])

    async def test_a_job_that_completes_in_a_transaction_stays(
        self, make_monque: Make, collection: Collection
    ) -> None:
        monque = await make_monque().open()

        @monque.worker("ping", keep=NOTHING)
        async def ping(job: Job[None]) -> None:
            async def transaction(session: AsyncClientSession) -> None:
                await job.complete_in(session)

            async with monque.client.start_session() as session:
                await session.with_transaction(transaction)

        await monque.enqueue(ping)
        await monque.run_until_idle()

        assert (await find_one(collection))["status"] == "completed"

    @NOT_THROUGH_MONGOS
    async def test_who_waits_for_it_here_gets_the_job_and_elsewhere_an_error_that_names_the_causes(
        self, make_monque: Make, collection: Collection
    ) -> None:
        here, elsewhere = await make_monque().open(), await make_monque().open()
        pause = Pause()

        @here.worker("ping", keep=NOTHING)
        async def ping(job: Job[int]) -> None:
            await pause()

        await here.start()
        jobs = [await here.enqueue(ping, number) for number in range(3)]
        waits = [asyncio.create_task(here.wait_for(job)) for job in jobs]
        other = asyncio.create_task(elsewhere.wait_for(jobs[0]))
        await pause.wait()
        pause.go_on.set()
        ended = await asyncio.gather(*waits)

        assert [(job.data, job.status) for job in ended] == [(n, JobStatus.COMPLETED) for n in range(3)]
        assert all(job.finished_at is not None and job.claimed_by is None for job in ended)
        with pytest.raises(JobNotFoundError, match="never stored, or removed since its end"):
            await other
