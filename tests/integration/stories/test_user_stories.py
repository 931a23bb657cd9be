"""The specification by its own numbers: user stories 1 to 6, FR-001 to 017, SC-001 to 006, edge cases.

Each docstring names what the test shows. More on each subject stands in the file of that subject.
"""

from __future__ import annotations

import asyncio
import signal
import threading
import time
from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from pymongo import AsyncMongoClient
from pymongo.errors import PyMongoError

from monque import (
    InvalidCronError,
    Job,
    JobStatus,
    Monque,
    NewJob,
    PayloadTooLargeError,
    ShutdownTimeoutError,
)
from monque.embedded import EmbeddedMongo
from support.aliases import Database, Make
from support.clocks import ago, ahead
from support.jobs import claimed, document
from support.options import ONE_TRY, QUICK
from support.programs.child import child, uri_of
from support.proxy import Proxy
from support.waiting import Events, eventually, healthy, start
from support.working import Pause


@pytest.fixture
async def monque(make_monque: Make) -> Monque:
    return await make_monque(options=ONE_TRY).open()


async def _job(monque: Monque, job: Job[Any]) -> Job[Any]:
    stored = await monque.get_job(job.id)
    assert stored is not None
    return stored


async def _make_due(collection: Any, job: Job[Any]) -> None:
    """Age the job: its time was a second ago."""
    await collection.update_one({"_id": job.id}, {"$set": {"nextRunAt": ago(seconds=1)}})


def _fail(job: Job[Any]) -> None:
    raise ValueError("the service is not available")


# User story 1: enqueue and process one-off jobs


async def test_the_worker_receives_the_job_and_its_data(monque: Monque) -> None:
    """User story 1, scenario 1; FR-001, FR-004."""
    received: list[Job[dict[str, str]]] = []

    @monque.worker("send-email")
    async def send_email(job: Job[dict[str, str]]) -> None:
        received.append(job)

    await monque.start()
    await monque.enqueue("send-email", {"to": "user@example.com", "subject": "Welcome"})
    await eventually(lambda: _has(received))

    assert received[0].name == "send-email"
    assert received[0].data == {"to": "user@example.com", "subject": "Welcome"}


def _has(something: list[Any]) -> None:
    assert something


async def test_a_processed_job_is_completed(monque: Monque, events: Events) -> None:
    """User story 1, scenario 2."""
    monque.worker("work", lambda job: None)
    await monque.start()
    job = await monque.enqueue("work")
    before = job.status
    await events.wait("job:complete")

    assert before is JobStatus.PENDING
    assert (await _job(monque, job)).status is JobStatus.COMPLETED


async def test_jobs_run_concurrently_up_to_the_limit(monque: Monque, events: Events) -> None:
    """User story 1, scenario 3; FR-005: all three are inside at once, and never a fourth."""
    inside = most = 0
    three_inside = asyncio.Barrier(3)

    @monque.worker("work", concurrency=3)
    async def work(job: Job[int]) -> None:
        nonlocal inside, most
        inside += 1
        most = max(most, inside)
        await three_inside.wait()
        inside -= 1

    await monque.enqueue_many(NewJob(work, n) for n in range(12))
    await monque.start()
    await events.wait("job:complete", 12)

    assert most == 3


async def test_a_first_job_is_enqueued_and_processed_within_minutes(
    server: EmbeddedMongo, database: Database
) -> None:
    """SC-001: the whole program is a dozen lines, and done in seconds."""
    async with child("first_job", uri_of(server, database)) as program:
        await program.wait_for("hello world")
        code = await program.ends()

    assert code == 0, program.complaints


async def test_only_pending_jobs_that_are_due_are_taken(monque: Monque, collection: Any) -> None:
    """FR-007."""
    ran: list[str] = []
    monque.worker("work", lambda job: ran.append(job.data))
    await collection.insert_many(
        [
            document(data="due"),
            document(data="later", nextRunAt=ahead(minutes=1)),
            document(data="completed", status="completed"),
            document(data="failed", status="failed"),
            document(data="cancelled", status="cancelled"),
            claimed("another", data="processing"),
        ]
    )
    await monque.run_until_idle()

    assert ran == ["due"]


