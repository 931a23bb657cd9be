"""A sharded cluster for all tests here, and a database on it for each, whose jobs are sharded or not."""

from __future__ import annotations

import re
import uuid
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
from bson import MaxKey, MinKey
from pymongo import AsyncMongoClient

from support.aliases import Database
from support.sharding import Cluster

# With these, MongoDB can keep all of our unique indexes.
SHARD_KEYS: dict[str, dict[str, Any] | None] = {
    "unsharded": None,
    "by name, hashed": {"name": "hashed"},
    "by name": {"name": 1},
}


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    with Cluster(shards=2) as cluster:
        yield cluster


@pytest.fixture(params=SHARD_KEYS)
def shard_key(request: pytest.FixtureRequest) -> dict[str, Any] | None:
    return SHARD_KEYS[request.param]


@pytest.fixture
async def database(
    cluster: Cluster, shard_key: dict[str, Any] | None, request: pytest.FixtureRequest
) -> AsyncIterator[Database]:
    name = re.sub(r"\W", "_", request.node.name)[:30] + "_" + uuid.uuid4().hex[:8]
    async with AsyncMongoClient(cluster.uri, tz_aware=True) as client:
        if shard_key is not None:
            await client.admin.command("shardCollection", f"{name}.monque_jobs", key=shard_key)
            if shard_key["name"] == 1:
                await spread(client, f"{name}.monque_jobs")
        yield client[name]
        await client.drop_database(name)


async def spread(client: AsyncMongoClient[Any], namespace: str) -> None:
    """Put the first names on one shard and the others on the other, as the balancer would in time."""
    low, middle, high = ({"name": name} for name in (MinKey(), "name-15", MaxKey()))
    for shard, (first, last) in {"shard0": (low, middle), "shard1": (middle, high)}.items():
        await client.admin.command("moveRange", namespace, min=first, max=last, toShard=shard)
