"""`pymongo.timeout` around a call is about that call, not about what others do or what goes on after it."""

from __future__ import annotations

import asyncio
import time

import pymongo
import pytest

from monque import ConnectionError, Job, Monque
from support.waiting import Heard


async def test_the_deadline_of_one_caller_does_not_end_the_writes_of_others(monque: Monque) -> None:
    """Calls that come together share a write; the one who began it was in a hurry."""
    long_past_it = time.monotonic() + 0.6

    async def be_patient() -> None:
        while time.monotonic() < long_past_it:
            await monque.enqueue("work")

    async def hurry() -> None:
        with pymongo.timeout(0.3):
            await monque.enqueue("work")

    await asyncio.gather(hurry(), *(be_patient() for _ in range(10)))


async def test_a_caller_in_a_hurry_is_not_kept_longer_than_he_wants(monque: Monque) -> None:
    with pymongo.timeout(0.001):
        _spin(0.01)
        with pytest.raises(ConnectionError):
            await monque.enqueue("work")


async def test_jobs_run_after_the_deadline_in_which_the_instance_was_started(monque: Monque) -> None:
    async def work(job: Job[None]) -> None:
        await monque.client.admin.command("ping")

    monque.worker("work", work)
    heard = Heard(monque)
    with pymongo.timeout(0.5):
        await monque.start()
    _spin(0.5)
    await monque.enqueue("work")

    await heard.wait("job:complete")
    assert heard.of("job:error") == []
    assert heard.of("job:fail") == []


def _spin(seconds: float) -> None:
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        pass
