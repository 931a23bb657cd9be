"""The faults: each is injected, lasts a while, and is healed."""

from __future__ import annotations

import asyncio
import random
import signal
from abc import ABC, abstractmethod
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, ClassVar

from pymongo.errors import PyMongoError

from chaos.company import Company, Player
from chaos.network import (
    MEMBER,
    Ambush,
    Fate,
    Rule,
    is_checkpoint,
    is_claim,
    is_commit,
    is_enqueue,
    is_look,
    is_settlement,
    is_suspension,
    is_waking,
    speaks_for,
)
from chaos.rules import DATABASE, RULES
from chaos.scenery import Scenery

_LONG = RULES.tolerance * 1.5


@dataclass(frozen=True, slots=True)
class Stage:
    """Everything that can be broken."""

    scenery: Scenery
    company: Company
    chance: random.Random


class Fault(ABC):
    """Something that goes wrong."""

    kind: ClassVar[str]
    lasts: ClassVar[tuple[float, float]] = (0.5, 3.0)
    """Seconds, between these."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self.whom: str | None = None
        """Whose fault line it is; None: everybody's."""
        self.detail = ""

    @abstractmethod
    async def inject(self) -> None:
        """Break it."""

    async def heal(self) -> None:
        """Mend it, and wait until it is."""
        return

    def pick(self, players: list[Player]) -> Player:
        """The victim."""
        victim = self.stage.chance.choice(players)
        self.whom = victim.who
        return victim


# Processes


class Kill(Fault):
    """SIGKILL at any moment."""

    kind = "kill a worker"

    async def inject(self) -> None:
        self.stage.company.kill(self.pick(self.stage.company.workers))


class _KillAt(Fault):
    """SIGKILL at the very moment when a message of the victim passes."""

    lasts = (2.0, 4.0)
    at_answer: ClassVar[bool]

    @staticmethod
    @abstractmethod
    def matches(message: bytes) -> bool:
        """Whether this is the message."""

    async def inject(self) -> None:
        victim = self.pick(self.stage.company.workers)
        kill = self.stage.company.kill
        ambush = Ambush(victim.who, self.matches, lambda: kill(victim), at_answer=self.at_answer)
        self._ambush = self.stage.scenery.network.lie_in_wait(ambush)

    async def heal(self) -> None:
        self.stage.scenery.network.call_off(self._ambush)
        self.detail = "it happened" if self._ambush.struck.is_set() else "no such message came"


class KillBeforeClaim(_KillAt):
    """The claim never reaches the server."""

    kind = "kill a worker before its claim"
    matches = staticmethod(is_claim)
    at_answer = False


class KillBeforeClaimAnswer(_KillAt):
    """The server has given it the jobs, the worker never knew."""

    kind = "kill a worker before the answer to its claim"
    matches = staticmethod(is_claim)
    at_answer = True


class KillBeforeSettling(_KillAt):
    """The handler has ended, its outcome is lost."""

    kind = "kill a worker between handler and settling"
    matches = staticmethod(is_settlement)
    at_answer = False


class KillWhileSettling(_KillAt):
    """The outcome is stored, the worker never knew."""

    kind = "kill a worker while it settles"
    matches = staticmethod(is_settlement)
    at_answer = True


class KillBeforeCheckpoint(_KillAt):
    """A step is done, and nobody will know."""

    kind = "kill a worker between a step and its checkpoint"
    matches = staticmethod(is_checkpoint)
    at_answer = False


class KillWhileCheckpointing(_KillAt):
    """A step is recorded, the worker never knew."""

    kind = "kill a worker while it records a step"
    matches = staticmethod(is_checkpoint)
    at_answer = True


class KillWhileSuspending(_KillAt):
    """The job waits, the worker never knew."""

    kind = "kill a worker while its job begins to wait"
    matches = staticmethod(is_suspension)
    at_answer = True


class KillBeforeLook(_KillAt):
    """A job has ended, and nobody looks whom that concerns."""

    kind = "kill a worker between settling and its look"
    matches = staticmethod(is_look)
    at_answer = False


class KillBeforeWaking(_KillAt):
    """A batch is over or a turn is free, and those who wait for it are not told."""

    kind = "kill a worker between its look and waking others"
    matches = staticmethod(is_waking)
    at_answer = False


class KillWhileWaking(_KillAt):
    """Others are woken, the worker never knew."""

    kind = "kill a worker while it wakes others"
    matches = staticmethod(is_waking)
    at_answer = True


class KillBeforeCommit(_KillAt):
    """The transaction of a step, or of a handler, stays open until the server ends it."""

    kind = "kill a worker before its commit"
    matches = staticmethod(is_commit)
    at_answer = False


class KillWhileCommitting(_KillAt):
    """The transaction is committed, the worker never knew."""

    kind = "kill a worker while it commits"
    matches = staticmethod(is_commit)
    at_answer = True


