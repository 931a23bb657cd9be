"""Fixtures: servers that may be broken. Each test gets a database on one of them, the `host`."""

from __future__ import annotations

import re
import uuid
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from functools import partial

import pytest
from pymongo import AsyncMongoClient
from pymongo.errors import PyMongoError

from support import servers
from support.aliases import Collection, Database, Failing
from support.places import drop_collections
from support.proxy import Proxy
from support.servers import Servers

VICTIM = "victim"


@pytest.fixture(scope="session")
def fault_server() -> Iterator[Servers]:
    """A one-node replica set with fail points; not to be killed."""
    with Servers(fail_points=True) as servers:
        yield servers


@pytest.fixture(scope="session")
def standalone() -> Iterator[Servers]:
    """A server without change streams, transactions and retryable writes."""
    with Servers(replica_set=False) as servers:
        yield servers


@pytest.fixture(scope="session")
def mortal() -> Iterator[Servers]:
    """A one-node replica set; a test that kills it starts it again."""
    with Servers() as servers:
        yield servers


@pytest.fixture(scope="session")
def three_nodes() -> Iterator[Servers]:
    """A replica set that survives the loss of a node; a test that kills one starts it again."""
    with Servers(nodes=3) as servers:
        yield servers


@pytest.fixture
def host(fault_server: Servers) -> Servers:
    """Where this test's database is; a test class overrides it to be elsewhere."""
    return fault_server


@pytest.fixture
async def database(host: Servers, request: pytest.FixtureRequest) -> AsyncIterator[Database]:
    name = re.sub(r"\W", "_", request.node.name)[:30] + "_" + uuid.uuid4().hex[:8]
    async with AsyncMongoClient(host.uri(), tz_aware=True) as client:
        yield client[name]
        with suppress(PyMongoError):  # a failover may still be under way
            await drop_collections(client[name])


@pytest.fixture
async def proxy(database: Database) -> AsyncIterator[Proxy]:
    """A way to the host that can be cut."""
    async with Proxy(await database.client.address) as proxy:
        yield proxy


@pytest.fixture
def victim(host: Servers, database: Database) -> str:
    """The URI for an instance whose commands `failing` fails.

    Its driver asks the server twice a second how it is: a server that lies about shutting down does not say
    by itself that it was not meant.
    """
    return host.uri(database.name, appName=VICTIM, heartbeatFrequencyMS=500)


@pytest.fixture
def failing(database: Database) -> Failing:
    """`support.servers.failing`, for the commands of the instances at `victim`."""
    return partial(servers.failing, database.client, app_name=VICTIM)


@pytest.fixture
async def brief_transactions(collection: Collection) -> AsyncIterator[None]:
    """The server ends a transaction after a second, not after a minute, when its owner is gone."""
    admin = collection.database.client.admin
    await admin.command("setParameter", 1, transactionLifetimeLimitSeconds=1)
    yield
    await admin.command("setParameter", 1, transactionLifetimeLimitSeconds=60)
