"""Jobs that a transaction holds for longer than the tolerance: recovery leaves them to a live owner.

A write that waits for the end of a transaction goes through the moment that it is rolled back, before the
heartbeat of the owner. So recovery does not wait, and does not take such a job at once. Nor do the heartbeats
and settlements of other jobs wait that share a write with it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, nullcontext
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from pymongo import AsyncMongoClient
from pymongo.asynchronous.client_session import AsyncClientSession
from pymongo.errors import PyMongoError

from monque import Job, Monque
from monque._store.document import Claim
from monque._store.settle import Doubtful, Lost, Settler
from monque._store.store import Store
from monque._store.transitions.run import complete
from monque._time.clock import Clock
from support.aliases import Collection, Database, Failing, Make
from support.clocks import ago
from support.completing import Accounts, Deposit
from support.jobs import claimed, find_one
from support.options import QUICK, WATCHFUL
from support.traffic import Traffic
from support.waiting import Events, eventually
from support.working import Work, begin

# An owner gets half a second to be heard, also on a busy machine; it is dead after one and a half.
STEADY = replace(WATCHFUL, heartbeat_interval=timedelta(seconds=0.5))


def silent(**fields: Any) -> dict[str, Any]:
    return claimed("silent", lastHeartbeat=ago(minutes=5), **fields)


async def test_a_job_whose_transaction_is_rolled_back_after_recovery_met_it_is_not_taken(
    collection: Collection, make_monque: Make
) -> None:
    await make_monque().open()  # the server does not create indexes beside an open transaction
    await collection.insert_one(job := silent())
    async with collection.database.client.start_session() as session:
        await session.start_transaction()
        await collection.update_one({"_id": job["_id"]}, {"$set": {"step": 1}}, session=session)
        looking = asyncio.create_task(make_monque().open())
        await eventually(lambda: has_looked(looking, collection))
        await session.abort_transaction()
    await looking

    assert (await find_one(collection))["status"] == "processing"


async def has_looked(looking: asyncio.Task[Monque], collection: Collection) -> None:
    """It is over, or waits for the document."""
    waiting = [
        {"$currentOp": {}},
        {"$match": {"ns": collection.full_name, "writeConflicts": {"$gt": 0}}},
    ]
    assert looking.done() or await (await collection.database.client.admin.aggregate(waiting)).to_list()


async def test_a_job_that_was_held_is_taken_one_interval_of_its_owner_after_it_was_free(
    collection: Collection, make_monque: Make, caplog: pytest.LogCaptureFixture
) -> None:
    monque = await make_monque(options=WATCHFUL).open()
    events = Events(monque)
    await collection.insert_one(job := silent(heartbeatInterval=1_000))
    async with collection.database.client.start_session() as session:
        await session.start_transaction()
        await collection.update_one({"_id": job["_id"]}, {"$set": {"step": 1}}, session=session)
        await monque.start()
        await eventually(lambda: is_told(caplog))
        await session.abort_transaction()
    freed = await server_time(collection)
    await events.wait("stale:recovered")

    assert (await find_one(collection))["updatedAt"] - freed >= timedelta(seconds=1)
    is_told(caplog)


def is_told(caplog: pytest.LogCaptureFixture) -> None:
    assert len([line for line in caplog.messages if "a transaction that is open" in line]) == 1


async def server_time(collection: Collection) -> datetime:
    time: datetime = (await collection.database.client.admin.command("hello"))["localTime"]
    return time.replace(tzinfo=UTC)


async def test_live_owners_whose_transactions_outlast_the_tolerance_keep_their_jobs(
    collection: Collection, make_monque: Make
) -> None:
    """Each rolls its transaction back after the tolerance, at another moment of the others' looks."""
    owner = await make_monque(options=STEADY).open()
    events = Events(owner)

    @owner.worker("work", concurrency=8)
    async def work(job: Job[int]) -> None:
        async with owner.client.start_session() as session:
            await session.start_transaction()
            await job.complete_in(session)
            await asyncio.sleep(3 + 0.07 * job.data)  # twice as long as the tolerance
            await session.abort_transaction()
            await asyncio.sleep(1)  # it goes on, with heartbeats
            await session.with_transaction(job.complete_in)

    await owner.start()
    everybody = [events]
    for _ in range(2):
        other = await make_monque(options=STEADY).open()
        everybody.append(Events(other))
        await other.start()
    for number in range(8):
        await owner.enqueue("work", number)
    await events.wait("job:complete", 8)

    assert [event for each in everybody for event in each.of("stale:recovered")] == []
    assert await collection.distinct("attempt") == [1]


