"""Events: what they carry, when they are emitted, and who receives them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from dataclasses import FrozenInstanceError, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import pytest
from pymongo import AsyncMongoClient, MongoClient
from pymongo.errors import PyMongoError

from monque import (
    ClaimLost,
    ConfigurationError,
    Event,
    Job,
    JobCompleted,
    JobError,
    JobFailed,
    JobStarted,
    JobStatus,
    Monque,
    NewJob,
    ShutdownTimeoutError,
    StaleJobsRecovered,
    WatchClosed,
    WatchConnected,
    WatchFailed,
    WatchUnavailable,
    Workers,
)
from monque._engine.runs import Runs
from monque._store.document import Claim
from monque._store.settle import Settleable, Settler
from monque.embedded import EmbeddedMongo
from support.aliases import Make
from support.clocks import ago
from support.jobs import claimed, document
from support.options import BEATING, ONE_TRY, QUICK
from support.servers import Servers
from support.waiting import Events, eventually, start

BEATING_ONCE = replace(BEATING, base_retry_interval=ONE_TRY.base_retry_interval)


@pytest.fixture
async def monque(make_monque: Make) -> Monque:
    return await make_monque(options=ONE_TRY).open()


def _fail(job: Job[Any]) -> None:
    raise ValueError("no such address")


# What each event carries


async def test_job_start_carries_the_job_as_claimed(monque: Monque, events: Events, collection: Any) -> None:
    """User story 6, scenario 1; FR-013, FR-008."""
    while_running: list[dict[str, Any] | None] = []

    @monque.worker("work")
    async def work(job: Job[dict[str, Any]]) -> None:
        while_running.append(await collection.find_one({"_id": job.id}))

    stored = await monque.enqueue(work, {"n": 1})
    await monque.run_until_idle()
    [event] = events.of("job:start")
    [document] = while_running

    assert isinstance(event, JobStarted)
    assert event.job.id == stored.id
    assert event.job.data == {"n": 1}
    assert event.job.status is JobStatus.PROCESSING
    assert event.job.claimed_by == monque.instance_id
    assert event.job.attempt == 1
    assert document is not None
    assert document["status"] == "processing"
    assert event.job.locked_at == event.job.last_heartbeat == document["lockedAt"]


async def test_job_complete_carries_the_job_as_completed_and_the_duration(
    monque: Monque, events: Events
) -> None:
    """User story 6, scenario 2; FR-014."""

    @monque.worker("work")
    async def work(job: Job[None]) -> None:
        await asyncio.sleep(0.05)

    job = await monque.enqueue(work)
    await monque.run_until_idle()
    [event] = events.of("job:complete")

    assert isinstance(event, JobCompleted)
    assert event.job == await monque.get_job(job.id)
    assert event.job.status is JobStatus.COMPLETED
    assert event.job.claimed_by is event.job.locked_at is event.job.last_heartbeat is None
    assert timedelta(milliseconds=45) < event.duration < timedelta(seconds=10)


async def test_job_fail_carries_the_job_as_put_back_and_the_error(monque: Monque, events: Events) -> None:
    """User story 6, scenario 3; FR-015."""
    monque.worker("work", _fail)
    job = await monque.enqueue("work")
    await monque.run_until_idle()
    [event] = events.of("job:fail")

    assert isinstance(event, JobFailed)
    assert event.will_retry
    assert isinstance(event.error, ValueError)
    assert event.job == await monque.get_job(job.id)
    assert (event.job.status, event.job.fail_count) == (JobStatus.PENDING, 1)
    assert event.job.fail_reason == "ValueError: no such address"


async def test_job_fail_says_whether_it_was_the_last_attempt(make_monque: Make) -> None:
    """FR-015, FR-017."""
    monque = await make_monque(options=replace(ONE_TRY, max_retries=1)).open()
    monque.worker("work", _fail)
    events = Events(monque)
    job = await monque.enqueue("work")
    await monque.run_until_idle()
    [event] = events.of("job:fail")

    assert not event.will_retry
    assert event.job == await monque.get_job(job.id)
    assert event.job.status is JobStatus.FAILED


async def test_job_fail_of_an_exhausted_schedule_carries_the_kept_copy(
    make_monque: Make, collection: Any
) -> None:
    monque = await make_monque(options=replace(ONE_TRY, max_retries=1)).open()
    monque.worker("work", _fail)
    events = Events(monque)
    schedule = await monque.schedule("0 0 1 1 *", "work")
    await collection.update_one({"_id": schedule.id}, {"$set": {"nextRunAt": ago(seconds=1)}})
    await monque.run_until_idle()
    [event] = events.of("job:fail")

    assert not event.will_retry
    assert event.job.id != schedule.id
    assert event.job == await monque.get_job(event.job.id)
    assert event.job.status is JobStatus.FAILED


async def test_jobs_settled_together_are_each_emitted_as_they_are_stored(
    monque: Monque, events: Events
) -> None:
    """Settlements that go out in one write: everything but the exact millisecond is in the event."""
    all_here = asyncio.Barrier(20)

    @monque.worker("work", concurrency=20)
    async def work(job: Job[int]) -> None:
        await all_here.wait()
        if job.data % 2:
            raise ValueError(f"odd {job.data}")

    await monque.enqueue_many(NewJob(work, n) for n in range(20))
    await monque.start()
    settled = await events.wait("job:complete", 10) + (await events.wait("job:fail", 10))
    await monque.stop()

    assert sorted(event.job.data for event in settled) == list(range(20))
    for event in events.of("job:complete"):
        stored = await monque.get_job(event.job.id)
        assert stored is not None
        assert abs(stored.updated_at - event.job.updated_at) < timedelta(seconds=1)
        assert replace(event.job, updated_at=stored.updated_at) == stored
    for event in events.of("job:fail")[:10]:
        assert event.job.fail_reason == f"ValueError: odd {event.job.data}"
        assert (event.job.status, event.job.fail_count) == (JobStatus.PENDING, 1)
        assert event.job.next_run_at - event.job.updated_at == timedelta(minutes=1)


async def test_job_lost_is_emitted_when_a_heartbeat_finds_another_owner(
    make_monque: Make, collection: Any
) -> None:
    """The handler is cancelled, its slot is free again, and the other owner's claim is left alone."""
    monque = await make_monque(options=BEATING_ONCE).open()
    cancelled = asyncio.Event()

    @monque.worker("work", concurrency=1)
    async def work(job: Job[str]) -> None:
        if job.data == "next":
            return
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.set()
            raise

    events = Events(monque)
    await monque.start()
    job = await monque.enqueue(work, "taken")
    await events.wait("job:start")
    await collection.update_one({"_id": job.id}, {"$set": {"claimedBy": "other"}})
    [event] = await events.wait("job:lost")
    await asyncio.wait_for(cancelled.wait(), 10)
    await monque.enqueue(work, "next")
    [completed] = await events.wait("job:complete")
    stored = await monque.get_job(job.id)

    assert isinstance(event, ClaimLost)
    assert event.job.id == job.id
    assert completed.job.data == "next"
    assert stored is not None
    assert (stored.status, stored.claimed_by) == (JobStatus.PROCESSING, "other")
    assert len(events.of("job:lost")) == 1
    assert not events.of("job:fail")


