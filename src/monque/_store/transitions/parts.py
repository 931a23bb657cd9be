"""What several transitions are made of: fields that go together, conditions and expressions."""

from __future__ import annotations

from collections.abc import Iterable

from monque._status import CancelledBy
from monque._store.document import CLAIM_FIELDS, Document

NO_CLAIM = dict.fromkeys(CLAIM_FIELDS, "")

# Recovery counts crashes in these fields. Success and an operator's retry remove them.
CRASH_FIELDS = ("crashCount", "lastCrash")
NO_CRASHES = dict.fromkeys(CRASH_FIELDS, "")

# What a run leaves behind as its result, or why there is none.
RESULT_FIELDS = ("result", "resultError")

# A settlement for which there is no room is repeated without these.
LONG_FIELDS = ("history", "log")

# An operator has asked for the end of the job. As an expression: a query would also match arrays.
REQUESTED = {"$eq": ["$cancel.by", "operator"]}


def said_by(by: CancelledBy, reason: str | None, *, unless: Document = REQUESTED) -> Document:
    """Who cancels and why, as an expression: the request of an operator that is there already stays."""
    said: Document = {"at": "$$NOW", "by": by}
    if reason is not None:
        said["reason"] = {"$literal": reason}
    # A bare document would be merged with what is there: a record that another implementation left behind.
    return {"$cond": [unless, "$cancel", {"$mergeObjects": [said]}]}


# A later call with the same key is noted in the job. `has_again` reads a document the same way.
NOTED: Document = {"again": {"$type": "object"}}
NOT_NOTED: Document = {"again": {"$not": {"$type": "object"}}}
IS_NOTED: Document = {"$eq": [{"$type": "$again"}, "object"]}

# While `nextRunAt` equals `movedTo`, an operator or a snooze has set it: nobody repairs it, and it is no sign
# of a success. `movedTo` is written only where it is read: for schedules, and for jobs whose process died.
MOVE_COUNTS = {
    "$or": [
        {"$eq": [{"$type": "$repeatInterval"}, "string"]},
        {"$eq": [{"$type": "$lastCrash"}, "object"]},
    ]
}


def counter(field: str) -> Document:
    """A counter in an expression; 0 if it is not a number, which would fail the write for all jobs."""
    return {"$cond": [{"$isNumber": field}, field, 0]}


# TypeScript instances never clear `crashCount`, so recovery stores the time and the failures of the crashed
# run beside it. If the time has moved since, without one more failure and not by us (`movedTo`), the job has
# succeeded or was retried: count from 0 again. Jobs that the first release recovered have no `lastCrash`;
# their count goes on.
RAN_SINCE_CRASH = {
    "$and": [
        {"$eq": [{"$type": "$lastCrash"}, "object"]},
        {"$ne": ["$nextRunAt", "$lastCrash.runAt"]},
        {"$ne": ["$nextRunAt", "$movedTo"]},
        {"$lte": [counter("$failCount"), counter("$lastCrash.failCount")]},
    ]
}

# The stage before one that sets `nextRunAt` and `movedTo`: afterwards, nobody could tell that the job has
# succeeded since its crashes.
FORGET_OLD_CRASHES: Document = {
    "$set": {field: {"$cond": [RAN_SINCE_CRASH, "$$REMOVE", f"${field}"]} for field in CRASH_FIELDS}
}


def ending(fields: Document, removed: Iterable[str] = ()) -> list[Document]:
    """The stages that end a run: set these fields, and give up the claim."""
    return [{"$set": {**fields, "updatedAt": "$$NOW"}}, {"$unset": [*CLAIM_FIELDS, *removed]}]
