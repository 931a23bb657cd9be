"""How the last runs of a schedule ended, and since when a job runs."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from monque import Cancel, Fail, Job, JobFilter, Monque
from support.aliases import Collection
from support.clocks import ago, ahead
from support.jobs import claimed, document
from support.working import Pause, begin

MINUTE = timedelta(minutes=1)


@pytest.fixture
async def ends(monque: Monque, collection: Collection) -> list[Any]:
    """What the runs of the schedule `work` raise, one after the other."""
    raised: list[Any] = []

    @monque.worker("work")
    async def work(job: Job[Any]) -> None:
        if (error := raised.pop(0)) is not None:
            raise error

    await monque.schedule("@daily", "work")
    return raised


async def run(collection: Collection, monque: Monque, ends: list[Any], *errors: Exception | None) -> None:
    ends.extend(errors)
    for _ in errors:
        await collection.update_one({"status": "pending"}, {"$set": {"nextRunAt": ago(hours=1)}})
        await monque.run_until_idle()


async def test_a_schedule_shows_how_its_last_runs_ended(
    monque: Monque, ends: list[Any], collection: Collection
) -> None:
    assert (await monque.get_schedule("work")).recent_runs == ()

    await run(collection, monque, ends, None, Fail("no"), Cancel("not today"))

    schedule = await monque.get_schedule("work")
    assert [each.outcome for each in schedule.recent_runs] == ["completed", "failed", "cancelled"]
    [failed] = await monque.get_jobs(status="failed")
    assert [each.job_id for each in schedule.recent_runs] == [None, failed.id, None]
    assert all(timedelta(0) <= each.duration < MINUTE for each in schedule.recent_runs)
    assert schedule.last_run_at is not None
    assert abs(schedule.recent_runs[-1].at - schedule.last_run_at) < MINUTE


async def test_only_the_last_ten_runs_are_kept(
    monque: Monque, ends: list[Any], collection: Collection
) -> None:
    earlier = [{"at": ago(days=1), "ms": 5, "outcome": "failed"}] * 10
    await collection.update_one({}, {"$set": {"recentRuns": earlier}})

    await run(collection, monque, ends, None, None)

    found = (await monque.get_schedule("work")).recent_runs
    assert [each.outcome for each in found] == ["failed"] * 8 + ["completed"] * 2


async def test_runs_that_become_jobs_and_runs_that_are_skipped_are_among_them(
    monque: Monque, collection: Collection
) -> None:
    runs: list[Any] = []
    monque.worker("work", runs.append)
    await monque.schedule("@daily", "work", as_jobs=True, overlap="skip", grace=MINUTE)
    for late in (timedelta(seconds=1), timedelta(hours=2)):
        await collection.update_one(
            {"repeatInterval": {"$exists": True}}, {"$set": {"nextRunAt": ago() - late}}
        )
        await monque.run_until_idle()

    found = (await monque.get_schedule("work")).recent_runs
    assert [each.outcome for each in found] == ["stored", "skipped"]
    assert len(runs) == 1


@pytest.mark.parametrize(
    "odd",
    ["many", {"a": 1}, [1, {"at": 5, "outcome": "x"}, {"at": ago()}], 7],
    ids=["text", "document", "array", "number"],  # without the time, which differs between test processes
)
async def test_what_others_wrote_there_does_not_keep_a_schedule_from_going_on(
    monque: Monque, ends: list[Any], collection: Collection, odd: Any
) -> None:
    await collection.update_one({}, {"$set": {"recentRuns": odd}})
    assert (await monque.get_schedule("work")).recent_runs == ()

    await run(collection, monque, ends, None, Fail("no"))

    found = (await monque.get_schedule("work")).recent_runs
    assert [each.outcome for each in found] == ["completed", "failed"]


async def test_a_job_says_since_when_it_runs_until_it_ends(monque: Monque, collection: Collection) -> None:
    pause = Pause()
    await begin(monque, pause)
    await pause.wait()
    (job,) = await monque.get_jobs(status="processing")

    assert job.claimed_at is not None
    assert job.claimed_at == (await collection.find_one())["claimedAt"]
    assert (
        await monque.count_jobs(JobFilter(claimed_by=monque.instance_id, claimed_after=ago(minutes=5))) == 1
    )
    assert await monque.count_jobs(JobFilter(claimed_before=ago(minutes=5))) == 0
    assert await monque.count_jobs(JobFilter(claimed_by="other")) == 0
    pause.go_on.set()
    done = await monque.wait_for(job)
    assert done.claimed_at is None
    assert "claimedAt" not in await collection.find_one()


async def test_the_time_of_an_earlier_claim_counts_for_nothing(
    monque: Monque, collection: Collection
) -> None:
    """Other implementations do not remove it."""
    await collection.insert_many([document(claimedAt=ago(hours=1), nextRunAt=ahead(days=1)), claimed("ts")])

    assert [job.claimed_at for job in await monque.get_jobs()] == [None, None]
    assert await monque.count_jobs(JobFilter(claimed_before=ahead(hours=1))) == 0


async def test_schedules_can_be_told_from_other_jobs(monque: Monque) -> None:
    schedule = await monque.schedule("@daily", "work")
    job = await monque.enqueue("work")

    assert [each.id for each in await monque.list_jobs(JobFilter(recurring=True))] == [schedule.id]
    assert [each.id for each in await monque.list_jobs(JobFilter(recurring=False))] == [job.id]
