"""The shortest program that enqueues a job and processes it: `first_job.py URI`."""

import asyncio
import sys

from monque import Job, Monque

monque = Monque(sys.argv[1])


@monque.worker("greet")
async def greet(job: Job[str]) -> None:
    print(f"hello {job.data}", flush=True)


async def main() -> None:
    async with monque:
        await monque.enqueue(greet, "world")
        await monque.run_until_idle()


asyncio.run(main())
