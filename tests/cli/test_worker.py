"""`monque worker`: processes that run jobs, and how they end."""

from __future__ import annotations

import json
import os
import re
import resource
import signal
import socket
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from pymongo.collection import Collection

from support.clocks import ago
from support.jobs import document
from support.ports import free_port
from support.scale import at_scale

APPS = Path(__file__).parent / "apps"

Start = Callable[..., Any]
Call = Callable[..., Any]
Jobs = Collection[dict[str, Any]]

READY = r"instance \S+ works on (.*) in \w+\.monque_jobs, (?:woken|looking)"


def until(fact: Callable[[], bool], *, within: float = 60.0) -> None:
    """Wait until it is so."""
    deadline = time.monotonic() + within
    while not fact():
        assert time.monotonic() < deadline, "it never came true"
        time.sleep(0.02)


def ask(port: int, path: str) -> tuple[int, dict[str, str]]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=10) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as refused:
        with refused:
            return refused.code, json.load(refused)
    except OSError:
        return 0, {}


# One process


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_during_work_lets_running_jobs_finish(
    number: signal.Signals, start: Start, jobs: Jobs
) -> None:
    """Exit code 0, nothing left processing, nothing new begun."""
    jobs.insert_many(document(name="patient", data=1.0, nextRunAt=ago(seconds=s)) for s in range(200))
    worker = start("worker", "shop:monque", "--instance-concurrency", "20")
    worker.wait_for("begun", times=20)
    worker.send(number)

    assert worker.ends() == 0
    assert re.search(r"instance \S+ stopped after [\d.]+ s\n$", worker.text)
    begun = worker.text.count("begun")
    assert 20 <= begun < 200
    assert jobs.count_documents({"status": "completed"}) == begun
    assert jobs.count_documents({"status": "pending"}) == 200 - begun


def test_a_second_signal_gives_running_jobs_back_at_once(start: Start, jobs: Jobs) -> None:
    jobs.insert_one(document(name="patient", data=600.0))
    port = free_port()
    worker = start("worker", "shop:monque", "--health-port", str(port))
    worker.wait_for("begun")  # a job that is claimed and not begun does not keep the first signal waiting
    assert ask(port, "/readyz") == (200, {"status": "ready"})
    worker.send(signal.SIGTERM)
    until(lambda: ask(port, "/readyz")[0] == 503)  # two signals that come together are one
    assert ask(port, "/healthz") == (200, {"status": "alive"})
    worker.send(signal.SIGTERM)

    assert worker.ends(within=20) == 0
    assert [(job["status"], job["failCount"]) for job in jobs.find()] == [("pending", 0)]


def test_a_signal_before_anything_began_ends_it_too(start: Start, uri: str) -> None:
    """The database is not there, and opening waits for it."""
    away = "mongodb://127.0.0.1:1/shop?serverSelectionTimeoutMS=60000"
    port = free_port()
    worker = start("worker", "shop:monque", "--uri", away, "--health-port", str(port))
    until(lambda: ask(port, "/healthz")[0] == 200)
    assert ask(port, "/readyz") == (503, {"status": "not ready", "reason": "the scheduler is starting"})
    worker.send(signal.SIGTERM)

    assert worker.ends(within=20) == 0


# The end, whatever happens


@pytest.mark.parametrize("name", ["deaf", "blocking", "leaving_a_thread"])
def test_it_ends_five_seconds_after_the_shutdown_timeout_whatever_a_handler_does(
    start: Start, jobs: Jobs, name: str
) -> None:
    """A swallowed cancellation, a blocked event loop, a thread that the interpreter would wait for."""
    jobs.insert_one(document(name=name))
    worker = start("worker", "stubborn:monque")
    worker.wait_for(f"{name} began")
    before = time.monotonic()
    worker.send(signal.SIGTERM)

    assert worker.ends(within=30) == 1
    assert 6 <= time.monotonic() - before < 15
    assert re.search(r"ERROR monque.cli\[\d+\]: this process was told to stop .*stubborn.py", worker.text)


