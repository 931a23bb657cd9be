"""Stopping: first no new claims, then the drain, then jobs are cancelled, released or left."""

from __future__ import annotations

import asyncio
import logging
import re
import signal
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from pymongo import AsyncMongoClient
from pymongo.monitoring import CommandStartedEvent

from monque import ConfigurationError, Job, JobStatus, Monque, NewJob, ShutdownTimeoutError
from monque.embedded import EmbeddedMongo
from support.aliases import Collection, Make
from support.logged import lines
from support.options import BEATING, ONE_TRY, QUICK
from support.programs.child import child, uri_of
from support.proxy import Proxy, command
from support.traffic import Traffic
from support.waiting import Events, eventually

BEATING_ONCE = replace(BEATING, base_retry_interval=ONE_TRY.base_retry_interval)


@pytest.fixture
async def monque(make_monque: Make) -> Monque:
    return await make_monque(options=ONE_TRY).open()


class Gate:
    """A handler that waits until `open` is set; `inside` is set when it runs."""

    def __init__(self) -> None:
        self.open = asyncio.Event()
        self.inside = asyncio.Event()
        self.ran: list[Any] = []

    async def __call__(self, job: Job[Any]) -> None:
        self.inside.set()
        await self.open.wait()
        self.ran.append(job.data)


class Stuck:
    """A blocking handler that waits for `let_go` and cannot be cancelled."""

    def __init__(self, error: Exception | None = None) -> None:
        self.let_go = threading.Event()
        self._error = error

    def __call__(self, job: Job[Any]) -> None:
        assert self.let_go.wait(60)
        if self._error is not None:
            raise self._error


async def _job(monque: Monque, job: Job[Any]) -> Job[Any]:
    stored = await monque.get_job(job.id)
    assert stored is not None
    return stored


async def _running(monque: Monque, name: str, handler: Any, data: Any = None) -> tuple[Job[Any], Events]:
    """Start *monque* with one job of *name* running."""
    monque.worker(name, handler)
    events = Events(monque)
    job = await monque.enqueue(name, data)
    await monque.start()
    await events.wait("job:start")
    return job, events


def _begun(monque: Monque) -> Callable[[], None]:
    def check() -> None:
        assert not monque.is_healthy()

    return check


# The drain


async def test_stop_waits_for_running_jobs(monque: Monque) -> None:
    """User story 5, scenario 2; FR-011, SC-004."""
    gate = Gate()
    job, events = await _running(monque, "work", gate)
    stopping = asyncio.create_task(monque.stop())
    await eventually(_begun(monque))
    waits = not stopping.done()
    gate.open.set()
    await stopping

    assert waits
    assert (await _job(monque, job)).status is JobStatus.COMPLETED
    assert "job:complete" in events.kinds()
    assert "job:error" not in events.kinds()


async def test_stop_waits_for_blocking_handlers(monque: Monque) -> None:
    """FR-011."""
    stuck = Stuck()
    job, _ = await _running(monque, "work", stuck)
    stopping = asyncio.create_task(monque.stop())
    await eventually(_begun(monque))
    waits = not stopping.done()
    stuck.let_go.set()
    await stopping

    assert waits
    assert (await _job(monque, job)).status is JobStatus.COMPLETED


async def test_stop_takes_no_new_jobs(monque: Monque, events: Events) -> None:
    """User story 5, scenario 1; FR-011: neither those that waited nor those that come during the drain."""
    gate = Gate()
    monque.worker("work", gate, concurrency=1)
    await monque.enqueue_many(NewJob("work", n) for n in range(3))
    await monque.start()
    await gate.inside.wait()
    stopping = asyncio.create_task(monque.stop())
    await eventually(_begun(monque))
    await monque.enqueue("work", 3)
    gate.open.set()
    await stopping

    assert gate.ran == [0]
    assert events.kinds().count("job:start") == 1
    jobs = monque.database["monque_jobs"]
    assert await jobs.count_documents({"status": "pending"}) == 3
    assert await jobs.count_documents({"status": "processing"}) == 0


