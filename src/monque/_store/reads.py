"""Filters, pages, cursors, statistics: what to ask the collection for. No I/O."""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from bson import ObjectId
from bson.datetime_ms import DatetimeMS

from monque._errors import InvalidCursorError
from monque._store.document import Document
from monque._views import Direction, JobFilter, QueueDepth, QueueStats, Sort

_FIELDS: dict[Sort, str] = {
    "id": "_id",
    "created_at": "createdAt",
    "updated_at": "updatedAt",
    "next_run_at": "nextRunAt",
}
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)
_PLACE = struct.Struct(">Bq12s")
_SIDES: tuple[Direction | None, ...] = (None, "forward", "backward")


def matching(jobs: JobFilter) -> Document:
    """The query for a filter."""
    query: Document = {}
    if jobs.name is not None:
        query["name"] = {"$eq": jobs.name}
    if jobs.statuses:
        query["status"] = {"$in": [status.value for status in jobs.statuses]}
    for field, after, before in (
        ("createdAt", jobs.created_after, jobs.created_before),
        ("updatedAt", jobs.updated_after, jobs.updated_before),
        ("nextRunAt", jobs.due_after, jobs.due_before),
    ):
        bounds = {
            operator: DatetimeMS(_milliseconds(moment))
            for operator, moment in (("$gte", after), ("$lt", before))
            if moment is not None
        }
        if bounds:
            query[field] = bounds
    return query


