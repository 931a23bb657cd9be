"""How fast waiting jobs are worked off."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from typing import Any

from bench import plain
from bench.report import Result
from bench.stage import Costs, Stage, middle
from monque import Job, Monque, NewJob, Options

ONE_BY_ONE = "claim one, complete it, claim the next"

# Side by side so often, and the round in the middle counts: the machine may be busy for a moment, and the
# best of a few is luck.
_ROUNDS = 3


async def draining(stage: Stage) -> list[Result]:
    """No-op jobs, one instance, one process."""
    count = stage.size(25_000, 100_000)
    one_by_one = await plain.one_by_one(stage.database, 300)
    results, tuned = [], 0.0
    for concurrency in (100, 500, 1_000):
        options = Options(collection=f"tuned_{concurrency}", worker_concurrency=concurrency)
        rounds = []
        for _ in range(_ROUNDS):
            raw = await plain.overlapped(stage.database, count, concurrency)
            rounds.append((await drain(stage, count, options), raw))
        costs, raw = middle(rounds)
        tuned = max(tuned, costs.rate)
        name = f"drain, worker_concurrency={concurrency}"
        results.append(_result(name, costs, raw, "overlapped batches of that size", at_least=0.8))
        if concurrency == 100:
            results.append(_result(name, costs, one_by_one, ONE_BY_ONE, at_least=10))
    default = await drain(stage, count, Options(collection="default"))
    return [
        *results,
        _result("drain, default options", default, tuned, "the best tuned drain", at_least=0.5),
        _result("drain, default options", default, one_by_one, ONE_BY_ONE, at_least=8),
    ]


async def names(stage: Stage) -> list[Result]:
    """The same number of jobs under one, ten and five hundred names."""
    count = stage.size(20_000, 50_000)
    rounds: dict[int, list[tuple[Costs, float]]] = {10: [], 500: []}
    for _ in range(_ROUNDS):
        one = await drain(stage, count, Options(collection="names_1"))
        for number, beside in rounds.items():
            options = Options(collection=f"names_{number}")
            beside.append((await drain(stage, count, options, names=number), one.rate))
    return [
        _result(f"drain, {number} names", *middle(beside), "one name", at_least=1 / 1.3)
        for number, beside in rounds.items()
    ]


async def blocking(stage: Stage) -> list[Result]:
    """`def` handlers, in threads."""
    count = stage.size(5_000, 20_000)
    plain_rate = (await drain(stage, count, Options(collection="async"))).rate
    costs = await drain(stage, count, Options(collection="blocking"), handler=_block)
    return [_result("drain, `def` handlers", costs, plain_rate, "`async def` handlers")]


async def processes(stage: Stage) -> list[Result]:
    """Several processes on one collection."""
    count = stage.size(20_000, 50_000)
    alone = await drain_by_processes(stage, count, 1)
    results = []
    for number in (2, 4):
        costs = await drain_by_processes(stage, count, number)
        results.append(_result(f"drain, {number} processes", costs, alone.rate, "one process"))
    return results


async def instances(stage: Stage) -> list[Result]:
    """Ten instances on one collection, in one process: they must not stand in each other's way."""
    count, conflicts = stage.size(15_000, 50_000), 0
    rounds = []
    for _ in range(_ROUNDS):
        alone = await drain(stage, count, Options(collection="one_instance"))
        before = await _conflicts(stage)
        rounds.append((await _drain_by_instances(stage, count, 10), alone.rate))
        conflicts += await _conflicts(stage) - before
    return [
        _result("drain, 10 instances", *middle(rounds), "one instance", at_least=0.8),
        Result(
            name="write conflicts of 10 instances",
            value=conflicts / _ROUNDS,
            unit="conflicts",
            raw=count / 50,
            raw_name="one in fifty jobs",
            at_most=1,
        ),
    ]


