"""A worker whose jobs fail for good and are followed by another one: `charging_worker.py URI`."""

import asyncio
import sys
from dataclasses import replace
from typing import Any

from reporting import WATCHED

from monque import Job, Monque

monque = Monque(sys.argv[1], options=replace(WATCHED, max_retries=1))


@monque.worker("charge", on_failure="dead")
async def charge(job: Job[Any]) -> None:
    raise ValueError("no luck")


asyncio.run(monque.run())
