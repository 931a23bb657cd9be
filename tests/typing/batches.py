"""Batches: their types, and what is refused; see `calls.py`."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, assert_type

from monque import (
    BatchEnded,
    Job,
    JobFilter,
    Monque,
    NewJob,
    QueueStats,
    SyncMonque,
)

monque = Monque()
sync = SyncMonque()
DAY = timedelta(days=1)


@monque.worker("row")
async def row(job: Job[int]) -> str:
    assert_type(job.batch, str | None)
    return str(job.data)


@monque.worker("done")
async def done(job: Job[str]) -> None: ...


async def labels() -> None:
    await row.enqueue(1, batch="import")
    await monque.enqueue(row, 1, batch="import")
    await monque.enqueue_many([NewJob(row, 1, batch="import")])
    await done.enqueue("import", after_batch="import", if_failed="run", allow_empty=True)
    await monque.enqueue(done, "import", after_batch="import", if_failed="cancel", batch="stage-2")
    sync.enqueue(row, 1, batch="import")

    assert_type(await monque.queue_stats(batch="import"), QueueStats)
    assert_type(sync.queue_stats(batch="import"), QueueStats)
    JobFilter(batch="import", waits_for="batch")


@monque.on(BatchEnded)
def ended(event: BatchEnded) -> None:
    assert_type(event.batch, str)
    assert_type(event.stats, QueueStats)


@monque.worker("parent")
async def parent(job: Job[list[int]]) -> int:
    rows = await job.run_jobs("rows", [NewJob(row, number) for number in job.data], timeout=DAY)
    assert_type(rows, list[Job[Any] | None])
    await job.run_jobs("mixed", [NewJob(row, 1), NewJob("done", "by name")])
    return len(rows)


# What is wrong is refused.


@monque.worker("wrong")
async def wrong(job: Job[int]) -> None:
    await row.enqueue(1, batch=5)  # type: ignore[arg-type]
    await row.enqueue(1, after_batch="import", if_failed="ignore")  # type: ignore[arg-type]
    await job.run_jobs([NewJob(row, 1)])  # type: ignore[call-arg, arg-type]
    await job.run_jobs("rows", [row])  # type: ignore[list-item]
    await job.run_jobs("rows", [NewJob(row, 1)], timeout=5)  # type: ignore[arg-type]
    JobFilter(batch=5)  # type: ignore[arg-type]
