"""Cancelling jobs that run: who learns of it, what the handler sees, and how the job ends."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import timedelta
from typing import Annotated, Any

import pytest
from fastapi import Depends, FastAPI
from pymongo import AsyncMongoClient
from pymongo.asynchronous.client_session import AsyncClientSession

from monque import (
    ConfigurationError,
    Job,
    JobFilter,
    JobInterrupted,
    JobStateError,
    JobStatus,
    Monque,
    NewJob,
)
from monque.embedded import EmbeddedMongo
from monque.fastapi import JobRouter, setup_monque
from monque.testing import run_handler
from support.aliases import Collection, Database, Make
from support.clocks import ago, now
from support.completing import Accounts, Deposit, Depositing
from support.jobs import claimed, document, find_one, statuses
from support.options import BEATING, QUICK, WATCHFUL
from support.programs.child import child, uri_of
from support.traffic import LOOKS_FOR_REQUESTS, Traffic, counted_instance
from support.typescript import TypeScript
from support.waiting import Events, eventually, start
from support.working import Pause, Work, prefetch, start_with

NO_STREAM = replace(QUICK, change_streams=False)
REQUEST = {"at": ago(seconds=1), "by": "operator", "reason": "enough"}


class Thread:
    """A blocking handler that runs until *until* says so, then raises *error* if it has one."""

    def __init__(self, until: Callable[[Job[Any]], bool], error: BaseException | None = None) -> None:
        self._until, self._error = until, error
        self.seen: list[tuple[bool, str | None, bool]] = []

    def __call__(self, job: Job[Any]) -> None:
        deadline = time.monotonic() + 20
        try:
            while not self._until(job) and time.monotonic() < deadline:
                time.sleep(0.001)
            if self._error is not None:
                raise self._error
        finally:
            self.seen.append((job.interrupted, job.interruption, job.cancel_requested))


def at_checkpoint(job: Job[Any]) -> bool:
    job.checkpoint()
    return False


def when_interrupted(job: Job[Any]) -> bool:
    return job.interrupted


async def running(monque: Monque, handler: Any, **options: Any) -> tuple[Job[Any], Events]:
    """Start *monque*, wait for its change stream, and run one job called `work`."""
    monque.worker("work", handler, **options)
    until = "changestream:connected" if monque.options.change_streams else "job:start"
    if until == "job:start":
        job = await monque.enqueue("work")
        return job, await start(monque, until=until)
    events = await start(monque)
    job = await monque.enqueue("work")
    await events.wait("job:start")
    return job, events


# How it ends


async def test_a_running_coroutine_is_cancelled_and_its_job_with_it(
    monque: Monque, collection: Collection
) -> None:
    reasons: list[str | None] = []

    async def work(job: Job[Any]) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            reasons.append(job.interruption)

    job, events = await running(monque, work)
    asked = await monque.cancel_job(job.id, running=True, reason="wrong customer")
    [cancelling] = events.of("job:cancelling")
    [cancelled] = await events.wait("job:cancelled")
    stored = await find_one(collection)

    assert (asked.status, asked.cancel_requested, asked.cancelled_by) == (JobStatus.PROCESSING, True, None)
    assert cancelling.job == asked
    assert reasons == ["requested"]
    assert (cancelled.job.status, cancelled.job.cancelled_by) == (JobStatus.CANCELLED, "operator")
    assert cancelled.job.cancel_reason == "wrong customer"
    assert cancelled.job == await monque.get_job(job.id)
    assert stored["cancel"] == {
        "at": stored["cancel"]["at"],
        "by": "operator",
        "reason": "wrong customer",
    }
    assert abs(stored["cancel"]["at"] - now()) < timedelta(minutes=1)
    assert (stored["failCount"], stored["settledAttempt"]) == (0, 1)
    assert not {"claimedBy", "lockedAt", "lastHeartbeat", "failReason"} & stored.keys()
    assert not {"job:fail", "job:lost", "job:complete"} & set(events.kinds())


@pytest.mark.parametrize(
    "error", [ValueError("torn"), SystemExit(3), JobInterrupted("requested")], ids=lambda error: repr(error)
)
async def test_any_error_after_the_request_cancels_the_job(monque: Monque, error: BaseException) -> None:
    async def work(job: Job[Any]) -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            raise error from None

    job, events = await running(monque, work)
    await monque.cancel_job(job.id, running=True)
    [cancelled] = await events.wait("job:cancelled")

    assert (cancelled.job.status, cancelled.job.fail_count) == (JobStatus.CANCELLED, 0)
    assert "job:fail" not in events.kinds()


async def test_a_handler_that_returns_after_the_request_has_completed_its_job(
    monque: Monque, collection: Collection
) -> None:
    async def work(job: Job[Any]) -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return

    job, events = await running(monque, work)
    await monque.cancel_job(job.id, running=True)
    [completed] = await events.wait("job:complete")

    assert (completed.job.status, completed.job.cancel_requested) == (JobStatus.COMPLETED, True)
    assert completed.job.cancelled_by is None
    assert (await find_one(collection))["cancel"]["by"] == "operator"


async def test_a_thread_leaves_at_its_next_checkpoint(monque: Monque) -> None:
    handler = Thread(at_checkpoint)
    job, events = await running(monque, handler)
    await monque.cancel_job(job.id, running=True)
    [cancelled] = await events.wait("job:cancelled")

    assert handler.seen == [(True, "requested", True)]
    assert (cancelled.job.status, cancelled.job.fail_count) == (JobStatus.CANCELLED, 0)


async def test_any_error_of_a_thread_after_the_request_cancels_the_job(monque: Monque) -> None:
    job, events = await running(monque, Thread(when_interrupted, ValueError("no")))
    await monque.cancel_job(job.id, running=True)
    [cancelled] = await events.wait("job:cancelled")

    assert (cancelled.job.status, cancelled.job.fail_count) == (JobStatus.CANCELLED, 0)


async def test_a_thread_without_checkpoints_completes_its_job(monque: Monque) -> None:
    handler = Thread(when_interrupted)
    job, events = await running(monque, handler)
    await monque.cancel_job(job.id, running=True)
    [completed] = await events.wait("job:complete")

    assert (completed.job.status, completed.job.cancel_requested) == (JobStatus.COMPLETED, True)
    assert handler.seen == [(True, "requested", True)]


async def test_a_thread_that_raises_an_interruption_by_itself_has_failed(monque: Monque) -> None:
    _, events = await running(monque, Thread(lambda _: True, JobInterrupted("requested")))
    [failed] = await events.wait("job:fail")

    assert failed.job.fail_reason == "JobInterrupted: the run was told to stop: an operator has asked for it"


@pytest.mark.parametrize("returns", [True, False], ids=["returns", "is cancelled"])
async def test_a_recurring_job_is_cancelled_for_good(monque: Monque, returns: bool) -> None:
    async def work(job: Job[Any]) -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            if not returns:
                raise

    monque.worker("work", work)
    events = await start(monque)
    schedule = await monque.schedule("@yearly", "work")
    await monque.reschedule_job(schedule.id, ago(seconds=1))
    await events.wait("job:start")
    await monque.cancel_job(schedule.id, running=True)
    await events.wait("job:cancelled")
    ended = await monque.get_job(schedule.id)

    assert ended is not None
    assert (ended.status, ended.cancelled_by) == (JobStatus.CANCELLED, "operator")


async def test_a_schedule_that_ends_its_run_before_it_hears_of_the_request_is_cancelled_all_the_same(
    make_monque: Make, collection: Collection
) -> None:
    """The request comes between the end of the handler and its settlement: the owner never saw it."""
    monque = await make_monque(options=NO_STREAM).open()

    async def work(job: Job[Any]) -> None:
        await collection.update_one({"_id": job.id}, {"$set": {"cancel": REQUEST}})

    monque.worker("work", work)
    schedule = await monque.schedule("@yearly", "work")
    await monque.reschedule_job(schedule.id, ago(seconds=1))
    events = await start(monque, until="job:cancelled")

    assert events.of("job:cancelled")[0].job.id == schedule.id
    assert await statuses(collection) == {"cancelled": 1}


# What happens in the meantime


async def test_a_claimed_job_that_waits_for_a_slot_is_settled_without_a_call(monque: Monque) -> None:
    await prefetch(monque)
    held: list[Job[Any]] = []

    async def some_wait() -> None:
        held[:] = (await monque.list_jobs(JobFilter(status="processing"))).jobs
        assert len(held) > 2

    await eventually(some_wait)
    started = {event.job.id for event in Events(monque).of("job:start")}
    result = await monque.cancel_jobs(JobFilter(name="work"), running=True)

    async def all_over() -> None:
        assert await monque.count_jobs(JobFilter(status=["pending", "processing"])) == 0

    await eventually(all_over)
    assert started == set()
    assert result.count + result.requested >= 20
    assert await monque.count_jobs(JobFilter(cancelled_by="operator")) == 20


async def test_a_job_that_was_put_back_before_its_owner_knew_is_cancelled_by_the_next_one(
    monque: Monque, collection: Collection, events: Events
) -> None:
    work = Work()
    monque.worker("work", work)
    await collection.insert_one(document(cancel=REQUEST, failCount=1, attempt=1))
    await monque.run_until_idle()
    [cancelled] = events.of("job:cancelled")

    assert work.runs == {}
    assert (cancelled.job.status, cancelled.job.cancel_reason) == (JobStatus.CANCELLED, "enough")
    assert (cancelled.job.fail_count, cancelled.job.attempt) == (1, 2)
    assert "job:start" not in events.kinds()


@pytest.mark.parametrize("record", ["odd", None, [REQUEST], 7], ids=lambda record: type(record).__name__)
async def test_a_record_that_is_no_request_keeps_no_job_from_running(
    monque: Monque, collection: Collection, record: Any
) -> None:
    """TypeScript instances leave it there when they retry a cancelled job."""
    work = Work()
    monque.worker("work", work)
    await collection.insert_one(document(cancel=record))
    await monque.run_until_idle()

    assert await statuses(collection) == {"completed": 1}


async def test_thousands_of_jobs_that_were_put_back_are_cancelled_in_few_writes(
    server: EmbeddedMongo, database: Database, make_monque: Make, collection: Collection
) -> None:
    await collection.insert_many([document(cancel=REQUEST) for _ in range(3_000)])
    traffic = Traffic("update", "findAndModify")
    async with AsyncMongoClient(server.uri, tz_aware=True, event_listeners=[traffic]) as client:
        monque = await make_monque(client[database.name]).open()
        monque.worker("work", Work(), concurrency=5)
        traffic.clear()
        await monque.run_until_idle()
        await monque.close()

    assert await statuses(collection) == {"cancelled": 3_000}
    assert traffic.sent.total() < 60


async def test_recovery_cancels_a_job_whose_owner_died_before_it_could(
    make_monque: Make, collection: Collection
) -> None:
    dead = {"lastHeartbeat": ago(hours=1), "lockedAt": ago(hours=1), "heartbeatInterval": 100}
    asked = claimed("dead", cancel=REQUEST, **dead)
    hopeless = claimed("dead", cancel=REQUEST, crashCount=9, **dead)
    schedule = claimed(
        "dead", cancel=REQUEST, crashCount=9, repeatInterval="@yearly", timezone="UTC", uniqueKey="k", **dead
    )
    plain = claimed("dead", **dead)
    await collection.insert_many([asked, hopeless, schedule, plain])
    monque = make_monque(options=WATCHFUL)
    events = Events(monque)
    await monque.open()
    await eventually(lambda: recovered(collection, 4))

    found = {job["_id"]: job["status"] async for job in collection.find()}
    assert found == {
        asked["_id"]: "cancelled",
        hopeless["_id"]: "cancelled",
        schedule["_id"]: "cancelled",
        plain["_id"]: "pending",
    }
    assert {event.job.id for event in events.of("job:cancelled")} == set(found) - {plain["_id"]}
    assert [event.count for event in events.of("stale:recovered")] == [4]
    assert "job:fail" not in events.kinds()


async def recovered(collection: Collection, count: int) -> None:
    assert await collection.count_documents({"lostAttempt": 1}) == count


async def test_an_operators_retry_forgets_the_request(monque: Monque, collection: Collection) -> None:
    work = Work()
    monque.worker("work", work)
    job = await monque.enqueue("work")
    await monque.cancel_job(job.id, reason="not now")
    cancelled = await monque.get_job(job.id)
    await monque.retry_job(job.id)
    await monque.run_until_idle()

    assert cancelled is not None
    assert (cancelled.cancel_reason, cancelled.cancelled_by) == ("not now", "operator")
    assert "cancel" not in await find_one(collection)
    assert await statuses(collection) == {"completed": 1}


class TestInATransaction:
    """The handler completes its job by itself."""

    async def test_after_the_commit_the_job_is_completed(
        self, monque: Monque, database: Database, collection: Collection
    ) -> None:
        accounts, committed = Accounts(database["accounts"]), Pause()
        await accounts.create()
        job, events = await self.start(monque, Depositing(monque, accounts, after=committed))
        await committed.wait()
        with pytest.raises(JobStateError, match="it is completed"):
            await monque.cancel_job(job.id, running=True)
        committed.go_on.set()
        await events.wait("job:complete")

        assert await accounts.total() == 5

    async def test_a_request_before_the_commit_ends_both(
        self, monque: Monque, database: Database, collection: Collection
    ) -> None:
        """The request comes after the transaction has begun, and before its first write."""
        accounts, begun = Accounts(database["accounts"]), Pause()
        await accounts.create()

        async def work(job: Job[Deposit]) -> None:
            async def transact(session: AsyncClientSession) -> None:
                await begun()
                await job.complete_in(session)
                await accounts.add(job.data, session)

            async with monque.client.start_session() as session:
                await session.with_transaction(transact)

        job, events = await self.start(monque, work)
        await begun.wait()
        await monque.cancel_job(job.id, running=True)
        [cancelled] = await events.wait("job:cancelled")

        assert cancelled.job.status is JobStatus.CANCELLED
        assert await accounts.total() == 0

    async def start(self, monque: Monque, handler: Any) -> tuple[Job[Any], Events]:
        deposit = monque.worker("deposit", handler)
        events = await start(monque)
        return await monque.enqueue(deposit, Deposit(5)), events


# How the owner learns


@pytest.mark.parametrize("how", ["stream", "no stream"])
@pytest.mark.parametrize("name", ["waits", "computes"])
async def test_another_process_stops_its_job_within_a_second_or_two(
    how: str, name: str, server: EmbeddedMongo, database: Database, monque: Monque
) -> None:
    """A minute passes between two heartbeats, so they tell it nothing."""
    async with child("cancellable_worker", uri_of(server, database), how.replace(" ", "-")) as worker:
        if how == "stream":
            await worker.wait_for("changestream:connected")
        job = await monque.enqueue(name)
        await worker.wait_for(f"job:start {name}")
        began = time.monotonic()
        await monque.cancel_job(job.id, running=True)
        await worker.wait_for(f"job:cancelled {name}")
        took = time.monotonic() - began

    assert f"{name}: requested" in worker.said
    assert took < (1.0 if how == "stream" else 2.5)
    ended = await monque.get_job(job.id)
    assert ended is not None
    assert ended.status is JobStatus.CANCELLED


async def test_a_stream_that_is_closed_for_a_backlog_delays_it_by_a_second_at_most(
    monque: Monque, collection: Collection
) -> None:
    endless = Pause()
    monque.worker("endless", endless)
    monque.worker("work", lambda _job: time.sleep(0.15), concurrency=4)
    events = await start(monque)
    job = await monque.enqueue("endless")
    await endless.wait()
    await monque.enqueue_many([NewJob("work") for _ in range(300)])
    await events.wait("changestream:closed")
    began = time.monotonic()
    await monque.cancel_job(job.id, running=True)
    await events.wait("job:cancelled")

    assert time.monotonic() - began < 2.5
    await monque.cancel_jobs(JobFilter(name="work"))


async def test_a_hint_that_comes_before_the_answer_to_the_claim_is_not_lost(
    make_monque: Make, collection: Collection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server has claimed the job, an operator asks for its end, and only then its owner hears of both."""
    monque = await make_monque().open()
    claimer = monque._opening.here().store.claimer
    claim = claimer.claim

    async def slow(*args: Any, **kwargs: Any) -> Any:
        claimed = await claim(*args, **kwargs)
        if claimed.claimed:
            await operator.cancel_job(claimed.claimed[0].id, running=True)
            await asyncio.sleep(0.3)  # the hint comes meanwhile
        return claimed

    operator = await make_monque().open()
    events = await start_with(monque, Work(waits=True))
    monkeypatch.setattr(claimer, "claim", slow)
    await operator.enqueue("work")
    await events.wait("job:cancelled", within=7)  # a heartbeat would tell of it after nine seconds

    assert await statuses(collection) == {"cancelled": 1}


