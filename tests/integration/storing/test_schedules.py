"""Recurring jobs: one document a schedule, brought up to date by each call, going on whatever happens."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from bson import ObjectId

from monque import ConfigurationError, Job, JobStateError, JobStatus, Monque, Options
from support.aliases import Collection, Make
from support.clocks import ago, ahead, now
from support.jobs import claimed, document, find_one, only
from support.waiting import Events, start

# Half past four in the morning in Kolkata, which is always five and a half hours ahead, is 23:00 in UTC.
HALF_PAST_FOUR = "30 4 * * *"
KOLKATA = "Asia/Kolkata"


async def make_due(collection: Collection, **fields: Any) -> None:
    """The time of every schedule has come."""
    await collection.update_many({"status": "pending"}, {"$set": {"nextRunAt": ago(seconds=1), **fields}})


def time_of_day(moment: datetime) -> tuple[int, int]:
    return moment.hour, moment.minute


def succeed(job: Job[Any]) -> None:
    """A handler with nothing to do."""


def fail(job: Job[Any]) -> None:
    raise RuntimeError("gateway timeout")


class TestStoring:
    async def test_a_schedule_waits_for_its_next_time(self, monque: Monque) -> None:
        """User story 4; FR-003."""
        job = await monque.schedule("0 * * * *", "report", {"type": "sales"})

        assert job.status is JobStatus.PENDING
        assert (job.cron, job.timezone, job.unique_key) == ("0 * * * *", "UTC", "report")
        assert job.data == {"type": "sales"}
        assert job.next_run_at.minute == job.next_run_at.second == 0
        assert job.created_at < job.next_run_at <= job.created_at + timedelta(hours=1)
        assert await monque.get_job(job.id) == job

    @pytest.mark.parametrize("when", ["@yearly", timedelta(hours=1)], ids=str)
    @pytest.mark.parametrize("settings", [{}, {"as_jobs": True}, {"jitter": timedelta(minutes=5)}], ids=str)
    async def test_with_run_now_the_first_run_is_due_at_once_and_the_second_at_its_time(
        self, monque: Monque, when: str | timedelta, settings: Any
    ) -> None:
        runs: list[Job[Any]] = []
        monque.worker("report", runs.append)

        first = await monque.schedule(when, "report", run_now=True, **settings)
        await monque.run_until_idle()

        assert first.next_run_at == first.created_at
        assert len(runs) == 1
        schedule = await monque.get_schedule("report")
        assert (schedule.run_count, schedule.next_run_at) == (1, schedule.next_runs(1)[0])
        assert schedule.next_run_at > first.created_at

    async def test_run_now_counts_only_for_the_call_that_creates_the_schedule(self, monque: Monque) -> None:
        """Every process declares it at every start: the declarations must add no runs."""
        runs: list[Job[Any]] = []
        monque.worker("report", runs.append)
        calls = [monque.schedule("@yearly", "report", run_now=True) for _ in range(5)]
        jobs = await asyncio.gather(*calls)
        await monque.run_until_idle()

        again = await monque.schedule("@yearly", "report", run_now=True)
        changed = await monque.schedule("@monthly", "report", run_now=True)
        await monque.run_until_idle()

        assert {job.id for job in jobs} == {again.id, changed.id}
        assert len(runs) == 1
        assert again.next_run_at > now()

        await monque.unschedule("report")
        await monque.schedule("@monthly", "report", run_now=True)
        await monque.run_until_idle()
        assert len(runs) == 2

    async def test_a_declaration_by_a_clock_that_is_behind_keeps_the_first_run(
        self, monque: Monque, collection: Collection
    ) -> None:
        """Another process reads the server's clock a little late, so that the first time has not come."""
        await monque.schedule("@yearly", "report", run_now=True)
        soon = now() + timedelta(seconds=20)
        await collection.update_one({}, {"$set": {"nextRunAt": soon, "movedTo": soon}})

        again = await monque.schedule("@yearly", "report", run_now=True)

        assert again.next_run_at == (await only(collection))["movedTo"]

    async def test_run_now_with_an_end_runs_once_before_it(self, monque: Monque) -> None:
        runs: list[Job[Any]] = []
        monque.worker("report", runs.append)
        late = {"run_now": True, "end": now() + timedelta(seconds=30)}
        over = {"run_now": True, "end": ago(hours=1), "unique_key": "over"}

        job = await monque.schedule(timedelta(hours=1), "report", **late)
        ended = await monque.schedule(timedelta(hours=1), "report", **over)
        await monque.run_until_idle()

        assert ended.status is JobStatus.COMPLETED
        assert [each.id for each in runs] == [job.id]
        after = await monque.get_job(job.id)
        assert after is not None
        assert after.status is JobStatus.COMPLETED

    @pytest.mark.parametrize("other", [{"start": ahead(hours=1)}, {"paused": True}], ids=["start", "paused"])
    async def test_run_now_and_a_later_first_time_contradict_each_other(
        self, monque: Monque, other: Any
    ) -> None:
        with pytest.raises(
            ConfigurationError, match=f"run_now and {next(iter(other))} contradict each other"
        ):
            await monque.schedule("@yearly", "report", run_now=True, **other)

    async def test_the_fields_are_meant_in_the_zone(self, monque: Monque) -> None:
        job = await monque.schedule(HALF_PAST_FOUR, "report", timezone=KOLKATA)

        assert job.timezone == KOLKATA
        assert time_of_day(job.next_run_at) == (23, 0)

    async def test_a_one_off_job_has_no_zone(self, monque: Monque, collection: Collection) -> None:
        job = await monque.enqueue("report")

        assert (job.cron, job.timezone) == (None, None)
        assert not {"repeatInterval", "timezone"} & {*await only(collection)}

    @pytest.mark.parametrize(
        ("given", "stored"),
        [
            ("*/15 8-18 * * mon-fri", "*/15 8-18 * * mon-fri"),
            ("0 0 * * 7", "0 0 * * 7"),
            ("0 0 L * *", "0 0 L * *"),
            ("0 9 * JAN,Jul MON#2", "0 9 * JAN,Jul MON#2"),
            ("@hourly", "@hourly"),
            ("@midnight", "@daily"),
        ],
    )
    async def test_the_text_is_stored_as_given_where_typescript_can_read_it(
        self, given: str, stored: str, monque: Monque, collection: Collection
    ) -> None:
        job = await monque.schedule(given, "report")

        assert job.cron == (await only(collection))["repeatInterval"] == stored

    async def test_a_worker_can_be_scheduled_with_its_typed_payload(self, monque: Monque) -> None:
        @dataclass
        class Report:
            type: str

        seen: list[Report] = []

        @monque.worker("report")
        async def report(job: Job[Report]) -> None:
            seen.append(job.data)

        job = await monque.schedule("@hourly", report, Report("sales"))
        await make_due(monque.database["monque_jobs"])
        await monque.run_until_idle()

        assert job.data == Report("sales")
        assert seen == [Report("sales")]


