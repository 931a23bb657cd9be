"""A router, and jobs that take their time."""

import asyncio
from contextlib import suppress

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


@jobs.job("cleaning")
async def cleaning(job: Job[None]) -> None:
    """Takes long to clean up when it is cancelled, but ends some time."""
    say("cleaning began")
    try:
        await asyncio.Event().wait()
    finally:
        say("cleaning was cancelled")
        with suppress(asyncio.CancelledError):
            await asyncio.sleep(60)
