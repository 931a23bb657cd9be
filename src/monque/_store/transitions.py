"""The state machine: every way a job can change, as a named value.

A transition says which documents it applies to (`when`), what it does to them (`then`) and where it
leads (`to`). Nothing here talks to a database; `store.py` performs them.

    pending ──claim──► processing ──complete──► completed
       ▲                 │  │  └────fail──────► failed ──┐
       ├─retry, release──┘  │                            │
       ├─recover (stale) ───┘          cancelled ◄─cancel── pending
       └────────────retried by an operator ◄──┴──────────┘

Stamps are the server's (`$currentDate`, `$$NOW`), so no client's clock can skew them; only those of a run
(`startedAt`, `finishedAt`) go by what the client knows of the server's clock. Text
that comes from users is never a bare string inside a pipeline, where a leading `$` would make it an
expression: it stands in `$literal`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import lru_cache
from typing import Any

from monque._job import JobStatus
from monque._store.document import (
    CLAIM_FIELDS,
    LARGEST_INT32,
    Document,
    attempt_of,
    count_of,
    failures_with,
    is_inexact,
    milliseconds,
)
from monque._store.owners import allowed_silence_of

_NO_CLAIM = dict.fromkeys(CLAIM_FIELDS, "")

# What recovery counts; success and an operator's retry end the count.
_CRASH_FIELDS = ("crashCount", "lastCrash")
_NO_CRASHES = dict.fromkeys(_CRASH_FIELDS, "")


@dataclass(frozen=True, slots=True, eq=False)
class Transition:
    """When a document matches, then it is changed so.

    Compared by identity: jobs that share one transition are settled in one write.
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

    def update(self, now: datetime) -> Document | list[Document]:
        """What to write at *now*, by the server's clock."""
        if self.ran is None or isinstance(self.then, list):
            return self.then
        # Both from one clock: the server's own stamp would add the time that the write takes to get there.
        stamps = {"startedAt": now - self.ran, "finishedAt": now}
        return {**self.then, "$set": {**self.then["$set"], **stamps}}


def claim(*, instance_id: str, heartbeat_interval: timedelta) -> Transition:
    """pending and due -> processing.

    Due by the server's own clock at the moment of the write, whatever a client believed when it
    chose the job: in between it may have been claimed, failed and put back with a later time.
    """
    return Transition(
        to=JobStatus.PROCESSING,
        when={"status": "pending", "$expr": {"$lte": ["$nextRunAt", "$$NOW"]}},
        then={
            "$set": {
                "status": "processing",
                "claimedBy": instance_id,
                # Beyond these 24 days a longer interval means the same.
                "heartbeatInterval": min(milliseconds(heartbeat_interval), LARGEST_INT32),
            },
            "$inc": {"attempt": 1},
            "$currentDate": {"lockedAt": True, "lastHeartbeat": True, "updatedAt": True},
        },
    )


def owned(claim: Mapping[str, Any]) -> Document:
    """Match the job only while *this* claim holds it.

    The instance alone is not enough: after a stall the same instance may have claimed the job
    again, and the first run must not settle the second. Claims of others may lack the fields; a null
    matches that.
    """
    return {"status": "processing", "claimedBy": claim.get("claimedBy"), "attempt": claim.get("attempt")}


def is_owned(claim: Mapping[str, Any], document: Mapping[str, Any] | None) -> bool:
    """Whether the claim still holds the job that this document shows."""
    return document is not None and all(document.get(field) == value for field, value in owned(claim).items())


def heartbeat(claim: Mapping[str, Any]) -> Transition:
    """processing -> processing, alive.

    `lockedAt` moves too: TypeScript instances take back whatever was locked more than half an
    hour ago, however alive it is.
    """
    return _heartbeat(claim["claimedBy"], attempt_of(claim))


@lru_cache(maxsize=256)
def _heartbeat(claimed_by: str, attempt: int) -> Transition:
    return Transition(
        to=JobStatus.PROCESSING,
        when=owned({"claimedBy": claimed_by, "attempt": attempt}),
        then={"$currentDate": {"lastHeartbeat": True, "lockedAt": True, "updatedAt": True}},
    )


def complete(claim: Mapping[str, Any], *, ran: float = 0.0) -> Transition:
    """processing -> completed.

    Jobs that ran about equally long (*ran*, in seconds) share one transition, and so one write.
    """
    had_trouble = "failReason" in claim or "crashCount" in claim
    return _complete(claim["claimedBy"], attempt_of(claim), _rounded(round(ran * 1000)), had_trouble)