async def listing_indexes(stage: Stage) -> list[Result]:
    """What the indexes for operators cost."""
    count = stage.size(20_000, 50_000)
    few, all_of_them = Options(collection="few"), Options(collection="all", listing_indexes=True)
    storing = []
    for options in (few, all_of_them):
        async with Monque(stage.database, options=options) as monque:
            with stage.costs(count) as costs:
                await monque.enqueue_many(NewJob("elsewhere") for _ in range(count))
            storing.append(costs)
    without, with_them = await drain(stage, count, few), await drain(stage, count, all_of_them)
    return [
        _result("enqueue_many, listing_indexes=True", storing[1], storing[0].rate, "without them"),
        _result("drain, listing_indexes=True", with_them, without.rate, "without them"),
    ]


async def retries(stage: Stage) -> list[Result]:
    """Jobs that fail once, beside jobs that do not: each costs two runs and one retry."""
    count = stage.size(5_000, 20_000)
    quick = Options(
        collection="retries", worker_concurrency=100, base_retry_interval=timedelta(milliseconds=1)
    )
    smooth = await drain(stage, count, Options(collection="smooth", worker_concurrency=100))

    async def fail_once(job: Job[Any]) -> None:
        if job.fail_count == 0:
            raise ValueError("the first time")

    costs = await drain(stage, count, quick, handler=fail_once)
    return [_result("drain, each fails once", costs, smooth.rate, "jobs that succeed")]


async def recurring(stage: Stage) -> list[Result]:
    """Schedules whose time has come, beside as many one-off jobs: each run ends with the next one planned."""
    count = stage.size(1_000, 3_000)
    once = await drain(stage, count, Options(collection="once"))
    options = Options(collection="recurring")
    async with Monque(stage.database, options=options) as monque:
        for number in range(count):
            await monque.schedule("0 3 * * *", "work", unique_key=str(number))
        ran = Counted(count)
        monque.worker("work", ran)
        due = {"$set": {"nextRunAt": datetime.now(UTC) - timedelta(minutes=1)}}
        await stage.database[options.collection].update_many({}, due)
        with stage.costs(count) as costs:
            await monque.start()
            await ran.all_of_them.wait()
            await monque.stop()
    return [_result("drain, recurring jobs", costs, once.rate, "one-off jobs")]


async def keys(stage: Stage) -> list[Result]:
    """How much of the indexes is walked through to find and to claim the jobs."""
    count = 5_000
    options = Options(collection="keys")
    async with Monque(stage.database, options=options) as monque:
        await monque.enqueue_many(NewJob("work") for _ in range(count))
    # By default it keeps the last megabyte only.
    await stage.database.create_collection("system.profile", capped=True, size=100 * 2**20)
    await stage.database.command("profile", 2)
    async with Monque(stage.database, options=options) as monque:
        ran = Counted(count)
        monque.worker("work", ran)
        await monque.start()
        await ran.all_of_them.wait()
    await stage.database.command("profile", 0)
    commands = stage.database["system.profile"]
    results = []
    for name, which in (
        ("looks", {"op": "query", "command.hint": "monque_active"}),
        ("claims", {"op": "update", "command.u.$set.status": "processing"}),
    ):
        entries = await commands.find(which, {"keysExamined": 1}).to_list()
        examined = sum(entry.get("keysExamined", 0) for entry in entries)
        results.append(
            Result(
                name=f"keys examined by {name}",
                value=examined / count,
                unit="a job",
                raw=2,
                raw_name="two a job",
                at_most=1,
            )
        )
    return results


class Counted:
    """A handler that does nothing but count."""

    def __init__(self, count: int, handler: Callable[[Job[Any]], Awaitable[None]] | None = None) -> None:
        self.left = count
        self.all_of_them = asyncio.Event()
        self._handler = handler

    async def __call__(self, job: Job[Any]) -> None:
        if self._handler is not None:
            await self._handler(job)
        self.left -= 1
        if self.left == 0:
            self.all_of_them.set()


