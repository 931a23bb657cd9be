"""A worker process whose jobs can be told to stop: `cancellable_worker.py URI [stream]`.

Its job `waits` is a coroutine that waits for ever, and `computes` a thread that comes to a checkpoint each
millisecond. With `stream` the process never looks by itself: only its change stream can tell it.
"""

import asyncio
import sys
import time
from dataclasses import replace
from datetime import timedelta

from reporting import say, say_events

from monque import Job, Monque, Options

# Heartbeats come too late to tell it anything.
SLOW = Options(
    heartbeat_interval=timedelta(minutes=1),
    heartbeat_tolerance=timedelta(minutes=5),
    trends=None,
    register=False,
)


async def main(uri: str, stream: bool) -> None:
    monque = Monque(uri, options=replace(SLOW, change_streams=stream))

    @monque.worker("waits")
    async def waits(job: Job[None]) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            say(f"waits: {job.interruption}")

    @monque.worker("computes")
    def computes(job: Job[None]) -> None:
        try:
            while True:
                time.sleep(0.001)
                job.checkpoint()
        finally:
            say(f"computes: {job.interruption}")

    say_events(monque)
    await monque.run()


asyncio.run(main(sys.argv[1], "stream" in sys.argv))
