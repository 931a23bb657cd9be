"""Pages of a sorted list of jobs: the queries that read it from any place, cursors, and the reads."""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from typing import Any, NamedTuple, TypeVar

import bson
from bson import ObjectId
from bson.codec_options import CodecOptions, DatetimeConversion
from bson.datetime_ms import DatetimeMS
from bson.errors import BSONError
from bson.raw_bson import RawBSONDocument
from pymongo.asynchronous.collection import AsyncCollection

from monque._ops.durations import ENDED, TOOK
from monque._ops.filters import matching, whole_milliseconds
from monque._store import decoding
from monque._store.document import (
    CODEC_OPTIONS,
    EXACT_CODEC_OPTIONS,
    PAYLOAD_SIZE,
    Document,
    beyond_id,
    compared,
)
from monque._store.job import to_listed
from monque._store.store import Store
from monque._values.errors import ConfigurationError, InvalidCursorError
from monque._values.filter import FILTERS, JobFilter, check_filter
from monque._values.status import JobStatus
from monque._values.views import MOST_LOOKED_AT, Direction, JobPage, SlowestJobs, Slowness, Sort, check_choice

P = TypeVar("P")

_FIELDS: dict[Sort, str] = {
    "id": "_id",
    "created_at": "createdAt",
    "updated_at": "updatedAt",
    "next_run_at": "nextRunAt",
}
_ENDED_BADLY = frozenset({JobStatus.FAILED, JobStatus.CANCELLED})
_PLACE = struct.Struct(">Bq12s")
_SEAL_SIZE = 8
_SIDES: tuple[Direction | None, ...] = (None, "forward", "backward")
_EXACT: CodecOptions[Document] = CodecOptions(datetime_conversion=DatetimeConversion.DATETIME_MS)


@dataclass(frozen=True, slots=True)
class Position:
    """The place of one job in a sorted list, given by its sort value and its id.

    The value is kept as BSON has it: a year that Python cannot represent must not become another time.
    """

    job_id: Any
    value: Any = None
    """The stored sort value; None if the job has none, or if the list is sorted by id."""
    beyond: Direction | None = None
    """Set if the place is not on the job but just beyond it in this direction, where an empty page was: then
    the way back begins with the job itself."""


class Stretch(NamedTuple):
    """A part of a list that one query reads, and its order."""

    query: Document
    order: dict[str, int]


