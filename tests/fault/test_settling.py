"""A failed write is not a failed job: outcomes are kept, and claims whose answer was lost are found."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from pymongo import AsyncMongoClient

from monque import JobStatus, Keep, Monque, NewJob, Workers
from monque._store.document import Claim, failed_occurrence
from monque._store.settle import Settled
from monque._store.store import Store
from monque._store.transitions import occurrences, run
from monque._time.clock import Clock
from support.aliases import Collection, Failing, Make
from support.clocks import ago, ahead, now
from support.jobs import claimed, document, find_one, statuses
from support.options import BEATING, QUICK, WATCHFUL
from support.proxy import Proxy, command, is_claim
from support.servers import Servers
from support.traffic import Traffic
from support.waiting import Events, eventually
from support.working import Work, begin, prefetch

# What the server may do to a write. Only the last one has happened.
REFUSED = pytest.param({"errorCode": 8}, id="refused")
SHUTTING_DOWN = pytest.param({"errorCode": 91}, id="shutting-down")  # the driver tries once more by itself
CLOSED = pytest.param({"closeConnection": True}, id="connection-closed")
IN_DOUBT = pytest.param(
    {"writeConcernError": {"code": 64, "errmsg": "waiting for replication timed out"}}, id="done-but-in-doubt"
)
FAULTS = [REFUSED, SHUTTING_DOWN, CLOSED, IN_DOUBT]


# The outcome is kept


@pytest.mark.parametrize("jobs", [1, 20], ids=["one", "many"])
@pytest.mark.parametrize("fault", FAULTS)
async def test_a_settlement_that_fails_is_written_again(
    victim: str,
    failing: Failing,
    collection: Collection,
    make_monque: Make,
    fault: dict[str, Any],
    jobs: int,
) -> None:
    monque = await make_monque(victim).open()
    events = await begin(monque, work := Work(waits=True), jobs=jobs)
    async with failing(["findAndModify", "update"], times=3, **fault):
        work.done.set()
        completed = await events.wait("job:complete", jobs)
    await monque.stop()

    assert await statuses(collection) == {"completed": jobs}
    assert work.runs == Counter(range(jobs))
    assert sorted(event.job.data for event in completed) == list(range(jobs))
    kinds = Counter(kind for kind in events.kinds() if kind != "job:error")
    assert (kinds["job:complete"], kinds["job:lost"], kinds["job:fail"]) == (jobs, 0, 0)


async def test_a_settlement_that_waits_for_the_server_is_logged_without_the_dump_of_the_driver(
    proxy: Proxy,
    collection: Collection,
    make_monque: Make,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The time limit of a settlement is shortened."""
    monkeypatch.setattr("monque._store.settle._SHORTEST_WRITE", 0.5)
    monque = await make_monque(proxy.uri(collection.database.name), options=BEATING).open()
    events = await begin(monque, work := Work(waits=True), jobs=1)
    await proxy.cut()
    work.done.set()

    def settling() -> str:
        return "\n".join(record.message for record in caplog.records if record.message.startswith("settling"))

    def is_logged() -> None:
        assert "failed, trying again: " in settling()

    await eventually(is_logged)
    await proxy.restore()
    await events.wait("job:complete")

    assert "no MongoDB at 127.0.0.1" in settling()
    assert "Topology Description" not in settling()
    assert "configured timeouts" not in settling()


async def test_stop_does_not_log_an_ended_handler_as_still_running(
    proxy: Proxy, collection: Collection, make_monque: Make, caplog: pytest.LogCaptureFixture
) -> None:
    """The database is slow to store how it ended."""
    monque = await make_monque(proxy.uri(collection.database.name)).open()
    events = await begin(monque, work := Work(waits=True), jobs=1)
    trap = proxy.hold(lambda message: b"settledAttempt" in message)
    work.done.set()
    await trap.wait()
    with caplog.at_level(logging.INFO, "monque"):
        await monque.stop(timeout=0.1)
    trap.release()
    await events.wait("job:complete")

    job = await find_one(collection)
    lines = [record.message for record in caplog.records if record.message.startswith("instance")]
    assert lines[-2].endswith(f"ended, but the database has not confirmed that yet: work {job['_id']}")
    assert lines[-1].endswith("; the end of 1 job(s) is not stored yet")


