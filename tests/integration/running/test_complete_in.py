"""Jobs completed in their handler's own transaction: its writes and the completion, or neither."""

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
from pymongo.client_session import ClientSession
from pymongo.errors import OperationFailure

from monque import (
    ClaimLostError,
    ConfigurationError,
    ConnectionError,
    Job,
    JobStateError,
    JobStatus,
    Monque,
    NotCommittedError,
    Options,
    SyncMonque,
)
from monque.embedded import EmbeddedMongo
from monque.fastapi import JobRouter, MonqueDep, setup_monque
from monque.testing import run_handler
from support.aliases import Collection, Database, Make
from support.clocks import ago, now
from support.completing import Accounts, Deposit, Depositing, raising
from support.jobs import document, find_one, only
from support.options import BEATING, ONE_TRY, QUICK
from support.waiting import Events, eventually
from support.working import Pause

FIVE = Deposit(5)
BEATING_ONCE = replace(BEATING, base_retry_interval=ONE_TRY.base_retry_interval)


@dataclass
class Bank:
    """An open instance, what it emits, and the accounts that its `deposit` jobs write."""

    monque: Monque
    events: Events
    accounts: Accounts
    collection: Collection

    def depositing(self, **steps: Any) -> Depositing:
        """A handler for `deposit`, with more steps inside of its transaction or after it."""
        return Depositing(self.monque, self.accounts, **steps)

    async def run(self, handler: Any) -> None:
        """Let *handler* make one deposit of five, and everything end that is due."""
        deposit = self.monque.worker("deposit", handler)
        await self.monque.enqueue(deposit, FIVE)
        await self.monque.run_until_idle()

    async def start(self, handler: Any) -> Job[Deposit]:
        """Let *handler* begin with a deposit of five."""
        deposit = self.monque.worker("deposit", handler)
        await self.monque.start()
        return await self.monque.enqueue(deposit, FIVE)

    async def job(self) -> dict[str, Any]:
        return await only(self.collection)


@pytest.fixture
async def accounts(database: Database) -> Accounts:
    accounts = Accounts(database["accounts"])
    await accounts.create()
    return accounts


@pytest.fixture
def make_bank(
    make_monque: Make, accounts: Accounts, collection: Collection
) -> Callable[[Options], Awaitable[Bank]]:
    async def make(options: Options) -> Bank:
        monque = await make_monque(options=options).open()
        return Bank(monque, Events(monque), accounts, collection)

    return make


@pytest.fixture
async def bank(make_bank: Any) -> Bank:
    """One that does not retry failed attempts during a test."""
    return await make_bank(ONE_TRY)


async def abort(job: Job[Any], session: AsyncClientSession) -> None:
    await session.abort_transaction()


