"""Real mongods for tests that break them: alone, as a replica set, with fail points.

Each node is a process of its own on a random port of 127.0.0.1. It dies with the test process, however
that one dies (on Linux), and its data is deleted at the end, at the latest by the next test session.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import Any, Self
from urllib.parse import urlencode

from pymongo import AsyncMongoClient, MongoClient
from pymongo.errors import PyMongoError

from monque.embedded import find_mongod

from .ports import free_port  # `chaos` imports this module as `tests.support.servers`

_PREFIX = "monque-nodes-"
_START_TIMEOUT = 60.0
_REPLICA_SET = "faulty"

# Run as `python -c`: ask the kernel to kill us when the parent dies, then become mongod.
_DIE_WITH_PARENT = """
import ctypes, os, signal, sys
if sys.platform == "linux":
    PR_SET_PDEATHSIG = 1
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
if os.getppid() == int(sys.argv[1]):
    os.execv(sys.argv[2], sys.argv[2:])
"""


class Node:
    """One mongod, which can be killed and started again on the same data and port."""

    def __init__(
        self,
        folder: Path,
        *,
        replica_set: str | None = None,
        fail_points: bool = False,
        forgetful: bool = False,
        extra: Sequence[str] = (),
    ) -> None:
        self.folder = folder
        self.folder.mkdir()
        self.port = free_port()
        self._replica_set = replica_set
        self._fail_points = fail_points
        self._forgetful = forgetful
        self._extra = list(extra)
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        assert self._process is not None, "the node does not run"
        return self._process.pid

    def start(self) -> None:
        """Start mongod, unless it was launched, and wait until it answers."""
        deadline = time.monotonic() + _START_TIMEOUT
        if self._process is None:
            self.launch()
        while not self._answers(deadline):
            # It ended at once: somebody may have taken the port meanwhile.
            assert time.monotonic() < deadline, f"mongod does not start: {self._log_tail()}"
            self.port = free_port()
            self.launch()

    def launch(self) -> None:
        """Start mongod on the data it has, and do not wait.

        Call it on the main thread: the kernel takes the end of the thread for the end of the parent.
        """
        launcher = [sys.executable, "-I", "-S", "-c", _DIE_WITH_PARENT, str(os.getpid())]
        with (self.folder / "output.txt").open("ab") as output:
            self._process = subprocess.Popen(
                [*launcher, *self._command()], stdin=subprocess.DEVNULL, stdout=output, stderr=output
            )

    def kill(self) -> None:
        """End it as a power cut would."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def freeze(self) -> None:
        """Stop it answering, with all connections open."""
        os.kill(self.pid, signal.SIGSTOP)
        # On a busy machine its threads go on until the one that takes the signal has its turn.
        os.waitid(os.P_PID, self.pid, os.WSTOPPED)

    def thaw(self) -> None:
        """Let it go on."""
        os.kill(self.pid, signal.SIGCONT)

    def client(self) -> MongoClient[dict[str, Any]]:
        """A blocking client of this very node."""
        return MongoClient(f"mongodb://{self.address}/?directConnection=true", serverSelectionTimeoutMS=500)

    def _answers(self, deadline: float) -> bool:
        """Wait for an answer; False if it ends instead."""
        assert self._process is not None
        while self._process.poll() is None:
            if self._listens():
                with suppress(PyMongoError), self.client() as client:
                    client.admin.command("ping")
                    return True
            assert time.monotonic() < deadline, f"mongod does not answer: {self._log_tail()}"
            time.sleep(0.02)
        return False

    def _listens(self) -> bool:
        """Whether it takes connections. The driver would look only twice a second."""
        with suppress(OSError), socket.create_connection(("127.0.0.1", self.port), timeout=1):
            return True
        return False

    def _command(self) -> list[str]:
        data = self.folder / "data"
        data.mkdir(exist_ok=True)
        options: dict[str, object] = {
            "--dbpath": data,
            "--port": self.port,
            "--bind_ip": "127.0.0.1",
            "--wiredTigerCacheSizeGB": 0.25,
            "--wiredTigerEngineConfigString": "log=(prealloc=false,file_max=8MB)",
            "--networkMessageCompressors": "disabled",
            "--logpath": self.folder / "mongod.log",
        }
        if self._replica_set is not None:
            options |= {"--replSet": self._replica_set, "--oplogSize": 1 if self._forgetful else 32}
        if self._forgetful:
            options["--syncdelay"] = 1  # the oplog is cut at checkpoints only
        parameters = ["diagnosticDataCollectionEnabled=false"]
        if self._fail_points:
            parameters.append("enableTestCommands=1")
        words = [str(word) for option in options.items() for word in option]
        words += [word for parameter in parameters for word in ("--setParameter", parameter)]
        return [str(find_mongod()), *words, "--nounixsocket", "--logappend", "--quiet", *self._extra]

    def _log_tail(self) -> str:
        log = self.folder / "mongod.log"
        return log.read_text()[-2000:] if log.exists() else (self.folder / "output.txt").read_text()


