"""The jobs collection: handles with their guarantees, changes of one job, and facts about the server."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from copy import copy
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any, TypeVar

import bson
from bson import ObjectId, Regex
from bson.codec_options import CodecOptions
from pymongo import IndexModel, MongoClient, ReadPreference, WriteConcern
from pymongo.asynchronous.client_session import AsyncClientSession
from pymongo.asynchronous.collection import AsyncCollection
from pymongo.asynchronous.database import AsyncDatabase
from pymongo.errors import OperationFailure
from pymongo.read_concern import ReadConcern

from monque._connect.deadlines import limited
from monque._connect.sessions import Call, join
from monque._store import decoding, indexes
from monque._store.claim import Claimer
from monque._store.document import (
    CODEC_OPTIONS,
    EXACT_CODEC_OPTIONS,
    NAIVE_CODEC_OPTIONS,
    Document,
    key_of,
    named_as,
    policy_of,
    with_id,
)
from monque._store.indexes import Uses
from monque._store.insert import Inserter
from monque._store.job import reader
from monque._store.pauses import SUFFIX, ControlDocument
from monque._store.refused import Refused
from monque._store.settle import Settler
from monque._store.transitions import recovery
from monque._store.transitions.recovery import allowed_silence
from monque._store.transitions.transition import Transition
from monque._store.unique import holder_of
from monque._time.clock import Clock
from monque._values.errors import ConfigurationError
from monque._values.options import Options
from monque._values.settings import max_attempts
from monque._workers.workers import Workers

R = TypeVar("R")

_INDEX_CONFLICTS = (85, 86)
_DUPLICATE_KEY = 11000
_NO_SUCH_INDEX_POSSIBLE = 67


@dataclass(slots=True)
class Conflict:
    """A job of a silent owner that a transaction held."""

    count: int = 0
    free_since: datetime | None = None
    """The time at which it could be written again; None while it cannot."""


class Store:
    """The jobs collection of one instance.

    The handle sets its own guarantees, whatever the client's defaults are: majority writes, primary
    reads, aware datetimes.
    """

    def __init__(
        self,
        database: AsyncDatabase[Any],
        options: Options,
        clock: Clock,
        instance_id: str,
        *,
        lender: MongoClient[Any] | None = None,
        workers: Workers | None = None,
    ) -> None:
        self._lender = lender
        known = Workers() if workers is None else workers
        self.read = reader(partial(_max_attempts, workers=known, options=options))
        """Reads the fields of a job, as `to_job` needs it."""
        self.collection = _handle(database, options.collection, CODEC_OPTIONS)
        self.options = options
        self.clock = clock
        self.instance_id = instance_id
        self.server = Server(self.collection, clock)
        self.inserter = Inserter(self.collection, clock)
        naive = _handle(database, options.collection, NAIVE_CODEC_OPTIONS)
        self.silence = allowed_silence(
            tolerance=options.tolerance, interval=options.heartbeat_interval
        ).total_seconds()
        """Seconds without a heartbeat after which other instances take our jobs."""
        interval = options.heartbeat_interval.total_seconds()
        self.settler = Settler(self.collection, clock, interval=interval, silence=self.silence)
        self.control = ControlDocument(_handle(database, options.collection + SUFFIX, CODEC_OPTIONS))
        self.uses = Uses(self._create, self.server.indexes, self.control, options)
        self.claimer = Claimer(self.collection, naive, options, clock, instance_id, self.uses.is_noted)
        self.unrecovered = Refused()
        """Jobs of dead owners that cannot be changed now: each is logged once and rests for a while."""
        self.conflicts: dict[bytes, Conflict] = {}
        """Jobs of silent owners that recovery met while a transaction held them."""

    def beside(self, suffix: str) -> AsyncCollection[Document]:
        """The collection whose name is that of the jobs collection with this suffix."""
        return _handle(self.collection.database, self.collection.name + suffix, CODEC_OPTIONS)

    @property
    def exact(self) -> AsyncCollection[Document]:
        """The handle that reads values as they are stored, also those that Python cannot hold."""
        # Not by `with_options`, which would leave the class of a wrapped driver.
        return _handle(self.collection.database, self.collection.name, EXACT_CODEC_OPTIONS)

    def through(self, collection: AsyncCollection[Document]) -> Store:
        """The same store with another handle of its collection: that of the driver a session belongs to."""
        if collection is self.collection:
            return self
        other = copy(self)
        other.collection = collection
        other.inserter = Inserter(collection, self.clock)
        return other

    def join(self, session: object, *, call: Call = asyncio.to_thread) -> tuple[Store, AsyncClientSession]:
        """The store and the session with which writes are part of the caller's transaction."""
        collection, joined = join(session, self.collection, self._lender, call=call)
        return self.through(collection), joined

    async def create_indexes(self) -> None:
        """Create the indexes that are missing, also those of uses that have begun, here or elsewhere."""
        noted = await self.uses.read()
        await self._create(indexes.wanted(self.options, noted | self.uses.begun))
        await self.uses.note_again(noted)

    async def _create(self, models: list[IndexModel]) -> None:
        try:
            await self.collection.create_indexes(models)
        except OperationFailure as error:
            if error.code == _NO_SUCH_INDEX_POSSIBLE and self.server.routed:
                raise wrong_shard_key(self.collection) from error
            if error.code == _DUPLICATE_KEY:
                fields = ", ".join((error.details or {}).get("keyPattern", ()))
                raise ConfigurationError(
                    f"the unique index on {fields} cannot be built, because two jobs of "
                    f"{self.collection.full_name!r} have the same there; cancel or delete one of them"
                ) from error
            if error.code not in _INDEX_CONFLICTS:
                raise
            raise ConfigurationError(
                f"an index of the collection {self.collection.full_name!r} stands in the way of one Monque "
                f"needs; drop it, or create the indexes yourself and set create_indexes=False: {error}"
            ) from error

    async def get(
        self,
        job_id: Any,
        session: AsyncClientSession | None = None,
        *,
        read: Mapping[str, Any] | None = None,
    ) -> Document | None:
        """The document with this id; None if there is none, or it cannot be decoded, which is reported.

        *read* as for `change`; a job that has another name by now is found, too.
        """
        these, name = with_id(job_id), named_as(read)
        try:
            for query in ({**these, **name}, these) if name else (these,):
                if (found := await decoding.find_one(self.collection, query, session=session)) is not None:
                    return found
        except decoding.UnreadableError:
            decoding.report(bson.encode({"_id": job_id})[4:-1])
        return None

    async def read_majority(self, ids: Sequence[Any]) -> dict[bytes, Document]:
        """The documents with these ids, by their keys, as a majority has them: no rollback undoes these."""
        lasting = self.collection.with_options(read_concern=ReadConcern("majority"))
        return await _by_key(lasting, ids)

    async def read_states(self, ids: Sequence[Any], *, marked: bool = False) -> dict[bytes, Document]:
        """The states of jobs, and whether they recur, as the primary has them.

        What is not there at all was never stored: a job that the majority does not have yet is there. Two
        *marked* ones of a job are equal only if nothing was written in between that anybody could see.
        """
        fields: Document = {"status": 1, "repeatInterval": 1}
        if marked:  # the size tells two writes of one millisecond apart
            fields |= {"updatedAt": 1, "attempt": 1, "size": {"$bsonSize": "$$ROOT"}}
        return await _by_key(self.collection, ids, fields)

    async def holder(self, document: Document) -> Document | None:
        """The active job with this document's name and key, whatever these hold."""
        same = {field: {"$eq": document.get(field)} for field in ("name", "uniqueKey")}
        return await decoding.find_one(self.collection, {**holder_of(document), **same})

    async def change(
        self,
        job_id: Any,
        transition: Transition,
        session: AsyncClientSession | None = None,
        *,
        read: Mapping[str, Any] | None = None,
    ) -> Document | None:
        """Perform a transition on one job; the document after it, or None if it did not apply.

        None as well if the document cannot be decoded, as for `get`. *read* is the job as it was read, if it
        was: its name leads to its shard. So None, too, if the job has another name by now.
        """
        query = {**with_id(job_id), **named_as(read), **transition.when}
        with suppress(decoding.UnreadableError):
            return await decoding.find_one_and_update(
                self.collection, query, transition.then, session=session
            )
        return None

    async def is_alive_elsewhere(self, besides: Iterable[ObjectId]) -> bool:
        """Return whether a job claimed under our instance id, none of *besides*, has a fresh heartbeat."""
        claimed = {"status": "processing", "claimedBy": self.instance_id, "_id": {"$nin": list(besides)}}
        alive = {**claimed, "$nor": [self.stale()]}
        return await decoding.is_there_any(self.collection, alive)

    def stale(self) -> Document:
        """Match the jobs whose owner is dead by now."""
        return recovery.stale(
            tolerance=self.options.tolerance,
            lock_timeout=self.options.lock_timeout,
            as_of=self.clock.now(),
        )


