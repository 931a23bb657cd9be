"""A schedule that nobody understands."""

from monque import Job
from monque.fastapi import cron


@cron("every monday")
async def report(job: Job) -> None: ...