async def test_job_lost_is_emitted_when_settling_finds_another_owner(
    monque: Monque, events: Events, collection: Any
) -> None:
    @monque.worker("work")
    async def work(job: Job[None]) -> None:
        await collection.update_one({"_id": job.id}, {"$inc": {"attempt": 1}})

    job = await monque.enqueue(work)
    await monque.run_until_idle()

    assert [event.job.id for event in events.of("job:lost")] == [job.id]
    assert "job:complete" not in events.kinds()


async def test_stale_recovered_carries_the_count(make_monque: Make, collection: Any) -> None:
    await collection.insert_many(
        claimed("dead", lastHeartbeat=ago(minutes=10), lockedAt=ago(minutes=10)) for _ in range(3)
    )
    await collection.insert_one(claimed("alive"))
    monque = make_monque()
    events = Events(monque)
    await monque.open()
    [event] = events.all

    assert isinstance(event, StaleJobsRecovered)
    assert event.kind == "stale:recovered"
    assert event.count == 3


async def test_stale_recovered_is_not_emitted_if_no_job_was_stale(make_monque: Make) -> None:
    monque = make_monque(options=BEATING_ONCE)
    events = Events(monque)
    await monque.open()
    await monque.run_until_idle()

    assert "stale:recovered" not in events.kinds()


async def test_the_change_stream_emits_when_it_connects_and_closes(monque: Monque) -> None:
    events = await start(monque)
    await monque.stop()

    assert [type(event) for event in events.all] == [WatchConnected, WatchClosed]


