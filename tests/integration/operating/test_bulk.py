"""Acting on many jobs: which ones change, the counts, the errors, and the cost."""

from __future__ import annotations

import asyncio
import re
import statistics
import tracemalloc
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from bson import ObjectId, Regex

from monque import (
    BulkError,
    BulkResult,
    ConfigurationError,
    Job,
    JobFilter,
    JobsCancelled,
    JobsDeleted,
    JobsRetried,
    JobStatus,
    Monque,
    NewJob,
    NotOpenError,
)
from support.aliases import Collection, Make
from support.clocks import ago, ahead
from support.filling import fill
from support.jobs import claimed, document
from support.options import NEVER_POLLING, QUICK
from support.scale import at_scale
from support.waiting import Events

ACTIONS = ["cancel", "retry", "delete"]
CHANGED = {"cancel": ["pending"], "retry": ["cancelled", "failed"], "delete": sorted(JobStatus)}
EVENTS = {"cancel": JobsCancelled, "retry": JobsRetried, "delete": JobsDeleted}
TAKEN = "its unique key is held by another active job"


async def act(monque: Monque, action: str, jobs: Any, **arguments: Any) -> BulkResult:
    result: BulkResult = await getattr(monque, f"{action}_jobs")(jobs, **arguments)
    return result


async def one_of_each(collection: Collection, **fields: Any) -> list[dict[str, Any]]:
    """A job in every state."""
    jobs = [
        claimed("elsewhere", **fields) if status == "processing" else document(status=status, **fields)
        for status in JobStatus
    ]
    await collection.insert_many(jobs)
    return jobs


async def snapshot(collection: Collection) -> list[dict[str, Any]]:
    return await collection.find(sort={"_id": 1}).to_list()


# Which jobs


@pytest.mark.parametrize("action", ACTIONS)
async def test_jobs_in_the_states_that_allow_it_change_and_the_rest_are_ignored(
    monque: Monque, collection: Collection, action: str
) -> None:
    jobs = await one_of_each(collection)
    events = Events(monque)

    result = await act(monque, action, JobFilter())

    affected = {job["_id"] for job in jobs if job["status"] in CHANGED[action]}
    left = {job["_id"]: job for job in await snapshot(collection)}
    assert result == BulkResult(count=len(affected), errors=[])
    assert events.all == [EVENTS[action](count=len(affected))]
    assert [left.get(job["_id"]) for job in jobs if job["_id"] not in affected] == [
        job for job in jobs if job["_id"] not in affected
    ]
    after = {"cancel": {"cancelled"}, "retry": {"pending"}, "delete": set()}[action]
    assert {left[job_id]["status"] for job_id in affected if job_id in left} == after


@pytest.mark.parametrize("action", ACTIONS)
async def test_a_status_in_the_filter_narrows_what_changes(
    monque: Monque, collection: Collection, action: str
) -> None:
    for status in JobStatus:
        await collection.delete_many({})
        jobs = await one_of_each(collection)

        result = await act(monque, action, JobFilter(status=status))

        [chosen] = [job for job in jobs if job["status"] == status]
        others = [job for job in jobs if job is not chosen]
        assert result.count == (status in CHANGED[action])
        assert [job for job in await snapshot(collection) if job["_id"] != chosen["_id"]] == others


@pytest.mark.parametrize("action", ACTIONS)
async def test_every_field_of_the_filter_counts(monque: Monque, collection: Collection, action: str) -> None:
    """`*_after` includes its moment, `*_before` does not."""
    low, high = ago(hours=3), ago(hours=2)
    status = CHANGED[action][0]
    inside = {"name": "b", "status": status, "createdAt": low, "updatedAt": low, "nextRunAt": low}
    outside = [
        {"name": "a"},
        {"name": "bb"},
        *(
            {field: moment}
            for field in ("createdAt", "updatedAt", "nextRunAt")
            for moment in (high, ago(days=1))
        ),
    ]
    chosen = document(**inside)
    others = [document(**{**inside, **fields}) for fields in outside]
    await collection.insert_many([chosen, *others])

    narrow = JobFilter(
        name="b",
        status=[status],
        created_after=low,
        created_before=high,
        updated_after=low,
        updated_before=high,
        due_after=low,
        due_before=high,
    )
    result = await act(monque, action, narrow)

    assert result.count == 1
    assert [job for job in await snapshot(collection) if job["_id"] != chosen["_id"]] == others
    assert chosen not in await snapshot(collection)


@pytest.mark.parametrize("action", ACTIONS)
async def test_an_action_that_changes_nothing_counts_zero_and_emits_nothing(
    monque: Monque, collection: Collection, action: str
) -> None:
    await one_of_each(collection)
    events = Events(monque)

    assert await act(monque, action, JobFilter(name="nobody")) == BulkResult(count=0, errors=[])
    assert events.all == []


