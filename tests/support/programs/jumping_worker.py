"""A worker process whose clock jumps while it works: `jumping_worker.py URI`.

It obeys lines on standard input: `jump HOURS` moves its clock, `store NAME SECONDS` stores a job that is
due after these seconds. Its jobs: `work` says what it was given, `long` runs until `let go`, `fails` fails,
`naps` sleeps for two seconds.
"""

import asyncio
import sys
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import time_machine
from reporting import WATCHED, say

from monque import Event, Job, Monque

OPTIONS = replace(
    WATCHED, base_retry_interval=timedelta(seconds=100), heartbeat_tolerance=timedelta(seconds=2)
)


async def main(uri: str, clock: time_machine.Traveller) -> None:
    monque = Monque(uri, options=OPTIONS)
    let_go = asyncio.Event()

    @monque.worker("work")
    async def work(job: Job[Any]) -> None:
        say(f"ran {job.data}")

    @monque.worker("long")
    async def long(job: Job[None]) -> None:
        await let_go.wait()

    @monque.worker("fails")
    async def fails(job: Job[None]) -> None:
        raise ValueError("no")

    @monque.worker("naps")
    async def naps(job: Job[None]) -> None:
        await job.sleep("nap", timedelta(seconds=2))

    async def obey(order: str, *words: str) -> None:
        if order == "jump":
            clock.shift(timedelta(hours=float(words[0])))
        elif order == "store":
            await monque.enqueue(words[0], delay=timedelta(seconds=float(words[1])))
        else:
            let_go.set()
        say(f"did {order}")

    async def listen() -> None:
        reader = asyncio.StreamReader()
        await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader), sys.stdin
        )
        async for line in reader:
            await obey(*line.decode().split())

    monque.on(Event, lambda event: say(event.kind))
    async with monque:
        listening = asyncio.create_task(listen())
        await monque.run()
        listening.cancel()


with time_machine.travel(datetime.now(UTC), tick=True) as clock:
    asyncio.run(main(sys.argv[1], clock))
