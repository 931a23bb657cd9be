"""Handlers in child processes: what crosses the border, how they stop, and when children are replaced."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from monque import (
    Job,
    JobStarted,
    JobStatus,
    Monque,
    NewJob,
    RemoteError,
    Retry,
    SyncMonque,
    Timeout,
)
from monque._processes import pool
from monque.embedded import EmbeddedMongo
from support import in_child
from support.aliases import Collection, Database, Make
from support.jobs import document
from support.options import ONE_TRY, QUICK
from support.programs.child import uri_of
from support.waiting import Events, eventually

pytestmark = pytest.mark.timeout(90)

ONE_CHILD = replace(QUICK, child_processes=1)
SOON = timedelta(seconds=60)


def register(monque: Monque, *handlers: Callable[[Job[Any]], Any], **settings: Any) -> None:
    for handler in handlers:
        monque.worker(handler.__name__, handler, mode="process", **settings)


async def result_of(monque: Monque, handler: Callable[..., Any], data: Any = None, **settings: Any) -> Any:
    job = await monque.enqueue(handler.__name__, data, store_result=True, **settings)
    return (await monque.wait_for(job.id, timeout=SOON)).result


async def ended(monque: Monque, handler: Callable[..., Any], data: Any = None, **settings: Any) -> Job[Any]:
    """The job after its end, whatever that was."""
    job = await monque.enqueue(handler.__name__, data, **settings)
    await monque.wait_for(job.id, timeout=SOON)
    return await monque.get_job(job.id)


async def lines_of(path: Path, count: int = 1) -> list[str]:
    """What a handler has written, once that are so many lines."""

    def check() -> list[str]:
        lines = path.read_text().splitlines() if path.exists() else []
        assert len(lines) >= count
        return lines

    lines: list[str] = await eventually(check, within=60)
    return lines


async def pid_in(path: Path) -> int:
    return int((await lines_of(path))[0].split()[1])


def is_alive(pid: int) -> bool:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] != "Z"


async def gone(pid: int, within: float = 20) -> None:
    def check() -> None:
        assert not is_alive(pid)

    await eventually(check, within=within)


async def test_the_attempts_of_a_job_are_those_of_its_worker_in_a_child_too(make_monque: Make) -> None:
    monque = await make_monque(options=ONE_CHILD).open()
    register(monque, in_child.attempts_of, max_attempts=1)
    await monque.start()

    assert await result_of(monque, in_child.attempts_of) == [1, True]
    assert await result_of(monque, in_child.attempts_of, max_attempts=4) == [4, False]


async def test_the_payload_the_fields_and_the_result_cross(monque: Monque, make_monque: Make) -> None:
    """One child serves all of them, one after the other: it imports the module once."""
    register(monque, in_child.square, in_child.on_a_loop, in_child.refused_methods, in_child.descriptors)
    await monque.start()
    at = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)

    result = await result_of(monque, in_child.square, in_child.Square(3, at))

    assert result.pop("pid") != os.getpid()
    assert result == {"area": 9, "at": at, "attempt": 1, "current": True}
    assert await result_of(monque, in_child.on_a_loop, 4) == 5
    assert "in a child process" in await result_of(monque, in_child.refused_methods, "state")
    assert "in a child process" in await result_of(monque, in_child.refused_methods, "complete_in")
    elsewhere = await make_monque().open()  # it does not know the worker
    wrong = await ended(elsewhere, in_child.square, {"side": "x"}, max_attempts=1)
    assert wrong.fail_reason is not None
    assert wrong.fail_reason.startswith("PayloadError: the payload of 'square' does not fit Square")
    held = await result_of(monque, in_child.descriptors)
    assert held <= 7  # the standard three, the line, the folder that is read; nothing of the instance


async def test_errors_and_verdicts_cross(make_monque: Make, caplog: pytest.LogCaptureFixture) -> None:
    monque = make_monque(options=replace(ONE_TRY, child_processes=1))
    register(monque, in_child.fail, retry=Retry(fail_on=(in_child.RefusedError,)))
    failures: list[Any] = []
    monque.on("job:fail", failures.append)
    await monque.start()

    known = await ended(monque, in_child.fail, "known")
    assert (known.status, known.fail_reason) == ("failed", "RefusedError: no such card")
    assert isinstance(failures[-1].error, in_child.RefusedError)
    assert 'raise RefusedError("no such card")' in (known.history[-1].traceback or "")
    assert "in_child.py" in caplog.text  # logs show where it was raised

    remote = await ended(monque, in_child.fail, "unpicklable", max_attempts=1)
    error = failures[-1].error
    assert isinstance(error, RemoteError)
    assert (error.type_name, error.text) == ("support.in_child.StubbornError", "code 7")
    assert "raise StubbornError" in (remote.history[-1].traceback or "")

    final = await ended(monque, in_child.fail, "fail")
    assert (final.status, final.fail_reason) == ("failed", "no such card")
    assert final.history[-1].error == "RefusedError"
    cancelled = await ended(monque, in_child.fail, "cancel")
    assert (cancelled.status, cancelled.cancel_reason) == ("cancelled", "the customer has left")
    left = await ended(monque, in_child.fail, "exit", max_attempts=1)
    assert left.fail_reason == "SystemExit: 3"

    events = Events(monque)
    for verdict, hours in (("snooze", 1), ("later", 2)):
        job = await monque.enqueue("fail", verdict)
        await events.wait("job:snoozed" if hours == 1 else "job:fail")
        later = await monque.get_job(job.id)
        assert later.next_run_at is not None
        assert later.next_run_at - job.created_at >= timedelta(hours=hours)


async def test_progress_log_lines_and_log_records_cross(
    make_monque: Make, caplog: pytest.LogCaptureFixture
) -> None:
    monque = make_monque(options=ONE_CHILD)
    register(monque, in_child.report)
    await monque.start()

    with caplog.at_level(logging.INFO):
        job = await ended(monque, in_child.report, 10_000)

    assert job.progress is not None
    assert (job.progress.done, job.progress.message) == (10_000, "step 9999")
    assert [(line.level, line.text) for line in job.log] == [("warning", "half of it")]
    [record] = [each for each in caplog.records if each.name == "shop.child"]
    assert (record.getMessage(), record.order) == ("all 10000 steps", 7)


async def test_a_time_limit_ends_the_child(make_monque: Make, tmp_path: Path) -> None:
    """The soft limit lets the handler clean up; one that does not end is killed at the hard one."""
    monque = make_monque(options=replace(ONE_TRY, child_processes=2))
    register(monque, in_child.compute, in_child.swallow, in_child.wait_forever, in_child.stretch)
    await monque.start()
    soft, limits = timedelta(seconds=0.5), {"max_attempts": 1}
    computed, stuck, waited = tmp_path / "computed", tmp_path / "stuck", tmp_path / "waited"

    first, second, third, fourth = await asyncio.gather(
        ended(monque, in_child.compute, str(computed), timeout=soft, **limits),
        ended(monque, in_child.swallow, str(stuck), timeout=Timeout(soft, hard=2 * soft), **limits),
        ended(monque, in_child.wait_forever, str(waited), timeout=soft, **limits),
        ended(monque, in_child.stretch, 1.0, timeout=soft, **limits),
    )

    for job in (first, second, third):
        assert (job.status, job.history[-1].outcome) == ("failed", "timed_out")
        assert job.fail_reason == "JobTimeoutError: ran longer than 0.5 s"
    assert fourth.status == "completed"  # it has pushed its limit
    assert (await lines_of(computed, 2))[1] == "end timeout timeout"
    assert (await lines_of(waited, 2))[1] == "end timeout"
    assert "in compute" in (first.history[-1].traceback or "")
    for path in (computed, stuck, waited):
        await gone(await pid_in(path))


@pytest.mark.parametrize("handler", [in_child.start_a_program, in_child.start_a_program_and_swallow])
async def test_a_time_limit_ends_what_the_handler_has_started_too(
    make_monque: Make, tmp_path: Path, handler: Callable[[Job[str]], None]
) -> None:
    """Of a child that ends by itself, and of one that is killed."""
    monque = make_monque(options=ONE_CHILD)
    register(monque, handler)
    await monque.start()
    limit = Timeout(timedelta(milliseconds=500), hard=timedelta(seconds=1))

    job = await ended(monque, handler, str(tmp_path / "file"), timeout=limit, max_attempts=1)

    assert job.history[-1].outcome == "timed_out"
    await gone(await pid_in(tmp_path / "file"))


async def test_a_copy_of_a_child_that_the_handler_forked_ends_with_the_handler(
    make_monque: Make, tmp_path: Path
) -> None:
    monque = make_monque(options=ONE_CHILD)
    register(monque, in_child.fork, in_child.pid_of)
    await monque.start()

    job = await ended(monque, in_child.fork, str(tmp_path / "file"))

    assert job.status == "completed"
    await gone(await pid_in(tmp_path / "file"))
    assert (await ended(monque, in_child.pid_of)).status == "completed"


async def test_a_request_to_cancel_ends_the_child(make_monque: Make, tmp_path: Path) -> None:
    monque = make_monque(options=ONE_CHILD)
    register(monque, in_child.compute, in_child.pid_of)
    await monque.start()
    job = await monque.enqueue("compute", str(tmp_path / "file"))
    pid = await pid_in(tmp_path / "file")

    await monque.cancel_job(job.id, running=True, reason="not needed")
    await monque.wait_for(job.id, timeout=SOON)

    after = await monque.get_job(job.id)
    assert (after.status, after.cancel_reason, after.fail_count) == ("cancelled", "not needed", 0)
    assert (await lines_of(tmp_path / "file", 2))[1] == "end requested requested"
    await gone(pid)
    assert await result_of(monque, in_child.pid_of) != pid  # a new child takes its place


async def test_a_stop_waits_for_children_and_releases_what_does_not_end(
    make_monque: Make, tmp_path: Path
) -> None:
    monque = make_monque(options=replace(QUICK, child_processes=2))
    register(monque, in_child.compute, in_child.swallow)
    await monque.start()
    jobs = [await monque.enqueue(name, str(tmp_path / name)) for name in ("compute", "swallow")]
    pids = [await pid_in(tmp_path / name) for name in ("compute", "swallow")]

    await monque.stop(timeout=0.2)

    for job in jobs:
        after = await monque.get_job(job.id)
        assert (after.status, after.fail_count, after.history) == ("pending", 0, ())
    assert (await lines_of(tmp_path / "compute", 2))[1] == "end shutdown shutdown"
    for pid in pids:
        await gone(pid)


async def test_a_child_that_dies_fails_its_job_alone(make_monque: Make, tmp_path: Path) -> None:
    """Two jobs run; one child is killed, its job is tried again in a new child, the other job goes on."""
    monque = make_monque(options=replace(QUICK, child_processes=2))
    register(monque, in_child.compute)
    events = Events(monque)
    await monque.start()
    killed, other = tmp_path / "killed", tmp_path / "other"
    jobs = [await monque.enqueue("compute", str(path)) for path in (killed, other)]
    first, second = await pid_in(killed), await pid_in(other)

    os.kill(first, signal.SIGKILL)
    [failed] = await events.wait("job:fail")

    assert isinstance(failed.error, ChildProcessError)
    assert "killed by signal 9, perhaps out of memory" in str(failed.error)
    assert failed.will_retry
    await lines_of(killed, 2)  # it runs again
    assert len(await lines_of(other)) == 1
    assert is_alive(second)
    assert {(await monque.get_job(job.id)).attempt for job in jobs} == {1, 2}


async def test_a_child_that_is_killed_while_it_starts_is_replaced(
    make_monque: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing of the job has run, so the attempt does not fail."""
    spawned: list[subprocess.Popen[bytes]] = []
    spawn = pool.spawn

    def killing() -> Any:
        process, line = spawn()
        if not spawned:
            process.kill()
        spawned.append(process)
        return process, line

    monkeypatch.setattr(pool, "spawn", killing)
    monque = make_monque(options=ONE_CHILD)
    register(monque, in_child.pid_of)
    await monque.start()

    assert await result_of(monque, in_child.pid_of) == spawned[1].pid
    [job] = [job async for job in monque.iter_jobs()]
    assert (job.attempt, job.fail_count) == (1, 0)