async def test_a_taken_job_is_processing_and_locked(monque: Monque, collection: Any) -> None:
    """FR-008."""
    seen: list[dict[str, Any]] = []

    @monque.worker("work")
    async def work(job: Job[None]) -> None:
        seen.append(await collection.find_one({"_id": job.id}))

    before = datetime.now(UTC) - timedelta(seconds=1)
    await monque.enqueue(work)
    await monque.run_until_idle()

    assert seen[0]["status"] == "processing"
    assert before <= seen[0]["lockedAt"] <= datetime.now(UTC)
    assert seen[0]["claimedBy"] == monque.instance_id


# User story 2: prevent duplicate jobs with unique keys


async def test_a_key_held_by_a_pending_job_is_not_enqueued_again(monque: Monque, collection: Any) -> None:
    """User story 2, scenario 1; FR-002."""
    first = await monque.enqueue("sync", {"user": 123}, unique_key="sync-user-123")
    second = await monque.enqueue("sync", {"user": 456}, unique_key="sync-user-123")

    assert second.id == first.id
    assert second.data == {"user": 123}
    assert await collection.count_documents({}) == 1


async def test_a_key_held_by_a_processing_job_is_not_enqueued_again(
    monque: Monque, events: Events, collection: Any
) -> None:
    """User story 2, scenario 2; FR-002."""
    sync = monque.worker("sync", pause := Pause())
    await monque.start()
    first = await monque.enqueue(sync, unique_key="sync-user-123")
    await events.wait("job:start")
    second = await monque.enqueue(sync, unique_key="sync-user-123")
    pause.go_on.set()
    await events.wait("job:complete")

    assert (second.id, second.status) == (first.id, JobStatus.PROCESSING)
    assert await collection.count_documents({}) == 1


@pytest.mark.parametrize("status", ["completed", "failed", "cancelled"])
async def test_a_finished_job_frees_its_key(monque: Monque, collection: Any, status: str) -> None:
    """User story 2, scenario 3; FR-002."""
    finished = document(name="sync", uniqueKey="sync-user-123", status=status)
    await collection.insert_one(finished)
    job = await monque.enqueue("sync", unique_key="sync-user-123")

    assert job.id != finished["_id"]
    assert await collection.count_documents({"uniqueKey": "sync-user-123"}) == 2


async def test_a_key_belongs_to_one_name(monque: Monque) -> None:
    """FR-002."""
    jobs = [await monque.enqueue(name, unique_key="user-123") for name in ("sync", "mail")]

    assert jobs[0].id != jobs[1].id


async def test_parallel_enqueues_with_one_key_give_one_job(make_monque: Make, collection: Any) -> None:
    """SC-002: 300 calls at once from three instances, none with an error."""
    instances = [await make_monque().open() for _ in range(3)]
    jobs = await asyncio.gather(
        *(instance.enqueue("sync", unique_key="one") for instance in instances for _ in range(100))
    )

    assert len({job.id for job in jobs}) == 1
    assert await collection.count_documents({}) == 1


async def test_a_key_never_has_two_active_jobs_while_they_are_processed(
    make_monque: Make, collection: Any
) -> None:
    """SC-002: enqueued again and again while instances run and finish them; never two at a time."""
    inside = most = 0

    async def sync(job: Job[None]) -> None:
        nonlocal inside, most
        inside += 1
        most = max(most, inside)
        await asyncio.sleep(0.001)
        inside -= 1

    instances = [await make_monque().open() for _ in range(2)]
    for instance in instances:
        instance.worker("sync", sync)
        await instance.start()
    for _ in range(50):
        await asyncio.gather(*(instance.enqueue("sync", unique_key="one") for instance in instances))
    for instance in instances:
        await instance.run_until_idle()

    assert most == 1
    assert await collection.count_documents({}) > 1


# User story 3: retry failed jobs with exponential backoff


