"""The history of a job: the runs that did not succeed, bounded, and never in the way of the job itself."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from pymongo import AsyncMongoClient

from monque import Job, JobFilter, Monque, NewJob, Retry
from monque._store.document import LARGEST_WITH_HISTORY
from monque.embedded import EmbeddedMongo
from support.aliases import Collection, Make
from support.clocks import ago
from support.jobs import claimed, document, find_one, only
from support.options import QUICK
from support.scale import at_scale
from support.traffic import Traffic
from support.waiting import Events, eventually

AT_ONCE = Retry(delays=[timedelta(0)])


async def work_off(monque: Monque, collection: Collection, *, within: float = 30) -> dict[str, Any]:
    """Process until the only job has ended."""
    await monque.start()

    async def has_ended() -> None:
        assert (await only(collection))["status"] in ("completed", "failed", "cancelled")

    await eventually(has_ended, within=within)
    return await only(collection)


async def test_each_run_that_failed_leaves_an_entry(monque: Monque, collection: Collection) -> None:
    @monque.worker("work", retry=AT_ONCE, max_attempts=3)
    async def work(job: Job[Any]) -> None:
        raise ValueError(f"no {job.attempt}")

    await monque.enqueue("work")
    await work_off(monque, collection)

    [job] = await monque.get_jobs()
    whole = await monque.get_job(job.id)
    assert whole is not None
    seen = [(each.number, each.outcome, each.error, each.message) for each in whole.history]
    assert seen == [
        (1, "retried", "ValueError", "no 1"),
        (2, "retried", "ValueError", "no 2"),
        (3, "failed", "ValueError", "no 3"),
    ]
    for attempt in whole.history:
        assert attempt.instance == monque.instance_id
        assert attempt.started_at is not None
        assert attempt.finished_at is not None
        assert attempt.started_at <= attempt.finished_at
        assert attempt.traceback is not None
        assert 'raise ValueError(f"no {job.attempt}")' in attempt.traceback


async def test_a_success_adds_no_entry_and_keeps_the_earlier_ones(
    monque: Monque, collection: Collection
) -> None:
    seen: list[Any] = []

    @monque.worker("work", retry=AT_ONCE, max_attempts=3)
    async def work(job: Job[Any]) -> None:
        seen.append([each.number for each in job.history])
        if job.attempt == 1:
            raise ValueError("no")

    await monque.enqueue("work")
    job = await work_off(monque, collection)

    assert job["status"] == "completed"
    assert len(job["history"]) == 1
    assert seen == [[], [1]], "the handler sees the earlier attempts"


async def test_a_job_that_does_not_fail_has_no_history(monque: Monque, collection: Collection) -> None:
    monque.worker("work", lambda job: None)
    await monque.enqueue("work")

    assert "history" not in await work_off(monque, collection)


async def test_the_times_are_those_of_the_server_and_of_the_run(
    monque: Monque, collection: Collection
) -> None:
    @monque.worker("work", max_attempts=1)
    def work(job: Job[Any]) -> None:
        import time

        time.sleep(0.3)
        raise ValueError

    await monque.enqueue("work")
    job = await work_off(monque, collection)

    [entry] = job["history"]
    assert entry["finishedAt"] == job["updatedAt"]
    ran = (entry["finishedAt"] - entry["startedAt"]).total_seconds()
    assert ran == pytest.approx(0.3, rel=0.3)


async def test_over_hundreds_of_failures_the_history_keeps_the_last_ones(
    make_monque: Make, collection: Collection
) -> None:
    failures = at_scale(1000, 200)
    options = replace(QUICK, attempt_history=5, attempt_traces=False, max_retries=failures)
    monque = await make_monque(options=options).open()

    @monque.worker("work", retry=AT_ONCE, max_attempts=failures)
    async def work(job: Job[Any]) -> None:
        raise ValueError(job.attempt)

    await monque.enqueue("work")
    job = await work_off(monque, collection, within=60)

    assert [entry["attempt"] for entry in job["history"]] == list(range(failures - 4, failures + 1))
    assert all("trace" not in entry for entry in job["history"])


async def test_it_can_be_turned_off(make_monque: Make, collection: Collection) -> None:
    monque = await make_monque(options=replace(QUICK, attempt_history=0)).open()

    @monque.worker("work", max_attempts=1)
    async def work(job: Job[Any]) -> None:
        raise ValueError

    await monque.enqueue("work")

    assert "history" not in await work_off(monque, collection)


async def test_an_operators_retry_keeps_it(monque: Monque, collection: Collection) -> None:
    @monque.worker("work", max_attempts=1)
    async def work(job: Job[Any]) -> None:
        raise ValueError

    await monque.enqueue("work")
    job = await work_off(monque, collection)

    assert len((await monque.retry_job(job["_id"])).history) == 1


class Unprintable(Exception):  # noqa: N818 - its name is its story
    def __str__(self) -> str:
        raise ValueError


@pytest.mark.parametrize(
    "error",
    [
        ValueError("$$NOW"),
        ValueError({"$set": 1}),
        ValueError("a\0b"),
        ValueError("\ud800"),
        ValueError("x" * 1_000_000),
        Unprintable(),
        RecursionError("deep"),
    ],
    ids=["$$NOW", "$set", "NUL", "surrogate", "1 MB", "__str__", "recursion"],
)
async def test_whatever_is_raised_is_kept(
    monque: Monque, collection: Collection, error: BaseException
) -> None:

    @monque.worker("work", max_attempts=1)
    async def work(job: Job[Any]) -> None:
        raise error

    await monque.enqueue("work")
    job = await work_off(monque, collection)

    [entry] = job["history"]
    assert entry["error"] == type(error).__name__
    assert len(entry["message"]) <= 1000


async def test_equal_failures_share_one_write(
    make_monque: Make, server: EmbeddedMongo, collection: Collection
) -> None:
    traffic = Traffic("update", "findAndModify")
    async with AsyncMongoClient[dict[str, Any]](server.uri, event_listeners=[traffic]) as client:
        monque = await make_monque(client[collection.database.name]).open()
        await _fail_together(monque, collection)
        await monque.close()

    assert await collection.count_documents({"status": "failed", "history.0.outcome": "failed"}) == 100
    assert sum(traffic.sent.values()) <= 30, traffic.sent


async def _fail_together(monque: Monque, collection: Collection) -> None:

    @monque.worker("work", concurrency=100, max_attempts=1)
    async def work(job: Job[Any]) -> None:
        raise ValueError("the bank does not answer")

    await collection.insert_many(document() for _ in range(100))
    failed = Events(monque)
    await monque.start()
    await failed.wait("job:fail", 100)


class TestRoom:
    async def test_a_large_document_with_ten_failures_is_still_claimed_and_settled(
        self, monque: Monque, collection: Collection
    ) -> None:
        @monque.worker("work", retry=AT_ONCE, max_attempts=10)
        async def work(job: Job[Any]) -> None:
            raise ValueError("long " * 2000)

        await monque.enqueue("work", "x" * 15 * 1024 * 1024)
        job = await work_off(monque, collection)

        assert (job["status"], job["failCount"], len(job["history"])) == ("failed", 10, 10)

    async def test_the_largest_payload_leaves_room_for_ten_failures(
        self, monque: Monque, collection: Collection
    ) -> None:
        @monque.worker("work", retry=AT_ONCE, max_attempts=12)
        async def work(job: Job[Any]) -> None:
            raise ValueError("long " * 2000)

        await monque.enqueue("work", "x" * (16 * 1024 * 1024 - 256 * 1024 - 30))
        job = await work_off(monque, collection)

        assert (job["status"], job["failCount"], len(job["history"])) == ("failed", 12, 10)

    @pytest.mark.parametrize("room", [60_000, 32 * 1024, 2_000], ids=str)
    async def test_a_document_of_others_without_room_gets_no_history_and_is_settled_all_the_same(
        self, monque: Monque, collection: Collection, room: int
    ) -> None:
        @monque.worker("work", retry=AT_ONCE, max_attempts=3)
        async def work(job: Job[Any]) -> None:
            raise ValueError("ü" * 8000)

        size = 16 * 1024 * 1024 - room
        await collection.insert_one(document(data="x" * size))
        job = await work_off(monque, collection)

        assert (job["status"], job["failCount"]) == ("failed", 3)
        assert job["failReason"].startswith("ValueError: üüü")
        assert size < LARGEST_WITH_HISTORY or "history" not in job


class TestLost:
    async def test_recovery_notes_the_run_that_was_lost(
        self, make_monque: Make, collection: Collection
    ) -> None:
        long_ago = ago(minutes=10)
        await collection.insert_one(claimed("dead", lockedAt=long_ago, lastHeartbeat=long_ago, attempt=4))

        await make_monque().open()

        job = await only(collection)
        [entry] = job["history"]
        assert job["status"] == "pending"
        assert (entry["attempt"], entry["by"], entry["outcome"]) == (4, "dead", "lost")
        assert (entry["startedAt"], entry["error"]) == (long_ago, "ProcessDiedError")

    async def test_recovery_goes_by_the_policy_of_the_job(
        self, make_monque: Make, collection: Collection
    ) -> None:
        long_ago = ago(minutes=10)
        stale = {"lockedAt": long_ago, "lastHeartbeat": long_ago}
        await collection.insert_many(
            [
                claimed("dead", data="once", policy={"maxAttempts": 1}, **stale),
                claimed("dead", data="often", policy={"maxAttempts": 30}, crashCount=20, **stale),
                claimed("dead", data="plain", **stale),
            ]
        )
        monque = make_monque()
        events = Events(monque)

        await monque.open()

        statuses = {job["data"]: job["status"] async for job in collection.find()}
        assert statuses == {"once": "failed", "often": "pending", "plain": "pending"}
        [failed] = events.of("job:fail")
        assert failed.error.crashes == 1
        assert "died 1 time(s)" in failed.job.fail_reason
        assert [each.outcome for each in failed.job.history] == ["lost"]

    async def test_a_schedule_that_is_given_up_leaves_the_lost_run_in_its_copy(
        self, make_monque: Make, collection: Collection
    ) -> None:
        long_ago = ago(minutes=10)
        schedule = claimed(
            "dead",
            lockedAt=long_ago,
            lastHeartbeat=long_ago,
            repeatInterval="@daily",
            timezone="UTC",
            policy={"maxAttempts": 1},
        )
        await collection.insert_one(schedule)

        await make_monque().open()

        copy = await find_one(collection, {"scheduleId": schedule["_id"]})
        assert (copy["status"], [entry["outcome"] for entry in copy["history"]]) == ("failed", ["lost"])
        going_on = await find_one(collection, {"_id": schedule["_id"]})
        assert going_on["status"] == "pending"
        assert [entry["outcome"] for entry in going_on["history"]] == ["lost"]


async def test_pages_are_read_without_traces(monque: Monque, collection: Collection) -> None:
    @monque.worker("work", max_attempts=1)
    async def work(job: Job[Any]) -> None:
        raise ValueError("no")

    await monque.enqueue_many([NewJob("work")])
    job = await work_off(monque, collection)

    listed = (await monque.list_jobs(JobFilter())).jobs
    iterated = [each async for each in monque.iter_jobs()]
    for [found] in (listed, await monque.get_jobs(), iterated):
        [attempt] = found.history
        assert (attempt.message, attempt.traceback) == ("no", None)
    whole = await monque.get_job(job["_id"])
    assert whole is not None
    assert whole.history[0].traceback is not None


@pytest.mark.parametrize(
    "odd",
    [5, "x", {}, [5], [{}], [{"attempt": "x", "startedAt": 5, "error": [1], "trace": 5}], [None]],
    ids=str,
)
async def test_an_odd_history_can_be_read_and_the_job_runs(
    monque: Monque, collection: Collection, odd: Any
) -> None:
    @monque.worker("work", max_attempts=1)
    async def work(job: Job[Any]) -> None:
        assert isinstance(job.history, tuple)
        raise ValueError("no")

    await collection.insert_one(document(history=odd, policy=odd, snoozeCount=odd))
    job = await work_off(monque, collection)

    assert job["failReason"] == "ValueError: no"
    assert job["history"][-1]["message"] == "no"
