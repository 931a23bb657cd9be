"""Text stays text: no name, key, filter, cursor, payload or error message becomes an operator."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from bson import Code, DBRef, Int64, MinKey, ObjectId, Regex
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from monque import (
    ConfigurationError,
    InvalidCursorError,
    InvalidJobIdentifierError,
    Job,
    JobFilter,
    JobNotFoundError,
    JobStatus,
    Monque,
    MonqueError,
    NewJob,
    PayloadError,
)
from support.aliases import Collection, Make
from support.jobs import document, find_one
from support.options import QUICK
from support.waiting import Events

# The fixtures are shared by all examples of a test, so each looks only at what it stored itself.
few = settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])

SPELLS = [
    *("$where", "$gt", "$ne", "$$NOW", "$$ROOT", "$name", "$data", "$", "$$", "$set", "$literal", "$expr"),
    *("a.b", "data.$[]", ".", "..", "status.$", "a.$gt", "_id", "__proto__", "constructor"),
    *('{"$gt": ""}', "{$ne: 1}", "[$ne]=1", "'; return true; //", "this.name == this.name", ".*", "^"),
    *("\x00", "a\x00b", "$gt\x00", "\x1b[2J", "\ufeff", "\u202e", "\ud800", "", " ", "\n"),
    *("${7*7}", "{{7*7}}", "%s%n", "__import__('os')", "é" * 400, "$" * 300, "x" * 2_000),
]
texts = st.sampled_from(SPELLS) | st.text(st.sampled_from("$.{}[]\x00_ax:\"'\\é😀"), max_size=40)

# What stands where text is meant, and would be an operator if it got through.
NO_TEXT: list[Any] = [
    {"$gt": ""},
    {"$ne": None},
    {"$where": "1"},
    {"$in": ["bystander"]},
    ["bystander"],
    ("$gt", ""),
    re.compile(".*"),
    Regex(".*"),
    MinKey(),
    b"bystander",
    7,
    1.5,
    True,
    NotImplemented,
    {},
    [],
]

leaves = st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False) | texts
payloads = st.recursive(
    leaves,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4),
    max_leaves=12,
)


async def tried(storing: Awaitable[Job[Any]], expected: type[MonqueError]) -> tuple[Job[Any] | None, Any]:
    """The job, or the error by which it was refused."""
    try:
        return await storing, None
    except expected as error:
        return None, error


def deep(levels: int) -> Any:
    value: Any = "bottom"
    for level in range(levels):
        value = {"$in": value} if level % 2 else [value]
    return value


async def enqueue(monque: Monque, data: Any, mark: str) -> Job[Any]:
    return await monque.enqueue("work", data)


async def enqueue_with_key(monque: Monque, data: Any, mark: str) -> Job[Any]:
    return await monque.enqueue("work", data, unique_key=mark)


async def enqueue_many(monque: Monque, data: Any, mark: str) -> Job[Any]:
    first, _ = await monque.enqueue_many([NewJob("work", data), NewJob("work", data, unique_key=mark)])
    return first


async def enqueue_in_a_transaction(monque: Monque, data: Any, mark: str) -> Job[Any]:
    async with monque.client.start_session() as session, await session.start_transaction():
        return await monque.enqueue("work", data, unique_key=mark, session=session)


async def schedule(monque: Monque, data: Any, mark: str) -> Job[Any]:
    return await monque.schedule("@daily", "work", data, unique_key=mark)


async def schedule_changed(monque: Monque, data: Any, mark: str) -> Job[Any]:
    """The payload comes by an update."""
    await monque.schedule("@daily", "work", "before", unique_key=mark)
    return await monque.schedule("@daily", "work", data, unique_key=mark)


FIELDS = {"_id", "name", "data", "status", "nextRunAt", "failCount", "createdAt", "updatedAt"}
OF_SCHEDULES = {"uniqueKey", "repeatInterval", "timezone"}


each_way = pytest.mark.parametrize(
    "way",
    [enqueue, enqueue_with_key, enqueue_many, enqueue_in_a_transaction, schedule, schedule_changed],
    ids=lambda way: way.__name__,
)


@each_way
@few
@given(data=payloads)
@example(data={"$set": {"status": "failed"}, "$unset": ["name"]})
@example(data={"$ref": "no", "$db": "reference"})
@example(data={"a.b": {"$[]": 1}, "": {"": "."}})
@example(data=deep(80))
@example(data=deep(95))
@example(data={"k" * 100_000: "v" * 1_000_000})
@example(data={"a\x00b": 1})
@example(data={"x" * 2_000: {"\x00": 1}})
async def test_a_payload_comes_back_as_it_was_or_is_refused(
    way: Callable[[Monque, Any, str], Awaitable[Job[Any]]], monque: Monque, collection: Collection, data: Any
) -> None:
    await collection.delete_many({})
    job, error = await tried(way(monque, data, "key"), PayloadError)
    if job is None:
        assert error.job_name == "work"
        assert len(str(error)) < 1_000
        assert await collection.count_documents({"data": {"$ne": "before"}}) == 0
        return
    stored = await collection.find_one({"_id": job.id})
    read = await monque.get_job(job.id)

    assert stored is not None
    assert stored["data"] == data
    assert FIELDS <= stored.keys() <= FIELDS | OF_SCHEDULES
    assert (stored["name"], stored["status"]) == ("work", "pending")
    assert read is not None
    assert read.data == data


@each_way
async def test_a_payload_of_any_depth_is_refused_in_words(
    way: Callable[[Monque, Any, str], Awaitable[Job[Any]]], monque: Monque, collection: Collection
) -> None:
    with pytest.raises(PayloadError, match="nested deeper than 90 levels"):
        await way(monque, deep(50_000), "key")

    assert await collection.count_documents({"data": {"$ne": "before"}}) == 0


async def test_a_handler_gets_dollars_as_they_were(monque: Monque) -> None:
    given_data = {"$where": "1", "a.b": {"$gt": ["$$NOW", "$name"]}, "": None}
    seen: list[Any] = []
    monque.worker("work", lambda job: seen.append(job.data))
    await monque.enqueue("work", given_data)
    await monque.run_until_idle()

    assert seen == [given_data]


async def test_the_one_shape_that_comes_back_as_another_is_a_reference(monque: Monque) -> None:
    """MongoDB itself says that these two keys make a DBRef; the driver reads it as one."""
    job = await monque.enqueue("work", {"$ref": "orders", "$id": 7})
    read = await monque.get_job(job.id)

    assert read is not None
    assert read.data == DBRef("orders", 7)


@few
@given(name=texts)
async def test_a_name_is_refused_or_means_exactly_itself(
    monque: Monque, collection: Collection, name: str
) -> None:
    await collection.delete_many({})
    bystander = document(name="bystander")
    await collection.insert_one(bystander)
    job, error = await tried(monque.enqueue(name), InvalidJobIdentifierError)
    if job is None:
        assert (error.field, error.value) == ("name", name)
        assert await collection.find().to_list() == [bystander]
        return
    this = JobFilter(name=name)

    assert [found.id for found in await monque.get_jobs(name=name)] == [job.id]
    assert [found.id for found in (await monque.list_jobs(this)).jobs] == [job.id]
    assert (await monque.queue_stats(name=name)).total == 1
    assert (await monque.cancel_jobs(this)).count == 1
    assert (await monque.retry_jobs(this)).count == 1
    assert (await monque.delete_jobs(this)).count == 1
    assert await collection.find().to_list() == [bystander]


@few
@given(key=texts)
async def test_a_key_is_refused_or_means_exactly_itself(
    monque: Monque, collection: Collection, key: str
) -> None:
    await collection.delete_many({})
    other = await monque.enqueue("work", 0, unique_key="bystander")
    job, error = await tried(monque.enqueue("work", 1, unique_key=key), InvalidJobIdentifierError)
    if job is None:
        assert (error.field, error.value) == ("unique_key", key)
        assert await collection.count_documents({}) == 1
        return

    again = await monque.enqueue("work", 2, unique_key=key)
    assert (job.unique_key, again.id, again.data) == (key, job.id, 1)
    assert job.id != other.id
    assert {doc["uniqueKey"] async for doc in collection.find()} == {"bystander", key}


@few
@given(name=texts)
async def test_a_filter_by_a_name_nobody_has_finds_nothing(
    monque: Monque, collection: Collection, name: str
) -> None:
    await collection.delete_many({})
    await collection.insert_many([document(name="bystander"), document(name="failed", status="failed")])
    before = await collection.find().to_list()
    try:
        this = JobFilter(name=name)
    except ConfigurationError:
        return

    assert (await monque.list_jobs(this)).jobs == []
    assert await monque.get_jobs(name=name) == []
    assert await monque.count_jobs(this) == 0
    assert (await monque.queue_stats(name=name)).total == 0
    for act in (monque.cancel_jobs, monque.retry_jobs, monque.delete_jobs):
        assert (await act(this)).count == 0
    assert await collection.find().to_list() == before


@few
@given(given_id=texts)
async def test_an_id_that_is_none_finds_nothing(
    monque: Monque, collection: Collection, given_id: str
) -> None:
    await collection.delete_many({})
    await collection.insert_one(document())
    before = await collection.find().to_list()

    assert await monque.get_job(given_id) is None
    for act in (monque.cancel_job, monque.retry_job, monque.delete_job):
        with pytest.raises(JobNotFoundError):
            await act(given_id)
    assert await collection.find().to_list() == before


@few
@given(cursor=texts | st.binary(max_size=40).map(lambda raw: raw.hex()))
async def test_a_cursor_that_we_did_not_make_is_refused(monque: Monque, cursor: str) -> None:
    with pytest.raises(InvalidCursorError) as refused:
        await monque.list_jobs(cursor=cursor)

    assert len(str(refused.value)) < 400


@few
@given(place=st.integers(0, 1000), letters=st.permutations("ABab01-_$.=+/ \x00"))
async def test_a_cursor_that_was_changed_is_refused(
    monque: Monque, collection: Collection, place: int, letters: list[str]
) -> None:
    await collection.delete_many({})
    await collection.insert_many([document() for _ in range(3)])
    cursor = (await monque.list_jobs(limit=1)).cursor
    assert cursor is not None
    at = place % len(cursor)
    other = next(letter for letter in letters if letter != cursor[at])
    with pytest.raises(InvalidCursorError):
        await monque.list_jobs(cursor=cursor[:at] + other + cursor[at + 1 :])


@pytest.mark.parametrize("wrong", NO_TEXT, ids=repr)
async def test_what_is_no_text_is_refused_where_text_is_meant(
    monque: Monque, collection: Collection, wrong: Any
) -> None:
    await collection.insert_many(
        [document(name="bystander"), document(name="bystander", status="failed", uniqueKey="k")]
    )
    before = await collection.find().to_list()
    calls: dict[str, Callable[[], Awaitable[Any]]] = {
        "job name": lambda: monque.enqueue(wrong),
        "unique key": lambda: monque.enqueue("work", unique_key=wrong),
        "name": lambda: monque.enqueue_many([NewJob("good"), NewJob(wrong)]),
        "unique": lambda: monque.enqueue_many([NewJob("good"), NewJob("good", unique_key=wrong)]),
        "must be": lambda: monque.schedule("@daily", wrong),
        "key": lambda: monque.schedule("@daily", "work", unique_key=wrong),
        "cron": lambda: monque.schedule(wrong, "work"),
        "time zone": lambda: monque.schedule("@daily", "work", timezone=wrong),
        "filter's name": lambda: monque.get_jobs(name=wrong),
        "a job name": lambda: monque.queue_stats(name=wrong),
        "filter must": lambda: monque.delete_jobs(wrong),
        "JobFilter": lambda: monque.cancel_jobs(wrong),
        "JobFilter(...)": lambda: monque.retry_jobs(wrong),
        "the filter": lambda: monque.list_jobs(wrong),
        "cursor": lambda: monque.list_jobs(cursor=wrong),
        "sort": lambda: monque.list_jobs(sort=wrong),
        "direction": lambda: monque.list_jobs(direction=wrong),
        "no job": lambda: monque.cancel_job(wrong),
        "with id": lambda: monque.delete_job(wrong),
        "id": lambda: monque.retry_job(wrong),
        "run_at": lambda: monque.enqueue("work", run_at=wrong),
        "delay": lambda: monque.enqueue("work", delay=wrong),
    }
    for names_it, call in calls.items():
        with pytest.raises(MonqueError) as refused:
            await call()
        assert isinstance(refused.value, ValueError | TypeError | LookupError)
        assert names_it in str(refused.value)
    assert await monque.get_job(wrong) is None
    assert await collection.find().to_list() == before


class Sly(str):
    """Text that says something else when it is asked."""

    def __str__(self) -> str:
        return "bystander"


@pytest.mark.parametrize("kind", [Code, Sly])
async def test_text_of_any_class_is_stored_as_plain_text(
    monque: Monque, collection: Collection, kind: type[str]
) -> None:
    """BSON would store a `Code`, which is a `str` too, as JavaScript."""
    await monque.enqueue(kind("work"), unique_key=kind("key"))
    await monque.schedule(kind("0 0 1 1 *"), kind("work"), timezone=kind("Europe/Berlin"))
    stored = await collection.find().sort("_id").to_list()

    assert [(job["name"], job["uniqueKey"]) for job in stored] == [("work", "key"), ("work", "work")]
    assert (stored[1]["repeatInterval"], stored[1]["timezone"]) == ("0 0 1 1 *", "Europe/Berlin")
    for job in stored:
        assert {type(value) for value in job.values() if isinstance(value, str)} == {str}
    assert (await monque.delete_jobs(JobFilter(name=kind("work")))).count == 2


@pytest.mark.parametrize("wrong", [wrong for wrong in NO_TEXT if wrong != ["bystander"]], ids=repr)
@pytest.mark.parametrize("field", ["name", "status", "created_after", "due_before"])
def test_what_is_no_value_of_a_filter_never_becomes_one(field: str, wrong: Any) -> None:
    with pytest.raises(ConfigurationError, match=field.partition("_")[0]):
        JobFilter(**{field: wrong})


@pytest.mark.parametrize("limit", [{"$gt": 0}, "1", 1.0, True, -1, 0, 10**30, Int64(0)])
async def test_a_limit_is_a_number(monque: Monque, limit: Any) -> None:
    for call in (monque.list_jobs, monque.get_jobs):
        with pytest.raises(ConfigurationError, match="limit"):
            await call(limit=limit)


@few
@given(message=texts.filter(lambda text: "\ud800" not in text))
async def test_the_message_of_a_failure_is_kept_as_it_is(
    make_monque: Make, collection: Collection, message: str
) -> None:
    """Once written by a pipeline (there are attempts left), once by an update (there are none)."""
    for attempts, status in ((2, JobStatus.PENDING), (1, JobStatus.FAILED)):
        await collection.delete_many({})
        options = replace(QUICK, max_retries=attempts, base_retry_interval=timedelta(hours=1))
        async with make_monque(options=options) as monque:
            job = await monque.enqueue("work")

            def fail(job: Job[None]) -> None:
                raise ValueError(message)

            monque.worker("work", fail)
            events = Events(monque)
            await monque.run_until_idle()
            await events.wait("job:fail")
            failed = await monque.get_job(job.id)

        assert failed is not None
        assert failed.status is status
        assert failed.fail_reason == (f"ValueError: {message}" if message else "ValueError")


@pytest.mark.parametrize("spell", ["$$NOW", "$name", "{$gt: 1}", "a.b"])
async def test_an_instance_id_is_text_wherever_it_is_written(
    make_monque: Make, collection: Collection, spell: str
) -> None:
    options = replace(QUICK, instance_id=spell)
    monque = await make_monque(options=options).open()
    seen: list[Any] = []
    monque.worker("work", lambda job: seen.append(job.claimed_by))
    job_id = (await monque.enqueue("work")).id
    await monque.run_until_idle()

    assert seen == [spell]
    stored = await find_one(collection, {"_id": ObjectId(job_id)})
    assert stored["status"] == "completed"
