"""Calls that must type-check, and calls that a type checker must refuse.

Never run: `mypy` reads it (strict, part of `make lint`). Each `type: ignore` below names an error that mypy
must find; if it no longer finds it, the ignore is unused, and that is an error.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Literal, TypedDict, TypeVar, assert_type
from zoneinfo import ZoneInfo

from bson import ObjectId
from pydantic import BaseModel
from pymongo import AsyncMongoClient
from pymongo.asynchronous.client_session import AsyncClientSession
from pymongo.asynchronous.database import AsyncDatabase
from pymongo.client_session import ClientSession

from monque import (
    OPERATIONS,
    AuditEntry,
    AuditPage,
    BulkResult,
    CallNext,
    ConnectionError,
    Debounce,
    DstEdge,
    EndUpdate,
    Enqueued,
    EnqueueOptions,
    Event,
    EventKind,
    Evidence,
    Explanation,
    FailureRow,
    Histogram,
    Instance,
    InstanceWorker,
    Job,
    JobCompleted,
    JobCounts,
    JobDeduplicated,
    JobFailed,
    JobFilter,
    JobStarted,
    JobStatus,
    LogLine,
    Monque,
    MonqueError,
    NamePaused,
    NameResumed,
    NewJob,
    Options,
    Pause,
    Progress,
    ProgressUpdate,
    QueueDepth,
    RecentRun,
    Retention,
    Retry,
    Schedule,
    ScheduleEnded,
    ScheduleSkipped,
    State,
    SyncCallNext,
    SyncMonque,
    Timeout,
    TrendPoint,
    Trends,
    Unique,
    Worker,
    Workers,
    WorkerSettings,
    dst_edges,
    next_runs,
)

T = TypeVar("T")
R = TypeVar("R")


@dataclass
class Email:
    to: str


class Order(BaseModel):
    number: int


class Row(TypedDict):
    id: int


monque = Monque("mongodb://localhost:27017/shop")


# Workers know the type of their payload, however they are registered.


@monque.worker("send-email", concurrency=3)
async def send_email(job: Job[Email]) -> None:
    assert_type(job.data, Email)
    assert_type(job.status, JobStatus)
    assert_type(job.id, ObjectId)


@monque.worker("ship")
def ship(job: Job[Order]) -> None:
    assert_type(job.data.number, int)


@monque.worker("clean-up")
async def clean_up(_job: Job[None]) -> None: ...


async def import_row(job: Job[Row]) -> str:
    return str(job.data["id"])


importer = monque.worker("import-row", import_row)
workers = Workers()


@workers.worker("apart")
async def apart(job: Job[dict[str, int]]) -> None:
    assert_type(job.data["a"], int)


@workers.worker("anything")
async def anything(job: Job[Any]) -> None: ...


assert_type(send_email, Worker[Email, None])
assert_type(ship, Worker[Order, None])
assert_type(clean_up, Worker[None, None])
assert_type(importer, Worker[Row, str])
assert_type(apart, Worker[dict[str, int], None])


async def orders() -> AsyncIterator[NewJob[Order]]:
    yield NewJob(ship, Order(number=1))


async def progressed(stored: int) -> None:
    assert_type(stored, int)


async def right_calls() -> None:
    assert_type(await monque.enqueue(send_email, Email("ada@example.org")), Job[Email, None])
    assert_type(await monque.enqueue(ship, Order(number=1), delay=timedelta(minutes=5)), Job[Order, None])
    assert_type(await monque.enqueue(ship, Order(number=1), run_at=datetime.now(UTC)), Job[Order, None])
    assert_type(await monque.enqueue(importer, Row(id=1), unique_key="row-1"), Job[Row, str])
    assert_type(await monque.enqueue(clean_up), Job[None, None])

    by_name = await monque.enqueue("send-email", Email("ada@example.org"))
    assert_type(by_name, Job[Email])
    without_data = await monque.enqueue("clean-up")
    assert_type(without_data, Job[None])

    assert_type(await monque.now(send_email, Email("ada@example.org")), Job[Email, None])
    assert_type(await monque.now(clean_up), Job[None, None])
    now_by_name = await monque.now("send-email", {"to": "ada@example.org"})
    assert_type(now_by_name, Job[dict[str, str]])

    assert_type(await monque.schedule("@daily", send_email, Email("ada@example.org")), Job[Email])
    assert_type(await monque.schedule("@daily", clean_up, timezone="Europe/Berlin"), Job[None])
    scheduled_by_name = await monque.schedule("0 * * * *", "clean-up")
    assert_type(scheduled_by_name, Job[None])

    assert_type(NewJob(send_email, Email("ada@example.org"), delay=timedelta(minutes=5)), NewJob[Email])
    assert_type(NewJob(clean_up), NewJob[None])
    assert_type(NewJob("clean-up", unique_key="k"), NewJob[None])
    of_a_row: NewJob[Row] = NewJob(importer, {"id": 1})
    await monque.enqueue_many([of_a_row, NewJob(importer, Row(id=2))])
    await monque.get_jobs(status="failed")

    stored = await monque.enqueue_many([NewJob(send_email, Email("ada@example.org")), NewJob("clean-up")])
    assert_type(stored, list[Job[Any]])
    await monque.enqueue_many(NewJob(ship, Order(number=number)) for number in range(10))
    assert_type(await monque.enqueue_many(orders(), return_jobs=True), list[Job[Any]])
    assert_type(await monque.enqueue_many(orders(), return_jobs=False, on_progress=print), int)
    assert_type(await monque.enqueue_many([], return_jobs=bool(stored)), list[Job[Any]] | int)
    await monque.enqueue_many(orders(), on_progress=progressed)
    assert_type(await monque.get_job("0" * 24), Job[Any] | None)
    assert_type(monque.is_healthy(), bool)
    monque.look_for_dead()
    assert_type(monque.database, AsyncDatabase[Any])
    assert_type(monque.client, AsyncMongoClient[Any])

    async with monque as opened:
        assert_type(opened, Monque)
        async with opened.client.start_session() as session, await session.start_transaction():
            await opened.enqueue(send_email, Email("ada@example.org"), session=session)


async def right_calls_of_workers(session: AsyncClientSession) -> None:
    assert_type(await send_email.enqueue(Email("ada@example.org")), Job[Email, None])
    assert_type(
        await send_email.enqueue(data=Email("ada@example.org"), run_at=datetime.now(UTC)), Job[Email, None]
    )
    assert_type(
        await ship.enqueue(Order(number=1), delay=timedelta(minutes=5), unique_key="k"), Job[Order, None]
    )
    assert_type(await importer.enqueue({"id": 1}, session=session), Job[Row, str])
    row: Row = {"id": 1}
    assert_type(NewJob(importer, row), NewJob[Row])
    assert_type(await clean_up.enqueue(), Job[None, None])
    assert_type(await clean_up.enqueue(None, delay=timedelta(minutes=5)), Job[None, None])
    assert_type(await apart.enqueue({"a": 1}), Job[dict[str, int], None])
    await anything.enqueue()
    await anything.enqueue({"a": 1})

    assert_type(await send_email.schedule("@daily", Email("ada@example.org"), unique_key="k"), Job[Email])
    assert_type(await importer.schedule("@daily", {"id": 1}, session=session), Job[Row])
    assert_type(await clean_up.schedule("@daily", timezone="Europe/Berlin"), Job[None])
    assert_type(await clean_up.schedule("@daily", timezone=ZoneInfo("Europe/Berlin")), Job[None])


@monque.worker("render", mode="process")
def render(job: Job[Order]) -> bytes:
    return b""


monque.worker("render-2", render.handler, mode="fork")  # type: ignore[call-overload]  # there is no such mode
Options(child_processes=4, max_jobs_per_child=100, max_memory_per_child=2**30)
Options(child_processes="4")  # type: ignore[arg-type]  # a text


@monque.worker("charge", max_attempts=3, retry=Retry(first=timedelta(seconds=2), fail_on=(OSError,)))
async def charge(job: Job[Order]) -> None: ...


assert_type(charge, Worker[Order, None])
assert_type(charge.settings, WorkerSettings)


async def right_settings() -> None:
    assert_type(await monque.enqueue(charge, Order(number=1), max_attempts=3), Job[Order, None])
    assert_type(await monque.now(charge, Order(number=1), retry=Retry.never()), Job[Order, None])
    assert_type(await monque.schedule("@daily", clean_up, retry=Retry(3)), Job[None])
    assert_type(await charge.enqueue(Order(number=1), max_attempts=3, unique_key="k"), Job[Order, None])
    assert_type(NewJob(charge, Order(number=1), max_attempts=3), NewJob[Order])
    assert_type(NewJob(clean_up, retry=Retry(delays=[timedelta(seconds=1)])), NewJob[None])


async def wrong_settings() -> None:
    await monque.enqueue(charge, Order(number=1), max_attempts="3")  # type: ignore[call-overload]  # a text
    assert_type(await monque.enqueue(charge, Order(number=1), priority=3), Job[Order, None])
    assert_type(NewJob(charge, Order(number=1), priority=3), NewJob[Order])
    assert_type(await monque.set_priority("65f1c0ffee65f1c0ffee0001", 3), Job[Any])
    assert_type(await monque.edit_job("65f1c0ffee65f1c0ffee0001", data={"n": 1}, priority=3), Job[Any])
    assert_type((await monque.slowest_jobs(by="waited")).jobs[0].waited, timedelta | None)
    await monque.slowest_jobs(by="size")  # type: ignore[arg-type]  # not one of them
    assert_type(await monque.set_priorities(JobFilter(name="charge"), 3), BulkResult)
    assert_type(await monque.act("prioritize", "65f1c0ffee65f1c0ffee0001", priority=3), Job[Any] | None)
    assert_type(await monque.act(OPERATIONS["cancel"], ObjectId(), note="why", running=True), Job[Any] | None)
    assert_type(OPERATIONS["retry"].applies_to, frozenset[JobStatus] | None)
    await monque.act("prioritize", ObjectId(), priority="high")  # type: ignore[arg-type]  # a text
    await monque.act("retry", ObjectId(), spraed=timedelta(1))  # type: ignore[call-arg]  # there is no such option
    assert_type(
        (await monque.delete_jobs(JobFilter(), limit=100, after=ObjectId())).next, ObjectId | str | None
    )
    assert_type(
        await monque.bulk("retry", JobFilter(), spread=timedelta(1), actor="a", via="web"), BulkResult
    )
    await monque.bulk(
        "retry", JobFilter(), on_piece=lambda result: print(result.count), limit=5, after="place"
    )
    await monque.bulk("retry", JobFilter(), actor="a", via="mail")  # type: ignore[arg-type]  # no such way
    await monque.bulk("retry", JobFilter(), after=ObjectId())  # type: ignore[arg-type]  # a place is a text
    await monque.retry_jobs(JobFilter(), limit="100")  # type: ignore[arg-type]  # a text
    assert_type((await monque.now(charge, Order(number=1))).priority, int)
    await monque.enqueue(charge, Order(number=1), priority="high")  # type: ignore[call-overload]  # a text
    await monque.set_priority("65f1c0ffee65f1c0ffee0001", "high")  # type: ignore[arg-type]  # a text
    Options(uses=("priority", "window", "failures", "waiting"))
    assert_type(await monque.signal(charge, "paid", {"by": "card"}, unique_key="k", id="evt_1"), bool)
    await monque.signal(ObjectId(), 7)  # type: ignore[arg-type]  # a number
    await monque.begin_use("failures")
    await monque.begin_use("speed")  # type: ignore[arg-type]  # there is no such use
    assert_type(await monque.recent_failures(name="charge", limit=5), list[FailureRow])
    assert_type((await monque.get_schedule("report")).recent_runs, tuple[RecentRun, ...])
    assert_type((await monque.now(charge, Order(number=1))).claimed_at, datetime | None)
    assert_type(await monque.run_now(ObjectId()), Job[Any])
    assert_type(await monque.jobs_ahead("65f1c0ffee65f1c0ffee0001", limit=9), int)
    assert_type(await monque.count_jobs(JobFilter(), limit=9, max_time=timedelta(seconds=1)), int)
    assert_type((await monque.list_jobs(payload_limit=4096)).jobs[0].payload_size, int | None)
    await monque.count_jobs(max_time=5)  # type: ignore[arg-type]  # a number
    assert_type(dst_edges("30 2 * * *", "Europe/Berlin"), list[DstEdge])
    JobFilter(claimed_by="web-1", recurring=False, claimed_before=datetime.now(UTC))
    latest = Unique("k", on_conflict="replace")
    assert_type(await monque.enqueue(charge, Order(number=1), unique=latest), Job[Order, None])
    assert_type(
        await charge.enqueue(Order(number=1), unique_key="k", debounce=timedelta(seconds=1)), Job[Order, None]
    )
    assert_type(NewJob(charge, Order(number=1), unique=latest), NewJob[Order])
    assert_type((await monque.now(charge, Order(number=1))).enqueued, Enqueued | None)
    await monque.enqueue(charge, Order(number=1), unique="k")  # type: ignore[call-overload]  # a text
    await monque.enqueue(charge, Order(number=1), debounce=5)  # type: ignore[call-overload]  # a number
    Unique("k", on_conflict="drop")  # type: ignore[arg-type]  # there is no such choice
    Unique("k", until="end")  # type: ignore[arg-type]  # there is no such choice
    Debounce(timedelta(seconds=1), max_wait=timedelta(minutes=1))

    @monque.worker("refund", unique=Unique(data=["number"], window=timedelta(hours=1)))
    async def refund(job: Job[Order]) -> None: ...

    @monque.on("job:deduplicated")
    async def on_deduplicated(event: JobDeduplicated) -> None:
        assert_type(event.how, Enqueued)

    Options(uses=("speed",))  # type: ignore[arg-type]  # no such use
    await monque.now(charge, Order(number=1), retry=3)  # type: ignore[call-overload]  # not a Retry
    await charge.enqueue(Order(number=1), retry=3)  # type: ignore[arg-type]  # not a Retry
    NewJob(clean_up, max_attempts="3")  # type: ignore[call-overload]  # a text
    Retry(first=5)  # type: ignore[arg-type]  # not a timedelta
    Retry(3, timedelta(1))  # type: ignore[call-arg]  # the wait is a keyword


@monque.worker("wrong", retries=3)  # type: ignore[call-overload, untyped-decorator]  # no such setting
async def wrong_setting(_job: Job[None]) -> None: ...


async def generic_calls(worker: Worker[T], data: T, options: EnqueueOptions) -> None:
    assert_type(await worker.enqueue(data), Job[T])
    assert_type(await worker.enqueue(data, **options), Job[T])


async def wrong_calls_of_workers() -> None:
    send_email.enqueue(Email("a"))  # type: ignore[unused-coroutine]  # it is not awaited
    await send_email.enqueue(5)  # type: ignore[arg-type]  # the worker wants an Email
    await send_email.enqueue(Order(number=1))  # type: ignore[arg-type]  # the worker wants an Email
    await send_email.enqueue()  # type: ignore[call-arg]  # there is no Email
    await send_email.enqueue(None)  # type: ignore[arg-type]  # there is no Email
    await importer.enqueue({"number": 1})  # type: ignore[typeddict-item, typeddict-unknown-key]  # a Row has an id
    await clean_up.enqueue(5)  # type: ignore[call-overload]  # the worker wants nothing
    await send_email.enqueue(Email("a"), None)  # type: ignore[call-arg]  # options are keywords
    await send_email.enqueue(Email("a"), delay=5)  # type: ignore[arg-type]  # not a timedelta
    await send_email.enqueue(Email("a"), retries=3)  # type: ignore[call-arg]  # no such option
    await send_email.schedule("@daily", 5)  # type: ignore[arg-type]  # the worker wants an Email
    await send_email.schedule("@daily")  # type: ignore[call-arg]  # there is no Email
    await send_email.schedule(Email("a"))  # type: ignore[call-arg, arg-type]  # the cron comes first
    await send_email.schedule("@daily", Email("a"), delay=5)  # type: ignore[call-arg]  # not of a schedule


async def right_completion(job: Job[Email], session: AsyncClientSession) -> None:
    await job.complete_in(session)
    await session.with_transaction(job.complete_in)


async def wrong_completion(job: Job[Email], session: AsyncClientSession, blocking: ClientSession) -> None:
    job.complete_in(session)  # type: ignore[unused-coroutine]  # it is not awaited
    await job.complete_in(blocking)  # type: ignore[misc]  # it is done when it returns
    await job.complete_in(monque.client)  # type: ignore[call-overload]  # not a session
    await job.complete_in()  # type: ignore[call-overload]  # whose transaction?


async def stopping() -> None:
    await monque.stop(timeout=5)
    await monque.stop(timeout=timedelta(seconds=5))


async def wrong_calls() -> None:
    await monque.enqueue(send_email, 5)  # type: ignore[misc]  # the worker wants an Email
    await monque.enqueue(send_email, Order(number=1))  # type: ignore[misc]  # the worker wants an Email
    await monque.enqueue(send_email)  # type: ignore[arg-type]  # there is no Email
    await monque.enqueue(importer, {"number": 1})  # type: ignore[misc]  # a Row has an id
    await monque.enqueue(clean_up, 5)  # type: ignore[misc]  # the worker wants nothing
    await monque.enqueue(send_email, Email("a"), timedelta(1))  # type: ignore[call-overload]  # options are keywords
    await monque.enqueue(send_email, Email("a"), delay=5)  # type: ignore[call-overload]  # not a timedelta
    await monque.enqueue(send_email, Email("a"), run_at="now")  # type: ignore[call-overload]  # not a datetime
    await monque.enqueue(send_email, Email("a"), retries=3)  # type: ignore[call-overload]  # no such option
    await monque.enqueue(len, "text")  # type: ignore[call-overload]  # neither a name nor a worker
    await monque.now(send_email, 5)  # type: ignore[misc]  # the worker wants an Email
    await monque.schedule("@daily", send_email, 5)  # type: ignore[misc]  # the worker wants an Email
    await monque.schedule(send_email, Email("a"))  # type: ignore[call-overload]  # the cron comes first
    await monque.get_jobs(status="bogus")  # type: ignore[arg-type]  # no such state
    await monque.enqueue_many(NewJob("send-email"))  # type: ignore[call-overload]  # a single one
    await monque.enqueue_many([], on_progress=5)  # type: ignore[call-overload]  # it is called
    await monque.enqueue_many([], return_jobs="no")  # type: ignore[call-overload]  # True or False
    await monque.enqueue_many([{"job": "send-email"}])  # type: ignore[list-item]  # not a NewJob
    await monque.get_job(5)  # type: ignore[arg-type]  # not an id
    await monque.stop(timeout="5 s")  # type: ignore[arg-type]  # not a duration


def wrong_values(job: Job[Email]) -> None:
    job.data = Email("b")  # type: ignore[misc]  # a job is a value
    job.status = JobStatus.FAILED  # type: ignore[misc]  # a job is a value
    print(job.retries)  # type: ignore[attr-defined]  # no such field
    Options(poll_interval=1)  # type: ignore[arg-type]  # not a timedelta
    Options("my_jobs")  # type: ignore[call-arg]  # options are keywords
    Options(pol_interval=timedelta(seconds=1))  # type: ignore[call-arg]  # no such option
    Retention(completed=30)  # type: ignore[arg-type]  # not a timedelta
    NewJob(send_email, 5)  # type: ignore[misc]  # the worker wants an Email
    NewJob(send_email)  # type: ignore[arg-type]  # there is no Email
    NewJob(clean_up, 5)  # type: ignore[misc]  # the worker wants nothing
    NewJob(send_email, Email("a"), timedelta(1))  # type: ignore[call-overload]  # options are keywords
    NewJob("send-email", delay=5)  # type: ignore[call-overload]  # not a timedelta
    Monque(options={"poll_interval": 1})  # type: ignore[arg-type]  # not an Options


@monque.worker("wrong", concurrency="3")  # type: ignore[call-overload, untyped-decorator]  # not a number
async def wrong_concurrency(_job: Job[None]) -> None: ...


@monque.worker("wrong")  # type: ignore[arg-type]  # a handler takes one job
async def two_arguments(_job: Job[None], _more: int) -> None: ...


@monque.worker("wrong")  # type: ignore[arg-type]  # a handler takes a job, not its data
async def takes_the_data(_data: Email) -> None: ...


# Limits, expiry and stopping.

HOUR = timedelta(hours=1)


@monque.worker(
    "limited",
    timeout=Timeout(timedelta(seconds=1), hard=timedelta(seconds=2)),
    expires=timedelta(1),
    mode="process",
)
async def limited(job: Job[None]) -> None:
    assert_type(job.interrupted, bool)
    assert_type(job.interruption, Literal["requested", "timeout", "shutdown", "lost", "waiting"] | None)
    assert_type(job.expires_at, datetime | None)
    assert_type(job.stuck_since, datetime | None)
    job.checkpoint()
    job.extend_timeout(timedelta(seconds=1))
    job.extend_timeout(1)  # type: ignore[arg-type]  # not a duration


monque.worker("limited", timeout=30)  # type: ignore[call-overload]  # not a duration


async def stops() -> None:
    await monque.enqueue(limited, timeout=timedelta(seconds=1), expires=datetime.now(UTC))
    assert_type(await monque.cancel_job("id", running=True, reason="enough"), Job[Any])
    assert_type((await monque.cancel_jobs(JobFilter(expired=True), running=True)).requested, int)
    JobFilter(name="charge", payload={"customer.id": 7, "paid": True, "note": None}, unique_key="k")
    JobFilter(ids=["65f1c0ffee65f1c0ffee0001", ObjectId()], priority=3)
    JobFilter(name="charge", payload={"customer": {"id": 7}})  # type: ignore[dict-item]  # not a scalar
    JobFilter(waiting=True, waits_for="signal")
    JobFilter(waits_for="batch", batch="import")
    JobFilter(waits_for="jobs")  # type: ignore[arg-type]  # there is no such wait
    await monque.enqueue(limited, batch="import")
    await monque.enqueue(limited, after_batch="import", if_failed="run", allow_empty=True)
    NewJob(limited, after_batch="import", if_failed="skip")  # type: ignore[call-overload]  # no such way
    assert_type((await monque.queue_stats(batch="import")).failed, int)
    assert_type(await monque.retry_job(ObjectId(), from_step="charge"), Job[Any])
    await monque.bulk("retry", JobFilter(), from_start=True)
    JobFilter(cancelled_by="me")  # type: ignore[arg-type]  # nobody of that name cancels


# Listeners know their event.


@monque.on(JobFailed)
def alert(event: JobFailed) -> None:
    assert_type(event.error, BaseException)
    assert_type(event.will_retry, bool)


@monque.on("job:complete")
async def by_kind(event: JobCompleted) -> None:
    assert_type(event.duration, timedelta)


def hear_all(event: Event) -> None:
    assert_type(event.kind, str)


monque.on(Event, hear_all)
monque.on(JobCompleted, hear_all)
monque.once(JobFailed, alert)
monque.off(JobFailed, alert)
monque.on(JobCompleted, alert)  # type: ignore[arg-type]  # it listens to another event
monque.on(int, hear_all)  # type: ignore[type-var, arg-type]  # not an event
monque.on("job:complete", hear_all)
monque.once("job:fail", alert)
monque.off("job:fail", alert)
monque.on("job:fail", lambda event: print(event.error, event.will_retry))
monque.on(JobCompleted, alert)  # type: ignore[arg-type]  # it listens to another event
monque.once("job:fial", alert)  # type: ignore[call-overload]  # no such event
monque.off("job:fial", alert)  # type: ignore[arg-type]  # no such event


@monque.on("job:fial")  # type: ignore[call-overload, untyped-decorator]  # no such event
def misspelt(event: JobFailed) -> None: ...


@monque.on(JobCompleted)  # type: ignore[arg-type]  # it listens to another event
def mistaken(event: JobFailed) -> None: ...


@monque.on  # type: ignore[call-overload]  # which event?
def forgotten(event: JobFailed) -> None: ...


def by_any_kind(kind: EventKind) -> None:
    monque.off(kind, hear_all)


# Pauses.


@monque.worker("count-words")
async def count_words(job: Job[str]) -> int:
    return len(job.data.split())


def find_words(job: Job[str]) -> list[str] | None:
    return job.data.split() or None


list_words = monque.worker("list-words", find_words)
assert_type(count_words, Worker[str, int])
assert_type(list_words, Worker[str, list[str] | None])
any_result: Worker[str] = count_words


async def by_name(text: str) -> Job[str]:
    return await monque.enqueue("count-words", text)


async def of_any(worker: Worker[T, R], data: T) -> Job[T, R]:
    return await worker.enqueue(data)


async def results() -> None:
    job = await monque.enqueue(send_email, Email("ada"), store_result=True)
    assert_type(await monque.wait_for(job, timeout=timedelta(minutes=1)), Job[Any])
    assert_type(await monque.wait_for("id"), Job[Any])
    assert_type(await monque.result_of(job.id), Any)
    assert_type(await monque.result_of(job), None)
    assert_type(await monque.result_of(await count_words.enqueue("a b")), int)
    assert_type(await monque.result_of(await monque.enqueue(count_words, "a b")), int)
    assert_type(await monque.result_of(await monque.now(list_words, "a b")), list[str] | None)
    assert_type(await monque.result_of(await by_name("a b")), Any)
    assert_type(await monque.result_of(await of_any(count_words, "a b")), int)
    apart: Job[str] = await count_words.enqueue("a b")
    assert_type(await monque.result_of(apart), Any)
    await monque.wait_for(job, timedelta(minutes=1))  # type: ignore[call-arg]  # timeout= is named
    await monque.result_of(job, timeout=60)  # type: ignore[call-overload]  # a duration
    await monque.enqueue(send_email, Email("ada"), store_result="yes")  # type: ignore[call-overload]
    if job.progress is not None:
        assert_type(job.progress, Progress)
        assert_type(job.progress.fraction, float | None)
    assert_type(job.log, tuple[LogLine, ...])
    assert_type(job.result_error, str | None)
    job.report_progress(1, 2.5, "half")
    job.report_progress(1, message="x")
    job.report_progress("1")  # type: ignore[arg-type]  # a number
    job.add_log("text", "warning")


async def completing_with_a_result(
    job: Job[Email], session: AsyncClientSession, blocking: ClientSession
) -> None:
    await job.complete_in(session, result={"paid": 5})
    job.complete_in(blocking, result=5)
    await job.complete_in(session, 5)  # type: ignore[call-overload]  # result= is named


async def pauses() -> None:
    assert_type(await monque.pause("send-email", until=timedelta(hours=1), reason="why", by="ada"), Pause)
    assert_type(await monque.pause(until=datetime.now(UTC)), Pause)
    assert_type(await monque.resume(), bool)
    assert_type(await monque.paused(), list[Pause])
    assert_type((await monque.queue_views())[0].paused, Pause | None)
    await monque.pause("send-email", until=3600)  # type: ignore[arg-type]  # a time or a duration
    await monque.pause("send-email", timedelta(hours=1))  # type: ignore[call-arg]  # until= is named


async def reasons(job: Job[Email]) -> None:
    why = await monque.explain(job.id, texts=False, max_time=timedelta(seconds=5))
    assert_type(why, Explanation)
    assert_type(why.certainty, Literal["certain", "likely"])
    assert_type(why.evidence, tuple[Evidence, ...])
    assert_type(why.remedies[0].command, str | None)
    assert_type(await monque.get_job(job), Job[Any] | None)
    assert_type(await monque.cancel_job(job), Job[Any])
    assert_type(await monque.explain(job), Explanation)
    assert_type(await monque.run_now(job), Job[Any])
    await monque.delete_job(job)
    await monque.delete_job(JobFilter())  # type: ignore[arg-type]  # not a job
    await monque.delete_jobs(JobFilter(ids=[job, job.id]))


async def audits(job: Job[Email]) -> None:
    page = await monque.audit(
        job=job, actor="ada", action=["cancel"], limit=10, max_time=timedelta(seconds=5)
    )
    assert_type(page, AuditPage)
    assert_type(page.entries, list[AuditEntry])
    assert_type(page.entries[0].note, str | None)
    await monque.record_action(
        actor="ada", via="cli", action="cancel", outcome="done", before=job, filter=JobFilter(name="a")
    )
    await monque.record_action(actor="ada", via="mail", action="x", outcome="done")  # type: ignore[arg-type]


async def instances_and_trends() -> None:
    assert_type(await monque.instances(max_time=timedelta(seconds=5)), list[Instance])
    assert_type((await monque.instances())[0].workers, tuple[InstanceWorker, ...])
    points = await monque.trends(name="send-email", step=timedelta(minutes=5), by_name=True)
    assert_type(points, list[TrendPoint])
    assert_type(points[0].waited.quantile(0.95), timedelta | None)
    assert_type(points[0].ran + points[0].waited, Histogram)
    assert_type(await monque.queue_depths(failures=True), list[QueueDepth])
    assert_type(await monque.job_counts(limit=10), JobCounts)
    assert_type(await monque.estimated_count(), int)
    assert_type(monque.companions, Mapping[str, bool])
    Options(trends=Trends(interval=timedelta(seconds=2)), register=False, release="2026.11")
    Options(trends=None)
    Options(trends=True)  # type: ignore[arg-type]  # Trends() or None
    await monque.trends("send-email")  # type: ignore[call-arg]  # name= is named


@monque.on("name:paused")
def rests(event: NamePaused) -> None:
    assert_type(event.pause, Pause)


@monque.on(NameResumed)
def goes_on(event: NameResumed) -> None:
    assert_type(event.name, str | None)


def times(job: Job[Email]) -> None:
    assert_type(job.next_run_at, datetime | None)
    assert_type(job.is_parked, bool)
    assert_type(job.run_count, int)
    assert_type(job.last_run_at, datetime | None)
    assert_type(job.schedule_id, ObjectId | None)
    assert_type(job.planned_for, datetime | None)


# Schedules.


async def schedules() -> None:
    soon, second = datetime.now(UTC), timedelta(seconds=1)
    assert_type(await monque.schedule(30 * second, clean_up, jitter=3 * second), Job[None])
    await monque.schedule("@daily", clean_up, grace=timedelta(hours=1), start=soon, end=soon, limit=3)
    await clean_up.schedule(timedelta(hours=1), as_jobs=True, overlap="skip", paused=True)
    await clean_up.schedule("@hourly", run_now=True)
    await monque.schedule("@hourly", "clean-up", run_now=True)
    await monque.schedule(30, clean_up)  # type: ignore[call-overload]  # seconds are no interval
    await monque.schedule("@daily", clean_up, overlap="queue")  # type: ignore[call-overload]  # allow or skip
    await clean_up.schedule("@daily", grace=5)  # type: ignore[call-overload]  # a duration
    assert_type(await monque.list_schedules(name="clean-up"), list[Schedule])
    schedule = await monque.get_schedule("clean-up")
    assert_type(schedule, Schedule)
    assert_type(schedule.next_run_at, datetime | None)
    assert_type(schedule.next_runs(3), list[datetime])
    assert_type(await monque.pause_schedule("clean-up", "key"), Schedule)
    assert_type(await monque.resume_schedule("clean-up"), Schedule)
    assert_type(await monque.trigger_schedule("clean-up"), Job[Any])
    assert_type(await monque.unschedule("clean-up"), bool)
    assert_type(await monque.edit_schedule("clean-up", cron=timedelta(minutes=5), data={"a": 1}), Schedule)
    assert_type(next_runs("@daily", "Europe/Berlin", count=3), list[datetime])
    JobFilter(schedule_id=schedule.id)


@monque.on("schedule:skipped")
def skipped(event: ScheduleSkipped) -> None:
    assert_type(event.schedule, Schedule)


@monque.on(ScheduleEnded)
def over(event: ScheduleEnded) -> None:
    assert_type(event.schedule.run_count, int)


# A filter knows the states.

JobFilter(status="failed")
JobFilter(status=JobStatus.FAILED)
JobFilter(status=["failed", JobStatus.CANCELLED])
JobFilter(status={"failed", "cancelled"})
JobFilter(status="bogus")  # type: ignore[arg-type]  # no such state
JobFilter(status=["bogus"])  # type: ignore[list-item]  # no such state


def errors(error: ConnectionError) -> MonqueError:
    return error


# Hooks keep their type. The attributes of a state may be of any type.


@monque.on_start
async def connect() -> int:
    monque.state.count = 5
    assert_type(monque.state, State)
    return 5


@monque.on_stop
def disconnect() -> None:
    assert_type(workers_apart.state.anything, Any)


workers_apart = Workers()
workers_apart.on_start(disconnect)
workers_apart.on_stop(lambda: None)
workers_apart.on("job:fail", lambda event: print(event.error))


@workers_apart.on(JobFailed)
def hears_failures(event: JobFailed) -> None: ...


workers_apart.on(JobStarted, hears_failures)  # type: ignore[arg-type]  # it takes a JobFailed


def takes_job(job: Job[None]) -> None:
    count: int = job.state.count
    assert_type(job.state, State)
    assert_type(count, int)


monque.on_start(takes_job)  # type: ignore[type-var]  # a hook takes no argument
monque.on_stop("connect")  # type: ignore[type-var]  # not a function


async def right_hooks() -> None:
    assert_type(await connect(), int)
    disconnect()


@asynccontextmanager
async def lifespan(monque: Monque) -> AsyncIterator[dict[str, str]]:
    yield {"greeting": "Hello"}


@asynccontextmanager
async def lifespan_without_values(monque: Monque) -> AsyncIterator[None]:
    yield


@contextmanager
def blocking_lifespan(monque: Monque) -> Iterator[None]:
    yield


@asynccontextmanager
async def lifespan_that_yields_a_number(monque: Monque) -> AsyncIterator[int]:
    yield 5


Monque(lifespan=lifespan)
Monque(lifespan=lifespan_without_values)
Monque(lifespan=blocking_lifespan)  # type: ignore[arg-type]  # it is for a SyncMonque
Monque(lifespan=lifespan_that_yields_a_number)  # type: ignore[arg-type]  # a mapping, or nothing


class Timing:
    async def __call__(self, job: Job[Any], call_next: CallNext) -> Any:
        assert_type(job.name, str)
        return await call_next()


async def around(job: Job[Any], call_next: CallNext) -> Any:
    return await call_next()


def beside(job: Job[Any], call_next: SyncCallNext) -> Any:
    return call_next()


async def takes_a_number(job: Job[Any], call_next: int) -> Any:
    return call_next


Monque(middleware=[Timing(), around, beside], workers=Workers(middleware=[Timing()]))
SyncMonque(middleware=(around, beside))
Monque(middleware=[Timing])  # type: ignore[list-item]  # a class: Timing() is one
Monque(middleware=[takes_a_number])  # type: ignore[list-item]  # call_next is no number
Monque(middleware=Timing())  # type: ignore[arg-type]  # not a list


async def follow(job: Job[Email]) -> None:
    async for update in monque.watch(job, timeout=timedelta(minutes=1)):
        match update:
            case ProgressUpdate(progress=progress):
                assert_type(progress, Progress)
            case EndUpdate(job=ended):
                assert_type(ended, Job[Any])
        assert_type(update.kind, str)
    monque.watch(5)  # type: ignore[arg-type]  # neither a job nor an id
