"""What a pause does to running instances: what starts, what is given back, who notices, and what it costs."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from pymongo import AsyncMongoClient
from pymongo.errors import OperationFailure
from pymongo.monitoring import CommandListener, CommandStartedEvent, CommandSucceededEvent

from monque import Job, JobFilter, Monque, NewJob, Options, Pause, Snooze, SyncMonque
from monque._store.document import PARKED
from monque.embedded import EmbeddedMongo
from support import working
from support.aliases import Collection, Database, Make
from support.jobs import document, statuses
from support.options import NEVER_POLLING, QUICK
from support.programs.child import uri_of
from support.sharding import NOT_THROUGH_MONGOS
from support.traffic import READS_CONTROL, Traffic
from support.waiting import Events, eventually, start
from support.working import Work, prefetch

PROMISE = 2.0


@pytest.fixture
async def operator(make_monque: Make) -> Monque:
    """An instance that never starts."""
    return await make_monque().open()


@pytest.fixture(params=[True, False], ids=["with change streams", "without"])
async def worker(make_monque: Make, request: pytest.FixtureRequest) -> Monque:
    options = replace(QUICK, change_streams=request.param)
    return await make_monque(options=options).open()


async def settled(events: Events, kind: str, name: str | None) -> Any:
    """Wait until an instance has noticed the last change."""
    await events.wait(kind, within=5)
    event = events.of(kind)[-1]
    assert event.name == name
    return event


# Starting and not starting


async def test_a_paused_name_rests_and_others_go_on(worker: Monque, operator: Monque) -> None:
    resting, busy = Work(), Work()
    worker.worker("resting", resting)
    worker.worker("busy", busy)
    await operator.pause("resting")
    await worker.start()
    events = Events(worker)
    for number in range(20):
        await operator.enqueue("resting", number)
        await operator.enqueue("busy", number)
    await events.wait("job:complete", 20)
    await asyncio.sleep(0.5)

    assert resting.runs == {}
    assert busy.runs.total() == 20
    await operator.resume("resting")
    resumed = time.monotonic()
    await events.wait("job:complete", 40)
    assert time.monotonic() - resumed < PROMISE
    assert resting.runs.total() == 20


async def test_all_names_rest_and_each_goes_on_when_nothing_pauses_it_any_more(
    worker: Monque, operator: Monque
) -> None:
    work, other = Work(), Work()
    worker.worker("work", work)
    worker.worker("other", other)
    await operator.pause()
    await operator.pause("work")
    await operator.enqueue("work")
    await operator.enqueue("other")
    await worker.start()
    await asyncio.sleep(0.5)
    assert (work.runs, other.runs) == ({}, {})

    await operator.resume()
    await eventually(lambda: _ran(other, 1), within=PROMISE)
    await asyncio.sleep(0.3)
    assert work.runs == {}
    await operator.resume("work")
    await eventually(lambda: _ran(work, 1), within=PROMISE)


def _ran(work: Work, count: int) -> None:
    assert work.runs.total() == count


async def test_a_running_instance_obeys_within_two_seconds(worker: Monque, operator: Monque) -> None:
    """New jobs come all the time; the last of them starts before the promise has to hold."""
    starts: list[float] = []

    @worker.worker("work")
    async def work(job: Job[None]) -> None:
        starts.append(time.monotonic())

    await worker.start()

    async def produce() -> None:
        while True:
            await operator.enqueue("work")
            await asyncio.sleep(0.02)

    producing = asyncio.create_task(produce())
    await eventually(lambda: _some(starts))
    await operator.pause("work")
    paused = time.monotonic()
    await asyncio.sleep(PROMISE + 1)
    producing.cancel()

    assert max(starts) - paused < PROMISE
    assert await operator.count_jobs(JobFilter(status="pending")) > 0
    assert await operator.count_jobs(JobFilter(status="processing")) == 0


def _some(starts: list[float]) -> None:
    assert len(starts) > 10


async def test_the_instance_that_pauses_obeys_at_once(worker: Monque) -> None:
    work = Work()
    worker.worker("work", work)
    await worker.start()
    await worker.enqueue("work", 1)
    await eventually(lambda: _ran(work, 1))
    await worker.pause("work")
    await worker.enqueue("work", 2)
    await asyncio.sleep(0.5)
    assert list(work.runs) == [1]
    await worker.resume("work")
    await eventually(lambda: _ran(work, 2), within=1)


async def test_a_pause_ends_at_its_time(worker: Monque, operator: Monque) -> None:
    work = Work()
    worker.worker("work", work)
    events = Events(worker)
    pause = await operator.pause("work", until=timedelta(seconds=1))
    assert pause.until is not None
    await operator.enqueue("work")
    await worker.start()
    await events.wait("name:paused")
    [started] = await events.wait("job:start")

    late = started.job.locked_at - pause.until
    assert timedelta(0) <= late < timedelta(seconds=1)
    assert events.kinds().index("name:resumed") < events.kinds().index("job:start")


async def test_a_pause_survives_restarts_and_counts_for_instances_that_start_later(
    make_monque: Make, operator: Monque
) -> None:
    work = Work()
    await operator.pause("work")
    await operator.enqueue("work")
    await operator.close()
    for _ in range(2):
        monque = await make_monque().open()
        monque.worker("work", work)
        await monque.start()
        await monque.run_until_idle()
        await monque.close()

    assert work.runs == {}


async def test_what_runs_goes_on(worker: Monque, operator: Monque) -> None:
    work = Work(waits=True)
    events = await working.begin(worker, work)
    await worker.pause("work")
    await operator.enqueue("work", "next")
    work.done.set()
    await events.wait("job:complete")

    assert list(work.runs) == [0]
    jobs = await operator.get_jobs()
    assert Counter(job.status for job in jobs) == {"completed": 1, "pending": 1}


async def test_what_was_claimed_ahead_is_given_back(
    make_monque: Make, operator: Monque, collection: Collection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("monque._engine.claim._LONGEST_HOLD", 60.0)  # then what is held is released anyway
    monque = await make_monque().open()
    events = await prefetch(monque)

    async def claimed(*numbers: int) -> None:
        assert (await statuses(collection))["processing"] in numbers

    await eventually(lambda: claimed(*range(5, 21)))
    await events.wait("job:start", 32)  # else the pause comes before the answer to the claim, and none starts
    await monque.pause("work")
    await eventually(lambda: claimed(2))

    assert events.of("job:fail") == []
    assert all([job.fail_count == 0 async for job in operator.iter_jobs()])


async def test_schedules_wait(worker: Monque, operator: Monque, collection: Collection) -> None:
    work = Work()
    worker.worker("work", work)
    await operator.pause("work")
    schedule = await operator.schedule("* * * * *", "work")
    await collection.update_one({"_id": schedule.id}, {"$set": {"nextRunAt": document()["nextRunAt"]}})
    await worker.start()
    await asyncio.sleep(0.3)
    assert work.runs == {}
    await operator.resume("work")
    await eventually(lambda: _ran(work, 1), within=PROMISE)


async def test_a_worker_that_is_registered_for_a_paused_name_does_not_start_its_jobs(
    worker: Monque, operator: Monque
) -> None:
    work = Work()
    await operator.pause("work")
    await operator.enqueue("work")
    await worker.start()
    events = Events(worker)
    worker.worker("work", work)
    await settled(events, "name:paused", "work")
    await operator.resume("work")
    await eventually(lambda: _ran(work, 1), within=PROMISE)


# Idle


async def test_run_until_idle_does_not_wait_for_paused_names(worker: Monque, operator: Monque) -> None:
    work, other = Work(), Work()
    worker.worker("work", work)
    worker.worker("other", other)
    await operator.pause("work")
    for name in ("work", "other"):
        await operator.enqueue_many(NewJob(name, number) for number in range(50))

    async with asyncio.timeout(10):
        await worker.run_until_idle()

    assert (work.runs.total(), other.runs.total()) == (0, 50)
    await operator.resume("work")
    await worker.run_until_idle()
    assert work.runs.total() == 50


async def test_run_until_idle_returns_if_all_names_are_paused(worker: Monque, operator: Monque) -> None:
    worker.worker("work", lambda job: None)
    await operator.pause()
    await operator.enqueue("work")

    async with asyncio.timeout(10):
        await worker.run_until_idle()
        await worker.start()
        await worker.run_until_idle()

    assert await operator.count_jobs(JobFilter(status="pending")) == 1


@pytest.mark.usefixtures("short_grace")
async def test_run_until_idle_does_not_wait_for_a_slot_of_a_paused_name(
    worker: Monque, operator: Monque
) -> None:
    """A handler that outlived a stop holds the only slot, and a job that is due waits for it."""
    stubborn = working.Pause()

    @worker.worker("work", concurrency=1)
    async def work(job: Job[None]) -> None:
        while not stubborn.go_on.is_set():
            try:
                await stubborn()
            except asyncio.CancelledError:
                continue

    await worker.start()
    await worker.enqueue("work")
    await stubborn.wait()
    await worker.stop(timeout=0)
    await worker.enqueue("work")
    await worker.pause("work")
    try:
        async with asyncio.timeout(10):
            await worker.start()
            await worker.run_until_idle()
    finally:
        stubborn.go_on.set()


# Noticing


async def test_each_instance_that_serves_the_name_notices_once(make_monque: Make, operator: Monque) -> None:
    instances = [await make_monque().open() for _ in range(2)]
    all_events = [Events(monque) for monque in instances]
    for monque in instances:
        monque.worker("work", lambda job: None)
        monque.worker("other", lambda job: None)
        await monque.start()
    first = await operator.pause("work", reason="why")
    await operator.pause("nobody's")
    # Both look only when there is something to claim; the one that is slower has to be given a chance.
    for events in all_events:
        while not events.of("name:paused"):
            await operator.enqueue("work")
            await asyncio.sleep(0.1)
        assert [(event.name, event.pause) for event in events.of("name:paused")] == [("work", first)]
    second = await operator.pause("work")
    for events in all_events:
        await events.wait("name:paused", 2)
        assert events.of("name:paused")[-1].pause == second
    await operator.resume("work")
    for events in all_events:
        assert [event.name for event in await events.wait("name:resumed")] == ["work"]
    await asyncio.sleep(1.2)
    for events in all_events:
        assert (len(events.of("name:paused")), len(events.of("name:resumed"))) == (2, 1)


async def test_the_pause_of_all_names_has_no_name(worker: Monque, operator: Monque) -> None:
    events = Events(worker)
    worker.worker("work", lambda job: None)
    await operator.pause()
    await operator.enqueue("work")
    await worker.start()

    event = await settled(events, "name:paused", None)
    assert isinstance(event.pause, Pause)
    await operator.resume()
    await settled(events, "name:resumed", None)


# A handler that wants its whole name to rest


async def test_a_handler_can_let_its_whole_name_rest_on_all_instances(
    worker: Monque, make_monque: Make, operator: Monque
) -> None:
    other, starts = await make_monque().open(), Counter[int]()

    async def busy(job: Job[int]) -> None:
        starts[job.data] += 1
        if starts.total() == 1:
            raise Snooze(timedelta(seconds=1.5), whole_name=True)

    events = Events(worker)
    for monque in (worker, other):
        monque.worker("work", busy, concurrency=1)
    await worker.start()
    await worker.enqueue("work", 0)
    [snoozed] = await events.wait("job:snoozed")
    [pause] = await operator.paused()
    await other.start()
    await operator.enqueue_many(NewJob("work", number) for number in range(1, 6))
    await asyncio.sleep(0.7)
    assert starts == {0: 1}
    assert (pause.name, pause.by) == ("work", worker.instance_id)
    assert pause.until is not None
    assert timedelta(0) <= snoozed.job.next_run_at - pause.until < timedelta(seconds=1)
    assert (snoozed.job.fail_count, snoozed.job.snooze_count) == (0, 1)

    await eventually(lambda: _total(starts, 7))
    assert await operator.paused() == []
    assert events.of("job:fail") == []


def _total(starts: Counter[int], count: int) -> None:
    assert starts.total() == count


async def test_a_handler_does_not_shorten_the_pause_of_an_operator(monque: Monque) -> None:
    """The operator pauses the name while the job runs."""

    @monque.worker("work")
    async def work(job: Job[None]) -> None:
        pauses.append(await monque.pause("work", reason="mine"))
        raise Snooze(timedelta(milliseconds=10), whole_name=True)

    pauses: list[Pause] = []
    await monque.enqueue("work")
    await asyncio.wait_for(monque.run_until_idle(), 10)

    assert await monque.paused() == pauses


async def test_a_name_cannot_rest_if_that_cannot_be_stored_and_the_job_waits_all_the_same(
    monque: Monque, collection: Collection, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refuse(*_: Any, **__: Any) -> Any:
        raise OperationFailure("not authorized", 13)

    monkeypatch.setattr(monque._opening.here().store.control, "pause_at_least", refuse)
    monque.worker("work", Work(error=Snooze(timedelta(hours=1), whole_name=True)))
    events = Events(monque)
    await monque.enqueue("work")
    await monque.run_until_idle()

    [error] = events.of("job:error")
    [snoozed] = events.of("job:snoozed")
    assert isinstance(error.error, OperationFailure)
    assert error.job.id == snoozed.job.id
    assert await statuses(collection) == {"pending": 1}


async def test_a_verdict_after_a_committed_transaction_pauses_nothing(monque: Monque) -> None:
    @monque.worker("work")
    async def work(job: Job[None]) -> None:
        async with monque.client.start_session() as session, await session.start_transaction():
            await job.complete_in(session)
        raise Snooze(timedelta(hours=1), whole_name=True)

    job = await monque.enqueue("work")
    await monque.run_until_idle()
    after = await monque.get_job(job.id)

    assert after is not None
    assert after.status == "completed"
    assert await monque.paused() == []


# The gate between a claim and its start


async def test_a_pause_while_a_claim_is_in_flight_counts_before_the_start(
    make_monque: Make, operator: Monque, collection: Collection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The claim is stored; before its answer is looked at, the name is paused here. The job is given back."""
    monque = await make_monque().open()
    work = Work()
    monque.worker("work", work)
    claimer = monque._opening.here().store.claimer
    claim = claimer.claim

    async def slow(*args: Any, **kwargs: Any) -> Any:
        claimed = await claim(*args, **kwargs)
        if claimed.claimed:
            await monque.pause("work")
        return claimed

    monkeypatch.setattr(claimer, "claim", slow)
    await operator.enqueue("work")
    async with asyncio.timeout(10):
        await monque.run_until_idle()

    assert work.runs == {}
    [job] = await collection.find().to_list()
    assert (job["status"], job["failCount"], job["attempt"]) == ("pending", 0, 1)