async def test_a_heartbeat_finds_a_request_that_no_hint_told_of(
    make_monque: Make, collection: Collection
) -> None:
    """A change inside of a record that was there before is no hint."""
    monque = await make_monque(options=BEATING).open()
    job, events = await running(monque, Work(waits=True))
    await collection.update_one({"_id": job.id}, {"$set": {"cancel": {"at": now(), "by": "expiry"}}})
    await collection.update_one({"_id": job.id}, {"$set": {"cancel.by": "operator"}})
    [cancelled] = await events.wait("job:cancelled")

    assert cancelled.job.status is JobStatus.CANCELLED


async def test_each_heartbeat_looks_for_requests(server: EmbeddedMongo, database: Database) -> None:
    """Looks for dead owners are rarer."""
    options = replace(BEATING, heartbeat_interval=timedelta(milliseconds=200))
    async with counted_instance(server, database, options) as (monque, sent):
        monque.worker("work", work := Work(waits=True))
        await monque.enqueue("work")

        async def beaten() -> None:
            assert sent["update"] >= 10

        await eventually(beaten)
        beats, looks = sent["update"], sent[LOOKS_FOR_REQUESTS]
        work.done.set()

    assert looks > beats / 2


async def test_a_request_for_a_newer_claim_does_not_stop_an_older_run(
    make_monque: Make, collection: Collection
) -> None:
    monque = await make_monque(options=BEATING).open()
    reasons: list[str | None] = []

    async def work(job: Job[Any]) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            reasons.append(job.interruption)

    job, events = await running(monque, work)
    await collection.update_one({"_id": job.id}, {"$set": {"cancel": REQUEST}, "$inc": {"attempt": 1}})
    await events.wait("job:lost")
    await monque.stop()

    assert reasons == ["lost"]
    assert (await find_one(collection))["status"] == "processing"
    await collection.delete_many({})


