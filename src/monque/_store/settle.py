"""The ends of runs in the database: settlements share writes, and heartbeats keep claims until then.

Whoever sends no heartbeats loses its claims to recovery (`_engine/recovery.py`). Then the jobs wait again,
which counts as a crash of each, not as a failure. The words of a transition (`leaves`, `lean` and so on) are
explained in `_store/transitions/transition.py`.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any, NamedTuple, Protocol, TypeAlias, TypeVar

import pymongo
from bson.errors import InvalidBSON
from pymongo import ReturnDocument
from pymongo.asynchronous.client_session import AsyncClientSession
from pymongo.asynchronous.collection import AsyncCollection
from pymongo.errors import DuplicateKeyError, OperationFailure, PyMongoError

from monque._connect.deadlines import OPERATION_TIMEOUT, limited
from monque._store import decoding, progress
from monque._store.batching import Batching
from monque._store.document import (
    CLAIM_FIELDS,
    TOO_LARGE,
    Claim,
    Document,
    Key,
    attempt_of,
    is_cancel_requested,
    key_of,
    named,
    with_id,
)
from monque._store.flows import entries_of
from monque._store.transitions import run
from monque._store.transitions.flows import record_steps
from monque._store.transitions.transition import (
    FailedRun,
    Transition,
    by_id,
    is_owned,
    lean,
    owned,
    was_settled,
)
from monque._time.clock import Clock, elapsed
from monque._values.history import Report
from monque._values.status import JobStatus
from monque._workers.results import Kept

# No caller waits for a settlement, so it can wait for a batch. Twice as many gain nothing; half as many cost
# the server about a twentieth more for each job.
_BATCH = 1_000

# What an event need not have: the payload is known, traces, logs and values of steps are long.
_READ_BACK = {"data": 0, "history.trace": 0, "log": 0, "steps.v": 0, "signals.v": 0}

# What tells whether a job was settled.
_PROOF = dict.fromkeys(("status", "attempt", "settledAttempt", "lostAttempt", "updatedAt"), 1)

# The results that share one update, and their bytes. The server searches its list of ids for each job: with
# twice as many that takes longer than a second update, with half as many there are twice the updates. The
# bytes leave room for one more result of the largest size in a command.
_VALUES = 100
_VALUE_BYTES = 4 * 1024 * 1024

# Seconds that a heartbeat may take in any case, however short its interval is.
_SHORTEST_BEAT = 1.0

# Seconds for shared settlements at least: a large batch on a busy server takes its time. They must be over
# before the claims look dead, which no heartbeat covers any more.
_SHORTEST_WRITE = 5.0

# Seconds for documents that a transaction of somebody else seems to hold.
_HELD_LIMIT = 1.0

# A shared write that took too long is sent again in so many parts. In two parts, a held job in each would
# look like a database that does not answer; with twice as many, a slow database gets twice the commands.
_PARTS = 8

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


class Settleable(Protocol):
    """The end of a claim's run."""

    @property
    def claim(self) -> Claim:
        """The claim that holds the job."""

    @property
    def transition(self) -> Transition:
        """The transition that records how the run ended."""

    @property
    def needs_document(self) -> bool:
        """Return whether somebody wants to see the job as it is afterwards."""

    @property
    def last_write(self) -> float:
        """The time at which the last successful write of the claim was sent (`elapsed`)."""


S = TypeVar("S", bound=Settleable)
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class _Settlement:
    claim: Claim
    transition: Transition
    needs_document: bool = True
    last_write: float = math.inf  # nothing asks for that of a job that was not run


