"""Numbers over time, on a real server: what is counted, written, added up and read."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from bson import Int64
from pymongo import AsyncMongoClient

from monque import (
    Cancel,
    ConfigurationError,
    Fail,
    Job,
    Monque,
    NewJob,
    RetryAfter,
    Snooze,
    TrendPoint,
    Trends,
)
from monque._ops import trends
from monque._ops.trends import HOUR, MINUTE, begin_of
from monque.embedded import EmbeddedMongo
from support.aliases import Collection, Database, Make
from support.clocks import ago
from support.jobs import claimed, document
from support.options import QUICK, WATCHFUL
from support.traffic import Traffic
from support.waiting import eventually

OFTEN = Trends(interval=timedelta(milliseconds=100))
COUNTING = replace(QUICK, trends=OFTEN)
SECOND = timedelta(seconds=1)
ENDINGS = ("completed", "retried", "failed", "cancelled", "snoozed")


def of_trends(collection: Collection) -> Collection:
    return collection.database[f"{collection.name}_trends"]


async def total(monque: Monque, **which: Any) -> TrendPoint:
    """The sums of the last two hours, in one step or two, added up."""
    now = monque.server_time()
    points = await monque.trends(since=now - HOUR, until=now + MINUTE, step=MINUTE, **which)
    summed = points[0]
    for point in points[1:]:
        fields = (*ENDINGS, "ran_total", "waited_total")
        sums = {field: getattr(summed, field) + getattr(point, field) for field in fields}
        summed = replace(summed, **sums, ran=summed.ran + point.ran, waited=summed.waited + point.waited)
    return summed


def endings(point: TrendPoint) -> dict[str, int]:
    return {field: getattr(point, field) for field in ENDINGS}


async def test_the_numbers_agree_with_what_really_ran(make_monque: Make) -> None:
    """A small twin of `make bench`'s `drain-trends`: two thousand jobs of three names end in every way."""
    monque = make_monque(options=replace(COUNTING, worker_concurrency=50, max_retries=2), companions=True)
    ran: Counter[tuple[str, str]] = Counter()

    def work(job: Job[int]) -> None:
        kinds = ("completed",) * 15 + ("failed", "cancelled", "snoozed", "retried", "given up")
        kind = kinds[job.data % 20]
        if kind == "failed":
            ran[job.name, kind] += 1
            raise Fail("for good")
        if kind == "cancelled":
            ran[job.name, kind] += 1
            raise Cancel
        if kind == "snoozed" and not job.snooze_count:
            ran[job.name, kind] += 1
            raise Snooze(timedelta(0))
        if kind == "retried" and not job.fail_count:
            ran[job.name, kind] += 1
            raise RetryAfter(timedelta(0))
        if kind == "given up":
            ran[job.name, "failed" if job.fail_count else "retried"] += 1
            raise ValueError
        ran[job.name, "completed"] += 1

    async def async_work(job: Job[int]) -> None:
        work(job)

    async with monque:
        for name in ("a", "b", "c"):
            monque.worker(name, async_work)
            await monque.enqueue_many([NewJob(name, number) for number in range(667)])
        await monque.run_until_idle()

        everything = await total(monque)
        assert endings(everything) == {
            kind: sum(count for (_, of), count in ran.items() if of == kind) for kind in endings(everything)
        }
        assert everything.ran.count == everything.waited.count == everything.ended == sum(ran.values())
        assert everything.waited_total > timedelta(0)
        for name in ("a", "b", "c"):
            found = endings(await total(monque, name=name))
            assert found == {kind: ran[name, kind] for kind in found}
        by_name = await monque.trends(by_name=True, until=monque.server_time() + MINUTE)
        assert {point.name for point in by_name} == {"a", "b", "c"}
        assert sum(point.ended for point in by_name) == everything.ended


async def test_schedules_transactions_and_expired_jobs_count(make_monque: Make) -> None:
    monque = await make_monque(options=COUNTING, companions=True).open()

    async def commits(job: Job[Any]) -> None:
        async with monque.client.start_session() as session, await session.start_transaction():
            await job.complete_in(session)

    monque.worker("commits", commits)
    monque.worker("late", commits)
    monque.worker("daily", lambda job: None)
    await monque.enqueue("commits")
    await monque.enqueue("late", expires=timedelta(milliseconds=1))
    await monque.schedule("0 3 * * *", "daily")
    await monque.trigger_schedule("daily")
    await monque.run_until_idle()

    assert endings(await total(monque, name="commits"))["completed"] == 1
    assert endings(await total(monque, name="daily"))["completed"] == 1
    late = await total(monque, name="late")
    assert (late.cancelled, late.ended, late.ran.count) == (1, 1, 0)


