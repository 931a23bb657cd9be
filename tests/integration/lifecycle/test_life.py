"""The life of an instance: open, start, stop, close, and over again."""

from __future__ import annotations

import asyncio
import gc
import logging
import signal
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from pymongo import AsyncMongoClient

from monque import (
    ConfigurationError,
    ConnectionError,
    InstanceConflictError,
    Job,
    JobCompleted,
    JobFilter,
    JobStatus,
    Monque,
    NewJob,
    NotOpenError,
)
from monque._store.store import Server
from monque.embedded import EmbeddedMongo
from support.aliases import Database, Make
from support.clocks import ago, ahead
from support.jobs import claimed, document
from support.options import ONE_TRY, QUICK
from support.programs.child import child, uri_of
from support.waiting import Events, healthy
from support.working import Pause


async def _status(monque: Monque, job: Job[Any]) -> JobStatus:
    stored = await monque.get_job(job.id)
    assert stored is not None
    return stored.status


# Opening and closing


async def test_constructing_does_no_io() -> None:
    """No server listens there, which only `open()` finds out."""
    monque = Monque("mongodb://127.0.0.1:1/jobs")

    assert not monque.is_healthy()
    assert "closed" in repr(monque)


async def test_open_makes_enqueue_and_reads_work_and_runs_nothing(monque: Monque, events: Events) -> None:
    monque.worker("work", lambda job: None)
    job = await monque.enqueue("work")

    assert await monque.get_job(job.id) == job
    assert events.all == []


async def test_open_creates_the_indexes(monque: Monque, collection: Any) -> None:
    assert len(await collection.index_information()) >= 3


async def test_open_puts_back_the_jobs_of_dead_owners(make_monque: Make, collection: Any) -> None:
    stale = claimed("dead", lastHeartbeat=ago(minutes=5), lockedAt=ago(minutes=5))
    await collection.insert_one(stale)
    monque = await make_monque().open()
    job = await monque.get_job(stale["_id"])

    assert job is not None
    assert job.status is JobStatus.PENDING


async def test_open_is_idempotent_also_when_called_at_once(server: EmbeddedMongo, database: Database) -> None:
    monque = Monque(uri_of(server, database))
    await asyncio.gather(*(monque.open() for _ in range(5)))
    client = monque.client
    await monque.open()

    assert monque.client is client
    await monque.close()


async def test_close_is_idempotent(make_monque: Make) -> None:
    monque = make_monque()
    await monque.close()
    await monque.open()
    await asyncio.gather(monque.close(), monque.close())
    await monque.close()

    assert "closed" in repr(monque)


async def test_open_after_close_works(server: EmbeddedMongo, database: Database) -> None:
    monque = Monque(uri_of(server, database), options=QUICK)
    monque.worker("work", lambda job: None)
    events = Events(monque)
    for _ in range(2):
        async with monque:
            await monque.enqueue("work")
            await monque.start()
            await events.wait("job:complete", 1)
        assert not monque.is_healthy()
        events.all.clear()


async def test_close_while_running_stops_first(monque: Monque, collection: Any) -> None:
    work = monque.worker("work", pause := Pause())
    job = await monque.enqueue(work)
    await monque.start()
    await pause.wait()
    closing = asyncio.create_task(monque.close())
    await healthy(monque, False)
    pause.go_on.set()
    await closing
    stored = await collection.find_one({"_id": job.id})

    assert stored["status"] == "completed"


async def test_a_client_handed_over_stays_open(monque: Monque, client: AsyncMongoClient[Any]) -> None:
    await monque.close()

    assert await client.admin.command("ping")


async def test_a_client_of_our_own_is_closed(server: EmbeddedMongo, database: Database) -> None:
    async with Monque(uri_of(server, database)) as monque:
        client = monque.client

    with pytest.raises(Exception, match="after close"):
        await client.admin.command("ping")


