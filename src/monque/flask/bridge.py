"""Requests of WSGI, answered by an ASGI app that lives on an event loop in a thread of its own."""

from __future__ import annotations

import asyncio
import atexit
import os
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import wait
from contextlib import suppress
from queue import Queue
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from flask import Request, Response

if TYPE_CHECKING:
    from monque.web import Dashboard

# How many parts of a response may wait for a client that reads slowly.
_WAITING_PARTS = 16

# Seconds that the end of the process waits for the dashboard, which needs milliseconds unless there is an
# outage, and a write some seconds in a failover.
_GOODBYE = 5.0


class Bridge:
    """Owns the dashboard of one process: it is made at the first request, also after a fork."""

    def __init__(self, make: Callable[[], Dashboard]) -> None:
        make()  # wrong options are found when the application is made
        self._make = make
        self._lock = threading.Lock()
        self._pid: int | None = None
        self._served: Dashboard
        self._loop: asyncio.AbstractEventLoop
        self._thread: threading.Thread
        atexit.register(self.close)

    def respond(self, request: Request, body: bytes, path: str, extra: Mapping[str, Any]) -> Response:
        """The answer to a request of Flask, which is streamed as it comes."""
        self._begin()
        exchange = _Exchange(_scope(request, path, extra), body, self._loop)
        asyncio.run_coroutine_threadsafe(exchange.run(self._served), self._loop)
        start = exchange.parts.get()
        if isinstance(start, BaseException):
            raise start
        response = Response(_body(exchange), status=start["status"])
        response.headers.clear()
        for name, value in start["headers"]:
            response.headers.add(name.decode("latin-1"), value.decode("latin-1"))
        response.call_on_close(exchange.leave)
        return response

    def close(self) -> None:
        """End what is under way in this process. The next request begins anew."""
        with self._lock:
            if self._pid == os.getpid():
                closing = asyncio.run_coroutine_threadsafe(self._served.close(), self._loop)
                wait([closing], timeout=_GOODBYE)
                self._loop.call_soon_threadsafe(self._loop.stop)
                self._thread.join(_GOODBYE)
                if not self._thread.is_alive():
                    self._loop.close()
            self._pid = None

    def _begin(self) -> None:
        with self._lock:
            if self._pid != os.getpid():  # the first request, or the first one after a fork
                self._served = self._make()
                self._loop = asyncio.new_event_loop()
                self._thread = threading.Thread(
                    target=self._loop.run_forever, name="monque-dashboard", daemon=True
                )
                self._thread.start()
                self._pid = os.getpid()


class _Exchange:
    """One request and its response, between the thread of the request and the loop."""

    def __init__(self, scope: dict[str, Any], body: bytes, loop: asyncio.AbstractEventLoop) -> None:
        self._scope = scope
        self._body: bytes | None = body
        self._loop = loop
        self._gone = asyncio.Event()
        self._room = asyncio.Semaphore(_WAITING_PARTS)
        self.parts: Queue[Any] = Queue()

    async def run(self, served: Dashboard) -> None:
        """On the loop: let the dashboard answer."""
        try:
            await served(self._scope, self._receive, self._send)
            self.parts.put(None)
        except BaseException as error:  # noqa: BLE001 - raised in the thread of the request, whatever it is
            self.parts.put(error)

    def next_part(self) -> Any:
        """Return the next message, None at the end. Called in the thread of the request."""
        part = self.parts.get()
        self._on_loop(self._room.release)
        return part

    def leave(self) -> None:
        """End it, as its client is gone or has everything. Called in the thread of the request."""
        self._on_loop(self._let_go)

    def _on_loop(self, call: Callable[[], None]) -> None:
        with suppress(RuntimeError):  # the loop has ended with the process, and nobody waits there
            self._loop.call_soon_threadsafe(call)

    def _let_go(self) -> None:
        self._gone.set()
        for _ in range(_WAITING_PARTS):  # nobody takes the parts any more
            self._room.release()

    async def _receive(self) -> dict[str, Any]:
        if self._body is not None:
            body, self._body = self._body, None
            return {"type": "http.request", "body": body, "more_body": False}
        await self._gone.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: Any) -> None:
        await self._room.acquire()
        self.parts.put(message)


def _body(exchange: _Exchange) -> Iterator[bytes]:
    while True:
        part = exchange.next_part()
        if isinstance(part, BaseException):
            raise part
        if part is None:
            return
        if part["body"]:
            yield part["body"]
        if not part.get("more_body", False):
            return


def _scope(request: Request, path: str, extra: Mapping[str, Any]) -> dict[str, Any]:
    """The request as ASGI says it. The prefix of a proxy is in SCRIPT_NAME."""
    outer = request.root_path.rstrip("/")
    full = outer + request.path
    host, _, port = request.host.partition(":")
    return {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": "1.1",
        "method": request.method,
        "scheme": request.scheme,
        "path": full,
        "raw_path": quote(full).encode("ascii"),
        "root_path": outer + path,
        "app_root_path": outer,
        "query_string": request.query_string,
        "headers": [
            (name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in request.headers
        ],
        "client": (request.remote_addr, 0) if request.remote_addr else None,
        "server": (host, int(port) if port.isdigit() else 80),
        **extra,
    }
