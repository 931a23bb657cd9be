"""A write that failed is not a job that failed: outcomes are kept, claims whose answer was lost are found."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from pymongo import AsyncMongoClient
from pymongo.asynchronous.collection import AsyncCollection
from pymongo.monitoring import CommandListener, CommandStartedEvent

from conftest import QUICK
from monque import Job, JobStatus, Monque, NewJob, Workers
from monque._clock import Clock
from monque._store import transitions
from monque._store.document import failed_occurrence
from monque._store.settler import Settler
from monque._store.store import Store
from support.clocks import ago, ahead, now
from support.jobs import claimed, document
from support.proxy import Proxy, command, is_claim
from support.servers import Servers, failing
from support.waiting import Heard, eventually

Collection = AsyncCollection[dict[str, Any]]
Make = Callable[..., Monque]

VICTIM = "victim"
BEATING = replace(
    QUICK, heartbeat_interval=timedelta(milliseconds=100), heartbeat_tolerance=timedelta(seconds=1)
)

# What the server may do to a write. Only the last one has happened.
REFUSED = pytest.param({"errorCode": 8}, id="refused")
SHUTTING_DOWN = pytest.param({"errorCode": 91}, id="shutting-down")  # the driver tries once more by itself
CLOSED = pytest.param({"closeConnection": True}, id="connection-closed")
IN_DOUBT = pytest.param(
    {"writeConcernError": {"code": 64, "errmsg": "waiting for replication timed out"}}, id="done-but-in-doubt"
)
FAULTS = [REFUSED, SHUTTING_DOWN, CLOSED, IN_DOUBT]


def victim(host: Servers, collection: Collection) -> str:
    """The URI of the instance whose commands fail.

    Its driver asks the server twice a second how it is: a server that lies about shutting down does not say
    by itself that it was not meant.
    """
    return host.uri(collection.database.name, appName=VICTIM, heartbeatFrequencyMS=500)


class Work:
    """A handler that waits for a word, counts its runs, and may fail."""

    def __init__(self, error: Exception | None = None) -> None:
        self.runs: Counter[Any] = Counter()
        self.done = asyncio.Event()
        self._error = error

    async def __call__(self, job: Job[Any]) -> None:
        self.runs[job.data] += 1
        await self.done.wait()
        if self._error is not None:
            raise self._error


async def begin(monque: Monque, work: Work, *, jobs: int) -> Heard:
    """Let the handler run with so many jobs at once."""
    heard = Heard(monque)
    monque.worker("work", work, concurrency=jobs)
    await monque.start()
    for number in range(jobs):
        await monque.enqueue("work", number)
    await heard.wait("job:start", jobs)
    return heard


async def statuses(collection: Collection) -> Counter[str]:
    return Counter([doc["status"] async for doc in collection.find()])


# The outcome is kept


@pytest.mark.parametrize("jobs", [1, 20], ids=["one", "many"])
@pytest.mark.parametrize("fault", FAULTS)
async def test_a_settlement_that_fails_is_written_again(
    host: Servers, collection: Collection, make_monque: Make, fault: dict[str, Any], jobs: int
) -> None:
    monque = await make_monque(victim(host, collection)).open()
    heard = await begin(monque, work := Work(), jobs=jobs)
    async with failing(
        collection.database.client, ["findAndModify", "update"], app_name=VICTIM, times=3, **fault
    ):
        work.done.set()
        completed = await heard.wait("job:complete", jobs)
    await monque.stop()

    assert await statuses(collection) == {"completed": jobs}
    assert work.runs == Counter(range(jobs))
    assert sorted(event.job.data for event in completed) == list(range(jobs))
    told = Counter(kind for kind in heard.kinds() if kind != "job:error")
    assert (told["job:complete"], told["job:lost"], told["job:fail"]) == (jobs, 0, 0)


async def test_a_settlement_that_waits_for_the_server_is_told_without_the_dump_of_the_driver(
    proxy: Proxy,
    collection: Collection,
    make_monque: Make,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The time limit of a command is shortened."""
    monque = await make_monque(proxy.uri(collection.database.name)).open()
    heard = await begin(monque, work := Work(), jobs=1)
    monkeypatch.setattr("monque._store.store.OPERATION_TIMEOUT", 0.5)
    await proxy.cut()
    work.done.set()

    def settling() -> str:
        return "\n".join(record.message for record in caplog.records if record.message.startswith("settling"))

    def is_told() -> None:
        assert "failed, trying again: " in settling()

    await eventually(is_told)
    await proxy.restore()
    await heard.wait("job:complete")

    assert "no MongoDB at 127.0.0.1" in settling()
    assert "Topology Description" not in settling()
    assert "configured timeouts" not in settling()