async def test_the_first_reason_stays_and_a_lost_claim_settles_nothing(
    make_monque: Make, collection: Collection
) -> None:
    monque = await make_monque(options=BEATING).open()
    told, gone = threading.Event(), threading.Event()

    def until_gone(job: Job[Any]) -> bool:
        if job.interrupted:
            told.set()
        return gone.is_set()

    handler = Thread(until_gone)
    job, events = await running(monque, handler)
    await monque.cancel_job(job.id, running=True)
    assert await asyncio.to_thread(told.wait, 10)
    await monque.delete_job(job.id)
    await events.wait("job:lost")
    gone.set()
    await monque.stop()

    assert handler.seen == [(True, "requested", True)]
    assert not {"job:cancelled", "job:complete"} & set(events.kinds())


async def test_an_instance_without_running_jobs_asks_for_no_requests(
    server: EmbeddedMongo, database: Database, make_monque: Make
) -> None:
    traffic = Traffic("find")
    async with AsyncMongoClient(server.uri, tz_aware=True, event_listeners=[traffic]) as client:
        options = replace(NO_STREAM, poll_interval=timedelta(minutes=1))
        monque = await make_monque(client[database.name], options=options).open()
        endless = Pause()
        monque.worker("work", endless)
        await monque.start()
        traffic.clear()
        await asyncio.sleep(2.2)
        idle = [command for command in traffic.commands if "cancel.by" in command["filter"]]
        await monque.enqueue("work")
        await endless.wait()

        def asked() -> None:
            assert [command for command in traffic.commands if "cancel.by" in command["filter"]]

        await eventually(asked)
        endless.go_on.set()
        await monque.close()

    assert idle == []


