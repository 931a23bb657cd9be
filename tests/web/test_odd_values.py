"""Whatever others wrote into a document: both APIs can show it, as JSON."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any

import pytest
from bson import Binary, Code, DBRef, Decimal128, Int64, MaxKey, MinKey, ObjectId, Regex, Timestamp
from pymongo.errors import PyMongoError

from monque import Monque
from monque.web.jobs import OpsJobsQuery
from support.aliases import Collection
from support.callers import caller
from support.calls import Calls
from support.jobs import claimed, document

FIELDS = [
    *("name", "data", "status", "nextRunAt", "failCount", "attempt", "failReason", "repeatInterval"),
    *("timezone", "crashCount", "createdAt", "updatedAt", "lockedAt", "lastHeartbeat", "claimedBy"),
    *("claimedAt", "heartbeatInterval", "startedAt", "finishedAt", "scheduleId", "policy", "traceparent"),
    *("snoozeCount", "history", "cancel", "priority", "progress", "log", "result", "resultError"),
    *("schedule", "recentRuns", "uniqueKey", "runCount", "lastRunAt", "plannedFor", "stuck"),
]
VALUES = [
    *(None, True, -1, 7, Int64(2**60), float("nan"), float("inf"), "", "text", "\x00\u202e", b"\xff", []),
    *(
        {},
        {"$gt": 1},
        [{"a": [1]}],
        ObjectId(),
        Decimal128("NaN"),
        Binary(b"x", 5),
        Binary(b"abc", 128),
        Regex("a"),
        MinKey(),
        MaxKey(),
    ),
    *(Timestamp(1, 1), Code("f()", {"password": "x"}), DBRef("a", 1), datetime(1, 1, 1, tzinfo=UTC)),
    {"done": float("inf"), "total": 0, "message": 7, "at": "x"},
]


@pytest.fixture(autouse=True)
async def nothing_left(collection: Collection, monque: Monque) -> AsyncIterator[None]:
    """The invariants hold for documents of ours only."""
    yield
    await collection.delete_many({})


@pytest.mark.parametrize("field", FIELDS)
async def test_no_value_in_any_field_keeps_anybody_from_looking(
    call: Calls, collection: Collection, field: str
) -> None:
    for number, value in enumerate(VALUES):
        basis = (document(), claimed("a"), document(status="failed"), document(status="completed"))[
            number % 4
        ]
        try:
            await collection.insert_one({**basis, field: value})
        except PyMongoError:
            continue  # an index refuses it
    stored = await collection.count_documents({})

    page = await call("opsJobs", caller(), query=OpsJobsQuery(limit=100))
    assert len(page.jobs) == stored
    answers: list[Any] = [page.dump(), await call("listJobs", caller(), query=[("sortBy", "identifier")])]
    answers += [(await call("opsJob", caller(), id=job.id)).dump() for job in page.jobs]
    answers += [(await call("opsRunning", caller())).dump(), (await call("opsInstances", caller())).dump()]
    answers += [(await call("opsSchedules", caller())).dump()]
    json.dumps(answers, allow_nan=False).encode()


@pytest.mark.parametrize("wrong", [{"repeatInterval": "x y z"}, {"timezone": "Mars/Phobos"}])
async def test_a_schedule_without_a_time_can_be_looked_at(
    call: Calls, collection: Collection, wrong: dict[str, Any]
) -> None:
    stored = document(**{"repeatInterval": "30 2 * * *", "uniqueKey": "s", **wrong})
    await collection.insert_one(stored)

    assert (await call("opsSchedule", caller(), id=str(stored["_id"]))).edges is None


@pytest.mark.parametrize("odd", [{"_id": " s "}, {"name": " n "}, {"uniqueKey": " k "}, {"uniqueKey": "\t"}])
async def test_the_list_of_schedules_and_the_page_of_one_agree_on_odd_spaces(
    call: Calls, collection: Collection, odd: dict[str, Any]
) -> None:
    await collection.insert_one(document(**{"repeatInterval": "30 2 * * *", "uniqueKey": "s", **odd}))

    (listed,) = (await call("opsSchedules", caller())).schedules
    shown = await call("opsSchedule", caller(), id=listed.id)

    assert (shown.id, shown.name, shown.key) == (listed.id, listed.name, listed.key)