class TestTogether:
    async def test_the_writes_and_the_completion_commit_together(self, bank: Bank) -> None:
        seen: list[str] = []

        async def note_status(*_: object) -> None:
            seen.append((await bank.job())["status"])

        await bank.run(bank.depositing(inside=note_status, after=note_status))

        assert seen == ["processing", "completed"]
        assert await bank.accounts.total() == 5
        [event] = bank.events.of("job:complete")
        assert (event.job.status, event.job.data, event.job.attempt) == (JobStatus.COMPLETED, FIVE, 1)
        assert event.duration > timedelta(0)
        assert bank.events.kinds().count("job:complete") + bank.events.kinds().count("job:start") == 2
        assert set(bank.events.kinds()) <= {"job:start", "job:complete"}

    async def test_a_job_completed_in_a_transaction_looks_like_any_other(
        self, monque: Monque, collection: Collection
    ) -> None:
        @monque.worker("work")
        async def work(job: Job[str]) -> None:
            if job.data == "in a transaction":
                async with monque.client.start_session() as session:
                    await session.with_transaction(job.complete_in)

        await monque.enqueue(work, "in a transaction", unique_key="a")
        await monque.enqueue(work, "as always", unique_key="b")
        await monque.run_until_idle()

        first, second = await collection.find().sort("_id").to_list()
        assert first["status"] == second["status"] == "completed"
        assert first.keys() == second.keys()
        assert first["startedAt"] <= first["finishedAt"]

    async def test_an_error_in_the_transaction_leaves_neither(self, bank: Bank) -> None:
        await bank.run(bank.depositing(inside=raising(ValueError("the bank is closed"))))

        doc = await bank.job()
        assert (doc["status"], doc["failCount"]) == ("pending", 1)
        assert doc["failReason"] == "ValueError: the bank is closed"
        assert await bank.accounts.total() == 0
        [event] = bank.events.of("job:fail")
        assert event.will_retry
        assert bank.events.of("job:complete") == []

    async def test_attempts_that_failed_before_one_that_succeeds_write_nothing(self, make_bank: Any) -> None:
        bank = await make_bank(QUICK)

        async def fail_twice(job: Job[Deposit], session: AsyncClientSession) -> None:
            if job.fail_count < 2:
                raise ValueError("not yet")

        await bank.start(bank.depositing(inside=fail_twice, retrying=False))
        await bank.events.wait("job:complete")

        assert await bank.accounts.total() == 5
        assert len(bank.events.of("job:fail")) == 2
        assert (await bank.job())["attempt"] == 3

    async def test_a_handler_that_hides_the_abort_has_failed(self, bank: Bank) -> None:
        deposit = bank.depositing(inside=raising(ValueError("hidden")))

        async def hide(job: Job[Deposit]) -> None:
            with suppress(ValueError):
                await deposit(job)

        await bank.run(hide)

        doc = await bank.job()
        assert (doc["status"], doc["failCount"]) == ("pending", 1)
        assert "transaction was not committed" in doc["failReason"]
        assert await bank.accounts.total() == 0
        [event] = bank.events.of("job:fail")
        assert isinstance(event.error, NotCommittedError)
        assert event.error.job_id == event.job.id

    async def test_a_completion_that_was_not_awaited_has_failed(self, bank: Bank) -> None:
        async def forget(job: Job[Deposit]) -> None:
            async with bank.monque.client.start_session() as session, await session.start_transaction():
                job.complete_in(session).close()  # what forgetting the await comes to

        await bank.run(forget)

        assert (await bank.job())["status"] == "pending"
        [event] = bank.events.of("job:fail")
        assert isinstance(event.error, NotCommittedError)

    async def test_failed_attempts_are_bounded_as_always(self, make_bank: Any) -> None:
        bank = await make_bank(replace(QUICK, max_retries=2))
        await bank.start(bank.depositing(inside=abort))
        await bank.events.wait("job:fail", 2)

        doc = await bank.job()
        assert (doc["status"], doc["failCount"], doc["attempt"]) == ("failed", 2, 2)


class TestOnceMore:
    async def test_a_callback_that_is_called_again_counts_once(self, bank: Bank) -> None:
        tries: list[None] = []

        async def conflict_twice(*_: object) -> None:
            tries.append(None)
            if len(tries) < 3:
                raise OperationFailure("once more", 112, {"errorLabels": ["TransientTransactionError"]})

        await bank.run(bank.depositing(inside=conflict_twice))

        assert len(tries) == 3
        assert await bank.accounts.total() == 5
        assert (await bank.job())["status"] == "completed"
        assert [kind for kind in bank.events.kinds() if kind != "job:start"] == ["job:complete"]

    async def test_calling_it_twice_in_one_transaction_is_fine(self, bank: Bank) -> None:
        async def complete_again(job: Job[Deposit], session: AsyncClientSession) -> None:
            await job.complete_in(session)

        deposit = bank.monque.worker("deposit", bank.depositing(inside=complete_again))
        await bank.monque.enqueue(deposit, FIVE)
        await bank.monque.schedule("@hourly", deposit, Deposit(7))
        await bank.collection.update_many({}, {"$set": {"nextRunAt": ago(seconds=1)}})
        await bank.monque.run_until_idle()

        assert await bank.accounts.total() == 12
        assert len(bank.events.of("job:complete")) == 2

    async def test_a_second_transaction_after_the_commit_is_refused(self, bank: Bank) -> None:
        """As by a loop that repeats all of it because the answer to the commit was lost."""
        deposit = bank.depositing(retrying=False)

        async def deposit_twice(job: Job[Deposit]) -> None:
            for _ in range(2):
                await deposit(job)

        await bank.run(deposit_twice)

        assert await bank.accounts.total() == 5
        assert (await bank.job())["status"] == "completed"
        [event] = bank.events.of("job:error")
        assert isinstance(event.error, ClaimLostError)
        assert "has completed job" in str(event.error)
        assert len(bank.events.of("job:complete")) == 1
        assert bank.events.of("job:fail") == bank.events.of("job:lost") == []

    async def test_an_error_after_the_commit_is_emitted_and_changes_nothing(self, bank: Bank) -> None:
        await bank.run(bank.depositing(after=raising(ValueError("too late"))))

        doc = await bank.job()
        assert (doc["status"], doc["failCount"]) == ("completed", 0)
        assert "failReason" not in doc
        assert await bank.accounts.total() == 5
        [event] = bank.events.of("job:error")
        assert (str(event.error), event.job.name) == ("too late", "deposit")
        assert len(bank.events.of("job:complete")) == 1
        assert bank.events.of("job:fail") == []


