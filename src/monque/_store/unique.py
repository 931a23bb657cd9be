"""Unique keys: who holds one, what a later call with the same key wants, and at most one call in a window.

Windows: of calls with one key, at most one is accepted within a time, whatever becomes of its job.
The accepted job holds its window in `windowKey`, under a unique index, until `windowUntil` by the server's
clock. It is not freed then: the next call does that, if one comes.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from functools import partial
from itertools import product
from typing import Any, NoReturn, TypeAlias, TypeVar

from bson.errors import InvalidBSON
from pymongo import InsertOne, ReturnDocument, UpdateOne
from pymongo.asynchronous.client_session import AsyncClientSession
from pymongo.asynchronous.collection import AsyncCollection
from pymongo.errors import BulkWriteError, DuplicateKeyError, OperationFailure, WriteError

from monque._store import decoding
from monque._store.document import TOO_LARGE, Document, is_recurring, status_of
from monque._store.indexes import UNIQUE_KEY, WINDOW
from monque._store.transitions import calls
from monque._store.transitions.calls import Terms, until
from monque._store.transitions.transition import Transition
from monque._time.clock import Clock
from monque._values.errors import ConnectionError, JobStateError, PayloadError
from monque._values.status import Enqueued, JobStatus

R = TypeVar("R")

_DUPLICATE_KEY = 11000
_KEY_INDEX, _WINDOW_INDEX = UNIQUE_KEY.document["name"], WINDOW.document["name"]

# How often another unique index than ours may refuse a job before that is an error. If two calls store the
# same job, the server may name either index to the loser, and the next try finds the holder.
TRIES = 5

Answered: TypeAlias = tuple[Document, Enqueued]
"""The job that stands for a call, and what became of the call."""

_KEEP = Terms()


class UniqueInserter:
    """Writes jobs with unique keys through one handle of the collection."""

    def __init__(self, collection: AsyncCollection[Document], clock: Clock) -> None:
        self._collection = collection
        self._clock = clock

    async def insert(self, document: Document, session: AsyncClientSession | None) -> Document:
        """Store a job with a key, or return the active job that holds it.

        Raises:
            DuplicateKeyError: Another unique index of the collection refuses the job.
        """
        if session is not None and session.in_transaction:
            return await self._insert_in_transaction(document, session)
        return await until_stored(partial(self._find_or_insert, document, session))

    async def _find_or_insert(
        self, document: Document, session: AsyncClientSession | None
    ) -> Document | None:
        """Try once; None if another job held the key and has ended meanwhile."""
        with suppress(InvalidBSON):
            return await self._collection.find_one_and_update(
                holder_of(document),
                {"$setOnInsert": document},
                upsert=True,
                return_document=ReturnDocument.AFTER,
                session=session,
            )
        # The driver does not decode the answer. The job is stored, or another one holds its key.
        if await decoding.is_there_any(self._collection, {"_id": document["_id"]}, session=session):
            return document
        return await decoding.find_one(self._collection, holder_of(document), session=session)

    async def insert_all(
        self, documents: list[Document], session: AsyncClientSession | None
    ) -> list[Document]:
        """As `insert` for each of them; without a session in few round trips."""
        if session is None:
            return await self._insert_many(documents)
        return [await self.insert(document, session) for document in documents]

    async def _insert_many(self, documents: Sequence[Document]) -> list[Document]:
        """Store jobs with keys, each as `insert` does, in few round trips.

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
        unreadable: list[Any] = []
        for holder in await decoding.find(self._collection, these, left_out=unreadable):
            for name, key in product(_elements(holder["name"]), _elements(holder["uniqueKey"])):
                found[name, key] = holder
        if unreadable:  # it holds a key for as long as nobody repairs it
            raise decoding.UnreadableError(InvalidBSON(f"job {unreadable[0]}"))
        return found

    async def _insert_in_transaction(self, document: Document, session: AsyncClientSession) -> Document:
        """As `insert`, without ever letting a taken key abort the caller's transaction.

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
            if not await decoding.is_there_any(self._collection, {"_id": seen["_id"]}):
                return seen  # stored earlier in this same transaction
            raise conflict(document)  # ended since the snapshot: this job must run once more
        try:
            await self._collection.insert_one(document, session=session)
        except DuplicateKeyError as error:
            if is_key_taken(error.details) or await find_one(holder_of(document)) is not None:
                raise conflict(document) from error
            raise  # another unique index refuses the job, and would do so however often it is tried
        return document

    async def insert_on_terms(
        self, new: Document, terms: Terms, session: AsyncClientSession | None
    ) -> Answered:
        """Store a job; if one with its key is there, do with that what the terms say.

        Each write applies to what it was decided for, or not at all. Then somebody else was faster: look
        again. A transaction would see the same again, so it must run again as a whole.

        Raises:
            JobStateError: The call wants to replace a schedule.
            DuplicateKeyError: Another unique index of the collection refuses the job.
        """
        attempt = partial(self._way(terms), new, terms, session)
        if not _is_in_transaction(session):
            return await until_stored(attempt)
        try:
            answered = await attempt()
        except DuplicateKeyError as error:
            if not is_ours(error):
                raise
            answered = None
        if answered is None:
            raise conflict(new)
        return answered

    def _way(self, terms: Terms) -> Callable[..., Awaitable[Answered | None]]:
        if terms.window is not None:
            return self._accept
        return self._replace if terms.replaces else self._keep

    async def insert_all_on_terms(
        self,
        documents: Mapping[int, Document],
        terms: Mapping[int, Terms],
        session: AsyncClientSession | None,
    ) -> dict[int, Answered]:
        """As `insert_on_terms` for each of these, by place.

        The calls for one key take effect in the order given. The first of each key share one write; what that
        cannot store is done one by one.
        """
        answers = await self._insert_together(documents, terms) if session is None else {}
        for place, document in documents.items():
            if place not in answers:
                answers[place] = await self.insert_on_terms(document, terms.get(place, _KEEP), session)
        return answers

    async def _insert_together(
        self, documents: Mapping[int, Document], terms: Mapping[int, Terms]
    ) -> dict[int, Answered]:
        """Insert the first job of each key in one write; return those that are stored, by place."""
        first: dict[Any, int] = {}
        for place, document in documents.items():
            first.setdefault(key_of_call(document), place)
        if not first:
            return {}
        tried = list(first.values())
        refused: Mapping[int, object] = {}
        try:
            inserts = [_insert(documents[place], terms.get(place, _KEEP)) for place in tried]
            await self._collection.bulk_write(inserts, ordered=False)
        except BulkWriteError as error:
            refused = duplicates(error)
        stored = [place for index, place in enumerate(tried) if index not in refused]
        return {place: (documents[place], Enqueued.NEW) for place in stored}

    async def _accept(
        self, new: Document, terms: Terms, session: AsyncClientSession | None
    ) -> Answered | None:
        """Store the job if none was accepted within its window, and none holds its key. None: look again."""
        window = terms.window or 0
        if _is_in_transaction(session):
            return await self._accept_in_transaction(new, terms, session)
        try:
            query, update = accepting(new, window)
            await self._collection.update_one(query, update, upsert=True, session=session)
        except DuplicateKeyError as error:
            if not is_ours(error):
                raise
        else:
            return new, Enqueued.NEW
        if (accepted := await decoding.find_one(self._collection, open_window(new))) is not None:
            return accepted, Enqueued.THROTTLED
        freed = await self._collection.update_one(ended_window(new), FREED, session=session)
        holder = await decoding.find_one(self._collection, holder_of(new))
        if freed.modified_count or holder is None or holder.get("windowKey") == new["windowKey"]:
            return None  # it is free, or another call has begun the next window
        return await self._held(new, holder, terms, session)

    async def _accept_in_transaction(
        self, new: Document, terms: Terms, session: AsyncClientSession | None
    ) -> Answered | None:
        """As `_accept`, without ever letting a window that is taken abort the caller's transaction.

        So the job that was accepted is looked for first: outside of the transaction's snapshot, and then in
        it, where an earlier call of this very transaction may have stored it.
        """
        find_one = partial(decoding.find_one, self._collection)
        if (accepted := await find_one(open_window(new))) is not None:
            return accepted, Enqueued.THROTTLED
        if (seen := await find_one(open_window(new), session=session)) is not None:
            is_known = await decoding.is_there_any(self._collection, {"_id": seen["_id"]})
            return None if is_known else (seen, Enqueued.THROTTLED)
        await self._collection.update_one(ended_window(new), FREED, session=session)
        ends = self._clock.now() + timedelta(milliseconds=terms.window or 0)
        answered = await self._keep({**new, "windowUntil": ends}, terms, session)
        if answered is not None and answered[1] is not Enqueued.NEW and await find_one(open_window(new)):
            return None  # another call has begun the window since the first look
        return answered

    async def _keep(self, new: Document, terms: Terms, session: AsyncClientSession | None) -> Answered | None:
        """Store the job unless one holds its key; if that runs, perhaps note the call. None: look again."""
        holder, how = plainly(new, await self.insert(new, session))
        return (holder, how) if how is Enqueued.NEW else await self._held(new, holder, terms, session)

    async def _held(
        self, new: Document, holder: Document, terms: Terms, session: AsyncClientSession | None
    ) -> Answered | None:
        """Keep the job that holds the key; if that runs, perhaps note the call. None: look again."""
        if _runs(holder) and not is_recurring(holder) and terms.runs_again:
            return await self._note(new, terms, session)
        return holder, Enqueued.KEPT

    async def _replace(
        self, new: Document, terms: Terms, session: AsyncClientSession | None
    ) -> Answered | None:
        """Give the job that waits the payload of this call, or note the call in one that runs.

        One upsert does it if a pending job holds the key, and if none does. A running one makes the upsert
        fail. None: look again.
        """
        change = calls.replace_waiting(new, terms)
        if _is_in_transaction(session):
            return await self._replace_in_transaction(new, change, terms, session)
        try:
            stored = await self._perform(change, session, upsert=True)
        except DuplicateKeyError as error:
            if not is_key_taken(error.details):
                raise
            return await self._note(new, terms, session)
        assert stored is not None  # noqa: S101 - an upsert returns a document
        return stored, Enqueued.NEW if stored["_id"] == new["_id"] else Enqueued.REPLACED

    async def _replace_in_transaction(
        self, new: Document, change: Transition, terms: Terms, session: AsyncClientSession | None
    ) -> Answered | None:
        """As `_replace`, without ever letting a taken key abort the caller's transaction.

        So the holder is read first, outside of the transaction's snapshot. Without one, this very transaction
        may have stored it.
        """
        holder = await decoding.find_one(self._collection, holder_of(new))
        if holder is not None and (is_recurring(holder) or _runs(holder)):
            return await self._note(new, terms, session)
        replaced = await self._perform(change, session)
        if replaced is not None:
            return replaced, Enqueued.REPLACED
        if holder is not None:
            return None
        return plainly(new, await self.insert(new, session))

    async def _note(self, new: Document, terms: Terms, session: AsyncClientSession | None) -> Answered | None:
        """Note the call in the running job that holds its key; None if that has ended meanwhile."""
        try:
            noted = await self._perform(calls.note_again(new, terms), session)
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
        holder = await decoding.find_one(self._collection, holder_of(new))
        if holder is not None and is_recurring(holder) and terms.replaces:
            _refuse_schedule(new, holder)
        return None

    async def _perform(
        self, change: Transition, session: AsyncClientSession | None, *, upsert: bool = False
    ) -> Document | None:
        return await decoding.find_one_and_update(
            self._collection, change.when, change.then, upsert=upsert, session=session
        )


def _runs(holder: Document) -> bool:
    """Return whether a job is in the middle of its run: it is processing, or has steps and waits."""
    return status_of(holder) is JobStatus.PROCESSING or "steps" in holder


def _elements(value: Any) -> list[str]:
    """The values that the index holds for a stored name or key: of an array, its elements."""
    return [one for one in value if type(one) is str] if isinstance(value, list) else [value]


def _insert(new: Document, terms: Terms) -> InsertOne[Document] | UpdateOne:
    if terms.window is None:
        return InsertOne(new)
    return UpdateOne(*accepting(new, terms.window), upsert=True)


def _refuse_schedule(new: Document, holder: Document) -> NoReturn:
    raise JobStateError(
        f"the key {new['uniqueKey']!r} of {new['name']!r} is held by the schedule {holder['_id']}, which a "
        "call cannot replace; give the call a key of its own, or change the schedule with schedule()",
        job_id=holder["_id"],
        current_status=status_of(holder),
        attempted_action="replace",
    )


def plainly(new: Document, stored: Document) -> Answered:
    """Return what became of a call that keeps what is there."""
    return stored, Enqueued.NEW if stored["_id"] == new["_id"] else Enqueued.KEPT


def key_of_call(document: Document) -> tuple[str, str]:
    """The name and the key, which two calls for the same job have in common."""
    return document["name"], document["uniqueKey"]


def _is_in_transaction(session: AsyncClientSession | None) -> bool:
    return session is not None and session.in_transaction


def holder_of(document: Document) -> Document:
    """Match the active job with this document's name and key."""
    active = {"$in": ["pending", "processing"]}
    return {"name": document["name"], "uniqueKey": document["uniqueKey"], "status": active}


