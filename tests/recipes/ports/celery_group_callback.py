"""A group whose callback runs although a task of it failed."""

import os

from monque import Job, Monque, NewJob

monque = Monque(os.environ["MONQUE_URI"])


@monque.worker("row", max_attempts=1)
async def row(job: Job[int]) -> None:
    if job.data == 3:
        raise ValueError("no name")


@monque.worker("done", store_result=True)
async def done(job: Job[str]) -> list[int]:
    stats = await monque.queue_stats(batch=job.data)
    return [stats.completed, stats.failed]


async def main() -> object:
    async with monque:
        await monque.start()
        await monque.enqueue_many([NewJob(row, number, batch="rows") for number in range(5)])
        return await monque.result_of(await done.enqueue("rows", after_batch="rows", if_failed="run"))


EXPECTED = [4, 1]

ORIGINAL = """
from celery import Celery, chord

app = Celery("shop", broker="redis://", backend="redis://")

@app.task
def row(number):
    if number == 3:
        raise ValueError("no name")

@app.task
def guarded(number):
    try:
        row(number)
    except ValueError:
        return False
    return True

@app.task
def done(answers):
    return answers.count(True), answers.count(False)

result = chord((guarded.s(number) for number in range(5)), done.s())().get()
"""
