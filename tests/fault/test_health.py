"""`is_healthy()` is soon right about servers that die or hang, and about facts that are old."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from pymongo import AsyncMongoClient

from monque import Monque
from support.aliases import Collection, Make
from support.options import QUICK
from support.servers import Servers, frozen, killed
from support.traffic import Traffic
from support.waiting import Events, eventually, healthy

POLLING = replace(QUICK, change_streams=False)
# An instance with a live change stream that has nothing to do sends nothing for a minute.
IDLE = replace(QUICK, safety_poll_interval=timedelta(minutes=1), heartbeat_interval=timedelta(seconds=30))


@pytest.fixture(scope="module")
def lone() -> Iterator[Servers]:
    """A standalone server; a test that kills it starts it again."""
    with Servers(replica_set=False) as servers:
        yield servers


@pytest.fixture(params=["replica set", "standalone", "direct connection", "lent client"])
def kind(request: pytest.FixtureRequest) -> str:
    """How the instance is connected."""
    return str(request.param)


@pytest.fixture
def host(kind: str, request: pytest.FixtureRequest) -> Servers:
    servers: Servers = request.getfixturevalue("lone" if kind == "standalone" else "mortal")
    return servers


@pytest.fixture
async def connected(kind: str, host: Servers, collection: Collection) -> AsyncIterator[object]:
    """What the instance is made with."""
    database, short = collection.database.name, {"serverSelectionTimeoutMS": 3000}
    if kind == "lent client":
        async with AsyncMongoClient(host.uri(**short)) as client:
            yield client[database]
    elif kind == "direct connection":
        yield f"mongodb://{host.nodes[0].address}/{database}?directConnection=true&serverSelectionTimeoutMS=3000"
    elif kind == "standalone":
        yield host.uri(database)
    else:
        yield host.uri(database, **short)


async def begin(monque: Monque) -> Monque:
    """An instance that works, has a worker and nothing to do."""
    monque.worker("work", lambda job: None)
    events = Events(monque)
    await monque.start()
    if monque.options.change_streams:

        def knows_whether_there_are_streams() -> None:
            assert events.of("changestream:connected") or events.of("changestream:fallback")

        await eventually(knows_whether_there_are_streams)
    await healthy(monque, within=5)
    return monque


@pytest.mark.parametrize("options", [IDLE, POLLING], ids=["stream", "polling"])
async def test_is_healthy_is_false_five_seconds_after_the_server_was_killed_and_true_when_it_is_back(
    host: Servers, connected: object, make_monque: Make, options: Any, caplog: pytest.LogCaptureFixture
) -> None:
    monque = await begin(make_monque(connected, options=options))
    with caplog.at_level(logging.INFO, "monque"):
        with killed(host.nodes[0]):
            await healthy(monque, False, within=5)
        await healthy(monque, within=15)

    back = [record for record in caplog.records if "the database is back" in record.message]
    assert [record.levelno for record in back] == [logging.INFO]


@pytest.mark.parametrize("kind", ["replica set", "standalone"], indirect=True)
async def test_is_healthy_is_false_fifteen_seconds_after_the_server_began_to_hang_and_true_when_it_goes_on(
    host: Servers, connected: object, make_monque: Make
) -> None:
    monque = await begin(make_monque(connected, options=IDLE))
    with frozen(host.nodes[0]):
        await healthy(monque, False, within=15)
    await healthy(monque, within=10)


class TestOneServer:
    @pytest.fixture
    def kind(self) -> str:
        return "replica set"

    async def test_an_idle_instance_sends_one_ping_in_five_seconds(
        self, host: Servers, collection: Collection, make_monque: Make, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The five seconds are half of one here."""
        monkeypatch.setattr("monque._connect.contact._QUIET", 0.5)
        traffic = Traffic()
        async with AsyncMongoClient(host.uri(), event_listeners=[traffic]) as client:
            monque = await begin(make_monque(client[collection.database.name], options=IDLE))
            traffic.sent.clear()
            began = time.monotonic()

            def asked() -> None:
                assert traffic.sent["ping"] >= 3

            await eventually(asked)
            took = time.monotonic() - began
            await monque.close()

        assert traffic.sent["ping"] <= took / 0.5 + 1

    async def test_an_instance_that_polls_sends_no_ping(
        self, host: Servers, collection: Collection, make_monque: Make, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("monque._connect.contact._QUIET", 1.0)
        traffic = Traffic()
        async with AsyncMongoClient(host.uri(), event_listeners=[traffic]) as client:
            monque = await begin(make_monque(client[collection.database.name], options=POLLING))

            def polled() -> None:
                assert traffic.sent["find"] >= 15

            await eventually(polled)
            await monque.close()

        assert traffic.sent["ping"] == 0

    async def test_after_a_blocked_loop_is_healthy_is_false_until_the_database_has_answered(
        self, connected: object, make_monque: Make, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monque = await begin(make_monque(connected, options=IDLE))
        monkeypatch.setattr("monque._connect.contact._QUIET", 0.1)
        monkeypatch.setattr("monque._connect.contact._OLDEST_FACTS", 1.0)
        time.sleep(1.1)  # noqa: ASYNC251 - that is the fault

        assert not monque.is_healthy()
        await healthy(monque, within=5)

    @pytest.mark.parametrize("options", [IDLE, POLLING], ids=["stream", "polling"])
    async def test_an_instance_is_closed_within_seconds_in_an_outage(
        self,
        host: Servers,
        connected: object,
        make_monque: Make,
        options: Any,
        caplog: pytest.LogCaptureFixture,
    ) -> None:
        """A claim is under way, and the driver would search for a server for twenty seconds."""
        patient = replace(options, shutdown_timeout=timedelta(minutes=1))
        monque = await begin(make_monque(connected, options=patient))
        with killed(host.nodes[0]):
            await healthy(monque, False, within=5)
            with suppress(Exception):
                async with asyncio.timeout(0.3):
                    await monque.enqueue("work")  # which wakes the claim loop
            began = time.monotonic()
            await monque.close()
            took = time.monotonic() - began

        assert took < 9
        assert "the scheduler has a bug" not in caplog.text
