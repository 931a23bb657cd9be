"""`edit_job`: another payload, time or priority of a job that waits, and only of the one that was seen."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pytest
from pydantic import BaseModel

from monque import (
    ConfigurationError,
    Job,
    JobChangedError,
    JobNotFoundError,
    JobStateError,
    Limit,
    Monque,
    PayloadError,
)
from monque._store.document import PARKED
from support.aliases import Collection
from support.clocks import ago, ahead
from support.jobs import claimed, document
from support.waiting import eventually
from support.waits import receiving


class Mail(BaseModel):
    to: str
    size: int = 1


@dataclass
class Call:
    customer: str


async def test_a_waiting_job_gets_another_payload_time_and_priority_in_one_write(monque: Monque) -> None:
    at = ahead(hours=3)
    before = await monque.enqueue("mail", {"to": "ada"}, delay=timedelta(hours=1), unique_key="k")

    after = await monque.edit_job(before, data={"to": "$bob"}, run_at=at, priority=7)

    assert (after.data, after.priority, after.unique_key) == ({"to": "$bob"}, 7, "k")
    assert after.next_run_at == at.replace(microsecond=at.microsecond // 1000 * 1000)
    assert after == await monque.get_job(before)
    kept = await monque.edit_job(after.id, priority=0)
    assert (kept.data, kept.priority, kept.next_run_at) == ({"to": "$bob"}, 0, after.next_run_at)
    assert (await monque.edit_job(kept, data=None)).data is None


async def test_a_job_that_somebody_has_changed_since_it_was_read_stays_as_it_is(monque: Monque) -> None:
    seen = await monque.enqueue("mail", {"to": "ada"}, delay=timedelta(hours=1))
    changed = await monque.edit_job(seen, data={"to": "bob"})

    with pytest.raises(JobChangedError, match="has changed since it was read") as refused:
        await monque.edit_job(seen, data={"to": "eve"})

    assert (refused.value.attempted_action, refused.value.current_status) == ("edit", "pending")
    assert await monque.get_job(seen) == changed
    assert (await monque.edit_job(seen.id, data={"to": "eve"})).data == {"to": "eve"}


async def test_what_cannot_be_edited_is_refused_with_the_reason(
    monque: Monque, collection: Collection
) -> None:
    at = ahead(hours=1)
    schedule = await monque.schedule("@daily", "report")
    steps = [{"n": "charge", "k": "step", "at": ago(hours=1)}]
    stored: dict[str, dict[str, Any]] = {
        "it is processing; only a pending one can be": claimed("elsewhere", lastHeartbeat=ahead(hours=1)),
        "it is completed": document(status="completed"),
        "it has steps, which began with its payload": document(nextRunAt=at, steps=steps),
    }
    await collection.insert_many(stored.values())
    for why, each in stored.items():
        with pytest.raises(JobStateError, match=why):
            await monque.edit_job(each["_id"], data={"n": 2})
        assert await collection.find_one({"_id": each["_id"]}) == each
    with pytest.raises(JobStateError, match="it is a schedule; edit_schedule changes those"):
        await monque.edit_job(schedule, priority=3)
    signal = receiving()
    await collection.insert_one(signal)
    with pytest.raises(JobStateError, match="without a timeout"):
        await monque.edit_job(signal["_id"], run_at=at)
    with pytest.raises(JobNotFoundError):
        await monque.edit_job("65f1c0ffee65f1c0ffee0001", priority=1)


async def test_wrong_values_are_refused_before_anything_is_stored(
    monque: Monque, collection: Collection
) -> None:
    @monque.worker("mail")
    async def mail(job: Job[Mail]) -> None: ...

    job = await monque.enqueue(mail, Mail(to="ada"), delay=timedelta(hours=1))
    before = await collection.find_one()
    with pytest.raises(PayloadError, match=r"does not fit Mail: data\.to"):
        await monque.edit_job(job.id, data={"size": 3}, priority=2)
    with pytest.raises(PayloadError, match="cannot be stored"):
        await monque.edit_job(job.id, data=object())
    wrong: list[dict[str, Any]] = [{}, {"priority": 10}, {"priority": "3"}, {"run_at": "tomorrow"}]
    for each in wrong:
        with pytest.raises(ConfigurationError):
            await monque.edit_job(job.id, **each)

    assert await collection.find_one() == before


async def test_a_job_in_a_line_goes_to_the_line_of_its_new_payload(
    monque: Monque, collection: Collection
) -> None:
    over, started = asyncio.Event(), list[str]()

    @monque.worker("sync", limit=Limit(1, by="customer"), concurrency=5)
    async def sync(job: Job[Call]) -> None:
        started.append(job.data.customer)
        await over.wait()

    await monque.start()
    for customer in ("ada", "bob"):
        await monque.enqueue(sync, Call(customer))
    second = await monque.enqueue(sync, Call("ada"))
    await eventually(lambda: _is_in_line(collection, second.id, "ada"))

    edited = await monque.edit_job(second.id, data=Call("bob"))

    assert not edited.is_parked
    await eventually(lambda: _is_in_line(collection, second.id, "bob"))
    await monque.edit_job(second.id, data=Call("eve"))
    await eventually(lambda: _have_started(started, ["ada", "bob", "eve"]))
    over.set()


async def _is_in_line(collection: Collection, job_id: Any, customer: str) -> None:
    found = await collection.find_one({"_id": job_id})
    assert found is not None
    assert found["nextRunAt"] == PARKED
    assert found["parked"]["key"].endswith(customer)


def _have_started(started: list[str], wanted: list[str]) -> None:
    assert sorted(started) == wanted
