"""A job completed in its handler's own transaction: whatever dies when, its writes are there once."""

from __future__ import annotations

import asyncio
import random
import signal
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from pymongo.asynchronous.client_session import AsyncClientSession
from pymongo.asynchronous.collection import AsyncCollection
from pymongo.errors import PyMongoError

from conftest import QUICK
from monque import Job, Monque, NewJob
from support.clocks import ago
from support.jobs import claimed, document
from support.programs.child import child
from support.proxy import Proxy, command
from support.servers import Servers, failing
from support.waiting import Heard, eventually

Collection = AsyncCollection[dict[str, Any]]
Make = Callable[..., Monque]

VICTIM = "victim"
# As in the program: a second of silence is death.
WATCHFUL = replace(
    QUICK, heartbeat_interval=timedelta(milliseconds=200), heartbeat_tolerance=timedelta(seconds=1)
)
TRANSIENT = ["TransientTransactionError"]


class Counters:
    """What the handlers write: how often each of them did."""

    def __init__(self, collection: Collection) -> None:
        self.collection = collection

    async def add(self, counter: int, session: AsyncClientSession) -> None:
        """With the driver that the session belongs to."""
        counters = session.client[self.collection.database.name][self.collection.name]
        await counters.update_one({"_id": counter}, {"$inc": {"value": 1}}, session=session)

    async def values(self) -> Counter[int]:
        return Counter({doc["_id"]: doc["value"] async for doc in self.collection.find()})


@pytest.fixture
async def counters(collection: Collection) -> Counters:
    """Eight of them: handlers that run at the same time conflict now and then."""
    counters = collection.database["counters"]
    await counters.insert_many([{"_id": number, "value": 0} for number in range(8)])
    return Counters(counters)


@pytest.fixture
async def brief_transactions(collection: Collection) -> AsyncIterator[None]:
    """The server ends a transaction after a second, not after a minute, when its owner is gone."""
    admin = collection.database.client.admin
    await admin.command("setParameter", 1, transactionLifetimeLimitSeconds=1)
    yield
    await admin.command("setParameter", 1, transactionLifetimeLimitSeconds=60)


def counting(monque: Monque, counters: Counters, runs: Counter[Any]) -> Callable[[Job[Any]], Any]:
    """A handler that does as those of the program do, and counts its runs."""

    async def count(job: Job[Any]) -> None:
        runs[job.id] += 1

        async def transaction(session: AsyncClientSession) -> None:
            await job.complete_in(session)
            await counters.add(job.data["counter"], session)

        async with monque.client.start_session() as session:
            await session.with_transaction(transaction)

    return count


async def statuses(collection: Collection) -> Counter[str]:
    return Counter([doc["status"] async for doc in collection.find()])


async def only(collection: Collection) -> dict[str, Any]:
    [doc] = await collection.find().to_list()
    return doc