@dataclass(frozen=True, slots=True)
class Listing:
    """A sorted, filtered list of jobs, and how to read it from any place in either direction.

    Ids break ties, so that jobs with equal sort values have an order too, and pages neither overlap nor skip.
    Values of all types have their place, in MongoDB's order of types. Only arrays have none: the server sorts
    an array by its smallest element upwards, and by its largest downwards. A list that is sorted by a time
    leaves out the jobs that have an array there; counts have them, and so has the list by id.
    """

    jobs: JobFilter
    sort: Sort
    descending: bool

    def stretch(self, position: Position | None, direction: Direction) -> Stretch:
        """The part of the list beyond *position* in this direction."""
        field, way = _FIELDS[self.sort], self._way(direction)
        query = matching(self.jobs)
        if field == "_id":
            by_id = [] if position is None else [self._by_id(position, direction)]
            return Stretch({"$and": [query, *by_id]} if by_id else query, {"_id": way})
        order = {field: way, "_id": way}
        no_array = {field: {"$not": {"$type": "array"}}}
        if position is None:
            return Stretch({"$and": [query, no_array]}, order)
        # Two ranges, each an exact stretch of the index, however many jobs share the value. One range would
        # have a remainder to skip.
        equal = {field: {"$eq": position.value}, **self._by_id(position, direction)}
        either = [self._by_value(field, position.value, direction), equal]
        branches = [{"$and": [part, no_array, each]} for part in self._parts() for each in either]
        return Stretch({"$or": branches}, order)

    def _parts(self) -> list[Document]:
        """The queries that make up the filter: for what ended badly, one a status.

        Each of them is a stretch of the index `monque_failed` in the order of the list. With both in one the
        server sorts all that match.
        """
        statuses = self.jobs.statuses
        if self.sort != "updated_at" or len(statuses) < 2 or not _ENDED_BADLY.issuperset(statuses):
            return [matching(self.jobs)]
        return [matching(replace(self.jobs, status=status)) for status in statuses]

    def _by_value(self, field: str, value: Any, direction: Direction) -> Document:
        if value is None and self._falls(direction):
            # A missing field sorts like null, but an expression treats it as less than null.
            return {field: {"$type": "minKey"}}
        return compared(field, "$lt" if self._falls(direction) else "$gt", value)

    def _by_id(self, position: Position, direction: Direction) -> Document:
        back_to_it = position.beyond not in (None, direction)
        comparison = "$lt" if self._falls(direction) else "$gt"
        return beyond_id(position.job_id, comparison + ("e" if back_to_it else ""))

    def position_of(self, document: Mapping[str, Any]) -> Position:
        """The place of a job in this list; the document's times are `DatetimeMS`."""
        return Position(document["_id"], None if self.sort == "id" else document.get(_FIELDS[self.sort]))

    def write_cursor(self, position: Position) -> str:
        """Encode a place as text that only the same list accepts."""
        return write_cursor(_write_place(position, by_id=self.sort == "id"), self._described())

    def read_cursor(self, cursor: object) -> Position:
        """Decode the place that a cursor stands for.

        Raises:
            InvalidCursorError: It was changed, or comes from a list with another sort or filter.
        """
        read_place = partial(_read_place, by_id=self.sort == "id")
        return read_cursor(cursor, self._described(), read_place, of="this list", other="sort or filter")

    def _described(self) -> object:
        """Everything that makes this list another one than others."""
        given = {name: _sealed(value) for name in FILTERS if (value := getattr(self.jobs, name)) is not None}
        return [self.sort, self.descending, given]

    def _falls(self, direction: Direction) -> bool:
        return self.descending != (direction == "backward")

    def _way(self, direction: Direction) -> int:
        return -1 if self._falls(direction) else 1


def _sealed(value: object) -> object:
    return whole_milliseconds(value) if isinstance(value, datetime) else value


def _write_place(position: Position, *, by_id: bool) -> bytes:
    """Encode an ordinary place in 21 bytes; one with an odd id or value has these as BSON."""
    side = _SIDES.index(position.beyond)
    ordinary = position.value is None if by_id else type(position.value) is DatetimeMS
    if ordinary and type(position.job_id) is ObjectId:
        milliseconds = 0 if by_id else int(position.value)
        return _PLACE.pack(side, milliseconds, position.job_id.binary)
    return bytes([len(_SIDES) + side]) + bson.encode({"id": position.job_id, "value": position.value})


def _read_place(place: bytes, *, by_id: bool) -> Position | None:
    """Decode a place; None if the bytes are not one."""
    side = place[0]
    if side < len(_SIDES):
        if len(place) != _PLACE.size:
            return None
        _, milliseconds, job_id = _PLACE.unpack(place)
        return Position(ObjectId(job_id), None if by_id else DatetimeMS(milliseconds), beyond=_SIDES[side])
    try:
        where = bson.decode(place[1:], _EXACT)
        beyond = _SIDES[side - len(_SIDES)]
        return Position(where["id"], where["value"], beyond) if len(where) == 2 else None
    except (BSONError, LookupError, RecursionError):
        return None


def write_cursor(place: bytes, described: object) -> str:
    """A place as text that only the list with this description accepts."""
    return base64.urlsafe_b64encode(place + _seal(place, described)).decode().rstrip("=")


