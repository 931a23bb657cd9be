"""How runs end in the database: settlements share writes, and heartbeats keep claims until then."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple, Protocol, TypeAlias, TypeVar, cast

import pymongo
from bson.errors import InvalidBSON
from pymongo import ReturnDocument
from pymongo.asynchronous.client_session import AsyncClientSession
from pymongo.asynchronous.collection import AsyncCollection
from pymongo.errors import DuplicateKeyError, OperationFailure, PyMongoError

from monque._connect.deadlines import limited
from monque._store import decoding, progress
from monque._store.batching import Batching
from monque._store.document import TOO_LARGE, Claim, Document, is_cancel_requested, key_of
from monque._store.filters import with_id
from monque._store.transitions import run
from monque._store.transitions.transition import Transition, by_id, was_settled
from monque._time.clock import Clock
from monque._values.history import Report
from monque._values.status import JobStatus
from monque._workers.results import Kept

# No caller waits for a settlement, so it can wait for a batch. Twice as many gain nothing; half as many cost
# the server about a twentieth more for each job.
_BATCH = 1_000

# What an event need not have: the payload is known, traces and logs are long.
_READ_BACK = {"data": 0, "history.trace": 0, "log": 0}

# The results that share one update, and their bytes. The server searches its list of ids for each job: with
# twice as many that takes longer than a second update, with half as many there are twice the updates. The
# bytes leave room for one more result of the largest size in a command.
_VALUES = 100
_VALUE_BYTES = 4 * 1024 * 1024

# Beside the claims, two writes at a time get in each other's way: they cost the server a tenth more a job.
_WRITES_AT_ONCE = 1


@dataclass(frozen=True, slots=True)
class Settled:
    """The settlement is stored. A batch of completions is not read back: then there is no document."""

    document: Document | None


@dataclass(frozen=True, slots=True)
class Lost:
    """The claim does not hold any more, so nothing was written."""


@dataclass(frozen=True, slots=True)
class Doubtful:
    """Nobody knows whether the write happened. Settle again: the same settlement twice does no harm."""

    error: Exception


Answer: TypeAlias = Settled | Lost | Doubtful

LOST = Lost()
_NOT_READ_BACK = Settled(None)


class Settlement(Protocol):
    """How the run of a claim ended."""

    @property
    def claim(self) -> Claim:
        """The document as it was claimed."""

    @property
    def transition(self) -> Transition:
        """The transition that records how the run ended."""


S = TypeVar("S", bound=Settlement)


@dataclass(frozen=True, slots=True)
class _Settlement:
    claim: Claim
    transition: Transition


class Settler:
    """Writes settlements in batches, and heartbeats."""

    def __init__(self, collection: AsyncCollection[Document], clock: Clock) -> None:
        self._collection = collection
        self._clock = clock
        self._batching: Batching[Settlement, Answer] = Batching(
            self._send, many=_BATCH, at_once=_WRITES_AT_ONCE
        )

    def put(self, settlement: S, on_answer: Callable[[S, Answer | BaseException], None]) -> None:
        """Settle in the next batch and call *on_answer*; an exception is a bug, or the end of the loop."""
        self._batching.put(settlement, on_answer)

    async def settle(self, claim: Claim, transition: Transition) -> Answer:
        """Settle in the next batch and wait for the answer."""
        return await self._batching.add(_Settlement(claim, transition))

    async def heartbeat(self, claims: Sequence[Claim]) -> list[Claim]:
        """Mark the jobs as alive; return the claims that do not hold any more."""
        lost: list[Claim] = []
        beats = _by_transition((claim, run.heartbeat(claim)) for claim in claims)
        with limited():
            for group in beats:
                when = group.query
                result = await self._collection.update_many(when, group.transition.then, hint="_id_")
                if result.matched_count < len(group.claims):
                    found = await decoding.find(self._collection, when, {"_id": 1}, hint="_id_")
                    kept = {key_of(document["_id"]) for document in found}
                    lost += [claim for claim in group.claims if key_of(claim["_id"]) not in kept]
        return lost

    async def report(self, claims: Sequence[Claim], reports: Sequence[Report]) -> list[Claim]:
        """Write what running jobs report; return the claims that do not hold any more."""
        writes = [progress.report(*part) for part in _of_one_attempt(claims, reports)]
        updates = [pymongo.UpdateMany(write.when, write.then, hint="_id_") for write in writes]
        with limited():
            result = await self._collection.bulk_write(updates, ordered=False)
            if result.matched_count == len(claims):
                return []
            these = {"$or": [write.when for write in writes]}
            found = await decoding.find(self._collection, these, {"_id": 1}, hint="_id_")
            kept = {key_of(document["_id"]) for document in found}
        return [claim for claim in claims if key_of(claim["_id"]) not in kept]

    async def _send(self, batch: list[Settlement]) -> Sequence[Answer]:
        if not any(settlement.transition.stores for settlement in batch):
            return await self._send_shared(batch)
        # A settlement that stores a document beside its job needs writes of its own; the others share theirs.
        shared = [settlement for settlement in batch if not settlement.transition.stores]
        single = [settlement for settlement in batch if settlement.transition.stores]
        answers = await asyncio.gather(self._send_shared(shared), self._send_each(single))
        of_shared, of_single = map(iter, answers)
        return [next(of_single if each.transition.stores else of_shared) for each in batch]

    async def _send_shared(self, batch: list[Settlement]) -> Sequence[Answer]:
        if not batch:
            return []
        if len(batch) == 1:
            return [await self._settle_one(batch[0].claim, batch[0].transition)]
        try:
            with limited():
                return await self._settle_many(batch)
        except OperationFailure:
            # The server refused something in the batch. One bad settlement must not spoil the others.
            return await self._send_each(batch)
        except PyMongoError as error:
            return [Doubtful(error)] * len(batch)

    async def _send_each(self, batch: list[Settlement]) -> Sequence[Answer]:
        return await asyncio.gather(*(self._settle_one(each.claim, each.transition) for each in batch))

    async def _settle_one(self, claim: Claim, transition: Transition) -> Answer:
        try:
            with limited():
                document = await self._change(claim, transition)
        except PyMongoError as error:
            return Doubtful(error)
        return LOST if document is None else Settled(document)

    async def _change(self, claim: Claim, transition: Transition) -> Document | None:
        """The document after the settlement, now or by an earlier try; None if the claim was lost."""
        if transition.leaves is not None:
            await leave(self._collection, transition.leaves)
        if transition.spawns is not None and not await spawn(self._collection, transition.spawns):
            assert transition.otherwise is not None  # noqa: S101 - they come together
            transition = transition.otherwise
        try:
            document = await self._update(claim, transition.when, transition.update(self._clock.now()))
        except OperationFailure as error:
            if error.code not in TOO_LARGE or transition.lean is None:
                raise
            document = await self._update(claim, transition.when, transition.lean)
        if document is not None:
            return document
        document = await decoding.find_one(self._collection, with_id(claim["_id"]))
        if was_settled(claim, transition, document):
            return document
        if transition.leaves is not None:
            await remove_left(self._collection, transition.leaves)
        return None

    async def _update(
        self, claim: Claim, when: Document, update: Document | list[Document]
    ) -> Document | None:
        try:
            return await self._collection.find_one_and_update(
                {"_id": claim["_id"], **when}, update, return_document=ReturnDocument.AFTER
            )
        except InvalidBSON:
            return None  # the job is settled; it is read next, whatever it holds

    async def _settle_many(self, batch: Sequence[Settlement]) -> list[Answer]:
        """Settle in one write. Completions are not read back if all of them matched."""
        groups = _by_transition((each.claim, each.transition) for each in batch)
        matched = await self._write(groups)
        completes_all = all(
            group.transition.to is JobStatus.COMPLETED and group.transition.step is None for group in groups
        )
        if matched == len(batch) and completes_all:
            return [_NOT_READ_BACK] * len(batch)
        these = {"_id": {"$in": [each.claim["_id"] for each in batch]}}
        found = await decoding.find(self._collection, these, _READ_BACK)
        after = {key_of(document["_id"]): document for document in found}
        return [_answer(each, after.get(key_of(each.claim["_id"]))) for each in batch]

    async def _write(self, groups: list[_Group]) -> int:
        """Perform each transition on its claims; how many claims matched."""
        now = self._clock.now()
        if len(groups) == 1:
            query, update = groups[0].query, groups[0].update(now)
            return (await self._collection.update_many(query, update, hint="_id_")).matched_count
        writes = [pymongo.UpdateMany(group.query, group.update(now), hint="_id_") for group in groups]
        return (await self._collection.bulk_write(writes, ordered=False)).matched_count


async def find_requests(collection: AsyncCollection[Document], claims: Sequence[Claim]) -> list[Claim]:
    """The requests to cancel jobs that these claims still hold: each has `_id`, `attempt` and `cancel`."""
    query = {
        "_id": {"$in": [claim["_id"] for claim in claims]},
        "status": "processing",
        "claimedBy": {"$in": list({claim["claimedBy"] for claim in claims})},
        "cancel.by": "operator",
    }
    with limited():
        found = await decoding.find(collection, query, {"attempt": 1, "cancel": 1}, hint="_id_")
    return [cast("Claim", document) for document in found if is_cancel_requested(document)]


async def settle_in(
    collection: AsyncCollection[Document],
    claim: Claim,
    transition: Transition,
    session: AsyncClientSession,
    clock: Clock,
) -> bool:
    """Settle a claim as part of a transaction; False if the transaction sees that it does not apply."""
    result = await collection.update_one(
        {"_id": claim["_id"], **transition.when}, transition.update(clock.now()), session=session
    )
    return result.matched_count == 1


async def leave(collection: AsyncCollection[Document], document: Document) -> None:
    """Store the failed run of a schedule as a job of its own."""
    try:
        await collection.insert_one(document)
    except DuplicateKeyError:
        return  # an earlier try of this settlement stored it


async def spawn(collection: AsyncCollection[Document], job: Document) -> bool:
    """Store the job of its own that a schedule makes; False if an earlier one is active and holds its key.

    It may be there already: a process may have died after it had stored the job, before the schedule went on.
    """
    try:
        await collection.insert_one(job)
    except DuplicateKeyError:
        return await decoding.find_one(collection, {"_id": job["_id"]}, {"_id": 1}) is not None
    return True


async def remove_left(collection: AsyncCollection[Document], left: Document) -> None:
    """Delete a failed run again, unless its schedule says that this very run was given up.

    Then another instance was faster: the id follows from the claim, so both mean the same document.
    """
    given_up = {"_id": left["scheduleId"], "failedRunId": left["_id"]}
    if await decoding.find_one(collection, given_up, {"_id": 1}) is None:
        await collection.delete_one({"_id": left["_id"], "status": "failed"})


def _answer(settlement: Settlement, document: Document | None) -> Answer:
    is_settled = was_settled(settlement.claim, settlement.transition, document)
    return Settled(document) if is_settled else LOST


class _Group(NamedTuple):
    """Claims that one update settles."""

    transition: Transition
    claims: list[Claim]
    values: list[Kept] | None = None
    """The result of each, if the transition stores one."""

    @property
    def query(self) -> Document:
        return {"_id": {"$in": [claim["_id"] for claim in self.claims]}, **self.transition.when}

    def update(self, now: datetime) -> Document | list[Document]:
        if self.values is None:
            return self.transition.update(now)
        ids = [claim["_id"] for claim in self.claims]
        return self.transition.update(now, by_id(ids, [kept.value for kept in self.values]))


def _by_transition(pairs: Iterable[tuple[Claim, Transition]]) -> list[_Group]:
    """Group the claims whose transitions are the same, or differ in their values alone."""
    groups: dict[Transition, list[Claim]] = {}
    values: dict[Transition, list[Kept]] = {}
    for claim, transition in pairs:
        shared = transition.base or transition
        groups.setdefault(shared, []).append(claim)
        if transition.value is not None:
            values.setdefault(shared, []).append(transition.value)
    if not values:
        return [_Group(*each) for each in groups.items()]
    return [part for each in groups.items() for part in _parts(_Group(*each, values.get(each[0])))]


def _of_one_attempt(
    claims: Sequence[Claim], reports: Sequence[Report]
) -> Iterator[tuple[list[Claim], list[Report]]]:
    """The reports that can share an update: those of equal attempts, a hundred at most."""
    groups: dict[str, list[tuple[Claim, Report]]] = {}
    for claim, report in zip(claims, reports, strict=True):
        # As text: somebody may have stored an attempt that cannot be the key of a dict.
        groups.setdefault(repr(claim.get("attempt")), []).append((claim, report))
    for group in groups.values():
        for start in range(0, len(group), _VALUES):
            part = group[start : start + _VALUES]
            yield [claim for claim, _ in part], [report for _, report in part]


def _parts(group: _Group) -> Iterator[_Group]:
    """Split a group with values, so that no update gets too long."""
    if group.values is None:
        yield group
        return
    start = size = 0
    for end, kept in enumerate(group.values):
        if end - start == _VALUES or size + kept.size > _VALUE_BYTES:
            yield _Group(group.transition, group.claims[start:end], group.values[start:end])
            start, size = end, 0
        size += kept.size
    yield _Group(group.transition, group.claims[start:], group.values[start:])
