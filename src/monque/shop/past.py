"""The day before the shop opened: what its instances would have left in the database. Documents, without I/O.

Nobody waits a day for a chart with a day in it, and no method of a Monque stores what happened yesterday. So
these documents are written as they are stored; they are the only ones of the shop that no Monque has made.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from random import Random
from typing import Any, TypeAlias

from bson import Int64, ObjectId

from monque import Histogram
from monque.shop.catalog import BEFORE, BY_NAME, INSTANCES, WORKS, Recurring, Work
from monque.shop.plan import fate, payload_of

Document: TypeAlias = dict[str, Any]

_DAY, _MINUTE = timedelta(days=1), timedelta(minutes=1)
# How long what is stored here is kept: the numbers of minutes, and the trail.
_KEPT, _TRAIL_KEPT = timedelta(days=2), timedelta(days=90)

# Jobs of the day before that are still there: the failed ones of a day, the others of the last minutes.
_FAILED = 400
_COMPLETED = 400
_CANCELLED = 12

_GIVEN_UP = 0.03

# The payment provider had a bad quarter of an hour, which charts and groups show.
_OUTAGE_BEGAN, _OUTAGE_ENDED = timedelta(hours=3), timedelta(hours=2, minutes=45)


@dataclass(frozen=True, slots=True)
class Past:
    """Documents by the collection that they belong to."""

    jobs: list[Document]
    trends: list[Document]
    audit: list[Document]


def day_before(seed: int, now: datetime) -> Past:
    """Everything that a day of business has left at *now*."""
    dice = Random(f"{seed}/past")  # noqa: S311 - made up, not a secret
    jobs = [*_failed_jobs(now, dice), *_completed_jobs(seed, now, dice), *_cancelled_jobs(now, dice)]
    return Past(jobs=jobs, trends=list(_trends(now, dice)), audit=_audit(now, jobs, dice))


def recent_runs(seed: int, recurring: Recurring, now: datetime) -> Document:
    """What a schedule remembers of its last ten runs, as an update of its document."""
    dice = Random(f"{seed}/{recurring.key}")  # noqa: S311 - as above
    every = 5 * _MINUTE if recurring.key == "all-day" else _DAY
    times = [now - every * back - timedelta(seconds=20) for back in range(10, 0, -1)]
    outcomes = ["failed" if dice.random() < 0.12 else "completed" for _ in times]
    runs = [
        {"at": at, "ms": Int64(dice.randint(400, 2_500)), "outcome": outcome}
        for at, outcome in zip(times, outcomes, strict=True)
    ]
    return {"$set": {"recentRuns": runs, "lastRunAt": times[-1], "runCount": 10}}


def _trends(now: datetime, dice: Random) -> Iterator[Document]:
    this_minute = now.replace(second=0, microsecond=0)
    for back in range(1, _DAY // _MINUTE + 1):
        minute = this_minute - back * _MINUTE
        for work in WORKS:
            if counted := _minute_of(work, minute, now - minute, dice):
                yield {
                    "_id": {"r": "m", "t": minute, "n": work.name},
                    **counted,
                    "expireAt": minute + _KEPT,
                }
            if depth := _depth_of(work, minute, dice):
                yield {
                    "_id": {"r": "g", "t": minute, "n": work.name},
                    **depth,
                    "expireAt": minute + _KEPT,
                }


def _minute_of(work: Work, minute: datetime, ago: timedelta, dice: Random) -> Document | None:
    """The numbers of one name in one minute; None if nothing happened."""
    ended = round(_rate(work, minute) * 60 * business(minute) * dice.uniform(0.9, 1.1))
    if not work.slots or not ended:
        return None
    trouble = work.trouble
    struck = 0.0 if trouble is None or trouble.release is not None else trouble.share
    if work.name == "charge-card" and _OUTAGE_ENDED < ago < _OUTAGE_BEGAN:
        struck = 0.7
    lasting = trouble.lasting if trouble is not None else 0.0
    # As many failed for good as the jobs of that day say; the others completed in the end.
    failed = int(ended * struck * lasting * _GIVEN_UP + dice.random())
    counts = {"completed": ended, "retried": round(ended * struck), "failed": failed}
    runs = sum(counts.values())
    low, high = (1000 * seconds for seconds in work.seconds)
    run = low + (high - low) / 3
    wait = 4_000.0 * business(minute) if work.name == "render-invoice" else 5.0 * business(minute)
    return {
        **{field: Int64(count) for field, count in counts.items() if count},
        "ranMs": Int64(round(runs * run)),
        "waitedMs": Int64(round(runs * wait)),
        "ran": _spread(runs, run, dice),
        "waited": _spread(runs, wait, dice),
    }


# How durations lie around their middle: each factor with the share of them that it has.
_SHAPE = ((0.45, 0.08), (0.7, 0.2), (1.0, 0.32), (1.5, 0.22), (2.3, 0.12), (3.6, 0.05), (6.0, 0.01))


def _spread(count: int, middle: float, dice: Random) -> Document:
    """A histogram of *count* durations around a middle one, which is never the same for two minutes."""
    counts: dict[str, Int64] = {}
    centre, left = middle * dice.uniform(0.75, 1.35), count
    for factor, share in _SHAPE:
        here = min(left, int(count * share + dice.random()))
        if here:
            bucket = str(Histogram.bucket_of(centre * factor))
            counts[bucket] = Int64(counts.get(bucket, 0) + here)
        left -= here
    bucket = str(Histogram.bucket_of(centre))
    return counts if not left else counts | {bucket: Int64(counts.get(bucket, 0) + left)}


def _depth_of(work: Work, minute: datetime, dice: Random) -> Document | None:
    """How many jobs of a name waited; only of those that ever do."""
    if work.name == "print-label":
        return {"due": Int64(7), "later": Int64(0), "processing": Int64(0), "oldestDueMs": Int64(600_000)}
    if work.name not in ("render-invoice", "import-catalog", "track-parcel", "send-email"):
        return None
    due = round(40 * business(minute) * dice.uniform(0.3, 1.3)) if work.name == "render-invoice" else 0
    return {
        "due": Int64(due),
        "later": Int64(round(60 * work.later * work.rate * business(minute))),
        "processing": Int64(round(min(work.slots * INSTANCES, 6) * min(business(minute), 1.0))),
        "oldestDueMs": Int64(due * 800),
    }


def _rate(work: Work, minute: datetime) -> float:
    if work.name == "push-offer":
        return 6.0 if minute.minute % 2 == 0 else 0.0
    return work.rate


def business(moment: datetime) -> float:
    """How busy the shop is at a time of the day, around 1: people buy little at night and much at noon."""
    hour = moment.hour + moment.minute / 60
    noon = math.exp(-(((hour - 12.5) / 3.0) ** 2))
    evening = math.exp(-(((hour - 19.5) / 2.2) ** 2))
    return 0.25 + 0.75 * noon + 0.9 * evening


def _failed_jobs(now: datetime, dice: Random) -> Iterator[Document]:
    """Jobs that were given up, in the ways that the release before had."""
    names = [work.name for work in WORKS if work.trouble is not None and work.trouble.release is None]
    for number in range(_FAILED):
        name = dice.choices(names, weights=[4, 6, 2, 1][: len(names)])[0]
        ago = _DAY * dice.random() ** 1.5
        if name == "charge-card" and dice.random() < 0.5:
            ago = _OUTAGE_ENDED + (_OUTAGE_BEGAN - _OUTAGE_ENDED) * dice.random()
        yield failed_job(BY_NAME[name], number, now - ago - _MINUTE, dice)


def failed_job(work: Work, number: int, ended: datetime, dice: Random) -> Document:
    """A job that was given up at *ended*, with its attempts."""
    assert work.trouble is not None  # noqa: S101 - the caller chose it for that
    error = work.trouble.raised(number)
    kind, message = type(error).__name__, str(error)
    job = stored_job(work, number, ended - timedelta(seconds=6 * work.attempts), dice)
    history = [
        {
            "attempt": attempt,
            "by": f"shop-{dice.randint(1, INSTANCES)}",
            "outcome": "failed" if attempt == work.attempts else "retried",
            "error": kind,
            "message": message,
            "startedAt": ended - timedelta(seconds=5 * (work.attempts - attempt) + work.seconds[1]),
            "finishedAt": ended - timedelta(seconds=5 * (work.attempts - attempt)),
            "trace": _trace(work, kind, message),
        }
        for attempt in range(1, work.attempts + 1)
    ]
    return job | {
        "status": "failed",
        "attempt": work.attempts,
        "failCount": work.attempts,
        "failReason": f"{kind}: {message}",
        "history": history,
        "updatedAt": ended,
    }


def _trace(work: Work, kind: str, message: str) -> str:
    function = work.name.replace("-", "_")
    return (
        f'  File "/srv/shop/jobs.py", line 88, in {function}\n'
        f"    await {function.split('_')[0]}(job.data)\n"
        f"{kind}: {message}"
    )


def _completed_jobs(seed: int, now: datetime, dice: Random) -> Iterator[Document]:
    """Some of the jobs of the last minutes."""
    works = [work for work in WORKS if work.slots and work.rate]
    for number in range(_COMPLETED):
        work = dice.choices(works, weights=[work.rate for work in works])[0]
        due = now - timedelta(minutes=20) * dice.random() - timedelta(seconds=10)
        took = timedelta(seconds=fate(seed, work.name, number, 9, BEFORE).seconds)
        began = due + timedelta(milliseconds=dice.randint(2, 9))
        yield stored_job(work, number, due, dice) | {
            "status": "completed",
            "attempt": 1,
            "startedAt": began,
            "finishedAt": began + took,
            "updatedAt": began + took,
            **({"result": {"handled": work.name, "release": BEFORE}} if work.keeps_result else {}),
        }


def _cancelled_jobs(now: datetime, dice: Random) -> Iterator[Document]:
    for number in range(_CANCELLED):
        ended = now - timedelta(hours=8) * dice.random()
        yield stored_job(BY_NAME["track-parcel"], number, ended - timedelta(minutes=5), dice) | {
            "status": "cancelled",
            "cancel": {"by": "operator", "reason": "the parcel was returned"},
            "updatedAt": ended,
        }


def stored_job(work: Work, number: int, due: datetime, dice: Random) -> Document:
    """What every job has; its state is missing."""
    return {
        "_id": made_up_id(due, dice),
        "name": work.name,
        "data": payload_of(work.name, number, dice),
        "nextRunAt": due,
        "failCount": 0,
        "createdAt": due,
        "policy": {"maxAttempts": work.attempts},
    }


def made_up_id(created: datetime, dice: Random) -> ObjectId:
    """An id with its time in it, as the driver makes them, but the same one for the same seed."""
    return ObjectId(int(created.timestamp()).to_bytes(4, "big") + dice.randbytes(8))


def _audit(now: datetime, jobs: list[Document], dice: Random) -> list[Document]:
    """What operators did in that day."""
    cancelled = [job for job in jobs if job["status"] == "cancelled"]
    entries: list[Document] = [
        {
            "at": job["updatedAt"],
            "actor": dice.choice(["ada", "grace"]),
            "action": "cancel",
            "jobId": job["_id"],
            "name": job["name"],
            "note": "the parcel was returned",
        }
        for job in cancelled
    ]
    filtered = {"name": "charge-card", "status": ["failed"]}
    entries += [
        {"at": now - _OUTAGE_ENDED, "actor": "ada", "action": "pause", "name": "charge-card"},
        {"at": now - timedelta(hours=2), "actor": "ada", "action": "resume", "name": "charge-card"},
        {
            "at": now - timedelta(hours=1, minutes=58),
            "actor": "ada",
            "action": "retryBulk",
            "filter": filtered,
            "count": 212,
            "note": "the provider answers again",
        },
        {"at": now - timedelta(minutes=50), "actor": "linus", "action": "deleteBulk", "outcome": "refused"},
    ]
    return [
        {
            "_id": made_up_id(entry["at"], dice),
            "via": "web",
            "outcome": "done",
            "address": "127.0.0.1",
            **entry,
            "expireAt": entry["at"] + _TRAIL_KEPT,
        }
        for entry in entries
    ]
