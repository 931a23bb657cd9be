"""What failed, newest first: small rows and quick pages, by an index of those jobs alone."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import bson
import pytest
from bson.raw_bson import RawBSONDocument
from pymongo import AsyncMongoClient

from monque import ConfigurationError, JobFilter, JobStatus, Monque, Options, Retention
from monque.embedded import EmbeddedMongo
from support.aliases import Collection, Make
from support.clocks import ago
from support.jobs import document
from support.traffic import Traffic

OPERATOR = {"at": ago(minutes=1), "by": "operator", "reason": "no"}
LOOKING = Options(uses=("failures",))


@pytest.fixture
async def looking(make_monque: Make) -> Monque:
    return await make_monque(options=LOOKING).open()


def failed(at: datetime, **fields: Any) -> dict[str, Any]:
    told = {"failCount": 2, "failReason": "ValueError: no"}
    return document(status="failed", updatedAt=at, **{**told, **fields})


async def test_failures_are_small_rows_the_newest_first(looking: Monque, collection: Collection) -> None:
    old = failed(ago(hours=2), history=[{"error": "KeyError"}, {"error": "ValueError"}], data="x" * 1000)
    new = failed(ago(hours=1), name="other", failReason="é" * 3_000)
    ended = document(status="cancelled", updatedAt=ago(minutes=1), cancel=OPERATOR)
    await collection.insert_many([old, new, ended, document(), document(status="completed")])

    found = await looking.recent_failures()

    assert [row.id for row in found] == [new["_id"], old["_id"]]
    assert [row.name for row in found] == ["other", "work"]
    assert [row.reason for row in found] == ["é" * 1_000, "ValueError: no"]
    assert [row.attempt_error_type for row in found] == [None, "ValueError"]
    assert found[1].fail_count == 2
    assert abs(found[1].at - old["updatedAt"]) < timedelta(milliseconds=1)
    (only,) = await looking.recent_failures(name="other")
    assert only.id == new["_id"]
    (newest, *_) = await looking.recent_failures(cancelled=True, since=ago(minutes=90), limit=2)
    assert (newest.id, newest.status, newest.reason) == (ended["_id"], JobStatus.CANCELLED, "no")
    assert len(await looking.recent_failures(limit=1)) == 1
    assert await looking.recent_failures(since=ago(minutes=30)) == []


async def test_what_others_wrote_does_not_keep_failures_from_being_read(
    looking: Monque, collection: Collection
) -> None:
    odd = [
        failed(ago(hours=1), name=5, history="none", _id=1),
        failed(ago(hours=2), history={"error": "x"}),
        failed(ago(hours=3), history=[1, {"error": 5}]),
        {**failed(ago(hours=4)), "failReason": {"$gt": 1}, "failCount": "two"},
        {**failed(ago(hours=5)), "updatedAt": "yesterday"},
        {**failed(ago(hours=6)), "updatedAt": [ago(hours=6)]},
    ]
    raw = bson.encode(failed(ago(hours=7))).replace(b"ValueError: no", b"ValueError\xff no")
    await collection.insert_many([*odd, RawBSONDocument(raw)])

    found = await looking.recent_failures()

    assert [row.name for row in found] == ["5", "work", "work", "work", "work"]
    assert [row.reason for row in found] == [*["ValueError: no"] * 3, None, "ValueError� no"]
    assert [row.attempt_error_type for row in found] == [None] * 5
    assert found[0].id == 1
    await collection.delete_many({})  # they are not as they should be, which is the point


async def test_without_the_index_the_error_names_what_creates_it(monque: Monque) -> None:
    with pytest.raises(ConfigurationError, match="monque indexes --create --for failures"):
        await monque.recent_failures()


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"limit": 0}, "limit must be a whole number from 1 to 100,000"),
        ({"name": ""}, "a filter's name"),
        ({"since": "now"}, "since must be an aware datetime"),
        ({"cancelled": 1}, "cancelled must be True or False"),
        ({"max_time": 5}, "max_time must be a timedelta"),
    ],
    ids=lambda value: str(value),
)
async def test_wrong_arguments_are_refused(monque: Monque, wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        await monque.recent_failures(**wrong)


def stages(plan: dict[str, Any]) -> Iterable[dict[str, Any]]:
    yield plan
    for inner in [plan.get("inputStage"), *plan.get("inputStages", [])]:
        if inner is not None:
            yield from stages(inner)


@pytest.mark.parametrize("status", ["failed", ["failed", "cancelled"]], ids=str)
@pytest.mark.parametrize("name", [None, "work"])
@pytest.mark.parametrize("descending", [True, False])
async def test_a_page_of_failures_reads_its_own_jobs(
    server: EmbeddedMongo, make_monque: Make, collection: Collection, status: Any, name: Any, descending: bool
) -> None:
    """Beside a retention, whose index has the same jobs in another order, and many that did not fail."""
    traffic, options = Traffic(), replace(LOOKING, retention=Retention(failed=timedelta(days=9)))
    async with AsyncMongoClient(server.uri, event_listeners=[traffic]) as client:
        monque = await make_monque(client[collection.database.name], options=options).open()
        at = ago(days=1)
        await collection.insert_many(
            document(
                name="work" if n % 2 else "other",
                status=("failed", "completed", "cancelled", "completed")[n // 2 % 4],
                updatedAt=at + timedelta(seconds=n // 20),
            )
            for n in range(2_000)
        )
        traffic.clear()
        jobs = JobFilter(status=status, name=name)
        page = await monque.list_jobs(jobs, sort="updated_at", descending=descending, limit=20)
        page = await monque.list_jobs(
            jobs, sort="updated_at", descending=descending, limit=20, cursor=page.cursor
        )
        commands = [each for each in traffic.explainable("find") if each["limit"] != 1]
    assert len(commands) == 2
    assert (len(page), page.has_next_page) == (20, True)
    for command in commands:
        found = await collection.database.command("explain", command, verbosity="executionStats")
        used = {stage.get("indexName") for stage in stages(found["queryPlanner"]["winningPlan"])}
        assert used <= {"monque_failed", None}
        assert found["executionStats"]["totalDocsExamined"] <= 25
