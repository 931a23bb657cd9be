"""Jobs completed in their handler's own transaction: what it wrote and the completion, or neither."""

from __future__ import annotations

import asyncio
import copy
import pickle
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass, fields, replace
from datetime import timedelta
from typing import Annotated, Any

import pytest
from bson import ObjectId
from fastapi import Depends, FastAPI
from motor.motor_asyncio import AsyncIOMotorClient
from pymongo import AsyncMongoClient, MongoClient
from pymongo.asynchronous.client_session import AsyncClientSession
from pymongo.asynchronous.collection import AsyncCollection
from pymongo.asynchronous.database import AsyncDatabase
from pymongo.client_session import ClientSession
from pymongo.errors import OperationFailure

from conftest import QUICK
from monque import (
    ClaimLostError,
    ConfigurationError,
    ConnectionError,
    Job,
    JobStateError,
    JobStatus,
    Monque,
    NotCommittedError,
    SyncMonque,
)
from monque.embedded import EmbeddedMongo
from monque.fastapi import JobRouter, MonqueDep, setup_monque
from monque.testing import run_handler
from support.clocks import ago, now
from support.jobs import document
from support.waiting import Heard, eventually

Collection = AsyncCollection[dict[str, Any]]
Database = AsyncDatabase[dict[str, Any]]
Make = Callable[..., Monque]
Callback = Callable[[AsyncClientSession], Awaitable[Any]]

# A failed attempt is not tried again while a test looks at it.
ONE_TRY = replace(QUICK, base_retry_interval=timedelta(hours=1))
BEATING = replace(
    ONE_TRY, heartbeat_interval=timedelta(milliseconds=50), heartbeat_tolerance=timedelta(seconds=30)
)


@dataclass
class Deposit:
    amount: int


class Account:
    """What the handlers of these tests write: one document whose balance tells how often that was."""

    def __init__(self, collection: Collection) -> None:
        self.collection = collection

    async def add(self, amount: int, session: AsyncClientSession) -> None:
        await self.collection.update_one({"_id": "account"}, {"$inc": {"balance": amount}}, session=session)

    async def balance(self) -> int:
        account = await self.collection.find_one({"_id": "account"})
        assert account is not None
        return int(account["balance"])


@pytest.fixture
async def account(database: Database) -> Account:
    await database["accounts"].insert_one({"_id": "account", "balance": 0})
    return Account(database["accounts"])


@pytest.fixture
def make(make_monque: Make) -> Callable[..., Awaitable[tuple[Monque, Heard]]]:
    """An open instance whose failed attempts wait, and what it tells."""

    async def make(options: Any = ONE_TRY) -> tuple[Monque, Heard]:
        monque = await make_monque(options=options).open()
        return monque, Heard(monque)

    return make


async def transact(monque: Monque, callback: Callback) -> None:
    async with monque.client.start_session() as session:
        await session.with_transaction(callback)


async def only(collection: Collection) -> dict[str, Any]:
    [doc] = await collection.find().to_list()
    return doc


