"""What the programs of all contestants share: the words that they answer, and the marks of time.

    prepare           create what the queue needs on an empty server
    fill N            store the jobs 0 to N-1 as fast as it can
    alone N           store N jobs one by one, and print how long that took
    together N        store N jobs as many at once as it can, and print how long that took
    lone N LOW HIGH   store N jobs, LOW to HIGH milliseconds apart, and mark when each was stored
    work              run one worker until SIGTERM

These programs run in environments of their own, so nothing here imports anything of the harness.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import struct
import sys
import time
from collections.abc import Awaitable, Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

OPTIONS: dict[str, Any] = json.loads(os.environ.get("PEER_OPTIONS") or "{}")
MONGO = os.environ.get("PEER_MONGO", "")
REDIS = os.environ.get("PEER_REDIS", "")
POSTGRES = os.environ.get("PEER_POSTGRES", "")
CALLERS = 50
CHUNK = 1_000
# Lone jobs that are not measured, ahead of the others: connections open with them.
WARM_UP = 5
_files: dict[str, int] = {}


def _mark(variable: str, place: int) -> None:
    file = _files.get(variable)
    if file is None:
        file = _files[variable] = os.open(os.environ[variable], os.O_RDWR)
    os.pwrite(file, struct.pack("<q", time.monotonic_ns()), 8 * place)


def started(number: int) -> None:
    """Mark the start of a job: the first line of every handler."""
    _mark("PEER_STARTED", number + 1)


def is_ready() -> None:
    """Mark that the worker takes jobs from now on."""
    _mark("PEER_STARTED", 0)


def run(
    work: Callable[[], object],
    store: Callable[[int], object],
    store_many: Callable[[Iterable[int]], object] | None = None,
    prepare: Callable[[], object] | None = None,
) -> None:
    """Answer the words of the command line for a library whose calls block."""
    word, *numbers = sys.argv[1:]
    if word == "work":
        work()
    elif word == "prepare":
        if prepare is not None:
            prepare()
    elif word == "lone":
        for number, pause in _lone(*map(int, numbers)):
            time.sleep(pause)
            _mark("PEER_STORED", number + 1)
            store(number)
    else:
        count = int(numbers[0])
        if word != "fill":
            store(0)  # opens the connection
        began = time.perf_counter()
        if word == "alone":
            for number in range(count):
                store(number)
        elif store_many is not None:
            for first in range(0, count, CHUNK):
                store_many(range(first, min(count, first + CHUNK)))
        else:
            with ThreadPoolExecutor(CALLERS) as callers:
                list(callers.map(store, range(count)))
        print(json.dumps({"jobs": count, "seconds": time.perf_counter() - began}))


def run_async(
    work: Callable[[], object],
    store: Callable[[int], Awaitable[object]],
    store_many: Callable[[Iterable[int]], Awaitable[object]] | None = None,
    prepare: Callable[[], Awaitable[object]] | None = None,
    start: Callable[[], Awaitable[object]] | None = None,
    stop: Callable[[], Awaitable[object]] | None = None,
) -> None:
    """Answer the words of the command line for a library of asyncio. `work` runs its own event loop."""
    word, *numbers = sys.argv[1:]
    if word == "work":
        work()
        return

    async def together(count: int) -> None:
        if store_many is not None:
            for first in range(0, count, CHUNK):
                await store_many(range(first, min(count, first + CHUNK)))
            return
        left = iter(range(count))

        async def caller() -> None:
            for number in left:
                await store(number)

        await asyncio.gather(*(caller() for _ in range(CALLERS)))

    async def answer() -> None:
        if word == "prepare":
            if prepare is not None:
                await prepare()
            return
        if start is not None:
            await start()
        if word == "lone":
            for number, pause in _lone(*map(int, numbers)):
                await asyncio.sleep(pause)
                _mark("PEER_STORED", number + 1)
                await store(number)
        else:
            count = int(numbers[0])
            if word != "fill":
                await store(0)  # opens the connection
            began = time.perf_counter()
            if word == "alone":
                for number in range(count):
                    await store(number)
            else:
                await together(count)
            print(json.dumps({"jobs": count, "seconds": time.perf_counter() - began}))
        if stop is not None:
            await stop()

    asyncio.run(answer())


def loop_of(coroutine: Any) -> None:
    """Run a worker on the event loop that its options name."""
    if OPTIONS.get("uvloop"):
        import uvloop

        uvloop.run(coroutine)
    else:
        asyncio.run(coroutine)


def _lone(count: int, low: int, high: int) -> Iterable[tuple[int, float]]:
    pauses = random.Random(7)
    for number in [*range(count, count + WARM_UP), *range(count)]:
        yield number, pauses.uniform(low, high) / 1000
