"""What dependencies cost a job: a handler that `monque.fastapi` gives them to, beside a bare one."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable, Iterator
from datetime import UTC, datetime
from typing import Annotated, Any

from bson import ObjectId
from fastapi import Depends

from bench.stage import Sample, Stage
from monque import Job, JobStatus
from monque.fastapi import JobRouter

# The best of so many series counts. The best of three may still be interrupted; fourteen tell the same.
_SERIES = 7


async def get_settings() -> str:
    return "settings"


async def get_mailer(settings: Annotated[str, Depends(get_settings)]) -> str:
    return f"mailer with {settings}"


async def get_session() -> AsyncIterator[str]:
    yield "session"


def get_blocking_settings() -> str:
    return "settings"


def get_blocking_session() -> Iterator[str]:
    yield "session"


async def bare(job: Job[None]) -> None: ...


def bare_blocking(job: Job[None]) -> None: ...


async def one(job: Job[None], settings: Annotated[str, Depends(get_settings)]) -> None: ...


async def two(job: Job[None], mailer: Annotated[str, Depends(get_mailer)]) -> None: ...


async def opened(
    job: Job[None],
    settings: Annotated[str, Depends(get_settings)],
    session: Annotated[str, Depends(get_session)],
) -> None: ...


def blocking(
    job: Job[None],
    settings: Annotated[str, Depends(get_blocking_settings)],
    session: Annotated[str, Depends(get_blocking_session)],
) -> None: ...


async def in_thread(job: Job[None], settings: Annotated[str, Depends(get_blocking_settings)]) -> None: ...


HANDLERS: dict[str, Callable[..., Any]] = {
    "one dependency": one,
    "two, one needs the other": two,
    "two, one with yield": opened,
    "two of a def handler, one with yield": blocking,
}


async def injected(stage: Stage, count: int, *, handler: str) -> Sample:
    """The microseconds that a run takes longer; the CPU is that of a run with and a run without it."""
    with stage.costs(count * _SERIES) as costs:
        cost = await overhead(HANDLERS[handler], count)
    return costs.sample(cost, "µs")


async def overhead(handler: Callable[..., Any], runs: int) -> float:
    """Microseconds that a run of *handler* takes longer than one of a bare handler of its kind."""
    router = JobRouter()
    router.job("work")(handler)
    worker = router.handlers[0].bound()
    if worker.is_async:
        return await _call(worker.handler, runs) - await _call(bare, runs)
    return _call_blocking(worker.handler, runs) - _call_blocking(bare_blocking, runs)


async def _call(handler: Callable[[Job[None]], Any], runs: int) -> float:
    """Microseconds of one call, in the best series: what else the machine did is not asked for."""
    best, job = float("inf"), _job()
    for _ in range(_SERIES):
        began = time.perf_counter()
        for _ in range(runs):
            await handler(job)
        best = min(best, time.perf_counter() - began)
    return best / runs * 1e6


def _call_blocking(handler: Callable[[Job[None]], Any], runs: int) -> float:
    best, job = float("inf"), _job()
    for _ in range(_SERIES):
        began = time.perf_counter()
        for _ in range(runs):
            handler(job)
        best = min(best, time.perf_counter() - began)
    return best / runs * 1e6


def _job() -> Job[None]:
    now = datetime.now(UTC)
    return Job(
        id=ObjectId(),
        name="work",
        data=None,
        status=JobStatus.PROCESSING,
        next_run_at=now,
        created_at=now,
        updated_at=now,
    )
