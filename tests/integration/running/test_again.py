"""A call whose key a running job holds: that job runs once more afterwards, with the newest payload."""

from __future__ import annotations

import asyncio
import signal
from datetime import timedelta
from typing import Any

import pytest
from pymongo.asynchronous.client_session import AsyncClientSession

from monque import Cancel, Enqueued, Fail, Job, JobStatus, Monque, RetryAfter, Snooze, Unique
from monque.embedded import EmbeddedMongo
from support.aliases import Collection, Database, Make
from support.clocks import ago
from support.jobs import claimed, document, find_one, only
from support.programs.child import child, uri_of
from support.waiting import Events, eventually, start

REPLACE = Unique("k", on_conflict="replace")
HOUR = timedelta(hours=1)


class Handler:
    """Remembers the payloads of its runs; the first run waits, and then ends as it was told."""

    def __init__(self, end: BaseException | None = None) -> None:
        self.runs: list[Any] = []
        self.begun = asyncio.Event()
        self.go_on = asyncio.Event()
        self._end = end

    async def __call__(self, job: Job[Any]) -> None:
        self.runs.append(job.data)
        if len(self.runs) > 1:
            return
        self.begun.set()
        await self.go_on.wait()
        if self._end is not None:
            raise self._end


async def run_and_call_again(monque: Monque, handler: Handler, calls: int = 2, **settings: Any) -> Events:
    """Let a first job run, call again, let the first run end, and wait until everything has ended."""
    monque.worker("work", handler)
    events = await start(monque)
    await monque.enqueue("work", 0, unique_key="k", **settings)
    await handler.begun.wait()
    for n in range(1, calls + 1):
        assert (await monque.enqueue("work", n, unique=REPLACE)).enqueued is Enqueued.AGAIN
    if calls:
        handler.go_on.set()
    return events


async def active(collection: Collection) -> int:
    return await collection.count_documents({"status": {"$in": ["pending", "processing"]}})


async def ended(collection: Collection) -> None:
    async def check() -> None:
        assert await active(collection) == 0

    await eventually(check, within=20)