def test_it_ends_also_while_the_lifespan_of_an_app_hangs(start: Start, jobs: Jobs) -> None:
    worker = start("worker", "stubborn:app")
    worker.wait_for(READY)
    worker.send(signal.SIGTERM)
    worker.wait_for("the lifespan hangs")

    assert worker.ends(within=30) == 1
    assert re.search(r"this process was told to stop .*stubborn.py:\d+ \(lifespan\)", worker.text)


def test_a_second_signal_leaves_five_seconds_and_a_third_one_none(start: Start, jobs: Jobs) -> None:
    jobs.insert_one(document(name="deaf"))
    worker = start("worker", "stubborn:patient")
    worker.wait_for("deaf began")
    worker.send(signal.SIGTERM)
    worker.wait_for("waits at most 600 s")
    worker.send(signal.SIGTERM)
    worker.wait_for("deaf was cancelled")
    before = time.monotonic()
    worker.send(signal.SIGTERM)

    assert worker.ends(within=30) == 1
    assert time.monotonic() - before < 3
    assert "this process was told to stop" in worker.text


def test_a_supervisor_kills_a_process_that_does_not_react(start: Start, jobs: Jobs) -> None:
    """It is stopped, so that no code of its own can end it."""
    jobs.insert_one(document(name="numb"))
    worker = start("worker", "stubborn:monque", "--processes", "2")
    worker.wait_for("numb began")
    worker.send(signal.SIGTERM)

    assert worker.ends(within=30) == 1
    assert len(worker.wait_for(r"worker process \d \(pid \d+\) was told to end and did not react")) == 1
    assert len(worker.wait_for("was ended by SIGKILL")) == 1


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux says whether a process is gone")
def test_jobs_of_a_process_that_is_killed_run_at_once_in_another_one(start: Start, jobs: Jobs) -> None:
    """Its supervisor has seen it die: nobody waits for the half minute after which it would count as dead."""
    jobs.insert_one(document(name="last"))
    worker = start("worker", "lasting:monque", "--processes", "2")
    [first] = worker.wait_for(r"attempt 1 in (\d+)")
    worker.wait_for(READY, times=2)
    until(lambda: jobs.database["monque_jobs_instances"].count_documents({"pid": int(first)}) == 1)
    os.kill(int(first), signal.SIGKILL)
    killed = time.monotonic()
    worker.wait_for(r"attempt 2 in \d+", within=20)

    assert time.monotonic() - killed < 20  # 2 s on a machine that is not busy
    worker.send(signal.SIGTERM)
    assert worker.ends() == 0


@pytest.mark.parametrize("options", [("--processes", "2"), ("--reload",)])
def test_on_windows_several_processes_and_reloading_are_refused_in_a_sentence(
    call: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, options: tuple[str, ...]
) -> None:
    monkeypatch.setattr("sys.platform", "win32")
    refused = call("worker", "shop:monque", *options)

    assert refused.exit_code == 2
    assert "--processes and --reload are not available on Windows" in refused.output


def test_a_reload_does_not_wait_for_a_deaf_handler_for_ever(start: Start, jobs: Jobs, tmp_path: Path) -> None:
    source = tmp_path / "jobs.py"
    source.write_text((APPS / "stubborn.py").read_text())
    jobs.insert_one(document(name="deaf"))
    worker = start("worker", "jobs:monque", "--reload", folder=tmp_path)
    worker.wait_for("deaf began")
    source.write_text(RELOADED.replace("WORD", "second"))

    worker.wait_for(r"worker process 1 \(pid \d+\) ended with exit code 1", within=30)
    worker.wait_for(READY, times=2)
    worker.send(signal.SIGTERM)
    assert worker.ends() == 0


def test_a_port_that_is_taken_is_told_in_a_sentence(start: Start) -> None:
    with socket.create_server(("", 0)) as other:
        port = other.getsockname()[1]
        worker = start("worker", "shop:monque", "--health-port", str(port))

        assert worker.ends() == 1
    assert worker.text.startswith(f"Error: cannot listen on the health port {port}: ")


# Few files