async def test_the_first_failure_waits_two_intervals(make_monque: Make) -> None:
    """User story 3, scenario 1; FR-009, SC-003: now + 2^1 x base, by the server's clock of that write."""
    monque = await make_monque(options=replace(QUICK, base_retry_interval=timedelta(minutes=1))).open()
    monque.worker("work", _fail)
    job = await monque.enqueue("work")
    await monque.run_until_idle()
    failed = await _job(monque, job)

    assert failed.status is JobStatus.PENDING
    assert failed.next_run_at - failed.updated_at == timedelta(minutes=2)


async def test_the_fourth_failure_waits_sixteen_intervals(make_monque: Make, collection: Any) -> None:
    """User story 3, scenario 2; FR-009, FR-010, SC-003."""
    monque = await make_monque(options=replace(QUICK, base_retry_interval=timedelta(minutes=1))).open()
    monque.worker("work", _fail)
    stored = document(failCount=3, failReason="ValueError: before")
    await collection.insert_one(stored)
    await monque.run_until_idle()
    failed = await monque.get_job(stored["_id"])

    assert failed is not None
    assert failed.fail_count == 4
    assert failed.next_run_at - failed.updated_at == timedelta(minutes=16)


async def test_the_wait_is_never_longer_than_the_limit(make_monque: Make, collection: Any) -> None:
    """FR-009, with `max_backoff_delay`."""
    options = replace(ONE_TRY, max_backoff_delay=timedelta(minutes=5), max_retries=50)
    monque = await make_monque(options=options).open()
    monque.worker("work", _fail)
    stored = document(failCount=40)
    await collection.insert_one(stored)
    await monque.run_until_idle()
    failed = await monque.get_job(stored["_id"])

    assert failed is not None
    assert failed.next_run_at - failed.updated_at == timedelta(minutes=5)


async def test_the_reason_of_a_failure_is_kept_with_the_job(monque: Monque, collection: Any) -> None:
    """User story 3, scenario 3; FR-010."""
    monque.worker("work", _fail)
    job = await monque.enqueue("work")
    await monque.run_until_idle()
    stored = await collection.find_one({"_id": job.id})

    assert stored["failReason"] == "ValueError: the service is not available"
    assert stored["failCount"] == 1


async def test_the_last_attempt_fails_for_good(make_monque: Make) -> None:
    """User story 3, scenario 4; FR-017, FR-010: three attempts in all, then failed."""
    options = replace(QUICK, max_retries=3, base_retry_interval=timedelta(milliseconds=5))
    monque = await make_monque(options=options).open()
    attempts: list[int] = []

    @monque.worker("work")
    async def work(job: Job[None]) -> None:
        attempts.append(job.attempt)
        raise ValueError(f"attempt {job.attempt}")

    events = Events(monque)
    await monque.start()
    job = await monque.enqueue(work)
    failures = await events.wait("job:fail", 3)
    failed = await _job(monque, job)

    assert attempts == [1, 2, 3]
    assert [failure.will_retry for failure in failures] == [True, True, False]
    assert (failed.status, failed.fail_count) == (JobStatus.FAILED, 3)
    assert failed.fail_reason == "ValueError: attempt 3"


async def test_ten_attempts_are_the_default(make_monque: Make, collection: Any) -> None:
    """FR-017: the ninth failure is tried again, the tenth is the last."""
    monque = await make_monque(options=ONE_TRY).open()
    monque.worker("work", _fail)
    ninth, tenth = document(failCount=8), document(failCount=9)
    await collection.insert_many([ninth, tenth])
    await monque.run_until_idle()
    after = [await monque.get_job(stored["_id"]) for stored in (ninth, tenth)]

    assert [(job.status, job.fail_count) for job in after if job] == [
        (JobStatus.PENDING, 9),
        (JobStatus.FAILED, 10),
    ]