class TestTogether:
    async def test_the_writes_and_the_completion_commit_together(
        self, make: Any, account: Account, collection: Collection
    ) -> None:
        monque, heard = await make()
        seen: list[str] = []

        @monque.worker("deposit")
        async def deposit(job: Job[Deposit]) -> None:
            async def transaction(session: AsyncClientSession) -> None:
                await job.complete_in(session)
                await account.add(job.data.amount, session)
                seen.append((await only(collection))["status"])

            await transact(monque, transaction)
            seen.append((await only(collection))["status"])

        await monque.enqueue(deposit, Deposit(5))
        await monque.run_until_idle()

        assert seen == ["processing", "completed"]
        assert await account.balance() == 5
        [told] = heard.of("job:complete")
        assert (told.job.status, told.job.data, told.job.attempt) == (JobStatus.COMPLETED, Deposit(5), 1)
        assert told.duration > timedelta(0)
        assert heard.kinds().count("job:complete") + heard.kinds().count("job:start") == 2
        assert set(heard.kinds()) <= {"job:start", "job:complete"}

    async def test_a_job_completed_so_looks_like_any_other(
        self, make: Any, account: Account, collection: Collection
    ) -> None:
        monque, _ = await make()

        @monque.worker("work")
        async def work(job: Job[str]) -> None:
            if job.data == "in a transaction":
                await transact(monque, job.complete_in)

        await monque.enqueue(work, "in a transaction", unique_key="a")
        await monque.enqueue(work, "as always", unique_key="b")
        await monque.run_until_idle()

        first, second = await collection.find().sort("_id").to_list()
        assert first["status"] == second["status"] == "completed"
        assert first.keys() == second.keys()
        assert first["startedAt"] <= first["finishedAt"]

    async def test_an_error_in_the_transaction_leaves_neither(
        self, make: Any, account: Account, collection: Collection
    ) -> None:
        monque, heard = await make()

        @monque.worker("deposit")
        async def deposit(job: Job[Deposit]) -> None:
            async def transaction(session: AsyncClientSession) -> None:
                await job.complete_in(session)
                await account.add(job.data.amount, session)
                raise ValueError("the bank is closed")

            await transact(monque, transaction)

        await monque.enqueue(deposit, Deposit(5))
        await monque.run_until_idle()

        doc = await only(collection)
        assert (doc["status"], doc["failCount"]) == ("pending", 1)
        assert doc["failReason"] == "ValueError: the bank is closed"
        assert await account.balance() == 0
        [told] = heard.of("job:fail")
        assert told.will_retry
        assert heard.of("job:complete") == []

    async def test_what_failed_once_and_then_went_well_was_done_once(
        self, make: Any, account: Account, collection: Collection
    ) -> None:
        monque, heard = await make(QUICK)

        @monque.worker("deposit")
        async def deposit(job: Job[Deposit]) -> None:
            async with monque.client.start_session() as session, await session.start_transaction():
                await account.add(job.data.amount, session)
                await job.complete_in(session)
                if job.fail_count < 2:
                    raise ValueError("not yet")

        await monque.start()
        await monque.enqueue(deposit, Deposit(5))
        await heard.wait("job:complete")

        assert await account.balance() == 5
        assert len(heard.of("job:fail")) == 2
        assert (await only(collection))["attempt"] == 3

    async def test_a_handler_that_hides_the_abort_has_failed(
        self, make: Any, account: Account, collection: Collection
    ) -> None:
        monque, heard = await make()

        @monque.worker("deposit")
        async def deposit(job: Job[Deposit]) -> None:
            async def transaction(session: AsyncClientSession) -> None:
                await job.complete_in(session)
                await account.add(job.data.amount, session)
                raise ValueError("hidden")

            with suppress(ValueError):
                await transact(monque, transaction)

        await monque.enqueue(deposit, Deposit(5))
        await monque.run_until_idle()

        doc = await only(collection)
        assert (doc["status"], doc["failCount"]) == ("pending", 1)
        assert "transaction was not committed" in doc["failReason"]
        assert await account.balance() == 0
        [told] = heard.of("job:fail")
        assert isinstance(told.error, NotCommittedError)
        assert told.error.job_id == told.job.id

    async def test_a_completion_that_was_not_awaited_has_failed(
        self, make: Any, collection: Collection
    ) -> None:
        monque, heard = await make()

        @monque.worker("work")
        async def work(job: Job[None]) -> None:
            async with monque.client.start_session() as session, await session.start_transaction():
                job.complete_in(session).close()  # what forgetting the await comes to

        await monque.enqueue(work)
        await monque.run_until_idle()

        assert (await only(collection))["status"] == "pending"
        [told] = heard.of("job:fail")
        assert isinstance(told.error, NotCommittedError)

    async def test_failed_attempts_are_bounded_as_always(self, make: Any, collection: Collection) -> None:
        monque, heard = await make(replace(QUICK, max_retries=2))

        @monque.worker("work")
        async def work(job: Job[None]) -> None:
            async with monque.client.start_session() as session:
                await session.start_transaction()
                await job.complete_in(session)
                await session.abort_transaction()

        await monque.start()
        await monque.enqueue(work)
        await heard.wait("job:fail", 2)

        doc = await only(collection)
        assert (doc["status"], doc["failCount"], doc["attempt"]) == ("failed", 2, 2)


