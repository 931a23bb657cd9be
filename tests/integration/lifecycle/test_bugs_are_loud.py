"""Loops survive errors of the database and nothing else: a bug ends the scheduler, visibly."""

from __future__ import annotations

import asyncio
import logging
import os
import sys
import textwrap
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx2
import pytest
from fastapi import FastAPI

from monque import Job, Monque, Retention, SyncMonque, Workers
from monque.embedded import EmbeddedMongo
from monque.fastapi import health_router, run_workers, setup_monque
from support.aliases import Collection, Database, Make
from support.buggy import LOOPS, BugError, BuggyDatabase, buggy_database
from support.jobs import document
from support.options import QUICK
from support.programs.child import Child, uri_of
from support.waiting import Events, eventually

TESTS = Path(__file__).parents[2]
# Every loop has its turn at once, or within a tenth of a second.
BUSY = replace(
    QUICK,
    poll_interval=timedelta(milliseconds=50),
    heartbeat_interval=timedelta(milliseconds=100),
    heartbeat_tolerance=timedelta(seconds=30),
    retention=Retention(completed=timedelta(days=1), interval=timedelta(milliseconds=100)),
)

every_loop = pytest.mark.parametrize("loop", LOOPS)


@pytest.fixture
async def buggy(server: EmbeddedMongo, database: Database) -> AsyncIterator[BuggyDatabase]:
    """This test's database, through a driver that has a bug when `broken` says so."""
    buggy = buggy_database(uri_of(server, database))
    yield buggy
    await buggy.client.close()


@pytest.fixture
def workers() -> Workers:
    """`work` ends at once; `long` runs until it is cancelled."""
    workers = Workers()
    workers.worker("work", lambda job: None)

    @workers.worker("long")
    async def long(job: Job[None]) -> None:
        await asyncio.Event().wait()

    return workers


async def unhealthy(monque: Monque) -> None:
    def check() -> None:
        assert not monque.is_healthy()

    await eventually(check)


async def fill(collection: Collection, loop: str) -> None:
    """Give the loop something to do."""
    await collection.insert_one(document(name="long" if loop == "heartbeat" else "work"))


class TestEveryLoop:
    @every_loop
    async def test_run_raises_it(
        self,
        loop: str,
        buggy: BuggyDatabase,
        workers: Workers,
        make_monque: Make,
        collection: Collection,
        caplog: pytest.LogCaptureFixture,
    ) -> None:
        monque = await make_monque(buggy, options=BUSY, workers=workers).open()
        events = Events(monque)
        buggy.broken = loop
        await fill(collection, loop)

        with pytest.raises(BugError, match=f"a bug in {loop}"), caplog.at_level(logging.CRITICAL, "monque"):
            await asyncio.wait_for(monque.run(), 30)

        assert not monque.is_healthy()
        assert "the scheduler has a bug and stops" in caplog.text
        assert [
            str(event.error) for event in events.of("job:error") if isinstance(event.error, BugError)
        ] == [f"a bug in {loop}"]

    @every_loop
    async def test_in_the_background_it_is_emitted_and_the_instance_is_not_healthy(
        self, loop: str, buggy: BuggyDatabase, workers: Workers, make_monque: Make, collection: Collection
    ) -> None:
        monque = await make_monque(buggy, options=BUSY, workers=workers).open()
        events = Events(monque)
        buggy.broken = loop
        await fill(collection, loop)
        await monque.start()

        await unhealthy(monque)
        assert any(isinstance(event.error, BugError) for event in await events.wait("job:error"))
        await asyncio.wait_for(monque.stop(), 30)


