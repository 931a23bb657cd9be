"""Jobs that can do harm: unreadable documents, payloads that no longer fit. Other jobs run on."""

from __future__ import annotations

import logging
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

import pytest
from bson import Binary, Code, Decimal128, Int64, MaxKey, MinKey, ObjectId, Regex, Timestamp
from bson.datetime_ms import DatetimeMS
from bson.errors import InvalidBSON
from pymongo import UpdateOne
from pymongo.errors import BulkWriteError, DuplicateKeyError, WriteError

from monque import Job, JobFilter, JobNotFoundError, JobStateError, Monque, NewJob, Retention
from support.aliases import Collection, Make
from support.clocks import ago, ahead
from support.invariants import check_invariants
from support.jobs import claimed, document, find_one
from support.options import QUICK
from support.scale import FULL
from support.waiting import Events, eventually, start

BRISK = replace(
    QUICK,
    poll_interval=timedelta(milliseconds=50),
    heartbeat_interval=timedelta(milliseconds=40),
    heartbeat_tolerance=timedelta(seconds=10),
    retention=Retention(completed=timedelta(days=30), interval=timedelta(milliseconds=100)),
    max_retries=2,
)
ODD: list[Any] = [
    *(None, "", "text", "\x00", 7, -1, 2**62, 1.5, float("nan"), float("inf"), True, b"\x00", {}, {"a": 1}),
    *({"$gt": 1}, [], [1], ["work"], [ago(days=1)], [["work"]], ObjectId(), Decimal128("1"), Int64(1)),
    *(Regex("x"), Code("x"), Code("x", {}), MinKey(), MaxKey(), Timestamp(1, 1), DatetimeMS(2**62)),
    *(DatetimeMS(-(2**62)), ago(days=1), {"$bogus": 1}),
    # PyMongo refuses to decode these: one of them fails the whole answer.
    *(Binary(b"abc", 3), Binary(b"abc", 4), {"a": [Binary(b"", 4)]}),
]
FIELDS = [
    *("_id", "name", "status", "nextRunAt", "data", "failCount", "attempt", "uniqueKey", "failReason"),
    *("repeatInterval", "timezone", "crashCount", "createdAt", "updatedAt", "lockedAt", "lastHeartbeat"),
    *("claimedAt", "recentRuns"),
    *("claimedBy", "heartbeatInterval", "lostAttempt", "startedAt", "finishedAt", "scheduleId"),
    *("settledAttempt", "lastCrash", "failedRunId", "movedTo", "policy", "snoozeCount", "history", "cancel"),
    *("stuck", "priority", "progress", "log", "result", "steps", "signals", "parked"),
    *("again", "askedAt", "windowKey", "windowUntil"),
    *("schedule", "runCount"),
    *("batch", "turn", "onFailure", "followUp"),
]
GOOD = 50
DEAD = {"lastHeartbeat": ago(hours=1), "lockedAt": ago(hours=1), "heartbeatInterval": 100}


@pytest.fixture
async def worker(make_monque: Make) -> Monque:
    monque = await make_monque(
        options=replace(BRISK, uses=("priority", "batch", "parked", "limit", "follow_up"))
    ).open()
    monque.worker("work", work, concurrency=50, store_result=True)
    monque.worker("fails", failing, concurrency=20)
    return monque


async def work(job: Job[Any]) -> None:
    """Read all of the job, as a curious handler does, and report something."""
    job.add_log(repr(job))


def failing(job: Job[Any]) -> None:
    raise ValueError("no")


@pytest.mark.parametrize("turn", [0, 1] if FULL else [0])
@pytest.mark.parametrize("field", FIELDS)
async def test_no_value_in_any_field_ends_a_loop_or_keeps_good_jobs_from_running(
    worker: Monque,
    collection: Collection,
    caplog: pytest.LogCaptureFixture,
    field: str,
    turn: int,
) -> None:
    """All wrong types in one field at once; 50 good jobs of the same name are worked off meanwhile.

    Every second value is there before the start, the others come while it is live, and all come by updates.
    With FULL=1 each value comes in each way.
    """
    await insert_poison(collection, field, turn)
    events = await start(worker)
    await insert_poison(collection, field, 1 - turn)
    await update_to_poison(collection, field)
    good = await worker.enqueue_many(NewJob("work", {"good": number}) for number in range(GOOD))
    dead = claimed("dead", **DEAD, data={"good": GOOD}, nextRunAt=ago(seconds=5))
    doomed = claimed("dead", **DEAD, data={"good": GOOD}, crashCount=5)  # recovery comes to it last
    old = document(status="completed", updatedAt=ago(days=40))
    await collection.insert_many([dead, doomed, old])
    await operate(worker)
    run = [*(job.id for job in good), dead["_id"]]
    await eventually(lambda: all_done(collection, run, doomed, old), within=60)

    assert worker.is_healthy()
    assert not [record for record in caplog.records if record.levelno >= logging.CRITICAL]
    # Claiming, beating, recovering and pruning never failed; a job that fails is no error of theirs.
    assert errors(events) == []
    for said in ("cannot be", "does not decode"):
        lines = Counter(vars(record)["job_id"] for record in caplog.records if said in record.msg)
        assert set(lines.values()) <= {1}
    await remove_all(worker)
    assert await collection.count_documents({}) == 0


