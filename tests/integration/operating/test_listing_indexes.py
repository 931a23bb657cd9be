"""With 500,000 jobs (`FULL=1`): a page costs about its own size, views and statistics stay within their time.

The tests record the commands that are really sent, and explain each of them.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from typing import Any, get_args

import pytest
from bson.codec_options import CodecOptions, DatetimeConversion
from pymongo import AsyncMongoClient

from monque import Job, JobFilter, Monque, Options
from monque._ops.lists import Listing
from monque._values.views import Direction, Sort
from monque.embedded import EmbeddedMongo
from support.aliases import Collection, Make
from support.clocks import ago
from support.filling import fill
from support.scale import at_scale
from support.traffic import Traffic

COUNT = at_scale(500_000, 100_000)
EQUAL = COUNT // 5
A_FEW_HUNDRED = 300

EXACT = CodecOptions[dict[str, Any]](datetime_conversion=DatetimeConversion.DATETIME_MS)
QUERIES = [(sort, descending) for sort in get_args(Sort) for descending in (False, True)]


@dataclass
class Filled:
    """The many jobs, an instance that manages them, and what it sends."""

    monque: Monque
    collection: Collection
    traffic: Traffic
    samples: list[dict[str, Any]]
    """Jobs from the beginning, the middle and the end. In each sort but by id, one lies amid equals."""

    async def explained(self) -> list[dict[str, Any]]:
        """How the server performs each reading command since the last time."""
        commands = self.traffic.explainable("find", "aggregate")
        self.traffic.clear()
        return [
            await self.collection.database.command("explain", command, verbosity="executionStats")
            for command in commands
        ]


@pytest.fixture(scope="module")
async def filled(server: EmbeddedMongo) -> AsyncIterator[Filled]:
    """Each time is shared by a fifth of the jobs in a row, other ones in each sort, and unique elsewhere."""
    traffic = Traffic()
    async with AsyncMongoClient(server.uri, tz_aware=True, event_listeners=[traffic]) as client:
        database = client[f"listing_{uuid.uuid4().hex[:8]}"]
        collection = database["monque_jobs"]
        await fill(
            collection,
            COUNT,
            name={"$concat": ["name-", {"$toString": {"$mod": ["$n", 20]}}]},
            status={"$arrayElemAt": [["completed", "failed", "pending", "cancelled"], {"$mod": ["$n", 4]}]},
            createdAt=_moment(first=0),
            updatedAt=_moment(first=2 * EQUAL),
            nextRunAt=_moment(first=COUNT - EQUAL),
        )
        try:
            async with Monque(database, options=Options(listing_indexes=True)) as monque:
                exact = collection.with_options(codec_options=EXACT)
                samples = [
                    await exact.find_one({}, sort={"_id": 1}, skip=COUNT * part // 10) for part in (1, 5, 9)
                ]
                yield Filled(monque, collection, traffic, [job for job in samples if job is not None])
        finally:
            await client.drop_database(database.name)


def _moment(first: int) -> dict[str, Any]:
    """A millisecond later for each job, except that those from *first* on share one for a while."""
    shared = {"$and": [{"$gte": ["$n", first]}, {"$lt": ["$n", first + EQUAL]}]}
    return {"$add": [ago(days=1), {"$cond": [shared, first, "$n"]}]}


@pytest.mark.parametrize(("sort", "descending"), QUERIES)
async def test_a_page_of_50_examines_a_few_hundred_keys_wherever_it_is(
    filled: Filled, sort: Sort, descending: bool
) -> None:
    """First or last, in the middle, and amid many equal sort values; forward and backward."""
    listing = Listing(JobFilter(), sort, descending)
    cursors = [None, *(listing.write_cursor(listing.position_of(job)) for job in filled.samples)]
    amid_equals = 0
    filled.traffic.clear()

    for cursor in cursors:
        for direction in get_args(Direction):
            page = await filled.monque.list_jobs(
                cursor=cursor, direction=direction, sort=sort, descending=descending
            )
            plans = await filled.explained()

            assert len(page) == 50
            assert len(plans) == (1 if cursor is None else 2)
            stats = [plan["executionStats"] for plan in plans]
            assert sum(one["totalKeysExamined"] for one in stats) <= A_FEW_HUNDRED
            assert sum(one["totalDocsExamined"] for one in stats) <= A_FEW_HUNDRED
            assert not {"COLLSCAN", "SORT"} & {stage for plan in plans for stage in _stages(plan)}
            amid_equals += cursor is not None and len({getattr(job, sort) for job in page}) == 1
    assert amid_equals == (0 if sort == "id" else 2)


async def test_views_of_all_names_come_within_three_seconds(filled: Filled) -> None:
    durations: list[float] = []
    while not durations or (durations[-1] >= 3.0 and len(durations) < 5):
        started = time.perf_counter()
        views = await filled.monque.queue_views()
        durations.append(time.perf_counter() - started)

    assert [view.stats.total for view in views] == [COUNT // 20] * 20
    assert durations[-1] < 3.0, durations


async def test_statistics_of_one_name_read_the_jobs_of_that_name_only(filled: Filled) -> None:
    filled.traffic.clear()

    stats = await filled.monque.queue_stats(name="name-3")
    [plan] = await filled.explained()

    assert stats.total == COUNT // 20
    assert {"IXSCAN"} <= set(_stages(plan))
    assert "COLLSCAN" not in set(_stages(plan))
    [examined] = [one["totalDocsExamined"] for one in _execution_stats(plan)]
    assert examined <= COUNT // 20


async def test_a_filter_by_name_reads_the_jobs_of_that_name_only(filled: Filled) -> None:
    filled.traffic.clear()

    jobs = await filled.monque.get_jobs(name="name-7", status="cancelled")
    page = await filled.monque.list_jobs(JobFilter(name="nobody"), sort="updated_at")
    plans = await filled.explained()

    assert len(jobs) == 100
    assert len(page) == 0
    assert plans[0]["executionStats"]["totalDocsExamined"] <= COUNT // 20
    assert plans[1]["executionStats"]["totalDocsExamined"] == 0


async def test_by_default_there_are_no_listing_indexes_and_listing_works(
    filled: Filled, make_monque: Make, collection: Collection
) -> None:
    assert Options().listing_indexes is False
    await fill(collection, 1_000, nextRunAt=_moment(first=500))
    monque = await make_monque().open()
    those = {"createdAt_-1__id_-1", "updatedAt_-1__id_-1", "nextRunAt_-1__id_-1", "name_1_status_1"}

    assert not those & set(await collection.index_information())
    assert those <= set(await filled.collection.index_information())
    for sort, descending in QUERIES:
        found: list[Job[Any]] = [
            job async for job in monque.iter_jobs(sort=sort, descending=descending, limit=300)
        ]
        keys = [(getattr(job, sort), job.id) for job in found]
        assert len(keys) == 1_000
        assert keys == sorted(keys, reverse=descending)
    assert (await monque.queue_stats(name="work")).pending == 1_000


def _stages(plan: Any) -> Iterator[str]:
    """The names of all stages that ran, at whatever depth."""
    if isinstance(plan, dict):
        for key, value in plan.items():
            if key == "stage":
                yield value
            elif key != "rejectedPlans":
                yield from _stages(value)
    elif isinstance(plan, list):
        for part in plan:
            yield from _stages(part)


def _execution_stats(plan: Any) -> Iterator[dict[str, Any]]:
    if isinstance(plan, dict):
        for key, value in plan.items():
            if key == "executionStats":
                yield value
            else:
                yield from _execution_stats(value)
    elif isinstance(plan, list):
        for part in plan:
            yield from _execution_stats(part)
