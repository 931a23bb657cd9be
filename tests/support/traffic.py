"""What a client sends."""

from __future__ import annotations

from collections import Counter

from pymongo.monitoring import CommandListener, CommandStartedEvent


class Traffic(CommandListener):
    """Counts the commands a client sends."""

    def __init__(self) -> None:
        self.sent: Counter[str] = Counter()

    def started(self, event: CommandStartedEvent) -> None:
        self.sent[event.command_name] += 1

    def succeeded(self, event: object) -> None:
        pass

    def failed(self, event: object) -> None:
        pass