class TestSchedules:
    async def run(self, bank: Bank, handler: Any, **fields: Any) -> dict[str, Any]:
        """Let *handler* do one occurrence of a schedule that is due; the schedule as it is then."""
        schedule = {"repeatInterval": "0 0 1 1 *", "timezone": "UTC", "uniqueKey": "deposit", **fields}
        await bank.collection.insert_one(document(name="deposit", data={"amount": 5}, **schedule))
        bank.monque.worker("deposit", handler)
        await bank.monque.run_until_idle()
        return await bank.job()

    async def test_the_occurrence_is_completed_and_the_schedule_goes_on(self, bank: Bank) -> None:
        doc = await self.run(bank, bank.depositing(), failCount=3, failReason="earlier")

        assert (doc["status"], doc["failCount"], doc["attempt"]) == ("pending", 0, 1)
        assert doc["nextRunAt"] > now()
        assert (doc["nextRunAt"].month, doc["nextRunAt"].day) == (1, 1)
        assert "failReason" not in doc
        assert await bank.accounts.total() == 5
        [event] = bank.events.of("job:complete")
        assert event.job.next_run_at == doc["nextRunAt"]

    async def test_an_abort_leaves_the_occurrence_to_be_tried_again(self, bank: Bank) -> None:
        doc = await self.run(bank, bank.depositing(inside=abort))

        assert (doc["status"], doc["failCount"]) == ("pending", 1)
        assert "not committed" in doc["failReason"]
        assert await bank.accounts.total() == 0
        assert len(bank.events.of("job:fail")) == 1
        assert bank.events.of("job:complete") == []

    async def test_a_schedule_changed_meanwhile_goes_on_at_its_new_time(self, bank: Bank) -> None:
        deposit = bank.depositing(retrying=False)

        async def change_and_deposit(job: Job[Deposit]) -> None:
            await bank.monque.schedule("30 6 2 2 *", "deposit", job.data)
            await deposit(job)

        doc = await self.run(bank, change_and_deposit)

        assert doc["status"] == "pending"
        assert (doc["nextRunAt"].month, doc["nextRunAt"].day, doc["nextRunAt"].minute) == (2, 2, 30)
        assert await bank.accounts.total() == 5
        assert len(bank.events.of("job:complete")) == 1


