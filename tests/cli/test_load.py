"""`monque enqueue --from`: a job for each line of a file."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result
from pymongo.collection import Collection

from monque.cli import lines
from monque.cli.lines import BadLineError, Lines, open_lines

Call = Callable[..., Result]
Start = Callable[..., Any]
Jobs = Collection[dict[str, Any]]

NUMBERS = "".join(f"{number}\n" for number in range(2500))


def payloads(jobs: Jobs) -> list[Any]:
    return [job["data"] for job in jobs.find(sort=[("_id", 1)])]


def test_each_line_is_the_payload_of_a_job(call: Call, jobs: Jobs, tmp_path: Path) -> None:
    file = tmp_path / "orders.jsonl"
    file.write_bytes(b'\xef\xbb\xbf{"to": "ada"}\r\n\n  \n[1, 2.5, null]\n"gr\xc3\xbc\xc3\x9fe"\nnull')

    told = call("enqueue", "work", "--from", str(file), "--delay", "5m")

    assert (told.exit_code, told.output) == (0, "4 jobs were stored as work\n")
    assert payloads(jobs) == [{"to": "ada"}, [1, 2.5, None], "grüße", None]
    assert {job["nextRunAt"] > job["createdAt"] for job in jobs.find({"name": "work"})} == {True}


def test_lines_can_come_from_standard_input(call: Call, jobs: Jobs) -> None:
    told = call("enqueue", "work", "--from", "-", "--json", typed=NUMBERS)

    assert (told.exit_code, json.loads(told.stdout)) == (0, {"name": "work", "stored": 2500})
    assert sorted(payloads(jobs)) == list(range(2500))


def test_an_empty_file_has_no_jobs(call: Call, jobs: Jobs) -> None:
    assert call("enqueue", "work", "--from", "-", typed="\n").stdout == "0 jobs were stored as work\n"
    assert payloads(jobs) == []


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("{bad", "line 4 of standard input is not valid JSON (Expecting property name"),
        ("NaN", "line 4 of standard input is not valid JSON (NaN is no JSON); write one value a line"),
        ("1 2", "line 4 of standard input is not valid JSON (Extra data, column 3); write one value a line"),
        (str(2**64), "line 4 of standard input: the payload of 'work' cannot be stored"),
        ("[" * 100_000, "line 4 of standard input is not valid JSON (maximum recursion depth exceeded"),
    ],
)
def test_a_bad_line_is_named_and_nothing_is_stored(call: Call, jobs: Jobs, line: str, reason: str) -> None:
    told = call("enqueue", "work", "--from", "-", typed=f"1\n\n2\n{line}\n3\n")

    assert told.exit_code == 2
    assert reason in told.stderr
    assert "stored before" not in told.stderr
    assert payloads(jobs) == []


def test_a_bad_line_later_says_how_many_were_stored(call: Call, jobs: Jobs) -> None:
    told = call("enqueue", "work", "--from", "-", "--json", typed=NUMBERS + "{bad\n")

    assert told.exit_code == 1
    assert "line 2,501 of standard input is not valid JSON" in told.stderr
    assert told.stderr.endswith("; 2,000 jobs were stored before\n")
    assert json.loads(told.stdout) == {"name": "work", "stored": 2000}
    assert sorted(payloads(jobs)) == list(range(2000))


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["--from", "nowhere.jsonl"], "cannot read nowhere.jsonl: No such file or directory"),
        (["--from", "."], "cannot read .: Is a directory"),
        (["5", "--from", "-"], "JSON and --from cannot be given together"),
        (["null", "--from", "-"], "JSON and --from cannot be given together"),
        (["--from", "-", "--unique-key", "k"], "--unique-key and --from cannot be given together"),
    ],
)
def test_wrong_usage(call: Call, jobs: Jobs, arguments: list[str], reason: str) -> None:
    told = call("enqueue", "work", *arguments, typed="1\n")

    assert told.exit_code == 2
    assert reason in told.stderr
    assert payloads(jobs) == []


def test_text_that_is_not_utf_8(tmp_path: Path) -> None:
    file = tmp_path / "latin.jsonl"
    file.write_bytes('1\n"grüße"\n'.encode("latin-1"))

    with open_lines(str(file)) as given, pytest.raises(BadLineError, match=r"line 2 of .* is not UTF-8"):
        list(given.payloads())


def test_a_file_without_lines_is_not_read_into_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lines, "_LONGEST_LINE", 100)
    file = tmp_path / "one.json"
    file.write_text("[" + "1, " * 1000)

    with (
        open_lines(str(file)) as given,
        pytest.raises(BadLineError, match=r"line 1 of .* longer than 100"),
    ):
        list(given.payloads())


def test_a_pipe_has_no_size(tmp_path: Path) -> None:
    file = tmp_path / "a.jsonl"
    file.write_text("12345\n")

    with file.open("rb") as opened:
        given = Lines(opened, "a.jsonl")
        assert (list(given.payloads()), given.read, given.size) == ([12345], 6, 6)
    with Path("/dev/null").open("rb") as opened:
        assert Lines(opened, "null").size is None


def test_a_terminal_shows_how_far_it_is(start: Start, jobs: Jobs, tmp_path: Path) -> None:
    file = tmp_path / "numbers.jsonl"
    file.write_text(NUMBERS)
    loading = start("enqueue", "work", "--from", str(file), terminal=True)

    assert loading.ends() == 0
    assert "storing 2,500 jobs" in loading.text
    assert "100%" in loading.text
    assert "2,500 jobs were stored as work" in loading.text
    assert jobs.count_documents({}) == 2500


def test_without_a_terminal_there_is_no_bar(start: Start, tmp_path: Path) -> None:
    file = tmp_path / "numbers.jsonl"
    file.write_text(NUMBERS)
    loading = start("enqueue", "work", "--from", str(file))

    assert loading.ends() == 0
    assert loading.text == "2,500 jobs were stored as work\n"


def test_a_ctrl_c_says_how_many_were_stored(start: Start, jobs: Jobs, tmp_path: Path) -> None:
    """The lines come from a pipe that stays open: the last chunk never ends."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    loading = start("enqueue", "work", "--from", str(pipe), terminal=True)
    with pipe.open("w") as lines:
        lines.write("1\n" * 4_000)
        lines.flush()
        loading.wait_for("storing [1-4],000 jobs")
        loading.send(signal.SIGINT)

        assert loading.ends() == 130
    [least] = loading.wait_for(r"at least ([\d,]+) jobs were stored")
    assert jobs.count_documents({}) >= int(least.replace(",", "")) >= 1000
