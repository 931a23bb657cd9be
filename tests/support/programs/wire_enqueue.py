"""A producer: `wire_enqueue.py URI KEY COUNT`. Told so, it enqueues *COUNT* jobs with one key at once.

It says `ready`, then the id of each job it was given, then `over`.
"""

import asyncio
import sys

from monque import Monque


async def main(uri: str, key: str, count: int) -> None:
    async with Monque(uri) as monque:
        print("ready", flush=True)
        await asyncio.to_thread(sys.stdin.readline)
        jobs = await asyncio.gather(
            *(monque.enqueue("sync-user", {"n": n}, unique_key=key) for n in range(count))
        )
    for job in jobs:
        print(job.id)
    print("over", flush=True)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3])))
