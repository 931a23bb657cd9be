"""A worker process: `python -m bench.worker URI COLLECTION MILLISECONDS CONCURRENCY`.

It says "ready" and starts on a line of input. Each job takes so many milliseconds; concurrency 0 is the
default. Asked again, it says when its last job was completed, by the clock that all processes share.
"""

from __future__ import annotations

import asyncio
import sys
import time

from monque import Job, JobCompleted, Monque, Options


async def main(uri: str, collection: str, milliseconds: int, concurrency: int | None) -> None:
    async with Monque(uri, options=Options(collection=collection)) as monque:

        @monque.worker("work", concurrency=concurrency)
        async def work(_job: Job[None]) -> None:
            if milliseconds:
                await asyncio.sleep(milliseconds / 1000)

        ended = 0.0

        def note(_event: JobCompleted) -> None:
            nonlocal ended
            ended = time.monotonic()

        monque.on(JobCompleted, note)
        print("ready", flush=True)
        if await asyncio.to_thread(sys.stdin.readline):
            await monque.start()
        while await asyncio.to_thread(sys.stdin.readline):
            print(ended, flush=True)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]) or None))