async def test_a_stop_does_not_say_of_an_ended_handler_that_it_still_runs(
    proxy: Proxy, collection: Collection, make_monque: Make, caplog: pytest.LogCaptureFixture
) -> None:
    """The database is slow to store how it ended."""
    monque = await make_monque(proxy.uri(collection.database.name)).open()
    heard = await begin(monque, work := Work(), jobs=1)
    trap = proxy.hold(command("findAndModify"))
    work.done.set()
    await trap.wait()
    with caplog.at_level(logging.INFO, "monque"):
        await monque.stop(timeout=0.1)
    trap.release()
    await heard.wait("job:complete")

    job = await collection.find_one()
    assert job is not None
    lines = [record.message for record in caplog.records if record.message.startswith("instance")]
    assert lines[-2].endswith(f"ended, but the database has not confirmed that yet: work {job['_id']}")
    assert lines[-1].endswith("; the end of 1 job(s) is not stored yet")


@pytest.mark.parametrize("jobs", [1, 20], ids=["one", "many"])
@pytest.mark.parametrize("fault", [REFUSED, IN_DOUBT])
async def test_a_failure_whose_settlement_fails_counts_once(
    host: Servers, collection: Collection, make_monque: Make, fault: dict[str, Any], jobs: int
) -> None:
    options = replace(QUICK, base_retry_interval=timedelta(hours=1))
    monque = await make_monque(victim(host, collection), options=options).open()
    heard = await begin(monque, work := Work(RuntimeError("no luck")), jobs=jobs)
    async with failing(
        collection.database.client, ["findAndModify", "update"], app_name=VICTIM, times=3, **fault
    ):
        work.done.set()
        failed = await heard.wait("job:fail", jobs)
    await monque.stop()

    assert all(event.will_retry and event.job.fail_count == 1 for event in failed)
    assert await collection.count_documents({"status": "pending", "failCount": 1}) == jobs
    assert work.runs == Counter(range(jobs))
    assert len(heard.of("job:fail")) == jobs
    assert heard.of("job:lost") == []


@pytest.mark.parametrize("error", [None, RuntimeError("no luck")], ids=["success", "failure"])
@pytest.mark.parametrize("jobs", [1, 20], ids=["one", "many"])
async def test_a_settlement_whose_answer_is_lost_counts_once(
    proxy: Proxy, collection: Collection, make_monque: Make, error: Exception | None, jobs: int
) -> None:
    """The server has done it, then the connection breaks, and the driver does not try again by itself."""
    monque = await make_monque(
        proxy.uri(collection.database.name, "retryWrites=false"),
        options=replace(QUICK, base_retry_interval=timedelta(hours=1)),
    ).open()
    heard = await begin(monque, work := Work(error), jobs=jobs)
    traps = [proxy.lose_answer(command("findAndModify")), proxy.lose_answer(command("update"))]
    work.done.set()
    settled = await heard.wait("job:fail" if error else "job:complete", jobs)
    await monque.stop()

    assert any(trap.caught.is_set() for trap in traps)
    assert {event.job.fail_count for event in settled} == {1 if error else 0}
    assert await statuses(collection) == {"pending" if error else "completed": jobs}
    assert work.runs == Counter(range(jobs))
    told = Counter(heard.kinds())
    assert (told["job:complete"] + told["job:fail"], told["job:lost"]) == (jobs, 0)


