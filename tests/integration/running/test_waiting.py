"""Waiting in the middle of a handler: without a slot or a process, however the handler is written."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from monque import (
    ConfigurationError,
    Job,
    JobStatus,
    JobStuck,
    Monque,
    Observer,
    Trends,
    Unique,
)
from monque._engine import interrupts
from support.aliases import Collection, Make
from support.clocks import ago, ahead, now
from support.jobs import claimed, document, only
from support.logged import lines
from support.options import BEATING, QUICK, WATCHFUL
from support.waiting import Events, eventually, start
from support.working import Pause

HOUR = timedelta(hours=1)
MOMENT = timedelta(milliseconds=1)
Body = Callable[[Job[Any]], Coroutine[Any, Any, Any]]


def is_true(fact: Callable[[], bool]) -> Callable[[], None]:
    def check() -> None:
        assert fact()

    return check


async def suspended(collection: Collection, name: str = "nap") -> dict[str, Any]:
    """Wait until the only job waits in this step."""

    async def check() -> dict[str, Any]:
        job = await only(collection)
        assert job["status"] == "pending"
        assert "parked" in job
        assert job["steps"][-1]["n"] == name
        return job

    found: dict[str, Any] = await eventually(check, within=20)
    return found


async def let_time_pass(collection: Collection) -> None:
    """Let all sleeps be over."""
    ended = {"$mergeObjects": ["$$this", {"$cond": ["$$this.until", {"until": "$$NOW"}, {}]}]}
    steps = {"$map": {"input": "$steps", "in": ended}}
    await collection.update_many({"parked.why": "time"}, [{"$set": {"nextRunAt": "$$NOW", "steps": steps}}])


async def completed(collection: Collection) -> dict[str, Any]:
    async def check() -> dict[str, Any]:
        job = await only(collection)
        assert job["status"] == "completed"
        return job

    found: dict[str, Any] = await eventually(check, within=20)
    return found


async def run(monque: Monque, body: Body, **settings: Any) -> Job[Any]:
    """Start, and store a job with this handler."""
    monque.worker("work", body, **settings)
    await start(monque)
    return await monque.enqueue("work")


class TestSleep:
    async def test_a_job_sleeps_without_a_slot_and_goes_on_behind_its_steps(
        self, monque: Monque, collection: Collection
    ) -> None:
        ran: list[str] = []

        async def note(what: str) -> None:
            ran.append(what)

        async def work(job: Job[str]) -> None:
            await job.step("before", note, f"before {job.data}")
            if job.data == "sleeper":
                await job.sleep("nap", HOUR)
            await job.step("after", note, f"after {job.data}")

        monque.worker("work", work, concurrency=1)
        await start(monque)
        sleeper = await monque.enqueue("work", "sleeper")
        await suspended(collection)
        other = await monque.enqueue("work", "other")
        await monque.wait_for(other, timeout=timedelta(seconds=20))
        asleep = await monque.get_job(sleeper.id)
        assert asleep is not None
        assert (asleep.status, asleep.is_parked) == (JobStatus.PENDING, False)
        assert asleep.waits_for is not None
        assert (asleep.waits_for.why, asleep.waits_for.signal) == ("time", None)
        assert asleep.waits_for.until == asleep.next_run_at == asleep.steps[-1].until
        assert asleep.waits_for.since == asleep.steps[-1].at
        assert asleep.next_run_at is not None
        assert asleep.next_run_at - asleep.steps[-1].at == HOUR  # type: ignore[operator]

        await let_time_pass(collection)
        woken = await monque.wait_for(sleeper, timeout=timedelta(seconds=20))

        assert ran == ["before sleeper", "before other", "after other", "after sleeper"]
        assert (woken.status, woken.attempt, woken.waits_for) == (JobStatus.COMPLETED, 2, None)
        assert [step.name for step in woken.steps] == ["before", "nap", "after"]

    async def test_it_wakes_by_itself(self, monque: Monque) -> None:
        async def work(job: Job[None]) -> None:
            for n in range(3):
                await job.sleep(f"nap-{n}", timedelta(milliseconds=20))
            await job.sleep("until", until=now())

        job = await run(monque, work)
        ended = await monque.wait_for(job, timeout=timedelta(seconds=20))

        assert (ended.status, ended.attempt) == (JobStatus.COMPLETED, 5)

    async def test_what_is_woken_early_sleeps_on(self, monque: Monque, collection: Collection) -> None:
        """The stored end decides, by the stamp of the claim: both are the server's."""
        runs: list[int] = []

        async def work(job: Job[None]) -> None:
            runs.append(job.attempt)
            await job.sleep("nap", HOUR)

        await run(monque, work)
        first = await suspended(collection)
        await collection.update_one({}, {"$set": {"nextRunAt": ago(seconds=1)}})
        await eventually(is_true(lambda: runs == [1, 2]))
        second = await suspended(collection)

        assert second["nextRunAt"] == first["nextRunAt"]
        assert [each["until"] for each in second["steps"]] == [first["nextRunAt"]]
        await let_time_pass(collection)
        await completed(collection)
        assert runs == [1, 2, 3]

    @pytest.mark.parametrize(
        "arguments",
        [{}, {"delay": HOUR, "until": ahead(hours=1)}, {"delay": -HOUR}, {"delay": 5}, {"until": "tomorrow"}],
    )
    async def test_wrong_arguments_are_refused(self, monque: Monque, arguments: dict[str, Any]) -> None:
        told: list[Exception] = []

        async def work(job: Job[None]) -> None:
            with pytest.raises(ConfigurationError) as refused:
                await job.sleep("nap", **arguments)
            told.append(refused.value)

        monque.worker("work", work)
        await monque.enqueue("work")
        await monque.run_until_idle()

        assert told

    async def test_a_stop_and_run_until_idle_do_not_wait_for_it(
        self, monque: Monque, collection: Collection
    ) -> None:
        async def work(job: Job[None]) -> None:
            await job.sleep("nap", HOUR)

        monque.worker("work", work)
        await monque.enqueue("work")
        await asyncio.wait_for(monque.run_until_idle(), 20)
        assert (await only(collection))["parked"]["why"] == "time"
        await asyncio.wait_for(monque.stop(), 10)

    async def test_a_time_limit_counts_for_each_run_by_itself(
        self, monque: Monque, collection: Collection
    ) -> None:
        async def work(job: Job[None]) -> None:
            await asyncio.sleep(0.15)
            await job.sleep("nap", HOUR)

        await run(monque, work, timeout=timedelta(seconds=0.25), max_attempts=1)
        await suspended(collection)
        await let_time_pass(collection)

        assert (await completed(collection))["attempt"] == 2

    async def test_it_keeps_its_key_and_calls_are_noted(self, monque: Monque, collection: Collection) -> None:
        seen: list[Any] = []

        @monque.worker("work")
        async def work(job: Job[str]) -> None:
            seen.append(job.data)
            if job.data == "first":
                await job.sleep("nap", HOUR)

        await start(monque)
        await work.enqueue("first", unique_key="k", priority=3)
        await suspended(collection)
        kept = await work.enqueue("kept", unique_key="k")
        again = await work.enqueue("second", unique=Unique("k", on_conflict="replace"))
        waiting = await only(collection)

        assert (kept.enqueued, again.enqueued) == ("kept", "again")
        assert (waiting["data"], waiting["priority"], waiting["again"]["data"]) == ("first", 3, "second")
        await let_time_pass(collection)
        job = await completed(collection)
        assert seen == ["first", "first", "second"]
        assert not {"again", "steps", "parked", "signals"} & job.keys()

    async def test_the_run_time_is_that_of_all_runs_together(
        self, monque: Monque, events: Events, collection: Collection
    ) -> None:
        async def work(job: Job[None]) -> None:
            await asyncio.sleep(0.1)
            await job.sleep("one", HOUR)
            await job.sleep("two", HOUR)

        monque.worker("work", work)
        await start(monque)
        await monque.enqueue("work")
        for name in ("one", "two"):
            await suspended(collection, name)
            await let_time_pass(collection)
        [done] = await events.wait("job:complete")

        assert timedelta(seconds=0.3) <= done.duration < timedelta(seconds=3)
        assert done.job.finished_at - done.job.started_at >= timedelta(seconds=0.29)


