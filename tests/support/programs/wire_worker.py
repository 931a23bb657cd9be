"""A worker: `wire_worker.py URI FILE CONCURRENCY`. It writes the id of each job it runs into its file.

It says `ready`, begins to work on the first line of input, and stops and says `over` on the second.
"""

import asyncio
import sys
from pathlib import Path

from monque import Job, Monque


async def main(uri: str, file: Path, concurrency: int) -> None:
    with file.open("w") as history:
        async with Monque(uri) as monque:

            @monque.worker("work", concurrency=concurrency)
            async def work(job: Job[int]) -> None:
                await asyncio.sleep(0)
                history.write(f"{job.id}\n")

            print("ready", flush=True)
            await asyncio.to_thread(sys.stdin.readline)
            await monque.start()
            await asyncio.to_thread(sys.stdin.readline)
            await monque.stop()
    print("over", flush=True)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])))