# Operators


async def test_without_running_a_processing_job_is_refused_with_the_way_to_stop_it(
    monque: Monque, collection: Collection
) -> None:
    before = claimed("elsewhere")
    await collection.insert_one(before)

    with pytest.raises(JobStateError, match="give running=True"):
        await monque.cancel_job(before["_id"])
    assert await find_one(collection) == before


async def test_a_second_request_changes_nothing_and_emits_nothing(
    monque: Monque, collection: Collection, events: Events
) -> None:
    job = claimed("elsewhere")
    await collection.insert_one(job)
    first = await monque.cancel_job(job["_id"], running=True, reason="first")
    second = await monque.cancel_job(job["_id"], running=True, reason="second")

    assert second == first
    assert second.cancel_reason == "first"
    assert events.kinds() == ["job:cancelling"]


@pytest.mark.parametrize("status", ["completed", "failed"])
async def test_a_finished_job_cannot_be_stopped(monque: Monque, collection: Collection, status: str) -> None:
    job = document(status=status)
    await collection.insert_one(job)

    with pytest.raises(JobStateError, match="only a pending or processing one can be"):
        await monque.cancel_job(job["_id"], running=True)


@pytest.mark.parametrize("reason", ["", "  ", 7, "x" * 1001, "\ud800", b"x"], ids=lambda text: repr(text)[:9])
async def test_a_reason_that_cannot_be_shown_is_refused_before_anything_is_stored(
    monque: Monque, collection: Collection, reason: Any
) -> None:
    job = document()
    await collection.insert_one(job)

    with pytest.raises(ConfigurationError, match="reason must"):
        await monque.cancel_job(job["_id"], reason=reason)
    with pytest.raises(ConfigurationError, match="reason must"):
        await monque.cancel_jobs(JobFilter(), running=True, reason=reason)
    assert await find_one(collection) == job


