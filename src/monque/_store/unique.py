"""Unique keys: who holds one, and how to read a write that a unique index refused."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pymongo.errors import BulkWriteError, DuplicateKeyError, WriteError

from monque._errors import ConnectionError
from monque._store.document import Document
from monque._store.indexes import UNIQUE_KEY

_DUPLICATE_KEY = 11000
_INDEX = UNIQUE_KEY.document["name"]

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
    return f" index: {_INDEX} dup key" in (details or {}).get("errmsg", "")


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
