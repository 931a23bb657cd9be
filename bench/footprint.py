"""What it costs to have it: growth of the collection, an idle instance, memory, start-up."""

from __future__ import annotations

import asyncio
import resource
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from pymongo import AsyncMongoClient
from pymongo.monitoring import CommandListener, CommandStartedEvent

from bench import plain
from bench.draining import drain
from bench.report import Result
from bench.stage import Stage, middle
from bench.timing import stopwatch
from monque import Job, Monque, NewJob, Options

_AT_ONCE = 5_000


async def growth(stage: Stage) -> list[Result]:
    """Draining beside very many completed and future jobs, and in an empty collection."""
    count, others = 20_000, stage.size(100_000, 1_000_000)
    options = Options(collection="grown")
    async with Monque(stage.database, options=options):
        pass  # its indexes
    for status, offset in (("completed", timedelta(days=-1)), ("pending", timedelta(days=365))):
        await _fill(stage, others, status, datetime.now(UTC) + offset)
    rounds = []
    for _ in range(3):  # side by side, and the one in the middle: the machine may be busy for a moment
        empty = await drain(stage, count, Options(collection="empty"))
        rounds.append((await drain(stage, count, options, drop=False), empty.rate))
    grown, raw = middle(rounds)
    return [
        Result(
            name=f"drain beside {2 * others:,} other jobs",
            value=grown.rate,
            unit="jobs/s",
            raw=raw,
            raw_name="an empty collection",
            at_least=0.85,
            note=grown.note,
        )
    ]


async def _fill(stage: Stage, count: int, status: str, run_at: datetime) -> None:
    collection = stage.database["grown"]
    for at in range(0, count, 10_000):
        documents = [plain.document() for _ in range(min(10_000, count - at))]
        for document in documents:
            document |= {"status": status, "nextRunAt": run_at}
        await collection.insert_many(documents, ordered=False)


async def idle(stage: Stage) -> list[Result]:
    """Commands a second of an instance that has nothing to do, besides those of its change stream."""
    seconds = stage.size(8, 60)
    counter = _Commands()
    async with (
        AsyncMongoClient[Any](stage.server_uri, event_listeners=[counter]) as client,
        Monque(client[stage.database.name]) as monque,
    ):
        monque.worker("work", _nothing)
        await monque.start()
        await asyncio.sleep(1)
        counter.count = 0
        await asyncio.sleep(seconds)
        sent = counter.count
    return [
        Result(
            name="commands of an idle instance",
            value=sent / seconds,
            unit="a second",
            raw=1,
            raw_name="one a second",
            at_most=1,
        )
    ]


async def memory(stage: Stage) -> list[Result]:
    """The memory of a worker process after many jobs."""
    count = stage.size(20_000, 200_000)
    first, last = await most_memory_after(stage, count)
    return [
        Result(
            name=f"memory after {count:,} jobs",
            value=last,
            unit="MB",
            raw=80,
            raw_name="80 MB",
            at_most=1,
        ),
        Result(
            name="memory, after all the jobs",
            value=last,
            unit="MB",
            raw=first,
            raw_name=f"after the first {_first(count):,}",
            at_most=1.1,
        ),
    ]


async def most_memory_after(stage: Stage, count: int) -> tuple[float, float]:
    """The most MB that a worker process took for the first jobs, and for all *count* of them."""
    program = [sys.executable, "-m", "bench.footprint", stage.uri, str(count)]
    process = await asyncio.create_subprocess_exec(*program, stdout=asyncio.subprocess.PIPE)
    output, _ = await process.communicate()
    first, last = (int(word) / 1024 for word in output.split())
    return first, last


async def starting(stage: Stage) -> list[Result]:
    """The time to import Monque and to open it."""

    def run(statement: str) -> float:
        with stopwatch() as watch:
            subprocess.run([sys.executable, "-c", statement], check=True)
        return watch.seconds

    alone, imported = (min(run(f"import {what}") for _ in range(5)) for what in ("pymongo", "monque._monque"))
    with stopwatch() as ping:
        async with AsyncMongoClient[Any](stage.server_uri) as client:
            await client.admin.command("ping")
    async with Monque(stage.uri):
        pass  # the indexes are there from now on
    with stopwatch() as opening:
        async with Monque(stage.uri):
            pass
    return [
        Result(
            name="import monque",
            value=imported * 1000,
            unit="ms",
            raw=alone * 1000,
            raw_name="import pymongo",
        ),
        Result(
            name="open and close",
            value=opening.seconds * 1000,
            unit="ms",
            raw=ping.seconds * 1000,
            raw_name="a client and one ping",
        ),
    ]


class _Commands(CommandListener):
    def __init__(self) -> None:
        self.count = 0

    def started(self, event: CommandStartedEvent) -> None:
        self.count += event.command_name != "getMore"

    def succeeded(self, event: object) -> None: ...

    def failed(self, event: object) -> None: ...


async def _nothing(_job: Job[Any]) -> None: ...


async def _worked_hard(uri: str, count: int) -> None:
    """Work off jobs in this process; print its memory after the first and after all of them."""
    async with Monque(uri, options=Options(collection="memory", worker_concurrency=100)) as monque:
        monque.worker("work", _nothing)
        for share in (_first(count), count - _first(count)):
            for at in range(0, share, _AT_ONCE):
                await monque.enqueue_many(NewJob("work") for _ in range(min(_AT_ONCE, share - at)))
                await monque.run_until_idle()
            print(_most_memory(), flush=True)


def _first(count: int) -> int:
    return max(count // 10, _AT_ONCE)  # not fewer: what is stored at once takes memory, too


def _most_memory() -> int:
    """The most that this process ever used, in kB."""
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    # Not from getrusage, where there is this: on Linux that begins with what the parent process used.
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM:"))


if __name__ == "__main__":
    asyncio.run(_worked_hard(sys.argv[1], int(sys.argv[2])))
