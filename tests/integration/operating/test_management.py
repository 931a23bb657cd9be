"""Acting on one job: which states allow it, what it changes, what it emits, who is woken."""

from __future__ import annotations

import asyncio
import inspect
import random
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from bson import ObjectId

from monque import (
    ConfigurationError,
    ConnectionError,
    Job,
    JobCancelled,
    JobDeleted,
    JobFilter,
    JobNotFoundError,
    JobRetried,
    JobStateError,
    JobStatus,
    Monque,
    NewJob,
    NotOpenError,
)
from monque.embedded import EmbeddedMongo
from monque.sync import SyncMonque
from support.aliases import Collection, Database, Make
from support.clocks import ago, ahead
from support.jobs import claimed, document
from support.options import BEATING, NEVER_POLLING, QUICK
from support.proxy import Proxy, command
from support.waiting import Events

# No instance polls during a test: a job that runs was found by a hint.
SOON = timedelta(seconds=30)

# The seed's diagram: where each action leads, and from where. Deleting leads nowhere, from everywhere.
DIAGRAM: dict[str, dict[str, str]] = {
    "cancel": {"pending": "cancelled"},
    "retry": {"failed": "pending", "cancelled": "pending"},
    "reschedule": {"pending": "pending"},
    "prioritize": {"pending": "pending"},
    "run": {"pending": "pending"},
}
ALLOWED = [(action, status) for action, arrows in DIAGRAM.items() for status in arrows]
REFUSED = [
    (action, status)
    for action, arrows in DIAGRAM.items()
    for status in JobStatus
    if status not in arrows and (action, status) != ("cancel", "cancelled")
]
MALFORMED: list[Any] = ["", "no-id", "0" * 23, "0" * 25, "g" * 24, b"0" * 12, None, 42]


def stored(status: str, **fields: Any) -> dict[str, Any]:
    """A job with a past, in a state, as it lies in the collection."""
    if status == "processing":
        return claimed("elsewhere", data={"n": 1}, foreign="kept", **fields)
    past: dict[str, Any] = {"data": {"n": 1}, "attempt": 3, "heartbeatInterval": 30_000, "foreign": "kept"}
    if status == "failed":
        past |= {"failCount": 3, "failReason": "ValueError: no", "crashCount": 2}
    return document(status=status, **{**past, **fields})


async def put(collection: Collection, status: str, **fields: Any) -> dict[str, Any]:
    job = stored(status, createdAt=ago(hours=2), updatedAt=ago(hours=1), **fields)
    await collection.insert_one(job)
    return job


async def act(monque: Monque, action: str, job_id: Any) -> Job[Any] | None:
    """Cancel, retry, reschedule (to a fixed time), prioritise, run now or delete a job."""
    if action == "prioritize":
        return await monque.set_priority(job_id, 5)
    if action == "run":
        return await monque.run_now(job_id)
    if action == "reschedule":
        return await monque.reschedule_job(job_id, NEW_TIME)
    result: Job[Any] | None = await getattr(monque, f"{action}_job")(job_id)
    return result


NEW_TIME = datetime(2040, 1, 1, tzinfo=UTC)


# States


@pytest.mark.parametrize(("action", "status"), ALLOWED)
async def test_an_action_leads_where_the_diagram_says(
    monque: Monque, collection: Collection, action: str, status: str
) -> None:
    before = await put(collection, status)

    job = await act(monque, action, before["_id"])

    assert job == await monque.get_job(before["_id"])
    assert job is not None
    assert job.status == DIAGRAM[action][status]


@pytest.mark.parametrize(("action", "status"), REFUSED)
async def test_an_action_is_refused_in_every_other_state_and_changes_nothing(
    monque: Monque, collection: Collection, action: str, status: str
) -> None:
    before = await put(collection, status)
    events = Events(monque)

    with pytest.raises(JobStateError) as refusal:
        await act(monque, action, before["_id"])

    error = refusal.value
    assert (error.job_id, error.current_status, error.attempted_action) == (before["_id"], status, action)
    assert isinstance(error.current_status, JobStatus)
    possible = " or ".join(sorted(DIAGRAM[action]))
    stoppable = (action, status) == ("cancel", "processing")
    way = "; to stop it while it runs, give running=True" if stoppable else ""
    assert str(error) == (
        f"cannot {action} job {before['_id']}: it is {status}; only a {possible} one can be{way}"
    )
    assert await collection.find_one() == before
    assert events.all == []


