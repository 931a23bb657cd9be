"""Small collections beside the jobs, for operators. They are a service, never a condition for jobs.

Nobody needs them for a job to be stored or run. So a write that the server refuses, for lack of a right or of
space, turns the feature off for ten minutes, with one line in the log. An outage does not: whoever writes
tries again with the next write.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from pymongo import IndexModel, WriteConcern
from pymongo.asynchronous.collection import AsyncCollection
from pymongo.errors import BulkWriteError, OperationFailure

from monque._connect.deadlines import limited
from monque._store.document import Document
from monque._time.clock import Refusals
from monque._values.words import driver_reason

logger = logging.getLogger("monque")

R = TypeVar("R")

# Nothing waits for such a write, so it may take its time; but one that hangs must not keep the next ones.
WRITE_LIMIT = 5.0

# A server that was too slow so often in a row has better things to do.
_MOST_SLOW = 3

# How long nothing is written after the server has refused a write, which it is likely to do again.
_REST = 600.0

_TOO_SLOW = {50, 262}
# Another instance was faster, or the server asks to try again: DuplicateKey, WriteConflict, Interrupted.
_PASSING = {11000, 112, 11601}

EXPIRES = IndexModel({"expireAt": 1}, name="monque_expires", expireAfterSeconds=0)
"""Lets the server remove each document at its own time."""


class Companion:
    """One such collection: written with `w: 1`, and off once the server has refused a write."""

    def __init__(
        self,
        collection: AsyncCollection[Document],
        what: str,
        indexes: Sequence[IndexModel],
        *,
        is_on: bool,
        creates_indexes: bool,
    ) -> None:
        self.collection = collection.with_options(write_concern=WriteConcern(1))
        self._is_wanted = is_on
        self._refusals = Refusals()
        self._what = what
        self._missing = list(indexes) if creates_indexes else []
        """The indexes that are created before the first write."""
        self._slow = 0

    @property
    def is_on(self) -> bool:
        """True if it is written: the options want it, and the server has not refused the last write."""
        return self._is_wanted and not self._refusals

    async def write(
        self, act: Callable[[AsyncCollection[Document]], Awaitable[R]], *, within: float = WRITE_LIMIT
    ) -> R | None:
        """Do a write; None if the feature is off, before or after it.

        Raises:
            PyMongoError: The database does not answer, or asks to try again.
        """
        if not self.may_write:
            return None
        try:
            with limited(within):
                if self._missing:
                    await self.collection.create_indexes(self._missing)
                    self._missing = []
                result = await act(self.collection)
        except OperationFailure as error:
            if not self._is_refused(error):
                raise
            if self._refusals.add():
                message = (
                    "%s cannot be stored in %s, so nothing more is written there for a while; jobs go on: %s"
                )
                logger.warning(message, self._what, self.collection.full_name, _text(error))
            return None
        self._slow = 0
        self._refusals.clear()
        return result

    @property
    def may_write(self) -> bool:
        """True if it is on, or has rested for so long that it is tried again."""
        return self._is_wanted and self._refusals.allow_after(_REST)

    def _is_refused(self, error: OperationFailure) -> bool:
        codes = _codes(error)
        if codes & _TOO_SLOW:
            self._slow += 1
            return self._slow >= _MOST_SLOW
        return not codes <= _PASSING and not error.has_error_label("RetryableWriteError")


def _codes(error: OperationFailure) -> set[int | None]:
    if isinstance(error, BulkWriteError):
        details = error.details or {}
        failures = [*details.get("writeErrors", ()), *details.get("writeConcernErrors", ())]
        return {failure.get("code") for failure in failures}
    return {error.code}


def _text(error: OperationFailure) -> str:
    """The error in a line: that of a bulk write would list every document."""
    failures = (error.details or {}).get("writeErrors") or ()
    return str(failures[0].get("errmsg")) if failures else driver_reason(error)
