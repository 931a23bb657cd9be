"""Handlers that compute: in child processes and in threads. Children import this module."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Literal

from bench.draining import Completed
from bench.scenario import LeftOutError, Round, Subject
from bench.stage import Sample, Stage
from monque import Job, Monque, NewJob, Options

_CHILDREN = 2

# About 50 ms of pure Python. With half of it, the way to a child and back begins to show; twice only takes
# longer.
_STEPS = 2_500_000


def compute(_job: Job[Any]) -> None:
    """Keep a core busy, and hold the interpreter of this process meanwhile."""
    sum(range(_STEPS))


def nothing(_job: Job[Any]) -> None:
    """Do nothing: what is measured is the way there and back."""


def worked_off(
    *, count: int, mode: Literal["thread", "process"], handler: Any = compute, **options: Any
) -> Subject:
    """Work off jobs of one name, two at once. The children are there before the first round."""

    @asynccontextmanager
    async def subject(stage: Stage) -> AsyncIterator[Round]:
        if "child_processes" not in Options.__dataclass_fields__:
            raise LeftOutError("handlers in child processes")
        settings: Any = {"child_processes": _CHILDREN} | options
        async with Monque(stage.database, options=Options(**settings)) as monque:
            monque.worker("work", handler, concurrency=_CHILDREN, mode=mode)

            async def measure(jobs: int = count) -> Sample:
                completed = Completed(monque, jobs)
                with stage.costs(jobs) as costs:
                    await monque.enqueue_many([NewJob("work")] * jobs)
                    await completed.all_of_them.wait()
                return costs.rate()

            await monque.start()
            await measure(max(count // 10, 2 * _CHILDREN))
            yield measure

    return subject