@pytest.mark.parametrize("status", JobStatus)
async def test_a_job_is_deleted_in_whatever_state(
    monque: Monque, collection: Collection, status: str
) -> None:
    doomed, kept = await put(collection, status), await put(collection, status)
    events = Events(monque)

    assert await monque.delete_job(doomed["_id"]) is None

    assert await collection.find().to_list() == [kept]
    assert events.all == [JobDeleted(job_id=doomed["_id"])]


# What changes, and what is emitted


async def test_cancelling_changes_status_and_update_time_and_emits_an_event(
    monque: Monque, collection: Collection
) -> None:
    before = await put(collection, "pending", uniqueKey="k")
    events = Events(monque)

    job = await monque.cancel_job(before["_id"])

    after = await collection.find_one()
    assert after == {**before, "status": "cancelled", "updatedAt": after["updatedAt"]}
    assert after["updatedAt"] > before["updatedAt"]
    assert events.all == [JobCancelled(job=job)]


async def test_a_job_cancelled_twice_is_returned_unchanged_and_emits_one_event(
    monque: Monque, collection: Collection
) -> None:
    before = await put(collection, "pending")
    events = Events(monque)

    first = await monque.cancel_job(before["_id"])
    second = await monque.cancel_job(str(before["_id"]))

    assert second == first
    assert events.kinds() == ["job:cancelled"]


async def test_a_listener_that_raises_disturbs_no_action(monque: Monque, collection: Collection) -> None:
    def raise_something(event: Any) -> None:
        raise RuntimeError("listeners may be wrong")

    for kind in ("job:cancelled", "job:retried", "job:deleted", "jobs:deleted"):
        monque.on(kind, raise_something)
    before = await put(collection, "pending")

    await monque.cancel_job(before["_id"])
    await monque.retry_job(before["_id"])
    await monque.delete_job(before["_id"])
    await put(collection, "pending")

    assert (await monque.delete_jobs(JobFilter())).count == 1


@pytest.mark.parametrize("status", ["failed", "cancelled"])
async def test_a_retried_job_is_due_now_with_its_counts_at_zero(
    monque: Monque, collection: Collection, status: str
) -> None:
    """`attempt` goes on counting: it distinguishes the claims of one job."""
    before = await put(collection, status, uniqueKey="k", nextRunAt=ahead(days=1))
    events = Events(monque)
    asked = datetime.now(UTC) - timedelta(milliseconds=1)

    job = await monque.retry_job(before["_id"])

    after = await collection.find_one()
    now = after["updatedAt"]
    gone = {"failReason", "crashCount"}
    kept = {field: value for field, value in before.items() if field not in gone}
    assert after == {**kept, "status": "pending", "failCount": 0, "nextRunAt": now, "updatedAt": now}
    assert asked <= now <= datetime.now(UTC)
    assert events.all == [JobRetried(job=job, previous_status=JobStatus(status))]
    assert isinstance(events.all[0].previous_status, JobStatus)


async def test_retrying_removes_what_another_implementation_left_of_a_claim(
    monque: Monque, collection: Collection
) -> None:
    before = await put(collection, "failed", claimedBy=None, lockedAt=None, lastHeartbeat=None)

    await monque.retry_job(before["_id"])

    assert {"claimedBy", "lockedAt", "lastHeartbeat"} & (await collection.find_one()).keys() == set()


async def test_rescheduling_changes_the_time_only_and_emits_nothing(
    monque: Monque, collection: Collection
) -> None:
    before = await put(collection, "pending", failCount=2, failReason="ValueError: no")
    events = Events(monque)

    job = await monque.reschedule_job(before["_id"], NEW_TIME)

    after = await collection.find_one()
    assert after == {**before, "nextRunAt": NEW_TIME, "updatedAt": after["updatedAt"]}
    assert after["updatedAt"] > before["updatedAt"]
    assert job.next_run_at == NEW_TIME
    assert events.all == []


@pytest.mark.parametrize("wrong", [datetime(2040, 1, 1), None, "2040-01-01", timedelta(1)])  # noqa: DTZ001
async def test_rescheduling_to_anything_but_an_aware_time_is_refused(
    monque: Monque, collection: Collection, wrong: Any
) -> None:
    before = await put(collection, "pending")

    with pytest.raises(ConfigurationError, match="run_at must be an aware datetime"):
        await monque.reschedule_job(before["_id"], wrong)

    assert await collection.find_one() == before


