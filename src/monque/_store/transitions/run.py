"""What the owner of a claim does to its job: the story of one run, from the claim to the settlement.

    pending ──claim──► processing ──complete────────► completed
       ▲                 │    ├─────fail────────────► failed
       │                 │    └─────cancel_run,─────► cancelled
       │                 │          expire
       └─retry, release,─┘
         snooze

`heartbeat` leaves the job in processing. Each settlement applies only while the claim holds (`owned`), and
writes `settledAttempt`, so that its owner can tell later whether it happened (`was_settled`).

A schedule that has run does not complete: see `occurrences`. A job in which a later call with the same key is
noted does not end before it has run once more: see `calls.run_again`.

Jobs that end alike share one transition, and so one write: most of these are cached by what they depend on.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from functools import lru_cache
from typing import Any, cast

from monque._store import document
from monque._store.document import (
    LARGEST_INT32,
    Document,
    attempt_of,
    failures_with,
    has_again,
    is_ended_after_run,
    is_recurring,
    milliseconds,
    stuck_since,
)
from monque._store.transitions.calls import run_again
from monque._store.transitions.occurrences import same_schedule
from monque._store.transitions.transition import (
    FORGET_OLD_CRASHES,
    LONG_FIELDS,
    MOVE_COUNTS,
    NO_CLAIM,
    NO_CRASHES,
    REQUESTED,
    Transition,
    counter,
    ending,
    may_end,
    owned,
    rounded,
    said_by,
)
from monque._values.history import HistoryEntry
from monque._values.status import CancelledBy, JobStatus
from monque._workers.results import Kept

# The longest reason in a document that has no room for more: others may store such. Half would say too
# little; twice could be too long as well.
_SHORT_REASON = 200

_NO_ROOM = "the document of this job has no room for its result"


def claim(*, instance_id: str, heartbeat_interval: timedelta) -> Transition:
    """pending and due -> processing.

    The server's clock decides at the moment of the write whether the job is due. A client cannot know: since
    it chose the job, others may have claimed it, failed, and put it back with a later time.
    """
    return Transition(
        to=JobStatus.PROCESSING,
        when={"status": "pending", "$expr": {"$lte": ["$nextRunAt", "$$NOW"]}},
        then={
            "$set": {
                "status": "processing",
                "claimedBy": instance_id,
                # These are 24 days: nobody needs to tell longer intervals apart.
                "heartbeatInterval": min(milliseconds(heartbeat_interval), LARGEST_INT32),
            },
            "$inc": {"attempt": 1},
            # `claimedAt` says since when the job runs; heartbeats move the others.
            "$currentDate": dict.fromkeys(("claimedAt", "lockedAt", "lastHeartbeat", "updatedAt"), True),
        },
    )


def heartbeat(claim: Mapping[str, Any]) -> Transition:
    """processing -> processing, alive.

    `lockedAt` moves too: TypeScript instances take back whatever was locked more than half an
    hour ago, however alive it is. If the handler is stuck, everybody may know.
    """
    beat = _heartbeat(claim["claimedBy"], attempt_of(claim))
    if "stuck" not in claim or stuck_since(claim) is None:
        return beat
    return replace(beat, then={"$set": {"stuck": claim["stuck"]}, **cast("Document", beat.then)})


@lru_cache(maxsize=256)
def _heartbeat(claimed_by: str, attempt: int) -> Transition:
    return Transition(
        to=JobStatus.PROCESSING,
        when=owned({"claimedBy": claimed_by, "attempt": attempt}),
        then={"$currentDate": {"lastHeartbeat": True, "lockedAt": True, "updatedAt": True}},
    )


def complete(claim: Mapping[str, Any], *, ran: float = 0.0, kept: Kept | None = None) -> Transition:
    """processing -> completed, with the result that is *kept*, if any, or why that is not stored.

    Jobs that ran about equally long (*ran*, in seconds) share one transition, and so one write.
    """
    had_trouble = "failReason" in claim or "crashCount" in claim
    keyed, attempt, took = "uniqueKey" in claim, attempt_of(claim), rounded(round(ran * 1000))
    plain = _complete(claim["claimedBy"], attempt, took, had_trouble, keyed)
    if kept is None:
        return plain
    had_result = "result" in claim or "resultError" in claim
    base = _with_result_of(plain, kept.error, had_result)
    return base if kept.error is not None else base.with_value(kept)


@lru_cache(maxsize=1024)
def _complete(claimed_by: str, attempt: int, ran: int, had_trouble: bool, keyed: bool) -> Transition:
    # Each field in `$unset` takes the server about a microsecond, even if the document lacks it. Only owners
    # of a claim and recovery write these fields, so if the claim lacks them, so does the document.
    trouble = {**NO_CRASHES, "failReason": ""} if had_trouble else {}
    return Transition(
        to=JobStatus.COMPLETED,
        when=may_end(claimed_by, attempt, keyed),
        then={
            "$set": {"status": "completed", "settledAttempt": attempt},
            "$unset": {**NO_CLAIM, **trouble},
            "$currentDate": {"updatedAt": True},
        },
        ran=timedelta(milliseconds=ran),
    )


@lru_cache(maxsize=1024)
def _with_result_of(plain: Transition, error: str | None, had_result: bool) -> Transition:
    """A completion that stores a result in addition, or why there is none."""
    fields: Document = {**cast("Document", plain.then)["$set"], "updatedAt": "$$NOW"}
    removed = list(cast("Document", plain.then)["$unset"])
    said = {} if error is None else {"resultError": {"$literal": error}}
    other = ["resultError" if error is None else "result"] if had_result else []
    ran = milliseconds(plain.ran or timedelta(0))
    times = {"startedAt": {"$subtract": ["$$NOW", ran]}, "finishedAt": "$$NOW"}
    lean = {**fields, **times, "resultError": said.get("resultError", _NO_ROOM)}
    return replace(
        plain,
        then=[{"$set": {**fields, **said}}, {"$unset": [*removed, *other]}],
        lean=[{"$set": lean}, {"$unset": [*removed, *LONG_FIELDS, "result"]}],
    )


def retry(
    claim: Mapping[str, Any], *, delay: timedelta, reason: str, entry: HistoryEntry | None = None
) -> Transition:
    """processing -> pending, one failure more, after *delay* from the server's now.

    Jobs that failed alike share one transition, and so one write. A schedule does not: it may have to end,
    and must not wait for its retry first.
    """
    failed = _failed(claim, JobStatus.PENDING, reason, entry, milliseconds(delay))
    return replace(failed, when=same_schedule(claim)) if is_recurring(claim) else failed


def fail(
    claim: Mapping[str, Any],
    *,
    reason: str,
    entry: HistoryEntry | None = None,
    ended: Document | None = None,
) -> Transition:
    """processing -> failed, for good."""
    return _failed(claim, JobStatus.FAILED, reason, entry, None).keeping(claim, ended)


def _failed(
    claim: Mapping[str, Any], to: JobStatus, reason: str, entry: HistoryEntry | None, delay: int | None
) -> Transition:
    alike = None if entry is None else replace(entry, ran=rounded(round(entry.ran * 1000)) / 1000)
    owner, attempt, keyed = claim["claimedBy"], attempt_of(claim), _is_keyed_run(claim)
    return _shared_failure(owner, attempt, keyed, failures_with(claim), to, reason, alike, delay)


@lru_cache(maxsize=256)
def _shared_failure(
    claimed_by: str,
    attempt: int,
    keyed: bool,
    failures: int,
    to: JobStatus,
    reason: str,
    entry: HistoryEntry | None,
    delay: int | None,
) -> Transition:
    claim = {"claimedBy": claimed_by, "attempt": attempt}
    fields: Document = {
        "status": to.value,
        # Set instead of incremented: the stored value may not be a number, and nobody else counts while we
        # hold the claim.
        "failCount": failures,
        "settledAttempt": attempt,
    }
    if delay is not None:
        fields["nextRunAt"] = {"$add": ["$$NOW", delay]}
    stages = ending({**fields, "failReason": {"$literal": reason}})
    short = {**fields, "failReason": {"$literal": reason[:_SHORT_REASON]}}
    return Transition(
        to=to,
        when=may_end(claimed_by, attempt, keyed),
        then=stages if entry is None else [document.append(entry, claim), *stages],
        lean=[*ending(short), {"$unset": [*LONG_FIELDS, "result"]}],
    )


def _is_keyed_run(claim: Mapping[str, Any]) -> bool:
    """Whether a later call may be noted in the job: never in a schedule."""
    return "uniqueKey" in claim and not is_recurring(claim)


def release(claim: Mapping[str, Any]) -> Transition:
    """processing -> pending, as if nobody had claimed it; it counts no failure."""
    return _release(claim["claimedBy"], attempt_of(claim))


@lru_cache(maxsize=256)
def _release(claimed_by: str, attempt: int) -> Transition:
    return Transition(
        to=JobStatus.PENDING,
        when=owned({"claimedBy": claimed_by, "attempt": attempt}),
        then={
            "$set": {"status": "pending", "settledAttempt": attempt},
            "$unset": NO_CLAIM,
            "$currentDate": {"updatedAt": True},
        },
    )


def snooze(
    claim: Mapping[str, Any], *, delay: timedelta | None = None, until: datetime | None = None
) -> Transition:
    """processing -> pending, after *delay* from the server's now or at *until*; it counts no failure."""
    wait = None if delay is None else milliseconds(delay)
    snoozed = _snooze(claim["claimedBy"], attempt_of(claim), _is_keyed_run(claim), wait, until)
    return replace(snoozed, when=same_schedule(claim)) if is_recurring(claim) else snoozed


