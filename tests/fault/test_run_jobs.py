"""Jobs that a handler runs, whatever dies, and when: each is stored once, and its parent goes on once."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from pymongo.errors import PyMongoError

from monque import Job, JobStatus, NewJob
from monque._api import enqueue_many
from monque._store import children
from support.aliases import Collection, Failing, Make
from support.jobs import document, statuses
from support.options import QUICK, WATCHFUL
from support.programs.child import child, deaths
from support.proxy import Proxy
from support.scale import FULL, at_scale
from support.servers import Servers
from support.waiting import Events, eventually
from support.working import Pause

MINUTE = timedelta(minutes=1)


@pytest.fixture
def uri(host: Servers, collection: Collection) -> str:
    return host.uri(collection.database.name)


async def check(collection: Collection, size: int) -> None:
    """Each parent has all of its jobs, once each, and has come back with their results."""
    async for parent in collection.find({"name": "family"}):
        assert parent["status"] == "completed"
        assert parent["result"] == list(range(size))
        assert [(step["n"], step["v"]) for step in parent["steps"]] == [("below", "c" * size)]
    below = Counter([str(each["parent"]["id"]) async for each in collection.find({"name": "child"})])
    parents = [str(parent["_id"]) async for parent in collection.find({"name": "family"})]
    assert below == Counter(dict.fromkeys(parents, size))


class TestKilledProcesses:
    @pytest.mark.timeout(590)
    async def test_a_worker_killed_at_any_await_of_a_parent_stores_each_job_once_and_loses_none(
        self, uri: str, collection: Collection
    ) -> None:
        size, stride = 3, at_scale(1, 17)
        async with child("stepping_worker", uri, "family", str(size), f"every:{stride}") as program:
            assert await program.ends(within=580) == 0, program.complaints

        count = deaths(program)
        assert count * stride > 10 * size  # awaits of each: its insert, its run, its settlement
        assert await statuses(collection) == {"completed": (count + 1) * (size + 1)}
        await check(collection, size)

    @pytest.mark.timeout(590)
    @pytest.mark.skipif(not FULL, reason="one worker after another, hundreds of parents each: FULL=1")
    async def test_hundreds_of_parents_whose_workers_are_killed_at_random_lose_no_job(
        self, uri: str, collection: Collection
    ) -> None:
        await collection.insert_many([document(name="family") for _ in range(300)])
        async with child("stepping_worker", uri, "family", "5", "7") as program:
            assert await program.ends(within=580) == 0, program.complaints

        assert deaths(program) >= 20
        assert await statuses(collection) == {"completed": 1_800}
        await check(collection, 5)


class TestLostClaims:
    async def test_a_parent_that_lost_its_job_while_it_stored_changes_nothing(
        self, make_monque: Make, collection: Collection, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Another instance has taken the job, stores the same jobs, and completes; the first one stops."""
        monkeypatch.setattr(enqueue_many, "_MOST_JOBS", 1)
        slow, quick = await make_monque(options=WATCHFUL).open(), await make_monque(options=WATCHFUL).open()
        events, pause, store, writers = Events(slow), Pause(), children.store_children, list[object]()

        async def store_slowly(*given: Any) -> Any:
            writers.append(given[0])
            if len(writers) == 2:
                await pause()
            return await store(*given)

        monkeypatch.setattr("monque._engine.steps.store_children", store_slowly)
        quick.worker("child", lambda job: job.data)
        slow.worker("family", family, concurrency=1, store_result=True)
        await slow.start()
        job = await slow.enqueue("family")
        await pause.wait()
        await collection.update_one(
            {"_id": job.id}, {"$set": {"status": "pending"}, "$unset": {"claimedBy": "", "lockedAt": ""}}
        )
        quick.worker("family", family, store_result=True)
        await quick.start()
        await quick.wait_for(job, timeout=MINUTE)
        await events.wait("job:lost", within=30)
        pause.go_on.set()
        await slow.stop()

        assert len({id(store) for store in writers[:2]}) == 1
        assert writers.count(writers[0]) == 2  # none since its job is lost
        await check(collection, 3)


async def family(job: Job[None]) -> list[Any]:
    jobs = await job.run_jobs("below", [NewJob("child", number) for number in range(3)])
    return [None if each is None else each.result for each in jobs]


class TestLostAnswers:
    @pytest.mark.parametrize("what", [b"parent", b"steps.n", b"steps.$.v"], ids=["insert", "begin", "end"])
    async def test_a_write_whose_answer_is_lost_is_done_once(
        self, proxy: Proxy, collection: Collection, make_monque: Make, what: bytes
    ) -> None:
        monque = await make_monque(proxy.uri(collection.database.name)).open()
        events = Events(monque)
        trap = proxy.lose_answer(lambda message: what in message)
        monque.worker("child", lambda job: job.data)
        monque.worker("family", family, store_result=True)
        await monque.start()
        job = await monque.enqueue("family")
        assert (await monque.wait_for(job, timeout=MINUTE)).status is JobStatus.COMPLETED

        assert trap.caught.is_set()
        await check(collection, 3)
        assert events.of("job:lost") == events.of("job:fail") == []


class TestRefused:
    async def test_an_insert_that_the_server_refuses_is_a_failed_attempt_and_the_next_one_stores_the_rest(
        self, victim: str, failing: Failing, collection: Collection, make_monque: Make
    ) -> None:
        monque = await make_monque(victim, options=replace(QUICK, max_retries=1000)).open()
        events = Events(monque)
        monque.worker("child", lambda job: job.data)
        monque.worker("family", family, store_result=True)
        job = await monque.enqueue("family")
        async with failing(["insert"], times=None, errorCode=8000, errorLabels=[]):
            await monque.start()
            [failed, *_] = await events.wait("job:fail", within=30)
        ended = await monque.wait_for(job, timeout=MINUTE)

        assert "could not run the jobs" in str(failed.error)
        assert (ended.status, ended.result) == (JobStatus.COMPLETED, [0, 1, 2])
        await check(collection, 3)


@pytest.mark.skipif(not FULL, reason="a look that failed is left to the sweep, half a minute later: FULL=1")
class TestThreeNodes:
    @pytest.fixture
    def host(self, three_nodes: Servers) -> Servers:
        return three_nodes

    @pytest.mark.timeout(400)
    async def test_a_primary_that_steps_down_under_parents_loses_and_doubles_no_job(
        self, host: Servers, collection: Collection, make_monque: Make
    ) -> None:
        options = replace(QUICK, max_retries=1000, max_backoff_delay=timedelta(seconds=1))
        monque = await make_monque(host.uri(collection.database.name), options=options).open()
        monque.worker("child", lambda job: job.data, concurrency=4)
        monque.worker("family", family, concurrency=4, store_result=True)
        await monque.enqueue_many([NewJob("family") for _ in range(100)])
        await monque.start()

        async def done(count: int) -> None:
            try:
                found = await collection.count_documents({"name": "family", "status": "completed"})
            except PyMongoError as error:
                raise AssertionError("there is no primary") from error
            assert found >= count

        await eventually(lambda: done(10), within=60)
        with host.primary().client() as client:
            client.admin.command("replSetStepDown", 10, force=True)
        try:
            await eventually(lambda: done(100), within=200)
        finally:
            host.heal()
        await monque.stop()

        await check(collection, 3)
