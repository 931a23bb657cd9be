"""The MongoDB transaction of a Django connection."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

from django.db import connections
from pymongo.client_session import ClientSession

from monque import ConfigurationError


def session_of(database: str = "default") -> ClientSession | None:
    """The session of the MongoDB transaction that this thread is in, for `enqueue(..., session=)`; else None.

    It is that of `django_mongodb_backend.transaction.atomic`. Django's own `transaction.atomic` begins none
    on MongoDB.

    Args:
        database: An alias of `DATABASES`, of the engine `django_mongodb_backend`.

    Raises:
        ConfigurationError: The database is none of django-mongodb-backend.

    Examples:
        >>> with atomic():
        ...     order = Order.objects.create(total=5)
        ...     get_monque().enqueue("send-invoice", str(order.pk), session=session_of())
    """
    connection: Any = connections[database]
    if connection.vendor != "mongodb":
        raise ConfigurationError(
            f"the database {database!r} is one of {connection.vendor}, and a job can only be part of a "
            "transaction of MongoDB; enqueue it in transaction.on_commit"
        )
    session: ClientSession | None = connection.session if connection.in_atomic_block_mongo else None
    return session


def database_of(alias: str) -> Any:
    """The database of PyMongo behind an alias; it has the very client whose sessions transactions have."""
    # In a thread, because servers import applications in their event loop, where Django refuses to connect.
    # The client is the same in all threads.
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(lambda: connections[alias].database).result()
