"""Requests to cancel running jobs, where change streams are missing and owners die."""

from __future__ import annotations

import signal
import time
from dataclasses import replace
from datetime import timedelta

import pytest

from monque import JobStatus, Monque
from support.aliases import Collection, Database, Make
from support.jobs import find_one
from support.options import QUICK
from support.programs.child import child
from support.servers import Servers
from support.waiting import Events, eventually

# Takes the jobs of an owner that was silent for two seconds; that owner promises a heartbeat each minute.
HASTY = replace(
    QUICK, heartbeat_interval=timedelta(milliseconds=200), heartbeat_tolerance=timedelta(seconds=1)
)


def uri_of(host: Servers, database: Database) -> str:
    address, _, query = host.uri().partition("/?")
    return f"{address}/{database.name}" + (f"?{query}" if query else "")


class TestStandalone:
    """A server without change streams."""

    @pytest.fixture
    def host(self, standalone: Servers) -> Servers:
        return standalone

    @pytest.mark.parametrize("name", ["waits", "computes"])
    async def test_the_owner_learns_of_a_request_within_two_seconds(
        self, host: Servers, database: Database, make_monque: Make, name: str
    ) -> None:
        monque = await make_monque().open()
        async with child("cancellable_worker", uri_of(host, database), "stream") as worker:
            job = await monque.enqueue(name)
            await worker.wait_for(f"job:start {name}")
            began = time.monotonic()
            await monque.cancel_job(job.id, running=True)
            await worker.wait_for(f"job:cancelled {name}")

        assert time.monotonic() - began < 3
        ended = await monque.get_job(job.id)
        assert ended is not None
        assert ended.status is JobStatus.CANCELLED


async def test_a_job_whose_process_is_killed_after_the_request_does_not_run_again(
    host: Servers, database: Database, make_monque: Make, collection: Collection
) -> None:
    """Its owner was stopped before it could hear of the request, and killed."""
    monque: Monque = await make_monque(options=HASTY).open()
    events = Events(monque)
    async with child("cancellable_worker", uri_of(host, database), "stream") as worker:
        job = await monque.enqueue("waits")
        await worker.wait_for("job:start waits")
        worker.send(signal.SIGSTOP)
        asked = await monque.cancel_job(job.id, running=True, reason="enough")
        worker.send(signal.SIGKILL)
    # The dead owner promised a heartbeat a minute, which nobody waits for here.
    await collection.update_one({"_id": job.id}, {"$set": {"heartbeatInterval": 100}})
    monque.worker("waits", lambda _job: None)
    await monque.start()
    await events.wait("job:cancelled")

    async def cancelled() -> None:
        assert (await find_one(collection))["status"] == "cancelled"

    await eventually(cancelled)
    stored = await find_one(collection)
    assert (asked.status, asked.cancel_requested) == (JobStatus.PROCESSING, True)
    assert stored["cancel"]["reason"] == "enough"
    assert "job:start" not in events.kinds()