async def test_a_retried_job_changes_as_a_single_one_does(monque: Monque, collection: Collection) -> None:
    before = document(
        status="failed",
        failCount=4,
        failReason="no",
        crashCount=2,
        attempt=7,
        foreign=1,
        nextRunAt=ahead(days=1),
    )
    await collection.insert_one(before)

    await monque.retry_jobs(JobFilter())

    [after] = await snapshot(collection)
    now = after["updatedAt"]
    kept = {field: value for field, value in before.items() if field not in ("failReason", "crashCount")}
    assert after == {**kept, "status": "pending", "failCount": 0, "nextRunAt": now, "updatedAt": now}
    assert now > before["updatedAt"]


# What is refused


@pytest.mark.parametrize("action", ACTIONS)
async def test_anything_but_a_filter_is_refused(monque: Monque, collection: Collection, action: str) -> None:
    jobs = await one_of_each(collection)
    events = Events(monque)

    for wrong in [None, {}, "", "work", [], {"name": "work"}, 0, JobFilter]:
        with pytest.raises(ConfigurationError, match=r"must be a JobFilter\(\.\.\.\), got .*means all jobs"):
            await act(monque, action, wrong)
    with pytest.raises(TypeError, match="filter"):
        await getattr(monque, f"{action}_jobs")()

    assert await snapshot(collection) == jobs
    assert events.all == []


@pytest.mark.parametrize("action", ACTIONS)
async def test_an_empty_field_never_means_all(monque: Monque, collection: Collection, action: str) -> None:
    jobs = await one_of_each(collection)

    for fields in [{"name": ""}, {"name": " "}, {"status": ""}, {"status": []}, {"due_before": ""}]:
        with pytest.raises(ConfigurationError):
            await act(monque, action, JobFilter(**fields))

    assert await snapshot(collection) == jobs


async def test_a_spread_that_makes_no_sense_is_refused(monque: Monque, collection: Collection) -> None:
    jobs = await one_of_each(collection)

    wrong: list[Any] = [timedelta(seconds=-1), timedelta.max, 60, 1.5, None, "1h"]
    for spread in wrong:
        with pytest.raises(ConfigurationError, match="spread must be a timedelta from 0 to 100 years, got"):
            await monque.retry_jobs(JobFilter(), spread=spread)

    assert await snapshot(collection) == jobs


@pytest.mark.parametrize("action", ACTIONS)
async def test_a_monque_that_is_not_open_says_so(make_monque: Make, action: str) -> None:
    with pytest.raises(NotOpenError):
        await act(make_monque(), action, JobFilter())


# Unique keys


async def test_a_job_whose_key_is_taken_is_an_error_and_the_rest_go_on(
    monque: Monque, collection: Collection
) -> None:
    free = [document(status="failed"), document(status="cancelled", uniqueKey="free")]
    taken = [document(status="failed", uniqueKey="taken"), document(status="cancelled", uniqueKey="busy")]
    holders = [document(uniqueKey="taken"), claimed("elsewhere", uniqueKey="busy")]
    elsewhere = [document(uniqueKey="free", name="other"), document(uniqueKey="free", status="completed")]
    await collection.insert_many([*free, *taken, *holders, *elsewhere])
    events = Events(monque)

    result = await monque.retry_jobs(JobFilter(name="work"))

    assert result.count == 2
    assert result.errors == [BulkError(job_id=job["_id"], error=TAKEN) for job in taken]
    assert events.all == [JobsRetried(count=2)]
    after = {job["_id"]: job for job in await snapshot(collection)}
    assert [after[job["_id"]]["status"] for job in free] == ["pending"] * 2
    assert [after[job["_id"]] for job in taken + holders + elsewhere] == taken + holders + elsewhere


async def test_of_jobs_that_share_a_key_one_is_put_back(monque: Monque, collection: Collection) -> None:
    jobs = [document(status="failed", uniqueKey="same") for _ in range(5)]
    await collection.insert_many(jobs)

    result = await monque.retry_jobs(JobFilter())

    assert result.count == 1
    assert len(result.errors) == 4
    [holder] = await collection.distinct("_id", {"status": "pending"})
    assert {error.job_id for error in result.errors} == {job["_id"] for job in jobs} - {holder}


