"""A diamond: two tasks side by side between a first and a last one."""

import asyncio
import os

from monque import Job, Monque

monque = Monque(os.environ["MONQUE_URI"])


def fetch(order: str) -> dict[str, int]:
    return {"weight": 3, "value": 40}


def postage(order: dict[str, int]) -> int:
    return order["weight"] * 2


def insurance(order: dict[str, int]) -> int:
    return order["value"] // 10


@monque.worker("costs", store_result=True)
async def costs(job: Job[str]) -> int:
    order = await job.step("fetch", fetch, job.data)
    sides = job.step("postage", postage, order), job.step("insurance", insurance, order)
    return sum(await asyncio.gather(*sides))


async def main() -> object:
    async with monque:
        await monque.start()
        return await monque.result_of(await costs.enqueue("A-1"))


EXPECTED = 10

ORIGINAL = """
from celery import Celery, chain, group

app = Celery("shop", broker="redis://", backend="redis://")

@app.task
def fetch(order):
    return {"id": order, "weight": 3, "value": 40}

@app.task
def postage(order):
    return order["weight"] * 2

@app.task
def insurance(order):
    return order["value"] // 10

@app.task
def total(costs):
    return sum(costs)

result = chain(fetch.s("A-1"), group(postage.s(), insurance.s()), total.s())().get()
"""
