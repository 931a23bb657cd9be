"""Pauses where things go wrong: floods, failovers, failing reads, servers that stand alone."""

from __future__ import annotations

import asyncio
import logging
import time
from contextlib import AsyncExitStack
from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import Any

import pytest
from pymongo import AsyncMongoClient
from pymongo.monitoring import CommandListener, CommandSucceededEvent

from monque import Job, JobFilter, Monque, NewJob
from monque._store.store import Server
from support.aliases import Collection, Failing, Make
from support.jobs import document, statuses
from support.logged import lines
from support.options import QUICK
from support.programs.child import Child, child
from support.proxy import Proxy, is_claim
from support.servers import Servers
from support.waiting import Events, eventually
from support.working import Work

PROMISE = 2.0


@pytest.fixture
async def operator(make_monque: Make) -> Monque:
    """An instance that never starts."""
    return await make_monque().open()


def last_start(workers: list[Child], name: str) -> float:
    """When the last job of a name has started in any of the processes, as far as they have said."""
    lines = [line.split() for worker in workers for line in worker.said]
    return max((float(line[1]) for line in lines if line[0] == name), default=0.0)


def has_started(worker: Child, name: str, *, after: float = 0.0) -> None:
    assert last_start([worker], name) > after


class TestFlood:
    """Four processes and more short jobs than they can do in the time of the test."""

    JOBS = 40_000

    async def test_nothing_starts_two_seconds_after_the_pause_and_all_go_on_after_its_end(
        self, host: Servers, collection: Collection, operator: Monque
    ) -> None:
        uri = host.uri(collection.database.name)
        await self.flood(collection, self.JOBS)
        async with AsyncExitStack() as running:
            workers = [await running.enter_async_context(child("pausing_worker", uri)) for _ in range(4)]
            for worker in workers:
                await eventually(lambda worker=worker: has_started(worker, "work"), within=30)
            await operator.pause("work", reason="too much")
            paused = time.time()
            await asyncio.sleep(PROMISE + 1)
            assert last_start(workers, "work") < paused + PROMISE
            left = await collection.count_documents({"name": "work", "status": "pending"})
            assert left > 0, "they were done before the promise had to hold"
            await eventually(lambda: self.none_is_held(collection), within=30)
            await collection.insert_one(document(name="other"))
            await eventually(lambda: self.started_after(workers, "other", paused + PROMISE))

            await operator.resume("work")
            resumed = time.time()
            for worker in workers:
                go_on = partial(has_started, worker, "work", after=resumed)
                await eventually(go_on, within=30)
        assert await collection.count_documents({"failCount": {"$ne": 0}}) == 0

    async def flood(self, collection: Collection, jobs: int) -> None:
        await collection.insert_many([document() for _ in range(jobs)], ordered=False)

    async def none_is_held(self, collection: Collection) -> None:
        assert await collection.count_documents({"name": "work", "status": "processing"}) == 0

    def started_after(self, workers: list[Child], name: str, moment: float) -> None:
        assert last_start(workers, name) > moment


class TestFailover:
    """A replica set of three, whose primary gives up its role."""

    @pytest.fixture
    def host(self, three_nodes: Servers) -> Servers:
        return three_nodes

    @pytest.mark.parametrize("moment", ["before the pause", "after the pause"])
    async def test_nothing_starts_two_seconds_after_the_pause_with_a_failover_in_between(
        self, make_monque: Make, host: Servers, collection: Collection, operator: Monque, moment: str
    ) -> None:
        """What comes back from a deposed primary must not let a paused name start."""
        uri = host.uri(collection.database.name, heartbeatFrequencyMS=500)
        monque = await make_monque(uri, options=QUICK).open()
        starts: list[float] = []

        @monque.worker("work")
        async def work(job: Job[None]) -> None:
            starts.append(time.monotonic())
            await asyncio.sleep(0.01)

        await operator.enqueue_many(NewJob("work") for _ in range(6_000))
        await monque.start()
        await eventually(lambda: some(starts))
        if moment == "before the pause":
            await self.step_down(host)
        await operator.pause("work")
        paused = time.monotonic()
        if moment == "after the pause":
            await self.step_down(host)
        await asyncio.sleep(PROMISE + 2)

        assert max(starts) < paused + PROMISE
        assert await operator.count_jobs(JobFilter(status="pending")) > 0
        await operator.resume("work")
        began = len(starts)
        await eventually(lambda: more_than(starts, began), within=15)
        await monque.stop(timeout=10)

    async def step_down(self, host: Servers) -> None:
        with host.primary().client() as client:
            await asyncio.to_thread(
                client.admin.command, "replSetStepDown", 5, secondaryCatchUpPeriodSecs=2, force=True
            )


