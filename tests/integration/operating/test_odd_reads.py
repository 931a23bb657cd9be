"""Operators see, count, change and delete documents that other programs wrote, whatever these hold."""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from dataclasses import fields, replace
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any, get_args

import pytest
from bson import Binary, Code, Decimal128, Int64, MaxKey, MinKey, ObjectId, Regex, Timestamp
from bson.datetime_ms import DatetimeMS
from bson.dbref import DBRef
from bson.errors import InvalidBSON
from pymongo.errors import DuplicateKeyError

from monque import (
    ConnectionError,
    Job,
    JobFilter,
    JobNotFoundError,
    JobStateError,
    JobStatus,
    Monque,
    NewJob,
    QueueStats,
)
from monque._ops.counts import read_depths
from monque._store.document import key_of
from monque._values.views import Direction, Sort
from support.aliases import Collection, Make
from support.clocks import ago, ahead
from support.jobs import claimed, document, find_one
from support.options import QUICK
from support.waiting import Events

START = datetime(2030, 1, 1, tzinfo=UTC)
IDS: list[Any] = [
    *({"tenant": 7, "number": 1}, {}, {"at": START}, {"at": DatetimeMS(2**62)}, DBRef("orders", 7)),
    *("text", "", "a" * 24, 7, 1.5, float("nan"), Int64(2**40), Decimal128("2.5"), True, False, None),
    *(b"bytes", Binary(b"x", 128), START, DatetimeMS(2**62), DatetimeMS(-(2**62)), Timestamp(1, 1)),
    *(Code("x"), MinKey(), MaxKey(), ObjectId("c" * 24), ObjectId("d" * 24)),
]
VALUES: list[Any] = [
    *(None, "", "text", 7, -1, 2**62, 1.5, float("nan"), float("inf"), True, b"bytes", {}, {"a": 1}),
    *({"$gt": 1}, [], [1], ["pending"], [START], [ago(days=1), 1, "x"], [[START]], ObjectId(), Int64(1)),
    *(Decimal128("1"), Regex("x"), Code("x"), MinKey(), MaxKey(), Timestamp(1, 1), DatetimeMS(2**62)),
    *(DatetimeMS(-(2**62)), Binary(b"abc", 128), [{"a": Binary(b"abc", 128)}], START),
]
# PyMongo refuses to decode these: one of them fails the whole answer.
UNREADABLE: list[Any] = [Binary(b"abc", 3), Binary(b"", 4), Binary(b"x" * 17, 4), {"a": [Binary(b"abc", 4)]}]
FIELDS = [
    *("name", "status", "nextRunAt", "failCount", "attempt", "uniqueKey", "failReason", "repeatInterval"),
    *("timezone", "crashCount", "createdAt", "updatedAt", "lockedAt", "lastHeartbeat", "claimedBy"),
    *("claimedAt", "recentRuns"),
    *("heartbeatInterval", "lostAttempt", "startedAt", "finishedAt", "scheduleId", "data", "policy"),
    *("snoozeCount", "history", "cancel", "stuck", "again", "askedAt", "windowKey", "windowUntil"),
    *("priority", "progress", "log", "result", "resultError", "steps", "signals", "parked"),
]
IN_NO_PAGE = ("log",)
WIRE: dict[Sort, str] = {
    "id": "_id",
    "created_at": "createdAt",
    "updated_at": "updatedAt",
    "next_run_at": "nextRunAt",
}


@pytest.fixture(autouse=True)
async def nothing_left(collection: Collection, make_monque: Make) -> Any:
    """The invariants hold for documents of ours only."""
    yield
    await collection.delete_many({})


@pytest.fixture
async def monque(make_monque: Make, nothing_left: None) -> Monque:
    return await make_monque().open()


def keys(jobs: list[Job[Any]]) -> list[bytes]:
    return [key_of(job.id) for job in jobs]


async def pages(monque: Monque, limit: int, **how: Any) -> list[list[Job[Any]]]:
    """All pages, in the order of reading."""
    found, cursor = [], None
    while True:
        page = await monque.list_jobs(limit=limit, cursor=cursor, **how)
        found.append(page.jobs)
        assert len(found) < 500, "it does not end"
        if page.cursor is None:
            return found
        cursor = page.cursor


