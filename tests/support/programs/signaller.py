"""Send each job of a name a signal, some of them twice, and some in a transaction that aborts first.

python signaller.py <uri> <name> <signal>
"""

from __future__ import annotations

import asyncio
import sys
from contextlib import suppress

from bson import ObjectId

from monque import ConnectionError, JobFilter, Monque


async def send(monque: Monque, job_id: ObjectId, signal: str, number: int) -> None:
    if number % 3 == 0:
        async with monque.client.start_session() as session:
            await session.start_transaction()
            with suppress(ConnectionError):  # a conflict with a run of the job aborts it, too
                await monque.signal(job_id, signal, "aborted", session=session)
            await session.abort_transaction()
    for _ in range(1 + number % 2):
        assert await monque.signal(job_id, signal, number, id=f"{signal}-{job_id}")


async def main(uri: str, name: str, signal: str) -> None:
    async with Monque(uri) as monque:
        jobs = [job.id async for job in monque.iter_jobs(JobFilter(name=name))]
        print("ready", flush=True)
        await asyncio.to_thread(sys.stdin.readline)
        for number, job_id in enumerate(jobs):
            await send(monque, job_id, signal, number)
        print("sent", flush=True)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