def read_cursor(
    cursor: object, described: object, read_place: Callable[[bytes], P | None], *, of: str, other: str
) -> P:
    """The place that a cursor stands for.

    Raises:
        InvalidCursorError: It was changed, or comes from a list with another description.
    """
    if not isinstance(cursor, str):
        raise InvalidCursorError(f"a cursor is the text that came with a page, got {cursor!r}")
    try:
        raw = base64.b64decode(cursor + "=" * (-len(cursor) % 4), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        raw = b""
    place, position = raw[:-_SEAL_SIZE], None
    if place and write_cursor(place, described) == cursor:
        position = read_place(place)
    if position is None:
        raise InvalidCursorError(
            f"the cursor {cursor[:60]!r} does not belong to {of}: it was changed on the way, or it comes "
            f"from another {other}; start again without a cursor"
        )
    return position


def _seal(place: bytes, described: object) -> bytes:
    """Bind a place to a list. It is not secret: it guards against mistakes, not against attacks."""
    text = json.dumps(described, sort_keys=True, default=repr)
    return hashlib.blake2b(text.encode() + b"\0" + place, digest_size=_SEAL_SIZE).digest()


def listing(jobs: object, sort: Sort, descending: bool, direction: Direction) -> Listing:
    """Check the arguments of `list_jobs`: which jobs, in which order."""
    check_choice("sort", sort, Sort)
    check_choice("direction", direction, Direction)
    if not isinstance(descending, bool):
        raise ConfigurationError(f"descending must be True or False, got {descending!r}")
    return Listing(check_filter(jobs), sort, descending)


async def read_page(
    store: Store,
    listing: Listing,
    start: Position | None,
    direction: Direction,
    limit: int,
    payload_limit: int | None,
) -> JobPage:
    """Read at most *limit* jobs in one direction, beginning after *start*."""
    collection = store.collection
    found, more = await _read(collection, listing, start, direction, limit, payload_limit)
    back: Direction = "backward" if direction == "forward" else "forward"
    if found:
        first = listing.position_of(found[0].exact)
        last = listing.position_of(found[-1].exact)
    elif start is not None:
        first = last = replace(start, beyond=direction)
    else:
        return JobPage(
            jobs=[],
            cursor=None,
            next_cursor=None,
            previous_cursor=None,
            has_next_page=False,
            has_previous_page=False,
        )
    # Without a start the page begins where the list does, so nothing is behind it.
    behind = start is not None and await _is_there_any(collection, listing, first, back)
    onward = listing.write_cursor(last) if more else None
    backward = listing.write_cursor(first) if behind else None
    forwards = direction == "forward"
    in_order = found if forwards else reversed(found)
    return JobPage(
        jobs=[to_listed(entry.document, store.read) for entry in in_order],
        cursor=onward,
        next_cursor=onward if forwards else backward,
        previous_cursor=backward if forwards else onward,
        has_next_page=more if forwards else behind,
        has_previous_page=behind if forwards else more,
    )


# Pages are read without what is long and seldom looked at: ten traces would be 40 kB, a log 60, the values of
# steps a megabyte.
_IN_PAGES: Document = {"history.trace": 0, "log": 0, "steps.v": 0, "signals.v": 0}

# Keeps times as stored, to the millisecond: a cursor that is made from a clamped time would lead nowhere.
_EXACT_TIMES: CodecOptions[Document] = CodecOptions(
    datetime_conversion=DatetimeConversion.DATETIME_MS, unicode_decode_error_handler="replace"
)


async def _read(
    collection: AsyncCollection[Document],
    listing: Listing,
    position: Position | None,
    direction: Direction,
    limit: int,
    payload_limit: int | None,
) -> tuple[list[_Entry], bool]:
    """The documents beyond a position, in the order of reading, and whether there are more."""
    query, order = listing.stretch(position, direction)
    skipped = 0
    while True:
        found = await _read_some(collection, query, order, skipped, limit + 1, payload_limit)
        page, is_last = list(_decoded(found[:limit])), len(found) <= limit
        if page or is_last:
            return page, not is_last
        skipped += limit  # nothing of this page can be decoded


async def _read_some(
    collection: AsyncCollection[Document],
    query: Document,
    order: dict[str, int],
    skip: int,
    limit: int,
    payload_limit: int | None,
) -> list[RawBSONDocument]:
    raw = collection.with_options(codec_options=decoding.RAW)
    if payload_limit is None:
        return await raw.find(query, _IN_PAGES, sort=order, skip=skip, limit=limit).to_list()
    stages: list[Document] = [
        {"$match": query},
        {"$sort": order},
        *([{"$skip": skip}] if skip else []),
        {"$limit": limit},
        *_in_pages(payload_limit),
    ]
    return await (await raw.aggregate(stages)).to_list()


async def read_slowest(
    store: Store,
    jobs: JobFilter,
    by: Slowness,
    limit: int,
    payload_limit: int | None,
    *,
    each_name: bool = False,
) -> SlowestJobs:
    """Read the jobs that took longest, among those of the filter that have ended and changed last."""
    query = {"$and": [matching(jobs), ENDED]}
    raw = store.collection.with_options(codec_options=decoding.RAW)
    chosen: list[Document] = newest(query)
    if each_name:
        # Documents are compared field by field.
        slowest = {"$max": {"took": TOOK[by], "id": "$_id"}}
        groups = [*chosen, {"$group": {"_id": "$name", "slowest": slowest}}]
        found = await decoding.aggregate(store.collection, groups, allowDiskUse=True)
        chosen = [{"$match": {"_id": {"$in": [group["slowest"]["id"] for group in found]}}}]
    stages = [
        *chosen,
        {"$set": {_TOOK: TOOK[by]}},
        {"$match": {_TOOK: {"$ne": None}}},
        {"$sort": {_TOOK: -1, "_id": -1}},
        {"$limit": limit},
        {"$unset": _TOOK},
        *_in_pages(payload_limit),
    ]
    # Without an index in the order of the last change, the server sorts all that match.
    documents = await (await raw.aggregate(stages, allowDiskUse=True)).to_list()
    count = await store.collection.count_documents(query, limit=MOST_LOOKED_AT + 1)
    return SlowestJobs(
        jobs=[to_listed(entry.document, store.read) for entry in _decoded(documents)],
        looked_at=min(count, MOST_LOOKED_AT),
        capped=count > MOST_LOOKED_AT,
    )


def newest(query: Document) -> list[Document]:
    """The stages for those that changed last: two indexes have them, see the page on indexes."""
    return [{"$match": query}, {"$sort": {"updatedAt": -1}}, {"$limit": MOST_LOOKED_AT}]


_TOOK = "_took"
"""A field that no stored job has."""


def _in_pages(payload_limit: int | None) -> list[Document]:
    """The stages that leave out what is long."""
    if payload_limit is None:
        return [{"$project": _IN_PAGES}]
    # A projection that leaves fields out cannot also compute some.
    return [
        {"$project": {**_IN_PAGES, "again.data": 0}},
        {"$set": _small("data", payload_limit) | {PAYLOAD_SIZE: _size_above("data", payload_limit)}},
        {"$set": _small("result", payload_limit)},
    ]


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
    return [entry.document for entry in _decoded(found)]


class _Entry(NamedTuple):
    """A document as it is stored, for its place in a list, and as it is shown."""

    raw: RawBSONDocument
    document: Document

    @property
    def exact(self) -> Document:
        """The document with times as stored."""
        return bson.decode(self.raw.raw, _EXACT_TIMES)


def _decoded(documents: Iterable[RawBSONDocument]) -> Iterator[_Entry]:
    """Decode documents as everywhere else, but with exact ids, by which users ask for jobs.

    What the driver refuses to decode is left out.
    """
    for document in documents:
        if (found := decoding.decoded(document, CODEC_OPTIONS)) is not None:
            if type(found["_id"]) is not ObjectId:
                found["_id"] = bson.decode(document.raw, EXACT_CODEC_OPTIONS)["_id"]
            yield _Entry(document, found)


async def _is_there_any(
    collection: AsyncCollection[Document], listing: Listing, position: Position, direction: Direction
) -> bool:
    """Return whether any job lies beyond a position."""
    query, order = listing.stretch(position, direction)
    return await decoding.is_there_any(collection, query, sort=order)
