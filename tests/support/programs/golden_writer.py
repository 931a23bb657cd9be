"""A job in every state that a release can leave it in: `golden_writer.py URI`, run with that release's code.

It prints one line of Extended JSON: the documents by what is special about each, which is its name,
and the indexes. Monque wrote everything in them, but for one thing: an owner counts as dead because its
heartbeats were moved back by an hour.
"""

import asyncio
import sys
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from typing import Any

from bson import json_util
from pymongo.asynchronous.client_session import AsyncClientSession

from monque import Job, JobFilter, Monque, Options, Retention

Document = dict[str, Any]
Handler = Callable[[Job[Any]], Awaitable[None]]

# The first retry comes after two hours, so that a job that waits for it is found as it is.
PATIENT = Options(
    base_retry_interval=timedelta(hours=1),
    retention=Retention(completed=timedelta(days=36_500)),
    listing_indexes=True,
)
ONE_TRY = Options(max_retries=1)
PAYLOAD = {"to": "ada@example.org", "n": 1, "big": 12_345_678_901, "nested": {"list": [1, "two", None, True]}}
CRON = "30 9 * * MON-FRI"

# What becomes of the jobs and schedules that a process leaves behind when it dies.
LIVING = ("running", "running-keyed", "running-retry", "recurring-running")
DYING = ("dead-owner", "dead-owner-keyed", "recurring-dead-owner")
CRASHING = ("crashed", "recurring-crashed")
CRASHING_FOR_GOOD = ("crashed-for-good", "recurring-crashed-for-good")


async def main(uri: str) -> None:
    async with Monque(uri, options=PATIENT) as monque:
        await wait(monque)
        await operate(monque)
        await end(uri, monque)
        seen = await die(uri, monque)
        indexes = await monque.database["monque_jobs"].list_indexes()
        found = {
            "jobs": {**await documents(monque), **seen},
            "indexes": [index async for index in indexes],
        }
    print(json_util.dumps(found, json_options=json_util.CANONICAL_JSON_OPTIONS), flush=True)


async def wait(monque: Monque) -> None:
    """Nobody has claimed these."""
    await monque.enqueue("pending", PAYLOAD)
    await monque.enqueue("pending-empty")
    await monque.enqueue("delayed", PAYLOAD, run_at=datetime(2100, 1, 2, 3, 4, 5, 678_000, tzinfo=UTC))
    await monque.enqueue("keyed", PAYLOAD, unique_key="key 1")
    await monque.schedule(CRON, "recurring", PAYLOAD, timezone="Europe/Berlin")
    await monque.schedule("@daily", "recurring-keyed", unique_key="key 1")
    await monque.schedule("@daily", "recurring-changed", 1)
    await monque.schedule("@hourly", "recurring-changed", 2)


async def operate(monque: Monque) -> None:
    """Operators have changed these."""
    await monque.cancel_job((await monque.enqueue("cancelled", PAYLOAD)).id)
    await monque.cancel_job((await monque.enqueue("cancelled-keyed", unique_key="key 1")).id)
    rescheduled = datetime(2100, 1, 1, tzinfo=UTC)
    await monque.reschedule_job((await monque.enqueue("rescheduled")).id, rescheduled)
    await monque.reschedule_job((await monque.schedule("@daily", "recurring-rescheduled")).id, rescheduled)


async def end(uri: str, monque: Monque) -> None:
    """The first runs of these have ended, in all the ways that there are."""
    for name in ("completed", "retried", "failed", "failed-again"):
        await monque.enqueue(name, PAYLOAD)
    await monque.enqueue("completed-in-a-transaction")
    for name in ("completed-keyed", "retried-keyed", "failed-keyed"):
        await monque.enqueue(name, unique_key="key 1")
    for name in ("recurring-ran", "recurring-retrying", "recurring-failed"):
        await due_schedule(monque, name)
    await run(uri, PATIENT, fail, "retried", "retried-keyed", "recurring-retrying")
    await run(uri, PATIENT, succeed, "completed", "completed-keyed", "recurring-ran")
    await run(uri, ONE_TRY, fail, "failed", "failed-keyed", "failed-again", "recurring-failed")
    await run_in_a_transaction(uri, "completed-in-a-transaction")
    await monque.retry_jobs(JobFilter(name="failed-again"))