def wait_for_death(pid: int) -> None:
    """Block until a child of this process is gone, and leave its exit code to whoever waits for it."""
    with suppress(ChildProcessError):  # somebody has waited for it already
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)


async def test_an_idle_child_that_was_killed_gets_no_job(make_monque: Make) -> None:
    monque = make_monque(options=ONE_CHILD)
    register(monque, in_child.pid_of)
    await monque.start()
    first = await result_of(monque, in_child.pid_of)

    os.kill(first, signal.SIGKILL)
    wait_for_death(first)  # here, so that nobody has told the instance when the next job comes
    second = await monque.enqueue("pid_of", store_result=True)
    await monque.wait_for(second.id, timeout=SOON)

    after = await monque.get_job(second.id)
    assert (after.result != first, after.fail_count) == (True, 0)


async def test_a_child_that_leaves_a_process_behind_is_noticed(make_monque: Make) -> None:
    """The fork holds the child's end of the line: only the end of the child itself tells."""
    monque = make_monque(options=ONE_CHILD)
    register(monque, in_child.leave_a_fork)
    await monque.start()

    job = await ended(monque, in_child.leave_a_fork, max_attempts=1)

    assert job.fail_reason is not None
    assert "its child process ended with exit code 4" in job.fail_reason


async def test_children_end_after_so_many_jobs(make_monque: Make) -> None:
    """The small twin of 10,000 jobs with 100 for each child, which `make bench FULL=1` runs."""
    monque = make_monque(options=replace(QUICK, child_processes=2, max_jobs_per_child=20))
    register(monque, in_child.pid_of, store_result=True)
    await monque.open()
    await monque.enqueue_many([NewJob("pid_of", None) for _ in range(60)])

    await monque.run_until_idle()

    jobs = [job async for job in monque.iter_jobs()]
    assert {(job.status, job.fail_count) for job in jobs} == {(JobStatus.COMPLETED, 0)}
    pids = [job.result for job in jobs]
    assert all(pids.count(pid) <= 20 for pid in pids)
    for pid in set(pids):
        await gone(pid)