class TestTheEndOfTheFirstRun:
    async def test_success(self, monque: Monque, collection: Collection) -> None:
        handler = Handler()
        events = await run_and_call_again(monque, handler)

        await ended(collection)

        job = await only(collection)
        assert handler.runs == [0, 2]
        assert (job["status"], job["data"], job["attempt"]) == ("completed", 2, 2)
        assert not {"again", "failReason"} & job.keys()
        assert [event.job.data for event in await events.wait("job:complete", count=2)] == [0, 2]

    @pytest.mark.parametrize("error", [OSError("broken"), RetryAfter(HOUR)])
    async def test_a_failure_that_would_be_retried(
        self, error: Exception, monque: Monque, collection: Collection
    ) -> None:
        handler = Handler(error)
        events = await run_and_call_again(monque, handler)

        await ended(collection)

        job = await only(collection)
        assert handler.runs == [0, 2]
        assert (job["status"], job["failCount"]) == ("completed", 0)
        assert [(entry["outcome"], entry["attempt"]) for entry in job["history"]] == [("retried", 1)]
        [failed] = await events.wait("job:fail")
        assert failed.will_retry

    async def test_a_failure_for_good_is_kept_as_a_copy(self, monque: Monque, collection: Collection) -> None:
        handler = Handler(Fail("no such shop"))
        events = await run_and_call_again(monque, handler)

        await ended(collection)

        assert handler.runs == [0, 2]
        done = await find_one(collection, {"status": "completed"})
        copy = await find_one(collection, {"status": "failed"})
        assert (copy["data"], copy["failReason"], copy["scheduleId"]) == (0, "no such shop", done["_id"])
        assert (done["data"], done["failedRunId"]) == (2, copy["_id"])
        assert "uniqueKey" not in copy
        [failed] = await events.wait("job:fail")
        assert (failed.job.id, failed.will_retry) == (copy["_id"], False)

    async def test_a_cancel_takes_the_call_with_it(self, monque: Monque, collection: Collection) -> None:
        handler = Handler(Cancel("not needed"))
        events = await run_and_call_again(monque, handler)

        await events.wait("job:cancelled")

        job = await only(collection)
        assert (job["status"], handler.runs) == ("cancelled", [0])
        assert "again" not in job

    async def test_a_request_to_cancel_takes_it_too(self, monque: Monque, collection: Collection) -> None:
        handler = Handler()
        monque.worker("work", handler)
        events = await start(monque)
        job = await monque.enqueue("work", 0, unique_key="k")
        await handler.begun.wait()
        await monque.enqueue("work", 1, unique=REPLACE)

        await monque.cancel_job(job.id, running=True)

        await events.wait("job:cancelled")
        stored = await only(collection)
        assert (stored["status"], handler.runs) == ("cancelled", [0])
        assert "again" not in stored

    async def test_a_run_that_returns_though_somebody_wanted_it_to_end(
        self, monque: Monque, collection: Collection
    ) -> None:
        runs, begun, go_on = list[Any](), asyncio.Event(), asyncio.Event()

        async def stubborn(job: Job[int]) -> None:
            runs.append(job.data)
            if job.data == 0:
                begun.set()
                try:
                    await go_on.wait()
                except asyncio.CancelledError:
                    return

        monque.worker("work", stubborn)
        await start(monque)
        job = await monque.enqueue("work", 0, unique_key="k")
        await begun.wait()
        await monque.enqueue("work", 1, unique=REPLACE)

        await monque.cancel_job(job.id, running=True)

        await ended(collection)
        stored = await only(collection)
        assert (runs, stored["status"], "again" in stored) == ([0], "cancelled", False)

    async def test_a_snooze_lets_the_call_run_and_not_the_job_that_waits(
        self, monque: Monque, collection: Collection
    ) -> None:
        handler = Handler(Snooze(HOUR))
        events = await run_and_call_again(monque, handler)

        await ended(collection)

        job = await only(collection)
        assert handler.runs == [0, 2]
        assert (job["status"], job["data"]) == ("completed", 2)
        assert not {"again", "snoozeCount"} & job.keys()
        [snoozed] = await events.wait("job:snoozed")
        assert (snoozed.job.snooze_count, snoozed.delay) == (0, timedelta(0))

    async def test_a_snooze_lets_the_call_wait_for_its_own_time(
        self, monque: Monque, collection: Collection
    ) -> None:
        handler = Handler(Snooze(timedelta(0)))
        events = await run_and_call_again(monque, handler, calls=0)
        await monque.enqueue("work", 1, unique=REPLACE, delay=HOUR)

        handler.go_on.set()
        [snoozed] = await events.wait("job:snoozed")

        job = await only(collection)
        assert (job["status"], job["data"], handler.runs) == ("pending", 1, [0])
        assert timedelta(minutes=59) < snoozed.delay == job["nextRunAt"] - job["updatedAt"] <= HOUR

    async def test_a_snooze_of_a_job_that_was_claimed_with_the_call_noted(
        self, monque: Monque, collection: Collection
    ) -> None:
        again = {"data": 1, "runAt": ago(seconds=5), "since": ago(seconds=5), "count": 1}
        await collection.insert_one(document(uniqueKey="k", data=0, again=again))
        handler = Handler(Snooze(HOUR))
        handler.go_on.set()
        monque.worker("work", handler)

        await monque.run_until_idle()

        assert (handler.runs, (await only(collection))["status"]) == ([0, 1], "completed")

    async def test_a_handler_that_always_snoozes_does_not_starve_the_call(self, monque: Monque) -> None:
        runs = list[int]()

        @monque.worker("work")
        async def work(job: Job[int]) -> None:
            runs.append(job.data)
            if job.data == 0:
                await monque.enqueue("work", 1, unique=REPLACE)
                raise Snooze(timedelta(0))

        await monque.enqueue("work", 0, unique_key="k")
        await monque.run_until_idle()

        assert runs == [0, 1]

    async def test_a_timeout_is_a_failure(self, monque: Monque, collection: Collection) -> None:
        handler = Handler()
        monque.worker("work", handler)
        await start(monque)
        await monque.enqueue("work", 0, unique_key="k", timeout=timedelta(seconds=1))
        await handler.begun.wait()

        await monque.enqueue("work", 1, unique=REPLACE)

        await ended(collection)
        job = await only(collection)
        assert (handler.runs, job["status"], "policy" in job) == ([0, 1], "completed", False)
        assert [entry["outcome"] for entry in job["history"]] == ["timed_out"]

    async def test_a_shutdown_puts_it_back_and_both_runs_follow(
        self, make_monque: Make, collection: Collection
    ) -> None:
        first, handler = make_monque(), Handler()
        await run_and_call_again_without_end(first, handler)
        await first.stop(timeout=0)
        released = await only(collection)

        second, later = make_monque(), list[Any]()
        second.worker("work", lambda job: later.append(job.data))
        await second.run_until_idle()

        assert (released["status"], released["data"], released["again"]["data"]) == ("pending", 0, 1)
        assert later == [0, 1]

    async def test_expired_before_it_started(self, monque: Monque, collection: Collection) -> None:
        """A job that was put back with a call noted in it, and is not worth running any more."""
        again = {"data": 1, "runAt": ago(seconds=5), "since": ago(seconds=5), "count": 1}
        await collection.insert_one(
            document(uniqueKey="k", data=0, policy={"expiresAt": ago(minutes=1)}, again=again)
        )
        handler, events = Handler(), Events(monque)
        handler.go_on.set()
        monque.worker("work", handler)

        await monque.run_until_idle()

        assert handler.runs == [1]
        assert (await only(collection))["status"] == "completed"
        assert not events.of("job:fail")
        assert not events.of("job:cancelled")


