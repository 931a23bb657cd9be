"""The dependencies of routes and jobs."""

from typing import Annotated, Any

from bson import ObjectId
from fastapi import Depends, Request
from pymongo.asynchronous.client_session import AsyncClientSession

from monque.fastapi import MonqueDep


class Orders:
    """The orders, in the same database as the jobs."""

    def __init__(self, monque: MonqueDep) -> None:
        self._collection = monque.database["orders"]

    async def add(self, order: dict[str, Any], session: AsyncClientSession) -> ObjectId:
        stored = await self._collection.insert_one({**order, "status": "new"}, session=session)
        return ObjectId(stored.inserted_id)

    async def change(self, order_id: ObjectId, **fields: Any) -> None:
        await self._collection.update_one({"_id": order_id}, {"$set": fields})

    async def all(self) -> list[dict[str, Any]]:
        return await self._collection.find({}, {"_id": 0}).to_list()


class Mailer:
    """Made once, when the application starts; a real one would keep a connection."""

    async def send(self, to: str, subject: str) -> None:
        print(f"mail to {to}: {subject}", flush=True)


async def get_mailer(request: Request) -> Mailer:
    mailer: Mailer = request.app.state.mailer
    return mailer


OrdersDep = Annotated[Orders, Depends()]
MailerDep = Annotated[Mailer, Depends(get_mailer)]
