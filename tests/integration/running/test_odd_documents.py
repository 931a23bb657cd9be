"""Documents that other programs wrote, one kind at a time: claimed, left alone, or logged."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partialmethod
from typing import Any

import bson
import pytest
from bson import Binary, Code, Decimal128, Int64, MaxKey, MinKey, ObjectId, Timestamp
from bson.datetime_ms import DatetimeMS
from bson.dbref import DBRef
from bson.raw_bson import RawBSONDocument
from pymongo import AsyncMongoClient
from pymongo.asynchronous.collection import AsyncCollection

from monque import Fail, Job, Monque
from monque._store.choose import Choice
from monque._store.document import key_of
from monque._store.hints import Hint, Watch
from monque.embedded import EmbeddedMongo
from support.aliases import Collection, Database, Make
from support.clocks import ago
from support.jobs import claimed, document, find_one
from support.options import QUICK
from support.traffic import Traffic
from support.waiting import Events, eventually

STREAMLESS = replace(QUICK, change_streams=False, poll_interval=timedelta(milliseconds=100))
SLOW_TO_POLL = replace(QUICK, safety_poll_interval=timedelta(minutes=10))
IDS: list[Any] = [
    *({"tenant": 7, "number": 1}, {}, {"at": datetime(2030, 1, 1, tzinfo=UTC)}, DBRef("orders", 7)),
    *("text", "", "0" * 24, 7, 1.5, float("nan"), Int64(2**40), Decimal128("2.5"), True, False, None),
    *(b"bytes", Binary(b"x", 128), datetime(2030, 1, 1, tzinfo=UTC), Timestamp(1, 1), Code("x")),
    *(MinKey(), MaxKey()),
]


@pytest.fixture
def ran() -> list[Any]:
    return []


@pytest.fixture
def make(make_monque: Make, ran: list[Any]) -> Make:
    """An instance whose worker notes the payloads that it was given."""

    def make(**kwargs: Any) -> Monque:
        monque = make_monque(**kwargs)
        monque.worker("work", lambda job: ran.append(job.data), concurrency=200)
        return monque

    return make


def complaints(caplog: pytest.LogCaptureFixture) -> Counter[str]:
    """How many lines were logged about each job."""
    return Counter(
        str(vars(record)["job_id"]) for record in caplog.records if "cannot be claimed" in record.msg
    )


class Polls(Traffic):
    """Counts the polls of one collection."""

    @property
    def count(self) -> int:
        return sum(
            command["filter"].get("status") == "pending" for command in self.commands if "find" in command
        )


# Names and times that are arrays


@pytest.mark.parametrize("field", ["name", "nextRunAt"])
@pytest.mark.parametrize("count", [1, 300])
async def test_documents_with_an_array_are_left_alone_and_keep_no_job_from_running(
    make: Make,
    collection: Collection,
    ran: list[Any],
    caplog: pytest.LogCaptureFixture,
    field: str,
    count: int,
) -> None:
    """They match the query for due jobs, are the oldest, and more than one poll reads."""
    array = {"name": ["work", "other"], "nextRunAt": [ago(days=2), ago(days=1)]}[field]
    odd = [document(**{"nextRunAt": ago(days=1), field: array}) for _ in range(count)]
    await collection.insert_many(odd)
    await collection.insert_many([document(data=number) for number in range(100)])
    monque = await make().open()
    events = Events(monque)
    await monque.start()
    await events.wait("job:complete", 100)

    assert sorted(ran) == list(range(100))
    assert monque.is_healthy()
    assert await collection.count_documents({"status": "pending"}) == count
    assert set(complaints(caplog).values()) == {1}
    assert set(complaints(caplog)) <= {str(doc["_id"]) for doc in odd}
    await collection.delete_many({"status": "pending"})


async def test_a_single_document_with_an_array_does_not_cause_a_busy_loop_of_polls(
    server: EmbeddedMongo, database: Database, collection: Collection
) -> None:
    await collection.insert_many([document(name=["work"]), document(nextRunAt=[ago(days=1)])])
    await idle_for_a_while(server, database)
    await collection.delete_many({})


async def idle_for_a_while(server: EmbeddedMongo, database: Database) -> None:
    """Run an instance past a hundred poll intervals' worth of chances to poll without pause."""
    polls = Polls()
    async with AsyncMongoClient[dict[str, Any]](server.uri, event_listeners=[polls]) as client:
        monque = Monque(client[database.name], options=STREAMLESS)
        monque.worker("work", lambda job: None)
        async with monque:
            await monque.start()
            await eventually(lambda: _at_least(polls, 3))
            before, began = polls.count, asyncio.get_running_loop().time()
            await eventually(lambda: _at_least(polls, before + 5))
            took = asyncio.get_running_loop().time() - began
            assert took > 0.2, "five polls came faster than two poll intervals"
            assert monque.is_healthy()


