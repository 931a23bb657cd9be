"""What the same server does for plain PyMongo: the limits that Monque's numbers stand beside.

Each does the same writes at the same guarantee: what is acknowledged has reached a majority.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any

from bson import ObjectId
from pymongo import WriteConcern
from pymongo.asynchronous.collection import AsyncCollection

from bench.processes import Process
from bench.scenario import Round, Subject
from bench.stage import Sample, Stage
from monque import Options

Document = dict[str, Any]

CLAIM = {
    "$set": {"status": "processing", "claimedBy": "me", "heartbeatInterval": 30_000},
    "$inc": {"attempt": 1},
    "$currentDate": {"lockedAt": True, "lastHeartbeat": True, "updatedAt": True},
}
COMPLETE = {
    "$set": {"status": "completed"},
    "$unset": {"claimedBy": "", "lockedAt": "", "lastHeartbeat": "", "failReason": "", "crashCount": ""},
    "$currentDate": {"updatedAt": True, "finishedAt": True},
}


async def jobs(stage: Stage, name: str = "plain_jobs") -> AsyncCollection[Document]:
    """A collection with the one index a queue cannot do without."""
    collection = stage.database.get_collection(name, write_concern=WriteConcern("majority"))
    await collection.create_index(
        {"status": 1, "name": 1, "nextRunAt": 1, "_id": 1},
        name="active",
        partialFilterExpression={"status": {"$in": ["pending", "processing"]}},
    )
    return collection


def document() -> Document:
    """A job as Monque stores it."""
    now = datetime.now(UTC)
    return {
        "_id": ObjectId(),
        "name": "work",
        "data": None,
        "status": "pending",
        "nextRunAt": now,
        "failCount": 0,
        "createdAt": now,
        "updatedAt": now,
    }


async def one_by_one(stage: Stage, count: int) -> Sample:
    """The loop everybody writes first: claim one, complete it, claim the next."""
    collection = await jobs(stage)
    await collection.insert_many([document() for _ in range(count)])
    with stage.costs(count) as costs:
        for _ in range(count):
            job = await collection.find_one_and_update(
                {"status": "pending", "name": "work", "nextRunAt": {"$lte": datetime.now(UTC)}},
                CLAIM,
                sort={"nextRunAt": 1},
            )
            assert job is not None
            await collection.update_one(
                {"_id": job["_id"], "status": "processing", "claimedBy": "me"}, COMPLETE
            )
    await collection.drop()
    return costs.rate()


async def overlapped(stage: Stage, count: int, *, batch: int) -> Sample:
    """Batches, the next one read and claimed while two are being completed."""
    collection = await jobs(stage)
    await collection.insert_many([document() for _ in range(count)])
    done, completing = 0, set[asyncio.Task[Any]]()
    with stage.costs(count) as costs:
        while done < count:
            ids = await _claim_batch(collection, batch)
            done += len(ids)
            completing.add(asyncio.create_task(_complete_batch(collection, ids)))
            while len(completing) > 2:
                _, completing = await asyncio.wait(completing, return_when=asyncio.FIRST_COMPLETED)
        await asyncio.gather(*completing)
    await collection.drop()
    return costs.rate()


async def _claim_batch(collection: AsyncCollection[Document], batch: int) -> list[ObjectId]:
    due = await collection.find(
        {"status": "pending", "name": "work"},
        {"_id": 1, "nextRunAt": 1},
        sort={"nextRunAt": 1, "_id": 1},
        limit=batch,
        batch_size=batch,
        hint="active",
    ).to_list()
    ids = [entry["_id"] for entry in due]
    await collection.update_many({"_id": {"$in": ids}, "status": "pending"}, CLAIM, hint="_id_")
    mine = {"_id": {"$in": ids}, "status": "processing", "claimedBy": "me"}
    return [job["_id"] for job in await collection.find(mine, hint="_id_", batch_size=batch + 1).to_list()]


async def _complete_batch(collection: AsyncCollection[Document], ids: Sequence[ObjectId]) -> None:
    mine = {"_id": {"$in": list(ids)}, "status": "processing", "claimedBy": "me", "attempt": 1}
    await collection.update_many(mine, COMPLETE, hint="_id_")


async def insert_one(stage: Stage, count: int, *, tasks: int = 1) -> Sample:
    """Each insert awaited, from some tasks at once."""
    collection = await jobs(stage)

    async def insert() -> None:
        for _ in range(count // tasks):
            await collection.insert_one(document())

    with stage.costs(count) as costs:
        await asyncio.gather(*(insert() for _ in range(tasks)))
    return costs.rate()


async def insert_many(stage: Stage, count: int) -> Sample:
    """All in one call."""
    collection = await jobs(stage)
    with stage.costs(count) as costs:
        await collection.insert_many([document() for _ in range(count)])
    return costs.rate()


async def upsert(stage: Stage, count: int) -> Sample:
    """Each upserted by a unique key."""
    collection = await jobs(stage, "plain_keyed")
    await collection.create_index(
        {"name": 1, "uniqueKey": 1},
        unique=True,
        partialFilterExpression={
            "uniqueKey": {"$exists": True},
            "status": {"$in": ["pending", "processing"]},
        },
    )
    with stage.costs(count) as costs:
        for _ in range(count):
            key = {"name": "work", "uniqueKey": str(ObjectId())}
            active = {**key, "status": {"$in": ["pending", "processing"]}}
            job = {"$setOnInsert": {**document(), **key}}
            await collection.find_one_and_update(active, job, upsert=True)
    return costs.rate()


async def insert_and_claim(stage: Stage, count: int) -> Sample:
    """One insert and one claim of it: the least that a pick-up can take."""
    collection = await jobs(stage)
    times = []
    with stage.costs(count) as costs:
        for _ in range(count):
            began = time.perf_counter()
            await collection.insert_one(document())
            await collection.find_one_and_update({"status": "pending", "name": "work"}, CLAIM)
            times.append(time.perf_counter() - began)
    return costs.times(times)


def claim_on_event(*, count: int) -> Subject:
    """From the call of `enqueue` in another process over its change event to a claim: the least for it."""

    @asynccontextmanager
    async def subject(stage: Stage) -> AsyncIterator[Round]:
        majority = WriteConcern("majority")
        collection = stage.database.get_collection(Options().collection, write_concern=majority)
        async with (
            Process("bench.producer", stage.uri) as producer,
            await collection.watch([{"$match": {"operationType": "insert"}}]) as stream,
        ):

            async def measure() -> Sample:
                times = []
                with stage.costs(count, processes=[producer.pid]) as costs:
                    for _ in range(count):
                        producer.tell("one")
                        found = {**(await stream.next())["documentKey"], "status": "pending", "name": "work"}
                        job = await collection.find_one_and_update(found, CLAIM)
                        assert job is not None
                        times.append(time.monotonic() - job["data"])
                return costs.times(times)

            await measure()
            yield measure

    return subject


async def insert_event_and_claim(stage: Stage, count: int) -> Sample:
    """From an insert over its change event to a claim: the least for another process."""
    collection = await jobs(stage)
    times = []
    async with await collection.watch([{"$match": {"operationType": "insert"}}]) as stream:
        with stage.costs(count) as costs:
            for _ in range(count):
                began = time.perf_counter()
                inserting = asyncio.create_task(collection.insert_one(document()))
                await stream.next()
                await collection.find_one_and_update({"status": "pending", "name": "work"}, CLAIM)
                times.append(time.perf_counter() - began)
                await inserting
    return costs.times(times)


async def fill(stage: Stage, collection: str, count: int, **fields: Any) -> None:
    """Store many documents that nobody works on, without indexes: those are made faster afterwards."""
    for at in range(0, count, 10_000):
        documents = [document() | fields for _ in range(min(10_000, count - at))]
        await stage.database[collection].insert_many(documents, ordered=False)
