"""`Monque.bulk`: an action on many jobs is one entry of the audit trail and one event, however it is done."""

from __future__ import annotations

import asyncio
import logging
import sys
import threading
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from bson import ObjectId

from monque import (
    OPERATIONS,
    AuditEntry,
    BulkResult,
    ConfigurationError,
    ConnectionError,
    InvalidCursorError,
    JobFilter,
    JobsCancelled,
    JobsDeleted,
    JobsRetried,
    JobStatus,
    Monque,
    NotOpenError,
    SyncMonque,
)
from monque._ops.bulk import BulkAction, Place
from monque._store.document import PARKED
from monque.embedded import EmbeddedMongo
from support.aliases import Collection, Database, Make
from support.clocks import ago, ahead
from support.filling import fill
from support.jobs import claimed, document, statuses
from support.programs.child import uri_of
from support.proxy import Proxy
from support.waiting import Events

ADA: dict[str, Any] = {"actor": "ada", "via": "web"}
FAILED = JobFilter(status="failed")


async def entries(monque: Monque) -> list[AuditEntry]:
    return (await monque.audit()).entries


async def in_pieces(
    monque: Monque, operation: str, jobs: JobFilter, *, limit: int, **more: Any
) -> list[BulkResult]:
    """Perform all pieces, each with the place that the one before gave."""
    found: list[BulkResult] = []
    while not found or found[-1].next is not None:
        assert len(found) < 100
        after = found[-1].next if found else None
        assert after is None or isinstance(after, str)
        found.append(await monque.bulk(operation, jobs, limit=limit, after=after, **more))
    return found


# One action


async def test_one_click_on_12480_jobs_in_pieces_of_500_is_one_entry_and_one_event(
    monque: Monque, database: Database, collection: Collection
) -> None:
    await fill(collection, 12_480, status="failed")
    other = document(status="completed")
    await collection.insert_one(other)
    events = Events(monque)

    pieces = await in_pieces(monque, "retry", FAILED, limit=500, note="smtp is back", **ADA)

    assert (len(pieces), sum(piece.count for piece in pieces)) == (25, 12_480)
    assert events.all == [JobsRetried(count=12_480)]
    [entry] = await entries(monque)
    assert (entry.action, entry.outcome, entry.count, entry.errors) == ("retryBulk", "done", 12_480, 0)
    assert (entry.actor, entry.via, entry.note, entry.filter) == (
        *("ada", "web", "smtp is back"),
        {"status": ["failed"]},
    )
    trail = database["monque_jobs_audit"]
    assert await trail.count_documents({"of": entry.id, "at": {"$exists": False}}) == 24
    assert await trail.count_documents({"open": True}) == 0
    for piece in pieces[::6]:
        for job_id in (piece.job_ids[0], piece.job_ids[-1]):
            assert (await monque.audit(job=job_id)).entries == [entry]
    assert (await monque.audit(job=other["_id"])).entries == []


@pytest.mark.parametrize("limit", [None, 3, 100])
@pytest.mark.parametrize("operation", OPERATIONS)
async def test_every_operation_has_its_own_entry_and_event(
    monque: Monque,
    collection: Collection,
    monkeypatch: pytest.MonkeyPatch,
    operation: str,
    limit: int | None,
) -> None:
    monkeypatch.setattr("monque._ops.bulk.PIECE", 2)
    jobs = [
        claimed("a") if status == "processing" else document(status=status, nextRunAt=ahead(hours=1))
        for status in [*JobStatus, *JobStatus]
    ]
    await collection.insert_many(jobs)
    events, chosen = Events(monque), OPERATIONS[operation]
    options: dict[str, Any] = {"prioritize": {"priority": 3}, "reschedule": {"run_at": ahead(days=1)}}.get(
        operation, {}
    )

    if limit is None:
        results = [await monque.bulk(operation, JobFilter(), **options, **ADA)]
    else:
        results = await in_pieces(monque, operation, JobFilter(), limit=limit, **options, **ADA)

    met = [job for job in jobs if chosen.applies_to is None or job["status"] in chosen.applies_to]
    changed = sum(result.count + result.requested for result in results)
    assert changed == len(met)
    assert sum(result.skipped for result in results) == (0 if limit is None else len(jobs) - len(met))
    [entry] = await entries(monque)
    assert (entry.action, entry.count, entry.errors) == (f"{operation}Bulk", len(met), 0)
    for job in jobs:
        assert (await monque.audit(job=job["_id"])).entries == ([entry] if job in met else [])
    event = chosen.event_of_many
    assert events.all == ([] if event is None else [event(count=len(met))])
    await collection.delete_many({})