class Settler:
    """Writes settlements in batches, and heartbeats."""

    def __init__(
        self, collection: AsyncCollection[Document], clock: Clock, *, interval: float, silence: float
    ) -> None:
        self._collection = collection
        self._clock = clock
        # If the connection has died, there must be time for a second one before the claims look dead.
        self._beat_limit = min(max(interval, _SHORTEST_BEAT), OPERATION_TIMEOUT)
        self._write_limit = max(self._beat_limit, _SHORTEST_WRITE)
        self.held: set[Key] = set()
        """The claims whose documents could not be written in time: they are written apart from others."""
        self._silence = silence
        self._removing: set[Key] = set()
        """The claims whose jobs an earlier delete may have removed."""
        self._batching: Batching[Settleable, Answer] = Batching(
            self._send, many=_BATCH, at_once=_WRITES_AT_ONCE
        )
        self._batching_held: Batching[Settleable, Answer] = Batching(
            partial(self._send, is_held=True), many=_BATCH, at_once=_WRITES_AT_ONCE
        )
        self._asking: Batching[Claim, bool] = Batching(self._beat_asking, many=_BATCH, at_once=1)

    def put(self, settlement: S, on_answer: Callable[[S, Answer | BaseException], None]) -> None:
        """Settle in the next batch and call *on_answer*; an exception is a bug, or the end of the loop."""
        self._batching.put(settlement, on_answer)

    async def settle(self, claim: Claim, transition: Transition, *, needs_document: bool = True) -> Answer:
        """Settle a job that was not run, as `settle_run` does."""
        return await self.settle_run(_Settlement(claim, transition, needs_document))

    async def settle_run(self, settlement: Settleable) -> Answer:
        """Settle in the next batch and wait for the answer; apart if a transaction seems to hold the job."""
        batching = self._batching_held if settlement.claim.key in self.held else self._batching
        return await batching.add(settlement)

    async def heartbeat(self, claims: Sequence[Claim]) -> list[Claim]:
        """Mark the jobs as alive; return the claims that do not hold any more.

        The server waits where a transaction of somebody else has changed a job, and marks none behind it. So
        such a job is marked apart from the others, if it is one of many.
        """
        held = [claim for claim in claims if claim.key in self.held] if len(claims) > 1 else []
        if not held:
            return await self._beat_shared(claims)
        shared = [claim for claim in claims if claim.key not in self.held]
        lost, answers = await asyncio.gather(self._beat_shared(shared), _in_parts(held, self._beat_part))
        return [*lost, *_lost_of(held, answers)]

    async def still_holds(self, claim: Claim) -> bool:
        """Return whether the claim holds, by a heartbeat that it shares with others that ask meanwhile.

        A loop that stood still has hundreds of claims that must not start unasked.
        """
        return await self._asking.add(claim)

    async def _beat_asking(self, claims: Sequence[Claim]) -> list[bool]:
        lost = {claim.key for claim in await self.heartbeat(claims)}
        if len(claims) > 1:
            lost |= self.held  # no answer came for these
        return [claim.key not in lost for claim in claims]

    async def _beat_shared(self, claims: Sequence[Claim]) -> list[Claim]:
        lost: list[Claim] = []
        for group in heartbeats_of(claims):
            try:
                lost += await self._beat(group, self._beat_limit)
            except PyMongoError as error:
                if not error.timeout or len(group.claims) == 1:
                    raise
                answers = await _in_parts(group.claims, self._beat_part)
                if _is_late(answers):
                    self.held.clear()  # the database itself does not answer
                    raise
                lost += _lost_of(group.claims, answers)
        return lost

    async def _beat_part(self, claims: Sequence[Claim]) -> Sequence[Answer]:
        keys = {claim.key for claim in claims}
        try:
            lost = [
                claim for group in heartbeats_of(claims) for claim in await self._beat(group, _HELD_LIMIT)
            ]
        except PyMongoError as error:
            if not error.timeout:
                raise
            self.held |= keys
            return [Doubtful(error)] * len(claims)
        self.held -= keys
        gone = {claim.key for claim in lost}
        return [LOST if claim.key in gone else _NOT_READ_BACK for claim in claims]

    async def _beat(self, group: Group, limit: float) -> list[Claim]:
        with limited(limit):
            result = await self._collection.update_many(group.query, group.transition.then, hint="_id_")
            if result.matched_count == len(group.claims):
                return []
            return await self._lost(group.claims, group.transition)

    async def report(self, claims: Sequence[Claim], reports: Sequence[Report]) -> list[Claim]:
        """Write what running jobs report; return the claims that do not hold any more."""
        groups = [(part, progress.report(part, of)) for part, of in _of_one_attempt(claims, reports)]
        updates = [
            pymongo.UpdateMany({**jobs_of(part), **write.when}, write.then, hint="_id_")
            for part, write in groups
        ]
        with limited():
            result = await self._collection.bulk_write(updates, ordered=False)
            if result.matched_count == len(claims):
                return []
            return [claim for group in groups for claim in await self._lost(*group)]

    async def _lost(self, claims: Sequence[Claim], transition: Transition) -> list[Claim]:
        """Those of the claims that do not hold any more, after a write that some of them missed.

        A job that somebody has renamed is still ours: it gets the write under its new name.
        """
        held = {"_id": {"$in": [claim.id for claim in claims]}, **transition.when}
        found = await decoding.find(self._collection, held, {"name": 1}, hint="_id_")
        names = [claim.name for claim in claims]  # no set: what somebody stored there may have no hash
        renamed = [document["_id"] for document in found if document.get("name") not in names]
        if renamed:
            these = {**held, "_id": {"$in": renamed}}
            await self._collection.update_many(these, transition.then, hint="_id_")
        kept = {key_of(document["_id"]) for document in found}
        return [claim for claim in claims if claim.key[0] not in kept]

    async def _send(self, batch: list[Settleable], *, is_held: bool = False) -> Sequence[Answer]:
        send, limit = (self._send_parts, _HELD_LIMIT) if is_held else (self._send_shared, None)
        # A settlement that stores a document beside its job needs writes of its own; the others share theirs.
        single = [settlement for settlement in batch if settlement.transition.beside is not None]
        if not single:
            return await send(batch)
        shared = [settlement for settlement in batch if settlement.transition.beside is None]
        answers = await asyncio.gather(send(shared), self._send_each(single, limit))
        of_shared, of_single = map(iter, answers)
        return [next(of_shared if each.transition.beside is None else of_single) for each in batch]

    async def _send_shared(self, batch: list[Settleable]) -> Sequence[Answer]:
        if len(batch) <= 1:
            return await self._send_each(batch)
        answers = await self._send_many(batch, self._write_limit)
        if not _is_late(answers):
            return answers
        answers = await self._send_parts(batch)
        if _is_late(answers):  # the database itself does not answer
            self.held.difference_update(each.claim.key for each in batch)
        return answers

    async def _send_parts(self, batch: list[Settleable]) -> Sequence[Answer]:
        return await _in_parts(batch, self._send_part)

    async def _send_part(self, batch: Sequence[Settleable]) -> Sequence[Answer]:
        if len(batch) == 1:
            return await self._send_each(batch, _HELD_LIMIT)
        answers = await self._send_many(batch, _HELD_LIMIT)
        if _is_late(answers):
            self.held.update(each.claim.key for each in batch)
        return answers

    async def _send_many(self, batch: Sequence[Settleable], limit: float) -> Sequence[Answer]:
        try:
            with limited(limit):
                answers = await self._settle_many(batch)
        except PyMongoError as error:
            if isinstance(error, OperationFailure) and not error.timeout:
                # The server refused something in the batch. One bad settlement must not spoil the others.
                return await self._send_each(batch)
            return [Doubtful(error)] * len(batch)
        if self.held or self._removing:
            for each in batch:
                self.held.discard(each.claim.key)
                self._removing.discard(each.claim.key)
        return answers

    async def _send_each(self, batch: Sequence[Settleable], limit: float | None = None) -> Sequence[Answer]:
        return await asyncio.gather(*(self._settle_one(each, limit) for each in batch))

    async def _settle_one(self, settlement: Settleable, limit: float | None = None) -> Answer:
        claim, transition = settlement.claim, settlement.transition
        try:
            with limited(limit or self._write_limit):
                if transition.removes:
                    answer = await self._remove(settlement)
                else:
                    document = await self._change(claim, transition)
                    answer = LOST if document is None else Settled(document)
        except PyMongoError as error:
            if error.timeout:
                self.held.add(claim.key)
            return Doubtful(error)
        self.held.discard(claim.key)
        return answer

    async def _remove(self, settlement: Settleable) -> Answer:
        """Delete the job. One that is gone was deleted by an earlier try, if the answer to that was lost."""
        claim = settlement.claim
        query: Document = {"_id": claim.id, "name": claim.name, **settlement.transition.when}
        is_again = claim.key in self._removing
        self._removing.add(claim.key)  # and there it stays if one of these raises
        is_done = bool((await self._collection.delete_one(query)).deleted_count)
        if not is_done:
            document = await self._read_back(claim)
            is_done = document is None and is_again and self._was_ours(settlement)
            if document is not None and (name := new_name(claim, document)) is not None:
                query["name"] = name
                is_done = bool((await self._collection.delete_one(query)).deleted_count)
        self._removing.discard(claim.key)
        return _NOT_READ_BACK if is_done else LOST

    def _was_ours(self, settlement: Settleable) -> bool:
        """Return whether nobody else can have taken the job and run it meanwhile."""
        return elapsed() - settlement.last_write < self._silence

    async def _change(self, claim: Claim, transition: Transition) -> Document | None:
        """The document after the settlement, now or by an earlier try; None if the claim was lost."""
        beside = transition.beside
        if isinstance(beside, FailedRun):
            await leave(self._collection, beside.document)
        elif beside is not None and not await spawn(self._collection, beside.document):
            transition = beside.otherwise
        document = await self._update(claim, transition, claim.name)
        if document is not None:
            return document
        document = await self._read_back(claim)
        if was_settled(claim, transition, document):
            return document
        if document is not None and (name := new_name(claim, document)) is not None:
            document = await self._update(claim, transition, name)
            if document is not None:
                return document
        if isinstance(beside, FailedRun):
            await remove_left(self._collection, beside.document)
        return None

    async def _read_back(self, claim: Claim) -> Document | None:
        """The document of a claim; if it cannot be decoded by now, as claimed, and whether it was settled."""
        try:
            return await decoding.find_one(self._collection, with_id(claim.id))
        except decoding.UnreadableError:
            now = await decoding.find_one(self._collection, with_id(claim.id), _PROOF)
        known = {field: value for field, value in claim.document.items() if field not in CLAIM_FIELDS}
        return now and {**known, **now}

    async def _update(self, claim: Claim, transition: Transition, name: Any) -> Document | None:
        query = {"_id": claim.id, "name": name, **transition.when}
        update = transition.update(self._clock.now())
        try:
            return await self._find_and_update(query, update)
        except OperationFailure as error:
            if error.code not in TOO_LARGE:
                raise
            return await self._find_and_update(query, lean(update))

    async def _find_and_update(self, query: Document, update: Document | list[Document]) -> Document | None:
        try:
            return await self._collection.find_one_and_update(
                query, update, return_document=ReturnDocument.AFTER
            )
        except InvalidBSON:
            return None  # the job is settled; it is read next, whatever it holds

    async def _settle_many(self, batch: Sequence[Settleable]) -> list[Answer]:
        """Settle in one write. If all of them matched, what nobody wants to see is not read back."""
        groups = _by_transition((each.claim, each.transition) for each in batch)
        matched = await self._write(groups)
        completes_all = all(
            group.transition.to is JobStatus.COMPLETED and group.transition.step is None for group in groups
        )
        if matched == len(batch) and (completes_all or not any(each.needs_document for each in batch)):
            return [_NOT_READ_BACK] * len(batch)
        these = {"_id": {"$in": [each.claim.id for each in batch]}}  # by id alone: one may be renamed
        unreadable: list[Any] = []
        found = await decoding.find(self._collection, these, _READ_BACK, left_out=unreadable)
        if unreadable:
            return list(await self._send_each(batch))  # what is settled already stays so
        after = {key_of(document["_id"]): document for document in found}
        return [await self._answer(each, after.get(each.claim.key[0])) for each in batch]

    async def _answer(self, settlement: Settleable, document: Document | None) -> Answer:
        claim, transition = settlement.claim, settlement.transition
        if document is None and transition.removes:
            # Of the jobs of a shared delete, nobody can tell which were gone before.
            return _NOT_READ_BACK if self._was_ours(settlement) else LOST
        if was_settled(claim, transition, document):
            return Settled(document)
        if document is not None and new_name(claim, document) is not None:
            return await self._settle_one(settlement)
        return LOST

    async def _write(self, groups: list[Group]) -> int:
        """Perform each transition on its claims; how many claims matched."""
        now = self._clock.now()
        for group in groups:
            if group.transition.removes:
                self._removing.update(claim.key for claim in group.claims)
        if len(groups) == 1:
            query = groups[0].query
            if groups[0].transition.removes:
                return (await self._collection.delete_many(query, hint="_id_")).deleted_count
            update = groups[0].update(now)
            return (await self._collection.update_many(query, update, hint="_id_")).matched_count
        done = await self._collection.bulk_write([group.write(now) for group in groups], ordered=False)
        return done.matched_count + done.deleted_count


