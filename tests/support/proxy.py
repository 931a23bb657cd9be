"""A TCP proxy between a client and a mongod: it can hold a command, lose its answer, or go silent."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Self

from support.ports import free_port

_HEADER = struct.Struct("<iiii")

Matcher = Callable[[bytes], bool]


def command(name: str) -> Matcher:
    """Match the command of this name."""
    # The first element of an OP_MSG body (after header, flags, section kind and length): type and name.
    start = _HEADER.size + 4 + 1 + 4 + 1
    head = name.encode() + b"\0"
    return lambda message: message[start : start + len(head)] == head


def is_claim(message: bytes) -> bool:
    """Match a claim, of one job or of many: only claims write the heartbeat interval."""
    return b"heartbeatInterval" in message and b"$heartbeatInterval" not in message


@dataclass(eq=False)
class Trap:
    """Catches the next command that matches."""

    matches: Matcher
    loses_answer: bool
    caught: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when a command was caught; with a lost answer: when the server has done it."""
    _released: asyncio.Event = field(default_factory=asyncio.Event)

    def release(self) -> None:
        """Let a held command go on to the server."""
        self._released.set()

    async def wait(self, *, within: float = 15.0) -> None:
        """Wait until a command was caught."""
        async with asyncio.timeout(within):
            await self.caught.wait()


class Proxy:
    """Forwards whole MongoDB messages, except those that a trap catches.

    Its URI has `directConnection=true`, so that clients do not go round it.

    Args:
        upstream: Host and port, or the path of a Unix socket and None: what `await client.address` says.
    """

    def __init__(self, upstream: tuple[str, int | None]) -> None:
        self._host, self._upstream_port = upstream
        self._server: asyncio.Server | None = None
        self._port = free_port()
        self._links: set[_Link] = set()
        self._traps: list[Trap] = []
        self._frozen = False

    async def __aenter__(self) -> Self:
        await self.restore()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.cut()

    def uri(self, database: str = "", options: str = "") -> str:
        """The address for a client."""
        return f"mongodb://127.0.0.1:{self._port}/{database}?directConnection=true&{options}".rstrip("&")

    def hold(self, matches: Matcher) -> Trap:
        """Keep the next such command from the server until it is released."""
        return self._set(Trap(matches, loses_answer=False))

    def lose_answer(self, matches: Matcher) -> Trap:
        """Let the server do the next such command, and close the connection instead of answering."""
        return self._set(Trap(matches, loses_answer=True))

    def silence(self, *, spare_monitors: bool = False) -> None:
        """From now on nothing comes through the open connections, and they are not closed."""
        for link in self._links:
            link.silent = not (spare_monitors and link.is_monitor)

    def freeze(self) -> None:
        """Nothing comes through any more, as of a process that is stopped: new connections are taken, too."""
        self._frozen = True
        self.silence()

    async def cut(self) -> None:
        """Close every connection and refuse new ones."""
        if self._server is not None:
            self._server.close()
            self._server = None
        for link in self._links:
            link.close()
        await asyncio.gather(*(link.closed.wait() for link in self._links))

    async def restore(self) -> None:
        """Take connections again, on the same port."""
        self._frozen = False
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self._port)

    def _set(self, trap: Trap) -> Trap:
        self._traps.append(trap)
        return trap

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            if self._upstream_port is None:
                upstream = await asyncio.open_unix_connection(self._host)
            else:
                upstream = await asyncio.open_connection(self._host, self._upstream_port)
        except OSError:
            writer.close()
            return
        link = _Link((reader, writer), upstream, self._traps)
        link.silent = self._frozen
        self._links.add(link)
        try:
            await link.run()
        finally:
            self._links.discard(link)
            link.closed.set()


class _Link:
    """One connection of a client, forwarded."""

    def __init__(
        self,
        client: tuple[asyncio.StreamReader, asyncio.StreamWriter],
        server: tuple[asyncio.StreamReader, asyncio.StreamWriter],
        traps: list[Trap],
    ) -> None:
        self._from_client, self._to_client = client
        self._from_server, self._to_server = server
        self._traps = traps
        self._doomed: dict[int, Trap] = {}
        self.silent = False
        self.is_monitor = False
        """Whether the driver uses it to ask the server how it is."""
        self.closed = asyncio.Event()

    async def run(self) -> None:
        directions = [asyncio.create_task(self._requests()), asyncio.create_task(self._answers())]
        await asyncio.wait(directions, return_when=asyncio.FIRST_COMPLETED)
        for direction in directions:
            direction.cancel()
        await asyncio.gather(*directions, return_exceptions=True)
        self.close()
        for writer in (self._to_client, self._to_server):
            with suppress(OSError):
                await writer.wait_closed()

    def close(self) -> None:
        self._to_client.close()
        self._to_server.close()

    async def _requests(self) -> None:
        while message := await _read(self._from_client):
            self.is_monitor = self.is_monitor or b"topologyVersion" in message
            trap = next((trap for trap in self._traps if trap.matches(message)), None)
            if trap is not None:
                self._traps.remove(trap)
                if trap.loses_answer:
                    self._doomed[_HEADER.unpack_from(message)[1]] = trap
                else:
                    trap.caught.set()
                    await trap._released.wait()
            await self._pass_on(message, self._to_server)

    async def _answers(self) -> None:
        while message := await _read(self._from_server):
            if trap := self._doomed.get(_HEADER.unpack_from(message)[2]):
                trap.caught.set()
                return
            await self._pass_on(message, self._to_client)

    async def _pass_on(self, message: bytes, to: asyncio.StreamWriter) -> None:
        if not self.silent:
            to.write(message)
            with suppress(OSError):
                await to.drain()


async def _read(reader: asyncio.StreamReader) -> bytes:
    """The next message; nothing at the end."""
    try:
        length = await reader.readexactly(4)
        return length + await reader.readexactly(int.from_bytes(length, "little") - 4)
    except (asyncio.IncompleteReadError, OSError):
        return b""
