"""Signals to jobs: stored in the job's own document, with the answer to a sender whose signal is refused."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from pymongo.asynchronous.client_session import AsyncClientSession
from pymongo.asynchronous.collection import AsyncCollection

from monque._store import decoding
from monque._store.document import Document, status_of
from monque._store.flows import wait_of
from monque._store.store import until_applied
from monque._store.transitions import signals
from monque._store.unique import holder_of
from monque._values.errors import JobStateError

# The state of an active job; of any other there is none, whatever it holds.
_STATE = {"$cond": [{"$in": ["$status", ["pending", "processing"]]}, "$status", "$$REMOVE"]}
# What the sender's instance must know to run a job that has waited for the signal.
_BEFORE = dict.fromkeys(("name", "status", "parked", "priority"), 1)


def holding(name: str, unique_key: str) -> Document:
    """Match the active job with this name and key."""
    return holder_of({"name": name, "uniqueKey": unique_key})


async def send(
    collection: AsyncCollection[Document],
    query: Document,
    name: str,
    value: Any,
    *,
    id: str | None = None,  # noqa: A002 - as users give it
    too_large: str | None = None,
    session: AsyncClientSession | None = None,
) -> Document | None:
    """Store a signal in the active job that matches; the job as it was, None if there is no such job.

    It is empty if the signal was stored before, under the same id, or if the job cannot be decoded.

    Raises:
        JobStateError: The job is a schedule, or has no room for it, or it is *too_large*.
    """
    change = signals.signal(name, value, id=id)
    why = {"status": _STATE, **signals.refusals(value, id)}

    async def attempt() -> tuple[Document | None] | None:
        if too_large is None:
            before = await decoding.find_one_and_update(
                collection, {**query, **change.when}, change.then, session=session, before=_BEFORE
            )
            if before is not None:
                return (before,)
        seen = await decoding.find_one(collection, query, why, session=session)
        if seen is None or "status" not in seen:
            return (None,)
        if seen["known"]:
            return ({},)
        if seen["recurring"]:
            raise _refused(name, seen, "it is a schedule; send the signal to a job")
        if too_large is not None:
            raise _refused(name, seen, too_large)
        if seen["full"]:
            raise _refused(name, seen, "signals that nobody received fill its mailbox of 100 and 1 MiB")
        return None

    try:
        return (await until_applied(attempt))[0]
    except decoding.UnreadableError:
        return {}


def _refused(name: str, seen: Document, why: str) -> JobStateError:
    return JobStateError(
        f"cannot send the signal {name!r} to job {seen['_id']}: {why}",
        job_id=seen["_id"],
        current_status=status_of(seen),
        attempted_action="signal",
    )


def woken(before: Document, name: str, now: datetime) -> list[Document]:
    """The job as it is since a signal, if that has ended its wait; *before* is the job before it."""
    wait = wait_of(before)
    return [] if wait is None or wait.signal != name else [{**before, "nextRunAt": now}]
