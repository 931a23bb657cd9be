"""The commands of `manage.py`, in processes of their own."""

from __future__ import annotations

import json
import logging
import signal
import subprocess
import sys
from pathlib import Path
from time import monotonic, sleep
from typing import Any

import pytest

from .conftest import Configure, Work

# As a test of a project would use it.
IN_PROCESS = """
import django
django.setup()
from django.core.management import call_command
from monque.django import get_monque
from support.djangoapp.tasks import add, seen, send

@get_monque().worker("plain")
def plain(job):
    seen.append(job.data)

results = [add.enqueue(40, 2), send.enqueue("ada@example.org")]
call_command("monque_worker", until_idle=True, queue=["emails"])
print(seen)
plain.enqueue("first")
call_command("monque_worker", until_idle=True, log_level="error")
plain.enqueue("second")
call_command("monque_worker", until_idle=True, only=["plain"], log_level="error")
print(seen)
print([result.task.get_result(result.id).return_value for result in results])
call_command("monque_stats", queue=["emails"])
"""


def run(environment: dict[str, str], *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments], env=environment, capture_output=True, text=True, timeout=60
    )


def test_whoever_calls_the_command_can_go_on(environment: dict[str, str]) -> None:
    done = run(environment, "-c", IN_PROCESS)

    assert done.stdout.splitlines()[:3] == [
        "['ada@example.org']",
        "['ada@example.org', (40, 2), 'first', 'second']",
        "[42, 'ada@example.org']",
    ], done.stderr
    table = [line.split() for line in done.stdout.splitlines()[3:]]
    assert ["emails:support.djangoapp.tasks.send", "0", "0", "1", "0", "0"] in table
    assert all(row[0] == "name" or row[0].startswith("emails:") for row in table)


def test_several_processes_run_tasks_and_sigterm_lets_them_finish(
    environment: dict[str, str], configure: Configure, tmp_path: Path
) -> None:
    from support.djangoapp.tasks import wait_for_file

    configure()
    started, going_on = tmp_path / "started", tmp_path / "going-on"
    result = wait_for_file.enqueue(str(started), str(going_on))
    process = subprocess.Popen(
        [sys.executable, "-m", "django", "monque_worker", "--processes", "2", "--log-format", "json"],
        env=environment,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        deadline = monotonic() + 60
        while not started.exists():
            assert monotonic() < deadline
            sleep(0.01)
        result.refresh()
        assert (result.status, result.attempts, result.finished_at) == ("RUNNING", 1, None)
        assert result.started_at == result.last_attempted_at is not None
        process.send_signal(signal.SIGTERM)
        going_on.touch()
        _, log = process.communicate(timeout=60)
    finally:
        process.kill()
        process.wait()

    result.refresh()
    assert (process.returncode, result.status, result.return_value) == (0, "SUCCESSFUL", "gone on"), log
    assert len({json.loads(line)["pid"] for line in log.splitlines() if line.startswith("{")}) >= 2


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (
            {"queue": ["unknown"]},
            'no queue \'unknown\' in TASKS["default"]["QUEUES"]; it has default, emails',
        ),
        ({"reload": True, "until_idle": True}, "--reload and --until-idle"),
        ({"only": ["a"], "excluding": ["b"]}, "--only and --except"),
        ({"backend": "other"}, "has no alias 'other'"),
    ],
)
def test_wrong_options_are_told(configure: Configure, options: dict[str, Any], words: str) -> None:
    from django.core.management import CommandError, call_command

    configure()

    with pytest.raises(CommandError) as caught:
        call_command("monque_worker", **options)
    assert words in str(caught.value)


@pytest.mark.parametrize("count", ["0", "-1", "two"])
def test_a_wrong_count_is_told(configure: Configure, count: str) -> None:
    from django.core.management import CommandError, call_command

    configure()

    why = "is not in the range 1<=x<=256" if count != "two" else "is not a valid integer range"
    with pytest.raises(CommandError, match=f"argument --processes: '?{count}'? {why}"):
        call_command("monque_worker", f"--processes={count}")


