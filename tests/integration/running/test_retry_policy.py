"""Retry policies at work: the job's, else the worker's, else that of the options."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from bson import Code, Int64

from monque import Job, JobFailed, Monque, NewJob, Retry, SyncMonque, Workers
from monque.embedded import EmbeddedMongo
from support.aliases import Collection, Database, Make
from support.clocks import ago
from support.jobs import document, only
from support.options import QUICK
from support.programs.child import child, uri_of
from support.waiting import Events, eventually

SECOND = timedelta(seconds=1)
MINUTE = timedelta(minutes=1)


def waited(event: JobFailed) -> float:
    return (event.job.next_run_at - event.job.updated_at).total_seconds()


def fails(job: Job[Any]) -> None:
    raise ValueError("no")


class TestStored:
    async def test_a_job_keeps_what_its_call_said_and_no_more(
        self, monque: Monque, collection: Collection
    ) -> None:
        monque.worker("work", fails, retry=Retry(9, first=SECOND))

        await monque.enqueue("work", max_attempts=3, retry=Retry(first=2 * SECOND, jitter=0.5))

        stored = await only(collection)
        assert stored["policy"] == {"maxAttempts": 3, "first": 2000, "jitter": 0.5}
        assert type(stored["policy"]["first"]) is Int64

    async def test_every_way_to_store_a_job_stores_its_settings(
        self, monque: Monque, collection: Collection
    ) -> None:
        worker = monque.worker("work", fails)
        await monque.enqueue("work", max_attempts=1)
        await monque.now("work", max_attempts=2)
        await monque.enqueue_many([NewJob("work", max_attempts=3), NewJob("work")])
        await worker.enqueue(None, max_attempts=4)
        await monque.schedule("@daily", "work", unique_key="a", max_attempts=5)
        await worker.schedule("@daily", unique_key="b", max_attempts=6)

        policies = [job.get("policy") async for job in collection.find().sort("_id")]

        assert policies == [None if n is None else {"maxAttempts": n} for n in (1, 2, 3, None, 4, 5, 6)]

    async def test_a_blocking_monque_stores_them_too(
        self, database: Database, collection: Collection
    ) -> None:
        uri = await _uri(database)
        await asyncio.to_thread(_store_blocking, uri)

        assert [job["policy"] async for job in collection.find()] == [{"maxAttempts": n} for n in (2, 3, 4)]

    async def test_declaring_a_schedule_again_replaces_its_settings(
        self, monque: Monque, collection: Collection
    ) -> None:
        first = await monque.schedule("@daily", "work", max_attempts=2)
        same = await monque.schedule("@daily", "work", max_attempts=2)
        assert same.updated_at == first.updated_at

        await monque.schedule("@daily", "work", retry=Retry(first=SECOND))
        assert (await only(collection))["policy"] == {"first": 1000}

        await monque.schedule("@daily", "work")
        after = await only(collection)
        assert "policy" not in after
        assert after["nextRunAt"] == first.next_run_at


async def _uri(database: Database) -> str:
    host, port = await database.client.address or ("", 0)
    place = host.replace("/", "%2F") if host.startswith("/") else f"{host}:{port}"
    return f"mongodb://{place}/{database.name}?directConnection=true"


def _store_blocking(uri: str) -> None:
    with SyncMonque(uri, options=QUICK) as monque:
        monque.enqueue("work", max_attempts=2)
        monque.now("work", max_attempts=3)
        monque.schedule("@daily", "work", max_attempts=4)


@pytest.fixture
def failing(make_monque: Make) -> Callable[..., Any]:
    """Run a job that fails, with these settings of its worker, and return the event."""

    async def run(job: NewJob[Any], **settings: Any) -> JobFailed:
        workers = Workers()
        workers.worker("work", fails, **settings)
        monque = await make_monque(workers=workers, options=replace(QUICK, retry_jitter=0.0)).open()
        events = Events(monque)
        await monque.enqueue_many([job])
        await monque.start()
        [event] = await events.wait("job:fail")
        await monque.stop(timeout=0)
        assert isinstance(event, JobFailed)
        return event

    return run


@pytest.mark.parametrize(
    ("of_the_job", "of_the_worker", "seconds"),
    [
        ({}, {}, 0.04),
        ({}, {"retry": Retry(first=30 * SECOND)}, 30),
        ({"retry": Retry(first=20 * SECOND)}, {"retry": Retry(first=30 * SECOND)}, 20),
        ({"max_attempts": 5}, {"retry": Retry(delays=[10 * SECOND])}, 10),
        ({}, {"retry": Retry(delay=lambda job, error: 7 * SECOND)}, 7),
        ({}, {"retry": Retry(delay=lambda job, error: 1 / 0)}, 0.04),
        ({}, {"retry": Retry(delay=lambda job, error: "soon")}, 0.04),
        ({}, {"retry": Retry(delay=lambda job, error: -SECOND)}, 0.04),
        ({"retry": Retry(limit=timedelta(milliseconds=10))}, {"retry": Retry(first=30 * SECOND)}, 0.01),
    ],
    ids=["options", "worker", "job", "group", "function", "raises", "a text", "negative", "limit alone"],
)
async def test_the_wait_is_exact(
    failing: Callable[..., Any], of_the_job: Any, of_the_worker: Any, seconds: float
) -> None:
    event = await failing(NewJob("work", **of_the_job), **of_the_worker)

    assert event.will_retry
    assert waited(event) == pytest.approx(seconds, rel=0.01)


@pytest.mark.parametrize(
    ("of_the_job", "of_the_worker"),
    [
        ({"max_attempts": 1}, {"max_attempts": 5}),
        ({}, {"max_attempts": 1}),
        ({}, {"retry": Retry.never()}),
        ({}, {"retry": Retry(fail_on=(ValueError,))}),
        ({"max_attempts": 5}, {"retry": Retry(retry_on=(OSError,))}),
        ({}, {"retry": Retry(delay=lambda job, error: None)}),
    ],
    ids=["job", "worker", "never", "fail_on", "retry_on", "function"],
)
async def test_the_first_failure_is_final(
    failing: Callable[..., Any], of_the_job: Any, of_the_worker: Any
) -> None:
    event = await failing(NewJob("work", **of_the_job), **of_the_worker)

    assert not event.will_retry
    assert (event.job.status, event.job.fail_count) == ("failed", 1)


class TestTheAttemptsOfAJob:
    @pytest.mark.parametrize(
        ("of_the_job", "of_the_worker", "attempts"),
        [
            ({}, {}, 7),
            ({}, {"max_attempts": 3}, 3),
            ({}, {"retry": Retry(4)}, 4),
            ({"max_attempts": 2}, {"max_attempts": 3}, 2),
            ({"retry": Retry(delays=[SECOND])}, {"max_attempts": 3}, 2),
        ],
        ids=["options", "worker", "retry of the worker", "call", "delays of the call"],
    )
    async def test_are_the_number_that_counts_wherever_the_job_is_seen(
        self, make_monque: Make, of_the_job: Any, of_the_worker: Any, attempts: int
    ) -> None:
        monque = await make_monque(options=replace(QUICK, max_retries=7)).open()
        seen: list[Job[Any]] = []
        events = Events(monque)

        @monque.worker("work", **of_the_worker)
        async def work(job: Job[Any]) -> None:
            seen.append(job)

        stored = await monque.enqueue("work", **of_the_job)
        [one] = await monque.get_jobs()
        [listed] = (await monque.list_jobs()).jobs
        await monque.start()
        [done] = await events.wait("job:complete")

        everywhere = [stored, one, listed, *seen, done.job, await monque.get_job(stored.id)]
        assert [job.max_attempts for job in everywhere] == [attempts] * 6

    async def test_end_with_the_one_that_says_so(self, make_monque: Make) -> None:
        seen: list[tuple[int, bool]] = []
        monque = await make_monque().open()
        events = Events(monque)

        @monque.worker("work", retry=Retry.fixed(timedelta(milliseconds=1), 3))
        async def work(job: Job[Any]) -> None:
            seen.append((job.fail_count, job.is_last_attempt))
            raise ValueError("no")

        await monque.enqueue("work")
        await monque.start()
        failed = await events.wait("job:fail", 3)

        assert seen == [(0, False), (1, False), (2, True)]
        assert [event.will_retry for event in failed] == [True, True, False]

    async def test_of_a_failed_run_are_those_of_the_worker(self, failing: Callable[..., Any]) -> None:
        event = await failing(NewJob("work"), max_attempts=3)

        assert event.job.max_attempts == 3

    async def test_of_a_name_that_nothing_can_look_up_are_those_of_the_options(
        self, monque: Monque, collection: Collection
    ) -> None:
        """A `bson.Code` is a text that cannot be hashed."""
        await collection.insert_one(document(name=Code("work")))

        [job] = await monque.get_jobs()

        assert job.max_attempts == QUICK.max_retries


async def test_the_function_of_the_wait_gets_the_decoded_job_and_the_error(make_monque: Make) -> None:
    seen: list[Any] = []

    def wait(job: Job[Any], error: BaseException) -> None:
        seen.append((job.data, job.fail_count, str(error)))

    monque = await make_monque().open()
    monque.worker("work", fails, retry=Retry(delay=wait))
    await monque.enqueue("work", {"to": "ada"})
    await monque.run_until_idle()

    assert seen == [({"to": "ada"}, 0, "no")]


async def test_errors_of_threads_and_of_payloads_go_through_the_filters(make_monque: Make) -> None:
    monque = await make_monque().open()
    events = Events(monque)

    def in_a_thread(job: Job[Any]) -> None:
        raise FileNotFoundError("gone")

    async def wants_a_number(job: Job[int]) -> None: ...

    monque.worker("thread", in_a_thread, retry=Retry(retry_on=(OSError,)))
    monque.worker("payload", wants_a_number, retry=Retry(retry_on=(OSError,)))
    await monque.enqueue("thread")
    await monque._context().store.collection.insert_one(document(name="payload", data={"not": "a number"}))
    await monque.start()
    failed = await events.wait("job:fail", 2)

    assert {event.job.name: event.will_retry for event in failed} == {"thread": True, "payload": False}


async def test_a_changed_policy_of_the_worker_counts_for_jobs_that_wait(
    make_monque: Make, collection: Collection
) -> None:
    """The job was stored, and failed, under code that tried ten times."""
    await collection.insert_one(document(failCount=1, failReason="ValueError: no", attempt=1))
    monque = await make_monque().open()
    monque.worker("work", fails, max_attempts=2)

    await monque.run_until_idle()

    assert (await only(collection))["status"] == "failed"


async def test_a_schedule_is_tried_as_its_call_said(make_monque: Make, collection: Collection) -> None:
    monque = await make_monque().open()
    monque.worker("work", fails, max_attempts=9)
    job = await monque.schedule("@daily", "work", max_attempts=1)
    await collection.update_one({"_id": job.id}, {"$set": {"nextRunAt": ago(seconds=1)}})

    await monque.run_until_idle()

    assert await collection.count_documents({"status": "failed", "scheduleId": job.id}) == 1
    assert await collection.count_documents({"_id": job.id, "status": "pending", "failCount": 0}) == 1


async def test_a_job_is_not_tried_more_often_than_it_says(make_monque: Make, collection: Collection) -> None:
    monque = await make_monque().open()
    monque.worker("work", fails, max_attempts=2)
    await monque.enqueue("work", retry=Retry(delays=[timedelta(0)] * 3))
    await monque.start()

    async def is_failed() -> None:
        assert (await only(collection))["status"] == "failed"

    await eventually(is_failed)
    assert (await only(collection))["failCount"] == 4


async def test_another_process_with_other_code_honours_the_policy_of_a_job(
    monque: Monque, server: EmbeddedMongo, database: Database, collection: Collection
) -> None:
    """Its own code says fifty attempts and seven hours."""
    await monque.enqueue("work", "waits", retry=Retry.fixed(20 * SECOND))
    await monque.enqueue("work", "once", max_attempts=1)
    await monque.enqueue("work", "plain")

    async with child("failing_worker", uri_of(server, database)) as program:
        for line in ("waits: 20", "once: final", "plain: 25200"):
            await program.wait_for(line)

    statuses = {job["data"]: job["status"] async for job in collection.find()}
    assert statuses == {"waits": "pending", "once": "failed", "plain": "pending"}
