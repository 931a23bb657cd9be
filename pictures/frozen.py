"""A moment of the shop that never passes: documents that a seed decides, and a clock that stands still."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any
from unittest.mock import patch

from pymongo.asynchronous.collection import AsyncCollection

from examples.shop.catalog import AFTER, BEFORE, BY_NAME, INSTANCES, SCHEDULES, WORKS, Work
from examples.shop.past import Past, day_before, failed_job, recent_runs
from examples.shop.replay import Document, made_up_id
from monque import Monque
from monque._ops import facts
from monque._store.document import PARKED, SEPARATOR
from monque._store.store import Server
from monque._time.clock import Clock
from monque.web import schedule_times
from monque.web.live import pulse

# Some days before New York changes to daylight saving time. It must lie in the future: the server removes
# what has expired by its own clock.
NOW = datetime(2027, 3, 10, 14, 32, 20, tzinfo=UTC)
SEED = 7

_DEPLOYED = NOW - timedelta(minutes=40)
# The instance that is silent took its jobs before its last heartbeat.
_SILENT, _LAST_SEEN = 3, NOW - timedelta(seconds=48)


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
        patch.object(schedule_times, "_BUDGET", 10.0),
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
    new, running = list(_new_failures(dice)), list(_running(past, dice))
    waiting = [_in_line(job) for job in past.waiting if job["_id"] not in past.running]
    await database[jobs].insert_many([*past.jobs, *new, *waiting, *running])
    await database[f"{jobs}_trends"].insert_many(past.trends)
    for job in new:
        minute = job["updatedAt"].replace(second=0, microsecond=0)
        counted = {"_id": {"r": "m", "t": minute, "n": job["name"]}}
        await database[f"{jobs}_trends"].update_one(
            counted, {"$inc": {"failed": 1, "retried": 1}}, upsert=True
        )
    await database[f"{jobs}_audit"].insert_many(past.audit)
    await database[f"{jobs}_instances"].insert_many(list(_instances(running)))
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


def _in_line(job: Document) -> Document:
    """The job, parked if its customer is at the limit: those have as many running as they may."""
    if not BY_NAME[job["name"]].limit:
        return job
    key = f"{job['name']}{SEPARATOR}{_line(job)}"
    waits = {"why": "turn", "key": key, "since": job["createdAt"], "order": job["createdAt"]}
    return {**job, "nextRunAt": PARKED, "parked": waits}


def _line(job: Document) -> str:
    return f"k:s:{job['data']['customer']}"


def _new_failures(dice: Random) -> Iterator[Document]:
    """The jobs that failed since the release."""
    for number in range(214):
        ended = _DEPLOYED + (NOW - _DEPLOYED) * dice.random() ** 0.7
        yield failed_job(BY_NAME["ship-order"], 700 + number, ended, dice)


def _running(past: Past, dice: Random) -> Iterator[Document]:
    """The jobs that run, by turns on each instance."""
    waiting = {job["_id"]: job for job in past.waiting}
    for number, (job_id, began) in enumerate(past.running.items()):
        job, owner = waiting[job_id], 1 + number % INSTANCES
        is_silent = owner == _SILENT
        seen = _LAST_SEEN if is_silent else _ago(seconds=0.4)
        claimed = min(began, seen - timedelta(seconds=2))
        yield job | {
            "_id": made_up_id(min(job["createdAt"], claimed), dice),
            "createdAt": min(job["createdAt"], claimed),
            "nextRunAt": min(job["nextRunAt"], claimed),
            "status": "processing",
            "attempt": job.get("attempt", 0) + 1,
            "claimedBy": f"shop-{owner}",
            "claimedAt": claimed,
            "lockedAt": seen,
            "lastHeartbeat": seen,
            "heartbeatInterval": 1000,
            "updatedAt": seen,
            **_progress(BY_NAME[job["name"]], seen, dice),
            **({"turn": {"line": _line(job), "slot": number}} if BY_NAME[job["name"]].limit else {}),
        }


def _progress(work: Work, seen: datetime, dice: Random) -> Document:
    if not work.steps:
        return {}
    done = dice.randint(1, work.steps - 1)
    said = {"done": done, "total": work.steps, "message": "writing pages", "at": seen}
    return {"progress": said}


def _instances(running: list[Document]) -> Iterator[Document]:
    """Two instances of the new release, and one of the old that is silent."""
    for number, release, started, seen in (
        (1, AFTER, _DEPLOYED, _ago(seconds=0.6)),
        (2, AFTER, _DEPLOYED + timedelta(seconds=9), _ago(seconds=0.3)),
        (_SILENT, BEFORE, _ago(hours=21), _LAST_SEEN),
    ):
        active = Counter(job["name"] for job in running if job["claimedBy"] == f"shop-{number}")
        workers = [
            {"name": work.name, "concurrency": work.slots, "active": active[work.name], "off": False}
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
            "busy": active.total(),
            "claimedAhead": 0,
            "changeStream": "live",
            "workers": workers,
            "settings": {"workerConcurrency": 5, "maxRetries": 10, "shutdownTimeoutMs": 30_000},
            "expireAt": NOW + timedelta(days=1),
        }
