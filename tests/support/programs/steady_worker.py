"""A worker process that says how much memory it holds: `steady_worker.py URI JOBS ROUNDS`.

It does JOBS jobs called `work`, then says `round BLOCKS MEGABYTES` (what Python has allocated, what the
process has in memory), stores a job called `next-round` and waits for as many again.
"""

import asyncio
import gc
import resource
import sys
from pathlib import Path

from monque import Job, Monque, Options


async def main(uri: str, jobs: int, rounds: int) -> None:
    monque = Monque(uri, options=Options(worker_concurrency=200))
    done = 0
    for_now = asyncio.Event()

    @monque.worker("work")
    async def work(job: Job[dict[str, str]]) -> None:
        nonlocal done
        done += 1
        if done % jobs == 0:
            for_now.set()

    async with monque:
        await monque.start()
        for number in range(rounds):
            await for_now.wait()
            for_now.clear()
            await monque.run_until_idle()
            gc.collect()
            print(f"round {sys.getallocatedblocks()} {megabytes()}", flush=True)
            if number + 1 < rounds:
                await monque.enqueue("next-round")


def megabytes() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() // 2**20


asyncio.run(main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3])))