@pytest.mark.parametrize("jobs", [1, 20], ids=["one", "many"])
@pytest.mark.parametrize("fault", [REFUSED, IN_DOUBT])
async def test_a_failure_whose_settlement_fails_counts_once(
    victim: str,
    failing: Failing,
    collection: Collection,
    make_monque: Make,
    fault: dict[str, Any],
    jobs: int,
) -> None:
    options = replace(QUICK, base_retry_interval=timedelta(hours=1))
    monque = await make_monque(victim, options=options).open()
    events = await begin(monque, work := Work(waits=True, error=RuntimeError("no luck")), jobs=jobs)
    async with failing(["findAndModify", "update"], times=3, **fault):
        work.done.set()
        failed = await events.wait("job:fail", jobs)
    await monque.stop()

    assert all(event.will_retry and event.job.fail_count == 1 for event in failed)
    assert await collection.count_documents({"status": "pending", "failCount": 1}) == jobs
    assert work.runs == Counter(range(jobs))
    assert len(events.of("job:fail")) == jobs
    assert events.of("job:lost") == []


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
    events = await begin(monque, work := Work(waits=True, error=error), jobs=jobs)
    traps = [proxy.lose_answer(command("findAndModify")), proxy.lose_answer(command("update"))]
    work.done.set()
    settled = await events.wait("job:fail" if error else "job:complete", jobs)
    await monque.stop()

    assert any(trap.caught.is_set() for trap in traps)
    assert {event.job.fail_count for event in settled} == {1 if error else 0}
    assert await statuses(collection) == {"pending" if error else "completed": jobs}
    assert work.runs == Counter(range(jobs))
    kinds = Counter(events.kinds())
    assert (kinds["job:complete"] + kinds["job:fail"], kinds["job:lost"]) == (jobs, 0)


@pytest.mark.parametrize("jobs", [1, 20], ids=["one", "many"])
async def test_the_wait_for_the_settling_write_does_not_count_as_run_time(
    proxy: Proxy, collection: Collection, make_monque: Make, jobs: int
) -> None:
    """The network holds the write for a second after handlers that ended at once."""
    monque = await make_monque(proxy.uri(collection.database.name)).open()
    events = Events(monque)
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
    await events.wait("job:complete", jobs)

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
    events = Events(monque)
    monque.worker("work", work := Work(waits=True))
    await monque.start()
    await events.wait("job:start")
    trap = proxy.lose_answer(command("findAndModify"))
    work.done.set()
    [completed] = await events.wait("job:complete")
    await monque.stop()

    assert trap.caught.is_set()
    after = await find_one(collection)
    assert (after["status"], after["failCount"]) == ("pending", 0)
    assert after["nextRunAt"] == completed.job.next_run_at > doc["nextRunAt"]
    assert work.runs.total() == 1


@pytest.mark.parametrize("lost", ["insert", "findAndModify"])
async def test_the_failed_run_of_a_schedule_is_kept_once_although_its_settlement_is_in_doubt(
    proxy: Proxy, collection: Collection, make_monque: Make, lost: str
) -> None:
    await collection.insert_one(document(repeatInterval="0 0 1 1 *", timezone="UTC", uniqueKey="yearly"))
    monque = await make_monque(
        proxy.uri(collection.database.name, "retryWrites=false"), options=replace(QUICK, max_retries=1)
    ).open()
    events = Events(monque)
    monque.worker("work", work := Work(waits=True, error=RuntimeError("no luck")))
    await monque.start()
    await events.wait("job:start")
    trap = proxy.lose_answer(command(lost))
    work.done.set()
    [failed] = await events.wait("job:fail")
    await monque.stop()

    assert trap.caught.is_set()
    assert failed.will_retry is False
    assert await statuses(collection) == {"pending": 1, "failed": 1}
    kept = await find_one(collection, {"status": "failed"})
    assert kept["_id"] == failed.job.id
    assert len(events.of("job:fail")) == 1
    assert events.of("job:lost") == []