# A schedule that is paused waits until it is resumed, whatever its handler said.
_IS_PAUSED = {"$eq": [{"$type": "$schedule.pausedAt"}, "date"]}
_SNOOZE_COUNTS = {"$and": [MOVE_COUNTS, {"$not": [_IS_PAUSED]}]}


@lru_cache(maxsize=256)
def _snooze(
    claimed_by: str, attempt: int, keyed: bool, delay: int | None, until: datetime | None
) -> Transition:
    snoozed = {
        "status": "pending",
        "nextRunAt": until if delay is None else {"$add": ["$$NOW", delay]},
        "snoozeCount": {"$add": [counter("$snoozeCount"), 1]},
        "settledAttempt": attempt,
    }
    return Transition(
        to=JobStatus.PENDING,
        when=may_end(claimed_by, attempt, keyed),
        then=[
            FORGET_OLD_CRASHES,
            *ending(snoozed),
            {"$set": {"movedTo": {"$cond": [_SNOOZE_COUNTS, "$nextRunAt", "$$REMOVE"]}}},
        ],
    )


def cancel_run(
    claim: Mapping[str, Any],
    *,
    by: CancelledBy = "operator",
    reason: str | None = None,
    entry: HistoryEntry | None = None,
    ended: Document | None = None,
) -> Transition:
    """processing -> cancelled: an operator has asked for it, or the handler said so. It counts no failure.

    The request of an operator stays as it is. Jobs whose handlers were never called share one transition. The
    request to end a schedule after its run may be withdrawn: then this does not apply.
    """
    if is_ended_after_run(claim):
        still = {"$expr": REQUESTED}
        asked = cancel_run({**claim, "cancel": None}, by=by, reason=reason, entry=entry, ended=ended)
        return replace(asked, when={**asked.when, **still})
    if by == "operator" and entry is None:
        return _cancel_asked(claim["claimedBy"], attempt_of(claim)).keeping(claim, ended)
    short = None if reason is None else reason[:_SHORT_REASON]
    cancelled = {"status": "cancelled", "settledAttempt": attempt_of(claim)}
    stages, lean = (ending({**cancelled, "cancel": said_by(by, why)}, ["again"]) for why in (reason, short))
    run = Transition(
        to=JobStatus.CANCELLED,
        when=owned(claim),
        then=stages if entry is None else [document.append(entry, claim), *stages],
        lean=[*lean, {"$unset": [*LONG_FIELDS, "result"]}],
    )
    return run.keeping(claim, ended)


@lru_cache(maxsize=256)
def _cancel_asked(claimed_by: str, attempt: int) -> Transition:
    return Transition(
        to=JobStatus.CANCELLED,
        when=owned({"claimedBy": claimed_by, "attempt": attempt}),
        then={
            "$set": {"status": "cancelled", "settledAttempt": attempt},
            "$unset": {**NO_CLAIM, "again": ""},
            "$currentDate": {"updatedAt": True},
        },
    )


def expire(claim: Mapping[str, Any]) -> Transition:
    """processing -> cancelled, because it was not worth running any more. Expired jobs share one write.

    If a later call is noted in the job, that runs instead.
    """
    if has_again(claim):
        return run_again(claim)
    return _expire(claim["claimedBy"], attempt_of(claim), _is_keyed_run(claim))


@lru_cache(maxsize=256)
def _expire(claimed_by: str, attempt: int, keyed: bool) -> Transition:
    cancelled = {"status": "cancelled", "settledAttempt": attempt, "cancel": said_by("expiry", "expired")}
    return Transition(
        to=JobStatus.CANCELLED,
        when=may_end(claimed_by, attempt, keyed),
        then=ending(cancelled),
    )
