"""`pymongo.timeout` around a call limits that call, not other callers and not the tasks that outlive it."""

from __future__ import annotations

import asyncio
import time

import pymongo
import pytest

from monque import ConnectionError, Job, Monque
from support.waiting import Events


async def test_the_deadline_of_one_caller_does_not_end_the_writes_of_other_callers(monque: Monque) -> None:
    """Calls that come together share a write; the call that began it has a short deadline."""
    long_past_it = time.monotonic() + 0.6

    async def be_patient() -> None:
        while time.monotonic() < long_past_it:
            await monque.enqueue("work")

    async def hurry() -> None:
        with pymongo.timeout(0.3):
            await monque.enqueue("work")

    await asyncio.gather(hurry(), *(be_patient() for _ in range(10)))


async def test_a_caller_with_a_deadline_does_not_wait_beyond_it(monque: Monque) -> None:
    with pymongo.timeout(0.001):
        _spin(0.01)
        with pytest.raises(ConnectionError):
            await monque.enqueue("work")


async def test_jobs_run_after_the_deadline_in_which_the_instance_was_started(
    monque: Monque, events: Events
) -> None:
    async def work(job: Job[None]) -> None:
        await monque.client.admin.command("ping")

    monque.worker("work", work)
    with pymongo.timeout(0.5):
        await monque.start()
    _spin(0.5)
    await monque.enqueue("work")

    await events.wait("job:complete")
    assert events.of("job:error") == []
    assert events.of("job:fail") == []


def _spin(seconds: float) -> None:
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        pass
