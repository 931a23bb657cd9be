"""Handlers and listeners that end in odd ways: nothing fails but the job itself, if even that."""

from __future__ import annotations

import asyncio
import logging
import os
import sys
import textwrap
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from pymongo.asynchronous.database import AsyncDatabase

from conftest import QUICK
from monque import Job, JobStatus, Monque
from monque.embedded import EmbeddedMongo
from support.programs.child import uri_of
from support.waiting import Heard

# Failed jobs come back in half a minute, that is, not in these tests.
ONCE = replace(QUICK, base_retry_interval=timedelta(seconds=30))


@pytest.fixture
async def monque(make_monque: Callable[..., Monque]) -> Monque:
    return await make_monque(options=ONCE).open()


async def python(program: str, server: EmbeddedMongo, database: AsyncDatabase[dict[str, Any]]) -> str:
    """Run a program to its end; what it wrote, in both streams."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-c", textwrap.dedent(program)),
        env={**os.environ, "MONQUE_URI": uri_of(server, database)},
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    try:
        written, _ = await asyncio.wait_for(process.communicate(), 60)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    return written.decode()


# Cancellation


def cancel_soon() -> None:
    task = asyncio.current_task()
    assert task is not None
    asyncio.get_running_loop().call_later(0.01, task.cancel)


async def test_a_handler_whose_task_is_cancelled_from_inside_has_failed_at_once(
    monque: Monque, caplog: pytest.LogCaptureFixture
) -> None:
    """With one slot, the second job could not run if the first one's was lost."""

    @monque.worker("work", concurrency=1)
    async def work(job: Job[str]) -> None:
        if job.data == "cancelled":
            cancel_soon()
            await asyncio.Event().wait()

    heard = Heard(monque)
    await monque.start()
    with caplog.at_level(logging.INFO, "monque"):
        job = await monque.enqueue(work, "cancelled")
        await monque.enqueue(work, "well")
        [failed] = await heard.wait("job:fail", within=5)
        await heard.wait("job:complete", within=5)
        healthy = monque.is_healthy()
        await monque.stop()

    assert healthy
    assert failed.job.id == job.id
    assert failed.job.fail_count == 1
    assert failed.will_retry
    assert failed.job.fail_reason.startswith("CancelledError: the handler's task was cancelled")
    assert isinstance(failed.error, asyncio.CancelledError)
    assert f"job {job.id} (work) failed and is tried again: CancelledError" in caplog.text


async def test_the_message_of_such_a_cancellation_is_kept(monque: Monque) -> None:
    @monque.worker("work")
    async def work(job: Job[None]) -> None:
        task = asyncio.current_task()
        assert task is not None
        task.cancel("the scope was left")
        await asyncio.sleep(0)

    heard = Heard(monque)
    await monque.enqueue(work)
    await asyncio.wait_for(monque.run_until_idle(), 15)
    [failed] = heard.of("job:fail")

    assert "the scope was left" in failed.job.fail_reason


async def test_a_handler_that_is_cut_off_by_the_end_of_the_event_loop_has_not_failed(
    server: EmbeddedMongo, database: AsyncDatabase[dict[str, Any]], make_monque: Callable[..., Monque]
) -> None:
    """`asyncio.run` cancels every task when its main one ends: a job left so is recovered, not failed."""
    written = await python(
        """
        import asyncio, os
        from monque import Job, Monque

        async def main():
            monque = await Monque(os.environ["MONQUE_URI"]).open()
            started = asyncio.Event()

            @monque.worker("work")
            async def work(job: Job[None]) -> None:
                started.set()
                await asyncio.Event().wait()

            await monque.start()
            await monque.enqueue(work)
            await started.wait()

        asyncio.run(main())
        print("ended")
        """,
        server,
        database,
    )
    reader = await make_monque().open()
    [job] = await reader.get_jobs()

    assert "ended" in written
    assert "failed" not in written
    assert (job.status, job.fail_count, job.fail_reason) == (JobStatus.PROCESSING, 0, None)
