"""Operators and jobs that wait or have steps: they move a wait, cancel it, and retry from a step."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from monque import ConfigurationError, Fail, Job, JobFilter, JobStateError, JobStatus, Monque
from support.aliases import Collection
from support.clocks import ago, ahead, now
from support.jobs import document, find_one
from support.waiting import eventually
from support.waits import STEPS, receiving, sleeping

LATER = datetime(2040, 1, 1, tzinfo=UTC)
SIGNALS = [{"n": "picked-up", "at": ago(minutes=1), "v": 1}]


async def stored(collection: Collection, job: dict[str, Any]) -> dict[str, Any]:
    return await find_one(collection, {"_id": job["_id"]})


@pytest.mark.parametrize("make", [sleeping, lambda: receiving(ahead(days=7))])
async def test_another_time_is_also_the_end_of_the_wait(
    monque: Monque, collection: Collection, make: Any
) -> None:
    await collection.insert_many([one := make(), many := make()])

    moved = await monque.reschedule_job(one["_id"], LATER)
    await monque.bulk("reschedule", JobFilter(ids=[many["_id"]]), run_at=LATER)

    assert moved.waits_for is not None
    assert moved.waits_for.until == LATER
    for job in (one, many):
        after = await stored(collection, job)
        assert (after["nextRunAt"], after["parked"]) == (LATER, job["parked"])
        assert after["steps"] == [*STEPS, {**job["steps"][-1], "until": LATER}]


@pytest.mark.parametrize("make", [sleeping, lambda: receiving(ahead(days=7))])
async def test_a_wait_that_is_to_run_now_is_over(monque: Monque, collection: Collection, make: Any) -> None:
    await collection.insert_one(job := make())

    await monque.run_now(job["_id"])

    after = await stored(collection, job)
    assert after["steps"][-1]["until"] == after["nextRunAt"]
    assert after["nextRunAt"] <= now() + timedelta(seconds=1)
    assert after["steps"][:-1] == STEPS


async def test_the_timeout_of_a_job_that_expires_before_it_is_moved(
    monque: Monque, collection: Collection
) -> None:
    job = receiving(ahead(days=7), policy={"expiresAt": ahead(days=1)}, nextRunAt=ahead(days=1))
    await collection.insert_one(job)

    await monque.run_now(job["_id"])

    after = await stored(collection, job)
    assert after["steps"][-1]["until"] == after["nextRunAt"] < ahead(hours=1)


@pytest.mark.parametrize(
    "fields", [{}, {"nextRunAt": ahead(days=1), "policy": {"expiresAt": ahead(days=1)}}], ids=["", "expires"]
)
async def test_a_wait_without_a_timeout_cannot_be_moved(
    monque: Monque, collection: Collection, fields: dict[str, Any]
) -> None:
    await collection.insert_one(job := receiving(**fields))
    which = JobFilter(ids=[job["_id"]])

    with pytest.raises(JobStateError, match=r"cannot reschedule .* waits for the signal 'picked-up' without"):
        await monque.reschedule_job(job["_id"], LATER)
    with pytest.raises(JobStateError, match=r"cannot run .* waits for the signal 'picked-up' without"):
        await monque.run_now(job["_id"])
    moved = await monque.bulk("reschedule", which, run_at=LATER)
    due = await monque.bulk("run-now", which)

    assert (moved.count, due.count) == (0, 0)
    assert await stored(collection, job) == job


async def test_a_job_that_does_not_wait_is_moved_without_its_steps(
    monque: Monque, collection: Collection
) -> None:
    """The end of a sleep that was waited for before a retry is not touched."""
    await collection.insert_one(job := document(steps=sleeping()["steps"], nextRunAt=ahead(hours=1)))

    await monque.reschedule_job(job["_id"], LATER)

    assert (await stored(collection, job))["steps"] == job["steps"]


@pytest.mark.parametrize("reason", [None, "wrong customer"])
async def test_cancelling_ends_a_wait_at_once(
    monque: Monque, collection: Collection, reason: str | None
) -> None:
    await collection.insert_one(job := receiving(signals=[{**SIGNALS[0], "n": "other"}]))

    gone = await monque.cancel_job(job["_id"], reason=reason)

    after = await stored(collection, job)
    assert (gone.status, gone.waits_for) == (JobStatus.CANCELLED, None)
    assert not {"parked", "signals"} & set(after)
    assert after["steps"] == job["steps"]


async def test_a_retry_goes_on_behind_the_stored_steps(monque: Monque, collection: Collection) -> None:
    await collection.insert_one(job := document(status="failed", steps=STEPS, signals=SIGNALS, redo=1))

    again = await monque.retry_job(job["_id"])

    after = await stored(collection, job)
    assert again.status is JobStatus.PENDING
    assert (after["steps"], after["signals"], after["redo"]) == (STEPS, SIGNALS, 1)


@pytest.mark.parametrize(("step", "kept"), [("charge", None), ("pause", STEPS[:1]), ("book", STEPS[:2])])
@pytest.mark.parametrize("status", ["failed", "cancelled"])
async def test_a_retry_from_a_step_removes_it_and_those_behind_it(
    monque: Monque, collection: Collection, status: str, step: str, kept: list[Any] | None
) -> None:
    await collection.insert_one(job := document(status=status, steps=STEPS, signals=SIGNALS, failCount=3))

    again = await monque.retry_job(job["_id"], from_step=step)

    after = await stored(collection, job)
    assert (again.status, again.fail_count) == (JobStatus.PENDING, 0)
    assert (after.get("steps"), after["signals"], after["redo"]) == (kept, SIGNALS, 1)


@pytest.mark.parametrize(("before", "redo"), [({}, 1), ({"redo": 1}, 2), ({"redo": "odd"}, 1)])
async def test_a_retry_from_the_start_removes_steps_and_signals(
    monque: Monque, collection: Collection, before: dict[str, Any], redo: int
) -> None:
    await collection.insert_one(job := document(status="failed", steps=STEPS, signals=SIGNALS, **before))

    await monque.retry_job(job["_id"], from_start=True)

    after = await stored(collection, job)
    assert (after["redo"], type(after["redo"])) == (redo, int)
    assert not {"steps", "signals"} & set(after)


async def test_a_retry_from_an_unknown_step_is_refused(monque: Monque, collection: Collection) -> None:
    odd = [{"n": {"$ne": 1}, "k": "step"}, 7]
    await collection.insert_many(
        [
            job := document(status="failed", steps=STEPS),
            plain := document(status="failed"),
            foreign := document(status="failed", steps=odd),
        ]
    )
    for each in (job, plain, foreign):
        with pytest.raises(JobStateError, match=r"from the step '\$charge': it has no such step"):
            await monque.retry_job(each["_id"], from_step="$charge")
        assert await stored(collection, each) == each
    with pytest.raises(ConfigurationError, match="from_step or from_start, not both"):
        await monque.retry_job(job["_id"], from_step="charge", from_start=True)
    with pytest.raises(ConfigurationError, match="from_step must be text"):
        await monque.retry_job(job["_id"], from_step="")


async def test_many_are_retried_from_a_step_that_they_have(monque: Monque, collection: Collection) -> None:
    await collection.insert_many(
        [
            has := document(status="failed", steps=STEPS),
            keyed := document(status="failed", steps=STEPS, uniqueKey="k"),
            lacks := document(status="failed", steps=STEPS[:1]),
        ]
    )

    done = await monque.bulk("retry", JobFilter(status="failed"), from_step="book")

    assert (done.count, done.errors) == (2, [])
    assert [(await stored(collection, each))["steps"] for each in (has, keyed)] == [STEPS[:2]] * 2
    assert await stored(collection, lacks) == lacks


async def test_an_operator_lets_a_real_job_wait_longer_ends_its_sleep_and_has_a_step_done_again(
    monque: Monque, collection: Collection
) -> None:
    done: list[str] = []

    @monque.worker("order")
    async def order(job: Job[None]) -> None:
        for name in ("charge", "book"):
            await job.step(name, lambda name=name: done.append(name))
        await job.sleep("cool-off", timedelta(days=3))
        if done.count("book") == 1:
            raise Fail("the wrong parcel")
        done.append("end")

    job = await monque.enqueue(order)
    await monque.start()

    async def waits() -> None:
        assert (await monque.count_jobs(JobFilter(waits_for="time"))) == 1

    await eventually(waits)
    await monque.reschedule_job(job, LATER)
    await monque.run_now(job)
    failed = await monque.wait_for(job, timeout=timedelta(seconds=20))
    assert (failed.status, done) == (JobStatus.FAILED, ["charge", "book"])

    await monque.retry_job(job, from_step="book")
    await eventually(waits)
    await monque.run_now(job)
    ended = await monque.wait_for(job, timeout=timedelta(seconds=20))

    assert (ended.status, done) == (JobStatus.COMPLETED, ["charge", "book", "book", "end"])
    assert [step.name for step in ended.steps] == ["charge", "book", "cool-off"]
