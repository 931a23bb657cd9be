"""Takes jobs from dead owners, and removes finished jobs that are old."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from datetime import timedelta

from pymongo.errors import OperationFailure, PyMongoError, WriteError

from monque._connect.deadlines import limited
from monque._store import decoding, planning
from monque._store.document import Document, count_of, key_of
from monque._store.filters import with_id
from monque._store.refused import change_one
from monque._store.settle import leave, remove_left
from monque._store.store import Store
from monque._store.transitions import recovery
from monque._store.transitions.transition import Transition, as_read
from monque._values.history import HistoryEntry
from monque._values.options import Options

logger = logging.getLogger("monque")

# Recovery reads about 200 bytes of each stale job, so a thousand dead jobs take one read and one write. Twice
# as many would make that write twice as long; half as many would need twice as many round trips.
STALE_AT_ONCE = 1000

# A write to a job waits while somebody's open transaction has changed the same job. A process that is killed
# within `complete_in` leaves such a transaction, and the server keeps it for up to a minute. Recovery waits
# this many seconds for one job, and never longer than this part of the allowed silence, before it asks the
# server for the reason. With half of it a slow server is asked more often; with twice, the other jobs wait
# longer, and no heartbeat is sent meanwhile.
_LONGEST_WAIT = 1.0
_PART_OF_SILENCE = 0.1

_WRITE_CONFLICT = 112

# How many jobs one delete removes. Twice as many may take longer than one command may; half as many need
# twice as many round trips.
_PRUNE_AT_ONCE = 1000


async def find_stale(store: Store) -> list[Document]:
    """At most `STALE_AT_ONCE` jobs of dead owners, each with the fields of `recovery.stale_fields`."""
    fields = recovery.stale_fields(max_crashes=store.options.max_retries)
    with limited():
        return await decoding.find(store.exact, store.stale(), fields, limit=STALE_AT_ONCE)


def is_schedule(found: Document) -> bool:
    """Whether a stale job is a schedule, as `recovery.give_up_crashed` tells it."""
    return isinstance(found.get("repeatInterval"), str)


def has_again(found: Document) -> bool:
    """Whether a later call with the same key is noted in a stale job: it runs once more."""
    return found["noted"] is True and not is_schedule(found)


def owner_of(found: Document) -> object:
    """The instance that held a stale job."""
    return found.get("claimedBy")


def crashes_of(found: Document) -> int:
    """How often the owners of a stale job have died, the last one included."""
    return count_of(found, "crashes")


def lost_entry(options: Options) -> HistoryEntry | None:
    """What the history of a job keeps of a run whose process died."""
    if not options.attempt_history:
        return None
    text = "its process died while it ran (crashed, killed or out of memory), or lost the database for long"
    return HistoryEntry("lost", "ProcessDiedError", text, None, 0.0, options.attempt_history)


async def put_back(store: Store, found: Document) -> Document | None:
    """Let a job of a dead owner run again; None if another instance was faster, or the owner lives."""
    return await _change_stale(store, found, _recover(store))


async def put_back_many(store: Store, found: Sequence[Document]) -> int | None:
    """The same for many jobs in one write; returns how many were put back.

    It returns None if one of the jobs cannot be changed now. The others can, each alone.
    """
    if not found:
        return 0
    recover = _recover(store)
    these = {"_id": {"$in": [job["_id"] for job in found]}, **recover.when}
    try:
        with limited(2 * _patience(store)):
            result = await store.collection.update_many(these, recover.then, hint="_id_")
    except WriteError:
        return None
    except PyMongoError as error:
        if not error.timeout:
            raise
        return None
    return result.modified_count


def without_resting(store: Store, found: Sequence[Document]) -> list[Document]:
    """Those of the stale jobs that may be tried now: one that could not be changed rests for a while."""
    paused = store.unrecovered.paused(store.clock.now()) if store.unrecovered else ()
    return [job for job in found if key_of(job["_id"]) not in paused] if paused else list(found)


async def give_up(store: Store, found: Document) -> Document | None:
    """Fail a one-off job whose owners died too often; None as for `put_back`."""
    max_crashes, crashes = store.options.max_retries, crashes_of(found)
    fail = recovery.give_up_crashed(
        store.stale(), max_crashes=max_crashes, crashes=crashes, entry=lost_entry(store.options)
    )
    return await _change_stale(store, found, fail)


async def cancel(store: Store, found: Document) -> Document | None:
    """Cancel a job of a dead owner, because somebody has asked for it; None as for `put_back`."""
    ended = planning.run("cancelled", store.clock.now()) if is_schedule(found) else None
    return await _change_stale(
        store, found, recovery.cancel_stale(store.stale(), entry=lost_entry(store.options), ended=ended)
    )


async def whole_stale(store: Store, found: Document) -> Document | None:
    """The whole document of a stale job; None if its owner lives after all."""
    with limited():
        document = await decoding.find_one(store.collection, {"_id": found["_id"], **store.stale()})
    return document and {**document, "_id": found["_id"]}


async def abandon(store: Store, schedule: Document, transition: Transition) -> Document | None:
    """Let a job go on, or end, without the run that died; None if that does not apply any more."""
    with limited():
        if transition.leaves is not None:
            await leave(store.collection, transition.leaves)
        document = await _take(store, {**with_id(schedule["_id"]), **transition.when}, transition)
        if document is None and transition.leaves is not None:
            await remove_left(store.collection, transition.leaves)
    return document


def _recover(store: Store) -> Transition:
    max_crashes, entry = store.options.max_retries, lost_entry(store.options)
    return recovery.recover(store.stale(), max_crashes=max_crashes, entry=entry)


async def _change_stale(store: Store, found: Document, transition: Transition) -> Document | None:
    # The owner that was read, so that the log names the right one; the name for a sharded collection.
    same = {"_id": found["_id"], **as_read(found, ("name", "claimedBy"))}
    with limited():
        document = await _take(store, {**same, **transition.when}, transition)
    return document and {**document, "_id": found["_id"]}


async def _take(store: Store, query: Document, transition: Transition) -> Document | None:
    """Take a job from its dead owner; None if that does not apply, or the server refuses to change it.

    A job that cannot be changed must not keep recovery from all others: an index of the user's own may stand
    in its way, or an open transaction. It is logged once, and tried again after a while.
    """
    try:
        with limited(_patience(store)):
            return await change_one(store.collection, query, transition.then)
    except WriteError as error:
        why = str(error)
    except PyMongoError as error:
        if not error.timeout:
            raise
        try:
            return await _take_without_waiting(store, query, transition)
        except OperationFailure as refusal:
            if refusal.timeout:
                raise
            if await decoding.find_one(store.exact, query, {"_id": 1}) is None:
                return None  # somebody else was faster
            is_conflict = refusal.code == _WRITE_CONFLICT
            why = "a transaction that is open has changed it" if is_conflict else str(refusal)
    job_id = query["_id"]
    if store.unrecovered.add(job_id, now=store.clock.now()) == 1:
        message = "job %s of a dead owner cannot be changed and is left as it is: %s"
        fields = {"job_id": str(job_id), "instance_id": store.instance_id}
        logger.error(message, job_id, why, extra=fields)
    return None


async def _take_without_waiting(store: Store, query: Document, transition: Transition) -> Document | None:
    """As `_take`, in a transaction: the server does not wait for another one there, but says at once why not.

    So it tells an open transaction from a server that is slow, which gets its time.

    Raises:
        OperationFailure: It cannot be changed; with `_WRITE_CONFLICT` because a transaction is open.
    """
    with limited():
        if not store.server.has_change_streams:  # it stands alone, and nobody has a transaction
            return await change_one(store.collection, query, transition.then)
        concern = store.collection.write_concern
        async with (
            store.collection.database.client.start_session() as session,
            await session.start_transaction(write_concern=concern),
        ):
            return await decoding.find_one_and_update(
                store.collection, query, transition.then, session=session
            )


def _patience(store: Store) -> float:
    return min(_LONGEST_WAIT, _PART_OF_SILENCE * store.silence)


async def prune(store: Store, status: str, older_than: timedelta) -> int:
    """Remove finished jobs that were last changed that long ago; returns how many.

    It works in batches, so that each write stays within the time limit however many there are.
    """
    old = {"status": status, "updatedAt": {"$lt": store.clock.now() - older_than}}
    removed = 0
    while True:
        with limited():
            found = await decoding.find(store.exact, old, {"_id": 1}, limit=_PRUNE_AT_ONCE)
            if not found:
                return removed
            these = {"_id": {"$in": [document["_id"] for document in found]}, **old}
            # Without the hint the server may go through everything that is old, for each batch.
            deleted = (await store.collection.delete_many(these, hint="_id_")).deleted_count
        if not deleted:
            # Another instance was faster, and goes on; or no query matches these ids (bytes that are not
            # UTF-8), and the same would be read again.
            return removed
        removed += deleted
