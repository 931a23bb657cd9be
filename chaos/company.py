"""The company: the processes of a run, started, signalled and replaced by one conductor."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import sys
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from bench.checkouts import environment
from chaos.history import History
from chaos.scenery import Scenery

_RESTART_PAUSE = 0.5


@dataclass(eq=False)
class Player:
    """One place in the company; who dies is replaced by a new process of the same name."""

    who: str
    program: str
    clock: str
    older: Path | None = None
    """The checkout whose code it runs, if that is not this one."""
    process: asyncio.subprocess.Process | None = None
    meant_to_end: bool = False
    keeper: asyncio.Task[None] | None = None
    complaints: Path = field(default=Path(os.devnull))

    def send(self, number: signal.Signals) -> None:
        """Signal the process, if it is there."""
        if self.process is not None and self.process.returncode is None:
            with suppress(ProcessLookupError):
                self.process.send_signal(number)


class Company:
    """All players. With a checkout of an *older* version, every other worker runs that one's code."""

    def __init__(
        self, scenery: Scenery, folder: Path, history: History, seed: int, older: Path | None = None
    ) -> None:
        self._scenery = scenery
        self._folder = folder
        self._history = history
        self._chance = random.Random(f"company {seed}")
        self.workers = [
            Player(f"worker-{number}", "chaos.worker", clock, None if number % 2 else older)
            for number, clock in enumerate(("right", "ahead", "behind", "jumping"), start=1)
        ]
        self.enqueuers = [
            Player(f"enqueuer-{number}", "chaos.enqueuer", clock)
            for number, clock in enumerate(("right", "ahead", "jumping"), start=1)
        ]

        self.managers = [Player("manager-1", "chaos.manager", "behind")]

    @property
    def players(self) -> list[Player]:
        """Workers, enqueuers and managers."""
        return [*self.workers, *self.enqueuers, *self.managers]

    async def start(self) -> None:
        """Start every process and keep each place taken."""
        for player in self.players:
            await self._start(player)
            player.keeper = asyncio.create_task(self._keep(player))

    async def end(self, players: list[Player], *, within: float) -> None:
        """Ask these to stop, and wait until they have; who does not is killed, and that is written down."""
        for player in players:
            player.meant_to_end = True
            if player.keeper is not None:
                player.keeper.cancel()
            self._tell(player, signal.SIGTERM)
        for player in players:
            process = player.process
            if process is None:
                continue
            try:
                async with asyncio.timeout(within):
                    code = await process.wait()
            except TimeoutError:
                self._history.record("stuck", whom=player.who, whose_pid=process.pid)
                self._tell(player, signal.SIGKILL)
                code = await process.wait()
            self._history.record("down", whom=player.who, whose_pid=process.pid, code=code, meant=True)

    async def close(self) -> None:
        """End whatever still runs, at once."""
        for player in self.players:
            if player.keeper is not None:
                player.keeper.cancel()
            player.send(signal.SIGKILL)
        for player in self.players:
            if player.process is not None:
                await player.process.wait()

    def kill(self, player: Player) -> None:
        """SIGKILL, on purpose."""
        player.meant_to_end = True
        self._tell(player, signal.SIGKILL)

    def terminate(self, player: Player) -> None:
        """SIGTERM, on purpose."""
        player.meant_to_end = True
        self._tell(player, signal.SIGTERM)

    def _tell(self, player: Player, number: signal.Signals) -> None:
        if player.process is not None:
            self._history.record("signal", whom=player.who, whose_pid=player.process.pid, signal=number.name)
        player.send(number)

    async def _start(self, player: Player) -> None:
        player.complaints = self._folder / f"{player.who}.log"
        player.meant_to_end = False
        seed = str(self._chance.random())
        arguments = [player.who, self._scenery.uri(player.who), str(self._folder), player.clock, seed]
        with player.complaints.open("ab") as log:
            player.process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                player.program,
                *arguments,
                str(os.getpid()),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                # Modules are found in the working directory first: its program is that of its version, too.
                cwd=player.older,
                env=None if player.older is None else environment(player.older),
            )
        facts = {"whom": player.who, "whose_pid": player.process.pid, "older": player.older is not None}
        self._history.record("up", **facts)

    async def _keep(self, player: Player) -> None:
        while True:
            assert player.process is not None
            code = await player.process.wait()
            pid, meant = player.process.pid, player.meant_to_end
            self._history.record("down", whom=player.who, whose_pid=pid, code=code, meant=meant)
            await asyncio.sleep(_RESTART_PAUSE)
            await self._start(player)
