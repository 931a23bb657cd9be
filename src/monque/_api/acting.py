"""What an operator does to one job: the write, and the reason if it does not apply.

Each function takes the job or its id, as the user gave it. The condition is part of the write. After a write
that changed nothing, the function reads the job to find out why, and tries again if the job has changed
between the two.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import datetime
from typing import Any, TypeVar

from pymongo.errors import DuplicateKeyError

from monque._api import schedules
from monque._ops import bulk
from monque._store.document import (
    Document,
    is_cancel_requested,
    is_parked,
    is_recurring,
    status_of,
    unique_key_of,
)
from monque._store.store import Store
from monque._store.transitions import operators
from monque._values.errors import JobNotFoundError, JobStateError
from monque._values.job import id_of
from monque._values.rules import ids_meant
from monque._values.status import JobStatus

R = TypeVar("R")

_ACTIVE = (JobStatus.PENDING, JobStatus.PROCESSING)

# How often a retried job may find its unique key taken by a job that has ended a moment later. Each time
# costs three commands. A key that changes hands so often is as good as taken: with half as many tries a busy
# key would be refused a little sooner, with twice as many a key that no query finds would be refused later.
_TRIES = 20


# How often the jobs that match are gone through while they change hands. The second time finds those that
# were claimed or put back during the first, the third mostly none. New jobs that are stored all the time must
# not keep the call for ever. With half as many rounds some of a busy queue may slip through; twice as many
# find no more.
_ROUNDS = 6


async def find(store: Store, given: Any) -> Document:
    """Read the job."""

    async def read(job_id: Any) -> Document:
        return {**await _read(store, job_id), "_id": job_id}

    return await _of_job(given, read)


async def cancel(store: Store, given: Any, reason: str | None) -> tuple[Document, bool]:
    """Cancel a pending job; return False beside the document if it was cancelled before."""

    async def change(job_id: Any) -> tuple[Document, bool]:
        while (after := await store.change(job_id, operators.cancel(reason=reason))) is None:
            before = await _read(store, job_id)
            if status_of(before) is JobStatus.CANCELLED:
                return before, False
            runs = status_of(before) is JobStatus.PROCESSING
            hint = "; to stop it while it runs, give running=True" if runs else ""
            _check_state(before, "cancel", JobStatus.PENDING, hint=hint)
        return after, True

    return await _of_job(given, change)


async def stop(store: Store, given: Any, reason: str | None) -> tuple[Document, bool]:
    """Cancel a pending job, or ask for the end of a running one; False if that was done before."""

    async def change(job_id: Any) -> tuple[Document, bool]:
        while True:
            for transition in (operators.cancel(reason=reason), operators.request_cancel(reason=reason)):
                if (after := await store.change(job_id, transition)) is not None:
                    return after, True
            before = await _read(store, job_id)
            if status_of(before) is JobStatus.CANCELLED or _is_stopping(before):
                return before, False
            _check_state(before, "cancel", JobStatus.PENDING, JobStatus.PROCESSING)

    return await _of_job(given, change)


async def cancel_many(store: Store, query: Document, *, running: bool, reason: str | None) -> tuple[int, int]:
    """Cancel the pending jobs that match; with *running*, ask for the end of the others first and last.

    Return how many were cancelled, and how many run that were asked, now or before. A job may be claimed
    before the first write comes to it, or be put back after that. The writes are repeated until none of
    them finds a new one.
    """
    jobs = store.collection
    if not running:
        return await bulk.cancel_many(jobs, query, reason=reason), 0
    count, requested = 0, await bulk.count_requested(jobs, query)
    for _ in range(_ROUNDS):
        asked = await bulk.request_cancel_many(jobs, query, reason=reason)
        cancelled = await bulk.cancel_many(jobs, query, reason=reason)
        count, requested = count + cancelled, requested + asked
        if not asked and not cancelled:
            break
    return count, requested


async def retry(store: Store, given: Any) -> tuple[Document, JobStatus]:
    """Put back a failed or cancelled job; return the status it had beside the document."""

    async def change(job_id: Any) -> tuple[Document, JobStatus]:
        refusals = 0
        while True:
            before = await _read(store, job_id)
            _check_state(before, "retry", JobStatus.CANCELLED, JobStatus.FAILED)
            outcome = await bulk.retry_one(store.collection, job_id, before["status"])
            if isinstance(outcome, DuplicateKeyError):
                refusals += 1
                await _refuse_taken_key(store, before, for_good=refusals == _TRIES)
            elif outcome is not None:
                return outcome, status_of(before)

    return await _of_job(given, change)


async def reschedule(store: Store, given: Any, run_at: datetime) -> Document:
    """Let a pending job run at another time."""
    transition = operators.reschedule_by_operator(run_at=run_at)

    async def change(job_id: Any) -> Document:
        while (after := await store.change(job_id, transition)) is None:
            _check_state(await _read(store, job_id), "reschedule", JobStatus.PENDING)
        return after

    return await _of_job(given, change)


async def run_now(store: Store, given: Any) -> Document:
    """Let a pending job run now; return it as it is if it is due already. A schedule is triggered."""

    async def change(job_id: Any) -> Document:
        while True:
            before = await _read(store, job_id)
            if is_recurring(before) and status_of(before) in _ACTIVE:
                after = await schedules.trigger_once(store, before)
            else:
                after = await store.change(job_id, operators.run_now_by_operator())
                if after is None:
                    before = await _read(store, job_id)
                    _check_waiting(before)
                    return before
            if after is not None:
                return after

    return await _of_job(given, change)


def _check_waiting(document: Document) -> None:
    _check_state(document, "run", JobStatus.PENDING)
    if is_parked(document):
        raise JobStateError(
            f"cannot run job {document['_id']} now: it is parked, so it waits for something else than a time",
            job_id=document["_id"],
            current_status=status_of(document),
            attempted_action="run",
        )


async def set_priority(store: Store, given: Any, priority: int) -> Document:
    """Let a pending job be more or less urgent."""
    transition = operators.set_priority(priority=priority)

    async def change(job_id: Any) -> Document:
        while (after := await store.change(job_id, transition)) is None:
            _check_state(await _read(store, job_id), "prioritize", JobStatus.PENDING)
        return after

    return await _of_job(given, change)


async def delete(store: Store, given: Any) -> Any:
    """Remove a job in whatever state; return its `_id`."""

    async def remove(job_id: Any) -> Any:
        if not await bulk.delete_one(store.collection, job_id):
            raise JobNotFoundError(job_id)
        return job_id

    return await _of_job(given, remove)


async def _of_job(given: Any, act: Callable[[Any], Awaitable[R]]) -> R:
    """Act on a job, given by itself or its id: 24 hex characters may be an `ObjectId`, or the very `_id`."""
    meant = id_of(given)
    for job_id in ids_meant(meant):
        with suppress(JobNotFoundError):
            return await act(job_id)
    raise JobNotFoundError(meant)


async def _read(store: Store, job_id: Any) -> Document:
    document = await store.get(job_id)
    if document is None:
        raise JobNotFoundError(job_id)
    return document


def _is_stopping(document: Document) -> bool:
    return status_of(document) is JobStatus.PROCESSING and is_cancel_requested(document)


def _check_state(document: Document, action: str, *allowed: JobStatus, hint: str = "") -> None:
    status = status_of(document)
    if status not in allowed:
        raise JobStateError(
            f"cannot {action} job {document['_id']}: it is {status}; "
            f"only a {' or '.join(allowed)} one can be{hint}",
            job_id=document["_id"],
            current_status=status,
            attempted_action=action,
        )


async def _refuse_taken_key(store: Store, document: Document, *, for_good: bool) -> None:
    """Say which job holds the key. If that job has ended meanwhile, return: the caller tries again.

    With *for_good*, always refuse: a key that is not text may be held by a job that no query for it finds.
    """
    holder = await store.holder(document)
    if holder is None and not for_good:
        return
    by = "another active job" if holder is None else f"the {holder['status']} job {holder['_id']}"
    raise JobStateError(
        f"cannot retry job {document['_id']}: its unique key {unique_key_of(document)!r} is held by {by}",
        job_id=document["_id"],
        current_status=status_of(document),
        attempted_action="retry",
    )
