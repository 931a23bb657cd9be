"""The rules for names, keys, times and ids, as values."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from bson import Code, ObjectId, Regex

from monque import ConfigurationError, InvalidJobIdentifierError
from monque._values.rules import check_name, check_time, check_unique_key, ids_meant

ID = ObjectId("0123456789abcdef01234567")


@pytest.mark.parametrize("name", ["send-email", "a", "größe", "x" * 255])
def test_a_good_name_is_returned(name: str) -> None:
    assert check_name(name) == name


@pytest.mark.parametrize(
    ("name", "rule"),
    [
        ("", "must not be empty"),
        (None, "must be text"),
        ("send email", "whitespace"),
        ("send\ufeffemail", "whitespace"),
        ("send\x7f", "control characters"),
        ("x" * 256, "at most 255"),
        ("\U0001f600" * 128, "got 256"),
        ("\ud800", "lone surrogate"),
    ],
)
def test_a_bad_name_is_refused_with_the_rule_that_it_breaks(name: Any, rule: str) -> None:
    with pytest.raises(InvalidJobIdentifierError, match=rule) as caught:
        check_name(name)
    assert (caught.value.field, caught.value.value) == ("name", name)


@pytest.mark.parametrize("key", ["user 123", " x ", "x" * 1024])
def test_a_good_key_is_returned(key: str) -> None:
    assert check_unique_key(key) == key


@pytest.mark.parametrize(
    ("key", "rule"),
    [("", "empty"), (7, "text"), (" \t", "blank"), ("a\nb", "control"), ("x" * 1025, "at most 1024")],
)
def test_a_bad_key_is_refused_with_the_rule_that_it_breaks(key: Any, rule: str) -> None:
    with pytest.raises(InvalidJobIdentifierError, match=rule) as caught:
        check_unique_key(key)
    assert (caught.value.field, caught.value.value) == ("unique_key", key)


def test_of_a_kind_of_text_that_bson_treats_apart_only_the_text_is_kept() -> None:
    assert type(check_name(Code("send-email"))) is str
    assert type(check_unique_key(Code("send-email"))) is str


def test_a_time_is_kept_in_utc_and_whole_milliseconds() -> None:
    noon = datetime(2026, 1, 2, 12, 0, 0, 123_999, tzinfo=timezone(timedelta(hours=2)))

    assert check_time("run_at", noon) == datetime(2026, 1, 2, 10, 0, 0, 123_000, tzinfo=UTC)
    assert check_time("run_at", noon).tzinfo is UTC


@pytest.mark.parametrize(
    "moment",
    [
        "tomorrow",
        datetime(2026, 1, 2),  # noqa: DTZ001 - it is to be refused
        datetime(1, 1, 1, tzinfo=timezone(timedelta(hours=2))),
    ],
)
def test_what_is_no_time_in_a_zone_is_refused_by_its_label(moment: Any) -> None:
    with pytest.raises(ConfigurationError, match="run_at must"):
        check_time("run_at", moment)


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        (ID, [ID]),
        (str(ID), [ID, str(ID)]),
        ("not-hex", ["not-hex"]),
        (7, [7]),
        ({"a": 1}, [{"a": 1}]),
        (object(), []),
        ({"$ne": None}, []),
        (Regex("."), []),
        (re.compile("."), []),
    ],
)
def test_an_id_may_mean_several_values(given: Any, meant: list[Any]) -> None:
    assert ids_meant(given) == meant
