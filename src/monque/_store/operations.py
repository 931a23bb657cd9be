"""What operators read and change: performed on the collection, never loading what matches."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from datetime import timedelta
from typing import Any

import bson
from bson import ObjectId
from bson.codec_options import CodecOptions, DatetimeConversion
from bson.raw_bson import RawBSONDocument
from pymongo import UpdateOne
from pymongo.asynchronous.collection import AsyncCollection
from pymongo.errors import BulkWriteError, DuplicateKeyError, ExecutionTimeout

from monque._errors import AggregationTimeoutError
from monque._store import transitions
from monque._store.document import CODEC_OPTIONS, EXACT_CODEC_OPTIONS, Document
from monque._store.reads import Listing, Position, beyond_id, with_id
from monque._store.unique import DUPLICATE_KEY, is_key_taken
from monque._views import BulkError, Direction

_STATISTICS_LIMIT = timedelta(seconds=30)
_BATCH = 1000
_KEYED: Document = {"uniqueKey": {"$exists": True}}
_KEYLESS: Document = {"uniqueKey": {"$exists": False}}

# As stored, to the millisecond: a cursor made from a time that was clamped would lead nowhere.
_EXACT: CodecOptions[RawBSONDocument] = CodecOptions(
    document_class=RawBSONDocument,
    datetime_conversion=DatetimeConversion.DATETIME_MS,
    unicode_decode_error_handler="replace",
)


async def read_page(
    collection: AsyncCollection[Document],
    listing: Listing,
    position: Position | None,
    direction: Direction,
    limit: int,
) -> tuple[list[RawBSONDocument], bool]:
    """The documents beyond a position, in the order of reading; and whether there are more."""
    exact = collection.with_options(codec_options=_EXACT)
    found: list[RawBSONDocument] = []
    for query, order in listing.stretches(position, direction):
        found += await exact.find(query, sort=order, limit=limit + 1 - len(found)).to_list()
        if len(found) > limit:
            break
    return found[:limit], len(found) > limit


async def read_earliest(
    collection: AsyncCollection[Document], query: Document, *, skip: int, limit: int
) -> list[Document]:
    """The jobs that match, the earliest first."""
    exact = collection.with_options(codec_options=_EXACT)
    found = await exact.find(query, sort={"nextRunAt": 1, "_id": 1}, skip=skip, limit=limit).to_list()
    return [decoded(document) for document in found]


def decoded(document: RawBSONDocument) -> Document:
    """The document as everywhere else, with its exact `_id`: users ask for a job by the one that they see."""
    found = bson.decode(document.raw, CODEC_OPTIONS)
    if type(found["_id"]) is not ObjectId:
        found["_id"] = bson.decode(document.raw, EXACT_CODEC_OPTIONS)["_id"]
    return found


async def is_there_any(
    collection: AsyncCollection[Document], listing: Listing, position: Position, direction: Direction
) -> bool:
    """Whether any job lies beyond a position."""
    for query, order in listing.stretches_behind(position, direction):
        if await collection.find_one(query, {"_id": 1}, sort=order) is not None:
            return True
    return False


async def aggregate(collection: AsyncCollection[Document], pipeline: list[Document]) -> list[Document]:
    """Run a pipeline within the time limit for statistics."""
    milliseconds = _STATISTICS_LIMIT // timedelta(milliseconds=1)
    try:
        cursor = await collection.aggregate(pipeline, maxTimeMS=milliseconds, allowDiskUse=True)
        return await cursor.to_list()
    except ExecutionTimeout as error:
        raise AggregationTimeoutError(
            f"the statistics took longer than {_STATISTICS_LIMIT.total_seconds():g} s; "
            "ask for one name, or remove old jobs with Options(retention=...)"
        ) from error


async def cancel_many(collection: AsyncCollection[Document], query: Document) -> int:
    """Cancel the pending jobs among those that match."""
    transition = transitions.cancel()
    result = await collection.update_many({"$and": [query, transition.when]}, transition.then)
    return result.modified_count


async def delete_one(collection: AsyncCollection[Document], job_id: Any) -> bool:
    """Delete one job; whether it was there. The driver tries this again by itself, unlike a `delete_many`."""
    return (await collection.delete_one(with_id(job_id))).deleted_count == 1


async def delete_many(collection: AsyncCollection[Document], query: Document) -> int:
    """Delete all that match."""
    return (await collection.delete_many(query)).deleted_count


async def retry_many(
    collection: AsyncCollection[Document], query: Document, *, spread: timedelta
) -> tuple[int, list[BulkError]]:
    """Put back the failed and cancelled jobs among those that match.

    Jobs without a key go in one command. Those with one may collide with an active holder, which
    would stop such a command halfway, so they are streamed and tried one by one within batches.
    """
    transition = transitions.retry_by_operator(spread=spread)
    matching = [query, transition.when]
    result = await collection.update_many({"$and": [*matching, _KEYLESS]}, transition.then)
    count, errors = result.modified_count, list[BulkError]()
    async for ids in _batches(collection, {"$and": [*matching, _KEYED]}):
        changed, taken = await _retry_batch(collection, ids, transition)
        count += changed
        errors += taken
    return count, errors


async def _batches(collection: AsyncCollection[Document], query: Document) -> AsyncIterator[list[Any]]:
    """The ids that match, in batches by id: a job retried, run and failed again is not met twice."""
    last: Document = {}
    exact = collection.with_options(codec_options=EXACT_CODEC_OPTIONS)
    while True:
        found = await exact.find({"$and": [query, last]}, {"_id": 1}, sort={"_id": 1}, limit=_BATCH).to_list()
        if not found:
            return
        yield [document["_id"] for document in found]
        last = beyond_id(found[-1]["_id"], "$gt")


async def _retry_batch(
    collection: AsyncCollection[Document], ids: list[Any], transition: transitions.Transition
) -> tuple[int, list[BulkError]]:
    writes = [UpdateOne({**with_id(job_id), **transition.when}, transition.then) for job_id in ids]
    try:
        return (await collection.bulk_write(writes, ordered=False)).modified_count, []
    except BulkWriteError as error:
        refused = error.details["writeErrors"]
        if error.details["writeConcernErrors"] or any(entry["code"] != DUPLICATE_KEY for entry in refused):
            raise
        taken = [BulkError(job_id=ids[entry["index"]], error=_why_refused(entry)) for entry in refused]
        return error.details["nModified"], taken


def _why_refused(entry: Mapping[str, Any]) -> str:
    if is_key_taken(entry):
        return "its unique key is held by another active job"
    return f"a unique index refuses it: {entry['errmsg']}"


async def retry_one(
    collection: AsyncCollection[Document], job_id: Any, status: str
) -> Document | DuplicateKeyError | None:
    """Put one job back if it is still in *status*; the error if its key is taken."""
    transition = transitions.retry_by_operator(spread=timedelta(0))
    try:
        return await collection.find_one_and_update(
            {**with_id(job_id), "status": status}, transition.then, return_document=True
        )
    except DuplicateKeyError as error:
        if not is_key_taken(error.details):
            raise  # an index that is not ours: trying again would never end
        return error