class TestWithoutAProcess:
    async def test_a_sleep_outlives_a_deployment(self, make_monque: Make, collection: Collection) -> None:
        """No process remembers it: the instance that began it is closed, and another one goes on."""
        ran: list[str] = []

        async def note(what: str) -> None:
            ran.append(what)

        def worker(version: str) -> Body:
            async def work(job: Job[None]) -> None:
                await job.step("before", note, f"before, {version}")
                await job.sleep("nap", HOUR)
                await job.step("after", note, f"after, {version}")

            return work

        first = await make_monque().open()
        await run(first, worker("old"))
        await suspended(collection)
        await first.stop()
        await first.close()
        second = await make_monque().open()
        second.worker("work", worker("new"))
        await start(second)
        await let_time_pass(collection)
        await completed(collection)

        assert ran == ["before, old", "after, new"]

    async def test_cancelling_a_job_that_waits_ends_it_without_its_handler(
        self, monque: Monque, collection: Collection
    ) -> None:
        runs: list[int] = []

        async def work(job: Job[None]) -> None:
            runs.append(job.attempt)
            await job.sleep("nap", HOUR)

        job = await run(monque, work)
        await suspended(collection)
        await monque.cancel_job(job.id)
        ended = await monque.get_job(job.id)

        assert ended is not None
        assert (ended.status, ended.waits_for) == (JobStatus.CANCELLED, None)
        assert "parked" not in await only(collection)
        assert runs == [1]

    async def test_a_paused_name_wakes_and_then_waits_for_the_name(
        self, monque: Monque, collection: Collection
    ) -> None:
        async def work(job: Job[None]) -> None:
            await job.sleep("nap", HOUR)

        job = await run(monque, work)
        await suspended(collection)
        await monque.pause("work")
        await let_time_pass(collection)
        assert (await only(collection))["status"] == "pending"
        await monque.resume("work")

        ended = await monque.wait_for(job, timeout=timedelta(seconds=20))
        assert ended.status is JobStatus.COMPLETED


