"""The day before the shop opened: what its instances would have left in the database. Documents, without I/O.

Nobody waits a day for a chart with a day in it, and no method of a Monque stores what happened yesterday. So
these documents are written as they are stored; they are the only ones of the shop that no Monque has made.

The last minutes are those of `replay.py`: the plan of the seconds before the opening, so that they look like
those after it. The hours before have the numbers of these minutes again and again, with less at night.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from random import Random

from bson import Int64, ObjectId

from .catalog import BY_NAME, WORKS, Recurring, Work
from .plan import payload_of
from .replay import (
    MINUTE,
    Counts,
    Depth,
    Document,
    Replay,
    failed_attempt,
    made_up_id,
    minute_of,
    stored_job,
)

_DAY = timedelta(days=1)
# How long what is stored here is kept: the numbers of minutes, and the trail.
_KEPT, _TRAIL_KEPT = timedelta(days=2), timedelta(days=90)

_CANCELLED = 12

# The payment provider had a bad quarter of an hour, which charts and groups show. So many jobs a minute were
# given up then, and five times as many attempts failed.
_OUTAGE_BEGAN, _OUTAGE_ENDED = timedelta(hours=3), timedelta(hours=2, minutes=45)
_GIVEN_UP = 14


@dataclass(frozen=True, slots=True)
class Past:
    """Documents by the collection that they belong to.

    Attributes:
        jobs: The jobs that have ended.
        waiting: The jobs that the shop has not done when it opens.
        running: Those of them that ran, and since when.
        trends: The numbers of each minute.
        audit: The actions of operators.
    """

    jobs: list[Document]
    waiting: list[Document]
    running: Mapping[ObjectId, datetime]
    trends: list[Document]
    audit: list[Document]


def day_before(seed: int, now: datetime) -> Past:
    """Return everything that a day of business has left at *now*."""
    dice = Random(f"{seed}/past")  # noqa: S311 - made up, not a secret
    replay = Replay(seed, now)
    older = dict(_older(replay, minute_of(now), dice))
    failed = list(_failed_jobs(older, dice))
    cancelled = list(_cancelled_jobs(now, dice))
    numbers = older | replay.numbers
    for job in cancelled:
        numbers.setdefault((minute_of(job["updatedAt"]), job["name"]), Counts()).endings["cancelled"] += 1
    return Past(
        jobs=[*failed, *cancelled, *replay.ended],
        waiting=replay.open,
        running=replay.running,
        trends=[*_minutes(numbers), *_gauges(replay, minute_of(now))],
        audit=_audit(now, cancelled, dice),
    )


def recent_runs(seed: int, recurring: Recurring, now: datetime) -> Document:
    """Return the last ten runs of a schedule, as an update of its document."""
    dice = Random(f"{seed}/{recurring.key}")  # noqa: S311 - as above
    every = 5 * MINUTE if recurring.key == "all-day" else _DAY
    times = [now - every * back - timedelta(seconds=20) for back in range(10, 0, -1)]
    outcomes = ["failed" if dice.random() < 0.12 else "completed" for _ in times]
    runs = [
        {"at": at, "ms": Int64(dice.randint(400, 2_500)), "outcome": outcome}
        for at, outcome in zip(times, outcomes, strict=True)
    ]
    return {"$set": {"recentRuns": runs, "lastRunAt": times[-1], "runCount": 10}}


def business(ago: timedelta) -> float:
    """Return the load of the shop so long ago: 1 at the opening and a day before, least half a day before."""
    turn = math.tau * (ago / _DAY)
    return 0.62 + 0.3 * math.cos(turn) + 0.08 * math.cos(3 * turn)


def _back_of(minute: datetime, replay: Replay, last: datetime) -> datetime:
    """The minute of the replay that an older one repeats."""
    return replay.begin + (minute - replay.begin) % (last - replay.begin)


def _older(replay: Replay, last: datetime, dice: Random) -> Iterator[tuple[tuple[datetime, str], Counts]]:
    minute = last - _DAY
    while minute < replay.begin:
        repeated, load = _back_of(minute, replay, last), business(last - minute)
        for work in WORKS:
            if (repeated, work.name) in replay.numbers:
                counts = _scaled(replay.numbers[repeated, work.name], load, dice)
                if work.name == "charge-card" and _OUTAGE_ENDED < last - minute <= _OUTAGE_BEGAN:
                    counts = _with_outage(counts, dice)
                yield (minute, work.name), counts
        minute += MINUTE


def _scaled(counts: Counts, load: float, dice: Random) -> Counts:
    """About as many runs as the load says, with the durations that they had."""
    endings = Counter({name: int(count * load + dice.random()) for name, count in counts.endings.items()})
    before, runs = sum(counts.endings.values()), sum(endings.values())
    return Counts(
        endings,
        _shared_out(counts.ran, runs, dice),
        _shared_out(counts.waited, runs, dice),
        counts.ran_ms * runs / before,
        counts.waited_ms * runs / before,
    )


def _shared_out(histogram: Counter[int], runs: int, dice: Random) -> Counter[int]:
    """Return a histogram of so many runs with about the same shape."""
    return Counter(dice.choices(list(histogram), weights=list(histogram.values()), k=runs))


def _with_outage(counts: Counts, dice: Random) -> Counts:
    failed = _GIVEN_UP + dice.randint(-3, 3)
    slow = Counter({max(counts.ran) + 2: 6 * failed})
    return Counts(
        counts.endings | Counter(failed=failed, retried=5 * failed),
        counts.ran + slow,
        counts.waited + Counter({min(counts.waited): 6 * failed}),
        counts.ran_ms + 6 * failed * 5_000,
        counts.waited_ms,
    )


def _minutes(numbers: Mapping[tuple[datetime, str], Counts]) -> Iterator[Document]:
    for (minute, name), counts in numbers.items():
        if stored := counts.document():
            yield {"_id": {"r": "m", "t": minute, "n": name}, **stored, "expireAt": minute + _KEPT}


def _gauges(replay: Replay, last: datetime) -> Iterator[Document]:
    minute = last - _DAY
    while minute <= last:
        is_older = minute <= replay.begin
        repeated = _back_of(minute, replay, last) if is_older else minute
        load = business(last - minute) if is_older else 1.0
        for work in WORKS:
            depth = replay.depths.get((repeated, work.name), Depth())
            if depth != Depth():
                yield {
                    "_id": {"r": "g", "t": minute, "n": work.name},
                    "due": Int64(round(depth.due * load)),
                    "later": Int64(round(depth.later * load)),
                    "processing": Int64(round(depth.processing * load)),
                    "oldestDueMs": Int64(round(depth.oldest_ms * load)),
                    "expireAt": minute + _KEPT,
                }
        minute += MINUTE


def _failed_jobs(numbers: Mapping[tuple[datetime, str], Counts], dice: Random) -> Iterator[Document]:
    """The jobs that were given up in these minutes, one for each that was counted."""
    for (minute, name), counts in numbers.items():
        for number in range(counts.endings["failed"]):
            ended = minute + timedelta(seconds=dice.uniform(0, 59.9))
            yield failed_job(BY_NAME[name], int(minute.timestamp()) // 60 % 10_000 + number, ended, dice)


def failed_job(work: Work, number: int, ended: datetime, dice: Random) -> Document:
    """A job that was given up at *ended*, with its attempts."""
    assert work.trouble is not None  # noqa: S101 - only names with trouble fail
    error = work.trouble.raised(number)
    payload = {"item": "lamp"} if work.name == "pack-item" else payload_of(work.name, number, dice)
    job = stored_job(work, payload, ended - timedelta(seconds=6 * work.attempts), dice)
    for attempt in range(1, work.attempts + 1):
        finished = ended - timedelta(seconds=5 * (work.attempts - attempt))
        began = finished - timedelta(seconds=dice.uniform(*work.seconds))
        job |= failed_attempt(work, job, error, began, finished, dice)
    return job | {"status": "failed", "updatedAt": ended}


def _cancelled_jobs(now: datetime, dice: Random) -> Iterator[Document]:
    work = BY_NAME["track-parcel"]
    for number in range(_CANCELLED):
        ended = now - timedelta(hours=8) * dice.random() - timedelta(seconds=1)
        payload = payload_of(work.name, number, dice)
        yield stored_job(work, payload, ended - timedelta(minutes=5), dice) | {
            "status": "cancelled",
            "cancel": {"by": "operator", "reason": "the parcel was returned"},
            "updatedAt": ended,
        }


def _audit(now: datetime, cancelled: list[Document], dice: Random) -> list[Document]:
    """Return the actions of operators in that day."""
    entries: list[Document] = [
        {
            "at": job["updatedAt"],
            "actor": dice.choice(["ada", "grace"]),
            "action": "cancel",
            "jobId": job["_id"],
            "name": job["name"],
            "before": {"status": "pending", "nextRunAt": job["nextRunAt"] + timedelta(hours=1)},
            "after": {"status": "cancelled", "nextRunAt": job["nextRunAt"] + timedelta(hours=1)},
            "note": "the parcel was returned",
        }
        for job in cancelled
    ]
    filtered = {"name": "charge-card", "status": ["failed"]}
    entries += [
        {
            "at": now - _DAY - timedelta(minutes=5),
            "actor": "grace",
            "action": "deleteBulk",
            "filter": {"name": "push-offer", "status": ["failed"]},
            "count": 38,
            "note": "last month's offer",
        },
        {
            "at": now - timedelta(hours=20),
            "actor": "grace",
            "action": "schedule-edit",
            "name": "daily-report",
            "before": {"state": "active", "cron": "0 7 * * MON-FRI", "timezone": "Europe/Berlin"},
            "after": {"state": "active", "cron": "0 6 * * MON-FRI", "timezone": "Europe/Berlin"},
        },
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
