"""Beside an older version: what that cannot keep is not held against it, and everything else is."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from bench.checkouts import HERE
from chaos.company import Company
from chaos.history import History, read
from support.tales import Tale, clock
from support.waiting import eventually


@pytest.fixture
def older(tale: Tale) -> Tale:
    """Bob is a process of an older version."""
    tale.tell(0.0, "conductor", "up", whom="bob", whose_pid=40, older=True)
    return tale


@pytest.mark.parametrize(("who", "broken"), [("ann", ["paused"]), ("bob", [])])
def test_an_older_version_ignores_a_pause(older: Tale, who: str, broken: list[str]) -> None:
    older.command(4.0, "pause", name="wait")
    older.store(7.0, "late")
    older.run(7.0, who, "late")
    older.found("late")

    assert [violation.rule for violation in older.verdict()] == broken


@pytest.mark.parametrize(("who", "broken"), [("ann", ["expired"]), ("bob", [])])
def test_an_older_version_ignores_an_expiry(older: Tale, who: str, broken: list[str]) -> None:
    older.store(3.0, "late", expires=1.0)
    older.run(6.0, who, "late")
    older.found("late", policy={"expiresAt": clock(4.0)})

    assert [violation.rule for violation in older.verdict()] == broken


@pytest.mark.parametrize(("who", "broken"), [("ann", ["cancelled"]), ("bob", [])])
def test_an_older_version_runs_a_job_that_was_to_stop(older: Tale, who: str, broken: list[str]) -> None:
    older.store(3.0, "stopped")
    older.start(3.0, "ann", "stopped")
    older.tell(3.5, "conductor", "down", whom="ann", whose_pid=30, code=-9, meant=True)
    older.command(3.2, "stop", job="stopped", status="processing", attempt=1)
    older.run(9.0, who, "stopped", 2)
    older.found("stopped", attempt=2)

    assert [violation.rule for violation in older.verdict()] == broken


@pytest.mark.parametrize(("who", "broken"), [("ann", ["time limit"]), ("bob", [])])
def test_an_older_version_knows_no_time_limit(older: Tale, who: str, broken: list[str]) -> None:
    older.store(3.0, "long", soft=0.5, max_attempts=2)
    older.start(3.0, who, "long")
    older.end(6.0, who, "long")
    older.complete(6.1, who, "long")
    older.found("long")

    assert [violation.rule for violation in older.verdict()] == broken


def fail_twice(tale: Tale, who: str, **fields: Any) -> None:
    """A job that may be tried once fails twice, and is completed then."""
    tale.store(3.0, "strict", how="policy", max_attempts=1)
    for attempt in (1, 2):
        tale.start(3.0 + attempt, who, "strict", attempt, fail_count=attempt - 1)
        tale.end(3.1 + attempt, who, "strict", attempt, "error")
        tale.fail(3.2 + attempt, who, "strict", attempt)
    tale.run(6.0, who, "strict", 3, fail_count=2)
    tale.found("strict", attempt=3, failCount=2, **fields)


def test_an_older_version_goes_by_its_options_and_keeps_no_history(older: Tale) -> None:
    fail_twice(older, "bob", history=[])

    assert older.verdict() == []


def test_a_job_that_only_this_version_ran_has_its_limits_and_its_history(older: Tale) -> None:
    fail_twice(older, "ann", history=[])

    rules = [violation.rule for violation in older.verdict()]
    assert sorted(rules) == ["history", "history", "history", "retries", "retries"]


def test_the_recovery_of_an_older_version_leaves_no_trace_in_the_history(older: Tale) -> None:
    older.store(3.0, "lost")
    older.start(3.0, "ann", "lost")
    older.end(8.0, "ann", "lost", 1, "error")
    older.tell(2.9, "ann", "stall", since=2.9)
    older.tell(7.9, "ann", "stall", since=3.0)
    older.run(7.5, "bob", "lost", 2)
    older.found("lost", attempt=2, crashCount=1)

    assert older.verdict() == []


@pytest.mark.parametrize("who", ["ann", "bob"])
def test_a_job_that_is_completed_twice_is_a_violation_whoever_ran_it(older: Tale, who: str) -> None:
    older.run(5.0, who, "good", 2)

    assert "completed twice" in {violation.rule for violation in older.verdict()}


class Nowhere:
    """No servers."""

    def uri(self, who: str) -> str:
        return "mongodb://127.0.0.1:1"


# A worker of another version, which says where it found itself, the library, and its arguments.
WORKER = """
import sys
from pathlib import Path
import monque
WHO, URI, FOLDER, CLOCK, SEED, PARENT = sys.argv[1:]
Path(FOLDER, f"{WHO}.found").write_text(f"{__file__} {monque.__file__}")
"""


async def test_every_other_worker_runs_the_program_and_the_library_of_its_checkout(tmp_path: Path) -> None:
    program, library = tmp_path / "chaos" / "worker.py", tmp_path / "src" / "monque" / "__init__.py"
    for file, text in ((program, WORKER), (library, "")):
        file.parent.mkdir(parents=True)
        file.write_text(text)
    history = History(tmp_path, "conductor")
    company = Company(Nowhere(), tmp_path, history, 1, tmp_path)
    company.workers, company.enqueuers, company.managers = company.workers[:2], [], []

    await company.start()

    def check() -> None:
        found = {path.name: path.read_text().split() for path in tmp_path.glob("*.found")}
        assert found == {"worker-2.found": [str(program), str(library)]}

    try:
        await eventually(check, within=30)
    finally:
        await company.close()
        history.close()
    started = [(event["whom"], event["older"]) for event in read(tmp_path) if event.kind == "up"]
    assert started[:2] == [("worker-1", False), ("worker-2", True)]


def test_an_unknown_commit_is_refused() -> None:
    command = [sys.executable, "-m", "chaos", "--old", "no-such-commit"]
    ended = subprocess.run(command, cwd=HERE, capture_output=True, text=True, check=False)

    assert ended.returncode == 2
    assert "git knows no commit, branch or tag 'no-such-commit'" in ended.stderr
