"""An order and the job that ships it, stored together or not at all.

    .venv/bin/python examples/transactional_outbox.py

Runs on the server named in MONQUE_URI (a replica set), or on an embedded MongoDB.
"""

import asyncio
import uuid

from pymongo.asynchronous.client_session import AsyncClientSession

from monque import Job, Monque

monque = Monque()


@monque.worker("example.ship-order")
async def ship_order(job: Job[str]) -> None:
    order = await monque.database["example_orders"].find_one({"_id": job.data})
    print(f"shipping {order['item'] if order else 'nothing'}")


async def place_order(session: AsyncClientSession, item: str, price: int) -> None:
    number = str(uuid.uuid4())
    orders = monque.database["example_orders"]
    await orders.insert_one({"_id": number, "item": item, "price": price}, session=session)
    await monque.enqueue(ship_order, number, session=session)
    if price < 0:
        raise ValueError(f"a price of {price} is no price")


async def main() -> None:
    async with monque:
        async with monque.client.start_session() as session:
            # Commits at the end, and tries again after a conflict with another transaction.
            await session.with_transaction(lambda session: place_order(session, "a book", price=20))
            print("ordered a book: the order and its job are stored")

            try:
                await session.with_transaction(lambda session: place_order(session, "a bug", price=-1))
            except ValueError as error:
                print(f"no bug ordered ({error}): neither an order nor a job is stored")

        await monque.run_until_idle()
        bugs = await monque.database["example_orders"].count_documents({"item": "a bug"})
        print(f"orders of bugs: {bugs}")


if __name__ == "__main__":
    asyncio.run(main())