async def test_without_an_actor_it_is_one_sweep_that_nobody_records(
    monque: Monque, collection: Collection
) -> None:
    await collection.insert_many(document() for _ in range(5))
    events = Events(monque)

    assert await monque.bulk("cancel", JobFilter()) == BulkResult(count=5, errors=[])

    assert events.all == [JobsCancelled(count=5)]
    assert await entries(monque) == []


async def test_pieces_without_an_actor_emit_one_event_too(monque: Monque, collection: Collection) -> None:
    await collection.insert_many(document() for _ in range(5))
    events = Events(monque)

    pieces = await in_pieces(monque, "delete", JobFilter(), limit=2)

    assert [piece.count for piece in pieces] == [2, 2, 1]
    assert events.all == [JobsDeleted(count=5)]
    assert await entries(monque) == []


async def test_an_action_that_nobody_ends_emits_nothing_and_its_entry_has_what_was_done(
    monque: Monque, collection: Collection
) -> None:
    await collection.insert_many(document() for _ in range(5))
    events = Events(monque)

    await monque.bulk("cancel", JobFilter(), limit=2, **ADA)

    assert events.all == []
    assert [entry.count for entry in await entries(monque)] == [2]


async def test_an_action_on_nothing_is_in_the_trail(monque: Monque, collection: Collection) -> None:
    await collection.insert_one(document(status="completed"))
    events = Events(monque)

    for jobs in (JobFilter(status="completed"), JobFilter(name="nobody")):
        assert await monque.bulk("retry", jobs, **ADA) == BulkResult(count=0, errors=[])

    assert [(entry.count, entry.name) for entry in await entries(monque)] == [(0, "nobody"), (0, None)]
    assert events.all == []


async def test_jobs_that_refuse_are_counted_and_have_no_entry(monque: Monque, collection: Collection) -> None:
    refusing = [document(status="failed", uniqueKey="k", _id=job_id) for job_id in (ObjectId(), {"odd": 1})]
    failed = [document(status="failed") for _ in range(3)]
    await collection.insert_many([refusing[0], *failed, refusing[1], document(uniqueKey="k")])

    pieces = await in_pieces(monque, "retry", FAILED, limit=2, **ADA)

    assert (sum(piece.count for piece in pieces), sum(len(piece.errors) for piece in pieces)) == (3, 2)
    [entry] = await entries(monque)
    assert (entry.count, entry.errors) == (3, 2)
    for job in refusing:
        assert (await monque.audit(job=job["_id"])).entries == []
    await collection.delete_many({})


async def test_ids_of_all_types_have_their_place(monque: Monque, collection: Collection) -> None:
    ids: list[Any] = [1, "text", {"a": 1}, ObjectId(), True, ago(days=1), str(ObjectId()), b"bytes", 2.5]
    await collection.insert_many(document(_id=each, status="failed") for each in ids)

    pieces = await in_pieces(monque, "delete", JobFilter(), limit=1, **ADA)

    assert [piece.count for piece in pieces] == [1] * len(ids)
    [entry] = await entries(monque)
    assert (entry.count, await monque.count_jobs()) == (9, 0)


