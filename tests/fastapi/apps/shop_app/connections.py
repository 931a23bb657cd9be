"""What an application may hold already, and what it then hands to Monque."""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import beanie
import mongoengine
from motor.motor_asyncio import AsyncIOMotorClient
from pymongo import AsyncMongoClient, MongoClient

URI = os.environ["SHOP_URI"]
CONNECTION = os.environ.get("SHOP_CONNECTION", "uri")


class Customer(beanie.Document):
    name: str


def given() -> object:
    """What is handed to `Monque(...)`, made without contact."""
    match CONNECTION:
        case "uri":
            return URI
        case "native":
            return AsyncMongoClient(URI).get_default_database()
        case "blocking":
            return MongoClient(URI).get_default_database()
        case "motor":
            return AsyncIOMotorClient(URI).get_default_database()
        case "mongoengine":
            mongoengine.connect(host=URI, alias="shop", uuidRepresentation="standard")
            return "shop"
        case "beanie":
            return Customer
    raise ValueError(CONNECTION)


@asynccontextmanager
async def set_up() -> AsyncIterator[None]:
    """What the application itself does with its library when it starts."""
    if CONNECTION == "beanie":
        async with AsyncMongoClient(URI) as client:
            await beanie.init_beanie(client.get_default_database(), document_models=[Customer])
            yield
    else:
        yield
