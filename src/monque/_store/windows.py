"""Windows: of calls with one key, at most one is accepted within a time, whatever becomes of its job.

The accepted job holds its window in `windowKey`, under a unique index, until `windowUntil` by the server's
clock. It is not freed then: the next call does that, if one comes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from monque._store.document import Document
from monque._store.indexes import WINDOW

_INDEX = WINDOW.document["name"]
_IS_OPEN = {"$gt": ["$windowUntil", "$$NOW"]}


def accepted(new: Document, window: int) -> tuple[Document, list[Document]]:
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
    return {**_held(new), "$expr": _IS_OPEN}


def ended_window(new: Document) -> Document:
    """Match the job whose window this was."""
    return {**_held(new), "$expr": {"$not": [_IS_OPEN]}}


def is_held(new: Document, holder: Mapping[str, Any]) -> bool:
    """Whether this job holds the window of the call, ended or not."""
    return bool(holder.get("windowKey") == new["windowKey"])


FREED: Document = {"$unset": {"windowKey": "", "windowUntil": ""}}


def _held(new: Document) -> Document:
    return {"name": new["name"], "windowKey": new["windowKey"]}


def is_window_taken(details: Mapping[str, Any] | None) -> bool:
    """Whether a duplicate key error comes from our index of windows."""
    return f" index: {_INDEX} dup key" in (details or {}).get("errmsg", "")
