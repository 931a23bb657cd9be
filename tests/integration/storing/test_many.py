"""`enqueue_many` of any number of jobs: in chunks, in bounded memory, with a count that is right."""

from __future__ import annotations

import asyncio
import gc
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from typing import Any

import pytest
from pymongo import AsyncMongoClient
from pymongo.asynchronous.client_session import AsyncClientSession

from monque import ConfigurationError, Job, Monque, NewJob, Observer, PayloadError
from monque.embedded import EmbeddedMongo
from support.aliases import Collection, Database, Make
from support.options import NEVER_POLLING
from support.programs.child import uri_of
from support.traffic import Traffic

CHUNK = 1000
MANY = 2 * CHUNK + 500
# What `enqueue_many` holds at a time: two chunks that are written, and one that is made.
HELD = 3 * CHUNK


def new_jobs(count: int = MANY, **more: Any) -> Iterator[NewJob[int]]:
    return (NewJob("work", number, **more) for number in range(count))


async def later(count: int = MANY) -> AsyncIterator[NewJob[int]]:
    for each in new_jobs(count):
        yield each


class Plain:
    """An async iterable that is not a generator, and whose iterator has no `aclose`."""

    def __init__(self) -> None:
        self._rest = new_jobs()

    def __aiter__(self) -> Plain:
        return self

    async def __anext__(self) -> NewJob[int]:
        try:
            return next(self._rest)
        except StopIteration:
            raise StopAsyncIteration from None


async def payloads(collection: Collection) -> list[int]:
    return sorted([job["data"] async for job in collection.find({}, {"data": 1})])


def broken(after: int) -> Iterator[NewJob[int]]:
    yield from new_jobs(after)
    raise LookupError("no such row")


def wrong(after: int) -> Iterator[NewJob[Any]]:
    yield from new_jobs(after)
    yield NewJob("work", object())
    yield from new_jobs(5)


def in_a_dict(jobs: Iterable[NewJob[int]]) -> Iterable[NewJob[int]]:
    return dict(enumerate(jobs)).values()


def documents_alive() -> int:
    gc.collect()
    return sum(type(each) is dict and "nextRunAt" in each and "_id" in each for each in gc.get_objects())


class TestWhatItTakes:
    @pytest.mark.parametrize(
        "jobs",
        [list, tuple, iter, deque, in_a_dict, lambda _: later(), lambda _: Plain()],
        ids=["list", "tuple", "iterator", "deque", "view", "async generator", "async iterable"],
    )
    async def test_any_iterable_is_stored_and_returned_in_its_order(
        self, jobs: Callable[[Iterable[Any]], Any], monque: Monque, collection: Collection
    ) -> None:
        stored = await monque.enqueue_many(jobs(new_jobs()))

        assert [job.data for job in stored] == list(range(MANY))
        assert await payloads(collection) == list(range(MANY))

    @pytest.mark.parametrize("jobs", [list, iter, lambda _: later()], ids=["list", "iterator", "async"])
    async def test_without_the_jobs_it_returns_how_many_they_are(
        self, jobs: Callable[[Iterable[Any]], Any], monque: Monque, collection: Collection
    ) -> None:
        assert await monque.enqueue_many(jobs(new_jobs()), return_jobs=False) == MANY
        assert await payloads(collection) == list(range(MANY))

    async def test_nothing_is_stored_of_nothing(self, monque: Monque) -> None:
        calls: list[int] = []

        assert await monque.enqueue_many(iter([]), on_progress=calls.append) == []
        assert await monque.enqueue_many(later(0), return_jobs=False, on_progress=calls.append) == 0
        assert calls == []


class TestProgress:
    async def test_it_is_called_after_each_chunk_with_what_is_stored(
        self, monque: Monque, collection: Collection
    ) -> None:
        calls: list[int] = []

        async def progressed(stored: int) -> None:
            assert await collection.count_documents({}) >= stored
            calls.append(stored)

        await monque.enqueue_many(new_jobs(), on_progress=progressed)
        assert calls == [CHUNK, 2 * CHUNK, MANY]

        await monque.enqueue_many(list(new_jobs()), return_jobs=False, on_progress=calls.append)
        assert calls[3:] == [CHUNK, 2 * CHUNK, MANY]

    async def test_an_error_in_it_ends_the_call_and_the_count_is_right(
        self, monque: Monque, collection: Collection
    ) -> None:
        def stop(stored: int) -> None:
            raise RuntimeError(f"enough: {stored}")

        with pytest.raises(RuntimeError, match="enough: 1000") as raised:
            await monque.enqueue_many(new_jobs(10 * CHUNK), on_progress=stop)

        stored = await collection.count_documents({})
        assert CHUNK <= stored <= HELD
        assert raised.value.__notes__ == [f"enqueue_many had stored the first {stored:,} jobs"]
        assert await payloads(collection) == list(range(stored))


