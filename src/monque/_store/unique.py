"""Unique keys: who holds one, what a later call with the same key wants, and at most one call in a window.

Windows: of calls with one key, at most one is accepted within a time, whatever becomes of its job.
The accepted job holds its window in `windowKey`, under a unique index, until `windowUntil` by the server's
clock. It is not freed then: the next call does that, if one comes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pymongo.errors import BulkWriteError, DuplicateKeyError, WriteError

from monque._store.document import Document
from monque._store.indexes import UNIQUE_KEY, WINDOW
from monque._values.errors import ConnectionError
from monque._values.unique import OnConflict, Until

_DUPLICATE_KEY = 11000
_KEY_INDEX = UNIQUE_KEY.document["name"]

# How often another unique index than ours may refuse a job before that is an error. If two calls store the
# same job, the server may name either index to the loser, and the next try finds the holder. Twice as many
# delay the error by 20 ms; with one, such a race would be an error.
TRIES = 5


def holder_of(document: Document) -> Document:
    """Match the active job with this document's name and key."""
    active = {"$in": ["pending", "processing"]}
    return {"name": document["name"], "uniqueKey": document["uniqueKey"], "status": active}


def is_key_taken(details: Mapping[str, Any] | None) -> bool:
    """Whether a duplicate key error comes from our index of unique keys, and not from one of the user's.

    The name decides: an index of the user's own may have the same fields and another filter.
    """
    return f" index: {_KEY_INDEX} dup key" in (details or {}).get("errmsg", "")


def refusals(error: BulkWriteError) -> dict[int, WriteError]:
    """The errors of the documents that a bulk write did not write, by place.

    The others were written, unless the error also reports that no majority has them.
    """
    return {entry["index"]: _refusal(entry) for entry in error.details["writeErrors"]}


def duplicates(error: BulkWriteError) -> dict[int, WriteError]:
    """The errors of the documents that a unique index refused, by place; all others were written.

    Raises:
        BulkWriteError: The given error, if it reports anything else.
    """
    refused = refusals(error)
    if is_in_doubt(error) or not all(isinstance(each, DuplicateKeyError) for each in refused.values()):
        raise error
    return refused


def is_in_doubt(error: BulkWriteError) -> bool:
    """Whether the server could not vouch for the write as a whole."""
    return bool(error.details["writeConcernErrors"])


def _refusal(entry: Mapping[str, Any]) -> WriteError:
    kind = DuplicateKeyError if entry["code"] == _DUPLICATE_KEY else WriteError
    return kind(entry.get("errmsg", "refused"), entry["code"], entry)


def conflict(document: Document) -> ConnectionError:
    """The error for a transaction that must run again because its key changed hands."""
    return ConnectionError(
        f"the unique key {document['uniqueKey']!r} of {document['name']!r} changed hands while this "
        "transaction ran; run the transaction again (with_transaction does so by itself)",
        labels=["TransientTransactionError"],
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """The terms of one call; a call that only keeps what is there has none. Durations are milliseconds."""

    on_conflict: OnConflict = "keep"
    until: Until = "done"
    says_time: bool = False
    """The call says when the job is due: else one that waits keeps its time."""
    wait: int | None = None
    """Debounce: due this long after the last call."""
    max_wait: int | None = None
    """Debounce: due at most this long after the first call."""
    expires_after: int | None = None
    """How long after it is due the job is not worth running any more."""
    window: int | None = None
    """At most one call is accepted within this time."""

    @property
    def replaces(self) -> bool:
        """Whether a job that waits gets the payload and the settings of this call."""
        return self.on_conflict == "replace"

    @property
    def runs_again(self) -> bool:
        """Whether a job that runs will run once more for this call."""
        return self.replaces or self.until == "start"


_WINDOW_INDEX = WINDOW.document["name"]
_IS_OPEN = {"$gt": ["$windowUntil", "$$NOW"]}


def accepting(new: Document, window: int) -> tuple[Document, list[Document]]:
    """The upsert that stores a new job with a window of this length: only the server knows when it ends.

    A sharded collection needs the name to know where to store it.
    """
    this = {"_id": new["_id"], "name": new["name"]}
    return this, [{"$replaceWith": {"$mergeObjects": [{"$literal": new}, until(window)]}}]


def until(window: int) -> Document:
    """When a window ends that begins now, as an expression."""
    return {"windowUntil": {"$add": ["$$NOW", window]}}


def open_window(new: Document) -> Document:
    """Match the job that was accepted within the window of this call."""
    return {**_held_window(new), "$expr": _IS_OPEN}


def ended_window(new: Document) -> Document:
    """Match the job whose window this was."""
    return {**_held_window(new), "$expr": {"$not": [_IS_OPEN]}}


def is_held(new: Document, holder: Mapping[str, Any]) -> bool:
    """Tell whether this job holds the window of the call, ended or not."""
    return bool(holder.get("windowKey") == new["windowKey"])


FREED: Document = {"$unset": {"windowKey": "", "windowUntil": ""}}


def _held_window(new: Document) -> Document:
    return {"name": new["name"], "windowKey": new["windowKey"]}


def is_window_taken(details: Mapping[str, Any] | None) -> bool:
    """Whether a duplicate key error comes from our index of windows."""
    return f" index: {_WINDOW_INDEX} dup key" in (details or {}).get("errmsg", "")