async def test_a_reason_with_a_dollar_sign_is_text(monque: Monque, collection: Collection) -> None:
    waits, runs = document(), claimed("elsewhere")
    await collection.insert_many([waits, runs])
    await monque.cancel_jobs(JobFilter(), running=True, reason="$name")

    assert [job["cancel"]["reason"] async for job in collection.find()] == ["$name", "$name"]


async def test_a_filter_over_ten_thousand_asks_them_all(
    monque: Monque, collection: Collection, events: Events
) -> None:
    busy = [claimed("elsewhere") for _ in range(10_000)]
    done = [document(status="completed") for _ in range(10)]
    await collection.insert_many([*busy, *done, document(), claimed("elsewhere", name="other")])
    result = await monque.cancel_jobs(JobFilter(name="work"), running=True, reason="enough")
    again = await monque.cancel_jobs(JobFilter(name="work"), running=True, reason="again")

    assert (result.count, result.requested, result.errors) == (1, 10_000, [])
    assert (again.count, again.requested) == (0, 10_000)
    assert await collection.count_documents({"cancel.reason": "enough"}) == 10_001
    assert [event.count for event in events.of("jobs:cancelled")] == [1]
    await collection.delete_many({})


async def test_cancelling_many_without_running_leaves_running_ones_alone(
    monque: Monque, collection: Collection
) -> None:
    runs = claimed("elsewhere")
    await collection.insert_many([runs, document()])
    result = await monque.cancel_jobs(JobFilter())

    assert (result.count, result.requested) == (1, 0)
    assert await find_one(collection, {"_id": runs["_id"]}) == runs
    await collection.delete_many({})


