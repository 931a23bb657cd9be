"""As much of HTTP as a probe or a scrape needs: one request, one answer, and the connection is closed."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from http import HTTPStatus
from typing import TypeAlias

import click

Answer: TypeAlias = Callable[[bytes], Awaitable[bytes]]
"""From a whole request to a whole response."""

# Seconds for a client to send its request, and for us to answer it: a scrape reads what users count.
_ASKS_WITHIN = 1.0
_ANSWERED_WITHIN = 5.0
_LONGEST_REQUEST = 8192
# Connections at once. A probe and a scrape need one each; sixteen of a thousand open files are few.
_MOST_CONNECTIONS = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Ports:
    """The ports on which a worker answers, if any, and their address."""

    health: int | None = None
    metrics: int | None = None
    host: str = "127.0.0.1"


@asynccontextmanager
async def listening(host: str, port: int, purpose: str, answer: Answer) -> AsyncIterator[int]:
    """Answer on *port* (on any free one, for 0) of *host* while this lasts; gives the port."""
    connections: dict[asyncio.StreamWriter, None] = {}  # the oldest first

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connections[writer] = None
        if len(connections) > _MOST_CONNECTIONS:
            # The oldest one, not this one: a probe is answered also while somebody keeps connections open.
            next(iter(connections)).transport.abort()
        try:
            with suppress(OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
                async with asyncio.timeout(_ASKS_WITHIN):
                    request = await reader.readuntil(b"\r\n\r\n")
                async with asyncio.timeout(_ANSWERED_WITHIN):
                    writer.write(await answer(request))
                    writer.close()
                    await writer.wait_closed()
        finally:
            connections.pop(writer, None)
            writer.transport.abort()  # a client that does not read would keep it open for ever

    try:
        # Of connections that wait, all are accepted at once: no more of them than may be open.
        server = await asyncio.start_server(
            serve, host, port, limit=_LONGEST_REQUEST, backlog=_MOST_CONNECTIONS
        )
    except OSError as error:
        raise click.ClickException(f"cannot listen on the {purpose} port {port}: {error.strerror}") from error
    async with server:
        # A free port is chosen for each family of addresses, and may differ.
        sockets = sorted(server.sockets, key=lambda each: each.family != socket.AF_INET)
        yield sockets[0].getsockname()[1]


def asked(request: bytes) -> tuple[str, str]:
    """The method and the path of a request, empty where it has none."""
    method, path = (*request.split(b"\r\n", 1)[0].decode("latin-1").split(" "), "", "")[:2]
    return method, path.partition("?")[0]


def response(method: str, status: HTTPStatus, content: bytes, kind: str) -> bytes:
    """The whole response."""
    head = (
        f"HTTP/1.1 {status.value} {status.phrase}\r\n"
        f"Content-Type: {kind}\r\n"
        f"Content-Length: {len(content)}\r\n"
        "Cache-Control: no-store\r\n"
        "Connection: close\r\n\r\n"
    )
    return head.encode() + (b"" if method == "HEAD" else content)