async def test_a_child_that_has_grown_is_replaced(make_monque: Make) -> None:
    monque = make_monque(options=replace(ONE_CHILD, max_memory_per_child=2**28))
    register(monque, in_child.take_memory)
    await monque.start()

    pids = [await result_of(monque, in_child.take_memory, size) for size in (1, 2**28, 1)]

    assert pids[0] == pids[1] != pids[2]


async def test_names_share_the_children(make_monque: Make, tmp_path: Path) -> None:
    """With one child, one job runs, whatever its name; the other is not claimed before it can start."""
    monque = make_monque(options=ONE_CHILD)
    register(monque, in_child.compute, in_child.pid_of, concurrency=3)
    started: list[str] = []
    monque.on(JobStarted, lambda event: started.append(event.job.name))
    await monque.start()
    first = await monque.enqueue("compute", str(tmp_path / "file"))
    await lines_of(tmp_path / "file")
    others = [await monque.enqueue("pid_of") for _ in range(2)]
    await monque.enqueue("compute", str(tmp_path / "other"))

    await asyncio.sleep(0.5)
    assert started == ["compute"]
    assert {(await monque.get_job(job.id)).attempt for job in others} == {0}

    await monque.cancel_job(first.id, running=True)
    await lines_of(tmp_path / "other")
    assert started == ["compute", "pid_of", "pid_of", "compute"]


