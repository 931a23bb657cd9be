"""The scenery: a replica set of three real mongods behind gates, one of which can be partitioned away."""

from __future__ import annotations

import asyncio
import os
import shutil
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

from pymongo import MongoClient
from pymongo.errors import PyMongoError

from chaos.network import Network
from chaos.rules import DATABASE
from tests.support.servers import Node

_NAME = "chaos"
_MEMBERS = 3
# Seconds after which the server ends a transaction. A killed process holds what it wrote until then, a minute
# by default: longer than a short run. Half of it would end those of slow networks, too; with twice of it, all
# transactions on the same accounts try in vain for as long.
_TRANSACTIONS_END = 8


class Scenery:
    """The members, and the network before them."""

    def __init__(self) -> None:
        # The tests remove what such folders a killed process leaves.
        self._folder = Path(tempfile.mkdtemp(prefix=f"monque-nodes-{os.getpid()}-"))
        self.nodes = [
            Node(
                self._folder / f"node{number}",
                replica_set=_NAME,
                fail_points=True,
                forgetful=False,
                extra=["--setParameter", f"transactionLifetimeLimitSeconds={_TRANSACTIONS_END}"],
            )
            for number in range(_MEMBERS)
        ]
        self.network = Network()

    async def __aenter__(self) -> Self:
        try:
            for node in self.nodes:
                node.start()
                await self.network.open_gate(node.port)
            await asyncio.to_thread(self._initiate)
            await self.whole()
        except BaseException:
            await self.__aexit__()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        for node in self.nodes:
            with suppress(AssertionError):
                node.thaw()
            node.kill()
        await self.network.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    def address(self, number: int) -> str:
        """A member as everybody knows it."""
        return f"127.0.0.1:{self.network.ports[number]}"

    def uri(self, who: str) -> str:
        """Where *who* finds the jobs."""
        members = ",".join(self.address(number) for number in range(_MEMBERS))
        return f"mongodb://{members}/{DATABASE}?replicaSet={_NAME}&appName=chaos:{who}"

    def direct(self, number: int) -> MongoClient[dict[str, Any]]:
        """A blocking client of one member, past its gate."""
        node = self.nodes[number]
        return MongoClient(
            f"mongodb://{node.address}/?directConnection=true",
            serverSelectionTimeoutMS=500,
            socketTimeoutMS=5000,
            tz_aware=True,
        )

    async def primary(self, *, within: float = 60.0) -> int:
        """The number of the member that takes writes; waits until there is one."""
        return await asyncio.to_thread(self._primary, within)

    async def whole(self, *, within: float = 90.0) -> None:
        """Wait until every member takes part."""
        await asyncio.to_thread(self._whole, within)

    def rollbacks(self) -> int:
        """How often a member had to take back writes."""
        logs = ((node.folder / "mongod.log").read_text(errors="replace") for node in self.nodes)
        return sum(log.count('"Rollback summary"') for log in logs)

    def _initiate(self) -> None:
        """A set that notices within two seconds that its primary is gone."""
        members = [{"_id": number, "host": self.address(number)} for number in range(_MEMBERS)]
        settings = {
            "electionTimeoutMillis": 2000,
            "heartbeatIntervalMillis": 300,
            "heartbeatTimeoutSecs": 2,
            "catchUpTimeoutMillis": 1000,
        }
        with self.direct(0) as client:
            client.admin.command("replSetInitiate", {"_id": _NAME, "members": members, "settings": settings})

    def _primary(self, within: float) -> int:
        deadline = time.monotonic() + within
        while time.monotonic() < deadline:
            for number in range(_MEMBERS):
                with suppress(PyMongoError), self.direct(number) as client:
                    if client.admin.command("hello")["isWritablePrimary"]:
                        return number
            time.sleep(0.05)
        raise AssertionError("the replica set has no primary")

    def _whole(self, within: float) -> None:
        deadline = time.monotonic() + within
        while time.monotonic() < deadline:
            with suppress(PyMongoError), self.direct(self._primary(within)) as client:
                states = [
                    member["stateStr"] for member in client.admin.command("replSetGetStatus")["members"]
                ]
                if sorted(states) == ["PRIMARY", "SECONDARY", "SECONDARY"]:
                    return
            time.sleep(0.1)
        raise AssertionError("not every member takes part")