async def until_applied(attempt: Callable[[], Awaitable[R | None]]) -> R:
    """Repeat an attempt to change a document until it applies; None means that somebody else was faster.

    An attempt reads, decides, and writes on the condition that what it read still holds, in this order or
    beginning with the write. Each time round somebody has made progress, so this ends: an attempt that can
    never apply raises.
    """
    while (applied := await attempt()) is None:
        pass
    return applied


def _max_attempts(document: Mapping[str, Any], workers: Workers, options: Options) -> int:
    return max_attempts(policy_of(document), workers.settings_of(document.get("name")), options)


def is_marked(document: Document, mark: Document) -> bool:
    """Return whether a document is the one of which `Store.read_states` has read this mark."""
    return bool(document.get("updatedAt") == mark.get("updatedAt"))


async def _by_key(
    collection: AsyncCollection[Document], ids: Sequence[Any], fields: Document | None = None
) -> dict[bytes, Document]:
    # No `_id` is a pattern; in an `$in` it would match texts.
    these = [job_id for job_id in ids if not isinstance(job_id, Regex | re.Pattern)]
    among, size = {"_id": {"$in": these}}, len(these) + 1  # in one answer: by default the first has a hundred
    found = await decoding.find(collection, among, fields, hint="_id_", batch_size=size)
    return {key_of(document["_id"]): document for document in found}


