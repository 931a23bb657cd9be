"""What the server says about itself: its kind, its time and the indexes of the collection."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pymongo.asynchronous.collection import AsyncCollection
from pymongo.errors import OperationFailure

from monque._connect.deadlines import limited
from monque._errors import ConfigurationError
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

    async def shard_key(self) -> frozenset[str]:
        """The fields of the shard key but `_id`; none if the collection is not sharded, or we may not ask.

        The plan of a `$merge` names them: it matches documents by `_id` and the shard key. Who may store jobs
        may ask for it, while `config.collections` is for administrators.
        """
        if not self.routed:
            return frozenset()
        name = self._collection.name
        merge = [{"$match": {"_id": None}}, {"$merge": {"into": name}}]
        try:
            plan = await self._collection.database.command(
                "explain", {"aggregate": name, "pipeline": merge, "cursor": {}}, verbosity="queryPlanner"
            )
        except OperationFailure:
            return frozenset()
        return frozenset(_merged_on(plan)) - {"_id"}

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


def _merged_on(plan: Any) -> Iterator[str]:
    """The fields in `on` of each `$merge` in a plan, whose shape differs from version to version."""
    parts = plan.items() if isinstance(plan, Mapping) else enumerate(plan) if isinstance(plan, list) else ()
    for name, part in parts:
        if name == "$merge" and "on" in part:
            yield from [part["on"]] if isinstance(part["on"], str) else part["on"]
        else:
            yield from _merged_on(part)


def wrong_shard_key(collection: AsyncCollection[Document]) -> ConfigurationError:
    """The error for a collection that is sharded by more than the name, or by something else."""
    return ConfigurationError(
        f"the collection {collection.full_name!r} is sharded by a key with which MongoDB cannot keep unique "
        'keys and windows unique; shard it by {name: "hashed"} instead, or by {name: 1}'
    )
