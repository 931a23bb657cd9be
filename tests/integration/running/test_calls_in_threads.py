"""Async methods called in the thread of a `def` handler, which cannot await: they never vanish."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from monque import (
    ConfigurationError,
    Fail,
    Job,
    JobFailed,
    JobStatus,
    Monque,
    NewJob,
    Snooze,
    SyncMonque,
    Worker,
)
from monque.embedded import EmbeddedMongo
from monque.testing import run_handler
from support import in_child
from support.aliases import Collection, Database
from support.jobs import find_one, statuses
from support.programs.child import uri_of
from support.waiting import Events

FORGOTTEN: dict[str, Callable[[Monque, Worker[int]], object]] = {
    "Worker.enqueue": lambda _monque, second: second.enqueue(1),
    "Worker.schedule": lambda _monque, second: second.schedule("@daily", 1),
    "Monque.enqueue": lambda monque, _second: monque.enqueue("second", 1),
    "Monque.enqueue_many": lambda monque, _second: monque.enqueue_many([NewJob("second", 1)]),
    "Monque.now": lambda monque, _second: monque.now("second", 1),
    "Monque.get_jobs": lambda monque, _second: monque.get_jobs(),
    "Monque.stop": lambda monque, _second: monque.stop(),
    "Monque.signal": lambda monque, _second: monque.signal("second", "go", unique_key="k"),
    "Monque.pause_schedule": lambda monque, _second: monque.pause_schedule("second"),
    "Monque.wait_for": lambda monque, _second: monque.wait_for("0" * 24),
}


def second_of(monque: Monque, ran: list[int]) -> Worker[int]:
    @monque.worker("second")
    def second(job: Job[int]) -> None:
        ran.append(job.data)

    return second


async def run_first(monque: Monque, handler: Callable[[Job[Any]], Any]) -> list[JobFailed]:
    """Run a job of this handler and what it leads to; return its failures."""
    monque.worker("first", handler)
    events = Events(monque)
    await monque.enqueue("first", max_attempts=1)
    await monque.run_until_idle()
    return events.of("job:fail")


class TestACallThatNobodyAwaits:
    @pytest.mark.parametrize("method", FORGOTTEN)
    async def test_it_fails_the_attempt(self, method: str, monque: Monque, collection: Collection) -> None:
        ran, call = list[int](), FORGOTTEN[method]
        second = second_of(monque, ran)

        def first(job: Job[Any]) -> None:
            call(monque, second)

        [failed] = await run_first(monque, first)

        assert isinstance(failed.error, ConfigurationError)
        assert str(failed.error).startswith(f"{method}() was called in {__file__}, line ")
        assert "SyncMonque(monque)" in str(failed.error)
        assert (ran, await statuses(collection)) == ([], {"failed": 1})

    @pytest.mark.parametrize(
        "verdict", [Fail("declined"), Snooze(timedelta(hours=1)), KeyError("k")], ids=repr
    )
    async def test_whatever_the_handler_raises_after_it(self, verdict: Exception, monque: Monque) -> None:
        second = second_of(monque, [])

        def first(job: Job[Any]) -> None:
            second.enqueue(1)
            raise verdict

        [failed] = await run_first(monque, first)

        assert isinstance(failed.error, ConfigurationError)
        assert failed.error.__cause__ is verdict

    async def test_in_a_start_hook_the_start_fails(self, monque: Monque) -> None:
        second = second_of(monque, [])

        @monque.on_start
        def prepare() -> None:
            second.enqueue(1)

        with pytest.raises(ConfigurationError, match=r"Worker.enqueue\(\) was called in .* never awaited"):
            await monque.start()

    async def test_in_a_test_that_runs_the_handler(self, monque: Monque) -> None:
        second = second_of(monque, [])

        def first(job: Job[None]) -> None:
            second.enqueue(1)

        with pytest.raises(ConfigurationError, match="never awaited"):
            await run_handler(first, None)

    async def test_in_a_child_process(
        self, monque: Monque, server: EmbeddedMongo, database: Database
    ) -> None:
        monque.worker("forget", in_child.forget_to_await, mode="process")
        await monque.enqueue("forget", uri_of(server, database), max_attempts=1)

        await monque.run_until_idle()

        [job] = await monque.get_jobs()
        assert job.status is JobStatus.FAILED
        assert "Monque.enqueue() was called in" in str(job.fail_reason)


class TestACallThatIsAwaited:
    async def test_by_the_loop_that_the_thread_sends_it_to(self, monque: Monque) -> None:
        ran, loop = list[int](), asyncio.get_running_loop()
        second = second_of(monque, ran)

        def first(job: Job[Any]) -> None:
            asyncio.run_coroutine_threadsafe(second.enqueue(1), loop).result()
            asyncio.run_coroutine_threadsafe(second.enqueue(2), loop)

        assert await run_first(monque, first) == []
        await monque.run_until_idle()

        assert sorted(ran) == [1, 2]

    async def test_because_the_handler_returns_it(self, monque: Monque) -> None:
        ran = list[int]()
        second = second_of(monque, ran)

        assert await run_first(monque, lambda job: second.enqueue(1)) == []
        assert ran == [1]

    async def test_it_is_still_seen_as_async(self, monque: Monque) -> None:
        """Frameworks ask for it: they would call a background task that is not async in a thread."""
        second = second_of(monque, [])

        for method in (monque.enqueue, Monque.enqueue, second.enqueue, Worker.schedule, monque.get_job):
            assert inspect.iscoroutinefunction(method)


class TestABlockingFacadeOfAnOpenMonque:
    async def test_a_def_handler_stores_jobs_and_reads_them(self, monque: Monque) -> None:
        ran, blocking = list[int](), SyncMonque(monque)
        second = second_of(monque, ran)

        def first(job: Job[Any]) -> None:
            stored = blocking.enqueue(second, 1)
            assert blocking.get_job(stored.id) is not None
            blocking.enqueue_many(NewJob(second, n) for n in (2, 3))
            assert {each.name for each in blocking.iter_jobs()} == {"first", "second"}

        assert await run_first(monque, first) == []
        assert sorted(ran) == [1, 2, 3]

    async def test_closing_it_leaves_the_monque_open_and_running(self, monque: Monque) -> None:
        def first(job: Job[Any]) -> None:
            with SyncMonque(monque) as blocking:
                blocking.enqueue("second", 1)

        assert await run_first(monque, first) == []
        assert await monque.count_jobs() == 2

    async def test_a_handler_can_stop_the_instance(self, monque: Monque) -> None:
        monque.worker("first", lambda job: SyncMonque(monque).stop())
        await monque.enqueue("first")

        async with asyncio.timeout(20):
            await monque.run()

        assert [job.status for job in await monque.get_jobs()] == ["completed"]

    async def test_a_coroutine_on_its_loop_would_wait_for_itself(self, monque: Monque) -> None:
        with pytest.raises(ConfigurationError, match="it would wait for itself"):
            SyncMonque(monque).enqueue("second", 1)

    async def test_in_a_child_process_it_opens_the_monque_of_the_child(
        self, monque: Monque, server: EmbeddedMongo, database: Database, collection: Collection
    ) -> None:
        monque.worker("store", in_child.store_blocking, mode="process")
        await monque.enqueue("store", uri_of(server, database))

        await monque.run_until_idle()

        assert (await find_one(collection, {"name": "second"}))["status"] == "pending"