async def test_a_broken_change_stream_emits_an_error_and_is_opened_again(
    monque: Monque, client: AsyncMongoClient[Any], collection: Any
) -> None:
    events = await start(monque)
    await _kill_the_change_stream(client, collection.full_name)
    [event] = await events.wait("changestream:error")
    await events.wait("changestream:connected", 2)

    assert isinstance(event, WatchFailed)
    assert isinstance(event.error, PyMongoError)
    monque.worker("work", lambda job: None)
    await monque.enqueue("work")
    await events.wait("job:complete")


async def _kill_the_change_stream(client: AsyncMongoClient[Any], namespace: str) -> None:
    """As an operator does with killOp."""

    async def find() -> list[Any]:
        operations = await client.admin.aggregate(
            [{"$currentOp": {"idleCursors": False}}, {"$match": {"ns": namespace, "op": "getmore"}}]
        )
        found = [operation["opid"] async for operation in operations]
        assert found
        return found

    for operation in await eventually(find):
        await client.admin.command({"killOp": 1, "op": operation})
    # The server notices when there is something to read.
    database, _, name = namespace.partition(".")
    await client[database][name].insert_one(document(name="nobody"))


async def test_a_dropped_collection_closes_the_change_stream_and_work_goes_on(
    monque: Monque, events: Events, collection: Any
) -> None:
    monque.worker("work", lambda job: None)
    await monque.start()
    await monque.enqueue("work")
    await events.wait("job:complete")
    await events.wait("changestream:connected")
    await collection.drop()
    await events.wait("changestream:closed")
    await events.wait("changestream:connected", 2)
    await monque.enqueue("work")
    await events.wait("job:complete", 2)

    assert monque.is_healthy()


@pytest.fixture
async def polling() -> AsyncIterator[Monque]:
    """An instance on a standalone server, which has no change streams."""
    with Servers(replica_set=False) as servers:
        async with Monque(servers.uri("jobs"), options=QUICK) as monque:
            yield monque


async def test_a_server_without_change_streams_emits_one_fallback_and_is_polled_at_full_speed(
    polling: Monque, caplog: pytest.LogCaptureFixture
) -> None:
    """With one slot and a poll of 200 ms, a job a poll would take 20 s."""
    polling.worker("work", lambda job: None, concurrency=1)
    events = Events(polling)
    await polling.enqueue_many(NewJob("work", n) for n in range(100))
    with caplog.at_level(logging.WARNING, "monque"):
        await polling.start()
        await events.wait("job:complete", 100, within=10)
        [event] = await events.wait("changestream:fallback")
        await polling.stop()
        await polling.open()

    assert isinstance(event, WatchUnavailable)
    assert "replica set" in event.reason
    assert len(events.of("changestream:fallback")) == 1
    assert "changestream:error" not in events.kinds()
    assert len([record for record in caplog.records if "polling" in record.getMessage()]) == 1


async def test_change_streams_switched_off_are_no_fallback(make_monque: Make) -> None:
    monque = await make_monque(options=replace(QUICK, change_streams=False)).open()
    monque.worker("work", lambda job: None)
    events = Events(monque)
    await monque.start()
    await monque.enqueue("work")
    await events.wait("job:complete")
    await monque.stop()

    assert events.kinds() == ["job:start", "job:complete"]


async def test_listeners_of_workers_hear_every_monque_that_has_them_whenever_they_were_declared(
    make_monque: Make,
) -> None:
    said: list[tuple[str, str]] = []
    workers = Workers()
    workers.on(JobCompleted, lambda event: said.append(("before", event.job.name)))

    @workers.worker("work")
    async def work(job: Job[None]) -> None: ...

    first, second = make_monque(workers=workers), make_monque(workers=workers)

    @workers.on("job:complete")
    def after(event: JobCompleted) -> None:
        said.append(("after", event.job.name))

    for monque in (first, second):
        await (await monque.open()).enqueue(work)
        await monque.run_until_idle()

    assert said == [("before", "work"), ("after", "work")] * 2


def test_workers_refuse_what_is_no_event_and_no_listener_as_a_monque_does() -> None:
    workers = Workers()

    def takes_failures(event: JobFailed) -> None: ...

    with pytest.raises(ConfigurationError, match="unknown event 'job:ended'"):
        workers.on("job:ended")
    with pytest.raises(ConfigurationError, match="takes JobFailed, so it cannot listen to JobStarted"):
        workers.on(JobStarted, takes_failures)


