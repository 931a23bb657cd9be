"""A live stream of an ASGI app in this process: its client may stop reading, or go."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

from support.documented import check_event
from support.sse import Sent
from support.web import key_cookie


class AsgiStream:
    """What an app sends to one client. While `reads` is not set, the app waits with what it sends next."""

    def __init__(self) -> None:
        self.reads = asyncio.Event()
        self.reads.set()
        self.gone = asyncio.Event()
        self.status = 0
        self.headers: dict[str, str] = {}
        self.comments = 0
        self.text = ""
        self.ended = asyncio.Event()
        self._arrived = asyncio.Event()

    async def receive(self) -> dict[str, Any]:
        await self.gone.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Mapping[str, Any]) -> None:
        await self.reads.wait()
        if message["type"] == "http.response.start":
            self.status = message["status"]
            self.headers = {name.decode(): value.decode() for name, value in message["headers"]}
        else:
            self.text += message["body"].decode()
            if not message.get("more_body", False):
                self.ended.set()
        self._arrived.set()

    async def next(self, *, within: float = 20.0) -> Sent:
        """The next event."""
        async with asyncio.timeout(within):
            while (found := self._take()) is None:
                self._arrived.clear()
                await self._arrived.wait()
            return found

    async def until(self, event: str, *, within: float = 20.0) -> Sent:
        """The next event of this kind."""
        while (found := await self.next(within=within)).event != event:
            pass
        return found

    async def wait(self, what: asyncio.Event, *, within: float = 20.0) -> None:
        async with asyncio.timeout(within):
            await what.wait()

    def _take(self) -> Sent | None:
        while "\n\n" in self.text:
            block, _, self.text = self.text.partition("\n\n")
            fields = dict(line.split(": ", 1) for line in block.splitlines() if ": " in line)
            if "event" in fields:
                sent = Sent(fields["event"], fields.get("id"), json.loads(fields["data"]))
                check_event(sent.event, sent.data)
                return sent
            self.comments += 1
        return None


@asynccontextmanager
async def asgi_stream(
    app: Any, path: str = "/api/ops/v1/stream", *, method: str = "GET", **headers: str
) -> AsyncIterator[AsgiStream]:
    """Ask *app* for a stream, from this machine and with the key; the client goes at the end."""
    cookie = "; ".join(f"{name}={value}" for name, value in key_cookie().items())
    given = {
        "host": "localhost",
        "cookie": cookie,
        **{name.replace("_", "-"): value for name, value in headers.items()},
    }
    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": method,
        "scheme": "http",
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "root_path": "",
        "headers": [(name.encode(), value.encode()) for name, value in given.items()],
        "client": ("127.0.0.1", 50_000),
        "server": ("localhost", 80),
    }
    stream = AsgiStream()
    task = asyncio.create_task(app(scope, stream.receive, stream.send))
    try:
        yield stream
    finally:
        stream.gone.set()
        stream.reads.set()
        async with asyncio.timeout(20):
            await task
