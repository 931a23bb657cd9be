"""The audit trail as it is stored: one document for each action of an operator.

It is a collection of its own beside the jobs:

    {_id, at, actor, via, action, outcome, jobId?, jobIds?, name?, filter?, count?, errors?, before?, after?,
     note?, address?, requestId?, expireAt}

`jobIds` are the jobs of one piece of an action on many: what was done to a job is found by either.

The trail is a service, never a condition: whoever may not write to it still acts. The first write creates the
collection, and its indexes unless `Options.create_indexes` is False.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import logging
import struct
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, fields
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

from bson import Binary, Decimal128, Int64, ObjectId
from pymongo import DESCENDING, IndexModel
from pymongo.asynchronous.collection import AsyncCollection
from pymongo.errors import OperationFailure, PyMongoError

from monque._connect.deadlines import limited
from monque._store import decoding
from monque._store.document import EARLIEST, Document, milliseconds, time_of
from monque._time.clock import elapsed
from monque._values.errors import InvalidCursorError
from monque._values.job import Job
from monque._values.records import AuditEntry
from monque._values.rules import ids_meant
from monque._values.schedule import Schedule
from monque._values.views import JobFilter
from monque._values.words import driver_reason, storable

SUFFIX = "_audit"
"""What the name of the collection has behind the name of the jobs collection."""

# How long an entry is kept. Half would be gone before a yearly audit asks for the last quarter; twice keeps
# names of people for longer than most companies may.
_KEPT = timedelta(days=90)

# How long the caller waits for the write, in seconds: the action is done by then. With half of it a failover
# would cost entries; with twice, an operator waits for ten seconds for an answer that is there.
_LIMIT = 5.0

# How long nothing is written after the server has refused an entry. With half of it there are more writes in
# vain; with twice, a trail whose disk has room again stays silent for longer.
_REST = 60.0

# What will be refused again: no right (13), a name that is too long (73), a full disk (14031), a collection
# that is a view (166) or is capped.
_REFUSALS = (13, 73, 166, 14031)

# Bounds of what is kept of one value. Half would cut the notes that `check_reason` allows; twice would let
# an entry grow beyond what a page of them should weigh.
_LONGEST_TEXT = 1_000
_DEEPEST = 6
_MOST_VALUES = 200

# Ids of jobs that an entry keeps: as many as the largest piece has.
_MOST_JOBS = 10_000

# What the command line and the management API once called the same actions by different names. Entries that
# have the old ones are shown, and found, under the new ones.
_RENAMED = {
    "pauseSchedule": "schedule-pause",
    "resumeSchedule": "schedule-resume",
    "triggerSchedule": "schedule-run-now",
    "priority": "prioritize",
}

HIDDEN = "•••"
"""Stands for a value that must not be in the trail."""

INDEXES = [
    IndexModel(
        {"jobId": 1, "at": DESCENDING},
        name="monque_audit_job",
        partialFilterExpression={"jobId": {"$exists": True}},
    ),
    IndexModel(
        {"jobIds": 1, "at": DESCENDING},
        name="monque_audit_jobs",
        partialFilterExpression={"jobIds": {"$exists": True}},
    ),
    IndexModel({"at": DESCENDING}, name="monque_audit_at"),
    IndexModel({"expireAt": 1}, name="monque_audit_expiry", expireAfterSeconds=0),
]

logger = logging.getLogger("monque")


class AuditTrail:
    """Writes and reads the audit trail beside one jobs collection."""

    def __init__(self, collection: AsyncCollection[Document], *, create_indexes: bool) -> None:
        self._collection = collection
        self._indexes_wanted = create_indexes
        self._refused_at: float | None = None

    @property
    def is_on(self) -> bool:
        """Whether entries are stored, as far as the last write has shown."""
        return self._refused_at is None

    async def write(self, entry: Document) -> None:
        """Store an entry, by the server's clock. It never fails: what cannot be stored is logged once."""
        if self._refused_at is not None and elapsed() - self._refused_at < _REST:
            return
        try:
            with limited(_LIMIT):
                await self._create_indexes()
                await self._collection.update_one({"_id": ObjectId()}, _stamped(entry), upsert=True)
        except PyMongoError as error:
            self._failed(error)
        else:
            self._refused_at = None

    async def read(
        self, which: Which, place: Place | None, limit: int
    ) -> tuple[list[AuditEntry], Place | None]:
        """At most *limit* entries, the newest first, and the place of the last one if there are more."""
        look = partial(self._look, which, limit + 1)
        found = [] if place is None else await look({"$eq": place.at}, below=place.id)
        if len(found) <= limit:
            found += await look({"$gte": EARLIEST} if place is None else {"$gte": EARLIEST, "$lt": place.at})
        if len(found) > limit:
            # The index has no order among entries of one time. Those of the last time are read by their ids.
            last = found[-1]["at"]
            below = place.id if place is not None and place.at == last else None
            found = [each for each in found if each["at"] != last] + await look({"$eq": last}, below=below)
        page = found[:limit]
        more = Place(page[-1]["at"], page[-1]["_id"]) if len(found) > limit else None
        return [to_entry(each) for each in page], more

    async def _look(
        self, which: Which, limit: int, at: Document, *, below: ObjectId | None = None
    ) -> list[Document]:
        """Entries of some times; if it is one time, by their ids."""
        is_one_time = "$eq" in at
        ids = {} if below is None else {"$lt": below}
        return await decoding.find(
            self._collection,
            # What somebody wrote with another kind of id, or without a date, has no place in the order.
            {**which.query(), "at": at, "_id": {"$type": "objectId", **ids}},
            {"jobIds": 0},  # hundreds of them, which nobody reads
            sort={"_id": DESCENDING} if is_one_time else {"at": DESCENDING},
            limit=limit,
        )

    async def _create_indexes(self) -> None:
        if not self._indexes_wanted:
            return
        await self._collection.create_indexes(INDEXES)
        self._indexes_wanted = False

    def _failed(self, error: PyMongoError) -> None:
        """Log it; after a refusal of the server only once, and rest for a while."""
        is_refusal = isinstance(error, OperationFailure) and error.code in _REFUSALS
        if not is_refusal or self._refused_at is None:
            logger.warning(
                "cannot write to the audit trail %s, the action itself is not affected: %s",
                self._collection.full_name,
                driver_reason(error),
            )
        if is_refusal:
            self._refused_at = elapsed()


