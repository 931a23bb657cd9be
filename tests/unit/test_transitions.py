"""The state machine, as values: what each transition matches, writes and removes, and where it leads."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import MAXYEAR, UTC, datetime, timedelta
from typing import Any

import pytest
from bson import ObjectId
from hypothesis import given
from hypothesis import strategies as st

from monque import JobStatus
from monque._store import transitions
from monque._store.document import PARKED, Claim
from monque._store.transitions.batches import cancel_after_batch, wake_batch
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
    stopping,
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
from monque._store.transitions.run import claim, refuse
from monque._store.transitions.signals import signal
from monque._store.transitions.transition import Transition, as_read, by_id, lean, owned, recent_run
from monque._values.history import HistoryEntry
from monque._workers.results import Kept
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
    hold,
    is_owned,
    park,
    park_in_line,
    receive,
    record_steps,
    release,
    remove,
    repeat,
    retry,
    run_again,
    skip,
    snooze,
    spawn,
    suspend,
    take,
    was_settled,
)

Document = dict[str, Any]
Update = Document | list[Document]

PENDING, PROCESSING, COMPLETED, FAILED, CANCELLED = (
    JobStatus.PENDING,
    JobStatus.PROCESSING,
    JobStatus.COMPLETED,
    JobStatus.FAILED,
    JobStatus.CANCELLED,
)

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
LATER = NOW + timedelta(hours=1)
SECOND = timedelta(seconds=1)

# Texts that users choose. Each begins with a `$`, so a pipeline would read a bare one as an expression.
OWNER, CRON, ZONE, REASON = "$owner", "$cron", "$zone", "$reason"
USER_TEXTS = {OWNER, CRON, ZONE, REASON}
RESULT = {"text": REASON}

CLAIM: Document = {
    "_id": ObjectId(),
    "name": "work",
    "status": "processing",
    "nextRunAt": NOW,
    "failCount": 1,
    "claimedBy": OWNER,
    "attempt": 3,
    "lockedAt": NOW,
    "lastHeartbeat": NOW,
    "updatedAt": NOW,
}
STUCK = Claim.of_read(CLAIM).with_stuck("timeout", LATER).document["stuck"]
SCHEDULE: Document = {**CLAIM, "repeatInterval": CRON, "timezone": ZONE}
WAITING: Document = {**SCHEDULE, "status": "pending"}
KEYED: Document = {**CLAIM, "uniqueKey": "k"}
CALL: Document = {"_id": ObjectId(), "name": "work", "uniqueKey": "k", "data": REASON, "nextRunAt": LATER}
TRIGGERED: Document = {**SCHEDULE, "schedule": {"triggeredAt": NOW, "limit": 5}}
OCCURRENCE: Document = {"_id": ObjectId(), "status": "failed"}

# Parts that several rows of the table share.
OWNED = {"status": "processing", "claimedBy": OWNER, "attempt": 3}
REQUESTED = {"$eq": ["$cancel.by", "operator"]}
NOT_REQUESTED = {"$nor": [{"$expr": REQUESTED}]}
STOPPING = {"$and": [REQUESTED, {"$ne": ["$cancel.afterRun", True]}]}
NOT_STOPPING = {"$nor": [{"$expr": STOPPING}]}
PLAIN = {"schedule": {"$eq": None}}
KNOWN = {"repeatInterval": {"$eq": CRON}, "timezone": {"$eq": ZONE}, **PLAIN}
SAME_SCHEDULE = {**OWNED, **KNOWN, **NOT_REQUESTED}
UNTOUCHED = {
    "status": {"$eq": "processing"},
    "claimedBy": {"$eq": OWNER},
    "attempt": {"$eq": 3},
    "lastHeartbeat": {"$eq": NOW},
    "repeatInterval": {"$eq": CRON},
    "timezone": {"$eq": ZONE},
    **PLAIN,
    **NOT_REQUESTED,
}
AS_READ = {"updatedAt": {"$eq": NOW}, "repeatInterval": {"$eq": CRON}, **PLAIN}
STAMPED = {"updatedAt": True}
RAN = {"updatedAt": True, "lastRunAt": True}
CLAIM_FIELDS = ["claimedBy", "claimedAt", "lockedAt", "lastHeartbeat"]
NO_CLAIM = dict.fromkeys(CLAIM_FIELDS, "")
NO_TROUBLE = {"failReason": "", "crashCount": "", "lastCrash": ""}
AFRESH = {**NO_TROUBLE, "snoozeCount": ""}

LEFT_BY_RUNS = ["result", "resultError", "progress", "log"]
RECORDS = ["snoozeCount", "cancel"]
DONE = {"status": "completed", "settledAttempt": 3, "updatedAt": "$$NOW"}

# What a run of a schedule leaves in it, and the stage that keeps it.
RUN = recent_run("completed", NOW, SECOND)
RUNS = {"$cond": [{"$isArray": "$recentRuns"}, "$recentRuns", []]}
KEPT_RUN = {"$set": {"recentRuns": {"$slice": [{"$concatArrays": [RUNS, [{"$literal": RUN}]]}, -10]}}}

# What a run adds to the history, and the stage that adds it.
ENTRY = HistoryEntry("retried", "$Error", REASON, "$trace", 0.05, 7)
ENTRIES = {"$cond": [{"$isArray": "$history"}, "$history", []]}
HAS_ROOM = {"$lt": [{"$bsonSize": "$$ROOT"}, 16 * 1024 * 1024 - 64 * 1024]}
TEXTS = {"outcome": "retried", "error": "$Error", "message": REASON, "trace": "$trace"}


def appended(*parts: Document) -> Document:
    with_it = {"$slice": [{"$concatArrays": [ENTRIES, [{"$mergeObjects": list(parts)}]]}, -7]}
    kept = {"$ifNull": ["$history", "$$REMOVE"]}
    return {"$set": {"history": {"$cond": [HAS_ROOM, with_it, kept]}}}


APPENDED = appended(
    {"$literal": {"attempt": 3, "by": OWNER, **TEXTS}},
    {"startedAt": {"$subtract": ["$$NOW", 50]}, "finishedAt": "$$NOW"},
)
LOST = appended(
    {
        "attempt": {"$cond": [{"$isNumber": "$attempt"}, "$attempt", 0]},
        "by": {"$cond": [{"$eq": [{"$type": "$claimedBy"}, "string"]}, "$claimedBy", ""]},
    },
    {"$literal": TEXTS},
    {
        "startedAt": {"$cond": [{"$eq": [{"$type": "$lockedAt"}, "date"]}, "$lockedAt", "$$NOW"]},
        "finishedAt": "$$NOW",
    },
)


def ended(*removed: str, **fields: Any) -> list[Document]:
    return [
        {"$set": {**fields, "settledAttempt": 3, "updatedAt": "$$NOW"}},
        {"$unset": [*CLAIM_FIELDS, *removed]},
    ]


REDO = {"$add": [{"$cond": [{"$isNumber": "$redo"}, "$redo", 0]}, 1]}

# A later call with the same key: where it is noted, and what it makes of the job.
NOTED = {"again": {"$type": "object"}}
KEYED_TURN = {"$cond": [{"$gt": ["$turn.line", ""]}, "$turn", "$$REMOVE"]}
NOT_NOTED = {"again": {"$not": {"$type": "object"}}}
IS_NOTED = {"$eq": [{"$type": "$again"}, "object"]}
WAITS_FOR_RETRY = {"$gt": [{"$cond": [{"$isNumber": "$failCount"}, "$failCount", 0]}, 0]}


def date(field: str, otherwise: Any = "$$NOW") -> Document:
    return {"$cond": [{"$eq": [{"$type": field}, "date"]}, field, otherwise]}


# The time of a job, also while it waits for a batch or a turn.
STARTS_AT = date("$parked.dueAt", date("$parked.since", date("$nextRunAt")))


def once_more(**fields: Any) -> list[Document]:
    return [
        {
            "$set": {
                "status": "pending",
                "data": {"$ifNull": ["$again.data", None]},
                "policy": {"$ifNull": ["$again.policy", "$$REMOVE"]},
                "priority": {"$ifNull": ["$again.priority", "$$REMOVE"]},
                "onFailure": {"$ifNull": ["$again.onFailure", "$$REMOVE"]},
                "nextRunAt": {"$max": [date("$again.runAt"), "$$NOW"]},
                "askedAt": date("$again.since"),
                "redo": {
                    "$cond": [
                        {"$eq": [{"$type": "$steps"}, "missing"]},
                        {"$ifNull": ["$redo", "$$REMOVE"]},
                        REDO,
                    ]
                },
                "failCount": 0,
                **fields,
                "updatedAt": "$$NOW",
            }
        },
        {
            "$unset": [
                *(*CLAIM_FIELDS, "crashCount", "lastCrash"),
                *(
                    "again",
                    "failReason",
                    "snoozeCount",
                    "cancel",
                    "steps",
                    "signals",
                    "parked",
                    "turn",
                ),
            ]
        },
    ]


def replaced(new: Document, due: Any, *said: str, moved: bool = True) -> list[Document]:
    later = {"$mergeObjects": ["$parked", {"dueAt": due}]}
    awaits_batch = {"$eq": ["$parked.why", "batch"]}
    times = {
        "nextRunAt": {"$cond": [awaits_batch, "$nextRunAt", due]},
        "parked": {"$cond": [awaits_batch, later, "$parked"]},
    }
    changed = {
        **{field: f"$$new.{field}" for field in ("data", *said)},
        **(times if moved else {"nextRunAt": due}),
        "askedAt": {"$cond": [WAITS_FOR_RETRY, "$$NOW", "$askedAt"]},
        "failCount": 0,
        "updatedAt": "$$NOW",
    }
    is_new = {"$eq": [{"$type": "$_id"}, "missing"]}
    stored = {"$cond": [is_new, "$$new", {"$mergeObjects": ["$$ROOT", changed]}]}
    unsaid = [field for field in ("policy", "priority", "onFailure") if field not in said]
    return [
        {"$replaceWith": {"$let": {"vars": {"new": {"$literal": new}}, "in": stored}}},
        {"$unset": ["failReason", "crashCount", "lastCrash", "again", "cancel", "turn", *unsaid]},
    ]


TURN = {"line": "", "slot": 2}


def of_each(job_id: Any, value: Any) -> Document:
    return {"$arrayElemAt": [{"$literal": [value]}, {"$indexOfArray": [{"$literal": [job_id]}, "$_id"]}]}


def noted(due: Any, **call: Any) -> Document:
    count = {"$add": [{"$cond": [{"$isNumber": "$again.count"}, "$again.count", 0]}, 1]}
    times = {"runAt": due, "since": SINCE, "count": count}
    return {"$set": {"again": {"$mergeObjects": [{"$literal": call}, times]}, "updatedAt": "$$NOW"}}


SINCE = {"$cond": [IS_NOTED, date("$again.since"), "$$NOW"]}
HOLDS = {"name": "work", "uniqueKey": "k", "repeatInterval": None}
# It runs, or has steps and waits.
RUNS = {
    "status": {"$in": ["pending", "processing"]},
    "$or": [{"status": "processing"}, {"steps": {"$exists": True}}],
}


RETRIED = ended(
    status="pending", nextRunAt={"$add": ["$$NOW", 2000]}, failCount=2, failReason={"$literal": REASON}
)


def failed(count: int) -> list[Document]:
    return ended(status="failed", failCount=count, failReason={"$literal": REASON})


FAILURES = {"$cond": [{"$isNumber": "$failCount"}, "$failCount", 0]}
FAILURES_AT_CRASH = {"$cond": [{"$isNumber": "$lastCrash.failCount"}, "$lastCrash.failCount", 0]}
RAN_SINCE = {
    "$and": [
        {"$eq": [{"$type": "$lastCrash"}, "object"]},
        {"$ne": ["$nextRunAt", "$lastCrash.runAt"]},
        {"$ne": ["$nextRunAt", "$movedTo"]},
        {"$lte": [FAILURES, FAILURES_AT_CRASH]},
    ]
}
FORGOTTEN = {
    "$set": {
        "crashCount": {"$cond": [RAN_SINCE, "$$REMOVE", "$crashCount"]},
        "lastCrash": {"$cond": [RAN_SINCE, "$$REMOVE", "$lastCrash"]},
    }
}


FOLLOWS = {"$eq": [{"$type": "$afterBatch"}, "string"]}
AWAITS_BATCH = {"$eq": ["$parked.why", "batch"]}


def put_back(due: Document, **more: Document) -> Document:
    """The fields of a job that is put back; one that follows a batch waits for that again."""
    parked = {"why": "batch", "key": "$afterBatch", "since": "$$NOW", **more}
    return {
        "$set": {
            "status": "pending",
            "failCount": 0,
            "nextRunAt": {"$cond": [FOLLOWS, PARKED, due]},
            "parked": {"$cond": [FOLLOWS, {"$mergeObjects": [parked]}, "$$REMOVE"]},
            "updatedAt": "$$NOW",
        }
    }


def moved_to(run_at: Any) -> Document:
    """The times of a job that is moved; one that waits for a batch stays parked, one in a line leaves it."""
    due = {"$mergeObjects": ["$parked", {"dueAt": run_at}]}
    other = {"$cond": [{"$eq": ["$parked.why", "turn"]}, "$$REMOVE", "$parked"]}
    return {
        "nextRunAt": {"$cond": [AWAITS_BATCH, "$nextRunAt", run_at]},
        "parked": {"$cond": [AWAITS_BATCH, due, other]},
    }


DUE_AT = {"$cond": [{"$eq": [{"$type": "$parked.dueAt"}, "date"]}, "$parked.dueAt", "$$NOW"]}
CANCELLED_BY_BATCH = {
    "$cond": [
        {"$eq": ["$cancel.by", "operator"]},
        "$cancel",
        {
            "$mergeObjects": [
                {
                    "at": "$$NOW",
                    "by": "batch",
                    "reason": {"$literal": "a job of the batch that it waited for did not complete"},
                }
            ]
        },
    ]
}
PUT_BACK = put_back({"$add": ["$$NOW", 0]})
SPREAD = {"$add": ["$$NOW", {"$toLong": {"$multiply": [{"$rand": {}}, 60_000]}}]}
PLACE = {
    "$indexOfArray": [{"$map": {"input": "$steps", "in": "$$this.n"}}, {"$literal": "$charge"}],
}
BEFORE_CHARGE = {"$cond": [{"$eq": [PLACE, 0]}, "$$REMOVE", {"$slice": ["$steps", PLACE]}]}

# A wait for a signal without a timeout cannot be moved. The end of any other wait moves with its job.
IN_A_LINE = {"$eq": ["$parked.why", "turn"]}
AS_SEEN = {"updatedAt": {"$eq": NOW}, "nextRunAt": {"$eq": NOW}, "attempt": {"$eq": 3}}


def rescheduled() -> list[Any]:
    """The stages of a job that is moved, which have a row of their own."""
    then = reschedule_by_operator(run_at=LATER).then
    assert isinstance(then, list)
    return then


MOVABLE: Document = {
    "$nor": [
        {
            "parked.why": "signal",
            "steps": {
                "$not": {
                    "$elemMatch": {"k": "signal", "until": {"$type": "date"}, "over": {"$exists": False}}
                }
            },
        }
    ]
}


def ending_at(run_at: Any) -> Document:
    is_waited_for = {
        "$and": [
            {"$eq": [{"$type": "$$this.until"}, "date"]},
            {"$eq": [{"$type": "$$this.over"}, "missing"]},
            {"$or": [{"$eq": ["$$this.k", "$parked.why"]}, {"$eq": ["$$this.until", "$nextRunAt"]}]},
        ]
    }
    moved = {"$cond": [is_waited_for, {"$mergeObjects": ["$$this", {"until": run_at}]}, "$$this"]}
    parked = {"$and": [{"$eq": [{"$type": "$parked"}, "object"]}, {"$isArray": "$steps"}]}
    waits = {"$and": [parked, {"$not": [AWAITS_BATCH]}]}
    return {"$cond": [waits, {"$map": {"input": "$steps", "in": moved}}, "$steps"]}


MOVES_COUNT: Document = {
    "$or": [
        {"$eq": [{"$type": "$repeatInterval"}, "string"]},
        {"$eq": [{"$type": "$lastCrash"}, "object"]},
    ]
}


def snoozed(run_at: Any) -> list[Document]:
    count = {"$add": [{"$cond": [{"$isNumber": "$snoozeCount"}, "$snoozeCount", 0]}, 1]}
    is_paused = {"$eq": [{"$type": "$schedule.pausedAt"}, "date"]}
    counts = {"$and": [MOVES_COUNT, {"$not": [is_paused]}]}
    moved = {"$set": {"movedTo": {"$cond": [counts, "$nextRunAt", "$$REMOVE"]}}}
    return [FORGOTTEN, *ended(status="pending", nextRunAt=run_at, snoozeCount=count), moved]


def cancelled(reason: Document, by: str = "handler") -> list[Document]:
    said = {"$mergeObjects": [{"at": "$$NOW", "by": by, **reason}]}
    removed = ("signals",) if by == "expiry" else ("again", "signals")
    return ended(*removed, status="cancelled", cancel={"$cond": [REQUESTED, "$cancel", said]})


# Durable steps: one that is done, and the stages of a wait.
DONE_STEP: Document = {"n": REASON, "k": "step", "at": NOW, "ms": 40, "v": REASON}
BEAT = {"lastHeartbeat": True, "lockedAt": True, "updatedAt": True}
STEPS = {"$cond": [{"$isArray": "$steps"}, "$steps", []]}
RUN_TIME = {"$cond": [{"$isNumber": "$$this.ms"}, "$$this.ms", 0]}
SIGNAL_IS_THERE = {
    "$in": [{"$literal": REASON}, {"$cond": [{"$isArray": "$signals"}, "$signals.n", []]}],
}
PARKED_FOR_SIGNAL = {"why": "signal", "key": {"$literal": REASON}, "since": "$$NOW"}
LAST_CRASH = {
    "$cond": [
        {"$eq": [{"$type": "$lastCrash"}, "object"]},
        {"$mergeObjects": ["$lastCrash", {"failCount": -1}]},
        {"$ifNull": ["$lastCrash", "$$REMOVE"]},
    ]
}


def waiting(fields: Document, kind: str = "sleep", **wait: Any) -> list[Document]:
    entry = {"n": {"$literal": REASON}, "k": kind, "at": "$$NOW", "ms": 40, **fields}
    steps = {"$concatArrays": [STEPS, [entry]]}
    return ended(status="pending", lastCrash=LAST_CRASH, steps=steps, failCount=0, **wait)


def longer(more: Document | None = None) -> Document:
    fields = {"ms": {"$add": [RUN_TIME, 40]}, **(more or {})}
    is_it = {"$eq": ["$$this.n", {"$literal": REASON}]}
    cond = [is_it, {"$mergeObjects": ["$$this", fields]}, "$$this"]
    return {"$map": {"input": STEPS, "in": {"$cond": cond}}}


NOT_WAITED_FOR = {
    "$cond": [
        {"$eq": ["$cancel.by", "operator"]},
        "$cancel",
        {
            "$mergeObjects": [
                {
                    "at": "$$NOW",
                    "by": "batch",
                    "reason": {"$literal": "its parent does not wait for it any more"},
                }
            ]
        },
    ]
}

# The expressions of recovery. The table on a real server shows what they mean.
EARLIER_CRASHES = {"$cond": [{"$isNumber": "$crashCount"}, "$crashCount", 0]}
CRASHES = {"$add": [{"$cond": [RAN_SINCE, 0, EARLIER_CRASHES]}, 1]}
CRASHED = {
    "crashCount": CRASHES,
    "lastCrash": {"$mergeObjects": [{"runAt": "$nextRunAt", "failCount": FAILURES}]},
    "lostAttempt": {"$ifNull": ["$attempt", {"$ifNull": ["$lostAttempt", "$$REMOVE"]}]},
    "updatedAt": "$$NOW",
}
HAS_POLICY = {"$eq": [{"$type": "$policy"}, "object"]}
SAYS_ATTEMPTS = {
    "$and": [HAS_POLICY, {"$isNumber": "$policy.maxAttempts"}, {"$gte": ["$policy.maxAttempts", 1]}]
}
SAYS_DELAYS = {"$and": [HAS_POLICY, {"$isArray": "$policy.delays"}, {"$ne": ["$policy.delays", []]}]}
OF_DELAYS = {"$cond": [SAYS_DELAYS, {"$add": [{"$size": "$policy.delays"}, 1]}, 4]}
HOPELESS = {"$gte": [CRASHES, {"$cond": [SAYS_ATTEMPTS, "$policy.maxAttempts", OF_DELAYS]}]}
CRASH_REASON = (
    "its process died 4 time(s) while it ran (crashed, killed or out of memory); "
    "given up so that it does not kill more"
)
STALE = {"status": "processing", "$expr": "the owner is dead"}
ASKED = {"at": "$$NOW", "by": "operator", "reason": {"$literal": REASON}}


# Signals: a job that waits for the one in question, and the entry that takes the first such signal.
SIGNALS, STEPS = ({"$cond": [{"$isArray": each}, each, []]} for each in ("$signals", "$steps"))
AWAITS = {
    "$and": [
        {"$eq": ["$status", "pending"]},
        {"$eq": ["$parked.why", "signal"]},
        {"$eq": ["$parked.key", {"$literal": REASON}]},
    ]
}
PLACE = {"$indexOfArray": [{"$map": {"input": SIGNALS, "in": "$$this.n"}}, {"$literal": REASON}]}
OVER = {
    "$let": {
        "vars": {"taken": {"$arrayElemAt": [SIGNALS, "$$place"]}},
        "in": {
            "$mergeObjects": [
                {"over": "$$NOW"},
                {
                    "$cond": [
                        {"$gte": ["$$place", 0]},
                        {"v": {"$ifNull": ["$$taken.v", None]}, "id": "$$taken.id"},
                        {},
                    ]
                },
            ]
        },
    }
}
SENT = {"n": {"$literal": REASON}, "at": "$$NOW", "v": {"$literal": RESULT}}


def sent(*refusals: Document, **known: Document) -> tuple[Document, list[Document]]:
    """What `signal` matches and writes."""
    fields = {
        "signals": {"$concatArrays": [SIGNALS, [{**SENT, **known}]]},
        "nextRunAt": {"$cond": [AWAITS, "$$NOW", "$nextRunAt"]},
        "parked": {"$cond": [AWAITS, "$$REMOVE", "$parked"]},
        "updatedAt": "$$NOW",
    }
    room = {
        "$or": [
            {"$gte": [{"$size": SIGNALS}, 100]},
            {"$gt": [{"$add": [{"$bsonSize": {"signals": SIGNALS}}, 31]}, 1024 * 1024]},
        ]
    }
    refused = [{"$gt": ["$repeatInterval", None]}, room, *refusals]
    when = {"status": {"$in": ["pending", "processing"]}, "$expr": {"$not": [{"$or": refused}]}}
    return when, [{"$set": fields}]


def known_id(given: str | None) -> Document:
    """The id of a signal is that of one which is stored, or was received."""
    known = [{"$map": {"input": array, "in": "$$this.id"}} for array in (SIGNALS, STEPS)]
    return {"$and": [given is not None, {"$in": [{"$literal": given}, {"$concatArrays": known}]}]}


NO_ID = known_id(None)


def received(steps: Document, **fields: Any) -> list[Document]:
    """What a run writes that ends its wait for a signal."""
    others = {
        "$concatArrays": [
            {"$slice": [SIGNALS, "$$place"]},
            {"$slice": [SIGNALS, {"$add": ["$$place", 1]}, {"$size": SIGNALS}]},
        ]
    }
    left = {"$cond": [{"$gt": [{"$size": SIGNALS}, 1]}, others, "$$REMOVE"]}
    rest = {"$cond": [{"$gte": ["$$place", 0]}, left, "$signals"]}
    alive = dict.fromkeys(("lastHeartbeat", "lockedAt", "updatedAt"), "$$NOW")
    return [
        {"$set": {"steps": {"$let": {"vars": {"place": PLACE}, "in": steps}}, **fields, **alive}},
        {"$set": {"signals": {"$let": {"vars": {"place": PLACE}, "in": rest}}}},
    ]


MADE = {"$mergeObjects": [{"n": {"$literal": OWNER}, "k": "signal", "at": "$$NOW"}, OVER]}
IS_IT = {"$eq": ["$$this.n", {"$literal": OWNER}]}
ENDED = {"$cond": [IS_IT, {"$mergeObjects": ["$$this", OVER]}, "$$this"]}


@dataclass(frozen=True, kw_only=True)
class Row:
    """One call of a transition function, and exactly the value that it returns."""

    of: Transition
    to: JobStatus
    when: Document
    then: Update
    leaves: Document | None = None


# The first word of each id is the function.
TABLE: dict[str, Row] = {
    "claim": Row(
        of=claim(instance_id=OWNER, heartbeat_interval=30 * SECOND),
        to=PROCESSING,
        when={"status": "pending", "$expr": {"$lte": ["$nextRunAt", "$$NOW"]}},
        then={
            "$set": {"status": "processing", "claimedBy": OWNER, "heartbeatInterval": 30_000},
            "$inc": {"attempt": 1},
            "$currentDate": dict.fromkeys(("claimedAt", "lockedAt", "lastHeartbeat", "updatedAt"), True),
        },
    ),
    "claim with an interval beyond int32": Row(
        of=claim(instance_id=OWNER, heartbeat_interval=timedelta(days=25)),
        to=PROCESSING,
        when={"status": "pending", "$expr": {"$lte": ["$nextRunAt", "$$NOW"]}},
        then={
            "$set": {"status": "processing", "claimedBy": OWNER, "heartbeatInterval": 2**31 - 1},
            "$inc": {"attempt": 1},
            "$currentDate": dict.fromkeys(("claimedAt", "lockedAt", "lastHeartbeat", "updatedAt"), True),
        },
    ),
    "heartbeat": Row(
        of=heartbeat(CLAIM),
        to=PROCESSING,
        when=OWNED,
        then={"$currentDate": {"lastHeartbeat": True, "lockedAt": True, "updatedAt": True}},
    ),
    "heartbeat of a stuck run": Row(
        of=heartbeat({**CLAIM, "stuck": STUCK}),
        to=PROCESSING,
        when=OWNED,
        then={
            "$set": {"stuck": {"why": "timeout", "since": LATER, "by": OWNER, "attempt": 3}},
            "$currentDate": {"lastHeartbeat": True, "lockedAt": True, "updatedAt": True},
        },
    ),
    "heartbeat after an earlier run was stuck": Row(
        of=heartbeat({**CLAIM, "stuck": STUCK, "attempt": 4}),
        to=PROCESSING,
        when={**OWNED, "attempt": 4},
        then={"$currentDate": {"lastHeartbeat": True, "lockedAt": True, "updatedAt": True}},
    ),
    "remove": Row(of=remove(CLAIM), to=COMPLETED, when=OWNED, then={}),
    "remove with a key": Row(
        of=remove(KEYED), to=COMPLETED, when={**OWNED, "again": {"$not": {"$type": "object"}}}, then={}
    ),
    "complete": Row(
        of=complete(CLAIM, ran=0.05),
        to=COMPLETED,
        when=OWNED,
        then={
            "$set": {
                "status": "completed",
                "settledAttempt": 3,
                "startedAt": NOW - timedelta(milliseconds=50),
                "finishedAt": NOW,
            },
            "$unset": NO_CLAIM,
            "$currentDate": STAMPED,
        },
    ),
    "complete after a failure": Row(
        of=complete({**CLAIM, "failReason": REASON}),
        to=COMPLETED,
        when=OWNED,
        then={
            "$set": {"status": "completed", "settledAttempt": 3, "startedAt": NOW, "finishedAt": NOW},
            "$unset": {**NO_CLAIM, **NO_TROUBLE},
            "$currentDate": STAMPED,
        },
    ),
    "complete after a crash": Row(
        of=complete({**CLAIM, "crashCount": 1, "lastCrash": {}}),
        to=COMPLETED,
        when=OWNED,
        then={
            "$set": {"status": "completed", "settledAttempt": 3, "startedAt": NOW, "finishedAt": NOW},
            "$unset": {**NO_CLAIM, **NO_TROUBLE},
            "$currentDate": STAMPED,
        },
    ),
    "complete with a result": Row(
        of=complete(CLAIM, ran=0.05, kept=Kept(RESULT, 20)),
        to=COMPLETED,
        when=OWNED,
        then=[
            {
                "$set": {
                    **DONE,
                    "startedAt": NOW - timedelta(milliseconds=50),
                    "finishedAt": NOW,
                    "result": {"$literal": RESULT},
                }
            },
            {"$unset": CLAIM_FIELDS},
        ],
    ),
    "complete with a result that cannot be stored, after a failure": Row(
        of=complete({**CLAIM, "failReason": REASON, "result": 1}, kept=Kept(error=REASON)),
        to=COMPLETED,
        when=OWNED,
        then=[
            {
                "$set": {
                    **DONE,
                    "startedAt": NOW,
                    "finishedAt": NOW,
                    "resultError": {"$literal": REASON},
                }
            },
            {"$unset": [*CLAIM_FIELDS, "crashCount", "lastCrash", "failReason", "result"]},
        ],
    ),
    "repeat with a result": Row(
        of=repeat(SCHEDULE, run_at=LATER, kept=Kept(RESULT, 20)),
        to=PENDING,
        when=SAME_SCHEDULE,
        then={
            "$set": {
                "status": "pending",
                "nextRunAt": LATER,
                "failCount": 0,
                "settledAttempt": 3,
                "runCount": 1,
                "result": RESULT,
            },
            "$unset": {**NO_CLAIM, **AFRESH, "resultError": ""},
            "$currentDate": RAN,
        },
    ),
    "repeat without the result of an earlier run": Row(
        of=repeat({**SCHEDULE, "result": None}, run_at=LATER),
        to=PENDING,
        when=SAME_SCHEDULE,
        then={
            "$set": {
                "status": "pending",
                "nextRunAt": LATER,
                "failCount": 0,
                "settledAttempt": 3,
                "runCount": 1,
            },
            "$unset": {**NO_CLAIM, **AFRESH, "result": ""},
            "$currentDate": RAN,
        },
    ),
    "repeat": Row(
        of=repeat(SCHEDULE, run_at=LATER),
        to=PENDING,
        when=SAME_SCHEDULE,
        then={
            "$set": {
                "status": "pending",
                "nextRunAt": LATER,
                "failCount": 0,
                "settledAttempt": 3,
                "runCount": 1,
            },
            "$unset": {**NO_CLAIM, **AFRESH},
            "$currentDate": RAN,
        },
    ),
    "repeat keeping the run": Row(
        of=repeat(SCHEDULE, run_at=LATER, ended=RUN),
        to=PENDING,
        when=SAME_SCHEDULE,
        then={
            "$set": {
                "status": "pending",
                "nextRunAt": LATER,
                "failCount": 0,
                "settledAttempt": 3,
                "runCount": 1,
            },
            "$push": {"recentRuns": {"$each": [RUN], "$slice": -10}},
            "$unset": {**NO_CLAIM, **AFRESH},
            "$currentDate": RAN,
        },
    ),
    "repeat keeping the run where others wrote no list": Row(
        of=repeat({**SCHEDULE, "recentRuns": "many"}, run_at=LATER, ended=RUN),
        to=PENDING,
        when=SAME_SCHEDULE,
        then={
            "$set": {
                "status": "pending",
                "nextRunAt": LATER,
                "failCount": 0,
                "settledAttempt": 3,
                "runCount": 1,
                "recentRuns": [RUN],
            },
            "$unset": {**NO_CLAIM, **AFRESH},
            "$currentDate": RAN,
        },
    ),
    "fail keeping the run": Row(
        of=fail(SCHEDULE, reason=REASON, ended=RUN),
        to=FAILED,
        when=OWNED,
        then=[*failed(2), KEPT_RUN],
    ),
    "cancel_run keeping the run": Row(
        of=cancel_run(SCHEDULE, ended=RUN),
        to=CANCELLED,
        when=OWNED,
        then={
            "$set": {"status": "cancelled", "settledAttempt": 3},
            "$push": {"recentRuns": {"$each": [RUN], "$slice": -10}},
            "$unset": {**NO_CLAIM, "again": "", "signals": ""},
            "$currentDate": STAMPED,
        },
    ),
    "cancel_stale keeping the run": Row(
        of=cancel_stale(STALE, ended=RUN),
        to=CANCELLED,
        when={**STALE, "$and": [{"$expr": REQUESTED}]},
        then=[
            {"$set": {**CRASHED, "status": "cancelled"}},
            {"$unset": [*CLAIM_FIELDS, "parked", "again", "signals", "turn"]},
            KEPT_RUN,
        ],
    ),
    "repeat without a zone": Row(
        of=repeat({**CLAIM, "repeatInterval": CRON}, run_at=LATER),
        to=PENDING,
        when={**SAME_SCHEDULE, "timezone": {"$eq": None}},
        then={
            "$set": {
                "status": "pending",
                "nextRunAt": LATER,
                "failCount": 0,
                "settledAttempt": 3,
                "runCount": 1,
            },
            "$unset": {**NO_CLAIM, **AFRESH},
            "$currentDate": RAN,
        },
    ),
    "repeat after a run that was cancelled": Row(
        of=repeat(SCHEDULE, run_at=LATER, entry=ENTRY),
        to=PENDING,
        when=SAME_SCHEDULE,
        then=[
            APPENDED,
            {
                "$set": {
                    "status": "pending",
                    "nextRunAt": LATER,
                    "failCount": 0,
                    "settledAttempt": 3,
                    "runCount": 1,
                    "updatedAt": "$$NOW",
                    "lastRunAt": "$$NOW",
                }
            },
            {"$unset": [*CLAIM_FIELDS, "crashCount", "lastCrash", "failReason", "snoozeCount"]},
        ],
    ),
    "retry": Row(
        of=retry(CLAIM, delay=2 * SECOND, reason=REASON),
        to=PENDING,
        when=OWNED,
        then=RETRIED,
    ),
    "retry with a history": Row(
        of=retry(CLAIM, delay=2 * SECOND, reason=REASON, entry=ENTRY),
        to=PENDING,
        when=OWNED,
        then=[APPENDED, *RETRIED],
    ),
    "fail": Row(
        of=fail(CLAIM, reason=REASON),
        to=FAILED,
        when=OWNED,
        then=failed(2),
    ),
    "fail with a count that is no number": Row(
        of=fail({**CLAIM, "failCount": "?"}, reason=REASON),
        to=FAILED,
        when=OWNED,
        then=failed(1),
    ),
    "fail with a history": Row(
        of=fail(CLAIM, reason=REASON, entry=ENTRY),
        to=FAILED,
        when=OWNED,
        then=[APPENDED, *failed(2)],
    ),
    "refuse": Row(
        of=refuse(OWNER),
        to=PENDING,
        when={"status": "processing", "claimedBy": OWNER},
        then={
            "$set": {"status": "pending"},
            "$unset": {**NO_CLAIM, "parked": "", "turn": ""},
            "$currentDate": STAMPED,
        },
    ),
    "snooze": Row(
        of=snooze(CLAIM, delay=2 * SECOND),
        to=PENDING,
        when=OWNED,
        then=snoozed({"$add": ["$$NOW", 2000]}),
    ),
    "snooze until a time": Row(
        of=snooze(SCHEDULE, until=LATER),
        to=PENDING,
        when=SAME_SCHEDULE,
        then=snoozed(LATER),
    ),
    "cancel_run": Row(
        of=cancel_run(CLAIM, by="handler", reason=REASON, entry=ENTRY),
        to=CANCELLED,
        when=OWNED,
        then=[APPENDED, *cancelled({"reason": {"$literal": REASON}})],
    ),
    "cancel_run without a reason": Row(
        of=cancel_run(CLAIM, by="handler"),
        to=CANCELLED,
        when=OWNED,
        then=cancelled({}),
    ),
    "give_up_occurrence": Row(
        of=give_up_occurrence(SCHEDULE, run_at=LATER, leaves=OCCURRENCE),
        to=PENDING,
        when=SAME_SCHEDULE,
        then={
            "$set": {
                "status": "pending",
                "nextRunAt": LATER,
                "failCount": 0,
                "settledAttempt": 3,
                "failedRunId": OCCURRENCE["_id"],
                "runCount": 1,
            },
            "$unset": {**NO_CLAIM, **AFRESH},
            "$currentDate": RAN,
        },
        leaves=OCCURRENCE,
    ),
    "release": Row(
        of=release(CLAIM),
        to=PENDING,
        when=OWNED,
        then={
            "$set": {"status": "pending", "settledAttempt": 3},
            "$unset": NO_CLAIM,
            "$currentDate": STAMPED,
        },
    ),
    "recover": Row(
        of=recover(STALE, max_crashes=4),
        to=PENDING,
        when={**STALE, "$nor": [{"$expr": HOPELESS}, {"$expr": REQUESTED}]},
        then=[
            {"$set": {**CRASHED, "status": "pending", "turn": KEYED_TURN}},
            {"$unset": [*CLAIM_FIELDS, "parked"]},
        ],
    ),
    "recover with a history": Row(
        of=recover(STALE, max_crashes=4, entry=ENTRY),
        to=PENDING,
        when={**STALE, "$nor": [{"$expr": HOPELESS}, {"$expr": REQUESTED}]},
        then=[
            LOST,
            {"$set": {**CRASHED, "status": "pending", "turn": KEYED_TURN}},
            {"$unset": [*CLAIM_FIELDS, "parked"]},
        ],
    ),
    "give_up_crashed": Row(
        of=give_up_crashed(STALE, max_crashes=4, crashes=4),
        to=FAILED,
        when={
            **STALE,
            "$and": [{"$expr": {"$ne": [{"$type": "$repeatInterval"}, "string"]}}, {"$expr": HOPELESS}],
            "$nor": [{"$expr": REQUESTED}, {"$expr": IS_NOTED}],
        },
        then=[
            {"$set": {**CRASHED, "status": "failed", "failReason": {"$literal": CRASH_REASON}}},
            {"$unset": [*CLAIM_FIELDS, "parked", "turn"]},
        ],
    ),
    "cancel_stale": Row(
        of=cancel_stale(STALE),
        to=CANCELLED,
        when={**STALE, "$and": [{"$expr": REQUESTED}]},
        then=[
            {"$set": {**CRASHED, "status": "cancelled"}},
            {"$unset": [*CLAIM_FIELDS, "parked", "again", "signals", "turn"]},
        ],
    ),
    "cancel_run that somebody asked for while it ran": Row(
        of=cancel_run(CLAIM, entry=ENTRY),
        to=CANCELLED,
        when=OWNED,
        then=[APPENDED, *cancelled({}, by="operator")],
    ),
    "cancel_run that somebody asked for": Row(
        of=cancel_run({**CLAIM, "cancel": {"by": "operator"}}),
        to=CANCELLED,
        when=OWNED,
        then={
            "$set": {"status": "cancelled", "settledAttempt": 3},
            "$unset": {**NO_CLAIM, "again": "", "signals": ""},
            "$currentDate": STAMPED,
        },
    ),
    "expire": Row(
        of=expire(CLAIM),
        to=CANCELLED,
        when=OWNED,
        then=cancelled({"reason": {"$literal": "expired"}}, by="expiry"),
    ),
    "complete with a key": Row(
        of=complete(KEYED),
        to=COMPLETED,
        when={**OWNED, **NOT_NOTED},
        then={
            "$set": {"status": "completed", "settledAttempt": 3, "startedAt": NOW, "finishedAt": NOW},
            "$unset": NO_CLAIM,
            "$currentDate": STAMPED,
        },
    ),
    "retry with a key": Row(
        of=retry(KEYED, delay=2 * SECOND, reason=REASON),
        to=PENDING,
        when={**OWNED, **NOT_NOTED},
        then=RETRIED,
    ),
    "fail with a key": Row(
        of=fail(KEYED, reason=REASON),
        to=FAILED,
        when={**OWNED, **NOT_NOTED},
        then=failed(2),
    ),
    "retry of a schedule, in which nothing is noted": Row(
        of=retry({**SCHEDULE, "uniqueKey": "k"}, delay=2 * SECOND, reason=REASON),
        to=PENDING,
        when=SAME_SCHEDULE,
        then=RETRIED,
    ),
    "expire with a key": Row(
        of=expire(KEYED),
        to=CANCELLED,
        when={**OWNED, **NOT_NOTED},
        then=cancelled({"reason": {"$literal": "expired"}}, by="expiry"),
    ),
    "expire with a later call": Row(
        of=expire({**KEYED, "again": {"data": 1}}),
        to=PENDING,
        when={**OWNED, **NOTED, **NOT_REQUESTED},
        then=once_more(settledAttempt=3),
    ),
    "run_again": Row(
        of=run_again(KEYED),
        to=PENDING,
        when={**OWNED, **NOTED, **NOT_REQUESTED},
        then=once_more(settledAttempt=3),
    ),
    "run_again after a failure": Row(
        of=run_again(KEYED, entry=ENTRY, leaves=OCCURRENCE),
        to=PENDING,
        when={**OWNED, **NOTED, **NOT_REQUESTED},
        then=[APPENDED, *once_more(settledAttempt=3, failedRunId=OCCURRENCE["_id"])],
        leaves=OCCURRENCE,
    ),
    "run_again_crashed": Row(
        of=run_again_crashed(KEYED, leaves=OCCURRENCE, entry=ENTRY),
        to=PENDING,
        when={**UNTOUCHED, "repeatInterval": {"$eq": None}, "timezone": {"$eq": None}, **NOTED},
        then=[LOST, *once_more(lostAttempt=3, failedRunId=OCCURRENCE["_id"])],
        leaves=OCCURRENCE,
    ),
    "replace_waiting": Row(
        of=replace_waiting(CALL, Terms(on_conflict="replace")),
        to=PENDING,
        when={**HOLDS, "status": "pending", "steps": {"$exists": False}},
        then=replaced(CALL, {"$cond": [WAITS_FOR_RETRY, "$$NOW", "$nextRunAt"]}, moved=False),
    ),
    "replace_waiting at another time, with settings": Row(
        of=replace_waiting(
            {**CALL, "policy": {"limit": 7}, "priority": 3},
            Terms(on_conflict="replace", says_time=True, expires_after=500),
        ),
        to=PENDING,
        when={**HOLDS, "status": "pending", "steps": {"$exists": False}},
        then=[
            *replaced(
                {**CALL, "policy": {"limit": 7}, "priority": 3}, "$$new.nextRunAt", "policy", "priority"
            ),
            {"$set": {"policy.expiresAt": {"$add": [STARTS_AT, 500]}}},
        ],
    ),
    "replace_waiting until it is quiet": Row(
        of=replace_waiting(CALL, Terms(on_conflict="replace", wait=50, max_wait=900)),
        to=PENDING,
        when={**HOLDS, "status": "pending", "steps": {"$exists": False}},
        then=replaced(
            CALL,
            {
                "$min": [
                    {"$add": ["$$NOW", 50]},
                    {
                        "$add": [
                            {"$cond": [WAITS_FOR_RETRY, "$$NOW", date("$askedAt", date("$createdAt"))]},
                            900,
                        ]
                    },
                ]
            },
        ),
    ),
    "note_again": Row(
        of=note_again(CALL, Terms(on_conflict="replace")),
        to=PROCESSING,
        when={**HOLDS, **RUNS},
        then=[noted({"$cond": [IS_NOTED, date("$again.runAt"), "$$NOW"]}, data=REASON)],
    ),
    "note_again at a time, with settings": Row(
        of=note_again({**CALL, "policy": {"limit": 7}, "priority": 3}, Terms(until="start", says_time=True)),
        to=PROCESSING,
        when={**HOLDS, **RUNS},
        then=[noted(LATER, data=REASON, policy={"limit": 7}, priority=3)],
    ),
    "note_again when it is quiet, within a window": Row(
        of=note_again({**CALL, "windowKey": REASON}, Terms(wait=50, max_wait=900, window=8)),
        to=PROCESSING,
        when={**HOLDS, **RUNS},
        then=[
            noted({"$min": [{"$add": ["$$NOW", 50]}, {"$add": [SINCE, 900]}]}, data=REASON),
            {"$set": {"windowKey": {"$literal": REASON}, "windowUntil": {"$add": ["$$NOW", 8]}}},
        ],
    ),
    "record_steps": Row(
        of=record_steps(CLAIM, [DONE_STEP]),
        to=PROCESSING,
        when={**OWNED, "steps.n": {"$nin": [REASON]}},
        then={"$set": {"failCount": 0}, "$push": {"steps": {"$each": [DONE_STEP]}}, "$currentDate": BEAT},
    ),
    "record_steps after a crash": Row(
        of=record_steps({**CLAIM, "lastCrash": {"runAt": NOW, "failCount": 2}}, [DONE_STEP]),
        to=PROCESSING,
        when={**OWNED, "steps.n": {"$nin": [REASON]}},
        then={
            "$set": {"failCount": 0, "lastCrash.failCount": -1},
            "$push": {"steps": {"$each": [DONE_STEP]}},
            "$currentDate": BEAT,
        },
    ),
    "record_steps where somebody stored something else": Row(
        of=record_steps({**CLAIM, "steps": "odd"}, [DONE_STEP]),
        to=PROCESSING,
        when={**OWNED, "steps.n": {"$nin": [REASON]}},
        then={"$set": {"failCount": 0, "steps": [DONE_STEP]}, "$currentDate": BEAT},
    ),
    "hold": Row(
        of=hold(CLAIM, REASON),
        to=PROCESSING,
        when={**OWNED, "steps.n": {"$ne": REASON}},
        then={"$currentDate": BEAT},
    ),
    "take": Row(
        of=take(CLAIM, TURN),
        to=PROCESSING,
        when={
            "status": "processing",
            "claimedBy": OWNER,
            "$expr": {"$eq": ["$attempt", of_each(CLAIM["_id"], 3)]},
        },
        then=[{"$set": {"turn": of_each(CLAIM["_id"], TURN), "updatedAt": "$$NOW"}}],
    ),
    "park_in_line": Row(
        of=park_in_line(CLAIM, "work\x1fk:s:a"),
        to=PENDING,
        when={**OWNED, **NOT_REQUESTED},
        then=[
            {
                "$set": {
                    "status": "pending",
                    "settledAttempt": 3,
                    "nextRunAt": PARKED,
                    "parked": {
                        "$mergeObjects": [
                            {
                                "why": "turn",
                                "key": {"$literal": "work\x1fk:s:a"},
                                "since": "$$NOW",
                                "order": "$createdAt",
                            }
                        ]
                    },
                    "lastCrash": LAST_CRASH,
                    "updatedAt": "$$NOW",
                }
            },
            {"$unset": [*CLAIM_FIELDS, "turn"]},
        ],
    ),
    "delay": Row(
        of=delay(CLAIM, LATER),
        to=PENDING,
        when={**OWNED, **NOT_REQUESTED},
        then=[
            {
                "$set": {
                    "status": "pending",
                    "settledAttempt": 3,
                    "nextRunAt": LATER,
                    "movedTo": {"$cond": [MOVES_COUNT, LATER, "$$REMOVE"]},
                    "lastCrash": LAST_CRASH,
                    "updatedAt": "$$NOW",
                }
            },
            {"$unset": [*CLAIM_FIELDS, "parked"]},
        ],
    ),
    "expose": Row(
        of=expose([CLAIM["_id"]], [TURN]),
        to=PENDING,
        when={"status": "pending", "nextRunAt": PARKED, "parked.why": "turn"},
        then=[
            {"$set": {"turn": of_each(CLAIM["_id"], TURN), "nextRunAt": "$$NOW", "updatedAt": "$$NOW"}},
            {"$unset": ["parked"]},
        ],
    ),
    "unpark": Row(
        of=unpark(),
        to=PENDING,
        when={"status": "pending", "nextRunAt": PARKED, "parked.why": "turn"},
        then=[{"$set": {"nextRunAt": "$$NOW", "updatedAt": "$$NOW"}}, {"$unset": ["parked"]}],
    ),
    "suspend for a time": Row(
        of=suspend(CLAIM, Waiting(name=REASON, kind="sleep", delay=2000), ran=0.04),
        to=PENDING,
        when={**OWNED, **NOT_REQUESTED},
        then=waiting(
            {"until": {"$add": ["$$NOW", 2000]}},
            nextRunAt={"$add": ["$$NOW", 2000]},
            parked={"$mergeObjects": [{"why": "time", "since": "$$NOW"}]},
        ),
    ),
    "suspend for jobs": Row(
        of=suspend(
            {**CLAIM, "policy": {"expiresAt": LATER}},
            Waiting(name=REASON, kind="jobs", is_new=False, delay=2000, batch=OWNER, jobs=7),
            ran=0.04,
        ),
        to=PENDING,
        when={**OWNED, **NOT_REQUESTED},
        then=ended(
            status="pending",
            lastCrash=LAST_CRASH,
            steps=longer({"jobs": 7, "until": {"$add": ["$$NOW", 2000]}}),
            nextRunAt={"$min": [{"$add": ["$$NOW", 2000]}, LATER]},
            parked={"$mergeObjects": [{"why": "batch", "key": {"$literal": OWNER}, "since": "$$NOW"}]},
        ),
    ),
    "end_jobs": Row(
        of=end_jobs(CLAIM, REASON, "cfx-"),
        to=PROCESSING,
        when={**OWNED, "steps": {"$elemMatch": {"n": REASON, "over": {"$exists": False}}}},
        then={"$set": {"steps.$.v": "cfx-"}, "$currentDate": {**BEAT, "steps.$.over": True}},
    ),
    "end_jobs because their time is up": Row(
        of=end_jobs(CLAIM, REASON, None),
        to=PROCESSING,
        when={**OWNED, "steps": {"$elemMatch": {"n": REASON, "over": {"$exists": False}}}},
        then={"$currentDate": {**BEAT, "steps.$.over": True}},
    ),
    "cancel_child": Row(
        of=cancel_child(),
        to=CANCELLED,
        when={"status": "pending"},
        then=[
            {
                "$set": {
                    "status": "cancelled",
                    "cancel": NOT_WAITED_FOR,
                    "updatedAt": "$$NOW",
                }
            },
            {"$unset": ["again", "parked", "signals", "turn"]},
        ],
    ),
    "suspend for a signal": Row(
        of=suspend(CLAIM, Waiting(name=REASON, kind="signal", signal=REASON), ran=0.04),
        to=PENDING,
        when={**OWNED, **NOT_REQUESTED},
        then=waiting(
            {},
            nextRunAt={"$cond": [SIGNAL_IS_THERE, "$$NOW", {"$min": [PARKED]}]},
            parked={"$cond": [SIGNAL_IS_THERE, "$$REMOVE", PARKED_FOR_SIGNAL]},
            kind="signal",
        ),
    ),
    "suspend for a signal again, until the job expires": Row(
        of=suspend(
            {**CLAIM, "policy": {"expiresAt": NOW}},
            Waiting(name=REASON, kind="signal", signal=REASON, is_new=False, until=LATER),
            ran=0.04,
        ),
        to=PENDING,
        when={**OWNED, **NOT_REQUESTED},
        then=ended(
            status="pending",
            lastCrash=LAST_CRASH,
            steps=longer(),
            nextRunAt={"$cond": [SIGNAL_IS_THERE, "$$NOW", {"$min": [LATER, NOW]}]},
            parked={"$cond": [SIGNAL_IS_THERE, "$$REMOVE", PARKED_FOR_SIGNAL]},
        ),
    ),
    "abandon_occurrence": Row(
        of=abandon_occurrence(SCHEDULE, run_at=LATER, leaves=OCCURRENCE),
        to=PENDING,
        when=UNTOUCHED,
        then={
            "$set": {
                "status": "pending",
                "nextRunAt": LATER,
                "failCount": 0,
                "lostAttempt": 3,
                "failedRunId": OCCURRENCE["_id"],
                "runCount": 1,
            },
            "$unset": {**NO_CLAIM, **AFRESH, "turn": ""},
            "$currentDate": RAN,
        },
        leaves=OCCURRENCE,
    ),
    "abandon_occurrence that was the last one": Row(
        of=abandon_occurrence(SCHEDULE, run_at=None, leaves=OCCURRENCE),
        to=COMPLETED,
        when=UNTOUCHED,
        then={
            "$set": {
                "status": "completed",
                "failCount": 0,
                "lostAttempt": 3,
                "failedRunId": OCCURRENCE["_id"],
                "runCount": 1,
            },
            "$unset": {**NO_CLAIM, **AFRESH, "turn": ""},
            "$currentDate": RAN,
        },
        leaves=OCCURRENCE,
    ),
    "repeat after a trigger": Row(
        of=repeat(TRIGGERED, run_at=NOW),
        to=PENDING,
        when={**SAME_SCHEDULE, "schedule": {"$eq": {"triggeredAt": NOW, "limit": 5}}},
        then={
            "$set": {
                "status": "pending",
                "nextRunAt": NOW,
                "movedTo": NOW,
                "failCount": 0,
                "settledAttempt": 3,
                "runCount": 1,
            },
            "$unset": {**NO_CLAIM, **AFRESH, "schedule.triggeredAt": ""},
            "$currentDate": RAN,
        },
    ),
    "retry of a schedule": Row(
        of=retry(SCHEDULE, delay=2 * SECOND, reason=REASON),
        to=PENDING,
        when=SAME_SCHEDULE,
        then=RETRIED,
    ),
    "end_schedule": Row(
        of=end_schedule({**SCHEDULE, "runCount": 4}, ran=0.05),
        to=COMPLETED,
        when=SAME_SCHEDULE,
        then={
            "$set": {
                "status": "completed",
                "failCount": 0,
                "settledAttempt": 3,
                "runCount": 5,
                "startedAt": NOW - timedelta(milliseconds=50),
                "finishedAt": NOW,
            },
            "$unset": {**NO_CLAIM, **AFRESH},
            "$currentDate": RAN,
        },
    ),
    "end_schedule after a last run that failed": Row(
        of=end_schedule(SCHEDULE, ran=0.05, entry=ENTRY, leaves=OCCURRENCE),
        to=COMPLETED,
        when=SAME_SCHEDULE,
        then=[
            APPENDED,
            {
                "$set": {
                    "status": "completed",
                    "failCount": 0,
                    "settledAttempt": 3,
                    "failedRunId": OCCURRENCE["_id"],
                    "runCount": 1,
                    "updatedAt": "$$NOW",
                    "lastRunAt": "$$NOW",
                }
            },
            {"$unset": [*CLAIM_FIELDS, "crashCount", "lastCrash", "failReason", "snoozeCount"]},
        ],
        leaves=OCCURRENCE,
    ),
    "end_schedule without a run": Row(
        of=end_schedule({**SCHEDULE, "result": 1}),
        to=COMPLETED,
        when=SAME_SCHEDULE,
        then={
            "$set": {"status": "completed", "failCount": 0, "settledAttempt": 3},
            "$unset": {**NO_CLAIM, **AFRESH},
            "$currentDate": STAMPED,
        },
    ),
    "skip": Row(
        of=skip({**SCHEDULE, "skipCount": 2}, run_at=LATER),
        to=PENDING,
        when=SAME_SCHEDULE,
        then={
            "$set": {
                "status": "pending",
                "nextRunAt": LATER,
                "failCount": 0,
                "settledAttempt": 3,
                "skipCount": 3,
            },
            "$unset": {**NO_CLAIM, **AFRESH},
            "$currentDate": STAMPED,
        },
    ),
    "skip of the last time": Row(
        of=skip(SCHEDULE, run_at=None),
        to=COMPLETED,
        when=SAME_SCHEDULE,
        then={
            "$set": {"status": "completed", "failCount": 0, "settledAttempt": 3, "skipCount": 1},
            "$unset": {**NO_CLAIM, **AFRESH},
            "$currentDate": STAMPED,
        },
    ),
    "spawn": Row(
        of=spawn(SCHEDULE, run_at=LATER, spawns=OCCURRENCE, otherwise=skip(SCHEDULE, run_at=LATER)),
        to=PENDING,
        when=SAME_SCHEDULE,
        then=[
            *ended(
                status="pending",
                nextRunAt=LATER,
                failCount=0,
                runCount={"$add": [{"$cond": [{"$isNumber": "$runCount"}, "$runCount", 0]}, 1]},
                lastRunAt="$$NOW",
            ),
            {"$unset": ["crashCount", "lastCrash", "failReason", "snoozeCount"]},
        ],
    ),
    "park": Row(
        of=park(SCHEDULE),
        to=PENDING,
        when=SAME_SCHEDULE,
        then={
            "$set": {"status": "pending", "nextRunAt": PARKED, "settledAttempt": 3},
            "$unset": NO_CLAIM,
            "$currentDate": STAMPED,
        },
    ),
    "pause_schedule while it waits": Row(
        of=pause_schedule(WAITING),
        to=PENDING,
        when={**AS_READ, "status": {"$eq": "pending"}},
        then=[{"$set": {"schedule.pausedAt": "$$NOW", "nextRunAt": PARKED, "updatedAt": "$$NOW"}}],
    ),
    "pause_schedule while it runs": Row(
        of=pause_schedule(SCHEDULE),
        to=PROCESSING,
        when={**AS_READ, "status": {"$eq": "processing"}},
        then=[{"$set": {"schedule.pausedAt": "$$NOW", "updatedAt": "$$NOW"}}],
    ),
    "trigger_schedule while it waits": Row(
        of=trigger_schedule(WAITING),
        to=PENDING,
        when={"status": {"$eq": "pending"}, "repeatInterval": {"$eq": CRON}},
        then=[FORGOTTEN, {"$set": {"nextRunAt": "$$NOW", "movedTo": "$$NOW", "updatedAt": "$$NOW"}}],
    ),
    "trigger_schedule while it runs": Row(
        of=trigger_schedule(SCHEDULE),
        to=PROCESSING,
        when={"status": {"$eq": "processing"}, "repeatInterval": {"$eq": CRON}},
        then=[{"$set": {"schedule.triggeredAt": "$$NOW", "updatedAt": "$$NOW"}}],
    ),
    "count_extra_job": Row(
        of=count_extra_job(SCHEDULE),
        to=PROCESSING,
        when={"status": {"$in": ["pending", "processing"]}},
        then=[
            {
                "$set": {
                    "runCount": {"$add": [{"$cond": [{"$isNumber": "$runCount"}, "$runCount", 0]}, 1]},
                    "lastRunAt": "$$NOW",
                    "updatedAt": "$$NOW",
                }
            }
        ],
    ),
    "end_after_run": Row(
        of=end_after_run(),
        to=PROCESSING,
        when={"status": "processing", **NOT_REQUESTED},
        then=[
            {
                "$set": {
                    "cancel": {"$mergeObjects": [{"at": "$$NOW", "by": "operator", "afterRun": True}]},
                    "updatedAt": "$$NOW",
                }
            }
        ],
    ),
    "cancel_run after the run of a schedule that was to end": Row(
        of=cancel_run({**SCHEDULE, "cancel": {"by": "operator", "afterRun": True}}),
        to=CANCELLED,
        when={**OWNED, "$expr": REQUESTED},
        then={
            "$set": {"status": "cancelled", "settledAttempt": 3},
            "$unset": {**NO_CLAIM, "again": "", "signals": ""},
            "$currentDate": STAMPED,
        },
    ),
    "abandon_schedule": Row(
        of=abandon_schedule(SCHEDULE, reason=REASON),
        to=FAILED,
        when=UNTOUCHED,
        then=[
            {"$set": {**CRASHED, "status": "failed", "failReason": {"$literal": REASON}}},
            {"$unset": [*CLAIM_FIELDS, "parked", "turn"]},
        ],
    ),
    "change_schedule while it waits": Row(
        of=change_schedule(WAITING, changes={"repeatInterval": "$other", "nextRunAt": LATER}),
        to=PENDING,
        when={**AS_READ, "status": {"$eq": "pending"}},
        then={"$set": {"repeatInterval": "$other", "nextRunAt": LATER}, "$currentDate": STAMPED},
    ),
    "change_schedule while it runs": Row(
        of=change_schedule(SCHEDULE, changes={"data": {"$a": 1}}),
        to=PROCESSING,
        when={**AS_READ, "status": {"$eq": "processing"}},
        then={"$set": {"data": {"$a": 1}}, "$currentDate": STAMPED},
    ),
    "cancel": Row(
        of=cancel(),
        to=CANCELLED,
        when={"status": "pending"},
        then={
            "$set": {"status": "cancelled"},
            "$unset": {"again": "", "parked": "", "signals": "", "turn": ""},
            "$currentDate": STAMPED,
        },
    ),
    "cancel with a reason": Row(
        of=cancel(reason=REASON),
        to=CANCELLED,
        when={"status": "pending"},
        then=[
            {
                "$set": {
                    "status": "cancelled",
                    "cancel": {"$cond": [REQUESTED, "$cancel", {"$mergeObjects": [ASKED]}]},
                    "updatedAt": "$$NOW",
                }
            },
            {"$unset": ["again", "parked", "signals", "turn"]},
        ],
    ),
    "request_cancel": Row(
        of=request_cancel(reason=REASON),
        to=PROCESSING,
        when={"status": "processing", **NOT_STOPPING},
        then=[
            {
                "$set": {
                    "cancel": {"$cond": [STOPPING, "$cancel", {"$mergeObjects": [ASKED]}]},
                    "updatedAt": "$$NOW",
                }
            }
        ],
    ),
    "request_cancel without a reason": Row(
        of=request_cancel(),
        to=PROCESSING,
        when={"status": "processing", **NOT_STOPPING},
        then=[
            {
                "$set": {
                    "cancel": {
                        "$cond": [
                            STOPPING,
                            "$cancel",
                            {"$mergeObjects": [{"at": "$$NOW", "by": "operator"}]},
                        ]
                    },
                    "updatedAt": "$$NOW",
                }
            }
        ],
    ),
    "retry_by_operator": Row(
        of=retry_by_operator(),
        to=PENDING,
        when={"status": {"$in": ["failed", "cancelled"]}},
        then=[
            PUT_BACK,
            {"$unset": [*CLAIM_FIELDS, "crashCount", "lastCrash", *LEFT_BY_RUNS, "failReason", *RECORDS]},
            {"$unset": ["schedule.pausedAt", "schedule.triggeredAt", "turn"]},
        ],
    ),
    "retry_by_operator within a spread": Row(
        of=retry_by_operator(spread=60 * SECOND),
        to=PENDING,
        when={"status": {"$in": ["failed", "cancelled"]}},
        then=[
            put_back(SPREAD, dueAt=SPREAD),
            {"$set": {"movedTo": "$nextRunAt"}},
            {"$unset": [*CLAIM_FIELDS, "crashCount", "lastCrash", *LEFT_BY_RUNS, "failReason", *RECORDS]},
            {"$unset": ["schedule.pausedAt", "schedule.triggeredAt", "turn"]},
        ],
    ),
    "retry_by_operator from a step": Row(
        of=retry_by_operator(from_step="$charge"),
        to=PENDING,
        when={
            "status": {"$in": ["failed", "cancelled"]},
            "steps": {"$elemMatch": {"n": {"$eq": "$charge"}}},
        },
        then=[
            PUT_BACK,
            {"$set": {"redo": REDO, "steps": BEFORE_CHARGE}},
            {"$unset": [*CLAIM_FIELDS, "crashCount", "lastCrash", *LEFT_BY_RUNS, "failReason", *RECORDS]},
            {"$unset": ["schedule.pausedAt", "schedule.triggeredAt", "turn"]},
        ],
    ),
    "retry_by_operator from the start": Row(
        of=retry_by_operator(from_start=True),
        to=PENDING,
        when={"status": {"$in": ["failed", "cancelled"]}},
        then=[
            PUT_BACK,
            {"$set": {"redo": REDO}},
            {"$unset": ["steps", "signals"]},
            {"$unset": [*CLAIM_FIELDS, "crashCount", "lastCrash", *LEFT_BY_RUNS, "failReason", *RECORDS]},
            {"$unset": ["schedule.pausedAt", "schedule.triggeredAt", "turn"]},
        ],
    ),
    "set_priority": Row(
        of=set_priority(priority=7),
        to=PENDING,
        when={"status": "pending"},
        then={"$set": {"priority": 7}, "$currentDate": {"updatedAt": True}},
    ),
    "set_priority to normal": Row(
        of=set_priority(priority=0),
        to=PENDING,
        when={"status": "pending"},
        then={"$unset": {"priority": ""}, "$currentDate": {"updatedAt": True}},
    ),
    "edit": Row(
        of=edit(CLAIM, data=RESULT, priority=7),
        to=PENDING,
        when={**AS_SEEN, "status": "pending", "repeatInterval": None, "steps": {"$exists": False}},
        then=[
            {"$set": {"data": {"$literal": RESULT}, "priority": 7, "updatedAt": "$$NOW"}},
            {
                "$set": {
                    "nextRunAt": {"$cond": [IN_A_LINE, "$$NOW", "$nextRunAt"]},
                    "parked": {"$cond": [IN_A_LINE, "$$REMOVE", "$parked"]},
                }
            },
            {"$unset": ["turn"]},
        ],
    ),
    "edit of the time": Row(
        of=edit(CLAIM, run_at=LATER),
        to=PENDING,
        when={**AS_SEEN, "status": "pending", "repeatInterval": None, **MOVABLE},
        then=[{"$set": {"updatedAt": "$$NOW"}}, *rescheduled()],
    ),
    "edit to a normal priority": Row(
        of=edit(CLAIM, priority=0),
        to=PENDING,
        when={**AS_SEEN, "status": "pending", "repeatInterval": None},
        then=[{"$set": {"updatedAt": "$$NOW"}}, {"$unset": ["priority"]}],
    ),
    "reschedule_by_operator": Row(
        of=reschedule_by_operator(run_at=LATER),
        to=PENDING,
        when={"status": "pending", **MOVABLE},
        then=[
            FORGOTTEN,
            {
                "$set": {
                    **moved_to(LATER),
                    "movedTo": {
                        "$cond": [
                            {
                                "$or": [
                                    {"$eq": [{"$type": "$repeatInterval"}, "string"]},
                                    {"$eq": [{"$type": "$lastCrash"}, "object"]},
                                ]
                            },
                            LATER,
                            "$$REMOVE",
                        ]
                    },
                    "steps": ending_at(LATER),
                    "updatedAt": "$$NOW",
                }
            },
            {"$unset": ["turn"]},
        ],
    ),
    "run_now_by_operator": Row(
        of=run_now_by_operator(),
        to=PENDING,
        when={
            "status": "pending",
            "$expr": {
                "$or": [
                    {"$and": [{"$gt": ["$nextRunAt", "$$NOW"]}, {"$ne": ["$nextRunAt", PARKED]}]},
                    {"$and": [AWAITS_BATCH, {"$gt": ["$parked.dueAt", "$$NOW"]}]},
                ]
            },
            **MOVABLE,
        },
        then=[
            FORGOTTEN,
            {
                "$set": {
                    **moved_to("$$NOW"),
                    "movedTo": {
                        "$cond": [
                            {
                                "$or": [
                                    {"$eq": [{"$type": "$repeatInterval"}, "string"]},
                                    {"$eq": [{"$type": "$lastCrash"}, "object"]},
                                ]
                            },
                            "$$NOW",
                            "$$REMOVE",
                        ]
                    },
                    "steps": ending_at("$$NOW"),
                    "updatedAt": "$$NOW",
                }
            },
            {"$unset": ["turn"]},
        ],
    ),
    "wake_batch": Row(
        of=wake_batch(REASON),
        to=PENDING,
        when={"status": "pending", "parked.why": "batch", "parked.key": REASON},
        then=[
            {"$set": {"nextRunAt": {"$max": [DUE_AT, "$$NOW"]}, "updatedAt": "$$NOW"}},
            {"$unset": ["parked"]},
        ],
    ),
    "cancel_after_batch": Row(
        of=cancel_after_batch(REASON),
        to=CANCELLED,
        when={
            "status": "pending",
            "parked.why": "batch",
            "parked.key": REASON,
            "afterBatch": REASON,
            "ifFailed": {"$ne": "run"},
        },
        then=[
            {"$set": {"status": "cancelled", "cancel": CANCELLED_BY_BATCH, "updatedAt": "$$NOW"}},
            {"$unset": ["parked", "again", "signals"]},
        ],
    ),
    "signal": Row(of=signal(REASON, RESULT), to=PENDING, when=sent(NO_ID)[0], then=sent(NO_ID)[1]),
    "signal with an id": Row(
        of=signal(REASON, RESULT, id=OWNER),
        to=PENDING,
        when=sent(known_id(OWNER))[0],
        then=sent(id={"$literal": OWNER})[1],
    ),
    "receive": Row(
        of=receive(CLAIM, OWNER, REASON, is_new=False),
        to=PROCESSING,
        when={**OWNED, "steps": {"$elemMatch": {"n": OWNER, "over": None}}, "signals.n": REASON},
        then=received({"$map": {"input": STEPS, "in": ENDED}}),
    ),
    "receive what came before the wait": Row(
        of=receive({**CLAIM, "lastCrash": {}}, OWNER, REASON, is_new=True),
        to=PROCESSING,
        when={**OWNED, "steps.n": {"$ne": OWNER}, "signals.n": REASON},
        then=received({"$concatArrays": [STEPS, [MADE]]}, **{"failCount": 0, "lastCrash.failCount": -1}),
    ),
    "receive when the time is up": Row(
        of=receive(CLAIM, OWNER, REASON, is_new=False, is_late=True),
        to=PROCESSING,
        when={**OWNED, "steps": {"$elemMatch": {"n": OWNER, "over": None}}},
        then=received({"$map": {"input": STEPS, "in": ENDED}}),
    ),
}

RUNNING = ("processing", {"$eq": "processing"})
SETTLING = {
    *("complete", "repeat", "retry", "fail", "give_up_occurrence", "release", "snooze", "cancel_run"),
    *("expire", "run_again", "skip", "spawn", "park", "end_schedule", "suspend"),
    *("park_in_line", "delay"),
}


def function_of(row: str) -> str:
    return row.split()[0]


def rows(which: Callable[[str, Row], bool] = lambda _id, _row: True) -> Any:
    """Run a test with each of these rows. A transition that removes the document writes nothing."""
    writing = {each: row for each, row in TABLE.items() if not row.of.removes}
    chosen = [pytest.param(row, id=each) for each, row in writing.items() if which(each, row)]
    return pytest.mark.parametrize("row", chosen)


def settlements() -> Any:
    return rows(lambda each, _row: function_of(each) in SETTLING)


def stages_of(update: Update) -> list[Document]:
    return update if isinstance(update, list) else [update]


def written(update: Update) -> Document:
    """Each field that an update writes, with its value; for a stamp or an increment its argument."""
    return {
        field: value
        for stage in stages_of(update)
        for operator, fields in stage.items()
        if operator != "$unset"
        for field, value in (merged(fields) if operator == "$replaceWith" else fields).items()
    }


def merged(stored: Document) -> Document:
    """What `replace_waiting` changes in a document that is there."""
    _, _, existing = stored["$let"]["in"]["$cond"]
    changes: Document = existing["$mergeObjects"][1]
    return changes


def removed(update: Update) -> set[str]:
    return {field for stage in stages_of(update) for field in stage.get("$unset", ())}


# The table


@rows()
def test_a_transition_leads_where_the_table_says(row: Row) -> None:
    assert row.of.to is row.to


@rows()
def test_a_transition_matches_exactly_what_the_table_says(row: Row) -> None:
    assert row.of.when == row.when


@rows()
def test_a_transition_writes_and_removes_exactly_what_the_table_says(row: Row) -> None:
    assert row.of.update(NOW) == row.then


@rows()
def test_a_transition_leaves_exactly_the_document_that_the_table_says(row: Row) -> None:
    assert row.of.leaves == row.leaves


def transitions_of(file: str) -> set[str]:
    """The names of the transitions that a file of the state machine defines."""
    module = importlib.import_module(f"{transitions.__name__}.{file}")
    return {
        name
        for name, function in inspect.getmembers(module, inspect.isfunction)
        if not name.startswith("_")
        and function.__module__ == module.__name__
        and inspect.signature(function, eval_str=True).return_annotation is Transition
    }


FILES = [file.name for file in pkgutil.iter_modules(transitions.__path__)]


def test_the_table_has_a_row_for_every_transition() -> None:
    functions = {name for file in FILES for name in transitions_of(file)}

    assert {function_of(each) for each in TABLE} == functions


def test_the_state_machine_says_who_acts_in_which_file() -> None:
    _, _, after = (transitions.__doc__ or "").partition("names all of its own:\n\n")
    told = [line.split()[0] for line in after.partition("\n\n")[0].splitlines()]

    assert sorted(told) == sorted(file for file in FILES if transitions_of(file))


@pytest.mark.parametrize("file", FILES)
def test_the_drawing_of_a_file_names_all_its_transitions_and_no_other(file: str) -> None:
    """Those of another file stand there as `calls.run_again`."""
    text = importlib.import_module(f"{transitions.__name__}.{file}").__doc__ or ""
    drawn = "\n".join(re.findall(r"^ .*$|`[^`]*`", text, re.MULTILINE))
    every = {name for each in FILES for name in transitions_of(each)}

    assert set(re.findall(r"(?<![.\w])\w+", drawn)) & every == transitions_of(file)


# What all transitions have in common


@pytest.mark.parametrize("document", [CLAIM, KEYED], ids=["plain", "keyed"])
def test_a_job_is_removed_on_the_conditions_of_its_completion(document: Document) -> None:
    assert remove(document).when == complete(document).when
    assert remove(document) is remove({**document, "_id": ObjectId()})


@settlements()
def test_a_settlement_requires_the_claim(row: Row) -> None:
    assert {field: row.of.when.get(field) for field in OWNED} == OWNED


@settlements()
def test_a_settlement_names_the_attempt_that_it_settles(row: Row) -> None:
    assert written(row.of.update(NOW))["settledAttempt"] == CLAIM["attempt"]


@rows(lambda each, _row: function_of(each) not in SETTLING)
def test_only_a_settlement_writes_the_settled_attempt(row: Row) -> None:
    assert "settledAttempt" not in written(row.of.update(NOW))


@rows()
def test_no_transition_removes_a_number_of_an_attempt(row: Row) -> None:
    assert removed(row.of.update(NOW)).isdisjoint({"attempt", "settledAttempt", "lostAttempt"})


@rows(lambda _id, row: row.to is not PROCESSING and row.when["status"] in RUNNING)
def test_a_transition_that_ends_a_claim_removes_all_its_fields(row: Row) -> None:
    assert removed(row.of.update(NOW)) >= set(CLAIM_FIELDS)


@rows(lambda _id, row: row.to is PROCESSING)
def test_a_transition_that_keeps_a_claim_removes_nothing(row: Row) -> None:
    assert removed(row.of.update(NOW)) == set()


@rows()
def test_a_transition_stamps_the_document_by_the_clock_of_the_server(row: Row) -> None:
    stamp = "$$NOW" if isinstance(row.of.then, list) else True

    assert written(row.of.update(NOW))["updatedAt"] == stamp


@rows()
def test_a_transition_writes_no_field_that_it_removes(row: Row) -> None:
    update = row.of.update(NOW)

    assert removed(update).isdisjoint(written(update))


PRIORITY_ALONE = ("set_priority", "edit to a normal")


# A job whose priority is changed was runnable before: no stream has to tell of it.
@rows(lambda each, row: row.to is PENDING and not each.startswith(PRIORITY_ALONE))
def test_a_transition_that_makes_a_job_runnable_shows_in_the_change_stream(row: Row) -> None:
    """Instances hear of an update if it writes the status `pending`, or a time."""
    fields = written(row.of.update(NOW))

    assert fields.get("status") == "pending" or "nextRunAt" in fields


KEEPS_STATUS = (
    *(
        "heartbeat",
        "change_schedule",
        "reschedule",
        "request_cancel",
        "replace",
        "note",
        "set_priority",
        "edit",
    ),
    *("end_after_run", "pause_schedule", "trigger_schedule", "count_extra_job", "run_now"),
    *("signal", "receive", "wake_batch"),
    *("record_steps", "hold", "take", "end_jobs"),
    *("expose", "unpark"),
)


@rows(lambda each, _row: not each.startswith(KEEPS_STATUS))
def test_a_transition_writes_the_status_to_which_it_leads(row: Row) -> None:
    assert written(row.of.update(NOW))["status"] == row.to.value


def bare_texts(value: Any) -> Iterator[str]:
    """Each text in a pipeline that the server reads as an expression."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, list):
        for entry in value:
            yield from bare_texts(entry)
    elif isinstance(value, dict):
        for key, entry in value.items():
            if key != "$literal":
                yield from bare_texts(entry)


