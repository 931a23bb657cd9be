"""Verdicts as values: what their constructors accept, and that they survive copying and pickling."""

from __future__ import annotations

import copy
import pickle
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

from monque import Cancel, ConfigurationError, Fail, RetryAfter, Snooze, Verdict

SECOND = timedelta(seconds=1)
NOON = datetime(2026, 3, 4, 12, tzinfo=timezone(timedelta(hours=1)))


@pytest.mark.parametrize("verdict", [Snooze, RetryAfter, Fail, Cancel])
def test_a_verdict_is_an_ordinary_exception(verdict: type[Verdict]) -> None:
    assert issubclass(verdict, Verdict)
    assert issubclass(verdict, Exception)
    assert verdict.__module__ == "monque"


def test_a_time_is_kept_in_utc() -> None:
    assert Snooze(until=NOON).until == NOON
    assert Snooze(until=NOON).until.tzinfo is UTC


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Snooze(), "either a delay or until="),
        (lambda: Snooze(SECOND, until=NOON), "either a delay or until="),
        (lambda: Snooze(5), "must be a timedelta"),
        (lambda: Snooze(-SECOND), "between 0 and 100 years"),
        (lambda: Snooze(timedelta(days=36_501)), "between 0 and 100 years"),
        (lambda: Snooze(until=datetime(2026, 1, 1)), "until must be an aware datetime"),  # noqa: DTZ001
        (lambda: Snooze(until=SECOND), "until must be an aware datetime"),
        (lambda: RetryAfter(5), "must be a timedelta"),
        (lambda: RetryAfter(-SECOND), "between 0 and 100 years"),
        (lambda: Fail(5), "reason of a Fail must be text"),
        (lambda: Fail(" "), "reason of a Fail must be text"),
        (lambda: Cancel(5), "reason of a Cancel must be text"),
    ],
)
def test_what_makes_no_sense_is_refused(make: Any, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        make()


@pytest.mark.parametrize(
    "verdict",
    [
        Snooze(SECOND),
        Snooze(until=NOON),
        Snooze(timedelta(0)),
        RetryAfter(SECOND),
        Fail("no"),
        Cancel(),
        Cancel("x"),
    ],
    ids=repr,
)
def test_a_verdict_survives_copying_and_pickling(verdict: Verdict) -> None:
    for twin in (copy.copy(verdict), pickle.loads(pickle.dumps(verdict))):  # noqa: S301
        assert type(twin) is type(verdict)
        assert vars(twin) == vars(verdict)
        assert str(twin) == str(verdict)


def test_the_text_says_what_was_asked_for() -> None:
    assert str(Snooze(SECOND)) == "again in 0:00:01"
    assert str(Snooze(until=NOON)) == "again at 2026-03-04 11:00:00+00:00"
    assert str(Fail("no such card")) == "no such card"
    assert str(Cancel()) == ""


def test_a_snooze_can_be_for_the_whole_name() -> None:
    snooze = Snooze(timedelta(seconds=30), whole_name=True)

    assert snooze.whole_name
    assert str(snooze) == "again in 0:00:30; until then its name is paused"
    assert copy.copy(snooze).whole_name
    assert not Snooze(timedelta(0)).whole_name
    with pytest.raises(ConfigurationError, match="whole_name of a Snooze must be True or False, got 'yes'"):
        Snooze(timedelta(0), whole_name="yes")
