"""Signals: whoever knows a job sends it a value, early, late or while others do, and it arrives once."""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from bson import ObjectId
from pymongo import AsyncMongoClient

from monque import (
    Cancel,
    ConfigurationError,
    Job,
    JobStateError,
    JobStatus,
    Monque,
    NewJob,
    Options,
    PayloadError,
    SyncMonque,
    Unique,
    Wait,
    WaitTimeoutError,
)
from monque._store.document import PARKED
from monque.embedded import EmbeddedMongo
from support.aliases import Collection, Database, Make
from support.clocks import ago
from support.jobs import claimed, document, find_one
from support.options import NEVER_POLLING, QUICK
from support.programs.child import child, uri_of
from support.scale import at_scale
from support.traffic import Traffic
from support.waiting import start

HOUR = timedelta(hours=1)
AWAITS = {
    "nextRunAt": PARKED,
    "parked": {"why": "signal", "key": "go", "since": ago(hours=1)},
    "steps": [{"n": "go", "k": "signal", "at": ago(hours=1)}],
}


async def signals_of(collection: Collection, job: dict[str, Any]) -> list[tuple[str, Any]]:
    stored = await find_one(collection, {"_id": job["_id"]})
    return [(each["n"], each["v"]) for each in stored.get("signals", [])]


@pytest.fixture
async def waiting(collection: Collection) -> dict[str, Any]:
    """A job that waits for the signal `go`."""
    job = document(uniqueKey="k", **AWAITS)
    await collection.insert_one(job)
    return job


class TestAddress:
    async def test_a_job_is_found_by_itself_its_id_or_the_text_of_it(
        self, monque: Monque, collection: Collection, waiting: dict[str, Any]
    ) -> None:
        job = await monque.get_job(waiting["_id"])
        assert job is not None

        for number, address in enumerate([job, job.id, str(job.id)]):
            assert await monque.signal(address, "go", number) is True

        assert await signals_of(collection, waiting) == [("go", 0), ("go", 1), ("go", 2)]

    async def test_a_job_is_found_by_its_worker_or_name_and_its_key(
        self, monque: Monque, collection: Collection, waiting: dict[str, Any]
    ) -> None:
        worker = monque.worker("work", never_called)
        ended = document(uniqueKey="k", status="completed")
        await collection.insert_one(ended)

        assert await monque.signal(worker, "go", 1, unique_key="k") is True
        assert await monque.signal("work", "go", 2, unique_key="k") is True
        assert await monque.signal("work", "go", 3, unique_key="other") is False

        assert await signals_of(collection, waiting) == [("go", 1), ("go", 2)]
        assert await signals_of(collection, ended) == []

    async def test_a_job_that_was_renamed_since_it_was_read_is_found(
        self, monque: Monque, collection: Collection, waiting: dict[str, Any]
    ) -> None:
        job = await monque.get_job(waiting["_id"])
        assert job is not None
        await collection.update_one({"_id": job.id}, {"$set": {"name": "renamed"}})

        assert await monque.signal(job, "go") is True

    @pytest.mark.parametrize("status", ["completed", "failed", "cancelled"])
    async def test_a_job_that_has_ended_takes_no_signal_and_the_sender_knows(
        self, monque: Monque, collection: Collection, status: str
    ) -> None:
        ended = document(status=status)
        await collection.insert_one(ended)

        assert await monque.signal(ended["_id"], "go") is False
        assert await find_one(collection) == ended
        assert await monque.signal(ObjectId(), "go") is False

    @pytest.mark.parametrize("status", ["pending", "processing"])
    async def test_a_schedule_takes_no_signal(
        self, monque: Monque, collection: Collection, status: str
    ) -> None:
        doc = claimed("other") if status == "processing" else document(nextRunAt=PARKED)
        schedule = {**doc, "uniqueKey": "work", "repeatInterval": "@daily", "schedule": {"pausedAt": ago()}}
        await collection.insert_one(schedule)

        with pytest.raises(JobStateError, match="it is a schedule") as refused:
            await monque.signal("work", "go", unique_key="work")

        assert (refused.value.job_id, refused.value.current_status) == (schedule["_id"], JobStatus(status))
        assert refused.value.attempted_action == "signal"

    async def test_a_wrong_address_or_name_is_refused_before_anything_is_stored(
        self, monque: Monque, collection: Collection, waiting: dict[str, Any]
    ) -> None:
        worker = monque.worker("work", never_called)
        job = await monque.get_job(waiting["_id"])
        assert job is not None

        wrong: list[tuple[Any, Any, dict[str, Any], str]] = [
            (worker, "go", {}, "worker or its name together with unique_key=...; got a Worker without"),
            (job, "go", {"unique_key": "k"}, "got a Job with unique_key"),
            (job.id, "go", {"unique_key": "k"}, "got a ObjectId with unique_key"),
            ("no name", "go", {"unique_key": "k"}, "job name 'no name' must not contain whitespace"),
            (job, "", {}, "the name of a signal must be text of 1 to 255 characters"),
            (job, 7, {}, "the name of a signal must be text of 1 to 255 characters"),
            (job, "go", {"id": "x" * 256}, "the id of a signal must be text of 1 to 255 characters"),
        ]
        for address, name, how, message in wrong:
            with pytest.raises(ConfigurationError, match=message):
                await monque.signal(address, name, **how)
        with pytest.raises(PayloadError, match=r"payload of 'go' cannot be stored: data\.at is the naive"):
            await monque.signal(job, "go", {"at": datetime(2026, 1, 1)})  # noqa: DTZ001

        assert await signals_of(collection, waiting) == []