async def test_a_job_that_failed_and_then_succeeds_is_completed(make_monque: Make) -> None:
    """FR-009: a temporary failure loses nothing."""
    monque = await make_monque(options=replace(QUICK, base_retry_interval=timedelta(milliseconds=5))).open()

    @monque.worker("work")
    async def work(job: Job[None]) -> None:
        if job.attempt < 3:
            raise ValueError("not yet")

    events = Events(monque)
    await monque.start()
    job = await monque.enqueue(work)
    await events.wait("job:complete")
    done = await _job(monque, job)

    assert (done.status, done.attempt, done.fail_reason) == (JobStatus.COMPLETED, 3, None)


# User story 4: schedule recurring jobs with cron


def _next_hour(moment: datetime) -> datetime:
    return moment.replace(minute=0, second=0, microsecond=0) + timedelta(hours=1)


def _may_be_the_hour_after(job: Job[Any]) -> set[datetime]:
    """The next full hour after the job was written; the one after, if that was just at the hour."""
    return {_next_hour(job.updated_at - timedelta(seconds=5)), _next_hour(job.updated_at)}


async def test_a_schedule_is_due_when_the_hour_is_over(monque: Monque, collection: Any) -> None:
    """User story 4, scenario 1; FR-003: it waits for the hour, and runs once that is over."""
    ran: list[Any] = []
    monque.worker("report", lambda job: ran.append(job.data))
    job = await monque.schedule("0 * * * *", "report", {"kind": "hourly"})
    await monque.run_until_idle()
    early = list(ran)
    await _make_due(collection, job)
    await monque.run_until_idle()

    assert job.next_run_at == _next_hour(job.created_at)
    assert early == []
    assert ran == [{"kind": "hourly"}]


async def test_a_schedule_that_succeeded_is_pending_at_its_next_time(monque: Monque, collection: Any) -> None:
    """User story 4, scenario 2; FR-003."""
    monque.worker("report", lambda job: None)
    job = await monque.schedule("0 * * * *", "report")
    await _make_due(collection, job)
    await monque.run_until_idle()
    after = await _job(monque, job)

    assert (after.status, after.fail_count, after.attempt) == (JobStatus.PENDING, 0, 1)
    assert after.next_run_at in _may_be_the_hour_after(after)
    assert await collection.count_documents({}) == 1


async def test_a_schedule_that_failed_keeps_its_cron_time_after_it_succeeds(
    make_monque: Make, collection: Any
) -> None:
    """User story 4, scenario 3: retries by backoff, then the cron time counts again."""
    monque = await make_monque(options=replace(QUICK, base_retry_interval=timedelta(milliseconds=5))).open()

    @monque.worker("report")
    async def report(job: Job[None]) -> None:
        if job.attempt < 3:
            raise ValueError("not yet")

    events = Events(monque)
    job = await monque.schedule("0 * * * *", report)
    await _make_due(collection, job)
    await monque.start()
    failures = await events.wait("job:fail", 2)
    await events.wait("job:complete")
    after = await _job(monque, job)

    assert [failure.job.next_run_at - failure.job.updated_at for failure in failures] == [
        timedelta(milliseconds=10),
        timedelta(milliseconds=20),
    ]
    assert (after.status, after.fail_count, after.fail_reason) == (JobStatus.PENDING, 0, None)
    assert after.next_run_at in _may_be_the_hour_after(after)


# User story 5: graceful shutdown (more in test_shutdown.py and test_life.py)


async def test_after_stop_no_new_jobs_are_picked_up(monque: Monque, events: Events) -> None:
    """User story 5, scenario 1; FR-011."""
    work = monque.worker("work", pause := Pause())
    await monque.start()
    running = await monque.enqueue(work)
    await events.wait("job:start")
    stopping = asyncio.create_task(monque.stop())
    await healthy(monque, False)
    waiting = await monque.enqueue(work)
    pause.go_on.set()
    await stopping

    assert (await _job(monque, running)).status is JobStatus.COMPLETED
    assert (await _job(monque, waiting)).status is JobStatus.PENDING


