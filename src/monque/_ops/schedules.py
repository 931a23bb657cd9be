"""Operators' actions on one schedule, found by its name and key: the write, and what it changed.

Each write applies only if nobody changed the schedule since it was read; else it is read again.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from monque._store import decoding, schedules
from monque._store.document import Document, is_cancel_requested
from monque._store.schedules import edited, is_paused, occurrence, resumed, stores_jobs
from monque._store.store import Store, until_applied
from monque._store.transitions import operators
from monque._values.errors import JobNotFoundError
from monque._values.rules import check_name, check_unique_key


async def find(store: Store, name: str, unique_key: str | None) -> Document:
    """The active schedule of this name and key; without a key, that whose key is the name."""
    name = check_name(name)
    key = name if unique_key is None else check_unique_key(unique_key)
    document = await schedules.find_schedule(store, name, key)
    if document is None:
        raise JobNotFoundError(
            key,
            f"no schedule of {name!r} with the key {key!r}; it may have ended, been cancelled, or have "
            "another unique_key",
        )
    return document


async def edit(
    store: Store,
    name: str,
    unique_key: str | None,
    *,
    cron: str | timedelta | None,
    timezone: str | None,
    payload: Mapping[str, Any],
) -> Document:
    """Change the times and, if *payload* has it, the data of a schedule; all else stays."""

    async def change() -> Document | None:
        before = await find(store, name, unique_key)
        times = edited(before, cron=cron, timezone=timezone, now=store.clock.now())
        return await schedules.edit_schedule(store, before, {**times, **payload})

    return await until_applied(change)


async def pause(store: Store, name: str, unique_key: str | None) -> tuple[Document, bool]:
    """Pause a schedule; False beside the document if it was paused before."""

    async def change() -> tuple[Document, bool] | None:
        before = await find(store, name, unique_key)
        if is_paused(before):
            return before, False
        after = await store.change(before["_id"], operators.pause_schedule(before), read=before)
        return None if after is None else (after, True)

    return await until_applied(change)


async def resume(store: Store, name: str, unique_key: str | None) -> tuple[Document, bool]:
    """Let a paused schedule go on; False beside the document if it was not paused.

    If its last time has passed meanwhile, it is completed.
    """

    async def change() -> tuple[Document, bool] | None:
        before = await find(store, name, unique_key)
        if not is_paused(before):
            return before, False
        goes_on = operators.change_schedule(before, changes=resumed(before, store.clock.now()))
        after = await store.change(before["_id"], goes_on, read=before)
        return None if after is None else (after, True)

    return await until_applied(change)


async def trigger(store: Store, name: str, unique_key: str | None) -> Document:
    """Let a schedule run now; return the job that runs, which may be one of its own."""

    async def change() -> Document | None:
        return await trigger_once(store, await find(store, name, unique_key))

    return await until_applied(change)


async def trigger_once(store: Store, before: Document) -> Document | None:
    """Let the schedule that was read run now; None if it has changed since."""
    if stores_jobs(before):
        return await _store_extra_job(store, before)
    return await store.change(before["_id"], operators.trigger_schedule(before), read=before)


async def _store_extra_job(store: Store, schedule: Document) -> Document:
    """Store a job beside those that come at their times; it counts as a run of the schedule."""
    wanted = occurrence(schedule, store.clock.now(), extra=True)
    job = await store.inserter.insert(wanted, None)
    if job["_id"] == wanted["_id"]:
        await store.change(schedule["_id"], operators.count_extra_job(schedule), read=schedule)
    return job


async def unschedule(store: Store, name: str, unique_key: str | None) -> Document:
    """Cancel a schedule that waits, or have a running one cancelled after its run."""

    async def change() -> Document | None:
        before = await find(store, name, unique_key)
        for transition in (operators.cancel(), operators.end_after_run()):
            if (after := await store.change(before["_id"], transition, read=before)) is not None:
                return after
        return before if is_cancel_requested(before) else None  # somebody has asked for its end before

    return await until_applied(change)


async def list_all(store: Store, name: str | None = None) -> list[Document]:
    """The active schedules, sorted by name and key."""
    query: Document = {
        # Every schedule of ours has a key, so its index finds them.
        "uniqueKey": {"$exists": True},
        "status": {"$in": ["pending", "processing"]},
        "repeatInterval": {"$ne": None},
    }
    if name is not None:
        query["name"] = {"$eq": check_name(name)}
    return await decoding.find(store.collection, query, sort={"name": 1, "uniqueKey": 1})