class TestOnce:
    async def test_the_same_id_twice_is_one_signal_and_both_senders_hear_so(
        self, monque: Monque, collection: Collection, waiting: dict[str, Any]
    ) -> None:
        sending = (monque.signal(waiting["_id"], "go", each, id="evt_1") for each in range(20))
        assert set(await asyncio.gather(*sending)) == {True}
        assert await monque.signal(waiting["_id"], "go", "other", id="evt_2") is True

        assert len(await signals_of(collection, waiting)) == 2

    async def test_an_id_that_was_received_is_known_for_as_long_as_the_job_is_active(
        self, monque: Monque, collection: Collection
    ) -> None:
        received = {"n": "go", "k": "signal", "at": ago(), "v": 1, "over": ago(), "id": "evt_1"}
        job = claimed("other", steps=[received])
        await collection.insert_one(job)

        assert await monque.signal(job["_id"], "go", id="evt_1") is True
        assert await find_one(collection) == job


class TestRoom:
    async def test_a_hundred_signals_fit_and_one_more_is_refused_whoever_sends_at_once(
        self, monque: Monque, collection: Collection, waiting: dict[str, Any]
    ) -> None:
        sending = (monque.signal(waiting["_id"], "go", each) for each in range(120))
        answers = await asyncio.gather(*sending, return_exceptions=True)

        refused = [each for each in answers if isinstance(each, JobStateError)]
        assert (answers.count(True), len(refused)) == (100, 20)
        assert "fill its mailbox of 100 and 1 MiB" in str(refused[0])
        assert len(await signals_of(collection, waiting)) == 100
        # Whoever repeats one that has arrived is not refused.
        await collection.update_one({}, {"$set": {"signals.7.id": "evt_7"}})
        assert await monque.signal(waiting["_id"], "go", id="evt_7") is True

    async def test_one_is_bounded_like_a_result_and_all_together_by_a_mebibyte(
        self, make_monque: Make, collection: Collection, waiting: dict[str, Any]
    ) -> None:
        monque = await make_monque(options=Options(max_result_size=600_000)).open()

        with pytest.raises(JobStateError, match=r"Options\.max_result_size allows 600,000"):
            await monque.signal(waiting["_id"], "go", "x" * 600_000)
        assert await monque.signal(ObjectId(), "go", "x" * 600_000) is False
        assert await monque.signal(waiting["_id"], "go", "x" * 500_000) is True
        with pytest.raises(JobStateError, match="fill its mailbox"):
            await monque.signal(waiting["_id"], "go", "x" * 599_000)

        assert [len(value) for _, value in await signals_of(collection, waiting)] == [500_000]