class TestCallingAgain:
    async def test_an_unchanged_call_changes_nothing(self, make_monque: Make, collection: Collection) -> None:
        """Trap: called at every start, it must not add copies."""
        first = await (await make_monque().open()).schedule("@hourly", "report", {"type": "sales"})
        before = await only(collection)

        for _ in range(3):
            again = await (await make_monque().open()).schedule("@hourly", "report", {"type": "sales"})
            assert again == first

        assert await only(collection) == before

    async def test_an_unchanged_call_keeps_even_a_retry_time(
        self, make_monque: Make, collection: Collection
    ) -> None:
        monque = await make_monque(options=Options(base_retry_interval=timedelta(minutes=7))).open()
        monque.worker("report", fail)
        await monque.schedule("@yearly", "report")
        await make_due(collection)
        await monque.run_until_idle()
        before = await only(collection)

        job = await monque.schedule("@yearly", "report")

        assert before["nextRunAt"] == before["updatedAt"] + timedelta(minutes=14)
        assert (job.next_run_at, job.fail_count) == (before["nextRunAt"], 1)
        assert await only(collection) == before

    async def test_another_payload_keeps_the_time(self, monque: Monque, collection: Collection) -> None:
        first = await monque.schedule("@hourly", "report", {"type": "sales"})
        postponed = ahead(hours=3)
        await monque.reschedule_job(first.id, postponed)

        job = await monque.schedule("@hourly", "report", {"type": "stock"})

        stored = await only(collection)
        assert (job.id, job.data) == (first.id, {"type": "stock"})
        assert stored["data"] == {"type": "stock"}
        assert job.next_run_at == stored["nextRunAt"] == postponed

    async def test_another_cron_text_computes_the_time_anew(
        self, monque: Monque, collection: Collection
    ) -> None:
        first = await monque.schedule("@yearly", "report")

        job = await monque.schedule("* * * * *", "report")

        assert job.id == first.id
        assert (await only(collection))["repeatInterval"] == "* * * * *"
        assert job.next_run_at == (await only(collection))["nextRunAt"] <= ahead(minutes=2)

    async def test_another_zone_computes_the_time_anew(self, monque: Monque, collection: Collection) -> None:
        first = await monque.schedule(HALF_PAST_FOUR, "report")
        assert time_of_day(first.next_run_at) == (4, 30)

        job = await monque.schedule(HALF_PAST_FOUR, "report", timezone=KOLKATA)

        assert (job.id, job.timezone) == (first.id, KOLKATA)
        assert time_of_day((await only(collection))["nextRunAt"]) == (23, 0)

    async def test_keys_distinguish_schedules_of_one_name(
        self, monque: Monque, collection: Collection
    ) -> None:
        jobs = [
            await monque.schedule("@daily", "report"),
            await monque.schedule("@daily", "report", unique_key="report"),  # the same: the name is the key
            await monque.schedule("@daily", "report", unique_key="sales"),
            await monque.schedule("@daily", "report", unique_key="stock"),
        ]

        assert jobs[0] == jobs[1]
        assert len({job.id for job in jobs}) == await collection.count_documents({}) == 3

    @pytest.mark.parametrize("make", [document, lambda **fields: claimed("somebody", **fields)])
    async def test_an_active_one_off_job_with_the_key_is_in_the_way(
        self, make: Callable[..., dict[str, Any]], monque: Monque, collection: Collection
    ) -> None:
        one_off = make(name="report", uniqueKey="report")
        await collection.insert_one(one_off)

        with pytest.raises(JobStateError) as refused:
            await monque.schedule("@daily", "report")

        assert refused.value.job_id == one_off["_id"]
        assert refused.value.current_status == one_off["status"]
        assert refused.value.attempted_action == "schedule"
        assert str(one_off["_id"]) in str(refused.value)
        assert await only(collection) == one_off

    @pytest.mark.parametrize("status", ["cancelled", "failed", "completed"])
    async def test_a_schedule_that_has_ended_is_replaced_by_a_new_one(
        self, status: str, monque: Monque, collection: Collection
    ) -> None:
        first = await monque.schedule("@daily", "report")
        await collection.update_one({}, {"$set": {"status": status}})

        job = await monque.schedule("@daily", "report")

        assert job.id != first.id
        assert job.status is JobStatus.PENDING
        assert await collection.count_documents({}) == 2

    async def test_many_calls_at_once_make_one_schedule(
        self, make_monque: Make, collection: Collection
    ) -> None:
        instances = [await make_monque().open() for _ in range(3)]

        jobs = await asyncio.gather(
            *(instances[n % 3].schedule("@daily", "report", {"type": "sales"}) for n in range(60))
        )

        assert len({job.id for job in jobs}) == await collection.count_documents({}) == 1

    async def test_many_different_calls_at_once_leave_one_of_them_whole(
        self, make_monque: Make, collection: Collection
    ) -> None:
        """Cron, zone and payload belong together: no mixture of two calls may be left behind."""
        instances = [await make_monque().open() for _ in range(3)]
        zones = ["UTC", KOLKATA, "Asia/Tokyo"]

        async def call(n: int) -> None:
            which = n % 3
            await instances[which].schedule(f"{which} 4 * * *", "report", which, timezone=zones[which])

        await asyncio.gather(*(call(n) for n in range(30)))

        stored = await only(collection)
        which = stored["data"]
        assert (stored["repeatInterval"], stored["timezone"]) == (f"{which} 4 * * *", zones[which])
        hours, minutes = [(4, 0), (22, 31), (19, 2)][which]
        assert time_of_day(stored["nextRunAt"]) == (hours, minutes)


