"""What limits, batches and retention by name cost: those who use them, and those beside them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any, Literal

from pymongo import AsyncMongoClient

import monque as library
from bench.draining import COLLECTION, Completed, nothing
from bench.footprint import Commands
from bench.scenario import LeftOutError, Round, Subject
from bench.stage import Sample, Stage
from monque import Job, Monque, NewJob, Options, Retention

Settings = Mapping[str, Any]
"""Of a worker."""

Kind = Literal["plain", "whole name", "rate", "by key", "full lines", "kept"]

# Jobs that run at once. With half as many, claims of limited names, which are never made ahead, wait for the
# server; with twice as many the claims grow and the figures hardly change.
AT_ONCE = 100
# Of each key two may run. With so many keys no line is ever full; with so few all are.
KEYS, FEW_KEYS = 10_000, 50
CHILDREN = 10


def _named(name: str) -> Any:
    if (found := getattr(library, name, None)) is None:
        raise LeftOutError(name)
    return found


def _settings(kind: Kind) -> Settings:
    """What a worker says; names that the library did not always have are looked up here."""
    match kind:
        case "plain":
            return {}
        case "kept":
            return {"keep": _named("Keep")(completed=timedelta(0))}
        case "whole name":
            return {"limit": _named("Limit")(AT_ONCE)}
        case "rate":
            rate = _named("Rate")(1_000_000, per=timedelta(seconds=1))
            return {"limit": _named("Limit")(rate=rate)}
        case "by key" | "full lines":
            return {"limit": _named("Limit")(2, by="key")}


async def drain(
    stage: Stage, count: int, *, kind: Kind = "plain", beside: Kind | None = None, known: bool = False
) -> Sample:
    """Work off jobs of a worker of this kind, by an instance that may have an idle one of another kind.

    They are stored by an instance that knows the worker, or by one that does not.
    """
    async with (
        Monque(stage.database, options=_options()) as monque,
        Monque(stage.database, options=_options()) as other,
    ):
        monque.worker("work", nothing, **_settings(kind))
        if beside is not None:
            monque.worker("beside", nothing, **_settings(beside))
            await monque.run_until_idle()  # a limit creates its index once: that is no cost of a job
        keys = FEW_KEYS if kind == "full lines" else KEYS
        jobs = [NewJob("work", {"key": number % keys}) for number in range(count)]
        await (monque if known else other).enqueue_many(jobs)
        return await _worked_off(stage, monque, count)


async def drain_labelled(stage: Stage, count: int, *, labels: int = 1) -> Sample:
    """Work off jobs of some batches."""
    _named("BatchEnded")
    async with Monque(stage.database, options=_options()) as monque:
        monque.worker("work", nothing)
        labelled: Any = NewJob  # a library without batches has no such setting
        jobs = [labelled("work", {"key": 0}, batch=f"batch-{number % labels}") for number in range(count)]
        await monque.enqueue_many(jobs)
        return await _worked_off(stage, monque, count)


async def drain_beside_batches(stage: Stage, count: int) -> Sample:
    """Work off plain jobs in a collection in which a batch, and what follows it, wait for tomorrow."""
    await _store_batch(stage)
    return await drain(stage, count)


async def _store_batch(stage: Stage) -> None:
    _named("BatchEnded")
    async with Monque(stage.database, options=_options()) as monque:
        labelled: Any = NewJob
        later = [labelled("later", batch="later", delay=timedelta(days=1)) for _ in range(1_000)]
        await monque.enqueue_many(later)
        storing: Any = monque.enqueue
        await storing("after", after_batch="later")


async def commands(stage: Stage, count: int, *, beside: Kind | None = None, batches: bool = False) -> Sample:
    """The commands that plain jobs take, a thousand of them, but for those of the change stream."""
    counter = Commands()
    async with AsyncMongoClient[Any](stage.server_uri, event_listeners=[counter]) as client:
        if batches:
            await _store_batch(stage)
        counted = Stage(client[stage.database.name], stage.server_uri, stage.mongod)
        drained = await drain(counted, count, beside=beside)
    value = counter.count / count * 1_000
    return Sample(value=value, unit="a thousand jobs", client=drained.client, server=drained.server)


async def drain_families(stage: Stage, count: int) -> Sample:
    """Work off parents that wait for ten children each; a child counts as a job, its parent does not."""
    if not hasattr(Job, "run_jobs"):
        raise LeftOutError("Job.run_jobs")
    async with Monque(stage.database, options=_options()) as monque:

        async def ask(job: Job[Any]) -> None:
            asking: Any = job
            await asking.run_jobs("ask", [NewJob("child") for _ in range(CHILDREN)])

        monque.worker("work", ask)
        monque.worker("child", nothing)
        parents = max(count // CHILDREN, 1)
        await monque.enqueue_many([NewJob("work") for _ in range(parents)])
        return await _worked_off(stage, monque, parents * CHILDREN + parents, counted=parents * CHILDREN)


def called_back(*, count: int, parts: int) -> Subject:
    """From the end of the last handler of a batch to the start of what follows it, p50."""

    @asynccontextmanager
    async def subject(stage: Stage) -> AsyncIterator[Round]:
        _named("BatchEnded")
        async with Monque(stage.database, options=_options()) as monque:
            ended, begun, labels = dict[str, float](), dict[str, float](), iter(range(10**9))
            woken = asyncio.Event()

            async def work(job: Job[str]) -> None:
                ended[job.data] = time.monotonic()

            async def follow(job: Job[str]) -> None:
                begun[job.data] = time.monotonic()
                woken.set()

            monque.worker("work", work)
            monque.worker("after", follow)
            await monque.start()
            labelled: Any = NewJob
            storing: Any = monque.enqueue

            async def one() -> float:
                label = f"batch-{next(labels)}"
                delay = timedelta(milliseconds=100)  # what follows is stored before the batch is over
                jobs = [labelled("work", label, batch=label, delay=delay) for _ in range(parts)]
                await monque.enqueue_many(jobs)
                woken.clear()
                await storing("after", label, after_batch=label)
                await woken.wait()
                return begun[label] - ended[label]

            async def measure() -> Sample:
                with stage.costs(count) as costs:
                    late = [await one() for _ in range(count)]
                return costs.times(late)

            await one()
            yield measure
        await _drop(stage)

    return subject


async def drain_and_prune(stage: Stage, count: int) -> Sample:
    """Work off jobs, which are kept; then remove them, as a retention does."""
    hour, at_once = (Retention(completed=time) for time in (timedelta(hours=1), timedelta(milliseconds=1)))
    async with Monque(stage.database, options=_options(retention=hour)) as monque:
        monque.worker("work", nothing)
        await monque.enqueue_many([NewJob("work", {"key": number}) for number in range(count)])

        async def pruned() -> None:
            async with Monque(stage.database, options=_options(retention=at_once)) as pruner:
                pruner.worker("another", nothing)
                await pruner.start()
                while await stage.database[COLLECTION].find_one({}, {"_id": 1}) is not None:
                    await asyncio.sleep(0.01)

        return await _worked_off(stage, monque, count, then=pruned)


def _options(**more: Any) -> Options:
    return Options(collection=COLLECTION, worker_concurrency=AT_ONCE, **more)


async def _worked_off(
    stage: Stage,
    monque: Monque,
    count: int,
    *,
    counted: int | None = None,
    then: Callable[[], Any] | None = None,
) -> Sample:
    """Start, and wait until so many jobs are completed."""
    completed = Completed(monque, count)
    with stage.costs(counted or count) as costs:
        await monque.start()
        await completed.all_of_them.wait()
        await monque.stop()
        if then is not None:
            await then()
    await _drop(stage)
    return costs.rate()


async def _drop(stage: Stage) -> None:
    for suffix in ("", "_trends", "_instances", "_control"):
        await stage.database.drop_collection(COLLECTION + suffix)