async def run_and_call_again_without_end(monque: Monque, handler: Handler) -> None:
    monque.worker("work", handler)
    await start(monque)
    await monque.enqueue("work", 0, unique_key="k")
    await handler.begun.wait()
    await monque.enqueue("work", 1, unique=REPLACE)


class TestRaces:
    async def test_a_call_between_the_end_of_the_handler_and_the_write_is_not_lost(
        self, monque: Monque, collection: Collection
    ) -> None:
        """The completion finds the note and does not apply; the job is decided again."""
        for _ in range(3):
            await collection.delete_many({})
            handler = Handler()
            monque.worker("work", handler, replace=True)
            await monque.start()
            job = await monque.enqueue("work", 0, unique_key="k")
            await handler.begun.wait()
            note = asyncio.create_task(monque.enqueue("work", 1, unique=REPLACE))
            handler.go_on.set()
            answer = await note

            await ended(collection)
            assert handler.runs == [0, 1]
            assert answer.enqueued in (Enqueued.AGAIN, Enqueued.NEW)
            assert (answer.id == job.id) is (answer.enqueued is Enqueued.AGAIN)

    async def test_calls_under_a_worker_never_go_backwards_and_the_last_runs_last(
        self, make_monque: Make, collection: Collection
    ) -> None:
        """The trial of the specification: four callers against a worker."""
        monque, runs = make_monque(), list[int]()

        async def work(job: Job[int]) -> None:
            runs.append(job.data)
            await asyncio.sleep(0.002)

        monque.worker("work", work)
        await monque.start()
        numbers = iter(range(200))
        order = asyncio.Lock()

        async def call() -> None:
            while True:
                async with order:  # the number and its write together: only then there is an order
                    if (n := next(numbers, None)) is None:
                        return
                    await monque.enqueue("work", n, unique=REPLACE)
                await asyncio.sleep(0)

        await asyncio.gather(*(call() for _ in range(4)))
        await ended(collection)

        assert runs == sorted(set(runs))
        assert runs[-1] == 199


class TestCompleteIn:
    @pytest.mark.parametrize("noted", ["before", "after"])
    async def test_the_transaction_puts_the_job_back_for_the_call(
        self, noted: str, monque: Monque, collection: Collection
    ) -> None:
        runs, others = list[int](), collection.database["others"]
        await others.insert_one({"n": 0})

        @monque.worker("work")
        async def work(job: Job[int]) -> None:
            runs.append(job.data)

            async def transfer(session: AsyncClientSession) -> None:
                await others.update_one({}, {"$inc": {"n": 1}}, session=session)
                await job.complete_in(session)

            if noted == "before" and job.data == 0:
                await monque.enqueue("work", 1, unique=REPLACE)
            async with monque.client.start_session() as session:
                await session.with_transaction(transfer)
            if noted == "after" and job.data == 0:
                assert (await monque.enqueue("work", 1, unique=REPLACE)).enqueued is Enqueued.NEW

        await monque.enqueue("work", 0, unique_key="k")
        await monque.run_until_idle()

        assert runs == [0, 1]
        assert (await find_one(others))["n"] == 2
        assert await active(collection) == 0
        assert await collection.count_documents({}) == (1 if noted == "before" else 2)


