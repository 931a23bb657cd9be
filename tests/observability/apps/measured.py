"""What the tests run with `monque worker`. Its database is the one of MONQUE_URI."""

import asyncio
import logging
import os
from datetime import timedelta

from prometheus_client import Counter

from monque import Job, Monque, Options, SyncMonque

QUICK = Options(poll_interval=timedelta(milliseconds=200), max_retries=1, trends=None, register=False)

monque = Monque(options=QUICK)
blocking = SyncMonque(options=QUICK)
own = Counter("shop_mails", "Counted by the handler itself.")


@blocking.worker("work")
@monque.worker("work")
def work(job: Job[str]) -> None:
    own.inc()
    logging.getLogger("shop").info("worked on %s", job.data)


@monque.worker("fail")
async def fail(job: Job[None]) -> None:
    raise ValueError("as it should")


@monque.worker("die")
async def die(job: Job[None]) -> None:
    os.kill(os.getpid(), 9)


@monque.worker("wait")
async def wait(job: Job[float]) -> None:
    await asyncio.sleep(job.data)