@pytest.mark.parametrize(
    ("by", "expected"), [("operator", {"o", "p", "t"}), ("handler", {"h"}), ("expiry", {"e"})]
)
async def test_a_filter_finds_jobs_by_who_cancelled_them(
    monque: Monque, collection: Collection, by: Any, expected: set[str]
) -> None:
    def ended(data: str, **fields: Any) -> dict[str, Any]:
        return document(data=data, status="cancelled", **fields)

    await collection.insert_many(
        [
            ended("o", cancel=REQUEST),
            ended("p"),
            ended("t", cancel="odd"),
            ended("h", cancel={"at": now(), "by": "handler"}),
            ended("e", cancel={"at": now(), "by": "expiry"}),
            document(data="c", status="completed", cancel=REQUEST),
        ]
    )
    found = {job.data async for job in monque.iter_jobs(JobFilter(cancelled_by=by))}

    assert found == expected
    assert {job.cancelled_by async for job in monque.iter_jobs(JobFilter(cancelled_by=by))} == {by}


@pytest.mark.parametrize("by", ["handler", "expiry"])
async def test_a_cancelled_job_that_typescript_retries_runs_again(
    monque: Monque, collection: Collection, by: str
) -> None:
    """TypeScript instances leave the record of the cancellation there."""
    work = Work()
    monque.worker("work", work)
    await collection.insert_one(job := document(status="cancelled", cancel={"at": now(), "by": by}))
    await TypeScript(collection).retry(job["_id"])
    await monque.run_until_idle()

    assert work.runs.total() == 1
    await collection.delete_many({})