class TestReports:
    async def test_a_wait_is_an_event_and_no_end(
        self, monque: Monque, events: Events, collection: Collection
    ) -> None:
        async def work(job: Job[None]) -> None:
            await job.sleep("nap", HOUR)

        job = await run(monque, work)
        [told] = await events.wait("job:waiting")

        assert (told.job.id, told.job.status, told.wait.why) == (job.id, JobStatus.PENDING, "time")
        assert told.wait == told.job.waits_for
        assert not {"job:fail", "job:complete", "job:snoozed", "job:error"} & set(events.kinds())
        stored = await only(collection)
        assert not {"failReason", "history", "claimedBy", "lockedAt", "snoozeCount"} & stored.keys()
        assert stored["failCount"] == 0

    async def test_observers_hear_of_it_and_trends_do_not_count_it(
        self, make_monque: Make, database: Any, collection: Collection
    ) -> None:
        heard: list[tuple[str, timedelta, object]] = []

        class Noting(Observer):
            def ended(self, name: str, ending: str, *, ran: timedelta, error: object, **_: Any) -> None:  # type: ignore[override]
                heard.append((ending, ran, error))

        monque = await make_monque(options=replace(QUICK, trends=Trends()), companions=True).open()
        monque.observe(Noting())

        async def work(job: Job[None]) -> None:
            await asyncio.sleep(0.05)
            await job.sleep("nap", HOUR)

        await run(monque, work)
        await suspended(collection)
        await let_time_pass(collection)
        await completed(collection)
        await eventually(is_true(lambda: len(heard) == 2))
        await monque.stop()

        assert [(ending, error) for ending, _, error in heard] == [("waiting", None), ("completed", None)]
        assert heard[1][1] >= timedelta(seconds=0.1)
        counted = [each async for each in database["monque_jobs_trends"].find()]
        assert sum(each.get("completed", 0) for each in counted) <= 1
        assert "waiting" not in str(counted)

    async def test_it_is_one_line_of_the_log(
        self, monque: Monque, collection: Collection, caplog: pytest.LogCaptureFixture
    ) -> None:
        async def work(job: Job[None]) -> None:
            await job.sleep("nap", HOUR)

        with caplog.at_level(logging.DEBUG, "monque"):
            job = await run(monque, work)
            await suspended(collection)
            await monque.stop()

        told = [each.getMessage() for each in caplog.records if " waits in " in each.getMessage()]
        assert told == [f"job {job.id} (work) waits in 'nap'"]
        assert lines(caplog, logging.WARNING) == lines(caplog, logging.ERROR) == []


