"""Slots and prefetch: how many jobs may run here, how many more to claim, and which one starts next."""

from __future__ import annotations

import os
import sys
from bisect import insort
from collections import Counter, deque
from collections.abc import Callable, Container, Iterable, Iterator
from datetime import datetime
from itertools import chain
from typing import Any

from monque._engine.claimed import Held, Key
from monque._engine.pauses import Control
from monque._store.choose import SharedRoom, Shares
from monque._store.document import EARLIEST, due_of
from monque._values.options import Options
from monque._workers.workers import Worker, Workers


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


# Prefetch only what will start within this time, judging by recent run times. It covers the round trips of a
# claim on a busy server. With half of it, default options drain a tenth slower; with twice, a job waits twice
# as long here while another instance may have a free slot.
_HORIZON = 0.1

# Prefetch fewer if a job has waited longer than this. It is more than the horizon: on a machine with more
# processes than cores every job waits, and small claims make that worse. At less than half of it, four
# processes on two cores send almost twice as many claims, with a quarter more client CPU a job. At twice of
# it, jobs are held for so long that some are released and claimed again.
_LONGEST_WAIT = 0.25

# The most jobs to prefetch: two claims of the largest size. With half as many, the slots run dry while a
# claim is in progress; twice as many give nothing.
_MOST_PREFETCHED = 2_000

# The most memory for prefetched payloads. Half of it would limit jobs of 10 kB already; twice as much is a
# lot for a small container.
_MOST_BYTES = 16 * 2**20

# The most jobs of one claim. With half as many, a drain is a tenth slower; with twice as many, one command
# keeps the server busy for so long that other commands wait.
_LARGEST_CLAIM = 1_000

# Handlers that have ended and whose result is not stored. With so many, settling is the bottleneck, and more
# claims would not help: half as many could stop claiming in a short burst, twice as many only take memory.
_MOST_SETTLING = 5_000

# How much one new value counts in a moving average of sizes, and of run times that became shorter. Twice as
# much follows every outlier; half as much needs twice as many jobs to notice a change.
_WEIGHT_OF_SIZE = 0.2
_WEIGHT_OF_TIME = 0.1


