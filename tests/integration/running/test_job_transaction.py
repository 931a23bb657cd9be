"""`job.transaction`: a step whose writes and whose checkpoint are one commit."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from pymongo import AsyncMongoClient
from pymongo.asynchronous.client_session import AsyncClientSession
from pymongo.errors import PyMongoError

from monque import ClaimLostError, ConfigurationError, Job, Monque, StepError
from monque.embedded import EmbeddedMongo
from support.aliases import Collection, Make
from support.completing import Accounts, Deposit
from support.jobs import find_one, only
from support.options import BEATING, QUICK, WATCHFUL
from support.traffic import Traffic
from support.waiting import Events, eventually
from support.working import Pause

Handler = Callable[[Job[Any]], Awaitable[Any]]

AGAIN = PyMongoError("again", error_labels=["TransientTransactionError"])
"""What a write conflict raises: the transaction is done again."""


@pytest.fixture
async def accounts(collection: Collection) -> Accounts:
    accounts = Accounts(collection.database["accounts"])
    await accounts.create()
    return accounts


async def run(monque: Monque, handler: Handler, *, until: str = "job:complete") -> Any:
    """Run one job with this handler; the event of its end."""
    events = Events(monque)
    monque.worker("work", handler)
    await monque.start()
    await monque.enqueue("work")
    [event] = await events.wait(until)
    return event


def booking(book: Any) -> Handler:
    async def work(job: Job[None]) -> None:
        await job.transaction("book", book)

    return work


async def test_a_transaction_returns_what_is_stored_and_later_runs_get_it_without_a_second_one(
    monque: Monque, accounts: Accounts, collection: Collection
) -> None:
    runs, got = [], []

    async def book(session: AsyncClientSession, amount: int, *, account: int) -> Deposit:
        runs.append(1)
        await accounts.add(Deposit(amount, account), session)
        return Deposit(amount, account)

    async def work(job: Job[None]) -> None:
        got.append(await job.transaction("book", book, 5, account=3))
        if job.attempt == 1:
            raise ValueError("after the commit")

    await run(monque, work)

    assert got == [Deposit(5, 3)] * 2
    assert runs == [1]
    assert await accounts.total() == 5
    [step] = (await only(collection))["steps"]
    assert (step["n"], step["k"], step["v"]) == ("book", "transaction", {"amount": 5, "account": 3})


async def test_what_a_transaction_raises_leaves_it_and_rolls_its_writes_back(
    monque: Monque, accounts: Accounts, collection: Collection
) -> None:
    async def book(session: AsyncClientSession) -> None:
        await accounts.add(Deposit(), session)
        raise LookupError("no such account")

    async def work(job: Job[None]) -> None:
        with pytest.raises(LookupError):
            await job.transaction("book", book)
        await job.transaction("book", accounts_of_another_kind)  # a name whose function raised is free

    async def accounts_of_another_kind(session: AsyncClientSession) -> None:
        await accounts.add(Deposit(account=1), session)

    await run(monque, work)

    assert await accounts.balances() == dict.fromkeys(range(8), 0) | {1: 1}
    assert [step["n"] for step in (await only(collection))["steps"]] == ["book"]


async def test_a_transaction_that_conflicts_is_done_again_after_its_writes_were_rolled_back(
    monque: Monque, accounts: Accounts
) -> None:
    runs: list[int] = []

    async def book(session: AsyncClientSession) -> None:
        runs.append(1)
        await accounts.add(Deposit(), session)
        if len(runs) < 3:  # somebody else writes to what it is about to write
            await accounts.collection.update_one({"_id": 1}, {"$inc": {"balance": 10}})
            await accounts.add(Deposit(account=1), session)

    await run(monque, booking(book))

    assert len(runs) == 3
    assert await accounts.balances() == dict.fromkeys(range(8), 0) | {0: 1, 1: 20}


async def test_a_transaction_costs_two_writes_to_its_job_and_a_commit(
    server: EmbeddedMongo, database: Any, make_monque: Make
) -> None:
    traffic = Traffic("update", "findAndModify", "commitTransaction", "abortTransaction")
    async with AsyncMongoClient[dict[str, Any]](server.uri, event_listeners=[traffic]) as client:
        monque = await make_monque(client[database.name]).open()

        async def nothing(session: AsyncClientSession) -> None:
            traffic_before.update(traffic.sent)

        async def work(job: Job[None]) -> None:
            traffic.clear()
            await job.transaction("nothing", nothing)
            sent.update(traffic.sent)

        sent: dict[str, int] = {}
        traffic_before: dict[str, int] = {}
        await run(monque, work)
        await monque.close()

    assert traffic_before == {"update": 1}  # it holds the document before its function is called
    assert sent == {"update": 2, "commitTransaction": 1}


class TestWhatHoldsTheDocument:
    async def test_heartbeats_progress_and_log_lines_hold_still_and_follow(
        self, collection: Collection, accounts: Accounts, make_monque: Make
    ) -> None:
        """They would wait for the transaction, or make it conflict."""
        monque = await make_monque(options=BEATING).open()
        seen: list[Any] = []

        async def book(session: AsyncClientSession) -> None:
            await accounts.add(Deposit(), session)
            job.report_progress(1, 2)
            job.add_log("booked")
            held = await find_one(collection)
            await asyncio.sleep(1.5)  # many heartbeats, and a write of reports
            seen.append((held, await find_one(collection)))

        async def work(job_: Job[None]) -> None:
            nonlocal job
            job = job_
            await job.transaction("book", book)

        job: Any = None
        await run(monque, work)

        [(before, after)] = seen  # one attempt
        assert before == after
        done = await only(collection)
        assert (done["progress"]["done"], [line["text"] for line in done["log"]]) == (1, ["booked"])

    async def test_two_transactions_in_a_gather_are_done_one_after_the_other(
        self, accounts: Accounts, collection: Collection, make_monque: Make
    ) -> None:
        monque = await make_monque(options=BEATING).open()
        runs: list[str] = []

        async def book(session: AsyncClientSession, name: str) -> str:
            runs.append(name)
            await accounts.add(Deposit(), session)
            await asyncio.sleep(0.2)
            return name

        async def step() -> str:
            return "c"

        async def work(job: Job[None]) -> None:
            got = await asyncio.gather(
                *(job.transaction(name, book, name) for name in "ab"), job.step("c", step)
            )
            assert got == ["a", "b", "c"]

        await run(monque, work)

        assert sorted(runs) == ["a", "b"]
        assert await accounts.total() == 2
        assert {step["n"] for step in (await only(collection))["steps"]} == {"a", "b", "c"}

    async def test_a_heartbeat_is_sent_before_a_transaction_is_done_again(
        self, accounts: Accounts, collection: Collection, make_monque: Make
    ) -> None:
        monque = await make_monque(options=BEATING).open()
        beats: list[Any] = []

        async def book(session: AsyncClientSession) -> None:
            beats.append((await find_one(collection))["lastHeartbeat"])
            if len(beats) < 3:
                await asyncio.sleep(0.1)
                raise AGAIN

        await run(monque, booking(book))

        assert beats[0] < beats[1] < beats[2]

    async def test_one_that_outlasts_the_tolerance_keeps_its_job(
        self, accounts: Accounts, make_monque: Make
    ) -> None:
        """Others look many times meanwhile."""
        steady = replace(WATCHFUL, heartbeat_interval=timedelta(seconds=0.5))
        monque = await make_monque(options=steady).open()
        other = await make_monque(options=steady).open()
        recovered = [Events(monque), Events(other)]
        await other.start()
        runs: list[int] = []

        async def book(session: AsyncClientSession) -> None:
            runs.append(1)
            await accounts.add(Deposit(), session)
            if len(runs) == 1:
                await asyncio.sleep(3)  # twice as long as the tolerance
                raise AGAIN

        async def work(job: Job[None]) -> None:
            await job.transaction("book", book)
            await asyncio.sleep(0.5)

        completed = await run(monque, work)

        assert (len(runs), completed.job.attempt, await accounts.total()) == (2, 1, 1)
        assert [event for each in recovered for event in each.of("stale:recovered")] == []

    async def test_a_request_to_cancel_waits_for_it_and_counts_after_the_commit(
        self, accounts: Accounts, monque: Monque, collection: Collection
    ) -> None:
        held = Pause()

        async def book(session: AsyncClientSession) -> None:
            await accounts.add(Deposit(), session)
            await held()

        async def work(job: Job[None]) -> None:
            await job.transaction("book", book)
            await asyncio.Event().wait()

        running = asyncio.create_task(run(monque, work, until="job:cancelled"))
        await held.wait()
        cancelling = asyncio.create_task(monque.cancel_job((await only(collection))["_id"], running=True))
        held.go_on.set()
        await cancelling
        await running

        assert await accounts.total() == 1


class TestLostClaims:
    async def test_a_run_that_lost_its_job_cannot_begin_a_transaction(
        self, monque: Monque, accounts: Accounts, collection: Collection
    ) -> None:
        async def book(session: AsyncClientSession) -> None:
            raise AssertionError("it is not called")

        async def work(job: Job[None]) -> None:
            await steal(collection)
            with pytest.raises(ClaimLostError):
                await job.transaction("book", book)

        await run(monque, work, until="job:lost")

        assert "steps" not in await only(collection)
        await collection.delete_many({})

    async def test_one_that_loses_its_job_after_an_attempt_makes_no_other(
        self, monque: Monque, accounts: Accounts, collection: Collection
    ) -> None:
        """Whoever takes it waits for the document, and gets it the moment that the attempt is rolled back."""
        runs: list[int] = []

        async def book(session: AsyncClientSession) -> None:
            runs.append(1)
            await accounts.add(Deposit(), session)
            thief.append(asyncio.create_task(steal(collection)))
            await eventually(lambda: waits_for_it(collection))
            raise AGAIN

        async def work(job: Job[None]) -> None:
            try:
                await job.transaction("book", book)
            finally:
                await asyncio.wait(thief)

        thief: list[asyncio.Task[None]] = []
        await run(monque, work, until="job:lost")

        assert (await only(collection))["claimedBy"] == "thief"
        assert await accounts.total() == 0
        assert len(runs) == 1
        await collection.delete_many({})


async def steal(collection: Collection) -> None:
    await collection.update_one({}, {"$set": {"claimedBy": "thief"}, "$inc": {"attempt": 1}})


async def waits_for_it(collection: Collection) -> None:
    waiting = [{"$currentOp": {}}, {"$match": {"ns": collection.full_name, "writeConflicts": {"$gt": 0}}}]
    assert await (await collection.database.client.admin.aggregate(waiting)).to_list()


async def inner(*_: object) -> None: ...


INNER: dict[str, Any] = {
    "receive": object,
    "step": inner,
    "transaction": inner,
    "sleep": timedelta(seconds=1),
}


class TestRefusals:
    @pytest.mark.parametrize("method", INNER)
    async def test_nothing_durable_begins_inside_of_a_transaction(self, monque: Monque, method: str) -> None:
        async def book(session: AsyncClientSession) -> None:
            with pytest.raises(StepError, match="inside of a step"):
                await getattr(job, method)("inner", INNER[method])

        async def work(job_: Job[None]) -> None:
            nonlocal job
            job = job_
            await job.transaction("book", book)

        job: Any = None
        await run(monque, work)

    @pytest.mark.parametrize("place", ["transaction", "step", "thread"])
    async def test_the_job_is_not_completed_inside_of_a_step(
        self, monque: Monque, collection: Collection, place: str
    ) -> None:
        """Its step could not be stored any more, and the run would take its claim for lost."""

        async def work(job: Job[None]) -> None:
            async def complete() -> None:
                async with monque.client.start_session() as session:
                    await session.with_transaction(job.complete_in)

            async def complete_in(session: AsyncClientSession) -> None:
                await job.complete_in(session)

            calls: dict[str, Callable[[], Awaitable[Any]]] = {
                "transaction": lambda: job.transaction("book", complete_in),
                "step": lambda: job.step("book", complete),
                "thread": lambda: job.step("book", lambda: complete()),
            }
            with pytest.raises(StepError, match="complete_in was called inside of a step"):
                await calls[place]()

        await run(monque, work)

        assert "steps" not in await only(collection)

    async def test_a_function_that_ends_its_transaction_itself_is_refused(
        self, monque: Monque, collection: Collection
    ) -> None:
        async def book(session: AsyncClientSession) -> None:
            await session.commit_transaction()

        async def work(job: Job[None]) -> None:
            with pytest.raises(StepError, match="'book' ended its transaction itself"):
                await job.transaction("book", book)

        await run(monque, work)

        assert "steps" not in await only(collection)

    async def test_a_plain_function_is_refused(self, monque: Monque) -> None:
        async def work(job: Job[None]) -> None:
            with pytest.raises(ConfigurationError, match="`async def` that takes a session"):
                await job.transaction("book", print)  # type: ignore[arg-type]

        await run(monque, work)

    async def test_a_value_that_is_too_large_is_refused_and_rolls_the_writes_back(
        self, accounts: Accounts, make_monque: Make
    ) -> None:
        monque = await make_monque(options=QUICK).open()

        async def book(session: AsyncClientSession) -> str:
            await accounts.add(Deposit(), session)
            return "x" * (QUICK.max_result_size + 1)

        async def work(job: Job[None]) -> None:
            with pytest.raises(StepError, match="max_result_size"):
                await job.transaction("book", book)

        await run(monque, work)

        assert await accounts.total() == 0