class TestOnceMore:
    async def test_a_callback_that_is_called_again_counts_once(
        self, make: Any, account: Account, collection: Collection
    ) -> None:
        monque, heard = await make()
        tries: list[None] = []

        @monque.worker("deposit")
        async def deposit(job: Job[Deposit]) -> None:
            async def transaction(session: AsyncClientSession) -> None:
                tries.append(None)
                await job.complete_in(session)
                await account.add(job.data.amount, session)
                if len(tries) < 3:
                    raise OperationFailure("once more", 112, {"errorLabels": ["TransientTransactionError"]})

            await transact(monque, transaction)

        await monque.enqueue(deposit, Deposit(5))
        await monque.run_until_idle()

        assert len(tries) == 3
        assert await account.balance() == 5
        assert (await only(collection))["status"] == "completed"
        assert [kind for kind in heard.kinds() if kind != "job:start"] == ["job:complete"]

    async def test_calling_it_twice_in_one_transaction_is_fine(
        self, make: Any, account: Account, collection: Collection
    ) -> None:
        monque, heard = await make()

        @monque.worker("deposit")
        async def deposit(job: Job[Deposit]) -> None:
            async def transaction(session: AsyncClientSession) -> None:
                await job.complete_in(session)
                await account.add(job.data.amount, session)
                await job.complete_in(session)

            await transact(monque, transaction)

        await monque.enqueue(deposit, Deposit(5))
        await monque.schedule("@hourly", deposit, Deposit(7))
        await collection.update_many({}, {"$set": {"nextRunAt": ago(seconds=1)}})
        await monque.run_until_idle()

        assert await account.balance() == 12
        assert len(heard.of("job:complete")) == 2

    async def test_a_second_transaction_after_the_commit_is_refused(
        self, make: Any, account: Account, collection: Collection
    ) -> None:
        """As by a loop that repeats all of it because the answer to the commit was lost."""
        monque, heard = await make()

        @monque.worker("deposit")
        async def deposit(job: Job[Deposit]) -> None:
            for _ in range(2):
                async with monque.client.start_session() as session, await session.start_transaction():
                    await job.complete_in(session)
                    await account.add(job.data.amount, session)

        await monque.enqueue(deposit, Deposit(5))
        await monque.run_until_idle()

        assert await account.balance() == 5
        assert (await only(collection))["status"] == "completed"
        [error] = heard.of("job:error")
        assert isinstance(error.error, ClaimLostError)
        assert "has completed job" in str(error.error)
        assert len(heard.of("job:complete")) == 1
        assert heard.of("job:fail") == heard.of("job:lost") == []

    async def test_an_error_after_the_commit_is_told_and_changes_nothing(
        self, make: Any, account: Account, collection: Collection
    ) -> None:
        monque, heard = await make()

        @monque.worker("deposit")
        async def deposit(job: Job[Deposit]) -> None:
            async def transaction(session: AsyncClientSession) -> None:
                await job.complete_in(session)
                await account.add(job.data.amount, session)

            await transact(monque, transaction)
            raise ValueError("too late")

        await monque.enqueue(deposit, Deposit(5))
        await monque.run_until_idle()

        doc = await only(collection)
        assert (doc["status"], doc["failCount"]) == ("completed", 0)
        assert "failReason" not in doc
        assert await account.balance() == 5
        [error] = heard.of("job:error")
        assert (str(error.error), error.job.name) == ("too late", "deposit")
        assert len(heard.of("job:complete")) == 1
        assert heard.of("job:fail") == []


