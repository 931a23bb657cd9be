"""A worker process that may die: `fault_worker.py URI [ID]`.

It beats five times a second and says what happens.
Its jobs: `quick` ends at once, `endless` runs until it is cancelled; `exits` and `killed` end the
process. With an ID for its instance it is in the register.
"""

import asyncio
import os
import signal
import sys
from dataclasses import replace

from reporting import WATCHED, say, say_events

from monque import Job, Monque


async def main(uri: str, instance_id: str | None = None) -> None:
    named = {"instance_id": instance_id, "register": instance_id is not None}
    monque = Monque(uri, options=replace(WATCHED, max_retries=2, **named))

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

    say_events(monque)
    await monque.run()


asyncio.run(main(*sys.argv[1:]))
