"""The scenarios: each a function that is given an empty database and returns what it measured.

To add one, write it and put it into `ALL`.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any

from pymongo.asynchronous.database import AsyncDatabase

from bench import plain
from bench.report import Result
from bench.timing import PERCENTILES, percentiles, stopwatch
from monque import Job, Monque, NewJob, Options

Scenario = Callable[[AsyncDatabase[Any]], Awaitable[list[Result]]]


async def draining(database: AsyncDatabase[Any]) -> list[Result]:
    """No-op jobs that wait already, worked off by one instance in one process."""
    one_by_one = await plain.one_by_one(database, 400)
    wide = await _drain(database, 20_000, Options(collection="wide", worker_concurrency=100))
    default = await _drain(database, 5_000, Options(collection="default"))

    def result(name: str, value: float, target: float | None = None) -> Result:
        raw_name = "claim one, complete it, claim the next"
        return Result(name=name, value=value, unit="jobs/s", raw=one_by_one, raw_name=raw_name, target=target)

    return [
        result("drain 20,000, worker_concurrency=100", wide, target=10),
        result("drain 5,000, default options", default),
    ]


async def _drain(database: AsyncDatabase[Any], count: int, options: Options) -> float:
    async with Monque(database, options=options) as monque:
        await monque.enqueue_many(NewJob("work") for _ in range(count))
        done = 0

        @monque.worker("work")
        async def work(_job: Job[None]) -> None:
            nonlocal done
            done += 1

        with stopwatch() as watch:
            await monque.run_until_idle()
        assert done == count
    return count / watch.seconds


async def storing(database: AsyncDatabase[Any]) -> list[Result]:
    """Jobs stored one at a time, and many with one call."""
    one, many = 1_000, 20_000
    raw_one, raw_many = await plain.insert_one(database, one), await plain.insert_many(database, many)
    async with Monque(database) as monque:
        with stopwatch() as enqueueing:
            for _ in range(one):
                await monque.enqueue("work")
        with stopwatch() as keyed:
            for number in range(one):
                await monque.enqueue("work", unique_key=str(number))
        with stopwatch() as together:
            await monque.enqueue_many(NewJob("work") for _ in range(many))

    def result(name: str, value: float, raw: float, raw_name: str) -> Result:
        return Result(name=name, value=value, unit="jobs/s", raw=raw, raw_name=raw_name)

    return [
        result("enqueue, one by one", one / enqueueing.seconds, raw_one, "insert_one"),
        result("enqueue with a unique key", one / keyed.seconds, raw_one, "insert_one"),
        result("enqueue_many, 20,000 at once", many / together.seconds, raw_many, "insert_many"),
    ]


async def pick_up(database: AsyncDatabase[Any]) -> list[Result]:
    """From calling `enqueue` to the handler's first line, on idle instances."""
    count = 300
    raw = await plain.insert_and_claim(database, count)
    async with Monque(database) as worker, Monque(database) as producer:
        same = await _pick_up(worker, by=worker, count=count)
        other = await _pick_up(worker, by=producer, count=count)
    return [
        Result(
            name=f"pick-up, {where}, p{percent}",
            value=value * 1000,
            unit="ms",
            raw=limit * 1000,
            raw_name="one insert and one claim",
        )
        for where, times in (("same instance", same), ("other instance", other))
        for percent, value, limit in zip(PERCENTILES, times, raw, strict=True)
    ]


async def _pick_up(worker: Monque, *, by: Monque, count: int) -> list[float]:
    times: list[float] = []
    picked_up = asyncio.Event()
    sent = 0.0

    @worker.worker("ping", replace=True)
    async def ping(_job: Job[None]) -> None:
        times.append(time.perf_counter() - sent)
        picked_up.set()

    await worker.start()
    for number in range(count + 10):
        picked_up.clear()
        sent = time.perf_counter()
        await by.enqueue("ping")
        await picked_up.wait()
        if number == 9:
            times.clear()  # connections and the change stream are warm now
    await worker.stop()
    return percentiles(times)


ALL: list[Scenario] = [draining, storing, pick_up]
