"""What follows a failure: the types of `on_failure`, and what is refused; see `calls.py`."""

from __future__ import annotations

from datetime import datetime
from typing import Any, assert_type

from monque import FailedJob, Job, Monque, NewJob

monque = Monque()


@monque.worker("dead")
async def dead(job: Job[FailedJob]) -> None:
    assert_type(job.data.name, str)
    assert_type(job.data.data, Any)
    assert_type(job.data.reason, str)
    assert_type(job.data.attempts, int)
    assert_type(job.data.failed_at, datetime)


@monque.worker("dead.charge")
async def dead_charge(job: Job[FailedJob[int]]) -> None:
    assert_type(job.data.data, int)


@monque.worker("charge", on_failure="dead")
async def charge(job: Job[int]) -> None: ...


@monque.worker("refund", on_failure=dead)
async def refund(job: Job[int]) -> None: ...


async def calls() -> None:
    await charge.enqueue(1, on_failure="dead")
    await charge.enqueue(1, on_failure=dead)
    await monque.enqueue_many([NewJob(charge, 1, on_failure="dead")])
    await charge.enqueue(1, on_failure=5)  # type: ignore[arg-type]
    monque.worker("wrong", on_failure=5)  # type: ignore[call-overload]
