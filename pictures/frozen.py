"""A moment of the shop that never passes: documents that a seed decides, and a clock that stands still."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any
from unittest.mock import patch

from pymongo.asynchronous.collection import AsyncCollection

from monque import Monque
from monque._ops import facts
from monque._store.store import Server
from monque._time.clock import Clock
from monque.management import pulse, schedule_view
from monque.shop.catalog import AFTER, BEFORE, BY_NAME, SCHEDULES, WORKS, Work
from monque.shop.past import Document, day_before, failed_job, made_up_id, recent_runs, stored_job
from monque.shop.plan import opening_stock

# Some days before New York changes to daylight saving time. It must lie in the future: the server removes
# what has expired by its own clock.
NOW = datetime(2027, 3, 10, 14, 32, 20, tzinfo=UTC)
SEED = 7

_DEPLOYED = NOW - timedelta(minutes=40)
# How many jobs of each name run, by turns on the first and the second instance.
_RUNNING = {"render-invoice": 4, "import-catalog": 2, "charge-card": 3, "send-email": 2, "resize-image": 2}


@contextmanager
def stopped_clock() -> Iterator[None]:
    """Let it be NOW for this process, and for the queries that ask for the server's time."""
    aggregate, hello = AsyncCollection.aggregate, Server.hello

    async def hello_now(self: Server) -> dict[str, Any]:
        return {**await hello(self), "localTime": NOW}

    async def no_offset(_store: object) -> timedelta:
        return timedelta(0)

    async def at_now(self: Any, pipeline: Any, *args: Any, **more: Any) -> Any:
        return await aggregate(self, _with_now(pipeline), *args, **more)

    with (
        patch.object(Clock, "now", lambda _self: NOW),
        patch.object(AsyncCollection, "aggregate", at_now),
        patch.object(Server, "hello", hello_now),
        patch.object(facts, "_clock_offset", no_offset),
        # How often live numbers come, and how many runs a preview has, must not depend on this machine.
        patch.object(pulse, "_GIVES_WAY", 0),
        patch.object(schedule_view, "_BUDGET", 10.0),
    ):
        yield