async def test_an_instance_can_be_opened_again_in_a_new_event_loop(
    server: EmbeddedMongo, database: Database
) -> None:
    """As a script does that calls `asyncio.run` twice; also when several tasks open it at once."""
    monque = Monque(uri_of(server, database), options=QUICK)
    ran: list[int] = []

    @monque.worker("work")
    async def work(job: Job[int]) -> None:
        ran.append(job.data)

    async def once(number: int) -> None:
        await asyncio.gather(monque.open(), monque.open(), monque.open())
        events = Events(monque)
        await monque.start()
        await monque.enqueue(work, number)
        await events.wait("job:complete")
        await asyncio.gather(monque.close(), monque.close())

    for number in range(2):
        await asyncio.to_thread(lambda number=number: asyncio.run(once(number)))

    assert ran == [0, 1]


async def test_a_client_of_another_event_loop_is_refused_with_a_readable_error(
    server: EmbeddedMongo, database: Database
) -> None:
    async def use_elsewhere() -> None:
        await Monque(database).open()

    await database.client.admin.command("ping")
    with pytest.raises(ConfigurationError, match="another event loop"):
        await asyncio.to_thread(lambda: asyncio.run(use_elsewhere()))


async def test_an_open_that_failed_can_be_tried_again(make_monque: Make, collection: Any) -> None:
    await collection.insert_one(claimed("me"))
    monque = make_monque(options=replace(QUICK, instance_id="me"))
    with pytest.raises(InstanceConflictError):
        await monque.open()
    await collection.delete_many({})

    await monque.open()

    assert await monque.enqueue("work")


USES: dict[str, Callable[[Monque], Any]] = {
    "enqueue": lambda monque: monque.enqueue("work"),
    "enqueue_many": lambda monque: monque.enqueue_many([NewJob("work")]),
    "now": lambda monque: monque.now("work"),
    "schedule": lambda monque: monque.schedule("@daily", "work"),
    "get_job": lambda monque: monque.get_job("0" * 24),
    "get_jobs": lambda monque: monque.get_jobs(),
    "list_jobs": lambda monque: monque.list_jobs(),
    "iter_jobs": lambda monque: anext(aiter(monque.iter_jobs())),
    "queue_stats": lambda monque: monque.queue_stats(),
    "queue_views": lambda monque: monque.queue_views(),
    "cancel_job": lambda monque: monque.cancel_job("0" * 24),
    "retry_job": lambda monque: monque.retry_job("0" * 24),
    "reschedule_job": lambda monque: monque.reschedule_job("0" * 24, ahead(minutes=1)),
    "delete_job": lambda monque: monque.delete_job("0" * 24),
    "cancel_jobs": lambda monque: monque.cancel_jobs(JobFilter()),
    "retry_jobs": lambda monque: monque.retry_jobs(JobFilter()),
    "delete_jobs": lambda monque: monque.delete_jobs(JobFilter()),
}


@pytest.mark.parametrize("use", USES.values(), ids=USES)
@pytest.mark.parametrize("closed", [False, True], ids=["before open", "after close"])
async def test_methods_that_need_an_open_instance_say_so(
    make_monque: Make, use: Callable[[Monque], Any], closed: bool
) -> None:
    monque = make_monque()
    if closed:
        await monque.open()
        await monque.close()

    with pytest.raises(NotOpenError, match="not open"):
        await use(monque)


@pytest.mark.parametrize("name", ["database", "client"])
@pytest.mark.parametrize("closed", [False, True], ids=["before open", "after close"])
async def test_the_native_objects_exist_only_while_open(make_monque: Make, name: str, closed: bool) -> None:
    monque = make_monque()
    if closed:
        await monque.open()
        await monque.close()

    with pytest.raises(NotOpenError, match="not open"):
        getattr(monque, name)


async def test_database_and_client_are_the_native_objects_in_use(
    monque: Monque, database: Database, client: AsyncMongoClient[Any]
) -> None:
    job = await monque.enqueue("work")

    assert monque.database == database
    assert monque.client is client
    assert await monque.database["monque_jobs"].find_one({"_id": job.id}) is not None


