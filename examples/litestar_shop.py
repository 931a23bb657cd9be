"""A shop on Litestar: an order and its job are stored together, and jobs have dependencies as routes do.

    python examples/litestar_shop.py [--port 8000]

Then order something, and look at what its jobs have done. The dashboard is at
http://localhost:8000/monque/?key=…, with the key in the file that the log names when you open it.

    curl localhost:8000/orders -H 'content-type: application/json' \\
        -d '{"item": "book", "email": "ada@example.org"}'
    curl localhost:8000/orders

The same jobs in a process of their own, from this folder: litestar --app litestar_shop:app monque worker
"""

import argparse
from dataclasses import asdict, dataclass
from typing import Any

import uvicorn
from bson import ObjectId
from litestar import Litestar, get, post
from litestar.di import NamedDependency
from litestar.params import JSONBody
from pymongo.asynchronous.client_session import AsyncClientSession

from monque import Job, Monque, Options
from monque.litestar import DashboardConfig, MonqueDep, MonquePlugin, cron, job


@dataclass
class NewOrder:
    item: str
    email: str


@dataclass
class Order(NewOrder):
    id: str


@dataclass
class Email:
    to: str
    subject: str


class Orders:
    """The orders, in the same database as the jobs."""

    def __init__(self, monque: Monque) -> None:
        self._collection = monque.database["litestar_orders"]

    async def add(self, order: NewOrder, session: AsyncClientSession) -> str:
        stored = await self._collection.insert_one({**asdict(order), "status": "new"}, session=session)
        return str(stored.inserted_id)

    async def change(self, order_id: str, **fields: Any) -> None:
        await self._collection.update_one({"_id": ObjectId(order_id)}, {"$set": fields})

    async def all(self) -> list[dict[str, Any]]:
        return await self._collection.find({}, {"_id": 0}).to_list()


class Mailer:
    """A real one would keep a connection."""

    async def send(self, to: str, subject: str) -> None:
        print(f"mail to {to}: {subject}", flush=True)


async def get_orders(monque: MonqueDep) -> Orders:
    return Orders(monque)


async def get_mailer() -> Mailer:
    return Mailer()


@job("process-order", concurrency=3)
async def process_order(job: Job[Order], orders: Orders) -> None:
    order = job.data
    await orders.change(order.id, status="shipped")
    await send_email.enqueue(Email(order.email, f"Your {order.item} is on its way"))


@job("send-email", concurrency=10)
async def send_email(job: Job[Email], mailer: Mailer) -> None:
    await mailer.send(job.data.to, job.data.subject)


@cron("0 9 * * MON-FRI", timezone="Europe/Berlin")
async def morning_report(_job: Job[None], mailer: Mailer) -> None:
    await mailer.send("owner@example.org", "Good morning")


@post("/orders", status_code=202)
async def create_order(
    data: JSONBody[NewOrder], orders: NamedDependency[Orders], monque: MonqueDep
) -> dict[str, str]:
    """Store the order and its job together: both, or neither."""
    async with monque.client.start_session() as session, await session.start_transaction():
        order = Order(**asdict(data), id=await orders.add(data, session))
        await process_order.enqueue(order, session=session)
    return {"order": order.id}


@get("/orders")
async def list_orders(orders: NamedDependency[Orders]) -> list[dict[str, Any]]:
    return await orders.all()


# MONQUE_URI, and without it an embedded MongoDB. The jobs of other examples are in other collections.
monque = Monque(options=Options(collection="litestar_shop"))
plugin = MonquePlugin(
    monque,
    jobs=[process_order, send_email, morning_report],
    dashboard=DashboardConfig(path="/monque"),
)
app = Litestar(
    [create_order, list_orders],
    plugins=[plugin],
    dependencies={"orders": get_orders, "mailer": get_mailer},
)

if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="litestar_shop")
    parser.add_argument("--port", type=int, default=8000)
    uvicorn.run(app, port=parser.parse_args().port)
