"""Operations on many jobs, all at once or in pieces by their ids: each piece says where the next one begins.

Nothing is kept between two pieces but what their place says. Jobs that refuse, or that the operation does not
apply to, are passed: however many there are, the pieces come to an end.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime
from typing import Any

import bson
from bson import ObjectId
from bson.errors import BSONError, InvalidBSON
from pymongo import UpdateOne
from pymongo.asynchronous.collection import AsyncCollection
from pymongo.errors import BulkWriteError, DuplicateKeyError, PyMongoError

from monque._ops import lists, schedules
from monque._ops.filters import matching
from monque._ops.operations import Operation
from monque._store import batches, decoding
from monque._store.children import cancel_children_since, find_parents
from monque._store.document import (
    EXACT_CODEC_OPTIONS,
    Document,
    beyond_id,
    is_recurring,
    named_as,
    status_of,
    with_id,
)
from monque._store.follow_ups import FREE, store_due
from monque._store.store import Store, until_applied
from monque._store.transitions import operators
from monque._store.transitions.transition import Transition
from monque._store.unique import REFUSED, duplicates, is_key_taken, why_refused
from monque._values.filter import JobFilter
from monque._values.status import JobStatus
from monque._values.views import BulkError, BulkResult

PIECE = 10_000
"""Jobs of one piece, unless the caller says how many: as many as an entry of the audit trail keeps ids of."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BulkAction:
    """An operation on many jobs, as it was asked for."""

    operation: Operation
    jobs: JobFilter
    options: Mapping[str, Any]
    as_of: datetime | None = None
    """Only jobs that have not changed since; None for whatever matches."""
    actor: str | None = None

    def query(self, *, only_applicable: bool = False) -> Document | None:
        """The query for its jobs; None if there cannot be any.

        With *only_applicable*, for those in a state that it applies to: others make no pieces.
        """
        jobs, states = self.jobs, self.operation.states(self.options)
        if only_applicable and states is not None:
            among = [status for status in jobs.statuses or JobStatus if status in states]
            if not among:
                return None
            jobs = replace(jobs, status=among)
        query = matching(jobs)
        return query if self.as_of is None else {"$and": [query, _unchanged_since(self.as_of)]}

    def with_place(self, result: BulkResult, place: Place) -> BulkResult:
        """The result of a piece, with its place as text that only the next piece of this action accepts."""
        if result.next is None:
            return result
        return replace(result, next=lists.write_cursor(bson.encode(asdict(place)), self._described()))

    def read_place(self, text: object) -> Place:
        """Decode the place that a text stands for.

        Raises:
            InvalidCursorError: It was changed, or comes from another action.
        """
        return lists.read_cursor(text, self._described(), _read_place, of="this action", other="action")

    def _described(self) -> object:
        # Not the filter: the ids of a group of failures, and what is due now, change from piece to piece.
        return ["bulk", self.operation.name, None if self.as_of is None else str(self.as_of), self.actor]


def _unchanged_since(moment: datetime) -> Document:
    """Match the jobs that have not changed since. Heartbeats move the update time of those that run."""
    resting = {"status": {"$ne": "processing"}, "updatedAt": {"$lt": moment}}
    return {"$or": [resting, {"status": "processing", "claimedAt": {"$lt": moment}}]}


@dataclass(frozen=True, slots=True)
class Place:
    """The place between two pieces of an action."""

    after: Any = None
    """The id of the last job of the piece before; None at the beginning."""
    entry: ObjectId | None = None
    """The audit entry to which the next piece adds."""
    count: int = 0
    """The number of jobs that the pieces before have changed."""

    def beyond(self, result: BulkResult, entry: ObjectId | None) -> Place:
        """The place after one more piece."""
        return Place(result.next, entry, self.count + result.count)


def added(total: BulkResult, result: BulkResult) -> BulkResult:
    """The result of all pieces so far. It has no ids, which may be millions."""
    return BulkResult(
        count=total.count + result.count,
        errors=[*total.errors, *result.errors],
        requested=total.requested + result.requested,
    )


def _read_place(packed: bytes) -> Place | None:
    try:
        match bson.decode(packed, EXACT_CODEC_OPTIONS):
            case {"after": after, "entry": ObjectId() | None as entry, "count": int(count)}:
                return Place(after, entry, count)
    except (BSONError, RecursionError):
        pass
    return None


@dataclass(frozen=True, slots=True)
class Changed:
    """The result of an operation on the jobs of one query."""

    count: int = 0
    requested: int = 0
    """Running jobs that were asked to stop."""
    errors: list[BulkError] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Piece:
    """The jobs that one call is about."""

    query: Document
    ids: list[Any] = field(default_factory=list)
    """The jobs of the piece; empty if the call is about all that match."""
    statuses: list[Any] = field(default_factory=list)
    """The states that they were in, in the same order."""
    next: Any = None
    """The id after which the next piece begins; None if there is none."""

    def result(self, changed: Changed, states: frozenset[JobStatus] | None) -> BulkResult:
        """The result for the user; *states* are those that the operation applies to."""
        applicable = None if states is None else tuple(states)  # a state that others wrote may have no hash
        found = zip(self.ids, self.statuses, strict=True)
        met = [job_id for job_id, status in found if applicable is None or status in applicable]
        return BulkResult(
            count=changed.count,
            errors=changed.errors,
            requested=changed.requested,
            skipped=len(self.ids) - len(met),
            next=self.next,
            job_ids=met,
        )