class TestRunning:
    async def test_a_schedule_is_run_when_its_time_comes(
        self, make_monque: Make, collection: Collection
    ) -> None:
        """User story 4, scenario 1; without polling, so by the time that was stored."""
        a_minute = timedelta(minutes=1)
        monque = await make_monque(
            options=Options(poll_interval=a_minute, safety_poll_interval=a_minute)
        ).open()
        await monque.schedule("@yearly", "report")
        monque.worker("report", succeed)
        events = await start(monque)

        soon = now() + timedelta(seconds=2)
        await collection.update_one({}, {"$set": {"nextRunAt": soon}})
        [started] = await events.wait("job:start")

        assert soon <= started.job.locked_at <= soon + timedelta(seconds=5)

    async def test_success_leads_to_the_next_time(self, monque: Monque, collection: Collection) -> None:
        """User story 4, scenario 2: the same document is pending again."""
        job = await monque.schedule(HALF_PAST_FOUR, "report", timezone=KOLKATA)
        await make_due(collection)
        monque.worker("report", succeed)
        events = Events(monque)

        await monque.run_until_idle()

        [completed] = events.of("job:complete")
        stored = await only(collection)
        assert completed.job == await monque.get_job(job.id)
        assert (stored["_id"], stored["status"]) == (job.id, "pending")
        assert time_of_day(stored["nextRunAt"]) == (23, 0)
        assert stored["nextRunAt"] > stored["updatedAt"]

    async def test_missed_times_are_not_caught_up(self, monque: Monque, collection: Collection) -> None:
        await monque.schedule("* * * * *", "report")
        await make_due(collection, nextRunAt=ago(hours=5))
        runs: list[ObjectId] = []
        monque.worker("report", lambda job: runs.append(job.id))

        await monque.run_until_idle()

        assert len(runs) == 1
        assert (await only(collection))["nextRunAt"] > ago(seconds=1)

    async def test_after_retries_the_cron_time_counts_again(
        self, monque: Monque, collection: Collection
    ) -> None:
        """User story 4, scenario 3: backoff between the attempts, the original timing afterwards."""
        job = await monque.schedule("0 * * * *", "report")
        await make_due(collection)
        failures: list[int] = []

        @monque.worker("report")
        async def fails_twice(job: Job[Any]) -> None:
            failures.append(job.fail_count)
            if len(failures) < 3:
                raise RuntimeError("gateway timeout")

        events = Events(monque)
        await monque.start()
        await events.wait("job:complete")

        assert failures == [0, 1, 2]
        assert [event.will_retry for event in events.of("job:fail")] == [True, True]
        stored = await only(collection)
        assert (stored["_id"], stored["status"], stored["failCount"]) == (job.id, "pending", 0)
        assert "failReason" not in stored
        assert stored["nextRunAt"].minute == 0
        assert stored["nextRunAt"] > stored["updatedAt"]


