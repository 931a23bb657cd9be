"""A router, and jobs that take their time."""

import asyncio

from monque import Job
from monque.fastapi import JobRouter, MonqueDep
from shop_app.services import say

jobs = JobRouter(namespace="slow")


@jobs.job("patient")
async def patient(job: Job[None], monque: MonqueDep) -> None:
    """Runs until somebody puts a document into the collection `signals`."""
    async with await monque.database["signals"].watch() as signals:
        say("patient began")
        await anext(signals)
    say("patient finished")


@jobs.job("endless")
async def endless(job: Job[None]) -> None:
    say("endless began")
    await asyncio.Event().wait()