def shapes() -> dict[str, Body]:
    """Handlers in which a sleep of an hour stands somewhere, beside a step that takes its time."""

    async def slow(log: list[str] | None = None) -> str:
        await asyncio.sleep(0.05)
        return "slow"

    async def plain(job: Job[Any]) -> None:
        await job.sleep("nap", HOUR)

    async def in_gather(job: Job[Any]) -> None:
        await asyncio.gather(job.step("slow", slow), job.sleep("nap", HOUR))

    async def sleep_first_in_gather(job: Job[Any]) -> None:
        await asyncio.gather(job.sleep("nap", HOUR), job.step("slow", slow))

    async def in_group(job: Job[Any]) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(job.step("slow", slow))
            group.create_task(job.sleep("nap", HOUR))

    async def with_timeout(job: Job[Any]) -> None:
        async with asyncio.timeout(30):
            await job.sleep("nap", HOUR)

    async def in_wait_for(job: Job[Any]) -> None:
        await asyncio.wait_for(job.sleep("nap", HOUR), 30)

    async def shielded(job: Job[Any]) -> None:
        await asyncio.shield(job.sleep("nap", HOUR))

    async def detached_and_awaited(job: Job[Any]) -> None:
        nap = asyncio.create_task(job.sleep("nap", HOUR))
        try:
            await asyncio.sleep(30 if job.attempt == 1 else 0)
        finally:
            with suppress(asyncio.CancelledError):
                await nap

    async def after_a_detached_step(job: Job[Any]) -> None:
        step = asyncio.create_task(job.step("slow", slow))
        await asyncio.sleep(0)
        try:
            await job.sleep("nap", HOUR)
        finally:
            await step

    async def swallowed(job: Job[Any]) -> str:
        with suppress(asyncio.CancelledError):
            await job.sleep("nap", HOUR)
        return "nothing"

    async def step_in_finally(job: Job[Any]) -> None:
        try:
            await job.sleep("nap", HOUR)
        finally:
            await job.step("cleanup", slow)

    async def step_in_exit(job: Job[Any]) -> None:
        @asynccontextmanager
        async def resource() -> AsyncIterator[None]:
            try:
                yield
            finally:
                await job.step("cleanup", slow)

        async with resource():
            await job.sleep("nap", HOUR)

    async def turned_into_an_error(job: Job[Any]) -> None:
        try:
            await job.sleep("nap", HOUR)
        except asyncio.CancelledError:
            raise OSError("the library says: disconnected") from None

    async def turned_in_gather(job: Job[Any]) -> None:
        async def library() -> None:
            try:
                await asyncio.sleep(30 if job.attempt == 1 else 0)
            except asyncio.CancelledError:
                raise OSError("the library says: disconnected") from None

        await asyncio.gather(library(), job.sleep("nap", HOUR))

    async def checkpoint_in_finally(job: Job[Any]) -> None:
        try:
            await job.sleep("nap", HOUR)
        finally:
            if job.interruption == "waiting":
                job.checkpoint()

    return {name: body for name, body in locals().items() if name != "slow"}


