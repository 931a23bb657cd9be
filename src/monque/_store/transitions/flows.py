"""Transitions of durable steps, by the owner of a claim, whose handler does them.

    processing ──record_steps──► processing, with steps that are done
    processing ──hold──────────► processing, held by a transaction
    processing ──suspend───────► pending, until its time comes or somebody wakes it
    processing ──end_jobs──────► processing, with the states of the jobs that it waited for
    pending    ──cancel_child──► cancelled, because its parent was, or begins anew

A step is stored once: only the owner of the claim writes one, and only under a name that is not there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from typing import Any, Literal

from monque._store.document import PARKED, Claim, Document, array
from monque._store.transitions.run import ALIVE
from monque._store.transitions.transition import (
    NOT_REQUESTED,
    Transition,
    counter,
    ending,
    owned,
    rounded,
    said_by,
)
from monque._values.status import JobStatus

# A step sets the failures of its job to 0, a wait moves its time, and neither is an end of the job. To
# recovery that would look like a success since the last crash (`RAN_SINCE_CRASH`): a job that does a step and
# then kills its process would never be given up. No count of failures is as low as this.
_NOT_OVER = -1

STEPS = array("$steps")
LAST_CRASH = {
    "$cond": [
        {"$eq": [{"$type": "$lastCrash"}, "object"]},
        {"$mergeObjects": ["$lastCrash", {"failCount": _NOT_OVER}]},
        {"$ifNull": ["$lastCrash", "$$REMOVE"]},
    ]
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """A wait that a handler asks for. Equal ones of jobs that ran about equally long share a write."""

    name: str
    kind: Literal["sleep", "signal", "jobs"]
    is_new: bool = True
    """It has no entry yet."""
    delay: int | None = None
    """Milliseconds from the server's now: of a sleep, or of the timeout of another wait that is new."""
    until: datetime | None = None
    """The time instead; None for a wait without a timeout."""
    signal: str | None = None
    batch: str | None = None
    """The label of the jobs that it waits for."""
    jobs: int = 0
    """The number of these jobs."""


def record_steps(claim: Claim, entries: Sequence[Document]) -> Transition:
    """processing -> processing, alive, with these steps done; failures are counted from 0 again.

    If the answer to an earlier try was lost, one of the names is there, and nothing is written twice.
    """
    # Else somebody stored it, and a `$push` would fail for ever.
    is_list = isinstance(claim.document.get("steps", []), list)
    fields = no_failures(claim) if is_list else {**no_failures(claim), "steps": list(entries)}
    return Transition(
        to=JobStatus.PROCESSING,
        when={
            **owned(claim.claimed_by, claim.attempt),
            "steps.n": {"$nin": [entry["n"] for entry in entries]},
        },
        then={
            "$set": fields,
            **({"$push": {"steps": {"$each": list(entries)}}} if is_list else {}),
            **ALIVE,
        },
    )


def no_failures(claim: Claim) -> Document:
    """The fields by which the failures of a job that has done a step are counted from 0 again."""
    if isinstance(claim.document.get("lastCrash"), dict):
        return {"failCount": 0, "lastCrash.failCount": _NOT_OVER}
    return {"failCount": 0}


def hold(claim: Claim, name: str) -> Transition:
    """processing -> processing, alive: the first write of a transaction, which holds the document."""
    return Transition(
        to=JobStatus.PROCESSING,
        when={**owned(claim.claimed_by, claim.attempt), "steps.n": {"$ne": name}},
        then=ALIVE,
    )


def suspend(claim: Claim, wait: Waiting, *, ran: float = 0.0) -> Transition:
    """processing -> pending, until a time, a signal or the end of jobs; a call that is noted stays noted.

    A signal that came before this write, or comes after it, wakes the job: both are updates of one document,
    and each looks for the other. Jobs may have ended before it: whoever writes it looks for that afterwards.
    It does not apply if an operator has asked for the job's end.
    """
    return _suspend(claim.claimed_by, claim.attempt, wait, rounded(round(ran * 1000)), claim.expires_at)