class TestTransactions:
    async def test_a_signal_of_a_transaction_that_aborts_was_never_sent(
        self, monque: Monque, collection: Collection, waiting: dict[str, Any]
    ) -> None:
        async with monque.client.start_session() as session:
            await session.start_transaction()
            assert await monque.signal(waiting["_id"], "go", 1, id="evt_1", session=session) is True
            assert await monque.signal(waiting["_id"], "go", 1, id="evt_1", session=session) is True
            assert await monque.signal(ObjectId(), "go", session=session) is False
            await session.abort_transaction()

        assert await find_one(collection) == waiting

    async def test_a_committed_one_wakes_the_job(
        self, make_monque: Make, collection: Collection, waiting: dict[str, Any]
    ) -> None:
        monque = await make_monque(options=NEVER_POLLING).open()
        monque.worker("work", never_called)
        events = await start(monque)
        async with monque.client.start_session() as session, await session.start_transaction():
            await monque.signal("work", "go", unique_key="k", session=session)
            await collection.insert_one(document(name="paid"), session=session)

        await events.wait("job:complete")

    async def test_one_that_meets_a_transaction_waits_for_its_end(
        self, monque: Monque, collection: Collection, waiting: dict[str, Any]
    ) -> None:
        async with monque.client.start_session() as session:
            await session.start_transaction()
            await monque.database[collection.name].update_one({}, {"$set": {"kept": 1}}, session=session)
            sending = asyncio.create_task(monque.signal(waiting["_id"], "go", 1))
            _, pending = await asyncio.wait({sending}, timeout=0.2)
            await session.commit_transaction()

        assert (pending, await sending) == ({sending}, True)
        stored = await find_one(collection)
        assert (stored["kept"], len(stored["signals"])) == (1, 1)


class TestWaking:
    async def test_a_wait_counts_only_while_the_job_is_pending(
        self, monque: Monque, collection: Collection
    ) -> None:
        """A claim leaves the field to the write that ends its run."""
        job = claimed("other", **{**AWAITS, "nextRunAt": ago(hours=1)})
        await collection.insert_one(job)
        await monque.signal(job["_id"], "go")

        stored = await find_one(collection)
        assert {**stored, "signals": 0, "updatedAt": 0} == {**job, "signals": 0, "updatedAt": 0}

    async def test_the_own_instance_runs_the_job_without_a_poll_or_a_stream(
        self, make_monque: Make, waiting: dict[str, Any]
    ) -> None:
        quiet = Options(change_streams=False, poll_interval=NEVER_POLLING.poll_interval)
        monque = await make_monque(options=quiet).open()
        monque.worker("work", never_called)
        await monque.start()
        await monque.signal(waiting["_id"], "go")
        done = await monque.wait_for(waiting["_id"])

        assert done.status is JobStatus.COMPLETED

    async def test_another_instance_hears_of_it_from_the_stream(
        self, make_monque: Make, waiting: dict[str, Any]
    ) -> None:
        runs, sends = [await make_monque(options=NEVER_POLLING).open() for _ in range(2)]
        runs.worker("work", never_called)
        events = await start(runs)
        await sends.signal(waiting["_id"], "go")

        await events.wait("job:complete")

    async def test_a_blocking_program_sends_one(
        self, server: EmbeddedMongo, database: Database, collection: Collection, waiting: dict[str, Any]
    ) -> None:
        def send() -> bool:
            with SyncMonque(uri_of(server, database), options=QUICK) as monque:
                return monque.signal("work", "go", {"by": "DHL"}, unique_key="k", id="evt_1")

        assert await asyncio.to_thread(send) is True
        assert await signals_of(collection, waiting) == [("go", {"by": "DHL"})]


async def never_called(job: Job[Any]) -> None: ...


@dataclass
class Decision:
    by: str
    at: datetime