# Pages


@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize("limit", [1, 4, 1000])
async def test_pages_by_id_hold_ids_of_all_kinds_once_and_in_order(
    monque: Monque, collection: Collection, limit: int, descending: bool
) -> None:
    await collection.insert_many([document(_id=_id) for _id in IDS])
    there = [job for page in await pages(monque, limit, descending=descending) for job in page]
    back = [
        job
        for page in await pages(monque, limit, descending=descending, direction="backward")
        for job in reversed(page)
    ]

    assert len(there) == len(IDS)
    assert set(keys(there)) == {key_of(_id) for _id in IDS}
    assert keys(back) == keys(there)[::-1]


@pytest.mark.parametrize("sort", ["created_at", "updated_at", "next_run_at"])
@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize("limit", [1, 4, 1000])
async def test_pages_by_any_time_hold_values_of_all_kinds_once_and_leave_arrays_out(
    monque: Monque, collection: Collection, sort: Sort, limit: int, descending: bool
) -> None:
    field = WIRE[sort]
    documents = [document(status="failed", **{field: value}) for value in VALUES for _ in range(2)]
    documents += [document(status="failed", **{field: START + timedelta(seconds=n)}) for n in range(5)]
    missing = document(status="failed")
    del missing[field]
    await collection.insert_many([*documents, missing])
    jobs = JobFilter(status="failed")
    there = await pages(monque, limit, filter=jobs, sort=sort, descending=descending)
    back = await pages(monque, limit, filter=jobs, sort=sort, descending=descending, direction="backward")

    listed = [job.id for page in there for job in page]
    arrays = [each["_id"] for each in documents if isinstance(each[field], list)]
    assert arrays
    assert len(listed) == len(set(listed)) == len(documents) + 1 - len(arrays)
    assert not set(listed) & set(arrays)
    assert listed == [job.id for page in back for job in reversed(page)][::-1]
    assert await monque.count_jobs(jobs) == len(documents) + 1
    times = [getattr(job, sort) for page in there for job in page if getattr(job, sort) is not None]
    assert times == sorted(times, reverse=descending)


