"""Start one of these programs, read what it says, and make sure that it ends."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from pymongo.asynchronous.database import AsyncDatabase

from monque.embedded import EmbeddedMongo

_HERE = Path(__file__).parent
# A program may say everything that a collection holds in one line.
_LONGEST_LINE = 2**24


def uri_of(server: EmbeddedMongo, database: AsyncDatabase) -> str:
    """The address of one test's database, as a URI names it."""
    host, _, query = server.uri.partition("/?")
    return f"{host}/{database.name}?{query}"


@asynccontextmanager
async def child(
    program: str, *arguments: str, environment: Mapping[str, str] | None = None
) -> AsyncIterator[Child]:
    """Run `support/programs/<program>.py`; it is killed at the end if it still runs."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-W",
        "error",
        str(_HERE / f"{program}.py"),
        *arguments,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env=environment,
        limit=_LONGEST_LINE,
    )
    started = Child(process)
    try:
        yield started
    finally:
        with suppress(ProcessLookupError):
            process.kill()
        await started.finished()


class Child:
    """A running program that says a line for each thing that happens."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self.said: list[str] = []
        self.complaints = ""
        self._silent = False
        self._spoke = asyncio.Event()
        self._listening = asyncio.gather(self._listen(), self._collect_complaints())

    @property
    def pid(self) -> int:
        """Its process."""
        return self._process.pid

    @property
    def has_ended(self) -> bool:
        """Whether it is gone."""
        return self._process.returncode is not None

    async def wait_for(self, line: str, *, within: float = 30.0) -> None:
        """Wait until the program has said *line*."""
        try:
            async with asyncio.timeout(within):
                while line not in self.said:
                    assert not self._silent, f"ended without {line!r}: {self.said}\n{self.complaints}"
                    self._spoke.clear()
                    await self._spoke.wait()
        except TimeoutError:
            raise AssertionError(f"never said {line!r}, only {self.said}\n{self.complaints}") from None

    def write(self, line: str) -> None:
        """Write a line to its standard input."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{line}\n".encode())

    def send(self, number: signal.Signals) -> None:
        """Send it a signal."""
        self._process.send_signal(number)

    async def ends(self, *, within: float = 30.0) -> int:
        """Wait for its end; the exit code."""
        try:
            async with asyncio.timeout(within):
                return await self._process.wait()
        except TimeoutError:
            raise AssertionError(f"did not end; it said {self.said}\n{self.complaints}") from None

    async def finished(self) -> None:
        """Wait until it is gone and everything it said was read."""
        await self._process.wait()
        await self._listening
        if self._process.stdin is not None:
            self._process.stdin.close()

    async def _listen(self) -> None:
        assert self._process.stdout is not None
        async for line in self._process.stdout:
            self.said.append(line.decode().rstrip())
            self._spoke.set()
        self._silent = True
        self._spoke.set()

    async def _collect_complaints(self) -> None:
        assert self._process.stderr is not None
        async for line in self._process.stderr:
            self.complaints += line.decode()


def deaths(program: Child) -> int:
    """The number of times that a program has died which forks a process for each of its lives."""
    [died] = program.said
    return int(died.removeprefix("died "))
