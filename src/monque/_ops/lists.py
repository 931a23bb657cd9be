"""Pages of a sorted list of jobs: the queries that read it from any place, and cursors. No I/O."""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import struct
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, NamedTuple

import bson
from bson import ObjectId
from bson.codec_options import CodecOptions, DatetimeConversion
from bson.datetime_ms import DatetimeMS
from bson.errors import BSONError

from monque._store.decoding import decode
from monque._store.document import Document
from monque._store.filters import beyond_id, compared, matching, times_of, whole_milliseconds
from monque._values.errors import InvalidCursorError
from monque._values.status import JobStatus
from monque._values.views import Direction, JobFilter, Sort

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

# What a filter has beside name, states and times.
_OTHERS = (
    *("expired", "cancelled_by", "priority", "unique_key", "ids", "payload", "schedule_id", "recurring"),
    *("claimed_by", "claimed_after", "claimed_before"),
)


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
    apart: Direction | None = None
    """Set if the job's sort value is an array: the direction in which the list was read. Arrays come last."""


class Stretch(NamedTuple):
    """A part of a list that one query reads, and its order."""

    query: Document
    order: dict[str, int]


@dataclass(frozen=True, slots=True)
class Listing:
    """A sorted, filtered list of jobs, and how to read it from any place in either direction.

    Ids break ties, so that jobs with equal sort values have an order too, and pages neither overlap nor skip.
    Values of all types have their place, in MongoDB's order of types. Only arrays have none: the server sorts
    an array by its smallest element upwards, and by its largest downwards. So jobs with an array come last,
    sorted by id, whichever way the list is read.
    """

    jobs: JobFilter
    sort: Sort
    descending: bool

    def stretches(self, position: Position | None, direction: Direction) -> list[Stretch]:
        """The parts of the list beyond *position* in this direction, in the order of reading."""
        if self.sort == "id":
            return [self._sorted(position, direction)]
        if position is None or position.apart is None:
            return [self._sorted(position, direction), self._arrays(None, direction)]
        rest = self._arrays(position, direction)
        return [rest] if direction == position.apart else [rest, self._sorted(None, direction)]

    def stretches_behind(self, position: Position, direction: Direction) -> list[Stretch]:
        """As `stretches`, without the arrays that would be read last in this direction."""
        stretches = self.stretches(position, direction)
        return stretches if position.apart is not None else stretches[:1]

    def _sorted(self, position: Position | None, direction: Direction) -> Stretch:
        """The jobs that the server can sort."""
        field, way = _FIELDS[self.sort], self._way(direction)
        query = matching(self.jobs)
        if field == "_id":
            by_id = [] if position is None else [self._by_id(position, direction)]
            return Stretch({"$and": [query, *by_id]} if by_id else query, {"_id": way})
        order = {field: way, "_id": way}
        query = {"$and": [query, {field: {"$not": {"$type": "array"}}}]}
        if position is None:
            return Stretch(query, order)
        # Two ranges, each an exact stretch of the index, however many jobs share the value. One range would
        # have a remainder to skip.
        equal = {field: {"$eq": position.value}, **self._by_id(position, direction)}
        either = [self._by_value(field, position.value, direction), equal]
        branches = [
            {"$and": [part, *query["$and"][1:], stretch]} for part in self._parts() for stretch in either
        ]
        return Stretch({"$or": branches}, order)

    def _arrays(self, position: Position | None, direction: Direction) -> Stretch:
        """The jobs whose sort value is an array."""
        arrays = {_FIELDS[self.sort]: {"$type": "array"}}
        by_id = [] if position is None else [self._by_id(position, direction)]
        branches: list[Document] = [{"$and": [part, arrays, *by_id]} for part in self._parts()]
        query = branches[0] if len(branches) == 1 else {"$or": branches}
        return Stretch(query, {"_id": self._way(direction)})

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

    def position_of(self, document: Mapping[str, Any], direction: Direction = "forward") -> Position:
        """The place of a job in this list, read in *direction*; the document's times are `DatetimeMS`."""
        value = None if self.sort == "id" else document.get(_FIELDS[self.sort])
        if isinstance(value, list):
            return Position(document["_id"], apart=direction)
        return Position(document["_id"], value)

    def write_cursor(self, position: Position) -> str:
        """Encode a place as text that only the same list accepts."""
        place = _write_place(position, by_id=self.sort == "id")
        return _text(place + self._seal(place))

    def read_cursor(self, cursor: object) -> Position:
        """Decode the place that a cursor stands for.

        Raises:
            InvalidCursorError: It was changed, or comes from a list with another sort or filter.
        """
        if not isinstance(cursor, str) or not cursor:
            raise InvalidCursorError(f"a cursor is the text that came with a page, got {cursor!r}")
        try:
            raw = base64.b64decode(cursor + "=" * (-len(cursor) % 4), altchars=b"-_", validate=True)
        except (binascii.Error, ValueError):
            raw = b""
        place, seal = raw[:-_SEAL_SIZE], raw[-_SEAL_SIZE:]
        position = None
        if place and seal == self._seal(place) and _text(raw) == cursor:
            position = _read_place(place, by_id=self.sort == "id")
        if position is None:
            raise InvalidCursorError(
                f"the cursor {cursor[:60]!r} does not belong to this list: it was changed on the way, or it "
                "comes from another sort or filter; start again without a cursor"
            )
        return position

    def _seal(self, place: bytes) -> bytes:
        """Bind a place to this list. It is not secret: it guards against mistakes, not against attacks."""
        jobs = self.jobs
        moments = [moment for bounds in times_of(jobs).values() for moment in bounds]
        times = [None if moment is None else whole_milliseconds(moment) for moment in moments]
        others = {each: _sealed(value) for each in _OTHERS if (value := getattr(jobs, each)) is not None}
        whole: list[object] = [self.sort, self.descending, jobs.name, list(jobs.statuses), times]
        if others:
            whole.append(others)
        described = json.dumps(whole, sort_keys=True, default=repr)
        return hashlib.blake2b(described.encode() + b"\0" + place, digest_size=_SEAL_SIZE).digest()

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
    where = {"id": position.job_id, "value": position.value, "apart": position.apart}
    return bytes([len(_SIDES) + side]) + bson.encode(where)


def _read_place(place: bytes, *, by_id: bool) -> Position | None:
    """Decode a place; None if the bytes are not one."""
    side = place[0]
    if side < len(_SIDES):
        if len(place) != _PLACE.size:
            return None
        _, milliseconds, job_id = _PLACE.unpack(place)
        return Position(ObjectId(job_id), None if by_id else DatetimeMS(milliseconds), beyond=_SIDES[side])
    try:
        where = decode(place[1:], _EXACT)
        beyond = _SIDES[side - len(_SIDES)]
        return Position(where["id"], where["value"], beyond, where["apart"]) if len(where) == 3 else None
    except (BSONError, LookupError, RecursionError):
        return None


def _text(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).decode().rstrip("=")