@rows(lambda _id, row: isinstance(row.then, list))
def test_no_text_of_a_user_is_an_expression_in_a_pipeline(row: Row) -> None:
    assert USER_TEXTS.isdisjoint(bare_texts(row.of.then))


@pytest.mark.parametrize(
    "transition",
    [
        pytest.param(retry(CLAIM, delay=SECOND, reason="$$NOW"), id="retry"),
        pytest.param(abandon_schedule(SCHEDULE, reason="$$NOW"), id="abandon_schedule"),
        pytest.param(give_up_crashed(STALE, max_crashes=2, crashes=2), id="give_up_crashed"),
        pytest.param(fail(CLAIM, reason="$$NOW"), id="fail"),
    ],
)
def test_a_reason_in_a_pipeline_is_a_literal(transition: Transition) -> None:
    reason = written(transition.then)["failReason"]

    assert list(reason) == ["$literal"]
    assert reason["$literal"] in ("$$NOW", crash_reason(2))


# Which jobs share a write


SHARED: dict[str, Callable[[Document], Transition]] = {
    "heartbeat": heartbeat,
    "complete": complete,
    "complete without a result": lambda claim: complete(claim, kept=Kept(error=REASON)),
    "retry": lambda claim: retry(claim, delay=SECOND, reason=REASON),
    "retry with a history": lambda claim: retry(claim, delay=SECOND, reason=REASON, entry=ENTRY),
    "fail": lambda claim: fail(claim, reason=REASON, entry=ENTRY),
    "snooze": lambda claim: snooze(claim, delay=SECOND),
    "release": release,
}
OTHER_JOB = {**CLAIM, "_id": ObjectId(), "name": "other", "data": [1], "lockedAt": LATER}