class TestReceiving:
    async def test_a_signal_that_came_early_is_received_without_a_wait(
        self, monque: Monque, collection: Collection
    ) -> None:
        approve = monque.worker("approve", receiving, store_result=True)
        job = await approve.enqueue()
        await monque.signal(job, "go", 1)
        await monque.signal(job, "go", 2)
        await monque.run_until_idle()

        stored = await find_one(collection)
        assert (stored["status"], stored["result"], stored["attempt"]) == ("completed", 1, 1)
        assert "signals" not in stored  # the second one was not received; an end removes it

    async def test_a_signal_that_comes_while_the_handler_runs_is_found_when_it_begins_to_wait(
        self, monque: Monque, collection: Collection
    ) -> None:
        @monque.worker("approve", store_result=True)
        async def approve(job: Job[None]) -> Any:
            await job.step("ask", monque.signal, job.id, "go", 1)
            return await job.receive("go")

        await approve.enqueue()
        await monque.run_until_idle()

        stored = await find_one(collection)
        assert (stored["status"], stored["result"], stored["attempt"]) == ("completed", 1, 2)

    async def test_a_signal_that_comes_later_ends_the_wait(
        self, monque: Monque, collection: Collection
    ) -> None:
        approve = monque.worker("approve", receiving, store_result=True)
        job = await approve.enqueue(unique_key="order-7")
        await monque.run_until_idle()
        waits = await monque.get_job(job)
        assert waits is not None
        since = waits.updated_at
        assert waits.waits_for == Wait(why="signal", since=since, signal="go")

        await monque.signal(approve, "go", None, unique_key="order-7")
        await monque.run_until_idle()

        assert await monque.result_of(job) is None
        stored = await find_one(collection)
        assert [(step["n"], step["k"], step["v"]) for step in stored["steps"]] == [("go", "signal", None)]
        assert "parked" not in stored

    async def test_signals_of_one_name_are_received_in_order_under_names_of_their_own(
        self, monque: Monque, collection: Collection
    ) -> None:
        @monque.worker("approve", store_result=True)
        async def approve(job: Job[None]) -> list[Any]:
            return [await job.receive("go", name=f"go-{n}") for n in range(3)]

        job = await approve.enqueue()
        for number in (1, 2):
            await monque.signal(job, "go", number)
        await monque.signal(job, "other")
        await monque.run_until_idle()
        assert await signals_of(collection, {"_id": job.id}) == [("other", None)]
        await monque.signal(job, "go", 3)
        await monque.run_until_idle()

        assert await monque.result_of(job) == [1, 2, 3]

    async def test_a_second_receive_of_a_signal_is_told_to_take_a_name(self, monque: Monque) -> None:
        @monque.worker("approve", max_attempts=1)
        async def approve(job: Job[None]) -> None:
            await job.receive("go")
            await job.receive("go")

        job = await approve.enqueue()
        await monque.signal(job, "go")
        await monque.run_until_idle()

        reason = (await monque.wait_for(job)).fail_reason
        assert reason is not None
        assert "name= tells several receives of one signal apart" in reason

    async def test_two_waits_in_one_gather_are_taken_one_after_another(self, monque: Monque) -> None:
        @monque.worker("approve", store_result=True)
        async def approve(job: Job[None]) -> list[Any]:
            return await asyncio.gather(job.receive("a"), job.receive("b"))

        job = await approve.enqueue()
        for signal in ("b", "a"):
            await monque.run_until_idle()
            await monque.signal(job, signal, signal)
        await monque.run_until_idle()

        assert await monque.result_of(job) == ["a", "b"]

    async def test_a_signal_is_rebuilt_in_the_kind_that_the_handler_names(self, monque: Monque) -> None:
        seen: list[Any] = []

        @monque.worker("approve")
        async def approve(job: Job[None]) -> None:
            seen.append(await job.receive("decision", Decision))
            seen.append(await job.receive("decision", name="as stored"))

        job = await approve.enqueue()
        decision = Decision("ada", datetime(2026, 1, 1, tzinfo=UTC))
        for _ in range(2):
            await monque.signal(job, "decision", decision)
        await monque.run_until_idle()

        assert seen == [decision, {"by": "ada", "at": decision.at}]

    async def test_one_that_does_not_fit_is_a_failed_attempt_that_names_the_receive(
        self, make_monque: Make, collection: Collection
    ) -> None:
        monque = await make_monque(options=replace(QUICK, max_retries=1)).open()

        @monque.worker("approve")
        async def approve(job: Job[None]) -> None:
            await job.receive("decision", Decision, name="first")

        job = await approve.enqueue()
        await monque.signal(job, "decision", "yes")
        await monque.run_until_idle()

        stored = await find_one(collection)
        assert stored["status"] == "failed"
        assert "'first'" in stored["failReason"]
        assert "does not fit Decision" in stored["failReason"]
        assert [step["v"] for step in stored["steps"]] == ["yes"]  # it was taken

    async def test_a_failed_job_keeps_its_signals_and_a_retry_receives_them(
        self, make_monque: Make, collection: Collection
    ) -> None:
        monque = await make_monque(options=replace(QUICK, max_retries=1)).open()
        fails = [True]

        @monque.worker("approve", store_result=True)
        async def approve(job: Job[None]) -> Any:
            await job.step("first", int)
            if fails:
                raise ValueError(fails.pop())
            return await job.receive("go")

        job = await approve.enqueue()
        await monque.signal(job, "go", 1)
        await monque.run_until_idle()
        assert await monque.signal(job, "go", 2) is False
        await monque.retry_job(job)
        await monque.run_until_idle()

        assert await monque.result_of(job) == 1

    async def test_a_later_call_begins_without_the_signals_of_the_one_before(
        self, monque: Monque, collection: Collection
    ) -> None:
        latest = Unique("k", on_conflict="replace")

        @monque.worker("approve")
        async def approve(job: Job[int]) -> None:
            if job.data == 1:
                await monque.enqueue(approve, 2, unique=latest)
                await job.step("sent", monque.signal, job.id, "go")
            else:
                await job.receive("go")

        await approve.enqueue(1, unique=latest)
        await monque.run_until_idle()

        stored = await find_one(collection)
        assert (stored["data"], stored["status"], stored["parked"]["key"]) == (2, "pending", "go")
        assert "signals" not in stored
        assert [step["n"] for step in stored["steps"]] == ["go"]

    async def test_a_cancelled_job_loses_its_signals(self, monque: Monque, collection: Collection) -> None:
        approve = monque.worker("approve", receiving)
        job = await approve.enqueue()
        await monque.run_until_idle()
        await monque.signal(job, "other")
        await monque.cancel_job(job)

        stored = await find_one(collection)
        assert not {"signals", "parked"} & stored.keys()

    @pytest.mark.parametrize("by", ["operator", "handler"])
    async def test_a_job_that_is_cancelled_in_its_first_run_loses_what_came_in_it(
        self, monque: Monque, collection: Collection, by: str
    ) -> None:
        @monque.worker("approve")
        async def approve(job: Job[None]) -> None:
            await monque.signal(job, "go", 1)
            if by == "handler":
                raise Cancel("not needed")
            await monque.cancel_job(job, running=True)
            await asyncio.Event().wait()

        job = await approve.enqueue()
        await monque.run_until_idle()

        assert (await monque.wait_for(job)).status is JobStatus.CANCELLED
        assert "signals" not in await find_one(collection)


