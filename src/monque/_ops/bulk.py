"""Pages of jobs as they are read, and actions on many jobs, in pieces by their ids.

An action on many jobs in pieces, in the order of their ids: each piece says where the next one begins.
Nothing is kept between two pieces. Jobs that refuse, or that the action does not apply to, are passed:
however many there are, the pieces come to an end.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from bson import ObjectId
from bson.codec_options import CodecOptions, DatetimeConversion
from bson.errors import InvalidBSON
from bson.raw_bson import RawBSONDocument
from pymongo import UpdateOne
from pymongo.asynchronous.collection import AsyncCollection
from pymongo.errors import BulkWriteError, DuplicateKeyError, ExecutionTimeout, WriteError

from monque._ops.lists import Listing, Position, Stretch
from monque._store import decoding
from monque._store.document import CODEC_OPTIONS, EXACT_CODEC_OPTIONS, PAYLOAD_SIZE, Document, status_of
from monque._store.filters import beyond_id, with_id
from monque._store.transitions import operators
from monque._store.transitions.transition import Transition
from monque._store.unique import duplicates, is_key_taken
from monque._values.errors import AggregationTimeoutError
from monque._values.rules import ids_meant
from monque._values.views import BulkError, Direction


@dataclass(frozen=True, slots=True)
class Piece:
    """The jobs that one call is about."""

    query: Document
    ids: list[Any] = field(default_factory=list)
    """The jobs of the piece; empty if the call is about all that match."""
    statuses: list[Any] = field(default_factory=list)
    """The states that they were in, in the same order."""
    next: Any = None
    """The id after which the next piece begins; None if there is none."""

    def skipped(self, *applicable: str) -> int:
        """How many of its jobs were in none of the states that the action applies to."""
        return sum(status not in applicable for status in self.statuses)

    def met(self, *applicable: str) -> list[Any]:
        """The ids of its jobs that were in one of these states; of all its jobs, without any."""
        found = zip(self.ids, self.statuses, strict=True)
        return [job_id for job_id, status in found if not applicable or status in applicable]


async def read_piece(
    collection: AsyncCollection[Document], query: Document, *, limit: int | None, after: Any
) -> Piece:
    """The first *limit* jobs that match, of those beyond the id *after*; without a limit, all that match.

    The filter stays part of the query: a job that does not match any more when it is written is left alone.
    """
    if limit is None:
        return Piece(query)
    rest = query if after is None else {"$and": [query, beyond_id(ids_meant(after)[0], "$gt")]}
    exact = collection.with_options(codec_options=EXACT_CODEC_OPTIONS)
    found = await decoding.find(exact, rest, {"status": 1}, sort={"_id": 1}, limit=limit + 1)
    piece = found[:limit]
    ids = [document["_id"] for document in piece]
    return Piece(
        query={"$and": [{"_id": {"$in": ids}}, query]},
        ids=ids,
        statuses=[status_of(document) for document in piece],
        next=ids[-1] if len(found) > limit else None,
    )


# Statistics walk through whole indexes. Within half of it large collections would fail, and with twice of it
# an operator waits a minute for an error.
_STATISTICS_LIMIT = timedelta(seconds=30)

# How many jobs with keys one bulk write retries: a twice as large one takes twice as long, with no fewer
# writes.
_BATCH = 1000
_KEYED: Document = {"uniqueKey": {"$exists": True}}
_KEYLESS: Document = {"uniqueKey": {"$exists": False}}

# Pages are read without what is long and seldom looked at: ten traces would be 40 kB, and a log 60.
_IN_PAGES: Document = {"history.trace": 0, "log": 0}

# Keeps times as stored, to the millisecond: a cursor that is made from a clamped time would lead nowhere.
_EXACT_TIMES: CodecOptions[Document] = CodecOptions(
    datetime_conversion=DatetimeConversion.DATETIME_MS, unicode_decode_error_handler="replace"
)


async def read_page(
    collection: AsyncCollection[Document],
    listing: Listing,
    position: Position | None,
    direction: Direction,
    limit: int,
    payload_limit: int | None,
) -> tuple[list[RawBSONDocument], bool]:
    """The documents beyond a position, in the order of reading, and whether there are more."""
    raw = collection.with_options(codec_options=decoding.RAW)
    found: list[RawBSONDocument] = []
    for stretch in listing.stretches(position, direction):
        found += await _read_stretch(raw, stretch, limit + 1 - len(found), payload_limit)
        if len(found) > limit:
            break
    return found[:limit], len(found) > limit


async def _read_stretch(
    collection: AsyncCollection[RawBSONDocument], stretch: Stretch, limit: int, payload_limit: int | None
) -> list[RawBSONDocument]:
    if payload_limit is None:
        return await collection.find(stretch.query, _IN_PAGES, sort=stretch.order, limit=limit).to_list()
    # A projection that leaves fields out cannot also compute some.
    stages: list[Document] = [
        {"$match": stretch.query},
        {"$sort": stretch.order},
        {"$limit": limit},
        {"$project": {**_IN_PAGES, "again.data": 0}},
        {"$set": _small("data", payload_limit) | {PAYLOAD_SIZE: _size_above("data", payload_limit)}},
        {"$set": _small("result", payload_limit)},
    ]
    return await (await collection.aggregate(stages)).to_list()


def _small(field: str, limit: int) -> Document:
    return {field: {"$cond": [{"$lte": [_size_of(field), limit]}, f"${field}", "$$REMOVE"]}}


def _size_above(field: str, limit: int) -> Document:
    return {"$cond": [{"$lte": [_size_of(field), limit]}, "$$REMOVE", _size_of(field)]}


def _size_of(field: str) -> Document:
    """The bytes of a value in a document of its own: whatever its type is."""
    return {"$bsonSize": {"v": f"${field}"}}


async def read_earliest(
    collection: AsyncCollection[Document], query: Document, *, skip: int, limit: int
) -> list[Document]:
    """The jobs that match, the earliest first."""
    raw = collection.with_options(codec_options=decoding.RAW)
    found = await raw.find(
        query, _IN_PAGES, sort={"nextRunAt": 1, "_id": 1}, skip=skip, limit=limit
    ).to_list()
    return [decoded(document) for document in found]


def exact(document: RawBSONDocument) -> Document:
    """Decode a document with times as stored, for its place in a list."""
    return decoding.decode(document.raw, _EXACT_TIMES)


def decoded(document: RawBSONDocument) -> Document:
    """Decode a document as everywhere else, but with its exact `_id`, by which users ask for the job."""
    found = decoding.decode(document.raw, CODEC_OPTIONS)
    if type(found["_id"]) is not ObjectId:
        found["_id"] = decoding.decode(document.raw, EXACT_CODEC_OPTIONS)["_id"]
    return found


async def is_there_any(
    collection: AsyncCollection[Document], listing: Listing, position: Position, direction: Direction
) -> bool:
    """Whether any job lies beyond a position."""
    for query, order in listing.stretches_behind(position, direction):
        if await decoding.find_one(collection, query, {"_id": 1}, sort=order) is not None:
            return True
    return False


async def aggregate(
    collection: AsyncCollection[Document],
    pipeline: list[Document],
    *,
    max_time: timedelta | None = None,
    hint: str | None = None,
) -> list[Document]:
    """Run a pipeline within a time limit, by default that of statistics."""
    limit = _STATISTICS_LIMIT if max_time is None else max_time
    more: dict[str, Any] = {} if hint is None else {"hint": hint}
    try:
        within = max(limit // timedelta(milliseconds=1), 1)
        return await decoding.aggregate(collection, pipeline, maxTimeMS=within, allowDiskUse=True, **more)
    except ExecutionTimeout as error:
        raise AggregationTimeoutError(
            f"the statistics took longer than {limit.total_seconds():g} s; "
            "ask for one name, or remove old jobs with Options(retention=...)"
        ) from error


async def estimate(collection: AsyncCollection[Document], *, max_time: timedelta | None = None) -> int:
    """About how many documents there are, without counting them."""
    limit = {} if max_time is None else {"maxTimeMS": max(max_time // timedelta(milliseconds=1), 1)}
    try:
        return await collection.estimated_document_count(**limit)
    except ExecutionTimeout as error:
        raise AggregationTimeoutError("the server took too long to say how many jobs it has") from error


async def set_priority_many(collection: AsyncCollection[Document], query: Document, *, priority: int) -> int:
    """Change the priority of the pending jobs among those that match; return how many these are."""
    transition = operators.set_priority(priority=priority)
    result = await collection.update_many({"$and": [query, transition.when]}, transition.then)
    return result.matched_count


async def read_schedules(collection: AsyncCollection[Document], name: str | None) -> list[Document]:
    """The active schedules, by name and key. Every schedule of ours has a key, so its index finds them."""
    query: Document = {
        "uniqueKey": {"$exists": True},
        "status": {"$in": ["pending", "processing"]},
        "repeatInterval": {"$ne": None},
    }
    if name is not None:
        query["name"] = {"$eq": name}
    return await decoding.find(collection, query, sort={"name": 1, "uniqueKey": 1})


async def cancel_many(
    collection: AsyncCollection[Document], query: Document, *, reason: str | None = None
) -> int:
    """Cancel the pending jobs among those that match."""
    transition = operators.cancel(reason=reason)
    result = await collection.update_many({"$and": [query, transition.when]}, transition.then)
    return result.modified_count


async def request_cancel_many(
    collection: AsyncCollection[Document], query: Document, *, reason: str | None = None
) -> int:
    """Ask for the end of the running jobs among those that match; how many of them were not asked before."""
    transition = operators.request_cancel(reason=reason)
    result = await collection.update_many({"$and": [query, transition.when]}, transition.then)
    return result.modified_count


async def count_requested(collection: AsyncCollection[Document], query: Document) -> int:
    """How many of the jobs that match run although somebody has asked for their end."""
    return await collection.count_documents({"$and": [query, operators.stopping()]})


async def delete_one(collection: AsyncCollection[Document], job_id: Any) -> bool:
    """Delete one job; whether it was there. The driver retries this by itself, unlike a `delete_many`."""
    return (await collection.delete_one(with_id(job_id))).deleted_count == 1


async def delete_many(collection: AsyncCollection[Document], query: Document) -> int:
    """Delete all that match."""
    return (await collection.delete_many(query)).deleted_count


async def retry_many(
    collection: AsyncCollection[Document], query: Document, *, spread: timedelta
) -> tuple[int, list[BulkError]]:
    """Put back the failed and cancelled jobs among those that match.

    One command puts back all jobs without a key. A job with a key may collide with an active holder, which
    would stop such a command halfway, so these are read in batches and changed one by one within a bulk
    write.
    """
    transition = operators.retry_by_operator(spread=spread)
    matching = [query, transition.when]
    result = await collection.update_many({"$and": [*matching, _KEYLESS]}, transition.then)
    count, errors = result.modified_count, list[BulkError]()
    async for ids in _batches(collection, {"$and": [*matching, _KEYED]}):
        changed, taken = await _retry_batch(collection, ids, transition)
        count += changed
        errors += taken
    return count, errors


async def _batches(collection: AsyncCollection[Document], query: Document) -> AsyncIterator[list[Any]]:
    """Yield the ids that match, in batches by id: a job that fails again meanwhile is not met twice."""
    last: Document = {}
    exact = collection.with_options(codec_options=EXACT_CODEC_OPTIONS)
    while True:
        rest = {"$and": [query, last]}
        found = await decoding.find(exact, rest, {"_id": 1}, sort={"_id": 1}, limit=_BATCH)
        if not found:
            return
        yield [document["_id"] for document in found]
        last = beyond_id(found[-1]["_id"], "$gt")


async def _retry_batch(
    collection: AsyncCollection[Document], ids: list[Any], transition: Transition
) -> tuple[int, list[BulkError]]:
    writes = [UpdateOne({**with_id(job_id), **transition.when}, transition.then) for job_id in ids]
    try:
        return (await collection.bulk_write(writes, ordered=False)).modified_count, []
    except InvalidBSON:  # a key is taken, and the driver does not decode that key
        return await _retry_each(collection, ids, transition)
    except BulkWriteError as error:
        refused = duplicates(error).items()
        taken = [BulkError(job_id=ids[place], error=_why_refused(refusal)) for place, refusal in refused]
        return error.details["nModified"], taken


async def _retry_each(
    collection: AsyncCollection[Document], ids: list[Any], transition: Transition
) -> tuple[int, list[BulkError]]:
    changed, taken = 0, list[BulkError]()
    for job_id in ids:
        try:
            query = {**with_id(job_id), **transition.when}
            changed += await decoding.find_one_and_update(collection, query, transition.then) is not None
        except DuplicateKeyError as error:
            taken.append(BulkError(job_id=job_id, error=_why_refused(error)))
    return changed, taken


def _why_refused(refusal: WriteError) -> str:
    if is_key_taken(refusal.details):
        return "its unique key is held by another active job"
    return f"a unique index refuses it: {(refusal.details or {}).get('errmsg')}"


async def retry_one(
    collection: AsyncCollection[Document], job_id: Any, status: str
) -> Document | DuplicateKeyError | None:
    """Put one job back if it is still in *status*; return the error if its key is taken."""
    transition = operators.retry_by_operator(spread=timedelta(0))
    try:
        return await decoding.find_one_and_update(
            collection, {**with_id(job_id), "status": status}, transition.then
        )
    except DuplicateKeyError as error:
        if not is_key_taken(error.details):
            raise  # the index is not ours: trying again would never end
        return error