@pytest.mark.parametrize("function", SHARED)
def test_equal_ends_of_different_jobs_are_one_transition(function: str) -> None:
    assert SHARED[function](CLAIM) is SHARED[function](OTHER_JOB)


@pytest.mark.parametrize("function", SHARED)
@pytest.mark.parametrize("difference", [{"attempt": 4}, {"claimedBy": "other"}], ids=["attempt", "owner"])
def test_different_claims_never_share_a_transition(function: str, difference: Document) -> None:
    ours, other = SHARED[function](CLAIM), SHARED[function]({**CLAIM, **difference})

    assert ours is not other
    assert other.when == {**OWNED, **difference}


@pytest.mark.parametrize(
    ("one", "other"),
    [
        pytest.param(complete(CLAIM, ran=0.05), complete(CLAIM, ran=0.051), id="run-time"),
        pytest.param(complete(CLAIM), complete({**CLAIM, "failReason": REASON}), id="earlier-failure"),
        pytest.param(
            retry(CLAIM, delay=SECOND, reason=REASON),
            retry(CLAIM, delay=SECOND, reason="other"),
            id="reason",
        ),
        pytest.param(
            retry(CLAIM, delay=SECOND, reason=REASON),
            retry(CLAIM, delay=2 * SECOND, reason=REASON),
            id="delay",
        ),
        pytest.param(
            retry(CLAIM, delay=SECOND, reason=REASON),
            retry({**CLAIM, "failCount": 7}, delay=SECOND, reason=REASON),
            id="failures",
        ),
    ],
)
def test_ends_that_differ_in_what_they_write_are_different_transitions(
    one: Transition, other: Transition
) -> None:
    assert one is not other
    assert one.update(NOW) != other.update(NOW)


