"""A worker process whose clock is wrong: `skewed_worker.py URI HOURS`.

It stores a job called `made`, due in half an hour, and processes `work` until a signal ends it.
"""

import asyncio
import sys
from datetime import UTC, datetime, timedelta

import time_machine
from reporting import say

from monque import Event, Job, Monque


async def main(uri: str) -> None:
    monque = Monque(uri)

    @monque.worker("work")
    async def work(job: Job[str]) -> None:
        say(f"ran {job.data}")

    monque.on(Event, lambda event: say(event.kind))
    async with monque:
        await monque.enqueue("made", delay=timedelta(minutes=30))
        await monque.schedule("0 * * * *", "hourly")
        await monque.run()


wrong = datetime.now(UTC) + timedelta(hours=float(sys.argv[2]))
with time_machine.travel(wrong, tick=True):
    asyncio.run(main(sys.argv[1]))
