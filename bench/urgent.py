"""How soon a job with a priority starts, behind a long backlog of normal ones."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

from bench import plain
from bench.processes import Process
from bench.scenario import LeftOutError, Round, Subject
from bench.stage import Sample, Stage
from monque import Job, Monque, NewJob

# How long a normal job takes. With half of it the processor is the bottleneck for ten instances, not their
# slots; with twice of it hardly anything is claimed ahead that an urgent job would have to overtake.
_SECONDS = 0.02

# Urgent jobs come this far apart, so that each meets the backlog alone. With half of it the instances would
# still be looking for them because of the one before; with twice of it a round takes twice as long.
_APART = 0.25


def urgent_among(*, backlog: int, count: int, instances: int = 1, other_process: bool = False) -> Subject:
    """From calling `enqueue` with a priority to the handler's first line, during a backlog."""

    @asynccontextmanager
    async def subject(stage: Stage) -> AsyncIterator[Round]:
        if not hasattr(Monque, "set_priority"):
            raise LeftOutError("it has no priorities")
        await plain.fill(stage, "monque_jobs", backlog, name="work")
        async with AsyncExitStack() as stack:
            times: asyncio.Queue[float] = asyncio.Queue()
            workers = [await stack.enter_async_context(_worker(stage, times)) for _ in range(instances)]
            await workers[0].enqueue("work", time.monotonic(), priority=1)  # creates the index
            sender = None
            if other_process:
                sender = await stack.enter_async_context(Process("bench.producer", stage.uri, "9"))
            await asyncio.gather(*(worker.start() for worker in workers))
            await times.get()

            async def measure() -> Sample:
                await _top_up(stage, workers[0], backlog)
                found = []
                with stage.costs(count, processes=[] if sender is None else [sender.pid]) as costs:
                    for _ in range(count):
                        await asyncio.sleep(_APART)
                        if sender is None:
                            await workers[0].enqueue("work", time.monotonic(), priority=9)
                        else:
                            sender.tell("one")
                        found.append(await times.get())
                return costs.times(found)

            yield measure
            await stage.database["monque_jobs"].delete_many({"status": "pending"})

    return subject


@asynccontextmanager
async def _worker(stage: Stage, times: asyncio.Queue[float]) -> AsyncIterator[Monque]:
    async with Monque(stage.database) as monque:

        @monque.worker("work")
        async def work(job: Job[float | None]) -> None:
            if job.priority and job.data is not None:
                times.put_nowait(time.monotonic() - job.data)
            else:
                await asyncio.sleep(_SECONDS)

        yield monque


async def _top_up(stage: Stage, monque: Monque, backlog: int) -> None:
    """Store as many normal jobs again as were worked off."""
    left = await stage.database["monque_jobs"].count_documents({"status": "pending"})
    jobs = (NewJob("work") for _ in range(backlog - left))
    await monque.enqueue_many(jobs, return_jobs=False)
