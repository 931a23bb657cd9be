"""Takes jobs from dead owners, and removes finished jobs that are old."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Container, Sequence
from contextlib import aclosing, suppress
from datetime import datetime, timedelta
from functools import partial
from typing import Any, TypeVar

from pymongo import UpdateMany
from pymongo.asynchronous.client_session import AsyncClientSession
from pymongo.errors import OperationFailure, WriteError

from monque._connect.deadlines import limited
from monque._store import decoding
from monque._store.document import (
    Document,
    Key,
    attempt_of,
    count_of,
    key_of,
    named,
    on_failure_of,
    with_id,
)
from monque._store.follow_ups import FREE
from monque._store.settle import leave, remove_left
from monque._store.store import Conflict, Store
from monque._store.transitions import recovery
from monque._store.transitions.transition import Transition, as_read, recent_run
from monque._values.history import HistoryEntry
from monque._values.options import Options

logger = logging.getLogger("monque")

R = TypeVar("R")

_WRITE_CONFLICT = 112

# Seconds before a transaction is tried again that met the creation of an index, say.
_PAUSE = 0.02

# Recovery reads about 200 bytes of each claim, so a thousand dead jobs take one read and one write.
CLAIMS_AT_ONCE = 1000

# Our driver may find the server before the driver of an owner does: each asks twice a second, then connects
# and may have to log in. With half of these seconds a busy machine loses jobs of live owners if the interval
# is short.
_INTERVALS = 1.5
_RECONNECTING = timedelta(seconds=2)

AT_LEAST = timedelta(hours=1)
"""The time that a job is kept at least if others may need it."""

# How many jobs one delete removes within the time of one command.
_PRUNE_AT_ONCE = 1000


async def read_claims(store: Store, *, of: Sequence[str] | None = None) -> list[Document]:
    """At most `CLAIMS_AT_ONCE` claims, perhaps *of* these owners, dead ones first: see `recovery.claims`."""
    pipeline = recovery.claims(store.stale(), store.options, CLAIMS_AT_ONCE, of)
    with limited():
        return await decoding.aggregate(store.exact, pipeline)


def is_stale(claim: Document) -> bool:
    """Return whether the owner of a claim was silent for too long."""
    return claim["stale"] is True


def is_long_stale(claim: Document, store: Store) -> bool:
    """Return whether its owner would have sent a heartbeat, also if the database was away a moment ago."""
    at = claim["until"]  # a date that Python cannot hold is very old
    is_dated = isinstance(at, datetime) and at != recovery.FAR
    return not is_dated or at + time_to_return(store) <= store.clock.now()


def time_to_return(store: Store) -> timedelta:
    """The time in which each living owner has sent a heartbeat after an outage."""
    # Each owner sends one within an interval after its driver found the server again. One interval would be
    # too close to it; two would let the third heartbeat pass, which may come a little early.
    return _INTERVALS * store.options.heartbeat_interval + _RECONNECTING


def _dead(store: Store, claim: Document) -> Document:
    """Match a claim while its owner counts as dead: it is silent, or its process is gone and so is silent."""
    return store.stale() if is_stale(claim) else recovery.still_claimed(claim)


def is_schedule(found: Document) -> bool:
    """Return whether a stale job is a schedule, as `recovery.give_up_crashed` tells it."""
    return isinstance(found.get("repeatInterval"), str)


def has_again(found: Document) -> bool:
    """Return whether a later call with the same key is noted in a stale job: it runs once more."""
    return found["noted"] is True and not is_schedule(found)


def _is_own(claim: Document, own: Container[Key], store: Store) -> bool:
    """Return whether a claim is one of these, which this instance has made."""
    # The owner, too: a TypeScript instance that has taken the job since does not count attempts.
    return owner_of(claim) == store.instance_id and (key_of(claim["_id"]), attempt_of(claim)) in own


def owner_of(found: Document) -> object:
    """The instance that held a stale job."""
    return found.get("claimedBy")


def crashes_of(found: Document) -> int:
    """The number of times that the owners of a stale job have died, the last one included."""
    return count_of(found, "crashes")


def lost_entry(options: Options) -> HistoryEntry | None:
    """The entry in the history of a job for a run whose process died."""
    if not options.attempt_history:
        return None
    text = "its process died while it ran (crashed, killed or out of memory), or lost the database for long"
    return HistoryEntry("lost", "ProcessDiedError", text, None, 0.0, options.attempt_history)


async def put_back(store: Store, found: Document) -> Document | None:
    """Let a job of a dead owner run again; None if another instance was faster, or the owner lives."""
    return await _change_stale(store, found, _recover(store, _dead(store, found)))


async def put_back_many(store: Store, found: Sequence[Document]) -> int | None:
    """The same for many jobs in one write; returns how many were put back.

    It returns None if one of the jobs cannot be changed now. The others can, each alone.
    """
    if not found:
        return 0
    silent = [job for job in found if is_stale(job)]
    writes: list[UpdateMany] = []
    if silent:
        names: list[Any] = [job.get("name") for job in silent]
        # Where one is no text, by the ids alone: what was read may not be what is stored.
        by_name = named(set(names)) if all(type(name) is str for name in names) else {}
        recover = _recover(store, store.stale())
        these = {"_id": {"$in": [job["_id"] for job in silent]}, **by_name, **recover.when}
        writes.append(UpdateMany(these, recover.then, hint="_id_"))
    for job in found:
        if not is_stale(job):  # each as it was read: a process with the same id may have begun since
            recover = _recover(store, _dead(store, job))
            these = {"_id": job["_id"], **as_read(job, ["name"]), **recover.when}
            writes.append(UpdateMany(these, recover.then, hint="_id_"))
    try:
        return await _without_waiting(store, partial(_put_back_many, store, writes))
    except OperationFailure:
        return None


async def _put_back_many(store: Store, writes: list[UpdateMany], session: AsyncClientSession | None) -> int:
    return (await store.collection.bulk_write(writes, ordered=False, session=session)).modified_count


def without_resting(store: Store, found: Sequence[Document], own: Container[Key]) -> list[Document]:
    """Those of the stale jobs that may be tried now, without our *own* ones.

    One that could not be changed rests for a while. One that a transaction has held is left to its owner for
    an interval: a live owner sends a heartbeat as soon as it can write.
    """
    now, by_key = store.clock.now(), {key_of(job["_id"]): job for job in found}
    paused = store.unrecovered.paused(now) if store.unrecovered else ()
    store.conflicts = {key: conflict for key, conflict in store.conflicts.items() if key in by_key}
    resting = {
        key
        for key, conflict in store.conflicts.items()
        if conflict.free_since is not None
        and conflict.free_since + timedelta(milliseconds=by_key[key]["interval"]) > now
    }
    return [
        job
        for key, job in by_key.items()
        if key not in paused and key not in resting and not _is_own(job, own, store)
    ]


def has_conflict(store: Store, found: Document) -> bool:
    """Return whether a transaction has held a stale job since its owner is silent."""
    return key_of(found["_id"]) in store.conflicts


def next_look(store: Store) -> datetime | None:
    """The time at which to look again at what a transaction has held; None if there is nothing."""
    return store.clock.now() + store.options.heartbeat_interval if store.conflicts else None


async def give_up(store: Store, found: Document) -> Document | None:
    """Fail a one-off job whose owners died too often; None as for `put_back`."""
    max_crashes, crashes = store.options.max_retries, crashes_of(found)
    fail = recovery.give_up_crashed(
        _dead(store, found), max_crashes=max_crashes, crashes=crashes, entry=lost_entry(store.options)
    )
    return await _change_stale(store, found, _followed(store, found, fail))


def _followed(store: Store, found: Document, transition: Transition) -> Transition:
    """The transition that gives a job up, and asks for its follow-up, if it is to have one."""
    if (name := on_failure_of(found)) is None:
        return transition
    reason = recovery.crash_reason(crashes_of(found))
    return transition.followed_by(name, attempt_of(found), reason, store.clock.now())


async def cancel(store: Store, found: Document) -> Document | None:
    """Cancel a job of a dead owner, because somebody has asked for it; None as for `put_back`."""
    ended = recent_run("cancelled", store.clock.now()) if is_schedule(found) else None
    return await _change_stale(
        store,
        found,
        recovery.cancel_stale(_dead(store, found), entry=lost_entry(store.options), ended=ended),
    )


async def whole_stale(store: Store, found: Document) -> Document | None:
    """The whole document of a stale job; None if its owner lives after all."""
    with limited():
        same = {"_id": found["_id"], **as_read(found, ["name"])}
        documents = await decoding.find(store.collection, {**same, **_dead(store, found)})
    return {**documents[0], "_id": found["_id"]} if documents else None


async def abandon(
    store: Store, found: Document, schedule: Document, transition: Transition
) -> Document | None:
    """Let a job go on, or end, without the run that died; None if that does not apply any more."""
    transition = _followed(store, {**schedule, "crashes": found["crashes"]}, transition)
    same = {**with_id(schedule["_id"]), **as_read(schedule, ["name"])}
    with limited():
        return await _take(store, schedule["_id"], same, transition)


def _recover(store: Store, dead: Document) -> Transition:
    max_crashes, entry = store.options.max_retries, lost_entry(store.options)
    return recovery.recover(dead, max_crashes=max_crashes, entry=entry)


async def _change_stale(store: Store, found: Document, transition: Transition) -> Document | None:
    # The owner that was read, so that the log names the right one; the name for a sharded collection.
    same = {"_id": found["_id"], **as_read(found, ("name", "claimedBy"))}
    document = await _take(store, found["_id"], same, transition)
    return document and {**document, "_id": found["_id"]}


async def _take(store: Store, job_id: Any, same: Document, transition: Transition) -> Document | None:
    """Take a job from its dead owner; None if that does not apply, or the server refuses to change it.

    A job that cannot be changed must not keep recovery from all others: an index of the user's own may stand
    in its way, or an open transaction. It is logged once, and tried again after a while.
    """
    key = key_of(job_id)
    try:
        return await _without_waiting(store, partial(_change, store, key, same, transition))
    except OperationFailure as refusal:
        if refusal.code == _WRITE_CONFLICT:
            # Not told when it is met first: another instance may be about to take it.
            why, conflict = (
                "a transaction that is open has changed it",
                store.conflicts.setdefault(key, Conflict()),
            )
            conflict.count += 1
            conflict.free_since, is_to_tell = None, conflict.count == 2
        elif isinstance(refusal, WriteError):
            why, is_to_tell = str(refusal), store.unrecovered.add(job_id, now=store.clock.now()) == 1
        else:
            raise
    if is_to_tell:
        message = "job %s of a dead owner cannot be changed and is left as it is: %s"
        fields = {"job_id": str(job_id), "instance_id": store.instance_id}
        logger.error(message, job_id, why, extra=fields)
    return None


async def _change(
    store: Store, key: bytes, same: Document, transition: Transition, session: AsyncClientSession | None
) -> Document | None:
    # The kept run is stored first, in the same transaction: another instance that meets our open one must not
    # take that run for one that nobody keeps.
    if (left := transition.leaves) is not None:
        await leave(store.collection, left, session)
    # Not in one command with the read: its error would not say that it is about this document.
    update = await store.collection.update_one({**same, **transition.when}, transition.then, session=session)
    if not update.matched_count:
        if left is not None:
            if session is not None:
                await session.abort_transaction()
            await remove_left(store.collection, left)
        return None
    conflict = store.conflicts.get(key)
    if session is not None and conflict is not None and conflict.free_since is None:
        # The transaction that held it has ended. Its owner may live, and gets the time to say so.
        conflict.free_since = store.clock.now()
        await session.abort_transaction()
        return None
    with suppress(decoding.UnreadableError):  # it is taken from its owner, and nobody can say more of it
        # By the name, too: on another shard the transaction would have to be committed there as well.
        these: Document = {field: same[field] for field in ("_id", "name") if field in same}
        return await decoding.find_one(store.collection, these, session=session)
    return None


async def _without_waiting(store: Store, write: Callable[[AsyncClientSession | None], Awaitable[R]]) -> R:
    """Write to stale jobs in a transaction: there the server does not wait for others, but says so at once.

    A process that is killed within a transaction leaves it open for up to a minute, and one that lives may
    hold it for as long. A write that waits for the end goes through before the heartbeat of a live owner.
    A server that stands alone has no transactions.

    Raises:
        OperationFailure: It is refused; with `_WRITE_CONFLICT` because another transaction is open.
    """
    client, concern = store.collection.database.client, store.collection.write_concern
    with limited():
        while store.server.has_change_streams:
            try:
                async with (
                    client.start_session() as session,
                    await session.start_transaction(write_concern=concern),
                ):
                    return await write(session)
            except OperationFailure as error:
                if error.code == _WRITE_CONFLICT or not error.has_error_label("TransientTransactionError"):
                    raise
                await asyncio.sleep(_PAUSE)
        return await write(None)


async def prune(store: Store, status: str, older_than: timedelta, name: Any = None) -> int:
    """Remove finished jobs, of one *name* or all, that were last changed that long ago; returns how many.

    It works in batches, so that each write stays within the time limit however many there are. Jobs are left
    that still have to do something: whose follow-up is not stored, whose window is open, or whose parent is
    active and will read them.
    """
    now = store.clock.now()
    old: Document = {"status": status, "updatedAt": {"$lt": now - older_than}}
    if name is not None:
        old["name"] = name
    old |= {**FREE, "windowUntil": {"$not": {"$gt": now}}}
    if older_than < AT_LEAST:  # somebody may store a follow-up again, and must find it
        old["$or"] = [{"onFailure": {"$ne": ""}}, {"updatedAt": {"$lt": now - AT_LEAST}}]
    removed, fields, order = 0, {"parent.id": 1}, {"updatedAt": 1}
    async with aclosing(decoding.pages(store.exact, old, fields, size=_PRUNE_AT_ONCE, sort=order)) as pages:
        async for found in pages:
            with limited():
                if not (ids := await _without_children(store, found)):
                    continue
                these = {"_id": {"$in": ids}, **old}
                # Without the hint the server may go through everything that is old, for each batch.
                deleted = (await store.collection.delete_many(these, hint="_id_")).deleted_count
            if not deleted:
                break  # another instance was faster, and goes on
            removed += deleted
    return removed


async def _without_children(store: Store, found: Sequence[Document]) -> list[Any]:
    """The ids of the jobs whose parents, if they have any, are not active."""
    parents = {key_of(each["_id"]): each["parent"].get("id") for each in found if _has_parent(each)}
    if not parents:
        return [each["_id"] for each in found]
    query = {"_id": {"$in": list(parents.values())}, "status": {"$in": ["pending", "processing"]}}
    active = {
        key_of(each["_id"]) for each in await decoding.find(store.exact, query, {"_id": 1}, hint="_id_")
    }
    ids = [each["_id"] for each in found]
    return [each for each in ids if key_of(parents.get(key_of(each))) not in active]


def _has_parent(job: Document) -> bool:
    return isinstance(job.get("parent"), dict)
