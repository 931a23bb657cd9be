"""A worker with limits by key that is made to be killed: `lining_worker.py URI FILE [SWEEP SECONDS]`.

Each handler appends a line to FILE when it begins and when it ends: `+ KEY NUMBER PID TIME`, `- …`. The time
is that of the machine's one clock, in nanoseconds. A killed process leaves handlers without an end.
`work` has a limit of 1, 2 or 7 by its key, `ordered` runs the jobs of a key in their order.
"""

import asyncio
import os
import random
import sys
import time
from dataclasses import replace
from datetime import timedelta
from typing import Any

from reporting import WATCHED, say

from monque import Job, Limit, Monque, RetryAfter, Snooze
from monque._engine import upkeep
from monque._store import pauses

# Two sweeps take a minute by default.
SWEEP = float(sys.argv[3]) if len(sys.argv) > 3 else 1.0
upkeep.SWEEP_INTERVAL = SWEEP
pauses._SWEPT_FOR = int(SWEEP * 800)


def running(data: dict[str, Any]) -> int:
    return (1, 2, 7)[data["key"] % 3]


async def main(uri: str, file: str) -> None:
    history = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    def note(sign: str, job: Job[dict[str, Any]]) -> None:
        line = f"{sign} {job.data['key']} {job.data['n']} {os.getpid()} {time.monotonic_ns()}\n"
        os.write(history, line.encode())

    monque = Monque(uri, options=replace(WATCHED, max_retries=1000))

    @monque.worker("work", limit=Limit(running, by="key"), concurrency=20)
    async def work(job: Job[dict[str, Any]]) -> None:
        note("+", job)
        await asyncio.sleep(random.uniform(0, 0.02))
        note("-", job)

    @monque.worker("ordered", limit=Limit(1, by="key", ordered=True), concurrency=20)
    async def ordered(job: Job[dict[str, Any]]) -> None:
        note("+", job)
        try:
            await asyncio.sleep(random.uniform(0, 0.02))
            chance = random.random()
            if chance < 0.1:
                raise RetryAfter(timedelta(milliseconds=20))
            if chance < 0.2:
                raise Snooze(timedelta(milliseconds=20))
            if chance < 0.3:
                await job.sleep("nap", timedelta(milliseconds=20))
        finally:
            note("-", job)

    async with monque:
        await monque.start()
        say("ready")
        await asyncio.Event().wait()


asyncio.run(main(*sys.argv[1:3]))
