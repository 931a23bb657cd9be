"""Waiting for an event with a time limit, and pauses that double."""

import asyncio

import pytest

from monque._time.waiting import Pauses, happens


async def test_an_event_that_is_set_happens_at_once_whatever_the_limit() -> None:
    event = asyncio.Event()
    event.set()
    assert await happens(event, 0)
    assert await happens(event, -1)
    assert await happens(event, None)


async def test_an_event_that_is_not_set_in_time_does_not_happen() -> None:
    assert not await happens(asyncio.Event(), 0)
    assert not await happens(asyncio.Event(), 0.001)


@pytest.mark.parametrize("limit", [60.0, None])
async def test_an_event_that_is_set_meanwhile_happens(limit: float | None) -> None:
    event = asyncio.Event()
    asyncio.get_running_loop().call_soon(event.set)
    assert await happens(event, limit)


async def test_a_cancellation_is_not_taken_for_the_time_limit() -> None:
    waiting = asyncio.create_task(happens(asyncio.Event(), 60.0))
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting


async def test_a_time_limit_of_the_caller_is_not_taken_for_ours() -> None:
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.001):
            await happens(asyncio.Event(), 60.0)


def test_pauses_double_up_to_the_longest() -> None:
    pauses = Pauses(first=0.25, longest=1.5)
    assert [pauses.next() for _ in range(5)] == [0.25, 0.5, 1.0, 1.5, 1.5]


def test_pauses_begin_again_after_a_success() -> None:
    pauses = Pauses(first=1.0, longest=8.0)
    pauses.next()
    pauses.next()
    pauses.reset()
    assert pauses.next() == 1.0


def test_the_first_pause_is_not_longer_than_the_longest() -> None:
    assert Pauses(first=5.0, longest=2.0).next() == 2.0


@pytest.mark.parametrize(("drawn", "pause"), [(0.0, 4.0), (0.5, 3.0), (1.0, 2.0)])
def test_jitter_shortens_a_pause_by_up_to_its_fraction(drawn: float, pause: float) -> None:
    pauses = Pauses(first=4.0, longest=8.0, jitter=0.5, rng=lambda: drawn)
    assert pauses.next() == pause


def test_jitter_does_not_shorten_the_pauses_after_it() -> None:
    pauses = Pauses(first=1.0, longest=8.0, jitter=0.5, rng=lambda: 1.0)
    assert [pauses.next() for _ in range(4)] == [0.5, 1.0, 2.0, 4.0]
