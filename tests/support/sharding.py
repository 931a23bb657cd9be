"""A sharded cluster: a config server, shards and a mongos, each a process on a random port of 127.0.0.1."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Self

import pytest
from pymongo import MongoClient

from support.aliases import Collection
from support.servers import Node, Servers

NOT_THROUGH_MONGOS = pytest.mark.skipif(
    bool(os.environ.get("MONQUE_TEST_THROUGH_MONGOS")),
    reason="through a mongos a change stream is seconds late, and Monque polls: see docs/guides/sharding.md",
)


_STREAM = "command.pipeline.0.$changeStream"


class Router(Node):
    """A mongos in front of a cluster."""

    def __init__(self, folder: Path, *, config: str) -> None:
        super().__init__(folder)
        self._config = config

    def _command(self) -> list[str]:
        options = {
            "--configdb": self._config,
            "--port": str(self.port),
            "--bind_ip": "127.0.0.1",
            "--networkMessageCompressors": "disabled",
            "--logpath": str(self.folder / "mongod.log"),
            "--setParameter": "enableTestCommands=1",
        }
        words = [word for option in options.items() for word in option]
        return [os.environ["MONQUE_TEST_MONGOS"], *words, "--nounixsocket", "--logappend", "--quiet"]


class Cluster:
    """A sharded cluster, running between `with` and its end."""

    def __init__(self, *, shards: int = 2) -> None:
        self._config = Servers(replica_set="config", extra=["--configsvr"])
        self.shards = [
            Servers(replica_set=f"shard{number}", extra=["--shardsvr"]) for number in range(shards)
        ]
        self.router: Router | None = None
        self._running = ExitStack()

    def __enter__(self) -> Self:
        with ExitStack() as starting:
            for servers in (self._config, *self.shards):
                starting.enter_context(servers)
            config = self._config.nodes[0]
            self.router = Router(config.folder.parent / "router", config=f"config/{config.address}")
            starting.callback(self.router.kill)
            self.router.start()
            with self.client() as client:
                for number, shard in enumerate(self.shards):
                    client.admin.command("addShard", f"shard{number}/{shard.nodes[0].address}")
            self._running = starting.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._running.close()

    @property
    def uri(self) -> str:
        """The address of the mongos, as that of an `EmbeddedMongo`."""
        assert self.router is not None, "the cluster does not run"
        return f"mongodb://{self.router.address}/?directConnection=false"

    @contextmanager
    def commands(self, collection: Collection) -> Iterator[Callable[[], dict[str, Counter[str]]]]:
        """Have the profiler of each shard note the commands about a collection; call the result to read them.

        A change stream is left out: it is open at every shard, whatever jobs do.
        """
        database, name = collection.database.name, collection.full_name
        with ExitStack() as stack:
            shards = {}
            for number, servers in enumerate(self.shards):
                uri = f"mongodb://{servers.nodes[0].address}/?directConnection=true"
                client = stack.enter_context(MongoClient[dict[str, Any]](uri))
                shards[f"shard{number}"] = client[database]

            def counted() -> dict[str, Counter[str]]:
                about = {"ns": name, _STREAM: {"$exists": False}, "op": {"$ne": "getmore"}}
                found = {shard: profiled["system.profile"].find(about) for shard, profiled in shards.items()}
                return {shard: Counter(map(_kind, entries)) for shard, entries in found.items()}

            for profiled in shards.values():
                profiled.command("profile", 2)
                stack.callback(profiled.command, "profile", 0)
            yield counted

    def client(self) -> MongoClient[dict[str, Any]]:
        """A blocking client of the mongos."""
        return MongoClient(self.uri, tz_aware=True)


def _kind(entry: dict[str, Any]) -> str:
    """The command of an entry of the profiler, which notes each statement of an update as one of its own."""
    return str(entry["op"] if entry["op"] in ("insert", "update", "remove") else next(iter(entry["command"])))
