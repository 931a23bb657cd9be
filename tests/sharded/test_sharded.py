"""Jobs in a sharded cluster, through its mongos: unsharded, and sharded by each key that works."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from monque import (
    ConfigurationError,
    Job,
    JobFilter,
    JobStateError,
    Limit,
    Monque,
    NewJob,
    Options,
    Rate,
    Unique,
)
from monque._api.life import check_sharding
from monque._store.indexes import USES
from support.aliases import Collection, Database, Make
from support.clocks import ago, ahead
from support.jobs import claimed, document
from support.options import QUICK
from support.programs.child import uri_of
from support.sharding import Cluster
from support.waiting import Events, eventually, reaches, start

NAMES = [f"name-{number}" for number in range(20)]
UNSHARDED_ONLY = pytest.mark.parametrize("shard_key", [None], ids=["unsharded"])


async def shards_of(collection: Collection) -> set[str]:
    """Where the jobs really are."""
    found = await collection.database.command("collStats", collection.name)
    return {name for name, part in found["shards"].items() if part["count"]}


async def test_instances_share_the_work_and_run_each_job_once(
    monque: Monque, make_monque: Make, collection: Collection, shard_key: dict[str, Any] | None
) -> None:
    runs: Counter[Any] = Counter()

    async def work(job: Job[Any]) -> None:
        runs[job.data] += 1

    for _ in range(3):
        instance = await make_monque(options=replace(QUICK, worker_concurrency=10)).open()
        for name in NAMES:
            instance.worker(name, work)
        await instance.start()
    await monque.enqueue_many([NewJob(NAMES[number % len(NAMES)], number) for number in range(400)])
    await monque.enqueue_many(
        [NewJob(NAMES[n % len(NAMES)], 400 + n, unique_key=f"k{n}") for n in range(100)]
    )

    async def settled() -> None:
        assert await collection.count_documents({"status": "completed", "attempt": 1}) == 500

    await eventually(settled, within=60)
    assert runs == dict.fromkeys(range(500), 1)
    if shard_key is not None:
        assert await shards_of(collection) == {"shard0", "shard1"}


async def test_a_lone_job_runs_within_seconds_of_being_stored_by_another(
    monque: Monque, make_monque: Make
) -> None:
    """The change stream of a cluster with an idle shard is ten seconds late; polling is not."""
    worker = await make_monque(options=Options()).open()
    worker.worker("work", lambda job: None)
    events = await start(worker)
    waits = []
    for number in range(1, 4):
        stored = time.monotonic()
        await monque.enqueue("work", number)
        await events.wait("job:complete", number)
        waits.append(time.monotonic() - stored)

    assert min(waits) < 2.5


async def test_parallel_enqueues_with_one_key_give_one_job(monque: Monque, collection: Collection) -> None:
    jobs = await asyncio.gather(*(monque.enqueue("work", n, unique_key="k") for n in range(50)))

    assert len({job.id for job in jobs}) == 1
    assert await collection.count_documents({}) == 1


async def test_a_handler_runs_jobs_on_all_shards_and_its_cancellation_reaches_them(
    monque: Monque, collection: Collection
) -> None:
    async def work(job: Job[int]) -> int:
        return job.data

    for name in NAMES:
        monque.worker(name, work)

    @monque.worker("parent", store_result=True)
    async def parent(job: Job[bool]) -> list[Any]:
        delay = timedelta(hours=1) if job.data else None
        jobs = await job.run_jobs("all", [NewJob(name, n, delay=delay) for n, name in enumerate(NAMES)])
        return [None if each is None else each.result for each in jobs]

    ends, waits = await parent.enqueue(False), await parent.enqueue(True)
    await monque.run_until_idle()
    await monque.cancel_job(waits)

    assert await monque.result_of(ends) == list(range(len(NAMES)))
    assert await collection.count_documents({"status": "completed"}) == len(NAMES) + 1
    assert await collection.count_documents({"status": "cancelled"}) == len(NAMES) + 1


async def test_calls_replace_jobs_run_them_again_and_are_throttled(
    monque: Monque, collection: Collection
) -> None:
    latest, hourly = Unique("k", on_conflict="replace"), Unique("w", window=timedelta(hours=1))
    runs: list[int] = []

    @monque.worker("work")
    async def work(job: Job[int]) -> None:
        runs.append(job.data)
        if job.data == 2:
            assert (await monque.enqueue("work", 3, unique=latest)).enqueued == "again"

    for n in (1, 2):
        await monque.enqueue("work", n, unique=latest)
    throttled = [await monque.enqueue("other", n, unique=hourly) for n in (1, 2)]
    await monque.run_until_idle()

    assert runs == [2, 3]
    assert [job.enqueued for job in throttled] == ["new", "throttled"]
    assert await collection.count_documents({}) == 2


async def test_of_calls_at_once_in_one_window_one_is_accepted(
    monque: Monque, make_monque: Make, collection: Collection
) -> None:
    """From two instances, alone, in bulk and in a transaction."""
    hourly, other = Unique("k", window=timedelta(hours=1)), await make_monque().open()
    calls = [each.enqueue("work", n, unique=hourly) for n in range(20) for each in (monque, other)]
    answers = [job.enqueued for job in await asyncio.gather(*calls)]
    [in_bulk] = await other.enqueue_many([NewJob("work", 20, unique=hourly)])
    async with monque.client.start_session() as session, await session.start_transaction():
        joined = await monque.enqueue("work", 21, unique=hourly, session=session)

    assert Counter([*answers, in_bulk.enqueued, joined.enqueued]) == {"new": 1, "throttled": 41}
    assert await collection.count_documents({}) == 1


async def test_a_limit_and_a_rate_hold_on_all_instances(make_monque: Make, collection: Collection) -> None:
    running, most, done = Counter[str](), Counter[str](), Counter[str]()

    async def work(job: Job[int]) -> None:
        running[job.name] += 1
        most[job.name] = max(most[job.name], running[job.name])
        await asyncio.sleep(0.005)
        running[job.name] -= 1
        done[job.name] += 1

    instances = [await make_monque().open() for _ in range(3)]
    for each in instances:
        for name, limit in (("one", 1), ("three", Limit(3, rate=Rate(20, timedelta(milliseconds=500))))):
            each.worker(name, work, limit=limit, concurrency=4)
    await instances[0].enqueue_many([NewJob(name, n) for n in range(30) for name in ("one", "three")])
    for each in instances:
        await each.start()

    async def count() -> int:
        return done.total()

    await reaches(count, 60)
    assert most["one"] == 1
    assert most["three"] <= 3

    async def no_turns() -> None:
        assert await collection.count_documents({"turn": {"$exists": True}}) == 0

    await eventually(no_turns)


async def test_every_use_can_begin(make_monque: Make, collection: Collection) -> None:
    await make_monque(options=replace(QUICK, uses=tuple(USES))).open()

    assert {use.index_name for use in USES.values()} <= set(await collection.index_information())


async def test_a_job_without_room_for_its_error_is_settled(make_monque: Make, collection: Collection) -> None:
    """By its id alone, a write is part of a transaction of the cluster, whose errors have other codes."""
    monque = await make_monque(options=replace(QUICK, max_retries=1)).open()
    await collection.insert_one(document(name="fails", data="x" * (16 * 1024 * 1024 - 1000)))

    @monque.worker("fails")
    async def fails(job: Job[str]) -> None:
        raise ValueError("y" * 1000)

    await monque.run_until_idle()

    assert [job.status for job in await monque.get_jobs()] == ["failed"]


async def test_failures_retries_and_schedules_work(make_monque: Make, collection: Collection) -> None:
    monque = await make_monque(options=replace(QUICK, max_retries=2)).open()
    monque.worker("fails", lambda job: 1 / 0)
    events = Events(monque)
    await monque.start()
    await monque.enqueue("fails")
    schedule = await monque.schedule("@yearly", "fails")
    await collection.update_one(
        {"_id": schedule.id, "name": "fails"}, {"$set": {"nextRunAt": ago(seconds=1)}}
    )
    await events.wait("job:fail", 4, within=30)
    again = await monque.schedule("@daily", "fails", {"changed": True})

    failed = await monque.get_jobs(status="failed")
    assert sorted(job.fail_count for job in failed) == [2, 2]
    assert again.id == schedule.id
    assert (again.cron, again.data, again.fail_count) == ("@daily", {"changed": True}, 0)


async def test_the_jobs_of_dead_owners_are_done_by_others(make_monque: Make, collection: Collection) -> None:
    dead = {"lastHeartbeat": ago(hours=1), "lockedAt": ago(hours=1)}
    await collection.insert_many([claimed("dead", name=name, **dead) for name in NAMES])
    monque = await make_monque().open()
    for name in NAMES:
        monque.worker(name, lambda job: None)
    events = Events(monque)
    await monque.start()
    await events.wait("job:complete", len(NAMES), within=30)

    assert await collection.count_documents({"status": "completed", "attempt": 2}) == len(NAMES)


async def test_heartbeats_reach_every_job_and_lost_claims_are_noticed(
    make_monque: Make, collection: Collection
) -> None:
    options = replace(QUICK, heartbeat_interval=timedelta(milliseconds=200))
    monque = await make_monque(options=options).open()
    let_go = asyncio.Event()

    async def wait(job: Job[Any]) -> None:
        await let_go.wait()

    for name in NAMES:
        monque.worker(name, wait)
    events = Events(monque)
    await monque.start()
    await monque.enqueue_many([NewJob(name) for name in NAMES])
    await events.wait("job:start", len(NAMES), within=30)
    first = {job["_id"]: job["lastHeartbeat"] async for job in collection.find()}

    async def all_beaten() -> None:
        async for job in collection.find():
            assert job["lastHeartbeat"] > first[job["_id"]]

    await eventually(all_beaten)
    await collection.delete_many({"name": {"$in": NAMES[:5]}})
    await events.wait("job:lost", 5)
    let_go.set()
    await events.wait("job:complete", len(NAMES) - 5)


SHARDED = pytest.mark.parametrize("shard_key", [{"name": 1}], ids=["by name"])


@SHARDED
async def test_a_lone_job_costs_three_commands_on_its_shard_and_none_on_the_other(
    make_monque: Make, collection: Collection, cluster: Cluster
) -> None:
    rare = timedelta(hours=1)
    options = replace(QUICK, poll_interval=rare, safety_poll_interval=rare, change_streams=False)
    monque = await make_monque(options=options).open()
    monque.worker("name-1", lambda job: None)
    events = Events(monque)
    await monque.start()
    await monque.enqueue("name-1")
    await events.wait("job:complete", 1)
    with cluster.commands(collection) as commands:
        await monque.enqueue("name-1")
        await events.wait("job:complete", 2)

        assert commands() == {"shard0": {"insert": 1, "findAndModify": 2}, "shard1": {}}


@SHARDED
async def test_a_drain_of_one_name_changes_nothing_on_other_shards(
    make_monque: Make, collection: Collection, cluster: Cluster
) -> None:
    monque = await make_monque(options=replace(QUICK, worker_concurrency=100)).open()
    monque.worker("name-1", lambda job: None)
    await monque.enqueue_many([NewJob("name-1") for _ in range(1_000)])
    with cluster.commands(collection) as commands:
        events = await start(monque)
        await events.wait("job:complete", 1_000, within=60)
        counted = commands()

    assert counted["shard0"]["update"] > 0
    assert counted["shard1"].keys() <= {"find", "aggregate"}  # recovery looks for jobs of every name


@SHARDED
async def test_heartbeats_and_cancel_requests_are_looked_for_on_the_shard_of_the_jobs(
    make_monque: Make, collection: Collection, cluster: Cluster
) -> None:
    options = replace(QUICK, heartbeat_interval=timedelta(milliseconds=200), recover_stale_jobs=False)
    monque = await make_monque(options=options).open()
    let_go = asyncio.Event()

    @monque.worker("name-1")
    async def wait(job: Job[Any]) -> None:
        await let_go.wait()

    events = await start(monque)
    job = await monque.enqueue("name-1")
    await events.wait("job:start", 1)
    with cluster.commands(collection) as commands:

        async def beaten() -> None:
            assert commands()["shard0"]["update"] >= 2

        await eventually(beaten)
        assert not commands()["shard1"]
    let_go.set()
    await events.wait("job:complete", 1)
    assert (await monque.get_job(job.id)) is not None


@SHARDED
@pytest.mark.parametrize(
    ("act", "costs"),
    [
        pytest.param(lambda monque, job: monque.cancel_job(job), {"findAndModify": 1}, id="cancel"),
        pytest.param(
            lambda monque, job: monque.reschedule_job(job, ahead(hours=2)), {"findAndModify": 1}, id="move"
        ),
        pytest.param(lambda monque, job: monque.run_now(job), {"find": 1, "findAndModify": 1}, id="run now"),
        pytest.param(lambda monque, job: monque.delete_job(job), {"findAndModify": 1}, id="delete"),
        pytest.param(lambda monque, job: monque.get_job(job), {"find": 1}, id="read"),
    ],
)
async def test_an_action_on_a_job_that_was_read_goes_to_its_shard(
    monque: Monque, collection: Collection, cluster: Cluster, act: Any, costs: dict[str, int]
) -> None:
    job = await monque.enqueue("name-1", run_at=ahead(hours=1))
    with cluster.commands(collection) as commands:
        await act(monque, job)

        assert commands() == {"shard0": costs, "shard1": {}}


@SHARDED
@pytest.mark.parametrize("is_known", [True, False], ids=["by the job", "by its id"])
async def test_a_retry_is_written_on_the_shard_of_the_job(
    monque: Monque, collection: Collection, cluster: Cluster, is_known: bool
) -> None:
    """An id alone is looked for on every shard; then its name is known."""
    job = await monque.enqueue("name-1", run_at=ahead(hours=1))
    job = await monque.cancel_job(job)
    with cluster.commands(collection) as commands:
        await monque.retry_job(job if is_known else job.id)

        elsewhere = {} if is_known else {"find": 1}
        assert commands() == {"shard0": {"find": 1, "findAndModify": 1}, "shard1": elsewhere}


@SHARDED
async def test_many_jobs_with_keys_are_retried_on_their_shard(
    monque: Monque, collection: Collection, cluster: Cluster
) -> None:
    failed = [document(name="name-1", status="failed", uniqueKey=str(number)) for number in range(20)]
    await collection.insert_many(failed)
    with cluster.commands(collection) as commands:
        assert (await monque.retry_jobs(JobFilter(name="name-1"))).count == 20

        assert not commands()["shard1"]


@SHARDED
@pytest.mark.parametrize(
    ("count", "changes"), [(1, {"update": 1, "find": 1}), (30, {"update": 11, "find": 10})]
)
async def test_recovery_looks_on_every_shard_and_changes_jobs_on_theirs(
    make_monque: Make, collection: Collection, cluster: Cluster, count: int, changes: dict[str, int]
) -> None:
    events = Events(monque := await make_monque(options=replace(QUICK, change_streams=False)).open())
    await monque.start()
    dead = {"lastHeartbeat": ago(hours=1), "lockedAt": ago(hours=1)}
    await collection.insert_many([claimed("dead", name="name-1", **dead) for _ in range(count)])
    with cluster.commands(collection) as commands:
        monque.look_for_dead()
        await events.wait("stale:recovered")

        counted = commands()
        assert counted["shard1"].keys() == {"aggregate"}
        assert counted["shard0"] == {**counted["shard1"], **changes}


async def test_operators_find_and_change_jobs(monque: Monque, collection: Collection) -> None:
    await collection.insert_many([document(name=name, status="failed") for name in NAMES])
    page = await monque.list_jobs(limit=7, sort="created_at")
    rest = [job async for job in monque.iter_jobs(sort="created_at", cursor=page.cursor)]
    one = page.jobs[0]
    await monque.retry_job(one.id)
    with pytest.raises(JobStateError):
        await monque.retry_job(one.id)
    await monque.cancel_job(one.id)

    assert {job.name for job in [*page.jobs, *rest]} == set(NAMES)
    assert (await monque.queue_stats()).failed == len(NAMES) - 1
    assert (await monque.retry_jobs(JobFilter(status="failed"))).count == len(NAMES) - 1
    assert [view.name for view in await monque.queue_views()] == sorted(NAMES)
    assert (await monque.delete_jobs(JobFilter())).count == len(NAMES)


async def test_a_job_can_be_part_of_a_transaction(
    monque: Monque, database: Database, collection: Collection
) -> None:
    """Its collection and the user's may be on different shards; both must be there before."""
    await database.create_collection("orders")
    for number, commits in enumerate((True, False)):
        async with monque.client.start_session() as session:
            await session.start_transaction()
            await database["orders"].insert_one({"_id": number}, session=session)
            await monque.enqueue("work", number, unique_key=f"k{number}", session=session)
            assert await collection.count_documents({"data": number}) == 0
            await (session.commit_transaction() if commits else session.abort_transaction())

    assert [job["data"] async for job in collection.find()] == [0]
    assert [order["_id"] async for order in database["orders"].find()] == [0]