class TestShapesOfHandlers:
    """However a handler is written, the wait is stored, and the next run passes it."""

    @pytest.mark.parametrize("shape", shapes())
    async def test_a_wait_is_taken_and_passed(
        self, monque: Monque, collection: Collection, shape: str
    ) -> None:
        body = shapes()[shape]
        job = await run(monque, body, max_attempts=1)

        async def waits() -> dict[str, Any]:
            found = await only(collection)
            assert found["status"] == "pending"
            assert found.get("parked", {}).get("why") == "time"
            return found

        found = await eventually(waits, within=20)
        done = [each["n"] for each in found["steps"]]
        # A step that was in flight was stored before the wait began; none began while the handler unwound.
        slow = ["slow"] if shape in SLOW else []
        assert done == [*slow, "nap"]

        await let_time_pass(collection)
        ended = await monque.wait_for(job, timeout=timedelta(seconds=20))

        assert ended.status is JobStatus.COMPLETED
        assert ended.fail_count == 0
        assert ended.attempt == 2

    @pytest.mark.parametrize("levels", [0, 1, 3])
    async def test_the_cancellation_comes_once_so_that_cleaning_up_is_not_cut(
        self, monque: Monque, collection: Collection, levels: int
    ) -> None:
        """Groups pass the cancellation of the handler on, each a turn of the event loop later."""
        cleaned: list[Any] = []

        async def work(job: Job[None], left: int = levels) -> None:
            if left:
                async with asyncio.TaskGroup() as group:
                    group.create_task(work(job, left - 1))
                return
            try:
                await job.sleep("nap", HOUR)
            finally:
                await asyncio.sleep(0.02)
                await asyncio.sleep(0.02)
                cleaned.append(job.interruption)

        await run(monque, work)
        await suspended(collection)

        assert cleaned == ["waiting"]

    async def test_cleaning_up_for_longer_than_the_tolerance_keeps_the_job(
        self, make_monque: Make, collection: Collection
    ) -> None:
        """Another instance would take a job whose owner is silent for a second."""
        monque, other = [await make_monque(options=WATCHFUL).open() for _ in range(2)]
        begun: list[int] = []

        async def beats() -> None:
            stored = await only(collection)
            assert stored["lastHeartbeat"] - stored["claimedAt"] > 1.2 * WATCHFUL.tolerance

        async def work(job: Job[None]) -> None:
            begun.append(job.attempt)
            try:
                await job.sleep("nap", HOUR)
            finally:
                await eventually(beats)

        other.worker("work", work)
        await run(monque, work)
        await start(other)
        found = await suspended(collection)

        assert (begun, found["attempt"], "crashCount" in found) == ([1], 1, False)

    async def test_two_waits_of_one_gather_are_taken_one_after_the_other(
        self, monque: Monque, collection: Collection
    ) -> None:
        async def work(job: Job[None]) -> None:
            await asyncio.gather(job.sleep("one", HOUR), job.sleep("two", HOUR))

        await run(monque, work)
        await suspended(collection, "one")
        await let_time_pass(collection)
        found = await suspended(collection, "two")
        assert [each["n"] for each in found["steps"]] == ["one", "two"]
        await let_time_pass(collection)

        assert (await completed(collection))["attempt"] == 3

    async def test_tasks_that_the_handler_leaves_behind_are_cancelled(
        self, monque: Monque, collection: Collection
    ) -> None:
        left: list[asyncio.Task[Any]] = []

        async def endless() -> None:
            await asyncio.Event().wait()

        async def work(job: Job[None]) -> None:
            left.append(asyncio.create_task(job.step("endless", endless)))
            await asyncio.sleep(0.01)

        await run(monque, work)
        await completed(collection)

        await eventually(is_true(lambda: left[0].cancelled()))
        assert "steps" not in await only(collection)

    async def test_a_step_does_not_begin_after_the_end_of_the_handler(self, monque: Monque) -> None:
        left: list[asyncio.Task[Any]] = []
        called: list[str] = []

        async def work(job: Job[None]) -> None:
            left.append(asyncio.create_task(job.step("late", called.append, "late")))

        monque.worker("work", work)
        await monque.enqueue("work")
        await monque.run_until_idle()

        await asyncio.wait(left)
        assert left[0].cancelled()
        assert called == []

    async def test_tasks_that_a_lost_run_leaves_behind_are_cancelled(
        self, make_monque: Make, collection: Collection
    ) -> None:
        monque = await make_monque(options=BEATING).open()
        left: list[asyncio.Task[Any]] = []

        async def endless() -> None:
            await asyncio.Event().wait()

        async def work(job: Job[None]) -> None:
            left.append(asyncio.create_task(job.step("endless", endless)))
            await collection.update_one({}, {"$set": {"claimedBy": "other"}, "$inc": {"attempt": 1}})
            await asyncio.Event().wait()

        await run(monque, work)
        await eventually(is_true(lambda: bool(left) and left[0].cancelled()), within=20)
        await collection.delete_many({})

    async def test_a_swallowed_cancellation_is_told_to_the_log(
        self, monque: Monque, collection: Collection, caplog: pytest.LogCaptureFixture
    ) -> None:
        job = await run(monque, shapes()["swallowed"])
        await suspended(collection)

        [line] = lines(caplog, logging.WARNING)
        assert f"the handler of job {job.id} (work) returned when its job was to wait" in line


# The step began before the wait was noted.
SLOW = ("in_gather", "in_group", "after_a_detached_step")


