"""The command itself: help, completion, start, errors that concern all commands."""

from __future__ import annotations

import json
import os
import re
import resource
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner, Result

import monque as package
from monque.cli.commands import COMMANDS, INTERRUPTED
from monque.cli.commands import monque as command

MONQUE = [sys.executable, "-m", "monque"]
NOWHERE = "mongodb://127.0.0.1:1/shop?serverSelectionTimeoutMS=200"


def found_command(name: str) -> click.Command:
    found = command.get_command(click.Context(command), name)
    assert found is not None
    return found


def commands() -> Iterator[tuple[str, ...]]:
    """All commands by their words, `jobs list` included."""
    for name in COMMANDS:
        yield (name,)
        found = found_command(name)
        if isinstance(found, click.Group):
            yield from ((name, below) for below in found.commands)


ALL = list(commands())


@pytest.mark.parametrize("words", ALL, ids=" ".join)
def test_each_command_has_help_with_an_example(words: tuple[str, ...]) -> None:
    shown = CliRunner().invoke(command, [*words, "--help"])

    assert shown.exit_code == 0
    assert re.search(rf"Examples?:\n +monque {' '.join(words)}", shown.output), shown.output


def test_the_overview_says_of_each_command_what_its_own_help_says() -> None:
    """It does so without importing them."""
    for name, summary in COMMANDS.items():
        own = found_command(name).help
        assert own is not None
        assert own.partition("\n")[0] == summary


@pytest.mark.parametrize("words", ALL, ids=" ".join)
def test_every_command_that_looks_can_print_json(words: tuple[str, ...]) -> None:
    runs_programs = {("worker",), ("web",), ("dev",), ("demo",), ("completion",), ("jobs",), ("schedules",)}
    shown = CliRunner().invoke(command, [*words, "--help"]).output

    assert ("\n  --json" in shown) == (words not in runs_programs)
    assert ("\n  --uri" in shown) == (words not in runs_programs - {("worker",), ("web",)})


def test_the_version_is_told() -> None:
    told = CliRunner().invoke(command, ["--version"])

    assert told.output == f"monque, version {package.__version__}\n"


def test_it_starts_in_less_than_300_ms() -> None:
    """CPU time, of one of some starts: what else this machine does at the time must not count."""
    times = []
    for _ in range(10):
        before = _cpu_time_of_children()
        subprocess.run([*MONQUE, "--help"], check=True, capture_output=True)
        times.append(_cpu_time_of_children() - before)
        if times[-1] < 0.3:
            return

    pytest.fail(f"it took {min(times):.3f} s at best")


def _cpu_time_of_children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def test_help_imports_nothing_that_only_some_commands_need() -> None:
    program = (
        "import sys\n"
        "from monque.cli import main\n"
        "try: main()\n"
        "except SystemExit: print(*sys.modules, file=sys.stderr)"
    )
    printed = subprocess.run(
        [sys.executable, "-c", program, "--help"], capture_output=True, text=True, check=True
    )
    modules = set(printed.stderr.split())

    assert "click" in modules
    assert (
        modules & {"pymongo", "asyncio", "rich", "pydantic", "monque._api.monque", "monque.cli.worker"}
        == set()
    )


def test_without_the_extra_it_says_what_to_install(tmp_path: Path) -> None:
    """As if click were not there."""
    (tmp_path / "click.py").write_text("raise ModuleNotFoundError(name='click')")
    program = subprocess.run(
        MONQUE, capture_output=True, text=True, env={**os.environ, "PYTHONPATH": str(tmp_path)}
    )

    assert program.returncode == 1
    assert program.stderr == (
        "monque: the command line needs click; install it with: pip install 'pymonque[cli]'\n"
    )


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_completion_scripts_are_printed(shell: str) -> None:
    printed = CliRunner().invoke(command, ["completion", shell])

    assert printed.exit_code == 0
    assert "_MONQUE_COMPLETE" in printed.output


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        ("monque jo", ["jobs"]),
        ("monque sc", ["schedule", "schedules"]),
        ("monque jobs re", ["reschedule", "retry"]),
        ("monque jobs list --status pro", ["processing"]),
        ("monque --ver", ["--version"]),
    ],
)
def test_the_shell_completes(words: str, offered: list[str]) -> None:
    asked = {"COMP_WORDS": words, "COMP_CWORD": str(words.count(" "))}
    printed = subprocess.run(
        MONQUE,
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, **asked, "_MONQUE_COMPLETE": "zsh_complete"},
    )

    assert sorted(printed.stdout.split("\n")[1::3]) == offered


def test_an_unreachable_database_is_one_sentence_and_exit_code_1() -> None:
    told = subprocess.run([*MONQUE, "stats", "--uri", NOWHERE], capture_output=True, text=True, timeout=60)

    assert (told.returncode, told.stdout) == (1, "")
    assert told.stderr.startswith(
        "Error: could not open the database: no MongoDB at 127.0.0.1:1 (connection refused)"
    )
    assert told.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["nonsense"], "No such command 'nonsense'"),
        (["stats", "--uri", "http://example.org"], "the MongoDB URI cannot be used"),
        (["stats", "--collection", "system.jobs"], "collection must be a collection name"),
        (["stats", "--nonsense"], "No such option"),
        (["jobs"], "Usage: monque jobs"),
    ],
)
def test_wrong_input_is_answered_with_the_usage_and_exit_code_2(
    arguments: list[str], problem: str, call: Callable[..., Result]
) -> None:
    told = call(*arguments)

    assert told.exit_code == 2
    assert told.output.startswith("Usage: monque")
    assert problem in told.output


def test_ctrl_c_is_exit_code_130(start: Callable[..., Any]) -> None:
    top = start("top", "--json", "--count", "100", "--interval", "60")
    top.wait_for("taken_at")
    top.send(signal.SIGINT)

    assert top.ends() == INTERRUPTED
    assert "Traceback" not in top.text


def test_without_an_address_it_uses_the_embedded_server(tmp_path: Path) -> None:
    """And says so, where it does not disturb who reads the output."""
    environment = {**os.environ, "MONQUE_DATA_DIR": str(tmp_path / "data")}
    environment.pop("MONQUE_URI", None)
    stored = subprocess.run(
        [*MONQUE, "enqueue", "work", "--json"], capture_output=True, text=True, env=environment, timeout=60
    )

    assert stored.returncode == 0
    assert json.loads(stored.stdout)["name"] == "work"
    assert f"keeps the jobs in {tmp_path / 'data'}" in stored.stderr