@pytest.mark.parametrize("jobs", [1, 20], ids=["one", "many"])
async def test_the_wait_for_the_settling_write_does_not_count_as_run(
    proxy: Proxy, collection: Collection, make_monque: Make, jobs: int
) -> None:
    """The network holds the write for a second after handlers that ended at once."""
    monque = await make_monque(proxy.uri(collection.database.name)).open()
    heard = Heard(monque)
    write = proxy.hold(lambda message: b"finishedAt" in message)
    monque.worker("work", lambda _job: None, concurrency=jobs)
    await monque.enqueue_many([NewJob("work", number) for number in range(jobs)])
    await monque.start()
    await write.wait()
    held_since = now()

    def is_late() -> None:
        assert now() - held_since > timedelta(seconds=1)

    await eventually(is_late)
    write.release()
    await heard.wait("job:complete", jobs)

    [first] = await collection.find(sort={"_id": 1}, limit=1).to_list()
    assert first["finishedAt"] - first["startedAt"] < timedelta(seconds=0.9)
    assert first["updatedAt"] - first["finishedAt"] > timedelta(seconds=0.9)


async def test_a_schedule_whose_settlement_is_in_doubt_goes_on_once(
    proxy: Proxy, collection: Collection, make_monque: Make
) -> None:
    doc = document(
        repeatInterval="0 0 1 1 *", timezone="UTC", uniqueKey="yearly", failCount=2, failReason="x"
    )
    await collection.insert_one(doc)
    monque = await make_monque(proxy.uri(collection.database.name, "retryWrites=false")).open()
    heard = Heard(monque)
    monque.worker("work", work := Work())
    await monque.start()
    await heard.wait("job:start")
    trap = proxy.lose_answer(command("findAndModify"))
    work.done.set()
    [completed] = await heard.wait("job:complete")
    await monque.stop()

    assert trap.caught.is_set()
    after = await collection.find_one()
    assert after is not None
    assert (after["status"], after["failCount"]) == ("pending", 0)
    assert after["nextRunAt"] == completed.job.next_run_at > doc["nextRunAt"]
    assert work.runs.total() == 1


@pytest.mark.parametrize("lost", ["insert", "findAndModify"])
async def test_the_failed_run_of_a_schedule_is_kept_once_though_its_settlement_is_in_doubt(
    proxy: Proxy, collection: Collection, make_monque: Make, lost: str
) -> None:
    await collection.insert_one(document(repeatInterval="0 0 1 1 *", timezone="UTC", uniqueKey="yearly"))
    monque = await make_monque(
        proxy.uri(collection.database.name, "retryWrites=false"), options=replace(QUICK, max_retries=1)
    ).open()
    heard = Heard(monque)
    monque.worker("work", work := Work(RuntimeError("no luck")))
    await monque.start()
    await heard.wait("job:start")
    trap = proxy.lose_answer(command(lost))
    work.done.set()
    [failed] = await heard.wait("job:fail")
    await monque.stop()

    assert trap.caught.is_set()
    assert failed.will_retry is False
    assert await statuses(collection) == {"pending": 1, "failed": 1}
    kept = await collection.find_one({"status": "failed"})
    assert kept is not None
    assert kept["_id"] == failed.job.id
    assert len(heard.of("job:fail")) == 1
    assert heard.of("job:lost") == []


async def test_a_release_at_shutdown_that_fails_is_written_again(
    host: Servers, collection: Collection, make_monque: Make
) -> None:
    monque = await make_monque(victim(host, collection)).open()
    await begin(monque, Work(), jobs=3)
    async with failing(
        collection.database.client, ["findAndModify", "update"], app_name=VICTIM, times=3, errorCode=8
    ):
        await monque.stop(timeout=0)

    assert await collection.count_documents({"status": "pending", "failCount": 0}) == 3


async def claim_ahead(monque: Monque, collection: Collection) -> Heard:
    """Let the instance claim more jobs than it has slots for: after quick ones come ones that wait."""

    @monque.worker("work", concurrency=2)
    async def work(job: Job[str]) -> None:
        if job.data == "slow":
            await asyncio.Event().wait()

    heard = Heard(monque)
    await monque.start()
    await monque.enqueue_many([NewJob("work", "quick") for _ in range(30)])
    await heard.wait("job:complete", 30)
    await monque.enqueue_many([NewJob("work", "slow") for _ in range(20)])

    async def ahead() -> None:
        assert await collection.count_documents({"status": "processing"}) > 2

    await eventually(ahead)
    await heard.wait("job:start", 32)
    return heard