class TestWhatElse:
    @pytest.fixture
    async def monque(self, buggy: BuggyDatabase, workers: Workers, make_monque: Make) -> Monque:
        return await make_monque(buggy, options=BUSY, workers=workers).open()

    async def test_no_new_job_starts_and_running_jobs_are_released(
        self, monque: Monque, events: Events, buggy: BuggyDatabase, collection: Collection
    ) -> None:
        await monque.start()
        running = await monque.enqueue("long")
        await events.wait("job:start")
        buggy.broken = "prune"
        await unhealthy(monque)
        await monque.stop()
        await collection.insert_one(late := document(name="work"))

        stored = await monque.get_job(running.id)
        assert stored is not None
        assert (stored.status, stored.fail_count) == ("pending", 0)
        assert (await collection.find_one({"_id": late["_id"]})) == late

    async def test_a_loop_that_misses_its_cancellation_cannot_hide_the_bug_of_another(
        self, monque: Monque, buggy: BuggyDatabase
    ) -> None:
        """The bug ends one loop, all other loops are cancelled, and one of them misses its cancellation."""
        buggy.deaf = asyncio.Event()
        await monque.start()
        await asyncio.wait_for(buggy.deaf.wait(), 10)
        buggy.broken = "prune"

        await unhealthy(monque)
        await asyncio.wait_for(monque.stop(), 30)

    async def test_run_until_idle_raises_it_instead_of_waiting_for_ever(
        self, monque: Monque, buggy: BuggyDatabase, collection: Collection
    ) -> None:
        await collection.insert_one(document(name="work"))
        buggy.broken = "settling"

        with pytest.raises(BugError):
            await asyncio.wait_for(monque.run_until_idle(), 30)

    async def test_once_the_bug_is_gone_it_can_be_started_again(
        self, monque: Monque, events: Events, buggy: BuggyDatabase, collection: Collection
    ) -> None:
        buggy.broken = "polling"
        await monque.start()
        await unhealthy(monque)
        buggy.broken = None
        await monque.start()
        await monque.enqueue("work")
        await events.wait("job:complete")

        assert monque.is_healthy()

    async def test_a_listener_that_raises_is_no_such_bug(self, monque: Monque, events: Events) -> None:

        @monque.on("job:complete")
        def listener(event: object) -> None:
            raise RuntimeError("in a listener")

        await monque.start()
        await monque.enqueue("work")
        await events.wait("job:complete")

        assert monque.is_healthy()


class TestAround:
    async def test_sync_monque_raises_it(
        self, server: EmbeddedMongo, database: Database, collection: Collection
    ) -> None:
        class BuggyWorkers(Workers):
            """A user's own, asked for the worker of each job that was claimed."""

            def get(self, name: str) -> Any:
                raise BugError("a bug in the workers")

        workers = BuggyWorkers()
        workers.worker("work", lambda job: None)
        await collection.insert_one(document(name="work"))

        def program() -> None:
            with SyncMonque(uri_of(server, database), options=BUSY, workers=workers) as monque:
                monque.run()

        with pytest.raises(BugError, match="a bug in the workers"):
            await asyncio.wait_for(asyncio.to_thread(program), 60)

    async def test_a_fastapi_application_is_alive_and_not_ready(
        self, buggy: BuggyDatabase, workers: Workers, make_monque: Make
    ) -> None:
        monque = make_monque(buggy, options=BUSY, workers=workers)
        app = FastAPI()
        app.include_router(health_router(monque))
        setup_monque(app, monque)
        transport = httpx2.ASGITransport(app=app)
        async with (
            app.router.lifespan_context(app),
            httpx2.AsyncClient(transport=transport, base_url="http://shop") as client,
        ):
            await monque.enqueue("work")
            ready = await client.get("/readyz")
            buggy.broken = "heartbeat"
            await monque.enqueue("long")
            await unhealthy(monque)
            after = [await client.get(path) for path in ("/healthz", "/readyz")]

        assert ready.status_code == 200
        assert [answer.status_code for answer in after] == [200, 503]
        assert after[1].json()["reason"] == "the scheduler is not running, or lost the database"

    async def test_the_worker_process_of_a_fastapi_application_raises_it(
        self, buggy: BuggyDatabase, workers: Workers, make_monque: Make
    ) -> None:
        app = FastAPI()
        setup_monque(app, make_monque(buggy, options=BUSY, workers=workers), process_jobs=False)
        buggy.broken = "prune"

        with pytest.raises(BugError):
            await asyncio.wait_for(run_workers(app), 30)

    async def test_monque_worker_ends_with_an_error(
        self, server: EmbeddedMongo, database: Database, tmp_path: Path
    ) -> None:
        """So that a supervisor sees the process end, and starts it again."""
        (tmp_path / "shop.py").write_text(
            textwrap.dedent("""
                import os
                from monque import Monque
                from support.buggy import buggy_database

                monque = Monque(buggy_database(os.environ["MONQUE_URI"], broken="polling"))
                monque.worker("work", lambda job: None)
            """)
        )
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            *("-m", "monque", "worker", "shop:monque"),
            cwd=tmp_path,
            env={**os.environ, "MONQUE_URI": uri_of(server, database), "PYTHONPATH": str(TESTS)},
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        worker = Child(process)
        try:
            code = await worker.ends(within=60)
        finally:
            with suppress(ProcessLookupError):
                process.kill()
            await worker.finished()

        assert code == 1
        assert "the scheduler has a bug and stops" in worker.complaints
        assert "BugError: a bug in polling" in worker.complaints