# Which job


@pytest.mark.parametrize("action", ["cancel", "retry", "reschedule", "prioritize", "run", "delete"])
async def test_a_job_that_is_not_there_is_not_found(
    monque: Monque, collection: Collection, action: str
) -> None:
    bystander = await put(collection, "pending")
    events = Events(monque)

    for job_id in [*MALFORMED, ObjectId(), str(ObjectId())]:
        with pytest.raises(JobNotFoundError) as missing:
            await act(monque, action, job_id)
        assert str(missing.value.job_id) == str(job_id)
        assert str(missing.value) == f"no job with id {job_id}"
        assert isinstance(missing.value, LookupError)

    assert await collection.find_one() == bystander
    assert events.all == []


async def test_get_job_is_none_for_an_id_that_is_not_there(monque: Monque) -> None:
    for job_id in [*MALFORMED, ObjectId(), str(ObjectId())]:
        assert await monque.get_job(job_id) is None


async def test_an_id_is_taken_as_object_id_or_as_text_in_any_case(
    monque: Monque, collection: Collection
) -> None:
    job_id = ObjectId("abcdef0123456789abcdef01")
    await put(collection, "pending", _id=job_id)

    found = [await monque.get_job(same) for same in (job_id, str(job_id), str(job_id).upper())]

    assert [job is not None and job.id for job in found] == [job_id] * 3


@pytest.mark.parametrize("action", ["cancel", "retry", "reschedule", "prioritize", "run", "delete", "get"])
async def test_a_monque_that_is_not_open_says_so(make_monque: Make, action: str) -> None:
    with pytest.raises(NotOpenError):
        await act(make_monque(), action, ObjectId())


# Unique keys


@pytest.mark.parametrize("status", ["failed", "cancelled"])
@pytest.mark.parametrize("holding", ["pending", "processing"])
async def test_a_retry_whose_key_is_taken_names_the_holder(
    monque: Monque, collection: Collection, status: str, holding: str
) -> None:
    before = await put(collection, status, uniqueKey="daily")
    holder = await put(collection, holding, uniqueKey="daily")
    events = Events(monque)

    with pytest.raises(JobStateError) as refusal:
        await monque.retry_job(before["_id"])

    error = refusal.value
    assert (error.job_id, error.current_status, error.attempted_action) == (before["_id"], status, "retry")
    assert str(error) == (
        f"cannot retry job {before['_id']}: its unique key 'daily' is held by the {holding} "
        f"job {holder['_id']}"
    )
    assert await collection.find_one({"_id": before["_id"]}) == before
    assert events.all == []


@pytest.mark.parametrize(
    ("key", "held"), [(["a"], ["a", "b"]), ({"$bogus": 1}, {"$bogus": 1})], ids=["array", "operator"]
)
async def test_a_retry_whose_odd_key_is_taken_is_refused(
    monque: Monque, collection: Collection, key: Any, held: Any
) -> None:
    """Another program wrote it. Two arrays collide by one element, and no query for one finds the other."""
    before = await put(collection, "failed", uniqueKey=key)
    await put(collection, "pending", uniqueKey=held)

    async with asyncio.timeout(10):
        with pytest.raises(JobStateError, match=r"its unique key .* is held by"):
            await monque.retry_job(before["_id"])

    await collection.delete_many({})


async def test_a_key_of_another_name_or_of_a_finished_job_is_free(
    monque: Monque, collection: Collection
) -> None:
    before = await put(collection, "failed", uniqueKey="daily")
    await put(collection, "pending", uniqueKey="daily", name="other")
    await put(collection, "completed", uniqueKey="daily")

    assert (await monque.retry_job(before["_id"])).status is JobStatus.PENDING


async def test_a_cancelled_job_frees_its_key(monque: Monque) -> None:
    first = await monque.enqueue("work", unique_key="daily")
    await monque.cancel_job(first.id)

    second = await monque.enqueue("work", unique_key="daily")

    assert second.id != first.id


