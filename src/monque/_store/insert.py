"""Stores new jobs: one or many, with a unique key or without, in a transaction or not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pymongo.asynchronous.client_session import AsyncClientSession
from pymongo.asynchronous.collection import AsyncCollection
from pymongo.errors import BulkWriteError, DuplicateKeyError, PyMongoError

from monque._connect.deadlines import under_deadline
from monque._store.batching import Batching
from monque._store.document import Document
from monque._store.transitions.calls import Terms
from monque._store.unique import Answered, UniqueInserter, is_in_doubt, key_of_call, plainly, refusals
from monque._time.clock import Clock

# A second write goes out beside the first one if this many calls of `enqueue` wait for it. It is small
# because callers wait.
_MANY = 10


class Inserter:
    """Writes new jobs through one handle of the collection."""

    def __init__(self, collection: AsyncCollection[Document], clock: Clock) -> None:
        self._collection = collection
        self.unique = UniqueInserter(collection, clock)
        self._inserts: Batching[Document, None] = Batching(self._insert_together, many=_MANY)

    async def insert(self, document: Document, session: AsyncClientSession | None) -> Document:
        """Store a job and return it; if it has a key that is taken, return the active job that holds it."""
        if "uniqueKey" in document:
            return await self.unique.insert(document, session)
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
        holders = iter(await self.unique.insert_all(keyed, session))
        return [next(holders) if "uniqueKey" in document else document for document in documents]

    async def insert_all_on_terms(
        self,
        documents: Sequence[Document],
        terms: Mapping[int, Terms],
        session: AsyncClientSession | None,
    ) -> list[Answered]:
        """As `insert_all`; for those that have terms, by place, as these say.

        Calls for a key of theirs are answered after all others, in the order given.
        """
        keys = {key_of_call(documents[place]) for place in terms}
        ours = {
            place: each
            for place, each in enumerate(documents)
            if "uniqueKey" in each and key_of_call(each) in keys
        }
        others = [place for place in range(len(documents)) if place not in ours]
        plain = await self.insert_all([documents[place] for place in others], session)
        answers = {
            place: plainly(documents[place], there) for place, there in zip(others, plain, strict=True)
        }
        answers |= await self.unique.insert_all_on_terms(ours, terms, session)
        return [answers[place] for place in range(len(documents))]

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