async def test_jobs_that_recovery_ends_count(make_monque: Make, collection: Collection) -> None:
    options = replace(WATCHFUL, trends=OFTEN, max_retries=2)
    dead = {"lastHeartbeat": ago(minutes=5), "lockedAt": ago(minutes=5), "heartbeatInterval": 100}
    await collection.insert_many(
        [
            claimed("gone", name="deadly", crashCount=1, **dead),
            claimed("gone", name="stopped", cancel={"by": "operator", "at": ago(minutes=5)}, **dead),
        ]
    )
    monque = await make_monque(options=options, companions=True).open()
    monque.worker("work", lambda job: None)
    await monque.run_until_idle()

    assert endings(await total(monque, name="deadly"))["failed"] == 1
    assert endings(await total(monque, name="stopped"))["cancelled"] == 1


async def test_a_job_that_was_put_back_is_no_run(make_monque: Make) -> None:
    monque = await make_monque(options=COUNTING, companions=True).open()
    began = asyncio.Event()

    async def stays(job: Job[Any]) -> None:
        began.set()
        await asyncio.sleep(60)

    monque.worker("stays", stays)
    await monque.enqueue("stays")
    await monque.start()
    await asyncio.wait_for(began.wait(), 15)
    await monque.stop(timeout=0)

    assert (await total(monque)).ended == 0


async def test_two_instances_add_to_the_same_minutes(make_monque: Make, collection: Collection) -> None:
    """Sixty jobs each, while each of them writes many times."""
    instances = [await make_monque(options=COUNTING, companions=True).open() for _ in range(2)]
    for number, monque in enumerate(instances):
        monque.worker(f"work-{number}", lambda job: None)
        monque.worker("shared", lambda job: None)
        await monque.start()
    for _ in range(6):
        await instances[0].enqueue_many(
            [NewJob(name, None) for name in ("shared",) * 10 + ("work-0", "work-1")]
        )
        await asyncio.sleep(0.1)

    async def all_counted() -> None:
        assert (await total(instances[0])).completed == 72

    await eventually(all_counted)
    assert (await total(instances[1], name="shared")).completed == 60
    minutes = await of_trends(collection).distinct("_id.t", {"_id.r": "m"})
    assert await of_trends(collection).count_documents({"_id.r": "m"}) <= 3 * len(minutes)


async def test_waits_begin_when_a_job_is_due(make_monque: Make, collection: Collection) -> None:
    monque = await make_monque(options=COUNTING, companions=True).open()
    await collection.insert_one(document(nextRunAt=ago(hours=1), createdAt=ago(hours=5)))
    monque.worker("work", lambda job: None)
    await monque.run_until_idle()

    point = await total(monque)
    assert HOUR <= point.waited_total < HOUR + timedelta(minutes=2)
    assert point.waited.quantile(0.5) is not None
    assert point.ran_total < timedelta(minutes=1)


async def test_without_trends_nothing_is_written(make_monque: Make, database: Database) -> None:
    monque = await make_monque(options=replace(QUICK, register=False, trends=None), companions=True).open()
    monque.worker("work", lambda job: None)
    await monque.enqueue("work")
    await monque.start()
    await monque.run_until_idle()
    await monque.stop()

    assert await database.list_collection_names() == ["monque_jobs"]
    assert monque.companions == {"trends": False, "register": False, "audit": True}
    assert await monque.instances() == []
    assert [point.ended for point in await monque.trends()] == [0] * len(await monque.trends())


async def test_without_jobs_only_the_lease_is_written(make_monque: Make, collection: Collection) -> None:
    monque = await make_monque(options=COUNTING, companions=True).open()
    monque.worker("work", lambda job: None)
    await monque.start()

    async def holds_the_lease() -> None:
        found = await of_trends(collection).find().to_list()
        assert [(each["_id"], each["by"]) for each in found] == [("lease", monque.instance_id)]

    await eventually(holds_the_lease)


