"""`job.transaction` whatever happens to its commit: its writes and its checkpoint count once."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import timedelta

import pymongo
import pytest
from pymongo.asynchronous.client_session import AsyncClientSession

from monque import Job, Monque, NewJob
from support.aliases import Collection, Failing, Make
from support.completing import Accounts, Deposit
from support.jobs import only, statuses
from support.options import BEATING, QUICK
from support.proxy import Proxy, command
from support.servers import Servers
from support.waiting import Events
from support.working import Pause

# Results are written again for long enough that the server gives up a transaction meanwhile.
PATIENT = replace(QUICK, max_retries=1000, max_backoff_delay=timedelta(seconds=1))


@pytest.fixture
async def accounts(collection: Collection) -> Accounts:
    accounts = Accounts(collection.database["accounts"])
    await accounts.create()
    return accounts


class Booking:
    """A handler with one transaction that counts how often its function and it are called."""

    def __init__(self, accounts: Accounts) -> None:
        self._accounts = accounts
        self.calls = self.runs = 0

    async def __call__(self, job: Job[Deposit]) -> None:
        self.runs += 1
        await job.transaction("book", self.book, job.data)

    async def book(self, session: AsyncClientSession, deposit: Deposit) -> None:
        self.calls += 1
        await self._accounts.add(deposit, session)


async def begin(monque: Monque, booking: Booking) -> Events:
    events = Events(monque)
    monque.worker("book", booking)
    await monque.start()
    await monque.enqueue("book", Deposit())
    return events


class TestCommitsInDoubt:
    @pytest.mark.parametrize("times", [1, 2])
    async def test_a_commit_whose_answers_are_lost_counts_once(
        self, proxy: Proxy, collection: Collection, accounts: Accounts, make_monque: Make, times: int
    ) -> None:
        """The driver sends it once more. If that answer is lost, too, the document tells."""
        monque = await make_monque(proxy.uri(collection.database.name)).open()
        lost = [proxy.lose_answer(command("commitTransaction")) for _ in range(times)]
        events = await begin(monque, booking := Booking(accounts))
        await events.wait("job:complete", within=30)
        await monque.stop()

        assert all(trap.caught.is_set() for trap in lost)
        assert (booking.runs, booking.calls, await accounts.total()) == (1, 1, 1)
        assert [step["k"] for step in (await only(collection))["steps"]] == ["transaction"]
        assert events.of("job:fail") == events.of("job:lost") == []

    @pytest.mark.usefixtures("brief_transactions")
    async def test_a_commit_that_never_arrives_is_done_again_when_the_server_has_given_it_up(
        self, victim: str, failing: Failing, collection: Collection, accounts: Accounts, make_monque: Make
    ) -> None:
        monque = await make_monque(victim, options=PATIENT).open()
        async with failing(["commitTransaction"], times=2, closeConnection=True):
            events = await begin(monque, booking := Booking(accounts))
            await events.wait("job:complete", within=60)

        assert (booking.runs, booking.calls, await accounts.total()) == (1, 2, 1)
        assert events.of("job:fail") == events.of("job:lost") == []

    @pytest.mark.parametrize(
        ("commands", "code"), [(["commitTransaction"], 251), (["update"], 112)], ids=["commit", "write"]
    )
    async def test_a_transaction_that_the_server_aborts_is_done_again(
        self,
        victim: str,
        failing: Failing,
        accounts: Accounts,
        make_monque: Make,
        commands: list[str],
        code: int,
    ) -> None:
        monque = await make_monque(victim).open()
        inside = Pause()
        booking = Booking(accounts)

        @monque.worker("book")
        async def book(job: Job[Deposit]) -> None:
            await inside()
            await booking(job)

        events = Events(monque)
        await monque.start()
        await monque.enqueue("book", Deposit())
        await inside.wait()
        labels = ["TransientTransactionError"]
        async with failing(commands, times=2, errorCode=code, errorLabels=labels):
            inside.go_on.set()
            await events.wait("job:complete")

        assert (booking.runs, await accounts.total()) == (1, 1)
        assert events.of("job:fail") == events.of("job:lost") == []

    async def test_a_deadline_of_the_handler_that_passes_during_the_commit_leaves_no_doubt(
        self, proxy: Proxy, collection: Collection, accounts: Accounts, make_monque: Make
    ) -> None:
        monque = await make_monque(proxy.uri(collection.database.name)).open()
        trap = proxy.hold(command("commitTransaction"))
        booking, passed = Booking(accounts), asyncio.Event()

        @monque.worker("book")
        async def book(job: Job[Deposit]) -> None:
            asyncio.get_running_loop().call_later(1.7, passed.set)
            with pymongo.timeout(1.5):
                await booking(job)

        events = Events(monque)
        await monque.start()
        await monque.enqueue("book", Deposit())
        await trap.wait()
        await passed.wait()
        trap.release()
        await events.wait("job:complete")

        assert (booking.runs, booking.calls, await accounts.total()) == (1, 1, 1)
        assert events.of("job:fail") == events.of("job:lost") == []

    async def test_a_handler_that_is_told_to_stop_during_the_commit_has_committed(
        self, proxy: Proxy, collection: Collection, accounts: Accounts, make_monque: Make
    ) -> None:
        """The stop puts the job back; the next run finds the checkpoint."""
        monque = await make_monque(proxy.uri(collection.database.name)).open()
        trap = proxy.hold(command("commitTransaction"))
        await begin(monque, booking := Booking(accounts))
        await trap.wait()
        stopping = asyncio.create_task(monque.stop(timeout=0))
        await asyncio.wait({stopping}, timeout=0.2)
        trap.release()
        await stopping
        again = await make_monque().open()
        await begin(again, booking)  # the worker is the same, and so is the job
        await again.run_until_idle()

        assert await accounts.total() == 2  # its own, and that of the second job
        assert booking.calls == 2
        assert await statuses(collection) == {"completed": 2}


async def test_a_transaction_whose_rollback_is_lost_does_not_hold_up_other_jobs(
    victim: str, failing: Failing, collection: Collection, accounts: Accounts, make_monque: Make
) -> None:
    """The server keeps it open. Its own job waits for that, and shares its settlement with no other."""
    monque = await make_monque(victim).open()
    events, ended = Events(monque), asyncio.Event()

    async def book(session: AsyncClientSession) -> None:
        await accounts.add(Deposit(), session)
        raise asyncio.CancelledError

    @monque.worker("book")
    async def work(job: Job[None]) -> None:
        try:
            await job.transaction("book", book)
        finally:
            ended.set()

    monque.worker("other", lambda job: None)
    await monque.start()
    async with failing(["abortTransaction"], times=2, closeConnection=True):
        await monque.enqueue("book")
        await ended.wait()
        await monque.enqueue_many([NewJob("other") for _ in range(20)])
        await events.wait("job:complete", 20, within=10)
    await collection.database.client.admin.command("killAllSessions", [])
    await events.wait("job:fail")

    assert await accounts.total() == 0


@pytest.mark.parametrize("how", ["transaction", "complete_in"])
async def test_a_transaction_that_hangs_learns_that_its_job_was_taken(
    collection: Collection, make_monque: Make, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    """The server has ended it, as it does after a minute, and the driver does not know."""
    monkeypatch.setattr("monque._engine.claimed.LONGEST_TRANSACTION", 0.5)
    monque = await make_monque(options=BEATING).open()
    events, inside, sessions = Events(monque), Pause(), []

    @monque.worker("work")
    async def work(job: Job[None]) -> None:
        async def hang(session: AsyncClientSession) -> None:
            if how == "complete_in":
                await job.complete_in(session)
            sessions.append(session.session_id)
            await inside()

        if how == "transaction":
            await job.transaction("book", hang)
        else:
            async with monque.client.start_session() as session:
                await session.with_transaction(hang)

    await monque.start()
    await monque.enqueue("work")
    await inside.wait()
    await collection.database.client.admin.command("killSessions", sessions)
    await collection.update_one({}, {"$set": {"claimedBy": "thief"}, "$inc": {"attempt": 1}})
    await events.wait("job:lost")

    await collection.delete_many({})


class TestStandalone:
    @pytest.fixture
    def host(self, standalone: Servers) -> Servers:
        return standalone

    async def test_a_server_that_stands_alone_is_refused_with_a_hint(
        self, accounts: Accounts, make_monque: Make
    ) -> None:
        monque = await make_monque().open()
        events = await begin(monque, booking := Booking(accounts))
        [failed] = await events.wait("job:fail")

        assert "replica set" in str(failed.error)
        assert booking.calls == 0
