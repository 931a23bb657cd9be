"""The small parts: health answers, changed files, log lines, times."""

from __future__ import annotations

import json
import logging
import os
from datetime import timedelta
from pathlib import Path

import click
import pytest

from monque import Monque, Options
from monque.cli.listen import answer
from monque.cli.log import JsonFormatter, TextFormatter
from monque.cli.supervise import described, modified_times
from monque.cli.times import duration, span
from monque.cli.work import Place, Settings, configure


@pytest.mark.parametrize(
    ("request_line", "trouble", "status", "body"),
    [
        ("GET /healthz HTTP/1.1", "ill", 200, {"status": "alive"}),
        ("GET /readyz HTTP/1.1", None, 200, {"status": "ready"}),
        ("GET /readyz?full=1 HTTP/1.0", "ill", 503, {"status": "not ready", "reason": "ill"}),
        ("GET / HTTP/1.1", None, 404, {"status": "there are /healthz and /readyz"}),
        ("POST /readyz HTTP/1.1", None, 405, {"status": "use GET"}),
        ("nonsense", None, 404, {"status": "there are /healthz and /readyz"}),
    ],
)
def test_health_is_answered(
    request_line: str, trouble: str | None, status: int, body: dict[str, str]
) -> None:
    response = answer(f"{request_line}\r\nHost: x\r\n\r\n".encode(), lambda: trouble)

    head, _, content = response.partition(b"\r\n\r\n")
    assert head.startswith(f"HTTP/1.1 {status} ".encode())
    assert json.loads(content) == body
    assert f"Content-Length: {len(content)}".encode() in head


def test_a_question_for_the_head_has_no_content() -> None:
    response = answer(b"HEAD /healthz HTTP/1.1\r\n\r\n", lambda: None)

    assert response.endswith(b"\r\n\r\n")
    assert b"Content-Length: 19" in response


def test_changed_new_and_removed_source_files_are_noticed(tmp_path: Path) -> None:
    for name in ("a.py", "b.py", "notes.txt", ".git/hook.py", "env/lib/x.py", "node_modules/y.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    (tmp_path / "env" / "pyvenv.cfg").touch()
    before = modified_times(tmp_path)

    assert {path.name for path in before} == {"a.py", "b.py"}

    os.utime(tmp_path / "a.py", ns=(1, 1))
    (tmp_path / "b.py").unlink()
    (tmp_path / "c.py").touch()
    (tmp_path / "notes.txt").write_text("changed")
    after = modified_times(tmp_path)
    assert {path.name for path, _ in before.items() ^ after.items()} == {"a.py", "b.py", "c.py"}


def record(**extra: object) -> logging.LogRecord:
    fields = {
        "name": "monque",
        "levelname": "WARNING",
        "msg": "%s jobs",
        "args": (3,),
        "process": 7,
        "created": 0.5,
    }
    return logging.makeLogRecord({**fields, **extra})


def test_a_json_line_has_the_fields_that_were_logged() -> None:
    assert json.loads(JsonFormatter().format(record(job_id="abc"))) == {
        "time": "1970-01-01T00:00:00.500+00:00",
        "level": "warning",
        "logger": "monque",
        "message": "3 jobs",
        "pid": 7,
        "job_id": "abc",
    }


def test_a_json_line_holds_a_whole_traceback() -> None:
    try:
        raise ValueError("bad")
    except ValueError as error:
        logged = JsonFormatter().format(record(exc_info=(ValueError, error, error.__traceback__)))

    assert "\n" not in logged
    assert json.loads(logged)["exception"].endswith("ValueError: bad")


def test_a_text_line_has_the_fields_at_its_end() -> None:
    assert TextFormatter().format(record(job_id="abc")).endswith("WARNING monque[7]: 3 jobs job_id=abc")


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("250ms", timedelta(milliseconds=250)),
        ("1.5h", timedelta(minutes=90)),
        ("1w2d", timedelta(days=9)),
        ("5m", timedelta(minutes=5)),
        ("0s", timedelta(0)),
    ],
)
def test_durations_are_read(text: str, meant: timedelta) -> None:
    assert duration(text) == meant


@pytest.mark.parametrize("text", ["", "5", "m", "5 m", "5m!", "-5m", "5M", "1e3s"])
def test_what_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(click.BadParameter):
        duration(text)


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0.0123, "12ms"),
        (1.25, "1.2s"),
        (59.9, "59s"),
        (60, "1m"),
        (3725, "1h 2m"),
        (90061, "1d 1h"),
        (-5, "0ms"),
    ],
)
def test_durations_are_told_in_two_units(seconds: float, words: str) -> None:
    assert span(timedelta(seconds=seconds)) == words


def test_the_end_of_a_process_is_told_in_words() -> None:
    assert described(1) == "ended with exit code 1"
    assert described(-9) == "was ended by SIGKILL"


def test_each_of_several_processes_has_an_instance_id_of_its_own() -> None:
    named, nameless = Monque(options=Options(instance_id="web")), Monque()
    before = nameless.instance_id
    for monque in (named, nameless):
        configure(
            monque,
            Settings(target="shop:monque", concurrency=7, child_processes=3),
            Place(number=2, descriptor=9),
        )

    assert (named.instance_id, nameless.instance_id) == ("web-2", before)
    assert (named.options.worker_concurrency, named.options.child_processes) == (7, 3)


def test_the_settings_come_back_from_their_arguments(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a supervisor hands to its processes means the same there."""
    from monque.cli import worker as module

    given = Settings(
        target="shop:monque",
        uri="mongodb://host/db",
        concurrency=3,
        instance_concurrency=9,
        child_processes=2,
        only=("a", "--b"),
        until_idle=True,
        log_level="warning",
        log_format="json",
    )
    seen: list[Settings] = []
    monkeypatch.setattr(module, "run_worker", lambda settings, **_: seen.append(settings))
    monkeypatch.setattr(module, "set_up_logging", lambda *_: None)
    module.worker.main(given.arguments(), standalone_mode=False)

    assert seen == [given]