async def test_a_stop_gives_the_lease_back(make_monque: Make, collection: Collection) -> None:
    first, second = [await make_monque(options=COUNTING, companions=True).open() for _ in range(2)]

    async def held_by(monque: Monque) -> None:
        lease = await of_trends(collection).find_one({"_id": "lease"})
        assert lease is not None
        assert lease["by"] == monque.instance_id
        assert timedelta(seconds=60) < lease["until"] - monque.server_time() < timedelta(seconds=75)

    for monque in (first, second):
        monque.worker("work", lambda job: None)
        await monque.start()
        await eventually(lambda monque=monque: held_by(monque))
        await monque.stop()


async def test_only_one_instance_has_the_lease(make_monque: Make) -> None:
    first, second = [await make_monque(options=COUNTING, companions=True).open() for _ in range(2)]
    companions = [monque._opening.here().context.companions.trends for monque in (first, second)]

    assert await trends.take_lease(companions[0], "first")
    assert not await trends.take_lease(companions[1], "second")
    assert await trends.take_lease(companions[0], "first")
    await trends.release_lease(companions[1], "second", within=5)
    assert not await trends.take_lease(companions[1], "second")
    await companions[0].collection.update_one({"_id": "lease"}, {"$set": {"until": ago(seconds=1)}})
    assert await trends.take_lease(companions[1], "second")
    assert not await trends.take_lease(companions[0], "first")