def test_results_that_differ_share_a_write_with_two_lists() -> None:
    one, other = (complete(CLAIM, ran=0.05, kept=Kept(value, 9)) for value in (RESULT, "$other"))

    assert one is not other
    assert one.result is not None
    assert other.result is not None
    shared = one.result[1]
    assert shared is other.result[1]
    update = shared.update(NOW, by_id([1, 2], [RESULT, "$other"]))
    assert written(update)["result"] == {
        "$arrayElemAt": [{"$literal": [RESULT, "$other"]}, {"$indexOfArray": [{"$literal": [1, 2]}, "$_id"]}]
    }


def test_a_completion_without_room_says_so_and_removes_what_is_long() -> None:
    update = lean(complete({**CLAIM, "resultError": "no"}, kept=Kept(RESULT, 9)).update(NOW))

    assert "no room" in written(update)["resultError"]
    assert "result" not in written(update)
    assert removed(update) >= {"history", "log", "result", *CLAIM_FIELDS}
    assert "resultError" not in removed(update)


@settlements()
def test_a_settlement_without_room_differs_only_in_what_is_long(row: Row) -> None:
    whole, short = row.of.update(NOW), lean(row.of.update(NOW))

    assert {"history", "log", "result"} <= removed(short)
    assert removed(short) | {"resultError"} >= removed(whole)
    assert not written(short).keys() & removed(short)
    kept = written(whole).keys() - {"history", "result"}
    assert {field: written(short)[field] for field in kept} == {
        field: written(whole)[field] for field in kept
    }
    assert written(short).keys() - kept == ({"resultError"} & written(short).keys()) - kept


