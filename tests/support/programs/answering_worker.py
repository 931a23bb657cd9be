"""A worker that answers with the square of what it is given: `answering_worker.py URI`."""

import asyncio
import sys

from monque import Job, Monque

monque = Monque(sys.argv[1])


@monque.worker("work", store_result=True)
async def work(job: Job[int]) -> int:
    job.report_progress(1, 1, "squared")
    return job.data**2


async def main() -> None:
    async with monque:
        await monque.start()
        print("ready", flush=True)
        await asyncio.Event().wait()


asyncio.run(main())
