"""Fixtures: one real mongod a test session (and xdist worker), one database a test."""

from __future__ import annotations

import os
import re
import signal
import uuid
from collections.abc import AsyncIterator, Callable, Iterator
from datetime import timedelta
from typing import Any

import hypothesis
import pytest
from pymongo import AsyncMongoClient
from pymongo.asynchronous.collection import AsyncCollection
from pymongo.asynchronous.database import AsyncDatabase

from monque import Monque, Options
from monque.embedded import EmbeddedMongo
from support.invariants import check_invariants
from support.sharding import Cluster

# All servers of the tests may be of another version than the packaged one, for instance MongoDB 8.
if mongod := os.environ.get("MONQUE_TEST_MONGOD"):
    os.environ["MONQUE_MONGOD"] = mongod

# A shell starts background commands with SIGINT ignored, and programs inherit that. Tests that send a Ctrl-C
# to a program need it to be heard, also with `make test &`.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# On a busy machine an example may take its time; what it finds counts, not how fast.
hypothesis.settings.register_profile(
    "monque", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
hypothesis.settings.load_profile("monque")

# Short waits, so that tests of retries, polls and heartbeats take milliseconds. Tests that are about
# these times set their own.
QUICK = Options(
    poll_interval=timedelta(milliseconds=200),
    base_retry_interval=timedelta(milliseconds=20),
    shutdown_timeout=timedelta(seconds=10),
)


def pytest_report_header() -> str:
    return f"mongod: {os.environ.get('MONQUE_TEST_MONGOD', 'as packaged; MONQUE_TEST_MONGOD names another')}"


@pytest.fixture(scope="session")
def server() -> Iterator[EmbeddedMongo | Cluster]:
    """One replica set; with MONQUE_TEST_THROUGH_MONGOS=1 a sharded cluster, reached through its mongos."""
    with (
        Cluster()
        if os.environ.get("MONQUE_TEST_THROUGH_MONGOS")
        else EmbeddedMongo(temporary=True) as running
    ):
        yield running


@pytest.fixture(scope="session")
async def client(server: EmbeddedMongo) -> AsyncIterator[AsyncMongoClient[dict[str, Any]]]:
    async with AsyncMongoClient(server.uri, tz_aware=True) as client:
        yield client


@pytest.fixture
async def database(
    client: AsyncMongoClient[dict[str, Any]], request: pytest.FixtureRequest
) -> AsyncIterator[AsyncDatabase[dict[str, Any]]]:
    name = re.sub(r"\W", "_", request.node.name)[:30] + "_" + uuid.uuid4().hex[:8]
    database = client[name]
    yield database
    await client.drop_database(name)


@pytest.fixture
def collection(database: AsyncDatabase[dict[str, Any]]) -> AsyncCollection[dict[str, Any]]:
    """The jobs of this test, read and written directly."""
    return database["monque_jobs"]


@pytest.fixture
async def make_monque(
    database: AsyncDatabase[dict[str, Any]], collection: AsyncCollection[dict[str, Any]]
) -> AsyncIterator[Callable[..., Monque]]:
    """Make instances on this test's database; afterwards they are closed and the collection is checked."""
    made: list[Monque] = []

    def make(given: object = None, *, options: Options = QUICK, **kwargs: Any) -> Monque:
        monque = Monque(database if given is None else given, options=options, **kwargs)
        made.append(monque)
        return monque

    yield make
    for monque in made:
        await monque.stop(timeout=0)
        await monque.close()
    await check_invariants(collection)


@pytest.fixture
async def monque(make_monque: Callable[..., Monque]) -> Monque:
    """One open instance with quick options."""
    return await make_monque().open()
