"""Storing while the server fails: an acknowledged job is stored, and a job in doubt raises."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator

import pytest
from pymongo.errors import BulkWriteError, DuplicateKeyError

from monque import ConnectionError, Monque, NewJob
from support.aliases import Database
from support.jobs import document
from support.servers import Servers, failing

APP = "storing"
OUT_OF_DISK_SPACE = 14031
CHUNK = 1000
IN_DOUBT = {"writeConcernError": {"code": 64, "errmsg": "waiting for replication timed out"}}


@pytest.fixture
async def monque(host: Servers, database: Database) -> AsyncIterator[Monque]:
    async with Monque(host.uri(database.name, appName=APP)) as monque:
        yield monque


@pytest.mark.parametrize("calls", [1, 5])
async def test_a_job_that_may_not_have_reached_a_majority_is_not_acknowledged(
    monque: Monque, database: Database, calls: int
) -> None:
    async with failing(database.client, ["insert"], app_name=APP, **IN_DOUBT):
        answers = await asyncio.gather(
            *(monque.enqueue("work") for _ in range(calls)), return_exceptions=True
        )

    assert [type(answer) for answer in answers] == [ConnectionError] * calls


async def test_one_refused_job_does_not_hide_that_the_rest_of_its_batch_is_in_doubt(
    monque: Monque, database: Database
) -> None:
    """Two calls share a write; the server refuses one of them and cannot vouch for the other."""
    inserter = monque._context().store.inserter
    there = document()
    await database["monque_jobs"].insert_one(there)

    async with failing(database.client, ["insert"], app_name=APP, **IN_DOUBT):
        refused, in_doubt = await asyncio.gather(
            inserter.insert(dict(there), None), inserter.insert(document(), None), return_exceptions=True
        )

    assert type(refused) is DuplicateKeyError
    assert type(in_doubt) is BulkWriteError


def new_jobs(chunks: int) -> Iterator[NewJob[int]]:
    return (NewJob("work", number) for number in range(chunks * CHUNK))


@pytest.mark.parametrize("kind", [list, iter], ids=["list", "generator"])
async def test_a_failure_in_a_later_chunk_says_how_many_are_stored(
    kind: type, monque: Monque, database: Database
) -> None:
    given, calls = kind(new_jobs(6)), list[int]()
    async with failing(database.client, ["insert"], app_name=APP, after=3, errorCode=OUT_OF_DISK_SPACE):
        with pytest.raises(ConnectionError, match="could not store the jobs") as refused:
            await monque.enqueue_many(given, return_jobs=False, on_progress=calls.append)

    assert refused.value.stored == calls[-1] == 3 * CHUNK
    assert "enqueue_many had stored the first 3,000 jobs" in refused.value.__notes__
    assert await database["monque_jobs"].count_documents({"data": {"$lt": 3 * CHUNK}}) == 3 * CHUNK
    assert await database["monque_jobs"].count_documents({}) == 3 * CHUNK


async def test_a_chunk_behind_one_that_failed_does_not_count(monque: Monque, database: Database) -> None:
    """Two writes are in progress; the first is refused, the second is stored. Nobody could go on after it."""
    calls: list[int] = []
    async with failing(database.client, ["insert"], app_name=APP, times=1, errorCode=OUT_OF_DISK_SPACE):
        with pytest.raises(ConnectionError) as refused:
            await monque.enqueue_many(new_jobs(6), on_progress=calls.append)

    assert (refused.value.stored, calls) == (0, [])
    assert await database["monque_jobs"].count_documents({}) == CHUNK


async def test_an_async_generator_is_closed_when_the_database_fails(
    monque: Monque, database: Database
) -> None:
    closed: list[bool] = []

    async def news() -> AsyncIterator[NewJob[int]]:
        try:
            for each in new_jobs(6):
                yield each
        finally:
            closed.append(True)

    given = news()
    async with failing(database.client, ["insert"], app_name=APP, after=1, errorCode=OUT_OF_DISK_SPACE):
        with pytest.raises(ConnectionError):
            await monque.enqueue_many(given, return_jobs=False)

    assert closed == [True]
