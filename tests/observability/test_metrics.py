"""What is counted and measured: for observers of any kind, and for OpenTelemetry's meter."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from monque import ConfigurationError, Job, JobStatus, Monque, NewJob, Observer, QueueDepth
from monque._ops import counts
from monque._store.document import PARKED
from monque.prometheus import MonqueCollector
from observability.conftest import Numbers
from support.aliases import Collection, Make
from support.clocks import ago, ahead, now
from support.filling import fill
from support.jobs import claimed, document
from support.options import QUICK
from support.waiting import eventually
from support.waits import receiving, sleeping

Jobs = Collection

NAME = "messaging.destination.name"
ENDING = "monque.job.ending"


class Tally(Observer):
    """Keeps everything it is told."""

    def __init__(self) -> None:
        self.stored: list[tuple[str, int]] = []
        self.runs: list[dict[str, Any]] = []
        self.depths: list[Sequence[QueueDepth]] = []

    def enqueued(self, name: str, count: int) -> None:
        self.stored.append((name, count))

    def ended(self, name: str, ending: Any, **measured: Any) -> None:
        self.runs.append({"name": name, "ending": ending, **measured})

    def surveyed(self, depths: Sequence[QueueDepth], *, collection: str) -> None:
        assert collection.endswith(".monque_jobs")
        self.depths.append(depths)

    def endings(self) -> list[str]:
        return [run["ending"] for run in self.runs]


@pytest.fixture
def tally(monque: Monque) -> Tally:
    tally = Tally()
    monque.observe(tally)
    return tally


async def nothing(job: Job[Any]) -> None: ...


async def is_over(monque: Monque, job: Job[Any], status: JobStatus) -> None:
    async def it_is_so() -> None:
        found = await monque.get_job(job.id)
        assert found is not None
        assert found.status is status

    await eventually(it_is_so)


# Counting what is stored


async def test_jobs_are_counted_when_they_are_stored(monque: Monque, tally: Tally) -> None:
    await monque.enqueue("greet")
    await monque.now("greet")
    await monque.enqueue_many([NewJob("greet"), NewJob("report"), NewJob("greet")])
    await monque.schedule("0 0 * * *", "nightly")

    assert tally.stored == [("greet", 1), ("greet", 1), ("greet", 2), ("report", 1), ("nightly", 1)]


async def test_what_is_there_already_is_not_counted_again(monque: Monque, tally: Tally) -> None:
    await monque.enqueue("greet", unique_key="one")
    await monque.enqueue("greet", unique_key="one")
    await monque.enqueue_many([NewJob("greet", unique_key="one"), NewJob("greet", unique_key="two")])
    await monque.schedule("0 0 * * *", "nightly")
    await monque.schedule("0 0 * * *", "nightly")
    await monque.schedule("0 1 * * *", "nightly")

    assert tally.stored == [("greet", 1), ("greet", 1), ("nightly", 1)]


async def test_what_could_not_be_stored_is_not_counted(monque: Monque, tally: Tally, uri: str) -> None:
    with pytest.raises(ConfigurationError):
        await monque.enqueue("greet", unique_key="")

    assert tally.stored == []


# Counting runs


async def test_a_run_that_went_well_is_counted_with_how_long_it_waited_and_ran(
    monque: Monque, tally: Tally
) -> None:
    @monque.worker("greet")
    async def greet(job: Job[Any]) -> None:
        await asyncio.sleep(0.05)

    await monque.enqueue("greet", run_at=ago(seconds=30))
    await monque.run_until_idle()

    [run] = tally.runs
    assert (run["name"], run["ending"], run["error"]) == ("greet", "completed", None)
    assert timedelta(seconds=29) < run["waited"] < timedelta(seconds=60)
    assert timedelta(seconds=0.05) <= run["ran"] < timedelta(seconds=10)


async def test_failures_are_counted_as_retried_until_the_last_one(
    make_monque: Make,
) -> None:
    monque, tally = await make_monque(options=replace(QUICK, max_retries=3)).open(), Tally()
    monque.observe(tally)

    @monque.worker("greet")
    def greet(job: Job[Any]) -> None:
        raise ValueError(job.attempt)

    job = await monque.enqueue("greet")
    await monque.start()
    await is_over(monque, job, JobStatus.FAILED)

    await eventually(lambda: _are(tally.endings(), ["retried", "retried", "failed"]))
    assert [str(run["error"]) for run in tally.runs] == ["1", "2", "3"]


async def test_a_schedule_that_gives_up_an_occurrence_counts_as_failed(
    make_monque: Make, collection: Jobs
) -> None:
    monque, tally = await make_monque(options=replace(QUICK, max_retries=1)).open(), Tally()
    monque.observe(tally)

    @monque.worker("nightly")
    async def nightly(job: Job[str]) -> None:
        if job.data == "bad":
            raise ValueError("no paper")

    for data in ("good", "bad"):
        await monque.schedule("0 0 * * *", "nightly", data)
        await collection.update_one({"name": "nightly"}, {"$set": {"nextRunAt": ago(seconds=1)}})
        await monque.run_until_idle()

    assert tally.endings() == ["completed", "failed"]


async def test_a_job_completed_in_its_own_transaction_counts(monque: Monque, tally: Tally) -> None:
    @monque.worker("greet")
    async def greet(job: Job[Any]) -> None:
        async with monque.client.start_session() as session, await session.start_transaction():
            await job.complete_in(session)

    await monque.enqueue("greet")
    await monque.run_until_idle()

    assert tally.endings() == ["completed"]


async def test_a_job_given_back_is_not_counted(monque: Monque, tally: Tally) -> None:
    started = asyncio.Event()

    @monque.worker("long")
    async def long(job: Job[Any]) -> None:
        started.set()
        await asyncio.sleep(60)

    await monque.enqueue("long")
    await monque.start()
    await asyncio.wait_for(started.wait(), 10)
    await monque.stop(timeout=0)

    assert tally.runs == []


async def test_an_observer_that_raises_is_logged_and_disturbs_nothing(
    monque: Monque, tally: Tally, caplog: pytest.LogCaptureFixture
) -> None:
    class Broken(Observer):
        def enqueued(self, name: str, count: int) -> None:
            raise RuntimeError("the counter is broken")

        ended = surveyed = enqueued

    monque.observe(Broken())
    monque.worker("greet", nothing)
    with caplog.at_level(logging.ERROR, "monque"):
        job = await monque.enqueue("greet")
        await monque.run_until_idle()

    await is_over(monque, job, JobStatus.COMPLETED)
    assert "the counter is broken" in caplog.text


def test_only_an_observer_can_observe(make_monque: Make) -> None:
    with pytest.raises(ConfigurationError, match=r"must be a monque\.Observer, got 'me'"):
        make_monque().observe("me")


# How many wait


async def test_the_jobs_that_wait_are_counted_while_the_instance_runs(
    monque: Monque, tally: Tally, collection: Jobs
) -> None:
    await collection.insert_many(
        [
            document(name="elsewhere", nextRunAt=ago(seconds=90)),
            document(name="elsewhere", nextRunAt=ago(seconds=30)),
            document(name="elsewhere", nextRunAt=ahead(hours=1)),
            document(name="elsewhere", nextRunAt=PARKED),
            claimed("another", name="elsewhere"),
            document(name="elsewhere", status="completed"),
            document(name="done", status="failed"),
        ]
    )
    monque.worker("idle", nothing)
    assert tally.depths == []
    await monque.start()

    await eventually(lambda: _are(len(tally.depths), 1))
    elsewhere, idle = tally.depths[0]
    assert idle == QueueDepth(name="idle")
    assert replace(elsewhere, oldest_due=timedelta(0)) == QueueDepth(
        name="elsewhere", due=2, later=1, processing=1, parked=1
    )
    assert timedelta(seconds=85) < elsewhere.oldest_due < timedelta(minutes=5)
    await monque.stop()
    assert tally.depths[1:] == [[]]


async def test_counting_reads_only_the_index_of_active_jobs(monque: Monque, collection: Jobs) -> None:
    """However many finished jobs there are, and without a look at any document."""
    await fill(collection, 3000, status={"$cond": [{"$lt": ["$n", 100]}, "pending", "completed"]})
    await collection.database.drop_collection("none")
    await monque.close()
    await monque.open()  # creates the indexes, which filling took away

    explained = await collection.database.command(
        "explain",
        {"aggregate": collection.name, "pipeline": counts.depths(now()), "cursor": {}},
        verbosity="executionStats",
    )
    stats = explained.get("executionStats") or explained["stages"][0]["$cursor"]["executionStats"]
    assert stats["totalDocsExamined"] == 0
    assert stats["totalKeysExamined"] <= 110


async def test_jobs_in_a_wait_are_counted_by_reason_where_that_use_has_begun(
    monque: Monque, collection: Jobs
) -> None:
    """No document is read for it, however many wait; without the use nobody counts them."""
    await collection.insert_many(
        [
            *(sleeping() for _ in range(3)),
            receiving(),
            receiving(ahead(days=1)),
            document(nextRunAt=PARKED, parked={"why": "batch", "key": "import", "since": ago(hours=1)}),
            document(name="plain"),
        ]
    )
    before = await monque.queue_depths()
    await monque.begin_use("waiting")
    after = await monque.queue_depths()
    explained = await collection.database.command(
        "explain",
        {
            "aggregate": collection.name,
            "pipeline": counts.waits(),
            "cursor": {},
            "hint": "monque_waiting",
        },
        verbosity="executionStats",
    )

    assert [(depth.name, depth.waiting) for depth in before] == [("plain", None), ("work", None)]
    assert [(depth.name, depth.waiting) for depth in after] == [
        ("plain", {"time": 0, "signal": 0, "batch": 0, "turn": 0}),
        ("work", {"time": 3, "signal": 2, "batch": 1, "turn": 0}),
    ]
    stats = explained.get("executionStats") or explained["stages"][0]["$cursor"]["executionStats"]
    assert stats["totalDocsExamined"] == 0
    await collection.drop_index("monque_waiting")
    assert [depth.waiting for depth in await monque.queue_depths()] == [None, None]


async def test_nobody_counts_while_nobody_looks_on(monque: Monque, collection: Jobs) -> None:
    """The server keeps count of its commands: no aggregation comes from a running instance."""
    await monque.database.command("profile", 2)
    monque.worker("greet", nothing)
    job = await monque.enqueue("greet")
    await monque.start()
    await is_over(monque, job, JobStatus.COMPLETED)
    await monque.stop()

    profile = monque.database["system.profile"]
    assert await profile.count_documents({"command.aggregate": collection.name}) == 0
    assert await profile.count_documents({"ns": collection.full_name}) > 0
    await monque.database.command("profile", 0)


async def test_a_document_made_by_hand_does_not_stop_the_count(
    monque: Monque, tally: Tally, collection: Jobs
) -> None:
    await collection.insert_many([{"status": "pending"}, document(name="greet", nextRunAt="soon")])
    await monque.start()

    await eventually(lambda: _are(len(tally.depths), 1))
    assert sum(depth.due + depth.later for depth in tally.depths[0]) == 2
    assert monque.is_healthy()
    await collection.delete_many({})


# OpenTelemetry


async def test_the_meter_counts_what_is_stored_and_what_runs(make_monque: Make, numbers: Numbers) -> None:
    monque = await make_monque(options=replace(QUICK, max_retries=2)).open()

    @monque.worker("greet")
    async def greet(job: Job[str]) -> None:
        if job.data == "bad":
            raise ValueError("no such address")

    await monque.enqueue_many([NewJob("greet", "good"), NewJob("greet", "good")])
    job = await monque.enqueue("greet", "bad")
    await monque.start()
    await is_over(monque, job, JobStatus.FAILED)
    await eventually(
        lambda: _are(
            numbers.value("messaging.client.consumed.messages", {NAME: "greet", ENDING: "failed"}), 1
        )
    )

    assert numbers.value("messaging.client.sent.messages", {NAME: "greet"}) == 3
    ended = "messaging.client.consumed.messages"
    assert numbers.value(ended, {NAME: "greet", ENDING: "completed"}) == 2
    assert numbers.value(ended, {NAME: "greet", ENDING: "retried", "error.type": "ValueError"}) == 1
    failed = numbers.value("messaging.process.duration", {NAME: "greet", "error.type": "ValueError"})
    assert failed.count == 2
    assert failed.explicit_bounds[:3] == (0.005, 0.01, 0.025)
    assert numbers.value("monque.job.wait", {NAME: "greet"}).count == 4
    assert {given["messaging.system"] for given, _ in numbers.read(ended)} == {"monque"}


async def test_a_blocked_event_loop_is_measured_for_opentelemetry_and_prometheus(
    monque: Monque, numbers: Numbers
) -> None:
    registry = CollectorRegistry()
    registry.register(MonqueCollector(monque))
    await monque.start()
    time.sleep(1.7)  # noqa: ASYNC251 - that is the fault

    def both_have_it() -> None:
        assert numbers.value("monque.event_loop.stall", {"messaging.system": "monque"}).count == 1
        assert registry.get_sample_value("monque_event_loop_stall_seconds_count") == 1

    await eventually(both_have_it)


async def test_the_meter_observes_which_names_are_paused(monque: Monque, numbers: Numbers) -> None:
    await monque.enqueue("greet")
    await monque.enqueue("other")
    await monque.pause("greet")
    await monque.start()

    def is_paused(name: str) -> Any:
        return numbers.value("monque.name.paused", {NAME: name})

    await eventually(lambda: _are(is_paused("greet"), 1))
    assert is_paused("other") == 0


async def test_the_meter_observes_how_many_wait(monque: Monque, numbers: Numbers, collection: Jobs) -> None:
    await monque.enqueue("greet", run_at=ago(minutes=1))
    await monque.enqueue_many(NewJob("greet", run_at=ahead(hours=1)) for _ in range(3))
    await monque.start()

    def depth(state: str) -> Any:
        return numbers.value("monque.queue.depth", {NAME: "greet", "monque.job.state": state})

    await eventually(lambda: _are(depth("later"), 3))
    assert (depth("due"), depth("processing")) == (1, 0)
    assert numbers.value("monque.queue.depth", {NAME: "greet", "monque.job.state": "due"}) == 1
    place = {NAME: "greet", "db.collection.name": collection.full_name}
    assert 55 < numbers.value("monque.queue.oldest_due", place) < 300
    at = numbers.value("monque.queue.last_survey", {"db.collection.name": collection.full_name})
    assert 0 <= time.time() - at < 300
    await monque.stop()
    assert [*numbers.read("monque.queue.depth"), *numbers.read("monque.queue.last_survey")] == []


async def test_the_meter_observes_how_many_are_in_a_wait(
    monque: Monque, numbers: Numbers, collection: Jobs
) -> None:
    await monque.begin_use("waiting")
    await collection.insert_many([sleeping(), receiving()])
    await monque.start()

    def waiting(reason: str) -> Any:
        return numbers.value("monque.jobs.waiting", {NAME: "work", "monque.wait.reason": reason})

    await eventually(lambda: _are(waiting("time"), 1))
    assert waiting("signal") == 1


async def test_tracing_alone_counts_nothing(monque: Monque, spans: Any, collection: Jobs) -> None:
    await monque.database.command("profile", 2)
    monque.worker("greet", nothing)
    job = await monque.enqueue("greet")
    await monque.start()
    await is_over(monque, job, JobStatus.COMPLETED)
    await monque.stop()

    profile = monque.database["system.profile"]
    assert await profile.count_documents({"command.aggregate": collection.name}) == 0
    assert spans.names() == ["send greet", "process greet"]
    await monque.database.command("profile", 0)


def _are(found: Any, expected: Any) -> None:
    assert found == expected
