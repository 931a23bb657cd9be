"""Collections with very many jobs, made by the server itself: no document passes through the test."""

from __future__ import annotations

from typing import Any

from pymongo.asynchronous.collection import AsyncCollection

from support.clocks import ago


async def fill(collection: AsyncCollection[dict[str, Any]], count: int, **fields: Any) -> None:
    """Let the collection hold *count* jobs; *fields* are aggregation expressions over `$n`, from 0 on.

    Replaces what was there. Indexes are best created afterwards. Ids grow with `$n`: those that a server
    makes need not, because its counter begins anywhere and starts over within a second.
    """
    stamp = ago(hours=1)
    id_as_hex = [f"{int(stamp.timestamp()):08x}", {"$toString": {"$add": [10**15, "$n"]}}]
    job = {
        "_id": {"$toObjectId": {"$concat": id_as_hex}},
        "name": "work",
        "data": None,
        "status": "pending",
        "nextRunAt": stamp,
        "failCount": 0,
        "createdAt": stamp,
        "updatedAt": stamp,
    }
    await collection.insert_one({})  # a mongos refuses to ask a database that is not there yet
    cursor = await collection.database.aggregate(
        [
            {"$documents": [{"n": {"$range": [0, count]}}]},
            {"$unwind": "$n"},
            {"$replaceWith": {**job, **fields}},
            {"$out": collection.name},
        ]
    )
    await cursor.to_list()
