"""The claimed jobs that wait for a slot, by name, the oldest first."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Container, Iterator
from typing import Any

from monque._engine.claimed import Held, Key
from monque._store.document import EARLIEST, due_of
from monque._workers.workers import Worker


class Prefetch:
    """Knows which job starts next.

    *unsettled* holds the keys of all claims that are not settled: a job's next attempt waits until the one
    before it is settled. The server may have put the job back, and we have claimed it again, before we got
    the answer; nobody is to hear of the next start before the last end.
    """

    def __init__(self, unsettled: Container[Key]) -> None:
        self._unsettled = unsettled
        self._by_name: dict[str, deque[Held]] = {}
        self.count = 0
        """How many jobs wait."""

    def __iter__(self) -> Iterator[Held]:
        return (held for line in self._by_name.values() for held in line)

    def count_of(self, name: str) -> int:
        """How many jobs of a name wait."""
        line = self._by_name.get(name)
        return 0 if line is None else len(line)

    def add(self, held: Held) -> None:
        """Let a claimed job wait."""
        line = self._by_name.get(held.worker.name)
        if line is None:
            line = self._by_name[held.worker.name] = deque()
        line.append(held)
        self.count += 1

    def remove(self, held: Held) -> bool:
        """Take a job out; False if it does not wait any more."""
        line = self._by_name[held.worker.name]
        if line and line[0] is held:  # mostly
            line.popleft()
        elif held in line:
            line.remove(held)
        else:
            return False
        self.count -= 1
        return True

    def next_of(self, name: str) -> Held | None:
        """The oldest job of a name that may start."""
        for held in self._by_name.get(name, ()):
            if held.earlier is None or held.earlier not in self._unsettled:
                return held
        return None

    def next_of_all(self, may_start: Callable[[Worker[Any]], bool]) -> Held | None:
        """The oldest job of all names that may start."""
        found = [self.next_of(name) for name in self._by_name]
        ready = [held for held in found if held is not None and may_start(held.worker)]
        return min(ready, key=lambda held: (due_of(held.claim) or EARLIEST, held.key), default=None)

    def overdue(self, limit: float) -> list[Held]:
        """The jobs that have waited since before *limit* (`time.monotonic`)."""
        # The first of each name has waited longest.
        if not any(line and line[0].since < limit for line in self._by_name.values()):
            return []
        return [held for held in self if held.since < limit]