async def test_the_owner_of_a_transaction_that_is_rolled_back_is_heard_before_the_next_one(
    collection: Collection, make_monque: Make
) -> None:
    accounts = Accounts(collection.database["accounts"])
    await accounts.create()
    monque = await make_monque(options=replace(WATCHFUL, heartbeat_interval=timedelta(seconds=0.3))).open()
    events, beats = Events(monque), []

    @monque.worker("work")
    async def work(job: Job[Deposit]) -> None:
        async def book(session: AsyncClientSession) -> None:
            await job.complete_in(session)
            await accounts.add(job.data, session)
            beats.append((await find_one(collection))["lastHeartbeat"])
            if len(beats) < 3:
                await asyncio.sleep(0.4)  # longer than an interval
                raise PyMongoError("again", error_labels=["TransientTransactionError"])

        async with monque.client.start_session() as session:
            await session.with_transaction(book)

    await monque.start()
    await monque.enqueue(work, Deposit())
    await events.wait("job:complete")

    assert beats[0] < beats[1] < beats[2]
    assert await accounts.total() == 1


@asynccontextmanager
async def signalling(monque: Monque, collection: Collection) -> AsyncIterator[dict[str, Any]]:
    """A transaction with a signal to the first of the jobs, which a shared write comes to first."""
    first = await collection.find_one({}, sort={"_id": 1})
    assert first is not None
    async with monque.client.start_session() as session, await session.start_transaction():
        assert await monque.signal(first["_id"], "go", session=session)
        yield first


async def test_a_signal_that_is_not_committed_costs_no_other_job_its_heartbeats(
    collection: Collection, make_monque: Make
) -> None:
    second = timedelta(seconds=1)
    options = replace(QUICK, heartbeat_interval=second, heartbeat_tolerance=3 * second)
    owner, other = await make_monque(options=options).open(), await make_monque(options=options).open()
    work, recovered = Work(waits=True), Events(other)
    events = await begin(owner, work, jobs=4)
    await other.start()
    async with signalling(owner, collection) as held:
        until = await server_time(collection) + 6 * second  # twice as long as an owner may be silent
        late = {"_id": {"$ne": held["_id"]}, "lastHeartbeat": {"$gt": until}}

        async def all_others_are_marked() -> None:
            assert await collection.count_documents(late) == 3

        await eventually(all_others_are_marked, within=20)
    work.done.set()
    await events.wait("job:complete", 4)

    assert recovered.of("stale:recovered") == []
    assert await collection.distinct("attempt") == [1]