async def test_a_group_is_recorded_by_what_it_is_called(monque: Monque, collection: Collection) -> None:
    jobs = [document(status="failed") for _ in range(3)]
    await collection.insert_many(jobs)

    await monque.bulk(
        "retry", JobFilter(ids=[job["_id"] for job in jobs]), recorded_as={"failed": "c0ffee"}, **ADA
    )

    assert [entry.filter for entry in await entries(monque)] == [{"failed": "c0ffee"}]


async def test_values_of_payloads_and_keys_in_the_filter_are_not_stored(
    monque: Monque, database: Database
) -> None:
    jobs = JobFilter(name="pay", payload={"card.number": "4242"}, unique_key="4242")

    await monque.bulk("delete", jobs, address="10.0.0.1", request_id="r-1", **ADA)

    [entry] = await entries(monque)
    assert entry.filter == {"name": "pay", "payload": {"card.number": "•••"}, "uniqueKey": "•••"}
    assert (entry.name, entry.address, entry.request_id) == ("pay", "10.0.0.1", "r-1")
    assert "4242" not in str(await database["monque_jobs_audit"].find().to_list())


async def test_the_log_has_a_line_at_the_beginning_and_the_total_at_the_end(
    monque: Monque, collection: Collection, caplog: pytest.LogCaptureFixture
) -> None:
    await collection.insert_many(document() for _ in range(7))
    caplog.set_level(logging.INFO, "monque.audit")

    await in_pieces(monque, "cancel", JobFilter(), limit=2, **ADA)

    records = [vars(record) for record in caplog.records if record.name == "monque.audit"]
    assert [(each["audit_action"], each["audit_count"]) for each in records] == [
        ("cancelBulk", 2),
        ("cancelBulk", 7),
    ]


# Under fire


async def test_a_process_that_is_killed_between_two_pieces_leaves_an_entry_with_what_it_did(
    monque: Monque, server: EmbeddedMongo, database: Database, collection: Collection
) -> None:
    jobs = [document(status="failed") for _ in range(7)]
    await collection.insert_many(jobs)

    program = ["-W", "error", "-c", _DIES_AFTER_TWO_PIECES, uri_of(server, database)]
    killed = await asyncio.create_subprocess_exec(sys.executable, *program)

    assert await asyncio.wait_for(killed.wait(), 60) == 7
    [entry] = await entries(monque)
    assert (entry.outcome, entry.count) == ("done", 4)
    assert await statuses(collection) == {"pending": 4, "failed": 3}
    for job in jobs:
        found = (await monque.audit(job=job["_id"])).entries
        is_done = await collection.count_documents({"_id": job["_id"], "status": "pending"})
        assert found == ([entry] if is_done else [])


_DIES_AFTER_TWO_PIECES = """
import os, sys
from monque import JobFilter, SyncMonque
from monque._ops import bulk

bulk.PIECE = 2

def die(result):
    if result.count == 4:
        os._exit(7)

with SyncMonque(sys.argv[1]) as monque:
    monque.bulk("retry", JobFilter(status="failed"), actor="ada", via="cli", on_piece=die)
"""


async def test_another_instance_goes_on_where_one_has_ended(
    monque: Monque, make_monque: Make, collection: Collection
) -> None:
    await collection.insert_many(document(status="failed") for _ in range(7))
    first = await make_monque().open()
    events = [Events(first), Events(monque)]
    piece = await first.bulk("retry", FAILED, limit=3, **ADA)
    await first.close()

    assert isinstance(piece.next, str)
    piece = await monque.bulk("retry", FAILED, limit=3, after=piece.next, **ADA)
    assert isinstance(piece.next, str)
    piece = await monque.bulk("retry", FAILED, limit=3, after=piece.next, **ADA)

    assert piece.next is None
    assert [each.all for each in events] == [[], [JobsRetried(count=7)]]
    assert [entry.count for entry in await entries(monque)] == [7]


