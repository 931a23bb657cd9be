"""A schedule's `recentRuns`: how its last runs ended, whatever else is stored of them.

The write that ends a run adds it: it costs no command of its own. Jobs that are no schedules have no such
field, and other implementations ignore it.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any, TypeVar

from bson import Int64, ObjectId

from monque._schedule import RecentRun, RunOutcome
from monque._store.document import Document, count_of, milliseconds, time_of

# Bars of this many fit into a line of a list. Twice as many would double what each run writes.
_KEEP = 10

_FIELD = "recentRuns"
_RUNS = {"$cond": [{"$isArray": f"${_FIELD}"}, f"${_FIELD}", []]}

Update = TypeVar("Update", Document, list[Document], Document | list[Document])


def run(outcome: RunOutcome, at: datetime, ran: timedelta = timedelta(0)) -> Document:
    """A run that ended at *at*, as it is stored."""
    return {"at": at, "ms": Int64(milliseconds(ran)), "outcome": outcome}


def with_run(update: Update, claim: Mapping[str, Any], ended: Document | None) -> Update:
    """An update of a schedule that also keeps the run that has *ended*, if there is one.

    Nobody but the owner of the claim writes the field. Others may have written something else there before:
    a `$push` would fail for ever.
    """
    if ended is None:
        return update
    if isinstance(update, list):
        return [*update, with_run_stage(ended)]
    if not isinstance(claim.get(_FIELD, []), list):
        return {**update, "$set": {**update["$set"], _FIELD: [ended]}}
    return {**update, "$push": {_FIELD: {"$each": [ended], "$slice": -_KEEP}}}


def with_run_stage(ended: Document) -> Document:
    """The stage of a pipeline that keeps a run."""
    return {"$set": {_FIELD: {"$slice": [{"$concatArrays": [_RUNS, [{"$literal": ended}]]}, -_KEEP]}}}


def recent_runs_of(document: Mapping[str, Any]) -> tuple[RecentRun, ...]:
    """The runs as users see them. Others may have written the field: what is no run is left out."""
    stored = document.get(_FIELD)
    entries = stored if isinstance(stored, list) else []
    return tuple(
        RecentRun(
            at=at,
            duration=timedelta(milliseconds=count_of(entry, "ms")),
            outcome=entry["outcome"],
            job_id=job_id if isinstance(job_id := entry.get("jobId"), ObjectId) else None,
        )
        for entry in entries
        if isinstance(entry, Mapping)
        if (at := time_of(entry, "at")) is not None and isinstance(entry.get("outcome"), str)
    )
