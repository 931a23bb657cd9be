"""An order, from the card to the review: durable steps, a batch, a signal, and a limit of each customer."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from monque import Job, JobStatus, Limit, NewJob, WaitTimeoutError, Workers

workers = Workers()


@dataclass
class Order:
    number: int
    customer: str
    amount: float
    items: list[str]


@workers.worker("fulfil-order", concurrency=10, store_result=True)
async def fulfil_order(job: Job[Order]) -> str:
    order = job.data
    payment = await job.step("charge", charge, order)  # once, whatever happens to this process
    packed = await job.run_jobs("pack", [NewJob("pack-item", {"item": item}) for item in order.items])
    if not all(item is not None and item.status is JobStatus.COMPLETED for item in packed):
        await job.step("refund", refund, payment)
        return "refunded"
    try:
        courier = await job.receive("picked-up", timeout=timedelta(seconds=45))  # holds no slot meanwhile
    except WaitTimeoutError:
        await job.step("remind", remind, order)
        courier = await job.receive("picked-up", name="picked up late")
    await job.sleep("cool off", timedelta(seconds=20))
    await job.step("ask for a review", ask_for_review, order)
    return f"taken by {courier}"


async def charge(order: Order) -> str:
    await asyncio.sleep(0.3)
    return f"payment-{order.number}"


async def refund(payment: str) -> str:
    await asyncio.sleep(0.2)
    return f"{payment} is returned"


async def remind(order: Order) -> str:
    await asyncio.sleep(0.1)
    return f"asked where the courier of {order.number} is"


async def ask_for_review(order: Order) -> str:
    await asyncio.sleep(0.1)
    return f"mail to {order.customer}"


@workers.worker("pack-item", concurrency=4, max_attempts=2)
async def pack_item(job: Job[dict[str, Any]]) -> None:
    await asyncio.sleep(1.5)
    if job.data["item"] == "lamp":
        raise LookupError("shelf 14 has no lamp")


@workers.worker("export-orders", concurrency=4, limit=Limit(2, by="customer"))  # two of a customer at once
async def export_orders(job: Job[dict[str, Any]]) -> None:
    for page in range(1, 5):
        await asyncio.sleep(0.5)
        job.report_progress(page, 4, f"orders of {job.data['customer']}")