async def test_the_database_is_that_of_the_uri(server: EmbeddedMongo, database: Database) -> None:
    async with Monque(uri_of(server, database)) as monque:
        assert monque.database.name == database.name


@pytest.fixture
def collected() -> Iterator[None]:
    """PyMongo leaves a socket to the garbage collector when it is closed while it tries to connect."""
    yield
    gc.collect()


@pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")
@pytest.mark.usefixtures("collected")
async def test_an_unreachable_server_raises_within_seconds() -> None:
    monque = Monque("mongodb://127.0.0.1:1/jobs")

    with pytest.raises(ConnectionError, match="could not open the database"):
        await asyncio.wait_for(monque.open(), 15)

    assert not monque.is_healthy()


# The instance id


async def test_an_instance_id_that_is_alive_elsewhere_is_refused(
    make_monque: Make,
) -> None:
    first = await make_monque(options=replace(QUICK, instance_id="worker-1")).open()
    work = first.worker("work", pause := Pause())
    events = Events(first)
    await first.start()
    await first.enqueue(work)
    await events.wait("job:start")

    second = make_monque(options=replace(QUICK, instance_id="worker-1"))
    with pytest.raises(InstanceConflictError, match="'worker-1' is alive elsewhere") as refused:
        await second.open()
    pause.go_on.set()
    await first.stop()
    await second.open()

    assert refused.value.instance_id == "worker-1"


@pytest.mark.parametrize(
    "left",
    [
        document(),
        claimed("someone-else"),
        claimed("worker-1", lastHeartbeat=ago(minutes=5), lockedAt=ago(minutes=5)),
    ],
    ids=["nothing", "of another", "of a dead predecessor"],
)
async def test_an_instance_id_is_refused_for_a_live_claim_only(
    make_monque: Make, collection: Any, left: dict[str, Any]
) -> None:
    await collection.insert_one(left)

    monque = await make_monque(options=replace(QUICK, instance_id="worker-1")).open()

    assert monque.instance_id == "worker-1"


@pytest.mark.usefixtures("short_grace")
async def test_an_instance_does_not_conflict_with_itself(make_monque: Make) -> None:
    """A blocking handler that outlived `stop()` still holds its claim when the instance opens again."""
    monque = await make_monque(options=replace(QUICK, instance_id="worker-1")).open()
    let_go = threading.Event()
    monque.worker("blocking", lambda job: let_go.wait(60))
    events = Events(monque)
    await monque.start()
    await monque.enqueue("blocking")
    await events.wait("job:start")
    await monque.stop(timeout=0)
    await monque.close()

    try:
        await monque.open()
    finally:
        let_go.set()

    await events.wait("job:complete")


async def test_instances_without_an_id_have_one_each(make_monque: Make) -> None:
    assert make_monque().instance_id != make_monque().instance_id


# Starting and stopping


async def test_start_opens_if_needed(make_monque: Make) -> None:
    monque = make_monque()
    monque.worker("work", lambda job: None)
    events = Events(monque)
    await monque.start()
    await monque.enqueue("work")

    await events.wait("job:complete")


async def test_start_is_idempotent(monque: Monque, events: Events) -> None:
    """One change stream, one set of loops, and each job runs once."""
    ran: list[int] = []
    monque.worker("work", lambda job: ran.append(job.data), concurrency=1)
    await asyncio.gather(*(monque.start() for _ in range(5)))
    await monque.start()
    await monque.enqueue_many(NewJob("work", n) for n in range(20))
    await events.wait("job:complete", 20)
    await monque.stop()

    assert sorted(ran) == list(range(20))
    assert events.kinds().count("changestream:connected") == 1


async def test_start_after_stop_works(monque: Monque, events: Events) -> None:
    monque.worker("work", lambda job: None)
    for count in (1, 2, 3):
        await monque.start()
        assert monque.is_healthy()
        await monque.enqueue("work")
        await events.wait("job:complete", count)
        await monque.stop()
        assert not monque.is_healthy()