def test_idle_connections_to_the_health_port_cost_no_job_an_attempt(start: Start, jobs: Jobs) -> None:
    """300 of them, where the process may open 48 files more: 16 connections, and what a child needs."""
    port = free_port()
    worker = start("worker", "crowded:monque", "--health-port", str(port))
    until(lambda: ask(port, "/readyz")[0] == 200)
    most = len(list(Path(f"/proc/{worker.pid}/fd").iterdir())) + 48
    resource.prlimit(worker.pid, resource.RLIMIT_NOFILE, (most, most))
    with ExitStack() as stack:
        for _ in range(300):
            idle = stack.enter_context(socket.socket())
            idle.setblocking(False)
            idle.connect_ex(("127.0.0.1", port))
        jobs.insert_many(document(name="compute", data=number) for number in range(20))

        until(lambda: ask(port, "/healthz")[0] == 200)
        until(lambda: jobs.count_documents({"status": "completed"}) == 20)
    assert jobs.count_documents({"failCount": {"$gt": 0}}) == 0
    worker.send(signal.SIGTERM)

    assert worker.ends() == 0
    assert "ERROR" not in worker.text


def test_an_idle_connection_to_the_health_port_is_closed_after_a_second(start: Start) -> None:
    port = free_port()
    start("worker", "shop:monque", "--health-port", str(port))
    until(lambda: ask(port, "/healthz")[0] == 200)
    with socket.create_connection(("127.0.0.1", port), timeout=10) as idle:
        before = time.monotonic()

        assert idle.recv(1) == b""
        assert 0.9 < time.monotonic() - before < 4


@pytest.mark.parametrize(("host", "is_open"), [((), False), (("--host", "0.0.0.0"), True)])  # noqa: S104
@pytest.mark.parametrize("processes", ["1", "2"])
def test_ports_are_open_to_other_machines_only_if_that_is_said(
    start: Start, host: tuple[str, ...], is_open: bool, processes: str
) -> None:
    """127.0.0.2 is an address of this machine on which only who listens on all addresses is reached."""
    ports = free_port(), free_port()
    named = ("--health-port", str(ports[0]), "--metrics-port", str(ports[1]))
    start("worker", "shop:monque", *named, *host, "--processes", processes)
    until(lambda: ask(ports[0], "/readyz")[0] == 200)

    for port in ports:
        with socket.socket() as other:
            assert (other.connect_ex(("127.0.0.2", port)) == 0) is is_open


def test_a_child_that_cannot_be_started_for_want_of_files_is_no_failure_of_the_job(
    start: Start, jobs: Jobs, tmp_path: Path
) -> None:
    """Nothing can be opened, not even the module that starts children: the job waits, and runs later."""
    release = tmp_path / "release"
    worker = start("worker", "crowded:monque")
    resource.prlimit(worker.pid, resource.RLIMIT_NOFILE, (64, 64))
    jobs.insert_one(document(name="hoard", data=str(release)))
    worker.wait_for("hoarded")
    job = jobs.insert_one(document(name="compute", data=1)).inserted_id
    seen: set[Any] = set()

    def was_tried_again() -> bool:
        stored = jobs.find_one({"_id": job})
        assert stored is not None
        assert stored["failCount"] == 0
        seen.add(stored["updatedAt"])
        return len(seen) > 6  # it was stored, and claimed and put back three times

    until(was_tried_again)
    release.touch()
    until(lambda: jobs.count_documents({"status": "completed"}) == 2)
    worker.send(signal.SIGTERM)

    assert worker.ends() == 0
    assert worker.text.count("no child process can be started") == 1
    assert jobs.count_documents({"failCount": 0}) == 2
    assert "ERROR" not in worker.text


def test_until_idle_processes_what_is_due_and_ends(start: Start, jobs: Jobs) -> None:
    jobs.insert_many(
        [document(name="say", data="one"), document(name="say", data="two"), document(name="other")]
    )
    worker = start("worker", "shop:make", "--until-idle")

    assert worker.ends() == 0
    assert sorted(worker.wait_for(r"said (\w+)", times=2)) == ["one", "two"]
    assert [job["name"] for job in jobs.find({"status": "pending"})] == ["other"]