class TestExhausted:
    async def test_the_occurrence_is_kept_and_the_schedule_goes_on(
        self, make_monque: Make, collection: Collection
    ) -> None:
        monque = await make_monque(options=Options(max_retries=3)).open()
        schedule = await monque.schedule("0 * * * *", "report", {"type": "sales"})
        await make_due(collection, failCount=2, failReason="the one before")
        monque.worker("report", fail)
        events = Events(monque)

        await monque.run_until_idle()

        copy = await find_one(collection, {"scheduleId": schedule.id})
        assert copy["_id"] != schedule.id
        assert (copy["name"], copy["data"]) == ("report", {"type": "sales"})
        assert (copy["status"], copy["failCount"]) == ("failed", 3)
        assert copy["failReason"] == "RuntimeError: gateway timeout"
        assert not {"repeatInterval", "uniqueKey", "timezone"} & {*copy}

        going_on = await monque.get_job(schedule.id)
        assert going_on is not None
        assert (going_on.status, going_on.fail_count, going_on.fail_reason) == (JobStatus.PENDING, 0, None)
        assert going_on.next_run_at.minute == 0
        assert going_on.next_run_at > going_on.updated_at

        [failed] = events.of("job:fail")
        assert failed.will_retry is False
        assert failed.job == await monque.get_job(copy["_id"])
        assert str(failed.error) == "gateway timeout"

    async def test_each_exhausted_occurrence_is_a_document_of_its_own(
        self, make_monque: Make, collection: Collection
    ) -> None:
        monque = await make_monque(options=Options(max_retries=1)).open()
        schedule = await monque.schedule("@hourly", "report")
        monque.worker("report", fail)

        for _ in range(3):
            await make_due(collection)
            await monque.run_until_idle()

        assert await collection.count_documents({"scheduleId": schedule.id, "status": "failed"}) == 3
        assert await collection.count_documents({"status": "pending"}) == 1

    async def test_the_copy_does_not_hold_the_key(self, make_monque: Make, collection: Collection) -> None:
        monque = await make_monque(options=Options(max_retries=1)).open()
        schedule = await monque.schedule("@hourly", "report")
        await make_due(collection)
        monque.worker("report", fail)
        await monque.run_until_idle()

        again = await monque.schedule("@hourly", "report")

        assert again.id == schedule.id
        assert await collection.count_documents({}) == 2