async def test_stop_releases_at_once_the_jobs_that_were_claimed_and_have_not_started(monque: Monque) -> None:
    """Short jobs may be prefetched; when one of them turns out long, the rest must not wait for it."""
    gate = Gate()

    async def work(job: Job[int]) -> None:
        if job.data == 30:
            await gate(job)

    monque.worker("work", work, concurrency=1)
    await monque.enqueue_many(NewJob("work", n) for n in range(60))
    await monque.start()
    await gate.inside.wait()
    stopping = asyncio.create_task(monque.stop())

    async def only_one_is_claimed() -> None:
        assert await monque.database["monque_jobs"].count_documents({"status": "processing"}) == 1

    await eventually(only_one_is_claimed)
    waits = not stopping.done()
    gate.open.set()
    await stopping

    assert waits
    assert await monque.database["monque_jobs"].count_documents({"status": "pending", "failCount": 0}) == 29


async def test_heartbeats_go_on_during_the_drain(make_monque: Make) -> None:
    """Or another instance would take the job while it runs."""
    monque = await make_monque(options=BEATING_ONCE).open()
    gate = Gate()
    job, _ = await _running(monque, "work", gate)
    stopping = asyncio.create_task(monque.stop())
    await eventually(_begun(monque))
    seen = {(await _job(monque, job)).last_heartbeat}

    async def four_different_ones() -> None:
        seen.add((await _job(monque, job)).last_heartbeat)
        assert len(seen) == 4

    await eventually(four_different_ones)
    gate.open.set()
    await stopping

    assert (await _job(monque, job)).status is JobStatus.COMPLETED


async def test_after_the_drain_no_task_is_left_and_nothing_is_emitted(make_monque: Make) -> None:
    """No loop, no timer: the database is left alone."""
    monque = await make_monque(options=BEATING_ONCE).open()
    gate = Gate()
    gate.open.set()
    _, events = await _running(monque, "work", gate)
    await monque.enqueue("work", delay=timedelta(hours=1))
    await events.wait("job:complete")
    await monque.stop()

    assert [task for task in asyncio.all_tasks() if task.get_name().startswith("monque")] == []
    emitted = len(events.all)
    await asyncio.sleep(0.2)
    assert len(events.all) == emitted


async def test_two_stops_share_one_drain_and_both_wait(monque: Monque) -> None:
    gate = Gate()
    await _running(monque, "work", gate)
    stops = [asyncio.create_task(monque.stop()) for _ in range(2)]
    await eventually(_begun(monque))
    third = asyncio.create_task(monque.stop())
    await asyncio.sleep(0)
    waited = [stop.done() for stop in (*stops, third)]
    gate.open.set()
    await asyncio.gather(*stops, third)

    assert waited == [False, False, False]
    assert gate.ran == [None]


@pytest.mark.parametrize("hurried_first", [True, False])
async def test_of_two_stops_the_earliest_deadline_counts(monque: Monque, hurried_first: bool) -> None:
    job, events = await _running(monque, "work", Gate())
    timeouts = [0.1, 60] if hurried_first else [60, 0.1]
    before = time.monotonic()
    await asyncio.gather(*(monque.stop(timeout=timeout) for timeout in timeouts))

    assert time.monotonic() - before < 30
    assert (await _job(monque, job)).status is JobStatus.PENDING
    assert len(events.of("job:error")) == 1


async def test_a_stop_that_is_cancelled_does_not_end_the_drain(monque: Monque) -> None:
    gate = Gate()
    job, _ = await _running(monque, "work", gate)
    impatient = asyncio.create_task(monque.stop())
    patient = asyncio.create_task(monque.stop())
    await eventually(_begun(monque))
    impatient.cancel()
    with pytest.raises(asyncio.CancelledError):
        await impatient
    gate.open.set()
    await patient

    assert (await _job(monque, job)).status is JobStatus.COMPLETED


async def test_an_idle_instance_stops_at_once(monque: Monque) -> None:
    monque.worker("work", lambda job: None)
    await monque.start()
    before = time.monotonic()
    await monque.stop()

    assert time.monotonic() - before < 2


# Claims in flight