class Capacity:
    """Counts what runs here, by job name, and says how much more to claim.

    A slot is taken while a handler runs, not while its result is being written. Short jobs are prefetched, so
    that one round trip to the database serves many of them. Long ones never are: they would wait here while
    another instance may be idle.
    """

    def __init__(
        self,
        workers: Workers,
        options: Options,
        running: Counter[str],
        prefetch: Prefetch,
        control: Control,
    ) -> None:
        self._workers = workers
        self._options = options
        self._running = running  # shared with earlier and later runners of the same instance
        self._prefetch = prefetch
        self.control = control
        """Which names are paused."""
        self._running_here = 0  # without those that an earlier runner has started
        self._run_times: dict[str, float] = {}
        self._size = 0.0
        self._most_prefetched = _MOST_PREFETCHED
        self._longest_wait = 0.0
        self.is_awaited = True
        """The claim loop waits for room: it left jobs behind, or had no room for some name."""
        self._closed = False
        self._most_children = options.child_processes or cores()
        self._shares_children = False
        """Workers of several names run in the same child processes."""

    @property
    def is_shared(self) -> bool:
        """Whether all names together have a limit, so that a slot of one name is a slot for all."""
        return self._options.instance_concurrency is not None

    def close(self) -> None:
        """Give no slot any more; the next runner waits for those that become free."""
        self._closed = self.is_awaited = True

    def record_size(self, size: int) -> None:
        """Record the size of one claimed document, so that prefetched jobs stay within the limit."""
        self._size += (size - self._size) * (_WEIGHT_OF_SIZE if self._size else 1.0)
        self._most_prefetched = min(self._most_prefetched, self._most_by_size())

    def start(self, name: str, *, waited: float) -> None:
        """A job starts that has waited this long."""
        self._running[name] += 1
        self._running_here += 1
        if waited > self._longest_wait:
            self._longest_wait = waited

    def end(self, name: str, seconds: float) -> None:
        """A handler has run this long.

        One slow run counts at once, quick ones lower the average gradually: to claim too few costs a round
        trip, to claim too many makes jobs wait.
        """
        self._running[name] -= 1
        self._running_here -= 1
        self._note_run_time(name, seconds)

    def passed_by(self, name: str) -> None:
        """A job was settled without a call of its handler, which takes no time.

        Where thousands of jobs have to be cancelled, each claim then takes as many as it may. If the next
        ones run long again, those that were prefetched in vain are soon released, and `waited` notes it.
        """
        self._note_run_time(name, 0.0)

    def _note_run_time(self, name: str, seconds: float) -> None:
        before = self._run_times.get(name, seconds)
        self._run_times[name] = max(seconds, before + (seconds - before) * _WEIGHT_OF_TIME)

    def waited(self, name: str, seconds: float) -> None:
        """A job was held in vain: jobs of its name have become slow, and none has ended to show it."""
        self._run_times[name] = max(seconds, self._run_times.get(name, 0.0))

    def may_start(self, worker: Worker[Any]) -> bool:
        """Whether a slot is free."""
        if self._closed or self._running[worker.name] >= self.slots_of(worker):
            return False
        if worker.address is not None and self._free_children() <= 0:
            return False
        limit = self._options.instance_concurrency
        return limit is None or self._running.total() < limit

    def free_slots(self, worker: Worker[Any]) -> int:
        """How many slots of a worker are free, not counting the limit that all names share."""
        return self.slots_of(worker) - self._running[worker.name]

    def next_name(self, name: str) -> str:
        """Whose held job gets a free slot of this name; a shared slot is for the oldest job of all names."""
        oldest = None
        if self.is_shared:
            oldest = self._prefetch.next_of_all(self.may_start)
        elif self._shares_children and self._needs_child(name):
            oldest = self._prefetch.next_of_all(self._may_start_in_child)
        return name if oldest is None else oldest.worker.name

    def _needs_child(self, name: str) -> bool:
        worker = self._workers.get(name)
        return worker is not None and worker.address is not None

    def _may_start_in_child(self, worker: Worker[Any]) -> bool:
        return worker.address is not None and self.may_start(worker)

    def _free_children(self) -> int:
        """How many child processes could run a job now."""
        busy = sum(self._running[worker.name] for worker in self._workers if worker.address is not None)
        return self._most_children - busy

    @property
    def full_names(self) -> list[str]:
        """The names served here that have no free slot; without those that are paused."""
        return [worker.name for worker in self._served() if not self.may_start(worker)]

    def _served(self) -> Iterator[Worker[Any]]:
        """The workers whose jobs are wanted here."""
        for worker in self._workers:
            if self._workers.serves(worker.name) and not self.control.holds_back(worker.name):
                yield worker

    @property
    def is_low(self) -> bool:
        """Whether so few jobs wait here that a claim may be worth while: few large claims, not many small."""
        return self._prefetch.count <= self._most_prefetched // 2

    def wanted(self, unsettled: int) -> tuple[dict[str, int], int]:
        """How many jobs of each name to claim, and how many in all.

        *unsettled* counts all claims of this runner: those that wait, those that run and those that are being
        settled.
        """
        self.is_awaited = True
        if not self.is_low:
            return {}, 0
        room: dict[str, int] = {}
        in_children: list[Worker[Any]] = []
        served = free_in_all = ahead_in_all = 0
        for worker in self._served():
            name = worker.name
            served += 1
            slots = self.slots_of(worker)
            ahead = self._ahead(name, slots)
            if worker.address is not None:
                in_children.append(worker)
                # A child that is used up is replaced, which takes as long as thousands of short jobs.
                ahead = min(ahead, slots)
            free, held = slots - self._running[name], self._prefetch.count_of(name)
            wanted = free + ahead - held
            if wanted > 0 and (free > held or wanted >= (slots + ahead) // 2):
                room[name] = wanted
                free_in_all += free
                ahead_in_all = min(ahead_in_all + ahead, self._most_prefetched)
        self._shares_children = len(in_children) > 1
        if self._shares_children:
            room, taken_twice = self._share_children(room, in_children)
            free_in_all -= taken_twice
        if self._options.instance_concurrency is not None:
            free_in_all = min(free_in_all, self._options.instance_concurrency - self._running.total())
        settling = unsettled - self._prefetch.count - self._running_here
        limit = min(
            free_in_all + ahead_in_all - self._prefetch.count, _LARGEST_CLAIM, _MOST_SETTLING - settling
        )
        if limit <= 0:
            return {}, 0
        self._adapt()
        self.is_awaited = self._closed or len(room) < served
        return room, limit

    def _share_children(self, room: dict[str, int], workers: list[Worker[Any]]) -> tuple[dict[str, int], int]:
        """The room of names that share the children: together not more than these, and nothing ahead.

        Return with it how many free slots were counted for more than one name.
        """
        left = self._free_children() - sum(self._prefetch.count_of(worker.name) for worker in workers)
        counted = 0
        for worker in workers:
            if room.pop(worker.name, None) is None:
                continue
            free = self.slots_of(worker) - self._running[worker.name]
            counted += free
            if (wanted := min(free - self._prefetch.count_of(worker.name), left)) > 0:
                room[worker.name] = wanted
        together = frozenset(worker.name for worker in workers if worker.name in room)
        return SharedRoom(room, together, left), max(counted - max(left, 0), 0)

    def _adapt(self) -> None:
        """Shrink the prefetch if a job waited too long; grow it back otherwise."""
        if self._longest_wait > _LONGEST_WAIT:
            self._most_prefetched = max(int(self._most_prefetched * _LONGEST_WAIT / self._longest_wait), 1)
        elif self._longest_wait:
            self._most_prefetched = min(self._most_prefetched * 2, self._most_by_size())
        self._longest_wait = 0.0

    def _most_by_size(self) -> int:
        return min(max(int(_MOST_BYTES / max(self._size, 1.0)), 1), _MOST_PREFETCHED)

    def _ahead(self, name: str, slots: int) -> int:
        """How many jobs of a name to prefetch beyond its free slots."""
        run_time = self._run_times.get(name)
        if run_time is None or run_time > _HORIZON:
            return 0
        shared = self._options.instance_concurrency
        if shared is not None:
            if len(self._workers) > 1:
                return 0  # a slot is for the oldest job of all names: a prefetched one would overtake it
            slots = min(slots, shared)
        return min(int(slots * _HORIZON / max(run_time, 1e-6)), self._most_prefetched)

    def slots_of(self, worker: Worker[Any]) -> int:
        """How many handlers of a worker may run at once."""
        slots = worker.concurrency or self._options.worker_concurrency
        return slots if worker.address is None else min(slots, self._most_children)


def cores() -> int:
    """How many cores this process may use."""
    if sys.platform == "linux":
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
