"""Durable steps whatever dies, and when: a step that is checkpointed never runs again."""

from __future__ import annotations

import asyncio
import signal
from collections import Counter
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from pymongo.asynchronous.client_session import AsyncClientSession
from pymongo.errors import PyMongoError

from monque import Job, NewJob
from support.aliases import Collection, Failing, Make
from support.completing import Accounts, Deposit
from support.jobs import document, only, statuses
from support.options import QUICK, WATCHFUL
from support.programs.child import child, deaths
from support.proxy import Proxy
from support.scale import FULL, at_scale
from support.servers import Servers
from support.waiting import Events, eventually
from support.working import Pause


@pytest.fixture
def uri(host: Servers, collection: Collection) -> str:
    return host.uri(collection.database.name)


class TestKilledProcesses:
    @pytest.mark.timeout(590)
    @pytest.mark.parametrize(
        ("name", "steps"),
        [("steps", at_scale(10, 2)), ("book", at_scale(10, 1))],
        ids=["step", "transaction"],
    )
    async def test_a_worker_killed_at_any_await_of_a_handler_repeats_no_step_that_is_checkpointed(
        self, uri: str, collection: Collection, name: str, steps: int
    ) -> None:
        await create_accounts(collection)
        stride = at_scale(1, 7)
        async with child("stepping_worker", uri, name, str(steps), f"every:{stride}") as program:
            assert await program.ends(within=580) == 0, program.complaints

        count = deaths(program)
        assert count * stride > 4 * steps  # awaits of each step: its effect, its checkpoint
        assert await statuses(collection) == {"completed": count + 1}
        await check(collection, name, steps)

    @pytest.mark.timeout(590)
    @pytest.mark.skipif(not FULL, reason="one worker after another, a thousand jobs each: FULL=1")
    @pytest.mark.parametrize("name", ["steps", "book"])
    async def test_a_thousand_jobs_whose_workers_are_killed_at_random_repeat_no_checkpointed_step(
        self, uri: str, collection: Collection, name: str
    ) -> None:
        await create_accounts(collection)
        await collection.insert_many([document(name=name) for _ in range(1_000)])
        async with child("stepping_worker", uri, name, "10", "7") as program:
            assert await program.ends(within=580) == 0, program.complaints

        assert deaths(program) >= 20
        assert await statuses(collection) == {"completed": 1_000}
        await check(collection, name, 10)


async def create_accounts(collection: Collection) -> None:
    await collection.database["accounts"].insert_many([{"_id": each, "balance": 0} for each in (0, 1)])


async def check(collection: Collection, name: str, steps: int) -> None:
    """No step ran in a life that began with its checkpoint, none is missing, and no transaction is twice."""
    database = collection.database
    ledger = [(line["job"], line["step"], line["life"]) async for line in database["ledger"].find()]
    runs, last = Counter((job, step) for job, step, _ in ledger), dict[tuple[Any, str], int]()
    for job, step, life in ledger:
        last[job, step] = max(life, last.get((job, step), 0))
    jobs = [job["_id"] async for job in collection.find({}, {"_id": 1})]
    assert set(runs) == {(job, f"step-{number}") for job in jobs for number in range(steps)}
    async for seen in database["seen"].find():
        assert all(last[seen["job"], step] < seen["life"] for step in seen["steps"])
    if name == "book":
        assert set(runs.values()) == {1}
        balances = {each["_id"]: each["balance"] async for each in database["accounts"].find()}
        assert balances == {0: -len(runs), 1: len(runs)}


async def create_ledger(collection: Collection) -> Collection:
    """The collection that steps write to. In a transaction it cannot be created everywhere."""
    await collection.database.create_collection("ledger")
    return collection.database["ledger"]


class TestStoppedProcesses:
    @pytest.mark.usefixtures("brief_transactions")
    @pytest.mark.parametrize("where", ["step", "thread", "transaction"])
    async def test_a_run_that_stood_still_for_too_long_checkpoints_nothing(
        self, uri: str, collection: Collection, make_monque: Make, where: str
    ) -> None:
        """While its process is stopped, another one runs the step and completes the job."""
        ledger = await create_ledger(collection)
        await collection.insert_one(document(name=where))
        async with child("pausing_steps", uri) as victim:
            await victim.wait_for(f"in {where}")
            victim.send(signal.SIGSTOP)
            monque = await make_monque(options=WATCHFUL).open()
            events = Events(monque)

            @monque.worker(where)
            async def work(job: Job[None]) -> None:
                await job.step("before", never)
                if where == "transaction":
                    await job.transaction("pause", write)
                else:
                    await job.step("pause", str)

            async def write(session: AsyncClientSession) -> None:
                await ledger.insert_one({"step": "pause"}, session=session)

            await monque.start()
            await events.wait("job:complete", within=60)
            done = await only(collection)
            victim.write("go on")
            victim.send(signal.SIGCONT)
            await victim.wait_for(f"job:lost {where}")
            victim.send(signal.SIGTERM)
            assert await victim.ends() == 0

        assert await only(collection) == done
        assert [step["n"] for step in done["steps"]] == ["before", "pause"]
        assert await ledger.count_documents({"step": "before"}) == 1
        assert await ledger.count_documents({"step": "pause"}) == (where == "transaction")


async def never() -> None:
    raise AssertionError("this step is checkpointed")


def is_checkpoint(message: bytes) -> bool:
    """Match the write of a checkpoint."""
    return b"steps.n" in message


