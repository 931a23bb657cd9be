"""A Monque for applications of Litestar in this process."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from datetime import timedelta
from typing import Any

import httpx2
import pytest

from monque import Monque, Options
from support.aliases import Make
from support.web import Client, Connect


@pytest.fixture
def monque(make_monque: Make) -> Monque:
    """One that is not open. Failures are final: no test here is about retries."""
    options = Options(max_retries=1, shutdown_timeout=timedelta(seconds=10), trends=None, register=False)
    return make_monque(options=options)


@pytest.fixture
async def connect() -> AsyncIterator[Connect]:
    """Make clients of ASGI apps."""
    async with AsyncExitStack() as stack:

        def connect(app: Any, **more: Any) -> Client:
            transport = httpx2.ASGITransport(app, client=("127.0.0.1", 50_000))
            client = httpx2.AsyncClient(transport=transport, base_url="http://localhost", **more)
            stack.push_async_callback(client.aclose)
            return client

        yield connect