class TestErrors:
    @pytest.mark.parametrize("kind", [list, tuple])
    @pytest.mark.parametrize("return_jobs", [True, False])
    async def test_a_list_or_tuple_is_checked_whole_first(
        self, kind: Callable[..., Any], return_jobs: bool, monque: Monque, collection: Collection
    ) -> None:
        with pytest.raises(PayloadError) as refused:
            await monque.enqueue_many(kind(wrong(MANY)), return_jobs=return_jobs)

        assert refused.value.stored == 0
        assert not hasattr(refused.value, "__notes__")
        assert await collection.count_documents({}) == 0

    @pytest.mark.parametrize(
        ("jobs", "error"),
        [(wrong(MANY), PayloadError), (iter([*new_jobs(2 * CHUNK), "work"]), ConfigurationError)],
        ids=["payload", "no NewJob"],
    )
    async def test_of_another_iterable_the_chunks_before_a_wrong_job_are_stored(
        self, jobs: Any, error: type[Exception], monque: Monque, collection: Collection
    ) -> None:
        calls: list[int] = []
        with pytest.raises(error) as refused:
            await monque.enqueue_many(jobs, on_progress=calls.append)

        assert refused.value.stored == calls[-1] == 2 * CHUNK
        assert refused.value.__notes__ == ["enqueue_many had stored the first 2,000 jobs"]
        assert await payloads(collection) == list(range(2 * CHUNK))

    async def test_an_error_of_the_iterable_is_raised_as_it_is(
        self, monque: Monque, collection: Collection
    ) -> None:
        calls: list[int] = []
        with pytest.raises(LookupError, match="no such row") as raised:
            await monque.enqueue_many(broken(MANY), on_progress=calls.append)

        assert raised.value.__notes__ == ["enqueue_many had stored the first 2,000 jobs"]
        assert calls == [CHUNK, 2 * CHUNK]
        assert await payloads(collection) == list(range(2 * CHUNK))

    async def test_an_error_after_a_single_job_says_so(self, monque: Monque) -> None:
        with pytest.raises(ZeroDivisionError) as raised:
            await monque.enqueue_many(new_jobs(1), on_progress=lambda stored: stored // 0)

        assert raised.value.__notes__ == ["enqueue_many had stored the first job"]

    async def test_an_async_generator_is_closed_when_a_job_is_wrong(self, monque: Monque) -> None:
        closed: list[bool] = []

        async def news() -> AsyncIterator[NewJob[Any]]:
            try:
                for each in wrong(CHUNK):
                    yield each
            finally:
                closed.append(True)

        given = news()
        with pytest.raises(PayloadError):
            await monque.enqueue_many(given)

        assert closed == [True]

    async def test_a_cancelled_call_closes_the_generator_and_leaves_no_write_behind(
        self, monque: Monque, collection: Collection
    ) -> None:
        waits, closed = asyncio.Event(), asyncio.Event()

        async def news() -> AsyncIterator[NewJob[int]]:
            try:
                for each in new_jobs():
                    yield each
                waits.set()
                await asyncio.Event().wait()
            finally:
                closed.set()

        call = asyncio.create_task(monque.enqueue_many(news()))
        await asyncio.wait_for(waits.wait(), 10)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asyncio.wait_for(call, 10)

        assert closed.is_set()
        assert [task for task in asyncio.all_tasks() if task.get_name() == "monque-write"] == []
        assert await collection.count_documents({}) <= 2 * CHUNK

    async def test_what_was_stored_is_counted_by_observers(self, monque: Monque) -> None:
        counts: list[int] = []

        class Counting(Observer):
            def enqueued(self, name: str, count: int) -> None:
                counts.append(count)

        monque.observe(Counting())
        with pytest.raises(LookupError):
            await monque.enqueue_many(broken(MANY))

        assert counts == [CHUNK, CHUNK]


class TestUniqueKeys:
    @pytest.mark.parametrize("kind", [list, iter])
    async def test_of_one_key_in_several_chunks_the_first_job_is_stored(
        self, kind: Callable[..., Any], monque: Monque, collection: Collection
    ) -> None:
        """Each key comes once in each chunk, among jobs without a key, whose writes overlap."""
        jobs = [
            NewJob("work", number, unique_key=f"key-{number % CHUNK}" if number % 2 else None)
            for number in range(3 * CHUNK)
        ]

        stored = await monque.enqueue_many(kind(jobs))

        assert [job.data for job in stored[1::2]] == list(range(1, CHUNK, 2)) * 3
        assert len({job.id for job in stored}) == await collection.count_documents({}) == 2 * CHUNK

    async def test_a_job_that_was_stored_is_not_looked_for(
        self, server: EmbeddedMongo, database: Database
    ) -> None:
        """It may have run and ended by then. Not finding it, the call would store it again."""
        traffic = Traffic("find", "update")
        uri = uri_of(server, database)
        async with AsyncMongoClient(uri, event_listeners=[traffic]) as client, Monque(client) as monque:
            traffic.clear()
            await monque.enqueue_many(NewJob("work", n, unique_key=str(n)) for n in range(2 * CHUNK))
            assert traffic.sent == {"update": 2}

            await monque.enqueue_many(NewJob("work", n, unique_key=str(n)) for n in range(CHUNK))
            assert traffic.sent == {"update": 3, "find": 1}


class TestTransactions:
    @pytest.fixture
    async def session(self, monque: Monque) -> AsyncIterator[AsyncClientSession]:
        async with monque.client.start_session() as session:
            yield session

    async def test_all_chunks_are_part_of_it_and_the_iterable_may_use_it(
        self, monque: Monque, session: AsyncClientSession, collection: Collection
    ) -> None:
        seen: list[int] = []

        async def news() -> AsyncIterator[NewJob[int]]:
            async for each in later():
                if each.data is not None and each.data % CHUNK == 0:
                    seen.append(await collection.count_documents({}, session=session))
                yield each

        async with await session.start_transaction():
            assert await monque.enqueue_many(news(), return_jobs=False, session=session) == MANY
            assert await collection.count_documents({}) == 0

        assert seen == [0, CHUNK, 2 * CHUNK]
        assert await payloads(collection) == list(range(MANY))

    async def test_an_abort_leaves_nothing(
        self, monque: Monque, session: AsyncClientSession, collection: Collection
    ) -> None:
        with pytest.raises(PayloadError) as refused:
            async with await session.start_transaction():
                await monque.enqueue_many(wrong(MANY), session=session)

        assert refused.value.stored == 2 * CHUNK  # as part of the transaction
        assert await collection.count_documents({}) == 0


async def test_jobs_run_while_later_ones_are_still_to_come(make_monque: Make) -> None:
    """No poll comes: the call itself wakes the runner for each chunk."""
    monque = await make_monque(options=NEVER_POLLING).open()
    ran: asyncio.Queue[int] = asyncio.Queue()

    @monque.worker("work")
    async def work(job: Job[int]) -> None:
        ran.put_nowait(job.data)

    async def news() -> AsyncIterator[NewJob[int]]:
        for number in (1, 2):
            for _ in range(CHUNK):
                yield NewJob(work, number)
            while await asyncio.wait_for(ran.get(), 10) != number:
                pass
        yield NewJob(work, 3)

    await monque.start()
    assert await monque.enqueue_many(news(), return_jobs=False) == 2 * CHUNK + 1


class TestMemory:
    @pytest.mark.parametrize("kind", [list, iter], ids=["list", "generator"])
    async def test_few_documents_are_alive_at_once(self, kind: Callable[..., Any], monque: Monque) -> None:
        before, alive = documents_alive(), list[int]()

        await monque.enqueue_many(
            kind(new_jobs(8 * CHUNK)),
            return_jobs=False,
            on_progress=lambda _: alive.append(documents_alive() - before),
        )

        assert len(alive) == 8
        assert max(alive) <= HELD

    async def test_few_large_payloads_are_held_at_once(self, monque: Monque) -> None:
        """A chunk ends at 4 MB, however few jobs these are."""
        made, ahead = 0, list[int]()

        def large() -> Iterator[NewJob[str]]:
            nonlocal made
            for made in range(1, 41):  # noqa: B007 - read by the callback
                yield NewJob("work", "x" * 1024 * 1024)

        stored = await monque.enqueue_many(
            large(), return_jobs=False, on_progress=lambda stored: ahead.append(made - stored)
        )

        assert stored == 40
        assert len(ahead) == 10
        assert max(ahead) <= 8
