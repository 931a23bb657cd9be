"""A client of live streams: it reads what a server sends, byte by byte if it must be."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any

from support.web import KEY

_WITH_KEY = {"Authorization": f"Bearer {KEY}"}


@dataclass(frozen=True, slots=True)
class Sent:
    """One event."""

    event: str
    id: str | None
    data: Any

    @property
    def seq(self) -> int:
        return int((self.id or "-0").partition("-")[2])


class EventStream:
    """An open stream. HTTP/1.0, so that the body is not cut into chunks."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self.status = 0
        self.headers: dict[str, str] = {}
        self.comments = 0

    async def read_head(self) -> None:
        line = await self._reader.readline()
        if not line:
            raise ConnectionResetError("closed without an answer")
        self.status = int(line.split()[1])
        while line := (await self._reader.readline()).decode().strip():
            name, _, value = line.partition(":")
            self.headers[name.lower()] = value.strip()

    async def next(self, *, within: float = 20.0) -> Sent | None:
        """The next event; None if the stream has ended."""
        fields: dict[str, str] = {}
        async with asyncio.timeout(within):
            while line := await self._reader.readline():
                name, _, value = line.decode().rstrip("\n").partition(": ")
                if name == "" and fields.get("event"):
                    return Sent(fields["event"], fields.get("id"), json.loads(fields["data"]))
                if name.startswith(":"):
                    self.comments += 1
                elif name:
                    fields[name] = value
        return None

    async def until(self, *events: str, within: float = 20.0) -> Sent:
        """The next event of one of these kinds."""
        async with asyncio.timeout(within):
            while (found := await self.next(within=within)) is not None:
                if found.event in events:
                    return found
        raise AssertionError(f"the stream ended before any of {events}")

    async def body(self, *, within: float = 20.0) -> bytes:
        """All that is left."""
        async with asyncio.timeout(within):
            return await self._reader.read()

    async def ended(self, *, within: float = 20.0) -> None:
        """Read to the end."""
        async with asyncio.timeout(within):
            while await self._reader.read(65536):
                pass

    async def close(self) -> None:
        self._writer.close()
        with suppress(OSError):
            await self._writer.wait_closed()


async def connect(
    port: int, path: str, *, headers: Mapping[str, str] | None = None, limit: int = 2**20
) -> EventStream:
    """Ask for a stream on this machine, with the key."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=limit)
    lines = [f"GET {path} HTTP/1.0", f"Host: 127.0.0.1:{port}"]
    lines += [f"{name}: {value}" for name, value in {**_WITH_KEY, **(headers or {})}.items()]
    writer.write("\r\n".join([*lines, "", ""]).encode())
    stream = EventStream(reader, writer)
    try:
        await stream.read_head()
    except BaseException:
        await stream.close()
        raise
    return stream


@asynccontextmanager
async def visiting(port: int) -> AsyncIterator[Callable[..., Awaitable[EventStream]]]:
    """`connect` to this port; all streams are closed at the end."""
    async with AsyncExitStack() as stack:

        async def visit(path: str, **given: Any) -> EventStream:
            stream = await connect(port, path, **given)
            stack.push_async_callback(stream.close)
            return stream

        yield visit
