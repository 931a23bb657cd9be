"""A Monque whose commands are seen, for tests of what requests may do."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from pymongo import AsyncMongoClient

from monque import Monque
from monque.embedded import EmbeddedMongo
from support.aliases import Database, Make
from support.traffic import Traffic


@pytest.fixture
async def traffic(server: EmbeddedMongo) -> Traffic:
    return Traffic()


@pytest.fixture
async def watched(
    server: EmbeddedMongo, database: Database, make_monque: Make, traffic: Traffic
) -> AsyncIterator[Monque]:
    """An open Monque whose commands are recorded, with what its dashboard begins already there."""
    async with AsyncMongoClient(server.uri, tz_aware=True, event_listeners=[traffic]) as client:
        monque = await make_monque(client[database.name]).open()
        await monque.begin_use("failures")
        yield monque
        await monque.close()