async def test_starts_during_a_stop_wait_for_it_and_give_one_running_instance(
    monque: Monque, events: Events
) -> None:
    """Two starts wait for the same drain; only one of them may begin anew, or stop() would miss the other."""
    work = monque.worker("work", pause := Pause(), concurrency=1)
    await monque.start()
    await monque.enqueue(work, 1)
    await events.wait("job:start")
    await events.wait("changestream:connected")
    stopping = asyncio.create_task(monque.stop())
    await healthy(monque, False)
    starting = [asyncio.create_task(monque.start()) for _ in range(3)]
    pause.go_on.set()
    await asyncio.gather(stopping, *starting)
    await monque.enqueue(work, 2)
    await events.wait("job:complete", 2)
    await events.wait("changestream:connected", 2)
    await monque.stop()
    left_over = await monque.enqueue(work, 3)
    await _settle_down()

    assert events.kinds().count("changestream:connected") == 2
    assert await _status(monque, left_over) is JobStatus.PENDING
    assert _tasks_of_monque() == []


async def test_stop_without_start_does_nothing(make_monque: Make) -> None:
    monque = make_monque()
    await monque.stop()
    await monque.open()
    await monque.stop(timeout=0)

    assert await monque.enqueue("work")


async def test_stop_twice_is_fine(monque: Monque) -> None:
    await monque.start()
    await monque.stop()
    await monque.stop()
    await monque.stop(timeout=0)

    assert not monque.is_healthy()


async def test_after_stop_jobs_can_still_be_stored(monque: Monque) -> None:
    monque.worker("work", lambda job: None)
    await monque.start()
    await monque.stop()
    job = await monque.enqueue("work")
    await _settle_down()

    assert await _status(monque, job) is JobStatus.PENDING


@pytest.mark.parametrize("timeout", [-1, timedelta(seconds=-1), float("nan")])
async def test_a_negative_timeout_is_refused(monque: Monque, timeout: Any) -> None:
    await monque.start()

    with pytest.raises(ConfigurationError, match="timeout must not be negative"):
        await monque.stop(timeout=timeout)

    assert monque.is_healthy()


# Health


async def test_a_producer_that_never_started_is_not_healthy(monque: Monque) -> None:
    await monque.enqueue("work")

    assert not monque.is_healthy()


async def test_health_follows_the_life_of_an_instance(make_monque: Make) -> None:
    monque = make_monque()
    seen = [monque.is_healthy()]
    await monque.open()
    seen.append(monque.is_healthy())
    await monque.start()
    seen.append(monque.is_healthy())
    await monque.stop()
    seen.append(monque.is_healthy())
    await monque.start()
    seen.append(monque.is_healthy())
    await monque.close()
    seen.append(monque.is_healthy())

    assert seen == [False, False, True, False, True, False]


async def test_an_instance_without_contact_is_not_healthy(
    server: EmbeddedMongo, database: Database, monque: Monque, events: Events
) -> None:
    """The server refuses every poll (its hint names no index), then accepts them again."""
    monque.worker("work", lambda job: None)
    healthy_then: list[bool] = []
    monque.on("job:error", lambda event: healthy_then.append(monque.is_healthy()))
    await monque.start()
    await database["monque_jobs"].drop_indexes()
    await monque.enqueue("work")
    await events.wait("job:error")
    assert healthy_then[0] is False

    await events.wait("job:complete")
    await healthy(monque)


# run_until_idle


async def test_run_until_idle_needs_neither_open_nor_start(make_monque: Make) -> None:
    producer = await make_monque().open()
    job = await producer.enqueue("work")
    monque = make_monque()
    monque.worker("work", lambda job: None)

    await monque.run_until_idle()

    assert await _status(producer, job) is JobStatus.COMPLETED
    assert not monque.is_healthy()


async def test_run_until_idle_processes_everything_that_is_due(monque: Monque) -> None:
    monque.worker("work", lambda job: None, concurrency=3)
    jobs = await monque.enqueue_many(NewJob("work", n) for n in range(50))

    await monque.run_until_idle()

    assert {await _status(monque, job) for job in jobs} == {JobStatus.COMPLETED}