class TestLostClaims:
    async def take_away(self, collection: Collection, make_monque: Make) -> None:
        """Another instance finds the owner dead."""
        await collection.update_one({}, {"$set": {"lastHeartbeat": ago(minutes=5)}})
        other = await make_monque().open()
        await other.close()
        assert (await only(collection))["status"] == "pending"

    async def test_a_run_whose_claim_was_lost_commits_nothing(self, bank: Bank, make_monque: Make) -> None:
        refused: list[BaseException] = []

        async def deposit(job: Job[Deposit]) -> None:
            if job.attempt > 1:
                return
            await self.take_away(bank.collection, make_monque)
            try:
                async with bank.monque.client.start_session() as session, await session.start_transaction():
                    await bank.accounts.add(job.data, session)
                    await job.complete_in(session)
            except ClaimLostError as error:
                refused.append(error)
                raise

        await bank.run(deposit)

        [error] = refused
        doc = await bank.job()
        assert error.job_id == doc["_id"]
        assert "does not belong to this run any more" in str(error)
        assert await bank.accounts.total() == 0
        assert doc["attempt"] == 2
        assert [event.job.attempt for event in bank.events.of("job:complete")] == [2]
        assert len(bank.events.of("job:lost")) == 1

    async def test_a_claim_that_is_lost_under_the_transaction_makes_it_run_again_and_fail(
        self, bank: Bank, make_monque: Make
    ) -> None:
        """What the transaction sees is older than the loss, so its write conflicts; then it sees it."""
        tries: list[None] = []

        async def deposit(job: Job[Deposit]) -> None:
            if job.attempt > 1:
                return

            async def transaction(session: AsyncClientSession) -> None:
                tries.append(None)
                await bank.accounts.add(job.data, session)  # takes the snapshot
                if len(tries) == 1:
                    await self.take_away(bank.collection, make_monque)
                await job.complete_in(session)

            with pytest.raises(ClaimLostError):
                async with bank.monque.client.start_session() as session:
                    await session.with_transaction(transaction)

        await bank.run(deposit)

        assert len(tries) == 2
        assert await bank.accounts.total() == 0
        assert len(bank.events.of("job:complete")) == 1

    async def test_a_conflict_carries_the_label_of_the_driver(self, bank: Bank) -> None:
        raised: list[ConnectionError] = []

        async def deposit(job: Job[Deposit]) -> None:
            try:
                async with bank.monque.client.start_session() as session, await session.start_transaction():
                    await bank.accounts.add(job.data, session)  # takes the snapshot
                    await bank.collection.update_one({}, {"$set": {"touched": True}})
                    await job.complete_in(session)
            except ConnectionError as error:
                raised.append(error)
                raise

        await bank.run(deposit)

        [error] = raised
        assert "could not complete the job" in str(error)
        assert error.has_error_label("TransientTransactionError")
        assert await bank.accounts.total() == 0

    async def test_a_deleted_job_commits_nothing(self, bank: Bank) -> None:
        async def deposit(job: Job[Deposit]) -> None:
            await bank.collection.delete_one({"_id": job.id})
            async with bank.monque.client.start_session() as session, await session.start_transaction():
                await bank.accounts.add(job.data, session)
                await job.complete_in(session)

        await bank.run(deposit)

        assert await bank.accounts.total() == 0
        assert bank.events.of("job:complete") == []
        assert len(bank.events.of("job:lost")) == 1