async def test_a_release_at_shutdown_that_fails_is_written_again(
    victim: str, failing: Failing, collection: Collection, make_monque: Make
) -> None:
    monque = await make_monque(victim).open()
    await begin(monque, Work(waits=True), jobs=3)
    async with failing(["findAndModify", "update"], times=3, errorCode=8):
        await monque.stop(timeout=0)

    assert await collection.count_documents({"status": "pending", "failCount": 0}) == 3


async def claim_ahead(monque: Monque, collection: Collection) -> Events:
    """Let the instance claim more jobs than it has slots for."""
    events = await prefetch(monque)

    async def ahead() -> None:
        assert await collection.count_documents({"status": "processing"}) > 2

    await eventually(ahead)
    await events.wait("job:start", 32)
    return events


async def test_prefetched_jobs_are_released_at_shutdown_although_the_write_fails_at_first(
    victim: str, failing: Failing, collection: Collection, make_monque: Make
) -> None:
    monque = await make_monque(victim).open()
    await claim_ahead(monque, collection)
    async with failing(["findAndModify", "update"], times=3, errorCode=8):
        await monque.stop(timeout=0)

    assert await statuses(collection) == {"completed": 30, "pending": 20}


async def test_an_instance_can_be_closed_while_the_server_is_gone(
    proxy: Proxy, collection: Collection, make_monque: Make
) -> None:
    """Soon, although it has prefetched and running jobs; those that it cannot release are emitted as lost."""
    monque = await make_monque(proxy.uri(collection.database.name)).open()
    events = await claim_ahead(monque, collection)
    await proxy.cut()
    loop = asyncio.get_running_loop()
    begun = loop.time()
    await monque.stop(timeout=0)
    await monque.close()

    assert loop.time() - begun < 15
    lost = await events.wait("job:lost", 2)
    given_up = [event.job.id for event in events.of("job:error") if event.job is not None]
    assert given_up == [event.job.id for event in lost]
    await collection.delete_many({})  # the claims are left behind, as they must be


# The outcome cannot be kept for ever


async def test_a_settlement_that_fails_for_too_long_is_given_up_and_another_instance_takes_over(
    victim: str, failing: Failing, collection: Collection, make_monque: Make
) -> None:
    """The victim's heartbeats (`update`) get through; they must not cover the job it cannot settle."""
    first = await make_monque(victim, options=WATCHFUL, workers=(names := Workers())).open()
    events = await begin(first, work := Work(waits=True), jobs=1)
    other = await make_monque(options=WATCHFUL).open()
    other_events = Events(other)
    other.worker("work", took_over := Work())
    await other.start()
    async with failing(["findAndModify"], errorCode=8):
        first.worker("long", long := Work(waits=True))
        names.restrict(only=["long"])  # else the victim may be the one that claims the job again
        work.done.set()
        [lost] = await events.wait("job:lost")
        [completed] = await other_events.wait("job:complete")

    errors = [event for event in events.of("job:error") if event.job is not None]
    assert [event.job.id for event in errors] == [lost.job.id]
    assert completed.job.id == lost.job.id
    assert (completed.job.attempt, took_over.runs.total(), work.runs.total()) == (2, 1, 1)
    assert events.of("job:complete") == []
    long.done.set()
    await first.enqueue("long")
    await events.wait("job:complete")  # the slot is free and the victim works again
    assert await statuses(collection) == {"completed": 2}


async def test_no_job_is_given_up_before_the_tolerance_has_passed(
    victim: str, failing: Failing, collection: Collection, make_monque: Make
) -> None:
    """A minute of tolerance: a second of failing writes is nothing."""
    monque = await make_monque(victim).open()
    events = await begin(monque, work := Work(waits=True), jobs=10)
    loop = asyncio.get_running_loop()
    async with failing(["findAndModify", "update"], errorCode=8):
        work.done.set()
        until = loop.time() + 1

        def tried_for_a_second() -> None:
            assert loop.time() > until
            assert events.of("job:lost") == []

        await eventually(tried_for_a_second)
    await events.wait("job:complete", 10)

    assert work.runs == Counter(range(10))