@pytest.mark.parametrize("meanwhile", ["resume the paused one", "pause the other one", "stop"])
async def test_what_happens_while_jobs_of_a_paused_name_are_released_loses_and_doubles_nothing(
    make_monque: Make, collection: Collection, monkeypatch: pytest.MonkeyPatch, meanwhile: str
) -> None:
    """One claim takes a job of a paused name and one of another. The first is released; before the second
    starts, a pause ends, another begins, or the instance stops."""
    monque = await make_monque().open()
    paused, other = Work(), Work()
    monque.worker("paused", paused)
    monque.worker("other", other)
    claimer, settler = monque._opening.here().store.claimer, monque._opening.here().store.settler
    claim, settle = claimer.claim, settler.settle

    async def both(*args: Any, **kwargs: Any) -> Any:
        claimed = await claim(*args, **kwargs)
        if len(claimed.claimed) == 2:
            await monque.pause("paused")
        return claimed

    async def slow(*args: Any) -> Any:
        answer = await settle(*args)
        monkeypatch.setattr(settler, "settle", settle)
        if meanwhile == "stop":
            monque._processing._runner.begin_stop(5)
        elif meanwhile == "pause the other one":
            await monque.pause("other")
        else:
            await monque.resume("paused")
        return answer

    monkeypatch.setattr(claimer, "claim", both)
    monkeypatch.setattr(settler, "settle", slow)
    await monque.enqueue_many([NewJob("paused", 1), NewJob("other", 1)])
    async with asyncio.timeout(10):
        await monque.run_until_idle()
        await monque.stop()

    assert await collection.count_documents({"status": "processing"}) == 0
    runs = {1: 1} if meanwhile == "resume the paused one" else {}
    assert (paused.runs, other.runs) == (runs, runs)