def errors(events: Events) -> list[BaseException]:
    """The errors of the loops but timeouts: on a busy machine a heartbeat takes more than its second."""
    return [event.error for event in events.of("job:error") if not getattr(event.error, "timeout", False)]


async def test_the_rules_are_checked_also_beside_dates_out_of_range(collection: Collection) -> None:
    odd = {"name": "work", "failCount": 0, "updatedAt": DatetimeMS(2**62)}
    await collection.insert_one({**odd, "status": "completed", "result": Binary(b"abc", 4)})
    await check_invariants(collection)
    await collection.insert_one({**odd, "_id": 7, "status": "processing"})

    with pytest.raises(AssertionError, match=r"work 7 \(processing\) is processing but not claimed"):
        await check_invariants(collection)


@pytest.mark.parametrize("field", ["paused", "all", "name", "since", "until", "reason", "by", "_id"])
async def test_no_control_document_ends_a_loop_or_keeps_good_jobs_from_running(
    worker: Monque, collection: Collection, caplog: pytest.LogCaptureFixture, field: str
) -> None:
    """Every wrong type in each of its fields, one after the other, while jobs are worked off."""
    control = collection.database[f"{collection.name}_control"]
    events = await start(worker)
    for number, value in enumerate(ODD):
        await control.delete_many({})
        with suppress(DuplicateKeyError, InvalidBSON, WriteError):  # not everything can be an `_id`
            await control.insert_one(odd_settings(field, value))
        # What an operator does at the same time reads the document at once.
        await worker.pause("rests", until=timedelta(milliseconds=1))
        assert await worker.queue_views()
        assert (await worker.diagnose()).paused is not None
        if None in [pause.name for pause in await worker.paused()]:
            await worker.resume()  # a document under `all` is a pause, whatever it holds
        good = await worker.enqueue("work", {"good": number})
        await eventually(lambda good=good: done(collection, good.id))

    assert worker.is_healthy()
    assert not [record for record in caplog.records if record.levelno >= logging.CRITICAL]
    assert errors(events) == []


def odd_settings(field: str, value: Any) -> dict[str, Any]:
    """A control document with an odd value in one field; it pauses a name that nobody enqueues."""
    if field in ("paused", "all", "_id"):
        return {"_id": "settings", field: value}
    entry = {"name": "rests", "since": ago(days=1), "by": "me", field: value}
    return {"_id": "settings", "paused": [value, entry], "all": {"until": ago(days=1)}}


async def done(collection: Collection, job_id: ObjectId) -> None:
    assert await collection.count_documents({"_id": job_id, "status": "completed"}) == 1


async def insert_poison(collection: Collection, field: str, half: int) -> None:
    """Pending, failed, completed and abandoned jobs, recurring or not, with half of the odd values."""
    schedule = {"repeatInterval": "@daily", "timezone": "UTC", "crashCount": 5}
    poison: list[dict[str, Any]] = []
    for number, value in list(enumerate(ODD))[half::2]:
        kinds = [
            document(name="work"),
            document(name="fails"),
            document(status="failed"),
            document(status="completed", updatedAt=ago(days=40)),
            claimed("dead", **DEAD),
            claimed("dead", **DEAD, crashCount=5),
            claimed("dead", **DEAD, **schedule),
        ]
        for kind, doc in enumerate(kinds):
            doc["uniqueKey"] = f"key-{number}-{kind}"
            doc[field] = {"kind": kind, "value": value} if field == "_id" and kind else value
        poison += kinds
    with suppress(BulkWriteError, InvalidBSON):  # not every `_id` and key can be stored, or refused in words
        await collection.insert_many(poison, ordered=False)


async def update_to_poison(collection: Collection, field: str) -> None:
    """The same by updates of jobs that were good, and not due; an `_id` cannot be changed."""
    later = [
        document(name=name, nextRunAt=ahead(hours=1), uniqueKey=f"{name} {number}")
        for name in ("work", "fails", "nobody's")
        for number in range(len(ODD))
    ]
    await collection.insert_many(later)
    updates = []
    for place, doc in enumerate(later):
        changes = {"nextRunAt": ago(hours=1), "status": "pending"}
        if field != "_id":
            changes[field] = ODD[place % len(ODD)]
        updates.append(UpdateOne({"_id": doc["_id"]}, {"$set": changes}))
    with suppress(BulkWriteError, InvalidBSON):
        await collection.bulk_write(updates, ordered=False)


