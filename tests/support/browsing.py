"""Pages of a dashboard in a real browser: served by a real uvicorn, and watched while a test uses them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from typing import Any, TypeAlias
from urllib.parse import urlsplit

import uvicorn
from playwright.async_api import BrowserContext, ConsoleMessage, Page, Request, WebError

from support.clicks import COUNT

Serve: TypeAlias = Callable[..., Awaitable[str]]
Visit: TypeAlias = Callable[..., Awaitable[Page]]
OpenDashboard: TypeAlias = Callable[..., Awaitable[Page]]
"""The fixtures of `tests/browser` with these names."""

# Says what a policy refused. The console says it too, but not of what is only reported.
_REPORT = """
addEventListener("securitypolicyviolation", (event) =>
  console.error(`CSP: ${event.violatedDirective} refused ${event.blockedURI} ${event.sample}`), true);
"""


class _Quiet(uvicorn.Server):
    """A server beside others in one process: it leaves the signals alone."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


@asynccontextmanager
async def serving(app: Any, *, port: int = 0) -> AsyncIterator[str]:
    """Serve an ASGI app on this machine; its address, without a slash at the end.

    The app is not told of the end: whoever made it closes it before, or its streams are cut.
    """
    config = uvicorn.Config(
        app, host="127.0.0.1", port=port, log_level="warning", lifespan="off", timeout_graceful_shutdown=1
    )
    server = _Quiet(config)
    task = asyncio.create_task(server.serve())
    try:
        async with asyncio.timeout(30):
            while not server.started:
                assert not task.done(), "uvicorn has ended"
                await asyncio.sleep(0.005)
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    finally:
        server.should_exit = True
        await task


class Watch:
    """What went wrong in a browser context: refused by a policy, thrown, failed, or asked of another host.

    `forgive("409")` before a test that means it: faults that contain the text do not count.
    """

    def __init__(self, origins: Sequence[str]) -> None:
        self.origins = set(origins)
        self.requests: list[Request] = []
        self._faults: list[str] = []
        self._forgiven: list[str] = []

    async def join(self, context: BrowserContext) -> None:
        """Watch all pages of a context, also those that it opens later."""
        await context.add_init_script(_REPORT)
        await context.add_init_script(COUNT)
        context.on("console", self._on_console)
        context.on("weberror", self._on_error)
        context.on("request", self._on_request)
        context.on("requestfailed", self._on_failed)

    def forgive(self, *texts: str) -> None:
        self._forgiven += texts

    @property
    def faults(self) -> list[str]:
        return [fault for fault in self._faults if not any(forgiven in fault for forgiven in self._forgiven)]

    def _on_console(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning", "assert"):
            at = message.location.get("url", "")
            self._faults.append(f"console {message.type}: {message.text} ({at})")

    def _on_error(self, error: WebError) -> None:
        self._faults.append(f"thrown: {error.error.message}\n{error.error.stack}")

    def _on_request(self, request: Request) -> None:
        self.requests.append(request)
        url = urlsplit(request.url)
        if (
            url.scheme in ("http", "https", "ws", "wss")
            and f"{url.scheme}://{url.netloc}" not in self.origins
        ):
            self._faults.append(f"foreign request: {request.method} {request.url}")

    def _on_failed(self, request: Request) -> None:
        # A page that is left, and a question that is no longer of interest, abort what they asked for.
        if request.failure != "net::ERR_ABORTED":
            self._faults.append(f"failed request: {request.method} {request.url}: {request.failure}")