class OnClaim(Traffic):
    """Calls a function when the claiming write is sent."""

    then: Callable[[], object] | None = None

    def started(self, event: CommandStartedEvent) -> None:
        if event.command_name in ("findAndModify", "update") and self.then is not None:
            then, self.then = self.then, None
            then()


@pytest.mark.parametrize("count", [1, 4], ids=["one job", "a batch"])
async def test_jobs_whose_claim_is_under_way_are_put_back(
    make_monque: Make, server: EmbeddedMongo, collection: Any, count: int
) -> None:
    """stop() comes after the claim was sent and before its answer: nothing may start, nor be forgotten."""
    on_claim = OnClaim()
    stops: list[asyncio.Task[None]] = []
    async with AsyncMongoClient[dict[str, Any]](server.uri, event_listeners=[on_claim]) as client:
        monque = await make_monque(client[collection.database.name], options=ONE_TRY).open()
        monque.worker("work", lambda job: None)
        events = Events(monque)
        await monque.enqueue_many(NewJob("work", n) for n in range(count))
        on_claim.then = lambda: stops.append(asyncio.create_task(monque.stop()))
        await monque.start()
        await eventually(lambda: _assert(stops))
        await stops[0]
        await monque.close()
    jobs = await collection.find().to_list()

    assert "job:start" not in events.kinds()
    assert [(job["status"], job["failCount"], job["attempt"]) for job in jobs] == [("pending", 0, 1)] * count
    assert all("claimedBy" not in job for job in jobs)


def _assert(condition: object) -> None:
    assert condition


# The timeout


async def test_jobs_that_still_run_at_the_timeout_are_cancelled_and_put_back(monque: Monque) -> None:
    """User story 5, scenario 3; FR-012: no failure is counted, and the job can run again at once."""
    cancelled = []

    async def work(job: Job[None]) -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.append(job.id)
            raise

    job, events = await _running(monque, "work", work)
    await monque.stop(timeout=timedelta(milliseconds=50))
    released = await _job(monque, job)

    assert cancelled == [job.id]
    assert (released.status, released.fail_count, released.fail_reason) == (JobStatus.PENDING, 0, None)
    assert released.next_run_at == job.next_run_at
    assert released.claimed_by is released.locked_at is released.last_heartbeat is None
    assert "job:fail" not in events.kinds()
    assert "job:lost" not in events.kinds()


async def test_the_timeout_of_the_options_is_the_default(make_monque: Make) -> None:
    """FR-012."""
    monque = await make_monque(options=replace(ONE_TRY, shutdown_timeout=timedelta(milliseconds=200))).open()
    job, events = await _running(monque, "work", Gate())
    before = time.monotonic()
    await monque.stop()

    assert 0.2 <= time.monotonic() - before < 10
    assert len(events.of("job:error")) == 1
    assert (await _job(monque, job)).status is JobStatus.PENDING


async def test_the_timeout_is_emitted_with_the_jobs_it_concerns(monque: Monque, events: Events) -> None:
    """User story 5, scenario 3."""
    quick, slow = Gate(), Gate()
    quick.open.set()
    monque.worker("quick", quick)
    monque.worker("slow", slow)
    await monque.start()
    await monque.enqueue("quick")
    await events.wait("job:complete")
    jobs = await monque.enqueue_many([NewJob("slow", {"n": 1}), NewJob("slow", {"n": 2})])
    await events.wait("job:start", 3)
    await monque.stop(timeout=0)
    [event] = events.of("job:error")

    assert isinstance(event.error, ShutdownTimeoutError)
    assert {job.id for job in event.error.incomplete_jobs} == {job.id for job in jobs}
    assert sorted(job.data["n"] for job in event.error.incomplete_jobs) == [1, 2]
    assert "2 job(s)" in str(event.error)
    assert "slow" in str(event.error)
    assert event.job is None


async def test_a_job_that_finishes_in_time_emits_no_timeout(monque: Monque) -> None:
    """SC-004."""
    gate = Gate()
    _, events = await _running(monque, "work", gate)
    stopping = asyncio.create_task(monque.stop(timeout=30))
    await eventually(_begun(monque))
    gate.open.set()
    await stopping

    assert "job:error" not in events.kinds()