class TestSchedules:
    @pytest.fixture
    def insert(self, collection: Collection) -> Callable[..., Awaitable[ObjectId]]:
        async def insert(**fields: Any) -> ObjectId:
            schedule = document(
                **{"repeatInterval": "0 0 1 1 *", "timezone": "UTC", "uniqueKey": "work", **fields}
            )
            await collection.insert_one(schedule)
            return ObjectId(schedule["_id"])

        return insert

    async def test_the_occurrence_is_completed_and_the_schedule_goes_on(
        self, make: Any, account: Account, collection: Collection, insert: Any
    ) -> None:
        monque, heard = await make()

        @monque.worker("work")
        async def work(job: Job[Any]) -> None:
            async def transaction(session: AsyncClientSession) -> None:
                await job.complete_in(session)
                await account.add(1, session)

            await transact(monque, transaction)

        await insert(failCount=3, failReason="earlier")
        await monque.run_until_idle()

        doc = await only(collection)
        assert (doc["status"], doc["failCount"], doc["attempt"]) == ("pending", 0, 1)
        assert doc["nextRunAt"] > now()
        assert (doc["nextRunAt"].month, doc["nextRunAt"].day) == (1, 1)
        assert "failReason" not in doc
        assert await account.balance() == 1
        [told] = heard.of("job:complete")
        assert told.job.next_run_at == doc["nextRunAt"]

    async def test_an_abort_leaves_the_occurrence_to_be_tried_again(
        self, make: Any, account: Account, collection: Collection, insert: Any
    ) -> None:
        monque, heard = await make()

        @monque.worker("work")
        async def work(job: Job[Any]) -> None:
            async with monque.client.start_session() as session:
                await session.start_transaction()
                await job.complete_in(session)
                await account.add(1, session)
                await session.abort_transaction()

        await insert()
        await monque.run_until_idle()

        doc = await only(collection)
        assert (doc["status"], doc["failCount"]) == ("pending", 1)
        assert "not committed" in doc["failReason"]
        assert await account.balance() == 0
        assert len(heard.of("job:fail")) == 1
        assert heard.of("job:complete") == []

    async def test_a_schedule_changed_meanwhile_goes_on_at_its_new_time(
        self, make: Any, account: Account, collection: Collection, insert: Any
    ) -> None:
        monque, heard = await make()

        @monque.worker("work")
        async def work(job: Job[Any]) -> None:
            await monque.schedule("30 6 2 2 *", "work")
            async with monque.client.start_session() as session, await session.start_transaction():
                await account.add(1, session)
                await job.complete_in(session)

        await insert()
        await monque.run_until_idle()

        doc = await only(collection)
        assert doc["status"] == "pending"
        assert (doc["nextRunAt"].month, doc["nextRunAt"].day, doc["nextRunAt"].minute) == (2, 2, 30)
        assert await account.balance() == 1
        assert len(heard.of("job:complete")) == 1


class TestLostClaims:
    async def take_away(self, collection: Collection, make_monque: Make) -> None:
        """Another instance finds the owner dead."""
        await collection.update_one({}, {"$set": {"lastHeartbeat": ago(minutes=5)}})
        other = await make_monque().open()
        await other.close()
        assert (await only(collection))["status"] == "pending"

    async def test_a_run_whose_claim_was_lost_commits_nothing(
        self, make: Any, make_monque: Make, account: Account, collection: Collection
    ) -> None:
        monque, heard = await make()
        refused: list[BaseException] = []

        @monque.worker("deposit")
        async def deposit(job: Job[Deposit]) -> None:
            if job.attempt > 1:
                return
            await self.take_away(collection, make_monque)
            try:
                async with monque.client.start_session() as session, await session.start_transaction():
                    await account.add(job.data.amount, session)
                    await job.complete_in(session)
            except ClaimLostError as error:
                refused.append(error)
                raise

        job = await monque.enqueue(deposit, Deposit(5))
        await monque.run_until_idle()

        [error] = refused
        assert error.job_id == job.id
        assert "does not belong to this run any more" in str(error)
        assert await account.balance() == 0
        assert (await only(collection))["attempt"] == 2
        assert [event.job.attempt for event in heard.of("job:complete")] == [2]
        assert len(heard.of("job:lost")) == 1

    async def test_a_claim_that_is_lost_under_the_transaction_makes_it_run_again_and_fail(
        self, make: Any, make_monque: Make, account: Account, collection: Collection
    ) -> None:
        """What the transaction sees is older than the loss, so its write conflicts; then it sees it."""
        monque, heard = await make()
        tries: list[None] = []

        @monque.worker("deposit")
        async def deposit(job: Job[Deposit]) -> None:
            if job.attempt > 1:
                return

            async def transaction(session: AsyncClientSession) -> None:
                tries.append(None)
                await account.add(job.data.amount, session)  # takes the snapshot
                if len(tries) == 1:
                    await self.take_away(collection, make_monque)
                await job.complete_in(session)

            with pytest.raises(ClaimLostError):
                await transact(monque, transaction)

        await monque.enqueue(deposit, Deposit(5))
        await monque.run_until_idle()

        assert len(tries) == 2
        assert await account.balance() == 0
        assert len(heard.of("job:complete")) == 1

    async def test_a_conflict_carries_the_label_of_the_driver(
        self, make: Any, account: Account, collection: Collection
    ) -> None:
        monque, _ = await make()
        raised: list[ConnectionError] = []

        @monque.worker("deposit")
        async def deposit(job: Job[Deposit]) -> None:
            try:
                async with monque.client.start_session() as session, await session.start_transaction():
                    await account.add(job.data.amount, session)  # takes the snapshot
                    await collection.update_one({}, {"$set": {"touched": True}})
                    await job.complete_in(session)
            except ConnectionError as error:
                raised.append(error)
                raise

        await monque.enqueue(deposit, Deposit(5))
        await monque.run_until_idle()

        [error] = raised
        assert "could not complete the job" in str(error)
        assert error.has_error_label("TransientTransactionError")
        assert await account.balance() == 0

    async def test_a_deleted_job_commits_nothing(
        self, make: Any, account: Account, collection: Collection
    ) -> None:
        monque, heard = await make()

        @monque.worker("deposit")
        async def deposit(job: Job[Deposit]) -> None:
            await collection.delete_one({"_id": job.id})
            async with monque.client.start_session() as session, await session.start_transaction():
                await account.add(job.data.amount, session)
                await job.complete_in(session)

        await monque.enqueue(deposit, Deposit(5))
        await monque.run_until_idle()

        assert await account.balance() == 0
        assert heard.of("job:complete") == []
        assert len(heard.of("job:lost")) == 1


