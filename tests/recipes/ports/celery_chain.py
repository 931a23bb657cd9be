"""A chain: each task gets the result of the one before it."""

import os

from monque import Job, Monque

monque = Monque(os.environ["MONQUE_URI"])


def price(item: str) -> int:
    return {"book": 20, "pen": 2}[item]


def tax(cents: int, percent: int) -> int:
    return cents + cents * percent // 100


@monque.worker("label", store_result=True)
async def label(job: Job[str]) -> str:
    net = await job.step("price", price, job.data)
    gross = await job.step("tax", tax, net, 10)
    return f"{gross} EUR"


async def main() -> object:
    async with monque:
        await monque.start()
        return await monque.result_of(await label.enqueue("book"))


EXPECTED = "22 EUR"

ORIGINAL = """
from celery import Celery, chain

app = Celery("shop", broker="redis://", backend="redis://")

@app.task
def price(item):
    return {"book": 20, "pen": 2}[item]

@app.task
def tax(cents, percent):
    return cents + cents * percent // 100

@app.task
def text(cents):
    return f"{cents} EUR"

result = chain(price.s("book"), tax.s(10), text.s())().get()
"""