async def test_a_cancelled_handler_may_clean_up(monque: Monque) -> None:
    """It is released after that, not before."""
    status: list[JobStatus] = []

    async def work(job: Job[None]) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            status.append((await _job(monque, job)).status)

    job, _ = await _running(monque, "work", work)
    await monque.stop(timeout=0)

    assert status == [JobStatus.PROCESSING]
    assert (await _job(monque, job)).status is JobStatus.PENDING


async def test_a_handler_that_raises_when_it_is_cancelled_has_not_failed(monque: Monque) -> None:
    async def work(job: Job[None]) -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            raise RuntimeError("interrupted") from None

    job, events = await _running(monque, "work", work)
    await monque.stop(timeout=0)
    released = await _job(monque, job)

    assert (released.status, released.fail_count) == (JobStatus.PENDING, 0)
    assert "job:fail" not in events.kinds()


async def test_a_handler_that_finishes_its_work_when_it_is_cancelled_has_succeeded(monque: Monque) -> None:
    async def work(job: Job[None]) -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return

    job, _ = await _running(monque, "work", work)
    await monque.stop(timeout=0)

    assert (await _job(monque, job)).status is JobStatus.COMPLETED


async def test_a_released_job_runs_again_elsewhere(make_monque: Make) -> None:
    first, second = await make_monque(options=ONE_TRY).open(), await make_monque(options=ONE_TRY).open()
    job, _ = await _running(first, "work", Gate())
    await first.stop(timeout=0)
    second.worker("work", lambda job: None)
    await second.run_until_idle()
    done = await _job(second, job)

    assert (done.status, done.attempt) == (JobStatus.COMPLETED, 2)


# What cannot be cancelled


@pytest.mark.usefixtures("short_grace")
async def test_a_blocking_handler_keeps_its_claim_at_the_timeout(monque: Monque, collection: Any) -> None:
    """A thread cannot be cancelled: released, its job would run twice at once."""
    stuck = Stuck()
    job, events = await _running(monque, "work", stuck)
    try:
        await monque.stop(timeout=0)
        kept = await _job(monque, job)
        [event] = events.of("job:error")

        assert (kept.status, kept.claimed_by) == (JobStatus.PROCESSING, monque.instance_id)
        assert [incomplete.id for incomplete in event.error.incomplete_jobs] == [job.id]
    finally:
        stuck.let_go.set()
    await events.wait("job:complete")


async def test_a_blocking_handler_that_leaves_at_a_checkpoint_is_released_uncounted(monque: Monque) -> None:
    seen: list[str | None] = []

    def work(job: Job[None]) -> None:
        try:
            while True:
                time.sleep(0.001)
                job.checkpoint()
        finally:
            seen.append(job.interruption)

    job, events = await _running(monque, "work", work)
    await monque.stop(timeout=0)
    released = await _job(monque, job)

    assert seen == ["shutdown"]
    assert (released.status, released.fail_count, released.claimed_by) == (JobStatus.PENDING, 0, None)
    assert not {"job:fail", "job:cancelled", "job:complete"} & set(events.kinds())


async def test_a_blocking_handler_is_not_told_to_stop_before_the_timeout(monque: Monque) -> None:
    seen: list[bool] = []
    stuck = Stuck()

    def work(job: Job[None]) -> None:
        stuck(job)
        seen.append(job.interrupted)

    job, _ = await _running(monque, "work", work)
    stopping = asyncio.create_task(monque.stop(timeout=30))
    await eventually(_begun(monque))
    stuck.let_go.set()
    await stopping

    assert seen == [False]
    assert (await _job(monque, job)).status is JobStatus.COMPLETED


@pytest.mark.usefixtures("short_grace")
async def test_the_late_result_of_a_blocking_handler_is_still_stored(monque: Monque) -> None:
    stuck = Stuck()
    job, events = await _running(monque, "work", stuck)
    await monque.stop(timeout=0)
    stuck.let_go.set()
    [event] = await events.wait("job:complete")

    assert event.job == await _job(monque, job)
    assert event.job.status is JobStatus.COMPLETED


