"""Reads what failed, newest first, as small rows: the index of the use `failures` leads to them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

from pymongo.asynchronous.collection import AsyncCollection
from pymongo.errors import OperationFailure

from monque._status import JobStatus
from monque._store import decoding, uses
from monque._store.document import EARLIEST, EXACT_CODEC_OPTIONS, Document, count_of, name_of, status_of
from monque._store.indexes import FAILED, USES
from monque._views import FailedJob

# Ten thousand reasons of this length are 10 MB. Half would cut the first line of some; twice would take
# twice the memory, for lines that nobody compares.
_LONGEST_REASON = 1_000

# The server has no such index: the code of a hint that leads nowhere.
_BAD_HINT = 2
_INDEX_NAME: str = FAILED.document["name"]


async def read_recent(
    collection: AsyncCollection[Document],
    *,
    name: str | None,
    since: datetime | None,
    cancelled: bool,
    limit: int,
) -> list[FailedJob]:
    """The newest jobs that failed (or were *cancelled*).

    Raises:
        ConfigurationError: The index is not there.
    """
    query: Document = {
        "status": {"$in": ["failed", "cancelled"] if cancelled else ["failed"]},
        "updatedAt": {"$gte": EARLIEST if since is None else since},
    }
    if name is not None:
        query["name"] = {"$eq": name}
    try:
        found = await _find(collection, query, limit, _short)
    except OperationFailure as error:
        if error.code == _BAD_HINT and "hint" in str(error):
            raise uses.missing(USES["failures"]) from error
        if error.code != _NOT_UTF8:
            raise
        found = await _find(collection, query, limit, _whole)
    return [_row(document) for document in found if isinstance(document.get("updatedAt"), datetime)]


async def _find(
    collection: AsyncCollection[Document], query: Document, limit: int, cut: Callable[[str], Document]
) -> list[Document]:
    fields: Document = {
        **dict.fromkeys(("name", "status", "updatedAt", "failCount"), 1),
        "reason": {
            "$cond": [{"$eq": ["$status", "cancelled"]}, cut("$cancel.reason"), cut("$failReason")],
        },
        # Others may have written a history that is no array.
        "error": {"$cond": [{"$isArray": "$history.error"}, {"$last": "$history.error"}, None]},
    }
    exact = collection.with_options(codec_options=EXACT_CODEC_OPTIONS)
    order = {"updatedAt": -1, "_id": -1}
    return await decoding.find(
        exact, query, fields, sort=order, limit=limit, hint=_INDEX_NAME, batch_size=limit
    )


# What the server says of `$substrCP` if a text is not UTF-8: others may store such.
_NOT_UTF8 = 34459


def _short(field: str) -> Document:
    return _text(field, {"$substrCP": [field, 0, _LONGEST_REASON]})


def _whole(field: str) -> Document:
    return _text(field, field)


def _text(field: str, shown: Any) -> Document:
    return {"$cond": [{"$eq": [{"$type": field}, "string"]}, shown, None]}


def _row(document: Mapping[str, Any]) -> FailedJob:
    reason, error = document.get("reason"), document.get("error")
    status: JobStatus = status_of(document)
    return FailedJob(
        id=document["_id"],
        name=name_of(document.get("name")),
        status=status,
        at=document["updatedAt"],
        reason=reason[:_LONGEST_REASON] if isinstance(reason, str) else None,
        fail_count=count_of(document, "failCount"),
        attempt_error_type=error if isinstance(error, str) else None,
    )