async def test_the_holder_of_the_lease_counts_what_waits(
    make_monque: Make, collection: Collection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("monque._ops.trends._ROUND", 0.1)
    monque = await make_monque(options=COUNTING, companions=True).open()
    monque.worker("served", lambda job: None)
    await collection.insert_many([document(name="waits", nextRunAt=ago(minutes=2)) for _ in range(3)])
    await monque.enqueue("waits", delay=HOUR)
    await monque.start()

    async def gauges(name: str | None, due: int, later: int) -> None:
        points = await monque.trends(name=name, until=monque.server_time() + MINUTE)
        [*_, last] = [point for point in points if point.due is not None] or [None]
        assert last is not None
        assert (last.due, last.later, last.processing) == (due, later, 0)
        assert last.oldest_due is not None
        assert last.oldest_due >= (timedelta(minutes=2) if due else timedelta(0))

    await eventually(lambda: gauges("waits", 3, 1))
    await eventually(lambda: gauges(None, 3, 1))
    assert {point.name for point in await monque.trends(by_name=True)} == {"waits"}
    await collection.delete_many({"name": "waits"})

    async def noted_as_gone() -> None:
        newest = await of_trends(collection).find_one({"_id.r": "g"}, sort={"_id": -1})
        assert newest is not None
        assert (newest["due"], newest["later"]) == (0, 0)

    await eventually(noted_as_gone)


def minute(at: datetime, name: str, **numbers: Any) -> dict[str, Any]:
    counts = {field: Int64(number) for field, number in numbers.items()}
    return {
        "_id": {"r": "m", "t": at, "n": name},
        **counts,
        "ranMs": Int64(100),
        "waitedMs": Int64(50),
        "ran": {"7": Int64(1)},
        "waited": {"3": Int64(2)},
        "expireAt": at + timedelta(hours=48),
    }


async def test_finished_hours_are_folded_and_doing_it_again_changes_nothing(
    make_monque: Make, collection: Collection
) -> None:
    monque = await make_monque(options=COUNTING, companions=True).open()
    hour = begin_of(HOUR, monque.server_time()) - 5 * HOUR
    await of_trends(collection).insert_many(
        [minute(hour + each * MINUTE, name, completed=2) for each in range(150) for name in ("a", "b")]
    )
    before = await monque.trends(since=hour, step=HOUR)
    companion = monque._opening.here().context.companions.trends

    for _ in range(2):
        await trends.fold(companion, hour + 2 * HOUR, OFTEN)
        folded = await of_trends(collection).find({"_id.r": "h"}, sort={"_id": 1}).to_list()
        assert [(each["_id"]["t"], each["_id"]["n"], each["completed"]) for each in folded] == [
            (hour, "a", 120),
            (hour, "b", 120),
            (hour + HOUR, "a", 120),
            (hour + HOUR, "b", 120),
        ]
        assert list(folded[0]["_id"]) == ["r", "t", "n"]
        assert (folded[0]["ran"], folded[0]["waited"]) == ({"7": 60}, {"3": 120})
        assert (folded[0]["ranMs"], folded[0]["waitedMs"]) == (6000, 3000)
        assert folded[0]["expireAt"] == hour + timedelta(days=90)
        assert await monque.trends(since=hour, step=HOUR) == before

    # The minutes have expired: the hours tell the same.
    await of_trends(collection).delete_many({"_id.r": "m", "_id.t": {"$lt": hour + 2 * HOUR}})
    assert await monque.trends(since=hour, step=HOUR) == before
    assert [point.completed for point in before] == [240, 240, 120, 0, 0, 0]
    by_name = await monque.trends(since=hour, step=HOUR, by_name=True)
    assert [(point.name, point.completed) for point in by_name[:2]] == [("a", 120), ("b", 120)]
    # The third hour is missed by one holder and folded by the next, beside those that are there.
    await trends.fold(companion, hour + 4 * HOUR, OFTEN)
    assert await monque.trends(since=hour, step=HOUR) == before
    long = await monque.trends(name="a", since=hour, step=6 * HOUR)
    assert sum(point.completed for point in long) == 300


async def test_the_holder_folds(make_monque: Make, collection: Collection) -> None:
    monque = await make_monque(options=COUNTING, companions=True).open()
    hour = begin_of(HOUR, monque.server_time()) - 3 * HOUR
    await of_trends(collection).insert_one(minute(hour, "a", completed=2))
    monque.worker("work", lambda job: None)
    await monque.start()

    async def folded() -> None:
        assert await of_trends(collection).count_documents({"_id.r": "h", "completed": 2}) == 1

    await eventually(folded)


async def test_a_day_of_thirty_names_takes_3_megabytes(make_monque: Make, collection: Collection) -> None:
    monque = await make_monque(options=COUNTING, companions=True).open()
    companion = monque._opening.here().context.companions.trends
    await companion.write(lambda into: into.insert_one({"_id": "first"}))
    day = begin_of(HOUR, monque.server_time()) - 24 * HOUR
    names = [f"send-some-mail-{number}" for number in range(30)]
    for part in range(24):
        # Four buckets each, as jobs of one kind have.
        documents = [
            {
                "_id": {"r": "m", "t": day + (part * 60 + each) * MINUTE, "n": name},
                "completed": Int64(40 + each),
                "failed": Int64(1),
                "ranMs": Int64(4000 + 13 * each),
                "waitedMs": Int64(300 + 7 * each),
                "ran": {str(9 + bucket): Int64(10 + bucket + each % 7) for bucket in range(4)},
                "waited": {str(3 + bucket): Int64(10 + bucket + each % 5) for bucket in range(4)},
                "expireAt": day + timedelta(hours=48) + (part * 60 + each) * MINUTE,
            }
            for each in range(60)
            for name in names
        ]
        await of_trends(collection).insert_many(documents, ordered=False)
    await collection.database.client.admin.command("fsync")
    name = f"{collection.name}_trends"
    size = await collection.database.command("collStats", name, indexDetails=True)
    # Without what a checkpoint between two inserts has left behind in the files: later writes use that.
    files = [part["block-manager"] for part in (size["wiredTiger"], *size["indexDetails"].values())]
    used = sum(file["file size in bytes"] - file["file bytes available for reuse"] for file in files)

    assert used < 3_000_000
    points = await monque.trends(
        since=day, until=day + 24 * HOUR, step=MINUTE, max_time=timedelta(seconds=10)
    )
    assert len(points) == 24 * 60
    assert points[0].completed == 30 * 40


async def test_create_indexes_is_respected(make_monque: Make, collection: Collection) -> None:
    async def is_counted() -> None:  # while it runs: a stop waits for its last writes for a second only
        assert await of_trends(collection).find_one() is not None

    for create in (False, True):
        await of_trends(collection).delete_many({})
        options = replace(COUNTING, create_indexes=create, register=True)
        async with make_monque(options=options, companions=True) as monque:
            monque.worker("work", lambda job: None)
            await monque.start()
            await monque.enqueue("work")
            await eventually(is_counted)
        expected = {"_id_", "monque_trends", "monque_expires"} if create else {"_id_"}
        assert set(await of_trends(collection).index_information()) == expected
    instances = await collection.database[f"{collection.name}_instances"].index_information()
    assert instances["monque_expires"]["expireAfterSeconds"] == 0


async def test_reads_use_indexes(make_monque: Make, server: EmbeddedMongo, database: Database) -> None:
    traffic = Traffic("aggregate", "find")
    uri, hour = server.uri, timedelta(hours=1)
    async with AsyncMongoClient(uri, event_listeners=[traffic]) as client:
        monque = await make_monque(client[database.name], options=COUNTING, companions=True).open()
        now = monque.server_time()
        await database["monque_jobs_trends"].insert_many(
            [minute(now - each * hour, f"n{each % 7}", completed=1) for each in range(40)]
        )
        companion = monque._opening.here().context.companions.trends
        await companion.write(lambda into: into.insert_one({"_id": "first"}))
        traffic.clear()
        await monque.trends(step=hour, since=now - 5 * hour)
        await monque.trends(name="n1", by_name=True)
    for command in traffic.explainable("aggregate", "find"):
        plan = str(await database.command("explain", command, verbosity="queryPlanner"))
        assert "IXSCAN" in plan, command
        assert "COLLSCAN" not in plan, command


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        ({"until": datetime(1, 1, 1, tzinfo=UTC)}, "until must lie in the years 1970 to 9000"),
        ({"since": datetime(9999, 12, 31, 23, 59, tzinfo=UTC)}, "since must lie"),
        ({"name": ""}, "name must be a job name"),
        ({"since": datetime(2026, 1, 1)}, "aware"),  # noqa: DTZ001 - the point of it
        ({"step": timedelta(seconds=90)}, "whole minutes"),
        ({"step": 60}, "must be a timedelta"),
        ({"since": ago(days=30), "step": MINUTE}, "more than 3,000 steps"),
        ({"since": ago(hours=1), "until": ago(hours=2)}, "since must be before until"),
        ({"by_name": 1}, "by_name must be True or False"),
        ({"max_time": 5}, "max_time must be a timedelta"),
    ],
)
async def test_wrong_questions_are_refused(monque: Monque, wrong: dict[str, Any], text: str) -> None:
    with pytest.raises(ConfigurationError, match=text):
        await monque.trends(**wrong)