def _at_least(polls: Polls, count: int) -> None:
    assert polls.count >= count


# Ids of other kinds


@pytest.mark.parametrize("options", [STREAMLESS, SLOW_TO_POLL], ids=["polling", "change stream"])
async def test_jobs_with_any_kind_of_id_run_like_other_jobs(
    make: Make, collection: Collection, ran: list[Any], options: Any
) -> None:
    monque = await make(options=options).open()
    events = Events(monque)
    await monque.start()
    if options.change_streams:
        await events.wait("changestream:connected")
    await collection.insert_many([document(_id=_id, data=place) for place, _id in enumerate(IDS)])
    completions = await events.wait("job:complete", len(IDS))

    assert sorted(ran) == list(range(len(IDS)))
    assert {key_of(event.job.id) for event in completions} == {key_of(_id) for _id in IDS}
    assert await collection.count_documents({"status": "completed"}) == len(IDS)


@pytest.mark.parametrize("_id", IDS, ids=repr)
async def test_a_single_job_with_any_kind_of_id_runs(
    make: Make, collection: Collection, ran: list[Any], _id: Any
) -> None:
    await collection.insert_one(document(_id=_id, data="x"))
    await (await make().open()).run_until_idle()

    assert ran == ["x"]
    assert await collection.count_documents({"status": "completed"}) == 1


async def test_jobs_with_any_kind_of_id_are_tried_again_when_they_fail(
    make_monque: Make, collection: Collection
) -> None:
    monque = await make_monque(options=replace(STREAMLESS, max_retries=2)).open()

    @monque.worker("work", concurrency=50)
    async def fails(job: Job[Any]) -> None:
        raise ValueError("no")

    await collection.insert_many([document(_id=_id) for _id in IDS])
    events = Events(monque)
    await monque.start()
    failures = await events.wait("job:fail", 2 * len(IDS))

    assert Counter(event.job.fail_count for event in failures) == {1: len(IDS), 2: len(IDS)}
    assert await collection.count_documents({"status": "failed", "failCount": 2}) == len(IDS)


async def test_jobs_with_any_kind_of_id_are_kept_alive_and_recovered(
    make_monque: Make, collection: Collection
) -> None:
    brisk = replace(
        STREAMLESS,
        heartbeat_interval=timedelta(milliseconds=50),
        heartbeat_tolerance=timedelta(seconds=1),
    )
    monque = await make_monque(options=brisk).open()
    started, go_on = asyncio.Event(), asyncio.Event()
    count = 0

    @monque.worker("work", concurrency=50)
    async def waits(job: Job[Any]) -> None:
        nonlocal count
        count += 1
        if count == len(IDS):
            started.set()
        await go_on.wait()

    dead = {"lastHeartbeat": ago(hours=1), "lockedAt": ago(hours=1), "heartbeatInterval": 100}
    await collection.insert_many([claimed("dead", _id=_id, **dead) for _id in IDS])
    events = Events(monque)
    await monque.start()
    async with asyncio.timeout(20):
        await started.wait()
    claimed_at = datetime.now(UTC)

    async def alive() -> None:
        beats = [job["lastHeartbeat"] async for job in collection.find({"status": "processing"})]
        assert len(beats) == len(IDS)
        assert min(beats) > claimed_at

    await eventually(alive)
    go_on.set()
    await events.wait("job:complete", len(IDS))
    assert not events.of("job:lost")


async def test_a_schedule_with_a_compound_id_goes_on(
    make: Make, collection: Collection, ran: list[Any]
) -> None:
    schedule = document(_id={"a": 1}, repeatInterval="@yearly", timezone="UTC", uniqueKey="k", data="x")
    await collection.insert_one(schedule)
    await (await make().open()).run_until_idle()
    after = await collection.find_one({"_id": {"a": 1}})

    assert ran == ["x"]
    assert after is not None
    assert (after["status"], after["nextRunAt"] > schedule["nextRunAt"]) == ("pending", True)


