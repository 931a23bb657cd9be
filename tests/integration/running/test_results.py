"""Results: what a handler returns is stored with the completion, if somebody asked for it."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

import pytest
from pymongo import AsyncMongoClient

from monque import Job, JobStatus, Monque, NewJob, PayloadTooLargeError, ResultError
from support.aliases import Collection, Database, Make
from support.jobs import document, find_one, only
from support.options import QUICK
from support.traffic import Traffic
from support.waiting import Events
from support.working import start_with

WHEN = datetime(2030, 5, 1, 12, tzinfo=UTC)


@dataclass
class Invoice:
    number: int
    due: datetime


async def run(monque: Monque, handler: Any, **settings: Any) -> Job[Any]:
    """Run one job of this handler, and return it as it is afterwards."""
    monque.worker("work", handler, replace=True)
    job = await monque.enqueue("work", **settings)
    await monque.run_until_idle()
    after = await monque.get_job(job.id)
    assert after is not None
    return after


async def make_invoice(job: Job[Any]) -> Invoice:
    return Invoice(7, WHEN)


class TestStored:
    async def test_a_result_is_stored_like_a_payload(self, monque: Monque) -> None:
        job = await run(monque, make_invoice, store_result=True)

        assert job.status is JobStatus.COMPLETED
        assert job.result == {"number": 7, "due": WHEN}
        assert await monque.result_of(job) == {"number": 7, "due": WHEN}

    async def test_a_job_that_was_stored_for_a_worker_has_a_result_of_its_type(self, monque: Monque) -> None:
        worker = monque.worker("work", make_invoice, store_result=True)
        jobs = [
            await worker.enqueue(None),
            await monque.enqueue(worker, None),
            await monque.now(worker, None),
        ]
        await monque.run_until_idle()

        assert [await monque.result_of(job) for job in jobs] == [Invoice(7, WHEN)] * 3

    async def test_a_job_that_was_read_or_stored_for_a_name_has_its_result_as_it_is_stored(
        self, monque: Monque
    ) -> None:
        monque.worker("work", make_invoice, store_result=True)
        job = await monque.enqueue("work")
        await monque.run_until_idle()

        for known in (job, job.id, await monque.get_job(job.id)):
            assert await monque.result_of(known) == {"number": 7, "due": WHEN}

    async def test_a_result_that_does_not_fit_the_annotation_is_as_it_is_stored(self, monque: Monque) -> None:
        async def lies(job: Job[None]) -> Invoice:
            return {"number": "seven"}

        worker = monque.worker("work", lies, store_result=True)
        job = await worker.enqueue()
        await monque.run_until_idle()

        assert await monque.result_of(job) == {"number": "seven"}

    async def test_nothing_is_stored_unless_somebody_asks(
        self, monque: Monque, collection: Collection
    ) -> None:
        job = await run(monque, make_invoice)

        assert "result" not in await only(collection)
        assert (job.result, job.result_error) == (None, None)
        with pytest.raises(ResultError, match="store_result=True"):
            await monque.result_of(job)

    async def test_the_call_counts_before_the_worker(self, monque: Monque, collection: Collection) -> None:
        monque.worker("work", make_invoice, store_result=True)
        kept, not_kept = await monque.enqueue("work"), await monque.enqueue("work", store_result=False)
        await monque.run_until_idle()

        assert "result" in await find_one(collection, {"_id": kept.id})
        stored = await find_one(collection, {"_id": not_kept.id})
        assert "result" not in stored
        assert stored["policy"] == {"keepResult": False}

    async def test_a_result_of_none_is_a_result(self, monque: Monque) -> None:
        async def work(job: Job[Any]) -> None: ...

        job = await run(monque, work, store_result=True)

        assert await monque.result_of(job) is None

    async def test_a_def_handler_has_a_result_too(self, monque: Monque) -> None:
        def work(job: Job[Any]) -> str:
            return "$name"

        assert (await run(monque, work, store_result=True)).result == "$name"

    async def test_many_results_share_a_write_and_none_gets_another_ones(
        self, make_monque: Make, collection: Collection, server: Any, database: Database
    ) -> None:
        traffic = Traffic("update", "findAndModify")
        async with AsyncMongoClient(server.uri, event_listeners=[traffic]) as client:
            monque = await make_monque(client[database.name]).open()

            @monque.worker("work", concurrency=400, store_result=True)
            async def work(job: Job[int]) -> dict[str, int]:
                return {"square": job.data**2}

            await monque.enqueue_many([NewJob("work", n) for n in range(400)])
            await monque.run_until_idle()

        found = await collection.find().to_list()
        assert {job["data"]: job["result"] for job in found} == {n: {"square": n * n} for n in range(400)}
        assert all(job["finishedAt"] >= job["startedAt"] for job in found)
        results = [
            update for command in traffic.commands for update in command.get("updates", ()) if _sets(update)
        ]
        assert 4 <= len(results) <= 40

    async def test_the_event_of_a_completion_has_the_result(self, monque: Monque, events: Events) -> None:
        monque.worker("work", make_invoice, store_result=True)
        await monque.enqueue_many([NewJob("work") for _ in range(5)])
        await monque.run_until_idle()

        assert [event.job.result["number"] for event in events.of("job:complete")] == [7] * 5

    async def test_a_schedule_has_the_result_of_its_last_run(
        self, monque: Monque, collection: Collection
    ) -> None:
        results: list[Any] = ["first", {1, 2}, 3]

        async def work(job: Job[Any]) -> Any:
            return results.pop(0)

        async def run_once() -> dict[str, Any]:
            await collection.update_one({}, {"$set": {"nextRunAt": WHEN.replace(year=2020)}})
            await monque.run_until_idle()
            return await only(collection)

        monque.worker("work", work)
        await monque.schedule("0 0 1 1 *", "work", store_result=True)
        assert (await run_once())["result"] == "first"
        assert (await run_once())["result"] == [1, 2]
        await monque.schedule("0 0 1 1 *", "work")
        assert "result" not in await run_once()


def _sets(update: dict[str, Any]) -> bool:
    return isinstance(update["u"], list) and "result" in update["u"][0].get("$set", {})


class Strange:
    """Nothing that can be stored."""


class TestNotStored:
    @pytest.mark.parametrize(
        ("result", "why"),
        [
            (Strange(), "the result of 'work' cannot be stored"),
            ("x" * 70_000, "max_result_size allows 65,536"),
            ({"a": [Strange()]}, "the result of 'work' cannot be stored: result.a[0]"),
        ],
    )
    async def test_the_job_is_completed_and_says_why_there_is_no_result(
        self, monque: Monque, events: Events, result: Any, why: str
    ) -> None:
        async def work(job: Job[Any]) -> Any:
            return result

        job = await run(monque, work, store_result=True)

        assert job.status is JobStatus.COMPLETED
        assert why in str(job.result_error)
        [event] = events.of("job:error")
        assert isinstance(event.error, ResultError)
        assert event.job.id == event.error.job_id == job.id
        with pytest.raises(ResultError, match="has no result: the result of 'work'"):
            await monque.result_of(job)

    async def test_a_larger_result_is_allowed_and_takes_room_from_payloads(self, make_monque: Make) -> None:
        monque = await make_monque(options=replace(QUICK, max_result_size=8 * 1024 * 1024)).open()

        async def work(job: Job[Any]) -> bytes:
            return bytes(7 * 1024 * 1024)

        assert len((await run(monque, work, store_result=True)).result) == 7 * 1024 * 1024
        with pytest.raises(PayloadTooLargeError):
            await monque.enqueue("work", bytes(9 * 1024 * 1024))

    async def test_a_document_without_room_is_completed_without_history_log_and_result(
        self, monque: Monque, events: Events, collection: Collection
    ) -> None:
        """Such a document was stored by others: they keep no room free."""
        lines = [{"at": WHEN, "level": "info", "text": "x" * 400}] * 100
        full = document(data=bytes(16 * 1024 * 1024 - 50_000), log=lines, policy={"keepResult": True})
        monque.worker("work", lambda job: "x" * 30_000)
        await collection.insert_one(full)
        await monque.run_until_idle()

        stored = await find_one(collection, {}, {"data": 0})
        assert stored["status"] == "completed"
        assert "no room" in stored["resultError"]
        assert "log" not in stored
        assert "result" not in stored
        assert [type(event.error) for event in events.of("job:error")] == [ResultError]

    async def test_a_schedule_without_room_goes_on_and_says_that_its_result_is_not_stored(
        self, monque: Monque, events: Events, collection: Collection
    ) -> None:
        full = document(
            data=bytes(16 * 1024 * 1024 - 2_000),
            repeatInterval="0 0 1 1 *",
            resultError="an earlier reason",
            policy={"keepResult": True},
        )
        monque.worker("work", lambda job: "x" * 30_000)
        await collection.insert_one(full)
        await monque.run_until_idle()

        stored = await find_one(collection, {}, {"data": 0})
        assert (stored["status"], stored["runCount"]) == ("pending", 1)
        assert "no room" in stored["resultError"]
        assert "result" not in stored
        assert ["no room" in str(event.error) for event in events.of("job:error")] == [True]

    async def test_an_operators_retry_removes_what_a_run_left(
        self, monque: Monque, collection: Collection
    ) -> None:
        left = {"result": 1, "resultError": "no", "progress": {"done": 1.0}, "log": []}
        job = document(status="failed", **left)
        await collection.insert_one(job)

        await monque.retry_job(job["_id"])

        assert not left.keys() & (await only(collection)).keys()


class TestCompleteIn:
    async def test_a_transaction_stores_the_result_that_it_is_given(
        self, monque: Monque, collection: Collection
    ) -> None:
        async def work(job: Job[Any]) -> str:
            async with monque.client.start_session() as session, await session.start_transaction():
                await job.complete_in(session, result={"paid": 5})
            return "not this"

        job = await run(monque, work)

        assert await monque.result_of(job) == {"paid": 5}

    async def test_a_result_that_cannot_be_stored_does_not_keep_it_from_committing(
        self, monque: Monque, events: Events
    ) -> None:
        async def work(job: Job[Any]) -> None:
            async with monque.client.start_session() as session, await session.start_transaction():
                await job.complete_in(session, result=Strange())

        job = await run(monque, work)

        assert job.status is JobStatus.COMPLETED
        assert [type(event.error) for event in events.of("job:error")] == [ResultError]


async def test_a_result_whose_answer_was_lost_is_not_written_twice(
    monque: Monque, collection: Collection
) -> None:
    """The same settlement again finds that it has happened, whoever changed the job since."""
    done = asyncio.Event()

    async def work(job: Job[Any]) -> str:
        await done.wait()
        return "mine"

    events = await start_with(monque, work, store_result=True)
    job = await monque.enqueue("work")
    await events.wait("job:start")
    changes = {"status": "completed", "settledAttempt": 1, "result": "mine"}
    await collection.update_one(
        {"_id": job.id},
        {
            "$set": changes,
            "$unset": dict.fromkeys(("claimedBy", "claimedAt", "lockedAt", "lastHeartbeat"), ""),
        },
    )
    done.set()

    await events.wait("job:complete")
    assert await monque.result_of(job) == "mine"