async def test_jobs_claimed_ahead_are_released_at_shutdown_though_the_write_fails_at_first(
    host: Servers, collection: Collection, make_monque: Make
) -> None:
    monque = await make_monque(victim(host, collection)).open()
    await claim_ahead(monque, collection)
    async with failing(
        collection.database.client, ["findAndModify", "update"], app_name=VICTIM, times=3, errorCode=8
    ):
        await monque.stop(timeout=0)

    assert await statuses(collection) == {"completed": 30, "pending": 20}


async def test_an_instance_can_be_closed_while_the_server_is_gone(
    proxy: Proxy, collection: Collection, make_monque: Make
) -> None:
    """Soon, though it has jobs claimed ahead and running; what it cannot release any more is told as lost."""
    monque = await make_monque(proxy.uri(collection.database.name)).open()
    heard = await claim_ahead(monque, collection)
    await proxy.cut()
    loop = asyncio.get_running_loop()
    begun = loop.time()
    await monque.stop(timeout=0)
    await monque.close()

    assert loop.time() - begun < 15
    lost = await heard.wait("job:lost", 2)
    given_up = [event.job.id for event in heard.of("job:error") if event.job is not None]
    assert given_up == [event.job.id for event in lost]
    await collection.delete_many({})  # the claims are left behind, as they must be


# The outcome cannot be kept for ever


async def test_a_settlement_that_fails_for_too_long_is_given_up_and_another_instance_takes_over(
    host: Servers, collection: Collection, make_monque: Make
) -> None:
    """The victim's heartbeats (`update`) get through; they must not cover the job it cannot settle."""
    first = await make_monque(victim(host, collection), options=BEATING, workers=(names := Workers())).open()
    heard = await begin(first, work := Work(), jobs=1)
    other = await make_monque(options=BEATING).open()
    other_heard = Heard(other)
    other.worker("work", took_over := Work())
    took_over.done.set()
    await other.start()
    async with failing(collection.database.client, ["findAndModify"], app_name=VICTIM, errorCode=8):
        first.worker("long", long := Work())
        names.restrict(only=["long"])  # else the victim may be the one that claims the job again
        work.done.set()
        [lost] = await heard.wait("job:lost")
        [completed] = await other_heard.wait("job:complete")

    errors = [event for event in heard.of("job:error") if event.job is not None]
    assert [event.job.id for event in errors] == [lost.job.id]
    assert completed.job.id == lost.job.id
    assert (completed.job.attempt, took_over.runs.total(), work.runs.total()) == (2, 1, 1)
    assert heard.of("job:complete") == []
    long.done.set()
    await first.enqueue("long")
    await heard.wait("job:complete")  # the slot is free and the victim works again
    assert await statuses(collection) == {"completed": 2}


async def test_no_job_is_given_up_before_the_tolerance_has_passed(
    host: Servers, collection: Collection, make_monque: Make
) -> None:
    """A minute of tolerance: a second of failing writes is nothing."""
    monque = await make_monque(victim(host, collection)).open()
    heard = await begin(monque, work := Work(), jobs=10)
    loop = asyncio.get_running_loop()
    async with failing(collection.database.client, ["findAndModify", "update"], app_name=VICTIM, errorCode=8):
        work.done.set()
        until = loop.time() + 1

        def tried_for_a_second() -> None:
            assert loop.time() > until
            assert heard.of("job:lost") == []

        await eventually(tried_for_a_second)
    await heard.wait("job:complete", 10)

    assert work.runs == Counter(range(10))