@pytest.mark.usefixtures("short_grace")
async def test_the_late_failure_of_a_blocking_handler_is_still_stored(monque: Monque) -> None:
    stuck = Stuck(ValueError("too late"))
    job, events = await _running(monque, "work", stuck)
    await monque.stop(timeout=0)
    stuck.let_go.set()
    await events.wait("job:fail")
    failed = await _job(monque, job)

    assert (failed.status, failed.fail_count) == (JobStatus.PENDING, 1)
    assert failed.fail_reason == "ValueError: too late"


@pytest.mark.usefixtures("short_grace")
async def test_a_late_result_is_not_stored_over_another_claim(monque: Monque, collection: Any) -> None:
    """Meanwhile the job was recovered and is processed elsewhere."""
    stuck = Stuck()
    job, events = await _running(monque, "work", stuck)
    await monque.stop(timeout=0)
    await collection.update_one({"_id": job.id}, {"$set": {"claimedBy": "another"}, "$inc": {"attempt": 1}})
    stuck.let_go.set()
    await events.wait("job:lost")
    stored = await _job(monque, job)

    assert (stored.status, stored.claimed_by) == (JobStatus.PROCESSING, "another")


@pytest.mark.usefixtures("short_grace")
async def test_a_blocking_handler_that_goes_on_keeps_its_slot_after_a_restart(
    monque: Monque, events: Events
) -> None:
    """The bound on concurrency holds for the process, not for one start."""
    stuck = Stuck()
    monque.worker("work", stuck, concurrency=1)
    await monque.start()
    first = await monque.enqueue("work")
    await events.wait("job:start")
    await monque.stop(timeout=0)
    await monque.start()
    second = await monque.enqueue("work")
    monque.worker("other", lambda job: None)
    await monque.enqueue("other")
    await events.wait("job:complete")
    status = (await _job(monque, second)).status
    stuck.let_go.set()
    await events.wait("job:complete", 3)

    assert status is JobStatus.PENDING
    assert (await _job(monque, first)).status is JobStatus.COMPLETED
    assert (await _job(monque, second)).status is JobStatus.COMPLETED


async def _outlived(monque: Monque) -> Stuck:
    """A thread that has outlived a stop and holds the only slot of `work`."""
    stuck = Stuck()
    monque.worker("work", stuck, concurrency=1)
    events = Events(monque)
    await monque.start()
    await monque.enqueue("work")
    await events.wait("job:start")
    await monque.stop(timeout=0)
    return stuck


@pytest.mark.parametrize("with_other", [False, True], ids=["alone", "beside another name"])
@pytest.mark.usefixtures("short_grace")
async def test_run_until_idle_waits_for_a_slot_that_a_thread_of_an_earlier_start_holds(
    monque: Monque, with_other: bool
) -> None:
    """The job is due and can only run here once the thread has ended."""
    stuck = await _outlived(monque)
    due = await monque.enqueue("work")
    if with_other:
        monque.worker("other", lambda job: None)
        await monque.enqueue("other")
    idle = asyncio.create_task(monque.run_until_idle())
    done, _ = await asyncio.wait({idle}, timeout=0.5)
    stuck.let_go.set()
    await asyncio.wait_for(idle, 15)

    assert not done
    assert (await _job(monque, due)).status is JobStatus.COMPLETED


@pytest.mark.usefixtures("short_grace")
async def test_run_until_idle_sees_a_slot_that_becomes_free_during_a_poll(
    make_monque: Make, collection: Collection
) -> None:
    """The poll leaves out a name without a slot; its thread ends before the answer comes.

    Then each name has a slot, the poll found nothing, and nobody has looked for jobs of this name.
    """
    async with Proxy(await collection.database.client.address) as proxy:
        monque = await make_monque(proxy.uri(collection.database.name), options=ONE_TRY).open()
        stuck = await _outlived(monque)
        events = Events(monque)
        due = await monque.enqueue("work")
        monque.worker("other", lambda job: None)
        poll = proxy.hold(lambda message: command("find")(message) and b"nextRunAt" in message)
        idle = asyncio.create_task(monque.run_until_idle())
        await poll.wait()
        stuck.let_go.set()
        await events.wait("job:complete")
        poll.release()
        await asyncio.wait_for(idle, 60)

        assert (await _job(monque, due)).status is JobStatus.COMPLETED