class TestHeartbeats:
    async def test_an_open_transaction_is_not_disturbed_and_disturbs_no_other_job(
        self, make: Any, account: Account, collection: Collection
    ) -> None:
        """A heartbeat would wait for the transaction, and with it those of all other jobs."""
        monque, heard = await make(BEATING)
        open_, commit = asyncio.Event(), asyncio.Event()

        @monque.worker("deposit")
        async def deposit(job: Job[Deposit]) -> None:
            async with monque.client.start_session() as session, await session.start_transaction():
                await job.complete_in(session)
                await account.add(job.data.amount, session)
                open_.set()
                await commit.wait()

        @monque.worker("other")
        async def other(job: Job[None]) -> None:
            await commit.wait()

        await monque.start()
        await monque.enqueue(deposit, Deposit(5))
        bystander = await monque.enqueue(other)
        await heard.wait("job:start", 2)
        await asyncio.wait_for(open_.wait(), 10)
        for _ in range(3):
            await self.beats(collection, bystander.id)
        commit.set()
        await heard.wait("job:complete", 2)

        assert await account.balance() == 5
        assert not {"job:error", "job:lost", "job:fail"} & set(heard.kinds())

    @pytest.mark.parametrize("commits", [True, False], ids=["commit", "abort"])
    async def test_a_handler_that_goes_on_after_the_transaction_is_left_alone(
        self, make: Any, collection: Collection, commits: bool
    ) -> None:
        """After a commit there is no claim to lose; after an abort it is kept alive again."""
        monque, heard = await make(BEATING)
        over, go_on = asyncio.Event(), asyncio.Event()

        @monque.worker("work")
        async def work(job: Job[None]) -> None:
            async with monque.client.start_session() as session:
                await session.start_transaction()
                await job.complete_in(session)
                await (session.commit_transaction() if commits else session.abort_transaction())
            over.set()
            await go_on.wait()

        @monque.worker("other")
        async def other(job: Job[None]) -> None:
            await go_on.wait()

        await monque.start()
        job = await monque.enqueue(work)
        bystander = await monque.enqueue(other)
        await heard.wait("job:start", 2)
        await asyncio.wait_for(over.wait(), 10)
        for _ in range(3):
            await self.beats(collection, bystander.id if commits else job.id)
        go_on.set()
        await heard.wait("job:complete" if commits else "job:fail")

        assert not {"job:error", "job:lost"} & set(heard.kinds())

    async def test_a_transaction_that_is_open_keeps_the_job_from_being_recovered(
        self, make: Any, make_monque: Make, account: Account, collection: Collection
    ) -> None:
        """By its heartbeat the owner is dead; but whoever would take the job waits for the commit."""
        monque, heard = await make()
        open_, commit = asyncio.Event(), asyncio.Event()

        @monque.worker("deposit")
        async def deposit(job: Job[Deposit]) -> None:
            await collection.update_one({}, {"$set": {"lastHeartbeat": ago(minutes=5)}})
            async with monque.client.start_session() as session, await session.start_transaction():
                await job.complete_in(session)
                await account.add(job.data.amount, session)
                open_.set()
                await commit.wait()

        await monque.start()
        await monque.enqueue(deposit, Deposit(5))
        await asyncio.wait_for(open_.wait(), 10)
        other = make_monque()
        told = Heard(other)
        opening = asyncio.create_task(other.open())
        await self.is_recovering(collection)
        assert not opening.done()
        commit.set()
        await heard.wait("job:complete")
        await opening

        assert told.of("stale:recovered") == []
        assert await account.balance() == 5
        assert (await only(collection))["attempt"] == 1

    async def beats(self, collection: Collection, job_id: ObjectId) -> None:
        """Wait for the next heartbeat of a job."""
        before = await collection.find_one({"_id": job_id})
        assert before is not None

        async def later() -> None:
            doc = await collection.find_one({"_id": job_id})
            assert doc is not None
            assert doc["lastHeartbeat"] > before["lastHeartbeat"]

        await eventually(later)

    async def is_recovering(self, collection: Collection) -> None:
        """Wait until the server is at work on a write to the jobs that waits for somebody."""
        pipeline = [
            {"$currentOp": {"allUsers": True}},
            {"$match": {"ns": collection.full_name, "writeConflicts": {"$gt": 0}}},
        ]

        async def waits() -> None:
            operations = await collection.database.client.admin.aggregate(pipeline)
            assert await operations.to_list() != []

        await eventually(waits)