async def operate(monque: Monque) -> None:
    """List, count, cancel, retry, reschedule and delete odd documents of every kind."""
    odd = [job async for job in monque.iter_jobs(limit=30) if not is_good(job)]
    assert len([job async for job in monque.iter_jobs(sort="updated_at", limit=50)]) >= len(odd) - 1
    assert len(await monque.get_jobs(limit=1000)) >= GOOD
    assert (await monque.queue_stats()).total >= GOOD
    assert await monque.queue_views()
    assert await monque.count_jobs(JobFilter(name="work")) >= GOOD
    for number, job in enumerate(odd[::7]):
        with suppress(JobNotFoundError, JobStateError):  # it may have run, or been recovered, meanwhile
            await monque.signal(job.id, "go", id="evt")
            await monque.cancel_job(job.id)
            await monque.retry_job(job.id)
            await monque.reschedule_job(job.id, ago(hours=1))
            if number % 2:
                await monque.delete_job(job.id)
    assert (await monque.retry_jobs(JobFilter(status="failed"))).count >= 0


def is_good(job: Job[Any]) -> bool:
    return isinstance(job.data, dict) and "good" in job.data


async def all_done(
    collection: Collection, good: list[ObjectId], doomed: dict[str, Any], old: dict[str, Any]
) -> None:
    assert await collection.count_documents({"_id": {"$in": good}, "status": "completed"}) == len(good)
    assert await collection.count_documents({"_id": old["_id"]}) == 0  # pruned
    # Given up; or retried since, by the operator.
    assert await collection.count_documents({"_id": doomed["_id"], "status": "processing"}) == 0


async def remove_all(monque: Monque) -> None:
    """Stop, and delete each job by the id that is shown."""
    await monque.stop(timeout=5)
    odd = [job async for job in monque.iter_jobs() if not is_good(job)]
    for job in odd[::4]:
        await monque.delete_job(job.id)
    await monque.delete_jobs(JobFilter())


@pytest.mark.parametrize("count", [-5, "text", None, [1], float("nan"), Int64(0)], ids=repr)
@pytest.mark.parametrize("max_retries", [1, 2])
async def test_a_job_whose_fail_count_is_not_a_number_fails_as_if_for_the_first_time(
    make_monque: Make, collection: Collection, count: Any, max_retries: int
) -> None:
    monque = await make_monque(options=replace(BRISK, max_retries=max_retries)).open()
    monque.worker("fails", failing)
    odd = document(name="fails", failCount=count)
    await collection.insert_one(odd)
    events = Events(monque)
    await monque.start()
    await events.wait("job:fail", max_retries)
    stored = await collection.find_one({"_id": odd["_id"]})

    assert [event.job.fail_count for event in events.of("job:fail")] == [1, 2][:max_retries]
    assert stored is not None
    assert (stored["status"], stored["failCount"]) == ("failed", max_retries)


async def test_the_failed_run_of_a_schedule_has_no_negative_count_of_failures(
    worker: Monque, collection: Collection
) -> None:
    dead = {"lastHeartbeat": ago(hours=1), "lockedAt": ago(hours=1), "heartbeatInterval": 100}
    schedule = claimed("dead", **dead, repeatInterval="@daily", uniqueKey="k", crashCount=5, failCount=-5)
    await collection.insert_one(schedule)
    events = Events(worker)
    await worker.start()
    await events.wait("stale:recovered", 1)
    left = await collection.find_one({"scheduleId": schedule["_id"]})

    assert left is not None
    assert (left["status"], left["failCount"]) == ("failed", 0)
    await collection.delete_one({"_id": schedule["_id"]})


@dataclass
class Order:
    number: int
    items: list[str]


@pytest.mark.parametrize(
    "data",
    [None, "text", 7, [], {"number": "x"}, {"items": 1}, {"number": 1}, {"number": 1, "items": [{"$gt": 1}]}],
    ids=repr,
)
async def test_a_payload_that_no_longer_decodes_fails_with_a_readable_reason_and_keeps_its_data(
    worker: Monque, collection: Collection, data: Any
) -> None:
    """It was stored by an older program; its handler is never called with it."""
    seen: list[Any] = []

    @worker.worker("typed")
    def typed(job: Job[Order]) -> None:
        seen.append(job.data)

    old = document(name="typed", data=data, failCount=1)
    good = document(name="typed", data={"number": 1, "items": ["a"]}, nextRunAt=ago(seconds=2))
    await collection.insert_many([old, good])
    await worker.run_until_idle()

    stored = await find_one(collection, {"_id": old["_id"]})
    assert stored["status"] == "failed"
    assert "does not fit Order" in stored["failReason"]
    assert stored["data"] == data
    assert seen == [Order(1, ["a"])]


async def test_a_name_that_has_no_worker_anywhere_stays_pending_and_is_reported(
    worker: Monque, collection: Collection
) -> None:
    alone = document(name="nobody's", nextRunAt=ago(minutes=10))
    await collection.insert_many([alone, document(name="nobody's", nextRunAt=ahead(hours=1))])
    await worker.run_until_idle()
    [due] = (await worker.diagnose()).due

    assert (due.name, due.count, due.running) == ("nobody's", 1, 0)
    assert await collection.find_one({"_id": alone["_id"]}) == alone
