"""Dashboards that are called in this process, and what they answer."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Any

import pytest

from monque import Monque
from monque.web import Dashboard, dashboard, pages
from support.web import TINY_PAGES, Client, Connect, client_of


@pytest.fixture(autouse=True)
def _tiny_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pages, "built", lambda: TINY_PAGES)


@pytest.fixture
async def connect() -> AsyncIterator[Connect]:
    """Make clients of ASGI apps."""
    async with AsyncExitStack() as stack:

        def connect(app: Any, **more: Any) -> Client:
            client = client_of(app, **more)
            stack.push_async_callback(client.aclose)
            return client

        yield connect


@pytest.fixture
async def board(monque: Monque) -> AsyncIterator[Dashboard]:
    """A dashboard of this test's Monque, as it is without any argument."""
    async with dashboard(monque) as made:
        yield made


@pytest.fixture
def api(board: Dashboard, connect: Connect) -> Client:
    """A client of `board` on this machine."""
    return connect(board)
