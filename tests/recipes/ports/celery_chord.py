"""A chord: many tasks, and one that gets all their results."""

import os

from monque import Job, Monque, NewJob

monque = Monque(os.environ["MONQUE_URI"])


@monque.worker("letters")
async def letters(job: Job[str]) -> int:
    return len(job.data)


@monque.worker("report", store_result=True)
async def report(job: Job[list[str]]) -> dict[str, int]:
    words = await job.run_jobs("letters", [NewJob(letters, word) for word in job.data])
    return {"words": len(words), "letters": sum(word.result for word in words if word)}


async def main() -> object:
    async with monque:
        await monque.start()
        return await monque.result_of(await report.enqueue(["the", "quick", "brown", "fox"]))


EXPECTED = {"words": 4, "letters": 16}

ORIGINAL = """
from celery import Celery, chord

app = Celery("shop", broker="redis://", backend="redis://")

@app.task
def letters(word):
    return len(word)

@app.task
def report(counts):
    return {"words": len(counts), "letters": sum(counts)}

words = "the quick brown fox".split()
result = chord((letters.s(word) for word in words), report.s())().get()
"""
