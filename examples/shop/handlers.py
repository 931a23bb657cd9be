"""The workers of the shop: those of `orders.py`, and others, whose runs take and end as the plan says."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias

from monque import Job, Retry, Workers

from . import orders
from .catalog import WORKS, Payload, Work
from .plan import Fate, fate

Handler: TypeAlias = Callable[[Job[Payload]], Awaitable[Payload | None]]


def workers(seed: int, release: str) -> Workers:
    """Return the workers of an instance of this release."""
    for work in WORKS:
        if work.slots and not work.is_flow:
            orders.workers.worker(
                work.name,
                _handler(work, seed, release),
                concurrency=work.slots,
                retry=Retry(work.attempts),
                store_result=work.keeps_result or None,
            )
    return orders.workers


def _handler(work: Work, seed: int, release: str) -> Handler:
    async def handle(job: Job[dict[str, Any]]) -> dict[str, Any] | None:
        what = fate(seed, work.name, job.data.get("number", 0), job.attempt, release)
        await _take_time(job, work, what)
        if what.error is not None:
            raise what.error
        return {"handled": work.name, "release": release} if work.keeps_result else None

    return handle


async def _take_time(job: Job[Any], work: Work, what: Fate) -> None:
    if not work.steps:
        await asyncio.sleep(what.seconds)
        return
    for step in range(1, work.steps + 1):
        await asyncio.sleep(what.seconds / work.steps)
        job.report_progress(step, work.steps, "written" if step == work.steps else "writing pages")
