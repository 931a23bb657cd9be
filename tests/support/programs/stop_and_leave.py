"""`stop_and_leave.py URI`: start, wait for a job that blocks its thread for ever, stop, and end.

Whatever of ours is left running then (the thread, a timer for a job that is due in an hour) must not
keep the process alive.
"""

import asyncio
import sys
import threading
import time
from datetime import timedelta

from monque import Job, Monque, Options


async def main(uri: str) -> None:
    monque = Monque(
        uri, options=Options(shutdown_timeout=timedelta(milliseconds=100), trends=None, register=False)
    )
    started = asyncio.Event()

    @monque.worker("stuck")
    def stuck(job: Job[None]) -> None:
        threading.Event().wait()

    monque.on("job:start", lambda event: started.set())
    async with monque:
        await monque.enqueue("stuck")
        await monque.enqueue("stuck", delay=timedelta(hours=1))
        await monque.start()
        await started.wait()
        before = time.monotonic()
        await monque.stop()
    print(f"stopped within {time.monotonic() - before:.3f} s", flush=True)


asyncio.run(main(sys.argv[1]))
print("over", flush=True)