async def test_a_unique_index_of_somebody_else_is_an_error_and_no_endless_loop(
    monque: Monque, collection: Collection
) -> None:
    await collection.create_index(
        {"data.n": 1}, unique=True, partialFilterExpression={"status": "pending"}, name="foreign"
    )
    await put(collection, "pending")
    before = await put(collection, "failed")

    async with asyncio.timeout(20):
        with pytest.raises(ConnectionError, match="could not retry the job"):
            await monque.retry_job(before["_id"])


# Waking workers


async def test_a_retried_job_runs_at_once_here(make_monque: Make, collection: Collection) -> None:
    monque = make_monque(options=replace(NEVER_POLLING, change_streams=False))
    events = await _idle_worker(monque)
    before = await put(collection, "failed")

    await monque.retry_job(before["_id"])
    [event] = await events.wait("job:complete", within=SOON.seconds)

    assert event.job.id == before["_id"]
    assert event.job.attempt == before["attempt"] + 1


async def test_a_retried_job_runs_at_once_in_another_instance(
    monque: Monque, make_monque: Make, collection: Collection
) -> None:
    events = await _idle_worker(make_monque(options=NEVER_POLLING))
    before = await put(collection, "cancelled")

    await monque.retry_job(before["_id"])
    [event] = await events.wait("job:complete", within=SOON.seconds)

    assert event.job.id == before["_id"]


