"""A job's `history`: the runs that did not succeed, the last ones, as they are stored."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from monque._attempts import Attempt, HistoryEntry
from monque._store.document import Document, attempt_of, size_of, time_of

# A document that is larger gets no entry. Beside it the reason of a failure (32 kB), one entry (20 kB) and
# the fields of a claim must fit into the 16 MiB of a document: a job that cannot be claimed any more would
# stay for ever. With half of the 64 KiB they would not fit; with twice, fewer jobs would have a history.
LARGEST_WITH_HISTORY = 16 * 1024 * 1024 - 64 * 1024

_ENTRIES = {"$cond": [{"$isArray": "$history"}, "$history", []]}
_HAS_ROOM = {"$lt": [{"$bsonSize": "$$ROOT"}, LARGEST_WITH_HISTORY]}


def append(entry: HistoryEntry, claim: Mapping[str, Any]) -> Document:
    """The stage of a pipeline that adds what a run leaves."""
    text = {"$literal": _constant(entry, claim)}
    times = {"startedAt": {"$subtract": ["$$NOW", round(entry.ran * 1000)]}, "finishedAt": "$$NOW"}
    return _append({"$mergeObjects": [text, times]}, entry.keep)


def append_lost(entry: HistoryEntry) -> Document:
    """The stage that adds a run whose owner is dead. Others may have written its claim."""
    alive = {"$cond": [{"$eq": [{"$type": "$lockedAt"}, "date"]}, "$lockedAt", "$$NOW"]}
    claim = {
        "attempt": {"$cond": [{"$isNumber": "$attempt"}, "$attempt", 0]},
        "by": {"$cond": [{"$eq": [{"$type": "$claimedBy"}, "string"]}, "$claimedBy", ""]},
    }
    times = {"startedAt": alive, "finishedAt": "$$NOW"}
    return _append({"$mergeObjects": [claim, {"$literal": _text(entry)}, times]}, entry.keep)


def _append(entry: Document, keep: int) -> Document:
    with_it = {"$slice": [{"$concatArrays": [_ENTRIES, [entry]]}, -keep]}
    without = {"$ifNull": ["$history", "$$REMOVE"]}
    return {"$set": {"history": {"$cond": [_HAS_ROOM, with_it, without]}}}


def carried(
    document: Document, claim: Mapping[str, Any], entry: HistoryEntry | None, now: datetime
) -> Document:
    """The copy of a failed run, with the history of its schedule and what this run adds."""
    earlier = claim.get("history")
    entries = list(earlier) if isinstance(earlier, list) else []
    if entry is not None:
        started = now - timedelta(milliseconds=round(entry.ran * 1000))
        stored = {**_constant(entry, claim), "startedAt": started, "finishedAt": now}
        entries = [*entries, stored][-entry.keep :]
    if not entries:
        return document
    whole = {**document, "history": entries}
    return whole if size_of(whole) < LARGEST_WITH_HISTORY else document


def attempts_of(document: Mapping[str, Any]) -> tuple[Attempt, ...]:
    """The history as users see it. Others may have written it: what is no entry is left out."""
    entries = document.get("history")
    if not isinstance(entries, list):
        return ()
    return tuple(_attempt(entry) for entry in entries if isinstance(entry, dict))


def _attempt(entry: Mapping[str, Any]) -> Attempt:
    text = {field: entry.get(field) for field in ("by", "outcome", "error", "message")}
    shown: dict[str, Any] = {field: "" if value is None else str(value) for field, value in text.items()}
    trace = entry.get("trace")
    return Attempt(
        number=attempt_of(entry),
        instance=shown["by"],
        started_at=time_of(entry, "startedAt"),
        finished_at=time_of(entry, "finishedAt"),
        outcome=shown["outcome"],
        error=shown["error"],
        message=shown["message"],
        traceback=trace if isinstance(trace, str) else None,
    )


def _constant(entry: HistoryEntry, claim: Mapping[str, Any]) -> Document:
    return {"attempt": attempt_of(claim), "by": str(claim.get("claimedBy") or ""), **_text(entry)}


def _text(entry: HistoryEntry) -> Document:
    text = {"outcome": entry.outcome, "error": entry.error, "message": entry.message}
    return text if entry.trace is None else {**text, "trace": entry.trace}
