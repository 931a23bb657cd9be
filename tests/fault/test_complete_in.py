"""A job completed in its handler's own transaction: whatever dies, and when, its writes count once."""

from __future__ import annotations

import asyncio
import random
import signal
from collections import Counter
from contextlib import AsyncExitStack
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from pymongo.errors import PyMongoError

from monque import Job, Monque, NewJob
from support.aliases import Collection, Failing, Make
from support.clocks import ago
from support.completing import Accounts, Deposit, Depositing
from support.jobs import claimed, document, only, statuses
from support.options import QUICK, WATCHFUL
from support.programs.child import child
from support.proxy import Proxy, command
from support.scale import at_scale
from support.servers import Servers
from support.waiting import Events, eventually, reaches
from support.working import Pause

# As in the program: a second of silence is death.


@pytest.fixture
async def accounts(collection: Collection) -> Accounts:
    accounts = Accounts(collection.database["accounts"])
    await accounts.create()
    return accounts


class TestKilledProcesses:
    @pytest.fixture
    def uri(self, host: Servers, collection: Collection) -> str:
        return host.uri(collection.database.name)

    async def survivor(self, make_monque: Make, accounts: Accounts) -> tuple[Events, Counter[Any]]:
        """An instance in this process that does the jobs of dead ones."""
        monque = await make_monque(options=WATCHFUL).open()
        monque.worker("deposit", deposit := Depositing(monque, accounts))
        events = Events(monque)
        await monque.start()
        return events, deposit.runs

    @pytest.mark.usefixtures("brief_transactions")
    async def test_a_job_killed_before_its_commit_has_written_nothing_and_another_process_runs_it(
        self, uri: str, collection: Collection, accounts: Accounts, make_monque: Make
    ) -> None:
        await collection.insert_one(document(name="deposit", data={"account": 0, "pause": "before"}))
        async with child("completing_worker", uri) as victim:
            await victim.wait_for("written")
            victim.send(signal.SIGKILL)
            await victim.ends()
        assert (await only(collection))["status"] == "processing"
        assert await accounts.total() == 0

        events, _ = await self.survivor(make_monque, accounts)
        [completed] = await events.wait("job:complete", within=60)

        assert completed.job.attempt == 2
        assert await accounts.total() == 1

    async def test_a_job_killed_after_its_commit_is_completed_and_never_runs_again(
        self, uri: str, collection: Collection, accounts: Accounts, make_monque: Make
    ) -> None:
        """Its process never settled it. Another job that lost its owner shows when recovery has run."""
        await collection.insert_one(document(name="deposit", data={"account": 0, "pause": "after"}))
        async with child("completing_worker", uri) as victim:
            await victim.wait_for("committed")
            victim.send(signal.SIGKILL)
            await victim.ends()
        assert "job:complete deposit" not in victim.said
        done = await only(collection)

        stale = claimed("dead", name="deposit", data={"account": 1}, lastHeartbeat=ago(minutes=5))
        await collection.insert_one(stale)
        events, runs = await self.survivor(make_monque, accounts)
        await events.wait("job:complete")

        assert done["status"] == "completed"
        assert await collection.find_one({"_id": done["_id"]}) == done
        assert runs == {stale["_id"]: 1}
        assert await accounts.balances() == {0: 1, 1: 1} | dict.fromkeys(range(2, 8), 0)

    @pytest.mark.usefixtures("brief_transactions")
    async def test_a_process_that_hung_in_its_transaction_cannot_commit_it_any_more(
        self, uri: str, collection: Collection, accounts: Accounts, make_monque: Make
    ) -> None:
        """The server ends the transaction, another instance does the job, and the late commit is refused."""
        await collection.insert_one(document(name="deposit", data={"account": 0, "pause": "before"}))
        async with child("completing_worker", uri) as victim:
            await victim.wait_for("written")
            victim.send(signal.SIGSTOP)
            events, _ = await self.survivor(make_monque, accounts)
            await events.wait("job:complete", within=60)
            done = await only(collection)
            victim.write("go on")
            victim.send(signal.SIGCONT)
            await victim.wait_for("job:lost deposit")
            victim.send(signal.SIGTERM)
            assert await victim.ends() == 0

        assert "job:complete deposit" not in victim.said
        assert await only(collection) == done
        assert await accounts.total() == 1

    @pytest.mark.usefixtures("brief_transactions")
    @pytest.mark.parametrize(
        ("name", "killed_when", "runs"),
        [("charge", "stored", 1), ("charge", "committed", 1), ("charge-with-key", "keyed", 2)],
    )
    async def test_the_next_step_of_a_chain_runs_once_if_the_transaction_stores_it(
        self, name: str, killed_when: str, runs: int, uri: str, collection: Collection
    ) -> None:
        """A unique key is free again when the next step has ended, so the repeated run stores it again.

        So the next step, where it is stored, ends before the first one is repeated.
        """
        await collection.insert_one(document(name=name, data={"pause": killed_when}))
        async with child("chaining_worker", uri, name) as victim:
            await victim.wait_for(killed_when)
            victim.send(signal.SIGKILL)
            await victim.ends()

        async def no_next_step_waits() -> None:
            assert await collection.count_documents({"name": "ship", "status": {"$ne": "completed"}}) == 0

        async with child("chaining_worker", uri, "ship"):
            await eventually(no_next_step_waits, within=60)

        async def done() -> None:
            assert await statuses(collection) == {"completed": 1 + runs}

        async with child("chaining_worker", uri, name, "ship"):
            await eventually(done, within=60)

        assert await collection.database["shipped"].count_documents({}) == runs

    @pytest.mark.timeout(590)
    @pytest.mark.usefixtures("brief_transactions")
    @pytest.mark.parametrize("seed", [1, 2])
    async def test_processes_killed_at_random_do_everything_exactly_once(
        self, uri: str, collection: Collection, accounts: Accounts, seed: int
    ) -> None:
        """Hundreds of transactions in three processes; five times one is killed and another started."""
        dice = random.Random(seed)
        count = at_scale(1000, 400)
        jobs = [document(name="deposit", data={"account": dice.randrange(8)}) for _ in range(count)]
        wanted = Counter(job["data"]["account"] for job in jobs)

        async def completed() -> int:
            return await collection.count_documents({"status": "completed"})

        async with AsyncExitStack() as running:
            workers = [await running.enter_async_context(child("completing_worker", uri)) for _ in range(3)]
            await asyncio.gather(*(worker.wait_for("changestream:connected") for worker in workers))
            await collection.insert_many(jobs)
            for threshold in sorted(dice.sample(range(count // 20, count * 9 // 10), 5)):
                await reaches(completed, threshold)
                victim = workers.pop(dice.randrange(3))
                victim.send(signal.SIGKILL)
                workers.append(await running.enter_async_context(child("completing_worker", uri)))
            await reaches(completed, len(jobs))

        assert await accounts.balances() == wanted
        assert await statuses(collection) == {"completed": len(jobs)}


class TestCommitsInDoubt:
    """The document is the truth, whatever the handler and its driver believe."""

    @pytest.fixture
    async def monque(self, victim: str, make_monque: Make) -> Monque:
        """An instance whose commands the server fails."""
        return await make_monque(victim).open()

    async def begin(self, monque: Monque, deposit: Depositing) -> Events:
        events = Events(monque)
        monque.worker("deposit", deposit)
        await monque.start()
        await monque.enqueue("deposit", Deposit())
        return events

    async def test_a_commit_whose_answer_is_lost_counts_once(
        self, proxy: Proxy, collection: Collection, accounts: Accounts, make_monque: Make
    ) -> None:
        monque = await make_monque(proxy.uri(collection.database.name)).open()
        lost = proxy.lose_answer(command("commitTransaction"))
        events = await self.begin(monque, deposit := Depositing(monque, accounts))
        await lost.wait()
        await events.wait("job:complete")
        await monque.stop()

        assert (deposit.runs.total(), await accounts.total()) == (1, 1)
        assert (await only(collection))["status"] == "completed"
        assert events.of("job:fail") == events.of("job:lost") == []

    async def test_a_handler_that_never_learns_of_its_commit_has_completed_the_job(
        self, proxy: Proxy, collection: Collection, accounts: Accounts, make_monque: Make
    ) -> None:
        """The driver asks twice, and both answers are lost: the handler raises, and the job is completed."""
        monque = await make_monque(proxy.uri(collection.database.name)).open()
        lost = [proxy.lose_answer(command("commitTransaction")) for _ in range(2)]
        events = await self.begin(monque, deposit := Depositing(monque, accounts, retrying=False))
        for trap in lost:
            await trap.wait()
        await events.wait("job:complete")
        await monque.stop()

        assert (deposit.runs.total(), await accounts.total()) == (1, 1)
        assert (await only(collection))["status"] == "completed"
        assert any(
            isinstance(event.error, PyMongoError)
            and event.error.has_error_label("UnknownTransactionCommitResult")
            for event in events.of("job:error")
        )
        assert events.of("job:fail") == events.of("job:lost") == []

    async def test_a_commit_said_to_be_in_doubt_counts_once(
        self, monque: Monque, failing: Failing, accounts: Accounts
    ) -> None:
        doubt = {"code": 64, "errmsg": "waiting for replication timed out"}
        async with failing(["commitTransaction"], times=2, writeConcernError=doubt):
            events = await self.begin(monque, deposit := Depositing(monque, accounts))
            await events.wait("job:complete")

        assert (deposit.runs.total(), await accounts.total()) == (1, 1)
        assert events.of("job:fail") == []

    @pytest.mark.usefixtures("brief_transactions")
    async def test_a_commit_that_never_arrives_is_a_failed_attempt(
        self, monque: Monque, failing: Failing, accounts: Accounts
    ) -> None:
        """The outcome is unknown until the server ends the transaction; then the job is retried."""
        async with failing(["commitTransaction"], times=2, closeConnection=True):
            events = await self.begin(monque, deposit := Depositing(monque, accounts, retrying=False))
            await events.wait("job:complete", within=60)

        assert (deposit.runs.total(), await accounts.total()) == (2, 1)
        assert len(events.of("job:fail")) == 1
        assert events.of("job:lost") == []

    @pytest.mark.parametrize(
        ("commands", "code"),
        [(["commitTransaction"], 251), (["update"], 112)],
        ids=["no-such-transaction", "write-conflict"],
    )
    async def test_a_transaction_that_the_server_aborts_is_done_again(
        self, monque: Monque, failing: Failing, accounts: Accounts, commands: list[str], code: int
    ) -> None:
        async with failing(commands, times=2, errorCode=code, errorLabels=["TransientTransactionError"]):
            events = await self.begin(monque, deposit := Depositing(monque, accounts))
            await events.wait("job:complete")

        assert (deposit.runs.total(), await accounts.total()) == (1, 1)
        assert events.of("job:fail") == events.of("job:lost") == []

    async def test_the_outcome_is_polled_until_the_database_answers(
        self, monque: Monque, failing: Failing, accounts: Accounts
    ) -> None:
        deposit = Depositing(monque, accounts, after=(committed := Pause()))
        events = await self.begin(monque, deposit)
        await committed.wait()
        async with failing(["find"], times=6, errorCode=8, errorLabels=[]):
            committed.go_on.set()
            await events.wait("job:complete")

        assert (deposit.runs.total(), await accounts.total()) == (1, 1)
        assert events.of("job:lost") == events.of("job:fail") == []

    @pytest.mark.usefixtures("brief_transactions")
    async def test_a_transaction_left_open_does_not_hold_up_other_jobs(
        self, collection: Collection, accounts: Accounts, make_monque: Make
    ) -> None:
        """The handler forgot to commit. Only its own job waits for the server to end the transaction."""
        monque = await make_monque(options=replace(QUICK, max_retries=1)).open()
        events = Events(monque)

        @monque.worker("forgetful")
        async def forgetful(job: Job[None]) -> None:
            session = monque.client.start_session()
            await session.start_transaction()
            await job.complete_in(session)
            await accounts.add(Deposit(), session)

        monque.worker("other", lambda job: None)
        await monque.start()
        await monque.enqueue(forgetful)
        await events.wait("job:start")
        await monque.enqueue_many([NewJob("other") for _ in range(20)])
        await events.wait("job:complete", 20)
        [failed] = await events.wait("job:fail", within=60)

        assert "not committed" in str(failed.error)
        assert await accounts.total() == 0


class TestThreeNodes:
    @pytest.fixture
    def host(self, three_nodes: Servers) -> Servers:
        return three_nodes

    @pytest.mark.timeout(240)
    @pytest.mark.parametrize("fault", ["step-down", "kill"])
    async def test_a_primary_that_goes_away_under_the_transactions_loses_and_doubles_nothing(
        self, host: Servers, collection: Collection, accounts: Accounts, make_monque: Make, fault: str
    ) -> None:
        options = replace(QUICK, max_retries=1000, max_backoff_delay=timedelta(seconds=1))
        monque = await make_monque(host.uri(collection.database.name), options=options).open()
        monque.worker("deposit", Depositing(monque, accounts), concurrency=8)
        numbers = [number % 8 for number in range(200)]
        await monque.enqueue_many([NewJob("deposit", Deposit(account=number)) for number in numbers])
        await monque.start()

        async def done(count: int) -> None:
            try:
                found = await collection.count_documents({"status": "completed"})
            except PyMongoError as error:
                raise AssertionError("there is no primary") from error
            assert found >= count

        await eventually(lambda: done(40), within=60)
        primary = host.primary()
        if fault == "kill":
            primary.kill()
        else:
            with primary.client() as client:
                client.admin.command("replSetStepDown", 10, force=True)
        try:
            await eventually(lambda: done(200), within=120)
        finally:
            if fault == "kill":
                primary.start()
            host.heal()
        await monque.stop()

        assert await accounts.balances() == Counter(numbers)
        assert await statuses(collection) == {"completed": 200}