@pytest.mark.parametrize("processes", ["1", "2"])
def test_it_runs_on_uvloop_if_told_to(start: Start, jobs: Jobs, processes: str) -> None:
    jobs.insert_one(document(name="loop"))
    options = ("--until-idle", "--loop", "uvloop", "--processes", processes)
    worker = start("worker", "shop:on_any_loop", *options)

    assert worker.ends() == 0
    assert worker.wait_for(r"on a loop of (\w+)") == ["uvloop"]


def test_only_some_workers_run(start: Start, jobs: Jobs) -> None:
    jobs.insert_many([document(name="say", data="one"), document(name="work", data=0.0)])

    only = start("worker", "shop:monque", "--until-idle", "--only", "work", "--concurrency", "7")
    assert only.wait_for(READY) == ["work (50 at once)"]
    assert only.ends() == 0
    assert {job["name"]: job["status"] for job in jobs.find()} == {"say": "pending", "work": "completed"}

    rest = start("worker", "shop:monque", "--until-idle", "--except", "work", "--concurrency", "7")
    assert rest.wait_for(READY) == ["patient (50 at once), say (7 at once)"]
    assert rest.ends() == 0
    assert jobs.count_documents({"status": "completed"}) == 2


def test_the_address_given_takes_the_place_of_the_one_in_the_code(start: Start, jobs: Jobs, uri: str) -> None:
    jobs.insert_one(document(name="work", data=0.0))

    assert start("worker", "shop:elsewhere", "--uri", uri, "--until-idle").ends() == 0
    assert jobs.find_one()["status"] == "completed"


def test_a_monque_that_its_module_has_opened_runs_unless_an_option_would_change_it(
    start: Start, call: Call
) -> None:
    call("enqueue", "work", "1")

    worker = start("worker", "opened:monque", "--until-idle", "--only", "work")
    assert worker.ends() == 0
    assert "worked" in worker.text

    for option in ("--concurrency=7", "--uri=mongodb://127.0.0.1:1/shop"):
        refused = start("worker", "opened:monque", "--until-idle", option)
        assert refused.ends() == 2
        assert "this Monque is open, and its database and options can be changed only before" in refused.text


def test_a_sync_monque_is_run_and_stopped(start: Start, jobs: Jobs) -> None:
    jobs.insert_one(document(name="work", data=0.0))
    worker = start("worker", "shop:blocking")
    worker.wait_for("worked in a thread")
    until(lambda: jobs.count_documents({"status": "completed"}) == 1)
    worker.send(signal.SIGTERM)

    assert worker.ends() == 0


def test_the_jobs_of_a_fastapi_app_run_in_its_lifespan(start: Start, jobs: Jobs) -> None:
    """The app itself processes none."""
    jobs.insert_one(document(name="greet", data="Ada"))
    worker = start("worker", "web:app")
    worker.wait_for("hello Ada")
    worker.send(signal.SIGTERM)

    assert worker.ends() == 0
    assert "the app has ended" in worker.text


def test_log_lines_can_be_json(start: Start) -> None:
    worker = start("worker", "shop:monque", "--until-idle", "--log-format", "json")
    assert worker.ends() == 0

    told = [json.loads(line) for line in worker.text.splitlines()]
    assert [line["message"].split()[2].rstrip(";") for line in told] == ["works", "stops", "stopped"]
    assert {(line["level"], line["logger"], line["pid"]) for line in told} == {("info", "monque", worker.pid)}


def test_the_log_level_is_kept(start: Start) -> None:
    worker = start("worker", "shop:monque", "--until-idle", "--log-level", "error")

    assert worker.ends() == 0
    assert worker.text == ""


# Several processes