async def test_a_result_is_kept_for_as_long_as_nobody_may_take_the_job(
    host: Servers, collection: Collection, make_monque: Make
) -> None:
    """The tolerance is as short as the interval: others wait for three intervals, and so must the owner."""
    second = timedelta(seconds=1)
    options = replace(QUICK, heartbeat_interval=second, heartbeat_tolerance=second)
    monque = await make_monque(victim(host, collection), options=options).open()
    heard = await begin(monque, work := Work(), jobs=1)
    loop = asyncio.get_running_loop()
    async with failing(collection.database.client, ["findAndModify"], app_name=VICTIM, errorCode=8):
        work.done.set()
        until = loop.time() + 2.2

        def tried_for_two_intervals() -> None:
            assert loop.time() > until

        await eventually(tried_for_two_intervals)
    await heard.wait("job:complete")

    assert heard.of("job:lost") == []


async def test_a_heartbeat_that_fails_does_no_harm(
    host: Servers, collection: Collection, make_monque: Make
) -> None:
    options = replace(BEATING, heartbeat_tolerance=timedelta(seconds=20))
    monque = await make_monque(victim(host, collection), options=options).open()
    heard = await begin(monque, work := Work(), jobs=2)
    async with failing(collection.database.client, ["update"], app_name=VICTIM, times=3, errorCode=8):
        await heard.wait("job:error", 3)
    last = await collection.find_one()
    assert last is not None

    async def beats_again() -> None:
        assert await collection.count_documents({"lastHeartbeat": {"$gt": last["lastHeartbeat"]}}) == 2

    await eventually(beats_again)
    work.done.set()
    await heard.wait("job:complete", 2)
    assert heard.of("job:lost") == []


async def test_recovery_that_fails_is_tried_again(
    host: Servers, collection: Collection, make_monque: Make
) -> None:
    monque = await make_monque(victim(host, collection), options=BEATING).open()
    heard = Heard(monque)
    monque.worker("work", lambda job: None)
    await monque.start()
    writes = ["findAndModify", "update"]  # each try sends both, to find out what failed
    async with failing(collection.database.client, writes, app_name=VICTIM, times=6, errorCode=8):
        await collection.insert_one(
            document(
                status="processing", claimedBy="dead", lockedAt=ago(minutes=5), lastHeartbeat=ago(minutes=5)
            )
        )
        await heard.wait("job:error", 3)
        await heard.wait("job:complete")


async def test_what_was_recovered_before_an_error_is_told(
    host: Servers, collection: Collection, make_monque: Make
) -> None:
    dead = {"status": "processing", "claimedBy": "dead"}
    silent = {"lockedAt": ago(minutes=5), "lastHeartbeat": ago(minutes=5)}
    monque = await make_monque(victim(host, collection), options=BEATING).open()
    heard = Heard(monque)
    await monque.start()
    writes = ["findAndModify", "update"]
    async with failing(collection.database.client, writes, app_name=VICTIM, after=1, errorCode=8):
        await collection.insert_many([document(**dead, **silent) for _ in range(2)])
        await heard.wait("job:error")
        [first] = await heard.wait("stale:recovered")

    [second] = (await heard.wait("stale:recovered", 2))[1:]
    assert (first.count, second.count) == (1, 1)


# Claims whose answer was lost


@pytest.mark.parametrize("jobs", [1, 20], ids=["one", "many"])
async def test_a_claim_whose_answer_is_lost_runs_once_and_at_once(
    proxy: Proxy, collection: Collection, make_monque: Make, jobs: int
) -> None:
    """Not after the tolerance, which is a minute and a half here."""
    await collection.insert_many([document(data=number) for number in range(jobs)])
    monque = await make_monque(proxy.uri(collection.database.name, "retryWrites=false")).open()
    work = Work()
    work.done.set()
    monque.worker("work", work, concurrency=jobs)
    heard = Heard(monque)
    trap = proxy.lose_answer(is_claim)
    await monque.start()
    completed = await heard.wait("job:complete", jobs)
    await monque.stop()

    assert trap.caught.is_set()
    assert work.runs == Counter(range(jobs))
    assert {(event.job.attempt, event.job.status) for event in completed} == {(1, JobStatus.COMPLETED)}
    assert await collection.count_documents({"crashCount": {"$exists": True}}) == 0


