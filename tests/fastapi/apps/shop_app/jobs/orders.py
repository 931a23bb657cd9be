"""The class form: one job a class, its services injected."""

from dataclasses import dataclass
from typing import Annotated

from fastapi import Depends

from monque import Job
from monque.fastapi import MonqueDep, job
from shop_app.services import Prices, WarehouseDep, get_unit_of_work, say


@dataclass
class Order:
    item: str


@job("process-order")
class ProcessOrder:
    def __init__(
        self,
        warehouse: WarehouseDep,
        prices: Annotated[Prices, Depends()],
        unit_of_work: Annotated[str, Depends(get_unit_of_work)],
        monque: MonqueDep,
    ) -> None:
        self.warehouse = warehouse
        self.prices = prices
        self.unit_of_work = unit_of_work
        self.monque = monque

    async def handle(self, job: Job[Order]) -> None:
        self.warehouse.shipped.append(job.data.item)
        await self.monque.enqueue("billing.charge", job.data)
        say(f"shipped {job.data.item} in {self.prices.currency} with a {self.unit_of_work}")