class TestKilledProcesses:
    @pytest.fixture
    def uri(self, host: Servers, collection: Collection) -> str:
        return host.uri(collection.database.name)

    async def survivor(self, make_monque: Make, counters: Counters) -> tuple[Heard, Counter[Any]]:
        """An instance in this process that does the jobs of whoever died."""
        monque = await make_monque(options=WATCHFUL).open()
        runs: Counter[Any] = Counter()
        monque.worker("count", counting(monque, counters, runs))
        heard = Heard(monque)
        await monque.start()
        return heard, runs

    @pytest.mark.usefixtures("brief_transactions")
    async def test_killed_before_the_commit_it_has_done_nothing_and_is_done_by_another(
        self, uri: str, collection: Collection, counters: Counters, make_monque: Make
    ) -> None:
        await collection.insert_one(document(name="count", data={"counter": 0, "pause": "before"}))
        async with child("completing_worker", uri) as victim:
            await victim.hears("written")
            victim.send(signal.SIGKILL)
            await victim.ends()
        assert (await only(collection))["status"] == "processing"
        assert (await counters.values()).total() == 0

        heard, _ = await self.survivor(make_monque, counters)
        [completed] = await heard.wait("job:complete", within=60)

        assert completed.job.attempt == 2
        assert (await counters.values()).total() == 1

    async def test_killed_after_the_commit_it_is_done_and_never_runs_again(
        self, uri: str, collection: Collection, counters: Counters, make_monque: Make
    ) -> None:
        """Its process never settled it. A job that really lost its owner shows when others would take it."""
        await collection.insert_one(document(name="count", data={"counter": 0, "pause": "after"}))
        async with child("completing_worker", uri) as victim:
            await victim.hears("committed")
            victim.send(signal.SIGKILL)
            await victim.ends()
        assert "job:complete count" not in victim.said
        done = await only(collection)

        stale = claimed("dead", name="count", data={"counter": 1}, lastHeartbeat=ago(minutes=5))
        await collection.insert_one(stale)
        heard, runs = await self.survivor(make_monque, counters)
        await heard.wait("job:complete")

        assert done["status"] == "completed"
        assert await collection.find_one({"_id": done["_id"]}) == done
        assert runs == {stale["_id"]: 1}
        assert await counters.values() == {0: 1, 1: 1} | dict.fromkeys(range(2, 8), 0)

    @pytest.mark.usefixtures("brief_transactions")
    async def test_a_process_that_hung_in_its_transaction_cannot_commit_it_any_more(
        self, uri: str, collection: Collection, counters: Counters, make_monque: Make
    ) -> None:
        """The server ends the transaction, another instance does the job; back again, it is told no."""
        await collection.insert_one(document(name="count", data={"counter": 0, "pause": "before"}))
        async with child("completing_worker", uri) as victim:
            await victim.hears("written")
            victim.send(signal.SIGSTOP)
            heard, _ = await self.survivor(make_monque, counters)
            await heard.wait("job:complete", within=60)
            done = await only(collection)
            victim.tell("go on")
            victim.send(signal.SIGCONT)
            await victim.hears("job:lost count")
            victim.send(signal.SIGTERM)
            assert await victim.ends() == 0

        assert "job:complete count" not in victim.said
        assert await only(collection) == done
        assert (await counters.values()).total() == 1

    @pytest.mark.timeout(240)
    @pytest.mark.usefixtures("brief_transactions")
    @pytest.mark.parametrize("seed", [1, 2])
    async def test_processes_killed_at_random_do_everything_exactly_once(
        self, uri: str, collection: Collection, counters: Counters, seed: int
    ) -> None:
        """A thousand transactions in three processes; five times one is killed and another started."""
        dice = random.Random(seed)
        jobs = [document(name="count", data={"counter": dice.randrange(8)}) for _ in range(1000)]
        wanted = Counter(job["data"]["counter"] for job in jobs)

        async def done(count: int) -> None:
            assert await collection.count_documents({"status": "completed"}) >= count

        async with AsyncExitStack() as running:
            workers = [await running.enter_async_context(child("completing_worker", uri)) for _ in range(3)]
            await asyncio.gather(*(worker.hears("changestream:connected") for worker in workers))
            await collection.insert_many(jobs)
            for threshold in sorted(dice.sample(range(50, 900), 5)):
                await eventually(lambda count=threshold: done(count), within=120)
                victim = workers.pop(dice.randrange(3))
                victim.send(signal.SIGKILL)
                workers.append(await running.enter_async_context(child("completing_worker", uri)))
            await eventually(lambda: done(len(jobs)), within=120)

        assert await counters.values() == wanted
        assert await statuses(collection) == {"completed": len(jobs)}