async def test_claims_that_could_not_be_read_back_run_once_and_at_once(
    proxy: Proxy, collection: Collection, make_monque: Make
) -> None:
    """The batch is claimed, then reading it fails, twice (the driver tries a read again by itself)."""
    await collection.insert_many([document(data=number) for number in range(20)])
    monque = await make_monque(proxy.uri(collection.database.name)).open()
    work = Work()
    work.done.set()
    monque.worker("work", work, concurrency=20)
    heard = Heard(monque)
    held = proxy.hold(is_claim)
    await monque.start()
    await held.wait()
    traps = [proxy.lose_answer(command("find")) for _ in range(2)]
    held.release()
    await heard.wait("job:complete", 20)
    await monque.stop()

    assert all(trap.caught.is_set() for trap in traps)
    assert work.runs == Counter(range(20))
    assert await collection.count_documents({"attempt": 1, "status": "completed"}) == 20


@pytest.mark.parametrize("jobs", [1, 20], ids=["one", "many"])
@pytest.mark.parametrize("fault", FAULTS)
async def test_a_claim_that_fails_runs_once_and_at_once(
    host: Servers, collection: Collection, make_monque: Make, fault: dict[str, Any], jobs: int
) -> None:
    await collection.insert_many([document(data=number) for number in range(jobs)])
    monque = await make_monque(victim(host, collection)).open()
    work = Work()
    work.done.set()
    monque.worker("work", work, concurrency=jobs)
    heard = Heard(monque)
    async with failing(
        collection.database.client, ["findAndModify", "update"], app_name=VICTIM, times=2, **fault
    ):
        await monque.start()
        await heard.wait("job:complete", jobs)
    await monque.stop()

    assert work.runs == Counter(range(jobs))
    assert await collection.count_documents({"attempt": 1, "status": "completed"}) == jobs


async def test_claims_in_doubt_at_stop_are_released(
    proxy: Proxy, collection: Collection, make_monque: Make
) -> None:
    """stop() comes before anybody knows whether the claims were made; left alone they would become stale."""
    await collection.insert_many([document() for _ in range(5)])
    monque = await make_monque(proxy.uri(collection.database.name, "retryWrites=false")).open()
    monque.worker("work", lambda job: None)
    heard = Heard(monque)
    trap = proxy.lose_answer(is_claim)
    await monque.start()
    await trap.wait()
    await monque.stop()

    assert await collection.count_documents({"status": "processing"}) == 0, heard.kinds()


async def test_a_failed_occurrence_does_not_send_its_neighbours_out_one_by_one(
    host: Servers, collection: Collection
) -> None:
    """A settlement that leaves a document beside it shares a batch with two hundred that do not."""
    plain = [claimed("ours") for _ in range(200)]
    schedule = claimed("ours", repeatInterval="@hourly", timezone="UTC")
    await collection.insert_many([*plain, schedule])
    sent = Sent()
    async with AsyncMongoClient[dict[str, Any]](host.uri(), event_listeners=[sent], tz_aware=True) as client:
        store = Store(client[collection.database.name], QUICK, clock := Clock(), "ours")
        await clock.refresh(store.hello)
        settler = Settler(store)
        leaves = failed_occurrence(schedule, reason="no", fail_count=1, now=clock.now())
        gives_up = transitions.give_up_occurrence(schedule, run_at=ahead(hours=1), leaves=leaves)
        answers = await asyncio.gather(
            *(settler.settle(claim, transitions.complete(claim)) for claim in plain),
            settler.settle(schedule, gives_up),
        )

    assert all(isinstance(answer, dict) for answer in answers)
    assert sent.commands == {"update": 1, "insert": 1, "findAndModify": 1}
    assert await statuses(collection) == {"completed": 200, "failed": 1, "pending": 1}


class Sent(CommandListener):
    """Counts the commands that change documents."""

    def __init__(self) -> None:
        self.commands: Counter[str] = Counter()

    def started(self, event: CommandStartedEvent) -> None:
        if event.command_name in ("insert", "update", "findAndModify"):
            self.commands[event.command_name] += 1

    def succeeded(self, event: object) -> None: ...

    def failed(self, event: object) -> None: ...
