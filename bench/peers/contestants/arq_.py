"""arq."""

from __future__ import annotations

import asyncio
from typing import Any

import peer
from arq import Worker, create_pool
from arq.connections import RedisSettings

SETTINGS = RedisSettings.from_dsn(peer.REDIS)
pool: Any


async def noop(_context: dict[str, Any], number: int) -> None:
    peer.started(number)


async def start() -> None:
    global pool
    pool = await create_pool(SETTINGS)


async def store(number: int) -> None:
    await pool.enqueue_job("noop", number)


async def ready(_context: dict[str, Any]) -> None:
    peer.is_ready()


def work() -> None:
    if peer.OPTIONS.get("uvloop"):
        import uvloop

        asyncio.set_event_loop(uvloop.new_event_loop())
    Worker([noop], redis_settings=SETTINGS, on_startup=ready, **peer.OPTIONS.get("worker", {})).run()


if __name__ == "__main__":
    peer.run_async(work, store, start=start)
