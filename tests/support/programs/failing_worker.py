"""A worker whose jobs fail, with a policy of its own: `failing_worker.py URI`. It says so of each run."""

import asyncio
import sys
from datetime import timedelta
from typing import Any

from monque import Job, JobFailed, Monque, Retry

monque = Monque(sys.argv[1])


@monque.worker("work", retry=Retry(50, first=timedelta(hours=7)))
async def work(job: Job[Any]) -> None:
    raise ValueError("no")


@monque.on(JobFailed)
def report(event: JobFailed) -> None:
    wait = event.job.next_run_at - event.job.updated_at
    print(
        f"{event.job.data}: {wait.total_seconds():g}" if event.will_retry else f"{event.job.data}: final",
        flush=True,
    )


async def main() -> None:
    async with monque:
        await monque.run_until_idle()


asyncio.run(main())
