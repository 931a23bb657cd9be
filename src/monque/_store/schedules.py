"""Stores schedules, and brings those that are stored up to date."""

from __future__ import annotations

from datetime import datetime, timedelta

import bson
from pymongo.asynchronous.client_session import AsyncClientSession

from monque._errors import JobStateError
from monque._store import transitions, unique
from monque._store.document import Document, count_of, made_aware, status_of, trace_of
from monque._store.store import Store
from monque._time.cron import Cron

# Longer than any error in our reading of the server's clock, and no longer than the distance between two
# times of a cron. Half of it would still do; twice as much could skip a time.
_CLOCK_SLACK = timedelta(minutes=1)

# Fields that the newest declaration of a schedule replaces as a whole.
_KEPT = ("data", "policy", "priority")


async def insert_or_update_schedule(
    store: Store, wanted: Document, session: AsyncClientSession | None
) -> Document | None:
    """Store a schedule, or bring the one that holds its key up to date; None if it changed meanwhile."""
    holder = await store.inserter.insert_unique(wanted, session)
    if holder["_id"] == wanted["_id"]:
        return holder
    return await _bring_up_to_date(store, holder, wanted, session)


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
    change = transitions.change_schedule(holder, changes=changes)
    changed = await store.change(holder["_id"], change, session)
    if changed is None and in_transaction:
        raise unique.conflict(wanted)
    return changed


def _changes(holder: Document, wanted: Document) -> Document:
    """The fields in which a stored schedule differs from the wanted one."""
    times = {
        field: wanted[field] for field in ("repeatInterval", "timezone") if holder.get(field) != wanted[field]
    }
    if holder["status"] == "pending" and (times or _misses_its_schedule(holder, wanted)):
        times["nextRunAt"] = wanted["nextRunAt"]
    changes = {
        **times,
        **{field: wanted.get(field) for field in _KEPT if not _is_same(field, holder, wanted)},
    }
    if changes and "traceparent" in wanted:
        changes |= {"tracestate": "", **trace_of(wanted)}  # do not keep the state of another trace
    return changes


def _is_same(field: str, holder: Document, wanted: Document) -> bool:
    """Whether a field is stored exactly as wanted: in Python `1 == True`, and dicts have no order."""
    return bson.encode({"": holder.get(field)}) == bson.encode({"": wanted.get(field)})


def _misses_its_schedule(holder: Document, wanted: Document) -> bool:
    """Whether a pending schedule waits for another time than the next one of the wanted cron and zone.

    A TypeScript instance writes such a time if the cron changed while it ran the job, or if its process has
    another zone. A time that has passed, the time of a retry, and one that an operator set are left alone.
    """
    run_at, now = made_aware(holder.get("nextRunAt")), wanted["createdAt"]
    if not isinstance(run_at, datetime) or run_at <= now:
        return False
    if count_of(holder, "failCount") or run_at == made_aware(holder.get("movedTo")):
        return False
    # Our reading of the server's clock may be a little late: the run that seems to come may be over already.
    after_that = Cron.parse(wanted["repeatInterval"], wanted["timezone"]).next_after(now + _CLOCK_SLACK)
    return run_at not in (wanted["nextRunAt"], after_that)
