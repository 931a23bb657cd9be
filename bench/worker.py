"""A worker process: `python -m bench.worker URI COLLECTION MILLISECONDS CONCURRENCY [NAMES]`.

It says "ready" and starts on a line of input. Each job takes so many milliseconds; concurrency 0 is the
default. The jobs are called `work`, or `work-0` and so on if there are several names. Asked "when", it says
when its last job was completed, by the clock that all processes share; asked "count", how many were.
"""

from __future__ import annotations

import asyncio
import sys
import time

from monque import Job, JobCompleted, Monque, Options


async def main(
    uri: str, collection: str, milliseconds: int, concurrency: int | None, names: list[str]
) -> None:
    async with Monque(uri, options=Options(collection=collection)) as monque:

        async def work(_job: Job[None]) -> None:
            if milliseconds:
                await asyncio.sleep(milliseconds / 1000)

        for name in names:
            monque.worker(name, work, concurrency=concurrency)
        count, ended = 0, 0.0

        def note(_event: JobCompleted) -> None:
            nonlocal count, ended
            count, ended = count + 1, time.monotonic()

        monque.on(JobCompleted, note)
        print("ready", flush=True)
        if await asyncio.to_thread(sys.stdin.readline):
            await monque.start()
        while asked := await asyncio.to_thread(sys.stdin.readline):
            print(count if asked.strip() == "count" else ended, flush=True)


if __name__ == "__main__":
    named = [f"work-{number}" for number in range(int(sys.argv[5]))] if len(sys.argv) > 5 else ["work"]
    asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]) or None, named))
