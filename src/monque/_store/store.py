"""The jobs collection of one instance: the handles with their guarantees, and what is done to one job."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterable, Mapping, Sequence
from copy import copy
from functools import partial
from typing import Any

from bson import ObjectId, Regex
from bson.codec_options import CodecOptions
from pymongo import IndexModel, MongoClient, ReadPreference, WriteConcern
from pymongo.asynchronous.client_session import AsyncClientSession
from pymongo.asynchronous.collection import AsyncCollection
from pymongo.asynchronous.database import AsyncDatabase
from pymongo.errors import OperationFailure
from pymongo.read_concern import ReadConcern

from monque._connect.sessions import Call, join
from monque._errors import ConfigurationError
from monque._options import Options
from monque._settings import max_attempts
from monque._store import decoding, indexes
from monque._store.claiming import Claimer
from monque._store.companions import Companions
from monque._store.control import SUFFIX, ControlDocument
from monque._store.document import (
    CODEC_OPTIONS,
    EXACT_CODEC_OPTIONS,
    NAIVE_CODEC_OPTIONS,
    Document,
    key_of,
)
from monque._store.filters import with_id
from monque._store.inserting import Inserter
from monque._store.lazy_job import reader
from monque._store.owners import allowed_silence
from monque._store.policy import policy_of
from monque._store.refused import Refused
from monque._store.server import Server, wrong_shard_key
from monque._store.settling import Settler
from monque._store.transitions import recovery
from monque._store.transitions.transition import Transition
from monque._store.unique import holder_of
from monque._store.uses import Uses
from monque._time.clock import Clock
from monque._workers.workers import Workers

_INDEX_CONFLICTS = (85, 86)
_NO_SUCH_INDEX_POSSIBLE = 67


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
        self.inserter = Inserter(self.collection)
        naive = _handle(database, options.collection, NAIVE_CODEC_OPTIONS)
        self.settler = Settler(self.collection, clock)
        self.control = ControlDocument(_handle(database, options.collection + SUFFIX, CODEC_OPTIONS))
        self.uses = Uses(self._create, self.server.indexes, self.control, options)
        self.claimer = Claimer(self.collection, naive, options, clock, instance_id, self.uses.is_noted)
        self.companions = Companions.of(
            lambda suffix: _handle(database, options.collection + suffix, CODEC_OPTIONS), options
        )
        self.silence = allowed_silence(
            tolerance=options.heartbeat_tolerance, interval=options.heartbeat_interval
        ).total_seconds()
        """Seconds without a heartbeat after which other instances take our jobs."""
        self.unrecovered = Refused()
        """Jobs of dead owners that cannot be changed now: each is logged once and rests for a while."""

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
        other.inserter = Inserter(collection)
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
            if error.code not in _INDEX_CONFLICTS:
                raise
            raise ConfigurationError(
                f"an index of the collection {self.collection.full_name!r} stands in the way of one Monque "
                f"needs; drop it, or create the indexes yourself and set create_indexes=False: {error}"
            ) from error

    async def get(self, job_id: Any, session: AsyncClientSession | None = None) -> Document | None:
        """The document with this id."""
        return await decoding.find_one(self.collection, with_id(job_id), session=session)

    async def get_majority(self, job_id: Any) -> Document | None:
        """Read with majority concern: a deposed primary could return a write that is rolled back."""
        return (await self.read_majority([job_id])).get(key_of(job_id))

    async def read_majority(self, ids: Sequence[Any]) -> dict[bytes, Document]:
        """The documents with these ids, by the keys of their ids, read with majority concern."""
        lasting = self.collection.with_options(read_concern=ReadConcern("majority"))
        return await _by_key(lasting, ids)

    async def read_states(self, ids: Sequence[Any]) -> dict[bytes, Document]:
        """The states of jobs, and whether they recur, as the primary has them.

        What is not there at all was never stored: a job that the majority does not have yet is there.
        """
        return await _by_key(self.collection, ids, {"status": 1, "repeatInterval": 1})

    async def holder(self, document: Document) -> Document | None:
        """The active job with this document's name and key, whatever these hold."""
        same = {field: {"$eq": document.get(field)} for field in ("name", "uniqueKey")}
        return await decoding.find_one(self.collection, {**holder_of(document), **same})

    async def change(
        self, job_id: Any, transition: Transition, session: AsyncClientSession | None = None
    ) -> Document | None:
        """Perform a transition on one job; the document after it, or None if it did not apply."""
        return await decoding.find_one_and_update(
            self.collection, {**with_id(job_id), **transition.when}, transition.then, session=session
        )

    async def is_alive_elsewhere(self, besides: Iterable[ObjectId]) -> bool:
        """Whether a job claimed under our instance id has a fresh heartbeat (and is not one of *besides*)."""
        claimed = {"status": "processing", "claimedBy": self.instance_id, "_id": {"$nin": list(besides)}}
        alive = {**claimed, "$nor": [self.stale()]}
        return await decoding.find_one(self.collection, alive, {"_id": 1}) is not None

    def stale(self) -> Document:
        """Match the jobs whose owner is dead by now."""
        return recovery.stale(
            tolerance=self.options.heartbeat_tolerance,
            lock_timeout=self.options.lock_timeout,
            as_of=self.clock.now(),
        )


def _max_attempts(document: Mapping[str, Any], workers: Workers, options: Options) -> int:
    return max_attempts(policy_of(document), workers.settings_of(document.get("name")), options)


async def _by_key(
    collection: AsyncCollection[Document], ids: Sequence[Any], fields: Document | None = None
) -> dict[bytes, Document]:
    # No `_id` is a pattern; in an `$in` it would match texts.
    these = [job_id for job_id in ids if not isinstance(job_id, Regex | re.Pattern)]
    found = await decoding.find(collection, {"_id": {"$in": these}}, fields, hint="_id_")
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