async def test_an_action_with_errors_only_returns_them_and_emits_nothing(
    monque: Monque, collection: Collection
) -> None:
    failed, holder = document(status="failed", uniqueKey="k"), document(uniqueKey="k")
    await collection.insert_many([failed, holder])
    events = Events(monque)

    result = await monque.retry_jobs(JobFilter())

    assert result == BulkResult(count=0, errors=[BulkError(job_id=failed["_id"], error=TAKEN)])
    assert events.all == []


async def test_taken_keys_among_thousands_are_each_found(monque: Monque, collection: Collection) -> None:
    failed = [document(status="failed", uniqueKey=str(n)) for n in range(2_500)]
    holders = [document(uniqueKey=str(n)) for n in range(0, 2_500, 100)]
    await collection.insert_many([*failed, *holders])

    result = await monque.retry_jobs(JobFilter(status="failed"))

    assert result.count == 2_475
    assert {error.job_id for error in result.errors} == {job["_id"] for job in failed[::100]}


async def test_an_index_of_the_user_that_refuses_a_job_is_named_without_values(
    monque: Monque, collection: Collection
) -> None:
    active = {"status": {"$in": ["pending", "processing"]}, "uniqueKey": {"$exists": True}}
    await collection.create_index("data", unique=True, name="one_of_each", partialFilterExpression=active)
    failed = document(status="failed", uniqueKey="k", data=1)
    await collection.insert_many([failed, document(uniqueKey="other", data=1)])

    [error] = (await monque.retry_jobs(JobFilter())).errors

    assert error.job_id == failed["_id"]
    assert error.error == "a unique index refuses it: one_of_each"


async def test_a_null_key_of_another_implementation_does_not_stop_the_other_jobs(
    monque: Monque, collection: Collection
) -> None:
    """The index takes two nulls for the same key."""
    nulls = [document(status="failed", uniqueKey=None) for _ in range(2)]
    await collection.insert_many([*nulls, document(status="failed"), document(status="failed")])

    result = await monque.retry_jobs(JobFilter())

    assert result.count == 3
    assert [error.job_id for error in result.errors] == [nulls[1]["_id"]]
    await collection.delete_many({"uniqueKey": None})  # no state that we would ever leave


# When retried jobs run


async def test_a_spread_distributes_the_due_times(monque: Monque, collection: Collection) -> None:
    await collection.insert_many(
        [document(status="failed", **({"uniqueKey": str(n)} if n % 4 == 0 else {})) for n in range(2_000)]
    )
    spread = timedelta(hours=1)
    asked = datetime.now(UTC) - timedelta(milliseconds=1)

    result = await monque.retry_jobs(JobFilter(), spread=spread)

    assert result.count == 2_000
    jobs = await snapshot(collection)
    waits = [(job["nextRunAt"] - job["updatedAt"]) / spread for job in jobs]
    assert 0 <= min(waits) < 0.05
    assert 0.95 < max(waits) < 1
    quartiles = statistics.quantiles(waits, n=4)
    assert quartiles == pytest.approx([0.25, 0.5, 0.75], abs=0.06)
    assert all(asked <= job["updatedAt"] <= datetime.now(UTC) for job in jobs)


async def test_without_a_spread_all_are_due_now(monque: Monque, collection: Collection) -> None:
    await collection.insert_many([document(status="failed", nextRunAt=ahead(days=1)) for _ in range(100)])

    await monque.retry_jobs(JobFilter())

    assert all(job["nextRunAt"] == job["updatedAt"] for job in await snapshot(collection))


@pytest.mark.parametrize("here", [True, False])
@pytest.mark.parametrize("spread", [timedelta(0), timedelta(milliseconds=500)])
async def test_bulk_retries_wake_workers(
    monque: Monque,
    make_monque: Make,
    collection: Collection,
    here: bool,
    spread: timedelta,
) -> None:
    """In this instance without a change stream, in another one by it; there are no polls."""
    worker = make_monque(options=replace(NEVER_POLLING, change_streams=not here))
    events = Events(worker)
    started: list[tuple[datetime, Job[Any]]] = []

    @worker.worker("work")
    async def work(job: Job[Any]) -> None:
        started.append((job.next_run_at, job))

    await worker.start()
    if not here:
        await events.wait("changestream:connected")
    await worker.run_until_idle()
    await collection.insert_many(
        [document(status="failed"), document(status="cancelled"), document(status="failed", uniqueKey="k")]
    )

    await (worker if here else monque).retry_jobs(JobFilter(), spread=spread)
    await events.wait("job:complete", 3, within=30)

    assert all(job.locked_at is not None and job.locked_at >= due for due, job in started)


# Together with workers


