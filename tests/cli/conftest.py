"""The command on a test's own database: called in this process, as a process of its own, or in a terminal."""

from __future__ import annotations

import logging
import os
import pty
import re
import select
import signal
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from pymongo import MongoClient
from pymongo.asynchronous.database import AsyncDatabase
from pymongo.collection import Collection

from monque.cli.commands import monque as command
from monque.embedded import EmbeddedMongo
from support.programs.child import uri_of

APPS = Path(__file__).parent / "apps"
ESCAPES = re.compile(r"\x1b(\[[0-?]*[ -/]*[@-~]|\][^\x07]*\x07|[()][A-Z0-9]|[=>])")

Documents = Collection[dict[str, Any]]


@pytest.fixture
def uri(server: EmbeddedMongo, database: AsyncDatabase[dict[str, Any]]) -> str:
    return uri_of(server, database)


@pytest.fixture
def jobs(server: EmbeddedMongo, database: AsyncDatabase[dict[str, Any]]) -> Iterator[Documents]:
    """The jobs of this test, read and written directly."""
    with MongoClient(server.uri, tz_aware=True) as client:
        yield client[database.name]["monque_jobs"]


@pytest.fixture(autouse=True)
def logging_as_before() -> Iterator[None]:
    """Commands such as `monque web` set up the logging of their process, which here is that of all tests."""
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    driver, server = logging.getLogger("pymongo"), logging.getLogger("uvicorn")
    levels = driver.level, server.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
    driver.setLevel(levels[0])
    server.setLevel(levels[1])


@pytest.fixture
def call(uri: str) -> Callable[..., Result]:
    """Call the command in this process, without a terminal."""

    def call(*arguments: str, typed: str = "") -> Result:
        return CliRunner().invoke(
            command, arguments, env={"MONQUE_URI": uri}, input=typed, prog_name="monque"
        )

    return call


@pytest.fixture
def start(uri: str) -> Iterator[Callable[..., Program]]:
    """Start the command as a process in the folder of the apps; afterwards it is gone."""
    started: list[Program] = []

    def start(*arguments: str, **options: Any) -> Program:
        started.append(Program(arguments, uri, **options))
        return started[-1]

    yield start
    for program in started:
        program.kill()


class Program:
    """A running `monque` and everything it has printed; in a terminal, if asked."""

    def __init__(
        self, arguments: tuple[str, ...], uri: str, *, folder: Path = APPS, terminal: bool = False, **env: str
    ) -> None:
        self._output, theirs = pty.openpty() if terminal else os.pipe()
        if terminal:
            termios.tcsetwinsize(theirs, (50, 160))
        # Unbuffered, `print` writes a line in two pieces, and processes print into each other's lines.
        usual = {"PYTHONUNBUFFERED": "", "PYTHONWARNINGS": "error", "TERM": "xterm"}
        self._process = subprocess.Popen(
            [sys.executable, "-m", "monque", *arguments],
            cwd=folder,
            stdin=theirs if terminal else subprocess.DEVNULL,
            stdout=theirs,
            stderr=theirs,
            env={**os.environ, "MONQUE_URI": uri, **usual, **env},
            start_new_session=True,
        )
        os.close(theirs)
        self._printed = b""

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def raw(self) -> str:
        return self._printed.decode(errors="replace")

    @property
    def text(self) -> str:
        """What it printed, without what steers a terminal."""
        return ESCAPES.sub("", self.raw).replace("\r\n", "\n")

    def wait_for(self, pattern: str, *, within: float = 60.0, times: int = 1) -> list[str]:
        """Read until *pattern* was printed so many times; what it matched."""
        deadline = time.monotonic() + within
        while len(found := re.findall(pattern, self.text)) < times:
            assert time.monotonic() < deadline, f"never printed {pattern!r}:\n{self.text}"
            if not self._read(0.2):
                found = re.findall(pattern, self.text)
                assert len(found) >= times, f"ended without {pattern!r}:\n{self.text}"
                break
        return found

    def types(self, keys: str) -> None:
        """Type into its terminal."""
        os.write(self._output, keys.encode())

    def send(self, number: signal.Signals) -> None:
        """Send it a signal."""
        self._process.send_signal(number)

    def ends(self, *, within: float = 60.0) -> int:
        """Read to the end; the exit code."""
        deadline = time.monotonic() + within
        while self._read(0.2):
            assert time.monotonic() < deadline, f"did not end:\n{self.text}"
        return self._process.wait(timeout=10)

    def children(self) -> list[int]:
        """The processes it has started and that live."""
        listed = subprocess.run(
            ["ps", "-e", "-o", "pid=,ppid=,stat="], capture_output=True, text=True, check=True
        ).stdout
        rows = [line.split() for line in listed.splitlines()]
        return [int(row[0]) for row in rows if int(row[1]) == self.pid and not row[2].startswith("Z")]

    def kill(self) -> None:
        """End it and what it has started."""
        for pid in [*self.children(), self.pid] if self._process.poll() is None else []:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._process.wait()
        os.close(self._output)

    def _read(self, seconds: float) -> bool:
        """Take in what there is; False at the end."""
        if not select.select([self._output], [], [], seconds)[0]:
            return True
        try:
            piece = os.read(self._output, 65536)
        except OSError:  # a terminal whose last program is gone
            return False
        self._printed += piece
        return bool(piece)