async def test_a_result_is_kept_for_as_long_as_no_other_instance_may_recover_the_job(
    victim: str, failing: Failing, collection: Collection, make_monque: Make
) -> None:
    """With a tolerance as short as the interval others wait for three intervals, and so must the owner."""
    interval = timedelta(seconds=2)
    options = replace(QUICK, heartbeat_interval=interval, heartbeat_tolerance=interval)
    monque = await make_monque(victim, options=options).open()
    events = await begin(monque, work := Work(waits=True), jobs=1)
    loop = asyncio.get_running_loop()
    async with failing(["findAndModify"], errorCode=8):
        work.done.set()
        until = loop.time() + 2.4

        def tried_for_longer_than_the_tolerance() -> None:
            assert loop.time() > until

        await eventually(tried_for_longer_than_the_tolerance)
    await events.wait("job:complete")

    assert events.of("job:lost") == []


async def test_a_heartbeat_that_fails_does_no_harm(
    victim: str, failing: Failing, collection: Collection, make_monque: Make
) -> None:
    options = replace(WATCHFUL, heartbeat_tolerance=timedelta(seconds=20))
    monque = await make_monque(victim, options=options).open()
    events = await begin(monque, work := Work(waits=True), jobs=2)
    async with failing(["update"], times=3, errorCode=8):
        await events.wait("job:error", 3)
    last = await find_one(collection)

    async def beats_again() -> None:
        assert await collection.count_documents({"lastHeartbeat": {"$gt": last["lastHeartbeat"]}}) == 2

    await eventually(beats_again)
    work.done.set()
    await events.wait("job:complete", 2)
    assert events.of("job:lost") == []


async def test_recovery_that_fails_is_tried_again(
    victim: str, failing: Failing, collection: Collection, make_monque: Make
) -> None:
    monque = await make_monque(victim, options=WATCHFUL).open()
    events = Events(monque)
    monque.worker("work", lambda job: None)
    await monque.start()
    writes = ["findAndModify", "update"]  # each try sends both, to find out what failed
    async with failing(writes, times=6, errorCode=8):
        await collection.insert_one(
            document(
                status="processing", claimedBy="dead", lockedAt=ago(minutes=5), lastHeartbeat=ago(minutes=5)
            )
        )
        await events.wait("job:error", 3)
        await events.wait("job:complete")


async def test_jobs_recovered_before_an_error_are_emitted(
    victim: str, failing: Failing, collection: Collection, make_monque: Make
) -> None:
    dead = {"status": "processing", "claimedBy": "dead"}
    silent = {"lockedAt": ago(minutes=5), "lastHeartbeat": ago(minutes=5)}
    monque = await make_monque(victim, options=WATCHFUL).open()
    events = Events(monque)
    await monque.start()
    writes = ["findAndModify", "update"]
    async with failing(writes, after=1, errorCode=8):
        await collection.insert_many([document(**dead, **silent) for _ in range(2)])
        await events.wait("job:error")
        [first] = await events.wait("stale:recovered")

    [second] = (await events.wait("stale:recovered", 2))[1:]
    assert (first.count, second.count) == (1, 1)


# Claims whose answer was lost


@pytest.mark.parametrize("jobs", [1, 20], ids=["one", "many"])
async def test_a_claim_whose_answer_is_lost_runs_once_and_at_once(
    proxy: Proxy, collection: Collection, make_monque: Make, jobs: int
) -> None:
    """Not after the tolerance, which is a minute and a half here."""
    await collection.insert_many([document(data=number) for number in range(jobs)])
    monque = await make_monque(proxy.uri(collection.database.name, "retryWrites=false")).open()
    monque.worker("work", work := Work(), concurrency=jobs)
    events = Events(monque)
    trap = proxy.lose_answer(is_claim)
    await monque.start()
    completed = await events.wait("job:complete", jobs)
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
    monque.worker("work", work := Work(), concurrency=20)
    events = Events(monque)
    held = proxy.hold(is_claim)
    await monque.start()
    await held.wait()
    traps = [proxy.lose_answer(command("find")) for _ in range(2)]
    held.release()
    await events.wait("job:complete", 20)
    await monque.stop()

    assert all(trap.caught.is_set() for trap in traps)
    assert work.runs == Counter(range(20))
    assert await collection.count_documents({"attempt": 1, "status": "completed"}) == 20


