"""Waiting for an event with a time limit, pauses that double, and what the server refuses."""

import asyncio

import pytest

from monque._time.clock import Backoff, Refusals, happens


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
    backoff = Backoff(first=0.25, longest=1.5)
    assert [backoff.next() for _ in range(5)] == [0.25, 0.5, 1.0, 1.5, 1.5]


def test_pauses_begin_again_after_a_success() -> None:
    backoff = Backoff(first=1.0, longest=8.0)
    backoff.next()
    backoff.next()
    backoff.reset()
    assert backoff.next() == 1.0


def test_the_first_pause_is_not_longer_than_the_longest() -> None:
    assert Backoff(first=5.0, longest=2.0).next() == 2.0


@pytest.mark.parametrize(("drawn", "pause"), [(0.0, 4.0), (0.5, 3.0), (1.0, 2.0)])
def test_jitter_shortens_a_pause_by_up_to_its_fraction(drawn: float, pause: float) -> None:
    backoff = Backoff(first=4.0, longest=8.0, jitter=0.5, rng=lambda: drawn)
    assert backoff.next() == pause


def test_jitter_does_not_shorten_the_pauses_after_it() -> None:
    backoff = Backoff(first=1.0, longest=8.0, jitter=0.5, rng=lambda: 1.0)
    assert [backoff.next() for _ in range(4)] == [0.5, 1.0, 2.0, 4.0]


def test_what_is_refused_is_new_until_it_has_worked_again() -> None:
    refusals = Refusals()
    assert (bool(refusals), refusals.allow_after(60)) == (False, True)

    assert refusals.add()
    assert not refusals.add()
    assert (bool(refusals), refusals.allow_after(60), refusals.allow_after(0)) == (True, False, True)

    refusals.clear()
    assert (bool(refusals), refusals.allow_after(60)) == (False, True)
    assert refusals.add()
