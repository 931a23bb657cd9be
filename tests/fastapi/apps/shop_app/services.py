"""What jobs depend on."""

from collections.abc import AsyncIterator
from typing import Annotated

from fastapi import Depends, Request


def say(line: str) -> None:
    print(line, flush=True)


class Warehouse:
    """Lives as long as the application."""

    def __init__(self) -> None:
        self.shipped: list[str] = []


async def get_warehouse(request: Request) -> Warehouse:
    return request.app.state.warehouse


async def get_unit_of_work() -> AsyncIterator[str]:
    say("unit of work opened")
    yield "unit of work"
    say("unit of work closed")


def get_currency() -> str:
    return "EUR"


class Prices:
    def __init__(self, currency: Annotated[str, Depends(get_currency)]) -> None:
        self.currency = currency


WarehouseDep = Annotated[Warehouse, Depends(get_warehouse)]
