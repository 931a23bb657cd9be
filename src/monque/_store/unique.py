"""Storing jobs with unique keys: one active job a name and key, and never an error for the others."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any

from pymongo import ReturnDocument, UpdateOne
from pymongo.asynchronous.client_session import AsyncClientSession
from pymongo.asynchronous.collection import AsyncCollection
from pymongo.errors import BulkWriteError, DuplicateKeyError

from monque._errors import ConnectionError
from monque._store.document import Document
from monque._store.indexes import UNIQUE_KEY

DUPLICATE_KEY = 11000
_INDEX = UNIQUE_KEY.document["name"]
# How often another unique index may refuse a job before that is an error. Not at once: if two calls store
# the same job, the loser may hear of either index, and its next try finds the holder. With twice as many
# the error comes 20 ms later; with one, such a race would be an error.
_TRIES = 5


async def insert_unique(
    collection: AsyncCollection[Document], document: Document, session: AsyncClientSession | None = None
) -> Document:
    """Store a job with a key, or return the active job that holds it.

    Raises:
        DuplicateKeyError: Another unique index of the collection refuses the job.
    """
    refusals = 0
    while True:
        try:
            holder = await collection.find_one_and_update(
                holder_of(document),
                {"$setOnInsert": document},
                upsert=True,
                return_document=ReturnDocument.AFTER,
                session=session,
            )
        except DuplicateKeyError as error:
            # Two upserts raced and the other one won; or its job ended just after it did. Each time
            # round somebody has made progress, so this ends, unless the index is not ours.
            refusals += not is_key_taken(error.details)
            if refusals == _TRIES:
                raise
            await asyncio.sleep(random.uniform(0, 0.005))  # noqa: S311 - spreads contenders
            continue
        assert holder is not None  # noqa: S101 - an upsert returns a document
        return holder


async def insert_unique_many(
    collection: AsyncCollection[Document], documents: Sequence[Document]
) -> list[Document]:
    """Store jobs with keys, each as `insert_unique` does, in few round trips.

    Raises:
        DuplicateKeyError: Another unique index of the collection refuses one of them; the others are stored.
    """
    holders: dict[int, Document] = {}
    waiting = dict(enumerate(documents))
    refusals: Counter[int] = Counter()
    while waiting:
        places = list(waiting)
        refused = await _upsert(collection, list(waiting.values()))
        found = await _holders(collection, list(waiting.values()))
        for place, document in list(waiting.items()):
            # Not among them: its holder ended between the two steps. It is stored next time round.
            holder = found.get((document["name"], document["uniqueKey"]))
            if holder is not None:
                holders[place] = holder
                del waiting[place]
        for index, error in refused.items():
            refusals[places[index]] += 1
            if places[index] in waiting and refusals[places[index]] == _TRIES:
                raise error
    return [holders[place] for place in range(len(documents))]


async def insert_unique_in_transaction(
    collection: AsyncCollection[Document], document: Document, session: AsyncClientSession
) -> Document:
    """As `insert_unique`, without ever letting a taken key abort the caller's transaction.

    A duplicate key error would abort it, so the holder is looked up first, outside of the
    transaction's snapshot: one committed after the snapshot was taken counts, one that ended since
    does not.
    """
    holder = await collection.find_one(holder_of(document))
    if holder is not None:
        return holder
    seen = await collection.find_one(holder_of(document), session=session)
    if seen is not None:
        if await collection.find_one({"_id": seen["_id"]}, {"_id": 1}) is None:
            return seen  # stored earlier in this same transaction
        raise conflict(document)  # ended since the snapshot: this job must run once more
    try:
        await collection.insert_one(document, session=session)
    except DuplicateKeyError as error:
        if is_key_taken(error.details) or await collection.find_one(holder_of(document)) is not None:
            raise conflict(document) from error
        raise  # another unique index refuses the job, and would do so however often the transaction runs
    return document


async def _upsert(
    collection: AsyncCollection[Document], documents: list[Document]
) -> dict[int, DuplicateKeyError]:
    """Store those without a holder; the errors, by place, of those that another unique index refused."""
    upserts = [
        UpdateOne(holder_of(document), {"$setOnInsert": document}, upsert=True) for document in documents
    ]
    try:
        await collection.bulk_write(upserts, ordered=False)
    except BulkWriteError as error:
        # A taken key says that another holder appeared meanwhile: the read that follows finds it.
        refused = error.details["writeErrors"]
        if error.details["writeConcernErrors"] or any(entry["code"] != DUPLICATE_KEY for entry in refused):
            raise
        return {
            entry["index"]: DuplicateKeyError(entry["errmsg"], DUPLICATE_KEY, entry)
            for entry in refused
            if not is_key_taken(entry)
        }
    return {}


async def _holders(
    collection: AsyncCollection[Document], documents: list[Document]
) -> dict[tuple[str, str], Document]:
    found: dict[tuple[str, str], Document] = {}
    for start in range(0, len(documents), 1000):
        either = [holder_of(document) for document in documents[start : start + 1000]]
        async for holder in collection.find({"$or": either}):
            for name, key in product(_elements(holder["name"]), _elements(holder["uniqueKey"])):
                found[name, key] = holder
    return found


def is_key_taken(details: Mapping[str, Any] | None) -> bool:
    """Whether a duplicate key error comes from our index of unique keys, and not from one of the user's.

    The name decides: an index of the user's own may have the same fields and another filter.
    """
    return f" index: {_INDEX} dup key" in (details or {}).get("errmsg", "")


def _elements(value: Any) -> list[str]:
    """What the index has of a stored name or key: of an array, which somebody else wrote, its elements."""
    return [one for one in value if type(one) is str] if isinstance(value, list) else [value]


def holder_of(document: Document) -> Document:
    """Match the active job with this document's name and key."""
    active = {"$in": ["pending", "processing"]}
    return {"name": document["name"], "uniqueKey": document["uniqueKey"], "status": active}


def conflict(document: Document) -> ConnectionError:
    """What a transaction must be told that cannot go on because of what others did with its key."""
    return ConnectionError(
        f"the unique key {document['uniqueKey']!r} of {document['name']!r} changed hands while this "
        "transaction ran; run the transaction again (with_transaction does so by itself)",
        labels=["TransientTransactionError"],
    )
