"""Opening and closing: once, in one event loop, also after that loop has ended. No server is spoken to."""

from __future__ import annotations

import asyncio
import threading
import weakref
from functools import partial
from typing import Any

import pytest

from monque import ConfigurationError, NotOpenError, Options
from monque._api.enqueue_many import child_documents
from monque._api.life import Opened, Opening
from monque._connect.connector import Connection, Connector
from monque._engine.context import Context
from monque._engine.waits import Waits
from monque._observe.telemetry import Telemetry
from monque._ops.companions import Companions
from monque._store.store import Store
from monque._time.clock import Clock
from monque._values.events import EventBus
from monque._values.state import State
from monque._workers.home import Owner
from monque._workers.workers import Workers


class SomeMonque:
    """What the connection belongs to."""


MONQUE = SomeMonque()


class Preparing:
    """Counts how often a connection was prepared."""

    def __init__(self, *, fails: bool = False) -> None:
        self.connections: list[Connection] = []
        self._fails = fails

    async def __call__(self, connection: Connection) -> Context:
        self.connections.append(connection)
        await asyncio.sleep(0)
        if self._fails:
            raise OSError("no")
        store = Store(connection.database, Options(), Clock(), "me")
        known = Waits(store), Companions(store), partial(child_documents, Workers(), store, lambda _: None)
        return Context(store, EventBus(), Telemetry(), State(), *known)


@pytest.fixture
def owner() -> Owner:
    return Owner(weakref.ref(MONQUE), State())


@pytest.fixture
def opening(owner: Owner) -> Opening:
    return Opening(Connector("mongodb://localhost:1/unused"), owner)


def test_what_is_not_open_says_how_to_open_it(opening: Opening) -> None:
    with pytest.raises(NotOpenError, match="async with monque"):
        opening.anywhere()
    assert not opening.is_open


async def test_calls_that_come_together_open_once(opening: Opening) -> None:
    prepare = Preparing()

    await asyncio.gather(*[opening.open(prepare) for _ in range(3)])

    assert len(prepare.connections) == 1
    assert opening.here() is opening.anywhere()
    assert opening.left_behind() is None
    await opening.close()


async def test_what_could_not_be_prepared_is_not_open(opening: Opening) -> None:
    with pytest.raises(OSError, match="no"):
        await opening.open(Preparing(fails=True))

    assert not opening.is_open
    await opening.open(Preparing())
    assert opening.is_open
    await opening.close()


async def test_workers_know_whether_their_monque_was_closed(opening: Opening, owner: Owner) -> None:
    assert not owner.is_closed
    await opening.close()
    assert owner.is_closed
    await opening.open(Preparing())
    assert not owner.is_closed
    await opening.close()
    assert owner.is_closed
    assert not opening.is_open


async def test_another_loop_is_refused_while_that_of_the_connection_lives(opening: Opening) -> None:
    await opening.open(Preparing())

    async def elsewhere() -> None:
        assert opening.is_open
        with pytest.raises(ConfigurationError, match="another event loop"):
            opening.here()
        with pytest.raises(ConfigurationError, match="another event loop"):
            opening.left_behind()

    await asyncio.to_thread(asyncio.run, elsewhere())
    await opening.close()


async def test_without_a_loop_the_error_says_what_to_do(opening: Opening) -> None:
    await opening.open(Preparing())

    with pytest.raises(ConfigurationError, match="SyncMonque"):
        await asyncio.to_thread(opening.here)
    await opening.close()


def test_a_loop_that_has_ended_leaves_its_connection_behind(opening: Opening) -> None:
    async def first() -> None:
        await opening.open(Preparing())

    async def second() -> tuple[Opened | None, Any]:
        left = opening.left_behind()
        assert not opening.is_open
        assert opening.forget() is left
        await opening.open(prepare := Preparing())
        assert opening.is_open
        await opening.close()
        return left, prepare.connections

    in_a_thread(first())
    left, connections = in_a_thread(second())

    assert left is not None
    assert [connection is left.connection for connection in connections] == [False]


def in_a_thread(coroutine: Any) -> Any:
    """Run it in an event loop of its own, which ends."""
    results: list[Any] = []
    thread = threading.Thread(target=lambda: results.append(asyncio.run(coroutine)))
    thread.start()
    thread.join()
    return results[0]
