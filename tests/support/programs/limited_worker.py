"""A worker process that says when each run begins and ends: `limited_worker.py URI LIMIT SECONDS SILENCE`.

The times are those of the machine's own clock, which all processes share. Others take its jobs after SILENCE
seconds without a word, or when its process is gone. LIMIT is a number, or a rate: COUNT/SECONDS. With a
fifth argument, the clock that the program sees is so many hours wrong.
"""

import asyncio
import random
import sys
import time
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import time_machine
from reporting import WATCHED, say, say_events

from monque import Job, Limit, Monque, Rate


def limit_of(text: str) -> Limit:
    count, _, per = text.partition("/")
    return Limit(rate=Rate(int(count), timedelta(seconds=float(per)))) if per else Limit(int(count))


async def main(uri: str, limit: str, seconds: float, silence: float, hours: float = 0.0) -> None:
    options = replace(WATCHED, register=True, heartbeat_tolerance=timedelta(seconds=silence))
    async with Monque(uri, options=options) as monque:
        say_events(monque)

        @monque.worker("work", limit=limit_of(limit), concurrency=5)
        async def work(job: Job[float | None]) -> None:
            assert job.claimed_at is not None
            say(f"starts {job.claimed_at.timestamp()} {time.time() - hours * 3600}")
            say(f"begins {job.id} {job.attempt} {time.monotonic()}")
            await asyncio.sleep(seconds * random.uniform(0.5, 1.5) if job.data is None else job.data)
            say(f"ends {job.id} {job.attempt} {time.monotonic()}")

        await monque.start()
        say("started")
        await asyncio.Event().wait()


wrong = datetime.now(UTC) + timedelta(hours=float(sys.argv[5] if len(sys.argv) > 5 else 0))
with time_machine.travel(wrong, tick=True):
    asyncio.run(main(sys.argv[1], sys.argv[2], *map(float, sys.argv[3:])))
