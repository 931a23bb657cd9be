"""Management while the server fails: time limits, writes in doubt, connections that break."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import pytest
from bson import ObjectId
from pymongo import AsyncMongoClient
from pymongo.errors import ExecutionTimeout

from monque import (
    AggregationTimeoutError,
    ConnectionError,
    JobFilter,
    JobNotFoundError,
    JobsCancelled,
    Monque,
    ReadTimeoutError,
)
from support.aliases import Database
from support.clocks import ahead
from support.jobs import document
from support.servers import Servers, failing
from support.traffic import Traffic
from support.waiting import Events

APP = "managed"
UNAUTHORIZED = 13


@pytest.fixture
async def monque(host: Servers, database: Database) -> AsyncIterator[Monque]:
    async with Monque(host.uri(database.name, appName=APP)) as monque:
        yield monque


@asynccontextmanager
async def out_of_time(client: AsyncMongoClient[Any]) -> AsyncIterator[None]:
    """While this lasts, every command with a time limit has used it up."""
    fail_point = {"configureFailPoint": "maxTimeAlwaysTimeOut"}
    await client.admin.command({**fail_point, "mode": "alwaysOn"})
    try:
        yield
    finally:
        await client.admin.command({**fail_point, "mode": "off"})


# Statistics


@pytest.mark.parametrize(
    "ask",
    [Monque.queue_stats, lambda monque: monque.queue_stats(name="work"), Monque.queue_views],
    ids=["stats", "stats-of-a-name", "views"],
)
async def test_statistics_that_take_too_long_are_an_error_that_says_what_to_do(
    monque: Monque, database: Database, ask: Callable[[Monque], Any]
) -> None:
    await monque.enqueue("work")

    async with out_of_time(database.client):
        with pytest.raises(AggregationTimeoutError, match="longer than 30 s; ask for one name, or") as error:
            await ask(monque)

    assert isinstance(error.value.__cause__, ExecutionTimeout)
    assert await ask(monque)


READS: dict[str, Callable[[Monque, timedelta], Any]] = {
    "get_job": lambda monque, time: monque.get_job(ObjectId(), max_time=time),
    "get_jobs": lambda monque, time: monque.get_jobs(max_time=time),
    "list_jobs": lambda monque, time: monque.list_jobs(max_time=time),
    "list_jobs without payloads": lambda monque, time: monque.list_jobs(payload_limit=9, max_time=time),
    "count_jobs": lambda monque, time: monque.count_jobs(max_time=time),
    "jobs_ahead": lambda monque, time: monque.jobs_ahead(ObjectId(), max_time=time),
    "recent_failures": lambda monque, time: monque.recent_failures(max_time=time),
    "queue_stats": lambda monque, time: monque.queue_stats(max_time=time),
    "queue_views": lambda monque, time: monque.queue_views(max_time=time),
    "diagnose": lambda monque, time: monque.diagnose(max_time=time),
    "list_schedules": lambda monque, time: monque.list_schedules(max_time=time),
    "get_schedule": lambda monque, time: monque.get_schedule("work", max_time=time),
    "paused": lambda monque, time: monque.paused(max_time=time),
}


@pytest.mark.parametrize("read", READS)
async def test_a_read_that_takes_too_long_is_an_error_that_says_so(
    monque: Monque, database: Database, read: str
) -> None:
    async with out_of_time(database.client):
        with pytest.raises(ReadTimeoutError, match=r"(within|longer than) 5 s; ask"):
            await READS[read](monque, timedelta(seconds=5))


async def test_the_server_is_given_thirty_seconds_and_one_command_for_statistics(
    host: Servers, database: Database
) -> None:
    traffic = Traffic()
    async with (
        AsyncMongoClient(host.uri(), event_listeners=[traffic]) as client,
        Monque(client[database.name]) as monque,
    ):
        await monque.enqueue("work")
        traffic.clear()
        await monque.queue_stats()
        await monque.queue_views()

    assert [next(iter(command)) for command in traffic.commands[:2]] == ["aggregate", "aggregate"]
    assert [command["maxTimeMS"] for command in traffic.commands[:2]] == [30_000, 30_000]


# Writes


async def test_a_job_is_deleted_although_the_connection_breaks(monque: Monque, database: Database) -> None:
    job = await monque.enqueue("work")
    events = Events(monque)

    async with failing(database.client, ["delete"], app_name=APP, times=1, closeConnection=True):
        await monque.delete_job(job.id)

    assert events.kinds() == ["job:deleted"]
    with pytest.raises(JobNotFoundError):
        await monque.delete_job(job.id)


@pytest.mark.parametrize("action", ["cancel", "retry", "reschedule"])
async def test_one_job_is_changed_once_although_the_connection_breaks(
    monque: Monque, database: Database, action: str
) -> None:
    job = document(status="failed" if action == "retry" else "pending")
    await database["monque_jobs"].insert_one(job)
    arguments = (ahead(hours=1),) if action == "reschedule" else ()

    async with failing(database.client, ["findAndModify"], app_name=APP, times=1, closeConnection=True):
        changed = await getattr(monque, f"{action}_job")(job["_id"], *arguments)

    assert changed == await monque.get_job(job["_id"])
    assert changed.updated_at > job["updatedAt"]


async def test_bulk_retries_in_doubt_are_an_error_and_not_a_count(monque: Monque, database: Database) -> None:
    """The writes for keyed jobs reach the primary, but not the majority."""
    await database["monque_jobs"].insert_one(document(status="failed", uniqueKey="k"))
    events = Events(monque)
    in_doubt = {
        "failCommands": ["update"],
        "appName": APP,
        "writeConcernError": {"code": 64, "errmsg": "waiting for replication timed out"},
    }
    fail_point = {"configureFailPoint": "failCommand"}

    # The first update is the one for all jobs without a key.
    await database.client.admin.command({**fail_point, "mode": {"skip": 1}, "data": in_doubt})
    try:
        with pytest.raises(ConnectionError, match="could not retry the jobs"):
            await monque.retry_jobs(JobFilter())
    finally:
        await database.client.admin.command({**fail_point, "mode": "off"})

    assert events.all == []


@pytest.mark.parametrize(("code", "outcome"), [(UNAUTHORIZED, "refused"), (96, "failed")])
async def test_a_piece_that_fails_is_in_the_entry_until_the_next_one_succeeds(
    monque: Monque, database: Database, code: int, outcome: str
) -> None:
    await database["monque_jobs"].insert_many(document() for _ in range(6))
    events, ada = Events(monque), {"actor": "ada", "via": "web", "note": "why"}
    place = (await monque.bulk("cancel", JobFilter(), limit=2, **ada)).next
    assert isinstance(place, str)

    async with failing(database.client, ["update"], app_name=APP, errorCode=code):
        with pytest.raises(ConnectionError, match="could not cancel the jobs"):
            await monque.bulk("cancel", JobFilter(), limit=2, after=place, **ada)
    [entry] = (await monque.audit()).entries
    assert (entry.outcome, entry.count) == (outcome, 2)
    assert (entry.note or "").startswith("why could not cancel the jobs: ")

    while place is not None:
        place = (await monque.bulk("cancel", JobFilter(), limit=2, after=place, **ada)).next
    [entry] = (await monque.audit()).entries
    assert (entry.outcome, entry.count, entry.note) == ("done", 6, "why")
    assert events.all == [JobsCancelled(count=6)]


async def test_an_action_that_fails_halfway_tells_what_it_has_done(
    monque: Monque, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first piece is one update of the jobs; the second one fails."""
    monkeypatch.setattr("monque._ops.bulk.PIECE", 2)
    await database["monque_jobs"].insert_many(document() for _ in range(6))
    events = Events(monque)

    async with failing(database.client, ["update"], app_name=APP, after=1, errorCode=96):
        with pytest.raises(ConnectionError, match="could not cancel the jobs"):
            await monque.bulk("cancel", JobFilter(), actor="ada", via="web")

    [entry] = (await monque.audit()).entries
    assert (entry.outcome, entry.count) == ("failed", 2)
    assert events.all == [JobsCancelled(count=2)]