async def test_run_until_idle_runs_what_is_due_by_the_clock_of_the_server(
    make_monque: Make, monkeypatch: pytest.MonkeyPatch, collection: Any
) -> None:
    """Our clock is late by as long as answers take: by it, a job that was retried just now is not due yet."""
    hello = Server.hello

    async def answer_late(server: Server) -> dict[str, Any]:
        answer = await hello(server)
        await asyncio.sleep(0.3)
        return answer

    monkeypatch.setattr(Server, "hello", answer_late)
    monque = await make_monque().open()
    ran: list[Job[Any]] = []
    monque.worker("work", ran.append)
    await collection.insert_one(failed := document(status="failed"))
    retried = await monque.retry_job(failed["_id"])
    await monque.run_until_idle()

    assert [job.id for job in ran] == [retried.id]


async def test_run_until_idle_also_runs_what_the_jobs_enqueue(monque: Monque) -> None:
    ran: list[int] = []

    @monque.worker("countdown", concurrency=1)
    async def countdown(job: Job[int]) -> None:
        ran.append(job.data)
        if job.data:
            await monque.enqueue("countdown", job.data - 1)

    await monque.enqueue(countdown, 5)
    await monque.run_until_idle()

    assert ran == [5, 4, 3, 2, 1, 0]


async def test_run_until_idle_returns_at_once_when_there_is_nothing(monque: Monque) -> None:
    await asyncio.wait_for(monque.run_until_idle(), 10)
    monque.worker("work", lambda job: None)
    await asyncio.wait_for(monque.run_until_idle(), 10)

    assert not monque.is_healthy()


async def test_run_until_idle_ignores_names_without_a_worker_here(monque: Monque) -> None:
    monque.worker("mine", lambda job: None)
    other = await monque.enqueue("not-mine")
    mine = await monque.enqueue("mine")

    await monque.run_until_idle()

    assert await _status(monque, mine) is JobStatus.COMPLETED
    assert await _status(monque, other) is JobStatus.PENDING


async def test_run_until_idle_does_not_wait_for_later_jobs(make_monque: Make) -> None:
    """Neither those that are due later, nor failed ones that wait for their next try."""
    monque = await make_monque(options=ONE_TRY).open()

    @monque.worker("work")
    async def work(job: Job[None]) -> None:
        raise ValueError

    later = await monque.enqueue(work, delay=timedelta(hours=1))
    failing = await monque.enqueue(work)

    await asyncio.wait_for(monque.run_until_idle(), 20)

    stored = await monque.get_job(failing.id)
    assert stored is not None
    assert (stored.status, stored.fail_count) == (JobStatus.PENDING, 1)
    assert await _status(monque, later) is JobStatus.PENDING


async def test_run_until_idle_does_not_wait_for_other_instances(monque: Monque, collection: Any) -> None:
    monque.worker("work", lambda job: None)
    await collection.insert_one(claimed("another"))

    await asyncio.wait_for(monque.run_until_idle(), 20)

    assert await collection.count_documents({"status": "processing"}) == 1


async def test_run_until_idle_of_a_running_instance_leaves_it_running(monque: Monque) -> None:
    monque.worker("work", lambda job: None, concurrency=1)
    await monque.start()
    jobs = await monque.enqueue_many(NewJob("work", n) for n in range(10))

    await monque.run_until_idle()

    assert {await _status(monque, job) for job in jobs} == {JobStatus.COMPLETED}
    assert monque.is_healthy()


async def test_run_until_idle_waits_for_running_jobs(monque: Monque, events: Events) -> None:
    work = monque.worker("work", pause := Pause())
    job = await monque.enqueue(work)
    idle = asyncio.create_task(monque.run_until_idle())
    await events.wait("job:start")
    done_before = idle.done()
    pause.go_on.set()
    await idle

    assert not done_before
    assert await _status(monque, job) is JobStatus.COMPLETED