async def test_two_actions_at_once_have_an_entry_each_and_share_the_jobs(
    monque: Monque, make_monque: Make, collection: Collection
) -> None:
    await collection.insert_many(document(status="failed") for _ in range(300))
    other = await make_monque().open()
    events = [Events(monque), Events(other)]

    both = await asyncio.gather(
        in_pieces(monque, "retry", FAILED, limit=7, actor="ada", via="web"),
        in_pieces(other, "retry", FAILED, limit=11, actor="eve", via="web"),
    )

    counts = {
        name: sum(piece.count for piece in pieces) for name, pieces in zip(("ada", "eve"), both, strict=True)
    }
    assert sum(counts.values()) == 300
    assert {entry.actor: entry.count for entry in await entries(monque)} == counts
    expected = [[JobsRetried(count=count)] if count else [] for count in counts.values()]
    assert [each.all for each in events] == expected


async def test_a_piece_that_is_sent_many_times_at_once_is_counted_once(
    monque: Monque, database: Database, collection: Collection
) -> None:
    """A double click, or a client that gave up waiting and asks again while the first request goes on."""
    await collection.insert_many(document(status="failed") for _ in range(6))
    piece = await monque.bulk("retry", FAILED, limit=2, **ADA)
    assert isinstance(piece.next, str)

    again = await asyncio.gather(
        *(monque.bulk("retry", FAILED, limit=2, after=piece.next, **ADA) for _ in range(8))
    )

    assert sum(each.count for each in again) >= 2
    changed = await collection.count_documents({"status": "pending"})
    assert [entry.count for entry in await entries(monque)] == [changed]


async def test_pieces_that_store_the_entry_at_once_store_one(monque: Monque) -> None:
    """The entry of the first piece was lost, and several requests come with its place.

    The server refuses some of these upserts as duplicates, in one of six rounds or so.
    """
    trail = monque._opening.here().context.companions.audit
    piece = {**ADA, "action": "retryBulk", "outcome": "done", "count": 1}

    for _ in range(20):
        entry_id = ObjectId()
        await asyncio.gather(*(trail.add(entry_id, piece, is_open=True) for _ in range(60)))

    assert [entry.count for entry in await entries(monque)] == [60] * 20


async def test_the_last_piece_sent_again_emits_no_second_event(
    monque: Monque, collection: Collection
) -> None:
    await collection.insert_many(document(status="failed") for _ in range(3))
    events = Events(monque)
    piece = await monque.bulk("retry", FAILED, limit=2, **ADA)
    assert isinstance(piece.next, str)

    for _ in range(3):
        assert (await monque.bulk("retry", FAILED, limit=2, after=piece.next, **ADA)).next is None

    assert events.all == [JobsRetried(count=3)]
    assert [entry.count for entry in await entries(monque)] == [3]


async def test_nobody_adds_to_the_entry_of_somebody_else(monque: Monque, collection: Collection) -> None:
    """The seal of a place is no secret: whoever reads the code can write a place with any entry in it."""
    await collection.insert_many(document(status="failed") for _ in range(4))
    await monque.bulk("retry", FAILED, limit=2, **ADA)
    [of_ada] = await entries(monque)
    eve = BulkAction(operation=OPERATIONS["retry"], jobs=FAILED, options={}, actor="eve")
    forged = eve.with_place(BulkResult(count=0, errors=[], next=ObjectId()), Place(1, of_ada.id, 1_000)).next
    assert isinstance(forged, str)

    await monque.bulk("retry", FAILED, limit=1, after=forged, actor="eve", via="web")

    found = {entry.actor: entry for entry in await entries(monque)}
    assert found["ada"] == of_ada
    assert found["eve"].count == 1


