"""The Monque of the project, one for each alias and process, and the MongoDB transaction that it joins."""

from __future__ import annotations

import atexit
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

from django.core.signals import setting_changed
from django.db import connections
from pymongo.client_session import ClientSession

from monque import ConfigurationError, Monque, SyncMonque
from monque.django.conf import DEFAULT_ALIAS, Configuration, configuration_of

_lock = threading.Lock()
_made: dict[str, SyncMonque] = {}


def get_monque(alias: str = DEFAULT_ALIAS) -> SyncMonque:
    """The Monque of this project: what `TASKS[alias]["OPTIONS"]` describes, one for each process.

    Call it anywhere once the settings are there, also when modules are imported: it connects with its first
    use, and after a fork anew. It is closed when the process ends. `manage.py monque_worker` runs the
    workers that are declared with it, beside the tasks.

    Args:
        alias: Which one of `TASKS`.

    Raises:
        ConfigurationError: The settings have no such alias, or an option is wrong.

    Examples:
        >>> @get_monque().worker("rebuild-index")
        ... def rebuild_index(job: Job[str]) -> None: ...
        >>> transaction.on_commit(lambda: rebuild_index.enqueue("books"))
    """
    with _lock:
        if alias not in _made:
            configuration = configuration_of(alias)
            _made[alias] = SyncMonque(_database(configuration), options=configuration.options)
        return _made[alias]


def make_monque(alias: str = DEFAULT_ALIAS, **changes: Any) -> Monque:
    """A new `Monque` with the settings of an alias, for code with an event loop of its own.

    It belongs to whoever makes it, and to one event loop: open and close it there.

    Args:
        alias: Which one of `TASKS`.
        changes: Fields of `Options` that differ here.

    Examples:
        >>> async with make_monque() as monque:
        ...     await monque.enqueue("rebuild-index", "books")
    """
    configuration = configuration_of(alias)
    return Monque(_database(configuration), options=replace(configuration.options, **changes))


def _database(configuration: Configuration) -> Any:
    if configuration.database is not None:
        return database_of(configuration.database)
    return configuration.uri


def close_all(**_: Any) -> None:
    """Close all of them; the next call of `get_monque` makes new ones."""
    with _lock:
        closing = list(_made.values())
        _made.clear()
    for monque in closing:
        monque.close()


def _on_setting_changed(*, setting: str, **_: Any) -> None:
    """Tests override settings, and Django makes its backends anew then."""
    if setting == "TASKS":
        close_all()


def _in_child() -> None:
    """Another thread may have held the lock at the fork."""
    global _lock
    _lock = threading.Lock()


setting_changed.connect(_on_setting_changed, dispatch_uid="monque.django")
atexit.register(close_all)
if hasattr(os, "register_at_fork"):  # not on Windows
    os.register_at_fork(after_in_child=_in_child)


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
