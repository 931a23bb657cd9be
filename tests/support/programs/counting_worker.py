"""A worker process that counts what happens over time, every half second: `counting_worker.py URI`."""

import asyncio
import sys
from dataclasses import replace
from datetime import timedelta

from reporting import WATCHED, say

from monque import Job, Monque, Trends


async def main(uri: str) -> None:
    options = replace(WATCHED, trends=Trends(interval=timedelta(milliseconds=500)), register=True)
    async with Monque(uri, options=options) as monque:

        @monque.worker("work")
        async def work(job: Job[None]) -> None: ...

        say("open")
        await monque.run()


asyncio.run(main(sys.argv[1]))
