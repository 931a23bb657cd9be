"""A worker process that may die: `fault_worker.py URI`. It beats five times a second and says what happens.

Its jobs: `quick` ends at once, `endless` runs until it is cancelled; `exits` and `killed` end the
process.
"""

import asyncio
import os
import signal
import sys
from datetime import timedelta

from monque import Event, Job, Monque, Options

OPTIONS = Options(
    poll_interval=timedelta(milliseconds=200),
    heartbeat_interval=timedelta(milliseconds=200),
    heartbeat_tolerance=timedelta(seconds=1),
    max_retries=2,
)


def say(line: str) -> None:
    print(line, flush=True)


async def main(uri: str) -> None:
    monque = Monque(uri, options=OPTIONS)

    @monque.worker("quick")
    async def quick(job: Job[None]) -> None:
        await asyncio.sleep(0.005)

    @monque.worker("endless")
    async def endless(job: Job[None]) -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            say("cancelled")
            raise

    @monque.worker("exits")
    async def exits(job: Job[None]) -> None:
        os._exit(1)

    @monque.worker("killed")
    def killed(job: Job[None]) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    def tell(event: Event) -> None:
        job = getattr(event, "job", None)
        say(f"{event.kind} {job.name}" if job is not None else event.kind)

    monque.on(Event, tell)
    await monque.run()


asyncio.run(main(sys.argv[1]))
