"""Several jobs in one class."""

from bson import ObjectId

from monque import Job
from monque.fastapi import cron, job, job_controller
from shop.jobs.orders import Order
from shop.services import OrdersDep


@job_controller("billing")
class Billing:
    def __init__(self, orders: OrdersDep) -> None:
        self.orders = orders

    @job("charge")
    async def charge(self, job: Job[Order]) -> None:
        await self.orders.change(ObjectId(job.data.id), paid=True)

    @cron("@daily")
    async def settle(self, _job: Job[None]) -> None:
        paid = [order for order in await self.orders.all() if order.get("paid")]
        print(f"{len(paid)} orders are paid", flush=True)