class TestCommitsInDoubt:
    """The document is the truth, whatever the handler and its driver believe."""

    async def begin(self, monque: Monque, handler: Any) -> Heard:
        heard = Heard(monque)
        monque.worker("count", handler)
        await monque.start()
        await monque.enqueue("count", {"counter": 0})
        return heard

    def plainly(self, monque: Monque, counters: Counters, runs: Counter[Any]) -> Callable[[Job[Any]], Any]:
        """A handler whose transaction nobody but the driver tries again."""

        async def count(job: Job[Any]) -> None:
            runs[job.id] += 1
            async with monque.client.start_session() as session, await session.start_transaction():
                await job.complete_in(session)
                await counters.add(0, session)

        return count

    async def test_a_commit_whose_answer_is_lost_counts_once(
        self, proxy: Proxy, collection: Collection, counters: Counters, make_monque: Make
    ) -> None:
        monque = await make_monque(proxy.uri(collection.database.name)).open()
        runs: Counter[Any] = Counter()
        lost = proxy.lose_answer(command("commitTransaction"))
        heard = await self.begin(monque, counting(monque, counters, runs))
        await lost.wait()
        await heard.wait("job:complete")
        await monque.stop()

        assert (runs.total(), (await counters.values()).total()) == (1, 1)
        assert (await only(collection))["status"] == "completed"
        assert heard.of("job:fail") == heard.of("job:lost") == []

    async def test_a_handler_that_never_learns_of_its_commit_has_completed_the_job(
        self, proxy: Proxy, collection: Collection, counters: Counters, make_monque: Make
    ) -> None:
        """The driver asks twice, and both answers are lost: the handler raises, and the job is completed."""
        monque = await make_monque(proxy.uri(collection.database.name)).open()
        runs: Counter[Any] = Counter()
        lost = [proxy.lose_answer(command("commitTransaction")) for _ in range(2)]
        heard = await self.begin(monque, self.plainly(monque, counters, runs))
        for trap in lost:
            await trap.wait()
        await heard.wait("job:complete")
        await monque.stop()

        assert (runs.total(), (await counters.values()).total()) == (1, 1)
        assert (await only(collection))["status"] == "completed"
        assert any(
            isinstance(event.error, PyMongoError)
            and event.error.has_error_label("UnknownTransactionCommitResult")
            for event in heard.of("job:error")
        )
        assert heard.of("job:fail") == heard.of("job:lost") == []

    async def test_a_commit_said_to_be_in_doubt_counts_once(
        self, host: Servers, collection: Collection, counters: Counters, make_monque: Make
    ) -> None:
        monque = await make_monque(host.uri(collection.database.name, appName=VICTIM)).open()
        runs: Counter[Any] = Counter()
        doubt = {"code": 64, "errmsg": "waiting for replication timed out"}
        async with failing(
            collection.database.client,
            ["commitTransaction"],
            app_name=VICTIM,
            times=2,
            writeConcernError=doubt,
        ):
            heard = await self.begin(monque, counting(monque, counters, runs))
            await heard.wait("job:complete")

        assert (runs.total(), (await counters.values()).total()) == (1, 1)
        assert heard.of("job:fail") == []

    @pytest.mark.usefixtures("brief_transactions")
    async def test_a_commit_that_never_arrives_is_a_failed_attempt(
        self, host: Servers, collection: Collection, counters: Counters, make_monque: Make
    ) -> None:
        """Until the server ends the transaction nobody can know; then the job is tried again."""
        monque = await make_monque(host.uri(collection.database.name, appName=VICTIM)).open()
        runs: Counter[Any] = Counter()
        async with failing(
            collection.database.client, ["commitTransaction"], app_name=VICTIM, times=2, closeConnection=True
        ):
            heard = await self.begin(monque, self.plainly(monque, counters, runs))
            await heard.wait("job:complete", within=60)

        assert runs.total() == 2
        assert (await counters.values()).total() == 1
        assert len(heard.of("job:fail")) == 1
        assert heard.of("job:lost") == []

    @pytest.mark.parametrize(
        ("commands", "code"),
        [(["commitTransaction"], 251), (["update"], 112)],
        ids=["no-such-transaction", "write-conflict"],
    )
    async def test_a_transaction_that_the_server_aborts_is_done_again(
        self,
        host: Servers,
        collection: Collection,
        counters: Counters,
        make_monque: Make,
        commands: list[str],
        code: int,
    ) -> None:
        monque = await make_monque(host.uri(collection.database.name, appName=VICTIM)).open()
        runs: Counter[Any] = Counter()
        async with failing(
            collection.database.client,
            commands,
            app_name=VICTIM,
            times=2,
            errorCode=code,
            errorLabels=TRANSIENT,
        ):
            heard = await self.begin(monque, counting(monque, counters, runs))
            await heard.wait("job:complete")

        assert (runs.total(), (await counters.values()).total()) == (1, 1)
        assert heard.of("job:fail") == heard.of("job:lost") == []

    async def test_what_became_of_it_is_asked_until_the_database_answers(
        self, host: Servers, collection: Collection, counters: Counters, make_monque: Make
    ) -> None:
        monque = await make_monque(host.uri(collection.database.name, appName=VICTIM)).open()
        heard = Heard(monque)
        runs: Counter[Any] = Counter()
        committed, go_on = asyncio.Event(), asyncio.Event()
        count = counting(monque, counters, runs)

        @monque.worker("count")
        async def count_and_wait(job: Job[Any]) -> None:
            await count(job)
            committed.set()
            await go_on.wait()

        await monque.start()
        await monque.enqueue("count", {"counter": 0})
        await asyncio.wait_for(committed.wait(), 15)
        async with failing(
            collection.database.client, ["find"], app_name=VICTIM, times=6, errorCode=8, errorLabels=[]
        ):
            go_on.set()
            await heard.wait("job:complete")

        assert (runs.total(), (await counters.values()).total()) == (1, 1)
        assert heard.of("job:lost") == heard.of("job:fail") == []

    @pytest.mark.usefixtures("brief_transactions")
    async def test_a_transaction_left_open_does_not_hold_up_other_jobs(
        self, host: Servers, collection: Collection, counters: Counters, make_monque: Make
    ) -> None:
        """The handler forgot to commit. Its job waits for the server to end that; others are settled."""
        monque = await make_monque(options=replace(QUICK, max_retries=1)).open()
        heard = Heard(monque)

        @monque.worker("forgetful")
        async def forgetful(job: Job[None]) -> None:
            session = monque.client.start_session()
            await session.start_transaction()
            await job.complete_in(session)
            await counters.add(0, session)

        monque.worker("other", lambda job: None)
        await monque.start()
        await monque.enqueue(forgetful)
        await heard.wait("job:start")
        await monque.enqueue_many([NewJob("other") for _ in range(20)])
        await heard.wait("job:complete", 20)
        [failed] = await heard.wait("job:fail", within=60)

        assert "not committed" in str(failed.error)
        assert (await counters.values()).total() == 0


class TestThreeNodes:
    @pytest.fixture
    def host(self, three_nodes: Servers) -> Servers:
        return three_nodes

    @pytest.mark.timeout(240)
    @pytest.mark.parametrize("fault", ["step-down", "kill"])
    async def test_a_primary_that_goes_away_under_the_transactions_loses_and_doubles_nothing(
        self, host: Servers, collection: Collection, counters: Counters, make_monque: Make, fault: str
    ) -> None:
        options = replace(QUICK, max_retries=1000, max_backoff_delay=timedelta(seconds=1))
        monque = await make_monque(host.uri(collection.database.name), options=options).open()
        runs: Counter[Any] = Counter()
        monque.worker("count", counting(monque, counters, runs), concurrency=8)
        numbers = [number % 8 for number in range(200)]
        await monque.enqueue_many([NewJob("count", {"counter": number}) for number in numbers])
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

        assert await counters.values() == Counter(numbers)
        assert await statuses(collection) == {"completed": 200}