async def test_a_signal_that_is_not_committed_keeps_no_other_job_from_its_end(
    collection: Collection, make_monque: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("monque._store.settle._SHORTEST_WRITE", 1.0)
    monque = await make_monque(options=replace(STEADY, heartbeat_tolerance=timedelta(seconds=30))).open()
    events = await begin(monque, work := Work(waits=True), jobs=4)
    async with signalling(monque, collection) as held:
        work.done.set()
        await events.wait("job:complete", 3, within=12)
        for number in range(8):
            await monque.enqueue("work", number)
        await events.wait("job:complete", 11, within=5)
        assert held["_id"] not in {event.job.id for event in events.of("job:complete")}
    await events.wait("job:complete", 12)

    assert await collection.distinct("attempt") == [1]


MANY = 64


@pytest.fixture
async def writes(
    victim: str, database: Database, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[tuple[Settler, Traffic]]:
    """A settler with short limits, whose commands `failing` fails, and what it sends."""
    for limit in ("_SHORTEST_WRITE", "_SHORTEST_BEAT", "_HELD_LIMIT"):
        monkeypatch.setattr(f"monque._store.settle.{limit}", 1.5)
    traffic = Traffic("update", "findAndModify")
    async with AsyncMongoClient[dict[str, Any]](victim, event_listeners=[traffic]) as client:
        store = Store(client[database.name], STEADY, clock := Clock(), "ours")
        await clock.refresh(store.server.hello)
        yield store.settler, traffic


async def many_claims(collection: Collection) -> list[Claim]:
    """Claims of one instance, whose jobs were not marked for a minute."""
    jobs = [claimed("ours", lastHeartbeat=ago(minutes=1)) for _ in range(MANY)]
    await collection.insert_many(jobs)
    return [Claim.of_read(job) for job in jobs]


@asynccontextmanager
async def changing(collection: Collection, claims: Sequence[Claim]) -> AsyncIterator[None]:
    """A transaction of somebody else, which has changed these jobs."""
    async with collection.database.client.start_session() as session, await session.start_transaction():
        these = {"_id": {"$in": [claim.id for claim in claims]}}
        await collection.update_many(these, {"$set": {"by": "somebody"}}, session=session)
        yield


async def unwritten(collection: Collection) -> set[Any]:
    return {job["_id"] async for job in collection.find({"lastHeartbeat": {"$lt": ago(seconds=50)}})}


async def mark(settler: Settler, claims: Sequence[Claim]) -> Sequence[Claim]:
    """Mark the jobs as alive; return those that come again: all of them."""
    assert await settler.heartbeat(claims) == []
    return claims


async def settle(settler: Settler, claims: Sequence[Claim]) -> Sequence[Claim]:
    """Complete the jobs; return those that come again: nobody knows whether that is stored."""
    answers = await asyncio.gather(*(settler.settle(claim, complete(claim)) for claim in claims))
    assert not any(isinstance(answer, Lost) for answer in answers)
    return [claim for claim, answer in zip(claims, answers, strict=True) if isinstance(answer, Doubtful)]


Write = Callable[[Settler, Sequence[Claim]], Awaitable[Sequence[Claim]]]


@pytest.mark.parametrize("write", [mark, settle])
@pytest.mark.parametrize("held", [[7, 8], [7, MANY - 7]], ids=["neighbours", "one-in-each-half"])
async def test_held_jobs_are_told_from_many_others_by_few_commands(
    writes: tuple[Settler, Traffic], collection: Collection, write: Write, held: list[int]
) -> None:
    (settler, traffic), claims = writes, await many_claims(collection)
    theirs = [claims[number] for number in held]
    async with changing(collection, theirs):
        again = await write(settler, claims)
        sent = traffic.sent.total()
        await write(settler, again)
        sent_later = traffic.sent.total() - sent
        assert await unwritten(collection) == {claim.id for claim in theirs}

    assert settler.held == {claim.key for claim in theirs}
    assert sent < MANY * 2 / 3
    assert sent_later <= 10  # they are known by now, and go apart from the others


@pytest.mark.parametrize("write", [mark, settle])
async def test_a_slow_database_gets_only_a_few_commands_again(
    writes: tuple[Settler, Traffic], collection: Collection, failing: Failing, write: Write
) -> None:
    (settler, traffic), claims = writes, await many_claims(collection)
    async with failing(["update", "findAndModify"], blockConnection=True, blockTimeMS=4_000):
        with nullcontext() if write is settle else pytest.raises(PyMongoError):
            await write(settler, claims)

    assert traffic.sent.total() <= 20
    assert settler.held == set()
    await write(settler, claims)
    assert await unwritten(collection) == set()