def test_a_backend_that_is_none_of_monque_is_refused(configure: Configure) -> None:
    """Otherwise its worker would wait at an embedded server for jobs that nobody stores."""
    from django.core.management import CommandError, call_command
    from django.test import override_settings

    from support.djangoapp.interface import task_backends

    package = type(task_backends).__module__.partition(".base")[0]
    dummy = f"{package}.backends.dummy.DummyBackend"
    with (
        override_settings(TASKS={"default": {"BACKEND": dummy}}),
        pytest.raises(CommandError, match="DummyBackend, whose tasks are no jobs of Monque"),
    ):
        call_command("monque_worker")


def test_a_name_that_nobody_has_is_told(environment: dict[str, str]) -> None:
    done = run(environment, "-m", "django", "monque_worker", "--until-idle", "--only", "unknown")

    assert done.returncode == 2
    assert "has no worker 'unknown'" in done.stderr


def test_a_worker_warns_of_tasks_that_it_does_not_know(environment: dict[str, str], backend: Any) -> None:
    backend.monque.enqueue("default:shop.tasks.gone", {"args": [], "kwargs": {}})
    done = run(environment, "-m", "django", "monque_worker", "--until-idle")

    assert done.returncode == 0, done.stderr
    assert "jobs wait for the task shop.tasks.gone, which this worker does not know" in done.stderr


def test_it_takes_what_monque_worker_takes(project: None) -> None:
    from django.core.management import load_command_class

    from monque.cli.worker import worker

    parser = load_command_class("monque.django", "monque_worker").create_parser("manage.py", "monque_worker")
    ours = {option for action in parser._actions for option in action.option_strings}
    hidden = {"--supervised", "--metrics-folder"}
    theirs = {option for each in worker.params for option in each.opts if option.startswith("--")} - hidden

    assert theirs - ours == {"--app"}  # it is the project


@pytest.mark.parametrize("style", ["text", "json"])
def test_a_failed_task_is_one_traceback_on_the_console(
    environment: dict[str, str], configure: Configure, style: str
) -> None:
    """Django's own line about the task follows that of its job, and had the same traceback."""
    from support.djangoapp.tasks import fail, not_needed

    configure()
    result, cancelled = fail.enqueue("declined"), not_needed.enqueue()
    done = run(environment, "-m", "django", "monque_worker", "--until-idle", "--log-format", style)

    assert done.stderr.count("Traceback (most recent call last)") == 1, done.stderr
    assert "NoneType" not in done.stderr
    for task in (result, cancelled):
        assert f"Task id={task.id} path={task.task.module_path} state=FAILED" in done.stderr


def test_other_handlers_get_the_traceback_of_a_failed_task(configure: Configure, work: Work) -> None:
    """Whoever mails or reports what Django logs has it as without Monque."""
    from monque.django.interface import Task
    from support.djangoapp.tasks import fail

    records: list[logging.LogRecord] = []
    handler = logging.Handler()
    handler.emit = records.append
    logger = logging.getLogger(Task.__module__.removesuffix(".base"))
    logger.addHandler(handler)
    try:
        configure()
        fail.enqueue("declined")
        work()
    finally:
        logger.removeHandler(handler)

    (record,) = [each for each in records if each.levelno == logging.ERROR]
    assert record.exc_info is not None
    assert str(record.exc_info[1]) == "declined"


@pytest.mark.parametrize("propagates", [True, False])
def test_a_line_of_djangos_log_comes_once(configure: Configure, propagates: bool) -> None:
    """While DEBUG is set, Django has a console of its own, and the worker has one for everything."""
    from monque.django.serving import prepare

    logger = logging.getLogger("django")
    before, others = logger.handlers[:], [logging.NullHandler()]
    logger.handlers[:] = [logging.StreamHandler(), *others]
    try:
        logger.propagate = propagates
        configure()
        prepare()
        assert (logger.handlers == others) is propagates
    finally:
        logger.handlers[:] = before
        logger.propagate = True


@pytest.mark.parametrize(
    "command", [("monque_stats",), ("monque_worker", "--no-reload"), ("monque_worker", "--until-idle")]
)
def test_a_database_that_is_away_is_told_in_a_sentence(
    configure: Configure, command: tuple[str, ...]
) -> None:
    from django.core.management import CommandError, call_command

    configure(uri="mongodb://127.0.0.1:1/away?serverSelectionTimeoutMS=200")

    with pytest.raises(CommandError, match=r"no MongoDB at 127\.0\.0\.1:1"):
        call_command(*command)
