"""The network: every connection to a member of the replica set goes through a gate of ours.

The members know each other by the addresses of their gates, so that also what they say to each other can
be cut off. Who speaks on a connection is known from its first message: clients send their `appName`,
members say that they are some.
"""

from __future__ import annotations

import asyncio
import re
import struct
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from enum import Enum, auto

_HEADER = struct.Struct("<iiii")
_APP_NAME = re.compile(rb"chaos:([a-z0-9-]+)")
_MEMBER = re.compile(rb"NetworkInterfaceTL|MongoDB Internal Client|OplogFetcher")

MEMBER = "member"

Matcher = Callable[[bytes], bool]


class Fate(Enum):
    """What becomes of a connection."""

    CUT = auto()
    """It is closed, and so is every new one."""
    SILENT = auto()
    """Nothing comes through and nobody says so; what was sent arrives when the network is healed."""
    SLOW = auto()
    """Everything arrives late."""


@dataclass(eq=False)
class Rule:
    """What happens to some of the traffic, until it is lifted."""

    fate: Fate
    whose: Callable[[str, int], bool]
    """By who speaks and the number of the gate."""
    says: Matcher | None = None
    """Only messages like this; all, without one."""
    delay: float = 0.0
    lifted: asyncio.Event = field(default_factory=asyncio.Event)


@dataclass(eq=False)
class Ambush:
    """Does something at the moment when the next such message passes."""

    who: str
    matches: Matcher
    strike: Callable[[], None]
    at_answer: bool
    """Strike when the server has done it, before the client hears so; otherwise before the server does."""
    swallow: bool = True
    """Close the connection, too."""
    struck: asyncio.Event = field(default_factory=asyncio.Event)


class Network:
    """A gate before each member."""

    def __init__(self) -> None:
        self.rules: list[Rule] = []
        self.ambushes: list[Ambush] = []
        self.links: set[_Link] = set()
        self._gates: list[asyncio.Server] = []
        self.ports: list[int] = []

    async def open_gate(self, member_port: int) -> None:
        """Let connections to this member through a port of ours."""
        number = len(self._gates)

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            try:
                member = await asyncio.open_connection("127.0.0.1", member_port)
            except OSError:
                writer.close()
                return
            await _Link(self, number, (reader, writer), member).run()

        gate = await asyncio.start_server(serve, "127.0.0.1", 0)
        self._gates.append(gate)
        self.ports.append(gate.sockets[0].getsockname()[1])

    async def close(self) -> None:
        """Close every gate and connection."""
        for gate in self._gates:
            gate.close()
        for link in list(self.links):
            link.close()
        while self.links:
            await asyncio.sleep(0.01)

    def impose(self, rule: Rule) -> Rule:
        """From now on this happens."""
        self.rules.append(rule)
        if rule.fate is Fate.CUT and rule.says is None:
            for link in list(self.links):
                if rule.whose(link.who, link.gate):
                    link.close()
        return rule

    def lift(self, rule: Rule) -> None:
        """From now on it happens no more; what was held up arrives."""
        if rule in self.rules:
            self.rules.remove(rule)
        rule.lifted.set()

    def lie_in_wait(self, ambush: Ambush) -> Ambush:
        """Wait for a message."""
        self.ambushes.append(ambush)
        return ambush

    def call_off(self, ambush: Ambush) -> None:
        """Wait no longer."""
        with suppress(ValueError):
            self.ambushes.remove(ambush)