async def test_an_id_that_python_cannot_represent_is_left_alone_and_reported_once(
    server: EmbeddedMongo,
    database: Database,
    collection: Collection,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Its date is beyond the year 9999, so that no query of ours can match it."""
    await collection.insert_many([document(_id=DatetimeMS(2**62)), document(_id={"a": DatetimeMS(2**62)})])
    monque = Monque(database, options=STREAMLESS)
    monque.worker("work", lambda job: None)
    async with monque:
        await monque.start()
        await eventually(lambda: _reported(caplog, 2), within=20)
        assert monque.is_healthy()
        good = await monque.enqueue("work")
        await eventually(lambda: _completed(monque, good.id))
    await collection.delete_many({"status": "pending"})


async def test_a_stream_opens_although_its_first_answer_has_an_id_that_the_driver_refuses_to_decode(
    make: Make, collection: Collection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A change that is stored while the stream is opened. Here the driver asks for one of just before."""
    store = (await make().open())._context().store
    async with collection.database.client.start_session() as session:
        await collection.insert_one(document(_id=Binary(b"short", 4)), session=session)
        just_before = partialmethod(AsyncCollection.watch, start_at_operation_time=session.operation_time)
    with monkeypatch.context() as patch:
        patch.setattr(AsyncCollection, "watch", just_before)
        watch = await Watch.open(store)
    hint = await anext(watch.hints())
    await watch.close()
    await collection.delete_many({})

    assert hint == Hint(name=None, run_at=None)


async def test_a_job_that_other_instances_claim_each_time_is_not_reported(
    make: Make, collection: Collection, caplog: pytest.LogCaptureFixture
) -> None:
    await collection.insert_one(document(_id="text", status="completed"))
    claimer = (await make().open())._context().store.claimer
    for _ in range(10):
        await claimer._examine_misses(["text", ObjectId()], [])
    assert complaints(caplog) == {}

    for _ in range(10):
        await claimer._examine_misses(["unreachable"], [])
    assert complaints(caplog) == {"unreachable": 1}


def _reported(caplog: pytest.LogCaptureFixture, count: int) -> None:
    assert sorted(complaints(caplog).values()) == [1] * count


async def _completed(monque: Monque, job_id: Any) -> None:
    job = await monque.get_job(job_id)
    assert job is not None
    assert job.status == "completed"


# Jobs that the server refuses to change


REFUSED: list[dict[str, Any]] = [{"attempt": "three"}, {"attempt": Int64(2**63 - 1)}]


@pytest.mark.parametrize("fields", REFUSED, ids=repr)
@pytest.mark.parametrize("others", [0, 50])
async def test_a_job_that_the_server_refuses_to_change_runs_once_it_is_repaired(
    make: Make,
    collection: Collection,
    ran: list[Any],
    caplog: pytest.LogCaptureFixture,
    fields: dict[str, Any],
    others: int,
) -> None:
    refused = document(data="refused", nextRunAt=ago(days=1), **fields)
    await collection.insert_one(refused)
    if others:
        await collection.insert_many([document(data="other") for _ in range(others)])
    monque = await make(options=SLOW_TO_POLL).open()
    events = Events(monque)
    await monque.start()
    await events.wait("job:complete", others)
    await eventually(lambda: _reported(caplog, 1))
    assert monque.is_healthy()

    await collection.update_one({"_id": refused["_id"]}, {"$set": {"attempt": 1}})
    await events.wait("job:complete", others + 1)
    assert monque.is_healthy()
    assert Counter(ran) == Counter({"refused": 1, "other": others})
    assert not events.of("job:error")
    _reported(caplog, 1)


async def test_no_other_job_waits_for_a_job_that_the_server_refuses_to_change(
    make: Make, collection: Collection, ran: list[Any]
) -> None:
    await collection.insert_many([document(attempt="three"), document(data="good")])
    monque = await make().open()
    async with asyncio.timeout(10):
        await monque.run_until_idle()

    assert ran == ["good"]
    await collection.delete_many({"status": "pending"})


async def test_refused_jobs_do_not_cause_a_busy_loop_of_polls(
    server: EmbeddedMongo, database: Database, collection: Collection
) -> None:
    await collection.insert_many([document(attempt="three") for _ in range(3)])
    await idle_for_a_while(server, database)
    await collection.delete_many({})


# Jobs that are claimed and cannot be a claim


UNCLAIMABLE: list[Any] = [Decimal128("1"), 1.5, float("nan"), 2.0**60]


@pytest.mark.parametrize("attempt", UNCLAIMABLE, ids=repr)
@pytest.mark.parametrize("others", [0, 50])
async def test_a_job_whose_run_could_not_be_settled_is_put_back_and_runs_once_it_is_repaired(
    make: Make,
    collection: Collection,
    ran: list[Any],
    caplog: pytest.LogCaptureFixture,
    attempt: Any,
    others: int,
) -> None:
    odd = document(data="odd", nextRunAt=ago(days=1), attempt=attempt)
    await collection.insert_many([odd, *(document(data="other") for _ in range(others))])
    monque = await make(options=SLOW_TO_POLL).open()
    events = Events(monque)
    await monque.start()
    await events.wait("job:complete", others)
    await eventually(lambda: _reported(caplog, 1))
    put_back = await find_one(collection, {"_id": odd["_id"]})
    assert (put_back["status"], "claimedBy" in put_back, "settledAttempt" in put_back) == (
        *("pending", False, False),
    )
    assert monque.is_healthy()

    await collection.update_one({"_id": odd["_id"]}, {"$set": {"attempt": 1}})
    await events.wait("job:complete", others + 1)
    assert Counter(ran) == Counter({"odd": 1, "other": others})
    assert not events.of("job:error")
    _reported(caplog, 1)


@pytest.mark.parametrize(
    ("change", "reports"), [({"name": 7}, 0), ({"nextRunAt": 5}, 1)], ids=["name", "nextRunAt"]
)
@pytest.mark.parametrize("count", [1, 3])
async def test_a_job_that_was_changed_between_choice_and_claim_is_put_back_or_never_claimed(
    make: Make,
    collection: Collection,
    caplog: pytest.LogCaptureFixture,
    change: dict[str, Any],
    reports: int,
    count: int,
) -> None:
    """A claim asks for the name, which is the shard key: one that is another by then does not match."""
    await collection.insert_many([document() for _ in range(count)])
    claimer = (await make().open())._context().store.claimer
    chosen = [doc["_id"] async for doc in collection.find()]
    await collection.update_one({"_id": chosen[0]}, {"$set": change})

    names = frozenset({"work"})
    claims = await claimer._take(Choice(chosen, names, None, more=False, backlog=False), ())

    assert {claim.id for claim in claims} == set(chosen[1:])
    assert await collection.count_documents({"_id": chosen[0], "status": "pending", "claimedBy": None}) == 1
    assert complaints(caplog) == ({str(chosen[0]): 1} if reports else {})
    await collection.delete_many({})


async def test_jobs_that_are_put_back_do_not_cause_a_busy_loop_of_polls(
    server: EmbeddedMongo, database: Database, collection: Collection
) -> None:
    await collection.insert_many([document(attempt=1.5) for _ in range(3)])
    await idle_for_a_while(server, database)
    await collection.delete_many({})


@pytest.mark.parametrize("attempt", [2.0, Int64(2)], ids=repr)
async def test_any_whole_number_of_attempts_is_counted_on(
    make: Make, collection: Collection, ran: list[Any], attempt: Any
) -> None:
    odd = document(data="x", attempt=attempt)
    await collection.insert_one(odd)
    await (await make().open()).run_until_idle()

    assert ran == ["x"]
    assert await collection.count_documents({"status": "completed", "attempt": 3, "settledAttempt": 3}) == 1


# Bytes that are not text


async def test_bytes_that_are_not_utf8_harm_no_other_job(
    make: Make, collection: Collection, ran: list[Any]
) -> None:
    broken = [
        broken_text(document(data="BROKEN")),
        broken_text(document(name="BROKEN")),
        broken_text(document(failReason="BROKEN")),
        broken_text(claimed("BROKEN", lastHeartbeat=ago(hours=1), heartbeatInterval=100)),
    ]
    await collection.insert_many(broken)
    await collection.insert_one(document(data="good"))
    monque = await make(options=STREAMLESS).open()
    await monque.run_until_idle()

    assert "good" in ran
    assert len([job async for job in monque.iter_jobs()]) == 5
    assert monque.is_healthy() is False  # not started
    await collection.delete_many({})


@pytest.mark.parametrize("count", [1, 3])
async def test_a_job_that_the_driver_refuses_to_decode_is_put_back_and_runs_once_it_is_repaired(
    make: Make, collection: Collection, ran: list[Any], caplog: pytest.LogCaptureFixture, count: int
) -> None:
    """Alone and beside others: in a batch, one wrong value fails the whole answer."""
    odd = [wrong_length(document(data=b"LENGTH!")), document(data={"others": Binary(b"abc", 4)})][:count]
    await collection.insert_many([*odd, *(document(data="good") for _ in range(count - 1))])
    monque = await make(options=STREAMLESS).open()
    events = Events(monque)
    await monque.start()
    await events.wait("job:complete", count - 1)
    await eventually(lambda: _put_back(collection, len(odd)))
    assert monque.is_healthy()
    assert ran == ["good"] * (count - 1)

    await collection.update_many({"status": "pending"}, {"$set": {"data": "repaired"}})
    await events.wait("job:complete", count - 1 + len(odd))
    assert Counter(ran) == Counter({"good": count - 1, "repaired": len(odd)})
    assert not events.of("job:error")
    lines = Counter(vars(each)["job_id"] for each in caplog.records if "does not decode" in each.msg)
    assert set(lines.values()) == {1}
    assert len(lines) == len(odd)


async def _put_back(collection: Collection, count: int) -> None:
    refused = {"status": "pending", "attempt": {"$gte": 1}, "claimedBy": None}
    assert await collection.count_documents(refused) == count


async def test_jobs_whose_ids_cannot_be_decoded_take_no_places_of_others(
    make: Make, collection: Collection, ran: list[Any]
) -> None:
    """They are the oldest, and more than one poll reads."""
    odd = [Binary(number.to_bytes(2, "big"), 4) for number in range(300)]
    await collection.insert_many([document(_id=_id, nextRunAt=ago(days=1)) for _id in odd])
    await collection.insert_many([document(data=number) for number in range(100)])
    monque = make()
    monque.worker("other", lambda job: None)
    await (await monque.open()).run_until_idle()

    assert sorted(ran) == list(range(100))
    assert await collection.count_documents({"status": "pending"}) == len(odd)
    await collection.delete_many({"status": "pending"})


async def test_a_job_that_cannot_be_decoded_any_more_when_it_ends_is_settled_all_the_same(
    make_monque: Make, collection: Collection
) -> None:
    monque = await make_monque(options=STREAMLESS).open()

    @monque.worker("work", concurrency=10)
    async def spoils(job: Job[Any]) -> None:
        await collection.update_one({"_id": job.id}, {"$set": {"note": Binary(b"abc", 4)}})
        if job.data == "fails":
            raise Fail("no")

    await collection.insert_many([document(data=data) for data in ("fails", "works") * 3])
    events = Events(monque)
    await monque.run_until_idle()

    assert len(events.of("job:complete")) == len(events.of("job:fail")) == 3
    assert {event.job.status for event in events.of("job:fail")} == {"failed"}
    assert not events.of("job:lost")
    assert await collection.count_documents({"status": "completed"}) == 3
    assert await collection.count_documents({"status": "failed", "failReason": "no"}) == 3
    await collection.delete_many({})


def wrong_length(doc: dict[str, Any]) -> RawBSONDocument:
    """As a binary of the subtype 2, whose first four bytes should be its length."""
    return RawBSONDocument(bson.encode(doc).replace(b"\x00LENGTH!", b"\x02LENGTH!"))


def broken_text(doc: dict[str, Any]) -> RawBSONDocument:
    return RawBSONDocument(bson.encode(doc).replace(b"BROKEN", b"BR\xff\xfeEN"))


def test_equal_keys_mean_equal_ids() -> None:
    keys = [key_of(_id) for _id in [*IDS, 1, "1", ObjectId("0" * 24), Code("text")]]

    assert len(set(keys)) == len(keys)
    assert key_of(ObjectId("0" * 24)) == b"\0" * 12


@pytest.fixture(autouse=True)
def logging_on(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "monque")
