"""What follows a failure: a task that gets what became of the failed one."""

import os

from monque import FailedJob, Job, Monque

monque = Monque(os.environ["MONQUE_URI"])
letters: list[tuple[object, ...]] = []


@monque.worker("charge", max_attempts=1, on_failure="charge.dead")
async def charge(job: Job[str]) -> None:
    raise ValueError("the card is stolen")


@monque.worker("charge.dead")
async def dead(job: Job[FailedJob[str]]) -> None:
    letters.append((job.data.name, job.data.data, job.data.reason))


async def main() -> object:
    async with monque:
        await charge.enqueue("Ada")
        await monque.run_until_idle()
        return letters


EXPECTED = [("charge", "Ada", "ValueError: the card is stolen")]

ORIGINAL = """
from celery import Celery

app = Celery("shop", broker="redis://", backend="redis://")
letters = []

@app.task
def charge(customer):
    raise ValueError("the card is stolen")

@app.task
def dead(request, error, traceback):
    letters.append((request.task, request.args[0], str(error)))

charge.apply_async(("Ada",), link_error=dead.s())
result = letters
"""