@pytest.mark.parametrize("instance_concurrency", [None, 1])
@pytest.mark.usefixtures("short_grace")
async def test_run_until_idle_does_not_wait_for_such_a_thread_if_nothing_is_due(
    make_monque: Make, instance_concurrency: int | None
) -> None:
    monque = await make_monque(options=replace(QUICK, instance_concurrency=instance_concurrency)).open()
    stuck = await _outlived(monque)
    await monque.enqueue("work", delay=timedelta(hours=1))
    await asyncio.wait_for(monque.run_until_idle(), 15)

    assert not stuck.let_go.is_set()
    stuck.let_go.set()


@pytest.mark.usefixtures("short_grace")
async def test_a_handler_that_swallows_the_cancellation_is_treated_like_a_thread(monque: Monque) -> None:
    """It keeps its claim, is listed, and its late result is stored."""
    gate = Gate()

    async def deaf(job: Job[None]) -> None:
        while not gate.open.is_set():
            try:
                await gate.open.wait()
            except asyncio.CancelledError:
                continue

    job, events = await _running(monque, "work", deaf)
    await asyncio.wait_for(monque.stop(timeout=0), 30)
    kept = await _job(monque, job)
    [event] = events.of("job:error")
    gate.open.set()
    await events.wait("job:complete")

    assert (kept.status, kept.claimed_by) == (JobStatus.PROCESSING, monque.instance_id)
    assert [incomplete.id for incomplete in event.error.incomplete_jobs] == [job.id]
    assert (await _job(monque, job)).status is JobStatus.COMPLETED


# Listeners


async def test_stop_waits_for_async_listeners(monque: Monque) -> None:
    received: list[str] = []
    gate = Gate()
    gate.open.set()

    @monque.on("job:complete")
    async def listen(event: Any) -> None:
        await asyncio.sleep(0.1)
        await monque.get_job(event.job.id)
        received.append(event.kind)

    _, events = await _running(monque, "work", gate)
    await events.wait("job:complete")
    await monque.stop()

    assert received == ["job:complete"]


async def test_stop_does_not_wait_for_listeners_beyond_its_timeout(monque: Monque) -> None:
    let_go = asyncio.Event()

    @monque.on("job:complete")
    async def listen(event: Any) -> None:
        await let_go.wait()

    gate = Gate()
    gate.open.set()
    _, events = await _running(monque, "work", gate)
    await events.wait("job:complete")

    await asyncio.wait_for(monque.stop(timeout=0.1), 20)
    let_go.set()


async def test_a_listener_may_stop_the_instance(make_monque: Make) -> None:
    """As a script does that ends with its first job: stop() must not wait for its own caller."""
    monque = await make_monque(options=replace(ONE_TRY, shutdown_timeout=timedelta(minutes=5))).open()

    @monque.on("job:complete")
    async def listen(event: Any) -> None:
        await monque.stop()

    monque.worker("work", lambda job: None)
    await monque.enqueue("work")

    await asyncio.wait_for(monque.run(), 20)


# Called by a handler


async def test_a_handler_that_stops_its_instance_completes_and_does_not_run_again(
    make_monque: Make,
) -> None:
    """stop() must not wait for its own caller, and the next start must not stop again."""
    monque = await make_monque(options=replace(ONE_TRY, shutdown_timeout=timedelta(minutes=5))).open()

    @monque.worker("stop")
    async def stop(job: Job[None]) -> None:
        await monque.stop()

    job = await monque.enqueue(stop)
    await asyncio.wait_for(monque.run(), 20)
    stopped = await _job(monque, job)
    await monque.run_until_idle()

    assert (stopped.status, stopped.attempt) == (JobStatus.COMPLETED, 1)
    assert await _job(monque, job) == stopped


