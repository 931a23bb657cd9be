"""`diagnose`, `count_jobs` and `server_time`: what operators ask about a deployment."""

from __future__ import annotations

from datetime import timedelta

import pytest

from monque import ConfigurationError, JobFilter, JobStatus, Monque, NotOpenError, Options
from support.aliases import Collection, Make
from support.clocks import ago, ahead, now
from support.jobs import claimed, document

UNTOUCHED = Options(create_indexes=False, recover_stale_jobs=False)


async def test_a_healthy_replica_set(monque: Monque) -> None:
    found = await monque.diagnose()

    hello = await monque.client.admin.command("hello")
    assert found.server_version == (await monque.client.server_info())["version"]
    assert (found.replica_set, found.change_streams, found.transactions) == (hello.get("setName"), True, True)
    assert abs(found.clock_offset) < timedelta(seconds=5)
    assert abs(found.taken_at - now()) < timedelta(minutes=1)
    assert {index.name: index.state for index in found.indexes} == {
        "_id_": "needed",
        "monque_active": "needed",
        "name_1_uniqueKey_1": "needed",
    }
    assert (found.stale, found.due) == ([], [])


async def test_indexes_are_compared_with_those_that_are_needed(
    make_monque: Make, collection: Collection
) -> None:
    await collection.create_index({"name": 1, "uniqueKey": 1}, name="name_1_uniqueKey_1")  # not unique
    await collection.create_index("data.customer", name="mine")
    await collection.create_index({"name": 1, "status": 1}, name="name_1_status_1")
    monque = await make_monque(options=UNTOUCHED).open()

    found = await monque.diagnose()
    assert {index.name: index.state for index in found.indexes} == {
        "_id_": "needed",
        "monque_active": "missing",
        "name_1_uniqueKey_1": "different",
        "mine": "superfluous",
        "name_1_status_1": "optional",
    }
    assert [index.keys for index in found.of("missing")] == [("status", "name", "nextRunAt", "_id")]


async def test_stale_jobs_are_found_and_left_as_they_are(make_monque: Make, collection: Collection) -> None:
    dead = claimed("dead", lastHeartbeat=ago(minutes=3), lockedAt=ago(minutes=3), updatedAt=ago(minutes=3))
    deader = claimed("dead", lastHeartbeat=ago(hours=3), lockedAt=ago(hours=3), updatedAt=ago(hours=3))
    await collection.insert_many([dead, deader, claimed("alive")])
    monque = await make_monque(options=UNTOUCHED).open()

    found = await monque.diagnose()
    assert [job.id for job in found.stale] == [deader["_id"], dead["_id"]]
    assert await collection.count_documents({"status": "processing"}) == 3


async def test_jobs_that_could_run_are_reported_by_name(make_monque: Make, collection: Collection) -> None:
    """Dead owners run nothing."""
    await collection.insert_many(
        [
            document(name="slow", nextRunAt=ago(minutes=1)),
            document(name="slow", nextRunAt=ago(minutes=2)),
            claimed("alive", name="slow"),
            document(name="dead", nextRunAt=ago(minutes=9)),
            claimed("gone", name="dead", lastHeartbeat=ago(hours=1), lockedAt=ago(hours=1)),
            document(name="later", nextRunAt=ahead(minutes=1)),
            document(name="done", status="completed"),
        ]
    )
    monque = await make_monque(options=UNTOUCHED).open()

    due = (await monque.diagnose()).due
    assert [(each.name, each.count, each.running) for each in due] == [("dead", 1, 0), ("slow", 2, 1)]
    assert due[1].oldest == (await collection.find_one({"name": "slow"}, sort={"nextRunAt": 1}))["nextRunAt"]


async def test_jobs_are_counted_by_filter(monque: Monque, collection: Collection) -> None:
    await collection.insert_many(
        [document(name="a"), document(name="a", status="failed"), document(name="b")]
    )

    assert await monque.count_jobs() == 3
    assert await monque.count_jobs(JobFilter(name="a")) == 2
    assert await monque.count_jobs(JobFilter(name="a", status=JobStatus.FAILED)) == 1
    assert await monque.count_jobs(JobFilter(due_after=ahead(hours=1))) == 0
    with pytest.raises(ConfigurationError, match="the filter must be a JobFilter"):
        await monque.count_jobs({"name": "a"})


async def test_the_servers_time_is_known_while_open(make_monque: Make) -> None:
    monque = make_monque()
    with pytest.raises(NotOpenError):
        monque.server_time()
    await monque.open()

    assert abs(monque.server_time() - now()) < timedelta(minutes=1)
