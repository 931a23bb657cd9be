"""Letting a job run now, and counting those that come before it."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from monque import ConfigurationError, Job, JobNotFoundError, JobStateError, JobStatus, Monque, Snooze
from monque._store.document import PARKED
from support.aliases import Collection, Make
from support.clocks import ago, ahead
from support.jobs import document
from support.options import NEVER_POLLING
from support.waiting import Events
from support.working import Work, start_with

HOUR = timedelta(hours=1)


async def test_a_job_that_waits_for_later_runs_at_once(make_monque: Make) -> None:
    monque = make_monque(options=NEVER_POLLING)
    await start_with(monque, Work())
    job = await monque.enqueue("work", delay=HOUR)

    now = await monque.run_now(job.id)

    assert now.next_run_at is not None
    assert abs(now.next_run_at - monque.server_time()) < timedelta(minutes=1)
    assert (await monque.wait_for(job, timeout=timedelta(seconds=30))).status is JobStatus.COMPLETED


async def test_a_job_that_is_due_is_returned_as_it_is(monque: Monque, collection: Collection) -> None:
    job = await monque.enqueue("work")
    before, events = await collection.find_one(), Events(monque)

    assert (await monque.run_now(str(job.id))).id == job.id

    assert await collection.find_one() == before
    assert events.all == []


async def test_a_retry_need_not_be_waited_for(monque: Monque, collection: Collection) -> None:
    waiting = document(failCount=2, failReason="no", nextRunAt=ahead(hours=1))
    await collection.insert_one(waiting)

    job = await monque.run_now(waiting["_id"])

    assert job.next_run_at is not None
    assert job.next_run_at < ahead(minutes=1)
    assert (job.fail_count, job.fail_reason) == (2, "no")


async def test_a_schedule_is_triggered(monque: Monque, collection: Collection) -> None:
    runs: list[Job[Any]] = []
    monque.worker("work", runs.append)
    schedule = await monque.schedule("@yearly", "work")
    paused = await monque.schedule("@yearly", "work", unique_key="paused", paused=True)

    for each in (schedule, paused):
        assert (await monque.run_now(each.id)).id == each.id
    # Whatever this machine thinks of the server's time.
    await collection.update_many({}, {"$set": dict.fromkeys(("nextRunAt", "movedTo"), ago(seconds=5))})
    await monque.run_until_idle()

    assert {job.id for job in runs} == {schedule.id, paused.id}
    assert (await monque.get_schedule("work", "paused")).state == "paused"


async def test_a_schedule_of_jobs_stores_an_extra_one(monque: Monque) -> None:
    schedule = await monque.schedule("@yearly", "work", as_jobs=True)

    job = await monque.run_now(schedule.id)

    assert job.schedule_id == schedule.id
    assert job.status is JobStatus.PENDING


async def test_a_schedule_that_has_ended_is_refused(monque: Monque) -> None:
    schedule = await monque.schedule("@yearly", "work")
    await monque.unschedule("work")

    with pytest.raises(JobStateError, match=r"cannot run job .*: it is cancelled"):
        await monque.run_now(schedule.id)


async def test_a_job_that_waits_for_no_time_is_refused(monque: Monque, collection: Collection) -> None:
    parked = document(nextRunAt=PARKED, repeatInterval=None)
    await collection.insert_one(parked)

    with pytest.raises(JobStateError, match="it is parked, so it waits for something else than a time"):
        await monque.run_now(parked["_id"])
    await collection.delete_many({})


# Jobs ahead


async def test_the_time_of_a_job_that_waits_for_no_time_cannot_be_given(monque: Monque) -> None:
    """A job stored for it would look parked: no worker, and no `run_now`, would ever run it."""
    job = await monque.enqueue("work", delay=HOUR)

    with pytest.raises(ConfigurationError, match="run_at must not be 9999-12-31T23:59:59"):
        await monque.enqueue("work", run_at=PARKED)
    with pytest.raises(ConfigurationError, match="run_at must not be"):
        await monque.reschedule_job(job, PARKED)
    with pytest.raises(ConfigurationError, match="start must not be"):
        await monque.schedule("@daily", "work", start=PARKED)
    with pytest.raises(ConfigurationError, match="until must not be"):
        Snooze(until=PARKED)
    assert await monque.count_jobs() == 1


@pytest.mark.parametrize("apart", [timedelta(milliseconds=-1), timedelta(milliseconds=1)])
async def test_a_job_that_is_due_a_moment_before_or_after_that_can_be_run_now(
    apart: timedelta, monque: Monque
) -> None:
    monque.worker("work", lambda job: None)
    job = await monque.enqueue("work", run_at=PARKED + apart)

    assert not (await monque.run_now(job)).is_parked

    await monque.run_until_idle()
    assert (await monque.wait_for(job)).status is JobStatus.COMPLETED


async def test_jobs_are_ahead_that_are_due_earlier_or_were_stored_before(
    monque: Monque, collection: Collection
) -> None:
    at = ago(minutes=1)
    same = [document(nextRunAt=at) for _ in range(3)]
    earlier = [document(nextRunAt=ago(hours=1)) for _ in range(2)]
    others = [
        document(nextRunAt=ago(hours=2), name="other"),
        document(nextRunAt=ago(seconds=1)),
        document(nextRunAt=ahead(hours=1)),
        document(nextRunAt=ago(hours=2), status="failed"),
        document(nextRunAt="soon"),
    ]
    await collection.insert_many([*same, *earlier, *others])

    assert [await monque.jobs_ahead(job["_id"]) for job in same] == [2, 3, 4]
    job = await monque.get_job(same[2]["_id"])
    assert job is not None
    assert await monque.jobs_ahead(job) == 4
    assert await monque.jobs_ahead(job, limit=3) == 3
    assert await monque.jobs_ahead(earlier[0]["_id"]) == 0
    assert await monque.jobs_ahead(others[3]["_id"]) == 0
    assert await monque.jobs_ahead(others[4]["_id"]) == 0
    await collection.delete_many({})


async def test_more_urgent_jobs_are_ahead(monque: Monque, collection: Collection) -> None:
    await monque.begin_use("priority")
    at = ago(minutes=1)
    low, first = document(nextRunAt=at), document(nextRunAt=at, priority=3)
    second = document(nextRunAt=at, priority=3)
    late = document(nextRunAt=ago(seconds=1), priority=9)
    future = document(nextRunAt=ahead(hours=1), priority=9)
    tied = document(nextRunAt=at)
    await collection.insert_many([low, first, second, late, future, tied])

    found = {"late": late, "first": first, "second": second, "low": low, "tied": tied}
    ahead_of = {name: await monque.jobs_ahead(job["_id"]) for name, job in found.items()}

    assert ahead_of == {"late": 0, "first": 1, "second": 2, "low": 3, "tied": 4}


async def test_what_cannot_be_counted_is_refused(monque: Monque) -> None:
    with pytest.raises(JobNotFoundError):
        await monque.jobs_ahead("no-such-job")
    with pytest.raises(ConfigurationError, match="limit must be a whole number"):
        await monque.jobs_ahead("no-such-job", limit=0)


async def test_counting_stops_where_it_may(monque: Monque, collection: Collection) -> None:
    await collection.insert_many(document() for _ in range(5))

    assert [await monque.count_jobs(limit=limit) for limit in (3, 5, 9, None)] == [3, 5, 5, 5]
    with pytest.raises(ConfigurationError, match="limit must be a whole number"):
        await monque.count_jobs(limit=0)