async def test_stop_returns_when_all_jobs_in_progress_are_complete(monque: Monque, events: Events) -> None:
    """User story 5, scenario 2; FR-011, SC-004: async and blocking ones."""
    let_go, let_thread_go = asyncio.Event(), threading.Event()

    @monque.worker("async")
    async def on_the_loop(job: Job[int]) -> None:
        await let_go.wait()

    @monque.worker("blocking")
    def in_a_thread(job: Job[int]) -> None:
        assert let_thread_go.wait(60)

    await monque.enqueue_many(NewJob(name, n) for n in range(3) for name in ("async", "blocking"))
    await monque.start()
    await events.wait("job:start", 6)
    stopping = asyncio.create_task(monque.stop())
    await healthy(monque, False)
    let_go.set()
    await events.wait("job:complete", 3)
    returned_early = stopping.done()
    let_thread_go.set()
    await stopping

    assert not returned_early
    assert events.kinds().count("job:complete") == 6
    assert "job:error" not in events.kinds()


async def test_stop_returns_at_its_timeout_and_warns_of_incomplete_jobs(
    make_monque: Make, caplog: pytest.LogCaptureFixture
) -> None:
    """User story 5, scenario 3; FR-012."""
    monque = await make_monque(options=replace(ONE_TRY, shutdown_timeout=timedelta(milliseconds=100))).open()

    @monque.worker("endless")
    async def endless(job: Job[None]) -> None:
        await asyncio.Event().wait()

    events = Events(monque)
    await monque.start()
    job = await monque.enqueue(endless)
    await events.wait("job:start")
    before = time.monotonic()
    await monque.stop()
    [warning] = events.of("job:error")

    assert 0.1 <= time.monotonic() - before < 10
    assert isinstance(warning.error, ShutdownTimeoutError)
    assert [incomplete.id for incomplete in warning.error.incomplete_jobs] == [job.id]
    assert "1 job(s) were still running at the shutdown timeout" in caplog.text


# User story 6: monitor job lifecycle events (more in test_events.py)


async def test_the_events_of_a_job_are_emitted_in_order(make_monque: Make) -> None:
    """User story 6, scenarios 1 to 3; FR-013, FR-014, FR-015."""
    monque = await make_monque(options=replace(QUICK, base_retry_interval=timedelta(milliseconds=5))).open()
    emitted: list[tuple[str, Any, int]] = []
    for kind in ("job:start", "job:complete", "job:fail"):
        monque.on(kind, lambda event: emitted.append((event.kind, event.job.id, event.job.fail_count)))

    @monque.worker("work")
    async def work(job: Job[None]) -> None:
        if job.attempt == 1:
            raise ValueError("not yet")

    events = Events(monque)
    await monque.start()
    job = await monque.enqueue(work)
    [completed] = await events.wait("job:complete")
    [failed] = events.of("job:fail")

    assert emitted == [
        ("job:start", job.id, 0),
        ("job:fail", job.id, 1),
        ("job:start", job.id, 1),
        ("job:complete", job.id, 1),
    ]
    assert isinstance(failed.error, ValueError)
    assert completed.duration >= timedelta(0)


async def test_an_unexpected_error_is_emitted(monque: Monque, collection: Any) -> None:
    """User story 6, scenario 4; FR-016: the server refuses the polls, because their index was dropped."""
    monque.worker("work", lambda job: None)
    events = await start(monque)
    await collection.drop_index("monque_active")
    await monque.enqueue_many([NewJob("work"), NewJob("work")])  # a lone one would be claimed without a poll
    [event] = await events.wait("job:error")

    assert isinstance(event.error, PyMongoError)
    await events.wait("job:complete", 2)


async def test_every_event_is_emitted_within_100_ms(monque: Monque) -> None:
    """SC-005: against the server's stamp of each change; the best of a few rounds on a busy machine."""
    delays: list[timedelta] = []
    for kind in ("job:start", "job:complete", "job:fail"):
        monque.on(kind, lambda event: delays.append(datetime.now(UTC) - event.job.updated_at))
    monque.worker("works", lambda job: None)
    monque.worker("fails", _fail)
    rounds = []
    for _ in range(5):
        delays.clear()
        await monque.enqueue_many([NewJob("works"), NewJob("fails")])
        await monque.run_until_idle()
        assert len(delays) == 4
        rounds.append(max(delays))

    assert min(rounds) < timedelta(milliseconds=100)


