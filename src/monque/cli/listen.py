"""As much of HTTP as a probe or a scrape needs: one request, one answer, and the connection is closed."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from http import HTTPStatus
from typing import TypeAlias

import click

Answer: TypeAlias = Callable[[bytes], Awaitable[bytes]]
"""From a whole request to a whole response."""

_PATIENCE = 5.0
_LONGEST_REQUEST = 8192


@asynccontextmanager
async def listening(port: int, purpose: str, answer: Answer) -> AsyncIterator[int]:
    """Answer on *port* of all interfaces (on any free one, for 0) while this lasts; gives the port."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            with suppress(OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
                async with asyncio.timeout(_PATIENCE):
                    writer.write(await answer(await reader.readuntil(b"\r\n\r\n")))
                    await writer.drain()
        finally:
            writer.close()

    try:
        server = await asyncio.start_server(serve, port=port, limit=_LONGEST_REQUEST)
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