async def test_job_error_is_emitted_for_errors_in_the_background(
    make_monque: Make, collection: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """User story 6, scenario 4; FR-016: an operator drops the index that polls need."""
    monque = await make_monque(options=replace(QUICK, safety_poll_interval=timedelta(seconds=0.3))).open()
    monque.worker("work", lambda job: None)
    events = await start(monque)
    await collection.drop_index("monque_active")
    await monque.enqueue("work")
    [event] = await events.wait("job:error")

    assert isinstance(event, JobError)
    assert isinstance(event.error, PyMongoError)
    assert event.job is None
    await events.wait("job:complete")
    [line] = [each.getMessage() for each in caplog.records if "looking for work" in each.getMessage()]
    assert line.startswith("looking for work failed, trying again: somebody dropped an index that Monque ")
    assert "\n" not in line


async def test_job_error_is_emitted_for_the_shutdown_timeout(monque: Monque, events: Events) -> None:
    """User story 6, scenario 4; FR-016."""

    @monque.worker("endless")
    async def endless(job: Job[None]) -> None:
        await asyncio.Event().wait()

    await monque.start()
    await monque.enqueue(endless)
    await events.wait("job:start")
    await monque.stop(timeout=0)
    [event] = events.of("job:error")

    assert isinstance(event.error, ShutdownTimeoutError)


async def test_events_are_values() -> None:
    event = WatchUnavailable(reason="standalone")

    assert event == WatchUnavailable(reason="standalone")
    with pytest.raises(FrozenInstanceError):
        event.reason = "other"


# When


async def test_an_event_is_emitted_only_after_its_write(
    monque: Monque, server: EmbeddedMongo, collection: Any
) -> None:
    """Each event's job is what another client reads from the database at that very moment."""
    emitted: list[tuple[str, str, Any]] = []
    with MongoClient[dict[str, Any]](server.uri, tz_aware=True) as reader:
        jobs = reader[collection.database.name][collection.name]

        def look(event: Any) -> None:
            stored = jobs.find_one({"_id": event.job.id})
            assert stored is not None
            emitted.append((event.kind, stored["status"], stored["updatedAt"] - event.job.updated_at))

        for kind in ("job:start", "job:complete", "job:fail"):
            monque.on(kind, look)
        monque.worker("works", lambda job: None)
        monque.worker("fails", _fail)
        await monque.enqueue("works")
        await monque.run_until_idle()
        await monque.enqueue("fails")
        await monque.run_until_idle()

    nothing = timedelta(0)
    assert emitted == [
        ("job:start", "processing", nothing),
        ("job:complete", "completed", nothing),
        ("job:start", "processing", nothing),
        ("job:fail", "pending", nothing),
    ]


async def test_an_end_is_emitted_before_the_next_start_although_its_answer_comes_late(
    make_monque: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server has put a failed job back, and it was claimed again here, before the answer arrives."""
    monque = await make_monque(options=replace(QUICK, base_retry_interval=timedelta(milliseconds=5))).open()
    claimed_again = asyncio.Event()
    take, settle = Runs.take, Settler._settle_one

    def taken(runs: Runs, claims: list[Claim], **how: Any) -> None:
        take(runs, claims, **how)
        if any(claim.attempt == 2 for claim in claims):
            claimed_again.set()

    async def settled_late(settler: Settler, settlement: Settleable, *limit: Any) -> Any:
        answer = await settle(settler, settlement, *limit)
        if settlement.claim.attempt == 1:
            await claimed_again.wait()
            for _ in range(10):  # turns of the event loop, in which the second attempt could start
                await asyncio.sleep(0)
        return answer

    monkeypatch.setattr(Runs, "take", taken)
    monkeypatch.setattr(Settler, "_settle_one", settled_late)

    @monque.worker("work")
    async def work(job: Job[None]) -> None:
        if job.attempt == 1:
            raise ValueError("not yet")

    events = Events(monque)
    await monque.start()
    await monque.enqueue(work)
    await events.wait("job:complete")

    life = [kind for kind in events.kinds() if kind.startswith("job:")]
    assert life == ["job:start", "job:fail", "job:start", "job:complete"]


async def test_nothing_is_emitted_for_a_write_that_did_not_happen(
    monque: Monque, events: Events, collection: Any
) -> None:
    """The job was deleted while it ran: it cannot have been completed."""

    @monque.worker("work")
    async def work(job: Job[None]) -> None:
        await collection.delete_one({"_id": job.id})

    await monque.enqueue(work)
    await monque.run_until_idle()

    assert events.kinds() == ["job:start", "job:lost"]


async def test_events_are_emitted_within_100_ms_of_the_change(monque: Monque) -> None:
    """SC-005: measured against the server's own stamps; the best of five rounds, as the machine is shared."""
    monque.worker("works", lambda job: None)
    monque.worker("fails", _fail)
    delays: list[timedelta] = []

    def measure(event: Any) -> None:
        delays.append(datetime.now(UTC) - event.job.updated_at)

    for event in (JobStarted, JobCompleted, JobFailed):
        monque.on(event, measure)
    rounds = []
    for _ in range(5):
        delays.clear()
        await monque.enqueue_many([NewJob("works"), NewJob("fails"), NewJob("works")])
        await monque.run_until_idle()
        assert len(delays) >= 6
        rounds.append(max(delays))

    assert min(rounds) < timedelta(milliseconds=100)


# Listening


@pytest.mark.parametrize("event", [JobCompleted, "job:complete", Event], ids=str)
@pytest.mark.parametrize("as_decorator", [True, False])
async def test_a_listener_is_added_by_class_by_kind_or_for_everything(
    monque: Monque, event: Any, as_decorator: bool
) -> None:
    events: list[Event] = []

    def listen(event: Event) -> None:
        events.append(event)

    listener = monque.on(event)(listen) if as_decorator else monque.on(event, listen)
    monque.worker("work", lambda job: None)
    await monque.enqueue("work")
    await monque.run_until_idle()

    assert listener is listen
    assert [event.kind for event in events if event.kind == "job:complete"] == ["job:complete"]
    assert len(events) == (2 if event is Event else 1)


async def test_a_once_listener_receives_one_event_only(monque: Monque) -> None:
    by_kind: list[Event] = []
    by_class: list[Event] = []
    monque.once("job:complete", by_kind.append)

    @monque.once(JobCompleted)
    async def listen(event: JobCompleted) -> None:
        by_class.append(event)

    monque.worker("work", lambda job: None)
    for _ in range(3):
        await monque.enqueue("work")
    await monque.run_until_idle()

    assert len(by_kind) == len(by_class) == 1


async def test_off_removes_a_listener_whichever_way_the_event_is_named(monque: Monque) -> None:
    events: list[Event] = []
    kept: list[Event] = []
    monque.on("job:complete", events.append)
    monque.on(JobStarted, events.append)
    monque.once("job:complete", events.append)
    monque.on("job:complete", kept.append)

    monque.off(JobCompleted, events.append)
    monque.off("job:start", events.append)
    monque.off("job:fail", events.append)  # was never there
    monque.worker("work", lambda job: None)
    await monque.enqueue("work")
    await monque.run_until_idle()

    assert events == []
    assert len(kept) == 1


async def test_a_listener_may_remove_itself_and_other_listeners_while_it_is_called(monque: Monque) -> None:
    """Taking away a `once` listener during the event it waits for disturbs nothing."""
    events: list[str] = []

    def second(event: Event) -> None:
        events.append("second")

    def first(event: Event) -> None:
        events.append("first")
        monque.off("job:start", first)
        monque.off("job:start", second)

    monque.on("job:start", first)
    monque.once("job:start", second)
    monque.worker("work", lambda job: None)
    completed = Events(monque)
    await monque.enqueue("work")
    await monque.enqueue("work")
    await monque.run_until_idle()

    assert events.count("first") == 1
    assert "second" not in events
    assert len(completed.of("job:complete")) == 2
    assert "job:fail" not in completed.kinds()


@pytest.mark.parametrize("event", ["job:finish", "", None, 7, Job, "*"])
async def test_an_unknown_event_is_refused_with_the_known_ones(monque: Monque, event: Any) -> None:
    for listen in (monque.on, monque.once, monque.off):
        with pytest.raises(ConfigurationError, match="unknown event") as refused:
            listen(event, print)

        assert repr(event) in str(refused.value)
        for kind in ("job:start", "job:complete", "job:lost", "stale:recovered", "changestream:fallback"):
            assert kind in str(refused.value)


async def test_a_decorator_without_its_event_is_refused_with_a_sentence(monque: Monque) -> None:
    def alert(event: Any) -> None: ...

    for listen in (monque.on, monque.once):
        with pytest.raises(
            ConfigurationError, match=r"which event alert is for, .* @monque\.on\(JobFailed\)"
        ):
            listen(alert)  # `@monque.on` above the function


@pytest.mark.parametrize("event", ["job:fial", None, Job])
async def test_an_unknown_event_is_refused_before_a_listener_is_there(monque: Monque, event: Any) -> None:
    for listen in (monque.on, monque.once):
        with pytest.raises(ConfigurationError, match="unknown event"):
            listen(event)


class _Alert:
    def __call__(self, event: JobFailed) -> None: ...

    def listen(self, event: JobFailed) -> None: ...


def _on_failed(event: JobFailed) -> None: ...


def _on_some(event: JobFailed | JobStarted) -> None: ...


@pytest.mark.parametrize("listener", [_on_failed, _Alert(), _Alert().listen, partial(_on_failed), _on_some])
async def test_a_listener_for_another_event_is_refused(monque: Monque, listener: Any) -> None:
    for event in ("job:complete", JobCompleted, Event):
        with pytest.raises(ConfigurationError, match="takes JobFailed"):
            monque.on(event, listener)
    monque.on("job:fail", listener)
    monque.once(JobFailed, listener)


async def test_a_listener_whose_annotation_says_nothing_is_taken(monque: Monque) -> None:
    def unknown(event: Unknown) -> None: ...  # noqa: F821

    def wider(event: Event) -> None: ...

    def other(event: str) -> None: ...

    events: list[Event] = []
    for listener in (unknown, wider, other, print, events.append, lambda event: None):
        monque.on("job:complete", listener)


async def test_a_listener_that_cannot_be_called_is_refused(monque: Monque) -> None:
    with pytest.raises(ConfigurationError, match="listener must be callable"):
        monque.on("job:start", "print")


# Listeners and the work


async def _raise(event: Event) -> None:
    raise RuntimeError("a listener's own trouble")


def _raise_at_once(event: Event) -> None:
    raise RuntimeError("a listener's own trouble")


@pytest.mark.parametrize("listener", [_raise, _raise_at_once], ids=["async", "sync"])
async def test_a_listener_that_raises_disturbs_nothing_and_leaks_no_slot(
    monque: Monque, events: Events, listener: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """With one slot, the second job could not run if the first one's was lost."""
    for event in (JobStarted, JobCompleted, JobFailed, Event):
        monque.on(event, listener)
    monque.worker("works", lambda job: None, concurrency=1)
    monque.worker("fails", _fail, concurrency=1)
    await monque.start()
    with caplog.at_level(logging.ERROR, "monque"):
        for _ in range(3):
            await monque.enqueue("works")
        await monque.enqueue("fails")
        done = await events.wait("job:complete", 3)
        await events.wait("job:fail")
        healthy = monque.is_healthy()
        await monque.stop()

    assert healthy
    assert {event.job.fail_count for event in done} == {0}
    assert "a listener for job:start failed" in caplog.text
    assert "a listener's own trouble" in caplog.text


async def test_a_job_does_not_wait_for_async_listeners(monque: Monque, events: Events) -> None:
    let_go = asyncio.Event()
    emitted: list[str] = []

    @monque.on(Event)
    async def slow(event: Event) -> None:
        await let_go.wait()
        emitted.append(event.kind)

    monque.worker("work", lambda job: None, concurrency=1)
    await monque.start()
    for _ in range(3):
        await monque.enqueue("work")
    await events.wait("job:complete", 3)
    before = list(emitted)
    let_go.set()
    await monque.stop()

    assert before == []
    assert emitted.count("job:complete") == 3


async def test_listeners_may_use_the_scheduler(monque: Monque, events: Events) -> None:
    """A job is chained to another by an async listener."""

    @monque.on(JobCompleted)
    async def chain(event: JobCompleted) -> None:
        if event.job.name == "first":
            await monque.enqueue("second")

    monque.worker("first", lambda job: None)
    monque.worker("second", lambda job: None)
    await monque.start()
    await monque.enqueue("first")
    done = await events.wait("job:complete", 2)

    assert [event.job.name for event in done] == ["first", "second"]


async def test_instances_emit_only_their_own_events(make_monque: Make, collection: Any) -> None:
    worker, other = await make_monque().open(), await make_monque().open()
    worker.worker("work", lambda job: None)
    events, events_elsewhere = Events(worker), Events(other)
    await collection.insert_one(document())
    await worker.run_until_idle()

    assert events.kinds() == ["job:start", "job:complete"]
    assert events_elsewhere.kinds() == []