def _rounded(duration: int) -> int:
    """Two significant digits: exact for short runs, within five per cent for long ones."""
    if duration < 100:
        return duration
    unit: int = 10 ** (len(str(duration)) - 2)
    return round(duration / unit) * unit


@lru_cache(maxsize=1024)
def _complete(claimed_by: str, attempt: int, ran: int, had_trouble: bool) -> Transition:
    # Each field to remove takes the server about a microsecond, also one that is not there. Only the owner of
    # a claim and recovery write these, so a claim without them has nothing to remove.
    trouble = {**_NO_CRASHES, "failReason": ""} if had_trouble else {}
    return Transition(
        to=JobStatus.COMPLETED,
        when=owned({"claimedBy": claimed_by, "attempt": attempt}),
        then={
            "$set": {"status": "completed", "settledAttempt": attempt},
            "$unset": {**_NO_CLAIM, **trouble},
            "$currentDate": {"updatedAt": True},
        },
        ran=timedelta(milliseconds=ran),
    )


def repeat(claim: Mapping[str, Any], *, run_at: datetime) -> Transition:
    """processing -> pending, at the next time of the schedule.

    Only while the schedule is the one this run knew: if it was changed meanwhile, *run_at* is
    wrong, and has to be computed again.
    """
    return Transition(
        to=JobStatus.PENDING,
        when=_same_schedule(claim),
        then=_next_time(run_at, {"settledAttempt": attempt_of(claim)}),
    )


def retry(claim: Mapping[str, Any], *, delay: timedelta, reason: str) -> Transition:
    """processing -> pending, one failure more, after *delay* from the server's now."""
    return _retry(claim["claimedBy"], attempt_of(claim), failures_with(claim), milliseconds(delay), reason)


@lru_cache(maxsize=256)
def _retry(claimed_by: str, attempt: int, failures: int, delay: int, reason: str) -> Transition:
    return Transition(
        to=JobStatus.PENDING,
        when=owned({"claimedBy": claimed_by, "attempt": attempt}),
        then=[
            {
                "$set": {
                    "status": "pending",
                    "nextRunAt": {"$add": ["$$NOW", delay]},
                    # Not added to what is there, which may be no number: nobody else counts under a claim.
                    "failCount": failures,
                    "failReason": {"$literal": reason},
                    "settledAttempt": attempt,
                    "updatedAt": "$$NOW",
                }
            },
            {"$unset": list(CLAIM_FIELDS)},
        ],
    )


def _count(field: str) -> Document:
    """A count that a document has; 0 for what is none: an expression that fails does so for all jobs."""
    return {"$cond": [{"$isNumber": field}, field, 0]}


def fail(claim: Mapping[str, Any], *, reason: str) -> Transition:
    """processing -> failed, for good."""
    return Transition(
        to=JobStatus.FAILED,
        when=owned(claim),
        then={
            "$set": {
                "status": "failed",
                "failReason": reason,
                "failCount": failures_with(claim),
                "settledAttempt": attempt_of(claim),
            },
            "$unset": _NO_CLAIM,
            "$currentDate": {"updatedAt": True},
        },
    )


def give_up_occurrence(claim: Mapping[str, Any], *, run_at: datetime, leaves: Document) -> Transition:
    """processing -> pending at the schedule's next time, with the failed run kept beside it."""
    return Transition(
        to=JobStatus.PENDING,
        when=_same_schedule(claim),
        then=_next_time(run_at, {"settledAttempt": attempt_of(claim), "failedRunId": leaves["_id"]}),
        leaves=leaves,
    )


def release(claim: Mapping[str, Any]) -> Transition:
    """processing -> pending, as if it had never been claimed; no failure counted."""
    return _release(claim["claimedBy"], attempt_of(claim))


@lru_cache(maxsize=256)
def _release(claimed_by: str, attempt: int) -> Transition:
    return Transition(
        to=JobStatus.PENDING,
        when=owned({"claimedBy": claimed_by, "attempt": attempt}),
        then={
            "$set": {"status": "pending", "settledAttempt": attempt},
            "$unset": _NO_CLAIM,
            "$currentDate": {"updatedAt": True},
        },
    )


