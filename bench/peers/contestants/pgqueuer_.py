"""pgqueuer through asyncpg."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Iterable
from typing import Any

import asyncpg
import peer
from pgqueuer import PgQueuer
from pgqueuer.db import AsyncpgDriver, AsyncpgPoolDriver
from pgqueuer.queries import Queries

pool: Any
queries: Any


async def prepare() -> None:
    connection = await asyncpg.connect(peer.POSTGRES)
    await Queries(AsyncpgDriver(connection)).install()
    await connection.close()


async def start() -> None:
    global pool, queries
    pool = await asyncpg.create_pool(peer.POSTGRES, min_size=1, max_size=20)
    queries = Queries(AsyncpgPoolDriver(pool))


async def stop() -> None:
    await pool.close()


async def store(number: int) -> None:
    await queries.enqueue("noop", b"%d" % number)


async def store_many(numbers: Iterable[int]) -> None:
    payloads = [b"%d" % number for number in numbers]
    await queries.enqueue(["noop"] * len(payloads), payloads, [0] * len(payloads))


async def worker() -> None:
    queue = PgQueuer(AsyncpgDriver(await asyncpg.connect(peer.POSTGRES)))

    @queue.entrypoint("noop")
    async def noop(job: Any) -> None:
        peer.started(int(job.payload))

    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, queue.shutdown.set)
    peer.is_ready()
    await queue.run(**peer.OPTIONS.get("run", {}))


if __name__ == "__main__":
    peer.run_async(lambda: peer.loop_of(worker()), store, store_many, prepare, start, stop)