def _with_now(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _with_now(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_with_now(each) for each in value]
    return NOW if value == "$$NOW" else value


async def store(monque: Monque) -> None:
    """Store everything that there is at NOW."""
    dice = Random(f"{SEED}/moment")
    past, jobs = day_before(SEED, NOW), monque.options.collection
    database = monque.database
    new = list(_new_failures(dice))
    await database[jobs].insert_many([*past.jobs, *new, *_running(dice), *_waiting(dice)])
    await database[f"{jobs}_trends"].insert_many(past.trends)
    for job in new:
        minute = job["updatedAt"].replace(second=0, microsecond=0)
        counted = {"_id": {"r": "m", "t": minute, "n": job["name"]}}
        await database[f"{jobs}_trends"].update_one(
            counted, {"$inc": {"failed": 1, "retried": 1}}, upsert=True
        )
    await database[f"{jobs}_audit"].insert_many(past.audit)
    await database[f"{jobs}_instances"].insert_many(list(_instances()))
    pause = {"name": "push-offer", "reason": "the provider is down", "by": "grace", "since": _ago(minutes=6)}
    await database[f"{jobs}_control"].update_one(
        {"_id": "settings"}, {"$set": {"paused": [pause]}}, upsert=True
    )
    for each in SCHEDULES:
        await _schedule(monque, each, dice)


def _ago(**duration: float) -> datetime:
    return NOW - timedelta(**duration)


async def _schedule(monque: Monque, each: Any, dice: Random) -> None:
    job = await monque.schedule(each.cron, each.name, each.payload, timezone=each.zone, unique_key=each.key)
    collection = monque.database[monque.options.collection]
    document: Document = await collection.find_one_and_delete({"_id": job.id})
    born = _ago(days=60)
    document |= {"_id": made_up_id(born, dice), "createdAt": born, **recent_runs(SEED, each, NOW)["$set"]}
    await collection.insert_one(document)


def _new_failures(dice: Random) -> Iterator[Document]:
    """What fails since the release."""
    for number in range(214):
        ended = _DEPLOYED + (NOW - _DEPLOYED) * dice.random() ** 0.7
        yield failed_job(BY_NAME["ship-order"], 700 + number, ended, dice)


def _running(dice: Random) -> Iterator[Document]:
    """What runs: the slow queue with all its slots, and some of the others."""
    for name, count in _RUNNING.items():
        for number in range(count):
            work = BY_NAME[name]
            began = NOW - timedelta(seconds=work.seconds[1] * dice.uniform(0.1, 0.9))
            yield stored_job(work, 9000 + number, began - timedelta(seconds=dice.uniform(0, 8)), dice) | {
                "status": "processing",
                "attempt": 1,
                "claimedBy": f"shop-{_owner(number)}",
                "claimedAt": began,
                "lockedAt": _ago(seconds=0.4),
                "lastHeartbeat": _ago(seconds=0.4),
                "heartbeatInterval": 1000,
                **({"priority": 5} if name == "charge-card" else {}),
                "updatedAt": _ago(seconds=0.4),
                **_progress(work, dice),
            }


def _owner(number: int) -> int:
    return 1 + number % 2


def _active(name: str, instance: int) -> int:
    return sum(_owner(number) == instance for number in range(_RUNNING.get(name, 0)))


def _progress(work: Work, dice: Random) -> Document:
    if not work.steps:
        return {}
    done = dice.randint(1, work.steps - 1)
    said = {"done": done, "total": work.steps, "message": "writing pages", "at": _ago(seconds=0.4)}
    return {"progress": said}


def _waiting(dice: Random) -> Iterator[Document]:
    """What is due, what is due later, and what waits for its next attempt."""
    for number, each in enumerate(opening_stock(SEED)):
        due = _ago(seconds=5 + 2.5 * number)
        yield stored_job(BY_NAME[each.name], number, due, dice) | {"status": "pending", "updatedAt": due}
    for number in range(30):
        work = BY_NAME[dice.choice(["send-email", "ship-order", "track-parcel"])]
        due = NOW + timedelta(minutes=15) * dice.random()
        created = _ago(minutes=10 * dice.random())
        yield stored_job(work, 500 + number, due, dice) | {
            "_id": made_up_id(created, dice),
            "status": "pending",
            "createdAt": created,
            "updatedAt": created,
        }
    for number in range(9):
        yield _retrying(BY_NAME["charge-card"], 800 + number, dice)


def _retrying(work: Work, number: int, dice: Random) -> Document:
    ended = _ago(seconds=dice.uniform(1, 6))
    failed = failed_job(work, number, ended, dice)
    return failed | {
        "status": "pending",
        "attempt": 1,
        "failCount": 1,
        "history": [failed["history"][0] | {"startedAt": ended - timedelta(seconds=1), "finishedAt": ended}],
        "nextRunAt": ended + timedelta(seconds=8),
    }


def _instances() -> Iterator[Document]:
    """Two instances of the new release, and one of the old that is silent."""
    for number, release, started, seen in (
        (1, AFTER, _DEPLOYED, _ago(seconds=0.6)),
        (2, AFTER, _DEPLOYED + timedelta(seconds=9), _ago(seconds=0.3)),
        (3, BEFORE, _ago(hours=21), _ago(seconds=48)),
    ):
        workers = [
            {"name": work.name, "concurrency": work.slots, "active": _active(work.name, number), "off": False}
            for work in WORKS
            if work.slots
        ]
        yield {
            "_id": f"shop-{number}",
            "host": f"web-{number}.example.org",
            "pid": 18_240 + number,
            "version": "0.2.0",
            "python": "3.11.7",
            "release": release,
            "startedAt": started,
            "seenAt": seen,
            "state": "running",
            "intervalMs": 1000,
            "slots": sum(work.slots for work in WORKS),
            "busy": sum(_active(name, number) for name in _RUNNING),
            "claimedAhead": 0,
            "changeStream": "live",
            "workers": workers,
            "settings": {"workerConcurrency": 5, "maxRetries": 10, "shutdownTimeoutMs": 30_000},
            "expireAt": NOW + timedelta(days=1),
        }