async def read_piece(
    collection: AsyncCollection[Document], query: Document, *, limit: int | None, after: Any
) -> Piece:
    """The first *limit* jobs that match, of those beyond the id *after*; without a limit, all that match.

    The filter stays part of the query: a job that does not match any more when it is written is left alone.
    """
    if limit is None:
        return Piece(query)
    rest = query if after is None else {"$and": [query, beyond_id(after, "$gt")]}
    exact = collection.with_options(codec_options=EXACT_CODEC_OPTIONS)
    unreadable: list[Any] = []
    found = await decoding.find(
        exact, rest, {"status": 1}, sort={"_id": 1}, limit=limit + 1, left_out=unreadable
    )
    piece = found[:limit]
    ids = [document["_id"] for document in piece]
    return Piece(
        query={"$and": [{"_id": {"$in": ids}}, query]},
        ids=ids,
        statuses=[status_of(document) for document in piece],
        next=ids[-1] if ids and len(found) + len(unreadable) > limit else None,
    )


async def perform(store: Store, action: BulkAction, query: Document) -> Changed:
    """Perform an operation on the jobs that match *query* and are in a state that it applies to.

    If it may have ended a batch, or parked jobs for one, look at the batch of the filter, and at one round of
    those that jobs wait for.
    """
    name = action.operation.name
    uses = await store.uses.read() if name in _OF_BATCHES else frozenset()
    parents = list[Document]()
    is_redone = action.options.get("from_start") or action.options.get("from_step") is not None
    if "batch" in uses and (name == "cancel" or is_redone):
        states = action.operation.states(action.options) or JobStatus
        parents = await find_parents(store, {"$and": [query, {"status": {"$in": [*states]}}]})
    changed = await _perform(store, action, query)
    for parent in parents:
        await cancel_children_since(store, parent)
    if "parked" in uses:
        if action.jobs.batch is not None:
            await batches.look(store, action.jobs.batch)
        with suppress(PyMongoError):  # the jobs are changed; the sweep of an instance looks again
            await batches.sweep(store)
    return changed


_OF_BATCHES = ("cancel", "delete", "retry")


async def _perform(store: Store, action: BulkAction, query: Document) -> Changed:
    operation = action.operation
    if operation.transitions is None:
        query = await without_follow_ups(store, query)
        return Changed((await store.collection.delete_many(query)).deleted_count)
    if (special := _SPECIAL.get(operation.name)) is not None:
        return await special(store, query, **action.options)
    changed = Changed()
    for transition in operation.transitions(**action.options):
        matched = await _update(store.collection, query, transition)
        is_asked = transition.to is JobStatus.PROCESSING
        changed = Changed(changed.count + matched * (not is_asked), changed.requested + matched * is_asked)
    return changed


async def _update(collection: AsyncCollection[Document], query: Document, transition: Transition) -> int:
    """Perform a transition on all jobs that match; return how many these are."""
    result = await collection.update_many({"$and": [query, transition.when]}, transition.then)
    return result.matched_count


# How often the jobs that match are gone through while they change hands. The second time finds those that
# were claimed or put back during the first, the third mostly none. New jobs that are stored all the time must
# not keep the call for ever.
_ROUNDS = 6


async def _cancel(store: Store, query: Document, *, reason: str | None, running: bool = False) -> Changed:
    """Cancel the pending jobs that match; with *running*, ask for the end of the others first and last.

    `requested` are those that run and were asked, now or before. A job may be claimed before the first write
    comes to it, or be put back after that. The writes are repeated until none of them finds a new one.
    """
    jobs, cancel = store.collection, operators.cancel(reason=reason)
    if not running:
        return Changed(await _update(jobs, query, cancel))
    request = operators.request_cancel(reason=reason)
    cancelled, requested = 0, await jobs.count_documents({"$and": [query, operators.stopping()]})
    for _ in range(_ROUNDS):
        asked, now = await _update(jobs, query, request), await _update(jobs, query, cancel)
        cancelled, requested = cancelled + now, requested + asked
        if not asked and not now:
            break
    return Changed(cancelled, requested)


async def _run_now(store: Store, query: Document) -> Changed:
    """Let the pending jobs that match run now. Schedules among them are triggered, one by one."""
    recurs: Document = {"repeatInterval": {"$ne": None}}
    once = {"$and": [query, {"$nor": [recurs]}]}
    count = await _update(store.collection, once, operators.run_now_by_operator())
    async for batch in _batches(store.collection, {"$and": [query, recurs, {"status": "pending"}]}):
        for schedule in batch:
            count += await _trigger(store, schedule)
    return Changed(count)