async def test_a_job_that_waited_for_its_call_is_not_called_once_its_name_is_paused(
    make_monque: Make, database: Database, server: EmbeddedMongo, collection: Collection
) -> None:
    """Two are claimed together. Before the second is called, the event loop stands still for two seconds."""
    monque = await make_monque().open()
    runs: list[int] = []

    @monque.worker("work", concurrency=2)
    async def work(job: Job[int]) -> None:
        runs.append(job.data)
        with SyncMonque(uri_of(server, database)) as elsewhere:
            elsewhere.pause("work")
        time.sleep(PROMISE)  # noqa: ASYNC251 - the claim is about a loop that stands still

    await monque.enqueue_many([NewJob("work", 1), NewJob("work", 2)])
    await asyncio.wait_for(monque.run_until_idle(), 20)

    assert len(runs) == 1
    assert await statuses(collection) == {"completed": 1, "pending": 1}


async def test_a_stop_while_the_control_document_is_read_gives_the_job_back(
    make_monque: Make, collection: Collection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monque = await make_monque().open()
    work, reading = Work(), working.Pause()
    monque.worker("work", work)
    control = monque._opening.here().store.control
    read = control.read

    async def slow() -> Any:
        await reading()
        return await read()

    monkeypatch.setattr(control, "read", slow)
    await monque.enqueue("work")
    await monque.start()
    await reading.wait()
    stopping = asyncio.create_task(monque.stop(timeout=5))
    await asyncio.sleep(0.1)
    reading.go_on.set()
    await stopping

    assert work.runs == {}
    assert await statuses(collection) == {"pending": 1}


# What it costs


BOTH_AT_ONCE = ["read sent", "claim answered"]


class Order(CommandListener):
    """Notes when finds of the control document begin, and when claims end."""

    def __init__(self) -> None:
        self.seen: list[str] = []

    def started(self, event: CommandStartedEvent) -> None:
        if event.command.get("find") == "monque_jobs_control":
            self.seen.append("read sent")

    def succeeded(self, event: CommandSucceededEvent) -> None:
        if event.command_name == "findAndModify":
            self.seen.append("claim answered")

    def failed(self, event: object) -> None: ...


@asynccontextmanager
async def observed(
    server: EmbeddedMongo, database: Database, listener: Any, options: Options = NEVER_POLLING
) -> AsyncIterator[Monque]:
    """A running instance with a live change stream, whose commands are recorded."""
    async with (
        AsyncMongoClient[dict[str, Any]](server.uri, event_listeners=[listener]) as client,
        Monque(client[database.name], options=options) as monque,
    ):
        monque.worker("work", Work())
        await start(monque)
        await monque.run_until_idle()
        yield monque


@NOT_THROUGH_MONGOS
async def test_the_read_for_a_lone_job_is_sent_before_the_claim_is_answered(
    server: EmbeddedMongo, database: Database
) -> None:
    """Now and then the driver opens another connection for it, and the claim is answered meanwhile.

    If the read waited for the answer, it would never come first.
    """
    order = Order()
    rounds: list[list[str]] = []
    async with observed(server, database, order) as monque:
        events = Events(monque)
        while BOTH_AT_ONCE not in rounds and len(rounds) < 8:
            await asyncio.sleep(1.1)  # what is known is too old
            order.seen.clear()
            await monque.enqueue("work", len(rounds))
            await events.wait("job:start", len(rounds) + 1)
            rounds.append(order.seen[:2])

    assert BOTH_AT_ONCE in rounds


@NOT_THROUGH_MONGOS
async def test_an_idle_instance_does_not_read_the_control_document(
    server: EmbeddedMongo, database: Database, operator: Monque
) -> None:
    """Polls that find nothing are no claims; what waits for its time or has no worker, neither."""
    traffic = Traffic()
    options = replace(QUICK, safety_poll_interval=timedelta(milliseconds=100))
    async with observed(server, database, traffic, options):
        await operator.enqueue("work", delay=timedelta(hours=1))
        await operator.enqueue("nobody's")
        await operator.pause("nobody's")
        traffic.clear()
        await asyncio.sleep(2)

        assert traffic.sent["find"] >= 5
        assert traffic.sent[READS_CONTROL] == 0


@NOT_THROUGH_MONGOS
async def test_the_commands_of_an_idle_instance_are_the_same_again_once_it_is_resumed(
    server: EmbeddedMongo, database: Database, operator: Monque
) -> None:
    traffic = Traffic()
    async with observed(server, database, traffic) as monque:
        events = Events(monque)
        await operator.pause("work")
        await operator.enqueue("work")
        await events.wait("name:paused")
        traffic.clear()
        await asyncio.sleep(2.1)
        assert traffic.sent[READS_CONTROL] in (2, 3)
        assert traffic.sent["find"] == 0
        await operator.resume("work")
        await events.wait("job:complete")
        await asyncio.sleep(0.2)
        traffic.clear()
        await asyncio.sleep(2)

        # The change stream asks for more now and then, and each second quiet ones are pinged.
        assert set(traffic.sent) <= {"getMore", "ping", "hello"}


async def test_a_drain_reads_the_control_document_once_a_second(
    server: EmbeddedMongo, database: Database
) -> None:
    traffic = Traffic("find")
    async with (
        AsyncMongoClient[dict[str, Any]](server.uri, event_listeners=[traffic]) as client,
        Monque(client[database.name]) as monque,
    ):
        monque.worker("work", Work(), concurrency=50)
        await monque.enqueue_many(NewJob("work", number) for number in range(5_000))
        traffic.clear()
        began = time.monotonic()
        await monque.run_until_idle()
        took = time.monotonic() - began

    assert 1 <= traffic.sent[READS_CONTROL] <= took + 1


# Parked jobs: pending, and without a time


async def test_a_parked_job_waits_for_ever_and_is_not_due(worker: Monque, collection: Collection) -> None:
    work = Work()
    worker.worker("work", work)
    await worker.start()
    parked = document(nextRunAt=PARKED)
    await collection.insert_one(parked)
    await worker.run_until_idle()
    job = await worker.get_job(parked["_id"])

    assert work.runs == {}
    assert job is not None
    assert (job.is_parked, job.next_run_at, job.status) == (True, None, "pending")
    assert (await worker.diagnose()).due == []
    assert (await worker.queue_stats()).pending == 1
    for jobs in (JobFilter(due_after=job.created_at), JobFilter(due_before=PARKED + timedelta(0, 0.5))):
        assert await worker.count_jobs(jobs) == 0
    assert await worker.count_jobs(JobFilter(status="pending")) == 1


async def test_a_parked_job_that_gets_a_time_runs(worker: Monque, collection: Collection) -> None:
    work = Work()
    worker.worker("work", work)
    parked = document(nextRunAt=PARKED)
    await collection.insert_one(parked)
    await worker.start()
    await worker.run_until_idle()
    await worker.reschedule_job(parked["_id"], document()["nextRunAt"])
    await eventually(lambda: _ran(work, 1))

    job = await worker.get_job(parked["_id"])
    assert job is not None
    assert not job.is_parked


async def test_a_job_that_is_not_pending_any_more_is_not_parked(
    operator: Monque, collection: Collection
) -> None:
    parked = document(nextRunAt=PARKED)
    await collection.insert_one(parked)
    cancelled = await operator.cancel_job(parked["_id"])

    assert not cancelled.is_parked
    assert cancelled.next_run_at == PARKED


@NOT_THROUGH_MONGOS
async def test_a_parked_job_wakes_nobody_and_sets_no_timer(
    server: EmbeddedMongo, database: Database, collection: Collection, operator: Monque
) -> None:
    traffic = Traffic("find", "findAndModify", "update")
    async with observed(server, database, traffic) as monque:
        traffic.clear()
        await collection.insert_many([document(nextRunAt=PARKED) for _ in range(20)])
        await asyncio.sleep(0.5)
        assert traffic.commands == []
        await monque.run_until_idle()
        assert monque._processing._runner is not None
        assert monque._processing._runner.claiming.bell._timer is None