# Many instances


async def test_instances_share_the_work_and_run_each_job_once(make_monque: Make, collection: Any) -> None:
    """SC-006; FR-006."""
    ran: Counter[int] = Counter()
    by: Counter[str] = Counter()

    async def work(job: Job[int]) -> None:
        ran[job.data] += 1
        by[job.claimed_by or ""] += 1
        await asyncio.sleep(0.005)

    instances = [await make_monque().open() for _ in range(4)]
    for instance in instances:
        instance.worker("work", work)
    await instances[0].enqueue_many(NewJob("work", n) for n in range(300))
    await asyncio.gather(*(instance.run_until_idle() for instance in instances))

    assert ran == Counter(range(300))
    assert len(by) > 1
    assert await collection.count_documents({"status": "completed", "attempt": 1}) == 300


# Edge cases


async def test_a_lost_connection_neither_ends_a_running_job_nor_loses_its_result(
    client: AsyncMongoClient[Any], database: Database, collection: Any
) -> None:
    """Edge case: the connection is lost during processing; nothing new is picked up until it is back."""
    ran: list[str] = []
    started, let_go, finished = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def work(job: Job[str]) -> None:
        ran.append(job.data)
        if job.data == "first":
            started.set()
            await let_go.wait()
            finished.set()

    async with (
        Proxy(await client.address) as proxy,
        Monque(proxy.uri(database.name), options=ONE_TRY) as monque,
    ):
        monque.worker("work", work)
        events = await start(monque)
        first = await monque.enqueue("work", "first")
        await started.wait()
        await proxy.cut()
        await collection.insert_one(document(data="second"))
        let_go.set()
        await asyncio.wait_for(finished.wait(), 10)
        during = {job["data"]: job["status"] async for job in collection.find()}
        ran_during = list(ran)
        await proxy.restore()
        await events.wait("job:complete", 2, within=60)
        after = await _job(monque, first)

    assert during == {"first": "processing", "second": "pending"}
    assert ran_during == ["first"]
    assert ran == ["first", "second"]
    assert (after.status, after.attempt, after.fail_count) == (JobStatus.COMPLETED, 1, 0)


async def test_an_unhandled_exception_is_a_failed_attempt_and_harms_no_other_job(monque: Monque) -> None:
    """Edge case: a handler throws; the job is marked, counted and scheduled again (see test_workers.py)."""
    monque.worker("bad", _fail)
    monque.worker("good", lambda job: None)
    bad, good = await monque.enqueue("bad"), await monque.enqueue("good")
    await monque.run_until_idle()
    failed = await _job(monque, bad)

    assert (failed.status, failed.fail_count) == (JobStatus.PENDING, 1)
    assert failed.next_run_at > failed.updated_at
    assert (await _job(monque, good)).status is JobStatus.COMPLETED


async def test_instances_that_want_the_same_job_do_not_run_it_twice(
    make_monque: Make,
) -> None:
    """Edge case: several instances try to lock one job; FR-006. One wins, the rest go on."""
    ran: Counter[int] = Counter()

    async def work(job: Job[int]) -> None:
        ran[job.data] += 1

    instances = [await make_monque().open() for _ in range(5)]
    for instance in instances:
        instance.worker("work", work, concurrency=1)
        await instance.start()
    events = [Events(instance) for instance in instances]
    for n in range(40):
        await instances[0].enqueue("work", n)

    def all_done() -> None:
        assert sum(len(each.of("job:complete")) for each in events) == 40

    await eventually(all_done)
    assert ran == Counter(range(40))