def some(starts: list[float]) -> None:
    assert len(starts) > 20


def more_than(starts: list[float], count: int) -> None:
    assert len(starts) > count


class TestStandalone:
    """A server without change streams."""

    @pytest.fixture
    def host(self, standalone: Servers) -> Servers:
        return standalone

    async def test_pauses_work_there_too(
        self, make_monque: Make, operator: Monque, collection: Collection
    ) -> None:
        monque = await make_monque(options=replace(QUICK, poll_interval=timedelta(seconds=30))).open()
        work = Work()
        monque.worker("work", work)
        events = Events(monque)
        await operator.pause("work")
        await operator.enqueue("work")
        await monque.start()
        await events.wait("name:paused")
        await asyncio.sleep(0.3)
        assert work.runs == {}
        assert await statuses(collection) == {"pending": 1}
        await operator.resume("work")
        resumed = time.monotonic()
        await events.wait("job:complete")
        assert time.monotonic() - resumed < PROMISE


# The read of the control document fails


async def test_what_was_claimed_is_given_back_if_the_control_document_cannot_be_read(
    make_monque: Make, victim: str, failing: Failing, collection: Collection
) -> None:
    """It is an error of the database like others: reported, and tried again."""
    monque = await make_monque(victim, options=QUICK).open()
    work = Work()
    monque.worker("work", work)
    events = Events(monque)
    control = f"{collection.full_name}_control"
    async with failing(["find"], errorCode=8, namespace=control):
        await monque.start()
        await monque.enqueue_many(NewJob("work", number) for number in range(3))
        errors = await events.wait("job:error", 2)

        async def all_given_back() -> None:
            assert await statuses(collection) == {"pending": 3}

        await eventually(all_given_back)
        assert work.runs == {}
        assert not monque.is_healthy()
    await events.wait("job:complete", 3)

    assert all(event.error.code == 8 for event in errors)
    assert all([job["failCount"] == 0 async for job in collection.find()])


async def test_a_paused_instance_survives_an_outage_and_notices_the_end_of_the_pause(
    make_monque: Make, operator: Monque, victim: str, failing: Failing, collection: Collection
) -> None:
    monque = await make_monque(victim, options=QUICK).open()
    monque.worker("work", Work())
    events = Events(monque)
    await operator.pause("work")
    await operator.enqueue("work")
    await monque.start()
    await events.wait("name:paused")
    async with failing(["find"], errorCode=8, namespace=f"{collection.full_name}_control"):
        await events.wait("job:error")
        await operator.resume("work")
    await events.wait("job:complete")


async def test_a_read_that_takes_long_delays_the_start_and_nothing_else(
    make_monque: Make, victim: str, failing: Failing, collection: Collection
) -> None:
    monque = await make_monque(victim, options=QUICK).open()
    work = Work()
    monque.worker("work", work)
    events = Events(monque)
    async with failing(
        ["find"], blockConnection=True, blockTimeMS=700, namespace=f"{collection.full_name}_control"
    ):
        await monque.start()
        await monque.enqueue("work")
        await asyncio.sleep(0.4)
        assert work.runs == {}
        await events.wait("job:complete")

    assert events.of("job:error") == []