class TestLostAnswers:
    async def test_checkpoints_whose_answers_are_lost_are_stored_once_and_their_steps_not_repeated(
        self, proxy: Proxy, collection: Collection, make_monque: Make
    ) -> None:
        """The driver sends each once more, and that answer is lost, too."""
        monque = await make_monque(proxy.uri(collection.database.name)).open()
        events, runs = Events(monque), Counter[int]()
        traps = [proxy.lose_answer(is_checkpoint) for _ in range(3)]

        async def count(number: int) -> int:
            runs[number] += 1
            return runs[number]

        @monque.worker("work")
        async def work(job: Job[None]) -> list[int]:
            return [await job.step(f"step-{number}", count, number) for number in range(3)]

        await monque.start()
        await monque.enqueue("work")
        await events.wait("job:complete", within=30)

        assert all(trap.caught.is_set() for trap in traps)
        assert runs == {0: 1, 1: 1, 2: 1}
        assert [step["n"] for step in (await only(collection))["steps"]] == ["step-0", "step-1", "step-2"]
        assert events.of("job:lost") == events.of("job:fail") == []

    async def test_a_checkpoint_that_fails_is_sent_again_and_its_step_not_repeated(
        self,
        victim: str,
        failing: Failing,
        collection: Collection,
        make_monque: Make,
        caplog: pytest.LogCaptureFixture,
    ) -> None:
        monque = await make_monque(victim).open()
        events, step = Events(monque), Pause()

        @monque.worker("work")
        async def work(job: Job[None]) -> None:
            await job.step("once", step)

        await monque.start()
        await monque.enqueue("work")
        await step.wait()
        async with failing(["update", "findAndModify"], times=None, errorCode=91, errorLabels=[]):
            step.go_on.set()
            await eventually(lambda: is_tried_again(caplog))
        await events.wait("job:complete", within=30)

        assert [event.job.attempt for event in events.of("job:complete")] == [1]
        assert [step["n"] for step in (await only(collection))["steps"]] == ["once"]


def is_tried_again(caplog: pytest.LogCaptureFixture) -> None:
    assert any("trying again" in line for line in caplog.messages)


class TestThreeNodes:
    @pytest.fixture
    def host(self, three_nodes: Servers) -> Servers:
        return three_nodes

    @pytest.mark.timeout(240)
    @pytest.mark.parametrize("fault", ["step-down", "kill"])
    async def test_a_primary_that_goes_away_under_checkpoints_and_commits_loses_and_doubles_nothing(
        self, host: Servers, collection: Collection, make_monque: Make, fault: str
    ) -> None:
        accounts = Accounts(collection.database["accounts"])
        await accounts.create()
        options = replace(QUICK, max_retries=1000, max_backoff_delay=timedelta(seconds=1))
        monque = await make_monque(host.uri(collection.database.name), options=options).open()
        runs: Counter[str] = Counter()

        async def count(job: Job[Deposit], step: str) -> str:
            runs[f"{job.id} {step}"] += 1
            return step

        async def book(session: AsyncClientSession, deposit: Deposit) -> None:
            await accounts.add(deposit, session)

        @monque.worker("work", concurrency=8)
        async def work(job: Job[Deposit]) -> None:
            await job.step("first", count, job, "first")
            await job.transaction("book", book, job.data)
            await job.step("last", count, job, "last")

        total = at_scale(200, 100)
        numbers = [number % 8 for number in range(total)]
        await monque.enqueue_many([NewJob(work, Deposit(account=number)) for number in numbers])
        await monque.start()

        async def done(count: int) -> None:
            try:
                found = await collection.count_documents({"status": "completed"})
            except PyMongoError as error:
                raise AssertionError("there is no primary") from error
            assert found >= count

        await eventually(lambda: done(total // 5), within=60)
        primary = host.primary()
        if fault == "kill":
            primary.kill()
        else:
            with primary.client() as client:
                client.admin.command("replSetStepDown", 10, force=True)
        try:
            await eventually(lambda: done(total), within=120)
        finally:
            if fault == "kill":
                primary.start()
            host.heal()
        await monque.stop()

        assert await accounts.balances() == Counter(numbers)
        async for job in collection.find():
            assert [step["n"] for step in job["steps"]] == ["first", "book", "last"]
        # One process lived through it all, so no effect was repeated by a death.
        assert set(runs.values()) == {1}

    @pytest.mark.timeout(240)
    async def test_jobs_that_sleep_and_wait_while_the_primary_dies_go_on(
        self, host: Servers, collection: Collection, make_monque: Make
    ) -> None:
        monque = await make_monque(host.uri(collection.database.name)).open()
        sleeping, waiting = asyncio.Event(), asyncio.Event()

        @monque.worker("work", store_result=True)
        async def work(job: Job[None]) -> object:
            try:
                await job.sleep("nap", timedelta(seconds=5))
                return await job.receive("go", timeout=timedelta(hours=1))
            finally:
                (waiting if job.steps else sleeping).set()

        await monque.start()
        job = await work.enqueue()
        await asyncio.wait_for(sleeping.wait(), 30)
        await eventually(lambda: is_waiting(collection, "time"))
        primary = host.primary()
        primary.kill()
        try:
            await asyncio.wait_for(waiting.wait(), 90)
            await eventually(lambda: is_waiting(collection, "signal"), within=60)
            assert await monque.signal(job, "go", 7)
            assert await monque.result_of(job, timeout=timedelta(seconds=60)) == 7
        finally:
            primary.start()
            host.heal()

        stored = await only(collection)
        assert [step["n"] for step in stored["steps"]] == ["nap", "go"]


async def is_waiting(collection: Collection, why: str) -> None:
    job = await only(collection)
    assert (job["status"], job.get("parked", {}).get("why")) == ("pending", why)
