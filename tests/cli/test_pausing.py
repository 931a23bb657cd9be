"""`monque pause`, `monque resume` and `monque paused`."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest
from click.testing import Result

from monque.sync import SyncMonque

Call = Callable[..., Result]


def test_a_name_is_paused_listed_and_resumed(call: Call, uri: str) -> None:
    told = call("pause", "send-email", "--reason", "the bank is down")
    assert (told.exit_code, told.output) == (0, "send-email: paused until it is resumed\n")
    with SyncMonque(uri) as monque:
        [pause] = monque.paused()
    assert (pause.name, pause.reason) == ("send-email", "the bank is down")

    heading, line = call("paused").output.splitlines()
    assert heading.split() == ["name", "since", "until", "by", "reason"]
    assert line.startswith("send-email  ")
    assert line.endswith("the bank is down")
    assert call("resume", "send-email").output == "send-email: resumed\n"
    assert call("resume", "send-email").output == "send-email: was not paused\n"
    assert len(call("paused").output.splitlines()) == 1


def test_a_pause_says_who_typed_it(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("getpass.getuser", lambda: "ada")
    monkeypatch.setattr("socket.gethostname", lambda: "laptop")
    named = json.loads(call("pause", "send-email", "--json").output)["by"]
    monkeypatch.setattr("getpass.getuser", lambda: {}["a user without a name, as in some containers"])
    nameless = json.loads(call("pause", "send-email", "--json").output)["by"]

    assert (named, nameless) == ("ada@laptop (command line)", "unknown@laptop (command line)")


def test_all_names_are_paused_and_resumed(call: Call) -> None:
    assert call("pause", "--all").output == "all names: paused until it is resumed\n"
    assert "all names" in call("paused").output
    assert call("resume", "--all").output == "all names: resumed\n"


@pytest.mark.parametrize("until", ["2100-05-01T09:00Z", "1h30m"])
def test_an_end_is_a_moment_or_a_duration(call: Call, uri: str, until: str) -> None:
    told = call("pause", "send-email", "--until", until)
    with SyncMonque(uri) as monque:
        [pause] = monque.paused()

    assert pause.since is not None
    moment = datetime(2100, 5, 1, 9, tzinfo=UTC)
    assert pause.until == (moment if until[0] == "2" else pause.since + timedelta(minutes=90))
    assert told.output.startswith("send-email: paused until ")


def test_as_json_the_fields_are_those_of_a_pause(call: Call) -> None:
    paused = json.loads(call("pause", "send-email", "--until", "1h", "--json").output)

    assert set(paused) == {"name", "since", "until", "reason", "by"}
    assert [json.loads(line) for line in call("paused", "--json").output.splitlines()] == [paused]
    assert json.loads(call("resume", "send-email", "--json").output) == {
        "name": "send-email",
        "resumed": True,
    }


@pytest.mark.parametrize("command", ["pause", "resume"])
@pytest.mark.parametrize("words", [[], ["send-email", "--all"]], ids=["neither", "both"])
def test_nobody_pauses_everything_by_forgetting_the_name(call: Call, command: str, words: list[str]) -> None:
    told = call(command, *words)

    assert told.exit_code == 2
    assert "give either a NAME or --all" in told.output


@pytest.mark.parametrize("words", [["two words"], ["a", "--until", "soon"], ["a", "--until", "2030-01-01"]])
def test_wrong_input_changes_nothing(call: Call, words: list[str]) -> None:
    assert call("pause", *words).exit_code == 2
    assert len(call("paused").output.splitlines()) == 1


def test_a_time_that_is_past_pauses_nothing_and_is_told(call: Call) -> None:
    told = call("pause", "send-email", "--until", "2020-01-01T00:00Z")
    assert (told.exit_code, told.stdout) == (1, "")
    assert told.stderr == "Error: send-email: 2020-01-01T00:00:00Z is past, so nothing was paused\n"

    as_json = call("pause", "--all", "--until", "2020-01-01T00:00Z", "--json")
    assert as_json.exit_code == 1
    assert json.loads(as_json.stdout)["until"] == "2020-01-01T00:00:00.000+00:00"
    assert "all names: 2020-01-01T00:00:00Z is past" in as_json.stderr
    assert call("paused", "--json").stdout == ""


@pytest.mark.parametrize("words", [["pause", "a", "--until"], ["enqueue", "a", "--expires"]], ids=" ".join)
@pytest.mark.parametrize("text", ["-1h", "bogus"])
def test_where_a_duration_is_allowed_the_answer_names_it(call: Call, words: list[str], text: str) -> None:
    told = call(*words, text)

    assert told.exit_code == 2
    assert (
        f"{text!r} is no time; write for example 2030-05-01T09:00Z, or a duration such as 1h" in told.output
    )


def test_a_reason_cannot_steer_the_terminal(call: Call) -> None:
    call("pause", "send-email", "--reason", "\x1b[2Jgone")

    assert "\x1b" not in call("paused").output