async def test_a_place_with_the_entry_of_another_action_gets_an_entry_of_its_own(
    monque: Monque, collection: Collection
) -> None:
    await collection.insert_many(document(status="failed") for _ in range(4))
    await monque.record_action(**ADA, action="cancel", outcome="refused")
    [refused] = await entries(monque)
    ada = BulkAction(operation=OPERATIONS["retry"], jobs=FAILED, options={}, actor="ada")
    forged = ada.with_place(BulkResult(count=0, errors=[], next=ObjectId()), Place(1, refused.id, 0)).next
    assert isinstance(forged, str)

    await monque.bulk("retry", FAILED, limit=10, after=forged, **ADA)

    newest, oldest = await entries(monque)
    assert oldest == refused
    assert (newest.action, newest.count) == ("retryBulk", 4)


async def test_a_refused_trail_costs_the_entry_and_not_the_action(
    monque: Monque,
    database: Database,
    collection: Collection,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The log has each piece that the trail lacks. Once the trail takes entries again, the rest is in one."""
    await collection.insert_many(document(status="failed") for _ in range(9))
    await database.create_collection("monque_jobs_audit", viewOn="monque_jobs", pipeline=[])
    caplog.set_level(logging.INFO, "monque.audit")
    events = Events(monque)

    piece = await monque.bulk("retry", FAILED, limit=2, **ADA)
    assert isinstance(piece.next, str)
    piece = await monque.bulk("retry", FAILED, limit=2, after=piece.next, **ADA)
    assert caplog.text.count("cannot write to the audit trail") == 1
    assert caplog.text.count("action='retryBulk'") == 2
    await database.drop_collection("monque_jobs_audit")
    monkeypatch.setattr("monque._ops.audit._REST", 0)
    while piece.next is not None:
        assert isinstance(piece.next, str)
        piece = await monque.bulk("retry", FAILED, limit=2, after=piece.next, **ADA)

    assert await statuses(collection) == {"pending": 9}
    assert events.all == [JobsRetried(count=9)]
    assert [entry.count for entry in await entries(monque)] == [5]


# What changed meanwhile


async def test_what_changed_since_is_left_alone(monque: Monque, collection: Collection) -> None:
    as_of = ago(minutes=1)
    old = document(status="failed", updatedAt=ago(hours=1))
    await collection.insert_many([old, document(status="failed")])

    pieces = await in_pieces(monque, "retry", FAILED, limit=1, as_of=as_of, **ADA)

    assert sum(piece.count for piece in pieces) == 1
    assert await collection.count_documents({"_id": old["_id"], "status": "pending"}) == 1


async def test_running_jobs_go_by_their_claim(monque: Monque, collection: Collection) -> None:
    """Heartbeats move their update time."""
    old = claimed("a", claimedAt=ago(minutes=5), updatedAt=ahead(seconds=1))
    new, unknown = claimed("a", claimedAt=ago(seconds=1)), claimed("a")
    await collection.insert_many([old, new, unknown, document(updatedAt=ago(hours=1))])

    result = await monque.bulk("delete", JobFilter(), as_of=ago(minutes=1), **ADA)

    assert result.count == 2
    assert {job["_id"] async for job in collection.find()} == {new["_id"], unknown["_id"]}
    await collection.delete_many({})


# Operations on many that had none


async def test_a_stop_counts_those_that_nobody_had_asked_before(
    monque: Monque, collection: Collection
) -> None:
    asked = claimed("a", cancel={"at": ago(minutes=1), "by": "operator"})
    await collection.insert_many([asked, claimed("a"), claimed("a"), document()])

    result = await monque.bulk("stop", JobFilter(), note="wrong customer", **ADA)

    assert (result.count, result.requested) == (0, 2)
    assert [entry.count for entry in await entries(monque)] == [2]
    assert await collection.count_documents({"cancel.reason": "wrong customer"}) == 2
    await collection.delete_many({})


async def test_many_jobs_are_moved_to_another_time(monque: Monque, collection: Collection) -> None:
    await collection.insert_many([*(document() for _ in range(3)), document(status="failed")])
    at = datetime(2040, 1, 1, tzinfo=UTC)

    assert (await monque.bulk("reschedule", JobFilter(), run_at=at)).count == 3

    assert await collection.count_documents({"status": "pending", "nextRunAt": at}) == 3


async def test_many_jobs_run_now_and_schedules_among_them_are_triggered(
    monque: Monque, collection: Collection
) -> None:
    """A job that is due, and one that waits for no time, stay as they are."""
    later, due, parked = (document(nextRunAt=at) for at in (ahead(hours=1), ago(hours=1), PARKED))
    await collection.insert_many([later, due, parked])
    schedule = await monque.schedule("@yearly", "report")
    of_jobs = await monque.schedule("@yearly", "extra", as_jobs=True)

    result = await monque.bulk("run-now", JobFilter(), **ADA)

    assert result.count == 3
    now = {job["_id"]: job async for job in collection.find()}
    assert now[later["_id"]]["nextRunAt"] < ahead(minutes=1)
    assert (now[due["_id"]], now[parked["_id"]]) == (due, parked)
    assert now[schedule.id]["nextRunAt"] < ahead(minutes=1)
    assert await collection.count_documents({"scheduleId": of_jobs.id}) == 1
    await collection.delete_many({})


# Pieces as they end


@pytest.mark.parametrize("is_async", [True, False])
async def test_each_piece_is_told_with_what_was_done_so_far(
    monque: Monque, collection: Collection, monkeypatch: pytest.MonkeyPatch, is_async: bool
) -> None:
    monkeypatch.setattr("monque._ops.bulk.PIECE", 2)
    await collection.insert_many([*(document(status="failed") for _ in range(5)), document()])
    told: list[int] = []

    async def tell_later(result: BulkResult) -> None:
        await asyncio.sleep(0)
        told.append(result.count)

    result = await monque.bulk(
        "retry", JobFilter(), on_piece=tell_later if is_async else lambda so_far: told.append(so_far.count)
    )

    assert told == [2, 4, 5]
    assert (result.count, result.next, result.job_ids, result.skipped) == (5, None, [], 0)


async def test_an_error_of_on_piece_ends_the_action_after_that_piece(
    monque: Monque, collection: Collection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("monque._ops.bulk.PIECE", 2)
    await collection.insert_many(document(status="failed") for _ in range(5))
    events = Events(monque)

    def refuse(result: BulkResult) -> None:
        raise RuntimeError("no more")

    with pytest.raises(RuntimeError, match="no more"):
        await monque.bulk("retry", FAILED, on_piece=refuse, **ADA)

    assert events.all == [JobsRetried(count=2)]
    [entry] = await entries(monque)
    assert (entry.outcome, entry.count, entry.note) == ("failed", 2, None)
    assert await statuses(collection) == {"pending": 2, "failed": 3}


@pytest.mark.parametrize("limit", [None, 5])
async def test_an_error_of_on_piece_after_the_last_piece_does_not_make_a_done_action_a_failed_one(
    monque: Monque, collection: Collection, limit: int | None
) -> None:
    await collection.insert_many(document(status="failed") for _ in range(5))
    events = Events(monque)

    def refuse(result: BulkResult) -> None:
        raise RuntimeError("the terminal is gone")

    with pytest.raises(RuntimeError, match="the terminal is gone"):
        await monque.bulk("retry", FAILED, on_piece=refuse, limit=limit, **ADA)

    assert events.all == [JobsRetried(count=5)]
    [entry] = await entries(monque)
    assert (entry.outcome, entry.count) == ("done", 5)
    assert await statuses(collection) == {"pending": 5}


def test_blocking_code_hears_of_pieces_in_its_own_thread(server: EmbeddedMongo, database: Database) -> None:
    heard: list[threading.Thread] = []
    with SyncMonque(uri_of(server, database)) as monque:
        monque.enqueue("work", delay=timedelta(hours=1))

        def hear(result: BulkResult) -> None:
            heard.append(threading.current_thread())
            assert monque.count_jobs() == 1  # which needs the loop of the other thread

        result = monque.bulk("cancel", JobFilter(), on_piece=hear, actor="ada", via="cli", note="why")

        assert (result.count, heard) == (1, [threading.current_thread()])
        [entry] = monque.audit().entries
        assert (entry.action, entry.note) == ("cancelBulk", "why")


async def test_in_an_outage_the_error_does_not_wait_long_for_the_trail(
    make_monque: Make, collection: Collection
) -> None:
    async with Proxy(await collection.database.client.address) as proxy:
        uri = proxy.uri(collection.database.name, "serverSelectionTimeoutMS=500")
        monque = await make_monque(uri).open()
        await proxy.cut()

        async with asyncio.timeout(4):  # the trail alone would take 5 s
            with pytest.raises(ConnectionError):
                await monque.bulk("retry", FAILED, **ADA)


# What is refused


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"operation": "expedite"}, "operation must be one of run-now, retry, "),
        ({"operation": 7}, "operation must be one of"),
        ({"filter": None}, r"must be a JobFilter\(\.\.\.\)"),
        ({"actor": "ada"}, "actor and via belong together"),
        ({"via": "web"}, "actor and via belong together"),
        ({"limit": 0}, "limit must be"),
        ({"after": "x"}, "it needs a limit"),
        ({"as_of": "now"}, "as_of must be an aware datetime"),
        ({"on_piece": 7}, "on_piece must be a function"),
        ({"note": " "}, "reason must be text"),
        ({"note": 7, **ADA}, "reason must be text"),
        ({"spread": timedelta(1)}, "spread is no option of delete"),
        ({"operation": "reschedule"}, "reschedule needs run_at"),
    ],
    ids=str,
)
async def test_what_makes_no_sense_is_refused(
    monque: Monque, collection: Collection, wrong: dict[str, Any], message: str
) -> None:
    await collection.insert_one(document())
    given: dict[str, Any] = {"operation": "delete", "filter": JobFilter(), **wrong}

    with pytest.raises(ConfigurationError, match=message):
        await monque.bulk(**given)

    assert await statuses(collection) == {"pending": 1}


async def test_what_was_wrong_with_an_action_is_in_the_trail_without_what_was_given(
    monque: Monque,
) -> None:
    with pytest.raises(ConfigurationError):
        await monque.bulk("prioritize", JobFilter(), priority=99, note="urgent", **ADA)

    [entry] = await entries(monque)
    assert (entry.outcome, entry.count) == ("failed", None)
    assert entry.note == "urgent what was given cannot be used"


async def test_a_place_belongs_to_one_action_of_one_actor(monque: Monque, collection: Collection) -> None:
    await collection.insert_many(document() for _ in range(3))
    place = (await monque.bulk("cancel", JobFilter(), limit=1, **ADA)).next
    assert isinstance(place, str)

    others: list[dict[str, Any]] = [
        {"operation": "delete", **ADA},
        {"operation": "cancel", "actor": "eve", "via": "web"},
        {"operation": "cancel", "as_of": ago(days=1), **ADA},
        {"operation": "cancel"},
    ]
    for other in others:
        with pytest.raises(InvalidCursorError, match="does not belong to this action"):
            await monque.bulk(filter=JobFilter(), limit=1, after=place, **other)
    for changed in (place[1:], place + "x", "", str(ObjectId())):
        with pytest.raises(InvalidCursorError):
            await monque.bulk("cancel", JobFilter(), limit=1, after=changed, **ADA)

    assert await statuses(collection) == {"pending": 2, "cancelled": 1}


async def test_a_monque_that_is_not_open_says_so(make_monque: Make) -> None:
    with pytest.raises(NotOpenError):
        await make_monque().bulk("delete", JobFilter(), **ADA)