async def test_an_outage_of_the_trail_costs_no_piece(
    monque: Monque, database: Database, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "monque.audit")
    await database["monque_jobs"].insert_many(document() for _ in range(5))
    events, ada = Events(monque), {"actor": "ada", "via": "web"}

    async with failing(database.client, ["findAndModify"], app_name=APP, closeConnection=True):
        place = (await monque.bulk("cancel", JobFilter(), limit=2, **ada)).next
    assert isinstance(place, str)
    assert "action='cancelBulk' outcome='done' filter={} count=2" in caplog.text
    while place is not None:
        place = (await monque.bulk("cancel", JobFilter(), limit=2, after=place, **ada)).next

    assert [entry.count for entry in (await monque.audit()).entries] == [3]
    assert events.all == [JobsCancelled(count=5)]


async def test_an_entry_is_added_to_once_although_the_connection_breaks(
    monque: Monque, database: Database
) -> None:
    await database["monque_jobs"].insert_many(document() for _ in range(4))
    ada = {"actor": "ada", "via": "web"}
    place = (await monque.bulk("cancel", JobFilter(), limit=2, **ada)).next
    assert isinstance(place, str)

    in_doubt = {"code": 91, "errmsg": "shutting down", "errorLabels": ["RetryableWriteError"]}
    async with failing(database.client, ["findAndModify"], app_name=APP, times=1, writeConcernError=in_doubt):
        await monque.bulk("cancel", JobFilter(), limit=2, after=place, **ada)

    assert [entry.count for entry in (await monque.audit()).entries] == [4]


async def test_a_refusal_of_the_server_is_raised_as_an_error_of_monque(
    monque: Monque, database: Database
) -> None:
    job = await monque.enqueue("work")
    calls: dict[str, Callable[[], Any]] = {
        "read the job": lambda: monque.get_job(job.id),
        "read the jobs": monque.get_jobs,
        "list the jobs": monque.list_jobs,
        "read the statistics": monque.queue_views,
        "cancel the job": lambda: monque.cancel_job(job.id),
        "retry the job": lambda: monque.retry_job(ObjectId()),
        "reschedule the job": lambda: monque.reschedule_job(job.id, ahead(hours=1)),
        "delete the job": lambda: monque.delete_job(job.id),
        "cancel the jobs": lambda: monque.cancel_jobs(JobFilter()),
        "retry the jobs": lambda: monque.retry_jobs(JobFilter()),
        "delete the jobs": lambda: monque.delete_jobs(JobFilter()),
    }
    events = Events(monque)
    commands = ["find", "aggregate", "findAndModify", "update", "delete"]

    async with failing(database.client, commands, app_name=APP, errorCode=UNAUTHORIZED):
        for doing, call in calls.items():
            with pytest.raises(ConnectionError, match=f"could not {doing}: "):
                await call()

    assert events.all == []
    assert await monque.get_job(job.id) == job
