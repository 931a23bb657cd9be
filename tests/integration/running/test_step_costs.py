"""The commands that durable steps cost beyond those of a plain job, and that sleeping jobs cost none."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from monque import Job, Monque, NewJob, Options, Snooze
from monque.embedded import EmbeddedMongo
from support.aliases import Collection, Database, Make
from support.clocks import ago, now
from support.filling import fill
from support.options import NEVER_POLLING
from support.sharding import NOT_THROUGH_MONGOS
from support.traffic import READS_CONTROL, counted_instance
from support.waiting import Events

pytestmark = NOT_THROUGH_MONGOS

PLAIN = Counter(insert=1, findAndModify=2)
MOMENT = timedelta(milliseconds=20)


def besides(sent: Counter[str]) -> Counter[str]:
    """What was sent beside the reads of the change stream and of the control document."""
    return Counter(
        {name: count for name, count in sent.items() if name not in ("getMore", READS_CONTROL, "ping")}
    )


async def cost_of(monque: Monque, commands: Counter[str], handler: Callable[[Job[Any]], Any]) -> Counter[str]:
    """What one job costs, from its storing to its completion."""
    name = handler.__name__
    monque.worker(name, handler)
    await monque.run_until_idle()
    commands.clear()
    events = Events(monque)
    await monque.enqueue(name)
    await events.wait("job:complete")
    return besides(commands)


async def plain(job: Job[None]) -> None: ...


async def steps(job: Job[None]) -> None:
    async def double(number: int) -> int:
        return 2 * number

    for number in range(5):
        await job.step(f"step-{number}", double, number)


async def sleeps(job: Job[None]) -> None:
    await job.sleep("rest", MOMENT)


async def snoozes(job: Job[None]) -> None:
    if job.snooze_count == 0:
        raise Snooze(MOMENT)


async def test_a_step_costs_one_update(server: EmbeddedMongo, database: Database) -> None:
    async with counted_instance(server, database, NEVER_POLLING) as (monque, commands):
        assert await cost_of(monque, commands, plain) == PLAIN
        assert await cost_of(monque, commands, steps) == PLAIN + Counter(update=5)


async def test_a_transaction_costs_two_updates_and_its_commit(
    server: EmbeddedMongo, database: Database
) -> None:
    """One holds the document, one is the checkpoint; the insert is the handler's own."""
    await database.create_collection("orders")

    async def transaction(job: Job[None]) -> None:
        async def order(session: Any) -> None:
            await monque.database["orders"].insert_one({}, session=session)

        await job.transaction("order", order)

    async with counted_instance(server, database, NEVER_POLLING) as (monque, commands):
        cost = await cost_of(monque, commands, transaction)

    assert cost == PLAIN + Counter(update=2, insert=1, commitTransaction=1)


async def test_a_sleep_costs_what_a_snooze_does(server: EmbeddedMongo, database: Database) -> None:
    """Its settlement is its only write; then the job is claimed again."""
    async with counted_instance(server, database, NEVER_POLLING) as (monque, commands):
        snooze = await cost_of(monque, commands, snoozes)
        sleep = await cost_of(monque, commands, sleeps)

    assert sleep == snooze
    assert sleep["findAndModify"] == PLAIN["findAndModify"] + 2
    assert sleep["update"] == 0


async def test_a_signal_costs_one_command_and_so_does_its_receive(
    server: EmbeddedMongo, database: Database
) -> None:
    async def receives(job: Job[None]) -> Any:
        return await job.receive("go")

    async with counted_instance(server, database, NEVER_POLLING) as (monque, commands):
        events, costs = Events(monque), list[Counter[str]]()
        for number, handler in enumerate((plain, receives), 1):
            job = await monque.enqueue(handler.__name__)
            await monque.run_until_idle()
            commands.clear()
            await monque.signal(job, "go", 1)
            assert besides(commands).total() == 1
            commands.clear()
            monque.worker(handler.__name__, handler)
            await events.wait("job:complete", number)
            costs.append(besides(commands))
            del costs[-1]["find"]  # polls: one more may come before the end is told

    assert (costs[1] - costs[0]).total() == 1, costs
    assert costs[1].total() == costs[0].total() + 1, costs


async def test_run_jobs_costs_its_entry_its_inserts_a_look_and_in_the_next_run_a_find_and_its_end(
    server: EmbeddedMongo, database: Database, collection: Collection
) -> None:
    async def parent(job: Job[None]) -> int:
        return len(await job.run_jobs("pack", [NewJob("child", number) for number in range(50)]))

    async with counted_instance(server, database, NEVER_POLLING) as (monque, commands):
        monque.worker("parent", parent)
        await monque.enqueue("parent")
        await monque.run_until_idle()  # it begins the use of batches
        commands.clear()
        job, events = await monque.enqueue("parent"), Events(monque)
        await events.wait("job:waiting")
        await monque.run_until_idle()
        begun = besides(commands)
        ended = {"status": "completed", "nextRunAt": now()}
        await collection.update_many({"parent.id": job.id}, {"$set": ended})
        commands.clear()  # before the job is due: the change stream may tell of that before the write does
        await collection.update_one({"_id": job.id}, {"$set": {"nextRunAt": now()}})
        await monque.run_until_idle()
        gone_on = besides(commands)

    assert begun["insert"] == PLAIN["insert"] + 1
    assert begun["update"] == 1
    assert begun["findAndModify"] == 2, begun  # the claim, and the settlement by which it waits
    assert gone_on["findAndModify"] == 3, gone_on  # the claim, the end of the wait, the settlement
    assert gone_on["update"] == 0


@pytest.mark.parametrize("sleeping", [0, 20_000])
async def test_jobs_that_sleep_cost_an_idle_instance_nothing(
    server: EmbeddedMongo, database: Database, collection: Collection, make_monque: Make, sleeping: int
) -> None:
    """With the options of production: no command within a second, and a lone job costs what it does."""
    until = now() + timedelta(days=30)
    slept = {"n": "rest", "k": "sleep", "at": ago(hours=1), "until": until}
    parked = {"why": "time", "since": ago(hours=1)}
    await fill(collection, sleeping, name="plain", nextRunAt=until, attempt=1, steps=[slept], parked=parked)
    await make_monque().open()  # it creates the indexes
    async with counted_instance(server, database, Options(trends=None, register=False)) as (monque, commands):
        monque.worker("plain", plain)
        await monque.run_until_idle()
        commands.clear()
        await asyncio.sleep(1)
        assert besides(commands) == Counter()
        events = Events(monque)
        await monque.enqueue("plain")
        await events.wait("job:complete")
        assert besides(commands) == PLAIN
