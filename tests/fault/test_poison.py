"""Jobs that can do harm: documents nobody can read, payloads that do not fit any more. Others go on."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

import pytest
from bson import Code, Decimal128, Int64, MaxKey, MinKey, ObjectId, Regex, Timestamp
from bson.datetime_ms import DatetimeMS
from bson.errors import InvalidBSON
from pymongo.asynchronous.collection import AsyncCollection
from pymongo.errors import DuplicateKeyError

from conftest import QUICK
from monque import Job, Monque
from support.clocks import ago, ahead
from support.jobs import claimed, document
from support.waiting import Heard, eventually

Collection = AsyncCollection[dict[str, Any]]
Make = Callable[..., Monque]

BRISK = replace(
    QUICK,
    heartbeat_interval=timedelta(milliseconds=100),
    heartbeat_tolerance=timedelta(seconds=1),
    max_retries=2,
)
ODD: list[Any] = [
    *(None, "", "text", "\x00", 7, -1, 2**62, 1.5, float("nan"), float("inf"), True, b"\x00"),
    *(
        [],
        [1],
        {},
        {"$gt": 1},
        ObjectId(),
        Decimal128("1"),
        Int64(1),
        Regex("x"),
        Code("x"),
        MinKey(),
        MaxKey(),
    ),
    *(Timestamp(1, 1), DatetimeMS(2**62), DatetimeMS(-(2**62)), ago(days=1)),
]
FIELDS = [
    *("failCount", "attempt", "uniqueKey", "failReason", "repeatInterval", "timezone", "crashCount"),
    *("createdAt", "updatedAt", "nextRunAt", "lockedAt", "lastHeartbeat", "claimedBy", "heartbeatInterval"),
    *("lostAttempt", "startedAt", "finishedAt", "scheduleId", "data"),
]


@pytest.fixture
async def worker(make_monque: Make) -> Monque:
    monque = await make_monque(options=replace(BRISK, create_indexes=True)).open()
    monque.worker("work", lambda job: None, concurrency=20)
    monque.worker("fails", failing, concurrency=20)
    return monque


def failing(job: Job[Any]) -> None:
    raise ValueError("no")


@pytest.mark.parametrize("field", FIELDS)
@pytest.mark.parametrize("name", ["work", "fails"])
async def test_a_pending_document_with_any_value_in_any_field_harms_nobody(
    worker: Monque, collection: Collection, field: str, name: str
) -> None:
    odd = [document(name=name, **{field: value, **unique(field, number)}) for number, value in enumerate(ODD)]
    for doc in odd:
        await insert_if_possible(collection, doc)
    heard = Heard(worker)
    await worker.start()
    mine = await worker.enqueue("work", "mine")
    await completed(heard, mine)

    assert worker.is_healthy()
    await collection.delete_many({"name": name, "_id": {"$in": [doc["_id"] for doc in odd]}})
    again = await worker.enqueue("work", "again")
    await completed(heard, again)


@pytest.mark.parametrize("field", FIELDS)
async def test_a_claimed_document_with_any_value_in_any_field_harms_nobody(
    worker: Monque, collection: Collection, field: str
) -> None:
    """Its owner is dead, and recovery has to look at it."""
    dead = {"lastHeartbeat": ago(hours=1), "lockedAt": ago(hours=1), "heartbeatInterval": 100}
    for number, value in enumerate(ODD):
        for more in ({}, {"repeatInterval": "@daily", "crashCount": 5}):
            doc = claimed("dead", **{**dead, **more, field: value, **unique(field, number)})
            await insert_if_possible(collection, doc)
    heard = Heard(worker)
    await worker.start()
    normal = claimed("dead", **dead, data="normal")
    await collection.insert_one(normal)

    async def recovered() -> None:
        doc = await collection.find_one({"_id": normal["_id"]})
        assert doc is not None
        assert doc["status"] == "completed"

    await eventually(recovered, within=20)
    mine = await worker.enqueue("work", "mine")
    await completed(heard, mine)
    assert worker.is_healthy()
    await collection.delete_many({"_id": {"$nin": [mine.id, normal["_id"]]}})


def unique(field: str, number: int) -> dict[str, Any]:
    """Keys of their own, except where the key itself is odd."""
    return {} if field == "uniqueKey" else {"uniqueKey": f"key-{number}-{ObjectId()}"}


async def insert_if_possible(collection: Collection, doc: dict[str, Any]) -> None:
    with suppress(DuplicateKeyError, InvalidBSON):  # 1 and 1.0 are one key; not every refusal can be read
        await collection.insert_one(doc)


async def completed(heard: Heard, job: Job[Any]) -> None:
    def check() -> None:
        assert job.id in [event.job.id for event in heard.of("job:complete")]

    await eventually(check, within=20)


@pytest.mark.parametrize("count", [-5, "text", None, [1], float("nan"), Int64(0)], ids=repr)
@pytest.mark.parametrize("max_retries", [1, 2])
async def test_a_job_whose_count_of_failures_is_none_fails_as_if_it_never_had(
    make_monque: Make, collection: Collection, count: Any, max_retries: int
) -> None:
    monque = await make_monque(options=replace(BRISK, max_retries=max_retries)).open()
    monque.worker("fails", failing)
    odd = document(name="fails", failCount=count)
    await collection.insert_one(odd)
    heard = Heard(monque)
    await monque.start()
    await heard.wait("job:fail", max_retries)
    stored = await collection.find_one({"_id": odd["_id"]})

    assert [event.job.fail_count for event in heard.of("job:fail")] == [1, 2][:max_retries]
    assert stored is not None
    assert (stored["status"], stored["failCount"]) == ("failed", max_retries)


async def test_the_failed_run_of_a_schedule_has_no_negative_count_of_failures(
    worker: Monque, collection: Collection
) -> None:
    dead = {"lastHeartbeat": ago(hours=1), "lockedAt": ago(hours=1), "heartbeatInterval": 100}
    schedule = claimed("dead", **dead, repeatInterval="@daily", uniqueKey="k", crashCount=5, failCount=-5)
    await collection.insert_one(schedule)
    heard = Heard(worker)
    await worker.start()
    await heard.wait("stale:recovered", 1)
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
async def test_a_payload_that_does_not_decode_any_more_fails_in_words_and_keeps_its_data(
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

    stored = await collection.find_one({"_id": old["_id"]})
    assert stored is not None
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
