"""Documents put into the collection directly, as any implementation may have left them, and read from it."""

from __future__ import annotations

from collections import Counter
from datetime import datetime
from typing import Any

from bson import ObjectId

from monque import Options
from monque._store.job import reader
from support.aliases import Collection
from support.clocks import ago, now

READ = reader(lambda _: Options().max_retries)
"""Reads jobs as an instance without workers does."""


def document(**fields: Any) -> dict[str, Any]:
    """A pending job that is due; *fields* by their names on the wire."""
    stamp: datetime = ago(seconds=1)
    base: dict[str, Any] = {
        "_id": ObjectId(),
        "name": "work",
        "data": None,
        "status": "pending",
        "nextRunAt": stamp,
        "failCount": 0,
        "createdAt": stamp,
        "updatedAt": stamp,
    }
    return {**base, **fields}


def claimed(by: str, **fields: Any) -> dict[str, Any]:
    """A job that *by* is processing."""
    claim = {
        "status": "processing",
        "claimedBy": by,
        "lockedAt": now(),
        "lastHeartbeat": now(),
        "heartbeatInterval": 30_000,
        "attempt": 1,
    }
    return document(**{**claim, **fields})


async def only(collection: Collection) -> dict[str, Any]:
    """Return the only document that there is."""
    [found] = await collection.find().to_list()
    return found


async def find_one(collection: Collection, *query: Any, **options: Any) -> dict[str, Any]:
    """Return what `collection.find_one` returns; there must be a document."""
    found = await collection.find_one(*query, **options)
    assert found is not None, query
    return found


async def statuses(collection: Collection) -> Counter[str]:
    """Count the jobs by status."""
    return Counter([job["status"] async for job in collection.find()])