@pytest.mark.parametrize("sort", get_args(Sort))
@pytest.mark.parametrize("direction", get_args(Direction))
async def test_from_every_page_the_way_back_leads_to_the_page_before(
    monque: Monque, collection: Collection, sort: Sort, direction: Direction
) -> None:
    ids = [document(_id=_id) for _id in IDS]
    values = [document(status="failed", **{WIRE[sort]: value}) for value in VALUES]
    await collection.insert_many(ids if sort == "id" else values)
    other: Direction = "backward" if direction == "forward" else "forward"
    found, cursor = [], None
    while True:
        page = await monque.list_jobs(limit=5, sort=sort, cursor=cursor, direction=direction)
        found.append(page)
        if page.cursor is None:
            break
        cursor = page.cursor

    listed = ids if sort == "id" else [each for each in VALUES if not isinstance(each, list)]
    assert len(found) == -(-len(listed) // 5)
    for before, page in pairwise(found):
        way_back = page.previous_cursor if direction == "forward" else page.next_cursor
        assert way_back is not None
        again = await monque.list_jobs(limit=5, sort=sort, cursor=way_back, direction=other)
        assert keys(again.jobs) == keys(before.jobs)


# One job


def a_job(**changes: Any) -> dict[str, Any]:
    return document(status="failed", failReason="x", **changes)


@pytest.mark.parametrize("_id", IDS, ids=repr)
async def test_a_job_is_reached_by_the_id_that_is_shown(
    monque: Monque, collection: Collection, _id: Any
) -> None:
    await collection.insert_many([a_job(_id=_id), document(name="bystander")])
    events = Events(monque)
    [shown] = await monque.get_jobs(name="work")
    [listed] = (await monque.list_jobs(JobFilter(name="work"))).jobs
    assert key_of(shown.id) == key_of(listed.id) == key_of(_id)

    found = await monque.get_job(shown.id)
    assert found is not None
    assert key_of(found.id) == key_of(_id)
    assert (await monque.retry_job(shown.id)).status is JobStatus.PENDING
    later = ahead(hours=1)
    assert abs((await monque.reschedule_job(shown.id, later)).next_run_at - later) < timedelta(seconds=1)
    assert (await monque.cancel_job(shown.id)).status is JobStatus.CANCELLED
    assert (await monque.cancel_job(shown.id)).status is JobStatus.CANCELLED
    await monque.delete_job(shown.id)

    assert events.kinds() == ["job:retried", "job:cancelled", "job:deleted"]
    assert await monque.get_job(shown.id) is None
    with pytest.raises(JobNotFoundError):
        await monque.delete_job(shown.id)
    assert [doc["name"] async for doc in collection.find()] == ["bystander"]


async def test_text_of_24_hex_is_an_object_id_first_and_then_the_text(
    monque: Monque, collection: Collection
) -> None:
    both = "ab" * 12
    await collection.insert_many([a_job(_id=both, data="text"), a_job(_id=ObjectId(both), data="ObjectId")])

    found = []
    for _ in range(2):
        job = await monque.get_job(both)
        assert job is not None
        found.append(job.data)
        assert (await monque.retry_job(both)).data == job.data
        await monque.delete_job(both)
    assert found == ["ObjectId", "text"]
    assert await monque.get_job(both) is None


@pytest.mark.parametrize(
    "wrong", [{"$ne": None}, {"$gt": ""}, {"$in": [1]}, [1], Regex(".*"), object(), 2**70, "\ud800", ...]
)
async def test_an_id_never_becomes_an_operator(monque: Monque, collection: Collection, wrong: Any) -> None:
    await collection.insert_one(before := a_job(_id="text"))

    assert await monque.get_job(wrong) is None
    for act in (monque.cancel_job, monque.retry_job, monque.delete_job):
        with pytest.raises(JobNotFoundError):
            await act(wrong)
    assert await collection.find_one() == before


# Every field of every type


@pytest.mark.parametrize("field", FIELDS)
async def test_no_value_in_any_field_keeps_operators_from_reading(
    monque: Monque, collection: Collection, field: str
) -> None:
    for status in JobStatus:
        basis = claimed("dead") if status is JobStatus.PROCESSING else document(status=status.value)
        odd = [{**basis, "_id": ObjectId(), field: value} for value in VALUES]
        missing = {name: value for name, value in basis.items() if name != field}
        await insert_if_possible(collection, *odd, missing)
    stored = await collection.count_documents({})

    jobs = [job async for job in monque.iter_jobs(limit=50)]
    assert len(jobs) == stored
    for job in jobs:
        for each in fields(Job):
            getattr(job, each.name)
        for time in (job.next_run_at, job.created_at, job.updated_at, job.locked_at, job.last_heartbeat):
            assert time is None or isinstance(time, datetime)
    for job in jobs[::10]:
        assert await monque.get_job(job.id) is not None
    assert len(await monque.get_jobs(limit=1000)) == stored
    assert (await monque.queue_stats()).total == stored
    assert sum(view.stats.total for view in await monque.queue_views()) == stored
    await monque.queue_stats(name="work")
    await monque.diagnose()
    assert await read_depths(monque._context().store, monque._workers) is not None
    assert await monque.count_jobs() == stored


@pytest.mark.parametrize("field", ["_id", *(field for field in FIELDS if field not in IN_NO_PAGE)])
async def test_what_the_driver_does_not_decode_is_left_out_and_hides_no_other_job(
    monque: Monque, collection: Collection, field: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Among others, alone on a page, and on the pages after it; reported once each."""
    odd = [document(**{"_id": ObjectId(), field: value}) for value in UNREADABLE]
    good = [document(data={"good": number}) for number in range(20)]
    await insert_if_possible(collection, *odd[:2], *good[:10], *odd[2:], *good[10:])
    expected = {key_of(doc["_id"]) for doc in good}

    for limit in (1, 4, 1000):
        assert {key for page in await pages(monque, limit) for key in keys(page)} == expected
    assert set(keys(await monque.get_jobs(limit=1000))) == expected
    assert (await monque.queue_stats()).pending >= len(good)
    assert await monque.queue_views()
    await monque.diagnose()
    reports = Counter(vars(each)["job_id"] for each in caplog.records if "does not decode" in each.msg)
    assert len(reports) >= len(odd) - 1  # one key is held by another
    assert set(reports.values()) == {1}


@pytest.mark.parametrize("field", [field for field in FIELDS if field != "status"])
async def test_what_the_driver_does_not_decode_can_be_deleted_and_keeps_no_action_from_other_jobs(
    monque: Monque, collection: Collection, field: str
) -> None:
    odd = {**a_job(), field: UNREADABLE[0]}
    good = [document(status="failed", failReason="x", uniqueKey=f"k{number}") for number in range(5)]
    await insert_if_possible(collection, good[0], odd, *good[1:])

    assert (await monque.retry_jobs(JobFilter())).count >= len(good)
    assert await collection.count_documents({"status": "pending", "failReason": None}) >= len(good)
    assert (await monque.cancel_jobs(JobFilter(), limit=2)).count >= 1
    assert (await monque.cancel_jobs(JobFilter())).count >= 1
    await monque.delete_job(odd["_id"])
    assert (await monque.delete_jobs(JobFilter(name="work"))).count == len(good)
    assert await collection.count_documents({}) == 0


async def test_a_job_that_the_driver_does_not_decode_holds_its_key_until_somebody_deletes_it(
    monque: Monque, collection: Collection
) -> None:
    await collection.insert_one(odd := document(name="report", uniqueKey="k", data=UNREADABLE[0]))

    for asking in (
        monque.enqueue("report", unique_key="k"),
        monque.enqueue_many([NewJob("report", unique_key="k"), NewJob("report", unique_key="other")]),
        monque.schedule("@hourly", "report", unique_key="k"),
    ):
        with pytest.raises(ConnectionError, match="PyMongo does not decode"):
            await asking
    assert await monque.get_job(odd["_id"]) is None
    with pytest.raises(JobNotFoundError):
        await monque.cancel_job(odd["_id"])
    await monque.delete_job(odd["_id"])
    assert (await monque.enqueue("report", unique_key="k")).id != odd["_id"]


async def insert_if_possible(collection: Collection, *documents: dict[str, Any]) -> None:
    """Insert what no unique index refuses: 1 and 1.0 are one key, and not every refusal can be read."""
    if all("uniqueKey" not in doc for doc in documents):
        await collection.insert_many(documents)
        return
    for doc in documents:
        with suppress(DuplicateKeyError, InvalidBSON):
            await collection.insert_one(doc)


@pytest.mark.parametrize("field", FIELDS)
async def test_no_value_in_any_field_keeps_operators_from_acting(
    monque: Monque, collection: Collection, field: str
) -> None:
    for status in ("pending", "failed", "completed"):
        await insert_if_possible(
            collection, *(document(**{"status": status, field: value}) for value in VALUES)
        )
    for job in [job async for job in monque.iter_jobs()]:
        for act in (monque.cancel_job, monque.retry_job, monque.cancel_job):
            try:
                await act(job.id)
            except JobStateError as error:
                assert str(job.id) in str(error)  # noqa: PT017 - most of them succeed
    await monque.cancel_jobs(JobFilter())
    await monque.retry_jobs(JobFilter())
    await monque.retry_jobs(JobFilter(name="work"))
    for job in [job async for job in monque.iter_jobs()]:
        await monque.delete_job(job.id)

    assert await collection.count_documents({}) == 0


async def test_a_job_shows_what_is_stored_and_no_time_where_there_is_none(
    monque: Monque, collection: Collection
) -> None:
    await collection.insert_one({"_id": "x", "name": "work", "status": "parked", "nextRunAt": "soon"})
    job = await monque.get_job("x")

    assert job is not None
    assert (job.id, job.name, job.status) == ("x", "work", "parked")
    assert [job.next_run_at, job.created_at, job.updated_at] == [None] * 3
    assert (job.fail_count, job.attempt, job.data) == (0, 0, None)
    with pytest.raises(
        JobStateError, match="cannot cancel job x: it is parked; only a pending one"
    ) as caught:
        await monque.cancel_job("x")
    assert caught.value.current_status == "parked"


# Counts


async def test_unknown_states_count_as_other_and_in_the_total(monque: Monque, collection: Collection) -> None:
    statuses = ["parked", None, 7, ["pending", "x"], {"a": 1}, "pending", "failed"]
    await collection.insert_many([document(status=status) for status in statuses])
    await collection.insert_one({"name": "work"})
    expected = QueueStats(pending=1, failed=1, other=6)

    assert await monque.queue_stats() == await monque.queue_stats(name="work") == expected
    [view] = await monque.queue_views()
    assert view.stats == expected
    assert view.stats.total == 8


async def test_names_that_are_not_strings_are_shown_as_strings(
    monque: Monque, collection: Collection
) -> None:
    names = [["work"], 7, None, "7", "work", {"a": 1}]
    await collection.insert_many([document(name=name) for name in names])
    views = {view.name: view.stats.pending for view in await monque.queue_views()}

    assert views == {"['work']": 1, "7": 2, "None": 1, "work": 1, "{'a': 1}": 1}
    found = {depth.name: depth.due for depth in await read_depths(monque._context().store, monque._workers)}
    assert found == views
    assert {due.name for due in (await monque.diagnose()).due} == set(views)


async def test_jobs_whose_time_is_not_a_date_are_never_due(monque: Monque, collection: Collection) -> None:
    times = ["text", None, 7, True, ObjectId(), DatetimeMS(-(2**62)), DatetimeMS(2**62), [ago(days=1)]]
    await collection.insert_many([document(nextRunAt=time) for time in times])
    [depth] = await read_depths(monque._context().store, monque._workers)

    assert (depth.due, depth.later, depth.oldest_due) == (0, len(times), timedelta(0))


async def test_the_average_skips_runs_without_two_dates(monque: Monque, collection: Collection) -> None:
    ran = {"startedAt": START, "finishedAt": START + timedelta(seconds=3)}
    await collection.insert_many(
        [document(status="completed", **{**ran, field: value}) for field in ran for value in VALUES[:-1]]
    )
    await collection.insert_one(document(status="completed", **ran))

    assert (await monque.queue_stats()).avg_processing_duration == timedelta(seconds=3)


# Unique keys and schedules


HOLDERS: list[dict[str, Any]] = [
    *({"updatedAt": value} for value in VALUES),
    *({"nextRunAt": value} for value in VALUES),
    *({"createdAt": value} for value in ("x", None, [])),
    *({"status": ["pending"]}, {"timezone": {"$gt": 1}}, {"timezone": 7}, {"_id": {"a": 1}}, {"_id": "x"}),
    *({"name": ["report"]}, {"uniqueKey": ["report"]}),
]


@pytest.mark.parametrize("running", [False, True], ids=["producer", "running"])
async def test_a_schedule_takes_over_whatever_holds_its_key(
    make_monque: Make, collection: Collection, running: bool
) -> None:
    monque = await make_monque(options=replace(QUICK, change_streams=False)).open()
    if running:
        await monque.start()
    for number, odd in enumerate(HOLDERS):
        holder = held(number, odd, repeatInterval="@daily", timezone="UTC")
        await collection.insert_one(holder)
        job = await monque.schedule("@hourly", "report", {"n": 1}, unique_key=f"key-{number}")

        assert key_of(job.id) == key_of(holder["_id"])
        stored = await find_one(collection, {"_id": {"$eq": holder["_id"]}}, {"repeatInterval": 1, "data": 1})
        assert (stored["repeatInterval"], stored["data"]) == ("@hourly", {"n": 1})
        again = await monque.schedule("@hourly", "report", {"n": 1}, unique_key=f"key-{number}")
        assert key_of(again.id) == key_of(holder["_id"])


async def test_whatever_holds_a_key_is_returned(monque: Monque, collection: Collection) -> None:
    for number, odd in enumerate(HOLDERS):
        holder = held(number, odd)
        await collection.insert_one(holder)
        one = await monque.enqueue("report", unique_key=f"key-{number}")
        [other] = await monque.enqueue_many([NewJob("report", unique_key=f"key-{number}")])

        assert key_of(one.id) == key_of(other.id) == key_of(holder["_id"])
    assert await collection.count_documents({}) == len(HOLDERS)


def held(number: int, odd: dict[str, Any], **more: Any) -> dict[str, Any]:
    """An active job with a key of its own, odd in one field."""
    key = f"key-{number}"
    basis = document(name="report", uniqueKey=key, nextRunAt=ahead(days=1), **more)
    return {**basis, **odd, "uniqueKey": [key] if "uniqueKey" in odd else key}
