"""How fast waiting jobs are worked off."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, Literal

from bench import plain
from bench.processes import Process
from bench.scenario import LeftOutError, Round, Subject
from bench.stage import Sample, Stage
from monque import Job, JobCompleted, Monque, NewJob, Options

Handler = Callable[[Job[Any]], Any]

COLLECTION = "drained"


async def nothing(_job: Job[Any]) -> None: ...


def nothing_blocking(_job: Job[Any]) -> None: ...


async def fail_once(job: Job[Any]) -> None:
    """Fail the first time and succeed the second."""
    if job.fail_count == 0:
        raise ValueError("the first time")


async def read_fields(job: Job[Any]) -> None:
    """Read what a log line has of a job."""
    _ = (job.id, job.attempt, job.name)


async def answer(_job: Job[Any]) -> dict[str, Any]:
    """Return what a caller may want to know."""
    return {"rows": 1_234, "file": "s3://shop/reports/2026-03-04.pdf", "took": 0.25}


async def drain(
    stage: Stage,
    count: int,
    *,
    names: int = 1,
    handler: Handler = nothing,
    drop: bool = True,
    store_result: bool = False,
    **options: Any,
) -> Sample:
    """Store jobs, then work them off with change stream, events and heartbeats on."""
    if store_result and not hasattr(Monque, "result_of"):
        raise LeftOutError("results")
    settings: dict[str, Any] = {"store_result": True} if store_result else {}
    chosen = Options(collection=COLLECTION, **options)
    await _store(stage, count, chosen, names)
    async with Monque(stage.database, options=chosen) as monque:
        completed = Completed(monque, count)
        for number in range(names):
            monque.worker(_name(number), handler, **settings)
        with stage.costs(count) as costs:
            await monque.start()
            await completed.all_of_them.wait()
        await monque.stop()
    if drop:
        await _drop(stage)
    return costs.rate()


async def drain_counted(stage: Stage, count: int) -> Sample:
    """Work jobs off, one of ten of which is cancelled, and see whether the trends agree with what ran."""
    if not hasattr(Monque, "trends"):
        raise LeftOutError("trends")
    from monque import Cancel  # here, not above: older libraries lack it

    options = Options(collection=COLLECTION, worker_concurrency=500)
    await _store(stage, count, options, names=5)
    async with Monque(stage.database, options=options) as monque:
        ended = {"completed": 0, "cancelled": 0}

        async def cancel_some(_job: Job[Any]) -> None:
            how = "completed" if sum(ended.values()) % 10 else "cancelled"
            ended[how] += 1
            if how == "cancelled":
                raise Cancel

        for number in range(5):
            monque.worker(_name(number), cancel_some)
        with stage.costs(count) as costs:
            await monque.run_until_idle()
        points = await monque.trends(by_name=True, until=monque.server_time() + timedelta(minutes=1))
        counted = {how: sum(getattr(point, how) for point in points) for how in ended}
    if counted != ended or sum(ended.values()) != count:
        raise RuntimeError(f"of {count} jobs, the trends have {counted}, and what ran is {ended}")
    await _drop(stage)
    return costs.rate()


async def drain_by_instances(stage: Stage, count: int, *, instances: int) -> Sample:
    """Have some instances in this process work off one collection."""
    options = Options(collection=COLLECTION)
    await _store(stage, count, options)
    async with AsyncExitStack() as stack:
        crew = [Monque(stage.database, options=options) for _ in range(instances)]
        completed = Completed(crew[0], count)
        for monque in crew:
            await stack.enter_async_context(monque)
            monque.worker("work", nothing)
        for monque in crew[1:]:
            monque.on(JobCompleted, completed.note)
        with stage.costs(count) as costs:
            await asyncio.gather(*(monque.start() for monque in crew))
            await completed.all_of_them.wait()
    await stage.database.drop_collection(COLLECTION)
    return costs.rate()


async def conflicts(stage: Stage, count: int, *, instances: int) -> Sample:
    """Write conflicts a job, while some instances work off one collection."""
    before = await _conflicts(stage)
    drained = await drain_by_instances(stage, count, instances=instances)
    among = (await _conflicts(stage) - before) / count
    return Sample(value=among, unit="a job", client=drained.client, server=drained.server)


async def drain_by_processes(
    stage: Stage, count: int, *, processes: int, milliseconds: int = 0, concurrency: int | None = None
) -> Sample:
    """Have some processes work off one collection; only these count as clients."""
    options = Options(collection=COLLECTION)
    await _store(stage, count, options)
    settings = (stage.uri, COLLECTION, str(milliseconds), str(concurrency or 0))
    program = partial(Process, "bench.worker", *settings)
    async with AsyncExitStack() as stack:
        workers = await asyncio.gather(*(stack.enter_async_context(program()) for _ in range(processes)))
        with stage.costs(count, processes=[worker.pid for worker in workers], here=False) as costs:
            began = time.monotonic()
            for worker in workers:
                worker.tell("go")
            await _until_done(stage)
        # This process notices the end late; the workers know when it was.
        ended = [float(await worker.ask("when")) for worker in workers]
        costs.seconds = max(ended) - began
    await stage.database.drop_collection(COLLECTION)
    return costs.rate()


async def drain_recurring(stage: Stage, count: int) -> Sample:
    """Work off schedules whose time has come: each run ends with the next one planned."""
    options = Options(collection=COLLECTION)
    async with Monque(stage.database, options=options) as monque:
        for number in range(count):
            await monque.schedule("0 3 * * *", "work", unique_key=str(number))
        due = {"$set": {"nextRunAt": datetime.now(UTC) - timedelta(minutes=1)}}
        await stage.database[COLLECTION].update_many({}, due)
        completed = Completed(monque, count)
        monque.worker("work", nothing)
        with stage.costs(count) as costs:
            await monque.start()
            await completed.all_of_them.wait()
    await stage.database.drop_collection(COLLECTION)
    return costs.rate()


async def keys(stage: Stage, count: int, *, of: Literal["polls", "claims"]) -> Sample:
    """How many index keys a job takes to find it, or to claim it."""
    which = {
        "polls": {"op": "query", "command.hint": "monque_active"},
        "claims": {"op": "update", "command.u.$set.status": "processing"},
    }
    await stage.database.drop_collection("system.profile")
    # By default it keeps the last megabyte only.
    await stage.database.create_collection("system.profile", capped=True, size=100 * 2**20)
    await stage.database.command("profile", 2)
    try:
        drained = await drain(stage, count)
    finally:
        await stage.database.command("profile", 0)
    entries = await stage.database["system.profile"].find(which[of], {"keysExamined": 1}).to_list()
    examined = sum(entry.get("keysExamined", 0) for entry in entries)
    return Sample(value=examined / count, unit="a job", client=drained.client, server=drained.server)


def grown(*, count: int, others: int) -> Subject:
    """Drain beside completed and future jobs, half of *others* each."""

    @asynccontextmanager
    async def subject(stage: Stage) -> AsyncIterator[Round]:
        last_year, next_year = (datetime.now(UTC) + timedelta(days=days) for days in (-365, 365))
        await plain.fill(stage, COLLECTION, others // 2, nextRunAt=last_year, status="completed")
        await plain.fill(stage, COLLECTION, others // 2, nextRunAt=next_year)
        await drain(stage, count // 10, drop=False)
        yield lambda: drain(stage, count, drop=False)

    return subject


class Completed:
    """Counts the completed jobs of an instance."""

    def __init__(self, monque: Monque, count: int) -> None:
        self.all_of_them = asyncio.Event()
        self._left = count
        monque.on(JobCompleted, self.note)

    def note(self, _event: JobCompleted) -> None:
        """Count one."""
        self._left -= 1
        if self._left == 0:
            self.all_of_them.set()


async def _drop(stage: Stage) -> None:
    """Remove the jobs, and what instances have written beside them."""
    for suffix in ("", "_trends", "_instances"):
        await stage.database.drop_collection(COLLECTION + suffix)


async def _store(stage: Stage, count: int, options: Options, names: int = 1) -> None:
    async with Monque(stage.database, options=options) as monque:
        await monque.enqueue_many([NewJob(_name(number % names)) for number in range(count)])


def _name(number: int) -> str:
    return f"work-{number}" if number else "work"


async def _until_done(stage: Stage) -> None:
    collection = stage.database[COLLECTION]
    while await collection.find_one({"status": {"$in": ["pending", "processing"]}}, {"_id": 1}):
        await asyncio.sleep(0.05)


async def _conflicts(stage: Stage) -> int:
    status = await stage.database.client.admin.command("serverStatus")
    conflicts: int = status["metrics"]["operation"]["writeConflicts"]
    return conflicts
