"""Transitions of a later call with the same key, for the job that is there.

    pending    ──replace_waiting─► pending, with the payload of the later call
    processing ──note_again──────► processing, with the later call noted
    processing ──run_again───────► pending, as the call that is noted says

The owner of the run performs `run_again` instead of the end of the run.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from monque._store import document as history
from monque._store.document import CLAIM_FIELDS, PARKED, TRACE_FIELDS, Claim, Document
from monque._store.transitions.transition import (
    AWAITS_BATCH,
    AWAITS_TURN,
    CRASH_FIELDS,
    IS_NOTED,
    NOT_REQUESTED,
    NOTED,
    FailedRun,
    Transition,
    counter,
    owned,
)
from monque._values.history import HistoryEntry
from monque._values.settings import OnConflict, Until
from monque._values.status import JobStatus

# What a call says of its job beside payload and time: replaced as a whole.
_OF_CALL = ("policy", "priority", "onFailure")

# What the run of an earlier call leaves: the next call begins without it.
_OF_RUN = ("again", "failReason", "snoozeCount", "cancel", "steps", "signals", "parked", "turn")

# Jobs that the run of an earlier call has stored (`run_jobs`) are not those of the next call.
_REDO: Document = {
    "$cond": [
        {"$eq": [{"$type": "$steps"}, "missing"]},
        {"$ifNull": ["$redo", "$$REMOVE"]},
        {"$add": [counter("$redo"), 1]},
    ]
}

_HAS_TIME = {"$and": [AWAITS_TURN, {"$ne": ["$nextRunAt", PARKED]}]}
_NOT_IN_LINE = {"$set": {"parked": {"$cond": [_HAS_TIME, "$$REMOVE", "$parked"]}}}

# It failed, and waits for its next try.
_WAITS_FOR_RETRY = {"$gt": [counter("$failCount"), 0]}


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
    """The time after its due time from which the job is not worth running."""
    window: int | None = None
    """At most one call is accepted within this time."""

    @property
    def replaces(self) -> bool:
        """Return whether a job that waits gets the payload and the settings of this call."""
        return self.on_conflict == "replace"

    @property
    def runs_again(self) -> bool:
        """Return whether a job that runs will run once more for this call."""
        return self.replaces or self.until == "start"


def replace_waiting(new: Document, terms: Terms) -> Transition:
    """pending -> pending, with payload and settings of a later call; as an upsert it stores *new* as it is.

    The job is due as the call says, else as it was. One that failed and waits for its next try becomes as
    new. With a debounce it is due after the wait, and at most `max_wait` after the first call.
    """
    first = {"$cond": [_WAITS_FOR_RETRY, "$$NOW", _date("$askedAt", _date("$createdAt"))]}
    # With the new payload, one that waits for its turn may have another line: it meets the gate again.
    is_due = {"$or": [_WAITS_FOR_RETRY, AWAITS_TURN]} if "parked" in new else _WAITS_FOR_RETRY
    due: Any = {"$cond": [is_due, "$$NOW", "$nextRunAt"]}
    if terms.wait is not None or terms.says_time:
        due = _due_of(new, "$$new.nextRunAt") if terms.wait is None else _debounced(terms, first)
    said = [field for field in (*_OF_CALL, *_new_trace(new)) if field in new]
    changed: Document = {
        **{field: f"$$new.{field}" for field in ("data", *said)},
        **(_moved(due) if terms.wait is not None or terms.says_time else {"nextRunAt": due}),
        "askedAt": {"$cond": [_WAITS_FOR_RETRY, "$$NOW", "$askedAt"]},
        "failCount": 0,
        "updatedAt": "$$NOW",
    }
    unsaid = [field for field in (*_OF_CALL, *_new_trace(new)) if field not in new]
    is_new, due_at = {"$eq": [{"$type": "$_id"}, "missing"]}, _date("$parked.since", _date("$nextRunAt"))
    # The payload stands here once: twice, a large one would not fit into a command.
    stored = {"$cond": [is_new, "$$new", {"$mergeObjects": ["$$ROOT", changed]}]}
    return Transition(
        to=JobStatus.PENDING,
        # One that has steps is in the middle of its run, also while it waits.
        when={**_holds_key(new), "status": "pending", "steps": {"$exists": False}},
        then=[
            {"$replaceWith": {"$let": {"vars": {"new": {"$literal": new}}, "in": stored}}},
            {"$unset": ["failReason", *CRASH_FIELDS, "again", "cancel", "turn", *unsaid]},
            *([_NOT_IN_LINE] if "parked" in new else []),
            *_expiring("policy", _date("$parked.dueAt", due_at), terms),
        ],
    )


def _moved(due: Any) -> Document:
    """The time of a job that is there; one that waits for a batch goes on with that."""
    later = {"$mergeObjects": ["$parked", {"dueAt": due}]}
    return {
        "nextRunAt": {"$cond": [AWAITS_BATCH, "$nextRunAt", due]},
        "parked": {"$cond": [AWAITS_BATCH, later, "$parked"]},
    }


def _due_of(new: Document, stored: Any) -> Any:
    """The time of a call: the one that its job would have, unless that waits for something else first."""
    parked = new.get("parked", {"since": stored})
    return parked.get("dueAt", parked["since"])


def _new_trace(new: Document) -> tuple[str, ...]:
    """The fields of the trace, if the call has one: the run links to the call whose payload it has."""
    return TRACE_FIELDS if "traceparent" in new else ()


def note_again(new: Document, terms: Terms) -> Transition:
    """processing -> processing, with a later call noted: when the run ends, the job runs once more.

    So does one that has steps and waits: pending -> pending. Of several calls the newest counts; the first
    one's time is kept.
    """
    since = {"$cond": [IS_NOTED, _date("$again.since"), "$$NOW"]}
    due: Any = {"$cond": [IS_NOTED, _date("$again.runAt"), "$$NOW"]}
    if terms.wait is not None or terms.says_time:
        due = _due_of(new, new["nextRunAt"]) if terms.wait is None else _debounced(terms, since)
    call = {field: new[field] for field in ("data", *_OF_CALL) if field in new}
    noted = {"runAt": due, "since": since, "count": {"$add": [counter("$again.count"), 1]}}
    return Transition(
        to=JobStatus.PROCESSING,
        when={
            **_holds_key(new),
            "status": {"$in": ["pending", "processing"]},
            "$or": [{"status": "processing"}, {"steps": {"$exists": True}}],
        },
        then=[
            {"$set": {"again": {"$mergeObjects": [{"$literal": call}, noted]}, "updatedAt": "$$NOW"}},
            *_expiring("again.policy", _date("$again.runAt"), terms),
            *_accepted_window(new, terms),
        ],
    )


def _accepted_window(new: Document, terms: Terms) -> list[Document]:
    """The stage with which a call that was accepted begins a window, if it has one."""
    if terms.window is None:
        return []
    return [{"$set": {"windowKey": {"$literal": new["windowKey"]}, **until(terms.window)}}]


def until(window: int) -> Document:
    """The end of a window that begins now, as an expression."""
    return {"windowUntil": {"$add": ["$$NOW", window]}}


def _holds_key(document: Mapping[str, Any]) -> Document:
    """Match the job with this name and key, unless it is a schedule."""
    return {**{field: document[field] for field in ("name", "uniqueKey")}, "repeatInterval": None}


def _debounced(terms: Terms, first: Any) -> Document:
    """The due time of a debounced job whose first call came at *first*."""
    after_last = {"$add": ["$$NOW", terms.wait]}
    return after_last if terms.max_wait is None else {"$min": [after_last, {"$add": [first, terms.max_wait]}]}


def _expiring(policy: str, due: Document, terms: Terms) -> list[Document]:
    """The stage that counts the expiry from the time at which the job turned out to be due."""
    if terms.expires_after is None:
        return []
    return [{"$set": {f"{policy}.expiresAt": {"$add": [due, terms.expires_after]}}}]


def _date(field: str, otherwise: Any = "$$NOW") -> Document:
    """A date in an expression; *otherwise* if somebody stored something else."""
    return {"$cond": [{"$eq": [{"$type": field}, "date"]}, field, otherwise]}


def run_again(
    claim: Claim, *, entry: HistoryEntry | None = None, leaves: Document | None = None
) -> Transition:
    """processing -> pending, once more: a later call with the same key came while it ran.

    All is taken from the document itself, so that the newest call counts, also one that comes between the
    decision and the write. It does not apply if somebody asked for the job's end meanwhile, as for schedules.
    *leaves* is the run that failed for good.
    """
    kept = {} if leaves is None else {"failedRunId": leaves["_id"]}
    stages = once_more({"settledAttempt": claim.attempt, **kept})
    return Transition(
        to=JobStatus.PENDING,
        when={**owned(claim.claimed_by, claim.attempt), **NOTED, **NOT_REQUESTED},
        then=stages if entry is None else [history.append(entry, claim.document), *stages],
        beside=None if leaves is None else FailedRun(leaves),
    )


def once_more(fields: Document) -> list[Document]:
    """The stages that make a job of the call that is noted in it. Only its id, key and history stay."""
    called = {
        "data": {"$ifNull": ["$again.data", None]},
        **{field: {"$ifNull": [f"$again.{field}", "$$REMOVE"]} for field in _OF_CALL},
        "nextRunAt": {"$max": [_date("$again.runAt"), "$$NOW"]},
        "askedAt": _date("$again.since"),
        "redo": _REDO,
    }
    stale = (*CLAIM_FIELDS, *CRASH_FIELDS, *_OF_RUN)
    return [
        {"$set": {"status": "pending", **called, "failCount": 0, **fields, "updatedAt": "$$NOW"}},
        {"$unset": list(stale)},
    ]
