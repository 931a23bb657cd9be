"""A user's own driver classes with a bug in them, as a library that wraps the driver may have.

They raise an error that does not come from the database. To Monque that is a bug like one of its own, and
every loop goes through them. So nothing of Monque has to be replaced to see what a bug does.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from pymongo import AsyncMongoClient
from pymongo.asynchronous.collection import AsyncCollection
from pymongo.asynchronous.database import AsyncDatabase

Breaks = Callable[..., bool]

# For each loop, the first operation that only it does: its method, and a test of its arguments.
LOOPS: dict[str, tuple[str, Breaks]] = {
    "polling": ("find", lambda query, *_, **__: query.get("status") == "pending"),
    "claiming": ("find_one_and_update", lambda _, update, **__: _sets(update, "processing")),
    "heartbeat": ("update_many", lambda _, update, **__: "lastHeartbeat" in _stamps(update)),
    "recovery": ("aggregate", lambda stages, **__: stages[0] == {"$match": {"status": "processing"}}),
    "prune": ("find", lambda query, *_, **__: query.get("status") == "completed" and "updatedAt" in query),
    "listening": ("watch", lambda *_, **__: True),
    "settling": ("find_one_and_update", lambda _, update, **__: _sets(update, "completed")),
}


class BugError(Exception):
    """What the buggy code raises."""


class BuggyDatabase(AsyncDatabase[dict[str, Any]]):
    """A database whose collections do what they should, until `broken` names one of the loops."""

    broken: str | None = None
    deaf: asyncio.Event | None = None
    """Set when a change stream is being opened that never opens, and that loses the first cancellation: as
    `asyncio.wait_for`, which the driver uses, may do in Python 3.11."""

    def get_collection(self, name: str, *args: Any, **kwargs: Any) -> AsyncCollection[dict[str, Any]]:
        return BuggyCollection(self, name, False, *args, **kwargs)


class BuggyCollection(AsyncCollection[dict[str, Any]]):
    """Raises in the operations of the loop that its database says is broken."""

    def _meet(self, method: str, *args: Any, **kwargs: Any) -> None:
        broken = self.database.broken
        if broken is not None and LOOPS[broken][0] == method and LOOPS[broken][1](*args, **kwargs):
            raise BugError(f"a bug in {broken}")

    def with_options(self, *args: Any, **kwargs: Any) -> Any:
        return BuggyCollection(self.database, self.name, False, *args, **kwargs)

    def find(self, *args: Any, **kwargs: Any) -> Any:
        self._meet("find", *args, **kwargs)
        return super().find(*args, **kwargs)

    async def aggregate(self, *args: Any, **kwargs: Any) -> Any:
        self._meet("aggregate", *args, **kwargs)
        return await super().aggregate(*args, **kwargs)

    async def find_one_and_update(self, *args: Any, **kwargs: Any) -> Any:
        self._meet("find_one_and_update", *args, **kwargs)
        return await super().find_one_and_update(*args, **kwargs)

    async def update_many(self, *args: Any, **kwargs: Any) -> Any:
        self._meet("update_many", *args, **kwargs)
        return await super().update_many(*args, **kwargs)

    async def watch(self, *args: Any, **kwargs: Any) -> Any:
        self._meet("watch", *args, **kwargs)
        if self.database.deaf is not None:
            with suppress(asyncio.CancelledError):
                self.database.deaf.set()
                await asyncio.Event().wait()
            await asyncio.Event().wait()
        return await super().watch(*args, **kwargs)


def buggy_database(uri: str, *, broken: str | None = None) -> BuggyDatabase:
    """The default database of *uri*."""
    client: AsyncMongoClient[dict[str, Any]] = AsyncMongoClient(uri, tz_aware=True)
    database = BuggyDatabase(client, client.get_default_database().name)
    database.broken = broken
    return database


def _sets(update: Any, status: str) -> bool:
    return isinstance(update, dict) and update.get("$set", {}).get("status") == status


def _stamps(update: Any) -> Any:
    return update.get("$currentDate", {}) if isinstance(update, dict) else {}