class Servers:
    """A standalone server or a replica set, running between `with` and its end.

    Args:
        nodes: How many.
        replica_set: Whether they are one, or its name; otherwise a single node stands alone.
        fail_points: Whether `failing` can be used.
        forgetful: Whether the oplog forgets what is a few megabytes and seconds old.
        extra: More words for the command line of each.
    """

    def __init__(
        self,
        *,
        nodes: int = 1,
        replica_set: bool | str = True,
        fail_points: bool = False,
        forgetful: bool = False,
        extra: Sequence[str] = (),
    ) -> None:
        _remove_leftovers()
        self._folder = Path(tempfile.mkdtemp(prefix=f"{_PREFIX}{os.getpid()}-"))
        self._replica_set = _REPLICA_SET if replica_set is True else replica_set or None
        self.nodes = [
            Node(
                self._folder / f"node{number}",
                replica_set=self._replica_set,
                fail_points=fail_points,
                forgetful=forgetful,
                extra=extra,
            )
            for number in range(nodes)
        ]

    def __enter__(self) -> Self:
        try:
            for node in self.nodes:
                node.launch()
            for node in self.nodes:
                node.start()
            if self._replica_set is not None:
                self._initiate()
                self.heal()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for node in self.nodes:
            node.kill()
        shutil.rmtree(self._folder, ignore_errors=True)

    def uri(self, database: str = "", **options: object) -> str:
        """The address for a client; *options* as in a MongoDB URI."""
        if self._replica_set is not None:
            options = {"replicaSet": self._replica_set, **options}
        addresses = ",".join(node.address for node in self.nodes)
        return f"mongodb://{addresses}/{database}?{urlencode(options)}"

    def primary(self, *, within: float = 30.0) -> Node:
        """The node that takes writes; waits until there is one."""
        deadline = time.monotonic() + within
        while time.monotonic() < deadline:
            for node in self.nodes:
                with suppress(PyMongoError), node.client() as client:
                    if client.admin.command("hello")["isWritablePrimary"]:
                        return node
            time.sleep(0.02)
        raise AssertionError("the replica set has no primary")

    def heal(self, *, within: float = 60.0) -> None:
        """Wait until every node takes part again."""
        deadline = time.monotonic() + within
        while time.monotonic() < deadline:
            with suppress(PyMongoError), self.primary().client() as client:
                members = client.admin.command("replSetGetStatus")["members"]
                if all(member["stateStr"] in ("PRIMARY", "SECONDARY") for member in members):
                    return
            time.sleep(0.05)
        raise AssertionError("not every node takes part")

    def _initiate(self) -> None:
        """Make the nodes a replica set which notices within a few seconds that its primary is gone.

        Less than that, and a loaded machine is enough to make them elect another one.
        """
        members = [{"_id": number, "host": node.address} for number, node in enumerate(self.nodes)]
        settings = {
            "electionTimeoutMillis": 2000,
            "heartbeatIntervalMillis": 300,
            "catchUpTimeoutMillis": 1000,
        }
        config = {"_id": self._replica_set, "members": members, "settings": settings}
        with self.nodes[0].client() as client:
            client.admin.command("replSetInitiate", config)


@asynccontextmanager
async def failing(
    client: AsyncMongoClient[Any],
    commands: Sequence[str],
    *,
    app_name: str,
    times: int | None = None,
    after: int = 0,
    **how: Any,
) -> AsyncIterator[None]:
    """While this lasts, the server fails these *commands* of the clients with that `appName`.

    Args:
        client: Any client of a server started with fail points.
        commands: Their names, e.g. `findAndModify`.
        app_name: Whose commands.
        times: How often; always, if not given.
        after: How many of them succeed first, if *times* is not given.
        how: What happens: `errorCode=`, `closeConnection=True`, `writeConcernError={...}` (done, but said
            to be in doubt), `blockConnection=True, blockTimeMS=`.
    """
    data = {"failCommands": list(commands), "appName": app_name, **how}
    await _fail_point(client, {"skip": after} if times is None else {"times": times}, data)
    try:
        yield
    finally:
        await _fail_point(client, "off", {})


async def _fail_point(
    client: AsyncMongoClient[Any], mode: str | Mapping[str, int], data: Mapping[str, Any]
) -> None:
    await client.admin.command({"configureFailPoint": "failCommand", "mode": mode, "data": data})


@contextmanager
def frozen(node: Node) -> Iterator[None]:
    """While this lasts, the node does not answer."""
    node.freeze()
    try:
        yield
    finally:
        node.thaw()


@contextmanager
def killed(node: Node) -> Iterator[None]:
    """While this lasts, the node is dead."""
    node.kill()
    try:
        yield
    finally:
        node.launch()


def _remove_leftovers() -> None:
    """Delete the data of test sessions that were killed."""
    for folder in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        pid = folder.name.removeprefix(_PREFIX).split("-")[0]
        if pid.isdigit() and not _is_alive(int(pid)):
            shutil.rmtree(folder, ignore_errors=True)


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
