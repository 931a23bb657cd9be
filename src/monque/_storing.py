"""How new jobs and schedules come into the collection, in a transaction or not."""

from __future__ import annotations

from datetime import datetime, timedelta

import bson
from pymongo.asynchronous.client_session import AsyncClientSession

from monque._cron import Cron
from monque._errors import JobStateError
from monque._store import transitions, unique
from monque._store.document import Document, count_of, made_aware, status_of, trace_of
from monque._store.store import Store

# Longer than any error in our reading of the server's clock. Times of a cron are at least as far apart.
_CLOCK_SLACK = timedelta(minutes=1)


async def insert(store: Store, document: Document, session: AsyncClientSession | None) -> Document:
    if "uniqueKey" in document:
        return await store.insert_unique(document, session)
    await store.insert(document, session)
    return document


async def insert_all(
    store: Store, documents: list[Document], session: AsyncClientSession | None
) -> list[Document]:
    keyed = [document for document in documents if "uniqueKey" in document]
    await store.insert_many([document for document in documents if "uniqueKey" not in document], session)
    if session is None:
        holders = iter(await store.insert_unique_many(keyed))
    else:
        holders = iter([await store.insert_unique(document, session) for document in keyed])
    return [next(holders) if "uniqueKey" in document else document for document in documents]


async def insert_or_update_schedule(
    store: Store, wanted: Document, session: AsyncClientSession | None
) -> Document | None:
    """Store a schedule, or bring the one that holds its key up to date; None if it changed meanwhile."""
    holder = await store.insert_unique(wanted, session)
    if holder["_id"] == wanted["_id"]:
        return holder
    return await _bring_up_to_date(store, holder, wanted, session)


async def _bring_up_to_date(
    store: Store, holder: Document, wanted: Document, session: AsyncClientSession | None
) -> Document | None:
    """Change what differs in the schedule that holds the key; None if it changed meanwhile.

    A transaction goes by what it sees itself: it may have changed the schedule before. What others
    did since its snapshot it can neither see nor change, however often it looks: it must run again.
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
    """What a schedule must change to become what is wanted."""
    times = {
        field: wanted[field] for field in ("repeatInterval", "timezone") if holder.get(field) != wanted[field]
    }
    if holder["status"] == "pending" and (times or _misses_its_schedule(holder, wanted)):
        times["nextRunAt"] = wanted["nextRunAt"]
    same_data = bson.encode({"data": holder.get("data")}) == bson.encode({"data": wanted["data"]})
    changes = times if same_data else {**times, "data": wanted["data"]}
    if changes and "traceparent" in wanted:
        changes |= {"tracestate": "", **trace_of(wanted)}  # not the state of another trace
    return changes


def _misses_its_schedule(holder: Document, wanted: Document) -> bool:
    """Whether a pending schedule waits for another time than the next one of the wanted cron and zone.

    A TypeScript instance leaves such a time if the cron changed while it ran the job, or if its process has
    another zone. The time of a retry, one that an operator set and one that has come are left alone.
    """
    run_at, now = made_aware(holder.get("nextRunAt")), wanted["createdAt"]
    if not isinstance(run_at, datetime) or run_at <= now:
        return False
    if count_of(holder, "failCount") or run_at == made_aware(holder.get("movedTo")):
        return False
    # Our reading of the server's clock may be a little late: the run that is about to be due may be over.
    after_that = Cron.parse(wanted["repeatInterval"], wanted["timezone"]).next_after(now + _CLOCK_SLACK)
    return run_at not in (wanted["nextRunAt"], after_that)