@pytest.mark.parametrize("is_started", [False, True])
async def test_run_until_idle_also_runs_what_listeners_store(is_started: bool, monque: Monque) -> None:
    ran: list[int] = []

    @monque.on(JobCompleted)
    async def store_next(event: JobCompleted) -> None:
        for _ in range(5):
            await monque.get_job(event.job.id)
        if event.job.data:
            await monque.enqueue("countdown", event.job.data - 1)

    monque.worker("countdown", lambda job: ran.append(job.data))
    if is_started:
        await monque.start()
    await monque.enqueue("countdown", 3)
    await monque.run_until_idle()

    assert ran == [3, 2, 1, 0]


async def test_run_until_idle_waits_for_a_listener_no_longer_than_a_stop_does(make_monque: Make) -> None:
    """The listener waits for what comes after; the instance was started, so nothing else would end it."""
    monque = await make_monque(options=replace(QUICK, shutdown_timeout=timedelta(seconds=0.5))).open()
    monque.worker("work", lambda job: None)
    monque.on(JobCompleted, listener := Pause())
    await monque.start()
    await monque.enqueue("work")

    await asyncio.wait_for(monque.run_until_idle(), 20)

    assert listener.reached.is_set()
    listener.go_on.set()


async def test_a_listener_that_calls_run_until_idle_does_not_wait_for_itself(monque: Monque) -> None:
    returned = asyncio.Event()

    @monque.on(JobCompleted)
    async def listen(event: JobCompleted) -> None:
        await monque.run_until_idle()
        returned.set()

    monque.worker("work", lambda job: None)
    await monque.start()
    await monque.enqueue("work")

    await asyncio.wait_for(returned.wait(), 10)


async def test_run_until_idle_waits_for_async_listeners(monque: Monque) -> None:
    received: list[str] = []

    @monque.on("job:complete")
    async def listen(event: Any) -> None:
        await monque.get_job(event.job.id)
        received.append(event.kind)

    monque.worker("work", lambda job: None)
    await monque.enqueue("work")
    await monque.run_until_idle()

    assert received == ["job:complete"]


async def test_concurrent_run_until_idle_each_see_their_own_jobs_done(monque: Monque) -> None:
    """The first call that is idle must not end the run of the other calls."""
    monque.worker("work", lambda job: None, concurrency=1)

    async def enqueue_and_run(number: int) -> JobStatus:
        await asyncio.sleep(number / 1000)
        job = await monque.enqueue("work", number)
        await monque.run_until_idle()
        return await _status(monque, job)

    for _ in range(5):
        assert set(await asyncio.gather(*(enqueue_and_run(n) for n in range(10)))) == {JobStatus.COMPLETED}


async def test_start_during_run_until_idle_leaves_the_instance_running(monque: Monque) -> None:
    work = monque.worker("work", pause := Pause())
    await monque.enqueue(work)
    idle = asyncio.create_task(monque.run_until_idle())
    await pause.wait()
    starting = asyncio.create_task(monque.start())
    await _settle_down()
    pause.go_on.set()
    await asyncio.gather(idle, starting)

    assert monque.is_healthy()


async def test_stop_ends_run_until_idle(monque: Monque, events: Events) -> None:
    """With one slot and endless work it would never be idle."""

    @monque.worker("again", concurrency=1)
    async def again(job: Job[None]) -> None:
        await monque.enqueue("again")

    await monque.enqueue(again)
    idle = asyncio.create_task(monque.run_until_idle())
    await events.wait("job:complete")
    await monque.stop()

    await asyncio.wait_for(idle, 10)


# run


async def test_run_opens_starts_and_ends_with_stop(make_monque: Make) -> None:
    monque = make_monque()
    monque.worker("work", lambda job: None)
    events = Events(monque)
    running = asyncio.create_task(monque.run())
    await healthy(monque)
    await monque.enqueue("work")
    await events.wait("job:complete")
    await monque.stop()

    await asyncio.wait_for(running, 10)