async def test_the_doctor_has_nothing_to_complain_about(monque: Monque) -> None:
    facts = await monque.diagnose()

    assert (facts.replica_set, facts.change_streams, facts.transactions) == (None, True, True)
    assert facts.of("missing") == facts.of("superfluous") == facts.of("different") == []


@UNSHARDED_ONLY
@pytest.mark.parametrize(
    "wrong",
    [
        {"_id": 1},
        {"_id": "hashed"},
        {"status": 1},
        {"uniqueKey": 1},
        {"name": 1, "_id": 1},
        {"name": 1, "uniqueKey": 1},
        {"name": 1, "uniqueKey": "hashed"},
        {"name": "hashed", "uniqueKey": 1},
    ],
    ids=str,
)
async def test_a_collection_sharded_by_another_key_is_refused_in_words(
    cluster: Cluster, database: Database, wrong: dict[str, Any]
) -> None:
    await database.client.admin.command("shardCollection", f"{database.name}.monque_jobs", key=wrong)
    with pytest.raises(ConfigurationError) as refused:
        await Monque(uri_of(cluster, database)).open()

    assert 'shard it by {name: "hashed"} instead' in str(refused.value)


@UNSHARDED_ONLY
async def test_a_collection_with_jobs_in_it_can_be_sharded_later(
    monque: Monque, events: Events, collection: Collection
) -> None:
    """While an instance runs; it goes on."""
    monque.worker("work", lambda job: None)
    await monque.start()
    await monque.enqueue("work", 1)
    await events.wait("job:complete")
    await collection.create_index({"name": "hashed"})
    await collection.database.client.admin.command(
        "shardCollection", collection.full_name, key={"name": "hashed"}
    )
    await monque.enqueue("work", 2, unique_key="k")
    await events.wait("job:complete", 2)


async def test_a_cluster_older_than_7_is_refused_if_the_collection_is_sharded(
    monque: Monque, shard_key: dict[str, Any] | None
) -> None:
    """The cluster is a new one; only what it says of itself is that of MongoDB 6.0."""
    store = monque._context().store
    if shard_key is None:
        await check_sharding({"maxWireVersion": 17}, store)
    else:
        with pytest.raises(ConfigurationError, match=r"older than 7\.0"):
            await check_sharding({"maxWireVersion": 17}, store)
