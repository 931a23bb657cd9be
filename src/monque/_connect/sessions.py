"""Jobs as part of the caller's transaction, whichever driver that runs in."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias, cast

from pymongo import MongoClient
from pymongo.asynchronous.client_session import AsyncClientSession
from pymongo.asynchronous.collection import AsyncCollection
from pymongo.client_session import ClientSession
from pymongo.collection import Collection

from monque._values.errors import ConfigurationError

Session: TypeAlias = AsyncClientSession | ClientSession
Jobs: TypeAlias = AsyncCollection[dict[str, Any]]
Call: TypeAlias = Callable[..., Awaitable[Any]]


async def here(method: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Call a function at once, in the thread that this runs in."""
    return method(*args, **kwargs)


def join(
    session: object, jobs: Jobs, lender: MongoClient[Any] | None, *, call: Call = asyncio.to_thread
) -> tuple[Jobs, AsyncClientSession]:
    """Return the collection and the session with which a write is part of the caller's transaction.

    Args:
        session: What the caller gave.
        jobs: The collection through our own client.
        lender: The blocking client that ours was made after, if any.
        call: How to call the methods of a blocking collection.

    Raises:
        ConfigurationError: The write could not be part of that transaction.
    """
    if isinstance(session, AsyncClientSession):
        if session.client is jobs.database.client:
            return jobs, session
        raise ConfigurationError(
            "the session belongs to another client, so the job would not be part of its transaction; start "
            "it with monque.client.start_session(), or hand your own client to Monque(...)"
        )
    blocking = getattr(session, "delegate", session)  # of a Motor session
    if not isinstance(blocking, ClientSession) or blocking.client is not lender:
        kind = type(session).__name__
        raise ConfigurationError(
            f"session must be a session of monque.client, an AsyncClientSession, not {kind}: the job would "
            "not be part of its transaction. To use the sessions of a blocking or Motor client, hand that "
            "very client, or a database of it, to Monque(...)"
        )
    return _blocking_collection(jobs, blocking, call), cast("AsyncClientSession", blocking)


def _blocking_collection(jobs: Jobs, session: ClientSession, call: Call) -> Jobs:
    """Return the collection through the client of a blocking session, with the guarantees of our handle."""
    handle: Collection[dict[str, Any]] = session.client[jobs.database.name].get_collection(
        jobs.name,
        codec_options=jobs.codec_options,
        read_preference=jobs.read_preference,
        read_concern=jobs.read_concern,
        write_concern=jobs.write_concern,
    )
    return cast("Jobs", _Awaited(handle, call))


class _Awaited:
    """A blocking collection whose methods are awaited; by default each call runs in a thread.

    Two threads must not use a session at the same time. They do not, because the caller awaits the call.
    """

    def __init__(self, collection: Collection[dict[str, Any]], call: Call) -> None:
        self._collection = collection
        self._call = call

    def with_options(self, **options: Any) -> _Awaited:
        """The same collection, read or written in another way; this is no call of the server."""
        return _Awaited(self._collection.with_options(**options), self._call)

    def __getattr__(self, name: str) -> Callable[..., Awaitable[Any]]:
        method = getattr(self._collection, name)

        async def call(*args: Any, **kwargs: Any) -> Any:
            return await self._call(method, *args, **kwargs)

        return call
