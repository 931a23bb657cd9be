"""Schedules with settings: late runs, jitter, bounds, jobs of their own, and what operators do to them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import timedelta
from itertools import pairwise
from typing import Any

import pytest
from bson import Int64

from monque import (
    Cancel,
    ConfigurationError,
    Fail,
    Job,
    JobFilter,
    JobNotFoundError,
    JobStatus,
    Monque,
    Options,
    Snooze,
)
from monque._store.document import PARKED
from support.aliases import Collection, Make
from support.clocks import ago, ahead, now
from support.jobs import claimed, document, find_one, only
from support.proxy import Proxy
from support.waiting import Events, eventually, start
from support.working import Pause

SECOND, MINUTE, HOUR = timedelta(seconds=1), timedelta(minutes=1), timedelta(hours=1)


async def make_due(collection: Collection, **fields: Any) -> None:
    """The time of every schedule has come three hours ago: nobody was there to run it."""
    query = {"status": "pending", "repeatInterval": {"$exists": True}}
    await collection.update_many(query, {"$set": {"nextRunAt": ago(hours=3), **fields}})


async def run(monque: Monque) -> Events:
    events = Events(monque)
    await monque.run_until_idle()
    return events


@pytest.fixture
def worker(monque: Monque) -> list[Job[Any]]:
    """A worker for `work`, and the runs that it has had."""
    runs: list[Job[Any]] = []
    monque.worker("work", runs.append)
    return runs


class TestDeclaring:
    async def test_an_interval_is_counted_from_its_first_declaration(
        self, monque: Monque, collection: Collection
    ) -> None:
        job = await monque.schedule(30 * SECOND, "work", jitter=3 * SECOND)
        stored = await only(collection)

        assert stored["schedule"] == {
            "every": 30_000,
            "anchor": stored["createdAt"],
            "jitter": 3000,
        }
        assert isinstance(stored["schedule"]["every"], Int64)
        assert stored["repeatInterval"] == "* * * * *"
        assert timedelta(0) <= stored["nextRunAt"] - stored["createdAt"] - 30 * SECOND <= 3 * SECOND
        assert job.next_run_at == stored["nextRunAt"]

    async def test_all_settings_are_stored_and_shown(self, monque: Monque, collection: Collection) -> None:
        first, last = ahead(days=1), ahead(days=9)
        settings = {"grace": MINUTE, "jitter": SECOND, "start": first, "end": last, "limit": 7}
        await monque.schedule(
            "0 9 * * *", "work", {"a": 1}, unique_key="k", as_jobs=True, overlap="skip", **settings
        )
        schedule = await monque.get_schedule("work", "k")

        assert {name: getattr(schedule, name) for name in settings} == settings
        assert (schedule.as_jobs, schedule.overlap, schedule.data) == (True, "skip", {"a": 1})
        assert (schedule.cron, schedule.every, schedule.timezone) == ("0 9 * * *", None, "UTC")
        assert (schedule.state, schedule.run_count, schedule.skip_count) == ("active", 0, 0)
        assert schedule.next_runs(20) == sorted(schedule.next_runs(20))
        assert len(schedule.next_runs(20)) == 7
        assert schedule.next_runs(2)[0] == schedule.next_run_at
        assert (await only(collection))["schedule"] == {
            "jitter": 1000,
            "grace": 60_000,
            "startAt": first,
            "endAt": last,
            "limit": 7,
            "asJobs": True,
            "overlap": "skip",
        }

    @pytest.mark.parametrize(
        ("cron", "settings", "named"),
        [
            (timedelta(milliseconds=999), {}, "at least 1 second"),
            (30, {}, "text"),
            ("@daily", {"grace": 5}, "grace"),
            ("@daily", {"jitter": timedelta(0)}, "jitter"),
            ("@daily", {"start": "tomorrow"}, "start"),
            ("@daily", {"end": now().replace(tzinfo=None)}, "end"),
            ("@daily", {"start": ahead(days=2), "end": ahead(days=1)}, "before start"),
            ("@daily", {"limit": 0}, "limit"),
            ("@daily", {"as_jobs": 1}, "as_jobs"),
            ("@daily", {"as_jobs": True, "overlap": "queue"}, "overlap"),
            ("@daily", {"overlap": "skip"}, "as_jobs"),
            ("@daily", {"paused": "yes"}, "paused"),
            (SECOND, {"jitter": MINUTE}, "longer than the interval"),
            ("@daily", {"misfire": 1}, "misfire"),
        ],
    )
    async def test_a_wrong_setting_is_refused_before_anything_is_stored(
        self, cron: Any, settings: Any, named: str, monque: Monque, collection: Collection
    ) -> None:
        with pytest.raises(ConfigurationError, match=named):
            await monque.schedule(cron, "work", **settings)
        assert await collection.count_documents({}) == 0

    @pytest.mark.parametrize(
        "settings",
        [
            {},
            {"grace": MINUTE, "limit": 3, "end": ahead(days=400)},
            {"jitter": SECOND, "as_jobs": True, "overlap": "skip"},
        ],
        ids=["plain", "bounds", "as-jobs"],
    )
    @pytest.mark.parametrize("cron", [7 * SECOND, "*/5 * * * *"], ids=["interval", "cron"])
    async def test_declaring_again_changes_nothing(
        self, cron: Any, settings: Any, monque: Monque, collection: Collection
    ) -> None:
        await monque.schedule(cron, "work", **settings)
        await collection.update_one({}, {"$set": {"updatedAt": ago(hours=1)}})
        stored = await only(collection)
        again = await monque.schedule(cron, "work", paused=True, **settings)

        assert await only(collection) == stored
        assert again.next_run_at == stored["nextRunAt"]

    async def test_another_interval_is_counted_from_the_same_moment(
        self, monque: Monque, collection: Collection
    ) -> None:
        await monque.schedule(HOUR, "work")
        anchor = (await only(collection))["schedule"]["anchor"]
        await monque.schedule(2 * HOUR, "work", grace=MINUTE)
        stored = await only(collection)

        assert stored["schedule"] == {"every": 7_200_000, "anchor": anchor, "grace": 60_000}
        assert stored["nextRunAt"] == anchor + 2 * HOUR

    async def test_settings_that_are_not_declared_any_more_go(
        self, monque: Monque, collection: Collection
    ) -> None:
        await monque.schedule(HOUR, "work", limit=3)
        await monque.schedule("@hourly", "work")
        stored = await only(collection)

        assert "schedule" not in stored
        assert (stored["repeatInterval"], stored["nextRunAt"].minute) == ("@hourly", 0)

    async def test_two_declarers_that_disagree_leave_one_of_them_whole_and_never_starve_it(
        self, make_monque: Make, collection: Collection
    ) -> None:
        one, other = await make_monque().open(), await make_monque().open()
        await one.schedule(HOUR, "work", jitter=SECOND)
        anchor = (await only(collection))["schedule"]["anchor"]
        for _ in range(3):
            await asyncio.gather(
                one.schedule(HOUR, "work", jitter=SECOND), other.schedule(2 * HOUR, "work", limit=5)
            )
        stored = await only(collection)

        assert {"every": stored["schedule"]["every"], **stored["schedule"]} in (
            {"every": 3_600_000, "anchor": anchor, "jitter": 1000},
            {"every": 7_200_000, "anchor": anchor, "limit": 5},
        )
        assert stored["nextRunAt"] <= anchor + 2 * HOUR

    async def test_a_time_that_typescript_left_is_repaired_to_the_interval(
        self, monque: Monque, collection: Collection
    ) -> None:
        await monque.schedule(7 * MINUTE, "work")
        stored = await only(collection)
        await collection.update_one({}, {"$set": {"nextRunAt": stored["nextRunAt"] + 90 * SECOND}})
        await monque.schedule(7 * MINUTE, "work")

        assert (await only(collection))["nextRunAt"] == stored["nextRunAt"]

    async def test_a_declaration_after_the_end_is_no_error_and_never_runs(
        self, monque: Monque, collection: Collection, worker: list[Job[Any]]
    ) -> None:
        for _ in range(2):
            job = await monque.schedule("@hourly", "work", end=ago(days=1))
        await monque.run_until_idle()

        assert (await only(collection))["_id"] == job.id
        assert job.status is JobStatus.COMPLETED
        assert worker == []

    async def test_declarations_after_their_ends_are_one_schedule_wherever_the_ends_are(
        self, monque: Monque, collection: Collection
    ) -> None:
        """A program that reckons the end from now declares another one at each start."""
        first, second = [
            await monque.schedule("@hourly", "work", end=end)
            for end in (ago(days=1), ago(days=1) + timedelta(milliseconds=1))
        ]

        assert (await only(collection))["_id"] == first.id == second.id

    async def test_an_end_that_is_moved_into_the_future_begins_anew(
        self, monque: Monque, collection: Collection
    ) -> None:
        await monque.schedule("@hourly", "work", end=ago(days=1))
        job = await monque.schedule("@hourly", "work", end=ahead(days=1))

        assert (job.status, await collection.count_documents({})) == (JobStatus.PENDING, 2)

    async def test_an_end_that_is_moved_before_the_next_time_ends_it(
        self, monque: Monque, collection: Collection
    ) -> None:
        await monque.schedule("@yearly", "work")
        job = await monque.schedule("@yearly", "work", end=ahead(seconds=1))

        assert (job.status, await monque.list_schedules()) == (JobStatus.COMPLETED, [])

    async def test_a_plain_cron_has_nothing_of_all_this(self, monque: Monque, collection: Collection) -> None:
        await monque.schedule("@hourly", "work")

        assert not {"schedule", "runCount", "skipCount", "lastRunAt"} & {*await only(collection)}


class TestThreeHoursOfOutage:
    """A schedule was due three hours ago, and many of its times have passed since."""

    @pytest.mark.parametrize("cron", ["*/5 * * * *", 5 * MINUTE], ids=["cron", "interval"])
    async def test_by_default_it_runs_once_however_late(
        self, cron: Any, monque: Monque, collection: Collection, worker: list[Job[Any]]
    ) -> None:
        await monque.schedule(cron, "work", limit=100)
        await make_due(collection)
        await run(monque)
        stored = await only(collection)

        assert len(worker) == 1
        assert stored["runCount"] == 1
        # The server reads its clock for each of the two stamps.
        assert timedelta(0) <= stored["updatedAt"] - stored["lastRunAt"] < MINUTE
        assert now() < stored["nextRunAt"] <= ahead(minutes=5, seconds=1)

    async def test_with_a_grace_it_skips_and_goes_on(
        self, monque: Monque, collection: Collection, worker: list[Job[Any]]
    ) -> None:
        await monque.schedule("*/5 * * * *", "work", grace=HOUR)
        await make_due(collection, failCount=2, failReason="before")
        events = await run(monque)
        stored = await only(collection)

        assert worker == []
        assert (stored["skipCount"], stored["failCount"], stored.get("runCount")) == (1, 0, None)
        assert (stored["status"], "failReason" in stored) == ("pending", False)
        assert now() < stored["nextRunAt"] <= ahead(minutes=5, seconds=1)
        [skipped] = events.of("schedule:skipped")
        assert (skipped.schedule.name, skipped.schedule.skip_count) == ("work", 1)
        assert not {"job:start", "job:complete", "job:fail"} & {*events.kinds()}

    async def test_within_its_grace_it_runs(
        self, monque: Monque, collection: Collection, worker: list[Job[Any]]
    ) -> None:
        await monque.schedule("*/5 * * * *", "work", grace=4 * HOUR)
        await make_due(collection)
        await run(monque)

        assert len(worker) == 1

    async def test_as_jobs_it_stores_one_job_for_the_time_that_was_due(
        self, monque: Monque, collection: Collection, worker: list[Job[Any]]
    ) -> None:
        schedule = await monque.schedule("*/5 * * * *", "work", "data", as_jobs=True, max_attempts=7)
        await make_due(collection)
        due = (await only(collection))["nextRunAt"]
        events = await run(monque)

        [job] = worker
        assert (job.schedule_id, job.planned_for, job.next_run_at) == (schedule.id, due, due)
        assert (job.data, job.unique_key, job.cron) == ("data", None, None)
        stored = await find_one(collection, {"_id": job.id})
        assert (stored["status"], stored["policy"]) == ("completed", {"maxAttempts": 7})
        kept = await monque.get_schedule("work")
        assert (kept.run_count, kept.state) == (1, "active")
        assert kept.last_run_at is not None
        assert kept.next_run_at is not None
        assert kept.next_run_at > now()
        assert [event.job.id for event in events.of("job:complete")] == [job.id]
        assert [found.id async for found in monque.iter_jobs(JobFilter(schedule_id=schedule.id))] == [job.id]

    async def test_as_jobs_with_a_grace_it_stores_none(
        self, monque: Monque, collection: Collection, worker: list[Job[Any]]
    ) -> None:
        await monque.schedule("*/5 * * * *", "work", as_jobs=True, grace=HOUR)
        await make_due(collection)
        events = await run(monque)

        assert (worker, len(events.of("schedule:skipped"))) == ([], 1)


class TestJobsOfTheirOwn:
    async def test_runs_may_overlap(self, monque: Monque, collection: Collection) -> None:
        pause = Pause()
        monque.worker("work", pause, concurrency=5)
        await monque.schedule("@hourly", "work", as_jobs=True)
        await make_due(collection)
        events = await start(monque)
        await pause.wait()
        await make_due(collection, nextRunAt=ago(hours=2))
        monque._processing.wake(await collection.find().to_list())

        await events.wait("job:start", 2)
        pause.go_on.set()
        await events.wait("job:complete", 2)
        assert (await monque.get_schedule("work")).run_count == 2

    async def test_with_overlap_skip_none_is_stored_while_one_is_active(
        self, monque: Monque, collection: Collection
    ) -> None:
        schedule = await monque.schedule("@hourly", "work", as_jobs=True, overlap="skip")
        active = document(name="other", uniqueKey=f"schedule:{schedule.id}")
        await collection.insert_one({**active, "name": "work", "nextRunAt": ahead(days=1)})
        await make_due(collection)
        monque.worker("work", lambda _job: None)
        events = await run(monque)
        kept = await monque.get_schedule("work")

        assert (kept.run_count, kept.skip_count, kept.state) == (0, 1, "active")
        assert len(events.of("schedule:skipped")) == 1
        assert await collection.count_documents({"scheduleId": schedule.id}) == 0

    async def test_with_overlap_skip_the_next_one_is_stored_when_the_last_has_ended(
        self, monque: Monque, collection: Collection, worker: list[Job[Any]]
    ) -> None:
        await monque.schedule("@hourly", "work", as_jobs=True, overlap="skip")
        for hours in (3, 2):
            await make_due(collection, nextRunAt=ago(hours=hours))
            await run(monque)

        assert [job.planned_for for job in worker] != []
        assert len({job.id for job in worker}) == 2

    @pytest.mark.parametrize("overlap", ["allow", "skip"])
    @pytest.mark.parametrize("job_status", ["pending", "completed"])
    async def test_a_process_that_died_between_storing_and_going_on_stored_it_once(
        self, overlap: Any, job_status: str, make_monque: Make, collection: Collection
    ) -> None:
        """The job is stored, its process dies, and the schedule is recovered and comes to the same time."""
        monque = await make_monque().open()
        runs: list[Job[Any]] = []
        monque.worker("work", runs.append)
        schedule = await monque.schedule("@hourly", "work", as_jobs=True, overlap=overlap)
        await make_due(collection)
        due = (await only(collection))["nextRunAt"]
        await monque.run_until_idle()
        [job] = runs
        dead = claimed("dead", lastHeartbeat=ago(hours=1))
        again = {key: dead[key] for key in ("status", "claimedBy", "lockedAt", "lastHeartbeat")}
        await collection.update_one({"_id": schedule.id}, {"$set": {**again, "nextRunAt": due}})
        await collection.update_one({"_id": job.id}, {"$set": {"status": job_status}, "$inc": {"attempt": 0}})
        await monque.close()

        second = await make_monque().open()  # it recovers the schedule
        second.worker("work", runs.append)
        await second.run_until_idle()

        assert await collection.count_documents({"scheduleId": schedule.id}) == 1
        assert {run.id for run in runs} == {job.id}
        kept = await second.get_schedule("work")
        assert (kept.state, kept.skip_count) == ("active", 0)
        assert kept.next_run_at is not None
        assert kept.next_run_at > now()

    async def test_a_run_that_is_skipped_does_not_count_against_the_limit(
        self, monque: Monque, collection: Collection
    ) -> None:
        schedule = await monque.schedule("@hourly", "work", as_jobs=True, overlap="skip", limit=1)
        active = document(name="work", uniqueKey=f"schedule:{schedule.id}", nextRunAt=ahead(days=1))
        await collection.insert_one(active)
        await make_due(collection)
        monque.worker("work", lambda _job: None)
        events = await run(monque)
        kept = await monque.get_schedule("work")

        assert (kept.run_count, kept.skip_count, kept.state) == (0, 1, "active")
        assert (len(events.of("schedule:skipped")), len(events.of("schedule:ended"))) == (1, 0)

    @pytest.mark.parametrize("overlap", ["allow", "skip"])
    async def test_a_trigger_from_before_it_stored_jobs_makes_one_more_and_no_endless_row(
        self, overlap: Any, monque: Monque, collection: Collection, worker: list[Job[Any]]
    ) -> None:
        """It was triggered while it ran; then it was declared anew, and its process was stopped."""
        await monque.schedule("@yearly", "work", as_jobs=True, overlap=overlap)
        await make_due(collection, **{"schedule.triggeredAt": now()})
        await run(monque)
        kept = await monque.get_schedule("work")

        assert kept.run_count + kept.skip_count == 2
        assert kept.run_count == len(worker)
        assert "triggeredAt" not in (await find_one(collection, {"_id": kept.id}))["schedule"]
        assert kept.next_run_at is not None
        assert kept.next_run_at > now()

    async def test_each_job_has_its_own_retries_and_the_schedule_does_not_fail(
        self, make_monque: Make, collection: Collection
    ) -> None:
        monque = await make_monque(options=Options(max_retries=1)).open()

        @monque.worker("work")
        def work(job: Job[Any]) -> None:
            raise RuntimeError("no")

        schedule = await monque.schedule("@hourly", "work", as_jobs=True)
        await make_due(collection)
        await run(monque)
        stored = await find_one(collection, {"scheduleId": schedule.id})
        kept = await find_one(collection, {"_id": schedule.id})

        assert (stored["status"], stored["failCount"], len(stored["history"])) == ("failed", 1, 1)
        assert (kept["status"], kept["failCount"], "history" in kept) == ("pending", 0, False)

    async def test_an_extra_job_leaves_the_times_as_they_are_and_counts(
        self, monque: Monque, collection: Collection, worker: list[Job[Any]]
    ) -> None:
        schedule = await monque.schedule("@yearly", "work", "data", as_jobs=True, limit=1)
        job = await monque.trigger_schedule("work")
        await run(monque)
        kept = await monque.get_schedule("work")

        assert [each.id for each in worker] == [job.id] != [schedule.id]
        assert (kept.run_count, kept.next_run_at) == (1, schedule.next_run_at)
        await make_due(collection)
        events = await run(monque)
        assert len(worker) == 1  # that was all that its limit allows
        assert len(events.of("schedule:ended")) == 1

    async def test_an_extra_job_that_would_overlap_is_not_stored(self, monque: Monque) -> None:
        await monque.schedule("@yearly", "work", as_jobs=True, overlap="skip")
        job = await monque.trigger_schedule("work")

        assert (await monque.trigger_schedule("work")).id == job.id
        assert (await monque.get_schedule("work")).run_count == 1


class TestEnding:
    @pytest.mark.parametrize("ending", [None, RuntimeError("no"), Cancel("enough"), Fail("no")], ids=str)
    async def test_the_limit_counts_runs_that_ended_however_they_did(
        self, ending: Exception | None, make_monque: Make, collection: Collection
    ) -> None:
        monque = await make_monque(options=Options(max_retries=1)).open()

        @monque.worker("work")
        def work(job: Job[Any]) -> None:
            if ending is not None:
                raise ending

        job = await monque.schedule("@hourly", "work", limit=2)
        events = Events(monque)
        for _ in range(4):
            await make_due(collection)
            await monque.run_until_idle()
        stored = await find_one(collection, {"_id": job.id})

        assert (stored["status"], stored["runCount"]) == ("completed", 2)
        assert len(events.of("job:start")) == 2
        [ended] = events.of("schedule:ended")
        assert (ended.schedule.id, ended.schedule.run_count) == (job.id, 2)
        again = await monque.schedule("@hourly", "work", limit=2)
        assert again.id == job.id  # it does not begin anew at the next start of the program

    async def test_the_limit_counts_neither_tries_nor_crashes(
        self, make_monque: Make, collection: Collection
    ) -> None:
        """A run is tried three times and its process dies once: that is one run."""
        monque = await make_monque(options=Options(max_retries=9, base_retry_interval=SECOND)).open()
        runs: list[Job[Any]] = []

        @monque.worker("work")
        def work(job: Job[Any]) -> None:
            runs.append(job)
            if len(runs) <= 2:
                raise RuntimeError("no")

        job = await monque.schedule("@hourly", "work", limit=1)
        for _ in range(2):
            await make_due(collection)
            await monque.run_until_idle()
        dead = claimed("dead", lastHeartbeat=ago(hours=1))
        crashed = {key: dead[key] for key in ("status", "claimedBy", "lockedAt", "lastHeartbeat")}
        await collection.update_one({}, {"$set": {**crashed, "nextRunAt": ago(hours=3)}})
        await monque.close()
        stored = await only(collection)
        assert (stored["status"], stored["failCount"], stored.get("runCount", 0)) == ("processing", 2, 0)

        last = await make_monque().open()
        last.worker("work", runs.append)
        await last.run_until_idle()
        stored = await only(collection)
        assert (stored["_id"], stored["status"], stored["runCount"]) == (job.id, "completed", 1)
        assert len(runs) == 3

    async def test_a_last_run_that_kills_its_processes_ends_the_schedule(
        self, make_monque: Make, collection: Collection
    ) -> None:
        recurring = {"uniqueKey": "work", "repeatInterval": "@hourly", "timezone": "UTC", "runCount": 1}
        dead = claimed("dead", crashCount=2, lastHeartbeat=ago(hours=1), schedule={"limit": 2}, **recurring)
        await collection.insert_one(dead)
        monque = make_monque(options=Options(max_retries=3))
        events = Events(monque)
        await monque.open()
        stored = await find_one(collection, {"_id": dead["_id"]})

        assert (stored["status"], stored["runCount"]) == ("completed", 2)
        assert await collection.count_documents({"scheduleId": dead["_id"], "status": "failed"}) == 1
        assert len(events.of("schedule:ended")) == 1

    async def test_after_its_last_time_a_schedule_is_completed(
        self, monque: Monque, collection: Collection, worker: list[Job[Any]]
    ) -> None:
        job = await monque.schedule("0 * * * *", "work", end=ahead(hours=1, seconds=5))
        await make_due(collection)
        await collection.update_one({}, {"$set": {"schedule.endAt": ago(minutes=1)}})
        events = await run(monque)

        assert len(worker) == 1  # late, and for a time before the end
        assert (await find_one(collection, {"_id": job.id}))["status"] == "completed"
        assert [event.job.status for event in events.of("job:complete")] == [JobStatus.COMPLETED]
        assert events.kinds().index("job:complete") < events.kinds().index("schedule:ended")


class TestPausing:
    async def test_a_paused_schedule_is_parked_until_it_is_resumed(
        self, monque: Monque, collection: Collection, worker: list[Job[Any]]
    ) -> None:
        job = await monque.schedule("@hourly", "work")
        await make_due(collection)
        events = Events(monque)
        paused = await monque.pause_schedule("work")
        await monque.pause_schedule("work")
        await monque.run_until_idle()
        stored = await only(collection)

        assert (paused.state, paused.next_run_at, paused.next_runs()) == ("paused", None, [])
        assert paused.paused_at is not None
        assert (stored["nextRunAt"], worker) == (PARKED, [])
        shown = await monque.get_job(job.id)
        assert shown is not None
        assert (shown.is_parked, shown.next_run_at) == (True, None)
        assert await monque.count_jobs(JobFilter(due_before=ahead(days=999_999))) == 0

        resumed = await monque.resume_schedule("work")
        await monque.resume_schedule("work")
        stored = await only(collection)
        assert (resumed.state, resumed.paused_at) == ("active", None)
        assert resumed.next_run_at == stored["nextRunAt"]
        assert now() < stored["nextRunAt"] <= ahead(hours=1, seconds=1)
        assert "schedule" not in stored
        assert [kind for kind in events.kinds() if kind.startswith("schedule")] == [
            "schedule:paused",
            "schedule:resumed",
        ]

    @pytest.mark.parametrize("as_jobs", [False, True])
    async def test_no_time_within_a_pause_counts_for_a_run_that_took_longer_than_the_pause(
        self, make_monque: Make, collection: Collection, as_jobs: bool
    ) -> None:
        """The run ends and plans its next time; it is paused and resumed; only then the plan is written."""
        async with Proxy(await collection.database.client.address) as proxy:
            monque = await make_monque(proxy.uri(collection.database.name)).open()
            operator = await make_monque().open()
            monque.worker("work", lambda job: None)
            await operator.schedule(SECOND, "work", as_jobs=as_jobs)
            ending = proxy.hold(lambda message: b"settledAttempt" in message)
            await monque.start()
            await ending.wait()
            paused = await operator.pause_schedule("work")

            def is_over() -> None:
                assert paused.paused_at is not None
                assert operator.server_time() > paused.paused_at + SECOND

            await eventually(is_over)
            resumed_at = operator.server_time()
            await operator.resume_schedule("work")
            stopping = asyncio.create_task(monque.stop())
            ending.release()
            await stopping
            await monque.close()
        stored = await find_one(collection, {"repeatInterval": {"$exists": True}})

        assert stored["status"] == "pending"
        assert paused.paused_at is not None
        assert not paused.paused_at < stored["nextRunAt"] < resumed_at  # it may be put back as it was before
        assert stored["schedule"].get("pausedAt") is None

    async def test_declaring_it_again_leaves_a_paused_schedule_paused(
        self, monque: Monque, collection: Collection
    ) -> None:
        await monque.schedule(MINUTE, "work", limit=3)
        await monque.pause_schedule("work")
        stored = await only(collection)
        await monque.schedule(MINUTE, "work", limit=3)
        assert await only(collection) == stored

        await monque.schedule("@daily", "work", "new")
        stored = await only(collection)
        assert (stored["nextRunAt"], stored["data"], stored["repeatInterval"]) == (PARKED, "new", "@daily")
        assert {*stored["schedule"]} == {"pausedAt"}

    async def test_it_can_be_stored_paused(self, monque: Monque) -> None:
        job = await monque.schedule("@hourly", "work", paused=True)

        assert (job.is_parked, job.next_run_at) == (True, None)
        assert (await monque.get_schedule("work")).state == "paused"
        assert (await monque.resume_schedule("work")).next_run_at is not None

    async def test_a_schedule_whose_end_passes_while_it_is_paused_ends_when_it_is_resumed(
        self, monque: Monque, collection: Collection
    ) -> None:
        await monque.schedule("@hourly", "work", end=ahead(days=1), paused=True)
        await collection.update_one({}, {"$set": {"schedule.endAt": ago(days=1)}})
        events = Events(monque)
        await monque.resume_schedule("work")

        assert (await only(collection))["status"] == "completed"
        assert events.kinds() == ["schedule:resumed", "schedule:ended"]

    @pytest.mark.parametrize("ending", [None, RuntimeError("no"), Snooze(timedelta(0))], ids=str)
    async def test_paused_while_it_runs_it_is_parked_after_that(
        self, ending: Exception | None, make_monque: Make, collection: Collection
    ) -> None:
        monque = await make_monque(options=Options(base_retry_interval=timedelta(milliseconds=1))).open()
        pause = Pause()

        @monque.worker("work")
        async def work(job: Job[Any]) -> None:
            await pause()
            if ending is not None:
                raise ending

        await monque.schedule("@hourly", "work")
        await make_due(collection)
        events = await start(monque)
        await pause.wait()
        assert (await monque.pause_schedule("work")).state == "running"
        pause.go_on.set()

        async def parked() -> None:
            stored = await only(collection)
            assert (stored["status"], stored["nextRunAt"]) == ("pending", PARKED)

        await eventually(parked)
        assert len(events.of("job:start")) == 1
        assert (await monque.resume_schedule("work")).state == "active"

    async def test_unknown_schedules_and_one_off_jobs_are_not_found(self, monque: Monque) -> None:
        await monque.enqueue("work", unique_key="work")
        calls: list[Callable[..., Any]] = [
            monque.get_schedule,
            monque.pause_schedule,
            monque.resume_schedule,
            monque.trigger_schedule,
        ]
        for call in calls:
            with pytest.raises(JobNotFoundError, match="no schedule of 'work' with the key 'k'"):
                await call("work", "k")
            with pytest.raises(JobNotFoundError):
                await call("work")
        assert not await monque.unschedule("work")


class TestChangedWhileRunning:
    async def hold(self, monque: Monque, collection: Collection, **settings: Any) -> tuple[Pause, Events]:
        pause = Pause()
        monque.worker("work", pause)
        await monque.schedule("@hourly", "work", **settings)
        await make_due(collection)
        events = await start(monque)
        await pause.wait()
        return pause, events

    async def test_other_settings_count_after_the_run(self, monque: Monque, collection: Collection) -> None:
        pause, events = await self.hold(monque, collection)
        await monque.schedule(7 * MINUTE, "work", limit=5)
        pause.go_on.set()
        await events.wait("job:complete")
        stored = await only(collection)

        assert (stored["nextRunAt"] - stored["schedule"]["anchor"]) % (7 * MINUTE) == timedelta(0)
        assert (stored["status"], stored["runCount"]) == ("pending", 1)

    async def test_a_limit_that_is_reached_ends_it(self, monque: Monque, collection: Collection) -> None:
        pause, events = await self.hold(monque, collection)
        await monque.schedule("@hourly", "work", limit=1)
        pause.go_on.set()
        await events.wait("schedule:ended")

        assert (await only(collection))["status"] == "completed"

    async def test_changed_in_a_transaction_that_commits_and_in_one_that_aborts(
        self, monque: Monque, collection: Collection
    ) -> None:
        pause, events = await self.hold(monque, collection)
        async with monque.client.start_session() as session:
            await session.start_transaction()
            await monque.schedule("@hourly", "work", limit=1, session=session)
            await session.abort_transaction()
            await session.start_transaction()
            await monque.schedule(7 * MINUTE, "work", session=session)
            await session.commit_transaction()
        pause.go_on.set()
        await events.wait("job:complete")
        stored = await only(collection)

        assert (stored["status"], {*stored["schedule"]}) == ("pending", {"every", "anchor"})
        assert stored["nextRunAt"] > now()

    async def test_triggered_while_it_runs_it_runs_once_more(
        self, monque: Monque, collection: Collection
    ) -> None:
        pause, events = await self.hold(monque, collection)
        for _ in range(2):
            await monque.trigger_schedule("work")
        pause.go_on.set()
        await events.wait("job:complete", 2)
        stored = await only(collection)

        assert (stored["runCount"], "schedule" in stored) == (2, False)
        assert (stored["status"], stored["nextRunAt"].minute) == ("pending", 0)
        assert stored["nextRunAt"] > now()

    @pytest.mark.parametrize("ending", [None, RuntimeError("no"), Snooze(HOUR)], ids=str)
    async def test_unscheduled_while_it_runs_it_is_cancelled_after_that_however_it_ends(
        self, ending: Exception | None, monque: Monque, collection: Collection
    ) -> None:
        pause, interrupted = Pause(), list[bool]()

        @monque.worker("work")
        async def work(job: Job[Any]) -> None:
            await pause()
            interrupted.append(job.interrupted)
            if ending is not None:
                raise ending

        await monque.schedule("@hourly", "work")
        await make_due(collection)
        events = await start(monque)
        await pause.wait()
        assert await monque.unschedule("work")
        assert await monque.unschedule("work")
        assert (await only(collection))["status"] == "processing"
        pause.go_on.set()
        await events.wait("job:cancelled")

        assert (await only(collection))["status"] == "cancelled"
        assert interrupted == [False]
        assert not await monque.unschedule("work")

    async def test_declared_again_before_the_run_ends_it_goes_on(
        self, monque: Monque, collection: Collection
    ) -> None:
        pause, events = await self.hold(monque, collection)
        await monque.unschedule("work")
        await asyncio.sleep(0)
        await monque.schedule("@hourly", "work")
        pause.go_on.set()
        await events.wait("job:complete")
        stored = await only(collection)

        assert (stored["status"], "cancel" in stored) == ("pending", False)

    async def test_a_run_of_an_unscheduled_one_can_still_be_stopped(
        self, monque: Monque, collection: Collection
    ) -> None:
        _, events = await self.hold(monque, collection)
        await monque.unschedule("work")
        stored = await only(collection)
        await monque.cancel_job(stored["_id"], running=True)
        await events.wait("job:cancelled")

        assert (await only(collection))["status"] == "cancelled"


class TestTriggering:
    async def test_a_waiting_schedule_runs_now_and_keeps_its_times(
        self, monque: Monque, collection: Collection, worker: list[Job[Any]]
    ) -> None:
        before = await monque.schedule("@yearly", "work", grace=HOUR)
        job = await monque.trigger_schedule("work")
        assert job.id == before.id
        await monque.schedule("@yearly", "work", grace=HOUR)  # leaves the time as it is
        await run(monque)
        stored = await only(collection)

        assert len(worker) == 1
        assert (stored["nextRunAt"], stored["runCount"]) == (before.next_run_at, 1)

    async def test_a_paused_schedule_runs_once_and_stays_paused(
        self, monque: Monque, collection: Collection, worker: list[Job[Any]]
    ) -> None:
        await monque.schedule("@hourly", "work", paused=True)
        await monque.trigger_schedule("work")
        await run(monque)

        assert len(worker) == 1
        assert (await only(collection))["nextRunAt"] == PARKED
        assert (await monque.get_schedule("work")).state == "paused"


class TestListing:
    async def test_schedules_are_listed_by_name_and_key(self, monque: Monque, collection: Collection) -> None:
        await monque.enqueue("a", unique_key="one-off")
        for name, key in (("b", "b"), ("a", "z"), ("a", "a")):
            await monque.schedule("@daily", name, unique_key=key)
        await monque.schedule("@daily", "gone")
        assert await monque.unschedule("gone")

        listed = [(each.name, each.key) for each in await monque.list_schedules()]
        assert listed == [("a", "a"), ("a", "z"), ("b", "b")]
        assert [each.key for each in await monque.list_schedules(name="a")] == ["a", "z"]

    async def test_many_waiting_jobs_do_not_slow_it_down(
        self, monque: Monque, collection: Collection
    ) -> None:
        await collection.insert_many([document(name="a", nextRunAt=ahead(days=1)) for _ in range(500)])
        await monque.schedule("@daily", "a")
        await monque.list_schedules()  # it knows a plan by now
        query = {
            "uniqueKey": {"$exists": True},
            "status": {"$in": ["pending", "processing"]},
            "repeatInterval": {"$ne": None},
        }
        explained = await collection.find(query, sort={"name": 1, "uniqueKey": 1}).explain()

        assert explained["executionStats"]["totalDocsExamined"] <= 1

    async def test_what_somebody_wrote_by_hand_is_shown(self, monque: Monque, collection: Collection) -> None:
        odd = {"every": "?", "jitter": -1, "limit": True, "endAt": 5, "pausedAt": "no", "overlap": 7}
        recurring = {"uniqueKey": "k", "repeatInterval": "whenever", "timezone": 5, "schedule": odd}
        await collection.insert_one(document(**recurring))
        [schedule] = await monque.list_schedules()

        assert (schedule.cron, schedule.every, schedule.limit, schedule.state) == (
            "whenever",
            None,
            None,
            "active",
        )
        assert schedule.next_runs(3) == [schedule.next_run_at]

    async def test_settings_that_python_cannot_hold_do_not_keep_a_run_from_being_settled(
        self, monque: Monque, collection: Collection, worker: list[Job[Any]]
    ) -> None:
        await monque.schedule("@hourly", "work", end=PARKED)
        await make_due(collection)
        await collection.update_one(
            {}, [{"$set": {"schedule.endAt": {"$add": ["$schedule.endAt", 86_400_000_000]}}}]
        )
        await run(monque)
        stored = await find_one(collection, {}, {"runCount": 1})
        await collection.update_one({}, {"$unset": {"schedule": ""}})  # no client of the tests can read it

        assert (len(worker), stored["runCount"]) == (1, 1)


async def test_intervals_start_at_their_times(make_monque: Make) -> None:
    monque = await make_monque().open()
    planned: list[Any] = []
    monque.worker("work", lambda job: planned.append(job.next_run_at))
    events = await start(monque)
    await monque.schedule(SECOND, "work")
    await events.wait("job:complete", 3)

    assert all(later - earlier >= SECOND for earlier, later in pairwise(planned))
    assert all((later - planned[0]) % SECOND == timedelta(0) for later in planned)


class TestInATransaction:
    """`complete_in` decides as every other end of a run does."""

    async def complete(self, monque: Monque, collection: Collection, change: Any, **settings: Any) -> Events:
        @monque.worker("work")
        async def work(job: Job[Any]) -> None:
            async with monque.client.start_session() as session, await session.start_transaction():
                await change()
                await job.complete_in(session)

        await monque.schedule("@hourly", "work", **settings)
        await make_due(collection)
        return await run(monque)

    async def test_the_last_run_ends_the_schedule(self, monque: Monque, collection: Collection) -> None:
        events = await self.complete(monque, collection, lambda: asyncio.sleep(0), limit=1)
        stored = await only(collection)

        assert (stored["status"], stored["runCount"]) == ("completed", 1)
        assert events.kinds()[-2:] == ["job:complete", "schedule:ended"]

    async def test_a_pause_before_the_completion_counts_in_it(
        self, monque: Monque, collection: Collection
    ) -> None:
        await self.complete(monque, collection, lambda: monque.pause_schedule("work"))
        stored = await only(collection)

        assert (stored["status"], stored["nextRunAt"], stored["runCount"]) == ("pending", PARKED, 1)

    async def test_a_removed_schedule_is_cancelled_by_it(
        self, monque: Monque, collection: Collection
    ) -> None:
        await self.complete(monque, collection, lambda: monque.unschedule("work"))

        assert (await only(collection))["status"] == "cancelled"


async def test_a_job_of_its_own_has_a_result_and_can_be_waited_for(
    monque: Monque, collection: Collection
) -> None:
    monque.worker("work", lambda job: job.data + 1)
    await monque.schedule("@yearly", "work", 41, as_jobs=True, store_result=True, priority=3)
    job = await monque.trigger_schedule("work")
    await monque.run_until_idle()

    assert await monque.result_of(job) == 42
    assert job.priority == 3


async def test_the_result_of_the_last_run_is_kept_with_the_schedule_that_it_ends(
    monque: Monque, collection: Collection
) -> None:
    monque.worker("work", lambda job: 42)
    await monque.schedule("@yearly", "work", limit=1, store_result=True)
    await make_due(collection)
    await monque.run_until_idle()
    stored = await only(collection)

    assert (stored["status"], stored["result"]) == ("completed", 42)