async def test_run_that_is_cancelled_stops_gracefully(monque: Monque) -> None:
    work = monque.worker("work", pause := Pause())
    job = await monque.enqueue(work)
    running = asyncio.create_task(monque.run())
    await pause.wait()
    running.cancel()
    await healthy(monque, False)
    pause.go_on.set()
    with pytest.raises(asyncio.CancelledError):
        await running

    assert await _status(monque, job) is JobStatus.COMPLETED


async def test_run_gives_the_signals_back(monque: Monque) -> None:
    before = (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM))
    running = asyncio.create_task(monque.run())
    await healthy(monque)
    during = (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM))
    await monque.stop()
    await running

    assert during != before
    assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == before


@pytest.mark.parametrize(
    ("change_streams", "how"),
    [(True, "woken by a change stream"), (False, "looking for new jobs every 0.2 s")],
)
async def test_run_logs_what_it_works_on_and_how_it_finds_new_jobs(
    make_monque: Make, caplog: pytest.LogCaptureFixture, change_streams: bool, how: str
) -> None:
    monque = make_monque(options=replace(QUICK, change_streams=change_streams))
    monque.worker("mail", lambda job: None, concurrency=3)
    monque.worker("export", lambda job: None)
    caplog.set_level(logging.INFO, "monque")
    running = asyncio.create_task(monque.run())
    await healthy(monque)
    await monque.start()  # it runs already, and that was logged
    await monque.stop()
    await running

    [line] = [record.getMessage() for record in caplog.records if "works on" in record.getMessage()]
    place = f"{monque.database.name}.monque_jobs"
    assert line == (
        f"instance {monque.instance_id} works on mail (3 at once), export (5 at once) in {place}, {how}"
    )


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
async def test_a_signal_lets_the_running_job_finish_and_takes_no_new_one(
    server: EmbeddedMongo, monque: Monque, collection: Any, number: signal.Signals
) -> None:
    """User story 5, scenarios 1 and 2; exit code 0, nothing left processing."""
    running = await monque.enqueue("patient")
    async with child("run_worker", uri_of(server, monque.database)) as worker:
        await worker.wait_for("job:start")
        await worker.wait_for("running")
        worker.send(number)
        await worker.wait_for("stopping")
        waiting = await monque.enqueue("patient")
        worker.write("go")
        code = await worker.ends()

    assert code == 0, worker.complaints
    assert worker.said[-1] == "over"
    assert worker.said.count("job:start") == worker.said.count("job:complete") == 1
    assert await _status(monque, running) is JobStatus.COMPLETED
    assert await _status(monque, waiting) is JobStatus.PENDING
    assert await collection.count_documents({"status": "processing"}) == 0


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
async def test_a_second_signal_ends_at_once_and_releases_the_job(
    server: EmbeddedMongo, monque: Monque, number: signal.Signals
) -> None:
    """The shutdown timeout would be 30 s."""
    job = await monque.enqueue("endless")
    async with child("run_worker", uri_of(server, monque.database)) as worker:
        await worker.wait_for("job:start")
        await worker.wait_for("running")
        worker.send(number)
        await worker.wait_for("stopping")
        worker.send(number)
        code = await worker.ends(within=15)

    released = await monque.get_job(job.id)
    assert code == 0, worker.complaints
    assert worker.said[-1] == "over"
    assert "job:error" in worker.said
    assert released is not None
    assert (released.status, released.fail_count) == (JobStatus.PENDING, 0)


async def test_a_signal_ends_an_idle_worker(server: EmbeddedMongo, monque: Monque) -> None:
    async with child("run_worker", uri_of(server, monque.database)) as worker:
        await worker.wait_for("running")
        worker.send(signal.SIGTERM)
        code = await worker.ends(within=15)

    assert code == 0, worker.complaints
    assert worker.complaints == ""


def _tasks_of_monque() -> list[str]:
    return [task.get_name() for task in asyncio.all_tasks() if task.get_name().startswith("monque")]


async def _settle_down() -> None:
    """Let everything run that is about to: a claim that should not happen would happen within this."""
    for _ in range(10):
        await asyncio.sleep(0.03)