class TestTimeouts:
    async def test_one_that_nobody_catches_fails_the_job_for_good(
        self, monque: Monque, collection: Collection
    ) -> None:
        """It is stored: each later run would get the same answer."""
        approve = monque.worker("approve", receiving_within_an_hour, max_attempts=5)
        job = await approve.enqueue()
        await monque.run_until_idle()
        await let_time_pass(collection)
        await monque.run_until_idle()

        failed = await monque.get_job(job.id)
        assert failed is not None
        assert (failed.status, failed.fail_count) == (JobStatus.FAILED, 1)
        assert "no signal 'go' came" in (failed.fail_reason or "")

    async def test_a_wait_that_took_too_long_ends_and_a_late_signal_does_not_change_the_way(
        self, monque: Monque, collection: Collection
    ) -> None:
        ways: list[Any] = []

        @monque.worker("approve")
        async def approve(job: Job[None]) -> None:
            try:
                await job.receive("go", timeout=HOUR)
            except WaitTimeoutError as late:
                ways.append((late.job_id, late.signal, late.timeout))
            await job.receive("end")

        job = await approve.enqueue()
        await monque.run_until_idle()
        await let_time_pass(collection)
        await monque.run_until_idle()
        for signal in ("go", "end"):
            await monque.signal(job, signal)
        await monque.run_until_idle()

        assert ways == [(job.id, "go", HOUR)] * 2
        stored = await find_one(collection)
        assert stored["status"] == "completed"
        assert "v" not in stored["steps"][0]

    async def test_a_signal_at_the_moment_of_the_timeout_decides_one_way_for_ever(
        self, make_monque: Make, collection: Collection
    ) -> None:
        """Each run that finds the time up asks once more for a signal, in the write that ends the wait."""
        monque = await make_monque(options=replace(QUICK, poll_interval=timedelta(milliseconds=10))).open()
        ways: dict[int, list[Any]] = defaultdict(list)

        @monque.worker("approve", concurrency=20)
        async def approve(job: Job[int]) -> None:
            try:
                ways[job.data].append(await job.receive("go", timeout=timedelta(milliseconds=50)))
            except WaitTimeoutError:
                ways[job.data].append("late")
            await job.receive("end")

        jobs = await monque.enqueue_many(NewJob(approve, number) for number in range(20))
        await monque.start()

        async def signal(job: Job[int]) -> None:
            await asyncio.sleep(0.03 + job.data / 400)  # around the end of the timeout, which is the race
            await monque.signal(job, "go", "signalled")
            await monque.signal(job, "end")

        await asyncio.gather(*map(signal, jobs))
        for job in jobs:
            await monque.wait_for(job)

        assert len(ways) == 20
        assert all(len(set(way)) == 1 for way in ways.values())
        async for stored in collection.find():
            [way] = set(ways[stored["data"]])
            assert stored["steps"][0].get("v", "late") == way

    async def test_a_run_that_finds_the_time_up_takes_a_signal_that_came_since_its_claim(
        self, monque: Monque, collection: Collection
    ) -> None:
        @monque.worker("approve", store_result=True)
        async def approve(job: Job[None]) -> Any:
            if job.attempt == 2:
                await monque.signal(job, "go", 1)
            return await job.receive("go", timeout=HOUR)

        job = await approve.enqueue()
        await monque.run_until_idle()
        await let_time_pass(collection)
        await monque.run_until_idle()

        assert await monque.result_of(job) == 1

    async def test_a_signal_before_the_timeout_wins(self, monque: Monque, collection: Collection) -> None:
        approve = monque.worker("approve", receiving_within_an_hour, store_result=True)
        job = await approve.enqueue()
        await monque.run_until_idle()
        await monque.signal(job, "go", 1)
        await let_time_pass(collection)
        await monque.run_until_idle()

        assert await monque.result_of(job) == 1