def test_a_settlement_without_room_gives_a_short_reason() -> None:
    failed = lean(fail(CLAIM, reason="x" * 300).update(NOW))
    cancelled = lean(cancel_run(CLAIM, by="handler", reason="x" * 300).update(NOW))

    assert written(failed)["failReason"] == {"$literal": "x" * 200}
    said = written(cancelled)["cancel"]["$cond"][2]["$mergeObjects"][0]
    assert said["reason"] == {"$literal": "x" * 200}


def test_a_shared_completion_is_stamped_anew_for_each_write() -> None:
    shared = complete(CLAIM, ran=0.05)
    first, second = written(shared.update(NOW)), written(shared.update(LATER))

    assert (first["finishedAt"], second["finishedAt"]) == (NOW, LATER)
    assert "finishedAt" not in written(shared.then)


# Run times


@pytest.mark.parametrize(
    ("seconds", "milliseconds"),
    [
        (0.0, 0),
        (0.0004, 0),
        (0.0006, 1),
        (0.099, 99),
        (0.101, 100),
        (0.104, 100),
        (0.106, 110),
        (0.996, 1000),
        (1.234, 1200),
        (59.6, 60_000),
        (3_661.0, 3_700_000),
    ],
)
def test_a_run_time_has_two_significant_digits(seconds: float, milliseconds: int) -> None:
    assert complete(CLAIM, ran=seconds).ran == timedelta(milliseconds=milliseconds)


