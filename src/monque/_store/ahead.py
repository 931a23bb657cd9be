"""How many jobs of its name start before a job: those due earlier, and those with a higher priority."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from monque._job import Job
from monque._status import JobStatus
from monque._store.document import EARLIEST, Document
from monque._store.filters import beyond_id
from monque._store.store import Store


async def count(store: Store, job: Job[Any], limit: int) -> int:
    """Count index entries, up to *limit*. That one of eight jobs is the oldest, is left out."""
    due = job.next_run_at
    if job.status is not JobStatus.PENDING or due is None or type(job.name) is not str:
        return 0
    found = 0
    for query in before(job, due, store.clock.now(), uses_priorities=store.uses.is_noted("priority")):
        if found < limit:
            found += await store.collection.count_documents(query, limit=limit - found)
    return found


def before(job: Job[Any], due: datetime, now: datetime, *, uses_priorities: bool) -> list[Document]:
    """Queries without a job in common, each a range of one index. Jobs of one time start by their ids."""
    waiting: Document = {"status": "pending", "name": job.name}
    earlier = [
        {"nextRunAt": {"$gte": EARLIEST, "$lt": due}},
        {"nextRunAt": due, **beyond_id(job.id, "$lt")},
    ]
    if not uses_priorities:
        return [{**waiting, **each} for each in earlier]
    if not job.priority:
        urgent = {"priority": {"$gte": 1}, "nextRunAt": {"$gte": due, "$lte": now}}
        return [{**waiting, **earlier[0]}, {**waiting, **urgent}, {**waiting, **earlier[1], "priority": None}]
    return [higher(job, now), *({**waiting, "priority": job.priority, **each} for each in earlier)]


def higher(job: Job[Any], now: datetime) -> Document:
    """Match the due jobs of its name with a higher priority."""
    due = {"$gte": EARLIEST, "$lte": now}
    # Not `$gt: 0`: the server would not see that the index, which begins at 1, has them all.
    more = {"$gte": job.priority + 1}
    return {"status": "pending", "name": job.name, "priority": more, "nextRunAt": due}
