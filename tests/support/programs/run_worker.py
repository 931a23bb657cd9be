"""A worker process: `run_worker.py URI`. It calls `run()` and says each event, and when it begins to stop.

Its jobs: `patient` runs until a line comes on standard input, `endless` until it is cancelled, and
`stuck` blocks a thread for ever.
"""

import asyncio
import sys
import threading
from datetime import timedelta

from reporting import say, set_by_a_line

from monque import Event, Job, Monque, Options


async def main(uri: str) -> None:
    monque = Monque(
        uri, options=Options(poll_interval=timedelta(milliseconds=200), trends=None, register=False)
    )
    set_by_a_line(let_go := asyncio.Event())

    @monque.worker("patient")
    async def patient(job: Job[None]) -> None:
        await let_go.wait()

    @monque.worker("endless")
    async def endless(job: Job[None]) -> None:
        await asyncio.Event().wait()

    @monque.worker("stuck")
    def stuck(job: Job[None]) -> None:
        threading.Event().wait()

    monque.on(Event, lambda event: say(event.kind))
    watching = asyncio.create_task(say_when_it_stops(monque))
    await monque.run()
    await watching
    await monque.close()
    say("over")


async def say_when_it_stops(monque: Monque) -> None:
    for state, healthy in (("running", True), ("stopping", False)):
        while monque.is_healthy() is not healthy:  # noqa: ASYNC110 - there is no event for this
            await asyncio.sleep(0.005)
        say(state)


asyncio.run(main(sys.argv[1]))