class TestShutdown:
    async def test_a_handler_cancelled_in_its_transaction_is_released(
        self, make: Any, account: Account, collection: Collection
    ) -> None:
        monque, heard = await make()
        open_ = asyncio.Event()

        @monque.worker("deposit")
        async def deposit(job: Job[Deposit]) -> None:
            async with monque.client.start_session() as session, await session.start_transaction():
                await job.complete_in(session)
                await account.add(job.data.amount, session)
                open_.set()
                await asyncio.Event().wait()

        await monque.start()
        await monque.enqueue(deposit, Deposit(5))
        await asyncio.wait_for(open_.wait(), 10)
        await monque.stop(timeout=0)

        doc = await only(collection)
        assert (doc["status"], doc["failCount"]) == ("pending", 0)
        assert await account.balance() == 0
        assert heard.of("job:complete") == heard.of("job:fail") == []

    async def test_a_handler_cancelled_after_its_commit_has_completed_the_job(
        self, make: Any, account: Account, collection: Collection
    ) -> None:
        monque, heard = await make()
        over = asyncio.Event()

        @monque.worker("deposit")
        async def deposit(job: Job[Deposit]) -> None:
            async with monque.client.start_session() as session, await session.start_transaction():
                await job.complete_in(session)
                await account.add(job.data.amount, session)
            over.set()
            await asyncio.Event().wait()

        await monque.start()
        await monque.enqueue(deposit, Deposit(5))
        await asyncio.wait_for(over.wait(), 10)
        await monque.stop(timeout=0)

        assert (await only(collection))["status"] == "completed"
        assert await account.balance() == 5
        assert len(heard.of("job:complete")) == 1


