"""How fast jobs are stored."""

from __future__ import annotations

import asyncio

from bench import plain
from bench.report import Result
from bench.stage import Stage
from bench.timing import stopwatch
from monque import Monque, NewJob


async def storing(stage: Stage) -> list[Result]:
    """One after another, from many tasks at once, many with one call, and with unique keys."""
    one, many, tasks = stage.size(500, 2_000), stage.size(20_000, 100_000), 50
    raw_keyed = await plain.upsert(stage.database, one)
    raw_together = together = raw_at_once = at_once = 0.0
    async with Monque(stage.database) as monque:

        async def enqueue(count: int) -> None:
            for _ in range(count):
                await monque.enqueue("work")

        raw_seconds = seconds = 0.0
        for _ in range(10):  # in turns: each call is so short that the mood of the machine would decide
            raw_seconds += one / 10 / await plain.insert_one(stage.database, one // 10)
            with stopwatch() as alone:
                await enqueue(one // 10)
            seconds += alone.seconds
        for _ in range(3):  # side by side, the better of each: the machine may be busy for a moment
            raw_together = max(raw_together, await plain.insert_one(stage.database, 2 * one, tasks=tasks))
            with stopwatch() as watch:
                await asyncio.gather(*(enqueue(10 * one // tasks) for _ in range(tasks)))
            together = max(together, 10 * one / watch.seconds)
            raw_at_once = max(raw_at_once, await plain.insert_many(stage.database, many))
            jobs: list[NewJob[None]] = [NewJob("work") for _ in range(many)]
            with stopwatch() as watch:
                await monque.enqueue_many(jobs)
            at_once = max(at_once, many / watch.seconds)
        with stopwatch() as keyed:
            for number in range(one):
                await monque.enqueue("work", unique_key=str(number))

    def result(name: str, value: float, raw: float, raw_name: str, at_least: float | None = None) -> Result:
        return Result(name=name, value=value, unit="jobs/s", raw=raw, raw_name=raw_name, at_least=at_least)

    return [
        result("enqueue, one after another", one / seconds, one / raw_seconds, "insert_one", 0.9),
        result(f"enqueue, {tasks} tasks", together, raw_together, f"insert_one, {tasks} tasks", 5),
        result("enqueue with a unique key", one / keyed.seconds, raw_keyed, "upsert"),
        result(f"enqueue_many, {many:,}", at_once, raw_at_once, "insert_many", 0.8),
    ]