@dataclass(frozen=True, slots=True)
class Place:
    """The place of one entry in the trail."""

    at: datetime
    id: ObjectId


@dataclass(frozen=True, slots=True)
class Which:
    """Which entries are meant; None means all."""

    job: Any = None
    actor: str | None = None
    action: str | None = None

    def query(self) -> Document:
        """The query for them, without their time."""
        meant = {"$in": [] if self.job is None else ids_meant(self.job)}
        query: Document = {} if self.job is None else {"$or": [{"jobId": meant}, {"jobIds": meant}]}
        if self.actor is not None:
            query["actor"] = {"$eq": self.actor}
        if self.action is not None:
            query["action"] = {"$in": _names_of(self.action)}
        return query

    def write_cursor(self, place: Place) -> str:
        """Encode a place as text that only the same question accepts."""
        packed = _PLACE.pack(milliseconds(place.at - _EPOCH), place.id.binary)
        return base64.urlsafe_b64encode(packed + self._seal(packed)).decode()

    def read_cursor(self, cursor: object) -> Place:
        """Decode the place that a cursor stands for.

        Raises:
            InvalidCursorError: It was changed, or comes from another question.
        """
        raw = b""
        with suppress(binascii.Error, ValueError):
            raw = base64.b64decode(cursor if isinstance(cursor, str) else "", altchars=b"-_", validate=True)
        packed, seal = raw[: _PLACE.size], raw[_PLACE.size :]
        if len(packed) != _PLACE.size or seal != self._seal(packed):
            raise InvalidCursorError(
                f"the cursor {str(cursor)[:60]!r} does not belong to these audit entries: it was changed on "
                "the way, or it comes from another filter; start again without a cursor"
            )
        at, entry = _PLACE.unpack(packed)
        return Place(_EPOCH + timedelta(milliseconds=at), ObjectId(entry))

    def _seal(self, packed: bytes) -> bytes:
        """Bind a place to this question. It guards against mistakes, not against attacks."""
        described = json.dumps([str(self.job), self.actor, self.action]).encode()
        return hashlib.blake2b(described + b"\0" + packed, digest_size=7).digest()


_EPOCH = datetime.fromtimestamp(0, UTC)
# Twenty bytes, and seven of the seal: their base64 needs no padding.
_PLACE = struct.Struct(">q12s")


def _stamped(entry: Document) -> list[Document]:
    """The update that stores an entry with the times of the server."""
    kept = Int64(milliseconds(_KEPT))
    times = {"at": "$$NOW", "expireAt": {"$add": ["$$NOW", kept]}}
    return [{"$replaceWith": {"$mergeObjects": ["$$ROOT", {"$literal": entry}, times]}}]


def new_entry(**given: Any) -> Document:
    """An entry as it is stored, without its times; what is None is left out."""
    named = {_FIELDS.get(name, name): _kept(name, value) for name, value in given.items()}
    return {name: value for name, value in named.items() if value is not None}


