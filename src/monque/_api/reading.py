"""Time limits of reads: what takes too long ends with an error that says what to ask instead."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

import pymongo
from pymongo.errors import OperationFailure, PyMongoError, ServerSelectionTimeoutError

from monque._errors import ReadTimeoutError, driver_errors
from monque._rules import check_duration


@contextmanager
def reading(doing: str, max_time: timedelta | None = None) -> Iterator[None]:
    """Turn errors of the driver into ours; let all commands inside take at most *max_time* together.

    The server ends a command whose time is up. A database that cannot be reached is no slow read: that stays
    a `ConnectionError`.
    """
    with driver_errors(doing):
        if max_time is None:
            yield
            return
        seconds = check_duration("max_time", max_time).total_seconds()
        try:
            with pymongo.timeout(seconds):
                yield
        except PyMongoError as error:
            if not error.timeout or isinstance(error, ServerSelectionTimeoutError):
                raise
            raise ReadTimeoutError(f"could not {doing} within {seconds:g} s; {_advice(error)}") from error


def _advice(error: PyMongoError) -> str:
    """The server itself ends a read that takes too long, just before our time is up."""
    if isinstance(error, OperationFailure):
        return "ask for less: one name, one status, fewer jobs or a shorter time"
    return "the database did not answer at all: it hangs, or has too much to do; ask again later"
