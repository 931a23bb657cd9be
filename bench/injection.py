"""What dependencies cost a job: a handler that `monque.fastapi` gives them to, beside a bare one."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable, Iterator
from datetime import UTC, datetime
from typing import Annotated, Any

from bson import ObjectId
from fastapi import Depends

from bench.report import Result
from bench.stage import Stage
from monque import Job, JobStatus
from monque.fastapi import JobRouter

LIMIT = 20.0
"""Microseconds a job may cost more because of one or two dependencies."""

ROUNDS, RUNS = 7, 2_000


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


async def injection(_stage: Stage) -> list[Result]:
    """The cost in microseconds, beside what is allowed."""

    def result(name: str, value: float) -> Result:
        return Result(
            name=f"injection: {name}", value=value, unit="µs", raw=LIMIT, raw_name="allowed", at_most=1
        )

    return [
        result("one dependency", await overhead(one)),
        result("two, one needs the other", await overhead(two)),
        result("two, one with yield", await overhead(opened)),
        result("two of a def handler, one with yield", await overhead(blocking)),
    ]


async def overhead(handler: Callable[..., Any]) -> float:
    """Microseconds that a run of *handler* takes longer than one of a bare handler of its kind."""
    router = JobRouter()
    router.job("work")(handler)
    worker = router.handlers[0].bound()
    if worker.is_async:
        return await _call(worker.handler) - await _call(bare)
    return _call_blocking(worker.handler) - _call_blocking(bare_blocking)


async def _call(handler: Callable[[Job[None]], Any]) -> float:
    """Microseconds of one call, in the best round: what else the machine did is not asked for."""
    best, job = float("inf"), _job()
    for _ in range(ROUNDS):
        began = time.perf_counter()
        for _ in range(RUNS):
            await handler(job)
        best = min(best, time.perf_counter() - began)
    return best / RUNS * 1e6


def _call_blocking(handler: Callable[[Job[None]], Any]) -> float:
    best, job = float("inf"), _job()
    for _ in range(ROUNDS):
        began = time.perf_counter()
        for _ in range(RUNS):
            handler(job)
        best = min(best, time.perf_counter() - began)
    return best / RUNS * 1e6


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
