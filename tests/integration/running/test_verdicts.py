"""Verdicts at work: what a handler raises to say how its run ended."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from monque import (
    Cancel,
    Fail,
    Job,
    JobCancelled,
    JobFailed,
    JobSnoozed,
    JobStatus,
    Monque,
    Observer,
    Retry,
    RetryAfter,
    Snooze,
)
from support.aliases import Collection, Make
from support.clocks import ago, ahead
from support.jobs import document, find_one, only
from support.options import QUICK
from support.scale import at_scale
from support.waiting import Events, eventually

SECOND = timedelta(seconds=1)
HOUR = timedelta(hours=1)


async def run_one(monque: Monque, error: BaseException, *, thread: bool = False, **settings: Any) -> Events:
    """Run the due jobs of `work`, whose handler raises this."""

    async def handler(job: Job[Any]) -> None:
        raise error

    def in_a_thread(job: Job[Any]) -> None:
        raise error

    events = Events(monque)
    monque.worker("work", in_a_thread if thread else handler, **settings)
    await monque.run_until_idle()
    return events


class TestSnooze:
    @pytest.mark.parametrize("thread", [False, True], ids=["coroutine", "thread"])
    async def test_the_job_waits_and_no_failure_is_counted(
        self, monque: Monque, collection: Collection, thread: bool
    ) -> None:
        await monque.enqueue("work", {"to": "ada"})

        events = await run_one(monque, Snooze(HOUR), thread=thread)

        job = await only(collection)
        assert (job["status"], job["failCount"], job["snoozeCount"]) == ("pending", 0, 1)
        assert job["nextRunAt"] - job["updatedAt"] == HOUR
        assert "history" not in job
        [event] = events.of("job:snoozed")
        assert isinstance(event, JobSnoozed)
        assert (event.delay, event.job.snooze_count, event.job.data) == (HOUR, 1, {"to": "ada"})
        assert events.of("job:fail") == events.of("job:complete") == []

    async def test_it_may_name_a_time(self, monque: Monque, collection: Collection) -> None:
        until = ahead(hours=5)
        await monque.enqueue("work")

        await run_one(monque, Snooze(until=until))

        assert (await only(collection))["nextRunAt"] == until

    async def test_hundreds_of_snoozes_count_no_failure(self, monque: Monque, collection: Collection) -> None:
        runs, snoozes = 0, at_scale(1000, 200)

        async def handler(job: Job[Any]) -> None:
            nonlocal runs
            runs += 1
            if runs <= snoozes:
                raise Snooze(timedelta(0))
            raise ValueError("at last")

        monque.worker("work", handler, retry=Retry(first=HOUR))
        await monque.enqueue("work")
        await monque.start()
        events = Events(monque)
        [event] = await events.wait("job:fail", within=60)

        job = await only(collection)
        assert (job["failCount"], job["snoozeCount"], job["attempt"]) == (1, snoozes, snoozes + 1)
        assert job["nextRunAt"] - job["updatedAt"] == HOUR
        assert event.will_retry
        assert [each["attempt"] for each in job["history"]] == [snoozes + 1]

    async def test_a_snoozed_schedule_is_not_repaired_and_goes_on(
        self, monque: Monque, collection: Collection
    ) -> None:
        schedule = await monque.schedule("0 * * * *", "work")
        await collection.update_one({"_id": schedule.id}, {"$set": {"nextRunAt": ago(seconds=1)}})
        until = ahead(days=2)

        await run_one(monque, Snooze(until=until))
        await monque.schedule("0 * * * *", "work")
        assert (await only(collection))["nextRunAt"] == until

        monque.worker("work", lambda job: None, replace=True)
        await collection.update_one({"_id": schedule.id}, {"$set": {"nextRunAt": ago(seconds=1)}})
        await monque.run_until_idle()
        after = await only(collection)
        assert "snoozeCount" not in after
        assert (after["status"], after["failCount"]) == ("pending", 0)

    async def test_an_operators_retry_counts_from_zero(self, monque: Monque, collection: Collection) -> None:
        await collection.insert_one(document(status="failed", snoozeCount=5))

        job = await monque.retry_job((await only(collection))["_id"])

        assert job.snooze_count == 0
        assert "snoozeCount" not in await only(collection)

    async def test_other_instances_hear_of_the_time(self, make_monque: Make, collection: Collection) -> None:
        """The one that snoozes stops; another, which polls every five minutes, runs the job in time."""
        other = make_monque(options=QUICK)
        other.worker("work", lambda job: None)
        first = await make_monque().open()
        await first.enqueue("work")
        await run_one(first, Snooze(timedelta(milliseconds=300)))
        await other.start()
        done = Events(other)

        await done.wait("job:complete")


class TestFailures:
    async def test_retry_after_waits_as_it_says_and_counts(
        self, monque: Monque, collection: Collection
    ) -> None:
        await monque.enqueue("work")

        events = await run_one(
            monque, RetryAfter(HOUR), retry=Retry(first=SECOND, limit=2 * SECOND, retry_on=OSError)
        )

        job = await only(collection)
        assert (job["status"], job["failCount"]) == ("pending", 1)
        assert job["nextRunAt"] - job["updatedAt"] == HOUR
        assert [event.will_retry for event in events.of("job:fail")] == [True]

    async def test_retry_after_of_the_last_attempt_is_final(
        self, monque: Monque, collection: Collection
    ) -> None:
        await monque.enqueue("work", max_attempts=1)

        await run_one(monque, RetryAfter(HOUR))

        assert (await only(collection))["status"] == "failed"

    async def test_fail_is_final_at_once_with_its_reason(
        self, monque: Monque, collection: Collection
    ) -> None:
        await monque.enqueue("work")

        events = await run_one(monque, Fail("no such card: $status"))

        job = await only(collection)
        assert (job["status"], job["failCount"]) == ("failed", 1)
        assert job["failReason"] == "no such card: $status"
        [event] = events.of("job:fail")
        assert isinstance(event, JobFailed)
        assert (event.will_retry, type(event.error)) == (False, Fail)

    async def test_fail_of_a_schedule_keeps_the_run_and_the_schedule_goes_on(
        self, monque: Monque, collection: Collection
    ) -> None:
        schedule = await monque.schedule("@daily", "work")
        await collection.update_one({"_id": schedule.id}, {"$set": {"nextRunAt": ago(seconds=1)}})

        await run_one(monque, Fail("not today"))

        kept = await find_one(collection, {"scheduleId": schedule.id})
        assert (kept["status"], kept["failReason"]) == ("failed", "not today")
        assert [each["outcome"] for each in kept["history"]] == ["failed"]
        going_on = await find_one(collection, {"_id": schedule.id})
        assert (going_on["status"], going_on["failCount"]) == ("pending", 0)
        assert [each["outcome"] for each in going_on["history"]] == ["failed"]

    @pytest.mark.parametrize("wrong", [-SECOND, 5, timedelta(days=40_000)], ids=str)
    async def test_a_verdict_that_makes_no_sense_is_the_attempts_failure(
        self, monque: Monque, collection: Collection, wrong: Any
    ) -> None:
        async def handler(job: Job[Any]) -> None:
            raise Snooze(wrong)

        monque.worker("work", handler, max_attempts=1)
        await monque.enqueue("work")
        await monque.run_until_idle()

        job = await only(collection)
        assert job["status"] == "failed"
        assert job["failReason"].startswith("ConfigurationError: the delay of a Snooze must be")

    async def test_a_verdict_in_a_group_is_an_ordinary_error(
        self, monque: Monque, collection: Collection
    ) -> None:
        await monque.enqueue("work", max_attempts=1)

        await run_one(monque, ExceptionGroup("tasks", [Snooze(HOUR)]))

        job = await only(collection)
        assert (job["status"], job.get("snoozeCount")) == ("failed", None)


class TestCancel:
    async def test_the_job_is_cancelled_with_its_reason(self, monque: Monque, collection: Collection) -> None:
        await monque.enqueue("work")

        events = await run_one(monque, Cancel("$the customer has left"))

        job = await only(collection)
        assert (job["status"], job["failCount"]) == ("cancelled", 0)
        assert job["cancel"] == {"at": job["updatedAt"], "by": "handler", "reason": "$the customer has left"}
        assert [each["outcome"] for each in job["history"]] == ["cancelled"]
        [event] = events.of("job:cancelled")
        assert isinstance(event, JobCancelled)
        assert event.job.status is JobStatus.CANCELLED

        await monque.retry_job(job["_id"])
        assert "cancel" not in await only(collection)

    async def test_of_a_schedule_it_ends_the_run_alone(self, monque: Monque, collection: Collection) -> None:
        schedule = await monque.schedule("@daily", "work")
        was_due = ago(seconds=1)
        await collection.update_one({"_id": schedule.id}, {"$set": {"nextRunAt": was_due}})

        events = await run_one(monque, Cancel("not today"))

        after = await only(collection)
        assert (after["status"], after["nextRunAt"]) == ("pending", schedule.next_run_at)
        assert "cancel" not in after
        assert [each["outcome"] for each in after["history"]] == ["cancelled"]
        [event] = events.of("job:cancelled")
        assert (event.job.status, event.job.next_run_at) == (JobStatus.CANCELLED, was_due)


class Endings(Observer):
    def __init__(self) -> None:
        self.all: list[tuple[str, BaseException | None]] = []

    def ended(self, name: str, ending: str, **measured: Any) -> None:
        self.all.append((ending, measured["error"]))


@pytest.mark.parametrize(
    ("verdict", "ending"),
    [
        (Snooze(HOUR), "snoozed"),
        (Cancel(), "cancelled"),
        (Fail("x"), "failed"),
        (RetryAfter(HOUR), "retried"),
    ],
    ids=["snooze", "cancel", "fail", "retry after"],
)
async def test_observers_hear_how_a_run_ended(make_monque: Make, verdict: BaseException, ending: str) -> None:
    monque = await make_monque().open()
    endings = Endings()
    monque.observe(endings)
    await monque.enqueue("work")

    await run_one(monque, verdict)

    is_error = ending in ("failed", "retried")
    assert endings.all == [(ending, verdict if is_error else None)]


async def test_after_a_committed_transaction_a_verdict_changes_nothing(
    monque: Monque, collection: Collection
) -> None:
    events = Events(monque)

    @monque.worker("work")
    async def work(job: Job[Any]) -> None:
        async with monque.client.start_session() as session, await session.start_transaction():
            await job.complete_in(session)
        raise Snooze(HOUR)

    await monque.enqueue("work")
    await monque.run_until_idle()

    assert (await only(collection))["status"] == "completed"
    [error] = events.of("job:error")
    assert isinstance(error.error, Snooze)
    assert len(events.of("job:complete")) == 1


async def test_a_verdict_that_ends_the_transaction_counts(monque: Monque, collection: Collection) -> None:
    @monque.worker("work")
    async def work(job: Job[Any]) -> None:
        async with monque.client.start_session() as session, await session.start_transaction():
            await job.complete_in(session)
            raise Snooze(HOUR)

    await monque.enqueue("work")
    await monque.run_until_idle()

    job = await only(collection)
    assert (job["status"], job["snoozeCount"]) == ("pending", 1)


async def test_many_snoozes_and_cancels_share_their_writes(make_monque: Make, collection: Collection) -> None:
    monque = await make_monque().open()

    @monque.worker("work", concurrency=200)
    async def work(job: Job[int]) -> None:
        raise Snooze(HOUR) if job.data % 2 else Cancel()

    await collection.insert_many(document(data=n) for n in range(200))
    await monque.run_until_idle()

    async def is_done() -> None:
        assert await collection.count_documents({"status": "pending", "snoozeCount": 1}) == 100
        assert await collection.count_documents({"status": "cancelled", "cancel.by": "handler"}) == 100

    await eventually(is_done)
    await asyncio.sleep(0)
