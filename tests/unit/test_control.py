"""The control document as a value: what it says, and what is ignored in one that somebody wrote by hand."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from bson import Code, Int64, ObjectId

from monque import ConfigurationError, Pause
from monque._observe import logs
from monque._store.pauses import NOTHING, settings_of
from monque._values.rules import check_end, check_reason

NOW = datetime(2030, 1, 1, tzinfo=UTC)
HOUR = timedelta(hours=1)
ODD: list[Any] = [
    None,
    "",
    "text",
    7,
    1.5,
    True,
    [],
    [1],
    {},
    {"a": 1},
    Int64(1),
    Code("x"),
    ObjectId(b"twelve bytes"),
    NOW,
]


def paused(name: str = "work", **fields: Any) -> dict[str, Any]:
    """A stored pause."""
    return {"name": name, "since": NOW, "by": "me", **fields}


def test_nothing_is_paused_where_nobody_has_written_anything() -> None:
    assert settings_of(None) is NOTHING
    assert NOTHING.pause_of("work", NOW) is None
    assert NOTHING.in_force(NOW) == []


def test_a_name_has_its_own_pause_or_that_of_all_names() -> None:
    both = settings_of({"paused": [paused("a", reason="why")], "all": {"since": NOW, "by": "me"}})

    assert both.pause_of("a", NOW) == Pause(name="a", since=NOW, reason="why", by="me")
    assert both.pause_of("b", NOW) == Pause(name=None, since=NOW, by="me")
    assert [pause.name for pause in both.in_force(NOW)] == [None, "a"]


def test_a_pause_is_over_at_its_end() -> None:
    settings = settings_of({"paused": [paused("a", until=NOW + HOUR), paused("b", until=NOW)]})

    assert [pause.name for pause in settings.in_force(NOW)] == ["a"]
    assert settings.pause_of("b", NOW) is None
    assert settings.pause_of("a", NOW + HOUR) is None


def test_a_pause_of_a_name_that_is_over_does_not_hide_that_of_all_names() -> None:
    settings = settings_of({"paused": [paused("a", until=NOW)], "all": {"since": NOW}})

    pause = settings.pause_of("a", NOW)
    assert pause is not None
    assert pause.name is None


def test_of_two_entries_with_one_name_the_one_that_ends_later_counts() -> None:
    early, late, endless = paused(until=NOW + HOUR), paused(until=NOW + 2 * HOUR), paused()

    for entries, end in [
        ([early, late], late["until"]),
        ([late, early], late["until"]),
        ([early, endless], None),
        ([endless, early], None),
    ]:
        assert settings_of({"paused": entries}).pauses["work"].until == end


@pytest.mark.parametrize("value", ODD, ids=repr)
def test_what_cannot_be_a_pause_is_ignored(value: Any) -> None:
    names = [value] if type(value) is str else []

    assert settings_of({"paused": value}).pauses == {}
    assert list(settings_of({"paused": [value, paused("good")]}).pauses) == ["good"]
    assert list(settings_of({"paused": [paused(value), paused("good")]}).pauses) == [*names, "good"]
    assert list(settings_of({"all": value}).pauses) == ([None] if isinstance(value, dict) else [])


@pytest.mark.parametrize("value", ODD, ids=repr)
def test_a_pause_with_odd_fields_is_a_pause_all_the_same(value: Any) -> None:
    """An operator meant it. An end that nobody can read is none."""
    entry = {"name": "work", "since": value, "until": value, "reason": value, "by": value}
    time = value if isinstance(value, datetime) else None
    text = value if type(value) is str else None

    [pause] = settings_of({"paused": [entry]}).pauses.values()

    assert pause == Pause(name="work", since=time, until=time, reason=text, by=text)


def test_an_end_is_a_time_a_duration_or_none() -> None:
    assert check_end("until", None) is None
    assert check_end("until", NOW) == NOW
    assert check_end("until", timedelta(0)) == timedelta(0)
    assert check_end("until", HOUR) == HOUR


@pytest.mark.parametrize(
    ("end", "said"),
    [
        ("1h", "until must be an aware datetime, a timedelta or None, got '1h'"),
        (3600, "got 3600"),
        (datetime(2030, 1, 1), "got the naive 2030-01-01"),  # noqa: DTZ001
        (timedelta(seconds=-1), "until must be a timedelta from 0 to 100 years"),
        (timedelta(days=365 * 101), "until must be a timedelta from 0 to 100 years"),
    ],
)
def test_an_end_that_cannot_be_meant_is_refused(end: object, said: str) -> None:
    with pytest.raises(ConfigurationError, match=said):
        check_end("until", end)


@pytest.mark.parametrize("reason", [7, b"x", "x" * 1_001, "\ud800"], ids=["number", "bytes", "long", "half"])
def test_a_reason_that_cannot_be_stored_is_refused(reason: object) -> None:
    with pytest.raises(ConfigurationError, match="reason must be"):
        check_reason(reason)


def test_of_a_subclass_of_text_only_the_text_is_stored() -> None:
    assert type(check_reason(Code("x"))) is str


def test_the_log_says_what_is_paused_until_when_and_why() -> None:
    pause = Pause(name="work", since=NOW, until=NOW + HOUR, reason="the bank is down")

    assert logs.paused(pause) == (
        "starts no job of work until 2030-01-01 01:00:00 UTC, as it is paused: the bank is down"
    )
    assert logs.paused(Pause(name=None, since=NOW)) == "starts no job of any name, as it is paused"
    assert logs.resumed("work") == "starts jobs of work again"
