"""The example application starts with one command, on the embedded MongoDB, and does what it promises."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx2
import pytest

from support.programs.child import Child
from support.waiting import eventually

EXAMPLE = Path(__file__).parents[2] / "examples" / "fastapi_shop"


@pytest.fixture
async def example(tmp_path: Path) -> AsyncIterator[Child]:
    environment = {name: value for name, value in os.environ.items() if name != "MONQUE_URI"}
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        str(EXAMPLE),
        "--port=0",
        env={**environment, "MONQUE_DATA_DIR": str(tmp_path)},
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    child = Child(process)
    yield child
    with suppress(ProcessLookupError):
        process.kill()
    await child.finished()


async def test_an_order_is_shipped_paid_and_mailed_by_jobs(example: Child) -> None:
    def is_up() -> str:
        found = re.search(r"running on (http://\S+)", example.complaints)
        assert found, example.complaints
        return found[1]

    address = await eventually(is_up, within=60)
    async with httpx2.AsyncClient(base_url=address) as client:
        order = {"item": "book", "email": "ada@example.org"}
        assert (await client.post("/orders", json=order)).status_code == 202

        async def is_done() -> None:
            orders: list[dict[str, Any]] = (await client.get("/orders")).json()
            assert orders == [{**order, "status": "shipped", "paid": True}]

        await eventually(is_done, within=30)
        assert (await client.get("/readyz")).json() == {"status": "ready"}
    await example.wait_for("mail to ada@example.org: Your book is on its way")
    assert "an embedded one on this machine keeps the jobs" in example.complaints

    example.send(signal.SIGTERM)
    await example.ends()
