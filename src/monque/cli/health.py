"""`/healthz` and `/readyz` for the probes of an orchestrator: as much of HTTP as they need."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from http import HTTPStatus
from typing import TypeAlias

import click

Trouble: TypeAlias = Callable[[], str | None]
"""Why the process is not ready, or None if it is."""

_PATIENCE = 5.0
_LONGEST_REQUEST = 8192


@asynccontextmanager
async def health_server(port: int | None, trouble: Trouble) -> AsyncIterator[None]:
    """Answer on *port* of all interfaces while this lasts; without a port, do nothing."""
    if port is None:
        yield
        return

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            async with asyncio.timeout(_PATIENCE):
                request = await reader.readuntil(b"\r\n\r\n")
                writer.write(answer(request, trouble))
                await writer.drain()
        writer.close()

    try:
        server = await asyncio.start_server(serve, port=port, limit=_LONGEST_REQUEST)
    except OSError as error:
        raise click.ClickException(f"cannot listen on the health port {port}: {error.strerror}") from error
    async with server:
        yield


def answer(request: bytes, trouble: Trouble) -> bytes:
    """The whole response to a whole request."""
    method, path = (*request.split(b"\r\n", 1)[0].decode("latin-1").split(" "), "", "")[:2]
    status, body = _judge(method, path.partition("?")[0], trouble)
    content = json.dumps(body).encode()
    head = (
        f"HTTP/1.1 {status.value} {status.phrase}\r\n"
        "Content-Type: application/json\r\n"
        f"Content-Length: {len(content)}\r\n"
        "Cache-Control: no-store\r\n"
        "Connection: close\r\n\r\n"
    )
    return head.encode() + (b"" if method == "HEAD" else content)


def _judge(method: str, path: str, trouble: Trouble) -> tuple[HTTPStatus, dict[str, str]]:
    if path not in ("/healthz", "/readyz"):
        return HTTPStatus.NOT_FOUND, {"status": "there are /healthz and /readyz"}
    if method not in ("GET", "HEAD"):
        return HTTPStatus.METHOD_NOT_ALLOWED, {"status": "use GET"}
    if path == "/healthz":
        return HTTPStatus.OK, {"status": "alive"}
    reason = trouble()
    if reason is None:
        return HTTPStatus.OK, {"status": "ready"}
    return HTTPStatus.SERVICE_UNAVAILABLE, {"status": "not ready", "reason": reason}
