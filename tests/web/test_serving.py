"""Streams of dashboards that uvicorn serves in processes of their own, as users run them."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import time
from pathlib import Path

import pytest

from monque.embedded import EmbeddedMongo
from support.aliases import Database
from support.ports import free_port
from support.programs.child import Child, uri_of
from support.serving import is_up, program
from support.sse import EventStream, visiting

pytestmark = pytest.mark.thorough

APPS = Path(__file__).parent / "apps"
MOUNTED = "/ops/monque/api/ops/v1/stream"
# What a client may cost, in bytes.
MOST_MEMORY = 64 * 1024


@pytest.fixture
def uri(server: EmbeddedMongo, database: Database) -> str:
    return uri_of(server, database)


def memory(child: Child) -> int:
    """How much of the memory this process has."""
    listed = subprocess.run(["ps", "-o", "rss=", "-p", str(child.pid)], capture_output=True, check=True)
    return int(listed.stdout) * 1024


async def ticks(stream: EventStream, count: int) -> list[int]:
    """The numbers of the next ticks that a stream tells of."""
    found: list[int] = []
    while len(found) < count:
        sent = await stream.next()
        assert sent is not None, "the stream has ended"
        if sent.id is not None:
            found.append(sent.seq)
    return found


def is_gapless(numbers: list[int]) -> bool:
    return numbers == list(range(numbers[0], numbers[0] + len(numbers)))


async def test_two_hundred_streams_cost_the_database_as_much_as_one_and_little_memory(uri: str) -> None:
    """One of them never reads, and delays nobody. SIGTERM ends all of them, and the server."""
    port = free_port()
    async with (
        program("uvicorn", "live_app:app", "--port", str(port), folder=APPS, MONQUE_URI=uri) as child,
        visiting(port) as visit,
    ):
        await is_up(child, port)
        first = await visit(MOUNTED)

        async def commands_of_ten_ticks() -> int:
            await ticks(first, 1)
            before = int(await (await visit("/commands")).body())
            assert is_gapless(await ticks(first, 10))
            return int(await (await visit("/commands")).body()) - before

        alone = await commands_of_ten_ticks()
        before = memory(child)
        streams = [await visit(MOUNTED, limit=1024) for _ in range(199)]
        together = await commands_of_ten_ticks()
        used = memory(child) - before
        numbers = await asyncio.gather(*(ticks(stream, 5) for stream in streams[1:]))

        assert together <= alone + 7  # of one tick: a request may come between
        assert all(map(is_gapless, numbers))
        assert used / 199 < MOST_MEMORY
        child.send(signal.SIGTERM)
        await asyncio.gather(*(stream.ended() for stream in streams[1:]))
        assert await child.ends(within=10) == -signal.SIGTERM
        await child.finished()
        assert_calm(child)


def assert_calm(child: Child) -> None:
    assert "Traceback" not in child.complaints, child.complaints
    assert "ERROR" not in child.complaints, child.complaints


async def ends_with_streams(child: Child, number: signal.Signals, port: int, path: str) -> int:
    """Open twenty streams and send a signal; all of it must be over in three seconds. The exit code."""
    await is_up(child, port)
    async with visiting(port) as visit:
        streams = [await visit(path) for _ in range(20)]
        await asyncio.gather(*(stream.until("snapshot") for stream in streams))
        began = time.monotonic()
        child.send(number)
        await asyncio.gather(*(stream.ended() for stream in streams))
        code = await child.ends(within=10)
    await child.finished()
    assert time.monotonic() - began < 3, child.complaints
    assert_calm(child)
    return code


async def test_sigterm_ends_two_worker_processes_and_their_streams(uri: str) -> None:
    port = free_port()
    command = ("uvicorn", "live_app:app", "--port", str(port), "--workers", "2")
    async with program(*command, folder=APPS, MONQUE_URI=uri) as child:
        assert await ends_with_streams(child, signal.SIGTERM, port, MOUNTED) == 0
