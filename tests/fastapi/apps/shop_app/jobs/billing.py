"""Several jobs in one class, one of them recurring."""

from monque import Job
from monque.fastapi import cron, job, job_controller
from shop_app.jobs.orders import Order
from shop_app.services import WarehouseDep, say


@job_controller("billing")
class Billing:
    def __init__(self, warehouse: WarehouseDep) -> None:
        self.warehouse = warehouse

    @job("charge")
    def charge(self, job: Job[Order]) -> None:
        say(f"charged {job.data.item}, shipped so far: {self.warehouse.shipped}")

    @cron("0 9 * * *", timezone="Europe/Berlin")
    async def settle(self, job: Job) -> None: ...