async def _in_parts(
    whole: Sequence[T], send: Callable[[Sequence[T]], Awaitable[Sequence[Answer]]]
) -> Sequence[Answer]:
    """Send in parts what was late as a whole, because a transaction may hold one of the jobs.

    A part that is late is sent in parts again. If all are late, the database itself is slow, and further
    commands would make it slower.
    """
    size = max(1, -(-len(whole) // _PARTS))
    parts = [whole[start : start + size] for start in range(0, len(whole), size)]
    answers = await asyncio.gather(*map(send, parts))
    if size > 1 and not all(map(_is_late, answers)):
        late = [_in_parts(part, send) for part, each in zip(parts, answers, strict=True) if _is_late(each)]
        again = iter(await asyncio.gather(*late))
        answers = [next(again) if _is_late(each) else each for each in answers]
    return [answer for part in answers for answer in part]


def _is_late(answers: Sequence[Answer]) -> bool:
    """Return whether nothing of this was written in time."""
    return bool(answers) and all(
        isinstance(each, Doubtful) and getattr(each.error, "timeout", False) for each in answers
    )


def _lost_of(claims: Sequence[Claim], answers: Sequence[Answer]) -> list[Claim]:
    return [claim for claim, answer in zip(claims, answers, strict=True) if answer is LOST]


async def find_cancel_requests(
    collection: AsyncCollection[Document], claims: Sequence[Claim]
) -> list[tuple[Key, Document]]:
    """The requests to cancel jobs that these claims still hold, with the keys of the claims."""
    query = {
        **jobs_of(claims),
        "status": "processing",
        "claimedBy": {"$in": list({claim.claimed_by for claim in claims})},
        "cancel.by": "operator",
    }
    with limited():
        found = await decoding.find(collection, query, {"attempt": 1, "cancel": 1}, hint="_id_")
    return [
        ((key_of(each["_id"]), attempt_of(each)), each["cancel"])
        for each in found
        if is_cancel_requested(each)
    ]


async def settle_in(
    collection: AsyncCollection[Document],
    claim: Claim,
    transition: Transition,
    session: AsyncClientSession,
    clock: Clock,
) -> bool:
    """Settle a claim as part of a transaction; False if the transaction sees that it does not apply."""

    async def write(job: Document) -> int | None:
        update = transition.update(clock.now())
        result = await collection.update_one({**job, **transition.when}, update, session=session)
        return result.matched_count or None

    return (await _while_owned(collection, claim, write, session=session))[0] is not None


async def record_done(
    collection: AsyncCollection[Document], claim: Claim, entries: Sequence[Document]
) -> bool:
    """Store steps that are done, each once; False if the job does not belong to this claim any more.

    The answer to an earlier try may have been lost. Then their names are there already, and they are ours:
    nobody but the owner of the claim stores a step.
    """
    change = record_steps(claim, entries)

    async def write(job: Document) -> int | None:
        return (await collection.update_one({**job, **change.when}, change.then)).matched_count or None

    with limited():
        written, seen = await _while_owned(collection, claim, write, {"steps.n": 1, "steps.k": 1})
    there = {entry["n"] for entry in entries_of(seen or {})}
    return written is not None or there.issuperset(entry["n"] for entry in entries)


async def end_wait(
    collection: AsyncCollection[Document], claim: Claim, name: str, change: Transition
) -> Document | bool:
    """Let a *change* end the wait *name*, and return its entry; True if the wait goes on.

    False if the job is not this claim's any more. An answer may have been lost: then the entry has an end,
    and it is ours, because nobody but the owner of the claim writes one.
    """
    wait: Document = {"steps": {"$elemMatch": {"n": name}}}

    async def write(job: Document) -> Document | None:
        return await decoding.find_one_and_update(collection, {**job, **change.when}, change.then, after=wait)

    with limited():
        after, seen = await _while_owned(collection, claim, write, wait)
    ended = (entry for entry in entries_of(after or seen or {}) if "over" in entry)
    return next(ended, seen is not None)


async def _while_owned(
    collection: AsyncCollection[Document],
    claim: Claim,
    write: Callable[[Document], Awaitable[T | None]],
    fields: Document | None = None,
    *,
    session: AsyncClientSession | None = None,
) -> tuple[T | None, Document | None]:
    """Let *write* change the job that its query matches; its answer, and the job if it was read.

    It is read if the answer is None: *fields* of it if the claim still holds it, else None. If somebody has
    renamed it since the claim, it is written once more, under its new name.
    """
    if (answer := await write({"_id": claim.id, "name": claim.name})) is not None:
        return answer, None
    proof = dict.fromkeys(("name", *owned(claim.claimed_by, claim.attempt)), 1)
    seen = await decoding.find_one(
        collection, with_id(claim.id), {**proof, **(fields or {})}, session=session
    )
    if seen is None or not is_owned(claim, seen):
        return None, None
    if (name := new_name(claim, seen)) is not None:
        answer = await write({"_id": claim.id, "name": name})
    return answer, seen


async def leave(
    collection: AsyncCollection[Document], document: Document, session: AsyncClientSession | None = None
) -> None:
    """Store the failed run of a schedule as a job of its own, in a transaction if there is a *session*."""
    # A taken id would end the transaction: look first.
    if session is not None and await decoding.is_there_any(
        collection, {"_id": document["_id"]}, session=session
    ):
        return
    try:
        await collection.insert_one(document, session=session)
    except DuplicateKeyError:
        return  # an earlier try of this settlement stored it


async def spawn(collection: AsyncCollection[Document], job: Document) -> bool:
    """Store the job of its own that a schedule makes; False if an earlier one is active and holds its key.

    It may be there already: a process may have died after it had stored the job, before the schedule went on.
    """
    try:
        await collection.insert_one(job)
    except DuplicateKeyError:
        return await decoding.is_there_any(collection, {"_id": job["_id"]})
    return True


async def remove_left(collection: AsyncCollection[Document], left: Document) -> None:
    """Delete a failed run again, unless its schedule says that this very run was given up.

    Then another instance was faster: the id follows from the claim, so both mean the same document.
    """
    given_up = {"_id": left["scheduleId"], "failedRunId": left["_id"]}
    if not await decoding.is_there_any(collection, given_up):
        await collection.delete_one({"_id": left["_id"], "status": "failed"})


def jobs_of(claims: Sequence[Claim]) -> Document:
    """Match the jobs of these claims."""
    return {"_id": {"$in": [claim.id for claim in claims]}, **named({claim.name for claim in claims})}


def new_name(claim: Claim, document: Mapping[str, Any]) -> Any:
    """The name that somebody has given to a job while this claim holds it; None if it has its own."""
    name = document.get("name")
    return {"$eq": name} if name != claim.name and is_owned(claim, document) else None


class Group(NamedTuple):
    """Claims that one update settles."""

    transition: Transition
    claims: list[Claim]
    values: list[Kept] | None = None
    """The result of each, if the transition stores one."""

    @property
    def query(self) -> Document:
        return {**jobs_of(self.claims), **self.transition.when}

    def update(self, now: datetime) -> Document | list[Document]:
        if self.values is None:
            return self.transition.update(now)
        ids = [claim.id for claim in self.claims]
        return self.transition.update(now, by_id(ids, [kept.value for kept in self.values]))

    def write(self, now: datetime) -> pymongo.UpdateMany | pymongo.DeleteMany:
        if self.transition.removes:
            return pymongo.DeleteMany(self.query, hint="_id_")
        return pymongo.UpdateMany(self.query, self.update(now), hint="_id_")


def heartbeats_of(claims: Sequence[Claim]) -> list[Group]:
    """The writes that mark the jobs of these claims as alive."""
    return _by_transition((claim, run.heartbeat(claim)) for claim in claims)


def _by_transition(pairs: Iterable[tuple[Claim, Transition]]) -> list[Group]:
    """Group the claims whose transitions are the same, or differ in their values alone."""
    groups: dict[Transition, list[Claim]] = {}
    values: dict[Transition, list[Kept]] = {}
    for claim, transition in pairs:
        if transition.result is not None:
            kept, transition = transition.result
            values.setdefault(transition, []).append(kept)
        groups.setdefault(transition, []).append(claim)
    if not values:
        return [Group(*each) for each in groups.items()]
    return [part for each in groups.items() for part in _parts(Group(*each, values.get(each[0])))]


def _of_one_attempt(
    claims: Sequence[Claim], reports: Sequence[Report]
) -> Iterator[tuple[list[Claim], list[Report]]]:
    """The reports that can share an update: those of equal attempts, a hundred at most."""
    groups: dict[int, list[tuple[Claim, Report]]] = {}
    for claim, report in zip(claims, reports, strict=True):
        groups.setdefault(claim.attempt, []).append((claim, report))
    for group in groups.values():
        for start in range(0, len(group), _VALUES):
            part = group[start : start + _VALUES]
            yield [claim for claim, _ in part], [report for _, report in part]


def _parts(group: Group) -> Iterator[Group]:
    """Split a group with values, so that no update gets too long."""
    if group.values is None:
        yield group
        return
    start = size = 0
    for end, kept in enumerate(group.values):
        if end - start == _VALUES or size + kept.size > _VALUE_BYTES:
            yield Group(group.transition, group.claims[start:end], group.values[start:end])
            start, size = end, 0
        size += kept.size
    yield Group(group.transition, group.claims[start:], group.values[start:])
