"""Reads the change stream and turns it into hints: a job may be due, or a running one is to be cancelled."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import bson
from bson import ObjectId
from bson.errors import InvalidBSON
from bson.raw_bson import RawBSONDocument
from pymongo.asynchronous.change_stream import AsyncChangeStream
from pymongo.asynchronous.collection import AsyncCollection
from pymongo.errors import OperationFailure, PyMongoError

from monque._connect.deadlines import limited
from monque._store.decoding import RAW
from monque._store.document import CODEC_OPTIONS, PARKED
from monque._store.store import Store

# The time for which the server holds a getMore open when nothing happens: idle instances send few commands.
_AWAIT_MILLISECONDS = 10_000
# The connection is dead if nothing came for this many seconds: a getMore, and half as long for a busy server.
_PATIENCE = 15.0
# How often to check, without a command, whether the primary is still the same. After a failover, hints are
# missed for up to this long.
_PRIMARY_CHECK = 0.5

# How many seconds closing the stream may take. A server that is gone would not answer however long we wait.
_CLOSE_TIMEOUT = 1.0

# The server says that it has no change streams at all, or not for this user:
# 13 Unauthorized, 59 CommandNotFound, 115 CommandNotSupported, 238 NotImplemented,
# 40324 unknown stage, 40573 only on replica sets.
_UNAVAILABLE = (13, 59, 115, 238, 40324, 40573)

# Only jobs that became runnable and requests to cancel, and only the fields that a wake-up needs: full
# documents for every instance would grow with instances times jobs. An update carries no name, so it wakes
# all names.
_PIPELINE: list[dict[str, Any]] = [
    {
        "$match": {
            "$or": [
                {"operationType": "insert", "fullDocument.status": "pending"},
                {"operationType": "update", "updateDescription.updatedFields.status": "pending"},
                {"operationType": "update", "updateDescription.updatedFields.nextRunAt": {"$exists": True}},
                {"operationType": "update", "updateDescription.updatedFields.cancel": {"$exists": True}},
                {"operationType": {"$in": ["drop", "rename", "dropDatabase", "invalidate"]}},
            ]
        }
    },
    {
        "$project": {
            "operationType": 1,
            "job_id": "$documentKey._id",
            "name": "$fullDocument.name",
            "priority": "$fullDocument.priority",
            "run_at": {"$ifNull": ["$fullDocument.nextRunAt", "$updateDescription.updatedFields.nextRunAt"]},
            "status": "$updateDescription.updatedFields.status",
        }
    },
]


# An update without a time asks for a poll of all names: it finds whatever a stream has missed.
_ANY_CHANGE: Mapping[str, Any] = {"operationType": "update", "status": "pending"}


@dataclass(frozen=True, slots=True)
class Hint:
    """A job of *name* (None: of any name) may be due at *run_at* (None: now).

    Only the hint of a new job has a name.
    """

    name: str | None
    run_at: datetime | None
    job_id: ObjectId | None = None
    """The job, if it can be claimed by its id."""
    urgent: bool = False
    """The job has a priority."""


@dataclass(frozen=True, slots=True)
class CancelHint:
    """Somebody may have asked for the end of this job, whatever its `_id` is."""

    job_id: Any


class WatchUnavailableError(Exception):
    """This server has no change streams, or not for this user."""


class Watch:
    """One open change stream."""

    def __init__(self, stream: AsyncChangeStream[Any], store: Store, primary: tuple[str, int] | None) -> None:
        self._stream = stream
        self._collection = store.collection
        self._client = store.collection.database.client
        self._primary = primary

    @classmethod
    async def open(cls, store: Store) -> Watch:
        """Open the stream. It misses nothing from then on, until it breaks."""
        try:
            stream = await _open(store.collection)
        except InvalidBSON:  # the first answer has a change already
            stream = await _open(store.collection.with_options(codec_options=RAW))
        except OperationFailure as error:
            if error.code in _UNAVAILABLE:
                raise WatchUnavailableError(str(error)) from error
            raise
        return cls(stream, store, await store.collection.database.client.primary)

    async def hints(self) -> AsyncIterator[Hint | CancelHint]:
        """Yield hints as they come; end when the collection is gone."""
        while self._stream.alive:
            change = await self._next()
            if change is None:
                continue
            if change["operationType"] not in ("insert", "update"):
                return
            hint = hint_of(change)
            if hint is not None:
                yield hint

    async def close(self) -> None:
        """Close the stream on the server, if that answers."""
        closing = asyncio.create_task(self._stream.close())
        try:
            await asyncio.wait({closing}, timeout=_CLOSE_TIMEOUT)
        finally:
            _abandon(closing)

    async def _next(self) -> Mapping[str, Any] | None:
        """The next change, or None after a while without one.

        When a primary is gone, the driver waits half a minute for it before it turns to the new one, and a
        cancellation may take as long. So the driver waits in a task of its own, which can be abandoned.
        """
        waiting = asyncio.create_task(self._stream.try_next())
        patience = asyncio.get_running_loop().time() + _PATIENCE
        try:
            while not (await asyncio.wait({waiting}, timeout=_PRIMARY_CHECK))[0]:
                if await self._client.primary != self._primary:
                    raise PyMongoError("the primary of the change stream is not the primary any more")
                if asyncio.get_running_loop().time() > patience:
                    raise PyMongoError("the change stream went silent")
        except BaseException:
            _abandon(waiting)
            raise
        try:
            with limited(None):
                change = waiting.result()
        except InvalidBSON:
            await self._read_raw()
            return _ANY_CHANGE
        if not isinstance(change, RawBSONDocument):
            return change
        with suppress(InvalidBSON):
            return bson.decode(change.raw, CODEC_OPTIONS)
        return _ANY_CHANGE

    async def _read_raw(self) -> None:
        """Open the stream anew, without the driver's decoding: there is a change that it refuses."""
        await self.close()
        self._stream = await _open(self._collection.with_options(codec_options=RAW))


async def _open(collection: AsyncCollection[Any]) -> AsyncChangeStream[Any]:
    try:
        with limited(None):
            async with asyncio.timeout(_PATIENCE):
                return await collection.watch(_PIPELINE, max_await_time_ms=_AWAIT_MILLISECONDS)
    except TimeoutError:
        raise PyMongoError("the server does not open a change stream") from None


def hint_of(change: Mapping[str, Any]) -> Hint | CancelHint | None:
    """The hint that an insert or update gives; None if there is nothing to do about it.

    Anybody may have written the document. A job whose name is not a text, or whose time is not a date, is
    never claimed, so it is no reason to poll.
    """
    name, run_at, job_id = change.get("name"), change.get("run_at"), change.get("job_id")
    if change["operationType"] == "update" and "run_at" not in change and change.get("status") != "pending":
        # Only `cancel` was written, or it is the record of a job that was cancelled.
        return CancelHint(job_id) if "status" not in change else None
    if change["operationType"] == "insert" and type(name) is not str:
        return None
    # An update may leave the time as it was. Then the event has none, and the job may be due.
    if not isinstance(run_at, datetime) and (change["operationType"] == "insert" or run_at is not None):
        return None
    if run_at == PARKED:
        return None
    # Without a job, the hint asks for a poll. That finds a job whatever its `_id` is.
    return Hint(name, run_at, job_id if isinstance(job_id, ObjectId) else None, "priority" in change)


def _abandon(task: asyncio.Task[Any]) -> None:
    """Cancel a task without waiting for it, and ignore its result."""
    task.cancel()
    task.add_done_callback(lambda task: task.cancelled() or task.exception())
