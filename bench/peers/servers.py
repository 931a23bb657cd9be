"""The servers of a run: private, on loopback, ended by their process ids.

Their programs come from Debian's packages (`redis-server`, `postgresql`), the mongod from where the embedded
server of Monque finds it.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

Store = Literal["MongoDB", "Redis", "PostgreSQL"]
# A server that has not opened its port after this long will not.
PATIENCE = 40.0


class MissingServerError(Exception):
    """A server program that a contestant needs is not there."""


class Servers:
    """Servers in a folder, each started when somebody needs it first. Ends them all at the end."""

    def __init__(self, folder: Path, mongod: Path) -> None:
        self._folder, self._mongod = folder, mongod
        self._running: dict[Store, subprocess.Popen[bytes]] = {}
        self._ports: dict[Store, int] = {}

    def __enter__(self) -> Servers:
        self._folder.mkdir(parents=True, exist_ok=True)
        self._folder.chmod(0o755)  # PostgreSQL runs as a user of its own, if we are root
        return self

    def __exit__(self, *_: object) -> None:
        for store, process in self._running.items():
            # PostgreSQL waits at SIGTERM for clients to leave; SIGINT tells them to.
            process.send_signal(signal.SIGINT if store == "PostgreSQL" else signal.SIGTERM)
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def start(self, store: Store) -> None:
        """Have this server running."""
        if store in self._running:
            return
        data = self._folder / store.lower()
        shutil.rmtree(data, ignore_errors=True)
        data.mkdir()
        self._ports[store] = port = _free_port()
        command = {"MongoDB": self._mongo, "Redis": _redis, "PostgreSQL": _postgres}[store](data, port)
        with (self._folder / f"{store.lower()}.log").open("wb") as log:
            process = subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL, cwd="/")
        self._running[store] = process
        _wait_for(port, process, f"{store} did not start: see {log.name}")
        if store == "MongoDB":
            self._initiate()
        if store == "PostgreSQL":
            self._connect_to_postgres()

    def pid(self, store: Store) -> int:
        """The process of this server."""
        return self._running[store].pid

    @property
    def addresses(self) -> Mapping[str, str]:
        """Of those that run, as contestants read them."""
        ports = self._ports
        made = {
            "MongoDB": ("PEER_MONGO", "mongodb://127.0.0.1:{}/?replicaSet=peers"),
            "Redis": ("PEER_REDIS", "redis://127.0.0.1:{}/0"),
            "PostgreSQL": ("PEER_POSTGRES", "postgresql://peers@127.0.0.1:{}/peers"),
        }
        return {made[store][0]: made[store][1].format(port) for store, port in ports.items()}

    def empty(self, store: Store) -> None:
        """Remove what the contestant before has left."""
        with contextlib.closing(Clients(self.addresses)) as clients:
            if store == "Redis":
                clients.redis.flushall()
            elif store == "MongoDB":
                for name in set(clients.mongo.list_database_names()) - {"admin", "local", "config"}:
                    clients.mongo.drop_database(name)
            else:
                with _postgres_of(self.addresses, "postgres") as connection:
                    connection.execute("drop database if exists peers with (force)")
                    connection.execute("create database peers")

    def versions(self) -> dict[str, str]:
        """Of those that run."""
        found = {}
        with contextlib.closing(Clients(self.addresses)) as clients:
            if "MongoDB" in self._running:
                found["MongoDB"] = str(clients.mongo.server_info()["version"])
            if "Redis" in self._running:
                found["Redis"] = str(clients.redis.info()["redis_version"])
            if "PostgreSQL" in self._running:
                with _postgres_of(self.addresses, "postgres") as connection:
                    [version] = connection.execute("show server_version").fetchone()
                found["PostgreSQL"] = str(version).split()[0]
        return found

    def _mongo(self, data: Path, port: int) -> list[str]:
        options = ["--bind_ip", "127.0.0.1", "--nounixsocket", "--replSet", "peers"]
        cache = ["--wiredTigerCacheSizeGB", "1", "--networkMessageCompressors", "disabled"]
        return [str(self._mongod), "--port", str(port), "--dbpath", str(data), *options, *cache]

    def _initiate(self) -> None:
        import pymongo

        host = f"127.0.0.1:{self._ports['MongoDB']}"
        with pymongo.MongoClient[Any](f"mongodb://{host}/?directConnection=true") as client:
            members = [{"_id": 0, "host": host}]
            client.admin.command("replSetInitiate", {"_id": "peers", "members": members})
            _until(lambda: client.admin.command("hello").get("isWritablePrimary"), "no primary was elected")

    def _connect_to_postgres(self) -> None:
        def answers() -> bool:
            try:
                with _postgres_of(self.addresses, "postgres"):
                    return True
            except Exception:  # noqa: BLE001 - it may still recover; the time limit ends it
                return False

        _until(answers, "PostgreSQL does not answer")


class Clients:
    """Connections of the harness itself, each opened when it is used first."""

    def __init__(self, addresses: Mapping[str, str]) -> None:
        self._addresses = addresses

    @cached_property
    def redis(self) -> Any:
        """The client of Redis."""
        import redis

        return redis.Redis.from_url(self._addresses["PEER_REDIS"], decode_responses=True)

    @cached_property
    def mongo(self) -> Any:
        """The client of MongoDB."""
        import pymongo

        return pymongo.MongoClient(self._addresses["PEER_MONGO"])

    @cached_property
    def postgres(self) -> Any:
        """A connection to the database of the contestants."""
        import psycopg

        return psycopg.connect(self._addresses["PEER_POSTGRES"], autocommit=True)

    def close(self) -> None:
        """Close those that were used."""
        for name in ("redis", "mongo", "postgres"):
            if name in self.__dict__:
                self.__dict__.pop(name).close()


def _redis(data: Path, port: int) -> list[str]:
    program = shutil.which("redis-server")
    if program is None:
        raise MissingServerError("no redis-server on PATH: install the package redis-server")
    durable = ["--appendonly", "yes", "--appendfsync", "everysec", "--save", ""]
    return [program, "--port", str(port), "--bind", "127.0.0.1", "--dir", str(data), *durable]


def _postgres(data: Path, port: int) -> list[str]:
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    if not found:
        raise MissingServerError("no PostgreSQL in /usr/lib/postgresql: install the package postgresql")
    # It refuses to run as root.
    as_user = (
        ["setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups"] if not os.geteuid() else []
    )
    if as_user:
        shutil.chown(data, "postgres", "postgres")
    data.chmod(0o700)
    initialise = [str(found[0] / "initdb"), "-D", str(data), "-U", "peers", "-A", "trust", "-E", "UTF8"]
    subprocess.run([*as_user, *initialise], check=True, stdout=subprocess.DEVNULL, cwd="/")
    settings = ["listen_addresses=127.0.0.1", "unix_socket_directories=", "max_connections=200"]
    options = [word for setting in settings for word in ("-c", setting)]
    return [*as_user, str(found[0] / "postgres"), "-D", str(data), "-p", str(port), *options]


@contextlib.contextmanager
def _postgres_of(addresses: Mapping[str, str], database: str) -> Iterator[Any]:
    import psycopg

    address = addresses["PEER_POSTGRES"].rpartition("/")[0]
    with psycopg.connect(f"{address}/{database}", autocommit=True) as connection:
        yield connection


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _wait_for(port: int, process: subprocess.Popen[bytes], problem: str) -> None:
    def opened() -> bool:
        if process.poll() is not None:
            raise RuntimeError(problem)
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", port)) == 0

    _until(opened, problem)


def _until(holds: Any, problem: str) -> None:
    given_up = time.monotonic() + PATIENCE
    while not holds():
        if time.monotonic() > given_up:
            raise RuntimeError(problem)
        time.sleep(0.05)