class TestChangedWhileRunning:
    """A change takes effect after that run, which keeps the payload it was given."""

    @staticmethod
    def changing(monque: Monque, *, then: Callable[[Job[Any]], None] = succeed, **changes: Any) -> list[Any]:
        """A worker that changes its own schedule while it runs, once; the payloads it is given."""
        seen: list[Any] = []
        wanted = {"cron": HALF_PAST_FOUR, "data": "old", "timezone": "UTC", **changes}

        @monque.worker("report")
        async def report(job: Job[Any]) -> None:
            seen.append(job.data)
            if len(seen) == 1:
                changed = await monque.schedule(
                    wanted["cron"], "report", wanted["data"], timezone=wanted["timezone"]
                )
                assert (changed.id, changed.status) == (job.id, JobStatus.PROCESSING)
                then(job)

        return seen

    async def run(self, monque: Monque, collection: Collection) -> dict[str, Any]:
        await monque.schedule(HALF_PAST_FOUR, "report", "old")
        await make_due(collection)
        await monque.run_until_idle()
        return await find_one(collection, {"uniqueKey": "report"})

    async def test_another_cron_text(self, monque: Monque, collection: Collection) -> None:
        self.changing(monque, cron="15 6 * * *")

        stored = await self.run(monque, collection)

        assert (stored["status"], stored["repeatInterval"]) == ("pending", "15 6 * * *")
        assert time_of_day(stored["nextRunAt"]) == (6, 15)

    async def test_another_zone(self, monque: Monque, collection: Collection) -> None:
        self.changing(monque, timezone=KOLKATA)

        stored = await self.run(monque, collection)

        assert (stored["status"], stored["timezone"]) == ("pending", KOLKATA)
        assert time_of_day(stored["nextRunAt"]) == (23, 0)

    async def test_another_payload(self, monque: Monque, collection: Collection) -> None:
        seen = self.changing(monque, data="new")

        stored = await self.run(monque, collection)
        assert (stored["status"], stored["data"]) == ("pending", "new")
        assert time_of_day(stored["nextRunAt"]) == (4, 30)

        await make_due(collection)
        await monque.run_until_idle()
        assert seen == ["old", "new"]

    async def test_everything_at_once(self, monque: Monque, events: Events, collection: Collection) -> None:
        seen = self.changing(monque, cron="15 6 * * *", timezone=KOLKATA, data="new")

        stored = await self.run(monque, collection)

        assert stored["data"] == "new"
        assert time_of_day(stored["nextRunAt"]) == (0, 45)
        assert seen == ["old"]
        assert events.kinds() == ["job:start", "job:complete"]

    async def test_a_run_that_fails_is_retried_with_the_new_payload(
        self, make_monque: Make, collection: Collection
    ) -> None:
        monque = await make_monque(options=Options(base_retry_interval=timedelta(minutes=1))).open()
        seen = self.changing(monque, then=fail, cron="15 6 * * *", data="new")

        stored = await self.run(monque, collection)
        assert (stored["status"], stored["failCount"]) == ("pending", 1)
        assert stored["nextRunAt"] - stored["updatedAt"] == timedelta(minutes=2)

        await make_due(collection)
        await monque.run_until_idle()
        stored = await only(collection)
        assert seen == ["old", "new"]
        assert (stored["failCount"], time_of_day(stored["nextRunAt"])) == (0, (6, 15))

    async def test_an_exhausted_run_is_kept_with_the_payload_it_had(
        self, make_monque: Make, collection: Collection
    ) -> None:
        monque = await make_monque(options=Options(max_retries=1)).open()
        self.changing(monque, then=fail, cron="15 6 * * *", data="new")
        events = Events(monque)

        stored = await self.run(monque, collection)

        assert (stored["status"], stored["data"]) == ("pending", "new")
        assert time_of_day(stored["nextRunAt"]) == (6, 15)
        [copy] = await collection.find({"status": "failed"}).to_list()
        assert (copy["data"], copy["scheduleId"]) == ("old", stored["_id"])
        [failed] = events.of("job:fail")
        assert (failed.job.id, failed.job.data, failed.will_retry) == (copy["_id"], "old", False)


async def test_the_zone_may_be_given_as_an_object(monque: Monque) -> None:
    by_object = await monque.schedule("0 9 * * *", "report", timezone=ZoneInfo("Europe/Berlin"))
    by_name = await monque.schedule("0 9 * * *", "report", timezone="Europe/Berlin")
    universal = await monque.schedule("0 9 * * *", "other", timezone=UTC)

    assert by_object == by_name
    assert (by_object.timezone, universal.timezone) == ("Europe/Berlin", "UTC")
