"""Dashboards that are called in this process, and what they answer."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from typing import Any

import httpx2
import pytest

from monque import Monque
from monque.web import Dashboard, dashboard

Connect = Callable[..., httpx2.AsyncClient]


@pytest.fixture
async def connect() -> AsyncIterator[Connect]:
    """Make clients of an ASGI app, as if it were served on this machine."""
    async with AsyncExitStack() as stack:

        def connect(
            app: Any, *, client: str | None = "127.0.0.1", host: str = "localhost", **more: Any
        ) -> Any:
            address: Any = None if client is None else (client, 50_000)
            transport = httpx2.ASGITransport(app, client=address, raise_app_exceptions=True)
            made = httpx2.AsyncClient(transport=transport, base_url=f"http://{host}", **more)
            stack.push_async_callback(made.aclose)
            return made

        yield connect


@pytest.fixture
async def board(monque: Monque) -> AsyncIterator[Dashboard]:
    """A dashboard of this test's Monque, as it is without any argument."""
    async with dashboard(monque) as made:
        yield made


@pytest.fixture
def api(board: Dashboard, connect: Connect) -> httpx2.AsyncClient:
    """A client of `board` on this machine."""
    return connect(board)
