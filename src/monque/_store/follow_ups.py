"""Follow-ups: the job that is stored when another one has failed for good (`on_failure`), exactly once.

The write that fails a job sets `followUp: {name, attempt, reason, at}` in its document; so there is none if
the claim was lost. Then the follow-up is inserted, under an id made from the job and this attempt, and then
`followUp` is removed. Whoever dies in between leaves it to the sweep. Whoever retries or deletes the job
stores the follow-up first (`store_due`), and so does a run that is about to fail again.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextlib import aclosing
from datetime import timedelta
from functools import lru_cache
from typing import Any

from bson.errors import InvalidDocument
from pymongo import UpdateMany
from pymongo.errors import WriteError
from pymongo.read_concern import ReadConcern

from monque._connect.deadlines import limited
from monque._store import decoding
from monque._store.document import (
    ON_FAILURE,
    TRACE_FIELDS,
    Claim,
    Document,
    attempt_of,
    count_of,
    derived_id,
    named_as,
    new_document,
    text_of,
    time_of,
    trace_of,
    with_id,
)
from monque._store.settle import jobs_of
from monque._store.store import Store
from monque._store.unique import why_refused

logger = logging.getLogger("monque")

FREE: Document = {"followUp.at": {"$exists": False}}
"""Match the jobs whose follow-ups are stored, if they had any."""
_DUE: Document = {"followUp.at": {"$exists": True}}

_FIELDS = dict.fromkeys(("name", "data", "status", "failCount", "failedRunId", "followUp", *TRACE_FIELDS), 1)
_AT_ONCE = 100

# Whoever has failed the job stores its follow-up within milliseconds: the sweep leaves it the time.
_PATIENCE = timedelta(seconds=10)


async def note(store: Store, named: Sequence[tuple[Claim, str]]) -> list[Claim]:
    """Note in claimed jobs the names of what follows them; the claims with these."""
    await store.uses.begin("follow_up")
    by_name: dict[str, list[Claim]] = {}
    for claim, name in named:
        by_name.setdefault(name, []).append(claim)
    ours = {"status": "processing", "claimedBy": store.instance_id, ON_FAILURE: {"$exists": False}}
    writes = [
        UpdateMany({**jobs_of(claims), **ours}, {"$set": {ON_FAILURE: name}}, hint="_id_")
        for name, claims in by_name.items()
    ]
    with limited():
        await store.collection.bulk_write(writes, ordered=False)
    return [Claim({**claim.document, ON_FAILURE: name}) for claim, name in named]


async def store_due(store: Store, query: Document) -> set[str]:
    """Store the follow-ups of the jobs that match, whatever became of these since; return their names.

    Read with majority concern: a deposed primary may show a failure that is rolled back.
    """
    lasting = store.exact.with_options(read_concern=ReadConcern("majority"))
    names = set[str]()
    due = decoding.pages(lasting, {"$and": [query, _DUE]}, _FIELDS, size=_AT_ONCE)
    async with aclosing(due) as pages:
        async for jobs in pages:
            for job in jobs:
                with limited():
                    await _store(store, job, names)
    return names


async def sweep(store: Store) -> set[str]:
    """Store what was left behind by processes that died; return the names of the jobs that were stored."""
    with limited():
        is_ours = await store.control.may_sweep("followUps")
    if not is_ours:
        return set()
    return await store_due(store, {"followUp.at": {"$lt": store.clock.now() - _PATIENCE}})


async def _store(store: Store, job: Document, names: set[str]) -> None:
    """Store the follow-up of one job, unless the server refuses it: then it will be tried again."""
    asked = job["followUp"] if isinstance(job["followUp"], dict) else {}  # others may write anything there
    name, at = text_of(asked, "name"), time_of(asked, "at")
    if name and at is not None:
        failed = await _failed_run(store, job, attempt_of(asked))
        payload = {
            "job_id": failed["_id"],
            "name": job.get("name"),
            "data": failed.get("data"),
            "reason": text_of(asked, "reason") or "",
            "attempts": count_of(failed, "failCount"),
            "failed_at": at,
        }
        now = store.clock.now()
        follow_up = {
            **new_document(name=name, data=payload, run_at=now, now=now, on_failure=""),
            "_id": derived_id({"follows": job["_id"], "attempt": attempt_of(asked)}, at),
            **trace_of(job),
        }
        try:
            await store.collection.insert_one(follow_up)
            names.add(name)
        except (InvalidDocument, WriteError) as refusal:
            # If it is there, somebody has stored it and died, or comes just before us.
            if not await decoding.is_there_any(store.collection, {"_id": follow_up["_id"], "name": name}):
                _report(name, str(job["_id"]), why_refused(refusal))
                return
    same = {f"followUp.{field}": {"$eq": asked[field]} for field in ("attempt", "at") if field in asked}
    stored = {**with_id(job["_id"]), **named_as(job), **same, **_DUE}
    await store.collection.update_one(stored, {"$unset": {"followUp": ""}})


@lru_cache(maxsize=1_000)  # each is reported once, although every sweep tries it again
def _report(name: str, job_id: str, why: str) -> None:
    message = "the follow-up %r of job %s cannot be stored: %s"
    logger.error(message, name, job_id, why, extra={"job_id": job_id})


async def _failed_run(store: Store, job: Document, attempt: int) -> Document:
    """The failed run: of a schedule, or a job that runs once more, the copy that is kept of it."""
    if job.get("status") == "failed" or "failedRunId" not in job:
        return job
    kept: dict[str, Any] = {**with_id(job["failedRunId"]), **named_as(job), "attempt": attempt}
    found = await decoding.find(store.exact, kept, _FIELDS, limit=1)
    return found[0] if found else job
