"""`/healthz` and `/readyz` for the probes of an orchestrator."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from http import HTTPStatus
from typing import TypeAlias

from monque.cli.listen import Ports, asked, listening, response

Trouble: TypeAlias = Callable[[], str | None]
"""Why the process is not ready, or None if it is."""


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
