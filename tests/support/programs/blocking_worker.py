"""A worker process that blocks its own event loop: `blocking_worker.py URI`.

Its job `blocks` sleeps on the loop, so that nothing else of the process goes on; `quick` ends at once.
"""

import asyncio
import sys
import time
from datetime import timedelta

from monque import Event, Job, Monque, Options

OPTIONS = Options(
    poll_interval=timedelta(milliseconds=200),
    heartbeat_interval=timedelta(milliseconds=200),
    heartbeat_tolerance=timedelta(seconds=1),
)


def say(line: str) -> None:
    print(line, flush=True)


async def main(uri: str) -> None:
    monque = Monque(uri, options=OPTIONS)

    @monque.worker("blocks")
    async def blocks(job: Job[float]) -> None:
        say("blocking")
        time.sleep(job.data)  # noqa: ASYNC251 - that is what it is for
        say("blocked")

    @monque.worker("quick")
    async def quick(job: Job[None]) -> None:
        pass

    def tell(event: Event) -> None:
        job = getattr(event, "job", None)
        say(f"{event.kind} {job.name}" if job is not None else event.kind)

    monque.on(Event, tell)
    await monque.run()


asyncio.run(main(sys.argv[1]))
