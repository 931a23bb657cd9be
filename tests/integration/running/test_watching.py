"""`watch`: what happens to a job, as it happens, for any number of readers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, aclosing
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from pymongo import AsyncMongoClient

from monque import (
    EndUpdate,
    Job,
    JobNotFoundError,
    JobStateError,
    JobUpdate,
    Keep,
    LogLine,
    LogUpdate,
    Monque,
    NewJob,
    NotOpenError,
    ProgressUpdate,
    Snooze,
    StateUpdate,
    StepUpdate,
    SyncMonque,
    WaitTimeoutError,
    WaitUpdate,
)
from monque._values.updates import new_lines
from monque.embedded import EmbeddedMongo
from support.aliases import Database, Make
from support.options import QUICK
from support.programs.child import child, uri_of
from support.traffic import Traffic
from support.working import Pause

pytestmark = pytest.mark.timeout(120)

LONG = timedelta(seconds=90)


def told(update: JobUpdate) -> Any:
    """An update in short."""
    match update:
        case StateUpdate(status=status, attempt=attempt):
            return (str(status), attempt)
        case ProgressUpdate(progress=progress):
            return ("progress", progress.done, progress.message)
        case LogUpdate(line=line):
            return ("log", line.text)
        case StepUpdate(step=step):
            return ("step", step.name, step.value)
        case WaitUpdate(wait=wait):
            return ("wait", wait and (wait.signal or wait.why))
        case EndUpdate(job=job):
            return ("end", str(job.status))
    raise AssertionError(update)


async def all_of(updates: AsyncIterator[JobUpdate]) -> list[Any]:
    return [told(update) async for update in updates]


async def test_everything_that_another_process_does_with_a_job_is_told_in_order(
    monque: Monque, server: EmbeddedMongo, database: Database
) -> None:
    job = await monque.enqueue("work", "a parcel")
    seen: list[Any] = []
    async with child("watched_worker", uri_of(server, database)):
        async for update in monque.watch(job.id, timeout=LONG):
            seen.append(told(update))
            if seen[-1] == ("wait", "picked-up"):
                assert await all_of_now(monque, job) == [
                    ("pending", 1),
                    ("step", "weigh", 8),
                    ("step", "picked-up", None),
                    ("progress", 1.0, "weighed"),
                    ("log", "8 grams"),
                    ("wait", "picked-up"),
                ]
                await monque.signal(job, "picked-up", "DHL")

    assert seen[0] == ("pending", 0)
    assert seen[-1] == ("end", "completed")
    happened = [each for each in seen if each[0] not in ("pending", "processing")]
    # Which of these comes first depends on how many of them one look finds.
    assert sorted(happened[-3:-1]) == [("step", "picked-up", "DHL"), ("wait", None)]
    assert sorted(happened[:-3], key=str) == sorted(
        [
            ("step", "weigh", 8),
            ("step", "picked-up", None),
            ("progress", 1.0, "weighed"),
            ("log", "8 grams"),
            ("wait", "picked-up"),
        ],
        key=str,
    )


async def all_of_now(monque: Monque, job: Job[Any]) -> list[Any]:
    """What a watch that begins now is told at once."""
    seen: list[Any] = []
    async with aclosing(monque.watch(job)) as updates:
        async for update in updates:
            seen.append(told(update))
            if seen[-1][0] == "wait":
                break
    return seen


async def test_retries_and_snoozes_are_states_and_a_job_that_is_over_has_one_update_more_than_it_did(
    monque: Monque,
) -> None:
    @monque.worker("work")
    async def work(job: Job[None]) -> None:
        if not job.fail_count:
            raise ValueError("once")
        if not job.snooze_count:
            raise Snooze(timedelta(0))
        job.add_log("at last")

    job = await monque.enqueue("work")
    watching = asyncio.create_task(all_of(monque.watch(job, timeout=LONG)))
    await monque.start()
    seen = await watching

    assert seen[-2:] == [("log", "at last"), ("end", "completed")]
    assert await all_of(monque.watch(job)) == seen[-2:]


async def test_a_watch_ends_as_a_wait_does(make_monque: Make, monque: Monque) -> None:
    pause = Pause()
    monque.worker("gone", pause, keep=Keep(completed=timedelta(0)))
    gone = await monque.enqueue("gone")
    watching = asyncio.create_task(all_of(monque.watch(gone, timeout=LONG)))
    await monque.start()
    await pause.wait()
    pause.go_on.set()
    assert (await watching)[-1] == ("end", "completed")

    with pytest.raises(JobNotFoundError):
        await all_of(monque.watch(gone))
    with pytest.raises(JobNotFoundError):
        await all_of(monque.watch("no id"))
    with pytest.raises(JobStateError, match="schedule"):
        await all_of(monque.watch(await monque.schedule("@daily", "often")))

    other = await make_monque().open()
    waiting = await other.enqueue("nobody")
    with pytest.raises(WaitTimeoutError):
        await all_of(other.watch(waiting, timeout=timedelta(milliseconds=50)))
    deleted = asyncio.create_task(all_of(other.watch(waiting)))
    await other.cancel_job(waiting)
    assert (await deleted)[-1] == ("end", "cancelled")
    waiting = await other.enqueue("nobody")
    closed = asyncio.create_task(all_of(other.watch(waiting)))
    await asyncio.sleep(0)
    await other.close()
    with pytest.raises(NotOpenError):
        await closed


async def test_a_slow_reader_gets_the_newest_and_costs_no_memory(monque: Monque) -> None:
    """While it holds an update, the job reports a thousand times: one document is kept, the newest."""
    first, second = Pause(), Pause()

    @monque.worker("work")
    async def work(job: Job[None]) -> None:
        job.report_progress(0)
        await first()
        for done in range(1, 1_001):
            job.report_progress(done)
            job.add_log(f"line {done}")
        await second()

    job = await monque.enqueue("work")
    await monque.start()
    seen: list[Any] = []
    async for update in monque.watch(job, timeout=LONG):
        seen.append(told(update))
        if seen[-1] == ("progress", 0.0, None):
            first.go_on.set()
            await second.wait()
            second.go_on.set()
            await monque.wait_for(job, timeout=LONG)
            assert not monque._context().waits.waiting or len(monque._context().waits.waiting) == 1

    lines = [each[1] for each in seen if each[0] == "log"]
    assert ("progress", 1000.0, None) in seen
    assert lines[-100:] == [f"line {number}" for number in range(901, 1001)]
    assert len(lines) == 100
    assert monque._context().waits.waiting == {}


async def test_a_thousand_watchers_share_each_command(
    server: EmbeddedMongo, database: Database, make_monque: Make
) -> None:
    """They watch a hundred jobs; each look at all of them is one find, and one more for what has changed."""
    pause = Pause()
    worker = make_monque(options=replace(QUICK, worker_concurrency=100))

    @worker.worker("work")
    async def work(job: Job[int]) -> None:
        job.report_progress(job.data)
        await pause()

    traffic = Traffic("find", "aggregate", "getMore")
    async with AsyncMongoClient[dict[str, Any]](server.uri, event_listeners=[traffic]) as client:
        watcher = await make_monque(client[database.name]).open()
        jobs = [await watcher.enqueue("work", number) for number in range(100)]
        traffic.clear()
        tasks = [asyncio.create_task(all_of(watcher.watch(job, timeout=LONG))) for job in jobs * 10]
        await worker.start()
        await pause.wait()
        pause.go_on.set()
        seen = await asyncio.gather(*tasks)

    assert len(seen) == 1_000
    assert all(each[-1] == ("end", "completed") for each in seen)
    assert all(("progress", float(number % 100), None) in each for number, each in enumerate(seen))
    looks = [command for command in traffic.commands if command["find"] == "monque_jobs"]
    assert len(looks) == len(traffic.commands)
    states = [command for command in looks if "size" in command.get("projection", {})]
    assert len(states[0]["filter"]["_id"]["$in"]) == 1_000
    assert len(looks) <= 2 * len(states)
    # About four a second, whoever watches: a machine that needs minutes for this still stays below.
    assert len(looks) < 500


async def test_a_look_at_many_jobs_is_one_command(
    server: EmbeddedMongo, database: Database, make_monque: Make
) -> None:
    """Also for more of them than the server sends at once unless it is told how many."""
    traffic = Traffic("find", "getMore")
    async with AsyncMongoClient[dict[str, Any]](server.uri, event_listeners=[traffic]) as client:
        watcher = await make_monque(client[database.name]).open()
        jobs = await watcher.enqueue_many([NewJob("nobody")] * 300)
        traffic.clear()
        async with AsyncExitStack() as stack:
            watches = [await stack.enter_async_context(aclosing(watcher.watch(job))) for job in jobs]
            first = await asyncio.gather(*map(anext, watches))

    assert {each.job_id for each in first} == {job.id for job in jobs}
    assert len(traffic.commands[0]["filter"]["_id"]["$in"]) == 300
    assert traffic.sent["getMore"] == 0


async def test_a_watch_of_a_job_that_is_deleted_ends_and_one_that_is_left_leaves_nothing(
    monque: Monque,
) -> None:
    deleted, left = await monque.enqueue("nobody"), await monque.enqueue("nobody")
    seen: list[Any] = []

    async def delete_at_once() -> None:
        async for update in monque.watch(deleted, timeout=LONG):
            seen.append(told(update))
            await monque.delete_job(deleted)

    with pytest.raises(JobNotFoundError, match="removed"):
        await delete_at_once()
    async for _ in monque.watch(left):
        break
    watching = asyncio.create_task(all_of(monque.watch(left)))
    await asyncio.sleep(0)
    watching.cancel()
    with pytest.raises(asyncio.CancelledError):
        await watching

    assert seen == [("pending", 0)]
    assert monque._context().waits.waiting == {}


async def test_a_sync_monque_iterates(server: EmbeddedMongo, database: Database) -> None:
    def watch() -> list[Any]:
        with SyncMonque(uri_of(server, database), options=QUICK) as monque:
            monque.worker("work", lambda job: job.report_progress(1, 1))
            job = monque.enqueue("work")
            monque.start()
            for update in monque.watch(job, timeout=LONG):
                assert isinstance(update, JobUpdate)
                break  # a reader may leave, and another one come
            return [told(update) for update in monque.watch(job, timeout=LONG)]

    seen = await asyncio.to_thread(watch)
    assert seen[-2:] == [("progress", 1.0, None), ("end", "completed")]


@pytest.mark.parametrize(
    ("before", "log", "new"),
    [
        ("", "ab", "ab"),
        ("ab", "ab", ""),
        ("ab", "abc", "c"),
        ("abc", "bcd", "d"),
        ("abc", "xyz", "xyz"),
        ("aa", "aaa", "a"),
        ("abab", "abc", "c"),
    ],
)
def test_the_new_lines_of_a_log_are_those_behind_the_known_ones(before: str, log: str, new: str) -> None:
    def lines(letters: str) -> tuple[LogLine, ...]:
        return tuple(LogLine(at=None, level="info", text=letter) for letter in letters)

    assert new_lines(lines(log), lines(before)) == lines(new)