@pytest.mark.parametrize("jobs", [1, 20], ids=["one", "many"])
@pytest.mark.parametrize("fault", FAULTS)
async def test_a_claim_that_fails_runs_once_and_at_once(
    victim: str,
    failing: Failing,
    collection: Collection,
    make_monque: Make,
    fault: dict[str, Any],
    jobs: int,
) -> None:
    await collection.insert_many([document(data=number) for number in range(jobs)])
    monque = await make_monque(victim).open()
    monque.worker("work", work := Work(), concurrency=jobs)
    events = Events(monque)
    async with failing(["findAndModify", "update"], times=2, **fault):
        await monque.start()
        await events.wait("job:complete", jobs)
    await monque.stop()

    assert work.runs == Counter(range(jobs))
    assert await collection.count_documents({"attempt": 1, "status": "completed"}) == jobs


async def test_claims_in_doubt_at_stop_are_released(
    proxy: Proxy, collection: Collection, make_monque: Make
) -> None:
    """stop() comes while it is unknown whether the claims were made; left alone they would become stale."""
    await collection.insert_many([document() for _ in range(5)])
    monque = await make_monque(proxy.uri(collection.database.name, "retryWrites=false")).open()
    monque.worker("work", lambda job: None)
    events = Events(monque)
    trap = proxy.lose_answer(is_claim)
    await monque.start()
    await trap.wait()
    await monque.stop()

    assert await collection.count_documents({"status": "processing"}) == 0, events.kinds()


async def test_a_failed_occurrence_does_not_split_the_batch_it_is_settled_in(
    host: Servers, collection: Collection
) -> None:
    """A settlement that leaves a document beside it shares a batch with two hundred that do not."""
    plain = [claimed("ours") for _ in range(200)]
    schedule = claimed("ours", repeatInterval="@hourly", timezone="UTC")
    await collection.insert_many([*plain, schedule])
    writes = Traffic("insert", "update", "findAndModify")
    async with AsyncMongoClient[dict[str, Any]](
        host.uri(), event_listeners=[writes], tz_aware=True
    ) as client:
        store = Store(client[collection.database.name], QUICK, clock := Clock(), "ours")
        await clock.refresh(store.server.hello)
        settler = store.settler
        leaves = failed_occurrence(schedule, reason="no", fail_count=1, now=clock.now())
        held = Claim.of_read(schedule)
        gives_up = occurrences.give_up_occurrence(held, run_at=ahead(hours=1), leaves=leaves)
        answers = await asyncio.gather(
            *(settler.settle(claim, run.complete(claim)) for claim in map(Claim.of_read, plain)),
            settler.settle(held, gives_up),
        )

    assert all(isinstance(answer, Settled) for answer in answers)
    assert writes.sent == {"update": 1, "insert": 1, "findAndModify": 1}
    assert await statuses(collection) == {"completed": 200, "failed": 1, "pending": 1}


# A job that is not kept


@pytest.mark.parametrize("jobs", [1, 20], ids=["one", "many"])
@pytest.mark.parametrize("fault", FAULTS)
async def test_a_delete_that_fails_is_sent_again_and_a_job_that_is_gone_is_completed(
    victim: str,
    failing: Failing,
    collection: Collection,
    make_monque: Make,
    fault: dict[str, Any],
    jobs: int,
) -> None:
    monque = await make_monque(victim).open()
    work, events = Work(waits=True), Events(monque)
    monque.worker("work", work, concurrency=jobs, keep=Keep(completed=timedelta(0)))
    await monque.start()
    await monque.enqueue_many([NewJob("work", number) for number in range(jobs)])
    await events.wait("job:start", jobs)
    async with failing(["delete"], times=3, **fault):
        work.done.set()
        await events.wait("job:complete", jobs, within=60)
    await monque.stop()

    assert await collection.count_documents({}) == 0
    assert work.runs == Counter(range(jobs))
    assert (len(events.of("job:complete")), len(events.of("job:lost"))) == (jobs, 0)