def _next_time(run_at: datetime, fields: Document) -> Document:
    return {
        "$set": {"status": "pending", "nextRunAt": run_at, "failCount": 0, **fields},
        "$unset": {**_NO_CLAIM, **_NO_CRASHES, "failReason": ""},
        "$currentDate": {"updatedAt": True},
    }


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
    # A missing field is no 0: an odd attempt (NaN, a decimal) counts as 0, and no write can settle it.
    if document.get("settledAttempt") == ours:
        return True
    lost = count_of(document, "lostAttempt") >= ours
    return count_of(document, "settledAttempt") > ours and not lost and transition.to is JobStatus.PENDING


def _same_schedule(claim: Mapping[str, Any]) -> Document:
    return {**owned(claim), "repeatInterval": claim["repeatInterval"], "timezone": claim.get("timezone")}


def stale(*, tolerance: timedelta, lock_timeout: timedelta) -> Document:
    """Match jobs whose owner is dead, by the server's clock.

    A heartbeat counts for as long as its owner may be silent. A claim without any heartbeat (foreign, or
    very old) counts until the lock timeout.
    """
    promised = {"$min": [_count("$heartbeatInterval"), LARGEST_INT32]}
    silence = allowed_silence_of(promised, tolerance=tolerance)
    heard = {"$ifNull": ["$lastHeartbeat", None]}
    locked = {"$ifNull": ["$lockedAt", {"$ifNull": ["$updatedAt", "$$NOW"]}]}
    return {
        "status": "processing",
        "$expr": {
            "$cond": [
                {"$eq": [heard, None]},
                {"$lt": [locked, {"$subtract": ["$$NOW", milliseconds(lock_timeout)]}]},
                {"$lt": ["$lastHeartbeat", {"$subtract": ["$$NOW", silence]}]},
            ]
        },
    }


# A claim of another implementation has no attempt to remember.
_LOST_ATTEMPT = {"$ifNull": ["$attempt", {"$ifNull": ["$lostAttempt", "$$REMOVE"]}]}

# TypeScript instances never clear `crashCount`, so recovery keeps beside it how the crashed run stood. If the
# time has moved without one more failure, and not by `reschedule_by_operator`, the job has succeeded or was
# retried since: count from 0 again.
# Jobs that the first release recovered have no `lastCrash`; their count goes on.
_RAN_SINCE = {
    "$and": [
        {"$eq": [{"$type": "$lastCrash"}, "object"]},
        {"$ne": ["$nextRunAt", "$lastCrash.runAt"]},
        {"$ne": ["$nextRunAt", "$movedTo"]},
        {"$lte": [_count("$failCount"), _count("$lastCrash.failCount")]},
    ]
}
_CRASHES = {"$add": [{"$cond": [_RAN_SINCE, 0, _count("$crashCount")]}, 1]}
_LAST_CRASH = {"$mergeObjects": [{"runAt": "$nextRunAt", "failCount": _count("$failCount")}]}
_CRASHED = {
    "crashCount": _CRASHES,
    "lastCrash": _LAST_CRASH,
    "lostAttempt": _LOST_ATTEMPT,
    "updatedAt": "$$NOW",
}


def stale_fields(*, max_crashes: int) -> Document:
    """What recovery reads of a stale job: enough to name it, and whether this crash was one too many."""
    named = dict.fromkeys(("name", "claimedBy", "attempt", "repeatInterval"), 1)
    return {**named, "hopeless": _is_hopeless(max_crashes)}


def _is_hopeless(max_crashes: int) -> Document:
    return {"$gte": [_CRASHES, max_crashes]}


def recover(stale: Document, *, max_crashes: int) -> Transition:
    """processing, owner dead -> pending, unless its owners died too often."""
    return Transition(
        to=JobStatus.PENDING,
        when={**stale, "$nor": [{"$expr": _is_hopeless(max_crashes)}]},
        then=[{"$set": {**_CRASHED, "status": "pending"}}, {"$unset": list(CLAIM_FIELDS)}],
    )


def give_up_crashed(stale: Document, *, max_crashes: int) -> Transition:
    """processing, owner dead once too often -> failed.

    A job that kills its process would otherwise be run, and kill, for ever. Schedules are left out: they go
    on at their next time (`abandon_occurrence`).
    """
    return Transition(
        to=JobStatus.FAILED,
        when={
            **stale,
            # Not a query by `$type`, which also looks into arrays.
            "$and": [
                {"$expr": {"$ne": [{"$type": "$repeatInterval"}, "string"]}},
                {"$expr": _is_hopeless(max_crashes)},
            ],
        },
        then=_failed_by_crash(crash_reason(max_crashes)),
    )


