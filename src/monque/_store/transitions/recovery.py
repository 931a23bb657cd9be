"""Transitions of jobs whose owner is dead. Each instance looks for such jobs, of all owners.

    processing, stale ──recover────────────► pending
    processing, stale ──cancel_stale───────► cancelled, because an operator has asked for it

If the owners of a job died too often, it is given up:

    processing, stale ──give_up_crashed────► failed
    processing, stale ──run_again_crashed──► pending, for a later call with the same key
    processing, stale ──abandon_occurrence─► pending at the next time of the schedule; completed without one
    processing, stale ──abandon_schedule───► failed, because the schedule cannot be read

An owner may be silent for the heartbeat tolerance, but always for three of its own heartbeat intervals: with
a tolerance close to the interval, one late heartbeat must not lose jobs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from monque._store import document
from monque._store.document import CLAIM_FIELDS, LARGEST_INT32, Document, attempt_of, milliseconds
from monque._store.transitions.calls import once_more
from monque._store.transitions.occurrences import ended_run, next_time, one_run_more, with_history
from monque._store.transitions.transition import (
    IS_NOTED,
    NOT_REQUESTED,
    NOTED,
    RAN_SINCE_CRASH,
    REQUESTED,
    FailedRun,
    Transition,
    as_read,
    counter,
)
from monque._values.history import HistoryEntry
from monque._values.options import Options
from monque._values.status import JobStatus

# With 2, a single heartbeat that is lost on its way and one that is late lose the job; with 6, jobs of a dead
# owner wait twice as long where the tolerance is short.
_MISSED_BEATS = 3


# The interval of an owner that does not say its own, as TypeScript instances have it.
_UNKNOWN_INTERVAL = timedelta(seconds=30)

_PROMISED = {"$min": [counter("$heartbeatInterval"), LARGEST_INT32]}
_INTERVAL = {"$cond": [{"$gt": [_PROMISED, 0]}, _PROMISED, milliseconds(_UNKNOWN_INTERVAL)]}

# No claim is checked later than this. To add to a date near the end of time is an error of the server.
FAR = datetime(9999, 1, 1, tzinfo=UTC)


def allowed_silence(*, tolerance: timedelta, interval: timedelta) -> timedelta:
    """The time that an owner with this heartbeat interval may be silent before others take its jobs."""
    return max(tolerance, _MISSED_BEATS * (interval or _UNKNOWN_INTERVAL))


def _silence(tolerance: timedelta) -> Document:
    """The same in milliseconds, as an expression of the interval that a claim promises."""
    return {"$max": [milliseconds(tolerance), {"$multiply": [_MISSED_BEATS, _INTERVAL]}]}


def stale(*, tolerance: timedelta, lock_timeout: timedelta, as_of: datetime) -> Document:
    """Match jobs whose owner was dead at the time *as_of*, by the server's clock.

    An owner is dead if its last heartbeat is older than it may be silent. A claim without any heartbeat
    (foreign, or very old) is stale after the lock timeout.

    `$$NOW` alone would not do: the driver repeats a command until an outage is over, and by then all owners
    have been silent.
    """
    now, silence = {"$min": ["$$NOW", as_of]}, _silence(tolerance)
    heard = {"$ifNull": ["$lastHeartbeat", None]}
    locked = {"$ifNull": ["$lockedAt", {"$ifNull": ["$updatedAt", "$$NOW"]}]}
    return {
        "status": "processing",
        "$expr": {
            "$cond": [
                {"$eq": [heard, None]},
                {"$lt": [locked, {"$subtract": [now, milliseconds(lock_timeout)]}]},
                {"$lt": ["$lastHeartbeat", {"$subtract": [now, silence]}]},
            ]
        },
    }


def claims(stale: Document, options: Options, most: int, of: Sequence[str] | None = None) -> list[Document]:
    """The pipeline that reads *most* claims, dead ones first, then in the order in which they would be.

    Without *of*, they are of all owners.
    """
    dated = {"$eq": [{"$type": "$lastHeartbeat"}, "date"]}
    beaten = {"$and": [dated, {"$lt": ["$lastHeartbeat", FAR]}]}
    silent_at = {"$add": ["$lastHeartbeat", _silence(options.tolerance)]}
    facts = {
        "lastHeartbeat": 1,
        "interval": {"$toInt": _INTERVAL},
        "stale": stale["$expr"],
        "until": {"$cond": [beaten, silent_at, FAR]},
    }
    return [
        {"$match": {"status": "processing", **({} if of is None else {"claimedBy": {"$in": of}})}},
        {"$project": {**stale_fields(max_crashes=options.max_retries), **facts}},
        {"$sort": {"stale": -1, "until": 1}},
        {"$limit": most},
    ]


def still_claimed(read: Mapping[str, Any]) -> Document:
    """Match while nothing has happened to a claim since it was read: no heartbeat, and no other claim."""
    return {"status": "processing", **as_read(read, ("claimedBy", "attempt", "lastHeartbeat"))}


# Recovery remembers the attempt that it ended; a claim of another implementation has none.
_LOST_ATTEMPT = {"$ifNull": ["$attempt", {"$ifNull": ["$lostAttempt", "$$REMOVE"]}]}

_CRASHES = {"$add": [{"$cond": [RAN_SINCE_CRASH, 0, counter("$crashCount")]}, 1]}
_LAST_CRASH = {"$mergeObjects": [{"runAt": "$nextRunAt", "failCount": counter("$failCount")}]}
_CRASHED = {
    "crashCount": _CRASHES,
    "lastCrash": _LAST_CRASH,
    "lostAttempt": _LOST_ATTEMPT,
    "updatedAt": "$$NOW",
}

# A job that is put back keeps its turn in the line of a key. That of a whole name is free for others.
_KEYED_TURN = {"$cond": [{"$gt": ["$turn.line", ""]}, "$turn", "$$REMOVE"]}


def stale_fields(*, max_crashes: int) -> Document:
    """The facts that recovery reads of a stale job: its crashes, are they too many, is it to end."""
    named = dict.fromkeys(("name", "claimedBy", "attempt", "repeatInterval", "onFailure", "followUp"), 1)
    hopeless = _is_hopeless(max_crashes)
    return {**named, "crashes": _CRASHES, "hopeless": hopeless, "requested": REQUESTED, "noted": IS_NOTED}


def _is_hopeless(max_crashes: int) -> Document:
    """Match if its owners died as often as the job may be tried: by its policy, else *max_crashes*."""
    attempts, delays = "$policy.maxAttempts", "$policy.delays"
    has_policy = {"$eq": [{"$type": "$policy"}, "object"]}
    says_attempts = {"$and": [has_policy, {"$isNumber": attempts}, {"$gte": [attempts, 1]}]}
    says_delays = {"$and": [has_policy, {"$isArray": delays}, {"$ne": [delays, []]}]}
    of_delays = {"$cond": [says_delays, {"$add": [{"$size": delays}, 1]}, max_crashes]}
    return {"$gte": [_CRASHES, {"$cond": [says_attempts, attempts, of_delays]}]}


def recover(stale: Document, *, max_crashes: int, entry: HistoryEntry | None = None) -> Transition:
    """processing, owner dead -> pending, unless its owners died too often or somebody wants it to end."""
    return Transition(
        to=JobStatus.PENDING,
        when={**stale, "$nor": [{"$expr": _is_hopeless(max_crashes)}, {"$expr": REQUESTED}]},
        then=_taken({**_CRASHED, "status": "pending", "turn": _KEYED_TURN}, entry),
    )


def cancel_stale(
    stale: Document, *, entry: HistoryEntry | None = None, ended: Document | None = None
) -> Transition:
    """processing, owner dead -> cancelled, because an operator has asked for it."""
    cancelled = Transition(
        to=JobStatus.CANCELLED,
        when={**stale, "$and": [{"$expr": REQUESTED}]},
        then=_taken({**_CRASHED, "status": "cancelled"}, entry, ["again", "signals", "turn"]),
    )
    return cancelled.with_run({}, ended)


def _taken(fields: Document, entry: HistoryEntry | None, removed: Iterable[str] = ()) -> list[Document]:
    """The stages that take a job from its dead owner: set these fields, keep the lost run, end the claim."""
    lost = [] if entry is None else [document.append_lost(entry)]
    return [*lost, {"$set": fields}, {"$unset": [*CLAIM_FIELDS, "parked", *removed]}]


def give_up_crashed(
    stale: Document, *, max_crashes: int, crashes: int, entry: HistoryEntry | None = None
) -> Transition:
    """processing, owner dead once too often -> failed.

    Otherwise a job that kills its process would do so for ever. Schedules are left out: they go on at
    their next time (`abandon_occurrence`). So is a job in which a later call is noted (`run_again_crashed`).
    """
    return Transition(
        to=JobStatus.FAILED,
        when={
            **stale,
            # A query by `$type` would also match elements of arrays.
            "$and": [
                {"$expr": {"$ne": [{"$type": "$repeatInterval"}, "string"]}},
                {"$expr": _is_hopeless(max_crashes)},
            ],
            "$nor": [{"$expr": REQUESTED}, {"$expr": IS_NOTED}],
        },
        then=_failed_by_crash(crash_reason(crashes), entry),
    )


def _failed_by_crash(reason: str, entry: HistoryEntry | None) -> list[Document]:
    return _taken({**_CRASHED, "status": "failed", "failReason": {"$literal": reason}}, entry, ["turn"])


def crash_reason(crashes: int) -> str:
    """The reason that is stored with a job that killed its process too often."""
    return (
        f"its process died {crashes} time(s) while it ran (crashed, killed or out of memory); "
        "given up so that it does not kill more"
    )


def run_again_crashed(
    job: Mapping[str, Any], *, leaves: Document, entry: HistoryEntry | None = None
) -> Transition:
    """processing, owner dead once too often -> pending, for a later call, the run kept as failed."""
    stages = once_more({"lostAttempt": attempt_of(job), "failedRunId": leaves["_id"]})
    return Transition(
        to=JobStatus.PENDING,
        when={**_untouched(job), **NOTED},
        then=stages if entry is None else [document.append_lost(entry), *stages],
        beside=FailedRun(leaves),
    )


def abandon_occurrence(
    schedule: Mapping[str, Any],
    *,
    run_at: datetime | None,
    leaves: Document,
    entry: HistoryEntry | None = None,
    ended: Document | None = None,
) -> Transition:
    """processing, owner dead once too often -> pending at the next time, the run kept as failed; completed if
    that was its last run.

    It applies only if nothing happened to the claim since it was read: a heartbeat means that the owner
    lives.
    """
    fields = {"lostAttempt": attempt_of(schedule), "failedRunId": leaves["_id"]}
    if run_at is None:
        update = ended_run(one_run_more(schedule), {"status": "completed", "failCount": 0, **fields})
    else:
        update = next_time(schedule, run_at, fields)
    update["$unset"] |= {"turn": ""}
    abandoned = Transition(
        to=JobStatus.COMPLETED if run_at is None else JobStatus.PENDING,
        when=_untouched(schedule),
        then=update if entry is None else with_history(update, document.append_lost(entry)),
        step="ended" if run_at is None else None,
        beside=FailedRun(leaves),
    )
    return abandoned.with_run(schedule, ended)


def abandon_schedule(
    schedule: Mapping[str, Any],
    *,
    reason: str,
    entry: HistoryEntry | None = None,
    ended: Document | None = None,
) -> Transition:
    """processing, owner dead once too often -> failed, because its cron or zone cannot be read."""
    failed = Transition(
        to=JobStatus.FAILED,
        when=_untouched(schedule),
        then=_failed_by_crash(reason, entry),
    )
    return failed.with_run(schedule, ended)


def _untouched(schedule: Mapping[str, Any]) -> Document:
    """Match while nothing has happened to the claim since it was read."""
    claim = ("status", "claimedBy", "attempt", "lastHeartbeat", "repeatInterval", "timezone", "schedule")
    return {**as_read(schedule, claim), **NOT_REQUESTED}
