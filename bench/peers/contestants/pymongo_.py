"""Plain PyMongo: the shortest loop that claims, runs and completes jobs in batches, and is woken by a stream.

A yardstick, not a library: no retries, no recovery, no schedules, no unique keys. All its writes, the claims
too, wait for a majority, as those of Monque do.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

import peer
from bson import ObjectId
from pymongo import AsyncMongoClient
from pymongo.write_concern import WriteConcern

BATCH: int = peer.OPTIONS.get("batch", 100)
DUE = [("nextRunAt", 1), ("_id", 1)]
client: AsyncMongoClient[Any]
jobs: Any


def document(number: int) -> dict[str, Any]:
    now = datetime.now(UTC)
    return {
        "name": "noop",
        "data": {"number": number},
        "status": "pending",
        "nextRunAt": now,
        "createdAt": now,
        "updatedAt": now,
        "claimedBy": None,
    }


async def start() -> None:
    global client, jobs
    client = AsyncMongoClient(peer.MONGO, tz_aware=True)
    jobs = client["plain"].get_collection("jobs", write_concern=WriteConcern("majority"))


async def prepare() -> None:
    await start()
    await jobs.create_index(DUE, partialFilterExpression={"status": "pending"})


async def store(number: int) -> None:
    await jobs.insert_one(document(number))


async def store_many(numbers: Iterable[int]) -> None:
    await jobs.insert_many([document(number) for number in numbers], ordered=False)


async def handle(job: dict[str, Any]) -> None:
    peer.started(job["data"]["number"])


class Loop:
    """One worker: it claims, runs and completes until it is told to stop."""

    def __init__(self) -> None:
        self.me = str(ObjectId())
        self.stopped = False
        self.ended: list[Any] = []
        self.some_ended = asyncio.Event()
        self.running: set[asyncio.Task[None]] = set()

    async def claim_one(self) -> list[dict[str, Any]]:
        """A lone job in one command."""
        due = {"status": "pending", "nextRunAt": {"$lte": datetime.now(UTC)}}
        found = await jobs.find_one_and_update(due, {"$set": self.claim()}, sort=DUE)
        return [] if found is None else [found]

    async def claim_many(self) -> list[dict[str, Any]]:
        """A page of jobs in two or three."""
        due = {"status": "pending", "nextRunAt": {"$lte": datetime.now(UTC)}}
        found = await jobs.find(due, sort=DUE, limit=BATCH, batch_size=BATCH).to_list()
        if not found:
            return []
        ids = [job["_id"] for job in found]
        still = {"_id": {"$in": ids}, "status": "pending"}
        claimed = await jobs.update_many(still, {"$set": self.claim()}, hint="_id_")
        if claimed.modified_count < len(ids):
            mine = jobs.find({"_id": {"$in": ids}, "claimedBy": self.me}, {"_id": 1})
            won = {job["_id"] async for job in mine}
            found = [job for job in found if job["_id"] in won]
        return found

    def claim(self) -> dict[str, Any]:
        return {"status": "processing", "claimedBy": self.me, "claimedAt": datetime.now(UTC)}

    async def run(self, job: dict[str, Any]) -> None:
        try:
            await handle(job)
        finally:
            self.ended.append(job["_id"])
            self.some_ended.set()

    async def complete(self) -> None:
        while True:
            await self.some_ended.wait()
            self.some_ended.clear()
            ids, self.ended[:] = self.ended[:BATCH], self.ended[BATCH:]
            if self.ended:
                self.some_ended.set()
            if ids:
                done = {"$set": {"status": "done", "updatedAt": datetime.now(UTC)}}
                await jobs.update_many({"_id": {"$in": ids}, "claimedBy": self.me}, done, hint="_id_")

    async def work(self) -> None:
        await start()
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, setattr, self, "stopped", True)
        completers = [asyncio.create_task(self.complete()) for _ in range(2)]
        inserts: list[dict[str, Any]] = [{"$match": {"operationType": "insert"}}, {"$project": {"_id": 1}}]
        stream, behind, many = None, 0, True
        peer.is_ready()
        while not self.stopped:
            found = await (self.claim_many() if many else self.claim_one())
            many = len(found) > 1 or (many and bool(found))
            behind += len(found)
            for job in found:
                task = asyncio.create_task(self.run(job))
                self.running.add(task)
                task.add_done_callback(self.running.discard)
            if found:
                await asyncio.sleep(0)
                while len(self.ended) > 4 * BATCH:
                    await asyncio.sleep(0.001)
                continue
            if stream is not None and behind > 100:  # reading what it has missed costs more than a new one
                await stream.close()
                stream = None
            behind = 0
            if stream is None:
                stream = await jobs.watch(inserts, max_await_time_ms=1000)
            else:
                await stream.try_next()
        for completer in completers:
            completer.cancel()


async def worker() -> None:
    await Loop().work()


if __name__ == "__main__":
    peer.run_async(lambda: peer.loop_of(worker()), store, store_many, prepare, start)