class TestRecovery:
    async def test_a_job_of_a_dead_owner_keeps_the_call(
        self, make_monque: Make, collection: Collection
    ) -> None:
        await collection.insert_one(self._dead())
        monque, runs = make_monque(), list[Any]()
        monque.worker("work", lambda job: runs.append(job.data))

        await monque.run_until_idle()

        assert runs == [0, 1]
        assert (await only(collection))["status"] == "completed"

    async def test_one_that_killed_its_processes_is_kept_as_a_copy_and_the_call_runs(
        self, make_monque: Make, collection: Collection
    ) -> None:
        await collection.insert_one(self._dead(policy={"maxAttempts": 1}))
        monque, runs = make_monque(), list[Any]()
        events = Events(monque)
        monque.worker("work", lambda job: runs.append(job.data))

        await monque.run_until_idle()

        done = await find_one(collection, {"status": "completed"})
        copy = await find_one(collection, {"status": "failed"})
        assert runs == [1]
        assert (copy["data"], copy["scheduleId"], done["failedRunId"]) == (0, done["_id"], copy["_id"])
        assert not {"again", "policy", "crashCount"} & done.keys()
        [failed] = events.of("job:fail")
        assert failed.job.id == copy["_id"]

    async def test_one_that_is_to_be_cancelled_takes_the_call_with_it(
        self, make_monque: Make, collection: Collection
    ) -> None:
        await collection.insert_one(self._dead(cancel={"at": ago(minutes=1), "by": "operator"}))
        monque = make_monque()
        monque.worker("work", lambda job: None)

        await monque.run_until_idle()

        job = await only(collection)
        assert (job["status"], "again" in job) == ("cancelled", False)

    @staticmethod
    def _dead(**fields: Any) -> dict[str, Any]:
        again = {"data": 1, "runAt": ago(minutes=1), "since": ago(minutes=1), "count": 1}
        silent = {"lastHeartbeat": ago(hours=1), "lockedAt": ago(hours=1)}
        return claimed("dead", uniqueKey="k", data=0, again=again, **silent, **fields)


async def test_a_worker_that_is_killed_while_a_call_is_noted(
    server: EmbeddedMongo, database: Database, monque: Monque, make_monque: Make, collection: Collection
) -> None:
    """Whoever recovers the job does both runs: that of the dead process, and the one for the call."""
    runs: list[Any] = []
    async with child("cancellable_worker", uri_of(server, database)) as worker:
        job = await monque.enqueue("waits", None, unique_key="k")
        await worker.wait_for("job:start waits")
        assert (await monque.enqueue("waits", 1, unique=REPLACE)).enqueued is Enqueued.AGAIN
        worker.send(signal.SIGKILL)
        await worker.ends()
    # The dead owner promised a heartbeat a minute, which nobody waits for here.
    silent = {"lastHeartbeat": ago(hours=1), "lockedAt": ago(hours=1)}
    await collection.update_one({"_id": job.id}, {"$set": silent})
    other = make_monque()
    other.worker("waits", lambda job: runs.append(job.data))

    await other.run_until_idle()  # it recovers when it opens

    assert runs == [None, 1]
    assert (await only(collection))["status"] == "completed"


async def test_an_operator_who_cancels_a_waiting_job_cancels_the_call_noted_in_it(
    monque: Monque, collection: Collection
) -> None:
    again = {"data": 1, "runAt": ago(), "since": ago(), "count": 1}
    for reason in (None, "not needed"):
        waiting = document(uniqueKey="k", again=again)
        await collection.insert_one(waiting)

        job = await monque.cancel_job(waiting["_id"], reason=reason)

        assert job.status is JobStatus.CANCELLED
        assert "again" not in await find_one(collection, {"_id": waiting["_id"]})