async def test_each_job_is_either_cancelled_in_bulk_or_run(
    monque: Monque, make_monque: Make, collection: Collection
) -> None:
    worker = make_monque()
    ran = []

    @worker.worker("work", concurrency=5)
    async def work(job: Job[Any]) -> None:
        ran.append(job.id)
        await asyncio.sleep(0.01)

    events = Events(worker)
    await monque.enqueue_many([NewJob("work") for _ in range(400)])
    await worker.start()
    await events.wait("job:start")
    result = await monque.cancel_jobs(JobFilter())
    await worker.run_until_idle()

    assert 0 < result.count < 400
    assert result.count + len(ran) == 400
    assert await collection.distinct("_id", {"status": "completed"}) == sorted(ran)


async def test_a_job_that_fails_again_meanwhile_is_put_back_once(
    make_monque: Make, collection: Collection
) -> None:
    monque = make_monque(options=replace(QUICK, max_retries=1, worker_concurrency=100))
    runs: dict[Any, int] = {}

    @monque.worker("work")
    async def fail(job: Job[Any]) -> None:
        runs[job.id] = runs.get(job.id, 0) + 1
        raise ValueError("no")

    await collection.insert_many(
        [document(status="failed", **({"uniqueKey": str(n)} if n % 2 else {})) for n in range(4_000)]
    )
    await monque.start()
    result = await monque.retry_jobs(JobFilter(status="failed"))
    await monque.run_until_idle()

    assert result == BulkResult(count=4_000, errors=[])
    assert set(runs.values()) == {1}
    assert len(runs) == 4_000


# Cost


async def test_very_many_jobs_are_changed_without_loading_them(
    make_monque: Make, collection: Collection
) -> None:
    """One in fifty has a key: those go through the client, a thousand ids at a time."""
    count = at_scale(200_000, 50_000)
    key = {"$cond": [{"$eq": [{"$mod": ["$n", 50]}, 0]}, {"$toString": "$n"}, "$$REMOVE"]}
    await fill(collection, count, status="failed", uniqueKey=key, data={"text": "x" * 200})
    monque = await make_monque().open()

    tracemalloc.start()
    try:
        retried = await monque.retry_jobs(JobFilter())
        cancelled = await monque.cancel_jobs(JobFilter())
        deleted = await monque.delete_jobs(JobFilter())
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert [retried.count, cancelled.count, deleted.count] == [count] * 3
    assert await collection.count_documents({}) == 0
    assert peak < 3_500_000  # as a list the ids alone would be 5 MB


# Filters by key, ids and payload


async def test_everything_of_one_customer_is_found_and_cancelled(monque: Monque) -> None:
    for customer in (7, 8, "7", None, True, 7.0):
        await monque.enqueue("mail", {"customer": {"id": customer}, "tags": ["a", customer]})
    await monque.enqueue("mail", {"customer": {}})
    await monque.enqueue("other", {"customer": {"id": 7}})

    async def count(**payload: Any) -> int:
        paths = {path.replace("__", "."): value for path, value in payload.items()}
        return await monque.count_jobs(JobFilter(name="mail", payload=paths))

    assert await count(customer__id=7) == 2  # 7.0 is the same number
    assert [await count(customer__id=value) for value in (8, "7", True, None)] == [1, 1, 1, 1]
    assert await count(tags="a") == 6
    assert await count(customer__id=7, tags="b") == 0

    cancelled = await monque.cancel_jobs(JobFilter(name="mail", payload={"customer.id": 7}))
    assert cancelled.count == 2
    assert await monque.count_jobs(JobFilter(status="cancelled")) == 2


async def test_jobs_are_found_by_ids_and_by_their_key(monque: Monque, collection: Collection) -> None:
    jobs = [await monque.enqueue("mail", number, unique_key=f"k{number}") for number in range(4)]
    await collection.insert_one(document(_id="an id of another kind"))

    ids = JobFilter(ids=[jobs[0].id, str(jobs[1].id), "an id of another kind", ObjectId(), object()])
    assert await monque.count_jobs(ids) == 3
    [found] = [job async for job in monque.iter_jobs(JobFilter(unique_key="k2"))]
    assert found.data == 2
    assert await monque.count_jobs(JobFilter(unique_key="k2", ids=[jobs[3].id])) == 0
    assert (await monque.delete_jobs(ids)).count == 3
    assert await monque.count_jobs() == 2


@pytest.mark.parametrize("pattern", [Regex("."), re.compile("."), {"$ne": None}], ids=repr)
async def test_an_id_is_compared_and_never_matches_by_a_pattern(
    monque: Monque, collection: Collection, pattern: Any
) -> None:
    await collection.insert_one(document(_id="an id of another kind"))

    assert (await monque.delete_jobs(JobFilter(ids=[pattern]))).count == 0
    assert await monque.get_job(pattern) is None
    await collection.delete_many({})