async def die(uri: str, monque: Monque) -> dict[str, Document]:
    """A process runs these: some go on, some lose their owner, which is noticed once; one is released."""
    every = (*LIVING, *DYING, *CRASHING, *CRASHING_FOR_GOOD, "released")
    for name in every:
        if name.startswith("recurring"):
            await due_schedule(monque, name)
        else:
            await monque.enqueue(name, PAYLOAD, unique_key="key 1" if "keyed" in name else None)
    await run(uri, PATIENT, fail, "running-retry")
    [retried] = (await monque.list_jobs(JobFilter(name="running-retry"))).jobs
    await monque.reschedule_job(retried.id, datetime.now(UTC))
    owner = Monque(uri)
    started = asyncio.Semaphore(0)

    async def hang(job: Job[Any]) -> None:
        started.release()
        await asyncio.Event().wait()

    for name in every:
        owner.worker(name, hang)
    async with owner:
        await owner.start()
        for _ in every:
            await started.acquire()
        held = await documents(monque, *LIVING, *DYING, *CRASHING, *CRASHING_FOR_GOOD)
        await owner.stop(timeout=0)
    await monque.database["monque_jobs"].delete_many({"name": {"$in": list(held)}})
    seen = {name: held[name] for name in LIVING} | {name: silent(held[name]) for name in DYING}
    await crash(uri, monque, Options(), [silent(held[name]) for name in CRASHING])
    await crash(uri, monque, ONE_TRY, [silent(held[name]) for name in CRASHING_FOR_GOOD])
    return seen


async def due_schedule(monque: Monque, name: str) -> None:
    schedule = await monque.schedule(CRON, name, PAYLOAD, timezone="Europe/Berlin")
    await monque.reschedule_job(schedule.id, datetime.now(UTC) - timedelta(seconds=1))


async def run(uri: str, options: Options, handler: Handler, *names: str) -> None:
    """Work off these names."""
    async with Monque(uri, options=options) as worker:
        for name in names:
            worker.worker(name, handler)
        await worker.run_until_idle()


async def run_in_a_transaction(uri: str, name: str) -> None:
    async with Monque(uri) as worker:

        @worker.worker(name)
        async def complete(job: Job[Any]) -> None:
            async def commit(session: AsyncClientSession) -> None:
                await job.complete_in(session)

            async with worker.client.start_session() as session:
                await session.with_transaction(commit)

        await worker.run_until_idle()


async def crash(uri: str, monque: Monque, options: Options, dead: list[Document]) -> None:
    """An instance finds these, whose owner is dead, and recovers them when it is opened."""
    await monque.database["monque_jobs"].insert_many(dead)
    await (await Monque(uri, options=options).open()).close()


def silent(document: Document) -> Document:
    """The job of an owner that has been silent for an hour."""
    long_ago = datetime.now(UTC) - timedelta(hours=1)
    return {**document, "lastHeartbeat": long_ago, "lockedAt": long_ago}


async def documents(monque: Monque, *only: str) -> dict[str, Document]:
    """What is stored, by name; the kept run of a schedule has the schedule's name."""
    query = {"name": {"$in": list(only)}} if only else {}
    found = monque.database["monque_jobs"].find(query).sort({"_id": 1})
    return {f"{job['name']}, failed run" if "scheduleId" in job else job["name"]: job async for job in found}


async def succeed(job: Job[Any]) -> None:
    """Nothing to do."""


async def fail(job: Job[Any]) -> None:
    raise RuntimeError("gateway timeout")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
