"""Jobs as part of the caller's transaction, whichever driver that runs in."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias, cast

from pymongo.asynchronous.client_session import AsyncClientSession
from pymongo.asynchronous.collection import AsyncCollection
from pymongo.client_session import ClientSession
from pymongo.collection import Collection

from monque._connect import Connection
from monque._errors import ConfigurationError
from monque._store.document import Document
from monque._store.store import Store

Session: TypeAlias = AsyncClientSession | ClientSession
Call: TypeAlias = Callable[..., Awaitable[Any]]


async def here(method: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Call a method of a blocking collection in the caller's own thread, as that expects."""
    return method(*args, **kwargs)


def join(
    session: object, store: Store, connection: Connection, *, call: Call = asyncio.to_thread
) -> tuple[Store, AsyncClientSession]:
    """The store and the session to use so that what is stored is part of the caller's transaction.

    *call* is how methods of a blocking collection are called.

    Raises:
        ConfigurationError: It could not be part of it.
    """
    if isinstance(session, AsyncClientSession):
        if session.client is connection.database.client:
            return store, session
        raise ConfigurationError(
            "the session belongs to another client, so the job would not be part of its transaction; start "
            "it with monque.client.start_session(), or hand your own client to Monque(...)"
        )
    blocking = getattr(session, "delegate", session)  # of a Motor session
    if not isinstance(blocking, ClientSession) or blocking.client is not connection.lender:
        kind = type(session).__name__
        raise ConfigurationError(
            f"session must be a session of monque.client, an AsyncClientSession, not {kind}: the job would "
            "not be part of its transaction. To use the sessions of a blocking or Motor client, hand that "
            "very client, or a database of it, to Monque(...)"
        )
    collection = _blocking_collection(store, blocking, call)
    return store.through(collection), cast("AsyncClientSession", blocking)


def _blocking_collection(store: Store, session: ClientSession, call: Call) -> AsyncCollection[Document]:
    """The jobs through the client of a blocking session, with the guarantees of the store's own handle."""
    own = store.collection
    handle: Collection[Document] = session.client[own.database.name].get_collection(
        own.name,
        codec_options=own.codec_options,
        read_preference=own.read_preference,
        read_concern=own.read_concern,
        write_concern=own.write_concern,
    )
    return cast("AsyncCollection[Document]", _Awaited(handle, call))


class _Awaited:
    """A blocking collection whose methods are awaited; by default each call runs in a thread.

    A session must not be used by two at a time; nobody does, while the caller awaits the call.
    """

    def __init__(self, collection: Collection[Document], call: Call) -> None:
        self._collection = collection
        self._call = call

    def __getattr__(self, name: str) -> Callable[..., Awaitable[Any]]:
        method = getattr(self._collection, name)

        async def call(*args: Any, **kwargs: Any) -> Any:
            return await self._call(method, *args, **kwargs)

        return call