async def test_a_job_rescheduled_to_an_earlier_time_runs_then_here(
    make_monque: Make,
) -> None:
    monque = make_monque(options=replace(NEVER_POLLING, change_streams=False))
    events = await _idle_worker(monque)
    job = await monque.enqueue("work", delay=timedelta(hours=1))

    run_at = datetime.now(UTC) + timedelta(milliseconds=300)
    await monque.reschedule_job(job.id, run_at)
    [event] = await events.wait("job:start", within=SOON.seconds)

    assert event.job.locked_at >= run_at.replace(microsecond=run_at.microsecond // 1000 * 1000)


async def test_a_job_rescheduled_to_an_earlier_time_runs_then_in_another_instance(
    monque: Monque, make_monque: Make
) -> None:
    events = await _idle_worker(make_monque(options=NEVER_POLLING))
    job = await monque.enqueue("work", delay=timedelta(hours=1))

    await monque.reschedule_job(job.id, ago(seconds=1))

    [event] = await events.wait("job:complete", within=SOON.seconds)
    assert event.job.id == job.id


async def test_a_job_rescheduled_to_a_later_time_does_not_run_at_the_earlier_one(
    make_monque: Make,
) -> None:
    """The timer for the old time still fires, and finds nothing due."""
    monque = make_monque(options=replace(NEVER_POLLING, change_streams=False))
    events = await _idle_worker(monque)
    job = await monque.enqueue("work", delay=timedelta(milliseconds=200))
    await monque.reschedule_job(job.id, ahead(hours=1))

    after = await monque.enqueue("work", delay=timedelta(milliseconds=400))
    await events.wait("job:complete", within=SOON.seconds)

    assert [event.job.id for event in events.of("job:start")] == [after.id]


async def _idle_worker(monque: Monque) -> Events:
    """Start an instance with a worker for `work` and wait until it sleeps, its change stream open."""
    events = Events(monque)
    monque.worker("work", _nothing)
    await monque.start()
    if monque.options.change_streams:
        await events.wait("changestream:connected")
    await monque.run_until_idle()
    return events


async def _nothing(job: Job[Any]) -> None:
    pass


# Retries


async def test_a_retried_job_has_all_its_retries_before_it_and_goes_on_counting_claims(
    make_monque: Make,
) -> None:
    monque = make_monque(options=replace(QUICK, max_retries=2, base_retry_interval=timedelta(milliseconds=1)))
    events = Events(monque)

    @monque.worker("work")
    async def fail(job: Job[Any]) -> None:
        raise ValueError("no")

    await monque.start()
    job = await monque.enqueue("work")
    await events.wait("job:fail", 2)
    await monque.retry_job(job.id)
    failures = await events.wait("job:fail", 4)

    counted = [(event.job.attempt, event.job.fail_count, event.will_retry) for event in failures]
    assert counted == [(1, 1, True), (2, 2, False), (3, 1, True), (4, 2, False)]


# Schedules


async def test_a_cancelled_schedule_does_not_run_and_can_be_made_anew(monque: Monque, events: Events) -> None:
    monque.worker("work", _nothing)
    first = await monque.schedule("* * * * *", "work")
    await monque.cancel_job(first.id)

    second = await monque.schedule("* * * * *", "work")
    await monque.reschedule_job(second.id, ago(minutes=1))
    await monque.run_until_idle()

    assert second.id != first.id
    assert [event.job.id for event in events.of("job:start")] == [second.id]


async def test_a_retried_schedule_runs_now_and_goes_on(monque: Monque, events: Events) -> None:
    monque.worker("work", _nothing)
    schedule = await monque.schedule("0 0 1 1 *", "work", {"n": 1}, timezone="Europe/Berlin")
    await monque.cancel_job(schedule.id)

    await monque.retry_job(schedule.id)
    await monque.run_until_idle()

    [event] = events.of("job:complete")
    after = await monque.get_job(schedule.id)
    assert event.job == after
    assert after is not None
    unchanged = ("id", "cron", "timezone", "unique_key", "data", "next_run_at", "status", "fail_count")
    assert {name: getattr(after, name) for name in unchanged} == {
        name: getattr(schedule, name) for name in unchanged
    }


async def test_a_cancelled_schedule_whose_place_was_taken_is_not_retried(monque: Monque) -> None:
    first = await monque.schedule("@daily", "work")
    await monque.cancel_job(first.id)
    second = await monque.schedule("@hourly", "work")

    with pytest.raises(JobStateError, match=f"'work' is held by the pending job {second.id}"):
        await monque.retry_job(first.id)


async def test_a_rescheduled_schedule_runs_once_at_that_time_and_goes_on_as_before(
    monque: Monque, events: Events
) -> None:
    monque.worker("work", _nothing)
    schedule = await monque.schedule("0 0 1 1 *", "work")

    moved = await monque.reschedule_job(schedule.id, ago(seconds=1))
    unchanged = await monque.schedule("0 0 1 1 *", "work")
    await monque.run_until_idle()

    assert unchanged == moved
    assert len(events.of("job:complete")) == 1
    after = await monque.get_job(schedule.id)
    assert after is not None
    assert after.next_run_at == schedule.next_run_at


async def test_a_deleted_schedule_is_gone_until_it_is_made_anew(
    monque: Monque, collection: Collection
) -> None:
    first = await monque.schedule("@daily", "work")
    await monque.delete_job(first.id)
    assert await collection.count_documents({}) == 0

    second = await monque.schedule("@daily", "work")

    assert second.id != first.id


async def test_the_kept_occurrence_of_a_schedule_can_be_retried_beside_it(
    make_monque: Make,
) -> None:
    monque = await make_monque(options=replace(QUICK, max_retries=1)).open()
    outcomes = iter([ValueError("no"), None])

    @monque.worker("work")
    async def fail_once(job: Job[Any]) -> None:
        if error := next(outcomes):
            raise error

    events = Events(monque)
    schedule = await monque.schedule("@yearly", "work")
    await monque.reschedule_job(schedule.id, ago(seconds=1))
    await monque.run_until_idle()
    [failed] = events.of("job:fail")

    await monque.retry_job(failed.job.id)
    await monque.run_until_idle()

    done = await monque.get_job(failed.job.id)
    still = await monque.get_job(schedule.id)
    assert failed.job.id != schedule.id
    assert done is not None
    assert done.status is JobStatus.COMPLETED
    assert still is not None
    assert (still.status, still.next_run_at) == (JobStatus.PENDING, schedule.next_run_at)


# Deleting what runs


class Handler:
    """A handler that waits to be let go, and knows how it ended."""

    def __init__(self) -> None:
        self.go = asyncio.Event()
        self.ended: list[str] = []
        self.error: Exception | None = None

    async def __call__(self, job: Job[Any]) -> None:
        try:
            await self.go.wait()
            if self.error:
                raise self.error
            self.ended.append("returned")
        except BaseException as error:
            self.ended.append(type(error).__name__)
            raise


@pytest.mark.parametrize("recurring", [False, True])
@pytest.mark.parametrize("many", [False, True])
async def test_a_deleted_job_has_its_handler_cancelled_at_the_next_heartbeat(
    monque: Monque,
    make_monque: Make,
    collection: Collection,
    recurring: bool,
    many: bool,
) -> None:
    owner, handler = make_monque(options=BEATING), Handler()
    job, events = await _started(owner, handler, recurring=recurring)

    if many:
        await monque.delete_jobs(JobFilter())
    else:
        await monque.delete_job(job.id)
    [event] = await events.wait("job:lost")
    await owner.stop()

    assert event.job == job
    assert handler.ended == ["CancelledError"]
    assert set(events.kinds()) & {"job:complete", "job:fail", "job:error"} == set()
    assert events.kinds().count("job:lost") == 1
    assert await collection.count_documents({}) == 0


@pytest.mark.parametrize("recurring", [False, True])
@pytest.mark.parametrize("error", [None, ValueError("no")])
@pytest.mark.parametrize("max_retries", [1, 5])
async def test_a_deleted_job_that_ends_before_a_heartbeat_is_lost_and_never_comes_back(
    make_monque: Make,
    collection: Collection,
    recurring: bool,
    error: Exception | None,
    max_retries: int,
) -> None:
    """Also not as the kept occurrence of a schedule that has used up its retries."""
    owner, handler = make_monque(options=replace(QUICK, max_retries=max_retries)), Handler()
    handler.error = error
    job, events = await _started(owner, handler, recurring=recurring)

    await owner.delete_job(job.id)
    handler.go.set()
    [event] = await events.wait("job:lost")
    await owner.stop()

    assert event.job.id == job.id
    assert events.kinds().count("job:lost") == 1
    assert set(events.kinds()) & {"job:complete", "job:fail", "job:error"} == set()
    assert await collection.count_documents({}) == 0


async def test_a_deleted_job_in_a_thread_runs_on_but_its_result_is_not_stored(
    make_monque: Make, collection: Collection
) -> None:
    owner = make_monque(options=BEATING)
    loop, go, ended = asyncio.get_running_loop(), asyncio.Event(), asyncio.Event()

    def wait(job: Job[Any]) -> None:
        asyncio.run_coroutine_threadsafe(go.wait(), loop).result()
        loop.call_soon_threadsafe(ended.set)

    job, events = await _started(owner, wait)
    await owner.delete_job(job.id)
    await events.wait("job:lost")
    go.set()
    await ended.wait()
    await owner.stop()

    assert set(events.kinds()) & {"job:complete", "job:fail", "job:error"} == set()
    assert events.kinds().count("job:lost") == 1
    assert await collection.count_documents({}) == 0


async def test_a_slot_of_a_deleted_job_is_free_again(make_monque: Make) -> None:
    owner, handler = make_monque(options=replace(BEATING, worker_concurrency=1)), Handler()
    job, events = await _started(owner, handler)
    await owner.delete_job(job.id)
    await events.wait("job:lost")

    handler.go.set()
    following = await owner.enqueue("work")
    [event] = await events.wait("job:complete")

    assert event.job.id == following.id


async def _started(
    owner: Monque, handler: Callable[[Job[Any]], Any], *, recurring: bool = False
) -> tuple[Job[Any], Events]:
    """Let *owner* begin to work on a job."""
    events = Events(owner)
    owner.worker("work", handler)
    await owner.start()
    job = await owner.schedule("@yearly", "work") if recurring else await owner.enqueue("work")
    if recurring:
        await owner.reschedule_job(job.id, ago(seconds=1))
    [event] = await events.wait("job:start")
    return event.job, events


# Races


async def test_a_job_is_either_cancelled_or_run_never_both(
    monque: Monque, make_monque: Make, collection: Collection
) -> None:
    """One instance works off the jobs while another cancels them, all at once and in random order."""
    worker = make_monque()
    ran: list[ObjectId] = []

    @worker.worker("work", concurrency=5)
    async def work(job: Job[Any]) -> None:
        ran.append(job.id)
        await asyncio.sleep(0.01)

    events = Events(worker)
    jobs = await monque.enqueue_many([NewJob("work") for _ in range(400)])
    random.Random(1).shuffle(jobs)
    await worker.start()
    await events.wait("job:start")
    answers = await asyncio.gather(*(monque.cancel_job(job.id) for job in jobs), return_exceptions=True)
    await worker.run_until_idle()

    cancelled = {answer.id for answer in answers if isinstance(answer, Job)}
    refused = {answer.job_id for answer in answers if isinstance(answer, JobStateError)}
    assert cancelled | refused == {job.id for job in jobs}
    assert cancelled
    assert refused
    assert sorted(ran) == sorted(refused)
    assert await collection.distinct("_id", {"status": "cancelled"}) == sorted(cancelled)
    assert await collection.distinct("_id", {"status": "completed"}) == sorted(refused)


async def test_two_callers_that_cancel_a_job_both_get_it_and_one_event_is_emitted(
    monque: Monque, make_monque: Make
) -> None:
    other = await make_monque().open()
    events = [Events(monque), Events(other)]
    jobs = await monque.enqueue_many([NewJob("work") for _ in range(50)])

    answers = await asyncio.gather(*(who.cancel_job(job.id) for job in jobs for who in (monque, other)))

    assert {answer.status for answer in answers} == {JobStatus.CANCELLED}
    cancelled = [event.job.id for one in events for event in one.of("job:cancelled")]
    assert sorted(cancelled) == sorted(job.id for job in jobs)


async def test_of_two_callers_that_retry_a_job_one_succeeds_and_one_is_refused(
    monque: Monque, make_monque: Make, collection: Collection
) -> None:
    other = await make_monque().open()
    ids = [(await put(collection, "failed"))["_id"] for _ in range(50)]

    answers = await asyncio.gather(
        *(who.retry_job(job_id) for job_id in ids for who in (monque, other)), return_exceptions=True
    )

    assert sorted(answer.id for answer in answers if isinstance(answer, Job)) == ids
    assert sorted(answer.job_id for answer in answers if isinstance(answer, JobStateError)) == ids


async def test_of_many_retried_jobs_with_one_key_one_is_put_back_and_the_errors_of_the_rest_name_it(
    monque: Monque, collection: Collection
) -> None:
    ids = [(await put(collection, "failed", uniqueKey="daily"))["_id"] for _ in range(20)]

    answers = await asyncio.gather(*(monque.retry_job(job_id) for job_id in ids), return_exceptions=True)

    [holder] = [answer for answer in answers if isinstance(answer, Job)]
    refused = [answer for answer in answers if isinstance(answer, JobStateError)]
    assert {answer.job_id for answer in refused} == set(ids) - {holder.id}
    assert all(str(answer).endswith(f"held by the pending job {holder.id}") for answer in refused)


async def test_a_delete_that_races_a_claim_leaves_nothing(
    monque: Monque, make_monque: Make, collection: Collection
) -> None:
    worker = make_monque(options=BEATING)
    worker.worker("work", _nothing)
    await worker.start()
    jobs = await monque.enqueue_many([NewJob("work") for _ in range(200)])

    await asyncio.gather(*(monque.delete_job(job.id) for job in jobs))
    await worker.run_until_idle()

    assert await collection.count_documents({}) == 0


# Blocking code


def test_blocking_code_manages_jobs_too(server: EmbeddedMongo, database: Database) -> None:
    with SyncMonque(server.uri.replace("/?", f"/{database.name}?")) as monque:
        job = monque.enqueue("work", delay=timedelta(hours=1))
        assert monque.reschedule_job(job.id, NEW_TIME).next_run_at == NEW_TIME
        assert monque.cancel_job(job.id).status is JobStatus.CANCELLED
        assert monque.retry_job(job.id).status is JobStatus.PENDING
        monque.enqueue_many([NewJob("work") for _ in range(4)])

        assert len(monque.get_jobs(name="work", status="pending")) == 5
        assert len(monque.list_jobs(limit=2)) == 2
        assert len(list(monque.iter_jobs(limit=2))) == 5
        assert monque.cancel_jobs(JobFilter()).count == 5
        assert monque.retry_jobs(JobFilter(), spread=timedelta(hours=1)).count == 5
        assert monque.queue_stats(name="work").pending == monque.queue_stats().total == 5
        assert [view.name for view in monque.queue_views()] == ["work"]
        monque.delete_job(job.id)
        assert monque.delete_jobs(JobFilter(status="pending")).count == 4


# A job in place of its id

BY_JOB: dict[str, Callable[[Monque, Job[Any]], Any]] = {
    "get_job": lambda monque, job: monque.get_job(job),
    "explain": lambda monque, job: monque.explain(job),
    "jobs_ahead": lambda monque, job: monque.jobs_ahead(job),
    "cancel_job": lambda monque, job: monque.cancel_job(job),
    "reschedule_job": lambda monque, job: monque.reschedule_job(job, ahead(hours=2)),
    "run_now": lambda monque, job: monque.run_now(job),
    "set_priority": lambda monque, job: monque.set_priority(job, 0),
    "delete_job": lambda monque, job: monque.delete_job(job),
    "count_jobs": lambda monque, job: monque.count_jobs(JobFilter(ids=[job])),
    "audit": lambda monque, job: monque.audit(job=job),
}


@pytest.mark.parametrize("method", BY_JOB)
async def test_a_job_stands_for_its_id(method: str, monque: Monque) -> None:
    job = await monque.enqueue("work", delay=SOON)

    answer = await BY_JOB[method](monque, job)

    if method in ("get_job", "cancel_job", "reschedule_job", "run_now", "set_priority"):
        assert answer.id == job.id
    elif method == "count_jobs":
        assert answer == 1


@pytest.mark.parametrize(("action", "status"), ALLOWED)
async def test_an_action_applies_to_a_job_that_was_renamed_since_it_was_read(
    monque: Monque, collection: Collection, action: str, status: str
) -> None:
    job = await monque.get_job((await put(collection, status, nextRunAt=ahead(hours=1)))["_id"])
    assert job is not None
    await collection.update_one({}, {"$set": {"name": "other"}})

    after = await act(monque, action, job)

    assert after == await monque.get_job(job)
    assert after is not None
    assert (after.name, after.status) == ("other", DIAGRAM[action][status])
    assert after.updated_at > job.updated_at
    await monque.delete_job(job)
    assert await monque.get_job(job) is None


@pytest.mark.parametrize(("action", "status"), [("retry", "failed"), ("run", "pending")])
async def test_an_action_applies_to_a_job_that_is_renamed_while_it_is_done(
    make_monque: Make, collection: Collection, action: str, status: str
) -> None:
    """It was read under its old name, and the write comes too late."""
    job = await put(collection, status, nextRunAt=ahead(hours=1))
    async with Proxy(await collection.database.client.address) as proxy:
        monque = await make_monque(proxy.uri(collection.database.name)).open()
        write = proxy.hold(command("findAndModify"))
        acting = asyncio.create_task(act(monque, action, job["_id"]))
        await write.wait()
        await collection.update_one({}, {"$set": {"name": "other"}})
        write.release()
        after = await acting
        await monque.close()

    assert after is not None
    assert (after.name, after.status) == ("other", JobStatus.PENDING)
    assert after.next_run_at < ahead(seconds=1)


async def test_a_cancelled_job_is_retried_by_itself(monque: Monque) -> None:
    job = await monque.cancel_job(await monque.enqueue("work", delay=SOON))

    assert (await monque.retry_job(job)).status is JobStatus.PENDING


async def test_a_deleted_job_is_not_found_and_the_error_has_its_id(monque: Monque) -> None:
    job = await monque.enqueue("work")
    await monque.delete_job(job)

    assert await monque.get_job(job) is None
    with pytest.raises(JobNotFoundError) as raised:
        await monque.cancel_job(job)
    assert raised.value.job_id == job.id


async def test_an_action_is_recorded_with_the_job_itself(make_monque: Make) -> None:
    monque = await make_monque(companions=True).open()
    one, many = [await monque.enqueue("work", delay=SOON) for _ in range(2)]

    told: dict[str, Any] = {"actor": "ada", "via": "web", "action": "cancel", "outcome": "done"}
    await monque.record_action(**told, job_id=one, job_ids=[many])

    for job in (one, many):
        assert [entry.job_id for entry in (await monque.audit(job=job)).entries] == [one.id]


@pytest.mark.parametrize("kind", [Monque, SyncMonque])
def test_every_method_that_takes_an_id_takes_a_job(kind: type) -> None:
    """`after` is the place where a piece of a bulk action begins: what `BulkResult.next` says."""
    missing = [
        f"{name}({parameter})"
        for name, method in inspect.getmembers(kind, inspect.isfunction)
        for parameter, given in inspect.signature(method).parameters.items()
        if "ObjectId" in str(given.annotation) and "Job[Any]" not in str(given.annotation)
    ]

    assert {each for each in missing if not each.endswith("_jobs(after)")} == {"set_priorities(after)"}
