"""Jobs as part of the caller's transaction: there when it commits, and never the reason that it does not."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import timedelta
from typing import Any

import pytest
from pymongo import AsyncMongoClient, MongoClient
from pymongo.asynchronous.client_session import AsyncClientSession
from pymongo.errors import OperationFailure

from monque import ConfigurationError, ConnectionError, Job, JobStateError, Monque, NewJob, Options
from monque.embedded import EmbeddedMongo
from support.aliases import Collection, Database, Make
from support.clocks import ago
from support.jobs import document
from support.servers import Servers
from support.waiting import Events

Store = Callable[[Monque, AsyncClientSession], Awaitable[list[Job[Any]]]]

# Polls that cannot be what finds a job while a test waits.
A_MINUTE = timedelta(minutes=1)
NO_POLLS = Options(poll_interval=A_MINUTE, safety_poll_interval=A_MINUTE)


async def by_enqueue(monque: Monque, session: AsyncClientSession) -> list[Job[Any]]:
    return [await monque.enqueue("work", {"n": 1}, session=session)]


async def by_enqueue_with_key(monque: Monque, session: AsyncClientSession) -> list[Job[Any]]:
    return [await monque.enqueue("work", {"n": 1}, unique_key="k", session=session)]


async def by_enqueue_many(monque: Monque, session: AsyncClientSession) -> list[Job[Any]]:
    return await monque.enqueue_many([NewJob("work"), NewJob("work", unique_key="k")], session=session)


async def by_schedule(monque: Monque, session: AsyncClientSession) -> list[Job[Any]]:
    return [await monque.schedule("@hourly", "work", {"n": 1}, session=session)]


every_way = pytest.mark.parametrize("store", [by_enqueue, by_enqueue_with_key, by_enqueue_many, by_schedule])


@pytest.fixture
async def session(monque: Monque) -> AsyncIterator[AsyncClientSession]:
    async with monque.client.start_session() as session:
        yield session


@pytest.fixture
async def orders(database: Database) -> Collection:
    """Something else the caller writes in the same transaction."""
    await database.create_collection("orders")
    return database["orders"]


class TestCommit:
    @every_way
    async def test_nobody_sees_the_job_before_the_commit(
        self, store: Store, monque: Monque, session: AsyncClientSession, collection: Collection
    ) -> None:
        ran: list[Job[Any]] = []
        monque.worker("work", ran.append)

        async with await session.start_transaction():
            jobs = await store(monque, session)
            assert [await monque.get_job(job.id) for job in jobs] == [None] * len(jobs)
            await monque.run_until_idle()
            assert ran == []

        assert [await monque.get_job(job.id) for job in jobs] == jobs
        assert await collection.count_documents({}) == len(jobs)

    @every_way
    async def test_an_abort_leaves_nothing(
        self, store: Store, monque: Monque, session: AsyncClientSession, collection: Collection
    ) -> None:
        await session.start_transaction()
        jobs = await store(monque, session)
        await session.abort_transaction()

        assert len(jobs) >= 1
        assert await collection.count_documents({}) == 0

    async def test_the_job_and_the_order_exist_together(
        self, monque: Monque, session: AsyncClientSession, orders: Collection, collection: Collection
    ) -> None:
        async def order(number: int) -> None:
            await orders.insert_one({"_id": number}, session=session)
            await monque.enqueue("ship", {"order": number}, session=session)

        await session.start_transaction()
        await order(1)
        await session.abort_transaction()
        await session.start_transaction()
        await order(2)
        await session.commit_transaction()

        assert [order["_id"] async for order in orders.find()] == [2]
        assert [job["data"] async for job in collection.find()] == [{"order": 2}]

    async def test_workers_are_woken_by_the_commit(self, make_monque: Make) -> None:
        """In the process that committed and in other processes: by the change stream, long before a poll."""
        workers = [make_monque(options=NO_POLLS), make_monque(options=NO_POLLS)]
        heards = [Events(worker) for worker in workers]
        workers[0].worker("here", lambda job: None)
        workers[1].worker("there", lambda job: None)
        for worker, events in zip(workers, heards, strict=True):
            await worker.start()
            await events.wait("changestream:connected")

        async with workers[0].client.start_session() as own, await own.start_transaction():
            here = await workers[0].enqueue("here", session=own)
            there = await workers[0].enqueue("there", session=own)
            assert heards[0].of("job:start") == heards[1].of("job:start") == []

        [ran_here] = await heards[0].wait("job:complete")
        [ran_there] = await heards[1].wait("job:complete")
        assert (ran_here.job.id, ran_there.job.id) == (here.id, there.id)

    @every_way
    async def test_a_session_without_a_transaction_is_fine(
        self, store: Store, monque: Monque, session: AsyncClientSession
    ) -> None:
        jobs = await store(monque, session)

        assert [await monque.get_job(job.id) for job in jobs] == jobs

    @every_way
    async def test_a_session_without_a_transaction_knows_what_was_stored(
        self, store: Store, monque: Monque, session: AsyncClientSession
    ) -> None:
        """Causal consistency: what the session reads next, also from a secondary, has the job."""
        assert session.operation_time is None

        await store(monque, session)

        assert session.operation_time is not None

    async def test_a_session_without_a_transaction_wakes_at_once(self, make_monque: Make) -> None:
        alone = Options(poll_interval=A_MINUTE, safety_poll_interval=A_MINUTE, change_streams=False)
        monque = make_monque(options=alone)
        monque.worker("work", lambda job: None)
        events = Events(monque)
        await monque.start()

        async with monque.client.start_session() as session:
            await monque.enqueue("work", session=session)

        await events.wait("job:complete")


class TestTakenKeys:
    """A taken key returns its holder and does not abort the transaction."""

    @pytest.fixture
    async def elsewhere(self, make_monque: Make) -> Monque:
        return await make_monque().open()

    async def test_a_holder_from_before_the_snapshot(
        self, monque: Monque, session: AsyncClientSession, orders: Collection
    ) -> None:
        holder = await monque.enqueue("work", {"n": 1}, unique_key="k")

        async with await session.start_transaction():
            await orders.insert_one({"_id": 1}, session=session)
            job = await monque.enqueue("work", {"n": 2}, unique_key="k", session=session)

        assert job == holder
        assert await orders.count_documents({}) == 1

    async def test_a_holder_from_after_the_snapshot(
        self, monque: Monque, elsewhere: Monque, session: AsyncClientSession, orders: Collection
    ) -> None:
        async with await session.start_transaction():
            await orders.insert_one({"_id": 1}, session=session)
            holder = await elsewhere.enqueue("work", {"n": 1}, unique_key="k")
            job = await monque.enqueue("work", {"n": 2}, unique_key="k", session=session)

        assert job == holder
        assert await orders.count_documents({}) == 1

    async def test_a_holder_of_the_same_transaction(
        self, monque: Monque, session: AsyncClientSession, collection: Collection
    ) -> None:
        async with await session.start_transaction():
            first = await monque.enqueue("work", {"n": 1}, unique_key="k", session=session)
            second = await monque.enqueue("work", {"n": 2}, unique_key="k", session=session)

        assert second == first
        assert await collection.count_documents({}) == 1

    async def test_a_holder_that_ended_since_the_snapshot_repeats_the_transaction(
        self, monque: Monque, session: AsyncClientSession, collection: Collection
    ) -> None:
        """The snapshot still shows the old job; returning it would lose the new one."""
        holder = await monque.enqueue("work", unique_key="k")
        tries: list[None] = []

        async def callback(session: AsyncClientSession) -> Job[Any]:
            await collection.find_one({}, session=session)  # takes the snapshot
            tries.append(None)
            await collection.update_one({"_id": holder.id}, {"$set": {"status": "completed"}})
            return await monque.enqueue("work", unique_key="k", session=session)

        job = await session.with_transaction(callback)

        assert len(tries) == 2
        assert job.id != holder.id
        assert await monque.get_job(job.id) == job

    async def test_many_with_new_taken_and_repeated_keys(
        self, monque: Monque, elsewhere: Monque, session: AsyncClientSession, collection: Collection
    ) -> None:
        before = await monque.enqueue("work", 0, unique_key="before")

        async with await session.start_transaction():
            await collection.find_one({}, session=session)  # takes the snapshot
            after = await elsewhere.enqueue("work", 0, unique_key="after")
            jobs = await monque.enqueue_many(
                [
                    NewJob("work", 1),
                    NewJob("work", 2, unique_key="before"),
                    NewJob("work", 3, unique_key="after"),
                    NewJob("work", 4, unique_key="new"),
                    NewJob("work", 5, unique_key="new"),
                ],
                session=session,
            )

        assert jobs[1:3] == [before, after]
        assert [job.data for job in jobs] == [1, 0, 0, 4, 4]
        assert jobs[3] == jobs[4]
        assert await collection.count_documents({}) == 4

    async def test_two_transactions_with_one_new_key(
        self, monque: Monque, collection: Collection, orders: Collection
    ) -> None:
        """The second meets the uncommitted job of the first: a true conflict, which is run again."""
        stored, refused = asyncio.Event(), asyncio.Event()
        errors: list[ConnectionError] = []

        async def first(session: AsyncClientSession) -> Job[Any]:
            job = await monque.enqueue("work", {"n": 1}, unique_key="k", session=session)
            stored.set()
            await refused.wait()
            return job

        async def second(session: AsyncClientSession) -> Job[Any]:
            await stored.wait()
            await orders.insert_one({}, session=session)
            try:
                return await monque.enqueue("work", {"n": 2}, unique_key="k", session=session)
            except ConnectionError as error:
                errors.append(error)
                refused.set()
                raise

        async def transaction(callback: Callable[..., Any]) -> Any:
            async with monque.client.start_session() as session:
                return await session.with_transaction(callback)

        async with asyncio.timeout(30):
            winner, loser = await asyncio.gather(transaction(first), transaction(second))

        assert winner == loser
        assert await collection.count_documents({}) == 1
        assert await orders.count_documents({}) == 1
        assert errors[0].has_error_label("TransientTransactionError")
        assert isinstance(errors[0].__cause__, OperationFailure)

    async def test_many_transactions_with_one_new_key(self, monque: Monque, collection: Collection) -> None:
        """Trap: parallel enqueues with one key must all succeed and return one job, also in a transaction."""

        async def callback(session: AsyncClientSession) -> Job[Any]:
            return await monque.enqueue("work", unique_key="k", session=session)

        async def transaction() -> Job[Any]:
            async with monque.client.start_session() as session:
                return await session.with_transaction(callback)

        jobs = await asyncio.gather(*(transaction() for _ in range(50)))

        assert len({job.id for job in jobs}) == await collection.count_documents({}) == 1


class TestSchedules:
    async def test_a_changed_schedule_takes_effect_with_the_commit(
        self, monque: Monque, session: AsyncClientSession
    ) -> None:
        first = await monque.schedule("@daily", "work", 1)

        async with await session.start_transaction():
            changed = await monque.schedule("@hourly", "work", 2, session=session)
            assert await monque.get_job(first.id) == first

        assert changed.id == first.id
        assert await monque.get_job(first.id) == changed
        assert (changed.cron, changed.data) == ("@hourly", 2)

    async def test_an_aborted_change_leaves_the_schedule_as_it_was(
        self, monque: Monque, session: AsyncClientSession
    ) -> None:
        first = await monque.schedule("@daily", "work", 1)

        await session.start_transaction()
        await monque.schedule("@hourly", "work", 2, session=session)
        await session.abort_transaction()

        assert await monque.get_job(first.id) == first

    @pytest.mark.parametrize("exists", [False, True], ids=["new", "changed"])
    async def test_one_transaction_may_schedule_twice(
        self, exists: bool, monque: Monque, session: AsyncClientSession, collection: Collection
    ) -> None:
        """The second call builds on what the first one wrote, which only this transaction can see."""
        if exists:
            await monque.schedule("@daily", "work", 1)

        async with asyncio.timeout(10), await session.start_transaction():
            await monque.schedule("@hourly", "work", 2, session=session)
            last = await monque.schedule("@daily", "work", 1, session=session)

        assert (last.cron, last.data) == ("@daily", 1)
        assert await monque.get_job(last.id) == last
        assert await collection.count_documents({}) == 1

    @pytest.mark.parametrize("exists", [False, True], ids=["stored", "changed"])
    async def test_a_schedule_stored_by_another_since_the_snapshot_repeats_the_transaction(
        self, exists: bool, monque: Monque, session: AsyncClientSession, collection: Collection
    ) -> None:
        """A transaction cannot change a document that it does not see: it is repeated, and not for ever."""
        if exists:
            await monque.schedule("@daily", "work", 0)
        tries: list[None] = []

        async def callback(session: AsyncClientSession) -> Job[Any]:
            await collection.find_one({}, session=session)  # takes the snapshot
            tries.append(None)
            if len(tries) == 1:
                await monque.schedule("@weekly", "work", 1)
            return await monque.schedule("@hourly", "work", 2, session=session)

        async with asyncio.timeout(10):
            job = await session.with_transaction(callback)

        assert len(tries) == 2
        assert (job.cron, job.data) == ("@hourly", 2)
        assert await monque.get_job(job.id) == job
        assert await collection.count_documents({}) == 1

    async def test_a_one_off_holder_does_not_abort_the_transaction(
        self, monque: Monque, session: AsyncClientSession, orders: Collection, collection: Collection
    ) -> None:
        holder = document(uniqueKey="work", nextRunAt=ago(seconds=1))
        await collection.insert_one(holder)

        async with await session.start_transaction():
            await orders.insert_one({"_id": 1}, session=session)
            with pytest.raises(JobStateError):
                await monque.schedule("@daily", "work", session=session)

        assert await orders.count_documents({}) == 1
        assert await collection.find().to_list() == [holder]


class TestWrongSessions:
    @every_way
    async def test_the_session_of_another_client(
        self, store: Store, monque: Monque, server: EmbeddedMongo, collection: Collection
    ) -> None:
        async with (
            AsyncMongoClient(server.uri) as other,
            other.start_session() as session,
            await session.start_transaction(),
        ):
            with pytest.raises(ConfigurationError, match=r"another client.*monque\.client\.start_session"):
                await store(monque, session)

        assert await collection.count_documents({}) == 0

    @every_way
    async def test_the_session_of_a_blocking_client(
        self, store: Store, monque: Monque, server: EmbeddedMongo, collection: Collection
    ) -> None:
        with (
            MongoClient(server.uri) as blocking,
            blocking.start_session() as session,
            pytest.raises(ConfigurationError, match=r"AsyncClientSession, not ClientSession"),
        ):
            await store(monque, session)

        assert await collection.count_documents({}) == 0

    @every_way
    async def test_no_session_at_all(self, store: Store, monque: Monque, collection: Collection) -> None:
        for session in ("mine", 7, object(), monque.client):
            with pytest.raises(ConfigurationError, match=f"AsyncClientSession, not {type(session).__name__}"):
                await store(monque, session)

        assert await collection.count_documents({}) == 0


class TestStandalone:
    async def test_a_server_without_transactions_says_so(self) -> None:
        refusal = r"could not store the \w+: .* only allowed on a replica set .* then rs\.initiate\(\)"
        with Servers(replica_set=False) as servers:
            async with Monque(servers.uri("jobs")) as monque, monque.client.start_session() as session:
                for store in (by_enqueue, by_enqueue_with_key, by_enqueue_many, by_schedule):
                    await session.start_transaction()
                    with pytest.raises(ConnectionError, match=refusal):
                        await store(monque, session)
                    await session.abort_transaction()

                assert await monque.database["monque_jobs"].count_documents({}) == 0
                assert await monque.enqueue("work")
