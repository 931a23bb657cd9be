"""What a client sends."""

from __future__ import annotations

from collections import Counter
from typing import Any

from pymongo.monitoring import CommandListener, CommandStartedEvent

# The driver adds these; `explain` refuses some of them.
_ENVELOPE = ("lsid", "txnNumber", "$clusterTime", "$db", "$readPreference", "maxTimeMS")


READS_CONTROL = "find the control document"
"""How `Traffic.sent` counts a find of the control document, which is no poll."""


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
            is_control = str(event.command.get("find")).endswith("_control")
            self.sent[READS_CONTROL if is_control else event.command_name] += 1
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
