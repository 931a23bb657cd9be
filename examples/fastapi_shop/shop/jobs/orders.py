"""A job as a class: each run has an instance of its own, made with what it depends on."""

from dataclasses import dataclass

from bson import ObjectId

from monque import Job
from monque.fastapi import MonqueDep, job
from shop.jobs.email import Email, send
from shop.services import OrdersDep


@dataclass
class Order:
    id: str
    item: str
    email: str


@job("process-order", concurrency=3)
class ProcessOrder:
    def __init__(self, orders: OrdersDep, monque: MonqueDep) -> None:
        self.orders = orders
        self.monque = monque

    async def handle(self, job: Job[Order]) -> None:
        order = job.data
        await self.orders.change(ObjectId(order.id), status="shipped")
        await self.monque.enqueue(send, Email(order.email, f"Your {order.item} is on its way"))
        await self.monque.enqueue("billing.charge", order, unique_key=order.id)