def _handle(
    database: AsyncDatabase[Any], collection: str, codec_options: CodecOptions[Document]
) -> AsyncCollection[Document]:
    return database.get_collection(
        collection,
        codec_options=codec_options,
        read_preference=ReadPreference.PRIMARY,
        read_concern=ReadConcern(),
        write_concern=WriteConcern("majority"),
    )


_NAMESPACE_NOT_FOUND = 26


class Server:
    """The server behind one collection."""

    def __init__(self, collection: AsyncCollection[Document], clock: Clock) -> None:
        self._collection = collection
        self._admin = collection.database.client.get_database("admin", codec_options=CODEC_OPTIONS)
        self._clock = clock
        self.routed = False
        """The server is a mongos, in front of a sharded cluster."""
        self.has_change_streams = False
        """The server is a member of a replica set, or a mongos."""

    @property
    def writable(self) -> object:
        """The servers that the driver knows to take writes, as a value to compare: primary, or all mongos."""
        servers = self._collection.database.client.topology_description.server_descriptions()
        return frozenset(address for address, server in servers.items() if server.is_writable)

    async def hello(self) -> dict[str, Any]:
        """The server's answer to `hello`, its time included."""
        # A command does not go by the codec options of its database: without these, times would be naive.
        answer = await self._admin.command("hello", codec_options=CODEC_OPTIONS)
        self.routed = answer.get("msg") == "isdbgrid"
        self.has_change_streams = self.routed or "setName" in answer
        return answer

    async def ping(self) -> None:
        """Have the primary answer."""
        await self._admin.command("ping")

    async def shard_key(self) -> frozenset[str]:
        """The fields of the shard key but `_id`; none if the collection is not sharded, or we may not ask.

        The plan of a `$merge` names them: it matches documents by `_id` and the shard key. Who may store jobs
        may ask for it, while `config.collections` is for administrators.
        """
        if not self.routed:
            return frozenset()
        name = self._collection.name
        merge = [{"$match": {"_id": None}}, {"$merge": {"into": name}}]
        try:
            plan = await self._collection.database.command(
                "explain", {"aggregate": name, "pipeline": merge, "cursor": {}}, verbosity="queryPlanner"
            )
        except OperationFailure:
            return frozenset()
        return frozenset(_merged_on(plan)) - {"_id"}

    async def indexes(self) -> Sequence[Mapping[str, Any]]:
        """The indexes that the collection has; none if there is no such collection yet."""
        try:
            return await (await self._collection.list_indexes()).to_list()
        except OperationFailure as error:
            if error.code != _NAMESPACE_NOT_FOUND:
                raise
            return []

    async def refresh_clock(self) -> None:
        """Read the server's time anew."""
        with limited():
            await self._clock.refresh(self.hello)


def _merged_on(plan: Any) -> Iterator[str]:
    """The fields in `on` of each `$merge` in a plan, whose shape differs from version to version."""
    parts = plan.items() if isinstance(plan, Mapping) else enumerate(plan) if isinstance(plan, list) else ()
    for name, part in parts:
        if name == "$merge" and "on" in part:
            yield from [part["on"]] if isinstance(part["on"], str) else part["on"]
        else:
            yield from _merged_on(part)


def wrong_shard_key(collection: AsyncCollection[Document]) -> ConfigurationError:
    """The error for a collection that is sharded by more than the name, or by something else."""
    return ConfigurationError(
        f"the collection {collection.full_name!r} is sharded by a key with which MongoDB cannot keep unique "
        'keys, windows and limits; shard it by {name: "hashed"} instead, or by {name: 1}'
    )
