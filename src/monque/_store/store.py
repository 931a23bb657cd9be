"""Performs reads and transitions on the collection, in batches."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Protocol

import pymongo
from bson import ObjectId
from bson.codec_options import CodecOptions
from pymongo import ReadPreference, ReturnDocument, WriteConcern
from pymongo.asynchronous.client_session import AsyncClientSession
from pymongo.asynchronous.collection import AsyncCollection
from pymongo.asynchronous.database import AsyncDatabase
from pymongo.errors import (
    BulkWriteError,
    DuplicateKeyError,
    OperationFailure,
    PyMongoError,
    WriteConcernError,
    WriteError,
)
from pymongo.read_concern import ReadConcern

from monque._clock import Clock
from monque._deadlines import limited, under_deadline
from monque._errors import ConfigurationError
from monque._job import JobStatus
from monque._options import Options
from monque._store import indexes, transitions, unique
from monque._store.candidates import Candidates
from monque._store.document import (
    CODEC_OPTIONS,
    EXACT_CODEC_OPTIONS,
    NAIVE_CODEC_OPTIONS,
    Document,
    key_of,
    made_aware,
)
from monque._store.gather import Gather
from monque._store.reads import with_id
from monque._store.refused import Refused
from monque._store.transitions import Transition
from monque._store.unique import DUPLICATE_KEY

logger = logging.getLogger("monque")

# Bounds each command of the background loops, so that a connection which died without a word
# (a cut cable, a silent firewall) is noticed and replaced.
OPERATION_TIMEOUT = 20.0

# Recovery reads what names a job, about 200 bytes each; a thousand dead jobs take one read and one write.
STALE_AT_ONCE = 1000

_INSERT_CHUNK = 1000
# Callers wait for their inserts.
_MANY = 10
# One answer for all that a claim may have taken; by default the server makes two of it.
_ALL_AT_ONCE = 10_000
# Fewer make more round trips; many more may take longer than one command may.
_PRUNE_AT_ONCE = 1_000
_INDEX_CONFLICTS = (85, 86)
_NO_SUCH_INDEX_POSSIBLE = 67


@dataclass(frozen=True, slots=True)
class Look:
    """What a look for work gave."""

    claimed: list[Document]
    next_due: datetime | None
    """When the earliest job that was not due yet will be."""
    more: bool
    """Due jobs were left for which there are free slots: look again at once."""
    missed: int = 0
    """Chosen, but somebody else was faster."""
    backlog: bool = False
    """Due jobs were left, with free slots for them or not."""


class Settlement(Protocol):
    """How the run of a claim ended."""

    @property
    def claim(self) -> Document:
        """The document as it was claimed."""

    @property
    def transition(self) -> Transition:
        """What is to become of it."""


class Store:
    """The jobs collection of one instance.

    The handle sets its own guarantees, whatever the client's defaults are: majority writes, primary
    reads, aware datetimes.
    """

    def __init__(
        self, database: AsyncDatabase[Any], options: Options, clock: Clock, instance_id: str
    ) -> None:
        self._admin: AsyncDatabase[Document] = database.client.get_database(
            "admin", codec_options=CODEC_OPTIONS
        )
        self.collection = _handle(database, options.collection, CODEC_OPTIONS)
        self._naive = _handle(database, options.collection, NAIVE_CODEC_OPTIONS)
        self._exact = _handle(database, options.collection, EXACT_CODEC_OPTIONS)
        self._options = options
        self._clock = clock
        self.instance_id = instance_id
        self.routed = False
        """The server is a mongos, in front of a sharded cluster."""
        self.has_change_streams = False
        """The server is no standalone one."""
        self._claim = transitions.claim(
            instance_id=instance_id, heartbeat_interval=options.heartbeat_interval
        )
        self._candidates = Candidates(self._naive, clock, hint=options.create_indexes)
        self._doubtful: list[Any] = []
        self._unrecovered = Refused()
        self._inserts: Gather[Document, None] = Gather(self._insert_together, many=_MANY)

    def through(self, collection: AsyncCollection[Document]) -> Store:
        """The same store with another handle of its collection: that of the driver a session belongs to."""
        other = copy(self)
        other.collection = collection
        return other

    async def hello(self) -> Document:
        """What the server says about itself, its time included."""
        # A command does not go by the codec options of its database: without these, times would be naive.
        answer = await self._admin.command("hello", codec_options=CODEC_OPTIONS)
        self.routed = answer.get("msg") == "isdbgrid"
        self.has_change_streams = self.routed or "setName" in answer
        return answer

    async def ping(self) -> None:
        """Have the primary answer."""
        await self._admin.command("ping")

    async def is_sharded(self) -> bool:
        """Whether the collection is spread over the shards of a cluster."""
        if not self.routed:
            return False
        statistics = await self.collection.database.command("collStats", self.collection.name)
        return bool(statistics.get("sharded"))

    async def refresh_clock(self) -> None:
        """Read the server's time anew."""
        with limited(OPERATION_TIMEOUT):
            await self._clock.refresh(self.hello)

    async def create_indexes(self) -> None:
        """Create the indexes that are missing."""
        try:
            await self.collection.create_indexes(indexes.wanted(self._options))
        except OperationFailure as error:
            if error.code == _NO_SUCH_INDEX_POSSIBLE and self.routed:
                raise ConfigurationError(
                    f"the collection {self.collection.full_name!r} is sharded by a key with which MongoDB "
                    'cannot keep unique keys unique; shard it by {name: "hashed"} instead, or by {name: 1}: '
                    f"{error}"
                ) from error
            if error.code not in _INDEX_CONFLICTS:
                raise
            raise ConfigurationError(
                f"an index of the collection {self.collection.full_name!r} stands in the way of one Monque "
                f"needs; drop it, or create the indexes yourself and set create_indexes=False: {error}"
            ) from error

    # Storing

    async def insert(self, document: Document, session: AsyncClientSession | None = None) -> None:
        """Store a job without a key; calls that come together share one write, unless one is in a hurry."""
        if session is None and not under_deadline():
            await self._inserts.add(document)
        else:
            await self.collection.insert_one(document, session=session)

    async def _insert_together(self, documents: list[Document]) -> Sequence[Exception | None]:
        try:
            if len(documents) == 1:
                await self.collection.insert_one(documents[0])
            else:
                await self.collection.insert_many(documents, ordered=False)
        except BulkWriteError as error:
            refused = {entry["index"]: _refusal(entry) for entry in error.details["writeErrors"]}
            # What was not refused is stored, unless the server could not vouch for the write as a whole.
            doubt = error if error.details["writeConcernErrors"] else None
            return [refused.get(place, doubt) for place in range(len(documents))]
        except PyMongoError as error:
            return [error] * len(documents)
        return [None] * len(documents)

    async def insert_many(self, documents: list[Document], session: AsyncClientSession | None = None) -> None:
        """Store jobs without keys; outside of a session, with two writes on the way at a time."""
        if not documents:
            return
        try:
            await self._insert_chunks(documents, session)
        except BulkWriteError as error:
            refused = [entry for entry in error.details["writeErrors"] if entry["code"] == DUPLICATE_KEY]
            if not refused or error.details["writeConcernErrors"]:
                raise
            raise _refusal(refused[0]) from error  # its text is a line, not the whole batch

    async def _insert_chunks(self, documents: list[Document], session: AsyncClientSession | None) -> None:
        if session is not None:
            await self.collection.insert_many(documents, session=session)
            return
        chunks = iter([documents[at : at + _INSERT_CHUNK] for at in range(0, len(documents), _INSERT_CHUNK)])

        async def insert_chunks() -> None:
            for chunk in chunks:
                await self.collection.insert_many(chunk, ordered=False)

        outcomes = await asyncio.gather(insert_chunks(), insert_chunks(), return_exceptions=True)
        for error in filter(None, outcomes):
            raise error

    async def insert_unique(self, document: Document, session: AsyncClientSession | None = None) -> Document:
        """Store a job with a key, or return the active job that holds it."""
        if session is not None and session.in_transaction:
            return await unique.insert_unique_in_transaction(self.collection, document, session)
        return await unique.insert_unique(self.collection, document, session)

    async def insert_unique_many(self, documents: Sequence[Document]) -> list[Document]:
        """Store jobs with keys, each as `insert_unique` does, in few round trips."""
        return await unique.insert_unique_many(self.collection, documents)

    # Reading

    async def get(self, job_id: Any, session: AsyncClientSession | None = None) -> Document | None:
        """The document with this id."""
        return await self.collection.find_one(with_id(job_id), session=session)

    async def get_lasting(self, job_id: ObjectId) -> Document | None:
        """The document as most members have it: what a primary shows that lost them may be rolled back."""
        lasting = self.collection.with_options(read_concern=ReadConcern("majority"))
        return await lasting.find_one({"_id": job_id})

    async def holder(self, document: Document) -> Document | None:
        """The active job with this document's name and key, whatever these hold."""
        same = {field: {"$eq": document.get(field)} for field in ("name", "uniqueKey")}
        return await self.collection.find_one({**unique.holder_of(document), **same})

    async def is_alive_elsewhere(self, besides: Iterable[ObjectId]) -> bool:
        """Whether a job claimed under our instance id has a fresh heartbeat (and is not one of *besides*)."""
        claimed = {"status": "processing", "claimedBy": self.instance_id, "_id": {"$nin": list(besides)}}
        alive = {**claimed, "$nor": [self._stale()]}
        return await self.collection.find_one(alive, {"_id": 1}) is not None

    # Claiming

    async def claim(self, slots: Mapping[str, int], limit: int) -> Look:
        """Claim up to *limit* due jobs, at most as many of each name as it has free slots, oldest first.

        What is returned is the documents as claimed, never a copy read before: between choosing a
        job and claiming it, another instance may have run it and put it back.
        """
        with limited(OPERATION_TIMEOUT):
            resumed = await self.claimed_in_doubt()
            if resumed:
                return Look(resumed, None, more=True)
            choice = await self._candidates.choose(slots, limit)
            chosen = choice.ids
            if not chosen:
                self._candidates.learn(chosen=0, won=0)
                return Look([], choice.next_due, more=False)
            # Until we have read what we own, these may be ours without our knowing.
            self._doubtful = chosen
            claimed = await self._take(chosen, slots if choice.backlog else ())
            self._doubtful = []
            if len(claimed) < len(chosen):
                await self._examine_misses(chosen, claimed)
        if choice.told:
            return Look(claimed, None, more=True)
        self._candidates.learn(chosen=len(chosen), won=len(claimed))
        return Look(claimed, choice.next_due, choice.more, len(chosen) - len(claimed), choice.backlog)

    async def is_any_due(self, names: Sequence[str]) -> bool:
        """Whether a job of one of these names is due."""
        due = {"status": "pending", "name": {"$in": names}, "nextRunAt": {"$lte": self._clock.now()}}
        with limited(OPERATION_TIMEOUT):
            return await self.collection.find_one(due, {"_id": 1}) is not None

    async def _examine_misses(self, chosen: list[Any], claimed: list[Document]) -> None:
        for job_id in self._candidates.miss(chosen, claimed):
            if await self.collection.find_one(with_id(job_id), {"_id": 1}) is None:
                self._candidates.report_unreachable(job_id)
            else:  # others were faster each time
                self._candidates.accept(job_id)

    def wake(self, name: str | None = None, job_id: ObjectId | None = None) -> None:
        """There may be new work of this name (of any, without one): the next claim must look at it."""
        self._candidates.wake(name, job_id)

    async def _take(self, chosen: list[Any], slots: Iterable[str]) -> list[Document]:
        if len(chosen) == 1:
            return await self._take_one(chosen[0])
        suspects = self._candidates.suspects(chosen)
        await self._take_one_by_one(suspects)
        batch = [job_id for job_id in chosen if job_id not in suspects] if suspects else chosen
        try:
            await self.collection.update_many(
                {"_id": {"$in": batch}, **self._claim.when}, self._claim.then, hint="_id_"
            )
        except WriteError:
            await self._take_one_by_one(batch)
        owned, _ = await asyncio.gather(self._owned(chosen), self._candidates.look_ahead(slots, len(chosen)))
        return owned

    async def _take_one(self, job_id: Any) -> list[Document]:
        try:
            document = await self.collection.find_one_and_update(
                {"_id": job_id, **self._claim.when}, self._claim.then, return_document=ReturnDocument.AFTER
            )
        except WriteConcernError:
            raise
        except OperationFailure:
            # This command reports a document that cannot be changed like any other failure. An update
            # reports it as a write error, and other failures otherwise.
            await self._take_one_by_one([job_id])
            return await self._owned([job_id])
        if document is None:
            return []
        self._candidates.accept(job_id)
        return [document]

    async def _take_one_by_one(self, chosen: list[Any]) -> None:
        """One of them cannot be changed (its attempt is a text, it is too large); the others can."""
        for job_id in chosen:
            try:
                result = await self.collection.update_one(
                    {"_id": job_id, **self._claim.when}, self._claim.then
                )
                if result.matched_count:
                    self._candidates.accept(job_id)
            except WriteError as error:
                self._candidates.refuse(job_id, error)

    async def _owned(self, job_ids: list[Any]) -> list[Document]:
        """Those of the jobs that are ours now, the earliest first; their own times have no zone."""
        documents = await self._naive.find(
            self._mine(job_ids), hint="_id_", batch_size=_ALL_AT_ONCE
        ).to_list()
        # They come in the order of their ids, and stay in it where they are due at the same time.
        documents.sort(key=_due)
        for document in documents:
            if document.get("data") is not None:
                document["data"] = made_aware(document["data"])
        return documents

    def _mine(self, job_ids: list[Any]) -> Document:
        return {"_id": {"$in": job_ids}, "status": "processing", "claimedBy": self.instance_id}

    async def claimed_in_doubt(self) -> list[Document]:
        """What an earlier claim took although its answer never came (the connection broke)."""
        if not self._doubtful:
            return []
        with limited(OPERATION_TIMEOUT):
            # Not by reading alone: a primary that has lost its majority, and does not know yet, would show
            # claims that are going to be rolled back, while others can have the jobs.
            alive = transitions.heartbeat({"claimedBy": self.instance_id}).then
            await self.collection.update_many(self._mine(self._doubtful), alive, hint="_id_")
            documents = await self._owned(self._doubtful)
        self._doubtful = []
        return documents

    # Keeping and settling claims

    async def heartbeat(self, claims: Sequence[Document]) -> list[Document]:
        """Mark the jobs as alive; return those that are no longer ours."""
        lost: list[Document] = []
        with limited(OPERATION_TIMEOUT):
            for transition, group in _by_transition(
                (claim, transitions.heartbeat(claim)) for claim in claims
            ):
                when = {"_id": {"$in": [claim["_id"] for claim in group]}, **transition.when}
                result = await self.collection.update_many(when, transition.then, hint="_id_")
                if result.matched_count < len(group):
                    found = self.collection.find(when, {"_id": 1}, hint="_id_")
                    kept = {key_of(document["_id"]) async for document in found}
                    lost += [claim for claim in group if key_of(claim["_id"]) not in kept]
        return lost

    async def settle_one(self, claim: Document, transition: Transition) -> Document | None:
        """Settle a single claim; the document after it, or None if the claim was lost."""
        with limited(OPERATION_TIMEOUT):
            if transition.leaves is not None:
                await self._leave(transition.leaves)
            document = await self.collection.find_one_and_update(
                {"_id": claim["_id"], **transition.when},
                transition.update(self._clock.now()),
                return_document=ReturnDocument.AFTER,
            )
            if document is None:
                document = await self.get(claim["_id"])
                if not transitions.was_settled(claim, transition, document):
                    document = None
            if document is None and transition.leaves is not None:
                await self._take_away(transition.leaves)
        return document

    async def settle_in(self, claim: Document, transition: Transition, session: AsyncClientSession) -> bool:
        """Settle a claim as part of a transaction; False if it does not apply to what that sees."""
        result = await self.collection.update_one(
            {"_id": claim["_id"], **transition.when}, transition.update(self._clock.now()), session=session
        )
        return result.matched_count == 1

    async def settle_many(self, settlements: Sequence[Settlement]) -> list[Document | None]:
        """Settle claims in one write; for each the document after it, or None if the claim was lost.

        Completed ones are not read back: the claim itself stands for what is known of them.
        """
        with limited(OPERATION_TIMEOUT):
            groups = _by_transition((each.claim, each.transition) for each in settlements)
            if len(groups) == 1:
                [(transition, claims)] = groups
                matched = await self._settle_group(transition, claims)
            else:
                matched = await self._settle_groups(groups)
            claims = [settlement.claim for settlement in settlements]
            if matched == len(claims) and all(
                transition.to is JobStatus.COMPLETED for transition, _ in groups
            ):
                return list[Document | None](claims)
            ids = [claim["_id"] for claim in claims]
            after = {
                key_of(document["_id"]): document
                async for document in self.collection.find({"_id": {"$in": ids}}, {"data": 0})
            }
        return [
            after[key_of(claim["_id"])]
            if transitions.was_settled(claim, settlement.transition, after.get(key_of(claim["_id"])))
            else None
            for claim, settlement in zip(claims, settlements, strict=True)
        ]

    async def _settle_group(self, transition: Transition, claims: list[Document]) -> int:
        result = await self.collection.update_many(
            {"_id": {"$in": [claim["_id"] for claim in claims]}, **transition.when},
            transition.update(self._clock.now()),
            hint="_id_",
        )
        return result.matched_count

    async def _settle_groups(self, groups: list[tuple[Transition, list[Document]]]) -> int:
        writes = [
            pymongo.UpdateMany(
                {"_id": {"$in": [claim["_id"] for claim in claims]}, **transition.when},
                transition.update(self._clock.now()),
                hint="_id_",
            )
            for transition, claims in groups
        ]
        return (await self.collection.bulk_write(writes, ordered=False)).matched_count

    async def _leave(self, document: Document) -> None:
        try:
            await self.collection.insert_one(document)
        except DuplicateKeyError:
            return  # an earlier try of this settlement stored it

    async def _take_away(self, leaves: Document) -> None:
        """Delete a failed occurrence again, unless its schedule says that this very run was given up.

        Then another instance was faster: the id follows from the claim, so both mean the same document.
        """
        given_up = {"_id": leaves["scheduleId"], "failedRunId": leaves["_id"]}
        if await self.collection.find_one(given_up, {"_id": 1}) is None:
            await self.collection.delete_one({"_id": leaves["_id"], "status": "failed"})

    # Upkeep

    async def stale(self) -> list[Document]:
        """Some jobs of dead owners, at most `STALE_AT_ONCE`: what `transitions.stale_fields` says of each."""
        fields = transitions.stale_fields(max_crashes=self._options.max_retries)
        with limited(OPERATION_TIMEOUT):
            return await self._exact.find(self._stale(), fields, limit=STALE_AT_ONCE).to_list()

    async def put_back(self, found: Document) -> Document | None:
        """Let a job of a dead owner run again; None if another instance was faster, or the owner lives."""
        recover = transitions.recover(self._stale(), max_crashes=self._options.max_retries)
        return await self._change_stale(found, recover)

    async def put_back_many(self, found: Sequence[Document]) -> int:
        """The same for many, in one write; how many."""
        if not found:
            return 0
        recover = transitions.recover(self._stale(), max_crashes=self._options.max_retries)
        ids = [job["_id"] for job in found]
        try:
            with limited(OPERATION_TIMEOUT):
                result = await self.collection.update_many(
                    {"_id": {"$in": ids}, **recover.when}, recover.then, hint="_id_"
                )
        except WriteError:  # one of them cannot be changed; the others can
            return sum([await self.put_back(job) is not None for job in found])
        return result.modified_count

    async def give_up(self, found: Document) -> Document | None:
        """Fail a one-off job whose owners died too often; None as for `put_back`."""
        fail = transitions.give_up_crashed(self._stale(), max_crashes=self._options.max_retries)
        return await self._change_stale(found, fail)

    async def _change_stale(self, found: Document, transition: Transition) -> Document | None:
        # The owner that was read, so that the log names the right one; the name for a sharded collection.
        same = {"_id": found["_id"], **transitions.as_read(found, ("name", "claimedBy"))}
        with limited(OPERATION_TIMEOUT):
            document = await self._change_of_dead({**same, **transition.when}, transition)
        return document and {**document, "_id": found["_id"]}

    async def _change_of_dead(self, query: Document, transition: Transition) -> Document | None:
        """Take a job from its dead owner; None if that does not apply, or the server refuses to change it.

        A job that cannot be changed must not keep recovery from all others: an index of the user's own may
        stand in its way. `find_one_and_update` reports that like any other failure, an update reports it
        as a write error.
        """
        try:
            return await self.collection.find_one_and_update(
                query, transition.then, return_document=ReturnDocument.AFTER
            )
        except WriteConcernError:
            raise
        except OperationFailure:
            try:
                result = await self.collection.update_one(query, transition.then)
            except WriteError as error:
                self._leave_to_its_owner(query["_id"], error)
                return None
            return await self.collection.find_one({"_id": query["_id"]}) if result.matched_count else None

    def _leave_to_its_owner(self, job_id: Any, error: WriteError) -> None:
        """Log once that a job cannot be recovered; it is tried again each time."""
        if self._unrecovered.add(job_id, now=self._clock.now()) == 1:
            message = "job %s of a dead owner cannot be changed and is left as it is: %s"
            fields = {"job_id": str(job_id), "instance_id": self.instance_id}
            logger.error(message, job_id, error, extra=fields)

    async def stale_schedule(self, found: Document) -> Document | None:
        """The whole document, if its owner is still dead."""
        with limited(OPERATION_TIMEOUT):
            document = await self.collection.find_one({"_id": found["_id"], **self._stale()})
        return document and {**document, "_id": found["_id"]}

    async def abandon(self, schedule: Document, transition: Transition) -> Document | None:
        """Let a schedule go on, or end, without the run that died; None if that does not apply any more."""
        with limited(OPERATION_TIMEOUT):
            if transition.leaves is not None:
                await self._leave(transition.leaves)
            query = {**with_id(schedule["_id"]), **transition.when}
            document = await self._change_of_dead(query, transition)
            if document is None and transition.leaves is not None:
                await self._take_away(transition.leaves)
        return document

    async def prune(self, status: str, older_than: timedelta) -> int:
        """Remove finished jobs that were last touched that long ago; how many.

        In batches, so that each write stays within the limit, however many there are.
        """
        old = {"status": status, "updatedAt": {"$lt": self._clock.now() - older_than}}
        removed = 0
        while True:
            with limited(OPERATION_TIMEOUT):
                found = await self._exact.find(old, {"_id": 1}, limit=_PRUNE_AT_ONCE).to_list()
                if not found:
                    return removed
                these = {"_id": {"$in": [document["_id"] for document in found]}, **old}
                # Without the hint the server may go through everything that is old, for each batch.
                deleted = (await self.collection.delete_many(these, hint="_id_")).deleted_count
            if not deleted:
                # Another instance was faster, and goes on; or no query matches these ids (bytes that are no
                # UTF-8), and the same would be read again.
                return removed
            removed += deleted

    async def change(
        self, job_id: Any, transition: Transition, session: AsyncClientSession | None = None
    ) -> Document | None:
        """Perform a transition on one job; the document after it, or None if it did not apply."""
        return await self.collection.find_one_and_update(
            {**with_id(job_id), **transition.when},
            transition.then,
            return_document=ReturnDocument.AFTER,
            session=session,
        )

    def _stale(self) -> Document:
        return transitions.stale(
            tolerance=self._options.heartbeat_tolerance, lock_timeout=self._options.lock_timeout
        )


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


def _due(document: Document) -> datetime:
    """When a job is due, as a naive time. It may have been changed by hand since it was chosen."""
    due = document.get("nextRunAt")
    return due if isinstance(due, datetime) else datetime.min  # noqa: DTZ901


def _refusal(entry: Mapping[str, Any]) -> WriteError:
    kind = DuplicateKeyError if entry.get("code") == DUPLICATE_KEY else WriteError
    return kind(entry.get("errmsg", "refused"), entry.get("code"), entry)


def _by_transition(
    pairs: Iterable[tuple[Document, Transition]],
) -> list[tuple[Transition, list[Document]]]:
    groups: dict[Transition, list[Document]] = {}
    for document, transition in pairs:
        groups.setdefault(transition, []).append(document)
    return list(groups.items())