class Pause(Fault):
    """SIGSTOP for longer than the tolerance: it comes back as a ghost."""

    kind = "stop a worker past the tolerance"
    lasts = (_LONG, _LONG + 2)

    async def inject(self) -> None:
        self._victim = self.pick(self.stage.company.workers)
        self._victim.send(signal.SIGSTOP)

    async def heal(self) -> None:
        self._victim.send(signal.SIGCONT)


class ShortPause(Pause):
    """SIGSTOP for less than the tolerance: nobody may notice."""

    kind = "stop a worker for a moment"
    lasts = (0.2, RULES.tolerance / 3)


class Terminate(Fault):
    """SIGTERM: it drains and ends."""

    kind = "terminate a worker"

    async def inject(self) -> None:
        self.stage.company.terminate(self.pick(self.stage.company.workers))


class TerminateTwice(Fault):
    """SIGTERM twice: it ends at once."""

    kind = "terminate a worker twice"

    async def inject(self) -> None:
        victim = self.pick(self.stage.company.workers)
        self.stage.company.terminate(victim)
        await asyncio.sleep(self.stage.chance.uniform(0, 0.3))
        self.stage.company.terminate(victim)


# The network of one process


class _Network(Fault):
    fate: ClassVar[Fate]
    lasts = (1.0, _LONG)

    async def inject(self) -> None:
        who = self.pick(self.stage.company.players).who
        rule = Rule(self.fate, lambda speaker, _: speaker == who, delay=self.stage.chance.uniform(0.02, 0.4))
        self._rule = self.stage.scenery.network.impose(rule)

    async def heal(self) -> None:
        self.stage.scenery.network.lift(self._rule)


class Cut(_Network):
    """Its connections are closed."""

    kind = "cut the network of a process"
    fate = Fate.CUT


class HalfOpen(_Network):
    """Its connections are dead and nobody says so; in the end everything arrives."""

    kind = "half-open network of a process"
    fate = Fate.SILENT
    lasts = (2.0, _LONG * 2)


class Slow(_Network):
    """Everything takes long."""

    kind = "slow network of a process"
    fate = Fate.SLOW


class LostAnswer(Fault):
    """The server does what it was asked, and the connection breaks before it can say so."""

    kind = "lose the answer to a write"
    lasts = (1.0, 3.0)

    async def inject(self) -> None:
        chance, network = self.stage.chance, self.stage.scenery.network
        what, players = chance.choice(
            (
                (is_claim, self.stage.company.workers),
                (is_settlement, self.stage.company.workers),
                (is_checkpoint, self.stage.company.workers),
                (is_suspension, self.stage.company.workers),
                (is_commit, self.stage.company.workers),
                (is_enqueue, self.stage.company.enqueuers),
            )
        )
        victim, times = self.pick(players), chance.randint(1, 4)
        self.detail = f"{what.__name__}, {times} times"
        self._ambushes = [
            network.lie_in_wait(Ambush(victim.who, what, lambda: None, at_answer=True)) for _ in range(times)
        ]

    async def heal(self) -> None:
        for ambush in self._ambushes:
            self.stage.scenery.network.call_off(ambush)


# The server


class _Member(Fault):
    """Something about one member."""

    async def heal(self) -> None:
        await self.stage.scenery.whole()

    async def command(self, number: int, command: dict[str, Any]) -> None:
        def run() -> None:
            with self.stage.scenery.direct(number) as client:
                client.admin.command(command)

        with suppress(PyMongoError):
            await asyncio.to_thread(run)


class KillPrimary(_Member):
    """SIGKILL of the primary; it is started again on its data."""

    kind = "kill the primary"

    async def inject(self) -> None:
        self._node = self.stage.scenery.nodes[await self.stage.scenery.primary()]
        self._node.kill()

    async def heal(self) -> None:
        self._node.launch()
        await super().heal()


class KillSecondary(KillPrimary):
    """SIGKILL of another member."""

    kind = "kill a secondary"

    async def inject(self) -> None:
        primary = await self.stage.scenery.primary()
        self._node = self.stage.chance.choice(
            [node for number, node in enumerate(self.stage.scenery.nodes) if number != primary]
        )
        self._node.kill()


class StepDown(_Member):
    """The primary gives up its office."""

    kind = "step down the primary"
    lasts = (0.0, 1.0)

    async def inject(self) -> None:
        step_down = {"replSetStepDown": 5, "secondaryCatchUpPeriodSecs": 2}
        await self.command(await self.stage.scenery.primary(), step_down)


class Freeze(_Member):
    """SIGSTOP of the primary: it answers nobody, and comes back believing that it is one."""

    kind = "freeze the primary"
    lasts = (3.0, 6.0)

    async def inject(self) -> None:
        self._node = self.stage.scenery.nodes[await self.stage.scenery.primary()]
        self._node.freeze()

    async def heal(self) -> None:
        self._node.thaw()
        await super().heal()


