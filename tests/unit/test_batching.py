"""Writes that are asked for together go out together, and none is left behind."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from monque._store.batching import Batching
from support.waiting import eventually


class Writes:
    """Takes batches, each in one turn of the event loop or when it is let go."""

    def __init__(self, *, held: bool = False) -> None:
        self.batches: list[list[int]] = []
        self._news = asyncio.Condition()
        self.go = asyncio.Event()
        if not held:
            self.go.set()

    async def begun(self, count: int) -> None:
        async with self._news:
            await self._news.wait_for(lambda: len(self.batches) >= count)

    async def send(self, batch: list[int]) -> Sequence[int | Exception]:
        async with self._news:
            self.batches.append(batch)
            self._news.notify_all()
        await self.go.wait()
        return [ValueError(str(item)) if item < 0 else item * 10 for item in batch]


@pytest.mark.parametrize("turns", range(8))
async def test_an_item_that_comes_while_the_last_write_ends_is_written_too(turns: int) -> None:
    """Between the end of a sender and whoever hears of it lies a turn of the loop; nothing is lost in it."""
    gather = Batching(Writes().send, many=100)
    first = asyncio.ensure_future(gather.add(1))
    for _ in range(turns):
        await asyncio.sleep(0)

    async with asyncio.timeout(5):
        assert [await first, await gather.add(2)] == [10, 20]


async def test_items_of_one_turn_share_one_write() -> None:
    writes = Writes()
    gather = Batching(writes.send, many=100)

    assert await asyncio.gather(*(gather.add(number) for number in range(5))) == [0, 10, 20, 30, 40]
    assert writes.batches == [[0, 1, 2, 3, 4]]


async def test_a_few_items_wait_for_the_write_under_way_and_go_together() -> None:
    writes = Writes(held=True)
    gather = Batching(writes.send, many=100)
    adding = [asyncio.ensure_future(gather.add(0))]
    await writes.begun(1)
    for number in (1, 2):
        adding.append(asyncio.ensure_future(gather.add(number)))
        await asyncio.sleep(0)
    writes.go.set()
    await asyncio.gather(*adding)

    assert writes.batches == [[0], [1, 2]]


async def test_many_items_do_not_wait() -> None:
    writes = Writes(held=True)
    gather = Batching(writes.send, many=100)
    adding = [asyncio.ensure_future(gather.add(0))]
    await writes.begun(1)
    adding += [asyncio.ensure_future(gather.add(number)) for number in range(500)]
    async with asyncio.timeout(5):
        await writes.begun(2)
    writes.go.set()
    await asyncio.gather(*adding)


async def test_one_write_at_a_time_where_that_is_asked_for() -> None:
    writes = Writes(held=True)
    gather = Batching(writes.send, many=100, at_once=1)
    adding = [asyncio.ensure_future(gather.add(0))]
    await writes.begun(1)
    for number in range(1, 500):
        adding.append(asyncio.ensure_future(gather.add(number)))
        await asyncio.sleep(0)
    writes.go.set()
    await asyncio.gather(*adding)

    assert writes.batches == [[0], list(range(1, 500))]


async def test_a_full_batch_goes_out_before_all_callbacks_of_the_last_have_run() -> None:
    """The server has work meanwhile: the callbacks of a thousand items take milliseconds."""
    writes, called = Writes(held=True), list[int]()
    called_before_second: list[int] = []
    gather = Batching(writes.send, many=100, at_once=1)

    async def note_second() -> None:
        await writes.begun(2)
        called_before_second.append(len(called))

    noting = asyncio.ensure_future(note_second())
    for number in range(1_000):
        gather.put(number, lambda item, _result: called.append(item))
    await writes.begun(1)
    last = [asyncio.ensure_future(gather.add(number)) for number in range(1_000, 1_100)]
    await asyncio.sleep(0)
    writes.go.set()
    await asyncio.gather(noting, *last)

    assert writes.batches == [list(range(1_000)), list(range(1_000, 1_100))]
    assert called_before_second[0] < 1_000
    await eventually(lambda: _same(called, list(range(1_000))))


async def test_every_callback_runs_although_the_event_loop_ends_between_two() -> None:
    writes, called, some_called = Writes(), list[int](), asyncio.Event()
    gather = Batching(writes.send, many=100, at_once=1)

    def note(_item: int, result: int) -> None:
        called.append(result)
        some_called.set()

    for number in range(1_000):
        gather.put(number, note)
    await some_called.wait()
    [sender] = gather._senders
    assert len(called) < 1_000
    sender.cancel()
    await asyncio.wait([sender])

    assert called == [number * 10 for number in range(1_000)]


def _same(found: object, expected: object) -> None:
    assert found == expected


async def test_each_gets_its_own_error() -> None:
    gather = Batching(Writes().send, many=100)
    results = await asyncio.gather(*(gather.add(number) for number in (1, -2, 3)), return_exceptions=True)

    assert [results[0], str(results[1]), results[2]] == [10, "-2", 30]


async def test_a_write_that_breaks_is_told_to_all_and_the_next_one_goes_out() -> None:
    async def break_once(batch: list[int]) -> Sequence[int]:
        if -1 in batch:
            raise RuntimeError("broken")
        return batch

    gather = Batching(break_once, many=100)
    results = await asyncio.gather(gather.add(-1), gather.add(1), return_exceptions=True)

    assert [type(result) for result in results] == [RuntimeError, RuntimeError]
    assert await gather.add(2) == 2
