"""A worker process that blocks its own event loop: `blocking_worker.py URI`.

Its job `blocks` sleeps on the loop, so that nothing else of the process goes on; `quick` ends at once.
"""

import asyncio
import sys
import time
from dataclasses import replace
from datetime import timedelta

from reporting import WATCHED, say, say_events

from monque import Job, Monque


async def main(uri: str) -> None:
    # No thread sends heartbeats meanwhile.
    monque = Monque(uri, options=replace(WATCHED, longest_block=timedelta(milliseconds=1)))

    @monque.worker("blocks")
    async def blocks(job: Job[float]) -> None:
        say("blocking")
        time.sleep(job.data)  # noqa: ASYNC251 - that is what it is for
        say("blocked")

    @monque.worker("quick")
    async def quick(job: Job[None]) -> None:
        pass

    say_events(monque)
    await monque.run()


asyncio.run(main(sys.argv[1]))
