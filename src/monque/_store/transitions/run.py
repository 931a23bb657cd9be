"""Transitions by the owner of a claim: the story of one run, from the claim to the settlement.

    pending ──claim──► processing ──complete────────► completed
       ▲                 │    ├─────remove──────────► completed, and the document is gone
       │                 │    ├─────fail────────────► failed
       │                 │    └─────cancel_run,─────► cancelled
       │                 │          expire
       └─retry, release,─┘
         snooze, refuse

`heartbeat` and `take` leave the job in processing. Each settlement applies only while the claim holds
(`owned`), and writes `settledAttempt`, so that its owner can tell later whether it happened (`was_settled`).

A schedule that has run does not complete: see `occurrences`. A job in which a later call with the same key is
noted does not end before it has run once more: see `calls.run_again`.

Jobs that end alike share one transition, and so one write: most of these are cached by what they depend on.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from functools import lru_cache
from typing import cast

from monque._store import document
from monque._store.document import (
    FOLLOW_UP,
    LARGEST_INT32,
    ON_FAILURE,
    Claim,
    Document,
    milliseconds,
    on_failure_of,
    stuck_since,
)
from monque._store.transitions.calls import run_again
from monque._store.transitions.occurrences import same_schedule
from monque._store.transitions.transition import (
    CRASH_FIELDS,
    FORGET_OLD_CRASHES,
    MOVE_COUNTS,
    REQUESTED,
    Transition,
    by_id,
    counter,
    ending,
    may_end,
    owned,
    plain_ending,
    rounded,
    said_by,
)
from monque._values.history import HistoryEntry
from monque._values.status import CancelledBy, JobStatus
from monque._workers.results import Kept


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
            "$currentDate": dict.fromkeys(("claimedAt", *_BEAT), True),
        },
    )


_BEAT = ("lastHeartbeat", "lockedAt", "updatedAt")
ALIVE: Document = {"$currentDate": dict.fromkeys(_BEAT, True)}
ALIVE_NOW: Document = dict.fromkeys(_BEAT, "$$NOW")
"""The same fields for a pipeline."""


def heartbeat(claim: Claim) -> Transition:
    """processing -> processing, alive.

    `lockedAt` moves too: TypeScript instances take back whatever was locked more than half an
    hour ago, however alive it is. If the handler is stuck, everybody may know.
    """
    beat = _heartbeat(claim.claimed_by, claim.attempt)
    if "stuck" not in claim.document or stuck_since(claim.document) is None:
        return beat
    return replace(beat, then={"$set": {"stuck": claim.document["stuck"]}, **cast("Document", beat.then)})


@lru_cache(maxsize=256)
def _heartbeat(claimed_by: str, attempt: int) -> Transition:
    return Transition(
        to=JobStatus.PROCESSING,
        when=owned(claimed_by, attempt),
        then=ALIVE,
    )


def complete(claim: Claim, *, ran: float = 0.0, kept: Kept | None = None) -> Transition:
    """processing -> completed, with the result that is *kept*, if any, or why that is not stored.

    Jobs that ran about equally long (*ran*, in seconds) share one transition, and so one write.
    """
    fields = claim.document
    had_trouble = "failReason" in fields or "crashCount" in fields
    keyed, took = "uniqueKey" in fields, rounded(round(ran * 1000))
    plain = _complete(claim.claimed_by, claim.attempt, took, had_trouble, keyed)
    if kept is None:
        return plain
    had_result = "result" in fields or "resultError" in fields
    base = _with_result_of(plain, kept.error, had_result)
    return base if kept.error is not None else base.with_value(kept)


@lru_cache(maxsize=1024)
def _complete(claimed_by: str, attempt: int, ran: int, had_trouble: bool, keyed: bool) -> Transition:
    # Each field in `$unset` takes the server about a microsecond, even if the document lacks it. Only owners
    # of a claim and recovery write these fields, so if the claim lacks them, so does the document.
    trouble = (*CRASH_FIELDS, "failReason") if had_trouble else ()
    return Transition(
        to=JobStatus.COMPLETED,
        when=may_end(claimed_by, attempt, keyed),
        then=plain_ending({"status": "completed", "settledAttempt": attempt}, trouble),
        ran=timedelta(milliseconds=ran),
    )


@lru_cache(maxsize=1024)
def _with_result_of(plain: Transition, error: str | None, had_result: bool) -> Transition:
    """A completion that stores a result in addition, or why there is none."""
    fields: Document = {**cast("Document", plain.then)["$set"], "updatedAt": "$$NOW"}
    removed = list(cast("Document", plain.then)["$unset"])
    said = {} if error is None else {"resultError": {"$literal": error}}
    other = ["resultError" if error is None else "result"] if had_result else []
    return replace(plain, then=[{"$set": {**fields, **said}}, {"$unset": [*removed, *other]}])


# Others rely on the documents of these jobs after their end: a schedule, a parent, a batch, a window, or what
# has to be stored first.
_NEEDED = ("scheduleId", "parent", "batch", "windowKey", FOLLOW_UP)


def is_removable(claim: Claim) -> bool:
    """Return whether nobody needs the document of a job that is completed.

    Whoever stores a job under an id made from another one may do so twice: then it must be there.
    """
    document = claim.document
    if claim.is_recurring or any(field in document for field in _NEEDED):
        return False
    return ON_FAILURE not in document or on_failure_of(document) is not None


def remove(claim: Claim) -> Transition:
    """processing -> completed, and gone: as `complete`, for a job that is not kept."""
    return _remove(claim.claimed_by, claim.attempt, "uniqueKey" in claim.document)


@lru_cache(maxsize=256)
def _remove(claimed_by: str, attempt: int, keyed: bool) -> Transition:
    when = may_end(claimed_by, attempt, keyed)
    return Transition(to=JobStatus.COMPLETED, when=when, then={}, removes=True)


def retry(claim: Claim, *, delay: timedelta, reason: str, entry: HistoryEntry | None = None) -> Transition:
    """processing -> pending, one failure more, after *delay* from the server's now.

    Jobs that failed alike share one transition, and so one write. A schedule does not: it may have to end,
    and must not wait for its retry first.
    """
    failed = _failed(claim, JobStatus.PENDING, reason, entry, milliseconds(delay))
    return replace(failed, when=same_schedule(claim)) if claim.is_recurring else failed


def fail(
    claim: Claim,
    *,
    reason: str,
    entry: HistoryEntry | None = None,
    ended: Document | None = None,
) -> Transition:
    """processing -> failed, for good."""
    return _failed(claim, JobStatus.FAILED, reason, entry, None).with_run(claim.document, ended)


def _failed(
    claim: Claim, to: JobStatus, reason: str, entry: HistoryEntry | None, delay: int | None
) -> Transition:
    alike = None if entry is None else replace(entry, ran=rounded(round(entry.ran * 1000)) / 1000)
    keyed = _is_keyed_run(claim) if to is JobStatus.FAILED else _gives_way(claim)
    owner, attempt = claim.claimed_by, claim.attempt
    return _shared_failure(owner, attempt, keyed, claim.fails, to, reason, alike, delay)


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
    return Transition(
        to=to,
        when=may_end(claimed_by, attempt, keyed),
        then=stages if entry is None else [document.append(entry, claim), *stages],
    )


def _is_keyed_run(claim: Claim) -> bool:
    """Return whether a later call may be noted in the job: never in a schedule."""
    return "uniqueKey" in claim.document and not claim.is_recurring


def _gives_way(claim: Claim) -> bool:
    """Return whether a later call that is noted runs instead of the next try of this one.

    Not if the job has steps: it is in the middle of something, and goes on with that first.
    """
    return _is_keyed_run(claim) and not claim.has_steps


def release(claim: Claim) -> Transition:
    """processing -> pending, as if nobody had claimed it; it counts no failure."""
    return _release(claim.claimed_by, claim.attempt)


@lru_cache(maxsize=256)
def _release(claimed_by: str, attempt: int) -> Transition:
    return Transition(
        to=JobStatus.PENDING,
        when=owned(claimed_by, attempt),
        then=plain_ending({"status": "pending", "settledAttempt": attempt}),
    )


def take(claims: Sequence[Claim], turns: Sequence[Document]) -> Transition:
    """processing -> processing, each with its turn: a line and a slot that no other active job of it has.

    The index `monque_turn` sees to that. So a turn ends with what its job does: whoever settles, cancels or
    recovers it frees the slot in the same write.
    """
    ids = [claim.id for claim in claims]
    attempt = by_id(ids, [claim.attempt for claim in claims])
    owned = {"status": "processing", "claimedBy": claims[0].claimed_by}
    return Transition(
        to=JobStatus.PROCESSING,
        when={**owned, "$expr": {"$eq": ["$attempt", attempt]}},
        then=[{"$set": {"turn": by_id(ids, list(turns)), "updatedAt": "$$NOW"}}],
    )


def refuse(instance_id: str) -> Transition:
    """processing -> pending, because nobody can make a claim of what the document holds.

    Without the attempt, which may be what is wrong with it: no run has this job.
    """
    return Transition(
        to=JobStatus.PENDING,
        when={"status": "processing", "claimedBy": instance_id},
        then=plain_ending({"status": "pending"}, ["parked", "turn"]),
    )


def snooze(claim: Claim, *, delay: timedelta | None = None, until: datetime | None = None) -> Transition:
    """processing -> pending, after *delay* from the server's now or at *until*; it counts no failure."""
    wait = None if delay is None else milliseconds(delay)
    snoozed = _snooze(claim.claimed_by, claim.attempt, _gives_way(claim), wait, until)
    return replace(snoozed, when=same_schedule(claim)) if claim.is_recurring else snoozed


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
    claim: Claim,
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
    if claim.ends_after_run:
        still = {"$expr": REQUESTED}
        asked = cancel_run(claim.with_request(None), by=by, reason=reason, entry=entry, ended=ended)
        return replace(asked, when={**asked.when, **still})
    if by == "operator" and entry is None:
        return _cancel_asked(claim.claimed_by, claim.attempt).with_run(claim.document, ended)
    cancelled = {"status": "cancelled", "settledAttempt": claim.attempt, "cancel": said_by(by, reason)}
    stages = ending(cancelled, ["again", "signals"])
    run = Transition(
        to=JobStatus.CANCELLED,
        when=owned(claim.claimed_by, claim.attempt),
        then=stages if entry is None else [document.append(entry, claim.document), *stages],
    )
    return run.with_run(claim.document, ended)


@lru_cache(maxsize=256)
def _cancel_asked(claimed_by: str, attempt: int) -> Transition:
    return Transition(
        to=JobStatus.CANCELLED,
        when=owned(claimed_by, attempt),
        then=plain_ending({"status": "cancelled", "settledAttempt": attempt}, ["again", "signals"]),
    )


def expire(claim: Claim) -> Transition:
    """processing -> cancelled, because it was not worth running any more. Expired jobs share one write.

    If a later call is noted in the job, that runs instead.
    """
    if claim.has_again:
        return run_again(claim)
    return _expire(claim.claimed_by, claim.attempt, _is_keyed_run(claim))


@lru_cache(maxsize=256)
def _expire(claimed_by: str, attempt: int, keyed: bool) -> Transition:
    cancelled = {"status": "cancelled", "settledAttempt": attempt, "cancel": said_by("expiry", "expired")}
    return Transition(
        to=JobStatus.CANCELLED,
        when=may_end(claimed_by, attempt, keyed),
        then=ending(cancelled, ["signals"]),
    )
