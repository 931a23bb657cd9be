"""Pages of jobs without what is large."""

from __future__ import annotations

from typing import Any

import pytest
from pymongo import AsyncMongoClient

from monque import ConfigurationError, Job, JobFilter, Monque
from monque._values.views import Direction
from monque.embedded import EmbeddedMongo
from support.aliases import Collection, Make
from support.clocks import ago
from support.jobs import document
from support.traffic import Traffic

LARGE = "x" * 100_000


async def found(monque: Monque, **how: Any) -> list[Job[Any]]:
    return (await monque.list_jobs(**how)).jobs


async def test_what_is_larger_stays_in_the_database(monque: Monque, collection: Collection) -> None:
    small, large = document(data={"n": 1}), document(data={"text": LARGE})
    done = document(status="completed", data=None, result=LARGE, history=[{"error": "E", "trace": "long"}])
    await collection.insert_many([small, large, done])

    jobs = await found(monque, payload_limit=4096)

    assert [job.id for job in jobs] == [small["_id"], large["_id"], done["_id"]]
    assert [job.data for job in jobs] == [{"n": 1}, None, None]
    assert [job.result for job in jobs] == [None, None, None]
    size = jobs[1].payload_size
    assert (jobs[0].payload_size, jobs[2].payload_size) == (None, None)
    assert size is not None
    assert len(LARGE) < size < len(LARGE) + 100
    assert jobs[2].history[0].traceback is None
    whole = await found(monque)
    assert [job.data for job in whole] == [{"n": 1}, {"text": LARGE}, None]
    assert [job.payload_size for job in whole] == [None] * 3
    assert whole[0] == jobs[0]


@pytest.mark.parametrize("data", [None, "x" * 50, 7, [1] * 50, ["x"], {}, {"$gt": 1}, True], ids=str)
async def test_payloads_of_all_types_have_a_size(monque: Monque, collection: Collection, data: Any) -> None:
    await collection.insert_one(document(data=data))

    (kept,) = await found(monque, payload_limit=10_000)
    (left,) = await found(monque, payload_limit=0)

    assert (kept.data, kept.payload_size) == (data, None)
    assert left.data is None
    assert left.payload_size is not None


async def test_a_document_without_data_is_shown(monque: Monque, collection: Collection) -> None:
    odd = document()
    del odd["data"]
    await collection.insert_one(odd)

    (job,) = await found(monque, payload_limit=100)

    assert (job.id, job.data) == (odd["_id"], None)


async def test_a_page_of_large_jobs_is_small_on_the_way(
    server: EmbeddedMongo, make_monque: Make, collection: Collection
) -> None:
    """Ten documents of nearly 16 MiB would be 160 MiB."""
    traffic = Traffic()
    async with AsyncMongoClient(server.uri, event_listeners=[traffic]) as client:
        monque = await make_monque(client[collection.database.name]).open()
        await collection.insert_many(document(data="x" * 15_000_000) for _ in range(2))
        traffic.clear()
        jobs = await found(monque, payload_limit=1000, limit=10)
        assert all(job.payload_size > 15_000_000 for job in jobs if job.payload_size is not None)
        assert len(jobs) == 2
        (command,) = traffic.commands[:1]
    assert next(iter(command)) == "aggregate"
    stages = [next(iter(stage)) for stage in command["pipeline"]]
    assert stages == ["$match", "$sort", "$limit", "$project", "$set", "$set"]


@pytest.mark.parametrize("direction", ["forward", "backward"])
@pytest.mark.parametrize("sort", ["id", "updated_at"])
async def test_pages_are_the_same_with_and_without_a_limit(
    monque: Monque, collection: Collection, direction: Direction, sort: Any
) -> None:
    await collection.insert_many(document(updatedAt=ago(minutes=n % 3)) for n in range(7))

    async def ids(**how: Any) -> list[Any]:
        pages = monque.iter_jobs(JobFilter(name="work"), sort=sort, direction=direction, limit=3, **how)
        return [job.id async for job in pages]

    assert await ids() == await ids(payload_limit=10)


@pytest.mark.parametrize("wrong", [-1, 1.5, "4 KiB", True])
async def test_a_limit_is_a_number_of_bytes(monque: Monque, wrong: Any) -> None:
    with pytest.raises(ConfigurationError, match="payload_limit must be a whole number"):
        await monque.list_jobs(payload_limit=wrong)