def is_key_taken(details: Mapping[str, Any] | None, index: str = _KEY_INDEX) -> bool:
    """Return whether a duplicate key error comes from this *index* of ours, not from one of the user's.

    The name decides: an index of the user's own may have the same fields and another filter.
    """
    return f" index: {index} dup key" in (details or {}).get("errmsg", "")


REFUSED = "a unique index refuses it"


def why_refused(refusal: Exception) -> str:
    """Name the index or the kind of error, without the values in its text: not everybody may see payloads."""
    if not isinstance(refusal, DuplicateKeyError):
        return f"{type(refusal).__name__} {getattr(refusal, 'code', '')}".strip()
    if is_key_taken(refusal.details):
        return "its unique key is held by another active job"
    text, is_known, _values = (refusal.details or {}).get("errmsg", "").partition(" dup key")
    index = text.rpartition(" index: ")[2].partition(" collation: ")[0]
    return f"{REFUSED}: {index}" if is_known else REFUSED


async def until_stored(attempt: Callable[[], Awaitable[R | None]]) -> R:
    """Repeat an attempt to store a job until it is answered; None means that somebody else was faster.

    A taken key means that, too: two calls raced and the other one won, or its job ended just after it did.
    Each time round somebody has made progress, so this ends, unless the index is not ours.

    Raises:
        DuplicateKeyError: Another unique index of the collection refuses the job.
    """
    refused = 0
    while True:
        try:
            if (answer := await attempt()) is not None:
                return answer
        except DuplicateKeyError as error:
            refused += not is_ours(error)
            if refused == TRIES:
                raise
        await asyncio.sleep(random.uniform(0, 0.005))  # noqa: S311 - spreads contenders


