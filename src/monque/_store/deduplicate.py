"""Stores jobs on terms: what a call does if a job with its key is there already."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import timedelta
from functools import partial
from typing import Any, NoReturn, TypeAlias

from pymongo import InsertOne, UpdateOne
from pymongo.asynchronous.client_session import AsyncClientSession
from pymongo.errors import BulkWriteError, DuplicateKeyError, OperationFailure

from monque._store import decoding, unique
from monque._store import unique as windows
from monque._store.document import TOO_LARGE, Document, is_recurring, status_of
from monque._store.store import Store
from monque._store.transitions import calls
from monque._store.transitions.transition import Transition
from monque._store.unique import Terms, is_window_taken
from monque._values.errors import JobStateError, PayloadError
from monque._values.status import Enqueued, JobStatus

Answered: TypeAlias = tuple[Document, Enqueued]
"""The job that stands for a call, and what became of the call."""

_KEEP = Terms()


async def insert_on_terms(
    store: Store, new: Document, terms: Terms, session: AsyncClientSession | None
) -> Answered:
    """Store a job; if one with its key is there, do with that what the terms say.

    Each write applies to what it was decided for, or not at all. Then somebody else was faster: look again.
    A transaction would see the same again, so it must run again as a whole.

    Raises:
        JobStateError: The call wants to replace a schedule.
        DuplicateKeyError: Another unique index of the collection refuses the job.
    """
    refusals = 0
    while True:
        try:
            answered = await _way(terms)(store, new, terms, session)
        except DuplicateKeyError as error:
            is_ours = unique.is_key_taken(error.details) or is_window_taken(error.details)
            refusals += not is_ours
            if (_is_in_transaction(session) and not is_ours) or refusals == unique.TRIES:
                raise
            answered = None
        if answered is not None:
            return answered
        if _is_in_transaction(session):
            raise unique.conflict(new)
        await asyncio.sleep(random.uniform(0, 0.005))  # noqa: S311 - spreads contenders


def _way(terms: Terms) -> Callable[..., Awaitable[Answered | None]]:
    if terms.window is not None:
        return _accept
    return _replace if terms.replaces else _keep


async def insert_all_on_terms(
    store: Store,
    documents: Sequence[Document],
    terms: Mapping[int, Terms],
    session: AsyncClientSession | None,
) -> list[Answered]:
    """As `insert_on_terms` for those that have terms, by place, and as `insert` for the others.

    The calls for one key take effect in the order given. The first of each key share one write; what that
    cannot store is done one by one.
    """
    keys = {_key(documents[place]) for place in terms}
    ours = [place for place, each in enumerate(documents) if "uniqueKey" in each and _key(each) in keys]
    others = [place for place in range(len(documents)) if place not in set(ours)]
    plain = await store.inserter.insert_all([documents[place] for place in others], session)
    answers = {place: plainly(documents[place], there) for place, there in zip(others, plain, strict=True)}
    if session is None:
        answers |= await _insert_together(store, documents, terms, ours)
    for place in ours:
        if place not in answers:
            of_call = terms.get(place, _KEEP)
            answers[place] = await insert_on_terms(store, documents[place], of_call, session)
    return [answers[place] for place in range(len(documents))]


def plainly(new: Document, stored: Document) -> Answered:
    """What became of a call that keeps what is there."""
    return stored, Enqueued.NEW if stored["_id"] == new["_id"] else Enqueued.KEPT


async def _insert_together(
    store: Store, documents: Sequence[Document], terms: Mapping[int, Terms], places: Sequence[int]
) -> dict[int, Answered]:
    """Insert the first job of each key in one write; return those that are stored, by place."""
    first: dict[Any, int] = {}
    for place in places:
        first.setdefault(_key(documents[place]), place)
    if not first:
        return {}
    tried = list(first.values())
    refused: Mapping[int, object] = {}
    try:
        inserts = [_insert(documents[place], terms.get(place, _KEEP)) for place in tried]
        await store.collection.bulk_write(inserts, ordered=False)
    except BulkWriteError as error:
        refused = unique.duplicates(error)
    stored = [place for index, place in enumerate(tried) if index not in refused]
    return {place: (documents[place], Enqueued.NEW) for place in stored}


def _insert(new: Document, terms: Terms) -> InsertOne[Document] | UpdateOne:
    if terms.window is None:
        return InsertOne(new)
    return UpdateOne(*windows.accepting(new, terms.window), upsert=True)


async def _accept(
    store: Store, new: Document, terms: Terms, session: AsyncClientSession | None
) -> Answered | None:
    """Store the job if none was accepted within its window, and none holds its key. None: look again."""
    window = terms.window or 0
    if _is_in_transaction(session):
        return await _accept_in_transaction(store, new, terms, session)
    try:
        query, update = windows.accepting(new, window)
        await store.collection.update_one(query, update, upsert=True, session=session)
    except DuplicateKeyError as error:
        if not is_window_taken(error.details) and not unique.is_key_taken(error.details):
            raise
    else:
        return new, Enqueued.NEW
    if (accepted := await decoding.find_one(store.collection, windows.open_window(new))) is not None:
        return accepted, Enqueued.THROTTLED
    freed = await store.collection.update_one(windows.ended_window(new), windows.FREED, session=session)
    holder = await decoding.find_one(store.collection, unique.holder_of(new))
    if freed.modified_count or holder is None or windows.is_held(new, holder):
        return None  # it is free, or another call has begun the next window
    return await _held(store, new, holder, terms, session)


async def _accept_in_transaction(
    store: Store, new: Document, terms: Terms, session: AsyncClientSession | None
) -> Answered | None:
    """As `_accept`, without ever letting a window that is taken abort the caller's transaction.

    So the job that was accepted is looked for first: outside of the transaction's snapshot, and then in it,
    where an earlier call of this very transaction may have stored it.
    """
    find_one = partial(decoding.find_one, store.collection)
    if (accepted := await find_one(windows.open_window(new))) is not None:
        return accepted, Enqueued.THROTTLED
    if (seen := await find_one(windows.open_window(new), session=session)) is not None:
        is_own = await find_one({"_id": seen["_id"]}, {"_id": 1}) is None
        return (seen, Enqueued.THROTTLED) if is_own else None
    await store.collection.update_one(windows.ended_window(new), windows.FREED, session=session)
    ends = store.clock.now() + timedelta(milliseconds=terms.window or 0)
    answered = await _keep(store, {**new, "windowUntil": ends}, terms, session)
    if answered is not None and answered[1] is not Enqueued.NEW and await find_one(windows.open_window(new)):
        return None  # another call has begun the window since the first look
    return answered


async def _keep(
    store: Store, new: Document, terms: Terms, session: AsyncClientSession | None
) -> Answered | None:
    """Store the job unless one holds its key; if that runs, perhaps note the call. None: look again."""
    holder, how = plainly(new, await store.inserter.insert_unique(new, session))
    return (holder, how) if how is Enqueued.NEW else await _held(store, new, holder, terms, session)


async def _held(
    store: Store, new: Document, holder: Document, terms: Terms, session: AsyncClientSession | None
) -> Answered | None:
    """Keep the job that holds the key; if that runs, perhaps note the call. None: look again."""
    is_running = status_of(holder) is JobStatus.PROCESSING and not is_recurring(holder)
    if is_running and terms.runs_again:
        return await _note(store, new, terms, session)
    return holder, Enqueued.KEPT


async def _replace(
    store: Store, new: Document, terms: Terms, session: AsyncClientSession | None
) -> Answered | None:
    """Give the job that waits the payload of this call, or note the call in one that runs. None: look again.

    One upsert does it if a pending job holds the key, and if none does. A running one makes the upsert fail.
    """
    change = calls.replace_waiting(new, terms)
    if _is_in_transaction(session):
        return await _replace_in_transaction(store, new, change, terms, session)
    try:
        stored = await _perform(store, change, session, upsert=True)
    except DuplicateKeyError as error:
        if not unique.is_key_taken(error.details):
            raise
        return await _note(store, new, terms, session)
    assert stored is not None  # noqa: S101 - an upsert returns a document
    return stored, Enqueued.NEW if stored["_id"] == new["_id"] else Enqueued.REPLACED


async def _replace_in_transaction(
    store: Store, new: Document, change: Transition, terms: Terms, session: AsyncClientSession | None
) -> Answered | None:
    """As `_replace`, without ever letting a taken key abort the caller's transaction.

    So the holder is read first, outside of the transaction's snapshot. Without one, this very transaction
    may have stored it.
    """
    holder = await decoding.find_one(store.collection, unique.holder_of(new))
    if holder is not None and (is_recurring(holder) or status_of(holder) is JobStatus.PROCESSING):
        return await _note(store, new, terms, session)
    replaced = await _perform(store, change, session)
    if replaced is not None:
        return replaced, Enqueued.REPLACED
    if holder is not None:
        return None
    return plainly(new, await store.inserter.insert_unique(new, session))


async def _note(
    store: Store, new: Document, terms: Terms, session: AsyncClientSession | None
) -> Answered | None:
    """Note the call in the running job that holds its key; None if that has ended meanwhile."""
    try:
        noted = await _perform(store, calls.note_again(new, terms), session)
    except OperationFailure as error:
        if error.code not in TOO_LARGE:
            raise
        raise PayloadError(
            f"the payload of {new['name']!r} does not fit beside that of the job that runs with the same "
            "key: both stand in one document of at most 16 MB",
            job_name=new["name"],
        ) from error
    if noted is not None:
        return noted, Enqueued.AGAIN
    holder = await decoding.find_one(store.collection, unique.holder_of(new))
    if holder is not None and is_recurring(holder) and terms.replaces:
        _refuse_schedule(new, holder)
    return None


def _refuse_schedule(new: Document, holder: Document) -> NoReturn:
    raise JobStateError(
        f"the key {new['uniqueKey']!r} of {new['name']!r} is held by the schedule {holder['_id']}, which a "
        "call cannot replace; give the call a key of its own, or change the schedule with schedule()",
        job_id=holder["_id"],
        current_status=status_of(holder),
        attempted_action="replace",
    )


async def _perform(
    store: Store, change: Transition, session: AsyncClientSession | None, *, upsert: bool = False
) -> Document | None:
    return await decoding.find_one_and_update(
        store.collection, change.when, change.then, upsert=upsert, session=session
    )


def _key(document: Document) -> tuple[str, str]:
    return document["name"], document["uniqueKey"]


def _is_in_transaction(session: AsyncClientSession | None) -> bool:
    return session is not None and session.in_transaction
