"""`monque dev --web`: the dashboard as one more process of the development command."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

from cli.conftest import Program
from support.web import KEY

Start = Callable[..., Program]

SERVED = rf"Monque at (http://127\.0\.0\.1:\d+/)\?key={KEY} "
HEADERS = {"Content-Type": "application/json", "Authorization": f"Bearer {KEY}"}
SOURCE = """
from monque import Job, Monque

monque = Monque("mongodb://127.0.0.1:1")


@monque.worker("say")
async def say(job: Job[int]) -> None:
    print("first", job.data, flush=True)
"""


def started(start: Start, folder: Path, *options: str) -> Program:
    (folder / "jobs.py").write_text(SOURCE)
    own = {"folder": folder, "MONQUE_DATA_DIR": str(folder / "data"), "MONQUE_URI": ""}
    return start("dev", "jobs:monque", "--web", *options, **own)


def ask(address: str, path: str, body: Any = None) -> Any:
    data = None if body is None else json.dumps(body).encode()
    request = Request(address + path, data=data, headers=HEADERS)  # noqa: S310
    with urlopen(request, timeout=30) as answer:  # noqa: S310
        return json.load(answer)


def pid_of(dev: Program, *, times: int = 1) -> int:
    return int(dev.wait_for(r"dashboard process \(pid (\d+)\) started", times=times)[-1])


def until_gone(pid: int) -> None:
    deadline = time.monotonic() + 60
    while _is_alive(pid):
        assert time.monotonic() < deadline, "it is still there"
        time.sleep(0.02)


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_it_serves_the_jobs_that_the_workers_run_and_ends_with_them(start: Start, tmp_path: Path) -> None:
    dev = started(start, tmp_path, "--web-port", "0")
    address = dev.wait_for(SERVED)[0]
    me = ask(address, "api/ops/v1/me")
    stored = ask(address, "api/ops/v1/jobs", {"name": "say", "payload": 7})

    dev.wait_for("first 7")
    assert (me["badge"], stored["created"]) == ("dev", True)
    pid = pid_of(dev)
    dev.send(signal.SIGINT)
    assert dev.ends() == 0
    assert re.search(r"dashboard process \(pid \d+\) ended with exit code 0", dev.text)
    until_gone(pid)


def test_it_starts_again_when_the_workers_have_loaded_a_change(start: Start, tmp_path: Path) -> None:
    """While the code cannot be loaded, the old dashboard serves, and the error is told once."""
    dev = started(start, tmp_path)
    dev.wait_for(SERVED)
    (tmp_path / "jobs.py").write_text("this is no Python")
    dev.wait_for("SyntaxError")
    assert len(re.findall("SyntaxError", dev.text)) == 1
    assert len(re.findall("dashboard process .* started", dev.text)) == 1

    (tmp_path / "jobs.py").write_text(SOURCE.replace("first", "second"))
    address = dev.wait_for(SERVED, times=2)[-1]
    ask(address, "api/ops/v1/jobs", {"name": "say", "payload": 8})
    dev.wait_for("second 8")
    dev.send(signal.SIGTERM)
    assert dev.ends() == 0


def test_one_that_dies_is_started_again_and_none_outlives_a_killed_command(
    start: Start, tmp_path: Path
) -> None:
    dev = started(start, tmp_path, "--web-port", "0")
    dev.wait_for(SERVED)
    os.kill(pid_of(dev), signal.SIGKILL)
    dev.wait_for(r"dashboard process \(pid \d+\) was ended by SIGKILL; the next one starts in")
    dev.wait_for(SERVED, times=2)

    pid = pid_of(dev, times=2)
    os.kill(dev.pid, signal.SIGKILL)
    until_gone(pid)


def test_a_port_that_is_taken_is_told_and_the_workers_work(start: Start, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        dev = started(start, tmp_path, "--web-port", str(port))
        dev.wait_for(rf"cannot listen on 127\.0\.0\.1, port {port}")
        own = {"folder": tmp_path, "MONQUE_DATA_DIR": str(tmp_path / "data"), "MONQUE_URI": ""}
        assert start("enqueue", "say", "9", **own).ends() == 0
        dev.wait_for("first 9")
        dev.send(signal.SIGINT)
        assert dev.ends() == 0


def test_a_port_for_no_dashboard_is_refused(call: Callable[..., Any]) -> None:
    refused = call("dev", "shop:monque", "--web-port", "8000")

    assert refused.exit_code == 2
    assert "--web-port belongs to --web" in refused.output