@pytest.mark.parametrize(
    ("hours", "step"),
    [(0.25, MINUTE), (1, MINUTE), (6, 5 * MINUTE), (24, 15 * MINUTE), (7 * 24, HOUR), (30 * 24, 6 * HOUR)],
)
async def test_steps_are_as_long_as_a_chart_needs(monque: Monque, hours: float, step: timedelta) -> None:
    points = await monque.trends(since=monque.server_time() - timedelta(hours=hours))

    assert {point.step for point in points} == {step}
    assert len(points) <= 201


async def test_depths_of_all_names(monque: Monque, collection: Collection) -> None:
    await collection.insert_many(
        [
            document(name="a"),
            document(name="a", nextRunAt=monque.server_time() + HOUR),
            claimed("other", name="b"),
            document(name="c", status="failed"),
        ]
    )
    await monque.pause("b")

    found = {depth.name: depth for depth in await monque.queue_depths(failures=True)}

    assert (found["a"].due, found["a"].later, found["b"].processing) == (1, 1, 1)
    assert (found["a"].paused, found["b"].paused) == (False, True)
    assert found["a"].failed is None, "there is no index for it"
    assert set(found) == {"a", "b"}
    assert await monque.estimated_count(max_time=SECOND) == 4


async def test_failures_are_counted_from_their_index_alone(
    make_monque: Make, server: EmbeddedMongo, database: Database
) -> None:
    traffic = Traffic("aggregate")
    async with AsyncMongoClient(server.uri, event_listeners=[traffic]) as client:
        options = replace(QUICK, uses=("failures",))
        monque = await make_monque(client[database.name], options=options).open()
        states = ("failed", "failed", "cancelled", "completed", "pending")
        await database["monque_jobs"].insert_many([document(name="a", status=status) for status in states])
        await database["monque_jobs"].insert_one(document(name="b", status="cancelled"))
        traffic.clear()

        found = {depth.name: depth for depth in await monque.queue_depths(failures=True)}

    assert (found["a"].due, found["a"].failed, found["a"].cancelled) == (1, 2, 1)
    assert (found["b"].due, found["b"].failed, found["b"].cancelled) == (0, 0, 1)
    for command in traffic.explainable("aggregate"):
        explained = await database.command("explain", command, verbosity="executionStats")
        assert "'totalDocsExamined': 0" in str(explained)
