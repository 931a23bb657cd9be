"""Waiting for the end of jobs, and for their results."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from bson import ObjectId, Regex
from pymongo import AsyncMongoClient

from monque import (
    Cancel,
    ConfigurationError,
    Job,
    JobCancelledError,
    JobFailedError,
    JobNotFoundError,
    JobStateError,
    JobStatus,
    Monque,
    NewJob,
    NotOpenError,
    Options,
    SyncMonque,
    WaitTimeoutError,
)
from monque.embedded import EmbeddedMongo
from support.aliases import Collection, Database, Make
from support.jobs import claimed, document
from support.programs.child import child, uri_of
from support.traffic import Traffic
from support.waiting import eventually
from support.working import Pause, start_with

LONG = timedelta(seconds=30)


async def answers(job: Job[Any]) -> int:
    return 42


async def waiting(monque: Monque, call: Any) -> asyncio.Task[Any]:
    """Begin a wait, and return when it has looked at its job for the first time."""
    task = asyncio.create_task(call)

    def looked() -> None:
        waits = monque._context().waits._unanswered()
        assert waits
        assert not any(wait.is_urgent for wait in waits)

    await eventually(looked)
    return task


class TestEnd:
    async def test_before_during_and_after_the_run(self, monque: Monque) -> None:
        pause = Pause()

        async def work(job: Job[Any]) -> str:
            await pause()
            return "done"

        job = await monque.enqueue("work", store_result=True)
        before = await waiting(monque, monque.wait_for(job, timeout=LONG))
        await start_with(monque, work)
        await pause.wait()
        during = await waiting(monque, monque.wait_for(job.id, timeout=LONG))
        pause.go_on.set()
        after = [await before, await during, await monque.wait_for(str(job.id), timeout=LONG)]

        assert {each.status for each in after} == {JobStatus.COMPLETED}
        assert {each.result for each in after} == {"done"}

    async def test_another_instance_may_run_the_job(self, monque: Monque, make_monque: Make) -> None:
        producer = await make_monque().open()
        await start_with(monque, answers, store_result=True)

        job = await producer.enqueue("work")

        assert await producer.result_of(job, timeout=LONG) == 42

    async def test_another_process_may_run_the_job(
        self, monque: Monque, server: EmbeddedMongo, database: Database
    ) -> None:
        async with child("answering_worker", uri_of(server, database)) as worker:
            await worker.wait_for("ready")
            jobs = await monque.enqueue_many([NewJob("work", number) for number in range(20)])

            results = await asyncio.gather(*(monque.result_of(job, timeout=LONG) for job in jobs))
            last = await monque.wait_for(jobs[-1])

        assert results == [number**2 for number in range(20)]
        assert last.progress is not None
        assert last.progress.message == "squared"

    async def test_the_error_says_how_a_job_ended_without_success(self, monque: Monque) -> None:
        async def fails(job: Job[Any]) -> None:
            raise ValueError("card declined")

        async def cancels(job: Job[Any]) -> None:
            raise Cancel("not needed")

        monque.worker("fails", fails, max_attempts=1)
        monque.worker("cancels", cancels)
        failed, cancelled = await monque.enqueue("fails"), await monque.enqueue("cancels")
        await monque.run_until_idle()

        with pytest.raises(JobFailedError, match="ValueError: card declined") as failure:
            await monque.result_of(failed)
        assert failure.value.job.history[0].error == "ValueError"
        with pytest.raises(JobCancelledError, match="by handler: not needed") as cancellation:
            await monque.result_of(cancelled)
        assert cancellation.value.job.id == cancelled.id
        assert (await monque.wait_for(failed)).status is JobStatus.FAILED

    async def test_a_running_job_that_is_cancelled_can_be_waited_for(self, monque: Monque) -> None:
        events = await start_with(monque, Pause())
        job = await monque.enqueue("work")
        await events.wait("job:start")

        await monque.cancel_job(job.id, running=True, reason="wrong customer")
        after = await monque.wait_for(job.id, timeout=LONG)

        assert (after.status, after.cancel_reason) == (JobStatus.CANCELLED, "wrong customer")

    async def test_a_job_that_is_retried_is_waited_for_to_its_end(self, monque: Monque) -> None:
        async def work(job: Job[Any]) -> None:
            if job.attempt < 3:
                raise ValueError("not yet")

        job = await monque.enqueue("work")
        wait = await waiting(monque, monque.wait_for(job, timeout=LONG))
        await start_with(monque, work)

        assert (await wait).attempt == 3

    async def test_time_is_up_and_the_job_goes_on(self, monque: Monque) -> None:
        job = await monque.enqueue("work")

        with pytest.raises(WaitTimeoutError, match=r"within 0\.1 s") as timeout:
            await monque.wait_for(job, timeout=timedelta(seconds=0.1))

        assert isinstance(timeout.value, TimeoutError)
        assert timeout.value.job_id == job.id
        assert (await monque.get_job(job.id) or job).status is JobStatus.PENDING

    @pytest.mark.parametrize("unknown", [ObjectId("6" * 24), "6" * 24, "x", 7, object(), Regex("^"), None])
    async def test_an_unknown_job_is_an_error_at_once(self, monque: Monque, unknown: Any) -> None:
        await monque.enqueue("work")

        with pytest.raises(JobNotFoundError):
            await monque.wait_for(unknown)

    async def test_a_job_that_is_deleted_meanwhile_is_an_error(self, monque: Monque) -> None:
        job = await monque.enqueue("work")
        wait = await waiting(monque, monque.wait_for(job))

        await monque.delete_job(job.id)

        with pytest.raises(JobNotFoundError):
            await asyncio.wait_for(wait, 10)

    async def test_a_schedule_has_no_end(self, monque: Monque) -> None:
        schedule = await monque.schedule("@daily", "work")

        with pytest.raises(JobStateError, match="it is a schedule"):
            await monque.wait_for(schedule)

    @pytest.mark.parametrize("wrong", [timedelta(0), 5, "1s"])
    async def test_a_wrong_timeout_is_refused(self, monque: Monque, wrong: Any) -> None:
        job = await monque.enqueue("work")

        with pytest.raises(ConfigurationError, match="timeout"):
            await monque.wait_for(job, timeout=wrong)

    async def test_any_id_that_mongodb_takes_can_be_waited_for(
        self, monque: Monque, collection: Collection
    ) -> None:
        ids: list[Any] = ["text", {"a": 1}, 7, str(ObjectId())]
        await collection.insert_many([document(_id=each, status="completed") for each in ids])

        assert [(await monque.wait_for(each, timeout=LONG)).id for each in ids] == ids


class TestClosing:
    async def test_closing_ends_a_wait(self, make_monque: Make) -> None:
        monque = await make_monque().open()
        wait = await waiting(monque, monque.wait_for(await monque.enqueue("work")))

        await monque.close()

        with pytest.raises(NotOpenError):
            await wait
        with pytest.raises(NotOpenError):
            await monque.wait_for(ObjectId())

    async def test_stopping_does_not(self, make_monque: Make, monque: Monque) -> None:
        await monque.start()
        job = await monque.enqueue("work", store_result=True)
        wait = await waiting(monque, monque.result_of(job, timeout=LONG))
        await monque.stop()

        await start_with(make_monque(), answers)

        assert await wait == 42


class TestCosts:
    async def test_a_thousand_waits_are_one_read(
        self, make_monque: Make, database: Database, server: EmbeddedMongo
    ) -> None:
        traffic = Traffic("find")
        async with AsyncMongoClient(server.uri, event_listeners=[traffic]) as client:
            producer = await make_monque(client[database.name]).open()
            worker = await make_monque().open()

            @worker.worker("work", concurrency=100, store_result=True)
            async def work(job: Job[int]) -> int:
                return -job.data

            jobs = await producer.enqueue_many([NewJob("work", n) for n in range(1_000)])
            traffic.clear()
            waits = [asyncio.create_task(producer.result_of(job, timeout=LONG)) for job in jobs]

            async def polled() -> None:
                assert traffic.sent["find"] >= 3

            await eventually(polled)
            assert all(len(command["filter"]["_id"]["$in"]) == 1_000 for command in traffic.commands)
            started = time.monotonic()
            await worker.start()
            assert await asyncio.gather(*waits) == [-n for n in range(1_000)]

            # At most 40 polls a second, and each may be followed by a read of those that have ended.
            assert traffic.sent["find"] <= 3 + 80 * (time.monotonic() - started + 0.5)

    async def test_polls_become_rare_while_nothing_happens(
        self, make_monque: Make, database: Database, server: EmbeddedMongo
    ) -> None:
        traffic = Traffic("find")
        async with AsyncMongoClient(server.uri, event_listeners=[traffic]) as client:
            monque = await make_monque(client[database.name]).open()
            job = await monque.enqueue("work")
            traffic.clear()

            with pytest.raises(WaitTimeoutError):
                await monque.wait_for(job, timeout=timedelta(seconds=2))

        # 25 ms apart for a quarter of a second, then each after a tenth of the time: about 35.
        assert traffic.sent["find"] <= 45

    async def test_what_this_instance_settles_is_told_at_once(
        self, monque: Monque, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The second poll would come after an hour."""
        monkeypatch.setattr("monque._engine.waits._SHORTEST", 3600.0)
        monkeypatch.setattr("monque._engine.waits._LONGEST", 3600.0)
        pause = Pause()
        await start_with(monque, pause)
        job = await monque.enqueue("work")
        wait = await waiting(monque, monque.wait_for(job, timeout=LONG))
        pause.go_on.set()

        assert (await wait).status is JobStatus.COMPLETED

    async def test_a_new_wait_is_polled_soon_though_an_old_one_is_not(
        self, monque: Monque, make_monque: Make, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The polls of the old wait are an hour apart."""
        old = await waiting(monque, monque.wait_for(await monque.enqueue("never")))
        monkeypatch.setattr("monque._engine.waits._LONGEST", 3600.0)
        for each in monque._context().waits._unanswered():
            each.since -= 36_000

        await asyncio.sleep(0.1)  # the next poll sets the pause
        job = await monque.enqueue("work", store_result=True)
        new = await waiting(monque, monque.result_of(job, timeout=LONG))
        await start_with(make_monque(), answers)

        assert await new == 42
        old.cancel()

    async def test_nobody_who_does_not_wait_pays(self, monque: Monque) -> None:
        await start_with(monque, answers)
        await monque.wait_for(await monque.enqueue("work"), timeout=LONG)
        waits = monque._context().waits

        def ended() -> None:
            assert waits._poller is None

        await eventually(ended)
        assert not waits.waiting


class TestSync:
    async def test_a_wait_blocks_its_own_thread_only(
        self, monque: Monque, database: Database, server: EmbeddedMongo
    ) -> None:
        def wait(then: Callable[[SyncMonque], Any]) -> Any:
            with SyncMonque(uri_of(server, database), options=Options()) as sync:
                return then(sync)

        jobs = [await monque.enqueue("work", store_result=True) for _ in range(2)]
        first = asyncio.create_task(
            asyncio.to_thread(wait, lambda sync: sync.wait_for(jobs[0], timeout=LONG))
        )
        result = asyncio.create_task(asyncio.to_thread(wait, lambda sync: sync.result_of(jobs[1].id)))
        await start_with(monque, answers)

        assert (await first).status is JobStatus.COMPLETED
        assert await result == 42

    async def test_closing_ends_it_in_the_thread_that_waits(
        self, monque: Monque, database: Database, server: EmbeddedMongo
    ) -> None:
        job = await monque.enqueue("work")
        sync = await asyncio.to_thread(SyncMonque(uri_of(server, database)).open)
        wait = asyncio.create_task(asyncio.to_thread(sync.wait_for, job))

        def waits() -> None:
            assert sync._monque._opening.anywhere().context.waits.waiting

        await eventually(waits)
        await asyncio.to_thread(sync.close)

        with pytest.raises(NotOpenError):
            await wait


async def test_a_handler_may_wait_for_another_job(monque: Monque) -> None:
    async def outer(job: Job[Any]) -> int:
        inner = await monque.enqueue("work", store_result=True)
        return 1 + int(await monque.result_of(inner, timeout=LONG))

    monque.worker("outer", outer, store_result=True)
    await start_with(monque, answers)

    assert await monque.result_of(await monque.enqueue("outer"), timeout=LONG) == 43


async def test_a_job_of_a_dead_owner_is_waited_for_until_somebody_has_run_it(
    monque: Monque, collection: Collection
) -> None:
    job = claimed("dead", lastHeartbeat=document()["createdAt"] - timedelta(hours=1))
    await collection.insert_one(job)
    wait = await waiting(monque, monque.wait_for(job["_id"], timeout=LONG))

    await monque.close()
    with pytest.raises(NotOpenError):
        await wait
    async with monque:
        await start_with(monque, answers)
        assert (await monque.wait_for(job["_id"], timeout=LONG)).status is JobStatus.COMPLETED
