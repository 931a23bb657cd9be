"""Databases of other libraries: found without importing these, used through an async client of our own."""

from __future__ import annotations

import logging
import re
import sys
from collections.abc import Callable
from typing import Any, TypeAlias

from pymongo import AsyncMongoClient, MongoClient
from pymongo.asynchronous.database import AsyncDatabase
from pymongo.database import Database

from monque._values.errors import ConfigurationError

logger = logging.getLogger("monque")

Find: TypeAlias = Callable[[], AsyncDatabase[Any] | Database[Any]]
"""Called when the database is needed, not before: Beanie and MongoEngine know it only once set up."""


def finder(given: object, *, default: str) -> Find | None:
    """Return the function that finds the database of *given*; None if *given* is of no kind known here.

    Args:
        given: A blocking or Motor database or client, a Beanie document class, a MongoEngine alias.
        default: The name of the database, where a client names none.
    """
    given = _of_motor(given)
    if isinstance(given, Database):
        return lambda: given
    if isinstance(given, MongoClient):
        return lambda: given.get_default_database(default)
    if isinstance(given, type) and hasattr(given, "get_pymongo_collection"):
        return lambda: _of_beanie(given)
    if isinstance(given, str) and re.fullmatch(r"[\w-]+", given) and "mongoengine" in sys.modules:
        return lambda: _of_mongoengine(given)
    return None


def derive(database: Database[Any]) -> AsyncDatabase[Any]:
    """The same database through a new async client: the same deployment, credentials and options.

    PyMongo keeps the arguments of a client in a private attribute only. The error says so if a future
    version has none.
    """
    made_with = getattr(database.client, "_init_kwargs", None)
    if not isinstance(made_with, dict):
        raise ConfigurationError(
            "this version of PyMongo does not tell what the given client was made with; pass the URI you "
            "gave to MongoClient, or an AsyncMongoClient made with the same arguments"
        )
    if made_with.get("auto_encryption_opts") is not None:
        raise ConfigurationError(
            "the encryption of a blocking client cannot be carried over to an async one; pass an "
            "AsyncMongoClient with its own auto_encryption_opts"
        )
    client: AsyncMongoClient[Any] = AsyncMongoClient(**{**made_with, "connect": False})
    return client[database.name]


def blocking(database: AsyncDatabase[Any]) -> Database[Any] | None:
    """The same database through a new blocking client, for threads; None where PyMongo does not tell how."""
    made_with = getattr(database.client, "_init_kwargs", None)
    if not isinstance(made_with, dict):
        return None
    # Listeners of the user are not meant for another thread, and what is written needs no encryption.
    kept = {key: value for key, value in made_with.items() if key not in _OF_ONE_CLIENT}
    return MongoClient[Any](**kept, connect=False)[database.name]


_OF_ONE_CLIENT = ("auto_encryption_opts", "connect", "event_listeners")


def _of_motor(given: object) -> object:
    """Return what a Motor database or client wraps, and anything else as it is."""
    core: Any = sys.modules.get("motor.core")
    if core is None or not isinstance(given, core.AgnosticDatabase | core.AgnosticClient):
        return given
    logger.warning("Motor is no longer maintained; Monque uses PyMongo's own async client beside it")
    return given.delegate


def _of_beanie(document: Any) -> AsyncDatabase[Any]:
    exceptions: Any = sys.modules["beanie.exceptions"]
    try:
        database: AsyncDatabase[Any] = document.get_pymongo_collection().database
    except exceptions.CollectionWasNotInitialized as error:
        raise ConfigurationError(
            f"Beanie does not know the database of {document.__name__} yet; call init_beanie before "
            "Monque is opened"
        ) from error
    return database


def _of_mongoengine(alias: str) -> Database[Any]:
    mongoengine: Any = sys.modules["mongoengine"]
    try:
        database = mongoengine.get_db(alias)
    except mongoengine.connection.ConnectionFailure as error:
        raise ConfigurationError(
            f"MongoEngine has no connection with the alias {alias!r}; call mongoengine.connect before Monque "
            "is opened, or pass a mongodb:// URI"
        ) from error
    if not isinstance(database, Database):
        raise ConfigurationError(
            f"the MongoEngine connection {alias!r} is not one of PyMongo but of {type(database).__module__}; "
            "pass a mongodb:// URI"
        )
    return database
