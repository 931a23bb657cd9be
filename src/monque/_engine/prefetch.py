"""The claimed jobs that wait for a slot, by name: urgent ones first, then the oldest."""

from __future__ import annotations

from bisect import insort
from collections import deque
from collections.abc import Callable, Container, Iterable, Iterator
from datetime import datetime
from itertools import chain
from typing import Any

from monque._engine.claimed import Held, Key
from monque._store.document import EARLIEST, due_of
from monque._store.urgent import Shares
from monque._workers.workers import Worker


class Prefetch:
    """Knows which job starts next.

    *unsettled* holds the keys of all claims that are not settled: a job's next attempt waits until the one
    before it is settled. The server may have put the job back, and we have claimed it again, before we got
    the answer; nobody is to hear of the next start before the last end.

    An urgent job overtakes those that were claimed before it. *shares* says when it is the turn of the oldest
    one all the same.
    """

    def __init__(self, unsettled: Container[Key], shares: Shares) -> None:
        self._unsettled = unsettled
        self._shares = shares
        self._by_name: dict[str, deque[Held]] = {}
        self.urgent: dict[str, list[Held]] = {}
        """Those with a priority by name, as they start; a name without any is not in it."""
        self.count = 0
        """How many jobs wait."""

    def __iter__(self) -> Iterator[Held]:
        return chain.from_iterable((*self.urgent.values(), *self._by_name.values()))

    def count_of(self, name: str) -> int:
        """How many jobs of a name wait."""
        line = self._by_name.get(name)
        count = 0 if line is None else len(line)
        return count + len(self.urgent.get(name, ())) if self.urgent else count

    def add(self, held: Held) -> None:
        """Let a claimed job wait."""
        self.count += 1
        if held.priority:
            insort(self.urgent.setdefault(held.worker.name, []), held, key=_rank)
            return
        line = self._by_name.get(held.worker.name)
        if line is None:
            line = self._by_name[held.worker.name] = deque()
        line.append(held)

    def remove(self, held: Held) -> bool:
        """Take a job out; False if it does not wait any more."""
        name = held.worker.name
        line = self.urgent.get(name, []) if held.priority else self._by_name[name]
        if line and line[0] is held:  # mostly
            del line[0]
        elif held in line:
            line.remove(held)
        else:
            return False
        if held.priority and not line:
            del self.urgent[name]
        self.count -= 1
        return True

    def next_of(self, name: str) -> Held | None:
        """The job of a name that starts next: the most urgent one, or the oldest one if it is its turn."""
        if not self.urgent:
            for held in self._by_name.get(name, ()):
                if held.earlier is None or held.earlier not in self._unsettled:
                    return held
            return None
        oldest = self._first(self._by_name.get(name, ()))
        if (urgent := self._first(self.urgent.get(name, ()))) is None:
            return oldest
        if self._shares.of(name).is_turn_of_oldest:
            aged = self._first(sorted(filter(_is_aged, self.urgent[name]), key=_age))
            return min(filter(None, (oldest, aged)), key=_age, default=urgent)
        return urgent

    def next_of_all(self, may_start: Callable[[Worker[Any]], bool]) -> Held | None:
        """The job of all names that starts next."""
        names = {*self._by_name, *self.urgent} if self.urgent else self._by_name
        found = [self.next_of(name) for name in names]
        ready = [held for held in found if held is not None and may_start(held.worker)]
        # All names have one share here: each has offered its oldest job if it is the turn of that.
        if self.urgent and self._shares.is_turn_of_oldest:
            ready = [held for held in ready if not held.priority or held.is_aged] or ready
            return min(ready, key=_age, default=None)
        return min(ready, key=_rank, default=None)

    def count_start(self, held: Held) -> None:
        """A job starts: count it, so that the oldest one has its turn in time."""
        if held.priority or self._shares.is_counting:
            self._shares.of(held.worker.name).started(urgent=held.priority > 0, is_aged=held.is_aged)

    def overdue(self, limit: float) -> list[Held]:
        """The jobs that have waited since before *limit* (`time.monotonic`)."""
        # The first of each name has waited longest; urgent ones are not in the order of their claims.
        if not self.urgent and not any(line and line[0].since < limit for line in self._by_name.values()):
            return []
        return [held for held in self if held.since < limit]

    def _first(self, line: Iterable[Held]) -> Held | None:
        """The first one that may start."""
        for held in line:
            if held.earlier is None or held.earlier not in self._unsettled:
                return held
        return None


def _rank(held: Held) -> tuple[int, datetime, Key]:
    """Where a job stands among those that wait."""
    return -held.priority, *_age(held)


def _age(held: Held) -> tuple[datetime, Key]:
    return due_of(held.claim) or EARLIEST, held.key


def _is_aged(held: Held) -> bool:
    return held.is_aged