class TestErrors:
    async def test_an_error_before_the_wait_wins(self, monque: Monque, collection: Collection) -> None:
        async def fails() -> None:
            raise OSError("broken")

        async def work(job: Job[None]) -> None:
            await asyncio.gather(job.step("fails", fails), job.sleep("nap", HOUR))

        job = await run(monque, work, max_attempts=1)
        ended = await monque.wait_for(job, timeout=timedelta(seconds=20))

        assert (ended.status, ended.fail_reason) == (JobStatus.FAILED, "OSError: broken")
        assert ended.steps == ()

    async def test_an_error_of_a_step_in_flight_wins_over_a_wait_beside_it(
        self, monque: Monque, collection: Collection
    ) -> None:
        """It would be hidden otherwise: nobody would count it, and nobody would see it."""

        async def fails_late() -> None:
            await asyncio.sleep(0.05)
            raise OSError("broken")

        async def work(job: Job[None]) -> None:
            await asyncio.gather(job.step("fails", fails_late), job.sleep("nap", HOUR))

        job = await run(monque, work, max_attempts=1)
        ended = await monque.wait_for(job, timeout=timedelta(seconds=20))

        assert (ended.status, ended.fail_reason) == (JobStatus.FAILED, "OSError: broken")

    async def test_a_wait_in_finally_hides_an_error_for_one_run_only(
        self, monque: Monque, collection: Collection
    ) -> None:
        async def work(job: Job[None]) -> None:
            try:
                raise OSError("broken")
            finally:
                await job.sleep("nap", HOUR)

        job = await run(monque, work, max_attempts=1)
        await suspended(collection)
        await let_time_pass(collection)
        ended = await monque.wait_for(job, timeout=timedelta(seconds=20))

        assert (ended.status, ended.fail_reason) == (JobStatus.FAILED, "OSError: broken")


