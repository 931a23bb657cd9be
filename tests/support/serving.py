"""Web servers in processes of their own."""

from __future__ import annotations

import asyncio
import os
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from support.programs.child import Child

TESTS = Path(__file__).parents[1]


def free_port() -> int:
    """A port on which nothing listens."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


@asynccontextmanager
async def program(*command: str, folder: Path, **environment: str) -> AsyncIterator[Child]:
    """Run `python -m ...` in *folder*; killed at the end if it still runs."""
    path = os.pathsep.join([str(TESTS), *filter(None, [os.environ.get("PYTHONPATH")])])
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        *command,
        cwd=folder,
        env={**os.environ, "PYTHONPATH": path, "PYTHONWARNINGS": "error", **environment},
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
