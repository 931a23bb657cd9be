"""Two jobs with one name."""

from monque import Job
from monque.fastapi import job


@job("same")
async def first(job: Job) -> None: ...


@job("same")
class Second:
    async def handle(self, job: Job) -> None: ...