class TestBlockingSessions:
    """`def` handlers use the sessions of the blocking client that was handed over; nothing is awaited."""

    @pytest.fixture
    def blocking(self, server: EmbeddedMongo) -> Iterator[Any]:
        with MongoClient(server.uri) as client:
            yield client

    def deposit_with(self, blocking: Any, database: Database, error: Exception | None = None) -> Any:
        accounts = blocking[database.name]["accounts"]

        def deposit(job: Job[Deposit]) -> None:
            assert threading.current_thread() is not threading.main_thread()

            def transaction(session: ClientSession) -> None:
                job.complete_in(session)
                change = {"$inc": {"balance": job.data.amount}}
                accounts.update_one({"_id": "account"}, change, session=session)
                if error is not None:
                    raise error

            with blocking.start_session() as session:
                session.with_transaction(transaction)

        return deposit

    async def test_a_def_handler_completes_in_a_blocking_transaction(
        self, blocking: Any, make_monque: Make, database: Database, account: Account, collection: Collection
    ) -> None:
        monque = await make_monque(blocking[database.name]).open()
        heard = Heard(monque)
        deposit = monque.worker("deposit", self.deposit_with(blocking, database))
        await monque.enqueue(deposit, Deposit(5))
        await monque.run_until_idle()

        assert await account.balance() == 5
        assert (await only(collection))["status"] == "completed"
        assert [kind for kind in heard.kinds() if kind != "job:start"] == ["job:complete"]

    async def test_an_abort_leaves_neither(
        self, blocking: Any, make_monque: Make, database: Database, account: Account, collection: Collection
    ) -> None:
        monque = await make_monque(blocking[database.name], options=ONE_TRY).open()
        failing = self.deposit_with(blocking, database, ValueError("the bank is closed"))
        deposit = monque.worker("deposit", failing)
        await monque.enqueue(deposit, Deposit(5))
        await monque.run_until_idle()

        doc = await only(collection)
        assert (doc["status"], doc["failReason"]) == ("pending", "ValueError: the bank is closed")
        assert await account.balance() == 0

    async def test_in_a_program_without_asyncio(
        self, blocking: Any, database: Database, account: Account, collection: Collection
    ) -> None:
        def program() -> None:
            with SyncMonque(blocking[database.name], options=QUICK) as monque:
                deposit = monque.worker("deposit", self.deposit_with(blocking, database))
                monque.enqueue(deposit, Deposit(5))
                monque.run_until_idle()

        await asyncio.to_thread(program)

        assert await account.balance() == 5
        assert (await only(collection))["status"] == "completed"

    async def test_mistakes_are_told_at_once(
        self,
        blocking: Any,
        server: EmbeddedMongo,
        make_monque: Make,
        database: Database,
        collection: Collection,
    ) -> None:
        monque = await make_monque(blocking[database.name]).open()
        told: list[str] = []

        @monque.worker("work")
        def work(job: Job[None]) -> None:
            with blocking.start_session() as session, pytest.raises(ConfigurationError) as without:
                job.complete_in(session)
            with MongoClient(server.uri) as other, other.start_session() as session:
                session.start_transaction()
                with pytest.raises(ConfigurationError) as foreign:
                    job.complete_in(session)
            told.extend([str(without.value), str(foreign.value)])

        await monque.enqueue(work)
        await monque.run_until_idle()

        assert len(told) == 2
        assert "needs a transaction" in told[0]
        assert "hand that very client" in told[1]
        assert (await only(collection))["status"] == "completed"  # the handler went on without one

    async def test_a_motor_session_is_awaited(
        self, server: EmbeddedMongo, make_monque: Make, database: Database, account: Account
    ) -> None:
        motor = AsyncIOMotorClient(server.uri)
        monque = await make_monque(motor[database.name]).open()
        heard = Heard(monque)
        accounts = motor[database.name]["accounts"]

        @monque.worker("deposit")
        async def deposit(job: Job[Deposit]) -> None:
            async with await motor.start_session() as session, session.start_transaction():
                await job.complete_in(session)
                change = {"$inc": {"balance": job.data.amount}}
                await accounts.update_one({"_id": "account"}, change, session=session)

        await monque.enqueue(deposit, Deposit(5))
        await monque.run_until_idle()
        await monque.close()
        motor.close()

        assert await account.balance() == 5
        assert len(heard.of("job:complete")) == 1


class TestMistakes:
    async def refusal(self, monque: Monque, collection: Collection, handler: Any) -> BaseException:
        """What a handler's attempt failed with."""
        heard = Heard(monque)
        monque.worker("work", handler)
        await monque.enqueue("work")
        await monque.run_until_idle()
        [told] = heard.of("job:fail")
        return told.error

    async def test_a_session_without_a_transaction(self, make: Any, collection: Collection) -> None:
        monque, _ = await make()

        async def work(job: Job[None]) -> None:
            async with monque.client.start_session() as session:
                await job.complete_in(session)

        error = await self.refusal(monque, collection, work)
        assert isinstance(error, ConfigurationError)
        assert "start_transaction() and before the commit" in str(error)

    async def test_a_transaction_that_is_over(self, make: Any, collection: Collection) -> None:
        monque, _ = await make()

        async def work(job: Job[None]) -> None:
            async with monque.client.start_session() as session:
                async with await session.start_transaction():
                    await collection.database["x"].find_one({}, session=session)
                await job.complete_in(session)

        assert isinstance(await self.refusal(monque, collection, work), ConfigurationError)

    async def test_the_session_of_another_client(
        self, make: Any, server: EmbeddedMongo, collection: Collection
    ) -> None:
        monque, _ = await make()

        async def work(job: Job[None]) -> None:
            async with AsyncMongoClient(server.uri) as other, other.start_session() as session:
                await session.start_transaction()
                await job.complete_in(session)

        error = await self.refusal(monque, collection, work)
        assert isinstance(error, ConfigurationError)
        assert "belongs to another client" in str(error)

    async def test_no_session_at_all(self, make: Any, collection: Collection) -> None:
        monque, _ = await make()

        async def work(job: Job[None]) -> None:
            await job.complete_in(None)  # type: ignore[call-overload]

        error = await self.refusal(monque, collection, work)
        assert isinstance(error, ConfigurationError)
        assert "AsyncClientSession, not NoneType" in str(error)

    async def test_a_job_that_no_handler_runs(self, make: Any, collection: Collection) -> None:
        monque, _ = await make()
        kept: list[Job[Any]] = []
        monque.worker("work", kept.append)
        stored = await monque.enqueue("work")
        await monque.run_until_idle()
        [handled] = kept
        [read] = await monque.get_jobs()

        async with monque.client.start_session() as session, await session.start_transaction():
            for job in (stored, handled, read):
                with pytest.raises(JobStateError, match="no handler runs here and now") as refused:
                    await job.complete_in(session)
                assert refused.value.attempted_action == "complete"

    async def test_the_job_of_another_run(self, make: Any, collection: Collection) -> None:
        monque, _ = await make()
        other = await monque.enqueue("another")

        async def work(job: Job[None]) -> None:
            async with monque.client.start_session() as session, await session.start_transaction():
                await other.complete_in(session)

        assert isinstance(await self.refusal(monque, collection, work), JobStateError)


