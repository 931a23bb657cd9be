"""`make scale`: what jobs cost on a replica set and on two shards, as names and worker processes grow.

The shards and the mongos are those of `make sharded`; the jobs are sharded by the hashed name, with default
options. The servers count their commands themselves (`serverStatus`): what reaches a shard is known, not
guessed. Clients and servers share this machine, so read commands and CPU; a rate is that of all of them
together.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager, contextmanager
from dataclasses import asdict, dataclass, field
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from pymongo import AsyncMongoClient, MongoClient

from bench import cpu
from bench.processes import Process
from monque import Job, JobCompleted, Monque, NewJob, Options

COLLECTION = "scaled"

# Commands about documents. Servers also send each other others, whatever jobs do.
COUNTED = ("insert", "find", "aggregate", "update", "findAndModify", "delete", "getMore")

# How often to ask the workers whether all jobs are done; they answer without the database.
_CHECK = 0.05


class Node(Protocol):
    """A server of the cluster: a process of this machine."""

    @property
    def address(self) -> str: ...

    @property
    def pid(self) -> int: ...


@dataclass(frozen=True, slots=True)
class Scene:
    """A running cluster, or one replica set."""

    name: str
    uri: str
    """The address of the mongos, if there is one."""
    shards: Sequence[Node]
    router: Node | None = None

    def at(self, database: str) -> str:
        """The address of a database."""
        return self.uri.replace("/?", f"/{database}?")


@dataclass(slots=True, kw_only=True)
class Row:
    """The figures of one measurement; CPU in microseconds a job, or a minute if nothing runs."""

    what: str
    where: str
    names: int
    processes: int
    jobs: int
    seconds: float = 0.0
    held: list[int] = field(default_factory=list)
    """The jobs of each shard."""
    commands: list[dict[str, int]] = field(default_factory=list)
    """The commands of each shard."""
    client: float = 0.0
    mongos: float = 0.0
    servers: list[float] = field(default_factory=list)

    @property
    def rate(self) -> float:
        return self.jobs / self.seconds

    def each(self, count: int) -> list[float]:
        """Commands of each shard for *count* jobs, or for this many seconds of a process if nothing ran."""
        of = self.jobs or self.seconds * self.processes
        return [sum(commands.values()) * count / of for commands in self.commands]


@contextmanager
def measured(scene: Scene, row: Row, clients: Sequence[int]) -> Iterator[None]:
    """Fill in what happens to the cluster and to the client processes during the block."""
    routers = [] if scene.router is None else [scene.router.pid]
    pids = (*clients, *routers, *(shard.pid for shard in scene.shards))
    with ExitStack() as stack:
        uris = [f"mongodb://{shard.address}/?directConnection=true" for shard in scene.shards]
        shards = [stack.enter_context(MongoClient[dict[str, Any]](uri)) for uri in uris]
        before, began = [_commands(shard) for shard in shards], time.monotonic()
        used = {pid: cpu.of_process(pid) for pid in pids}
        yield
        row.seconds = row.seconds or time.monotonic() - began
        row.commands = [
            dict(_commands(shard) - counted) for shard, counted in zip(shards, before, strict=True)
        ]
        share = 1e6 / (row.jobs or row.seconds / 60)
        taken = {pid: (cpu.of_process(pid) - used[pid]) * share for pid in pids}
        row.client, row.mongos = (sum(taken[pid] for pid in each) for each in (clients, routers))
        row.servers = [taken[shard.pid] for shard in scene.shards]


def _commands(shard: MongoClient[dict[str, Any]]) -> Counter[str]:
    counted = shard.admin.command("serverStatus")["metrics"]["commands"]
    return Counter({name: counted[name]["total"] for name in COUNTED})


@asynccontextmanager
async def _stored(scene: Scene, names: int, jobs: int) -> AsyncIterator[tuple[str, list[int]]]:
    """A database with jobs of these names, sharded if there are shards; how many each of them holds."""
    async with AsyncMongoClient[Any](scene.uri) as client:
        database = client[f"scale_{names}"]
        if scene.router is not None:
            whole = f"{database.name}.{COLLECTION}"
            await client.admin.command("shardCollection", whole, key={"name": "hashed"})
        async with Monque(database, options=Options(collection=COLLECTION)) as monque:
            new = (NewJob(f"work-{number % names}") for number in range(jobs))
            await monque.enqueue_many(new, return_jobs=False)
        found = await database.command("collStats", COLLECTION)
        parts = found["shards"] if scene.router is not None else {"shard0": found}
        held = [parts.get(f"shard{number}", {}).get("count", 0) for number in range(len(scene.shards))]
        try:
            yield database.name, held
        finally:
            await client.drop_database(database.name)


async def drain(scene: Scene, *, names: int, processes: int, jobs: int) -> Row:
    """Let some processes work off jobs that do nothing."""
    row = Row(what="drain", where=scene.name, names=names, processes=processes, jobs=jobs)
    async with _stored(scene, names, jobs) as (database, row.held), AsyncExitStack() as stack:
        workers = await _workers(stack, scene.at(database), names, processes)
        with measured(scene, row, [worker.pid for worker in workers]):
            began = time.monotonic()
            for worker in workers:
                worker.tell("go")
            while sum([int(await worker.ask("count")) for worker in workers]) < jobs:
                await asyncio.sleep(_CHECK)
            row.seconds = max([float(await worker.ask("when")) for worker in workers]) - began
    return row


async def idle(scene: Scene, *, names: int, processes: int, seconds: float) -> Row:
    """Let some processes wait for jobs."""
    row = Row(what="idle", where=scene.name, names=names, processes=processes, jobs=0)
    async with _stored(scene, names, 0) as (database, row.held), AsyncExitStack() as stack:
        workers = await _workers(stack, scene.at(database), names, processes)
        for worker in workers:
            worker.tell("go")
        await asyncio.sleep(5)  # they have started
        with measured(scene, row, [worker.pid for worker in workers]):
            await asyncio.sleep(seconds)
    return row


async def lone(scene: Scene, *, names: int, jobs: int) -> Row:
    """Store jobs one by one in the process that runs them; polls and the change stream are left out."""
    rare = timedelta(hours=1)
    row = Row(what="lone", where=scene.name, names=names, processes=1, jobs=jobs)
    options = Options(
        collection=COLLECTION,
        poll_interval=rare,
        safety_poll_interval=rare,
        change_streams=False,
        trends=None,
        register=False,
    )
    async with AsyncExitStack() as stack:
        database, _ = await stack.enter_async_context(_stored(scene, names, 0))
        monque = await stack.enter_async_context(Monque(scene.at(database), options=options))
        done = asyncio.Queue[Any]()
        monque.on(JobCompleted, lambda event: done.put_nowait(event.job.id))
        for number in range(names):
            monque.worker(f"work-{number}", _nothing)
        await monque.start()

        async def run(count: int) -> None:
            for number in range(count):
                await monque.enqueue(f"work-{number % names}")
                await done.get()

        await run(names)  # which opens the connections
        with measured(scene, row, []):
            await run(jobs)
    return row


async def _nothing(_job: Job[Any]) -> None: ...


async def _workers(stack: AsyncExitStack, uri: str, names: int, processes: int) -> list[Process]:
    settings = (uri, COLLECTION, "0", "0", str(names))
    programs = [Process("bench.worker", *settings) for _ in range(processes)]
    return list(await asyncio.gather(*(stack.enter_async_context(each) for each in programs)))


async def measure_all(
    scenes: Sequence[Scene], *, names: Sequence[int], processes: Sequence[int], jobs: int, seconds: float
) -> list[Row]:
    """Each number of names with each number of processes."""
    measures = [
        measure
        for scene in scenes
        for some in names
        for measure in (
            partial(lone, scene, names=some, jobs=max(jobs // 100, some)),
            *(partial(drain, scene, names=some, processes=each, jobs=jobs) for each in processes),
            *(partial(idle, scene, names=some, processes=each, seconds=seconds) for each in processes[::3]),
        )
    ]
    return [_tell(await measure()) for measure in measures]


def _tell(row: Row) -> Row:
    print(row, file=sys.stderr, flush=True)
    return row


def table(rows: Sequence[Row]) -> str:
    """The rows as a table for the documentation."""
    headings = ["", "Where", "Names", "Processes", "Jobs on each", "Commands on each", "Rate"]
    headings += ["CPU of the clients", "of the mongos", "of each shard"]
    lines = ["| " + " | ".join(headings) + " |", "|" + "---|" * len(headings)]
    for row in rows:
        per, of = {"lone": (1, "a job"), "drain": (1000, "for 1,000 jobs")}.get(row.what, (60, "a minute"))
        commands = " and ".join(f"{count:.3g}" for count in row.each(per))
        rate = f"{row.rate:,.0f}/s" if row.what == "drain" else ""
        held = " and ".join(f"{count:,}" for count in row.held) if row.what == "drain" else ""
        scale, unit = (1, "µs") if row.jobs else (1000, "ms")
        client, mongos, *shards = (f"{used / scale:.0f}" for used in (row.client, row.mongos, *row.servers))
        used = (f"{client} {unit}", f"{mongos} {unit}", f"{' and '.join(shards)} {unit}")
        cells = (row.what, row.where, row.names, row.processes, held, f"{commands} {of}", rate, *used)
        lines.append("| " + " | ".join(map(str, cells)) + " |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(prog="bench.scale", description=__doc__.split(": ", 1)[1])
    parser.add_argument("--names", type=int, nargs="+", default=[4, 64])
    parser.add_argument("--processes", type=int, nargs="+", default=[1, 2, 4, 8])
    parser.add_argument("--jobs", type=int, default=16_000)
    parser.add_argument("--seconds", type=float, default=30, help="how long to watch idle processes")
    parser.add_argument("--json", type=Path)
    arguments: Mapping[str, Any] = vars(parser.parse_args())
    settings = {name: value for name, value in arguments.items() if name != "json"}
    # Of the tests.
    from support.servers import Servers  # type: ignore[import-not-found]
    from support.sharding import Cluster  # type: ignore[import-not-found]

    with Servers() as alone, Cluster(shards=2) as cluster:
        shards = [shard.nodes[0] for shard in cluster.shards]
        scenes = [
            Scene("one replica set", alone.uri(), alone.nodes),
            Scene("two shards", cluster.uri, shards, cluster.router),
        ]
        rows = asyncio.run(measure_all(scenes, **settings))
    print(table(rows))
    if arguments["json"] is not None:
        arguments["json"].parent.mkdir(parents=True, exist_ok=True)
        arguments["json"].write_text(json.dumps([asdict(row) for row in rows], indent=2) + "\n")


if __name__ == "__main__":
    main()
