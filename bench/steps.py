"""What durable steps cost: beside plain jobs, beside plain transactions, and while jobs sleep."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

from pymongo import WriteConcern
from pymongo.asynchronous.client_session import AsyncClientSession
from pymongo.asynchronous.collection import AsyncCollection

from bench import footprint, plain
from bench.draining import COLLECTION, Completed, Handler
from bench.scenario import LeftOutError, Round, Subject
from bench.stage import Sample, Stage
from monque import Job, Monque, NewJob, Options

STEPS = 5
# Jobs that run at once, on both sides. With half as many the client waits for the server most of the time;
# with twice as many transactions wait for each other.
AT_ONCE = 20
_EFFECTS = "effects"


async def with_steps(job: Job[Any]) -> None:
    """Do five things, each of which is stored when it is done."""
    for number in range(STEPS):
        await job.step(f"step-{number}", _do_something, number)


async def _do_something(number: int) -> int:
    return number


async def drain_steps(stage: Stage, count: int) -> Sample:
    """Work off jobs of five steps; a step counts as a job."""
    if not hasattr(Job, "step"):
        raise LeftOutError("Job.step")
    return await _drain(stage, count, with_steps, counted=count * STEPS)


async def drain_chains(stage: Stage, count: int) -> Sample:
    """Work off chains of five plain jobs, each of which stores the next one."""
    options = Options(collection=COLLECTION, worker_concurrency=AT_ONCE)
    async with Monque(stage.database, options=options) as monque:

        async def link(job: Job[int]) -> None:
            if job.data < STEPS:
                await monque.enqueue("work", job.data + 1)

        monque.worker("work", link)
        await monque.enqueue_many([NewJob("work", 1) for _ in range(count)])
        return await _worked_off(stage, monque, count * STEPS)


async def drain_five_times(stage: Stage, count: int) -> Sample:
    """Work off five times as many plain jobs."""
    return await _drain(stage, count * STEPS, _nothing, counted=count * STEPS)


async def _nothing(_job: Job[Any]) -> None: ...


async def drain_transactions(stage: Stage, count: int) -> Sample:
    """Work off jobs with one step each that writes in a transaction."""
    if not hasattr(Job, "transaction"):
        raise LeftOutError("Job.transaction")
    effects = stage.database[_EFFECTS]

    async def write(session: AsyncClientSession) -> None:
        await effects.insert_one({"done": True}, session=session)

    async def transact(job: Job[Any]) -> None:
        await job.transaction("write", write)

    await effects.insert_one({})  # a transaction that makes its collection is slower
    return await _drain(stage, count, transact, counted=count)


async def plain_transactions(stage: Stage, count: int) -> Sample:
    """Do what such a step does with plain PyMongo: hold a document, insert, change the document, commit."""
    jobs, effects = await plain.jobs(stage), stage.database[_EFFECTS]
    await effects.insert_one({})
    documents = [plain.document() for _ in range(count)]
    await jobs.insert_many(documents)

    async def transact(session: AsyncClientSession, job_id: Any) -> None:
        await jobs.update_one({"_id": job_id}, plain.CLAIM, session=session)
        await effects.insert_one({"done": True}, session=session)
        await jobs.update_one({"_id": job_id}, plain.COMPLETE, session=session)

    async def work(ids: AsyncIterator[Any]) -> None:
        async for job_id in ids:
            await _in_transaction(jobs, lambda session, job_id=job_id: transact(session, job_id))

    with stage.costs(count) as costs:
        ids = _each(documents)
        await asyncio.gather(*(work(ids) for _ in range(AT_ONCE)))
    await jobs.drop()
    return costs.rate()


async def _in_transaction(jobs: AsyncCollection[Any], write: Any) -> None:
    async with jobs.database.client.start_session() as session:
        await session.with_transaction(write, write_concern=WriteConcern("majority"))


async def _each(documents: list[dict[str, Any]]) -> AsyncIterator[Any]:
    for document in documents:
        yield document["_id"]


def idle_beside_sleepers(*, count: int, sleeping: int) -> Subject:
    """The commands of an idle instance in a second, beside jobs of its name that sleep."""

    @asynccontextmanager
    async def subject(stage: Stage) -> AsyncIterator[Round]:
        began, until = datetime.now(UTC), datetime.now(UTC) + timedelta(days=30)
        slept = {"n": "rest", "k": "sleep", "at": began, "ms": 1, "until": until}
        waits = {"parked": {"why": "time", "since": began}, "steps": [slept]}
        sleeper = {"nextRunAt": until, "attempt": 1, "settledAttempt": 1, **waits}
        await plain.fill(stage, Options().collection, sleeping, **sleeper)
        yield lambda: footprint.idle_commands(stage, count)

    return subject


async def _drain(stage: Stage, count: int, handler: Handler, *, counted: int) -> Sample:
    options = Options(collection=COLLECTION, worker_concurrency=AT_ONCE)
    async with Monque(stage.database, options=options) as monque:
        monque.worker("work", handler)
        await monque.enqueue_many([NewJob("work") for _ in range(count)])
        return await _worked_off(stage, monque, count, counted)


async def _worked_off(stage: Stage, monque: Monque, count: int, counted: int | None = None) -> Sample:
    """Start, and wait until so many jobs are completed."""
    completed = Completed(monque, count)
    with stage.costs(counted or count) as costs:
        await monque.start()
        await completed.all_of_them.wait()
    await monque.stop()
    for suffix in ("", "_trends", "_instances"):
        await stage.database.drop_collection(COLLECTION + suffix)
    return costs.rate()
