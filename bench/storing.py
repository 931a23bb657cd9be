"""How fast jobs are stored, and how much memory very many of them take."""

from __future__ import annotations

import asyncio
import inspect
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

from bson import ObjectId

from bench.footprint import current_memory, most_memory
from bench.processes import Process
from bench.scenario import LeftOutError, Round, Subject
from bench.stage import Sample, Stage
from monque import Monque, NewJob, Options


def enqueued(*, count: int, tasks: int = 1, unique: bool = False) -> Subject:
    """`enqueue` from some tasks at once, each job awaited; with keys of their own if *unique*."""

    @asynccontextmanager
    async def subject(stage: Stage) -> AsyncIterator[Round]:
        async with Monque(stage.database) as monque:

            async def enqueue(share: int) -> None:
                for _ in range(share):
                    await monque.enqueue("work", unique_key=str(ObjectId()) if unique else None)

            async def measure() -> Sample:
                with stage.costs(count) as costs:
                    await asyncio.gather(*(enqueue(count // tasks) for _ in range(tasks)))
                return costs.rate()

            await enqueue(100)  # connections are open and caches filled now
            yield measure

    return subject


async def enqueue_many(stage: Stage, count: int, *, listing_indexes: bool = False) -> Sample:
    """A list in one call."""
    jobs: list[NewJob[None]] = [NewJob("work") for _ in range(count)]
    async with Monque(stage.database, options=Options(listing_indexes=listing_indexes)) as monque:
        with stage.costs(count) as costs:
            await monque.enqueue_many(jobs)
    return costs.rate()


async def enqueue_stream(stage: Stage, count: int) -> Sample:
    """A generator in one call that does not return the jobs."""
    enqueue_only = _enqueue_only()
    async with Monque(stage.database) as monque:
        with stage.costs(count) as costs:
            await enqueue_only(monque, count)
    return costs.rate()


async def stream_memory(stage: Stage, count: int) -> Sample:
    """How far the memory of a process rises while it stores jobs from a generator."""
    _enqueue_only()
    with stage.costs(count) as costs:
        async with Process("bench.storing", stage.uri, str(count)) as process:
            rise = float(await process.ask("how much"))
    await stage.database.drop_collection(Options().collection)
    return costs.sample(rise / 1024, "MB")


def _enqueue_only() -> Any:
    """Store jobs from a generator without getting them back, if this library can."""
    if "return_jobs" not in inspect.signature(Monque.enqueue_many).parameters:
        raise LeftOutError("enqueue_many has no return_jobs=")

    async def enqueue_only(monque: Any, count: int) -> None:
        await monque.enqueue_many(_jobs(count), return_jobs=False)

    return enqueue_only


def _jobs(count: int) -> Iterator[NewJob[None]]:
    for _ in range(count):
        yield NewJob("work")


async def _main(uri: str, count: int) -> None:
    """Store jobs from a generator; print how many kB the memory of this process rose."""
    async with Monque(uri) as monque:
        await monque.enqueue("work")  # connections are open and caches filled now
        before = current_memory()
        print("ready", flush=True)
        await _enqueue_only()(monque, count)
        print(most_memory() - before, flush=True)


if __name__ == "__main__":
    asyncio.run(_main(sys.argv[1], int(sys.argv[2])))
