"""Stores schedules, and brings those that are stored up to date."""

from __future__ import annotations

from datetime import datetime, timedelta

import bson
from pymongo.asynchronous.client_session import AsyncClientSession

from monque._store import decoding, unique
from monque._store.document import Document, count_of, is_ended_after_run, made_aware, status_of, trace_of
from monque._store.planning import (
    is_moved,
    is_over,
    is_paused,
    is_same_declaration,
    may_end,
    moves_times,
    next_time,
    plan_of,
    redeclared,
    run_count_of,
    settings_of,
)
from monque._store.store import Store
from monque._store.transitions import operators
from monque._values.errors import JobStateError

# Longer than any error in our reading of the server's clock, and no longer than the distance between two
# times of a cron. Half of it would still do; twice as much could skip a time.
_CLOCK_SLACK = timedelta(minutes=1)

# Fields that the newest declaration of a schedule replaces as a whole.
_KEPT = ("data", "policy", "priority", "schedule")

_MILLISECOND = timedelta(milliseconds=1)


async def find_schedule(store: Store, name: str, key: str) -> Document | None:
    """The active schedule of this name and key."""
    holder = unique.holder_of({"name": name, "uniqueKey": key})
    return await decoding.find_one(store.collection, {**holder, "repeatInterval": {"$ne": None}})


async def insert_or_update_schedule(
    store: Store, wanted: Document, session: AsyncClientSession | None
) -> Document | None:
    """Store a schedule, or bring the one that holds its key up to date; None if it changed meanwhile."""
    if may_end(wanted) and (ended := await _find_ended(store, wanted, session)) is not None:
        return ended
    if wanted["status"] == "completed" and await _find_active(store, wanted, session) is None:
        await store.collection.insert_one(wanted, session=session)
        return wanted
    holder = await store.inserter.insert_unique({**wanted, "status": "pending"}, session)
    if holder["_id"] == wanted["_id"]:
        return holder
    return await _bring_up_to_date(store, holder, wanted, session)


async def _find_active(store: Store, wanted: Document, session: AsyncClientSession | None) -> Document | None:
    return await decoding.find_one(store.collection, unique.holder_of(wanted), {"_id": 1}, session=session)


async def _find_ended(store: Store, wanted: Document, session: AsyncClientSession | None) -> Document | None:
    """The same schedule, if it has run to its end: declared again at the next start, it must not begin anew.

    One that is over when it is declared never begins, so any that has ended stands for it: a program may
    reckon the end from now, and would store another one at each start.
    No index leads to it, so that only schedules with an end pay for it.
    """
    if await _find_active(store, wanted, session) is not None:
        return None
    ended = {
        "name": wanted["name"],
        "uniqueKey": wanted["uniqueKey"],
        "status": "completed",
        "repeatInterval": wanted["repeatInterval"],
    }
    found = await decoding.find(store.collection, ended, session=session)
    is_over_already = wanted["status"] == "completed"
    return next((each for each in found if is_over_already or is_same_declaration(each, wanted)), None)


async def _bring_up_to_date(
    store: Store, holder: Document, wanted: Document, session: AsyncClientSession | None
) -> Document | None:
    """Change what differs in the schedule that holds the key; None if it changed meanwhile.

    A transaction goes by what it sees itself: it may have changed the schedule before. It can neither see nor
    change what others did since its snapshot, however often it reads: it must run again.
    """
    in_transaction = session is not None and session.in_transaction
    if in_transaction:
        holder = await store.get(holder["_id"], session) or holder
    if holder.get("repeatInterval") is None:
        raise JobStateError(
            f"the key {wanted['uniqueKey']!r} of {wanted['name']!r} is held by the one-off job "
            f"{holder['_id']}; give the schedule a unique_key of its own",
            job_id=holder["_id"],
            current_status=status_of(holder),
            attempted_action="schedule",
        )
    changes = _changes(holder, wanted)
    if not changes:
        return holder
    change = operators.change_schedule(holder, changes=changes)
    changed = await store.change(holder["_id"], change, session)
    if changed is None and in_transaction:
        raise unique.conflict(wanted)
    return changed


async def edit_schedule(store: Store, schedule: Document, changes: Document) -> Document | None:
    """Change the times or the payload of a schedule, and nothing else; None if it changed meanwhile."""
    declared = {field: value for field, value in schedule.items() if field != "traceparent"}
    wanted = {**declared, **changes, "createdAt": store.clock.now()}
    return await _bring_up_to_date(store, schedule, wanted, None)


def _changes(holder: Document, wanted: Document) -> Document:
    """The fields in which a stored schedule differs from the wanted one."""
    changes: Document = {
        field: wanted[field] for field in ("repeatInterval", "timezone") if holder.get(field) != wanted[field]
    }
    declared = {**wanted, "schedule": redeclared(holder, wanted)}
    moves = bool(changes) or moves_times(settings_of(holder), declared["schedule"])
    changes |= {field: declared.get(field) for field in _KEPT if not _is_same(field, holder, declared)}
    if is_ended_after_run(holder):
        changes["cancel"] = None  # whoever declares a schedule wants it to go on
    if holder["status"] == "pending":
        changes |= _changed_time(holder, {**holder, **changes}, wanted["createdAt"], moves=moves)
    if changes and "traceparent" in wanted:
        changes |= {"tracestate": "", **trace_of(wanted)}  # do not keep the state of another trace
    return changes


def _changed_time(holder: Document, after: Document, now: datetime, *, moves: bool) -> Document:
    """Another time for a waiting schedule, if the changes need one; or its end, if they bring that.

    A paused one has no time, whatever is declared.
    """
    if is_paused(holder):
        return {}
    if is_over(after):
        return {"status": "completed"}
    if not moves and not _misses_its_schedule(after, now):
        return {}
    run_at = next_time(after, now, runs=run_count_of(after))
    return {"status": "completed"} if run_at is None else {"nextRunAt": run_at}


def _is_same(field: str, holder: Document, wanted: Document) -> bool:
    """Whether a field is stored exactly as wanted: in Python `1 == True`, and dicts have no order."""
    return bson.encode({"": holder.get(field)}) == bson.encode({"": wanted.get(field)})


def _misses_its_schedule(schedule: Document, now: datetime) -> bool:
    """Whether a pending schedule waits for another time than the next one of its cron and zone.

    A TypeScript instance writes such a time if the cron changed while it ran the job, or if its process has
    another zone. A time that has passed, the time of a retry, and one that an operator set are left alone.
    """
    run_at = made_aware(schedule.get("nextRunAt"))
    if not isinstance(run_at, datetime) or run_at <= now:
        return False
    if count_of(schedule, "failCount") or is_moved(schedule):
        return False
    # Our reading of the server's clock may be a little late: the run that seems to come may be over already.
    plan = plan_of(schedule)
    later = min(now + _CLOCK_SLACK, run_at - _MILLISECOND)
    return run_at not in (plan.next_after(now), plan.next_after(later))