def is_ours(error: DuplicateKeyError) -> bool:
    """Return whether a job with the same key or window refuses this one."""
    return is_key_taken(error.details) or is_key_taken(error.details, _WINDOW_INDEX)


def refusals(error: BulkWriteError) -> dict[int, WriteError]:
    """The errors of the documents that a bulk write did not write, by place.

    The others were written, unless the error also reports that no majority has them.
    """
    return {entry["index"]: _refusal(entry) for entry in error.details["writeErrors"]}


def duplicates(error: BulkWriteError) -> dict[int, WriteError]:
    """The errors of the documents that a unique index refused, by place; all others were written.

    Raises:
        BulkWriteError: The given error, if it reports anything else.
    """
    refused = refusals(error)
    if is_in_doubt(error) or not all(isinstance(each, DuplicateKeyError) for each in refused.values()):
        raise error
    return refused


def is_in_doubt(error: BulkWriteError) -> bool:
    """Return whether the server could not vouch for the write as a whole."""
    return bool(error.details["writeConcernErrors"])


def _refusal(entry: Mapping[str, Any]) -> WriteError:
    kind = DuplicateKeyError if entry["code"] == _DUPLICATE_KEY else WriteError
    return kind(entry.get("errmsg", "refused"), entry["code"], entry)


def conflict(document: Document) -> ConnectionError:
    """The error for a transaction that must run again because its key changed hands."""
    return ConnectionError(
        f"the unique key {document['uniqueKey']!r} of {document['name']!r} changed hands while this "
        "transaction ran; run the transaction again (with_transaction does so by itself)",
        labels=["TransientTransactionError"],
    )


_IS_OPEN = {"$gt": ["$windowUntil", "$$NOW"]}


def accepting(new: Document, window: int) -> tuple[Document, list[Document]]:
    """The upsert that stores a new job with a window of this length: only the server knows when it ends.

    A sharded collection needs the name to know where to store it.
    """
    this = {"_id": new["_id"], "name": new["name"]}
    return this, [{"$replaceWith": {"$mergeObjects": [{"$literal": new}, until(window)]}}]


def open_window(new: Document) -> Document:
    """Match the job that was accepted within the window of this call."""
    return {**_held_window(new), "$expr": _IS_OPEN}


def ended_window(new: Document) -> Document:
    """Match the job whose window this was."""
    return {**_held_window(new), "$expr": {"$not": [_IS_OPEN]}}


FREED: Document = {"$unset": {"windowKey": "", "windowUntil": ""}}


def _held_window(new: Document) -> Document:
    return {"name": new["name"], "windowKey": new["windowKey"]}
