"""Each transition on a real server: what it changes, and which documents it leaves alone."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from bson import Int64, ObjectId
from pymongo import AsyncMongoClient, ReturnDocument
from pymongo.asynchronous.collection import AsyncCollection

from monque import JobStatus
from monque._store.document import PARKED
from monque._store.transitions.calls import Terms, note_again, replace_waiting
from monque._store.transitions.flows import Waiting, cancel_child
from monque._store.transitions.lines import expose, unpark
from monque._store.transitions.operators import (
    cancel,
    change_schedule,
    count_extra_job,
    edit,
    end_after_run,
    pause_schedule,
    request_cancel,
    reschedule_by_operator,
    retry_by_operator,
    run_now_by_operator,
    set_priority,
    trigger_schedule,
)
from monque._store.transitions.recovery import (
    abandon_occurrence,
    abandon_schedule,
    cancel_stale,
    crash_reason,
    give_up_crashed,
    recover,
    run_again_crashed,
    stale,
    stale_fields,
)
from monque._store.transitions.run import claim
from monque._store.transitions.signals import signal
from monque._store.transitions.transition import Transition, recent_run
from monque._values.history import HistoryEntry
from support.clocks import ago, ahead, now
from support.jobs import claimed, document
from support.transitions import (
    cancel_run,
    complete,
    delay,
    end_jobs,
    end_schedule,
    expire,
    fail,
    give_up_occurrence,
    heartbeat,
    park,
    park_in_line,
    receive,
    record_steps,
    release,
    repeat,
    retry,
    run_again,
    skip,
    snooze,
    spawn,
    suspend,
)

Collection = AsyncCollection[dict[str, Any]]
Document = dict[str, Any]

# The table is made long before its last row is used, so its times are hours and days apart.
NOW, OLD, LATER = now(), ago(days=4), ahead(days=1)
DAY_IN_MILLISECONDS = 86_400_000


@dataclass(frozen=True, eq=False)
class FromNow:
    """Equal to each time that the server wrote just now, or that much later."""

    at_least: timedelta = timedelta(0)
    at_most: timedelta = timedelta(0)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, datetime):
            return NotImplemented
        tolerance = timedelta(minutes=1)
        return self.at_least - tolerance <= other - now() <= self.at_most + tolerance


STAMP = FromNow()
GONE = ...

JOB = document(nextRunAt=OLD, updatedAt=OLD)
LONG_CLAIMED = {"nextRunAt": OLD, "claimedAt": OLD, "lockedAt": OLD, "lastHeartbeat": OLD, "updatedAt": OLD}
CLAIM = claimed("ours", attempt=3, failCount=1, extra="kept", **LONG_CLAIMED)
SCHEDULE = {**CLAIM, "repeatInterval": "@daily", "timezone": "UTC"}
TROUBLED = {"failReason": "earlier", "crashCount": 1, "lastCrash": {"runAt": OLD, "failCount": 1}}
OCCURRENCE = {"_id": ObjectId(), "status": "failed"}

# What a run of a schedule leaves in it.
RUN = recent_run("completed", OLD, timedelta(seconds=1))

# What several rows have in common: changes to a document, for differences and for results.
NO_CLAIM = dict.fromkeys(("claimedBy", "claimedAt", "lockedAt", "lastHeartbeat"), GONE)
RAN = {"runCount": 1, "lastRunAt": STAMP}
NO_TROUBLE = {"failReason": GONE, "crashCount": GONE, "lastCrash": GONE}
NOT_OURS = {
    "another owner": {"claimedBy": "other"},
    "a later attempt": {"attempt": 4},
    "no attempt": {"attempt": GONE},
    "pending": {"status": "pending"},
    "completed": {"status": "completed", "settledAttempt": 3, **NO_CLAIM},
    "cancelled": {"status": "cancelled"},
}
OTHER_SCHEDULE = {
    "another cron": {"repeatInterval": "@hourly"},
    "no cron": {"repeatInterval": GONE},
    "another zone": {"timezone": "Asia/Tokyo"},
    "no zone": {"timezone": GONE},
    "a request": {"cancel": {"by": "operator"}},
    "a pause": {"schedule": {"pausedAt": NOW}},
}
TURN = {"line": "k:s:a", "slot": 0}
IN_LINE = {"nextRunAt": PARKED, "parked": {"why": "turn", "key": "work\x1fk:s:a", "since": OLD, "order": OLD}}
NOT_IN_LINE = {
    "processing": {"status": "processing"},
    "cancelled": {"status": "cancelled"},
    "another wait": {"parked": {"why": "signal"}},
    "a time": {"nextRunAt": LATER},
}
TOUCHED = {
    **NOT_OURS,
    **OTHER_SCHEDULE,
    "a heartbeat since": {"lastHeartbeat": NOW},
    "no heartbeat": {"lastHeartbeat": GONE},
}
ALIVE = {
    "a fresh heartbeat": {"lastHeartbeat": NOW},
    "a promise of a long interval": {"heartbeatInterval": 2 * DAY_IN_MILLISECONDS},
    "a lock that still counts": {"lastHeartbeat": GONE},
    "an update that still counts": {"lastHeartbeat": None, "lockedAt": None},
    "no time at all": {"lastHeartbeat": GONE, "lockedAt": GONE, "updatedAt": GONE},
    "pending": {"status": "pending"},
    "completed": {"status": "completed"},
}
REQUEST = {"at": OLD, "by": "operator", "reason": "first"}
ASKED = {"a request": {"cancel": REQUEST}}
NOT_ASKED = {
    "no request": {"cancel": GONE},
    "a record": {"cancel": {"by": "handler"}},
    "a request in an array": {"cancel": [REQUEST]},
    "a text": {"cancel": "operator"},
}
# A later call with the same key.
CALLED = {"data": {"$new": 1}, "runAt": LATER, "since": OLD, "count": 2}
KEYED = {**CLAIM, "uniqueKey": "k", "data": "old", "policy": {"limit": 9}}
NOTED = {**KEYED, "again": CALLED}
CALL = document(uniqueKey="k", data={"$new": 1}, nextRunAt=LATER)
A_CALL = {"a later call": {"again": CALLED}}
NO_CALL = {"no call": {"again": GONE}, "a text": {"again": "x"}, "null": {"again": None}}
AS_CALLED = {
    "status": "pending",
    "data": {"$new": 1},
    "policy": GONE,
    "nextRunAt": LATER,
    "askedAt": OLD,
    "failCount": 0,
    "updatedAt": STAMP,
    "again": GONE,
    **NO_CLAIM,
    **NO_TROUBLE,
}
OTHER_KEY = {
    "another key": {"uniqueKey": "other"},
    "another name": {"name": "other"},
    "a schedule": {"repeatInterval": "@daily"},
    "completed": {"status": "completed"},
}
FINISHED = {status: {"status": status} for status in ("completed", "failed", "cancelled")}

STALE = stale(tolerance=timedelta(days=2), lock_timeout=timedelta(days=10), as_of=datetime.now(UTC))
MAX_CRASHES = 3
CRASHED = {"lastCrash": {"runAt": OLD, "failCount": 1}, "lostAttempt": 3, "updatedAt": STAMP, **NO_CLAIM}


# Two entries are kept.
TEXTS = {"error": "$Error", "message": "$status", "trace": "$trace"}
FAILURE = HistoryEntry("retried", "$Error", "$status", "$trace", 120.0, 2)
LOST = HistoryEntry("lost", "ProcessDiedError", "died", None, 0.0, 2)
EARLIER = [{"attempt": 1}, {"attempt": 2}]
ADDED = {
    "attempt": 3,
    "by": "ours",
    "outcome": "retried",
    **TEXTS,
    "startedAt": FromNow(timedelta(minutes=-2), timedelta(minutes=-2)),
    "finishedAt": STAMP,
}
ADDED_LOST = {
    "attempt": 3,
    "by": "ours",
    "outcome": "lost",
    "error": "ProcessDiedError",
    "message": "died",
    "startedAt": OLD,
    "finishedAt": STAMP,
}


@dataclass(frozen=True, kw_only=True)
class Row:
    """A document that a transition matches, differences that make it leave it alone, and the result."""

    of: Callable[[Document], Transition]
    before: Document
    after: Document
    """Only what the transition changes."""
    not_with: dict[str, Document] = field(default_factory=dict)


def claim_it(_job: Document) -> Transition:
    return claim(instance_id="ours", heartbeat_interval=timedelta(seconds=30))


def retry_it(job: Document) -> Transition:
    return retry(job, delay=timedelta(hours=2), reason="$status")


def recover_it(_job: Document) -> Transition:
    return recover(STALE, max_crashes=MAX_CRASHES)


def give_up(_job: Document) -> Transition:
    return give_up_crashed(STALE, max_crashes=MAX_CRASHES, crashes=MAX_CRASHES)


def recover_with_history(_job: Document) -> Transition:
    return recover(STALE, max_crashes=MAX_CRASHES, entry=LOST)


def reschedule(_job: Document) -> Transition:
    return reschedule_by_operator(run_at=LATER)


def replaced(**terms: Any) -> Callable[[Document], Transition]:
    return lambda _job: replace_waiting(CALL, Terms(on_conflict="replace", **terms))


def noted(**terms: Any) -> Callable[[Document], Transition]:
    return lambda _job: note_again(CALL, Terms(on_conflict="replace", **terms))


def signalled(_job: Document, **how: Any) -> Transition:
    return signal("$go", {"$new": 1}, **how)


def received(job: Document) -> Transition:
    return receive(job, "$wait", "$go", is_new="steps" not in job)


def received_in_time_or_not(job: Document) -> Transition:
    return receive(job, "$wait", "$go", is_new="steps" not in job, is_late=True)


FIRST = {"n": "first", "k": "step", "at": OLD, "ms": 5, "v": 1}
DONE = {"n": "$done", "k": "step", "at": OLD, "ms": 5, "v": {"$new": 1}}
NAP = {"n": "$nap", "k": "sleep", "at": OLD, "until": LATER}
PACK = {"n": "$pack", "k": "jobs", "at": OLD, "batch": "$label"}
AWAITED = Waiting(name="$wait", kind="signal", signal="$go")
BEATEN = dict.fromkeys(("lastHeartbeat", "lockedAt", "updatedAt"), STAMP)
SUSPENDED = {"status": "pending", "settledAttempt": 3, "updatedAt": STAMP, **NO_CLAIM}
IN_TWO_HOURS = FromNow(timedelta(hours=2), timedelta(hours=2))
AWAITS = {**JOB, "nextRunAt": PARKED, "parked": {"why": "signal", "key": "$go", "since": OLD}}
OTHER = {"n": "other", "at": OLD, "v": 0}
EARLY = [OTHER, {"n": "$go", "at": OLD, "v": {"$new": 1}, "id": "$1"}, {"n": "$go", "at": OLD, "v": None}]
OPEN = [{"n": "a", "k": "step", "v": 1}, {"n": "$wait", "k": "signal", "at": OLD, "until": LATER}]
TAKEN = {"v": {"$new": 1}, "id": "$1", "over": STAMP}
BEATEN = {"lastHeartbeat": STAMP, "lockedAt": STAMP, "updatedAt": STAMP}

TABLE: dict[str, Row] = {
    "signal": Row(
        of=signalled,
        before={**JOB, "signals": [OTHER]},
        after={"signals": [OTHER, {"n": "$go", "at": STAMP, "v": {"$new": 1}}], "updatedAt": STAMP},
        not_with={
            "a schedule": {"repeatInterval": "@daily"},
            "a full mailbox": {"signals": [OTHER] * 100},
            "too many bytes": {"signals": [{**OTHER, "v": "x" * (1024 * 1024 - 60)}]},
            **FINISHED,
        },
    ),
    "signal that is waited for": Row(
        of=lambda job: signalled(job, id="$1"),
        before={**AWAITS, "signals": "odd", "steps": "odd"},
        after={
            "signals": [{"n": "$go", "at": STAMP, "v": {"$new": 1}, "id": "$1"}],
            "nextRunAt": STAMP,
            "parked": GONE,
            "updatedAt": STAMP,
        },
        not_with={
            "the same id": {"signals": [{**OTHER, "id": "$1"}]},
            "the same id, received": {"steps": [{"n": "$wait", "id": "$1"}]},
        },
    ),
    "signal beside another wait": Row(
        of=signalled,
        before={**AWAITS, "parked": {"why": "signal", "key": "other", "since": OLD}},
        after={"signals": [{"n": "$go", "at": STAMP, "v": {"$new": 1}}], "updatedAt": STAMP},
    ),
    "receive": Row(
        of=received,
        before={**CLAIM, "steps": OPEN, "signals": EARLY},
        after={"steps": [OPEN[0], {**OPEN[1], **TAKEN}], "signals": [OTHER, EARLY[2]], **BEATEN},
        not_with={
            **NOT_OURS,
            "no such signal": {"signals": [OTHER]},
            "no signals": {"signals": GONE},
            "an end": {"steps": [{**OPEN[1], "over": OLD}]},
        },
    ),
    "receive the only one, which came before the wait": Row(
        of=received,
        before={**CLAIM, **TROUBLED, "signals": EARLY[1:2]},
        after={
            "steps": [{"n": "$wait", "k": "signal", "at": STAMP, **TAKEN}],
            "signals": GONE,
            "failCount": 0,
            "lastCrash": {"runAt": OLD, "failCount": -1},
            **BEATEN,
        },
        not_with={"such an entry": {"steps": OPEN}},
    ),
    "receive a signal when the time is up": Row(
        of=received_in_time_or_not,
        before={**CLAIM, "steps": OPEN, "signals": EARLY[1:]},
        after={"steps": [OPEN[0], {**OPEN[1], **TAKEN}], "signals": EARLY[2:], **BEATEN},
        not_with=NOT_OURS,
    ),
    "receive when the time is up": Row(
        of=received_in_time_or_not,
        before={**CLAIM, "steps": OPEN, "signals": [OTHER]},
        after={"steps": [OPEN[0], {**OPEN[1], "over": STAMP}], **BEATEN},
        not_with={"an end": {"steps": [{**OPEN[1], "over": OLD}]}},
    ),
    "complete with a key": Row(
        of=complete,
        before=KEYED,
        after={
            "status": "completed",
            "settledAttempt": 3,
            "updatedAt": STAMP,
            "startedAt": NOW,
            "finishedAt": NOW,
            **NO_CLAIM,
        },
        not_with={**NOT_OURS, **A_CALL, "calls in an array": {"again": [CALLED]}},
    ),
    "fail with a key": Row(
        of=lambda job: fail(job, reason="$status"),
        before={**KEYED, "again": "whatever somebody left there"},
        after={
            "status": "failed",
            "failCount": 2,
            "failReason": "$status",
            "settledAttempt": 3,
            "updatedAt": STAMP,
            **NO_CLAIM,
        },
        not_with=A_CALL,
    ),
    "expire with a key": Row(
        of=expire,
        before=KEYED,
        after={
            "status": "cancelled",
            "cancel": {"at": STAMP, "by": "expiry", "reason": "expired"},
            "settledAttempt": 3,
            "updatedAt": STAMP,
            **NO_CLAIM,
        },
        not_with=A_CALL,
    ),
    "cancel_run with a later call": Row(
        of=cancel_run,
        before={**NOTED, "cancel": REQUEST},
        after={"status": "cancelled", "settledAttempt": 3, "updatedAt": STAMP, "again": GONE, **NO_CLAIM},
    ),
    "run_again": Row(
        of=run_again,
        before={**NOTED, **TROUBLED, "cancel": {"by": "expiry"}, "snoozeCount": 4, "history": EARLIER},
        after={**AS_CALLED, "settledAttempt": 3, "cancel": GONE, "snoozeCount": GONE},
        not_with={**NOT_OURS, **NO_CALL, **ASKED},
    ),
    "run_again after a failure, with settings": Row(
        of=lambda job: run_again(job, entry=FAILURE, leaves=OCCURRENCE),
        before={**NOTED, "again": {**CALLED, "runAt": OLD, "policy": {"first": 5}, "priority": 3}},
        after={
            **AS_CALLED,
            "nextRunAt": STAMP,
            "policy": {"first": 5},
            "priority": 3,
            "history": [ADDED],
            "settledAttempt": 3,
            "failedRunId": OCCURRENCE["_id"],
        },
    ),
    "run_again for a call of which little can be read": Row(
        of=run_again,
        before={**NOTED, "again": {"runAt": "x", "since": 5}},
        after={**AS_CALLED, "data": None, "nextRunAt": STAMP, "askedAt": STAMP, "settledAttempt": 3},
    ),
    "run_again_crashed": Row(
        of=lambda job: run_again_crashed(job, leaves=OCCURRENCE, entry=LOST),
        before=NOTED,
        after={
            **AS_CALLED,
            "history": [ADDED_LOST],
            "lostAttempt": 3,
            "failedRunId": OCCURRENCE["_id"],
        },
        not_with={**NOT_OURS, **NO_CALL, **ASKED, "a heartbeat since": {"lastHeartbeat": NOW}},
    ),
    "replace_waiting": Row(
        of=replaced(),
        before={**JOB, "uniqueKey": "k", "policy": {"limit": 9}, "priority": 3, "again": CALLED},
        after={
            "data": {"$new": 1},
            "updatedAt": STAMP,
            **dict.fromkeys(("policy", "priority", "again"), GONE),
        },
        not_with={**OTHER_KEY, "processing": {"status": "processing"}},
    ),
    "replace_waiting of a job that waits for its retry": Row(
        of=replaced(),
        before={**JOB, "uniqueKey": "k", "nextRunAt": LATER, "failCount": 2, **TROUBLED},
        after={
            "data": {"$new": 1},
            "failCount": 0,
            "nextRunAt": STAMP,
            "askedAt": STAMP,
            "updatedAt": STAMP,
            **NO_TROUBLE,
        },
    ),
    "replace_waiting at another time": Row(
        of=replaced(says_time=True, expires_after=1000),
        before={**JOB, "uniqueKey": "k"},
        after={
            "data": {"$new": 1},
            "nextRunAt": LATER,
            "updatedAt": STAMP,
            "policy": {"expiresAt": LATER + timedelta(seconds=1)},
        },
    ),
    "replace_waiting until it is quiet": Row(
        of=replaced(wait=DAY_IN_MILLISECONDS),
        before={**JOB, "uniqueKey": "k"},
        after={
            "data": {"$new": 1},
            "updatedAt": STAMP,
            "nextRunAt": FromNow(timedelta(days=1), timedelta(days=1)),
        },
    ),
    "replace_waiting until it has waited long enough": Row(
        of=replaced(wait=DAY_IN_MILLISECONDS, max_wait=2 * DAY_IN_MILLISECONDS),
        before={**JOB, "uniqueKey": "k", "createdAt": OLD},
        after={"data": {"$new": 1}, "nextRunAt": OLD + timedelta(days=2), "updatedAt": STAMP},
    ),
    "note_again": Row(
        of=noted(),
        before=KEYED,
        after={
            "again": {"data": {"$new": 1}, "runAt": STAMP, "since": STAMP, "count": 1},
            "updatedAt": STAMP,
        },
        not_with={**OTHER_KEY, "pending": {"status": "pending"}},
    ),
    "note_again after an earlier one": Row(
        of=noted(),
        before={**NOTED, "again": {**CALLED, "data": "old", "policy": {}}},
        after={"again": {**CALLED, "count": 3}, "updatedAt": STAMP},
    ),
    "claim": Row(
        of=claim_it,
        before=JOB,
        after={
            "status": "processing",
            "claimedBy": "ours",
            "attempt": 1,
            "heartbeatInterval": 30_000,
            "claimedAt": STAMP,
            "lockedAt": STAMP,
            "lastHeartbeat": STAMP,
            "updatedAt": STAMP,
        },
        not_with={"a later time": {"nextRunAt": LATER}, "a claim": {"status": "processing"}, **FINISHED},
    ),
    "claim again": Row(
        of=claim_it,
        before={**JOB, "attempt": 3, "heartbeatInterval": 1, "settledAttempt": 3, "lostAttempt": 2},
        after={
            "status": "processing",
            "claimedBy": "ours",
            "attempt": 4,
            "heartbeatInterval": 30_000,
            "claimedAt": STAMP,
            "lockedAt": STAMP,
            "lastHeartbeat": STAMP,
            "updatedAt": STAMP,
        },
    ),
    "heartbeat": Row(
        of=heartbeat,
        before=CLAIM,
        after={"lastHeartbeat": STAMP, "lockedAt": STAMP, "updatedAt": STAMP},
        not_with=NOT_OURS,
    ),
    "complete": Row(
        of=lambda job: complete(job, ran=2.0),
        before=CLAIM,
        after={
            "status": "completed",
            "settledAttempt": 3,
            "startedAt": NOW - timedelta(seconds=2),
            "finishedAt": NOW,
            "updatedAt": STAMP,
            **NO_CLAIM,
        },
        not_with=NOT_OURS,
    ),
    "complete after trouble": Row(
        of=complete,
        before={**CLAIM, **TROUBLED},
        after={
            "status": "completed",
            "settledAttempt": 3,
            "startedAt": NOW,
            "finishedAt": NOW,
            "updatedAt": STAMP,
            **NO_CLAIM,
            **NO_TROUBLE,
        },
    ),
    "repeat": Row(
        of=lambda job: repeat(job, run_at=LATER),
        before={**SCHEDULE, **TROUBLED},
        after={
            "status": "pending",
            "nextRunAt": LATER,
            "failCount": 0,
            "settledAttempt": 3,
            **RAN,
            "updatedAt": STAMP,
            **NO_CLAIM,
            **NO_TROUBLE,
        },
        not_with={**NOT_OURS, **OTHER_SCHEDULE},
    ),
    "repeat keeping the run": Row(
        of=lambda job: repeat(job, run_at=LATER, ended=RUN),
        before={**SCHEDULE, "recentRuns": [{"at": OLD, "ms": n, "outcome": "failed"} for n in range(10)]},
        after={
            "status": "pending",
            "nextRunAt": LATER,
            "failCount": 0,
            "settledAttempt": 3,
            **RAN,
            "updatedAt": STAMP,
            "recentRuns": [*({"at": OLD, "ms": n, "outcome": "failed"} for n in range(1, 10)), RUN],
            **NO_CLAIM,
        },
    ),
    "repeat keeping the run where others wrote no list": Row(
        of=lambda job: repeat(job, run_at=LATER, ended=RUN),
        before={**SCHEDULE, "recentRuns": "many"},
        after={
            "status": "pending",
            "nextRunAt": LATER,
            "failCount": 0,
            "settledAttempt": 3,
            **RAN,
            "updatedAt": STAMP,
            "recentRuns": [RUN],
            **NO_CLAIM,
        },
    ),
    "give_up_occurrence keeping the run": Row(
        of=lambda job: give_up_occurrence(job, run_at=LATER, leaves=OCCURRENCE, entry=FAILURE, ended=RUN),
        before={**SCHEDULE, "recentRuns": {"no": "list"}},
        after={
            "status": "pending",
            "nextRunAt": LATER,
            "failCount": 0,
            "settledAttempt": 3,
            "failedRunId": OCCURRENCE["_id"],
            "history": [ADDED],
            **RAN,
            "updatedAt": STAMP,
            "recentRuns": [{**RUN, "jobId": OCCURRENCE["_id"]}],
            **NO_CLAIM,
        },
    ),
    "repeat without a zone": Row(
        of=lambda job: repeat(job, run_at=LATER),
        before={**CLAIM, "repeatInterval": "@daily"},
        after={
            "status": "pending",
            "nextRunAt": LATER,
            "failCount": 0,
            "settledAttempt": 3,
            **RAN,
            "updatedAt": STAMP,
            **NO_CLAIM,
        },
        not_with={"a zone": {"timezone": "UTC"}},
    ),
    "retry": Row(
        of=retry_it,
        before={**CLAIM, **TROUBLED},
        after={
            "status": "pending",
            "nextRunAt": FromNow(timedelta(hours=2), timedelta(hours=2)),
            "failCount": 2,
            "failReason": "$status",
            "settledAttempt": 3,
            "updatedAt": STAMP,
            **NO_CLAIM,
        },
        not_with=NOT_OURS,
    ),
    "fail": Row(
        of=lambda job: fail(job, reason="$status"),
        before=CLAIM,
        after={
            "status": "failed",
            "failCount": 2,
            "failReason": "$status",
            "settledAttempt": 3,
            "updatedAt": STAMP,
            **NO_CLAIM,
        },
        not_with=NOT_OURS,
    ),
    "retry with a history": Row(
        of=lambda job: retry(job, delay=timedelta(hours=2), reason="$status", entry=FAILURE),
        before=CLAIM,
        after={
            "status": "pending",
            "nextRunAt": FromNow(timedelta(hours=2), timedelta(hours=2)),
            "failCount": 2,
            "failReason": "$status",
            "settledAttempt": 3,
            "history": [ADDED],
            "updatedAt": STAMP,
            **NO_CLAIM,
        },
        not_with=NOT_OURS,
    ),
    "fail with a history": Row(
        of=lambda job: fail(job, reason="$status", entry=FAILURE),
        before={**CLAIM, "history": EARLIER},
        after={
            "status": "failed",
            "failCount": 2,
            "failReason": "$status",
            "settledAttempt": 3,
            "history": [EARLIER[1], ADDED],
            "updatedAt": STAMP,
            **NO_CLAIM,
        },
        not_with=NOT_OURS,
    ),
    "fail with a history that is none": Row(
        of=lambda job: fail(job, reason="$status", entry=FAILURE),
        before={**CLAIM, "history": "?"},
        after={
            "status": "failed",
            "failCount": 2,
            "failReason": "$status",
            "settledAttempt": 3,
            "history": [ADDED],
            "updatedAt": STAMP,
            **NO_CLAIM,
        },
    ),
    "snooze": Row(
        of=lambda job: snooze(job, delay=timedelta(hours=2)),
        before={**CLAIM, "failReason": "earlier", "movedTo": OLD},
        after={
            "status": "pending",
            "nextRunAt": FromNow(timedelta(hours=2), timedelta(hours=2)),
            "snoozeCount": 1,
            "settledAttempt": 3,
            "movedTo": GONE,
            "updatedAt": STAMP,
            **NO_CLAIM,
        },
        not_with=NOT_OURS,
    ),
    "snooze a schedule until a time": Row(
        of=lambda job: snooze(job, until=LATER),
        before={**SCHEDULE, "snoozeCount": 4},
        after={
            "status": "pending",
            "nextRunAt": LATER,
            "movedTo": LATER,
            "snoozeCount": 5,
            "settledAttempt": 3,
            "updatedAt": STAMP,
            **NO_CLAIM,
        },
        not_with=NOT_OURS,
    ),
    "snooze after a crash": Row(
        of=lambda job: snooze(job, until=LATER),
        before={**CLAIM, **TROUBLED, "snoozeCount": "?"},
        after={
            "status": "pending",
            "nextRunAt": LATER,
            "movedTo": LATER,
            "snoozeCount": 1,
            "settledAttempt": 3,
            "updatedAt": STAMP,
            **NO_CLAIM,
        },
    ),
    "record_steps": Row(
        of=lambda job: record_steps(job, [DONE]),
        before={**CLAIM, "steps": [FIRST]},
        after={"steps": [FIRST, DONE], "failCount": 0, **BEATEN},
        not_with={**NOT_OURS, "a step of this name": {"steps": [FIRST, DONE]}},
    ),
    "record_steps after a crash, where somebody stored something else": Row(
        of=lambda job: record_steps(job, [DONE]),
        before={**CLAIM, **TROUBLED, "steps": "odd"},
        after={"steps": [DONE], "failCount": 0, "lastCrash": {"runAt": OLD, "failCount": -1}, **BEATEN},
    ),
    "park_in_line": Row(
        of=lambda job: park_in_line(job, "$work\x1fk:s:a"),
        before={**CLAIM, **TROUBLED, "turn": TURN, "parked": {"why": "time", "until": OLD}},
        after={
            **SUSPENDED,
            "nextRunAt": PARKED,
            "parked": {
                "why": "turn",
                "key": "$work\x1fk:s:a",
                "since": STAMP,
                "order": CLAIM["createdAt"],
            },
            "turn": GONE,
            "lastCrash": {"runAt": OLD, "failCount": -1},
        },
        not_with={**NOT_OURS, **ASKED},
    ),
    "delay": Row(
        of=lambda job: delay(job, LATER),
        before={**CLAIM, **TROUBLED, "turn": TURN, "parked": {"why": "time"}},
        after={
            **SUSPENDED,
            "nextRunAt": LATER,
            "movedTo": LATER,
            "parked": GONE,
            "lastCrash": {"runAt": OLD, "failCount": -1},
        },
        not_with=NOT_OURS,
    ),
    "expose": Row(
        of=lambda job: expose([job["_id"]], [TURN]),
        before={**JOB, **IN_LINE},
        after={"turn": TURN, "nextRunAt": STAMP, "parked": GONE, "updatedAt": STAMP},
        not_with=NOT_IN_LINE,
    ),
    "unpark": Row(
        of=lambda _job: unpark(),
        before={**JOB, **IN_LINE},
        after={"nextRunAt": STAMP, "parked": GONE, "updatedAt": STAMP},
        not_with=NOT_IN_LINE,
    ),
    "suspend for a time": Row(
        of=lambda job: suspend(job, Waiting(name="$nap", kind="sleep", delay=7_200_000), ran=0.05),
        before={
            **CLAIM,
            **TROUBLED,
            "steps": [FIRST],
            "again": CALLED,
            "parked": {"why": "signal", "key": "x"},
        },
        after={
            **SUSPENDED,
            "failCount": 0,
            "nextRunAt": IN_TWO_HOURS,
            "parked": {"why": "time", "since": STAMP},
            "steps": [FIRST, {"n": "$nap", "k": "sleep", "at": STAMP, "ms": 50, "until": IN_TWO_HOURS}],
            "lastCrash": {"runAt": OLD, "failCount": -1},
        },
        not_with={**NOT_OURS, **ASKED},
    ),
    "suspend again": Row(
        of=lambda job: suspend(job, Waiting(name="$nap", kind="sleep", is_new=False, until=LATER), ran=0.05),
        before={**CLAIM, "steps": [{**NAP, "ms": 20}, FIRST]},
        after={
            **SUSPENDED,
            "nextRunAt": LATER,
            "parked": {"why": "time", "since": STAMP},
            "steps": [{**NAP, "ms": 70}, FIRST],
        },
    ),
    "suspend for jobs": Row(
        of=lambda job: suspend(
            job,
            Waiting(name="$pack", kind="jobs", is_new=False, delay=7_200_000, batch="$label", jobs=7),
            ran=0.05,
        ),
        before={**CLAIM, "steps": [FIRST, PACK], "parked": {"why": "signal", "key": "x"}},
        after={
            **SUSPENDED,
            "nextRunAt": IN_TWO_HOURS,
            "parked": {"why": "batch", "key": "$label", "since": STAMP},
            "steps": [FIRST, {**PACK, "ms": 50, "jobs": 7, "until": IN_TWO_HOURS}],
        },
        not_with={**NOT_OURS, **ASKED},
    ),
    "suspend for jobs again": Row(
        of=lambda job: suspend(
            job, Waiting(name="$pack", kind="jobs", is_new=False, batch="$label", jobs=7), ran=0.05
        ),
        before={**CLAIM, "steps": [{**PACK, "ms": 20, "jobs": 7}]},
        after={
            **SUSPENDED,
            "nextRunAt": PARKED,
            "parked": {"why": "batch", "key": "$label", "since": STAMP},
            "steps": [{**PACK, "ms": 70, "jobs": 7}],
        },
    ),
    "end_jobs": Row(
        of=lambda job: end_jobs(job, "$pack", "cf-"),
        before={**CLAIM, "steps": [FIRST, PACK]},
        after={"steps": [FIRST, {**PACK, "v": "cf-", "over": STAMP}], **BEATEN},
        not_with={**NOT_OURS, "over": {"steps": [{**PACK, "over": OLD}]}, "no such step": {"steps": [FIRST]}},
    ),
    "end_jobs because their time is up": Row(
        of=lambda job: end_jobs(job, "$pack", None),
        before={**CLAIM, "steps": [FIRST, PACK]},
        after={"steps": [FIRST, {**PACK, "over": STAMP}], **BEATEN},
    ),
    "cancel_child": Row(
        of=lambda _: cancel_child(),
        before={**JOB, "signals": [OTHER], "parked": {"why": "batch", "key": "x"}, "again": CALLED},
        after={
            "status": "cancelled",
            "cancel": {"at": STAMP, "by": "batch", "reason": "its parent does not wait for it any more"},
            "updatedAt": STAMP,
            **dict.fromkeys(("signals", "parked", "again"), GONE),
        },
        not_with={"a claim": {"status": "processing"}, **FINISHED},
    ),
    "suspend for a signal": Row(
        of=lambda job: suspend(job, AWAITED),
        before={**CLAIM, "signals": [OTHER]},
        after={
            **SUSPENDED,
            "failCount": 0,
            "nextRunAt": PARKED,
            "parked": {"why": "signal", "key": "$go", "since": STAMP},
            "steps": [{"n": "$wait", "k": "signal", "at": STAMP, "ms": 0}],
        },
        not_with={**NOT_OURS, **ASKED},
    ),
    "suspend for a signal that is there": Row(
        of=lambda job: suspend(job, AWAITED),
        before={**CLAIM, "signals": EARLY, "parked": {"why": "time", "since": OLD}},
        after={
            **SUSPENDED,
            "failCount": 0,
            "nextRunAt": STAMP,
            "parked": GONE,
            "steps": [{"n": "$wait", "k": "signal", "at": STAMP, "ms": 0}],
        },
    ),
    "suspend for a signal of a job that expires": Row(
        of=lambda job: suspend(job, AWAITED),
        before={**CLAIM, "policy": {"expiresAt": LATER}, "signals": "odd"},
        after={
            **SUSPENDED,
            "failCount": 0,
            "nextRunAt": LATER,
            "parked": {"why": "signal", "key": "$go", "since": STAMP},
            "steps": [{"n": "$wait", "k": "signal", "at": STAMP, "ms": 0}],
        },
    ),
    "cancel_run": Row(
        of=lambda job: cancel_run(job, by="handler", reason="$status", entry=FAILURE),
        before=CLAIM,
        after={
            "status": "cancelled",
            "cancel": {"at": STAMP, "by": "handler", "reason": "$status"},
            "history": [ADDED],
            "settledAttempt": 3,
            "updatedAt": STAMP,
            **NO_CLAIM,
        },
        not_with=NOT_OURS,
    ),
    "cancel_run of a job that was asked to end": Row(
        of=lambda job: cancel_run(job, by="handler", reason="other"),
        before={**CLAIM, "cancel": REQUEST},
        after={"status": "cancelled", "settledAttempt": 3, "updatedAt": STAMP, **NO_CLAIM},
    ),
    "cancel_run of a job that typescript has retried": Row(
        of=lambda job: cancel_run(job, by="handler"),
        before={**CLAIM, "cancel": {"at": OLD, "by": "expiry", "reason": "expired"}},
        after={
            "status": "cancelled",
            "cancel": {"at": STAMP, "by": "handler"},
            "settledAttempt": 3,
            "updatedAt": STAMP,
            **NO_CLAIM,
        },
    ),
    "cancel_run that somebody asked for while it ran": Row(
        of=lambda job: cancel_run(job, entry=FAILURE),
        before={**CLAIM, "cancel": REQUEST},
        after={
            "status": "cancelled",
            "history": [ADDED],
            "settledAttempt": 3,
            "updatedAt": STAMP,
            **NO_CLAIM,
        },
    ),
    "repeat after a run that was cancelled": Row(
        of=lambda job: repeat(job, run_at=LATER, entry=FAILURE),
        before={**SCHEDULE, **TROUBLED, "snoozeCount": 2},
        after={
            "status": "pending",
            "nextRunAt": LATER,
            "failCount": 0,
            "settledAttempt": 3,
            "snoozeCount": GONE,
            "history": [ADDED],
            **RAN,
            "updatedAt": STAMP,
            **NO_CLAIM,
            **NO_TROUBLE,
        },
        not_with={**NOT_OURS, **OTHER_SCHEDULE},
    ),
    "give_up_occurrence with a history": Row(
        of=lambda job: give_up_occurrence(job, run_at=LATER, leaves=OCCURRENCE, entry=FAILURE),
        before=SCHEDULE,
        after={
            "status": "pending",
            "nextRunAt": LATER,
            "failCount": 0,
            "settledAttempt": 3,
            "failedRunId": OCCURRENCE["_id"],
            "history": [ADDED],
            **RAN,
            "updatedAt": STAMP,
            **NO_CLAIM,
        },
    ),
    "give_up_occurrence": Row(
        of=lambda job: give_up_occurrence(job, run_at=LATER, leaves=OCCURRENCE),
        before={**SCHEDULE, **TROUBLED},
        after={
            "status": "pending",
            "nextRunAt": LATER,
            "failCount": 0,
            "settledAttempt": 3,
            "failedRunId": OCCURRENCE["_id"],
            **RAN,
            "updatedAt": STAMP,
            **NO_CLAIM,
            **NO_TROUBLE,
        },
        not_with={**NOT_OURS, **OTHER_SCHEDULE},
    ),
    "release": Row(
        of=release,
        before={**CLAIM, **TROUBLED},
        after={"status": "pending", "settledAttempt": 3, "updatedAt": STAMP, **NO_CLAIM},
        not_with=NOT_OURS,
    ),
    "recover": Row(
        of=recover_it,
        before=CLAIM,
        after={"status": "pending", "crashCount": 1, **CRASHED},
        not_with={**ALIVE, **ASKED, "one crash too many": {"crashCount": 2}},
    ),
    "cancel_stale": Row(
        of=lambda _job: cancel_stale(STALE),
        before={**CLAIM, "cancel": REQUEST},
        after={"status": "cancelled", "crashCount": 1, **CRASHED},
        not_with={**ALIVE, **NOT_ASKED},
    ),
    "cancel_stale that crashed too often": Row(
        of=lambda _job: cancel_stale(STALE),
        before={**SCHEDULE, "cancel": REQUEST, "crashCount": 2},
        after={"status": "cancelled", "crashCount": 3, **CRASHED},
    ),
    "expire": Row(
        of=expire,
        before={**CLAIM, **TROUBLED},
        after={
            "status": "cancelled",
            "cancel": {"at": STAMP, "by": "expiry", "reason": "expired"},
            "settledAttempt": 3,
            "updatedAt": STAMP,
            **NO_CLAIM,
        },
        not_with=NOT_OURS,
    ),
    "cancel_run that somebody asked for": Row(
        of=cancel_run,
        before={**CLAIM, **TROUBLED, "cancel": REQUEST},
        after={"status": "cancelled", "settledAttempt": 3, "updatedAt": STAMP, **NO_CLAIM},
        not_with=NOT_OURS,
    ),
    "recover with a history": Row(
        of=recover_with_history,
        before={**CLAIM, "history": EARLIER},
        after={"status": "pending", "crashCount": 1, "history": [EARLIER[1], ADDED_LOST], **CRASHED},
    ),
    "recover a foreign claim with a history": Row(
        of=recover_with_history,
        before={**{key: value for key, value in CLAIM.items() if key != "attempt"}, "claimedBy": 5},
        after={
            "status": "pending",
            "crashCount": 1,
            "history": [{**ADDED_LOST, "attempt": 0, "by": ""}],
            **CRASHED,
            "lostAttempt": GONE,
        },
    ),
    "recover a job that may be tried more often": Row(
        of=recover_it,
        before={**CLAIM, "crashCount": 7, "policy": {"maxAttempts": 9}},
        after={"status": "pending", "crashCount": 8, **CRASHED},
        not_with={
            "as many attempts": {"policy": {"maxAttempts": 8}},
            "as many waits": {"policy": {"delays": [1] * 7}},
            "no policy": {"policy": GONE},
            "a policy that is none": {"policy": [{"maxAttempts": 9}]},
            "no number": {"policy": {"maxAttempts": "9", "delays": "9"}},
        },
    ),
    "recover a job with a list of waits": Row(
        of=recover_it,
        before={**CLAIM, "crashCount": 7, "policy": {"delays": [1] * 8}},
        after={"status": "pending", "crashCount": 8, **CRASHED},
    ),
    "give_up_crashed before the others": Row(
        of=lambda _job: give_up_crashed(STALE, max_crashes=MAX_CRASHES, crashes=1, entry=LOST),
        before={**CLAIM, "policy": {"maxAttempts": 1}},
        after={
            "status": "failed",
            "failReason": crash_reason(1),
            "crashCount": 1,
            "history": [ADDED_LOST],
            **CRASHED,
        },
        not_with={"more attempts": {"policy": {"maxAttempts": 2}}, "no policy": {"policy": GONE}},
    ),
    "recover a claim without a heartbeat by its lock": Row(
        of=recover_it,
        before={**CLAIM, "lastHeartbeat": None, "lockedAt": ago(days=11)},
        after={"status": "pending", "crashCount": 1, **CRASHED},
    ),
    "recover a claim without a lock by its update": Row(
        of=recover_it,
        before={**CLAIM, "lastHeartbeat": None, "lockedAt": None, "updatedAt": ago(days=11)},
        after={"status": "pending", "crashCount": 1, **CRASHED},
    ),
    "recover a claim that promises no number": Row(
        of=recover_it,
        before={**CLAIM, "heartbeatInterval": "?"},
        after={"status": "pending", "crashCount": 1, **CRASHED},
    ),
    "recover after an earlier crash": Row(
        of=recover_it,
        before={**CLAIM, **TROUBLED},
        after={"status": "pending", "crashCount": 2, **CRASHED},
    ),
    "recover after a crash of which only the count is known": Row(
        of=recover_it,
        before={**CLAIM, "failCount": 0, "crashCount": 1},
        after={"status": "pending", "crashCount": 2, **CRASHED, "lastCrash": {"runAt": OLD, "failCount": 0}},
    ),
    "recover after a crash and a failure": Row(
        of=recover_it,
        before={**CLAIM, "crashCount": 1, "lastCrash": {"runAt": NOW, "failCount": 0}},
        after={"status": "pending", "crashCount": 2, **CRASHED},
    ),
    "recover after a crash and a time from an operator": Row(
        of=recover_it,
        before={**CLAIM, "movedTo": OLD, "crashCount": 1, "lastCrash": {"runAt": NOW, "failCount": 1}},
        after={"status": "pending", "crashCount": 2, **CRASHED},
    ),
    "recover after a crash and a success counts from 0": Row(
        of=recover_it,
        before={**CLAIM, "crashCount": 2, "lastCrash": {"runAt": NOW, "failCount": 1}},
        after={"status": "pending", "crashCount": 1, **CRASHED},
    ),
    "recover a schedule": Row(
        of=recover_it,
        before=SCHEDULE,
        after={"status": "pending", "crashCount": 1, **CRASHED},
    ),
    "recover counts that are no numbers": Row(
        of=recover_it,
        before={**CLAIM, "crashCount": "?", "failCount": "?"},
        after={"status": "pending", "crashCount": 1, **CRASHED, "lastCrash": {"runAt": OLD, "failCount": 0}},
    ),
    "recover a foreign claim": Row(
        of=recover_it,
        before={key: value for key, value in CLAIM.items() if key != "attempt"},
        after={"status": "pending", "crashCount": 1, **CRASHED, "lostAttempt": GONE},
    ),
    "recover a foreign claim after one of ours": Row(
        of=recover_it,
        before={**{key: value for key, value in CLAIM.items() if key != "attempt"}, "lostAttempt": 2},
        after={"status": "pending", "crashCount": 1, **CRASHED, "lostAttempt": 2},
    ),
    "give_up_crashed": Row(
        of=give_up,
        before={**CLAIM, "crashCount": 2},
        after={"status": "failed", "failReason": crash_reason(3), "crashCount": 3, **CRASHED},
        not_with={
            **ALIVE,
            "a crash left": {"crashCount": 1},
            "a success since": {"lastCrash": {"runAt": NOW, "failCount": 1}},
            "a schedule": {"repeatInterval": "@daily"},
            **ASKED,
        },
    ),
    "give_up_crashed with a cron that is no text": Row(
        of=give_up,
        before={**CLAIM, "crashCount": 2, "repeatInterval": ["@daily"]},
        after={"status": "failed", "failReason": crash_reason(3), "crashCount": 3, **CRASHED},
    ),
    "abandon_occurrence": Row(
        of=lambda job: abandon_occurrence(job, run_at=LATER, leaves=OCCURRENCE),
        before={**SCHEDULE, **TROUBLED},
        after={
            "status": "pending",
            "nextRunAt": LATER,
            "failCount": 0,
            "lostAttempt": 3,
            "failedRunId": OCCURRENCE["_id"],
            **RAN,
            "updatedAt": STAMP,
            **NO_CLAIM,
            **NO_TROUBLE,
        },
        not_with=TOUCHED,
    ),
    "abandon_schedule": Row(
        of=lambda job: abandon_schedule(job, reason="$status"),
        before={**SCHEDULE, "crashCount": 2},
        after={"status": "failed", "failReason": "$status", "crashCount": 3, **CRASHED},
        not_with=TOUCHED,
    ),
    "repeat after a trigger": Row(
        of=lambda job: repeat(job, run_at=LATER),
        before={**SCHEDULE, "schedule": {"triggeredAt": OLD}, "runCount": 2},
        after={
            "status": "pending",
            "nextRunAt": LATER,
            "movedTo": LATER,
            "failCount": 0,
            "settledAttempt": 3,
            "schedule": GONE,
            "updatedAt": STAMP,
            **RAN,
            "runCount": 3,
            **NO_CLAIM,
        },
        not_with={"a second trigger": {"schedule": {"triggeredAt": NOW}}, "none": {"schedule": GONE}},
    ),
    "end_schedule": Row(
        of=lambda job: end_schedule(job, ran=2.0),
        before={**SCHEDULE, **TROUBLED, "runCount": 4, "schedule": {"limit": 5, "every": Int64(60_000)}},
        after={
            "status": "completed",
            "failCount": 0,
            "settledAttempt": 3,
            "startedAt": NOW - timedelta(seconds=2),
            "finishedAt": NOW,
            "updatedAt": STAMP,
            **RAN,
            "runCount": 5,
            **NO_CLAIM,
            **NO_TROUBLE,
        },
        not_with={
            **NOT_OURS,
            **OTHER_SCHEDULE,
            "another limit": {"schedule": {"limit": 6, "every": Int64(60_000)}},
        },
    ),
    "skip": Row(
        of=lambda job: skip(job, run_at=LATER),
        before={**SCHEDULE, **TROUBLED, "skipCount": 1, "schedule": {"grace": Int64(1000)}},
        after={
            "status": "pending",
            "nextRunAt": LATER,
            "failCount": 0,
            "skipCount": 2,
            "settledAttempt": 3,
            "updatedAt": STAMP,
            **NO_CLAIM,
            **NO_TROUBLE,
        },
        not_with={**NOT_OURS, **OTHER_SCHEDULE},
    ),
    "spawn": Row(
        of=lambda job: spawn(job, run_at=LATER, spawns=OCCURRENCE, otherwise=skip(job, run_at=LATER)),
        before={**SCHEDULE, **TROUBLED, "runCount": 7, "schedule": {"asJobs": True}},
        after={
            "status": "pending",
            "nextRunAt": LATER,
            "failCount": 0,
            "settledAttempt": 3,
            "updatedAt": STAMP,
            **RAN,
            "runCount": 8,
            **NO_CLAIM,
            **NO_TROUBLE,
        },
        not_with={**NOT_OURS, **OTHER_SCHEDULE},
    ),
    "spawn with a count that is no number": Row(
        of=lambda job: spawn(job, run_at=None, spawns=OCCURRENCE, otherwise=skip(job, run_at=LATER)),
        before={**SCHEDULE, "runCount": "?", "schedule": {"asJobs": True}},
        after={
            "status": "completed",
            "failCount": 0,
            "settledAttempt": 3,
            "updatedAt": STAMP,
            **RAN,
            **NO_CLAIM,
        },
    ),
    "park": Row(
        of=park,
        before={**SCHEDULE, "schedule": {"pausedAt": OLD}},
        after={
            "status": "pending",
            "nextRunAt": PARKED,
            "settledAttempt": 3,
            "updatedAt": STAMP,
            **NO_CLAIM,
        },
        not_with={**NOT_OURS, "resumed": {"schedule": GONE}},
    ),
    "pause_schedule": Row(
        of=pause_schedule,
        before={**JOB, "repeatInterval": "@daily"},
        after={"schedule": {"pausedAt": STAMP}, "nextRunAt": PARKED, "updatedAt": STAMP},
        not_with={"a claim since": {"status": "processing"}, "a change": {"updatedAt": NOW}, **FINISHED},
    ),
    "pause_schedule of an odd document": Row(
        of=pause_schedule,
        before={**SCHEDULE, "schedule": "?"},
        after={"schedule": {"pausedAt": STAMP}, "updatedAt": STAMP},
    ),
    "trigger_schedule": Row(
        of=trigger_schedule,
        before={**JOB, "repeatInterval": "@daily", "schedule": {"pausedAt": OLD}},
        after={"nextRunAt": STAMP, "movedTo": STAMP, "updatedAt": STAMP},
        not_with={"a claim since": {"status": "processing"}, **FINISHED},
    ),
    "trigger_schedule while it runs": Row(
        of=trigger_schedule,
        before={**SCHEDULE, "schedule": {"limit": 3}},
        after={"schedule": {"limit": 3, "triggeredAt": STAMP}, "updatedAt": STAMP},
        not_with={"the run ended": {"status": "pending", **NO_CLAIM}},
    ),
    "count_extra_job": Row(
        of=count_extra_job,
        before={**JOB, "repeatInterval": "@daily", "runCount": 1},
        after={"runCount": 2, "lastRunAt": STAMP, "updatedAt": STAMP},
        not_with=FINISHED,
    ),
    "end_after_run": Row(
        of=lambda _job: end_after_run(),
        before=SCHEDULE,
        after={"cancel": {"at": STAMP, "by": "operator", "afterRun": True}, "updatedAt": STAMP},
        not_with={"pending": {"status": "pending"}, **FINISHED, **ASKED},
    ),
    "cancel_run of a schedule that was to end after its run": Row(
        of=cancel_run,
        before={**SCHEDULE, "cancel": {**REQUEST, "afterRun": True}},
        after={"status": "cancelled", "settledAttempt": 3, "updatedAt": STAMP, **NO_CLAIM},
        not_with={**NOT_OURS, "declared again": {"cancel": GONE}},
    ),
    "request_cancel of a schedule that is to end after its run": Row(
        of=lambda _job: request_cancel(reason="now"),
        before={**SCHEDULE, "cancel": {**REQUEST, "afterRun": True}},
        after={"cancel": {"at": STAMP, "by": "operator", "reason": "now"}, "updatedAt": STAMP},
    ),
    "retry_by_operator of a paused schedule": Row(
        of=lambda _job: retry_by_operator(),
        before={**JOB, "status": "cancelled", "schedule": {"pausedAt": OLD, "limit": 3}},
        after={"status": "pending", "nextRunAt": STAMP, "updatedAt": STAMP, "schedule": {"limit": 3}},
    ),
    "change_schedule while it waits": Row(
        of=lambda job: change_schedule(job, changes={"repeatInterval": "@weekly", "nextRunAt": LATER}),
        before={**JOB, "repeatInterval": "@daily", "timezone": "UTC"},
        after={"repeatInterval": "@weekly", "nextRunAt": LATER, "updatedAt": STAMP},
        not_with={
            "a change since": {"updatedAt": NOW},
            "another cron": {"repeatInterval": "@hourly"},
            "a claim since": {"status": "processing"},
            **FINISHED,
        },
    ),
    "change_schedule to no policy": Row(
        of=lambda job: change_schedule(job, changes={"policy": None}),
        before={**JOB, "repeatInterval": "@daily", "policy": {"maxAttempts": 3}},
        after={"policy": GONE, "updatedAt": STAMP},
    ),
    "change_schedule while it runs": Row(
        of=lambda job: change_schedule(job, changes={"data": "$status"}),
        before=SCHEDULE,
        after={"data": "$status", "updatedAt": STAMP},
        not_with={
            "the run ended": {"status": "pending", **NO_CLAIM},
            "a change since": {"updatedAt": NOW},
        },
    ),
    "cancel": Row(
        of=lambda _job: cancel(),
        before=JOB,
        after={"status": "cancelled", "updatedAt": STAMP},
        not_with={"a claim": {"status": "processing"}, **FINISHED},
    ),
    "cancel with a reason": Row(
        of=lambda _job: cancel(reason="$status"),
        before={**JOB, "cancel": {"by": "expiry", "reason": "expired"}},
        after={
            "status": "cancelled",
            "cancel": {"at": STAMP, "by": "operator", "reason": "$status"},
            "updatedAt": STAMP,
        },
        not_with={"a claim": {"status": "processing"}, **FINISHED},
    ),
    "cancel with a reason after a request": Row(
        of=lambda _job: cancel(reason="second"),
        before={**JOB, "cancel": REQUEST},
        after={"status": "cancelled", "updatedAt": STAMP},
    ),
    "request_cancel": Row(
        of=lambda _job: request_cancel(reason="$status"),
        before=CLAIM,
        after={"cancel": {"at": STAMP, "by": "operator", "reason": "$status"}, "updatedAt": STAMP},
        not_with={"pending": {"status": "pending"}, **FINISHED, **ASKED},
    ),
    "request_cancel without a reason, of an odd document": Row(
        of=lambda _job: request_cancel(),
        before={**CLAIM, "cancel": [REQUEST]},
        after={"cancel": {"at": STAMP, "by": "operator"}, "updatedAt": STAMP},
    ),
    "retry_by_operator": Row(
        of=lambda _job: retry_by_operator(),
        before={
            **JOB,
            **TROUBLED,
            "status": "failed",
            "failCount": 5,
            "attempt": 6,
            "settledAttempt": 6,
            "snoozeCount": 2,
            "history": EARLIER,
            "policy": {"maxAttempts": 5},
        },
        after={
            "status": "pending",
            "failCount": 0,
            "nextRunAt": STAMP,
            "snoozeCount": GONE,
            "updatedAt": STAMP,
            **NO_TROUBLE,
        },
        not_with={status: {"status": status} for status in ("pending", "processing", "completed")},
    ),
    "retry_by_operator after a cancellation": Row(
        of=lambda _job: retry_by_operator(),
        before={**JOB, "status": "cancelled", "claimedBy": None, "cancel": REQUEST},
        after={
            "status": "pending",
            "nextRunAt": STAMP,
            "updatedAt": STAMP,
            "claimedBy": GONE,
            "cancel": GONE,
        },
    ),
    "retry_by_operator within a spread": Row(
        of=lambda _job: retry_by_operator(spread=timedelta(hours=1)),
        before={**JOB, "status": "failed"},
        after={
            "status": "pending",
            "nextRunAt": FromNow(at_most=timedelta(hours=1)),
            "movedTo": FromNow(at_most=timedelta(hours=1)),
            "updatedAt": STAMP,
        },
    ),
    "set_priority": Row(
        of=lambda _: set_priority(priority=7),
        before=JOB,
        after={"priority": 7, "updatedAt": STAMP},
        not_with={"a claim": {"status": "processing"}, **FINISHED},
    ),
    "set_priority to normal": Row(
        of=lambda _: set_priority(priority=0),
        before={**JOB, "priority": 3},
        after={"priority": GONE, "updatedAt": STAMP},
    ),
    "edit": Row(
        of=lambda job: edit(job, data={"n": 2}, run_at=LATER, priority=7),
        before=JOB,
        after={"data": {"n": 2}, "priority": 7, "nextRunAt": LATER, "updatedAt": STAMP},
        not_with={"a claim": {"status": "processing"}, "steps": {"steps": []}, **FINISHED},
    ),
    "edit of the payload in a line": Row(
        of=lambda job: edit(job, data={"n": 2}),
        before={**JOB, "nextRunAt": PARKED, "parked": {"why": "turn", "key": "work\x1fa"}},
        after={"data": {"n": 2}, "nextRunAt": STAMP, "parked": GONE, "updatedAt": STAMP},
    ),
    "reschedule_by_operator": Row(
        of=reschedule,
        before={**JOB, "movedTo": OLD},
        after={"nextRunAt": LATER, "movedTo": GONE, "updatedAt": STAMP},
        not_with={"a claim": {"status": "processing"}, **FINISHED},
    ),
    "run_now_by_operator": Row(
        of=lambda _job: run_now_by_operator(),
        before={**JOB, "nextRunAt": LATER, "movedTo": OLD},
        after={"nextRunAt": STAMP, "movedTo": GONE, "updatedAt": STAMP},
        not_with={
            "a claim": {"status": "processing"},
            "a time that has come": {"nextRunAt": OLD},
            "no time yet": {"nextRunAt": PARKED},
            **FINISHED,
        },
    ),
    "run_now_by_operator after a crash": Row(
        of=lambda _job: run_now_by_operator(),
        before={**JOB, **TROUBLED, "nextRunAt": LATER, "lastCrash": {"runAt": LATER, "failCount": 1}},
        after={"nextRunAt": STAMP, "movedTo": STAMP, "updatedAt": STAMP},
    ),
    "run_now_by_operator after a success since the crash": Row(
        of=lambda _job: run_now_by_operator(),
        before={**JOB, **TROUBLED, "nextRunAt": LATER},
        after={"nextRunAt": STAMP, "crashCount": GONE, "lastCrash": GONE, "updatedAt": STAMP},
    ),
    "reschedule_by_operator for a schedule": Row(
        of=reschedule,
        before={**JOB, "repeatInterval": "@daily"},
        after={"nextRunAt": LATER, "movedTo": LATER, "updatedAt": STAMP},
    ),
    "reschedule_by_operator after a crash": Row(
        of=reschedule,
        before={**JOB, **TROUBLED},
        after={"nextRunAt": LATER, "movedTo": LATER, "updatedAt": STAMP},
    ),
}


def rows(which: Callable[[Row], bool] = lambda _row: True) -> Any:
    """Run a test with each of these rows."""
    return pytest.mark.parametrize(
        "row", [pytest.param(row, id=each) for each, row in TABLE.items() if which(row)]
    )


def changed(before: Document, changes: Document) -> Document:
    return {key: value for key, value in {**before, **changes}.items() if value is not GONE}


@pytest.fixture(scope="module")
async def jobs(client: AsyncMongoClient[Document]) -> AsyncIterator[Collection]:
    """One collection for the whole table: each test has a document of its own."""
    name = f"transitions_{uuid.uuid4().hex[:8]}"
    yield client[name]["monque_jobs"]
    await client.drop_database(name)


async def store(jobs: Collection, job: Document) -> Document:
    """Store a document under an id of its own, and return it."""
    stored = {**job, "_id": ObjectId()}
    await jobs.insert_one(stored)
    return stored


async def perform(jobs: Collection, transition: Transition, job: Document) -> Document | None:
    return await jobs.find_one_and_update(
        {"_id": job["_id"], **transition.when},
        transition.update(NOW),
        return_document=ReturnDocument.AFTER,
    )


@rows()
async def test_a_transition_changes_a_document_that_it_matches(jobs: Collection, row: Row) -> None:
    stored = await store(jobs, row.before)
    transition = row.of(row.before)
    after = await perform(jobs, transition, stored)

    assert after == changed(stored, row.after)
    assert after["status"] == transition.to.value


@pytest.mark.parametrize(
    ("row", "difference"),
    [
        pytest.param(row, difference, id=f"{each} not with {what}")
        for each, row in TABLE.items()
        for what, difference in row.not_with.items()
    ],
)
async def test_a_transition_leaves_alone_a_document_that_it_does_not_match(
    jobs: Collection, row: Row, difference: Document
) -> None:
    """The transition is made from the document as it was read; the difference came after that."""
    stored = await store(jobs, changed(row.before, difference))

    assert await perform(jobs, row.of(row.before), stored) is None
    assert await jobs.find_one({"_id": stored["_id"]}) == stored


@rows(lambda row: row.of in (recover_it, give_up))
async def test_recovery_reads_whether_a_crash_was_one_too_many(jobs: Collection, row: Row) -> None:
    stored = await store(jobs, row.before)
    found = await jobs.find_one({"_id": stored["_id"], **STALE}, stale_fields(max_crashes=MAX_CRASHES))

    names = ("_id", "name", "claimedBy", "attempt", "repeatInterval")
    named = {key: value for key, value in stored.items() if key in names}
    hopeless = row.of(stored).to is JobStatus.FAILED
    read = {"crashes": row.after["crashCount"], "hopeless": hopeless, "requested": False, "noted": False}
    assert found == {**named, **read}