class Partition(_Member):
    """The primary cannot be reached by the other members, nor reach them; clients still reach it.

    It goes on taking writes until it notices, and none of them can be kept: they are rolled back when it
    is back. Some clients may see nothing but this member.
    """

    kind = "partition the primary"
    lasts = (3.0, 7.0)

    async def inject(self) -> None:
        scenery, chance = self.stage.scenery, self.stage.chance
        primary = await scenery.primary()
        players = self.stage.company.players
        inside = {player.who for player in chance.sample(players, chance.randint(0, len(players) // 2))}
        self.detail = f"with {', '.join(sorted(inside))}" if inside else "alone"
        voice = speaks_for(scenery.address(primary))
        rules = [
            Rule(Fate.CUT, lambda who, gate: who == MEMBER and gate == primary),
            Rule(Fate.CUT, lambda who, gate: who == MEMBER and gate != primary, says=voice),
            Rule(Fate.CUT, lambda who, gate: who in inside and gate != primary),
        ]
        self._rules = [scenery.network.impose(rule) for rule in rules]

    async def heal(self) -> None:
        for rule in self._rules:
            self.stage.scenery.network.lift(rule)
        await asyncio.sleep(1.0)  # the members must have spoken before their states mean anything
        await super().heal()


class FailPoint(_Member):
    """The server fails some commands of one process, before or after it did them."""

    kind = "fail point"
    lasts = (0.5, 2.5)

    # A driver's retries cover one error; what fails more often than that must be borne by us.
    WAYS: ClassVar[dict[str, dict[str, Any]]] = {
        "not primary": {"errorCode": 10107},
        "shutdown in progress": {"errorCode": 91},
        "exceeded time limit": {"errorCode": 262},
        "connection closed before": {"closeConnection": True},
        "write concern error": {
            "writeConcernError": {"code": 64, "errmsg": "waiting for replication timed out"}
        },
        "write concern error, retryable": {
            "writeConcernError": {"code": 91, "errmsg": "shutdown in progress"},
            "errorLabels": ["RetryableWriteError"],
        },
        "slow": {"blockConnection": True, "blockTimeMS": 500},
    }
    COMMANDS: ClassVar[dict[str, list[str]]] = {
        "worker": ["find", "update", "findAndModify", "getMore", "aggregate", "hello", "commitTransaction"],
        "enqueuer": ["insert", "update", "findAndModify", "find", "commitTransaction"],
        "manager": ["find", "update", "findAndModify"],
    }

    async def inject(self) -> None:
        chance, company = self.stage.chance, self.stage.company
        victim = self.pick(company.players)
        command = chance.choice(self.COMMANDS[victim.who.partition("-")[0]])
        way = chance.choice(list(self.WAYS))
        how, times = self.WAYS[way], chance.choice((1, 2, 3, 10))
        self.detail = f"{way} on {command}, {times} times"
        data = {"failCommands": [command], "appName": f"chaos:{victim.who}", **how}
        self._primary = await self.stage.scenery.primary()
        await self._configure({"times": times}, data)

    async def heal(self) -> None:
        await self._configure("off", {})

    async def _configure(self, mode: Any, data: dict[str, Any]) -> None:
        await self.command(self._primary, {"configureFailPoint": "failCommand", "mode": mode, "data": data})


class KillStreams(_Member):
    """Every change stream is ended by the server."""

    kind = "kill the change streams"
    lasts = (0.1, 0.5)

    async def inject(self) -> None:
        primary = await self.stage.scenery.primary()
        with suppress(PyMongoError):
            cursors = await asyncio.to_thread(self._kill, primary)
            self.detail = f"{cursors} of them"

    def _kill(self, primary: int) -> int:
        with self.stage.scenery.direct(primary) as client:
            operations = client.admin.aggregate([{"$currentOp": {"idleCursors": True}}])
            streams = [
                operation["cursor"]["cursorId"]
                for operation in operations
                if operation.get("ns") == f"{DATABASE}.monque_jobs"
                and operation.get("cursor", {}).get("tailable")
            ]
            if streams:
                client[DATABASE].command({"killCursors": "monque_jobs", "cursors": streams})
        return len(streams)


TO_PROCESSES: list[type[Fault]] = [
    Kill,
    KillBeforeClaim,
    KillBeforeClaimAnswer,
    KillBeforeSettling,
    KillWhileSettling,
    KillBeforeCheckpoint,
    KillWhileCheckpointing,
    KillWhileSuspending,
    KillBeforeLook,
    KillBeforeWaking,
    KillWhileWaking,
    KillBeforeCommit,
    KillWhileCommitting,
    Pause,
    ShortPause,
    Terminate,
    TerminateTwice,
    Cut,
    HalfOpen,
    Slow,
    LostAnswer,
]
TO_THE_SERVER: list[type[Fault]] = [
    KillPrimary,
    KillSecondary,
    StepDown,
    Freeze,
    Partition,
    Partition,
    FailPoint,
    FailPoint,
    FailPoint,
    KillStreams,
]
