"""`python -m bench.paired SCENARIO FILE`: one short measurement of Monque alone, for `bench.compare`.

`bench.compare` runs this file of the new checkout on the library of the old one too. So a scenario uses
public names only, and imports a name that the library did not always have inside its function.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

from pymongo import AsyncMongoClient

from bench.draining import drain, drain_by_processes
from bench.footprint import most_memory_after
from bench.latency import picked_up
from bench.stage import Costs, Stage, total
from bench.timing import percentiles
from monque import Monque, NewJob, Options
from monque.embedded import EmbeddedMongo

RATE = "jobs/s"
"""The one unit of which more is better."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One measured value; *client* and *server* are the microseconds of CPU that a job took there."""

    name: str
    value: float
    unit: str
    client: float | None = None
    server: float | None = None


Scenario = Callable[[Stage], Awaitable[list[Row]]]


async def drain_default(stage: Stage) -> list[Row]:
    """No-op jobs, default options."""
    return [await _drained(stage, "drain, default options", Options(collection="default"))]


async def drain_tuned(stage: Stage) -> list[Row]:
    """No-op jobs, many at a time."""
    options = Options(collection="tuned", worker_concurrency=1_000)
    return [await _drained(stage, "drain, worker_concurrency=1000", options)]


async def drain_names(stage: Stage) -> list[Row]:
    """No-op jobs under five hundred names."""
    return [await _drained(stage, "drain, 500 names", Options(collection="names"), names=500)]


async def drain_processes(stage: Stage) -> list[Row]:
    """No-op jobs, four processes on one collection."""
    rounds = [await drain_by_processes(stage, 30_000, 4) for _ in range(2)]
    return [_row("drain, 4 processes", rounds)]


async def enqueue(stage: Stage) -> list[Row]:
    """One after another, from fifty tasks at once, and many with one call."""
    one, tasks, many = 100, 50, 20_000
    alone, together, at_once = [], [], []
    async with Monque(stage.database) as monque:

        async def enqueue_each(count: int) -> None:
            for _ in range(count):
                await monque.enqueue("work")

        await enqueue_each(one)  # connections are warm now
        for _ in range(8):
            with stage.costs(2 * one) as costs:
                await enqueue_each(2 * one)
            alone.append(costs)
            with stage.costs(one * tasks) as costs:
                await asyncio.gather(*(enqueue_each(one) for _ in range(tasks)))
            together.append(costs)
            jobs: list[NewJob[None]] = [NewJob("work") for _ in range(many)]
            with stage.costs(many) as costs:
                await monque.enqueue_many(jobs)
            at_once.append(costs)
    return [
        _row("enqueue, one after another", alone),
        _row(f"enqueue, {tasks} tasks", together),
        _row(f"enqueue_many, {many:,}", at_once),
    ]


async def pick_up(stage: Stage) -> list[Row]:
    """From calling `enqueue` to the handler's first line, on idle instances."""
    rounds, count = 4, 150
    same, other = list[float](), list[float]()
    cpu_same, cpu_other = list[Costs](), list[Costs]()
    async with Monque(stage.database) as worker, Monque(stage.database) as producer:
        for _ in range(rounds):
            for by, times, cpu in ((worker, same, cpu_same), (producer, other, cpu_other)):
                with stage.costs(count) as costs:
                    times += await picked_up(worker, by=by, count=count)
                cpu.append(costs)
    return [
        _milliseconds("pick-up, same instance, p50", same, cpu_same),
        _milliseconds("pick-up, other instance, p50", other, cpu_other),
    ]


async def memory(stage: Stage) -> list[Row]:
    """The most memory that a worker process took for many jobs."""
    count = 20_000
    _, most = await most_memory_after(stage, count)
    return [Row(name=f"memory after {count:,} jobs", value=most, unit="MB")]


# To add a scenario, write a function that is given a stage and returns what it measured, and name it here.
SCENARIOS: dict[str, Scenario] = {
    "drain": drain_default,
    "drain-tuned": drain_tuned,
    "drain-names": drain_names,
    "drain-processes": drain_processes,
    "enqueue": enqueue,
    "pick-up": pick_up,
    "memory": memory,
}


async def measure(scenario: Scenario) -> list[Row]:
    """Run it on a temporary server that the library under test starts, as its users get one."""
    async with EmbeddedMongo(temporary=True) as server, AsyncMongoClient[Any](server.uri) as client:
        return await scenario(Stage(client["paired"], server.uri))


async def _drained(stage: Stage, name: str, options: Options, *, names: int = 1) -> Row:
    await drain(stage, 3_000, options, names=names)  # the server is warm now
    return _row(name, [await drain(stage, 30_000, options, names=names) for _ in range(3)])


def _row(name: str, rounds: Sequence[Costs]) -> Row:
    """The median rate, and the CPU of all rounds: /proc counts in steps of 10 ms, too coarse for one."""
    cpu = total(rounds)
    return Row(
        name=name,
        value=median(costs.rate for costs in rounds),
        unit=RATE,
        client=cpu.client_a_job,
        server=cpu.server_a_job,
    )


def _milliseconds(name: str, times: Sequence[float], rounds: Sequence[Costs]) -> Row:
    cpu = total(rounds)
    return Row(
        name=name,
        value=percentiles(times)[0] * 1000,
        unit="ms",
        client=cpu.client_a_job,
        server=cpu.server_a_job,
    )


if __name__ == "__main__":
    rows = asyncio.run(measure(SCENARIOS[sys.argv[1]]))
    Path(sys.argv[2]).write_text(json.dumps([asdict(row) for row in rows]))
