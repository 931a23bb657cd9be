"""Stores new jobs: one or many, with a unique key or without, in a transaction or not."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial
from itertools import product
from typing import Any

from bson.errors import InvalidBSON
from pymongo import ReturnDocument, UpdateOne
from pymongo.asynchronous.client_session import AsyncClientSession
from pymongo.asynchronous.collection import AsyncCollection
from pymongo.errors import BulkWriteError, DuplicateKeyError, PyMongoError, WriteError

from monque._connect.deadlines import under_deadline
from monque._store import decoding
from monque._store.batching import Batching
from monque._store.document import Document
from monque._store.unique import TRIES, conflict, duplicates, holder_of, is_in_doubt, is_key_taken, refusals

# A second write goes out beside the first one if this many calls of `enqueue` wait for it. It is small
# because callers wait: at twice of it they wait longer, at half of it the writes are smaller and more.
_MANY = 10


class Inserter:
    """Writes new jobs through one handle of the collection."""

    def __init__(self, collection: AsyncCollection[Document]) -> None:
        self._collection = collection
        self._inserts: Batching[Document, None] = Batching(self._insert_together, many=_MANY)

    async def insert(self, document: Document, session: AsyncClientSession | None) -> Document:
        """Store a job and return it; if it has a key that is taken, return the active job that holds it."""
        if "uniqueKey" in document:
            return await self.insert_unique(document, session)
        if session is None and not under_deadline():
            await self._inserts.add(document)
        else:
            await self._collection.insert_one(document, session=session)
        return document

    async def insert_all(
        self, documents: list[Document], session: AsyncClientSession | None
    ) -> list[Document]:
        """As `insert` for each of them, in few round trips; they should fit into one command."""
        keyed = [document for document in documents if "uniqueKey" in document]
        await self._insert_many([document for document in documents if "uniqueKey" not in document], session)
        if session is None:
            holders = iter(await self._insert_unique_many(keyed))
        else:
            holders = iter([await self.insert_unique(document, session) for document in keyed])
        return [next(holders) if "uniqueKey" in document else document for document in documents]

    async def insert_unique(self, document: Document, session: AsyncClientSession | None) -> Document:
        """Store a job with a key, or return the active job that holds it.

        Raises:
            DuplicateKeyError: Another unique index of the collection refuses the job.
        """
        if session is not None and session.in_transaction:
            return await self._insert_unique_in_transaction(document, session)
        refusals = 0
        while True:
            try:
                holder = await self._collection.find_one_and_update(
                    holder_of(document),
                    {"$setOnInsert": document},
                    upsert=True,
                    return_document=ReturnDocument.AFTER,
                    session=session,
                )
            except InvalidBSON:
                # The driver does not decode the answer. The job is stored, or another one holds its key.
                holder = await self._find_stored(document, session)
                if holder is None:
                    continue  # that one has ended meanwhile
            except DuplicateKeyError as error:
                # Two upserts raced and the other one won; or its job ended just after it did. Each time
                # round somebody has made progress, so this ends, unless the index is not ours.
                refusals += not is_key_taken(error.details)
                if refusals == TRIES:
                    raise
                await asyncio.sleep(random.uniform(0, 0.005))  # noqa: S311 - spreads contenders
                continue
            assert holder is not None  # noqa: S101 - an upsert returns a document
            return holder

    async def _find_stored(self, document: Document, session: AsyncClientSession | None) -> Document | None:
        ours = await decoding.find_one(self._collection, {"_id": document["_id"]}, session=session)
        return ours or await decoding.find_one(self._collection, holder_of(document), session=session)

    async def _insert_together(self, documents: list[Document]) -> Sequence[Exception | None]:
        """Write what several calls of `insert` brought; None for each that was stored, else its error."""
        try:
            if len(documents) == 1:
                await self._collection.insert_one(documents[0])
            else:
                await self._collection.insert_many(documents, ordered=False)
        except BulkWriteError as error:
            refused, doubt = refusals(error), error if is_in_doubt(error) else None
            return [refused.get(place, doubt) for place in range(len(documents))]
        except PyMongoError as error:
            return [error] * len(documents)
        return [None] * len(documents)

    async def _insert_many(self, documents: list[Document], session: AsyncClientSession | None) -> None:
        """Store jobs without keys."""
        if not documents:
            return
        try:
            await self._collection.insert_many(documents, ordered=session is not None, session=session)
        except BulkWriteError as error:
            refused = refusals(error).values()
            duplicate = next((each for each in refused if isinstance(each, DuplicateKeyError)), None)
            if duplicate is None or is_in_doubt(error):
                raise
            # The text of a single error is a line. That of a bulk write has all its documents.
            raise duplicate from error

    async def _insert_unique_many(self, documents: Sequence[Document]) -> list[Document]:
        """Store jobs with keys, each as `insert_unique` does, in few round trips.

        Raises:
            DuplicateKeyError: Another unique index refuses one of them; the others are stored.
        """
        holders: dict[int, Document] = {}
        waiting = dict(enumerate(documents))
        refusals: Counter[int] = Counter()
        while waiting:
            places = list(waiting)
            stored, refused = await self._upsert(list(waiting.values()))
            # Not found by reading: a job that is stored may have run and ended before the read, and would be
            # stored again.
            holders.update({places[index]: waiting.pop(places[index]) for index in stored})
            found = await self._holders(list(waiting.values())) if waiting else {}
            for place, document in list(waiting.items()):
                # If it is not among them, its holder ended between the two steps: it is stored next time.
                holder = found.get((document["name"], document["uniqueKey"]))
                if holder is not None:
                    holders[place] = holder
                    del waiting[place]
            for index, error in refused.items():
                refusals[places[index]] += 1
                if places[index] in waiting and refusals[places[index]] == TRIES:
                    raise error
        return [holders[place] for place in range(len(documents))]

    async def _upsert(self, documents: list[Document]) -> tuple[list[int], dict[int, WriteError]]:
        """Store those without a holder.

        Return the places of those that are stored, and the errors, by place, of those that another unique
        index refused.
        """
        upserts = [UpdateOne(holder_of(each), {"$setOnInsert": each}, upsert=True) for each in documents]
        try:
            answer: Mapping[str, Any] = (
                await self._collection.bulk_write(upserts, ordered=False)
            ).bulk_api_result
            refused = dict[int, WriteError]()
        except BulkWriteError as error:
            # A taken key means that another holder appeared meanwhile: the read that follows finds it.
            answer = error.details
            refused = {at: each for at, each in duplicates(error).items() if not is_key_taken(each.details)}
        return [entry["index"] for entry in answer["upserted"]], refused

    async def _holders(self, documents: list[Document]) -> dict[tuple[str, str], Document]:
        found: dict[tuple[str, str], Document] = {}
        these = {"$or": [holder_of(document) for document in documents]}
        for holder in await decoding.find(self._collection, these):
            for name, key in product(_elements(holder["name"]), _elements(holder["uniqueKey"])):
                found[name, key] = holder
        return found

    async def _insert_unique_in_transaction(
        self, document: Document, session: AsyncClientSession
    ) -> Document:
        """As `insert_unique`, without ever letting a taken key abort the caller's transaction.

        A duplicate key error would abort it, so the holder is looked up first, outside of the
        transaction's snapshot: one committed after the snapshot was taken counts, one that ended since
        does not.
        """
        find_one = partial(decoding.find_one, self._collection)
        holder = await find_one(holder_of(document))
        if holder is not None:
            return holder
        seen = await find_one(holder_of(document), session=session)
        if seen is not None:
            if await find_one({"_id": seen["_id"]}, {"_id": 1}) is None:
                return seen  # stored earlier in this same transaction
            raise conflict(document)  # ended since the snapshot: this job must run once more
        try:
            await self._collection.insert_one(document, session=session)
        except DuplicateKeyError as error:
            if is_key_taken(error.details) or await find_one(holder_of(document)) is not None:
                raise conflict(document) from error
            raise  # another unique index refuses the job, and would do so however often it is tried
        return document


def _elements(value: Any) -> list[str]:
    """The values that the index holds for a stored name or key: of an array, its elements."""
    return [one for one in value if type(one) is str] if isinstance(value, list) else [value]
