"""A worker process that says when jobs start: `pausing_worker.py URI`.

It runs `work` and `other`. Ten times a second it says `NAME TIME`: when the last job of that name started, in
seconds since the epoch.
"""

import asyncio
import sys
import time

from reporting import say

from monque import Job, Monque, Options


async def main(uri: str) -> None:
    monque = Monque(uri, options=Options(worker_concurrency=20, trends=None, register=False))
    last: dict[str, float] = {}

    async def note(job: Job[None]) -> None:
        last[job.name] = time.time()

    monque.worker("work", note)
    monque.worker("other", note)
    async with monque:
        await monque.start()
        say("started")
        said: dict[str, float] = {}
        while True:
            for name, moment in last.items():
                if said.get(name) != moment:
                    said[name] = moment
                    say(f"{name} {moment}")
            await asyncio.sleep(0.1)


asyncio.run(main(sys.argv[1]))