async def test_a_read_that_may_be_from_a_deposed_primary_is_repeated(
    make_monque: Make, operator: Monque, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The read was sent to one primary, and the claim was acknowledged by another: the driver repeats it.

    What the first one said, that nothing is paused, may be old.
    """
    monque = await make_monque().open()
    work = Work()
    monque.worker("work", work)
    control = monque._opening.here().store.control
    read, primaries = control.read, iter(["the old one", "the old one"])
    answers: list[Any] = []

    async def read_old() -> Any:
        answer = await read()
        answers.append(answer)
        if len(answers) == 1:
            await operator.pause("work")  # at the new primary, which the first answer does not know
        return answer

    monkeypatch.setattr(control, "read", read_old)
    monkeypatch.setattr(Server, "writable", property(lambda _: next(primaries, "the new one")))
    next(primaries)
    await operator.enqueue("work")
    await asyncio.wait_for(monque.run_until_idle(), 10)

    assert work.runs == {}
    assert [bool(answer.pauses) for answer in answers][:2] == [False, True]


class Writes(CommandListener):
    """Notes in *seen* each claim and each heartbeat that a majority has acknowledged."""

    def __init__(self, seen: list[str]) -> None:
        self._seen = seen

    def started(self, event: object) -> None: ...

    def succeeded(self, event: CommandSucceededEvent) -> None:
        if event.command_name in ("findAndModify", "update"):
            self._seen.append("write")

    def failed(self, event: object) -> None: ...


@pytest.mark.parametrize("claim", ["slow", "in doubt"])
async def test_no_job_starts_on_a_read_that_began_after_the_last_majority_write(
    collection: Collection, operator: Monque, monkeypatch: pytest.MonkeyPatch, claim: str
) -> None:
    """The knowledge of pauses is old when the claim is answered, or when its answer is found to be lost.

    The primary may be deposed since the write, and the name paused at another one: a read proves nothing.
    """
    monkeypatch.setattr("monque._engine.pauses._RENEW_AFTER", 0)
    seen: list[str] = []
    async with (
        Proxy(await collection.database.client.address) as proxy,
        AsyncMongoClient[dict[str, Any]](
            proxy.uri(options="retryWrites=false"), event_listeners=[Writes(seen)]
        ) as client,
        Monque(client[collection.database.name], options=QUICK) as monque,
    ):
        control = monque._opening.here().store.control
        read, known = control.read, asyncio.Event()

        async def read_noted() -> Any:
            seen.append("read")
            answer = await read()
            known.set()
            return answer

        monkeypatch.setattr(control, "read", read_noted)
        monque.worker("work", lambda job: seen.append("start"))
        await operator.enqueue("work")
        trap = proxy.hold(is_claim) if claim == "slow" else proxy.lose_answer(is_claim)
        idle = asyncio.create_task(monque.run_until_idle())
        await trap.wait()
        await known.wait()
        trap.release()
        await idle

    started = seen.index("start")
    assert (seen[started - 1], "read" in seen[:started]) == ("write", True)


@pytest.mark.parametrize("written", ["before start", "while it runs"])
async def test_a_collection_whose_control_collection_cannot_exist_is_worked_off(
    make_monque: Make, caplog: pytest.LogCaptureFixture, written: str, collection: Collection
) -> None:
    """Its name is so long that the other one would be too long for MongoDB."""
    name = "x" * (255 - len(collection.database.name) - 1)
    options = replace(QUICK, collection=name, create_indexes=False, change_streams=False)
    monque = await make_monque(options=options).open()
    work = Work()
    monque.worker("work", work)
    if written == "while it runs":
        await monque.start()
    await monque.enqueue("work")
    await monque.run_until_idle()

    assert work.runs.total() == 1
    assert len(lines(caplog, logging.WARNING)) <= 1
    assert lines(caplog, logging.ERROR) == []