async def test_a_handler_that_stops_its_instance_waits_for_all_other_jobs(monque: Monque) -> None:
    gate, order = Gate(), []

    @monque.worker("stop")
    async def stop(job: Job[None]) -> None:
        await asyncio.wait_for(monque.stop(timeout=30), 30)  # in a task of its own
        order.append("stop() returned")

    other, events = await _running(monque, "work", gate)
    heard_end = monque.on("job:complete", lambda event: order.append(f"{event.job.name} completed"))
    await monque.enqueue(stop)
    await eventually(_begun(monque))
    assert order == []
    gate.open.set()
    await events.wait("job:complete", 2)
    await monque.stop()
    monque.off("job:complete", heard_end)

    assert order == ["work completed", "stop() returned", "stop completed"]
    assert (await _job(monque, other)).status is JobStatus.COMPLETED


async def test_two_handlers_may_stop_their_instance_at_once(monque: Monque) -> None:
    both = asyncio.Barrier(2)

    @monque.worker("stop", concurrency=2)
    async def stop(job: Job[None]) -> None:
        await both.wait()
        await monque.stop(timeout=300)

    jobs = await monque.enqueue_many([NewJob("stop"), NewJob("stop")])
    await asyncio.wait_for(monque.run(), 20)

    assert [(await _job(monque, job)).status for job in jobs] == [JobStatus.COMPLETED] * 2


async def test_a_handler_that_stops_its_instance_with_no_timeout_still_completes(monque: Monque) -> None:
    @monque.worker("stop")
    async def stop(job: Job[None]) -> None:
        await monque.stop(timeout=0)

    other, events = await _running(monque, "work", Gate())
    job = await monque.enqueue(stop)
    [event] = await events.wait("job:error")
    await monque.stop()

    assert [incomplete.id for incomplete in event.error.incomplete_jobs] == [other.id]
    assert (await _job(monque, other)).status is JobStatus.PENDING
    assert (await _job(monque, job)).status is JobStatus.COMPLETED


async def test_a_handler_that_goes_on_after_its_stop_is_released_at_the_timeout(monque: Monque) -> None:
    @monque.worker("stop")
    async def stop(job: Job[None]) -> None:
        await monque.stop(timeout=0.1)
        await asyncio.Event().wait()

    job = await monque.enqueue(stop)
    events = Events(monque)
    await asyncio.wait_for(monque.run(), 20)
    [event] = events.of("job:error")

    assert [incomplete.id for incomplete in event.error.incomplete_jobs] == [job.id]
    assert (await _job(monque, job)).status is JobStatus.PENDING


async def test_a_listener_of_the_start_of_a_job_that_stops_waits_for_that_job(monque: Monque) -> None:
    gate, stopping = Gate(), asyncio.Event()

    @monque.on("job:start")
    async def listen(event: Any) -> None:
        stopping.set()
        await monque.stop()
        assert (await _job(monque, event.job)).status is JobStatus.COMPLETED
        stopped.set()

    stopped = asyncio.Event()
    monque.worker("work", gate)
    await monque.start()
    await monque.enqueue("work")
    await stopping.wait()
    await eventually(_begun(monque))
    gate.open.set()

    await asyncio.wait_for(stopped.wait(), 20)


async def test_a_handler_cannot_close_its_instance(monque: Monque, events: Events) -> None:
    """Its own result could not be stored any more."""

    @monque.worker("close")
    async def close(job: Job[None]) -> None:
        await monque.close()

    await monque.start()
    await monque.enqueue(close)
    [event] = await events.wait("job:fail")

    assert isinstance(event.error, ConfigurationError)
    assert monque.is_healthy()


async def test_a_handler_cannot_close_its_instance_by_a_task_that_it_awaits(
    monque: Monque, events: Events
) -> None:
    """The close would wait for the handler, and the handler for the close."""

    @monque.worker("close")
    async def close(job: Job[None]) -> None:
        await asyncio.gather(monque.close())

    await monque.start()
    await monque.enqueue(close)
    [event] = await events.wait("job:fail", within=5)

    assert isinstance(event.error, ConfigurationError)
    assert monque.is_healthy()