def _failed_by_crash(reason: str) -> list[Document]:
    failed = {"status": "failed", "failReason": {"$literal": reason}}
    return [{"$set": {**_CRASHED, **failed}}, {"$unset": list(CLAIM_FIELDS)}]


def abandon_occurrence(schedule: Mapping[str, Any], *, run_at: datetime, leaves: Document) -> Transition:
    """processing, owner dead once too often -> pending at the next time, the run kept as failed.

    Only if nothing happened to the claim since it was read: a heartbeat meanwhile means that the
    owner lives.
    """
    return Transition(
        to=JobStatus.PENDING,
        when=_untouched(schedule),
        then=_next_time(run_at, {"lostAttempt": attempt_of(schedule), "failedRunId": leaves["_id"]}),
        leaves=leaves,
    )


def abandon_schedule(schedule: Mapping[str, Any], *, reason: str) -> Transition:
    """processing, owner dead once too often -> failed: it has no next time that we could read."""
    return Transition(
        to=JobStatus.FAILED,
        when=_untouched(schedule),
        then=_failed_by_crash(reason),
    )


def _untouched(schedule: Mapping[str, Any]) -> Document:
    claim = ("status", "claimedBy", "attempt", "lastHeartbeat", "repeatInterval", "timezone")
    return as_read(schedule, claim)


def as_read(document: Mapping[str, Any], fields: Iterable[str]) -> Document:
    """Match while these fields are as they were read, whatever they hold; a null matches what is not there.

    A value that Python cannot represent was read as another one, and would never match again.
    """
    read = {field: document.get(field) for field in fields}
    return {field: {"$eq": value} for field, value in read.items() if not is_inexact(value)}


def crash_reason(crashes: int) -> str:
    """Why a job that kills its process was given up."""
    return (
        f"its process died {crashes} time(s) while it ran (crashed, killed or out of memory); "
        "given up so that it does not kill more"
    )


def change_schedule(schedule: Mapping[str, Any], *, changes: Document) -> Transition:
    """pending or processing -> the same, with another cron, zone or payload.

    Only if nobody changed it since it was read. A running one keeps its claim; what it does next is
    decided when it settles, with the new values.
    """
    return Transition(
        to=JobStatus.PROCESSING if schedule["status"] == "processing" else JobStatus.PENDING,
        when=as_read(schedule, ("status", "updatedAt", "repeatInterval")),
        then={"$set": changes, "$currentDate": {"updatedAt": True}},
    )


def cancel() -> Transition:
    """pending -> cancelled, by an operator."""
    return Transition(
        to=JobStatus.CANCELLED,
        when={"status": "pending"},
        then={"$set": {"status": "cancelled"}, "$currentDate": {"updatedAt": True}},
    )


def retry_by_operator(*, spread: timedelta = timedelta(0)) -> Transition:
    """failed or cancelled -> pending, due now (or at a random time within *spread*), all counts at zero.

    `attempt` goes on counting: it tells this claim from all earlier ones.
    """
    wait: Any = 0
    if spread:
        wait = {"$toLong": {"$multiply": [{"$rand": {}}, milliseconds(spread)]}}
    return Transition(
        to=JobStatus.PENDING,
        when={"status": {"$in": ["failed", "cancelled"]}},
        then=[
            {
                "$set": {
                    "status": "pending",
                    "failCount": 0,
                    "nextRunAt": {"$add": ["$$NOW", wait]},
                    "updatedAt": "$$NOW",
                }
            },
            # A time after now must not be taken for one that misses its schedule.
            *([{"$set": {"movedTo": "$nextRunAt"}}] if spread else []),
            {"$unset": [*CLAIM_FIELDS, *_CRASH_FIELDS, "failReason"]},
        ],
    )


def reschedule_by_operator(*, run_at: datetime) -> Transition:
    """pending -> pending, at another time.

    For as long as `nextRunAt` is that time, `movedTo` says that an operator set it, and no run. It is written
    where somebody will ask: for schedules, and for jobs whose process died.
    """
    asked = {
        "$or": [
            {"$eq": [{"$type": "$repeatInterval"}, "string"]},
            {"$eq": [{"$type": "$lastCrash"}, "object"]},
        ]
    }
    return Transition(
        to=JobStatus.PENDING,
        when={"status": "pending"},
        then=[
            {
                "$set": {
                    "nextRunAt": run_at,
                    "movedTo": {"$cond": [asked, run_at, "$$REMOVE"]},
                    "updatedAt": "$$NOW",
                }
            }
        ],
    )
