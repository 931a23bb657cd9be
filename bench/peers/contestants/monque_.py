"""Monque. All that is not in the options is its default."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from datetime import timedelta
from typing import Any

import peer

from monque import Job, Keep, Monque, NewJob

logging.basicConfig(level=logging.WARNING)
monque = Monque(f"{peer.MONGO.replace('/?', '/monque?')}")


async def prepare() -> None:
    async with monque:
        pass


async def store(number: int) -> None:
    await monque.enqueue("noop", {"number": number})


async def store_many(numbers: Iterable[int]) -> None:
    await monque.enqueue_many([NewJob("noop", {"number": number}) for number in numbers])


async def worker() -> None:
    keep = Keep(completed=timedelta(peer.OPTIONS["keep"])) if "keep" in peer.OPTIONS else None
    settings: dict[str, Any] = {} if keep is None else {"keep": keep}

    @monque.worker("noop", **settings)
    async def noop(job: Job[dict[str, int]]) -> None:
        peer.started(job.data["number"])

    async with monque:
        peer.is_ready()
        await monque.run()


if __name__ == "__main__":
    peer.run_async(
        lambda: peer.loop_of(worker()), store, store_many, prepare, start=monque.open, stop=monque.close
    )