class TestHeartbeats:
    async def test_an_open_transaction_is_not_disturbed_and_disturbs_no_other_job(
        self, make_bank: Any
    ) -> None:
        """A heartbeat would wait for the transaction, and with it those of all other jobs."""
        bank = await make_bank(BEATING_ONCE)
        bank.monque.worker("other", other := Pause())
        await bank.start(bank.depositing(inside=(pause := Pause())))
        bystander = await bank.monque.enqueue("other")
        await bank.events.wait("job:start", 2)
        await pause.wait()
        for _ in range(3):
            await self.beats(bank.collection, bystander.id)
        pause.go_on.set()
        other.go_on.set()
        await bank.events.wait("job:complete", 2)

        assert await bank.accounts.total() == 5
        assert not {"job:error", "job:lost", "job:fail"} & set(bank.events.kinds())

    @pytest.mark.parametrize("commits", [True, False], ids=["commit", "abort"])
    async def test_a_handler_that_goes_on_after_the_transaction_is_left_alone(
        self, make_bank: Any, commits: bool
    ) -> None:
        """After a commit there is no claim to lose; after an abort it is kept alive again."""
        bank = await make_bank(BEATING_ONCE)
        bank.monque.worker("other", other := Pause())
        steps = {} if commits else {"inside": abort}
        job = await bank.start(bank.depositing(after=(pause := Pause()), **steps))
        bystander = await bank.monque.enqueue("other")
        await bank.events.wait("job:start", 2)
        await pause.wait()
        for _ in range(3):
            await self.beats(bank.collection, bystander.id if commits else job.id)
        pause.go_on.set()
        other.go_on.set()
        await bank.events.wait("job:complete" if commits else "job:fail")

        assert not {"job:error", "job:lost"} & set(bank.events.kinds())

    async def test_a_transaction_that_is_open_keeps_the_job_from_being_recovered(
        self, bank: Bank, make_monque: Make
    ) -> None:
        """By its heartbeat the owner is dead; but recovery leaves what a transaction holds."""
        deposit = bank.depositing(inside=(pause := Pause()))

        async def deposit_when_dead(job: Job[Deposit]) -> None:
            await bank.collection.update_one({}, {"$set": {"lastHeartbeat": ago(minutes=5)}})
            await deposit(job)

        await bank.start(deposit_when_dead)
        await pause.wait()
        other = make_monque()
        other_events = Events(other)
        await other.open()
        pause.go_on.set()
        await bank.events.wait("job:complete")

        assert other_events.of("stale:recovered") == []
        assert await bank.accounts.total() == 5
        assert (await bank.job())["attempt"] == 1

    async def beats(self, collection: Collection, job_id: ObjectId) -> None:
        """Wait for the next heartbeat of a job."""
        before = await find_one(collection, {"_id": job_id})

        async def later() -> None:
            assert (await find_one(collection, {"_id": job_id}))["lastHeartbeat"] > before["lastHeartbeat"]

        await eventually(later)


class TestShutdown:
    async def test_a_handler_cancelled_in_its_transaction_is_released(self, bank: Bank) -> None:
        await bank.start(bank.depositing(inside=(pause := Pause()), retrying=False))
        await pause.wait()
        await bank.monque.stop(timeout=0)

        doc = await bank.job()
        assert (doc["status"], doc["failCount"]) == ("pending", 0)
        assert await bank.accounts.total() == 0
        assert bank.events.of("job:complete") == bank.events.of("job:fail") == []

    async def test_a_handler_cancelled_after_its_commit_has_completed_the_job(self, bank: Bank) -> None:
        await bank.start(bank.depositing(after=(pause := Pause()), retrying=False))
        await pause.wait()
        await bank.monque.stop(timeout=0)

        assert (await bank.job())["status"] == "completed"
        assert await bank.accounts.total() == 5
        assert len(bank.events.of("job:complete")) == 1