async def test_a_handler_that_stopped_its_instance_cannot_start_it_again(
    monque: Monque, events: Events
) -> None:
    """The start would wait for the end of the stop, which waits for the handler."""

    @monque.worker("restart")
    async def restart(job: Job[None]) -> None:
        await monque.stop()
        await monque.start()

    await monque.start()
    await monque.enqueue(restart)
    [event] = await events.wait("job:fail", within=5)

    assert isinstance(event.error, ConfigurationError)
    assert "cannot start it again" in str(event.error)
    await monque.start()
    assert monque.is_healthy()


async def test_a_handler_cannot_wait_until_its_own_instance_is_idle(monque: Monque, events: Events) -> None:
    """It would wait for itself for ever."""

    @monque.worker("patient")
    async def patient(job: Job[None]) -> None:
        await monque.run_until_idle()

    await monque.start()
    await monque.enqueue(patient)
    [event] = await events.wait("job:fail", within=5)

    assert isinstance(event.error, ConfigurationError)
    assert "until the Monque that runs it is idle" in str(event.error)


# What is logged


async def test_a_stop_is_logged_with_what_it_waits_for_and_how_long(
    monque: Monque, caplog: pytest.LogCaptureFixture
) -> None:
    gate = Gate()
    await _running(monque, "work", gate)
    caplog.set_level(logging.INFO, "monque")
    stopping = asyncio.create_task(monque.stop(timeout=7.5))
    await eventually(_begun(monque))
    gate.open.set()
    await stopping
    began, ended = lines(caplog, logging.INFO)[-2:]  # the line about the start may come late

    about = f"instance {monque.instance_id}"
    assert began == f"{about} stops and waits at most 7.5 s for 1 running job(s) (1 work)"
    assert re.fullmatch(rf"{about} stopped after \d+\.\d s", ended)
    assert lines(caplog, logging.WARNING) == []


async def test_a_stop_by_a_signal_says_what_a_second_one_does(
    monque: Monque, caplog: pytest.LogCaptureFixture
) -> None:
    gate = Gate()
    monque.worker("work", gate)
    caplog.set_level(logging.INFO, "monque")
    running = asyncio.create_task(monque.run())
    await monque.enqueue("work")
    await gate.inside.wait()
    signal.raise_signal(signal.SIGTERM)
    await eventually(_begun(monque))
    gate.open.set()
    await running

    [began] = [line for line in lines(caplog, logging.INFO) if " stops " in line]
    assert began.endswith(
        "stops and waits at most 10 s for 1 running job(s) (1 work); a second signal gives them back at once"
    )


@pytest.mark.parametrize(
    ("timeout", "when"), [(0, "when they had to stop at once"), (0.1, "at the shutdown timeout of 0.1 s")]
)
async def test_the_warning_names_the_jobs_that_were_left(
    monque: Monque, caplog: pytest.LogCaptureFixture, timeout: float, when: str
) -> None:
    stuck = Stuck()
    first, _ = await _running(monque, "stuck", stuck)
    second, events = await _running(monque, "endless", Gate())
    await monque.stop(timeout=timeout)
    [warning] = lines(caplog, logging.WARNING)
    stuck.let_go.set()
    await events.wait("job:complete")

    assert warning == (
        f"instance {monque.instance_id} did not finish all jobs: 2 job(s) were still running {when} "
        f"(endless, stuck); put back: endless {second.id}; "
        f"still running, because they could not be cancelled: stuck {first.id}"
    )


# The process


async def test_nothing_of_monque_keeps_the_process_alive(server: EmbeddedMongo, monque: Monque) -> None:
    """Neither a thread whose handler never returns, nor a timer for a job that is due in an hour."""
    async with child("stop_and_leave", uri_of(server, monque.database)) as program:
        await program.wait_for("over")
        code = await program.ends(within=10)

    assert code == 0, program.complaints
    assert "Traceback" not in program.complaints
    assert await monque.database["monque_jobs"].count_documents({"status": "processing"}) == 1
