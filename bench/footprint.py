"""What it costs to have it: memory, an idle instance, start-up."""

from __future__ import annotations

import asyncio
import resource
import sys
from pathlib import Path
from statistics import median
from typing import Any

from pymongo import AsyncMongoClient
from pymongo.monitoring import CommandListener, CommandStartedEvent

from bench.draining import nothing
from bench.processes import Process
from bench.stage import Sample, Stage
from bench.timing import stopwatch
from monque import Monque, NewJob, Options

# What is stored at once takes memory too: with twice as many the list of jobs is most of it. With half as
# many the process waits most of the time for its last jobs.
_AT_ONCE = 5_000


async def idle_commands(stage: Stage, count: int) -> Sample:
    """Commands in one of *count* seconds of an idle instance, besides those of its change stream.

    Its CPU "a job" is that of a second.
    """
    counter = Commands()
    async with (
        AsyncMongoClient[Any](stage.server_uri, event_listeners=[counter]) as client,
        Monque(client[stage.database.name]) as monque,
    ):
        monque.worker("work", nothing)
        await monque.start()
        await asyncio.sleep(1)
        counter.count = 0
        with stage.costs(count) as costs:
            await asyncio.sleep(count)
        return costs.sample(counter.count / count, "a second")


async def memory(stage: Stage, count: int) -> Sample:
    """The most memory that a worker process took for *count* jobs."""
    with stage.costs(count) as costs:
        async with Process("bench.footprint", stage.uri, str(count)) as process:
            most = float(await process.ask("how much"))
    return costs.sample(most / 1024, "MB")


async def importing(stage: Stage, count: int, *, statement: str) -> Sample:
    """The time to start Python and run an import."""
    times = []
    with stage.costs(count) as costs:
        for _ in range(count):
            with stopwatch() as watch:
                process = await asyncio.create_subprocess_exec(sys.executable, "-c", statement)
                await process.wait()
            times.append(watch.seconds)
    return costs.sample(median(times) * 1000, "ms")


async def opening(stage: Stage, count: int) -> Sample:
    """The time to open and close, when the indexes are there."""
    times = []
    with stage.costs(count) as costs:
        for _ in range(count):
            with stopwatch() as watch:
                async with Monque(stage.uri):
                    pass
            times.append(watch.seconds)
    return costs.sample(median(times) * 1000, "ms")


async def pinging(stage: Stage, count: int) -> Sample:
    """The time for a client and one ping."""
    times = []
    with stage.costs(count) as costs:
        for _ in range(count):
            with stopwatch() as watch:
                async with AsyncMongoClient[Any](stage.server_uri) as client:
                    await client.admin.command("ping")
            times.append(watch.seconds)
    return costs.sample(median(times) * 1000, "ms")


def most_memory() -> int:
    """The most that this process ever used, in kB."""
    # Not from getrusage, where there is /proc: on Linux that begins with what the parent process used.
    return _status("VmHWM:") or resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def current_memory() -> int:
    """What this process uses now, in kB; without /proc the most that it ever used."""
    return _status("VmRSS:") or most_memory()


def _status(field: str) -> int:
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in lines if line.startswith(field)), 0)


class Commands(CommandListener):
    """Counts the commands of a client, besides those of its change streams."""

    def __init__(self) -> None:
        self.count = 0

    def started(self, event: CommandStartedEvent) -> None:
        self.count += event.command_name != "getMore"

    def succeeded(self, event: object) -> None: ...

    def failed(self, event: object) -> None: ...


async def _main(uri: str, count: int) -> None:
    """Work off jobs in this process; print the most kB that it took."""
    async with Monque(uri, options=Options(collection="memory", worker_concurrency=100)) as monque:
        monque.worker("work", nothing)
        print("ready", flush=True)
        for at in range(0, count, _AT_ONCE):
            await monque.enqueue_many([NewJob("work") for _ in range(min(_AT_ONCE, count - at))])
            await monque.run_until_idle()
        print(most_memory(), flush=True)


if __name__ == "__main__":
    asyncio.run(_main(sys.argv[1], int(sys.argv[2])))
