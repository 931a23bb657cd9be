"""A transition as a value, what several of them are made of, and whether a claim still holds its job.

A claim, not an instance, owns a run: `claimedBy` and `attempt` together.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import lru_cache
from typing import Any, Literal, TypeAlias

from bson import Int64

from monque._store.document import (
    CLAIM_FIELDS,
    Claim,
    Document,
    array,
    count_of,
    has_again,
    is_cancel_requested,
    is_inexact,
    line_of_turn,
    milliseconds,
)
from monque._values.schedule import RunOutcome
from monque._values.status import CancelledBy, JobStatus
from monque._workers.results import Kept

_RECENT = "recentRuns"
# Bars of this many fit into a line of a list. Twice as many would double what each run writes.
_MOST_RECENT = 10

ScheduleStep: TypeAlias = Literal["skipped", "spawned", "parked", "ended"]


@dataclass(frozen=True, slots=True, eq=False)
class Transition:
    """A change (`then`) and the documents that it applies to (`when`).

    Transitions are compared by identity: jobs that share one are settled in one write.
    """

    to: JobStatus
    when: Document
    then: Document | list[Document]
    ran: timedelta | None = None
    """The run time: `finishedAt` is the time of the write, `startedAt` that long before it."""
    result: tuple[Kept, Transition] | None = None
    """The result of this very job, and the transition that stores it. Jobs that share that share a write."""
    step: ScheduleStep | None = None
    """The step of a schedule, if it does not just wait for its next time after a run."""
    beside: FailedRun | SpawnedJob | None = None
    """A job to store beside the changed one. It is stored first, so that a crash between the two writes does
    not lose it: these writes cannot be shared."""
    removes: bool = False
    """The document is deleted instead of changed."""

    @property
    def leaves(self) -> Document | None:
        """The failed run that is kept as a job of its own."""
        return self.beside.document if isinstance(self.beside, FailedRun) else None

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
        if self.result is not None:
            results = {"$literal": self.result[0].value}
        if results is not None:
            stamps["result"] = results
        first, *others = self.then
        return [{"$set": {**first["$set"], **stamps}}, *others]

    def with_value(self, value: Kept) -> Transition:
        """The same transition with the result of one job. Each job makes one, and `replace` would be slow."""
        return Transition(self.to, self.when, self.then, self.ran, (value, self))

    def with_run(self, schedule: Mapping[str, Any], ended: Document | None) -> Transition:
        """The same for a schedule, with the run that has *ended*, if any, among its recent ones.

        Nobody but the owner of the claim writes the field. Others may have written something else there
        before: a `$push` would fail for ever.
        """
        if ended is None:
            return self
        if self.beside is not None:
            ended = {**ended, "jobId": self.beside.document["_id"]}
        then = self.then
        if isinstance(then, list):
            runs = {"$concatArrays": [array(f"${_RECENT}"), [{"$literal": ended}]]}
            return replace(self, then=[*then, {"$set": {_RECENT: {"$slice": [runs, -_MOST_RECENT]}}}])
        if not isinstance(schedule.get(_RECENT, []), list):
            return replace(self, then={**then, "$set": {**then["$set"], _RECENT: [ended]}})
        return replace(self, then={**then, "$push": {_RECENT: {"$each": [ended], "$slice": -_MOST_RECENT}}})

    @property
    def fails(self) -> bool:
        """Return whether a run has failed for good: the job itself, or one that is kept beside it."""
        return self.to is JobStatus.FAILED or isinstance(self.beside, FailedRun)

    def followed_by(self, name: str, attempt: int, reason: str, now: datetime) -> Transition:
        """The same end of a run that failed for good, which also asks for a follow-up of this *name*."""
        asked: Any = {"name": name, "attempt": attempt, "reason": reason, "at": now}
        if isinstance(self.then, dict):
            return replace(self, then={**self.then, "$set": {**self.then["$set"], "followUp": asked}})
        return replace(self, then=[*self.then, {"$set": {"followUp": {"$literal": asked}}}])

    def without_wait(self, claim: Claim, *, keeps_turn: bool = False) -> Transition:
        """The same settlement, without what its job had while it waited; at its end, without its signals.

        A turn goes, too, unless the run *keeps_turn* and has it in a line of a key: while a whole name waits
        for turns, only running jobs have one.

        Only for a job that has waited, has steps or is limited: a plain one has none of these fields, and
        removing what is not there costs the server time. So a job that never had a step and gets a signal in
        its only run keeps that when it is completed; nobody reads it.
        """
        document = claim.document
        gone = ["parked"] if "parked" in document and not _says_wait(self.then) else []
        if self.to is JobStatus.COMPLETED and ("signals" in document or "steps" in document):
            gone.append("signals")
        if "turn" in document and not (keeps_turn and line_of_turn(document)):
            gone.append("turn")
        if not gone:
            return self
        if self.result is not None:
            kept, base = self.result
            return _without(base, tuple(gone)).with_value(kept)
        return _without(self, tuple(gone))


def _says_wait(update: Document | list[Document]) -> bool:
    """Return whether an update writes or removes `parked` itself."""
    stages = [update] if isinstance(update, dict) else update
    return any("parked" in fields for stage in stages for fields in stage.values())


@lru_cache(maxsize=256)
def _without(transition: Transition, gone: tuple[str, ...]) -> Transition:
    """The transition that removes these fields in addition: one for all jobs that share the given one."""
    then = transition.then
    if isinstance(then, list):
        return replace(transition, then=[*then, {"$unset": list(gone)}])
    return replace(transition, then={**then, "$unset": {**then["$unset"], **dict.fromkeys(gone, "")}})


@dataclass(frozen=True, slots=True, eq=False)
class FailedRun:
    """The failed occurrence of a schedule, as a job. The changed document names it in `failedRunId`.

    It is deleted again if the transition turns out not to apply and nobody has named it.
    """

    document: Document


@dataclass(frozen=True, slots=True, eq=False)
class SpawnedJob:
    """The job of its own that a schedule stores at its time. It is never removed again."""

    document: Document
    otherwise: Transition
    """The transition that applies if this job must not be stored, because an earlier one is active."""


def recent_run(outcome: RunOutcome, at: datetime, ran: timedelta = timedelta(0)) -> Document:
    """A run that ended at *at*, as it is stored."""
    return {"at": at, "ms": Int64(milliseconds(ran)), "outcome": outcome}


def by_id(ids: list[Any], values: list[Any]) -> Document:
    """The value of each job in an update of many, as an expression. It is searched for in order of the ids:
    with some hundreds of them, that costs more than a second update.
    """
    return {"$arrayElemAt": [{"$literal": values}, {"$indexOfArray": [{"$literal": ids}, "$_id"]}]}


# A settlement for which there is no room is repeated without these.
_LONG_FIELDS = ("history", "log", "result")
_NO_ROOM = {"resultError": "the document of this job has no room for its result"}

# The longest reason in a document that has no room for more: others may store such. Half would say too
# little; twice could be too long as well.
_SHORT_REASON = 200


def lean(update: Document | list[Document]) -> Document | list[Document]:
    """An update with no history, log or result and a short reason, for a document without room for more."""
    if isinstance(update, dict):
        fields = _lean_fields(update["$set"])
        removed = [field for field in (*update["$unset"], *_LONG_FIELDS) if field not in fields]
        return {**update, "$set": fields, "$unset": dict.fromkeys(removed, "")}
    stages = [stage for stage in update if "history" not in stage.get("$set", ())]
    return [*map(_lean_stage, stages), {"$unset": list(_LONG_FIELDS)}]


def _lean_stage(stage: Document) -> Document:
    if "$set" in stage:
        return {"$set": _lean_fields(stage["$set"])}
    # What is removed beside a result is the reason why there was none. Now there is one.
    return {"$unset": [field for field in stage["$unset"] if field not in _NO_ROOM]}


def _lean_fields(fields: Document) -> Document:
    kept = {
        field: _cut(value) if field in ("failReason", "cancel") else value
        for field, value in fields.items()
        if field not in _LONG_FIELDS
    }
    return {**kept, **_NO_ROOM} if "result" in fields else kept


def _cut(value: Any) -> Any:
    """An expression with short texts."""
    if isinstance(value, list):
        return [_cut(each) for each in value]
    if not isinstance(value, dict):
        return value
    return {key: each[:_SHORT_REASON] if key == "$literal" else _cut(each) for key, each in value.items()}


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

# An operator has asked for the end of the job. As an expression: a query would also match arrays.
REQUESTED = {"$eq": ["$cancel.by", "operator"]}
NOT_REQUESTED: Document = {"$nor": [{"$expr": REQUESTED}]}

# A pending job waits for the end of a batch, or for its turn in the line of a key. As expressions.
AWAITS_BATCH: Document = {"$eq": ["$parked.why", "batch"]}
AWAITS_TURN: Document = {"$eq": ["$parked.why", "turn"]}


def said_by(by: CancelledBy, reason: str | None, *, unless: Document = REQUESTED) -> Document:
    """The one who cancels, and why, as an expression: an operator's request that is there already stays."""
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


