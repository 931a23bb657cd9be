"""Progress and log lines: reported by handlers, written together, shown to everybody."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from datetime import timedelta
from typing import Any

import pytest
from pymongo import AsyncMongoClient

from monque import (
    ConfigurationError,
    Job,
    JobLogHandler,
    JobStateError,
    JobStatus,
    Monque,
    NewJob,
    Snooze,
)
from monque._engine import progress as reporting
from support.aliases import Collection, Database, Make
from support.jobs import document, find_one, only
from support.options import BEATING, ONE_TRY
from support.scale import at_scale
from support.traffic import Traffic
from support.waiting import eventually
from support.working import Pause, start_with


async def run(monque: Monque, handler: Any) -> Job[Any]:
    """Run one job of this handler, and return it as it is afterwards."""
    monque.worker("work", handler)
    job = await monque.enqueue("work")
    await monque.run_until_idle()
    after = await monque.get_job(job.id)
    assert after is not None
    return after


class TestProgress:
    async def test_everybody_sees_it_while_the_handler_runs(
        self, monque: Monque, collection: Collection
    ) -> None:
        pause = Pause()

        async def work(job: Job[Any]) -> None:
            job.report_progress(1, 4, "reading")
            job.report_progress(3, 4, "writing")
            await pause()

        await start_with(monque, work)
        job = await monque.enqueue("work")
        before = await find_one(collection, {})

        async def shown() -> Job[Any]:
            seen = await monque.get_job(job.id)
            assert seen is not None
            assert seen.progress is not None
            return seen

        seen = await eventually(shown)
        assert (seen.status, seen.progress.done, seen.progress.total) == (JobStatus.PROCESSING, 3.0, 4.0)
        assert (seen.progress.message, seen.progress.fraction) == ("writing", 0.75)
        assert before["createdAt"] <= seen.progress.at <= seen.updated_at
        assert seen.last_heartbeat == seen.locked_at == seen.updated_at
        pause.go_on.set()

    async def test_the_first_report_does_not_wait_for_the_interval(
        self, monque: Monque, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(reporting, "_INTERVAL", 3_600.0)
        pause = Pause()

        async def work(job: Job[Any]) -> None:
            job.report_progress(1, 4)
            await pause()

        await start_with(monque, work)
        job = await monque.enqueue("work")

        async def shown() -> None:
            seen = await monque.get_job(job.id)
            assert seen is not None
            assert seen.progress is not None

        await eventually(shown)
        pause.go_on.set()

    async def test_whole_numbers_stay_whole_numbers(self, monque: Monque) -> None:
        async def work(job: Job[Any]) -> None:
            job.report_progress(3, 4)

        progress = (await run(monque, work)).progress

        assert progress is not None
        assert (repr(progress.done), repr(progress.total)) == ("3", "4")

    @pytest.mark.parametrize("ends", ["returns", "raises", "snoozes"])
    async def test_the_last_value_is_written_before_the_settlement(
        self, make_monque: Make, ends: str
    ) -> None:
        monque = await make_monque(options=ONE_TRY).open()

        async def work(job: Job[Any]) -> None:
            job.report_progress(10)
            job.add_log("last words", "warning")
            if ends == "raises":
                raise ValueError("no")
            if ends == "snoozes":
                raise Snooze(timedelta(hours=1))

        job = await run(monque, work)

        assert job.progress is not None
        assert (job.progress.done, job.progress.total, job.progress.fraction) == (10.0, None, None)
        assert [(line.level, line.text) for line in job.log] == [("warning", "last words")]

    async def test_a_thread_reports_as_well(self, monque: Monque) -> None:
        def work(job: Job[Any]) -> None:
            job.report_progress(5, 0)

        job = await run(monque, work)

        assert job.progress is not None
        assert job.progress.fraction == 1.0

    async def test_it_stays_for_the_next_attempt_which_may_go_on_from_there(
        self, make_monque: Make, collection: Collection
    ) -> None:
        monque = await make_monque(options=ONE_TRY).open()
        seen: list[Any] = []

        async def work(job: Job[Any]) -> None:
            seen.append(job.progress and job.progress.done)
            if job.attempt == 1:
                job.report_progress(40)
                raise ValueError("no")

        await run(monque, work)
        await collection.update_one({}, {"$set": {"nextRunAt": document()["nextRunAt"]}})
        await monque.run_until_idle()

        assert seen == [None, 40.0]

    @pytest.mark.parametrize(
        "wrong",
        [(-1,), ("1",), (True,), (float("nan"),), (1, float("inf")), (1, -1), (1, 2, 3), (10**400,)],
    )
    async def test_a_wrong_value_is_refused(self, monque: Monque, wrong: tuple[Any, ...]) -> None:
        errors: list[Exception] = []

        async def work(job: Job[Any]) -> None:
            try:
                job.report_progress(*wrong)
            except ConfigurationError as error:
                errors.append(error)

        job = await run(monque, work)

        assert len(errors) == 1
        assert job.progress is None

    async def test_500_jobs_that_report_at_once_are_one_command_a_second(
        self, make_monque: Make, database: Database, server: Any
    ) -> None:
        traffic, count, loops = Traffic("update"), 500, 3
        done = threading.Event()

        async with AsyncMongoClient(server.uri, event_listeners=[traffic]) as client:
            monque = await make_monque(client[database.name]).open()

            @monque.worker("work", concurrency=count)
            async def work(job: Job[int]) -> None:
                step = 0
                while not done.is_set():
                    step += 1
                    job.report_progress(step, message=f"{job.data}")
                    job.add_log(f"step {step}")
                    await asyncio.sleep(0.05)

            await monque.enqueue_many([NewJob("work", n) for n in range(count)])
            await monque.start()

            def reported() -> list[dict[str, Any]]:
                return [command for command in traffic.commands if _reports(command)]

            async def all_told() -> None:
                assert len(reported()) >= loops
                told = {"progress": {"$exists": True}}
                assert await database["monque_jobs"].count_documents(told) == count

            started = time.monotonic()
            await eventually(all_told, within=60)
            assert len(reported()) <= time.monotonic() - started + 1
            assert sum(len(command["updates"]) for command in reported()[-1:]) <= 5 + 1
            done.set()
            found = [job async for job in monque.iter_jobs()]
        assert {job.progress.message for job in found if job.progress} == {str(n) for n in range(count)}

    async def test_a_run_that_does_not_own_its_job_any_more_is_lost(
        self, monque: Monque, collection: Collection
    ) -> None:
        """The heartbeat interval is 30 s: nothing but the report can notice."""
        taken, pause = asyncio.Event(), Pause()

        async def work(job: Job[Any]) -> None:
            await pause()
            job.report_progress(1)
            try:
                await asyncio.Event().wait()
            finally:
                taken.set()

        events = await start_with(monque, work)
        await monque.enqueue("work")
        await pause.wait()
        await collection.update_one({}, {"$set": {"claimedBy": "another", "attempt": 2}})
        pause.go_on.set()

        await events.wait("job:lost")
        await asyncio.wait_for(taken.wait(), 10)
        stored = await only(collection)
        assert "progress" not in stored
        await collection.delete_many({})


def _reports(command: dict[str, Any]) -> bool:
    first = command["updates"][0]["u"]
    return isinstance(first, list) and "progress" in first[0].get("$set", {})


class TestLog:
    async def test_the_newest_hundred_lines_are_kept_over_several_writes(
        self, monque: Monque, collection: Collection
    ) -> None:
        pause = Pause()

        async def work(job: Job[Any]) -> None:
            for number in range(70):
                job.add_log(f"line {number}")
            await pause()
            for number in range(70, 140):
                job.add_log(f"line {number}")

        events = await start_with(monque, work)
        job = await monque.enqueue("work")

        async def written() -> None:
            assert len((await only(collection)).get("log", ())) == 70

        await eventually(written)
        pause.go_on.set()
        await events.wait("job:complete")
        after = await monque.get_job(job.id)
        assert after is not None
        assert [line.text for line in after.log] == [f"line {number}" for number in range(40, 140)]
        assert sorted(line.at for line in after.log) == [line.at for line in after.log]

    async def test_very_many_lines_cost_little_and_leave_the_newest(self, monque: Monque) -> None:
        lines = at_scale(1_000_000, 100_000)

        def work(job: Job[Any]) -> None:
            for number in range(lines):
                job.add_log(f"{number}")

        job = await run(monque, work)

        assert [line.text for line in job.log] == [str(number) for number in range(lines - 100, lines)]

    async def test_any_text_can_be_stored(self, monque: Monque) -> None:
        texts = ["$name", "a\0b", "lone \ud800 surrogate", "x" * 1_000_000, "", "\U0001f600" * 600]

        async def work(job: Job[Any]) -> None:
            for text in texts:
                job.add_log(text)

        job = await run(monque, work)

        assert [line.text for line in job.log] == [
            "$name",
            "a\0b",
            "lone ? surrogate",
            "x" * 500,
            "",
            "\U0001f600" * 500,
        ]

    async def test_a_document_without_room_gets_no_lines_and_is_settled(
        self, monque: Monque, collection: Collection
    ) -> None:
        async def work(job: Job[Any]) -> None:
            for _ in range(100):
                job.add_log("\U0001f600" * 500)
            job.report_progress(1)

        monque.worker("work", work)
        await collection.insert_one(document(data=bytes(16 * 1024 * 1024 - 120_000)))
        await monque.run_until_idle()

        stored = await find_one(collection, {}, {"data": 0})
        assert (stored["status"], "log" in stored, stored["progress"]["done"]) == ("completed", False, 1.0)

    async def test_pages_leave_it_out(self, monque: Monque) -> None:
        async def work(job: Job[Any]) -> None:
            job.add_log("hello")

        job = await run(monque, work)

        assert len(job.log) == 1
        assert [each.log async for each in monque.iter_jobs()] == [()]
        assert [each.log for each in await monque.get_jobs()] == [()]

    async def test_a_log_handler_adds_what_a_handler_logs(self, monque: Monque) -> None:
        logger = logging.getLogger("shop.test")
        logger.setLevel(logging.DEBUG)
        handler = JobLogHandler(logging.INFO)
        handler.setFormatter(logging.Formatter("%(name)s: %(message)s"))
        logger.addHandler(handler)
        left: list[asyncio.Task[None]] = []

        async def later() -> None:
            logger.info("after the end")

        def work(job: Job[Any]) -> None:
            logger.debug("not this")
            logger.warning("about %s", "this")
            logger.info("%d", "no number")

        async def starts_more(job: Job[Any]) -> None:
            left.append(asyncio.create_task(later()))
            logger.error("in a coroutine")

        try:
            logger.info("outside of any job")
            logging.raiseExceptions = False
            job = await run(monque, work)
            monque.worker("more", starts_more)
            more = await monque.enqueue("more")
            await monque.run_until_idle()
            await asyncio.gather(*left)
        finally:
            logging.raiseExceptions = True
            logger.removeHandler(handler)
        assert [(line.level, line.text) for line in job.log] == [("warning", "shop.test: about this")]
        assert [line.level for line in (await monque.wait_for(more)).log] == ["error"]

    async def test_a_wrong_line_is_refused(self, monque: Monque) -> None:
        errors: list[str] = []

        async def work(job: Job[Any]) -> None:
            for wrong in ((1,), ("a", ""), ("a", "x" * 21), ("a", 3)):
                try:
                    job.add_log(*wrong)
                except ConfigurationError as error:
                    errors.append(str(error))

        await run(monque, work)

        assert [error.split()[0] for error in errors] == ["text", "level", "level", "level"]


class TestOutsideOfHandlers:
    async def test_only_a_running_handler_may_report(self, monque: Monque) -> None:
        given: list[Job[Any]] = []

        async def work(job: Job[Any]) -> None:
            given.append(job)

        given.append(await run(monque, work))

        for job in given:
            with pytest.raises(JobStateError, match="report_progress"):
                job.report_progress(1)
            with pytest.raises(JobStateError, match="add_log"):
                job.add_log("late")


class TestCompleteIn:
    async def test_a_transaction_writes_what_was_reported_before_it(self, monque: Monque) -> None:
        async def work(job: Job[Any]) -> None:
            job.report_progress(9, 10)
            job.add_log("before")
            async with monque.client.start_session() as session, await session.start_transaction():
                await job.complete_in(session)

        job = await run(monque, work)

        assert job.status is JobStatus.COMPLETED
        assert job.progress is not None
        assert (job.progress.done, [line.text for line in job.log]) == (9.0, ["before"])

    async def test_nothing_is_written_until_the_transaction_has_ended(
        self, make_monque: Make, collection: Collection
    ) -> None:
        """A write of ours would wait for the transaction, or make it abort."""
        monque = await make_monque(options=BEATING).open()
        pause = Pause()

        async def work(job: Job[Any]) -> None:
            async with monque.client.start_session() as session, await session.start_transaction():
                await job.complete_in(session)
                job.report_progress(1)
                await asyncio.sleep(1.2)  # longer than the interval between writes
                await pause()

        events = await start_with(monque, work)
        job = await monque.enqueue("work")
        await pause.wait()
        pause.go_on.set()

        await events.wait("job:complete")
        assert (await monque.wait_for(job)).progress is None
        assert "job:lost" not in events.kinds()

    async def test_what_was_reported_is_not_lost_with_a_transaction_that_aborts(
        self, make_monque: Make
    ) -> None:
        monque = await make_monque(options=ONE_TRY).open()

        async def work(job: Job[Any]) -> None:
            job.add_log("before")
            async with monque.client.start_session() as session, await session.start_transaction():
                await job.complete_in(session)
                job.add_log("within")
                raise ValueError("no")

        job = await run(monque, work)

        assert job.status is JobStatus.PENDING
        assert [line.text for line in job.log] == ["before", "within"]


async def test_a_last_report_is_written_before_a_claim_is_released(make_monque: Make) -> None:
    monque = await make_monque().open()

    async def work(job: Job[Any]) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            job.add_log("told to stop")

    events = await start_with(monque, work)
    job = await monque.enqueue("work")
    await events.wait("job:start")
    await monque.stop(timeout=0)

    after = await monque.get_job(job.id)
    assert after is not None
    assert (after.status, [line.text for line in after.log]) == (JobStatus.PENDING, ["told to stop"])


async def test_the_fields_on_the_wire_have_these_types(monque: Monque, collection: Collection) -> None:
    async def work(job: Job[Any]) -> dict[str, int]:
        job.report_progress(1, 2, "half")
        job.add_log("text")
        return {"answer": 42}

    monque.worker("work", work)
    await monque.enqueue("work", store_result=True)
    await monque.run_until_idle()

    paths = ("progress.done", "progress.total", "progress.message", "progress.at", "policy.keepResult")
    fields = {path.replace(".", "_"): {"$type": f"${path}"} for path in (*paths, "log", "result")}
    [types] = await (await collection.aggregate([{"$project": {"_id": 0, **fields}}])).to_list()
    assert types == {
        "progress_done": "double",
        "progress_total": "double",
        "progress_message": "string",
        "progress_at": "date",
        "policy_keepResult": "bool",
        "log": "array",
        "result": "object",
    }
    [line] = (await only(collection))["log"]
    assert {name: type(value).__name__ for name, value in line.items()} == {
        "at": "datetime",
        "level": "str",
        "text": "str",
    }
