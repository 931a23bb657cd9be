"""A transition as a value, what several of them are made of, and whether a claim still holds its job.

A claim, not an instance, owns a run: `claimedBy` and `attempt` together.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, Literal, TypeAlias

from monque._store.document import (
    CLAIM_FIELDS,
    Claim,
    Document,
    as_claim,
    attempt_of,
    count_of,
    has_again,
    is_inexact,
    is_recurring,
)
from monque._store.planning import with_run
from monque._values.status import CancelledBy, JobStatus
from monque._workers.results import Kept

ScheduleStep: TypeAlias = Literal["skipped", "spawned", "parked", "ended"]


@dataclass(frozen=True, slots=True, eq=False)
class Transition:
    """A change (`then`) and the documents that it applies to (`when`).

    Transitions are compared by identity: jobs that share one are settled in one write.
    """

    to: JobStatus
    when: Document
    then: Document | list[Document]
    leaves: Document | None = None
    """A document to store beside the changed one: the failed occurrence of a schedule.

    The changed document names it in `failedRunId`. It is stored first, so that a crash between the two writes
    does not lose it, and deleted again if the transition turns out not to apply and nobody has named it.
    """
    ran: timedelta | None = None
    """How long the handler ran: `finishedAt` is the time of the write, `startedAt` that long before it."""
    lean: Document | list[Document] | None = None
    """The same change with no history, log or result and a short reason, for a document that has no room for
    more."""
    value: Kept | None = None
    """The result of this very job."""
    base: Transition | None = None
    """Of a transition with a value, the same without it. Those that share a base share a write."""
    step: ScheduleStep | None = None
    """What becomes of a schedule, if it does not just wait for its next time after a run."""
    spawns: Document | None = None
    """The job of its own that a schedule stores at its time. It is stored first, and never removed again."""
    otherwise: Transition | None = None
    """What applies instead if that job must not be stored, because an earlier one is active."""

    @property
    def stores(self) -> bool:
        """Whether a document is stored beside the changed one, so that the writes cannot be shared."""
        return self.leaves is not None or self.spawns is not None

    def update(self, now: datetime, results: Any = None) -> Document | list[Document]:
        """The update to send at *now*, by the server's clock.

        *results* is the expression of what differs from job to job, if they share the write (`by_id`).
        """
        if self.ran is None:
            return self.then
        # Both from one clock: the server's own stamp would add the time that the write takes to get there.
        stamps: Document = {"startedAt": now - self.ran, "finishedAt": now}
        if isinstance(self.then, dict):
            return {**self.then, "$set": {**self.then["$set"], **stamps}}
        if self.value is not None:
            results = {"$literal": self.value.value}
        if results is not None:
            stamps["result"] = results
        first, *others = self.then
        return [{"$set": {**first["$set"], **stamps}}, *others]

    def with_value(self, value: Kept) -> Transition:
        """The same transition with the result of one job. Each job makes one, and `replace` would be slow."""
        return Transition(self.to, self.when, self.then, None, self.ran, self.lean, value, self)

    def keeping(self, claim: Mapping[str, Any], ended: Document | None) -> Transition:
        """The same for a schedule, with the run that has *ended* kept among its recent ones."""
        if ended is None:
            return self
        if (beside := self.leaves or self.spawns) is not None:
            ended = {**ended, "jobId": beside["_id"]}
        return replace(
            self,
            then=with_run(self.then, claim, ended),
            lean=None if self.lean is None else with_run(self.lean, claim, ended),
        )


def by_id(ids: list[Any], values: list[Any]) -> Document:
    """The value of each job in an update of many, as an expression. It is searched for in order of the ids:
    with some hundreds of them, that costs more than a second update.
    """
    return {"$arrayElemAt": [{"$literal": values}, {"$indexOfArray": [{"$literal": ids}, "$_id"]}]}


def rounded(duration: int) -> int:
    """Round to two significant digits: exact for short runs, within five per cent for long ones."""
    if duration < 100:
        return duration
    unit: int = 10 ** (len(str(duration)) - 2)
    return round(duration / unit) * unit


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


def owned(claim: Mapping[str, Any]) -> Document:
    """Match the job only while *this* claim holds it.

    The instance alone is not enough: after a stall the same instance may have claimed the job again, and
    the first run must not settle the second. A claim of another implementation may lack the fields; a null
    matches a missing field.
    """
    return {"status": "processing", "claimedBy": claim.get("claimedBy"), "attempt": claim.get("attempt")}


def may_end(claimed_by: str, attempt: int, keyed: bool) -> Document:
    """Match as `owned` does, for the end of a run: of a job with a key only while no later call is noted."""
    when = owned({"claimedBy": claimed_by, "attempt": attempt})
    return {**when, **NOT_NOTED} if keyed else when


def is_owned(claim: Mapping[str, Any], document: Mapping[str, Any] | None) -> bool:
    """Whether the claim still holds the job that this document shows."""
    return document is not None and all(document.get(field) == value for field, value in owned(claim).items())


def take_over(claim: Claim, document: Document | None) -> Claim | None:
    """The claim with what its document says by now; None if the claim does not hold, or nothing is new.

    A settlement of a schedule applies only while its cron and zone are those that the run knew, and a job
    with a key ends only if no later call is noted in it. If that changed meanwhile, decide again with this
    claim. It keeps its payload: a failed run is kept with the one that it ran with.
    """
    if document is None or not is_owned(claim, document):
        return None
    if not is_recurring(claim) and not has_again(document):
        return None
    return as_claim({**document, "data": claim.get("data")})


def was_settled(claim: Mapping[str, Any], transition: Transition, document: Mapping[str, Any] | None) -> bool:
    """Whether a settlement that found nothing to change had already happened.

    The answer to an earlier try may have been lost, or others changed the job between our write and
    our read. Status and `attempt` cannot tell: TypeScript instances take a job back, claim and complete it
    without touching `attempt`. So every settlement writes `settledAttempt`, which nobody else writes and
    nobody clears.

    If a later attempt has overwritten it, ours must have put the job back, unless recovery took the job
    from us: that leaves our attempt, or a later one, in `lostAttempt`.
    """
    if document is None:
        return False
    ours = attempt_of(claim)
    # A missing field is not 0: an odd attempt (NaN, a decimal) counts as 0, and nothing can settle it.
    if document.get("settledAttempt") == ours:
        return True
    lost = count_of(document, "lostAttempt") >= ours
    return count_of(document, "settledAttempt") > ours and not lost and transition.to is JobStatus.PENDING


def as_read(document: Mapping[str, Any], fields: Iterable[str]) -> Document:
    """Match while these fields are as they were read. A null matches a missing field.

    Values that Python cannot represent are left out: they were read as other values, and would never match.
    """
    read = {field: document.get(field) for field in fields}
    return {field: {"$eq": value} for field, value in read.items() if not is_inexact(value)}
