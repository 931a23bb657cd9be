"""The audit trail as it is stored: one document for each action of an operator.

It is a collection of its own beside the jobs:

    {_id, at, actor, via, action, outcome, jobId?, jobIds?, name?, filter?, count?, errors?, before?, after?,
     note?, address?, requestId?, open?, expireAt}

An action on many jobs is one entry, also if it comes in pieces: each adds to its counts, and `open` is there
until the last one has. `jobIds` are the jobs of the first piece. Those of each later piece stand beside it,
in a document without a time, so that it is in no list:

    {_id, of, jobIds, expireAt}

The trail is a service, never a condition: whoever may not write to it still acts. The first write creates the
collection, and its indexes unless `Options.create_indexes` is False.
"""

from __future__ import annotations

import logging
import struct
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, TypeVar

from bson import Binary, Decimal128, Int64, ObjectId
from pymongo import DESCENDING, IndexModel
from pymongo.asynchronous.collection import AsyncCollection
from pymongo.errors import DuplicateKeyError, OperationFailure, PyMongoError

from monque._connect.deadlines import limited
from monque._ops import lists
from monque._store import decoding
from monque._store.document import EARLIEST, Document, key_of, milliseconds, time_of
from monque._store.transitions.transition import counter
from monque._time.clock import Refusals
from monque._values.errors import ConfigurationError, ConnectionError, InvalidCursorError, MonqueError
from monque._values.filter import FILTERS, JobFilter
from monque._values.job import Job
from monque._values.records import AuditEntry, Outcome
from monque._values.rules import ids_meant
from monque._values.schedule import Schedule
from monque._values.views import BulkResult
from monque._values.words import camel, driver_reason, storable

R = TypeVar("R")

SUFFIX = "_audit"
"""The end of the name of the collection, behind the name of the jobs collection."""

# How long an entry is kept: a quarter, and names of people no longer than most companies may.
_KEPT = timedelta(days=90)

# How long the caller waits for the write, in seconds: the action is done by then. A failover fits into it.
_LIMIT = 5.0
# The same for an action that failed because the database is away: its caller waits for the error.
_LIMIT_IN_AN_OUTAGE = 1.0

# How long nothing is written after the server has refused an entry.
_REST = 60.0

# What will be refused again: no right (13), a name that is too long (73), a full disk (14031), a collection
# that is a view (166) or is capped.
_UNAUTHORIZED = 13
_REFUSALS = (_UNAUTHORIZED, 73, 166, 14031)

# Bounds of what is kept of one value. The notes that `check_reason` allows fit.
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
_actions_logger = logging.getLogger("monque.audit")