def plain_ending(fields: Document, removed: Iterable[str] = ()) -> Document:
    """As `ending`, for fields without expressions: without a pipeline, which takes the server longer."""
    removed = dict.fromkeys(removed, "")
    return {"$set": fields, "$unset": {**NO_CLAIM, **removed}, "$currentDate": {"updatedAt": True}}


def owned(claimed_by: str, attempt: int) -> Document:
    """Match the job only while *this* claim holds it.

    The instance alone is not enough: after a stall the same instance may have claimed the job again, and
    the first run must not settle the second.
    """
    return {"status": "processing", "claimedBy": claimed_by, "attempt": attempt}


def may_end(claimed_by: str, attempt: int, keyed: bool) -> Document:
    """Match as `owned` does, for the end of a run: of a job with a key only while no later call is noted."""
    when = owned(claimed_by, attempt)
    return {**when, **NOT_NOTED} if keyed else when


def is_owned(claim: Claim, document: Mapping[str, Any] | None) -> bool:
    """Return whether the claim still holds the job that this document shows."""
    held = owned(claim.claimed_by, claim.attempt)
    return document is not None and all(document.get(field) == value for field, value in held.items())


def take_over(claim: Claim, document: Document | None) -> Claim | None:
    """The claim with what its document says by now; None if the claim does not hold, or nothing is new.

    A settlement of a schedule applies only while its cron and zone are those that the run knew, a job with a
    key ends only if no later call is noted in it, and a job waits only if nobody has asked for its end. If
    that changed meanwhile, decide again with this claim. It keeps its id, by which its run is known, and its
    name and its payload: a failed run is kept with those that it ran with.
    """
    if document is None or not is_owned(claim, document):
        return None
    is_asked = is_cancel_requested(document) and not claim.is_cancel_requested
    if not claim.is_recurring and not has_again(document) and not is_asked:
        return None
    kept = {"_id": claim.id, "name": claim.name, "data": claim.document.get("data")}
    if not isinstance(document.get("nextRunAt"), datetime):
        kept["nextRunAt"] = claim.due
    return Claim.of_read({**document, **kept})


def was_settled(claim: Claim, transition: Transition, document: Mapping[str, Any] | None) -> bool:
    """Return whether a settlement that found nothing to change had already happened.

    The answer to an earlier try may have been lost, or others changed the job between our write and
    our read. Status and `attempt` cannot tell: TypeScript instances take a job back, claim and complete it
    without touching `attempt`. So every settlement writes `settledAttempt`, which nobody else writes and
    nobody clears.

    If a later attempt has overwritten it, ours must have put the job back, unless recovery took the job
    from us: that leaves our attempt, or a later one, in `lostAttempt`.
    """
    if document is None:
        return False
    ours = claim.attempt
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
