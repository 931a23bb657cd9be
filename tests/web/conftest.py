"""Dashboards and surfaces on this test's database, and callers with rights of their own."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from typing import Any

import pytest

from monque import Monque
from monque.web import Dashboard, dashboard, static_files
from monque.web.access.permissions import Caller
from support.callers import caller
from support.calls import Calls
from support.web import TINY_PAGES, Client, Connect, client_of

Make = Callable[..., Calls]


@pytest.fixture(autouse=True)
def _tiny_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(static_files, "built", lambda: TINY_PAGES)


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


@pytest.fixture
async def make_call(monque: Monque) -> AsyncIterator[Make]:
    made: list[Calls] = []

    def make(**options: Any) -> Calls:
        made.append(Calls(monque, **options))
        return made[-1]

    yield make
    for call in made:
        await call.close()


@pytest.fixture
def call(make_call: Make) -> Calls:
    return make_call()


@pytest.fixture
def ada() -> Caller:
    """Who may do everything."""
    return caller()
