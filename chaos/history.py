"""What really happened, written down by each process outside of MongoDB.

Each process appends lines to a file of its own, one `write` a line, before it goes on to do what the line
says: what a process wrote survives its SIGKILL. All stamps are CLOCK_MONOTONIC, which all processes of a
machine share and no wrong wall clock can touch.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True)
class Event:
    """One line of history."""

    t: float
    who: str
    kind: str
    pid: int = 0
    facts: dict[str, Any] = field(default_factory=dict)

    def __getitem__(self, fact: str) -> Any:
        return self.facts[fact]

    def get(self, fact: str, default: Any = None) -> Any:
        """The fact, if the line has it."""
        return self.facts.get(fact, default)


class History:
    """The file of one process."""

    def __init__(self, folder: Path, who: str) -> None:
        self._who = who
        self._pid = os.getpid()
        path = folder / f"{who}.{self._pid}.jsonl"
        self._file = os.open(path, os.O_CREAT | os.O_APPEND | os.O_WRONLY, 0o600)

    def record(self, kind: str, **facts: Any) -> float:
        """Append a line; its stamp."""
        t = now()
        line = {"t": t, "who": self._who, "pid": self._pid, "kind": kind, **facts}
        os.write(self._file, json.dumps(line).encode() + b"\n")
        return t

    def close(self) -> None:
        """Nothing more will be written."""
        os.close(self._file)


def now() -> float:
    """The time on the clock of all histories, to the microsecond."""
    return round(time.clock_gettime(time.CLOCK_MONOTONIC), 6)


def read(folder: Path) -> list[Event]:
    """The lines of all processes, in order."""
    lines = (line for path in folder.glob("*.jsonl") for line in path.read_text().splitlines())
    return sorted(_events(lines), key=lambda event: event.t)


def _events(lines: Iterable[str]) -> Iterable[Event]:
    for line in lines:
        facts = json.loads(line)
        yield Event(facts.pop("t"), facts.pop("who"), facts.pop("kind"), facts.pop("pid"), facts)