def _block(_job: Job[Any]) -> None: ...


class _stored:  # noqa: N801 - used like a function
    """Jobs that wait in a collection of their own, and the options that lead to it."""

    def __init__(self, stage: Stage, count: int, collection: str, names: int = 1) -> None:
        self._stage, self._count, self._names = stage, count, names
        self._options = Options(collection=collection)

    async def __aenter__(self) -> Options:
        await _store(self._stage, self._count, self._options, self._names)
        return self._options

    async def __aexit__(self, *_: object) -> None:
        await self._stage.database.drop_collection(self._options.collection)


async def _store(stage: Stage, count: int, options: Options, names: int) -> None:
    async with Monque(stage.database, options=options) as monque:
        await monque.enqueue_many(NewJob(_name(number % names)) for number in range(count))


def _name(number: int) -> str:
    return f"work-{number}" if number else "work"


async def drain(
    stage: Stage,
    count: int,
    options: Options,
    *,
    names: int = 1,
    handler: Callable[[Job[Any]], Any] | None = None,
    drop: bool = True,
) -> Costs:
    """Store no-op jobs, then work them off with change stream, events and heartbeats on."""
    await _store(stage, count, options, names)
    async with Monque(stage.database, options=options) as monque:
        ran = Counted(count, handler if handler is not _block else None)
        done = asyncio.Event()
        completed = 0

        def count_completed(_event: object) -> None:
            nonlocal completed
            completed += 1
            if completed == count:
                done.set()

        monque.on("job:complete", count_completed)
        for number in range(names):
            monque.worker(_name(number), _block if handler is _block else ran)
        with stage.costs(count) as costs:
            await monque.start()
            await done.wait()
        await monque.stop()
    if drop:
        await stage.database.drop_collection(options.collection)
    return costs


async def _drain_by_instances(stage: Stage, count: int, number: int) -> Costs:
    async with _stored(stage, count, f"{number}_instances") as options:
        ran = Counted(count)
        crew = [Monque(stage.database, options=options) for _ in range(number)]
        for monque in crew:
            monque.worker("work", ran)
            await monque.open()
        with stage.costs(count) as costs:
            await asyncio.gather(*(monque.start() for monque in crew))
            await ran.all_of_them.wait()
        for monque in crew:
            await monque.close()
    return costs


async def drain_by_processes(stage: Stage, count: int, number: int) -> Costs:
    """Store no-op jobs, then have so many processes work them off."""
    async with _stored(stage, count, f"by_{number}") as options:
        program = [sys.executable, "-m", "bench.worker", stage.uri, options.collection]
        pipe = asyncio.subprocess.PIPE
        workers = [
            await asyncio.create_subprocess_exec(*program, stdin=pipe, stdout=pipe) for _ in range(number)
        ]
        for worker in workers:
            assert worker.stdout is not None
            await worker.stdout.readline()
        collection = stage.database[options.collection]
        with stage.costs(count, processes=[worker.pid for worker in workers]) as costs:
            for worker in workers:
                assert worker.stdin is not None
                worker.stdin.write(b"go\n")
            while await collection.find_one({"status": {"$in": ["pending", "processing"]}}, {"_id": 1}):
                await asyncio.sleep(0.05)
        for worker in workers:
            assert worker.stdin is not None
            worker.stdin.close()
            await worker.wait()
    return costs


async def _conflicts(stage: Stage) -> int:
    status = await stage.database.client.admin.command("serverStatus")
    conflicts: int = status["metrics"]["operation"]["writeConflicts"]
    return conflicts


def _result(name: str, costs: Costs, raw: float, raw_name: str, at_least: float | None = None) -> Result:
    return Result(
        name=name,
        value=costs.rate,
        unit="jobs/s",
        raw=raw,
        raw_name=raw_name,
        at_least=at_least,
        note=costs.note,
    )
