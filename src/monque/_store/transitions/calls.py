"""What a later call with the same key does to the job that is there.

    pending    ──replace_waiting─► pending, with the payload of the later call
    processing ──note_again──────► processing, with the later call noted
    processing ──run_again───────► pending, as the call that is noted says

The owner of the run performs `run_again` instead of the end of the run.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from monque._store import document as history
from monque._store import unique
from monque._store.document import CLAIM_FIELDS, TRACE_FIELDS, Document, attempt_of
from monque._store.transitions.transition import (
    CRASH_FIELDS,
    IS_NOTED,
    LONG_FIELDS,
    NOTED,
    REQUESTED,
    Transition,
    counter,
    owned,
)
from monque._store.unique import Terms
from monque._values.history import HistoryEntry
from monque._values.status import JobStatus

# What a call says of its job beside payload and time: replaced as a whole.
_OF_CALL = ("policy", "priority")

# It failed, and waits for its next try.
_WAITS_FOR_RETRY = {"$gt": [counter("$failCount"), 0]}


def replace_waiting(new: Document, terms: Terms) -> Transition:
    """pending -> pending, with payload and settings of a later call; as an upsert it stores *new* as it is.

    The job is due as the call says, else as it was. One that failed and waits for its next try becomes as
    new. With a debounce it is due after the wait, and at most `max_wait` after the first call.
    """
    first = {"$cond": [_WAITS_FOR_RETRY, "$$NOW", _date("$askedAt", _date("$createdAt"))]}
    due: Any = {"$cond": [_WAITS_FOR_RETRY, "$$NOW", "$nextRunAt"]}
    if terms.wait is not None or terms.says_time:
        due = "$$new.nextRunAt" if terms.wait is None else _debounced(terms, first)
    said = [field for field in (*_OF_CALL, *_new_trace(new)) if field in new]
    changed: Document = {
        **{field: f"$$new.{field}" for field in ("data", *said)},
        "nextRunAt": due,
        "askedAt": {"$cond": [_WAITS_FOR_RETRY, "$$NOW", "$askedAt"]},
        "failCount": 0,
        "updatedAt": "$$NOW",
    }
    unsaid = [field for field in (*_OF_CALL, *_new_trace(new)) if field not in new]
    is_new = {"$eq": [{"$type": "$_id"}, "missing"]}
    # The payload stands here once: twice, a large one would not fit into a command.
    stored = {"$cond": [is_new, "$$new", {"$mergeObjects": ["$$ROOT", changed]}]}
    return Transition(
        to=JobStatus.PENDING,
        when=_holds_key(new, "pending"),
        then=[
            {"$replaceWith": {"$let": {"vars": {"new": {"$literal": new}}, "in": stored}}},
            {"$unset": ["failReason", *CRASH_FIELDS, "again", "cancel", *unsaid]},
            *_expiring("policy", "$nextRunAt", terms),
        ],
    )


def _new_trace(new: Document) -> tuple[str, ...]:
    """The fields of the trace, if the call has one: the run links to the call whose payload it has."""
    return TRACE_FIELDS if "traceparent" in new else ()


def note_again(new: Document, terms: Terms) -> Transition:
    """processing -> processing, with a later call noted: when the run ends, the job runs once more.

    Of several calls the newest counts; the first one's time is kept.
    """
    since = {"$cond": [IS_NOTED, _date("$again.since"), "$$NOW"]}
    due: Any = {"$cond": [IS_NOTED, _date("$again.runAt"), "$$NOW"]}
    if terms.wait is not None or terms.says_time:
        due = new["nextRunAt"] if terms.wait is None else _debounced(terms, since)
    call = {field: new[field] for field in ("data", *_OF_CALL) if field in new}
    noted = {"runAt": due, "since": since, "count": {"$add": [counter("$again.count"), 1]}}
    return Transition(
        to=JobStatus.PROCESSING,
        when=_holds_key(new, "processing"),
        then=[
            {"$set": {"again": {"$mergeObjects": [{"$literal": call}, noted]}, "updatedAt": "$$NOW"}},
            *_expiring("again.policy", "$again.runAt", terms),
            *_accepted_window(new, terms),
        ],
    )


def _accepted_window(new: Document, terms: Terms) -> list[Document]:
    """The stage with which a call that was accepted begins a window, if it has one."""
    if terms.window is None:
        return []
    return [{"$set": {"windowKey": {"$literal": new["windowKey"]}, **unique.until(terms.window)}}]


def _holds_key(document: Mapping[str, Any], status: str) -> Document:
    """Match the job with this name and key in this state, unless it is a schedule."""
    key = {field: document[field] for field in ("name", "uniqueKey")}
    return {**key, "status": status, "repeatInterval": None}


def _debounced(terms: Terms, first: Any) -> Document:
    """When a debounced job is due whose first call came at *first*."""
    after_last = {"$add": ["$$NOW", terms.wait]}
    return after_last if terms.max_wait is None else {"$min": [after_last, {"$add": [first, terms.max_wait]}]}


def _expiring(policy: str, due: str, terms: Terms) -> list[Document]:
    """The stage that counts the expiry from the time at which the job turned out to be due."""
    if terms.expires_after is None:
        return []
    return [{"$set": {f"{policy}.expiresAt": {"$add": [_date(due), terms.expires_after]}}}]


def _date(field: str, otherwise: Any = "$$NOW") -> Document:
    """A date in an expression; *otherwise* if somebody stored something else."""
    return {"$cond": [{"$eq": [{"$type": field}, "date"]}, field, otherwise]}


def run_again(
    claim: Mapping[str, Any], *, entry: HistoryEntry | None = None, leaves: Document | None = None
) -> Transition:
    """processing -> pending, once more: a later call with the same key came while it ran.

    All is taken from the document itself, so that the newest call counts, also one that comes between the
    decision and the write. It does not apply if somebody asked for the job's end meanwhile, as for schedules.
    *leaves* is the run that failed for good.
    """
    kept = {} if leaves is None else {"failedRunId": leaves["_id"]}
    stages = once_more({"settledAttempt": attempt_of(claim), **kept})
    return Transition(
        to=JobStatus.PENDING,
        when={**owned(claim), **NOTED, "$nor": [{"$expr": REQUESTED}]},
        then=stages if entry is None else [history.append(entry, claim), *stages],
        leaves=leaves,
        lean=[*stages, {"$unset": [*LONG_FIELDS, "result"]}],
    )


def once_more(fields: Document) -> list[Document]:
    """The stages that make a job of the call that is noted in it. Only its id, key and history stay."""
    called = {
        "data": {"$ifNull": ["$again.data", None]},
        **{field: {"$ifNull": [f"$again.{field}", "$$REMOVE"]} for field in _OF_CALL},
        "nextRunAt": {"$max": [_date("$again.runAt"), "$$NOW"]},
        "askedAt": _date("$again.since"),
    }
    stale = (*CLAIM_FIELDS, *CRASH_FIELDS, "again", "failReason", "snoozeCount", "cancel")
    return [
        {"$set": {"status": "pending", **called, "failCount": 0, **fields, "updatedAt": "$$NOW"}},
        {"$unset": list(stale)},
    ]
