"""The time limit of a read: what it makes of the driver's errors."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from pymongo.errors import (
    AutoReconnect,
    ExecutionTimeout,
    NetworkTimeout,
    OperationFailure,
    ServerSelectionTimeoutError,
)

from monque import ConfigurationError, ConnectionError, MonqueError, ReadTimeoutError
from monque._api.jobs import reading

LIMIT = timedelta(seconds=1.5)


def test_a_server_that_does_not_answer_is_not_told_to_be_asked_for_less() -> None:
    """A server that works on a read ends it itself, before the driver gives up."""
    with (
        pytest.raises(ReadTimeoutError, match=r"within 1\.5 s; the database did not answer at all") as error,
        reading("count", LIMIT),
    ):
        raise NetworkTimeout("no")
    assert "less" not in str(error.value)


def test_what_takes_too_long_says_what_to_ask_instead() -> None:
    slow = ExecutionTimeout("no", 50)
    with (
        pytest.raises(ReadTimeoutError, match=r"could not count within 1\.5 s; ask for less") as error,
        reading("count", LIMIT),
    ):
        raise slow
    assert error.value.__cause__ is slow
    assert isinstance(error.value, MonqueError | TimeoutError)


@pytest.mark.parametrize(
    "away", [ServerSelectionTimeoutError("gone"), AutoReconnect("gone"), OperationFailure("no", 13)], ids=repr
)
def test_a_database_that_is_away_is_no_slow_read(away: Exception) -> None:
    """Who shows this to people must not tell them to ask for less."""
    with pytest.raises(ConnectionError, match="could not count"), reading("count", LIMIT):
        raise away


def test_without_a_limit_all_is_as_before() -> None:
    with pytest.raises(ConnectionError), reading("count"):
        raise ExecutionTimeout("no", 50)


@pytest.mark.parametrize("wrong", [5, "5s", timedelta(0), timedelta(seconds=-1)])
def test_a_limit_is_a_positive_duration(wrong: Any) -> None:
    with pytest.raises(ConfigurationError, match="max_time must be"), reading("count", wrong):
        pytest.fail("nothing is asked")
