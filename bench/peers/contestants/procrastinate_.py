"""Procrastinate through psycopg."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

import peer
import procrastinate

connector = procrastinate.PsycopgConnector(conninfo=peer.POSTGRES, **peer.OPTIONS.get("pool", {}))
app = procrastinate.App(connector=connector)


@app.task(name="noop")
async def noop(number: int) -> None:
    peer.started(number)


async def prepare() -> None:
    async with app.open_async():
        await app.schema_manager.apply_schema_async()


async def store(number: int) -> None:
    await noop.defer_async(number=number)


async def store_many(numbers: Iterable[int]) -> None:
    await noop.batch_defer_async(*({"number": number} for number in numbers))


async def worker() -> None:
    async with app.open_async():
        peer.is_ready()
        await app.run_worker_async(**peer.OPTIONS.get("worker", {}))


if __name__ == "__main__":
    peer.run_async(
        lambda: asyncio.run(worker()),
        store,
        store_many,
        prepare,
        start=app.open_async,
        stop=app.close_async,
    )