class TestBlockingSessions:
    """`def` handlers use the sessions of the blocking client that was handed over; nothing is awaited."""

    @pytest.fixture
    def blocking(self, server: EmbeddedMongo) -> Iterator[Any]:
        with MongoClient(server.uri) as client:
            yield client

    def deposit_with(self, blocking: Any, database: Database, error: Exception | None = None) -> Any:
        documents = blocking[database.name]["accounts"]

        def deposit(job: Job[Deposit]) -> None:
            assert threading.current_thread() is not threading.main_thread()

            def transaction(session: ClientSession) -> None:
                job.complete_in(session)
                change = {"$inc": {"balance": job.data.amount}}
                documents.update_one({"_id": 0}, change, session=session)
                if error is not None:
                    raise error

            with blocking.start_session() as session:
                session.with_transaction(transaction)

        return deposit

    async def test_a_def_handler_completes_in_a_blocking_transaction(
        self, blocking: Any, make_monque: Make, database: Database, accounts: Accounts, collection: Collection
    ) -> None:
        monque = await make_monque(blocking[database.name]).open()
        events = Events(monque)
        deposit = monque.worker("deposit", self.deposit_with(blocking, database))
        await monque.enqueue(deposit, FIVE)
        await monque.run_until_idle()

        assert await accounts.total() == 5
        assert (await only(collection))["status"] == "completed"
        assert [kind for kind in events.kinds() if kind != "job:start"] == ["job:complete"]

    async def test_an_abort_leaves_neither(
        self, blocking: Any, make_monque: Make, database: Database, accounts: Accounts, collection: Collection
    ) -> None:
        monque = await make_monque(blocking[database.name], options=ONE_TRY).open()
        failing = self.deposit_with(blocking, database, ValueError("the bank is closed"))
        deposit = monque.worker("deposit", failing)
        await monque.enqueue(deposit, FIVE)
        await monque.run_until_idle()

        doc = await only(collection)
        assert (doc["status"], doc["failReason"]) == ("pending", "ValueError: the bank is closed")
        assert await accounts.total() == 0

    async def test_in_a_program_without_asyncio(
        self, blocking: Any, database: Database, accounts: Accounts, collection: Collection
    ) -> None:
        def program() -> None:
            with SyncMonque(blocking[database.name], options=QUICK) as monque:
                deposit = monque.worker("deposit", self.deposit_with(blocking, database))
                monque.enqueue(deposit, FIVE)
                monque.run_until_idle()

        await asyncio.to_thread(program)

        assert await accounts.total() == 5
        assert (await only(collection))["status"] == "completed"

    async def test_mistakes_raise_at_once(
        self,
        blocking: Any,
        server: EmbeddedMongo,
        make_monque: Make,
        database: Database,
        collection: Collection,
    ) -> None:
        monque = await make_monque(blocking[database.name]).open()
        errors: list[str] = []

        @monque.worker("work")
        def work(job: Job[None]) -> None:
            with blocking.start_session() as session, pytest.raises(ConfigurationError) as without:
                job.complete_in(session)
            with MongoClient(server.uri) as other, other.start_session() as session:
                session.start_transaction()
                with pytest.raises(ConfigurationError) as foreign:
                    job.complete_in(session)
            errors.extend([str(without.value), str(foreign.value)])

        await monque.enqueue(work)
        await monque.run_until_idle()

        assert len(errors) == 2
        assert "needs a transaction" in errors[0]
        assert "hand that very client" in errors[1]
        assert (await only(collection))["status"] == "completed"  # the handler went on without one

    async def test_a_motor_session_is_awaited(
        self, server: EmbeddedMongo, make_monque: Make, database: Database, accounts: Accounts
    ) -> None:
        motor = AsyncIOMotorClient(server.uri)
        monque = await make_monque(motor[database.name]).open()
        events = Events(monque)
        documents = motor[database.name]["accounts"]

        @monque.worker("deposit")
        async def deposit(job: Job[Deposit]) -> None:
            async with await motor.start_session() as session, session.start_transaction():
                await job.complete_in(session)
                change = {"$inc": {"balance": job.data.amount}}
                await documents.update_one({"_id": 0}, change, session=session)

        await monque.enqueue(deposit, FIVE)
        await monque.run_until_idle()
        await monque.close()
        motor.close()

        assert await accounts.total() == 5
        assert len(events.of("job:complete")) == 1


