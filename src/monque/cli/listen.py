"""Probes of a worker: as much of HTTP as these and a scrape need, one request and one answer a connection."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from functools import partial
from http import HTTPStatus
from typing import TypeAlias

import click

Answer: TypeAlias = Callable[[bytes], Awaitable[bytes]]
"""From a whole request to a whole response."""

# Seconds for a client to send its request, and for us to answer it: a scrape reads what users count.
_ASKS_WITHIN = 1.0
_ANSWERED_WITHIN = 5.0
_RESTS = 0.1
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
    try:
        listeners = await _bound(host, port)
    except OSError as error:
        raise click.ClickException(f"cannot listen on the {purpose} port {port}: {error.strerror}") from error
    connections: dict[asyncio.Task[None], None] = {}  # the oldest first
    accepting = [asyncio.create_task(_accept(each, connections, answer)) for each in listeners]
    try:
        # A free port is chosen for each family of addresses, and may differ.
        yield min(listeners, key=lambda each: each.family != socket.AF_INET).getsockname()[1]
    finally:
        await _cancelled(*accepting, *connections)
        for each in listeners:
            each.close()


async def _bound(host: str, port: int) -> list[socket.socket]:
    """The listening sockets, one for each address of *host*."""
    # A server of asyncio finds and binds them, and no more: it accepts all connections that wait before
    # it serves the first, so that a crowd takes every file that the process may have open.
    server = await asyncio.start_server(lambda *_: None, host, port, start_serving=False)
    listeners = [each.dup() for each in server.sockets]
    server.close()
    for each in listeners:
        each.setblocking(False)
        each.listen()
    return listeners


async def _accept(
    listener: socket.socket, connections: dict[asyncio.Task[None], None], answer: Answer
) -> None:
    loop = asyncio.get_running_loop()
    while True:
        try:
            connection, _ = await loop.sock_accept(listener)
        except OSError:
            # The client went away, or others have all the files open: whoever waits is accepted later.
            await asyncio.sleep(_RESTS)
            continue
        task = asyncio.create_task(_serve(connection, answer))
        connections[task] = None
        task.add_done_callback(connections.pop)
        # Not by the task itself: one that is cancelled before it began does nothing.
        task.add_done_callback(partial(_close, connection))
        if len(connections) > _MOST_CONNECTIONS:
            # The oldest one, not this one: a probe is answered also while somebody keeps connections open.
            await _cancelled(next(iter(connections)))


def _close(connection: socket.socket, _: asyncio.Task[None]) -> None:
    connection.close()


async def _serve(connection: socket.socket, answer: Answer) -> None:
    loop = asyncio.get_running_loop()
    request = b""
    with suppress(OSError, TimeoutError):
        async with asyncio.timeout(_ASKS_WITHIN):
            while b"\r\n\r\n" not in request:
                piece = await loop.sock_recv(connection, _LONGEST_REQUEST)
                request += piece
                if not piece or len(request) > _LONGEST_REQUEST:
                    return
        async with asyncio.timeout(_ANSWERED_WITHIN):
            await loop.sock_sendall(connection, await answer(request))


async def _cancelled(*tasks: asyncio.Task[None]) -> None:
    for each in tasks:
        each.cancel()
    if tasks:
        await asyncio.wait(tasks)
    await asyncio.sleep(0)  # their callbacks have run


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


Trouble: TypeAlias = Callable[[], str | None]
"""Returns the reason why the process is not ready, or None if it is."""


@asynccontextmanager
async def health_server(ports: Ports, trouble: Trouble) -> AsyncIterator[None]:
    """Answer on the port for health while this lasts; without a port, do nothing."""
    if ports.health is None:
        yield
        return

    async def answer_probe(request: bytes) -> bytes:
        return answer(request, trouble)

    async with listening(ports.host, ports.health, "health", answer_probe):
        yield


def answer(request: bytes, trouble: Trouble) -> bytes:
    """The whole response to a whole request."""
    method, path = asked(request)
    status, body = _judge(method, path, trouble)
    return response(method, status, json.dumps(body).encode(), "application/json")


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
