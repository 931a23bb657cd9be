"""Statistics and queue views: what there is of all jobs, of one name, of every name."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from monque import (
    ConfigurationError,
    Job,
    JobStatus,
    Monque,
    NewJob,
    NotOpenError,
    QueueStats,
    QueueView,
    WorkerView,
)
from support.aliases import Collection, Make
from support.clocks import ago
from support.jobs import claimed, document
from support.options import QUICK
from support.waiting import Events, eventually

START = datetime(2030, 1, 1, tzinfo=UTC)


def ran(milliseconds: float | None, **fields: Any) -> dict[str, Any]:
    """A completed job with that run time, after a wait of an hour."""
    stamps = {"startedAt": START, "finishedAt": START + timedelta(milliseconds=milliseconds or 0)}
    waited = {"createdAt": START - timedelta(hours=1), "nextRunAt": START - timedelta(hours=1)}
    return document(status="completed", **waited, **(stamps if milliseconds is not None else {}), **fields)


async def one_to_five(collection: Collection, **fields: Any) -> None:
    """One pending job, two processing, three completed, four failed, five cancelled."""
    for count, status in enumerate(JobStatus, 1):
        for _ in range(count):
            one = claimed("x", **fields) if status == "processing" else document(status=status, **fields)
            await collection.insert_one(one)


# Counts


async def test_jobs_are_counted_by_status(monque: Monque, collection: Collection) -> None:
    await one_to_five(collection)

    stats = await monque.queue_stats()

    assert stats == QueueStats(pending=1, processing=2, completed=3, failed=4, cancelled=5)
    assert stats.total == 15


async def test_jobs_of_one_name_are_counted_apart(monque: Monque, collection: Collection) -> None:
    await one_to_five(collection, name="a")
    await collection.insert_many([document(name="b"), ran(10, name="b"), document(name="a.b")])

    assert await monque.queue_stats(name="a") == QueueStats(
        pending=1, processing=2, completed=3, failed=4, cancelled=5
    )
    assert await monque.queue_stats(name="b") == QueueStats(
        pending=1, completed=1, avg_processing_duration=timedelta(milliseconds=10)
    )
    assert (await monque.queue_stats()).total == 18


async def test_nothing_is_counted_as_zero(monque: Monque, collection: Collection) -> None:
    empty = QueueStats(
        pending=0, processing=0, completed=0, failed=0, cancelled=0, avg_processing_duration=None
    )

    assert await monque.queue_stats() == empty
    await collection.insert_one(document())
    assert await monque.queue_stats(name="nobody") == empty
    assert empty.total == 0


async def test_a_value_that_cannot_be_a_name_is_refused(monque: Monque) -> None:
    wrong: list[Any] = ["", "  ", 5, ["work"], {"$ne": ""}, "\ud800"]
    for name in wrong:
        with pytest.raises(ConfigurationError, match="a filter's name must be a job name, got"):
            await monque.queue_stats(name=name)


async def test_a_name_that_looks_like_an_expression_is_only_a_name(
    monque: Monque, collection: Collection
) -> None:
    await collection.insert_many([document(name="$name"), document(name="work"), ran(5, name="$$ROOT")])

    assert (await monque.queue_stats(name="$name")).total == 1
    assert [view.name for view in await monque.queue_views()] == ["$$ROOT", "$name", "work"]


async def test_a_monque_that_is_not_open_says_so(make_monque: Make) -> None:
    monque = make_monque()
    with pytest.raises(NotOpenError):
        await monque.queue_stats()
    with pytest.raises(NotOpenError):
        await monque.queue_views()


# The average


async def test_the_average_is_that_of_the_runs_and_not_of_the_waits(
    monque: Monque, collection: Collection
) -> None:
    await collection.insert_many([ran(100), ran(200), ran(600)])

    assert (await monque.queue_stats()).avg_processing_duration == timedelta(milliseconds=300)
    assert (await monque.queue_stats(name="work")).avg_processing_duration == timedelta(milliseconds=300)


async def test_only_completed_jobs_with_both_stamps_count(monque: Monque, collection: Collection) -> None:
    """TypeScript writes neither stamp."""
    stamps = {"startedAt": START, "finishedAt": START + timedelta(days=1)}
    await collection.insert_many(
        [
            ran(100),
            ran(None),
            ran(None, startedAt=START),
            ran(None, finishedAt=START),
            ran(None, startedAt=None, finishedAt=None),
            *(document(status=status, **stamps) for status in ("pending", "failed", "cancelled")),
            claimed("x", **stamps),
        ]
    )

    stats = await monque.queue_stats()

    assert stats.avg_processing_duration == timedelta(milliseconds=100)
    assert stats.completed == 5


async def test_without_such_jobs_there_is_no_average(monque: Monque, collection: Collection) -> None:
    await collection.insert_many([ran(None), document(status="failed")])

    assert (await monque.queue_stats()).avg_processing_duration is None
    assert [view.stats.avg_processing_duration for view in await monque.queue_views()] == [None]


async def test_a_run_that_took_no_time_is_data(monque: Monque, collection: Collection) -> None:
    await collection.insert_one(ran(0))

    assert (await monque.queue_stats()).avg_processing_duration == timedelta(0)


async def test_a_run_is_measured_from_handler_to_settlement(monque: Monque, events: Events) -> None:
    """A job that waited for an hour, failed, waited again, and then ran for a moment."""
    outcomes = iter([ValueError("no"), None])

    @monque.worker("work")
    async def work(job: Job[Any]) -> None:
        await asyncio.sleep(0.1)
        if error := next(outcomes):
            raise error

    await monque.start()
    await monque.enqueue("work", run_at=ago(hours=1))
    [event] = await events.wait("job:complete")

    average = (await monque.queue_stats()).avg_processing_duration
    assert average is not None
    assert timedelta(milliseconds=90) <= average <= event.duration * 1.06 + timedelta(milliseconds=100)


# Views


async def test_views_show_every_name_that_has_jobs_or_a_worker_sorted_by_name(
    make_monque: Make, collection: Collection
) -> None:
    monque = await make_monque(options=replace(QUICK, worker_concurrency=7)).open()
    monque.worker("b-only-worker", _nothing)
    monque.worker("d-both", _nothing, concurrency=3)
    await collection.insert_many([document(name="c-only-jobs"), ran(20, name="d-both"), document(name="a")])
    pending = QueueStats(pending=1)

    def view(name: str, stats: QueueStats, worker: WorkerView | None) -> QueueView:
        return QueueView(
            name=name,
            stats=stats,
            has_persisted_jobs=stats.total > 0,
            has_registered_worker=worker is not None,
            worker=worker,
        )

    assert await monque.queue_views() == [
        view("a", pending, None),
        view("b-only-worker", QueueStats(), WorkerView(concurrency=7, active_count=0)),
        view("c-only-jobs", pending, None),
        view(
            "d-both",
            QueueStats(completed=1, avg_processing_duration=timedelta(milliseconds=20)),
            WorkerView(concurrency=3, active_count=0),
        ),
    ]


async def test_each_view_has_the_statistics_of_its_name(monque: Monque, collection: Collection) -> None:
    await one_to_five(collection, name="a")
    await collection.insert_many(
        [ran(10, name="b"), ran(30, name="b"), ran(1000, name="c"), document(name="c")]
    )

    views = await monque.queue_views()

    assert [view.name for view in views] == ["a", "b", "c"]
    for view in views:
        assert view.stats == await monque.queue_stats(name=view.name)


async def test_without_jobs_and_workers_there_are_no_views(monque: Monque) -> None:
    assert await monque.queue_views() == []


async def test_the_active_count_is_what_runs_here_now(monque: Monque, make_monque: Make) -> None:
    other = await make_monque().open()
    go = asyncio.Event()

    async def wait(job: Job[Any]) -> None:
        await go.wait()

    for instance in (monque, other):
        instance.worker("work", wait, concurrency=3)
    events = Events(monque)
    await monque.start()
    await monque.enqueue_many([NewJob("work") for _ in range(5)])
    await events.wait("job:start", 3)

    [busy] = await monque.queue_views()
    [elsewhere] = await other.queue_views()
    go.set()
    await monque.run_until_idle()
    [idle] = await monque.queue_views()

    assert busy.worker == WorkerView(concurrency=3, active_count=3)
    assert (busy.stats.processing, busy.stats.pending) == (3, 2)
    assert elsewhere.worker == WorkerView(concurrency=3, active_count=0)
    assert elsewhere.stats == busy.stats
    assert idle.worker == WorkerView(concurrency=3, active_count=0)
    assert idle.stats.completed == 5


async def test_a_replaced_worker_still_counts_what_runs(monque: Monque, events: Events) -> None:
    go = asyncio.Event()

    async def wait(job: Job[Any]) -> None:
        await go.wait()

    monque.worker("work", wait)
    await monque.start()
    await monque.enqueue("work")
    await events.wait("job:start")

    monque.worker("work", _nothing, concurrency=2, replace=True)
    [busy] = await monque.queue_views()
    go.set()

    assert busy.worker == WorkerView(concurrency=2, active_count=1)

    async def all_is_done() -> None:
        [idle] = await monque.queue_views()
        assert idle.worker == WorkerView(concurrency=2, active_count=0)

    await eventually(all_is_done)


async def _nothing(job: Job[Any]) -> None:
    pass