def test_four_processes_drain_many_jobs_while_one_of_them_is_killed(start: Start, jobs: Jobs) -> None:
    """All are done, the dead one is told of and replaced, and what it had claimed is run by others."""
    port = free_port()
    worker = start("worker", "shop:monque", "--processes", "4", "--health-port", str(port))
    instances = worker.wait_for(r"monque\[(\d+)\]: instance (\S+) works on", times=4)
    until(lambda: ask(port, "/readyz") == (200, {"status": "ready"}))
    many = at_scale(5000, 2000)
    jobs.insert_many(document(name="work", data=0.05, nextRunAt=ago(seconds=many - n)) for n in range(many))
    pid, instance = instances[2]
    until(lambda: jobs.count_documents({"claimedBy": instance}) > 0)
    os.kill(int(pid), signal.SIGKILL)
    assert jobs.count_documents({"claimedBy": instance}) > 0
    assert jobs.count_documents({"status": "pending"}) > 0

    worker.wait_for(rf"worker process \d \(pid {pid}\) was ended by SIGKILL; the next one starts in 0.5 s")
    worker.wait_for(READY, times=5)
    until(lambda: jobs.count_documents({"status": "completed"}) == many)
    until(lambda: ask(port, "/readyz")[0] == 200)
    assert len(worker.children()) == 4
    assert int(pid) not in worker.children()

    worker.send(signal.SIGTERM)
    assert worker.ends() == 0
    assert len(worker.wait_for(r"worker process \d \(pid \d+\) ended with exit code 0", times=4)) == 4


def test_a_process_that_stands_still_is_not_ready_until_it_goes_on(start: Start) -> None:
    """It cannot say itself that it is not; what it said last must not count for ever."""
    port = free_port()
    worker = start("worker", "shop:monque", "--processes", "2", "--health-port", str(port))
    pid, _ = worker.wait_for(r"monque\[(\d+)\]: instance (?:\S+) works on", times=2)
    until(lambda: ask(port, "/readyz") == (200, {"status": "ready"}))
    os.kill(int(pid), signal.SIGSTOP)
    until(lambda: ask(port, "/readyz")[0] == 503, within=10)

    assert ask(port, "/readyz")[1]["reason"] == "1 of 2 worker processes are ready"
    assert ask(port, "/healthz") == (200, {"status": "alive"})
    os.kill(int(pid), signal.SIGCONT)
    until(lambda: ask(port, "/readyz")[0] == 200)


def test_ctrl_c_is_passed_on_and_each_process_finishes_its_jobs(start: Start, jobs: Jobs) -> None:
    """A terminal sends it to the whole group of processes; hearing it twice would mean to give them back."""
    worker = start("worker", "shop:monque", "--processes", "2", "--instance-concurrency", "2")
    worker.wait_for(READY, times=2)
    jobs.insert_many(document(name="patient", data=3.0) for _ in range(4))
    worker.wait_for("begun", times=4)
    assert len(jobs.distinct("claimedBy")) == 2
    os.killpg(worker.pid, signal.SIGINT)

    assert worker.ends() == 0
    assert [job["status"] for job in jobs.find()] == ["completed"] * 4


def test_processes_that_are_done_are_not_replaced(start: Start, jobs: Jobs) -> None:
    jobs.insert_many(document(name="say", data="word") for _ in range(20))
    worker = start("worker", "shop:monque", "--processes", "2", "--until-idle")

    assert worker.ends() == 0
    assert len(worker.wait_for("said word", times=20)) == 20
    assert len(worker.wait_for("found nothing more to do", times=2)) == 2


def test_without_its_supervisor_a_process_stops_by_itself(start: Start, jobs: Jobs) -> None:
    """Killed, it could tell nobody."""
    jobs.insert_one(document(name="patient", data=1.0))
    worker = start("worker", "shop:monque", "--processes", "2")
    worker.wait_for("begun")
    worker.send(signal.SIGKILL)

    worker.ends()  # everything it has started has closed its output
    assert jobs.find_one()["status"] == "completed"


BROKEN_LATER = """
import asyncio, os
from pathlib import Path
from monque import Monque

if Path("loaded").exists():
    1 / 0
Path("loaded").touch()
monque = Monque()

@monque.worker("die")
async def die(job):
    os._exit(9)
"""


def test_a_process_that_dies_at_its_start_is_tried_again_ever_later(
    start: Start, jobs: Jobs, tmp_path: Path
) -> None:
    """The code was loaded once, so it may be good again."""
    (tmp_path / "later.py").write_text(BROKEN_LATER)
    jobs.insert_one(document(name="die"))
    worker = start("worker", "later:monque", "--processes", "2", folder=tmp_path)

    worker.wait_for(r"ended with exit code 1; the next one starts in 0.5 s")
    worker.wait_for(r"ended with exit code 1; the next one starts in 1 s")
    worker.send(signal.SIGTERM)
    assert worker.ends() == 0


