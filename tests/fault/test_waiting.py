"""Waits for the end of jobs, and results, while the database fails."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from monque import ConnectionError, EndUpdate, Job, JobStatus, Monque, StateUpdate, StepUpdate
from support.aliases import Collection, Failing, Make
from support.jobs import only
from support.options import QUICK
from support.servers import Servers
from support.waiting import eventually
from support.working import Pause, start_with

LONG = timedelta(seconds=30)


async def waiting(monque: Monque, job: Job[Any]) -> asyncio.Task[Any]:
    """Begin to wait for a result, and return when the job was looked at for the first time."""
    task = asyncio.create_task(monque.result_of(job, timeout=LONG))

    def looked() -> None:
        waits = monque._context().waits._unanswered()
        assert waits
        assert not any(wait.is_urgent for wait in waits)

    await eventually(looked)
    return task


class TestOutage:
    async def test_a_wait_survives_reads_that_fail(
        self, make_monque: Make, victim: str, failing: Failing
    ) -> None:
        """The producer cannot read while the job is run by another instance."""
        producer, pause = await make_monque(victim).open(), Pause()

        async def work(job: Job[Any]) -> str:
            await pause()
            return "done"

        worker = make_monque()
        await start_with(worker, work, store_result=True)
        job = await producer.enqueue("work")
        wait = await waiting(producer, job)

        async with failing(["find"], closeConnection=True):
            pause.go_on.set()
            await worker.wait_for(job, timeout=LONG)
            assert not wait.done()

        assert await wait == "done"

    async def test_what_will_not_pass_by_itself_is_raised(
        self, make_monque: Make, victim: str, failing: Failing
    ) -> None:
        monque = await make_monque(victim).open()
        job = await monque.enqueue("work")

        async with failing(["find"], errorCode=13):
            with pytest.raises(ConnectionError, match="wait for the job"):
                await monque.wait_for(job, timeout=LONG)

    async def test_a_result_is_stored_once_though_the_answer_was_lost(
        self, make_monque: Make, victim: str, failing: Failing, collection: Collection
    ) -> None:
        monque = await make_monque(victim).open()
        events = await start_with(monque, pause := Pause(), store_result=True)
        job = await monque.enqueue("work")
        await pause.wait()

        async with failing(["findAndModify"], times=1, closeConnection=True):
            pause.go_on.set()
            await events.wait("job:complete")

        stored = await only(collection)
        assert (stored["_id"], stored["status"], stored["result"]) == (job.id, "completed", None)

    async def test_a_report_that_could_not_be_written_is_written_later(
        self, make_monque: Make, victim: str, failing: Failing, collection: Collection
    ) -> None:
        monque, pause = await make_monque(victim).open(), Pause()

        async def work(job: Job[Any]) -> None:
            job.add_log("first")
            await pause()
            job.add_log("last")

        events = await start_with(monque, work)
        async with failing(["update"], closeConnection=True):
            job = await monque.enqueue("work")
            await events.wait("job:error", within=30)

        async def written() -> None:
            assert [line["text"] for line in (await only(collection)).get("log", ())] == ["first"]

        await eventually(written, within=20)
        pause.go_on.set()
        assert [line.text for line in (await monque.wait_for(job, timeout=LONG)).log] == ["first", "last"]


class TestStandalone:
    """A server without change streams and transactions."""

    @pytest.fixture
    def host(self, standalone: Servers) -> Servers:
        return standalone

    async def test_waits_results_and_progress_work_there(self, make_monque: Make) -> None:
        monque = await make_monque().open()

        @monque.worker("work", store_result=True)
        async def work(job: Job[Any]) -> int:
            job.report_progress(1, 1)
            return 42

        job = await monque.enqueue("work")
        wait = await waiting(monque, job)
        await monque.start()

        assert await wait == 42
        assert ((await monque.wait_for(job)).progress or pytest.fail("none")).fraction == 1.0


class TestFailover:
    """A replica set of three, whose primary gives up its role."""

    @pytest.fixture
    def host(self, three_nodes: Servers) -> Servers:
        return three_nodes

    async def test_a_wait_survives_a_failover(
        self, make_monque: Make, host: Servers, collection: Collection
    ) -> None:
        uri = host.uri(collection.database.name, heartbeatFrequencyMS=500)
        options = replace(QUICK, change_streams=False)
        producer, worker = [await make_monque(uri, options=options).open() for _ in range(2)]

        @worker.worker("work", store_result=True)
        async def work(job: Job[Any]) -> int:
            return 42

        job = await producer.enqueue("work")
        wait = await waiting(producer, job)
        with host.primary().client() as client:
            await asyncio.to_thread(
                client.admin.command, "replSetStepDown", 5, secondaryCatchUpPeriodSecs=2, force=True
            )
        await worker.start()

        assert await wait == 42
        assert (await producer.wait_for(job)).status is JobStatus.COMPLETED

    async def test_a_watch_survives_a_failover_and_misses_no_step(
        self, make_monque: Make, host: Servers, collection: Collection
    ) -> None:
        uri = host.uri(collection.database.name, heartbeatFrequencyMS=500)
        options = replace(QUICK, change_streams=False)
        watcher, worker = [await make_monque(uri, options=options).open() for _ in range(2)]
        pause = Pause()

        @worker.worker("work")
        async def work(job: Job[Any]) -> None:
            await job.step("before", pause)
            await job.step("after", asyncio.sleep, 0)

        job = await watcher.enqueue("work")
        seen: list[Any] = []
        await worker.start()
        async for update in watcher.watch(job, timeout=LONG):
            seen.append(update)
            if isinstance(update, StateUpdate) and update.status == "processing" and not pause.go_on.is_set():
                with host.primary().client() as client:
                    await asyncio.to_thread(
                        client.admin.command, "replSetStepDown", 5, secondaryCatchUpPeriodSecs=2, force=True
                    )
                pause.go_on.set()

        steps = [update.step.name for update in seen if isinstance(update, StepUpdate)]
        assert steps == ["before", "after"]
        assert isinstance(seen[-1], EndUpdate)
