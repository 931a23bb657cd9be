"""Processes with child processes that are killed, interrupted or started in odd ways."""

from __future__ import annotations

import contextvars
import gc
import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

from monque import JobStatus, Monque, Options, Worker, Workers
from monque._processes.pool import Children
from support import in_child
from support.aliases import Database
from support.programs.child import child
from support.servers import Servers
from support.waiting import eventually

pytestmark = pytest.mark.timeout(90)


@pytest.fixture
def uri(host: Servers, database: Database) -> str:
    return host.uri(database.name)


async def written(path: Path) -> tuple[int, str]:
    """The pid and the name of the module that a handler has written."""

    def check() -> list[str]:
        words = path.read_text().split() if path.exists() else []
        assert len(words) == 2
        return words

    pid, name = await eventually(check, within=60)
    return int(pid), name


def is_alive(pid: int) -> bool:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] != "Z"


async def test_handlers_of_a_main_file_run_and_signals_to_all_processes_let_them_finish(
    uri: str, monque: Monque, tmp_path: Path
) -> None:
    """A terminal, and a service manager, send a signal to the instance and to its children."""
    jobs = [await monque.enqueue("work", name) for name in ("works", "fails")]
    async with child("computing", uri, str(tmp_path)) as program:
        children = [await written(tmp_path / name) for name in ("works", "fails")]
        for number in (signal.SIGTERM, signal.SIGINT):
            for pid, _ in children:
                os.kill(pid, number)
        program.send(signal.SIGTERM)
        (tmp_path / "go").touch()
        await program.wait_for("job:fail of the main file")
        code = await program.ends(within=30)
        await program.finished()

    assert code == 0, program.complaints
    assert [name for _, name in children] == ["__mp_main__"] * 2
    after = [await monque.get_job(job.id) for job in jobs]
    assert [job.status for job in after] == [JobStatus.COMPLETED, JobStatus.FAILED]
    assert not any(is_alive(pid) for pid, _ in children)


async def test_children_end_with_an_instance_that_is_killed(uri: str, monque: Monque, tmp_path: Path) -> None:
    """One of them holds the interpreter, so that no thread of it can notice the end."""
    await monque.enqueue("work", "waits")
    await monque.enqueue("hold", "holds")
    async with child("computing", uri, str(tmp_path)) as program:
        pids = [(await written(tmp_path / name))[0] for name in ("waits", "holds")]
        program.send(signal.SIGKILL)
        await program.ends()

        def check() -> None:
            assert not any(map(is_alive, pids))

        await eventually(check, within=2)


class Run:
    """As much of a run as its child needs before the call."""

    def __init__(self, worker: Worker[Any]) -> None:
        self.worker = worker


async def test_no_descriptor_no_thread_and_no_process_is_left() -> None:
    worker = Workers().worker("pid_of", in_child.pid_of, mode="process")
    run: Any = Run(worker)
    left, pids = [], []
    for _ in range(2):
        children = Children(Options(), contextvars.copy_context())
        child = await children.take(run)
        assert child is not None
        pids.append(child.pid)
        children.give_back(run, child)
        await children.end()
        gc.collect()
        left.append([len(os.listdir(f"/proc/self/{kind}")) for kind in ("fd", "task")])  # noqa: PTH208

    assert left[1] == left[0]
    assert not any(map(is_alive, pids))


def run(program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-W", "error", *arguments]
    return subprocess.run(command, input=program, capture_output=True, text=True, timeout=60)


def test_a_program_that_is_typed_in_is_refused() -> None:
    program = """
        from monque import Monque, WorkerRegistrationError
        def work(job): ...
        try:
            Monque().worker("work", work, mode="process")
        except WorkerRegistrationError as error:
            print(error)
    """

    done = run(textwrap.dedent(program), "-")

    assert "was typed in or read from standard input" in done.stdout, done.stderr


def test_a_main_file_that_starts_again_when_it_is_imported_is_told_so(uri: str, tmp_path: Path) -> None:
    path = tmp_path / "unguarded.py"
    program = """
        import asyncio, sys
        from monque import Job, Monque, Options
        monque = Monque(sys.argv[1], options=Options(max_retries=1, child_processes=1))
        @monque.worker("work", mode="process")
        def work(job: Job[None]) -> None: ...
        async def main():
            async with monque:
                job = await work.enqueue()
                await monque.run_until_idle()
                print((await monque.get_job(job.id)).fail_reason)
        asyncio.run(main())
    """
    path.write_text(textwrap.dedent(program))

    done = run("", str(path), uri)

    assert 'put what the program does below `if __name__ == "__main__":`' in done.stdout, done.stderr


IMPORTS = """
    import asyncio, sys
    from monque import Job, Monque

    def imported():
        names = ("multiprocessing", "pickle", "monque._processes", "monque._workers.address")
        return [name for name in names if name in sys.modules]

    def compute(job: Job[None]) -> None: ...

    async def main():
        async with Monque(sys.argv[1]) as monque:
            @monque.worker("plain")
            async def plain(job: Job[None]) -> None: ...
            @monque.worker("threaded")
            def threaded(job: Job[None]) -> None: ...
            await monque.enqueue("plain")
            await monque.enqueue("threaded")
            await monque.run_until_idle()
            print(imported())
            monque.worker("compute", compute, mode="process")
            job = await monque.enqueue("compute")
            await monque.run_until_idle()
            print((await monque.get_job(job.id)).status.value, imported())

    if __name__ == "__main__":
        asyncio.run(main())
"""


def test_children_are_imported_with_the_first_job_that_needs_one(uri: str, tmp_path: Path) -> None:
    path = tmp_path / "program.py"
    path.write_text(textwrap.dedent(IMPORTS))

    done = run("", str(path), uri)

    after = "completed ['pickle', 'monque._processes', 'monque._workers.address']"
    assert done.stdout.splitlines() == ["[]", after], done.stderr