def test_code_that_cannot_be_imported_ends_all_processes(start: Start, tmp_path: Path) -> None:
    (tmp_path / "broken.py").write_text("1 / 0")
    worker = start("worker", "broken:monque", "--processes", "3", folder=tmp_path)

    assert worker.ends() == 1
    assert worker.text.count("ZeroDivisionError: division by zero") == 1
    assert "Error: broken cannot be loaded:\n" in worker.text
    assert "importlib" not in worker.text
    assert "broken:monque cannot be loaded, so no worker process runs" in worker.text


# Reloading

RELOADED = """
import asyncio
from datetime import timedelta
from monque import Monque, Options
monque = Monque(options=Options(poll_interval=timedelta(milliseconds=200)))

@monque.worker("say")
async def say(job):
    print("WORD", job.data, flush=True)
"""


def test_a_change_of_the_source_starts_it_again_after_its_jobs(
    start: Start, jobs: Jobs, tmp_path: Path
) -> None:
    source = tmp_path / "jobs.py"
    slow = RELOADED.replace(
        "    print", "    print('begun', flush=True)\n    await asyncio.sleep(2)\n    print"
    )
    source.write_text(slow.replace("WORD", "first"))
    worker = start("worker", "jobs:monque", "--reload", folder=tmp_path)
    worker.wait_for(READY)
    jobs.insert_one(document(name="say", data=1))
    worker.wait_for("begun")

    source.write_text(RELOADED.replace("WORD", "second"))
    worker.wait_for("jobs.py changed")
    worker.wait_for(READY, times=2)
    assert "first 1" in worker.text
    jobs.insert_one(document(name="say", data=2))
    worker.wait_for("second 2")

    source.write_text("this is no Python")
    worker.wait_for("SyntaxError")
    source.write_text(RELOADED.replace("WORD", "third"))
    jobs.insert_one(document(name="say", data=3))
    worker.wait_for("third 3")
    worker.send(signal.SIGTERM)
    assert worker.ends() == 0


@pytest.mark.parametrize(
    ("source", "told"),
    [
        (
            "x = 1\ny = (x\n",
            ['  File "{file}", line 2', "    y = (x", "        ^", "SyntaxError: '(' was never closed"],
        ),
        (
            "1 / 0\n",
            [
                "Traceback (most recent call last):",
                '  File "{file}", line 1, in <module>',
                "    1 / 0",
                "    ~~^~~",
                "ZeroDivisionError: division by zero",
            ],
        ),
    ],
    ids=["syntax", "error"],
)
def test_code_that_cannot_be_loaded_shows_its_own_lines_last_and_no_others(
    start: Start, tmp_path: Path, source: str, told: list[str]
) -> None:
    file = tmp_path / "jobs.py"
    file.write_text(source)
    worker = start("worker", "jobs:monque", "--reload", folder=tmp_path)
    worker.wait_for(re.escape(told[-1]))
    file.write_text(RELOADED)
    worker.wait_for(READY)

    lines = worker.text.partition(" jobs.py changed: ")[0].splitlines()[:-1]
    assert lines[1:] == [
        "Error: jobs cannot be loaded; it is tried again when a file changes:",
        *(line.format(file=file) for line in told),
    ]
    worker.send(signal.SIGTERM)
    assert worker.ends() == 0


def test_dev_brings_its_own_mongodb(start: Start, tmp_path: Path) -> None:
    """Whatever the code names; other commands without an address see the same jobs."""
    (tmp_path / "jobs.py").write_text(
        RELOADED.replace("Monque(options", "Monque('mongodb://127.0.0.1:1', options")
    )
    own = {"folder": tmp_path, "MONQUE_DATA_DIR": str(tmp_path / "data"), "MONQUE_URI": ""}
    dev = start("dev", "jobs:monque", **own)
    dev.wait_for(READY)
    assert f"MongoDB keeps the jobs in {tmp_path / 'data'}" in dev.text

    assert start("enqueue", "say", "7", **own).ends() == 0
    dev.wait_for("WORD 7")
    dev.send(signal.SIGINT)
    assert dev.ends() == 0
