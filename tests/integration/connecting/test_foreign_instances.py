"""What a program does with an instance made elsewhere: change its settings, run some of its workers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from monque import ConfigurationError, Job, Monque, Options, PayloadError, Workers
from monque.embedded import EmbeddedMongo
from support.aliases import Collection, Database, Make
from support.jobs import document
from support.options import QUICK
from support.programs.child import uri_of
from support.waiting import Events, eventually

MakeMonque = Make


@pytest.fixture
def two(make_monque: MakeMonque) -> Monque:
    """An instance with the workers `here` and `there`."""
    monque = make_monque()
    for name in ("here", "there"):
        monque.worker(name, lambda job: None)
    return monque


async def statuses(collection: Collection) -> dict[str, str]:
    return {job["name"]: job["status"] async for job in collection.find()}


@pytest.mark.parametrize("restriction", [{"only": ["here"]}, {"excluding": ["there"]}])
async def test_only_some_workers_run(
    restriction: dict[str, Any], two: Monque, collection: Collection
) -> None:
    two.workers.restrict(**restriction)
    await collection.insert_many([document(name="here"), document(name="there")])
    await two.run_until_idle()

    assert await statuses(collection) == {"here": "completed", "there": "pending"}


async def test_a_restriction_holds_for_workers_registered_later(
    make_monque: MakeMonque, collection: Collection
) -> None:
    monque = make_monque()
    monque.workers.restrict(only=["here"])
    await collection.insert_many([document(name="here"), document(name="there")])
    await monque.start()
    events = Events(monque)
    for name in ("there", "here"):
        monque.worker(name, lambda job: None)
    await monque.enqueue("there")
    await events.wait("job:complete")

    async def check() -> None:
        assert await collection.count_documents({"name": "there", "status": "pending"}) == 2
        assert await collection.count_documents({"name": "here", "status": "completed"}) == 1

    await eventually(check)


async def test_a_restriction_can_be_lifted(two: Monque, collection: Collection) -> None:
    two.workers.restrict(only=[])
    await collection.insert_many([document(name="here"), document(name="there")])
    await two.run_until_idle()
    assert await statuses(collection) == {"here": "pending", "there": "pending"}

    two.workers.restrict()
    await two.run_until_idle()
    assert await statuses(collection) == {"here": "completed", "there": "completed"}


async def test_a_worker_left_out_still_says_what_its_payload_is(make_monque: MakeMonque) -> None:
    monque = make_monque()

    @monque.worker("count")
    async def count(job: Job[int]) -> None: ...

    monque.workers.restrict(excluding=["count"])
    async with monque:
        with pytest.raises(PayloadError):
            await monque.enqueue("count", "many")


async def test_the_workers_are_those_that_were_handed_over() -> None:
    workers = Workers()

    assert Monque("mongodb://localhost/shop", workers=workers).workers is workers


async def test_options_are_replaced_before_it_is_opened(make_monque: MakeMonque) -> None:
    monque = make_monque()
    before = monque.instance_id
    monque.reconfigure(options=replace(QUICK, worker_concurrency=50))
    assert monque.instance_id == before
    monque.reconfigure(options=replace(QUICK, worker_concurrency=50, instance_id="second"))
    monque.worker("work", lambda job: None)
    async with monque:
        [view] = await monque.queue_views()

    assert view.worker is not None
    assert view.worker.concurrency == 50
    assert monque.instance_id == "second"


async def test_the_database_is_replaced_before_it_is_opened(
    server: EmbeddedMongo, database: Database, collection: Collection
) -> None:
    monque = Monque("mongodb://127.0.0.1:1/nowhere")
    monque.reconfigure(database=uri_of(server, database))
    async with monque:
        await monque.enqueue("work")

    assert await collection.count_documents({}) == 1


async def test_an_open_one_is_not_reconfigured(monque: Monque) -> None:
    with pytest.raises(ConfigurationError, match="this Monque is open, and its database"):
        monque.reconfigure(options=Options())


@pytest.mark.parametrize("wrong", [{"options": {}}, {"database": 7}, {"database": "http://example.org"}])
async def test_wrong_settings_are_refused_and_change_nothing(
    wrong: dict[str, Any], make_monque: MakeMonque
) -> None:
    monque = make_monque()
    with pytest.raises(ConfigurationError):
        monque.reconfigure(**wrong)

    await monque.open()
    assert monque.options == QUICK