async def _trigger(store: Store, read: Document) -> bool:
    """Let a schedule that waits run now; False if it does not wait any more."""

    async def trigger() -> bool | None:
        before = await store.get(read["_id"], read=read)
        if before is None or status_of(before) is not JobStatus.PENDING or not is_recurring(before):
            return False
        return None if await schedules.trigger_once(store, before) is None else True

    return await until_applied(trigger)


async def without_follow_ups(store: Store, query: Document) -> Document:
    """The query for the jobs that match, after their follow-ups are stored; as it is where nobody has any."""
    if "follow_up" not in await store.uses.read():
        return query
    await store_due(store, query)
    return {"$and": [query, FREE]}


async def delete_one(
    collection: AsyncCollection[Document],
    job_id: Any,
    read: Mapping[str, Any] | None,
    *,
    only: Document = FREE,
) -> Document | None:
    """Delete one job, *read* as for `Store.get`; the label of its batch, None if there is no such job.

    None as well if its follow-up is not stored yet: then store that first.

    The driver retries this by itself, unlike a `delete_many`.
    """
    these, name = {**with_id(job_id), **only}, named_as(read)
    for query in [{**these, **name}, these] if name else [these]:
        try:
            removed = await collection.find_one_and_delete(
                query, {"_id": 0, "batch": 1, "name": 1, "turn": 1}
            )
        except InvalidBSON:  # it is gone; nobody can read its label
            return {}
        if removed is not None:
            return removed
    return None


# How many jobs with keys one bulk write retries.
_BATCH = 1000
_KEYED: Document = {"uniqueKey": {"$exists": True}}
_KEYLESS: Document = {"uniqueKey": {"$exists": False}}


async def _retry(store: Store, query: Document, **options: Any) -> Changed:
    """Put back the failed and cancelled jobs among those that match.

    One command puts back all jobs without a key. A job with a key may collide with an active holder, which
    would stop such a command halfway, so these are read in batches and changed one by one within a bulk
    write.
    """
    transition = operators.retry_by_operator(**options)
    query = await without_follow_ups(store, query)
    count = await _update(store.collection, {"$and": [query, _KEYLESS]}, transition)
    errors: list[BulkError] = []
    async for batch in _batches(store.collection, {"$and": [query, transition.when, _KEYED]}):
        changed, taken = await _retry_batch(store.collection, batch, transition)
        count += changed
        errors += taken
    return Changed(count, errors=errors)


async def _batches(collection: AsyncCollection[Document], query: Document) -> AsyncIterator[list[Document]]:
    """Yield the ids and names that match, by id: a job that fails again meanwhile is not met twice."""
    last: Document = {}
    exact = collection.with_options(codec_options=EXACT_CODEC_OPTIONS)
    while True:
        rest = {"$and": [query, last]}
        found = await decoding.find(exact, rest, {"name": 1}, sort={"_id": 1}, limit=_BATCH)
        if not found:
            return
        yield found
        last = beyond_id(found[-1]["_id"], "$gt")


async def _retry_batch(
    collection: AsyncCollection[Document], batch: list[Document], transition: Transition
) -> tuple[int, list[BulkError]]:
    writes = [UpdateOne({**_same(job), **transition.when}, transition.then) for job in batch]
    try:
        return (await collection.bulk_write(writes, ordered=False)).modified_count, []
    except InvalidBSON:  # a key is taken, and the driver does not decode that key
        return await _retry_each(collection, batch, transition)
    except BulkWriteError as error:
        refused = duplicates(error).items()
        taken = [BulkError(job_id=batch[at]["_id"], error=why_refused(refusal)) for at, refusal in refused]
        return error.details["nModified"], taken


async def _retry_each(
    collection: AsyncCollection[Document], batch: list[Document], transition: Transition
) -> tuple[int, list[BulkError]]:
    changed, taken = 0, list[BulkError]()
    for job in batch:
        job_id, query = job["_id"], {**_same(job), **transition.when}
        try:
            changed += (await collection.update_one(query, transition.then)).modified_count
        except DuplicateKeyError as error:
            taken.append(BulkError(job_id=job_id, error=why_refused(error)))
        except InvalidBSON:
            taken.append(BulkError(job_id=job_id, error=REFUSED))
    return changed, taken


def _same(read: Document) -> Document:
    """Match the job that was read."""
    return {**with_id(read["_id"]), **named_as(read)}


async def retry_one(
    collection: AsyncCollection[Document], job_id: Any, read: Document, transition: Transition
) -> Document | DuplicateKeyError | None:
    """Put one job back if it is still in the state that was *read*; return the error if its key is taken."""
    same = {**with_id(job_id), **named_as(read), **transition.when, "status": read["status"]}
    if "followUp" not in read:
        same |= FREE
    try:
        return await decoding.find_one_and_update(collection, same, transition.then)
    except DuplicateKeyError as error:
        if not is_key_taken(error.details):
            raise  # the index is not ours: trying again would never end
        return error


# Taken keys, schedules, and jobs that change hands meanwhile: all else is one write for each transition.
_SPECIAL: Mapping[str, Callable[..., Awaitable[Changed]]] = {
    "retry": _retry,
    "cancel": _cancel,
    "run-now": _run_now,
}
