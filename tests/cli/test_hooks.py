"""Lifecycle hooks in the processes of `monque worker`."""

from __future__ import annotations

import re
import signal
from collections.abc import Callable
from typing import Any

import pytest
from pymongo.collection import Collection

from support.jobs import document

Start = Callable[..., Any]
Jobs = Collection[dict[str, Any]]

READY = r"instance \S+ works on"


def test_hooks_run_around_the_jobs_of_a_worker(start: Start, jobs: Jobs) -> None:
    jobs.insert_one(document(name="greet", data="Ada"))
    worker = start("worker", "hooked:monque")
    worker.wait_for(rf"entered\nstarted in {worker.pid}\n")
    worker.wait_for(f"hello from {worker.pid} to Ada")
    worker.send(signal.SIGTERM)

    assert worker.ends() == 0
    assert re.search(rf"stopped in {worker.pid}\nleft\n.*stopped after", worker.text)


def test_hooks_run_in_each_process(start: Start) -> None:
    worker = start("worker", "hooked:monque", "--processes", "2")
    worker.wait_for(READY, times=2)
    worker.send(signal.SIGTERM)

    assert worker.ends() == 0
    started, stopped = (set(re.findall(rf"{what} in (\d+)", worker.text)) for what in ("started", "stopped"))
    assert len(started) == 2
    assert started == stopped
    assert str(worker.pid) not in started


def test_hooks_run_with_until_idle(start: Start, jobs: Jobs) -> None:
    jobs.insert_one(document(name="greet", data="Ada"))
    worker = start("worker", "hooked:monque", "--until-idle")

    assert worker.ends() == 0
    assert [text for text in ("entered", "started", "to Ada", "stopped", "left") if text in worker.text] == [
        *("entered", "started", "to Ada", "stopped", "left")
    ]


def test_hooks_of_a_sync_monque_run_too(start: Start, jobs: Jobs) -> None:
    jobs.insert_one(document(name="greet", data="Ada"))
    worker = start("worker", "hooked:blocking")
    worker.wait_for(r"started in \d+\n")
    worker.wait_for("hello Ada")
    worker.send(signal.SIGTERM)

    assert worker.ends() == 0
    assert "stopped in a thread" in worker.text


@pytest.mark.parametrize("options", [(), ("--until-idle",)])
def test_an_error_in_a_start_hook_ends_the_worker_with_its_traceback(
    start: Start, jobs: Jobs, options: tuple[str, ...]
) -> None:
    jobs.insert_one(document(name="greet"))
    worker = start("worker", "hooked:broken", *options)

    assert worker.ends() == 1
    assert "LookupError: there are no settings" in worker.text
    assert [job["status"] for job in jobs.find()] == ["pending"]


def test_a_supervisor_starts_a_worker_again_whose_start_hook_has_failed(start: Start) -> None:
    """What it needs may be there the next time."""
    worker = start("worker", "hooked:broken", "--processes", "2")
    worker.wait_for(r"ended with exit code 1; the next one starts in 1 s")
    worker.send(signal.SIGTERM)

    assert worker.ends() in (0, 1)


def test_a_signal_ends_a_worker_whose_start_hook_hangs(start: Start) -> None:
    worker = start("worker", "hooked:slow")
    worker.wait_for("hanging")
    worker.send(signal.SIGTERM)

    assert worker.ends(within=20) == 0
    assert "undone" in worker.text


def test_a_reload_runs_stop_hooks_and_then_start_hooks_of_the_new_code(start: Start, tmp_path: Any) -> None:
    text = """
from monque import Monque
monque = Monque()
monque.worker("work", lambda job: None)
monque.on_start(lambda: print("WORD start", flush=True))
monque.on_stop(lambda: print("WORD stop", flush=True))
"""
    source = tmp_path / "jobs.py"
    source.write_text(text.replace("WORD", "first"))
    worker = start("worker", "jobs:monque", "--reload", folder=tmp_path)
    worker.wait_for(READY)
    source.write_text(text.replace("WORD", "second"))
    worker.wait_for(READY, times=2)
    worker.send(signal.SIGTERM)

    assert worker.ends() == 0
    assert re.findall(r"(\w+ (?:start|stop))\n", worker.text) == [
        *("first start", "first stop"),
        *("second start", "second stop"),
    ]