class TestTheValue:
    async def test_a_job_in_a_handler_is_still_a_plain_value(self, make: Any) -> None:
        monque, heard = await make()
        facts: list[Any] = []

        @monque.worker("work")
        async def work(job: Job[dict[str, int]]) -> None:
            names = [field.name for field in fields(job)]
            plain = Job(**{name: getattr(job, name) for name in names})
            copies = [copy.copy(job), copy.deepcopy(job), pickle.loads(pickle.dumps(job)), replace(job)]  # noqa: S301
            facts.append([other == job and repr(other) == repr(job) for other in [plain, *copies]])
            facts.append(set(asdict(job)) == set(names))
            for other in copies:
                with pytest.raises(JobStateError):
                    other.complete_in(None)  # type: ignore[call-overload]

        await monque.enqueue(work, {"n": 1})
        await monque.run_until_idle()

        assert heard.of("job:fail") == []
        assert facts == [[True] * 5, True]


class TestOnTop:
    async def test_a_fastapi_handler_completes_in_the_transaction_of_a_dependency(
        self, make_monque: Make, account: Account, collection: Collection
    ) -> None:
        """The dependency commits after the handler has returned, and that is in time."""
        jobs = JobRouter()

        async def transaction(monque: MonqueDep) -> Any:
            async with monque.client.start_session() as session, await session.start_transaction():
                yield session

        @jobs.job("deposit")
        async def deposit(job: Job[Deposit], session: Annotated[Any, Depends(transaction)]) -> None:
            await job.complete_in(session)
            await account.add(job.data.amount, session)
            if job.data.amount < 0:
                raise ValueError("overdrawn")

        monque = make_monque(options=replace(QUICK, max_retries=1))
        heard = Heard(monque)
        app = FastAPI()
        setup_monque(app, monque, routers=[jobs])
        async with app.router.lifespan_context(app):
            await monque.enqueue(deposit, Deposit(5))
            await heard.wait("job:complete")
            await monque.enqueue(deposit, Deposit(-3))
            [failed] = await heard.wait("job:fail")

        assert await account.balance() == 5
        assert str(failed.error) == "overdrawn"
        assert sorted([doc["status"] async for doc in collection.find()]) == ["completed", "failed"]

    async def test_run_handler_leaves_the_transaction_as_it_is(
        self, monque: Monque, account: Account, collection: Collection
    ) -> None:
        @monque.worker("deposit")
        async def deposit(job: Job[Deposit]) -> None:
            async with monque.client.start_session() as session, await session.start_transaction():
                await job.complete_in(session)
                await account.add(job.data.amount, session)

        await run_handler(deposit, Deposit(5))

        assert await account.balance() == 5
        assert await collection.count_documents({}) == 0

    async def test_run_handler_refuses_a_session_without_a_transaction(self, monque: Monque) -> None:
        async def work(job: Job[None]) -> None:
            async with monque.client.start_session() as session:
                await job.complete_in(session)

        with pytest.raises(ConfigurationError, match="needs a transaction"):
            await run_handler(work)

    async def test_run_handler_with_a_blocking_session(self, server: EmbeddedMongo) -> None:
        def work(job: Job[None]) -> None:
            with (
                MongoClient(server.uri) as client,
                client.start_session() as session,
                session.start_transaction(),
            ):
                job.complete_in(session)

        await run_handler(work)