async def test_a_module_that_cannot_be_imported_fails_the_attempt(
    make_monque: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It could be imported when the worker was registered; a child imports what is there now."""
    module = tmp_path / "brittle_jobs.py"
    module.write_text("def work(job):\n    return 1\n")
    monkeypatch.syspath_prepend(tmp_path)
    monque = make_monque(options=ONE_CHILD)
    import brittle_jobs

    monque.worker("work", brittle_jobs.work, mode="process", max_attempts=1)
    module.write_text("raise RuntimeError('no such library')\n")
    await monque.start()

    job = await ended(monque, brittle_jobs.work)

    assert job.fail_reason == "RuntimeError: no such library"
    del sys.modules["brittle_jobs"]


async def test_a_sync_monque_runs_them_too(server: EmbeddedMongo, database: Database) -> None:
    def work() -> int:
        with SyncMonque(uri_of(server, database), options=ONE_CHILD) as monque:
            monque.worker("pid_of", in_child.pid_of, mode="process", store_result=True)
            job = monque.enqueue("pid_of")
            monque.run_until_idle()
            pid: int = monque.result_of(job.id)
            return pid

    pid = await asyncio.to_thread(work)

    assert pid != os.getpid()
    assert not is_alive(pid)


async def test_the_child_is_not_handed_what_a_job_names(monque: Monque, collection: Collection) -> None:
    """Whoever can write to the collection can store any document, but not choose what a child imports."""
    register(monque, in_child.pid_of, store_result=True)
    odd = document(name="pid_of", address="os:abort", load="os:abort", handler="os:abort", data={"load": "x"})
    await collection.insert_one(odd)

    await monque.run_until_idle()

    job = await monque.get_job(odd["_id"])
    assert (job.status, type(job.result)) == ("completed", int)
