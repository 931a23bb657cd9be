"""The change stream, reduced to hints: "a job of this name may be due at that time"."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from bson import ObjectId
from pymongo.asynchronous.change_stream import AsyncChangeStream
from pymongo.errors import OperationFailure, PyMongoError

from monque._deadlines import limited
from monque._store.store import Store

# How long the server holds a getMore open when nothing happens. Each costs one command.
_AWAIT_MILLISECONDS = 10_000
# Silence beyond that means that the connection is dead.
_PATIENCE = 15.0
# How often to see, without asking the server, whether the primary is still the same.
_GLANCE = 0.5
_GOODBYE = 1.0

# The server says that it has no change streams at all, or not for this user:
# 13 Unauthorized, 59 CommandNotFound, 115 CommandNotSupported, 238 NotImplemented,
# 40324 unknown stage, 40573 only on replica sets.
_UNAVAILABLE = (13, 59, 115, 238, 40324, 40573)

# Only jobs that became runnable, and of those only what a wake-up needs: full documents for every
# instance would grow with instances times jobs. An update carries no name; it rings for everyone.
_PIPELINE: list[dict[str, Any]] = [
    {
        "$match": {
            "$or": [
                {"operationType": "insert", "fullDocument.status": "pending"},
                {"operationType": "update", "updateDescription.updatedFields.status": "pending"},
                {"operationType": "update", "updateDescription.updatedFields.nextRunAt": {"$exists": True}},
                {"operationType": {"$in": ["drop", "rename", "dropDatabase", "invalidate"]}},
            ]
        }
    },
    {
        "$project": {
            "operationType": 1,
            "job_id": "$documentKey._id",
            "name": "$fullDocument.name",
            "run_at": {"$ifNull": ["$fullDocument.nextRunAt", "$updateDescription.updatedFields.nextRunAt"]},
        }
    },
]


@dataclass(frozen=True, slots=True)
class Hint:
    """It may be worth looking for work at *run_at* (now, if None), for this name (any, if None).

    Only a new job comes with its name.
    """

    name: str | None
    run_at: datetime | None
    job_id: ObjectId | None = None
    """The job that it is about."""


class WatchUnavailableError(Exception):
    """This server will never give us a change stream."""


class Watch:
    """One open change stream."""

    def __init__(self, stream: AsyncChangeStream[Any], store: Store, primary: tuple[str, int] | None) -> None:
        self._stream = stream
        self._client = store.collection.database.client
        self._primary = primary

    @classmethod
    async def open(cls, store: Store) -> Watch:
        """Open the stream; from then on nothing is missed until it breaks."""
        try:
            with limited(None):
                async with asyncio.timeout(_PATIENCE):
                    stream = await store.collection.watch(_PIPELINE, max_await_time_ms=_AWAIT_MILLISECONDS)
        except TimeoutError:
            raise PyMongoError("the server does not open a change stream") from None
        except OperationFailure as error:
            if error.code in _UNAVAILABLE:
                raise WatchUnavailableError(str(error)) from error
            raise
        return cls(stream, store, await store.collection.database.client.primary)

    async def hints(self) -> AsyncIterator[Hint]:
        """Hints as they come; ends when the collection is gone."""
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
        """Let the server forget the stream, if it is there to hear that."""
        closing = asyncio.create_task(self._stream.close())
        try:
            await asyncio.wait({closing}, timeout=_GOODBYE)
        finally:
            _leave(closing)

    async def _next(self) -> Mapping[str, Any] | None:
        """The next change, or None after a while without one.

        When a primary is gone, the driver waits half a minute for it to come back before it turns to the
        new one, and cancelling it may take as long. So it waits in a task that can be left behind.
        """
        waiting = asyncio.create_task(self._stream.try_next())
        patience = asyncio.get_running_loop().time() + _PATIENCE
        try:
            while not (await asyncio.wait({waiting}, timeout=_GLANCE))[0]:
                if await self._client.primary != self._primary:
                    raise PyMongoError("the primary of the change stream is not the primary any more")
                if asyncio.get_running_loop().time() > patience:
                    raise PyMongoError("the change stream went silent")
            with limited(None):
                return waiting.result()
        finally:
            _leave(waiting)


def hint_of(change: Mapping[str, Any]) -> Hint | None:
    """The hint that an insert or update gives; None if the job cannot be claimed as it is stored.

    Anybody may have written the document. A job without a text as its name or without a date as its time
    is never claimed, so it is no reason to poll.
    """
    name, run_at, job_id = change.get("name"), change.get("run_at"), change.get("job_id")
    if change["operationType"] == "insert" and type(name) is not str:
        return None
    # An update may leave the time as it was. Then the event has none, and the job may be due.
    if not isinstance(run_at, datetime) and (change["operationType"] == "insert" or run_at is not None):
        return None
    # Without a job, the hint asks for a poll. That finds a job whatever its `_id` is.
    return Hint(name, run_at, job_id if isinstance(job_id, ObjectId) else None)


def _leave(task: asyncio.Task[Any]) -> None:
    """Let a task end in its own time; nobody wants to know how."""
    task.cancel()
    task.add_done_callback(lambda task: task.cancelled() or task.exception())
