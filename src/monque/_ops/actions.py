"""Operations on one job: the write, and the reason if it does not apply.

Each function takes the job or its id, as the user gave it. The condition is part of the write. After a write
that changed nothing, the function reads the job to find out why, and tries again if the job has changed
between the two. A name that is known is part of the write, too: it leads to the shard of the job.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import count
from typing import Any, TypeAlias, TypeVar

from pymongo.errors import DuplicateKeyError

from monque._ops import bulk, schedules
from monque._ops.operations import OPERATIONS, Operation
from monque._store import batches
from monque._store.children import cancel_children
from monque._store.document import (
    Document,
    is_cancel_requested,
    is_parked,
    is_recurring,
    named_as,
    status_of,
    time_of,
    unique_key_of,
    with_id,
)
from monque._store.flows import steps_of, wait_of
from monque._store.follow_ups import store_due
from monque._store.store import Store, until_applied
from monque._store.transitions import operators
from monque._store.transitions.transition import Transition
from monque._values.errors import JobChangedError, JobNotFoundError, JobStateError
from monque._values.job import Job, id_of
from monque._values.rules import ids_meant
from monque._values.status import JobStatus

R = TypeVar("R")

_Known: TypeAlias = Document
"""The name of the job, if it is known."""

_ACTIVE = (JobStatus.PENDING, JobStatus.PROCESSING)
_RETRY, _RUN_NOW = OPERATIONS["retry"], OPERATIONS["run-now"]

# How often a retried job may find its unique key taken by a job that has ended a moment later. Each time
# costs three commands. A key that changes hands so often is as good as taken.
_TRIES = 20


@dataclass(frozen=True, slots=True)
class Acted:
    """The result of an operation on one job."""

    job_id: Any
    document: Document | None
    """The job as it is since; None if it was removed."""
    before: Any = None
    """The state that it was in, if the operation had to read it."""
    removed: Document = field(default_factory=dict)
    """The fields of a job that was removed that others have to know."""
    is_new: bool = True
    """False if it was done before, so that nothing has changed."""
    has_woken: bool = False
    """Jobs that waited for a batch are due since."""


async def find(store: Store, given: Any) -> Document:
    """Read the job."""

    async def read(job_id: Any, known: _Known) -> Document:
        return {**await _read(store, job_id, known), "_id": job_id}

    return await _of_job(given, read)


async def act(store: Store, operation: Operation, given: Any, options: Mapping[str, Any]) -> Acted:
    """Perform an operation on one job, and look at the batch that this may have ended.

    Raises:
        JobNotFoundError: There is no such job.
        JobStateError: It is in a state that the operation does not apply to.
    """
    acted = await _act(store, operation, given, options)
    names = await batches.look_after(store, acted.document or acted.removed)
    return replace(acted, has_woken=bool(names))


async def _act(store: Store, operation: Operation, given: Any, options: Mapping[str, Any]) -> Acted:
    if operation.transitions is None:
        return await _delete(store, given)
    if (special := _SPECIAL.get(operation.name)) is not None:
        return await special(store, given, options)
    transitions = operation.transitions(**options)

    async def change(job_id: Any, known: _Known) -> Acted | None:
        for transition in transitions:
            if (after := await store.change(job_id, transition, read=known)) is not None:
                return Acted(job_id, after)
        before = await _read(store, job_id, known)
        known["name"] = before.get("name")  # somebody may have changed it
        if any(_is_done(before, transition) for transition in transitions):
            return Acted(job_id, before, is_new=False)
        operation.check(status_of(before), before["_id"], options)
        _check_wait(before, operation)
        return None

    return await _change_job(given, change)


def _is_done(document: Document, transition: Transition) -> bool:
    """Return whether somebody has cancelled the job before, or has asked for the end of its run."""
    if transition.to is JobStatus.PENDING or status_of(document) is not transition.to:
        return False
    return transition.to is JobStatus.CANCELLED or is_cancel_requested(document)


async def _retry(store: Store, given: Any, options: Mapping[str, Any]) -> Acted:
    """Put the job back, unless another one holds its key."""
    refusals, transition = count(1), operators.retry_by_operator(**options)

    async def change(job_id: Any, known: _Known) -> Acted | None:
        before = await _read(store, job_id, known)
        _RETRY.check(status_of(before), before["_id"])
        if "followUp" in before and await store_due(store, with_id(job_id)):
            return None  # it is stored: read the job as it is now
        if (step := options.get("from_step")) not in (None, *(each.name for each in steps_of(before))):
            raise _refusal(before, _RETRY, f" from the step {step!r}: it has no such step")
        outcome = await bulk.retry_one(store.collection, job_id, before, transition)
        if isinstance(outcome, DuplicateKeyError):
            await _refuse_taken_key(store, before, for_good=next(refusals) == _TRIES)
            return None
        if outcome is None:
            return None
        if (options.get("from_start") or step is not None) and "batch" in await store.uses.read():
            await cancel_children(store, outcome, is_redone=True)
        return Acted(job_id, outcome, status_of(before))

    return await _change_job(given, change)


async def edit(store: Store, given: Any, changes: Mapping[str, Any]) -> Acted:
    """Give a pending job another payload, time or priority; a job that was given must be as it was read.

    Raises:
        JobNotFoundError: There is no such job.
        JobStateError: It does not wait, or this cannot be changed in it.
        JobChangedError: It has changed since it was read.
    """

    async def change(job_id: Any, known: _Known) -> Acted | None:
        before = await _read(store, job_id, known)
        known["name"] = before.get("name")  # somebody may have changed it
        _check_edit(before, given, changes)
        after = await store.change(job_id, operators.edit(before, **changes), read=before)
        return None if after is None else Acted(job_id, after)

    return await _change_job(given, change)


def _check_edit(document: Document, given: Any, changes: Mapping[str, Any]) -> None:
    status = status_of(document)
    if isinstance(given, Job) and given.updated_at != time_of(document, "updatedAt"):
        raise JobChangedError(
            f"cannot edit job {document['_id']}: it has changed since it was read, and is {status} now",
            job_id=document["_id"],
            current_status=status,
            attempted_action="edit",
        )
    why = ""
    if status is not JobStatus.PENDING:
        why = f"it is {status}; only a pending one can be"
    elif is_recurring(document):
        why = "it is a schedule; edit_schedule changes those"
    elif "data" in changes and "steps" in document:
        why = "it has steps, which began with its payload: that stays"
    elif "run_at" in changes and not operators.is_movable(document):
        why = _no_timeout(document)
    if why:
        raise JobStateError(
            f"cannot edit job {document['_id']}: {why}",
            job_id=document["_id"],
            current_status=status,
            attempted_action="edit",
        )


async def _run_now(store: Store, given: Any, _options: Mapping[str, Any]) -> Acted:
    """Let the job run now; leave it as it is if it is due already. A schedule is triggered."""

    async def change(job_id: Any, known: _Known) -> Acted | None:
        before = await _read(store, job_id, known)
        if is_recurring(before) and status_of(before) in _ACTIVE:
            after = await schedules.trigger_once(store, before)
            return None if after is None else Acted(after["_id"], after)
        after = await store.change(job_id, operators.run_now_by_operator(), read=before)
        if after is None:
            after = await _read(store, job_id, before)
            if named_as(after) != named_as(before):
                return None
            _check_pending(after)
        return Acted(job_id, after)

    return await _change_job(given, change)


def _check_pending(document: Document) -> None:
    _RUN_NOW.check(status_of(document), document["_id"])
    _check_wait(document, _RUN_NOW)
    if is_parked(document):
        in_line = (wait := wait_of(document)) is not None and wait.why == "turn"
        why = "waits for its turn" if in_line else "is parked, so it waits for something else than a time"
        raise _refusal(document, _RUN_NOW, f" now: it {why}")


def _check_wait(document: Document, operation: Operation) -> None:
    """Refuse to move a job that waits for a signal and has no timeout that could be moved."""
    if operation.name in _MOVING and not operators.is_movable(document):
        raise _refusal(document, operation, f": {_no_timeout(document)}")


def _no_timeout(document: Document) -> str:
    signal = document["parked"].get("key")
    return f"it waits for the signal {signal!r} without a timeout; send the signal, or cancel the job"


_MOVING = ("run-now", "reschedule")


def _refusal(document: Document, operation: Operation, why: str) -> JobStateError:
    return JobStateError(
        f"cannot {operation.word} job {document['_id']}{why}",
        job_id=document["_id"],
        current_status=status_of(document),
        attempted_action=operation.word,
    )


# A taken key, and a schedule, are no matter of one write with a condition.
_SPECIAL: Mapping[str, Callable[[Store, Any, Mapping[str, Any]], Awaitable[Acted]]] = {
    "retry": _retry,
    "run-now": _run_now,
}


async def _delete(store: Store, given: Any) -> Acted:
    """Remove the job in whatever state."""

    async def remove(job_id: Any, known: _Known) -> Acted:
        if (removed := await bulk.delete_one(store.collection, job_id, known)) is None:
            await store_due(store, with_id(job_id))
            removed = await bulk.delete_one(store.collection, job_id, known, only={})
        if removed is None:
            raise JobNotFoundError(job_id)
        return Acted(job_id, None, removed=removed)

    return await _of_job(given, remove)


async def _change_job(given: Any, change: Callable[[Any, _Known], Awaitable[R | None]]) -> R:
    """Change a job as `_of_job` finds it; *change* returns None if somebody else was faster."""
    return await _of_job(given, lambda job_id, known: until_applied(partial(change, job_id, known)))


async def _of_job(given: Any, act: Callable[[Any, _Known], Awaitable[R]]) -> R:
    """Act on a job, given by itself or its id: 24 hex characters may be an `ObjectId`, or the very `_id`."""
    meant, known = id_of(given), {"name": given.name} if isinstance(given, Job) else {}
    for job_id in ids_meant(meant):
        with suppress(JobNotFoundError):
            return await act(job_id, known)
    raise JobNotFoundError(meant)


async def _read(store: Store, job_id: Any, known: Document) -> Document:
    document = await store.get(job_id, read=known)
    if document is None:
        raise JobNotFoundError(job_id)
    return document


async def _refuse_taken_key(store: Store, document: Document, *, for_good: bool) -> None:
    """Say which job holds the key. If that job has ended meanwhile, return: the caller tries again.

    With *for_good*, always refuse: a key that is not text may be held by a job that no query for it finds.
    """
    holder = await store.holder(document)
    if holder is None and not for_good:
        return
    by = "another active job" if holder is None else f"the {holder['status']} job {holder['_id']}"
    raise _refusal(document, _RETRY, f": its unique key {unique_key_of(document)!r} is held by {by}")
