"""A worker that may be of an older release: `older_worker.py URI END`, run with that release's code.

It opens the collection, says `listed` and how many jobs it can list, works off all that is due, and says
`ran` and the name for each run. With END `fail` every handler raises. At last it says `over`.
"""

import asyncio
import sys
from datetime import timedelta
from typing import Any

from monque import Job, Monque, Options

# One hour between two attempts: a job is run once here.
OPTIONS = Options(max_retries=3, base_retry_interval=timedelta(minutes=30))


async def main(uri: str, end: str) -> None:
    async def handle(job: Job[Any]) -> None:
        print(f"ran {job.name}", flush=True)
        if end == "fail":
            raise RuntimeError("gateway timeout")

    async with Monque(uri, options=OPTIONS) as monque:
        jobs = [job async for job in monque.iter_jobs()]
        print(f"listed {len(jobs)}", flush=True)
        assert (await monque.queue_stats()).total == len(jobs)
        for name in {job.name for job in jobs}:
            monque.worker(name, handle)
        await monque.run_until_idle()
    print("over", flush=True)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