async def test_a_payload_beyond_the_configured_size_is_refused(make_monque: Make, collection: Any) -> None:
    """Edge case: large payloads, with a limit of one's own."""
    monque = await make_monque(options=replace(QUICK, max_payload_size=1000)).open()
    with pytest.raises(PayloadTooLargeError, match="at most 1,000") as refused:
        await monque.enqueue("work", "x" * 1000)

    assert (refused.value.limit, refused.value.job_name) == (1000, "work")
    assert refused.value.size > 1000
    assert await collection.count_documents({}) == 0
    assert await monque.enqueue("work", "x" * 900)


async def test_a_payload_may_be_as_large_as_mongodb_takes(monque: Monque, collection: Any) -> None:
    """Edge case: large payloads; by default MongoDB's 16 MiB are the limit."""
    sizes: list[int] = []
    monque.worker("work", lambda job: sizes.append(len(job.data)))
    await monque.enqueue("work", "x" * 15_000_000)
    with pytest.raises(PayloadTooLargeError):
        await monque.enqueue("work", "x" * 17_000_000)
    await monque.run_until_idle()

    assert sizes == [15_000_000]
    assert await collection.count_documents({}) == 1


@pytest.mark.parametrize("expression", ["", "* * *", "* * * * * *", "61 * * * *", "0 0 31 2 *", "every hour"])
async def test_an_invalid_cron_expression_is_refused_before_anything_is_stored(
    monque: Monque, collection: Any, expression: str
) -> None:
    """Edge case: invalid cron; FR-003."""
    with pytest.raises(InvalidCronError) as refused:
        await monque.schedule(expression, "work")

    assert refused.value.expression == expression
    assert await collection.count_documents({}) == 0


@pytest.mark.parametrize("hours", [1, -1], ids=["an hour ahead", "an hour behind"])
async def test_an_instance_with_a_wrong_clock_does_everything_at_the_right_time(
    server: EmbeddedMongo, monque: Monque, collection: Any, hours: int
) -> None:
    """Edge case: clock drift; nothing runs early or late, no live job is taken, no stamp is skewed."""
    future = document(data="future", nextRunAt=ahead(minutes=30))
    live = claimed("another", data="live")
    await collection.insert_many([document(data="due"), future, live])
    async with child("skewed_worker", uri_of(server, monque.database), str(hours)) as worker:
        await worker.wait_for("ran due")
        await worker.wait_for("job:complete")
        await monque.enqueue("work", "at once")
        await worker.wait_for("ran at once")
        worker.send(signal.SIGTERM)
        code = await worker.ends()
    jobs = {job["data"] or job["name"]: job async for job in collection.find()}
    now = datetime.now(UTC)

    assert code == 0, worker.complaints
    assert {data: job["status"] for data, job in jobs.items()} == {
        "due": "completed",
        "at once": "completed",
        "future": "pending",
        "live": "processing",
        "made": "pending",
        "hourly": "pending",
    }
    assert jobs["live"] == live
    assert jobs["future"] == future
    for stamp in (jobs["due"]["updatedAt"], jobs["made"]["createdAt"], jobs["made"]["updatedAt"]):
        assert abs(stamp - now) < timedelta(minutes=1)
    assert jobs["made"]["nextRunAt"] - jobs["made"]["createdAt"] == timedelta(minutes=30)
    assert jobs["hourly"]["nextRunAt"] == _next_hour(jobs["hourly"]["createdAt"])


async def test_permanently_failed_jobs_are_kept(make_monque: Make, collection: Any) -> None:
    """Edge case: permanently failed jobs stay for inspection, however old, without a retention set."""
    old = document(status="failed", failCount=10, failReason="ValueError: x", updatedAt=ago(days=4000))
    await collection.insert_one(old)
    monque = await make_monque(options=replace(ONE_TRY, max_retries=1)).open()
    monque.worker("work", _fail)
    events = Events(monque)
    await monque.start()
    job = await monque.enqueue("work")
    await events.wait("job:fail")
    await monque.run_until_idle()
    failed = await _job(monque, job)

    assert await collection.find_one({"_id": old["_id"]}) == old
    assert (failed.status, failed.fail_reason) == (
        JobStatus.FAILED,
        "ValueError: the service is not available",
    )