async def test_a_filter_by_who_cancelled_is_refused_for_somebody_else() -> None:
    with pytest.raises(ConfigurationError, match="cancelled_by must be one of operator, handler, expiry"):
        JobFilter(cancelled_by="me")


# Others


async def test_a_typescript_owner_completes_its_job_and_the_request_stays(
    monque: Monque, collection: Collection
) -> None:
    typescript, job = TypeScript(collection), document()
    await collection.insert_one(job)
    await typescript.claim(job["_id"])
    asked = await monque.cancel_job(job["_id"], running=True)
    await typescript.complete(job["_id"])
    done = await monque.get_job(job["_id"])

    assert (asked.status, asked.cancel_requested) == (JobStatus.PROCESSING, True)
    assert done is not None
    assert (done.status, done.cancel_requested, done.cancelled_by) == (JobStatus.COMPLETED, True, None)


async def test_a_job_that_typescript_failed_after_the_request_is_cancelled_by_the_next_python_owner(
    monque: Monque, collection: Collection, events: Events
) -> None:
    typescript, job, work = TypeScript(collection), document(), Work()
    await collection.insert_one(job)
    await typescript.claim(job["_id"])
    await monque.cancel_job(job["_id"], running=True)
    await typescript.fail(job["_id"], after=timedelta(seconds=-1))
    monque.worker("work", work)
    await monque.run_until_idle()

    assert work.runs == {}
    assert await statuses(collection) == {"cancelled": 1}


async def test_dependencies_of_a_fastapi_handler_see_the_interruption() -> None:
    seen: list[str] = []

    def get_file() -> Iterator[str]:
        try:
            yield "rows.csv"
        except JobInterrupted as interrupted:
            seen.append(interrupted.why)
            raise

    router = JobRouter()

    @router.job("import")
    def import_rows(job: Job[None], file: Annotated[str, Depends(get_file)]) -> None:
        seen.append(file)
        job.checkpoint()
        seen.append("not stopped")

    with pytest.raises(JobInterrupted):
        await run_handler(import_rows, interruption="requested")

    assert seen == ["rows.csv", "requested"]


async def test_a_fastapi_handler_can_be_told_to_stop(make_monque: Make) -> None:
    router = JobRouter()

    @router.job("work")
    async def work(job: Job[None]) -> None:
        await asyncio.Event().wait()

    monque = make_monque(options=QUICK)
    app = FastAPI()
    setup_monque(app, monque, routers=[router])
    async with app.router.lifespan_context(app):
        events = Events(monque)
        job = await work.enqueue()
        await events.wait("job:start")
        await monque.cancel_job(job.id, running=True)
        [cancelled] = await events.wait("job:cancelled")

    assert cancelled.job.status is JobStatus.CANCELLED
