"""What a client sends."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from pymongo import AsyncMongoClient
from pymongo.monitoring import CommandListener, CommandStartedEvent

from monque import Monque, Options
from monque.embedded import EmbeddedMongo
from support.aliases import Database
from support.waiting import start

# The driver adds these; `explain` refuses some of them.
_ENVELOPE = ("lsid", "txnNumber", "$clusterTime", "$db", "$readPreference", "maxTimeMS")


READS_CONTROL = "find the control document"
"""How `Traffic.sent` counts a find of the control document, which is no poll."""

LOOKS_FOR_REQUESTS = "find requests to cancel"
"""How it counts a find of requests to cancel what runs: each heartbeat has one."""


class Traffic(CommandListener):
    """Records the commands that a client sends.

    Args:
        names: Record the commands with these names; all of them, by default.
    """

    def __init__(self, *names: str) -> None:
        self._names = names
        self.commands: list[dict[str, Any]] = []
        self.sent: Counter[str] = Counter()

    def started(self, event: CommandStartedEvent) -> None:
        if not self._names or event.command_name in self._names:
            self.sent[_kind_of(event)] += 1
            self.commands.append(dict(event.command))

    def succeeded(self, event: object) -> None: ...

    def failed(self, event: object) -> None: ...

    def clear(self) -> None:
        self.sent.clear()
        self.commands.clear()

    def explainable(self, *names: str) -> list[dict[str, Any]]:
        """Return the recorded commands of these names, as they are given to `explain`."""
        return [
            {key: value for key, value in command.items() if key not in _ENVELOPE}
            for command in self.commands
            if next(iter(command)) in names
        ]


def _kind_of(event: CommandStartedEvent) -> str:
    if str(event.command.get("find")).endswith("_control"):
        return READS_CONTROL
    return LOOKS_FOR_REQUESTS if "cancel.by" in event.command.get("filter", ()) else event.command_name


@asynccontextmanager
async def counted_instance(
    server: EmbeddedMongo, database: Database, options: Options
) -> AsyncIterator[tuple[Monque, Counter[str]]]:
    """A running instance with a live change stream, on a client that counts its commands."""
    traffic = Traffic()
    async with (
        AsyncMongoClient[dict[str, Any]](server.uri, event_listeners=[traffic]) as client,
        Monque(client[database.name], options=options) as monque,
    ):
        await start(monque)
        yield monque, traffic.sent
