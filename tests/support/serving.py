"""Web servers in processes of their own."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

from support.programs.child import Child

TESTS = Path(__file__).parents[1]


@asynccontextmanager
async def program(*command: str, folder: Path, **environment: str) -> AsyncIterator[Child]:
    """Run `python -m ...` in *folder*; killed at the end if it still runs."""
    path = os.pathsep.join([str(TESTS), *filter(None, [os.environ.get("PYTHONPATH")])])
    variables = {**os.environ, "PYTHONPATH": path, "PYTHONWARNINGS": "error", **environment}
    async with running(sys.executable, "-m", *command, cwd=folder, env=variables) as child:
        yield child


@asynccontextmanager
async def example(name: str, *arguments: str, data_dir: Path) -> AsyncIterator[Child]:
    """Run one of `examples/` as its page says, on an embedded MongoDB whose data is in *data_dir*."""
    variables = {name: value for name, value in os.environ.items() if name != "MONQUE_URI"}
    variables["MONQUE_DATA_DIR"] = str(data_dir)
    script = str(TESTS.parent / "examples" / name)
    async with running(sys.executable, script, *arguments, env=variables) as child:
        yield child


@asynccontextmanager
async def running(*command: str, **settings: Any) -> AsyncIterator[Child]:
    """Run a command; killed at the end if it still runs."""
    process = await asyncio.create_subprocess_exec(
        *command,
        **settings,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    child = Child(process)
    try:
        yield child
    finally:
        with suppress(ProcessLookupError):
            process.kill()
        await child.finished()


async def is_up(child: Child, port: int) -> None:
    """Wait until a server that is being started accepts connections."""
    async with asyncio.timeout(60):
        while True:
            try:
                _, writer = await asyncio.open_connection("127.0.0.1", port)
                writer.close()
                return await writer.wait_closed()
            except OSError:
                assert not child.has_ended, child.complaints
                await asyncio.sleep(0.05)
