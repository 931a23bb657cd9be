"""The bell: rings are hints, any number of them count as one, and a ring during a look is not lost."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta

import pytest

from monque._engine.claim import Bell
from monque._time.clock import Clock

LONG = 60.0


async def clock_of_now() -> Clock:
    async def hello() -> dict[str, datetime]:
        return {"localTime": datetime.now(UTC)}

    clock = Clock()
    await clock.refresh(hello)
    return clock


@pytest.fixture
async def clock() -> Clock:
    return await clock_of_now()


@pytest.fixture
async def bell(clock: Clock) -> AsyncIterator[Bell]:
    bell = Bell(clock)
    yield bell
    bell.close()


async def test_a_ring_ends_the_wait(bell: Bell) -> None:
    bell.ring()

    await asyncio.wait_for(bell.wait(LONG), 1)


async def test_a_ring_before_the_wait_counts_until_it_is_cleared(bell: Bell) -> None:
    bell.ring()
    bell.ring()
    bell.clear()

    waiting = asyncio.ensure_future(bell.wait(LONG))
    await asyncio.sleep(0)
    assert not waiting.done()

    bell.ring_from_any_thread()
    await asyncio.wait_for(waiting, 1)


async def test_without_a_ring_the_wait_ends_by_itself(bell: Bell) -> None:
    await asyncio.wait_for(bell.wait(0.01), 1)


async def test_a_time_that_has_come_rings_at_once(bell: Bell, clock: Clock) -> None:
    bell.ring_at(clock.now())

    await asyncio.wait_for(bell.wait(LONG), 1)


async def test_of_several_times_the_earliest_rings(bell: Bell, clock: Clock) -> None:
    for seconds in (30.0, 0.05, 45.0):
        bell.ring_at(clock.now() + timedelta(seconds=seconds))

    due = clock.now() + timedelta(seconds=0.05)
    await asyncio.wait_for(bell.wait(LONG), 5)
    assert clock.now() >= due - timedelta(milliseconds=5)


async def test_a_time_beyond_every_timer_is_accepted(bell: Bell) -> None:
    """A delay of more than 24 days overflows the timers of some event loops."""
    bell.ring_at(datetime(9999, 1, 1, tzinfo=UTC))

    waiting = asyncio.ensure_future(bell.wait(LONG))
    await asyncio.sleep(0)
    assert not waiting.done()
    waiting.cancel()


async def test_a_closed_bell_leaves_no_timer_behind(clock: Clock) -> None:
    bell = Bell(clock)
    bell.ring_at(clock.now() + timedelta(seconds=0.02))
    bell.close()

    waiting = asyncio.ensure_future(bell.wait(0.1))
    await waiting
    assert not bell._rung.is_set()
