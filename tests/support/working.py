"""Instances that are at work: handlers that can be held, and jobs that already run."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from typing import Any

from monque import Job, Monque, NewJob
from support.waiting import Events, start


class Work:
    """A handler that counts its runs by their data.

    Args:
        waits: Whether it runs until `done` is set.
        error: What it raises in the end.
    """

    def __init__(self, *, waits: bool = False, error: Exception | None = None) -> None:
        self.runs: Counter[Any] = Counter()
        self.done = asyncio.Event()
        self._error = error
        if not waits:
            self.done.set()

    async def __call__(self, job: Job[Any]) -> None:
        self.runs[job.data] += 1
        await self.done.wait()
        if self._error is not None:
            raise self._error


class Pause:
    """A handler, or a step of one, that waits until it may go on."""

    def __init__(self) -> None:
        self.reached = asyncio.Event()
        self.go_on = asyncio.Event()

    async def __call__(self, *_: object) -> None:
        self.reached.set()
        await self.go_on.wait()

    async def wait(self) -> None:
        """Wait until the handler has come here."""
        await asyncio.wait_for(self.reached.wait(), 15)


async def start_with(
    monque: Monque, handler: Callable[..., Any], *, until: str = "changestream:connected", **options: Any
) -> Events:
    """Start *monque* with a worker for `work`, and wait until its change stream is live."""
    monque.worker("work", handler, **options)
    return await start(monque, until=until)


async def begin(monque: Monque, handler: Callable[..., Any], *, jobs: int = 1) -> Events:
    """Start *monque*, and wait until *handler* runs with *jobs* jobs at once, numbered from 0."""
    events = Events(monque)
    monque.worker("work", handler, concurrency=jobs)
    await monque.start()
    for number in range(jobs):
        await monque.enqueue("work", number)
    await events.wait("job:start", jobs)
    return events


async def prefetch(monque: Monque) -> Events:
    """Let *monque* claim more jobs than its two slots can run: after 30 quick jobs come 20 endless ones."""

    @monque.worker("work", concurrency=2)
    async def work(job: Job[str]) -> None:
        if job.data == "slow":
            await asyncio.Event().wait()

    events = Events(monque)
    await monque.start()
    await monque.enqueue_many([NewJob("work", "quick") for _ in range(30)])
    await events.wait("job:complete", 30)
    await monque.enqueue_many([NewJob("work", "slow") for _ in range(20)])
    return events
