"""Finds out about the server, and about jobs that nobody takes, for `diagnose`; changes nothing."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any

from pymongo import IndexModel
from pymongo.errors import ConfigurationError as DriverConfigurationError
from pymongo.errors import OperationFailure

from monque._ops import filters, schedules
from monque._ops.counts import aggregate
from monque._ops.typescript import misread
from monque._store import decoding, indexes
from monque._store.document import PARKED, Document, name_of
from monque._store.hints import Watch, WatchUnavailableError
from monque._store.indexes import Use
from monque._store.job import to_job
from monque._store.schedules import has_never_run, to_schedule
from monque._store.store import Store
from monque._store.transitions import operators
from monque._time.cron import Cron
from monque._values.errors import ConfigurationError
from monque._values.events import JobStuck
from monque._values.job import Job
from monque._values.options import Options
from monque._values.views import Diagnosis, DueJobs, IndexState, IndexView, UseView

# How many stale jobs a diagnosis lists: enough to see a pattern, few enough to read.
_MOST_STALE = 100

# In how many of the newest jobs lost calls are looked for: no index leads to them. These are two days of a
# busy shop.
_MOST_LOOKED_AT = 100_000

# A wait without an end is worth a word after so long.
_LONG_WAIT = timedelta(days=30)

# What an instance should have woken by now.
_TWO_SWEEPS = timedelta(minutes=2)

# A line that stands still for so long is worth a word.
_LONG_TURN = timedelta(hours=1)


async def examine(store: Store, options: Options, uses: Iterable[str]) -> Diagnosis:
    """Answer all questions, one after the other; *uses* are those that are about to begin."""
    hello = await store.server.hello()
    build = await store.collection.database.client.admin.command("buildInfo")
    settings = await store.control.read_if_allowed()
    found = await _indexes(store, options, settings.uses.union(uses))
    recurring, now = await schedules.list_all(store), hello["localTime"]
    return Diagnosis(
        taken_at=hello["localTime"],
        server_version=build["version"],
        replica_set=hello.get("setName"),
        change_streams=await _has_change_streams(store),
        transactions=await _has_transactions(store),
        clock_offset=await _clock_offset(store),
        indexes=found,
        stale=await _stale(store),
        due=await _due(store, now=hello["localTime"]),
        finished=await _finished(store),
        lost_calls=await _lost_calls(store),
        expired=await _count(store, filters.expired()),
        stuck=await _stuck(store),
        endless=await _endless(store, now),
        stranded=await _stranded(store, now) if "parked" in settings.uses else [],
        blocking=await _blocking(store, now) if "limit" in settings.uses else [],
        retention=_has(found, indexes.RETENTION),
        paused=settings.in_force(hello["localTime"]),
        never_ran=[to_schedule(each, now) for each in recurring if has_never_run(each, now)],
        misread=_misread(recurring) if any(each.name == indexes.TYPESCRIPT for each in found) else {},
        uses=[await _use(store, use) for use in indexes.USES.values() if use.name in settings.uses],
    )


async def _has_change_streams(store: Store) -> bool:
    try:
        watch = await Watch.open(store)
    except WatchUnavailableError:
        return False
    await watch.close()
    return True


async def _has_transactions(store: Store) -> bool:
    """Try a transaction that only reads."""
    try:
        client = store.collection.database.client
        async with client.start_session() as session, await session.start_transaction():
            await decoding.is_there_any(store.collection, {}, session=session)
    except (OperationFailure, DriverConfigurationError):
        return False
    return True


async def _clock_offset(store: Store) -> timedelta:
    """The server's clock minus ours. The quickest of a few answers is the most exact."""
    answers = []
    for _ in range(3):
        asked = time.time()
        theirs = (await store.server.hello())["localTime"]
        answered = time.time()
        ours = datetime.fromtimestamp((asked + answered) / 2, UTC)
        answers.append((answered - asked, theirs - ours))
    offset: timedelta = min(answers)[1]
    return offset


async def _indexes(store: Store, options: Options, uses: frozenset[str]) -> list[IndexView]:
    there = {index["name"]: index for index in await store.server.indexes()}
    needed = {model.document["name"]: model for model in indexes.wanted(options, uses)}
    optional = (indexes.RETENTION, *indexes.LISTING, *(use.index for use in indexes.USES.values()))
    known = {model.document["name"]: model for model in optional} | needed
    missing = [_view(needed[name].document, "missing") for name in needed.keys() - there.keys()]
    views = missing + [
        _view(index, _state(index, needed, known, store.server.routed)) for index in there.values()
    ]
    return sorted(views, key=lambda view: view.name)


def _state(
    index: Mapping[str, Any],
    needed: Mapping[str, IndexModel],
    known: Mapping[str, IndexModel],
    routed: bool,
) -> IndexState:
    name = index["name"]
    if name == "_id_":
        return "needed"
    if name not in known:
        # It may be the index of a shard key that begins with the name, which the cluster needs.
        return "optional" if routed and next(iter(index["key"])) == "name" else "superfluous"
    if not indexes.is_same(index, known[name]):
        return "different"
    return "needed" if name in needed else "optional"


def _view(index: Mapping[str, Any], state: IndexState) -> IndexView:
    return IndexView(name=index["name"], keys=tuple(index["key"]), state=state)


def _has(found: Sequence[IndexView], model: IndexModel) -> bool:
    return any(index.name == model.document["name"] and index.state != "missing" for index in found)


