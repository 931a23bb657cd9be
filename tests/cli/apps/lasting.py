"""A handler that runs until its process is killed, and ends at once the second time."""

import asyncio
import os

from monque import Job, Monque, Options

monque = Monque(options=Options(trends=None))


@monque.worker("last")
async def last(job: Job[None]) -> None:
    print(f"attempt {job.attempt} in {os.getpid()}", flush=True)
    if job.attempt == 1:
        await asyncio.Event().wait()
