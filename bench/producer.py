"""A producer process: `python -m bench.producer URI [PRIORITY]`.

It says "ready" and stores a job for each line of input. The job carries the time at which `enqueue` was
called, by the clock that all processes share.
"""

from __future__ import annotations

import asyncio
import sys
import time
from typing import Any

from monque import Monque


async def main(uri: str, settings: Any) -> None:
    async with Monque(uri) as monque:
        print("ready", flush=True)
        while await asyncio.to_thread(sys.stdin.readline):
            await monque.enqueue("work", time.monotonic(), **settings)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], {"priority": int(sys.argv[2])} if sys.argv[2:] else {}))
