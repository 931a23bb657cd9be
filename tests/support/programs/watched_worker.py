"""A worker whose jobs do all that can be watched: `watched_worker.py URI`."""

import asyncio
import sys

from monque import Job, Monque


async def work(job: Job[str]) -> str:
    def weigh() -> int:
        job.report_progress(1, 2, "weighed")
        job.add_log(f"{len(job.data)} grams")
        return len(job.data)

    await job.step("weigh", weigh)
    return str(await job.receive("picked-up", str))


async def main() -> None:
    async with Monque(sys.argv[1]) as monque:
        monque.worker("work", work, store_result=True)
        print("ready", flush=True)
        await monque.run()


asyncio.run(main())
