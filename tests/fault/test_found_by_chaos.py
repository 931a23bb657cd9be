"""What `make chaos` found, each as the shortest order of events that shows it."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from datetime import timedelta

import bson
import pytest

from monque import Job
from monque._time.clock import elapsed
from support.aliases import Collection, Make
from support.jobs import document
from support.options import WATCHFUL
from support.proxy import Proxy, command, is_claim
from support.servers import Servers, frozen
from support.waiting import Events, eventually

# A second of silence is death.


def reads_back(message: bytes) -> bool:
    """Match the reading of what a batch of settlements came to."""
    without_data = bson.encode({"data": 0})[4:-1]
    return command("find")(message) and without_data in message


async def test_a_failure_is_emitted_as_it_was_stored_although_the_job_was_claimed_again_before_it_was_read(
    proxy: Proxy, collection: Collection, make_monque: Make
) -> None:
    """Two jobs fail together and are settled in one write; before we read them, another instance has them."""
    unlucky = await make_monque(proxy.uri(collection.database.name)).open()
    events = Events(unlucky)
    fail = asyncio.Event()

    @unlucky.worker("work")
    async def work(job: Job[None]) -> None:
        await fail.wait()
        raise RuntimeError("no")

    await collection.insert_many([document(), document()])
    await unlucky.start()
    await events.wait("job:start", 2)
    trap = proxy.hold(reads_back)
    stopping = asyncio.create_task(unlucky.stop())  # it settles what it has, and claims nothing any more
    await asyncio.sleep(0)
    fail.set()
    await trap.wait()
    other = await make_monque().open()
    other.worker("work", lambda job: asyncio.Event().wait())
    elsewhere = Events(other)
    await other.start()
    await elsewhere.wait("job:start", 2)
    trap.release()

    for event in await events.wait("job:fail", 2):
        assert event.will_retry
        assert (event.job.status, event.job.attempt, event.job.fail_count) == ("pending", 1, 1)
        assert event.job.claimed_by is None
        assert event.job.fail_reason == "RuntimeError: no"
    await stopping


async def test_a_job_whose_turn_comes_when_its_claim_may_be_lost_runs_if_the_database_says_that_it_is_not(
    collection: Collection, make_monque: Make
) -> None:
    """Two jobs are claimed together; the first handler blocks the event loop for longer than the tolerance.

    Nobody else is there, so the second one is still ours.
    """
    monque = await make_monque(options=WATCHFUL).open()
    ran: list[tuple[str, int]] = []

    @monque.worker("work")
    async def work(job: Job[str]) -> None:
        ran.append((job.data, job.attempt))
        if job.data == "blocks":
            time.sleep(1.5)  # noqa: ASYNC251 - that is the fault

    await collection.insert_many([document(data="blocks"), document(data="waits")])
    events = Events(monque)
    await monque.start()
    await events.wait("job:complete", 2)

    assert ran == [("blocks", 1), ("waits", 1)]
    assert events.of("job:lost") == []


@pytest.mark.parametrize("fault", ["blocked loop", "suspended machine"])
async def test_a_job_that_was_taken_away_before_its_turn_came_is_not_run(
    host: Servers,
    collection: Collection,
    make_monque: Make,
    monkeypatch: pytest.MonkeyPatch,
    fault: str,
) -> None:
    """Two jobs are claimed together; the process stands still, and another instance takes the second.

    A suspended machine is one whose clock since boot went on while the monotonic clock stood still. The loop
    is blocked for longer than a thread sends heartbeats for it.
    """
    options = replace(WATCHFUL, longest_block=timedelta(milliseconds=1))
    monque = await make_monque(options=options).open()
    ran: list[str] = []

    @monque.worker("work")
    async def work(job: Job[str]) -> None:
        ran.append(job.data)
        if job.data == "stands still":
            if fault == "blocked loop":
                time.sleep(1.5)  # noqa: ASYNC251 - that is the fault
            else:
                for name, module in list(sys.modules.items()):
                    if name.startswith("monque.") and "elapsed" in vars(module):
                        monkeypatch.setattr(module, "elapsed", lambda: elapsed() + 3600.0)
            with host.primary().client() as blocking:
                blocking[collection.database.name][collection.name].update_one(
                    {"data": "waits"},
                    {"$set": {"claimedBy": "thief", "lostAttempt": 1}, "$inc": {"attempt": 1}},
                )

    await collection.insert_many([document(data="stands still"), document(data="waits")])
    events = Events(monque)
    await monque.start()
    await events.wait("job:complete")
    [lost] = await events.wait("job:lost")

    assert lost.job.data == "waits"
    assert ran == ["stands still"]
    monkeypatch.undo()
    await collection.delete_many({})


class TestOnThreeNodes:
    @pytest.fixture
    def host(self, three_nodes: Servers) -> Servers:
        return three_nodes

    async def test_a_job_claimed_at_a_primary_without_majority_does_not_run(
        self, host: Servers, proxy: Proxy, collection: Collection, make_monque: Make
    ) -> None:
        """The answer to a claim is lost, and what the primary then shows may have to be rolled back.

        It has lost its majority and does not know yet: another primary may have been elected, where
        the jobs are free for others.
        """
        monque = await make_monque(proxy.uri(collection.database.name), options=WATCHFUL).open()
        monque.worker("work", lambda job: None)
        events = Events(monque)
        trap = proxy.hold(is_claim)
        await collection.insert_many([document(), document()])
        await monque.start()
        await trap.wait()

        with without_majority(host):
            trap.release()
            await eventually(lambda: both_are_claimed(collection))
            await proxy.cut()
            await proxy.restore()
            await events.wait("job:error", 2, within=60)
            assert events.of("job:start") == []

        await asyncio.to_thread(host.heal)
        somebody = await make_monque(options=WATCHFUL).open()
        somebody.worker("work", lambda job: None)
        await somebody.start()
        await eventually(lambda: both_are_done(collection), within=30)

    async def test_a_commit_that_only_a_primary_without_majority_shows_is_not_emitted_as_completed(
        self, host: Servers, proxy: Proxy, collection: Collection, make_monque: Make
    ) -> None:
        """The commit is interrupted when the primary steps down, and what it shows may be rolled back."""
        # The driver looks for another primary in each of several tries: for half a minute each by default.
        uri = proxy.uri(collection.database.name, "serverSelectionTimeoutMS=3000")
        monque = await make_monque(uri, options=WATCHFUL).open()
        events = Events(monque)
        ready, commit = asyncio.Event(), asyncio.Event()

        @monque.worker("work")
        async def work(job: Job[None]) -> None:
            async with monque.client.start_session() as session, await session.start_transaction():
                await job.complete_in(session)
                ready.set()
                await commit.wait()

        await collection.insert_one(document())
        await monque.start()
        await ready.wait()

        with without_majority(host):
            commit.set()
            # By then it has polled and given up: nobody can say what became of the commit.
            await events.wait("job:lost", within=60)
            assert events.of("job:complete") == []

        await asyncio.to_thread(host.heal)


@contextmanager
def without_majority(host: Servers) -> Iterator[None]:
    """While this lasts, the primary is alone; it notices within two seconds."""
    primary = host.primary()
    with ExitStack() as others:
        for node in host.nodes:
            if node is not primary:
                others.enter_context(frozen(node))
        yield


async def both_are_claimed(collection: Collection) -> None:
    assert await collection.count_documents({"status": "processing"}) == 2


async def both_are_done(collection: Collection) -> None:
    assert await collection.count_documents({"status": "completed"}) == 2
