"""Fixtures: one real mongod a test session (and xdist worker), one database a test."""

from __future__ import annotations

import os
import re
import resource
import signal
import sys
import uuid
from collections.abc import AsyncIterator, Generator, Iterator
from typing import Any

import hypothesis
import pytest
from pymongo import AsyncMongoClient

from monque import Monque, Options
from monque.embedded import EmbeddedMongo
from support.aliases import Collection, Database, Make
from support.invariants import check_invariants
from support.options import QUICK, without_companions
from support.places import drop_collections, use_memory
from support.sharding import Cluster
from support.waiting import Events
from support.web import KEY

# All servers of the tests may be of another version than the packaged one, for instance MongoDB 8.
if mongod := os.environ.get("MONQUE_TEST_MONGOD"):
    os.environ["MONQUE_MONGOD"] = mongod

# `make sharded` names the programs of a sharded cluster.
collect_ignore = (
    []
    if "MONQUE_TEST_MONGOS" in os.environ
    else [f"sharded/test_{name}.py" for name in ("sharded", "scale", "flows")]
)
if mongod is None:
    collect_ignore.append("sharded/test_named_server.py")

# A shell starts background commands with SIGINT ignored, and programs inherit that. Tests that send a Ctrl-C
# to a program need it to arrive, also with `make test &`.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# The servers of the fault tests inherit the limit of open files. Most systems allow 1,024 unless one asks,
# and a mongod with hundreds of test databases ends itself when it meets the limit.
_, _most_files = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (_most_files, _most_files))

use_memory()

os.environ["MONQUE_WEB_KEY"] = KEY

# Tests start hundreds of Python processes. If the environment forbids them to keep what they compiled, each
# of them compiles all its modules anew.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

# On a busy machine an example may take its time; what it finds counts, not how fast.
hypothesis.settings.register_profile(
    "monque", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
hypothesis.settings.load_profile("monque")


# What takes longest comes first: no process is left with a test of a minute when the others have ended.
_FIRST = (
    "tests/chaos/test_run.py",
    "tests/fault/test_stateful.py",
    "tests/bench/test_run.py",
    "tests/interop/test_version_before.py",
    "tests/cli/test_worker.py",
    "tests/browser/",
    "tests/fault/",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: [not item.nodeid.startswith(prefix) for prefix in _FIRST])


def pytest_report_header() -> str:
    return f"mongod: {os.environ.get('MONQUE_TEST_MONGOD', 'as packaged; MONQUE_TEST_MONGOD names another')}"


@pytest.hookimpl(wrapper=True)
def pytest_report_to_serializable() -> Generator[None, Any, Any]:
    """Escape lone surrogates in reports: xdist cannot send them, and the whole test run would end."""
    return _escaped((yield))


def _escaped(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode(errors="backslashreplace").decode()
    if isinstance(value, dict):
        return {key: _escaped(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(map(_escaped, value))
    return value


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
) -> AsyncIterator[Database]:
    name = re.sub(r"\W", "_", request.node.name)[:30] + "_" + uuid.uuid4().hex[:8]
    database = client[name]
    yield database
    await drop_collections(database)


@pytest.fixture
def collection(database: Database) -> Collection:
    """The jobs of this test, read and written directly."""
    return database["monque_jobs"]


@pytest.fixture
async def make_monque(database: Database, collection: Collection) -> AsyncIterator[Make]:
    """Make instances on this test's database; afterwards they are closed and the collection is checked.

    They write nothing beside their jobs, unless the test says `companions=True`.
    """
    made: list[Monque] = []

    def make(
        given: object = None, *, options: Options = QUICK, companions: bool = False, **kwargs: Any
    ) -> Monque:
        options = options if companions else without_companions(options)
        monque = Monque(database if given is None else given, options=options, **kwargs)
        made.append(monque)
        return monque

    yield make
    for monque in made:
        await monque.stop(timeout=0)
        await monque.close()
    await check_invariants(collection)


@pytest.fixture
async def monque(make_monque: Make) -> Monque:
    """One open instance with quick options."""
    return await make_monque().open()


@pytest.fixture
async def events(monque: Monque) -> Events:
    """What `monque` emits in this test."""
    return Events(monque)


@pytest.fixture
def short_grace(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a stop wait half a second, not three, for handlers that it interrupted.

    For tests whose only handler outlasts either.
    """
    monkeypatch.setattr("monque._engine.stop._GRACE", 0.5)