@lru_cache(maxsize=256)
def _suspend(
    claimed_by: str, attempt: int, wait: Waiting, ran: int, expires_at: datetime | None
) -> Transition:
    until: Any = wait.until if wait.delay is None else {"$add": ["$$NOW", wait.delay]}
    fields: Document = {"status": "pending", "settledAttempt": attempt, "lastCrash": LAST_CRASH}
    if wait.is_new:
        entry = {"n": {"$literal": wait.name}, "k": wait.kind, "at": "$$NOW", "ms": ran}
        fields["steps"] = {"$concatArrays": [STEPS, [entry if until is None else {**entry, "until": until}]]}
        fields["failCount"] = 0
    else:
        fields["steps"] = _longer(wait, ran, until)
    # Without a timeout it waits until it expires, if it ever does: its next gate cancels it then.
    times = [PARKED if until is None else until, *([] if expires_at is None else [expires_at])]
    if wait.batch is not None:
        parked = {"why": "batch", "key": {"$literal": wait.batch}, "since": "$$NOW"}
        fields |= {"nextRunAt": {"$min": times}, "parked": {"$mergeObjects": [parked]}}
    elif wait.signal is None:
        fields |= {"nextRunAt": until, "parked": {"$mergeObjects": [{"why": "time", "since": "$$NOW"}]}}
    else:
        signal = {"$literal": wait.signal}
        parked = {"why": "signal", "key": signal, "since": "$$NOW"}
        is_there = {"$in": [signal, {"$cond": [{"$isArray": "$signals"}, "$signals.n", []]}]}
        fields["nextRunAt"] = {"$cond": [is_there, "$$NOW", {"$min": times}]}
        fields["parked"] = {"$cond": [is_there, "$$REMOVE", parked]}
    return Transition(
        to=JobStatus.PENDING,
        when={**owned(claimed_by, attempt), **NOT_REQUESTED},
        then=ending(fields),
    )


def _longer(wait: Waiting, ran: int, until: Any) -> Document:
    """The steps, with the time of one more run that ended in this wait."""
    fields: Document = {"ms": {"$add": [counter("$$this.ms"), ran]}}
    if wait.batch is not None:  # its entry was made before the jobs were stored
        fields |= {"jobs": wait.jobs} if until is None else {"jobs": wait.jobs, "until": until}
    return changed_entry(wait.name, fields)


def changed_entry(name: str, fields: Document) -> Document:
    """The steps, in which the entry of this name has these fields, too; they may be made of `$$this`."""
    is_it = {"$eq": ["$$this.n", {"$literal": name}]}
    changed = {"$cond": [is_it, {"$mergeObjects": ["$$this", fields]}, "$$this"]}
    return {"$map": {"input": STEPS, "in": changed}}


def end_jobs(claim: Claim, name: str, letters: str | None) -> Transition:
    """processing -> processing, alive, with the end of its wait for jobs; None if the time was up before."""
    return Transition(
        to=JobStatus.PROCESSING,
        when={
            **owned(claim.claimed_by, claim.attempt),
            "steps": {"$elemMatch": {"n": name, "over": {"$exists": False}}},
        },
        then={
            **({} if letters is None else {"$set": {"steps.$.v": letters}}),
            "$currentDate": {**ALIVE["$currentDate"], "steps.$.over": True},
        },
    )


def cancel_child() -> Transition:
    """pending -> cancelled: the job that waits for it was cancelled, or stores such jobs anew."""
    cancelled = {
        "status": "cancelled",
        "cancel": said_by("batch", "its parent does not wait for it any more"),
    }
    return Transition(
        to=JobStatus.CANCELLED,
        when={"status": "pending"},
        then=[
            {"$set": {**cancelled, "updatedAt": "$$NOW"}},
            {"$unset": ["again", "parked", "signals", "turn"]},
        ],
    )