async def _use(store: Store, use: Use) -> UseView:
    """A use that has begun, and the newest job that is stored with it."""
    if use.field is None or use.name == "parked":  # it also begins with a limit, without a job of a batch
        return UseView(
            name=use.name, index=use.index_name, reason=use.reason, last_job_at=None, needs_jobs=False
        )
    newest = await aggregate(
        store.collection,
        [
            {"$match": {use.field: {"$exists": True}, "createdAt": {"$type": "date"}}},
            {"$group": {"_id": None, "at": {"$max": "$createdAt"}}},
        ],
    )
    last = newest[0]["at"] if newest else None
    return UseView(name=use.name, index=use.index_name, reason=use.reason, last_job_at=last)


async def _finished(store: Store) -> int:
    """About how many jobs have ended: to count them one by one would read them all."""
    active = await _count(store, {"status": {"$in": ["pending", "processing"]}})
    return max(await store.collection.estimated_document_count() - active, 0)


async def _lost_calls(store: Store) -> int:
    """Return how many of the newest jobs have ended with a later call noted."""
    groups = await aggregate(
        store.collection,
        [
            {"$sort": {"_id": -1}},
            {"$limit": _MOST_LOOKED_AT},
            {
                "$match": {
                    "status": {"$in": ["completed", "failed", "cancelled"]},
                    "again": {"$type": "object"},
                }
            },
            {"$count": "count"},
        ],
    )
    return groups[0]["count"] if groups else 0


async def _count(store: Store, query: Document) -> int:
    groups = await aggregate(store.collection, [{"$match": query}, {"$count": "count"}])
    return groups[0]["count"] if groups else 0


async def _stuck(store: Store) -> list[Job[Any]]:
    """Jobs that run though they were told to stop a while ago, or somebody asked for it."""
    stuck = operators.stuck(asked_before=store.clock.now() - JobStuck._after)
    found = await decoding.find(store.collection, stuck, sort={"updatedAt": 1}, limit=_MOST_STALE)
    return [to_job(document, store.read) for document in found]


async def _endless(store: Store, now: datetime) -> list[Job[Any]]:
    """Jobs that have waited for long for what may never come; parked ones alone are read."""
    waits = {"nextRunAt": PARKED, "parked.why": {"$in": ["signal", "batch"]}}
    return await _waiting(store, now - _LONG_WAIT, waits)


async def _waiting(store: Store, before: datetime, which: Document) -> list[Job[Any]]:
    query = {"status": "pending", "parked.since": {"$lt": before}, **which}
    found = await decoding.find(store.collection, query, sort={"parked.since": 1}, limit=_MOST_STALE)
    return [to_job(document, store.read) for document in found]


async def _stranded(store: Store, now: datetime) -> list[Job[Any]]:
    """Jobs whose batch is over, or whose line nobody holds, for longer than two sweeps take."""
    waits = {"status": "pending", "nextRunAt": PARKED, "parked.since": {"$lt": now - _TWO_SWEEPS}}
    key = {"why": "$parked.why", "key": "$parked.key", "name": "$name"}
    longest: list[Document] = [
        {"$match": {**waits, "parked.why": {"$in": ["batch", "turn"]}}},
        {"$group": {"_id": key, "since": {"$min": "$parked.since"}, "job": {"$first": "$_id"}}},
        {"$sort": {"since": 1}},
        {"$limit": _MOST_STALE},
    ]
    ids, active = [], {"status": {"$in": ["pending", "processing"]}}
    for group in await aggregate(store.collection, longest):
        name, label = group["_id"].get("name"), group["_id"].get("key")
        line = {"name": {"$eq": name}, "turn.line": str(label)[len(str(name)) + 1 :]}
        holds = {"batch": {"$eq": label}} if group["_id"]["why"] == "batch" else line
        # Without a hint: its index may be what is wrong.
        if not await decoding.is_there_any(store.collection, {**holds, **active}):
            ids.append(group["job"])
    return await _waiting(store, now, {"_id": {"$in": ids}})


async def _blocking(store: Store, now: datetime) -> list[Job[Any]]:
    """Jobs that wait for something else and keep the turn of their line."""
    return await _waiting(store, now - _LONG_TURN, {"turn.slot": {"$exists": True}})


def _misread(schedules: Sequence[Document]) -> dict[str, str]:
    """The expressions that TypeScript instances misread, and how; a text that is no expression is skipped."""
    found: dict[str, str] = {}
    for expression in {str(each.get("repeatInterval")) for each in schedules}:
        with suppress(ConfigurationError):
            if (problem := misread(Cron.parse(expression).expression)) is not None:
                found[expression] = problem
    return found


async def _stale(store: Store) -> list[Job[Any]]:
    found = await decoding.find(store.collection, store.stale(), sort={"updatedAt": 1}, limit=_MOST_STALE)
    return [to_job(document, store.read) for document in found]


async def _due(store: Store, *, now: datetime) -> list[DueJobs]:
    waiting = await aggregate(
        store.collection,
        [
            {"$match": {"status": "pending", "nextRunAt": {"$lte": now}}},
            {"$group": {"_id": "$name", "count": {"$sum": 1}, "oldest": {"$min": "$nextRunAt"}}},
            {"$sort": {"oldest": 1, "_id": 1}},
        ],
    )
    running = await aggregate(
        store.collection,
        [
            {"$match": {"status": "processing", "$nor": [store.stale()]}},
            {"$group": {"_id": "$name", "count": {"$sum": 1}}},
        ],
    )
    alive = {name_of(group["_id"]): group["count"] for group in running}
    return [
        DueJobs(
            name=name_of(group["_id"]),
            count=group["count"],
            # An array of dates matches too, and sorts before dates.
            oldest=group["oldest"] if isinstance(group["oldest"], datetime) else now,
            running=alive.get(name_of(group["_id"]), 0),
        )
        for group in waiting
    ]
