"""Limits: their types, and what is refused; see `calls.py`."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import assert_type

from monque import Job, JobFilter, Limit, Line, Monque, Rate, SyncMonque, Turn

monque = Monque()
sync = SyncMonque()
MINUTE = timedelta(minutes=1)


@dataclass
class Sync:
    customer: int


@monque.worker("five", limit=5)
async def five(job: Job[Sync]) -> None:
    assert_type(job.turn, Turn | None)
    if job.turn is not None:
        assert_type(job.turn.line, str)
        assert_type(job.turn.slot, int)


@monque.worker("by-path", limit=Limit(2, by="customer"))
async def by_path(job: Job[Sync]) -> None: ...


@monque.worker("by-function", limit=Limit(2, by=lambda data: data.customer % 10))
async def by_function(job: Job[Sync]) -> None: ...


@monque.worker("by-plan", limit=Limit(lambda data: data.customer, by="customer"))
async def by_plan(job: Job[Sync]) -> None: ...


@monque.worker("ordered", limit=Limit(1, by="customer", ordered=True))
async def ordered(job: Job[Sync]) -> None: ...


@monque.worker("rate", limit=Limit(rate=Rate(60, per=MINUTE, name="partner")))
async def rate(job: Job[Sync]) -> None: ...


async def looking() -> None:
    lines = await monque.lines("by-path", limit=10)
    assert_type(lines, list[Line])
    assert_type([(line.key, line.running, line.waiting, line.oldest) for line in lines], list[_Shown])
    assert_type(sync.lines("by-path"), list[Line])
    JobFilter(waits_for="turn")


_Shown = tuple[str, int, int, datetime | None]


def wrong() -> None:
    monque.worker("wrong", limit="5")  # type: ignore[call-overload]
    Limit("5")  # type: ignore[arg-type]
    Limit(1, by=5)  # type: ignore[arg-type]
    Rate(60)  # type: ignore[call-arg]
    Rate(60, per=60)  # type: ignore[arg-type]
