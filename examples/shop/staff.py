"""The worker instances of the shop: real processes, of which one dies and comes back again and again."""

from __future__ import annotations

import asyncio
import signal
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from .catalog import INSTANCES
from .plan import Incident, incidents, release_after

# How many seconds a killed instance stays away: it is silent after three, and its jobs are taken over then.
_ABSENCE = 10.0
_RESTART = 0.5
# Between two instances that get a new release, so that both releases are seen together.
_BETWEEN = 8.0
# An instance that is told to end has a second for its jobs.
_LATEST = 3.0
# The folder from which an instance finds this package: a checkout, or the place where Monque is installed.
_HOME = Path(__file__).parents[len(__name__.split(".")) - 1]


class Staff:
    """Keeps the instances running, and lets happen to them what the plan says."""

    def __init__(self, uri: str, seed: int) -> None:
        self._uri = uri
        self._seed = seed
        self._second = 0
        self._running: dict[int, Process] = {}
        self._killed: set[int] = set()
        self._leaving: set[asyncio.Task[None]] = set()

    @asynccontextmanager
    async def at_work(self) -> AsyncIterator[None]:
        """Have all instances at work; at the end none is left."""
        keeping = [asyncio.create_task(self._keep(number)) for number in range(1, INSTANCES + 1)]
        try:
            yield
        finally:
            for task in (*keeping, *self._leaving):
                task.cancel()
            await asyncio.gather(*keeping, *self._leaving, return_exceptions=True)
            await asyncio.gather(*map(_end, self._running.values()))

    def live_through(self, second: int, *, quiet: bool) -> None:
        """Perform the incidents of this second."""
        self._second = second
        for incident in incidents(second, quiet=quiet):
            if incident is Incident.DEATH:
                self._kill(INSTANCES)
            else:
                task = asyncio.create_task(self._deploy())
                self._leaving.add(task)
                task.add_done_callback(self._leaving.discard)

    async def _keep(self, number: int) -> None:
        while True:
            process = await self._start(number)
            self._running[number] = process
            await process.wait()
            del self._running[number]
            await asyncio.sleep(_ABSENCE if number in self._killed else _RESTART)
            self._killed.discard(number)

    async def _start(self, number: int) -> Process:
        return await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", f"{__package__}.instance"),
            *(self._uri, str(number), release_after(self._second), str(self._seed)),
            stdin=PIPE,  # it ends when this is closed, also if this process is killed
            stdout=DEVNULL,
            cwd=_HOME,
            start_new_session=True,  # Ctrl-C is meant for the shop, which ends its instances
        )

    def _kill(self, number: int) -> None:
        if number in self._running:
            self._killed.add(number)
            _send(self._running[number], signal.SIGKILL)

    async def _deploy(self) -> None:
        """Restart one after the other; the instance that dies all the time gets the release by itself."""
        for number in range(1, INSTANCES):
            if number in self._running:
                _send(self._running[number], signal.SIGTERM)
            await asyncio.sleep(_BETWEEN)


async def _end(process: Process) -> None:
    _send(process, signal.SIGTERM)
    try:
        async with asyncio.timeout(_LATEST):
            await process.wait()
    except TimeoutError:
        _send(process, signal.SIGKILL)
        await process.wait()


def _send(process: Process, number: signal.Signals) -> None:
    with suppress(ProcessLookupError):
        process.send_signal(number)
