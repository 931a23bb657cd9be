"""Workers that are killed at an await of a handler with steps: `stepping_worker.py URI NAME STEPS HOW`.

Each life is a process that this one forks. It runs jobs until nothing is due, and kills itself with SIGKILL
at the n-th resumption of its coroutines since a handler began. If HOW is `every:1`, n is 1, 2, 3 … for a new
job each, until a life survives: every await of the handler and of its settlement; `every:7` is each seventh.
Else n is random, for all jobs that are there, and HOW the seed. The next life takes the jobs of the dead one.

`steps` runs so many steps, half of them in threads; each leaves a line in `ledger`. `book` moves money in so
many transactions. `family` runs so many jobs in chunks of two, `child`, which leave a line each, and its own.
`seen` has what was checkpointed when a life began.
"""

import asyncio
import os
import random
import signal
import sys
import types
from collections.abc import Coroutine, Generator
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from pymongo import AsyncMongoClient, MongoClient
from pymongo.asynchronous.client_session import AsyncClientSession
from reporting import WATCHED, say

from monque import Job, JobCompleted, Monque, NewJob
from monque._api import enqueue_many
from monque._store import batches

LONG_AGO = datetime(2020, 1, 1, tzinfo=UTC)
OPTIONS = replace(WATCHED, max_retries=1000)
enqueue_many._MOST_JOBS = 2


class Death:
    """Counts the resumptions of all coroutines while a handler runs, and ends the process at one of them."""

    def __init__(self, at: int) -> None:
        self.at = at
        self.is_armed = False

    def make_task(self, loop: asyncio.AbstractEventLoop, work: Any, **kwargs: Any) -> asyncio.Task[Any]:
        return asyncio.Task(self._whole(work), loop=loop, **kwargs)

    async def _whole(self, work: Coroutine[Any, Any, Any]) -> Any:
        return await self._driven(work)

    @types.coroutine
    def _driven(self, work: Coroutine[Any, Any, Any]) -> Generator[Any, None, Any]:
        error: BaseException | None = None
        while True:
            if self.is_armed:
                self.at -= 1
                if not self.at:
                    os.kill(os.getpid(), signal.SIGKILL)
            try:
                awaited = work.send(None) if error is None else work.throw(error)
            except StopIteration as end:
                return end.value
            try:
                yield awaited
                error = None
            except BaseException as thrown:  # noqa: BLE001 - for the coroutine that is driven
                error = thrown


async def live(uri: str, name: str, steps: int, life: int, death: Death, *, every: bool) -> None:
    asyncio.get_running_loop().set_task_factory(death.make_task)
    client: AsyncMongoClient[dict[str, Any]] = AsyncMongoClient(uri, tz_aware=True)
    blocking: MongoClient[dict[str, Any]] = MongoClient(uri)
    database = client.get_default_database()
    jobs, monque = database["monque_jobs"], Monque(database, options=OPTIONS)

    def line(job: Job[Any], step: str) -> dict[str, Any]:
        return {"job": job.id, "step": step, "life": life}

    @monque.worker("steps", concurrency=1 if every else 8)
    async def run_steps(job: Job[None]) -> list[str]:
        death.is_armed |= not every or job.attempt == 1

        async def effect(step: str) -> str:
            await database["ledger"].insert_one(line(job, step))
            return step

        def in_thread(step: str) -> str:
            blocking.get_default_database()["ledger"].insert_one(line(job, step))
            return step

        names = [f"step-{number}" for number in range(steps)]
        return [await job.step(each, in_thread if each[-1] in "13579" else effect, each) for each in names]

    @monque.worker("book", concurrency=1 if every else 8)
    async def book(job: Job[None]) -> None:
        death.is_armed |= not every or job.attempt == 1

        async def move(session: AsyncClientSession, step: str) -> None:
            await database["ledger"].insert_one(line(job, step), session=session)
            for account, amount in ((0, -1), (1, 1)):
                change = {"$inc": {"balance": amount}}
                await database["accounts"].update_one({"_id": account}, change, session=session)

        for number in range(steps):
            await job.transaction(f"step-{number}", move, f"step-{number}")

    @monque.worker("family", concurrency=1 if every else 8, store_result=True)
    async def family(job: Job[None]) -> list[int]:
        death.is_armed |= not every or job.attempt == 1
        await database["ledger"].insert_one(line(job, "family"))
        children = await job.run_jobs("below", [NewJob("child", number) for number in range(steps)])
        return [-1 if child is None else child.result for child in children]

    @monque.worker("child", concurrency=1 if every else 8)
    async def run_child(job: Job[int]) -> int:
        await database["ledger"].insert_one(line(job, "child"))
        return job.data

    stored: list[Any] = []

    def survive(event: JobCompleted) -> None:
        # Not for the job of a life before: its end is told when the next handler runs already.
        if every and event.job.id in stored:
            death.is_armed = False

    monque.on(JobCompleted, survive)
    # All earlier lives are over: the server gives up their transactions, and their jobs are free.
    await client.admin.command("killAllSessions", [])
    await jobs.update_many({"status": "processing"}, {"$set": {"lastHeartbeat": LONG_AGO}})
    seen = [
        {"job": job["_id"], "steps": [step["n"] for step in job["steps"]], "life": life}
        async for job in jobs.find({"steps": {"$exists": True}}, {"steps.n": 1})
    ]
    if seen:
        await database["seen"].insert_many(seen)
    async with monque:
        if every:
            stored.append((await monque.enqueue(name)).id)
        if name == "family":  # a process may have died between the end of a job and the look at its batch
            store = monque._opening.here().store
            if "parked" in await store.uses.read():
                await batches.sweep(store)
        await monque.run_until_idle()
    await client.close()
    blocking.close()


def survives(uri: str, name: str, steps: int, life: int, at: int, *, every: bool) -> bool:
    """Whether a process lives on that is to die at this resumption."""
    if not (pid := os.fork()):
        asyncio.run(live(uri, name, steps, life, Death(at), every=every))
        os._exit(0)
    _, status = os.waitpid(pid, 0)
    if status not in (0, signal.SIGKILL):
        sys.exit(f"life {life} failed with {status}")
    return status == 0


def main(uri: str, name: str, steps: str, how: str) -> None:
    kind, _, stride = how.partition(":")
    every, dice, life = kind == "every", random.Random(how), 0
    longest = 20_000 if name == "book" else 5_000  # a transaction is resumed much more often
    while True:
        at = 1 + life * int(stride) if every else dice.randrange(1, longest)
        if survives(uri, name, int(steps), life, at, every=every):
            break
        life += 1
    say(f"died {life}")


main(*sys.argv[1:])
