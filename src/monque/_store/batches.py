"""Batches: jobs with a common label, the end of all of them, and the jobs that wait for that.

A batch is over when none of its jobs is pending or processing. Whoever ends a job of it writes first and
looks afterwards, and so does whoever stores a job that waits: of two that act at one moment, the later one
sees both writes. If a process dies between its write and its look, the sweep looks again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, TypeAlias

from pymongo.asynchronous.client_session import AsyncClientSession
from pymongo.errors import PyMongoError
from pymongo.read_concern import ReadConcern

from monque._connect.deadlines import limited
from monque._store import decoding
from monque._store.children import cancel_children
from monque._store.document import PARKED, Document, named, text_of, time_of
from monque._store.flows import wait_of
from monque._store.store import Store
from monque._store.transitions.batches import WAITING, cancel_after_batch, wake_batch
from monque._store.transitions.transition import Transition
from monque._values.errors import ConfigurationError
from monque._values.flows import check_label
from monque._values.settings import JobSettings
from monque._values.words import driver_reason

logger = logging.getLogger("monque")

OnCancelled: TypeAlias = Callable[[Document], None]
"""Hears of a job that was cancelled because a job of the batch that it waited for did not complete."""

# One range of the index holds both states and no other: one seek decides. Between the looks at two ranges, a
# job could change from the second to the first.
_ACTIVE = {"$gte": "pending", "$lte": "processing"}
_INCOMPLETE = {"$in": ["cancelled", "failed"]}
_ANY = {"$exists": True}

# Jobs that one write wakes: as a rule one job waits for a batch. And batches of one round of the sweep: each
# costs a find, so that a round takes a second at most.
_AT_ONCE = 1_000


def label(settings: JobSettings, run_at: datetime, now: datetime) -> Document:
    """The fields of a new job that belongs to a batch or waits for one; none for other jobs."""
    fields: Document = {}
    if "batch" in settings:
        fields["batch"] = check_label("batch", settings["batch"])
    if "after_batch" in settings:
        awaited = check_label("after_batch", settings["after_batch"])
        parked = {"why": "batch", "key": awaited, "since": now, **({"dueAt": run_at} if run_at > now else {})}
        fields |= {"afterBatch": awaited, "nextRunAt": PARKED, "parked": parked}
    if "if_failed" in settings:
        fields["ifFailed"] = settings["if_failed"]
    return fields


async def is_over(store: Store, label: str, session: AsyncClientSession | None = None) -> bool:
    """Return whether no job of a batch is active."""
    return not await _has(store, label, _ACTIVE, session)


async def expect(
    store: Store, waits: Document, *, allow_empty: bool, session: AsyncClientSession | None
) -> None:
    """Check the batch that a new job *waits* for, before the job is stored.

    After a write in a transaction nobody can look, so a job whose batch is over is not stored as waiting. If
    the batch ends between the look and the commit, or the job has to be cancelled, the sweep sees to that.

    Raises:
        ConfigurationError: The batch has no jobs, and the call does not allow that.
    """
    label = waits["afterBatch"]
    if not allow_empty and not await _has(store, label, _ANY, session):
        raise ConfigurationError(
            f"no job of the batch {label!r} is stored, which after_batch names; store its jobs first, or "
            "give allow_empty=True if it may have none"
        )
    if session is None or not session.in_transaction or not await is_over(store, label, session):
        return
    if waits.get("ifFailed") == "run" or not await _has(store, label, _INCOMPLETE, session):
        parked = waits.pop("parked")
        waits["nextRunAt"] = parked.get("dueAt", parked["since"])


async def wake(store: Store, label: str, on_cancelled: OnCancelled | None = None) -> list[str] | None:
    """Wake the jobs that wait for a batch, if it is over; return their names, None if it is not over."""
    names, labels = None, [label]
    for each in labels:  # it grows: jobs that are cancelled may end batches of their own, and so on
        with limited():
            woken = await _wake(store, each, labels, on_cancelled)
        if woken is not None:
            names = [*(names or ()), *woken]
    return names


async def _wake(
    store: Store, label: str, ended: list[str], on_cancelled: OnCancelled | None
) -> list[str] | None:
    """As `wake`, for one batch; *ended* gets the batches that this may have ended.

    The jobs are read before the look that decides, and woken only if they still wait since then: somebody
    may retry jobs of the batch, and then these, while this process stands still.
    """
    if not await is_over(store, label):
        return None
    names: list[str] = []
    while True:
        jobs = {**WAITING, "parked.key": label}
        fields = {"name": 1, "parked.since": 1}
        found = await decoding.find(store.collection, jobs, fields, limit=_AT_ONCE, hint="monque_parked")
        met = [name for job in found if (name := text_of(job, "name")) is not None]
        if not met or not await is_over(store, label):
            return names
        failed = await _has(store, label, _INCOMPLETE)
        waits = [job["parked"] for job in found if isinstance(job["parked"], dict)]  # not all: by hand
        since = [moment for wait in waits if (moment := time_of(wait, "since")) is not None]
        these = {"_id": {"$in": [job["_id"] for job in found]}, **named({*met})}
        if since:
            these["parked.since"] = {"$not": {"$gt": max(since)}}
        cancelled = await _update(store, these, cancel_after_batch(label)) if failed else 0
        woken = await _update(store, these, wake_batch(label))
        names += met
        if cancelled:
            logger.info("cancelled %d job(s): a job of the batch %r did not complete", cancelled, label)
            ended += await _after_cancelled(store, these["_id"], on_cancelled)
        if len(found) < _AT_ONCE or not cancelled + woken:
            return names


async def _update(store: Store, jobs: Document, change: Transition) -> int:
    return (await store.collection.update_many({**jobs, **change.when}, change.then)).modified_count


async def _after_cancelled(store: Store, ids: Document, on_cancelled: OnCancelled | None) -> set[str]:
    """Tell of the jobs that were cancelled with their batch; the batches that they belong to."""
    ended = await decoding.find(store.collection, {"_id": ids, "status": "cancelled", "cancel.by": "batch"})
    if on_cancelled is not None:
        for document in ended:
            on_cancelled(document)
    return {label for document in ended if (label := text_of(document, "batch")) is not None}


async def look(store: Store, label: str, on_cancelled: OnCancelled | None = None) -> list[str] | None:
    """As `wake`, after a write that stays whatever becomes of this: a failure is left to the sweep."""
    try:
        return await wake(store, label, on_cancelled)
    except PyMongoError as error:
        logger.warning("cannot see whether the batch %r is over: %s", label, driver_reason(error))
        return None


async def sweep(
    store: Store, after: str | None = None, on_cancelled: OnCancelled | None = None
) -> tuple[set[str], str | None]:
    """Look again at the batches that jobs wait for, at most so many of them, behind the label *after*.

    Returns the names of the jobs that were woken, and the last label if there may be more.
    """
    behind: Document = {"$type": "string"} if after is None else {"$type": "string", "$gt": after}
    keys: list[Document] = [
        {"$match": {**WAITING, "parked.key": behind}},
        {"$group": {"_id": "$parked.key"}},
        {"$sort": {"_id": 1}},
        {"$limit": _AT_ONCE},
    ]
    with limited():
        found = await decoding.aggregate(store.collection, keys, hint="monque_parked")
    labels = [each["_id"] for each in found]
    woken = {name for label in labels for name in await wake(store, label, on_cancelled) or ()}
    return woken, labels[-1] if len(labels) == _AT_ONCE else None


async def look_after(store: Store, document: Mapping[str, Any]) -> list[str]:
    """Look at the batch that a write concerns which left a job like this; the names of those that were woken.

    That is its own batch if the job has ended, and the one that it waits for if it was parked. A job that was
    cancelled does not wait for others any more.
    """
    if document.get("status") == "cancelled":
        await cancel_children(store, document)
    if document.get("status") in ("pending", "processing"):
        wait = wait_of(document)
        label = None if wait is None else wait.batch
    else:
        label = text_of(document, "batch")
    return [] if label is None else await look(store, label) or []


async def _has(store: Store, label: str, status: Document, session: AsyncClientSession | None = None) -> bool:
    """Return whether a job of a batch is in such a state, without reading a document.

    Read with majority concern, as far as the caller may choose: a deposed primary may show the end of a job
    that is rolled back, and the next write would go to the new one.
    """
    query, fields, jobs = {"batch": label, "status": status}, {"_id": 0, "status": 1}, store.collection
    if session is None or not session.in_transaction:
        jobs = jobs.with_options(read_concern=ReadConcern("majority"))
    with limited():
        return await decoding.is_there_any(jobs, query, fields=fields, hint="monque_batch", session=session)
