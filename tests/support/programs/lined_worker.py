"""A worker of names with limits, whose handlers write their own history: `lined_worker.py URI FILE`.

Each line is JSON: what, when by the clock of all processes, when by the server's clock, who, and which run.
Some runs fail. It works until it is killed.
"""

import asyncio
import json
import os
import random
import sys
import time
from datetime import timedelta
from typing import Any

from reporting import say

from lines import LIMITS
from monque import ClaimLost, Job, Monque, Options

# A process that stands still for less than ten seconds keeps its jobs.
OPTIONS = Options(
    trends=None,
    register=False,
    poll_interval=timedelta(milliseconds=500),
    heartbeat_interval=timedelta(seconds=1),
    heartbeat_tolerance=timedelta(seconds=10),
    base_retry_interval=timedelta(milliseconds=20),
    max_retries=1000,
)


async def main(uri: str, path: str) -> None:
    file = os.open(path, os.O_CREAT | os.O_APPEND | os.O_WRONLY, 0o600)

    def note(what: str, job: Job[Any], **facts: Any) -> None:
        times = {"t": time.clock_gettime(time.CLOCK_MONOTONIC), "real": time.time(), "pid": os.getpid()}
        line = {"what": what, **times, "name": job.name, "job": str(job.id), "attempt": job.attempt, **facts}
        os.write(file, json.dumps(line).encode() + b"\n")

    async def work(job: Job[Any]) -> None:
        assert job.locked_at is not None
        note("start", job, key=job.data["key"], claimed=job.locked_at.timestamp())
        try:
            await asyncio.sleep(random.uniform(0.001, 0.02))
            if job.fail_count == 0 and random.random() < 0.1:
                raise RuntimeError("meant to fail once")
        finally:
            note("end", job)

    async with Monque(uri, options=OPTIONS) as monque:
        for name, limit in LIMITS.items():
            monque.worker(name, work, limit=limit)
        monque.on(ClaimLost, lambda event: note("lost", event.job))
        say("ready")
        await monque.run()


asyncio.run(main(*sys.argv[1:]))