class _Link:
    """One connection."""

    def __init__(
        self,
        network: Network,
        gate: int,
        client: tuple[asyncio.StreamReader, asyncio.StreamWriter],
        member: tuple[asyncio.StreamReader, asyncio.StreamWriter],
    ) -> None:
        self._network = network
        self.gate = gate
        self.who = ""
        self._from_client, self._to_client = client
        self._from_member, self._to_member = member
        self._awaited: dict[int, Ambush] = {}

    async def run(self) -> None:
        self._network.links.add(self)
        directions = [asyncio.create_task(self._requests()), asyncio.create_task(self._answers())]
        try:
            await asyncio.wait(directions, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for direction in directions:
                direction.cancel()
            await asyncio.gather(*directions, return_exceptions=True)
            self.close()
            self._network.links.discard(self)

    def close(self) -> None:
        self._to_client.close()
        self._to_member.close()

    async def _requests(self) -> None:
        while message := await _read(self._from_client):
            self.who = self.who or _speaker(message)
            ambush = next((each for each in self._network.ambushes if self._meets(each, message)), None)
            if ambush is not None:
                self._network.call_off(ambush)
                if ambush.at_answer:
                    self._awaited[_HEADER.unpack_from(message)[1]] = ambush
                elif await self._strike(ambush):
                    return
            if not await self._pass_on(message, self._to_member):
                return

    async def _answers(self) -> None:
        while message := await _read(self._from_member):
            ambush = self._awaited.pop(_HEADER.unpack_from(message)[2], None)
            if ambush is not None and await self._strike(ambush):
                return
            if not await self._pass_on(message, self._to_client):
                return

    def _meets(self, ambush: Ambush, message: bytes) -> bool:
        return ambush.who == self.who and ambush.matches(message)

    async def _strike(self, ambush: Ambush) -> bool:
        ambush.strike()
        ambush.struck.set()
        return ambush.swallow

    async def _pass_on(self, message: bytes, to: asyncio.StreamWriter) -> bool:
        """Let a message through as far as the rules allow; False if the connection ends here."""
        for rule in list(self._network.rules):
            if not rule.whose(self.who, self.gate) or (rule.says is not None and not rule.says(message)):
                continue
            if rule.fate is Fate.CUT:
                return False
            if rule.fate is Fate.SILENT:
                await rule.lifted.wait()
            else:
                await asyncio.sleep(rule.delay)
        to.write(message)
        with suppress(OSError):
            await to.drain()
        return True


def _speaker(message: bytes) -> str:
    if named := _APP_NAME.search(message):
        return named[1].decode()
    return MEMBER if _MEMBER.search(message) else "?"


async def _read(reader: asyncio.StreamReader) -> bytes:
    """The next message; nothing at the end."""
    try:
        length = await reader.readexactly(4)
        return length + await reader.readexactly(int.from_bytes(length, "little") - 4)
    except (asyncio.IncompleteReadError, OSError):
        return b""


# Messages worth an ambush


def is_claim(message: bytes) -> bool:
    """Only claims write the heartbeat interval."""
    return b"heartbeatInterval" in message and b"$heartbeatInterval" not in message and b"$inc" in message


def is_settlement(message: bytes) -> bool:
    """How a run ended: it went well, or it failed and is retried or given up."""
    told = b"finishedAt" in message or b"failReason" in message
    return told and b"claimedBy" in message and b"lostAttempt" not in message and _is_write(message)


def is_checkpoint(message: bytes) -> bool:
    """A finished step is recorded, alone or in the transaction of the step."""
    return b"$push\0" in message and b"steps\0" in message and _is_write(message)


def is_suspension(message: bytes) -> bool:
    """A run ends because its job waits."""
    told = b"parked\0" in message and b"settledAttempt\0" in message
    return told and b"claimedBy\0" in message and _is_write(message)


def is_look(message: bytes) -> bool:
    """A look whether a batch is over, or who is next in a line."""
    return b"find\0" in message[:64] and (b"monque_batch\0" in message or b"monque_parked\0" in message)


def is_waking(message: bytes) -> bool:
    """Jobs that waited for a batch or for their turn are let go."""
    return b"parked.why\0" in message and _is_write(message)


def is_commit(message: bytes) -> bool:
    """A transaction is committed."""
    return b"commitTransaction\0" in message[:64]


def is_enqueue(message: bytes) -> bool:
    """A job is stored, with a key or without one."""
    return b"createdAt" in message and _is_write(message)


def _is_write(message: bytes) -> bool:
    return any(name in message[:64] for name in (b"update\0", b"findAndModify\0", b"insert\0"))


def speaks_for(address: str) -> Matcher:
    """What the member with this address says to keep in touch with the others, or to be elected."""
    words = (b"replSetHeartbeat\0", b"replSetRequestVotes\0")
    own = address.encode() + b"\0"
    return lambda message: any(word in message for word in words) and own in message
