"""What counts as an outage: errors of the driver, whatever their type, and none of ours."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from pymongo import AsyncMongoClient
from pymongo.errors import AutoReconnect, OperationFailure, PyMongoError
from pymongo.lock import _async_cond_wait, _async_create_condition, _async_create_lock

from monque._connect.deadlines import is_outage, limited


async def a_wait_without_the_lock() -> None:
    """What the driver raises when one of its waits was cancelled twice is of this kind."""
    await _async_cond_wait(_async_create_condition(_async_create_lock()), 1)


async def a_wrong_call() -> None:
    AsyncMongoClient(port="nonsense")


async def our_own_bug() -> None:
    raise RuntimeError("ours")


async def raised_by(call: Callable[[], Awaitable[None]]) -> BaseException:
    with pytest.raises(Exception) as caught:  # noqa: PT011 - the kinds are what this is about
        await call()
    return caught.value


async def test_a_runtime_error_of_the_driver_is_an_outage() -> None:
    error = await raised_by(a_wait_without_the_lock)

    assert isinstance(error, RuntimeError)
    assert is_outage(error)


async def test_a_runtime_error_of_ours_is_none() -> None:
    assert not is_outage(await raised_by(our_own_bug))


async def test_calling_the_driver_wrongly_is_none() -> None:
    assert not is_outage(await raised_by(a_wrong_call))


def test_every_error_of_pymongo_is_one() -> None:
    assert is_outage(OperationFailure("no"))


async def test_within_a_limit_the_loops_need_to_know_only_pymongo_errors() -> None:
    with pytest.raises(AutoReconnect, match="un-acquired lock") as caught, limited(5):
        await a_wait_without_the_lock()

    assert isinstance(caught.value.__cause__, RuntimeError)


async def test_within_a_limit_a_bug_of_ours_stays_what_it_is() -> None:
    with pytest.raises(RuntimeError, match="ours"), limited(5):
        await our_own_bug()


async def test_a_wait_for_a_server_that_is_cancelled_twice_is_no_bug() -> None:
    """Python 3.11 waits in a task of its own, which the second one leaves behind with the driver's lock."""
    client: AsyncMongoClient[dict[str, object]] = AsyncMongoClient("mongodb://127.0.0.1:1/")

    async def find() -> None:
        with limited(20):
            await client.shop.jobs.find_one()

    finding = asyncio.create_task(find())
    await asyncio.sleep(0.1)
    finding.cancel()
    await asyncio.sleep(0)
    finding.cancel()

    [end] = await asyncio.gather(finding, return_exceptions=True)
    assert isinstance(end, asyncio.CancelledError | PyMongoError), end
    closing = asyncio.create_task(client.close())
    await asyncio.wait({closing}, timeout=1)
    closing.cancel()