@pytest.mark.parametrize("jobs", [1, 20], ids=["one", "many"])
async def test_a_delete_whose_answer_is_lost_completes_the_jobs_once(
    proxy: Proxy, collection: Collection, make_monque: Make, jobs: int
) -> None:
    monque = await make_monque(proxy.uri(collection.database.name)).open()
    work, events = Work(waits=True), Events(monque)
    monque.worker("work", work, concurrency=jobs, keep=Keep(completed=timedelta(0)))
    await monque.start()
    await monque.enqueue_many([NewJob("work", number) for number in range(jobs)])
    await events.wait("job:start", jobs)
    trap = proxy.lose_answer(command("delete"))
    work.done.set()
    await events.wait("job:complete", jobs, within=60)
    await monque.stop()

    assert trap.caught.is_set()
    assert await collection.count_documents({}) == 0
    assert (len(events.of("job:complete")), len(events.of("job:lost"))) == (jobs, 0)


async def test_a_job_that_is_gone_before_its_end_is_written_is_lost(
    collection: Collection, make_monque: Make
) -> None:
    """Somebody has deleted it, or recovered, completed and so removed it."""
    monque = await make_monque().open()
    work, events = Work(waits=True), Events(monque)
    monque.worker("work", work, keep=Keep(completed=timedelta(0)))
    await monque.start()
    await monque.enqueue("work")
    await events.wait("job:start")
    await collection.delete_one({})
    work.done.set()
    await events.wait("job:lost")
    await monque.stop()

    assert events.of("job:complete") == []


async def test_a_job_that_another_instance_has_by_now_is_not_deleted(
    collection: Collection, make_monque: Make
) -> None:
    monque = await make_monque(options=BEATING).open()
    work, events = Work(waits=True), Events(monque)
    monque.worker("work", work, keep=Keep(completed=timedelta(0)))
    await monque.start()
    await monque.enqueue("work")
    await events.wait("job:start")
    await collection.update_one({}, {"$set": {"claimedBy": "another"}, "$inc": {"attempt": 1}})
    work.done.set()
    await events.wait("job:lost")
    await monque.stop()

    assert (await find_one(collection))["claimedBy"] == "another"


@pytest.mark.parametrize("jobs", [1, 20], ids=["one", "many"])
async def test_who_cannot_know_whether_its_delete_was_the_one_tells_no_end_that_another_owner_has_told(
    proxy: Proxy, collection: Collection, make_monque: Make, monkeypatch: pytest.MonkeyPatch, jobs: int
) -> None:
    """The delete gets no answer; meanwhile the jobs are recovered, run by another owner, and so removed."""
    monkeypatch.setattr("monque._store.settle._SHORTEST_WRITE", 0.5)
    monque = await make_monque(proxy.uri(collection.database.name), options=WATCHFUL).open()
    other = await make_monque(options=WATCHFUL).open()
    work, events = Work(waits=True), Events(monque)
    monque.worker("work", work, concurrency=jobs, keep=Keep(completed=timedelta(0)))
    await monque.start()
    await monque.enqueue_many([NewJob("work", number) for number in range(jobs)])
    await events.wait("job:start", jobs)
    proxy.freeze()
    work.done.set()
    second, others = Work(), Events(other)
    other.worker("work", second, keep=Keep(completed=timedelta(0)))
    await other.start()
    await others.wait("job:complete", jobs)
    assert await collection.count_documents({}) == 0
    await proxy.cut()
    await proxy.restore()
    await events.wait("job:lost", jobs, within=60)

    assert events.of("job:complete") == []
    assert len(others.of("job:complete")) == jobs
