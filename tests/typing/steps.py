"""Steps, transactions, waits and signals: their types, and what is refused; see `calls.py`."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import assert_type

from bson import ObjectId
from pymongo.asynchronous.client_session import AsyncClientSession
from pymongo.client_session import ClientSession

from monque import Job, JobFilter, Monque, Step, SyncMonque, Wait, WaitTimeoutError

monque = Monque()
sync = SyncMonque()
DAY = timedelta(days=1)


@dataclass
class Order:
    id: str


@dataclass
class Payment:
    id: str


async def charge(order: Order, cents: int = 0, *, note: str = "") -> Payment:
    return Payment(f"{order.id}{cents}{note}")


def weigh(order: Order) -> float:
    return float(len(order.id))


async def greet(*, name: str) -> str:
    return name


async def book(session: AsyncClientSession, order: Order, *, payment: Payment) -> int:
    return len(order.id + payment.id)


async def without_session(order: Order) -> int:
    return len(order.id)


def blocking_book(session: ClientSession, order: Order) -> int:
    return len(order.id)


# `step` takes its type from the function, whether that is a coroutine function or a plain one.


@monque.worker("fulfil-order")
async def fulfil(job: Job[Order]) -> str:
    payment = await job.step("charge", charge, job.data)
    assert_type(payment, Payment)
    assert_type(await job.step("charge-more", charge, job.data, 5, note="tip"), Payment)
    assert_type(await job.step("charge-named", charge, order=job.data), Payment)
    assert_type(await job.step("greet", greet, name="Ada"), str)
    assert_type(await job.step("weigh", weigh, job.data), float)
    assert_type(await job.step("make", Payment, "p-1"), Payment)  # a class is a function, too
    assert_type(await job.step("now", lambda: datetime.now(UTC)), datetime)
    assert_type(
        await asyncio.gather(job.step("both-1", charge, job.data), job.step("both-2", weigh, job.data)),
        tuple[Payment, float],
    )

    assert_type(await job.transaction("book", book, job.data, payment=payment), int)

    await job.sleep("cool-off", DAY)
    await job.sleep("until-then", until=datetime.now(UTC))

    # `receive` takes its type from the kind.
    assert_type(await job.receive("decision", Payment), Payment)
    assert_type(await job.receive("words", list[str], name="second", timeout=DAY), list[str])
    try:
        await job.receive("picked-up", timeout=DAY)
    except WaitTimeoutError as error:
        assert_type(error, WaitTimeoutError)

    assert_type(job.steps, tuple[Step, ...])
    assert_type([(step.name, step.duration, step.until) for step in job.steps], list[_Shown])
    assert_type(job.waits_for, Wait | None)
    return payment.id


_Shown = tuple[str, timedelta | None, datetime | None]


async def whoever_sends(job: Job[Order]) -> None:
    assert_type(await monque.signal(job, "picked-up"), bool)
    assert_type(await monque.signal(job.id, "picked-up", {"by": "bike"}, id="evt_1"), bool)
    assert_type(await monque.signal(str(job.id), "picked-up", Payment("p")), bool)
    assert_type(await monque.signal(fulfil, "picked-up", 5, unique_key="A-1"), bool)
    assert_type(await monque.signal("fulfil-order", "picked-up", unique_key="A-1"), bool)
    async with monque.client.start_session() as session:
        assert_type(await monque.signal(ObjectId(), "picked-up", session=session), bool)
    assert_type(sync.signal(job, "picked-up", None, id="evt_1"), bool)

    await monque.retry_job(job, from_step="book")
    await monque.retry_job(job.id, from_start=True)
    JobFilter(waiting=True)
    JobFilter(waits_for="signal")


# What is wrong is refused.


@monque.worker("wrong")
async def wrong(job: Job[Order]) -> None:
    await job.step("charge", charge)  # type: ignore[call-overload]
    await job.step("charge", charge, "A-1")  # type: ignore[call-overload]
    await job.step("charge", charge, job.data, nothing=1)  # type: ignore[call-arg]
    await job.step("weigh", weigh, 5)  # type: ignore[call-overload]
    await job.step(charge, job.data)  # type: ignore[call-overload]
    await job.step("charge", charge(job.data))  # type: ignore[call-overload]
    number: int = await job.step("charge", charge, job.data)  # type: ignore[call-overload]
    await job.transaction("book", book, job.data)  # type: ignore[call-arg]
    await job.transaction("book", without_session, job.data)  # type: ignore[call-arg, arg-type]
    await job.transaction("book", blocking_book, job.data)  # type: ignore[arg-type]
    await job.sleep("cool-off", 5)  # type: ignore[arg-type]
    await job.sleep(DAY)  # type: ignore[arg-type]
    await job.sleep("until-then", until=DAY)  # type: ignore[arg-type]
    text: str = await job.receive("decision", Payment)  # type: ignore[arg-type]
    await job.receive("decision", Payment("p"))  # type: ignore[call-overload]
    await job.receive("decision", Payment, timeout=5)  # type: ignore[call-overload]
    await monque.signal(job)  # type: ignore[call-arg]
    await monque.signal(job, "picked-up", id=5)  # type: ignore[arg-type]
    await monque.signal(fulfil, "picked-up", key="A-1")  # type: ignore[call-arg]
    sync.signal(5, "picked-up")  # type: ignore[arg-type]
    JobFilter(waits_for="nothing")  # type: ignore[arg-type]
    print(number, text)
