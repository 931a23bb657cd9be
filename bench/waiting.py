"""How soon a caller hears of the end of a job."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

from bench.scenario import LeftOutError, Round, Subject
from bench.stage import Sample, Stage
from monque import Job, Monque

# Seconds that a job takes: the first polls of a wait are over by then. Half tells the same; with twice of it
# the polls of the wait are no further apart.
_JOB = 0.05


def told(*, count: int, same: bool) -> Subject:
    """From the end of a handler to that of `wait_for`, in the instance that runs it or in another one."""

    @asynccontextmanager
    async def subject(stage: Stage) -> AsyncIterator[Round]:
        if not hasattr(Monque, "wait_for"):
            raise LeftOutError("wait_for")
        async with AsyncExitStack() as stack:
            worker = await stack.enter_async_context(Monque(stage.database))
            caller = worker if same else await stack.enter_async_context(Monque(stage.database))
            ended: list[float] = []

            @worker.worker("work")
            async def work(_job: Job[Any]) -> None:
                await asyncio.sleep(_JOB)
                ended.append(time.monotonic())

            await worker.start()

            async def measure() -> Sample:
                ended.clear()
                late = []
                with stage.costs(count) as costs:
                    for number in range(count):
                        await caller.wait_for(await caller.enqueue("work"))
                        late.append(time.monotonic() - ended[number])
                return costs.times(late)

            yield measure

    return subject
