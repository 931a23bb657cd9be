"""The application: `uvicorn shop.main:app`."""

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from fastapi import FastAPI
from pydantic import BaseModel

from monque import Monque
from monque.fastapi import MonqueDep, health_router, setup_monque
from shop.jobs.orders import Order
from shop.services import Mailer, OrdersDep

logging.basicConfig(level=logging.WARNING)


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    app.state.mailer = Mailer()
    yield


app = FastAPI(title="Shop", lifespan=lifespan)
monque = Monque()  # MONQUE_URI, and without it an embedded MongoDB
app.include_router(health_router(monque))
setup_monque(app, monque, discover=["shop.jobs"])


class NewOrder(BaseModel):
    item: str
    email: str


@app.post("/orders", status_code=202)
async def create_order(new: NewOrder, orders: OrdersDep, monque: MonqueDep) -> dict[str, str]:
    """Store the order and its job together: both, or neither."""
    async with monque.client.start_session() as session, await session.start_transaction():
        order_id = str(await orders.add(new.model_dump(), session))
        await monque.enqueue("process-order", Order(order_id, new.item, new.email), session=session)
    return {"order": order_id}


@app.get("/orders")
async def list_orders(orders: OrdersDep) -> list[dict[str, Any]]:
    return await orders.all()