class AuditTrail:
    """Writes and reads the audit trail beside one jobs collection."""

    def __init__(self, collection: AsyncCollection[Document], *, create_indexes: bool) -> None:
        self._collection = collection
        self._indexes_wanted = create_indexes
        self._refusals = Refusals()

    @property
    def is_on(self) -> bool:
        """True if entries are stored, as far as the last write has shown."""
        return not self._refusals

    async def write(self, entry: Document) -> None:
        """Store an entry, by the server's clock. It never fails: what cannot be stored is logged once."""
        stored = {"$mergeObjects": ["$$ROOT", {"$literal": entry}, {"at": "$$NOW", "expireAt": _EXPIRES}]}
        await self._try(
            lambda: self._collection.update_one({"_id": ObjectId()}, [{"$replaceWith": stored}], upsert=True)
        )

    async def add(
        self, entry_id: ObjectId, piece: Document, *, is_open: bool
    ) -> tuple[ObjectId, Document | None] | None:
        """Add a piece to the entry of its action, or store it as that entry; it never fails.

        Return the id of the entry, and its counts before, which are None if it is new. None if nothing could
        be stored.
        """
        return await self._try(lambda: self._add(entry_id, piece, is_open))

    async def _add(
        self, entry_id: ObjectId, piece: Document, is_open: bool
    ) -> tuple[ObjectId, Document | None]:
        ours = {field: {"$eq": piece[field]} for field in ("actor", "via", "action")}
        # Twice, because two pieces may store the entry at the same time. After that it is somebody else's:
        # whoever has a place can write another one, and nobody may add to the entry of another actor.
        for each in (entry_id, entry_id):
            with suppress(DuplicateKeyError):
                return each, await self._add_to({"_id": each, **ours}, piece, is_open)
        fresh = ObjectId()
        return fresh, await self._add_to({"_id": fresh, **ours}, piece, is_open)

    async def _add_to(self, entry: Document, piece: Document, is_open: bool) -> Document | None:
        update, counts = _added(piece, is_open=is_open), {"count": 1, "errors": 1, "open": 1}
        before = await decoding.find_one_and_update(
            self._collection, entry, update, upsert=True, before=counts
        )
        if before is not None and "jobIds" in piece:
            jobs = {"$literal": {"of": entry["_id"], "jobIds": piece["jobIds"]}}
            stored = {"$mergeObjects": ["$$ROOT", jobs, {"expireAt": _EXPIRES}]}
            await self._collection.update_one({"_id": ObjectId()}, [{"$replaceWith": stored}], upsert=True)
        return before

    async def _try(self, write: Callable[[], Awaitable[R]]) -> R | None:
        """Write, unless the server has refused that a moment ago; None if it failed, which is logged."""
        if not self._refusals.allow_after(_REST):
            return None
        try:
            with limited(_LIMIT):
                await self._create_indexes()
                written = await write()
        except PyMongoError as error:
            self._failed(error)
            return None
        self._refusals.clear()
        return written

    async def read(
        self, which: Which, place: Place | None, limit: int
    ) -> tuple[list[AuditEntry], Place | None]:
        """At most *limit* entries, the newest first, and the place of the last one if there are more."""
        look = partial(self._look, which.query(await self._of_pieces(which)), limit + 1)
        found = [] if place is None else await look({"$eq": place.at}, below=place.id)
        if len(found) <= limit:
            before = which.until if place is None else place.at
            up_to = {} if before is None else {"$lt": before}
            found += await look({"$gte": which.since or EARLIEST, **up_to})
        if len(found) > limit:
            # The index has no order among entries of one time. Those of the last time are read by their ids.
            last = found[-1]["at"]
            below = place.id if place is not None and place.at == last else None
            found = [each for each in found if each["at"] != last] + await look({"$eq": last}, below=below)
        page = found[:limit]
        more = Place(page[-1]["at"], page[-1]["_id"]) if len(found) > limit else None
        return [to_entry(each) for each in page], more

    async def _of_pieces(self, which: Which) -> list[Any]:
        """The ids of the entries of which a later piece has changed the job that is meant."""
        if which.job is None:
            return []
        pieces = {"jobIds": {"$in": ids_meant(which.job)}, "of": {"$exists": True}}
        return [each["of"] for each in await decoding.find(self._collection, pieces, {"of": 1})]

    async def _look(
        self, query: Document, limit: int, at: Document, *, below: ObjectId | None = None
    ) -> list[Document]:
        """Entries of some times; if it is one time, by their ids."""
        is_one_time = "$eq" in at
        ids = {} if below is None else {"$lt": below}
        return await decoding.find(
            self._collection,
            # What somebody wrote with another kind of id, or without a date, has no place in the order.
            {**query, "at": at, "_id": {"$type": "objectId", **ids}},
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
        if not is_refusal or self._refusals.add():
            logger.warning(
                "cannot write to the audit trail %s, the action itself is not affected: %s",
                self._collection.full_name,
                driver_reason(error),
            )


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
    actions: Sequence[str] | None = None
    since: datetime | None = None
    until: datetime | None = None

    def query(self, of_pieces: Sequence[Any] = ()) -> Document:
        """The query for them, without their times; *of_pieces* are entries that name the job elsewhere."""
        meant = {"$in": [] if self.job is None else ids_meant(self.job)}
        elsewhere = [{"_id": {"$in": list(of_pieces)}}] if of_pieces else []
        query: Document = (
            {} if self.job is None else {"$or": [{"jobId": meant}, {"jobIds": meant}, *elsewhere]}
        )
        if self.actor is not None:
            query["actor"] = {"$eq": self.actor}
        if self.actions is not None:
            query["action"] = {"$in": [name for action in self.actions for name in _names_of(action)]}
        return query

    def write_cursor(self, place: Place) -> str:
        """Encode a place as text that only the same question accepts."""
        packed = _PLACE.pack(milliseconds(place.at - _EPOCH), place.id.binary)
        return lists.write_cursor(packed, self._described())

    def read_cursor(self, cursor: object) -> Place:
        """Decode the place that a cursor stands for.

        Raises:
            InvalidCursorError: It was changed, or comes from another question.
        """
        described = self._described()
        return lists.read_cursor(cursor, described, _read_place, of="these audit entries", other="filter")

    def _described(self) -> object:
        actions = None if self.actions is None else sorted(self.actions)
        return ["audit", str(self.job), self.actor, actions, str(self.since), str(self.until)]


def _read_place(packed: bytes) -> Place | None:
    if len(packed) != _PLACE.size:
        return None
    at, entry = _PLACE.unpack(packed)
    return Place(_EPOCH + timedelta(milliseconds=at), ObjectId(entry))


_EPOCH = datetime.fromtimestamp(0, UTC)
_PLACE = struct.Struct(">q12s")


_EXPIRES: Document = {"$add": ["$$NOW", Int64(milliseconds(_KEPT))]}


def _added(piece: Document, *, is_open: bool) -> list[Document]:
    """The update that adds a piece to an entry: its counts, and its outcome and note as they are now."""
    changes: Document = {
        "at": {"$ifNull": ["$at", "$$NOW"]},
        "expireAt": {"$ifNull": ["$expireAt", _EXPIRES]},
        **{field: {"$literal": piece[field]} for field in ("outcome", "note") if field in piece},
        **{field: {"$add": [counter(f"${field}"), piece[field]]} for field in _COUNTS if field in piece},
        **({"open": True} if is_open else {}),
    }
    if "jobIds" in piece:
        is_new = {"$eq": [{"$type": "$at"}, "missing"]}
        changes["jobIds"] = {"$cond": [is_new, {"$literal": piece["jobIds"]}, "$jobIds"]}
    rest = {field: value for field, value in piece.items() if field not in changes}
    gone = [field for field in ("note", "open") if field not in changes]
    return [
        {"$replaceWith": {"$mergeObjects": [{"$literal": rest}, "$$ROOT", changes]}},
        *([{"$unset": gone}] if gone else []),
    ]


_COUNTS = ("count", "errors")


class BulkEntry:
    """The one entry of an action on many jobs, to which each piece adds."""

    def __init__(self, trail: AuditTrail, **about: Any) -> None:
        self._trail, self._about = trail, about
        self.id = ObjectId()
        self._is_over = False

    async def add(self, result: BulkResult, *, is_last: bool) -> bool:
        """Add a piece; return False if the action had ended before, and its last piece is sent once more."""
        refused = {key_of(error.job_id) for error in result.errors}
        piece = new_entry(
            **self._about,
            count=result.count + result.requested,
            errors=len(result.errors),
            job_ids=[job_id for job_id in result.job_ids if key_of(job_id) not in refused],
        )
        added = await self._trail.add(self.id, piece, is_open=not is_last)
        self._is_over = is_last
        if added is None:
            log(piece)  # the log has it, whatever the trail has
            return True
        self.id, before = added
        if before is None:
            log(piece)
        elif is_last:
            known = {field: before[field] for field in _COUNTS if isinstance(before.get(field), int)}
            log({**piece, **{field: piece[field] + count for field, count in known.items()}})
        return before is None or before.get("open") is True

    async def fail(self, error: Exception) -> None:
        """Note that a piece has failed; the next one that succeeds makes up for it, the last one has."""
        if self._is_over:
            return
        texts = [each for each in (self._about["note"], _reason(error)) if each and isinstance(each, str)]
        piece = new_entry(**{**self._about, "outcome": _outcome(error), "note": " ".join(texts) or None})
        log(piece)
        is_away = isinstance(error, ConnectionError) and piece["outcome"] == "failed"
        with limited(_LIMIT_IN_AN_OUTAGE if is_away else _LIMIT):
            await self._trail.add(self.id, piece, is_open=True)


def _outcome(error: Exception) -> Outcome:
    cause = error.__cause__
    is_refused = isinstance(cause, OperationFailure) and cause.code == _UNAUTHORIZED
    return "refused" if is_refused else "failed"


def _reason(error: Exception) -> str | None:
    """Return why it failed. Texts that may hold a unique key or part of a payload are not for the trail."""
    if not isinstance(error, MonqueError):
        return None
    is_wrong = isinstance(error, ConfigurationError | InvalidCursorError)
    return "what was given cannot be used" if is_wrong else str(error)


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
    return {camel(name): value for name in FILTERS if (value := getattr(jobs, name)) is not None}


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


def _without_secrets(given: Mapping[Any, Any]) -> Document:
    """A filter without values of payloads and keys: not everybody who reads the trail may see them."""
    return {name: _hidden(value) if _is_secret(str(name)) else value for name, value in given.items()}


def _is_secret(name: str) -> bool:
    return any(
        name in (each.name, each.sent_as) or name.startswith(f"{each.sent_as}.")
        for each in FILTERS.values()
        if each.secret
    )


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


def log(entry: Mapping[str, Any]) -> None:
    """Log an action. Texts stand in quotes, so that no line break of theirs begins another line."""
    level = logging.INFO if entry["outcome"] == "done" else logging.WARNING
    if _actions_logger.isEnabledFor(level):
        told = {field: value for field, value in entry.items() if field != "jobIds"}  # hundreds of them
        for state in ("before", "after"):
            if state in told:  # people who may not see payloads read logs
                told[state] = {field: value for field, value in told[state].items() if field != "payload"}
        shown = " ".join(f"{field}={value!r}" for field, value in told.items())
        _actions_logger.log(
            level, "%s", shown, extra={f"audit_{field}": value for field, value in told.items()}
        )