@given(duration=st.integers(min_value=0, max_value=99))
def test_a_run_time_below_100_milliseconds_is_exact(duration: int) -> None:
    assert complete(CLAIM, ran=duration / 1000).ran == timedelta(milliseconds=duration)


@given(duration=st.integers(min_value=100, max_value=10**10))
def test_a_long_run_time_is_within_five_per_cent(duration: int) -> None:
    ran = complete(CLAIM, ran=duration / 1000).ran
    assert ran is not None

    assert abs(ran / timedelta(milliseconds=duration) - 1) <= 0.05
    assert str(ran // timedelta(milliseconds=1))[2:].strip("0") == ""


# Who owns a job


def test_a_claim_matches_its_status_owner_and_attempt() -> None:
    assert owned(OWNER, 3) == OWNED


@pytest.mark.parametrize(
    ("document", "ours"),
    [
        pytest.param(CLAIM, True, id="as claimed"),
        pytest.param({**CLAIM, "failCount": 9, "lastHeartbeat": LATER}, True, id="other fields changed"),
        pytest.param({**CLAIM, "attempt": 3.0}, True, id="attempt as a float"),
        pytest.param({**CLAIM, "attempt": 4}, False, id="claimed again"),
        pytest.param({**CLAIM, "claimedBy": "other"}, False, id="claimed by another"),
        pytest.param({**CLAIM, "status": "pending"}, False, id="put back"),
        pytest.param({}, False, id="empty document"),
        pytest.param(None, False, id="deleted"),
    ],
)
def test_a_claim_holds_a_job_while_status_owner_and_attempt_are_the_same(
    document: Document | None, ours: bool
) -> None:
    assert is_owned(CLAIM, document) is ours


# What was settled


NEVER: set[JobStatus] = set()
ALWAYS = {PENDING, COMPLETED, FAILED, CANCELLED}


@pytest.mark.parametrize("to", [PENDING, COMPLETED, FAILED, CANCELLED], ids=lambda to: f"to {to.value}")
@pytest.mark.parametrize(
    ("attempt", "document", "settled"),
    [
        pytest.param(3, None, NEVER, id="deleted"),
        pytest.param(3, {"status": "processing", "attempt": 3}, NEVER, id="still ours"),
        pytest.param(3, {"status": "completed", "settledAttempt": 3}, ALWAYS, id="settled"),
        pytest.param(3, {"settledAttempt": 3.0}, ALWAYS, id="settled, as a float"),
        pytest.param(
            3,
            {"status": "processing", "attempt": 3, "settledAttempt": 3, "claimedBy": "typescript"},
            ALWAYS,
            id="settled, then claimed by TypeScript",
        ),
        pytest.param(
            3,
            {"status": "processing", "attempt": 4, "settledAttempt": 3},
            ALWAYS,
            id="settled, then claimed by Python",
        ),
        pytest.param(
            3,
            {"status": "pending", "attempt": 3, "settledAttempt": 3, "lostAttempt": 3},
            ALWAYS,
            id="settled, then claimed by TypeScript, whose owner died",
        ),
        pytest.param(
            3, {"status": "completed", "attempt": 4, "settledAttempt": 4}, {PENDING}, id="settled later again"
        ),
        pytest.param(
            3, {"attempt": 4, "settledAttempt": 4, "lostAttempt": 2}, {PENDING}, id="lost only before ours"
        ),
        pytest.param(
            3,
            {"status": "completed", "attempt": 4, "settledAttempt": 4, "lostAttempt": 3},
            NEVER,
            id="recovered, then settled by the next owner",
        ),
        pytest.param(
            3, {"attempt": 5, "settledAttempt": 5, "lostAttempt": 4}, NEVER, id="lost in a later attempt"
        ),
        pytest.param(
            3, {"attempt": 4, "settledAttempt": 4, "lostAttempt": "?"}, {PENDING}, id="odd lost attempt"
        ),
        pytest.param(3, {"status": "pending", "settledAttempt": 2, "lostAttempt": 3}, NEVER, id="recovered"),
        pytest.param(3, {"status": "pending", "attempt": 3}, NEVER, id="taken back by TypeScript"),
        pytest.param(
            3,
            {"status": "completed", "settledAttempt": 2},
            NEVER,
            id="completed by TypeScript",
        ),
        pytest.param(3, {"status": "failed", "attempt": 3}, NEVER, id="failed by TypeScript"),
        pytest.param(
            3,
            {"status": "processing", "attempt": 4, "settledAttempt": 2},
            NEVER,
            id="taken back by TypeScript, then claimed by Python",
        ),
        pytest.param(3, {"attempt": "?", "settledAttempt": "?"}, NEVER, id="text as the settled attempt"),
        pytest.param(3, {"settledAttempt": float("nan")}, NEVER, id="NaN as the settled attempt"),
        pytest.param(3, {"settledAttempt": 3.5}, NEVER, id="fraction as the settled attempt"),
        # A document without a settled attempt was not settled in attempt 0.
        pytest.param(0, {"status": "processing", "attempt": 0}, NEVER, id="attempt 0"),
        pytest.param(3.0, {"settledAttempt": 3}, ALWAYS, id="attempt as a float, settled"),
    ],
)
def test_only_our_own_write_counts_as_our_settlement(
    attempt: Any, document: Document | None, settled: set[JobStatus], to: JobStatus
) -> None:
    """A later settlement proves ours only if ours put the job back, and nobody took it from us."""
    held = {**CLAIM, "attempt": attempt}
    if attempt is ...:
        del held["attempt"]

    assert was_settled(held, Transition(to=to, when={}, then={}), document) is (to in settled)


# Whose owner is dead


def test_a_job_is_stale_by_its_heartbeat_or_else_by_its_lock() -> None:
    interval = {"$cond": [{"$isNumber": "$heartbeatInterval"}, "$heartbeatInterval", 0]}
    promised = {"$min": [interval, 2**31 - 1]}
    known = {"$cond": [{"$gt": [promised, 0]}, promised, 30_000]}
    silence = {"$max": [90_000, {"$multiply": [3, known]}]}

    now = {"$min": ["$$NOW", NOW]}

    assert stale(tolerance=90 * SECOND, lock_timeout=1800 * SECOND, as_of=NOW) == {
        "status": "processing",
        "$expr": {
            "$cond": [
                {"$eq": [{"$ifNull": ["$lastHeartbeat", None]}, None]},
                {
                    "$lt": [
                        {"$ifNull": ["$lockedAt", {"$ifNull": ["$updatedAt", "$$NOW"]}]},
                        {"$subtract": [now, 1_800_000]},
                    ]
                },
                {"$lt": ["$lastHeartbeat", {"$subtract": [now, silence]}]},
            ]
        },
    }


def test_recovery_reads_what_names_a_job_and_whether_it_crashed_too_often() -> None:
    assert stale_fields(max_crashes=4) == {
        "name": 1,
        "claimedBy": 1,
        "attempt": 1,
        "onFailure": 1,
        "followUp": 1,
        "repeatInterval": 1,
        "crashes": CRASHES,
        "hopeless": HOPELESS,
        "requested": REQUESTED,
        "noted": IS_NOTED,
    }


def test_a_job_is_stopping_while_it_runs_with_a_request() -> None:
    assert stopping() == {"status": "processing", "$expr": STOPPING}


# As it was read


@pytest.mark.parametrize(
    ("document", "match"),
    [
        pytest.param({"a": 1}, {"a": {"$eq": 1}}, id="value"),
        pytest.param({"a": 1, "b": 2}, {"a": {"$eq": 1}}, id="field that was not asked for"),
        pytest.param({}, {"a": {"$eq": None}}, id="missing field"),
        pytest.param({"a": None}, {"a": {"$eq": None}}, id="null"),
        pytest.param({"a": {"$gt": ""}}, {"a": {"$eq": {"$gt": ""}}}, id="operator as a value"),
        pytest.param({"a": "$b"}, {"a": {"$eq": "$b"}}, id="text with a dollar sign"),
        pytest.param({"a": NOW}, {"a": {"$eq": NOW}}, id="date"),
        pytest.param({"a": NOW.replace(year=1)}, {}, id="date clamped to the first year"),
        pytest.param({"a": NOW.replace(year=MAXYEAR)}, {}, id="date clamped to the last year"),
        pytest.param({"a": "caf\ufffd"}, {}, id="text with replaced bytes"),
    ],
)
def test_a_document_matches_while_a_field_is_as_it_was_read(document: Document, match: Document) -> None:
    assert as_read(document, ["a"]) == match


def test_a_schedule_with_a_time_that_python_cannot_hold_can_still_be_abandoned() -> None:
    clamped = {**SCHEDULE, "lastHeartbeat": datetime.max.replace(tzinfo=UTC)}
    rest = {field: match for field, match in UNTOUCHED.items() if field != "lastHeartbeat"}

    assert abandon_schedule(clamped, reason=REASON).when == rest
