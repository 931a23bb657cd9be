"""As `calls.py`, for programs without asyncio."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypedDict, assert_type

from pymongo.client_session import ClientSession

from monque import (
    AuditPage,
    BulkResult,
    Explanation,
    Job,
    JobCompleted,
    JobFailed,
    JobFilter,
    JobUpdate,
    Monque,
    NewJob,
    Pause,
    Schedule,
    State,
    SyncMonque,
    SyncWorker,
    SyncWorkers,
)


@dataclass
class Email:
    to: str


class Row(TypedDict):
    id: int


monque = SyncMonque("mongodb://localhost:27017/shop")


@monque.worker("send-email", concurrency=3)
def send_email(job: Job[Email]) -> None:
    assert_type(job.data, Email)


@monque.on(JobFailed)
def alert(event: JobFailed) -> None:
    assert_type(event.error, BaseException)


def clean(job: Job[None]) -> None:
    assert_type(job.data, None)


clean_up = monque.worker("clean-up", clean)

assert_type(send_email, SyncWorker[Email, None])
assert_type(clean_up, SyncWorker[None, None])

workers = SyncWorkers()


@workers.worker("apart")
def apart(job: Job[Row]) -> None:
    assert_type(job.data["id"], int)


assert_type(apart, SyncWorker[Row, None])


async def later() -> AsyncIterator[NewJob[None]]:
    yield NewJob(clean_up)


def right_calls() -> None:
    with monque as opened:
        assert_type(opened, SyncMonque)
    assert_type(monque.enqueue(send_email, Email("ada@example.org")), Job[Email, None])
    assert_type(monque.enqueue(clean_up), Job[None, None])
    assert_type(SyncMonque(Monque()).enqueue(send_email, Email("ada@example.org")), Job[Email, None])
    by_name = monque.enqueue("clean-up")
    assert_type(by_name, Job[None])
    assert_type(monque.now(send_email, Email("ada@example.org")), Job[Email, None])
    assert_type(monque.schedule("@daily", send_email, Email("ada@example.org")), Job[Email])
    assert_type(monque.schedule(timedelta(minutes=1), send_email, Email("a"), limit=3), Job[Email])
    assert_type(monque.list_schedules(), list[Schedule])
    assert_type(monque.pause_schedule("send-email"), Schedule)
    assert_type(monque.unschedule("send-email"), bool)
    assert_type(monque.act("stop", by_name, note="why"), Job[Any] | None)
    assert_type(monque.bulk("prioritize", JobFilter(), priority=3, on_piece=print), BulkResult)
    assert_type(monque.enqueue_many([NewJob(clean_up)]), list[Job[Any]])
    assert_type(monque.enqueue_many([NewJob(clean_up)], return_jobs=True), list[Job[Any]])
    new_jobs = (NewJob(clean_up) for _ in range(10))
    assert_type(monque.enqueue_many(new_jobs, return_jobs=False, on_progress=print), int)
    assert_type(monque.get_job("0" * 24), Job[Any] | None)
    assert_type(monque.retry_job(by_name), Job[Any])


def right_calls_of_workers() -> None:
    assert_type(send_email.enqueue(Email("ada@example.org"), delay=timedelta(minutes=5)), Job[Email, None])
    assert_type(clean_up.enqueue(unique_key="k"), Job[None, None])
    assert_type(apart.enqueue({"id": 1}), Job[Row, None])
    assert_type(send_email.schedule("@daily", Email("ada@example.org")), Job[Email])
    assert_type(clean_up.schedule("@daily", timezone="Europe/Berlin"), Job[None])
    assert_type(clean_up.schedule("@hourly", run_now=True), Job[None])


def wrong_calls_of_workers() -> None:
    send_email.enqueue(5)  # type: ignore[arg-type]  # the worker wants an Email
    send_email.enqueue()  # type: ignore[call-arg]  # there is no Email
    clean_up.enqueue(5)  # type: ignore[call-overload]  # the worker wants nothing
    apart.enqueue({"number": 1})  # type: ignore[typeddict-item, typeddict-unknown-key]  # a Row has an id
    send_email.schedule("@daily")  # type: ignore[call-arg]  # there is no Email
    send_email.enqueue(Email("a"), retries=3)  # type: ignore[call-arg]  # no such option


def right_completion(job: Job[Email], session: ClientSession) -> None:
    job.complete_in(session)
    session.with_transaction(job.complete_in)


def results() -> None:
    assert_type(monque.wait_for("id", timeout=timedelta(minutes=1)), Job[Any])
    monque.result_of(monque.enqueue("work", store_result=True))


def pauses() -> None:
    assert_type(monque.pause("send-email", reason="why"), Pause)
    assert_type(monque.resume("send-email"), bool)
    assert_type(monque.paused(), list[Pause])
    assert_type(monque.audit(actor="ada"), AuditPage)
    assert_type(monque.explain("65f1c0ffee65f1c0ffee0001"), Explanation)


def wrong_calls() -> None:
    monque.enqueue(send_email, 5)  # type: ignore[misc]  # the worker wants an Email
    monque.enqueue(send_email)  # type: ignore[arg-type]  # there is no Email
    monque.now(send_email, 5)  # type: ignore[misc]  # the worker wants an Email
    monque.schedule("@daily", send_email, 5)  # type: ignore[misc]  # the worker wants an Email
    monque.enqueue_many(NewJob("x"))  # type: ignore[call-overload]  # a single one
    monque.enqueue_many(later())  # type: ignore[call-overload]  # an async iterable
    monque.enqueue_many([5])  # type: ignore[list-item]  # not a NewJob


@monque.worker("wrong")  # type: ignore[arg-type]  # a handler takes a job, not its data
def takes_the_data(_data: Email) -> None: ...


monque.on("job:fail", alert)
monque.on(JobCompleted, alert)  # type: ignore[arg-type]  # it listens to another event
monque.once("job:fial", alert)  # type: ignore[call-overload]  # no such event
monque.get_jobs(status="bogus")  # type: ignore[arg-type]  # no such state
monque.on(JobFailed, clean)  # type: ignore[arg-type]  # a handler is no listener


@monque.on_start
def connect() -> int:
    monque.state.count = 5
    assert_type(monque.state, State)
    return 5


assert_type(connect(), int)
workers.on_stop(connect)
monque.on_stop(clean)  # type: ignore[type-var]  # a hook takes no argument


@contextmanager
def lifespan(monque: SyncMonque) -> Iterator[dict[str, str]]:
    yield {"greeting": "Hello"}


@contextmanager
def lifespan_without_monque() -> Iterator[None]:
    yield


SyncMonque(lifespan=lifespan)
SyncMonque(lifespan=lifespan_without_monque)  # type: ignore[arg-type]  # it takes the SyncMonque


def follow(monque: SyncMonque) -> None:
    assert_type(next(monque.watch("65f0000000000000000000aa")), JobUpdate)
