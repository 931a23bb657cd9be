"""What the server says about itself: its kind, its time and the indexes of the collection."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pymongo.asynchronous.collection import AsyncCollection
from pymongo.errors import OperationFailure

from monque._connect.deadlines import limited
from monque._store.document import CODEC_OPTIONS, Document
from monque._time.clock import Clock

_NAMESPACE_NOT_FOUND = 26


class Server:
    """The server behind one collection."""

    def __init__(self, collection: AsyncCollection[Document], clock: Clock) -> None:
        self._collection = collection
        self._admin = collection.database.client.get_database("admin", codec_options=CODEC_OPTIONS)
        self._clock = clock
        self.routed = False
        """The server is a mongos, in front of a sharded cluster."""
        self.has_change_streams = False
        """The server is a member of a replica set, or a mongos."""

    @property
    def writable(self) -> object:
        """The servers that the driver knows to take writes, as a value to compare: primary, or all mongos."""
        servers = self._collection.database.client.topology_description.server_descriptions()
        return frozenset(address for address, server in servers.items() if server.is_writable)

    async def hello(self) -> dict[str, Any]:
        """The server's answer to `hello`, its time included."""
        # A command does not go by the codec options of its database: without these, times would be naive.
        answer = await self._admin.command("hello", codec_options=CODEC_OPTIONS)
        self.routed = answer.get("msg") == "isdbgrid"
        self.has_change_streams = self.routed or "setName" in answer
        return answer

    async def ping(self) -> None:
        """Have the primary answer."""
        await self._admin.command("ping")

    async def is_sharded(self) -> bool:
        """Whether the collection is spread over the shards of a cluster."""
        if not self.routed:
            return False
        statistics = await self._collection.database.command("collStats", self._collection.name)
        return bool(statistics.get("sharded"))

    async def indexes(self) -> Sequence[Mapping[str, Any]]:
        """The indexes that the collection has; none if there is no such collection yet."""
        try:
            return await (await self._collection.list_indexes()).to_list()
        except OperationFailure as error:
            if error.code != _NAMESPACE_NOT_FOUND:
                raise
            return []

    async def refresh_clock(self) -> None:
        """Read the server's time anew."""
        with limited():
            await self._clock.refresh(self.hello)
