"""What the same server does for plain PyMongo: the limits that Monque's numbers stand beside."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from pymongo import WriteConcern
from pymongo.asynchronous.collection import AsyncCollection
from pymongo.asynchronous.database import AsyncDatabase

from bench.timing import percentiles, stopwatch

Document = dict[str, Any]


def jobs(database: AsyncDatabase[Any]) -> AsyncCollection[Document]:
    """A collection with the guarantees Monque gives: what is acknowledged has reached a majority."""
    return database.get_collection("plain_jobs", write_concern=WriteConcern("majority"))


def document() -> Document:
    """A job as Monque stores it."""
    now = datetime.now(UTC)
    return {
        "name": "work",
        "data": None,
        "status": "pending",
        "nextRunAt": now,
        "failCount": 0,
        "createdAt": now,
        "updatedAt": now,
    }


async def one_by_one(database: AsyncDatabase[Any], count: int) -> float:
    """Jobs a second of the loop everybody writes first: claim one, complete it, claim the next."""
    collection = jobs(database)
    await collection.create_index({"status": 1, "nextRunAt": 1})
    await collection.insert_many([document() for _ in range(count)])
    with stopwatch() as watch:
        for _ in range(count):
            job = await collection.find_one_and_update(
                {"status": "pending", "nextRunAt": {"$lte": datetime.now(UTC)}},
                {"$set": {"status": "processing", "claimedBy": "me"}, "$currentDate": {"lockedAt": True}},
                sort={"nextRunAt": 1},
            )
            assert job is not None
            await collection.update_one(
                {"_id": job["_id"], "status": "processing", "claimedBy": "me"},
                {"$set": {"status": "completed"}, "$unset": {"claimedBy": "", "lockedAt": ""}},
            )
    return count / watch.seconds


async def insert_one(database: AsyncDatabase[Any], count: int) -> float:
    """Documents a second, each awaited."""
    collection = jobs(database)
    with stopwatch() as watch:
        for _ in range(count):
            await collection.insert_one(document())
    return count / watch.seconds


async def insert_many(database: AsyncDatabase[Any], count: int) -> float:
    """Documents a second, in one call."""
    documents = [document() for _ in range(count)]
    with stopwatch() as watch:
        await jobs(database).insert_many(documents)
    return count / watch.seconds


async def insert_and_claim(database: AsyncDatabase[Any], count: int) -> list[float]:
    """Seconds for one insert and one claim of it: the least that a pick-up can take."""
    collection = jobs(database)
    await collection.create_index({"status": 1, "nextRunAt": 1})
    times = []
    for _ in range(count):
        with stopwatch() as watch:
            await collection.insert_one(document())
            await collection.find_one_and_update({"status": "pending"}, {"$set": {"status": "completed"}})
        times.append(watch.seconds)
    return percentiles(times)