_FIELDS = {"job_id": "jobId", "job_ids": "jobIds", "request_id": "requestId"}


def _names_of(action: str) -> list[str]:
    """The names under which an action may be stored, whichever of them is asked for."""
    name = _RENAMED.get(action, action)
    return [name, *(old for old, new in _RENAMED.items() if new == name)]


def to_entry(document: Mapping[str, Any]) -> AuditEntry:
    """A stored entry. Anybody may have written it: what has the wrong type counts as missing."""

    def given(field: str, *kinds: type) -> Any:
        value = document.get(field)
        return value if type(value) in kinds else None

    return AuditEntry(
        id=document["_id"],
        at=time_of(document, "at") or _EPOCH,
        actor=str(document.get("actor", "")),
        via=str(document.get("via", "")),
        action=_RENAMED.get(action := str(document.get("action", "")), action),
        outcome=str(document.get("outcome", "")),
        job_id=document.get("jobId"),
        name=given("name", str),
        filter=given("filter", dict),
        count=given("count", int, Int64),
        errors=given("errors", int, Int64),
        before=given("before", dict),
        after=given("after", dict),
        note=given("note", str),
        address=given("address", str),
        request_id=given("requestId", str),
    )


def _kept(name: str, value: Any) -> Any:
    if isinstance(value, JobFilter):
        value = _filter_fields(value)
    elif isinstance(value, Job):
        value = _job_fields(value)
    elif isinstance(value, Schedule):
        value = _schedule_fields(value)
    if name == "filter" and isinstance(value, Mapping):
        value = _without_secrets(value)
    if name == "job_ids":
        return [_meant(each) for each in value[:_MOST_JOBS]] if value else None
    return _meant(value) if name == "job_id" else plain(value)


def _meant(job_id: Any) -> Any:
    """The id as the job has it, if it can be one."""
    meant = [] if job_id is None else ids_meant(job_id)
    return meant[0] if meant else plain(job_id)


def _filter_fields(jobs: JobFilter) -> Document:
    given = {field.name: getattr(jobs, field.name) for field in fields(jobs)}
    return {_camel(name): value for name, value in given.items() if value is not None}


def _job_fields(job: Job[Any]) -> Document:
    found = {
        "status": str(job.status),
        "nextRunAt": job.next_run_at,
        "failCount": job.fail_count,
        "priority": job.priority or None,
        "updatedAt": job.updated_at,
    }
    return {name: value for name, value in found.items() if value is not None}


def _schedule_fields(schedule: Schedule) -> Document:
    found = {
        "state": schedule.state,
        "cron": schedule.cron,
        "everyMs": None if schedule.every is None else milliseconds(schedule.every),
        "timezone": schedule.timezone,
        "nextRunAt": schedule.next_run_at,
    }
    return {name: value for name, value in found.items() if value is not None}


def _camel(name: str) -> str:
    first, *others = name.split("_")
    return first + "".join(map(str.capitalize, others))


def _without_secrets(given: Mapping[Any, Any]) -> Document:
    """A filter without values of payloads and keys: not everybody who reads the trail may see them."""
    return {name: _hidden(value) if _is_secret(str(name)) else value for name, value in given.items()}


def _is_secret(name: str) -> bool:
    return name in ("payload", "uniqueKey", "unique_key") or name.startswith("payload.")


def _hidden(value: Any) -> Any:
    return dict.fromkeys(value, HIDDEN) if isinstance(value, Mapping) else HIDDEN


def plain(value: Any, depth: int = 0) -> Any:
    """A value that can be stored whatever it is: bounded, and without keys that are operators."""
    if value is None or isinstance(value, bool | float | ObjectId | Decimal128):
        return value
    if isinstance(value, int):
        return int(value) if -(2**63) <= value < 2**63 else str(value)
    if isinstance(value, datetime):
        return value if value.utcoffset() is not None else value.replace(tzinfo=UTC)
    if isinstance(value, timedelta):
        return milliseconds(value)
    if isinstance(value, Mapping) and depth < _DEEPEST:
        pairs = list(value.items())[:_MOST_VALUES]
        return {_key(name): plain(each, depth + 1) for name, each in pairs}
    if isinstance(value, list | tuple | set | frozenset) and depth < _DEEPEST:
        return [plain(each, depth + 1) for each in list(value)[:_MOST_VALUES]]
    return _text(f"{len(value)} bytes" if isinstance(value, bytes | Binary) else value)


def _key(name: object) -> str:
    """A key that can be stored: no NUL, and no dollar in front."""
    return _text(name).replace("\0", "").removeprefix("$")


def _text(value: object) -> str:
    text = storable(str(value))
    return text if len(text) <= _LONGEST_TEXT else text[: _LONGEST_TEXT - 1] + "…"
