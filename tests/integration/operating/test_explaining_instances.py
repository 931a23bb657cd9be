"""`explain` with instances that are at work and describe themselves in the register."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from bson import ObjectId

from monque import Monque, Options, Trends
from monque._ops import register
from support.aliases import Collection, Database, Make
from support.clocks import ago
from support.jobs import claimed, document
from support.options import QUICK
from support.register import in_the_register
from support.waiting import eventually
from support.working import Work

REGISTERED = replace(
    QUICK,
    trends=Trends(interval=timedelta(milliseconds=200)),
    register=True,
    heartbeat_interval=timedelta(milliseconds=200),
    heartbeat_tolerance=timedelta(hours=1),
)


async def running(make_monque: Make, name: str, *names: str, **options: Any) -> tuple[Monque, Work]:
    """An instance with this id that is in the register and has a worker for each of these job names."""
    chosen: Options = replace(REGISTERED, instance_id=name, **options)
    monque, work = await make_monque(options=chosen, companions=True).open(), Work(waits=True)
    for each in names:
        monque.worker(each, work, concurrency=1)
    await monque.start()
    await registered(monque, name)
    return monque, work


async def registered(monque: Monque, name: str, state: str = "running") -> None:
    async def check() -> None:
        assert (name, state) in {(each.id, each.state) for each in await monque.instances()}

    await eventually(check)


async def test_nobody_serves_it(make_monque: Make, monque: Monque) -> None:
    await running(make_monque, "web-1", "send-email")
    job = await monque.enqueue("send-mail", None)
    other = await monque.enqueue("resize", None)

    found = await monque.explain(job.id)
    assert (found.code, found.certainty) == ("no-worker", "certain")
    assert found.sentence == "The only live instance has no worker for send-mail. Did you mean send-email?"
    assert (await monque.explain(other.id)).sentence == "The only live instance has no worker for resize."


async def test_its_workers_are_switched_off_or_stopping(
    make_monque: Make, monque: Monque, database: Database
) -> None:
    off = await make_monque(options=replace(REGISTERED, instance_id="web-1"), companions=True).open()
    off.worker("work", Work())
    off.workers.restrict(excluding=["work"])
    off.worker("other", Work())
    await off.start()
    await registered(off, "web-1")
    job = await monque.enqueue("work", None)

    found = await monque.explain(job.id)
    assert found.code == "workers-off"
    assert found.sentence == "web-1 has this worker switched off (--only or --except)."

    await database["monque_jobs_instances"].insert_one(in_the_register("web-2", "work", state="stopping"))
    assert (await monque.explain(job.id)).sentence.endswith("; web-2 is stopping.")


async def test_all_slots_are_busy(make_monque: Make, monque: Monque, collection: Collection) -> None:
    worker, work = await running(make_monque, "web-1", "work")
    first = await monque.enqueue("work", 0)
    await eventually(lambda: _runs(work, 1))
    for number in range(3):
        job = await monque.enqueue("work", number)
    await monque.enqueue("work", 9)

    async def is_told() -> None:
        found = await monque.explain(job.id)
        assert found.code == "slots-full"
        assert "The only slot for work is busy; 2 jobs are before it." in found.sentence
        assert f"Longest running: {first.id}, for " in found.sentence
        assert found.sentence.endswith(" on web-1.")

    await eventually(is_told)

    for number in range(4):
        await monque.enqueue("work", number, priority=5)
    found = await monque.explain(job.id)
    assert found.code == "limited"
    assert found.sentence.startswith("4 of the 6 jobs before it have a higher priority, and the only slot")
    work.done.set()
    await worker.stop()


@pytest.mark.parametrize("busy_with", ["work", "other"])
async def test_busy_slots_are_told_before_the_instance_has_described_itself_again(
    make_monque: Make, monque: Monque, monkeypatch: pytest.MonkeyPatch, busy_with: str
) -> None:
    """The register has what the instance said when it started: all slots were free."""
    monkeypatch.setattr(register, "_CHECK", 3_600.0)
    rarely = {"heartbeat_interval": timedelta(hours=1), "instance_concurrency": 1}
    worker, work = await running(make_monque, "web-1", "work", "other", **rarely)
    await monque.enqueue(busy_with)
    await eventually(lambda: _runs(work, 1))
    job = await monque.enqueue("work")

    found = await monque.explain(job.id)

    assert found.sentence.startswith("The only slot for work is busy; it is the next one.")
    work.done.set()
    await worker.stop()


def _runs(work: Work, count: int) -> None:
    assert work.runs.total() >= count


async def test_a_job_that_runs_and_one_whose_owner_is_silent(
    make_monque: Make, monque: Monque, collection: Collection
) -> None:
    _, work = await running(make_monque, "web-1", "work")
    job = await monque.enqueue("work", None)
    await eventually(lambda: _runs(work, 1))
    silent = ObjectId()
    await collection.insert_one(claimed("web-9", _id=silent, name="silent", lastHeartbeat=ago(minutes=2)))

    found = await monque.explain(job.id)
    assert found.code == "running"
    assert found.sentence.startswith("It has been running for ")
    assert " on web-1, heard of " in found.sentence
    gone = await monque.explain(silent)
    assert gone.code == "owner-silent"
    assert gone.sentence == (
        "Its owner web-9 has been silent for 2 min; others take the job over within 600 ms."
    )

    await monque.cancel_job(job.id, running=True)
    work.done.set()


async def test_without_a_change_stream_a_job_waits_for_the_next_poll(
    make_monque: Make, monque: Monque, collection: Collection
) -> None:
    never = timedelta(hours=1)
    await running(make_monque, "web-1", "work", change_streams=False, poll_interval=never)
    job = ObjectId()
    await collection.insert_one(document(_id=job, nextRunAt=ago(seconds=30)))

    found = await monque.explain(job)
    assert (found.code, found.certainty) == ("polling", "certain")
    assert found.sentence == "No change stream: instances look every 1 h."


async def test_the_usual_times_of_a_name_are_told(make_monque: Make, monque: Monque) -> None:
    worker, work = await running(make_monque, "web-1", "work")
    work.done.set()
    for _ in range(20):
        await monque.enqueue("work", None)

    async def is_counted() -> None:
        assert sum(point.completed for point in await monque.trends(name="work")) == 20

    await eventually(is_counted)
    work.done.clear()
    first = await monque.enqueue("work", None)
    await eventually(lambda: _runs(work, 21))
    last = await monque.enqueue("work", None)
    for _ in range(2):
        last = await monque.enqueue("work", None)

    async def is_told() -> None:
        assert "; 95 % of its kind take less than " in (await monque.explain(first.id)).sentence
        found = await monque.explain(last.id)
        assert "; 2 jobs are before it; at " in found.sentence
        assert " a minute that is about " in found.sentence

    await eventually(is_told)
    work.done.set()
    await worker.stop()


async def test_an_instance_that_has_stopped_is_no_live_one(make_monque: Make, monque: Monque) -> None:
    worker, _ = await running(make_monque, "web-1", "work")
    await worker.stop()
    await registered(monque, "web-1", "stopped")

    found = await monque.explain((await monque.enqueue("work", None)).id)
    assert found.code == "no-instance"
    assert found.sentence.startswith("No instance has reported since ")
    assert "web-1: stopped, " in found.evidence[1].value
