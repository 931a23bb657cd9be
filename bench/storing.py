"""How fast jobs are stored."""

from __future__ import annotations

import asyncio

from bench import plain
from bench.report import Result
from bench.stage import Costs, Stage, middle
from bench.timing import stopwatch
from monque import Monque, NewJob


async def storing(stage: Stage) -> list[Result]:
    """One after another, from many tasks at once, many with one call, and with unique keys."""
    one, many, tasks = stage.size(500, 2_000), stage.size(20_000, 100_000), 50
    raw_keyed = await plain.upsert(stage.database, one)
    alone, together, at_once = [], [], []
    async with Monque(stage.database) as monque:

        async def enqueue(count: int) -> None:
            for _ in range(count):
                await monque.enqueue("work")

        # In turns, and the one in the middle counts: the machine may be busy for a moment.
        for _ in range(one // 10):
            raw = await plain.insert_one(stage.database, 20)
            with stopwatch() as watch:
                await enqueue(20)
            alone.append((Costs(20, watch.seconds), raw))
        for _ in range(5):
            raw = await plain.insert_one(stage.database, 2 * one, tasks=tasks)
            with stopwatch() as watch:
                await asyncio.gather(*(enqueue(10 * one // tasks) for _ in range(tasks)))
            together.append((Costs(10 * one, watch.seconds), raw))
            raw = await plain.insert_many(stage.database, many)
            jobs: list[NewJob[None]] = [NewJob("work") for _ in range(many)]
            with stopwatch() as watch:
                await monque.enqueue_many(jobs)
            at_once.append((Costs(many, watch.seconds), raw))
        with stopwatch() as keyed:
            for number in range(one):
                await monque.enqueue("work", unique_key=str(number))

    def result(name: str, costs: Costs, raw: float, raw_name: str, at_least: float | None = None) -> Result:
        return Result(
            name=name, value=costs.rate, unit="jobs/s", raw=raw, raw_name=raw_name, at_least=at_least
        )

    return [
        result("enqueue, one after another", *middle(alone), "insert_one", 0.9),
        result(f"enqueue, {tasks} tasks", *middle(together), f"insert_one, {tasks} tasks", 5),
        result("enqueue with a unique key", Costs(one, keyed.seconds), raw_keyed, "upsert"),
        result(f"enqueue_many, {many:,}", *middle(at_once), "insert_many", 0.8),
    ]
