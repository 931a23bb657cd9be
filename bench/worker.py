"""A worker process for the benchmark: `python -m bench.worker URI COLLECTION`; starts on a line of input."""

from __future__ import annotations

import asyncio
import sys

from monque import Job, Monque, Options


async def main(uri: str, collection: str) -> None:
    async with Monque(uri, options=Options(collection=collection)) as monque:

        @monque.worker("work")
        async def work(_job: Job[None]) -> None: ...

        print("ready", flush=True)
        await asyncio.to_thread(sys.stdin.readline)
        await monque.start()
        await asyncio.to_thread(sys.stdin.read)  # until the other side closes it


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2]))