async def test_no_wake_up_is_lost_whoever_signals_whenever(
    make_monque: Make, server: EmbeddedMongo, database: Database, collection: Collection
) -> None:
    """Several processes signal 15 jobs, once or twice under the same id, while two instances run them."""
    signals = "abcdefghij"[: at_scale(10, 3)]
    running = [await make_monque().open() for _ in range(2)]
    received: dict[int, list[Any]] = defaultdict(list)

    async def approve(job: Job[int]) -> None:
        received[job.data] = [await job.receive(signal) for signal in signals]

    for monque in running:
        monque.worker("approve", approve, concurrency=10)
    jobs = await running[0].enqueue_many(NewJob("approve", number) for number in range(15))
    async with AsyncExitStack() as stack:
        arguments = (uri_of(server, database), "approve")
        senders = [
            await stack.enter_async_context(child("signaller", *arguments, signal)) for signal in signals
        ]
        for sender in senders:
            await sender.wait_for("ready")
        for monque in running:
            await monque.start()
        for sender in senders:
            sender.write("")
        for sender in senders:
            await sender.wait_for("sent", within=60)
        for job in jobs:
            await running[0].wait_for(job, timeout=timedelta(seconds=30))

    assert received == {number: [number] * len(signals) for number in range(15)}
    assert await collection.count_documents({"status": "completed", "signals": None, "parked": None}) == 15


async def test_to_send_a_signal_is_one_command_and_to_receive_an_early_one_is_one(
    server: EmbeddedMongo, database: Database
) -> None:
    traffic, received = Traffic(), list[Counter[str]]()

    async def approve(job: Job[None]) -> None:
        before = traffic.sent.copy()
        await job.receive("go")
        received.append(traffic.sent - before)

    async with (
        AsyncMongoClient[dict[str, Any]](server.uri, event_listeners=[traffic]) as client,
        Monque(client[database.name], options=QUICK) as monque,
    ):
        job = await monque.worker("approve", approve).enqueue()
        traffic.clear()
        await monque.signal(job, "go")
        sent = dict(traffic.sent)
        await monque.run_until_idle()

    assert sent == {"findAndModify": 1}
    assert [(each["findAndModify"], each["update"]) for each in received] == [(1, 0)]


async def receiving(job: Job[None]) -> Any:
    return await job.receive("go")


async def receiving_within_an_hour(job: Job[None]) -> Any:
    return await job.receive("go", timeout=HOUR)


async def let_time_pass(collection: Collection) -> None:
    """The timeout of whatever waits is over."""
    over = {"nextRunAt": ago(seconds=5), "steps.$[].until": ago(seconds=5)}
    await collection.update_many({"status": "pending"}, {"$set": over})