class TestOtherReasonsToStop:
    """They come while the handler unwinds, and win over the wait."""

    async def unwinding(self, monque: Monque, **settings: Any) -> tuple[Job[Any], Pause, list[Any]]:
        pause, reasons = Pause(), []

        async def work(job: Job[None]) -> None:
            try:
                await job.sleep("nap", HOUR)
            finally:
                try:
                    await pause()
                finally:
                    reasons.append(job.interruption)

        job = await run(monque, work, **settings)
        await pause.wait()
        return job, pause, reasons

    async def test_a_request_to_cancel(self, monque: Monque, collection: Collection) -> None:
        job, _, reasons = await self.unwinding(monque)
        await monque.cancel_job(job.id, running=True)
        ended = await asyncio.wait_for(eventually_ended(monque, job), 20)

        assert (ended.status, reasons) == (JobStatus.CANCELLED, ["requested"])
        assert "parked" not in await only(collection)

    async def test_a_shutdown(self, monque: Monque, collection: Collection) -> None:
        _, _, reasons = await self.unwinding(monque)
        await monque.stop(timeout=0)

        stored = await only(collection)
        assert (stored["status"], reasons) == ("pending", ["shutdown"])
        assert not {"parked", "steps"} & stored.keys()

    async def test_a_lost_claim(self, make_monque: Make, collection: Collection) -> None:
        monque = await make_monque(options=BEATING).open()
        events = Events(monque)
        _, _, reasons = await self.unwinding(monque)
        await collection.update_one({}, {"$set": {"claimedBy": "other"}, "$inc": {"attempt": 1}})
        await events.wait("job:lost")
        await eventually(is_true(lambda: bool(reasons)))

        assert reasons == ["lost"]
        stored = await only(collection)
        assert (stored["claimedBy"], stored["status"]) == ("other", "processing")
        assert "steps" not in stored
        await collection.delete_many({})

    async def test_a_time_limit_changes_nothing(self, monque: Monque, collection: Collection) -> None:
        _, pause, reasons = await self.unwinding(monque, timeout=timedelta(milliseconds=100), max_attempts=1)
        await asyncio.sleep(0.2)
        pause.go_on.set()

        await suspended(collection)
        assert reasons == ["waiting"]

    async def test_a_request_that_comes_between_the_handler_and_the_write(
        self, monque: Monque, collection: Collection
    ) -> None:
        """The run does not know of it: the write does not apply, and the job is cancelled."""

        async def work(job: Job[None]) -> None:
            try:
                await job.sleep("nap", HOUR)
            finally:
                cancel = {"at": now(), "by": "operator"}
                await collection.update_one({"_id": job.id}, {"$set": {"cancel": cancel}})

        monque.worker("work", work)
        await monque.enqueue("work")
        await monque.run_until_idle()
        stored = await only(collection)

        assert (stored["status"], "parked" in stored) == ("cancelled", False)

    async def test_a_handler_that_swallows_its_time_limit_and_then_a_wait_has_not_completed_the_job(
        self, monque: Monque, collection: Collection
    ) -> None:
        """Told to stop, it cannot wait any more, so what stands behind the wait came too early."""

        async def work(job: Job[None]) -> None:
            with suppress(asyncio.CancelledError):
                await asyncio.Event().wait()
            with suppress(asyncio.CancelledError):
                await job.sleep("nap", HOUR)

        job = await run(monque, work, timeout=timedelta(milliseconds=50), max_attempts=1)
        ended = await monque.wait_for(job, timeout=timedelta(seconds=20))

        assert (ended.status, [each.outcome for each in ended.history]) == (JobStatus.FAILED, ["timed_out"])
        assert "ran longer than" in (ended.fail_reason or "")
        assert ended.steps == ()

    @pytest.mark.parametrize("why", ["shutdown", "requested"])
    async def test_a_handler_that_swallows_the_wait_and_this_reason_has_not_completed_the_job(
        self, monque: Monque, collection: Collection, why: str
    ) -> None:
        pause = Pause()

        async def work(job: Job[None]) -> None:
            with suppress(asyncio.CancelledError):
                await job.sleep("nap", HOUR)
            with suppress(asyncio.CancelledError):
                await pause()

        job = await run(monque, work)
        await pause.wait()
        if why == "requested":
            await monque.cancel_job(job.id, running=True)
            await eventually_ended(monque, job)
        await monque.stop(timeout=0)

        stored = await only(collection)
        assert stored["status"] == ("cancelled" if why == "requested" else "pending")
        assert not {"parked", "steps"} & stored.keys()

    async def test_a_handler_that_was_told_to_stop_does_not_wait(
        self, monque: Monque, collection: Collection
    ) -> None:
        """It catches the cancellation of a time limit, and sleeps: it would hang for ever."""

        async def work(job: Job[None]) -> None:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                await job.sleep("nap", HOUR)

        job = await run(monque, work, timeout=timedelta(milliseconds=50), max_attempts=1)
        ended = await monque.wait_for(job, timeout=timedelta(seconds=20))

        assert ended.status is JobStatus.FAILED
        assert "ran longer than" in (ended.fail_reason or "")

    async def test_a_handler_that_unwinds_is_stuck_later_than_others(
        self, monque: Monque, events: Events, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(JobStuck, "_after", timedelta(seconds=0.05))
        monkeypatch.setattr("monque._engine.interrupts._STUCK_AFTER_WAIT", 0.4)
        _, pause, _ = await self.unwinding(monque)
        await asyncio.sleep(0.2)
        assert events.of("job:stuck") == []

        [stuck] = await events.wait("job:stuck")
        assert stuck.why == "waiting"
        pause.go_on.set()


def test_a_handler_that_unwinds_has_five_minutes() -> None:
    assert interrupts._STUCK_AFTER_WAIT == 300
    assert JobStuck._after == timedelta(seconds=30)


async def eventually_ended(monque: Monque, job: Job[Any]) -> Job[Any]:
    return await monque.wait_for(job, timeout=timedelta(seconds=15))


class TestExpiry:
    async def test_a_sleep_beyond_it_expires_at_once(self, monque: Monque, events: Events) -> None:
        async def work(job: Job[None]) -> None:
            await job.sleep("nap", timedelta(days=2))

        monque.worker("work", work)
        await start(monque)
        job = await monque.enqueue("work", expires=timedelta(days=1))
        ended = await monque.wait_for(job, timeout=timedelta(seconds=20))

        assert (ended.status, ended.cancelled_by) == (JobStatus.CANCELLED, "expiry")
        assert events.of("job:waiting") == []

    async def test_a_sleep_before_it_sleeps(self, monque: Monque, collection: Collection) -> None:
        async def work(job: Job[None]) -> None:
            await job.sleep("nap", HOUR)

        monque.worker("work", work)
        await start(monque)
        await monque.enqueue("work", expires=timedelta(days=1))

        await suspended(collection)

    async def test_the_expiry_of_a_call_is_the_deadline_of_the_whole(
        self, monque: Monque, collection: Collection
    ) -> None:
        async def work(job: Job[None]) -> None:
            await job.sleep("nap", HOUR)

        monque.worker("work", work)
        await start(monque)
        job = await monque.enqueue("work", expires=timedelta(days=1))
        await suspended(collection)
        await collection.update_one({}, {"$set": {"policy.expiresAt": ago(minutes=1)}})
        await let_time_pass(collection)
        ended = await monque.wait_for(job, timeout=timedelta(seconds=20))

        assert (ended.status, ended.cancelled_by) == (JobStatus.CANCELLED, "expiry")
        assert "parked" not in await only(collection)

    async def test_that_of_a_worker_is_for_the_first_start(
        self, monque: Monque, collection: Collection
    ) -> None:
        async def work(job: Job[None]) -> None:
            """It has nothing to do."""

        steps = [{"n": "one", "k": "step", "at": ago(hours=3), "v": 1}]
        await collection.insert_many(
            [
                document(data="begun", steps=steps, nextRunAt=ago(hours=2)),
                document(data="new", nextRunAt=ago(hours=2)),
            ]
        )
        monque.worker("work", work, expires=HOUR)
        await monque.run_until_idle()

        found = {job["data"]: job["status"] async for job in collection.find()}
        assert found == {"begun": "completed", "new": "cancelled"}


PARKED = {"why": "time", "since": ago(hours=1)}
STEPS = [{"n": "nap", "k": "sleep", "at": ago(hours=1), "until": ago(minutes=1)}]


class TestWhatTheWaitLeaves:
    """`parked` counts while a job is pending; whatever ends its run otherwise removes it."""

    @pytest.mark.parametrize(
        ("end", "status"),
        [(None, "completed"), (OSError("broken"), "pending"), (asyncio.CancelledError(), "pending")],
    )
    async def test_the_end_of_the_next_run(
        self, monque: Monque, collection: Collection, end: BaseException | None, status: str
    ) -> None:
        async def work(job: Job[None]) -> None:
            assert job.waits_for is None
            if end is not None:
                raise end

        signals = [{"n": "other", "at": now(), "v": 1}]
        await collection.insert_one(document(parked=PARKED, steps=STEPS, signals=signals, attempt=1))
        monque.worker("work", work, retry=None)
        await monque.run_until_idle()

        stored = await only(collection)
        assert (stored["status"], "parked" in stored) == (status, False)
        assert ("signals" in stored) == (status != "completed")
        assert stored["steps"] == STEPS

    async def test_recovery(self, make_monque: Make, collection: Collection) -> None:
        dead = claimed("dead", parked=PARKED, steps=STEPS, lastHeartbeat=ago(hours=1), lockedAt=ago(hours=1))
        await collection.insert_one(dead)
        await make_monque().open()

        async def check() -> None:
            stored = await only(collection)
            assert stored["status"] == "pending"
            assert "parked" not in stored
            assert stored["steps"] == STEPS

        await eventually(check)

    async def test_a_release_before_the_start(self, monque: Monque, collection: Collection) -> None:
        async def work(job: Job[None]) -> None:
            await pause()

        pause = Pause()
        monque.worker("work", work, concurrency=1)
        await collection.insert_many(
            [document(data=n, parked=PARKED, steps=STEPS, attempt=1) for n in range(20)]
        )
        await monque.start()
        await pause.wait()
        await monque.stop(timeout=0)

        assert await collection.count_documents({"attempt": {"$gt": 1}, "parked": {"$exists": True}}) == 0
        assert await collection.count_documents({"status": "pending"}) == 20


async def test_crashes_are_counted_over_steps_and_waits(make_monque: Make, collection: Collection) -> None:
    """A job that does a step, fails once and then kills its process is given up like any other."""
    monque = await make_monque(options=replace(WATCHFUL, max_retries=4)).open()
    await collection.insert_one(document())

    @monque.worker("work")
    async def work(job: Job[None]) -> None:
        await job.step(f"step-{job.attempt}", asyncio.sleep, 0)
        if job.attempt % 3 == 0:
            await job.sleep(f"nap-{job.attempt}", MOMENT)
        if job.attempt % 3 == 1:
            raise OSError("broken")
        await collection.update_one(
            {"_id": job.id}, {"$set": {"claimedBy": "dead", "lastHeartbeat": ago(hours=1)}}
        )
        await asyncio.Event().wait()

    await monque.start()

    async def given_up() -> dict[str, Any]:
        job = await only(collection)
        assert job["status"] == "failed"
        return job

    job = await eventually(given_up, within=60)
    assert job["crashCount"] == 4