class TestMistakes:
    async def refusal(self, bank: Bank, handler: Any) -> BaseException:
        """The error of a handler's attempt."""
        await bank.run(handler)
        [event] = bank.events.of("job:fail")
        return event.error

    async def test_a_session_without_a_transaction(self, bank: Bank) -> None:
        async def work(job: Job[Deposit]) -> None:
            async with bank.monque.client.start_session() as session:
                await job.complete_in(session)

        error = await self.refusal(bank, work)
        assert isinstance(error, ConfigurationError)
        assert "start_transaction() and before the commit" in str(error)

    async def test_a_transaction_that_is_over(self, bank: Bank) -> None:
        async def work(job: Job[Deposit]) -> None:
            async with bank.monque.client.start_session() as session:
                async with await session.start_transaction():
                    await bank.collection.database["x"].find_one({}, session=session)
                await job.complete_in(session)

        assert isinstance(await self.refusal(bank, work), ConfigurationError)

    async def test_the_session_of_another_client(self, bank: Bank, server: EmbeddedMongo) -> None:
        async def work(job: Job[Deposit]) -> None:
            async with AsyncMongoClient(server.uri) as other, other.start_session() as session:
                await session.start_transaction()
                await job.complete_in(session)

        error = await self.refusal(bank, work)
        assert isinstance(error, ConfigurationError)
        assert "belongs to another client" in str(error)

    async def test_no_session_at_all(self, bank: Bank) -> None:
        async def work(job: Job[Deposit]) -> None:
            await job.complete_in(None)

        error = await self.refusal(bank, work)
        assert isinstance(error, ConfigurationError)
        assert "AsyncClientSession, not NoneType" in str(error)

    async def test_a_job_that_no_handler_runs(self, bank: Bank) -> None:
        kept: list[Job[Any]] = []
        bank.monque.worker("work", kept.append)
        stored = await bank.monque.enqueue("work")
        await bank.monque.run_until_idle()
        [handled] = kept
        [read] = await bank.monque.get_jobs()

        async with bank.monque.client.start_session() as session, await session.start_transaction():
            for job in (stored, handled, read):
                with pytest.raises(JobStateError, match="no handler runs here and now") as refused:
                    await job.complete_in(session)
                assert refused.value.attempted_action == "complete"

    async def test_the_job_of_another_run(self, bank: Bank) -> None:
        other = await bank.monque.enqueue("another")

        async def work(job: Job[Deposit]) -> None:
            async with bank.monque.client.start_session() as session, await session.start_transaction():
                await other.complete_in(session)

        assert isinstance(await self.refusal(bank, work), JobStateError)


class TestTheValue:
    async def test_a_job_in_a_handler_is_still_a_plain_value(self, monque: Monque, events: Events) -> None:
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
                    other.complete_in(None)

        await monque.enqueue(work, {"n": 1})
        await monque.run_until_idle()

        assert events.of("job:fail") == []
        assert facts == [[True] * 5, True]


class TestOnTop:
    async def test_a_fastapi_handler_completes_in_the_transaction_of_a_dependency(
        self, make_monque: Make, accounts: Accounts, collection: Collection
    ) -> None:
        """The dependency commits after the handler has returned, and that is in time."""
        jobs = JobRouter()

        async def transaction(monque: MonqueDep) -> Any:
            async with monque.client.start_session() as session, await session.start_transaction():
                yield session

        @jobs.job("deposit")
        async def deposit(job: Job[Deposit], session: Annotated[Any, Depends(transaction)]) -> None:
            await job.complete_in(session)
            await accounts.add(job.data, session)
            if job.data.amount < 0:
                raise ValueError("overdrawn")

        monque = make_monque(options=replace(QUICK, max_retries=1))
        events = Events(monque)
        app = FastAPI()
        setup_monque(app, monque, routers=[jobs])
        async with app.router.lifespan_context(app):
            await monque.enqueue(deposit, FIVE)
            await events.wait("job:complete")
            await monque.enqueue(deposit, Deposit(-3))
            [failed] = await events.wait("job:fail")

        assert await accounts.total() == 5
        assert str(failed.error) == "overdrawn"
        assert sorted([doc["status"] async for doc in collection.find()]) == ["completed", "failed"]

    async def test_run_handler_leaves_the_transaction_as_it_is(
        self, monque: Monque, accounts: Accounts, collection: Collection
    ) -> None:
        deposit = monque.worker("deposit", Depositing(monque, accounts))
        await run_handler(deposit, FIVE)

        assert await accounts.total() == 5
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


async def test_a_job_that_its_transaction_has_completed_is_not_logged_as_put_back_by_a_stop(
    monque: Monque, caplog: pytest.LogCaptureFixture
) -> None:
    committed = asyncio.Event()

    @monque.worker("work")
    async def work(job: Job[None]) -> None:
        async with monque.client.start_session() as session, await session.start_transaction():
            await job.complete_in(session)
        committed.set()
        await asyncio.Event().wait()

    await monque.start()
    await monque.enqueue(work)
    await committed.wait()
    await monque.stop(timeout=0)

    assert "did not finish all jobs" in caplog.text
    assert "put back" not in caplog.text
