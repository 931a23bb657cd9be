"""Handlers and listeners that end in odd ways: nothing fails but the job itself, if even that."""

from __future__ import annotations

import asyncio
import logging
import os
import sys
import textwrap

import pytest

from monque import Job, JobStatus, Monque
from monque.embedded import EmbeddedMongo
from support.aliases import Database, Make
from support.options import ONE_TRY
from support.programs.child import uri_of
from support.waiting import Events

# Failed jobs come back in half a minute, that is, not in these tests.


@pytest.fixture
async def monque(make_monque: Make) -> Monque:
    return await make_monque(options=ONE_TRY).open()


async def python(program: str, server: EmbeddedMongo, database: Database) -> str:
    """Run a program to its end; return what it wrote to both streams."""
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
    monque: Monque, events: Events, caplog: pytest.LogCaptureFixture
) -> None:
    """With one slot, the second job could not run if the first one's was lost."""

    @monque.worker("work", concurrency=1)
    async def work(job: Job[str]) -> None:
        if job.data == "cancelled":
            cancel_soon()
            await asyncio.Event().wait()

    await monque.start()
    with caplog.at_level(logging.INFO, "monque"):
        job = await monque.enqueue(work, "cancelled")
        await monque.enqueue(work, "well")
        [failed] = await events.wait("job:fail", within=5)
        await events.wait("job:complete", within=5)
        healthy = monque.is_healthy()
        await monque.stop()

    assert healthy
    assert failed.job.id == job.id
    assert failed.job.fail_count == 1
    assert failed.will_retry
    assert failed.job.fail_reason.startswith("CancelledError: the handler's task was cancelled")
    assert isinstance(failed.error, asyncio.CancelledError)
    assert f"job {job.id} (work) failed and is tried again: CancelledError" in caplog.text


async def test_the_message_of_such_a_cancellation_is_kept(monque: Monque, events: Events) -> None:
    @monque.worker("work")
    async def work(job: Job[None]) -> None:
        task = asyncio.current_task()
        assert task is not None
        task.cancel("the scope was left")
        await asyncio.sleep(0)

    await monque.enqueue(work)
    await asyncio.wait_for(monque.run_until_idle(), 15)
    [failed] = events.of("job:fail")

    assert "the scope was left" in failed.job.fail_reason


async def test_a_handler_that_is_cut_off_by_the_end_of_the_event_loop_has_not_failed(
    server: EmbeddedMongo, database: Database, make_monque: Make
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
    assert (job.fail_count, job.fail_reason) == (0, None)
    # Pending where the instance that reads it knows already that the process is gone.
    assert job.status in (JobStatus.PROCESSING, JobStatus.PENDING)


# Exceptions that do not derive from Exception


@pytest.mark.parametrize("error", [GeneratorExit, KeyboardInterrupt, SystemExit, asyncio.CancelledError])
@pytest.mark.parametrize("blocking", [False, True], ids=["async", "blocking"])
async def test_a_handler_that_raises_a_base_exception_fails_only_its_job(
    monque: Monque,
    events: Events,
    error: type[BaseException],
    blocking: bool,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """With one slot, the second job could not run if the first one's was lost."""

    def work(job: Job[str]) -> None:
        if job.data == "raises":
            raise error("by itself")

    async def work_on_the_loop(job: Job[str]) -> None:
        work(job)

    monque.worker("work", work if blocking else work_on_the_loop, concurrency=1)
    await monque.start()
    await monque.enqueue("work", "raises")
    await monque.enqueue("work", "goes well")
    [failed] = await events.wait("job:fail", within=5)
    await events.wait("job:complete", within=5)

    assert monque.is_healthy()
    assert failed.job.fail_reason == f"{error.__name__}: by itself"
    assert "the scheduler has a bug" not in caplog.text


async def test_a_handler_that_awaits_a_generator_exit_has_failed(monque: Monque, events: Events) -> None:
    """Python does not raise it inside the handler then: it closes the handler, and the task gets it."""

    @monque.worker("work", concurrency=1)
    async def work(job: Job[str]) -> None:
        if job.data == "raises":
            future = asyncio.get_running_loop().create_future()
            asyncio.get_running_loop().call_soon(future.set_exception, GeneratorExit("by itself"))
            await future

    await monque.start()
    await monque.enqueue(work, "raises")
    await monque.enqueue(work, "goes well")
    [failed] = await events.wait("job:fail", within=5)
    await events.wait("job:complete", within=5)

    assert monque.is_healthy()
    assert failed.job.fail_reason == "GeneratorExit: by itself"


async def _ctrl_c(run: str, server: EmbeddedMongo, database: Database) -> str:
    """A program whose handler is hit by SIGINT while it computes; the program does not use `run()`."""
    return await python(
        f"""
        import asyncio, os, signal
        from monque import Job, Monque

        async def main():
            monque = await Monque(os.environ["MONQUE_URI"]).open()

            @monque.worker("work")
            async def work(job: Job[None]) -> None:
                signal.raise_signal(signal.SIGINT)
                signal.raise_signal(signal.SIGINT)

            await monque.start()
            await monque.enqueue(work)
            await asyncio.sleep(50)

        try:
            {run}
        except KeyboardInterrupt:
            print("interrupted")
        """,
        server,
        database,
    )


@pytest.mark.parametrize(
    "run", ["asyncio.run(main())", "asyncio.new_event_loop().run_until_complete(main())"], ids=["run", "loop"]
)
async def test_a_ctrl_c_that_python_raises_inside_a_handler_ends_the_program_and_fails_nothing(
    run: str,
    server: EmbeddedMongo,
    database: Database,
    make_monque: Make,
) -> None:
    written = await _ctrl_c(run, server, database)
    reader = await make_monque().open()
    [job] = await reader.get_jobs()

    assert "interrupted" in written
    assert "the scheduler has a bug" not in written
    assert job.fail_count == 0
    # Pending where the instance that reads it knows already that the process is gone.
    assert job.status in (JobStatus.PROCESSING, JobStatus.PENDING)


@pytest.mark.parametrize("error", [SystemExit, KeyboardInterrupt, GeneratorExit, asyncio.CancelledError])
@pytest.mark.parametrize("kind", ["sync", "async"])
async def test_a_listener_that_raises_a_base_exception_is_logged_and_disturbs_nothing(
    monque: Monque, events: Events, error: type[BaseException], kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    def listener(event: object) -> None:
        raise error("by itself")

    async def async_listener(event: object) -> None:
        await asyncio.sleep(0)
        raise error("by itself")

    for event in ("job:start", "job:complete"):
        monque.on(event, listener if kind == "sync" else async_listener)
    monque.worker("work", lambda job: None, concurrency=1)
    await monque.start()
    for _ in range(2):
        await monque.enqueue("work")
    await events.wait("job:complete", 2, within=5)
    healthy = monque.is_healthy()
    await monque.stop()

    assert healthy
    assert events.of("job:fail") == []
    for event in ("job:start", "job:complete"):
        lines = [
            record
            for record in caplog.records
            if record.getMessage() == f"a listener for {event} failed"
            and record.exc_info is not None
            and record.exc_info[0] is error
        ]
        assert len(lines) == 2