def _milliseconds(moment: datetime) -> int:
    """The first whole millisecond that is not before *moment*.

    BSON keeps no finer times, so what is stored lies at or after the one exactly if it does so for
    the other. Rounding down would take in a job of the millisecond before.
    """
    return -((_EPOCH - moment) // _MILLISECOND)


@dataclass(frozen=True, slots=True)
class Position:
    """A place in a sorted list of jobs: that of one job, given by its sort value and its id.

    The value is kept as BSON has it: a year that Python cannot hold must not become another time.
    """

    job_id: ObjectId
    value: DatetimeMS | None = None
    beyond: Direction | None = None
    """Not on the job but just beyond it in this direction, where an empty page was found: the way back
    begins with the job itself."""


@dataclass(frozen=True, slots=True)
class Listing:
    """A sorted, filtered list of jobs, and how to read it from any place in either direction.

    Ids break ties, so that jobs with equal sort values have an order too and no page overlaps or
    skips.
    """

    jobs: JobFilter
    sort: Sort
    descending: bool

    def order(self, direction: Direction) -> dict[str, int]:
        """How to sort when reading in this direction."""
        way = -1 if self._falls(direction) else 1
        field = _FIELDS[self.sort]
        return {"_id": way} if field == "_id" else {field: way, "_id": way}

    def query(self, position: Position | None, direction: Direction) -> Document:
        """The jobs that lie beyond *position* in this direction; all without one."""
        query = matching(self.jobs)
        if position is None:
            return query
        beyond = "$lt" if self._falls(direction) else "$gt"
        back_to_it = position.beyond not in (None, direction)
        by_id = {"_id": {beyond + ("e" if back_to_it else ""): position.job_id}}
        field = _FIELDS[self.sort]
        if field == "_id":
            return {"$and": [query, by_id]}
        # Two ranges rather than one with a remainder to skip: each is an exact stretch of the index,
        # however many jobs share the value.
        stretches = [{field: {beyond: position.value}}, {field: {"$eq": position.value}, **by_id}]
        return {"$or": [{"$and": [query, stretch]} for stretch in stretches]}

    def position_of(self, document: Mapping[str, Any]) -> Position:
        """The place of a job in this list; the document's times as `DatetimeMS`."""
        value = None if self.sort == "id" else document[_FIELDS[self.sort]]
        return Position(document["_id"], value)

    def write_cursor(self, position: Position) -> str:
        """The place as text that only the same list accepts."""
        milliseconds = 0 if position.value is None else int(position.value)
        place = _PLACE.pack(_SIDES.index(position.beyond), milliseconds, position.job_id.binary)
        return _text(place + self._seal(place))

    def read_cursor(self, cursor: object) -> Position:
        """The place a cursor means.

        Raises:
            InvalidCursorError: It was changed, or comes from a list with another sort or filter.
        """
        if not isinstance(cursor, str) or not cursor:
            raise InvalidCursorError(f"a cursor is the text that came with a page, got {cursor!r}")
        try:
            raw = base64.b64decode(cursor + "=" * (-len(cursor) % 4), altchars=b"-_", validate=True)
        except (binascii.Error, ValueError):
            raw = b""
        place, seal = raw[: _PLACE.size], raw[_PLACE.size :]
        if len(place) < _PLACE.size or seal != self._seal(place) or _text(raw) != cursor:
            raise InvalidCursorError(
                f"the cursor {cursor[:60]!r} does not belong to this list: it was changed on the way, or it "
                "comes from another sort or filter; start again without a cursor"
            )
        side, milliseconds, job_id = _PLACE.unpack(place)
        value = None if self.sort == "id" else DatetimeMS(milliseconds)
        return Position(ObjectId(job_id), value, _SIDES[side])

    def _seal(self, place: bytes) -> bytes:
        """Binds a place to this list. Not a secret: it guards against mistakes, there is nothing to steal."""
        jobs = self.jobs
        times = (
            jobs.created_after,
            jobs.created_before,
            jobs.updated_after,
            jobs.updated_before,
            jobs.due_after,
            jobs.due_before,
        )
        described = json.dumps(
            [
                self.sort,
                self.descending,
                jobs.name,
                list(jobs.statuses),
                [None if time is None else _milliseconds(time) for time in times],
            ]
        )
        return hashlib.blake2b(described.encode() + b"\0" + place, digest_size=8).digest()

    def _falls(self, direction: Direction) -> bool:
        return self.descending != (direction == "backward")


def _text(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).decode().rstrip("=")


def statistics(name: str | None = None, *, by_name: bool = False) -> list[Document]:
    """Count jobs by status, and by name if asked; and how long completed ones ran."""
    run = {"$subtract": ["$finishedAt", "$startedAt"]}
    measured = {"$eq": ["$status", "completed"]}
    return [
        *([{"$match": {"name": {"$eq": name}}}] if name is not None else []),
        {
            "$group": {
                "_id": {"status": "$status", **({"name": "$name"} if by_name else {})},
                "count": {"$sum": 1},
                # $avg passes over what is no number: jobs without both stamps do not count.
                "duration": {"$avg": {"$cond": [measured, run, None]}},
            }
        },
    ]


def stats_from(groups: Iterable[Mapping[str, Any]]) -> QueueStats:
    """The statistics that groups of one name, or of all, add up to."""
    counts: dict[str, int] = {}
    average = None
    for group in groups:
        status = group["_id"]["status"]
        counts[status] = group["count"]
        if status == "completed" and group["duration"] is not None:
            average = timedelta(milliseconds=group["duration"])
    return QueueStats(**counts, avg_processing_duration=average)


def depths(now: datetime) -> list[Document]:
    """Count the jobs that wait or run, by name; the index of active jobs holds all that is needed."""
    return [
        {"$match": {"status": {"$in": ["pending", "processing"]}}},
        {
            "$group": {
                "_id": {"name": "$name", "status": "$status", "due": {"$lte": ["$nextRunAt", now]}},
                "count": {"$sum": 1},
                "oldest": {"$min": "$nextRunAt"},
            }
        },
    ]


def depths_from(
    groups: Iterable[Mapping[str, Any]], *, besides: Iterable[str], now: datetime
) -> list[QueueDepth]:
    """The depths that groups add up to, sorted by name; *besides* are names to tell of in any case."""
    found = {name: QueueDepth(name=name) for name in besides}
    for group in groups:
        name = str(group["_id"].get("name"))  # a document made by hand may have none
        depth, count = found.get(name, QueueDepth(name=name)), group["count"]
        if group["_id"]["status"] == "processing":
            depth = replace(depth, processing=depth.processing + count)
        elif group["_id"]["due"]:
            oldest = group["oldest"] if isinstance(group["oldest"], datetime) else now
            depth = replace(depth, due=count, oldest_due=now - oldest)
        else:
            depth = replace(depth, later=count)
        found[name] = depth
    return [found[name] for name in sorted(found)]
