"""A worker process for jobs of batches and their callbacks: `batch_worker.py URI [POINT]`.

Each run of `report` stores how many jobs of its batch are active. With a POINT the process kills itself:
`look`, after a settlement and before the look at its batch; `wake`, after a look and before it wakes what
waits. It sweeps five times a second.
"""

import asyncio
import os
import signal
import sys
from dataclasses import replace
from typing import Any, NoReturn

from reporting import WATCHED, say

from monque import Job, Monque
from monque._engine import upkeep
from monque._store import batches, pauses

upkeep.SWEEP_INTERVAL, pauses._SWEPT_FOR = 0.2, 100


def die(*_: Any, **__: Any) -> NoReturn:
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError("it is dead")


if sys.argv[2:] == ["look"]:
    batches.look = die
elif sys.argv[2:] == ["wake"]:
    batches.wake_batch = die


async def main(uri: str) -> None:
    # Jobs whose processes are killed again and again must not be given up.
    async with Monque(uri, options=replace(WATCHED, max_retries=1000)) as monque:

        @monque.worker("work", concurrency=20)
        async def work(job: Job[Any]) -> None:
            await monque.database["ledger"].insert_one({"job": job.id})

        @monque.worker("report")
        async def report(job: Job[str]) -> None:
            left = {"batch": job.data, "status": {"$in": ["pending", "processing"]}}
            active = await monque.database[monque.options.collection].count_documents(left)
            await monque.database["reports"].insert_one({"batch": job.data, "active": active})

        say("open")
        await monque.run()


asyncio.run(main(sys.argv[1]))
