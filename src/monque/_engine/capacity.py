"""Slots: how many jobs may run here, which wait for one, which starts next, and how many more to claim."""

from __future__ import annotations

import os
import sys
import time
from bisect import insort
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from datetime import datetime
from itertools import chain
from typing import Any, TypeAlias

from monque._engine.claimed import Held
from monque._engine.limits import Limits
from monque._engine.pauses import Control
from monque._store.choose import SharedRoom, Shares
from monque._store.document import Key
from monque._values.options import Options
from monque._workers.workers import Worker, Workers

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
# claim is in progress.
_MOST_PREFETCHED = 2_000

# The most memory for prefetched payloads: enough for jobs of 8 kB, and little in a small container.
_MOST_BYTES = 16 * 2**20

# The most jobs of one claim. With half as many, a drain is a tenth slower; with twice as many, one command
# keeps the server busy for so long that other commands wait.
_LARGEST_CLAIM = 1_000

# Handlers that have ended and whose result is not stored. With so many, settling is the bottleneck, and more
# claims would not help.
_MOST_SETTLING = 5_000

# How much one new value counts in a moving average of sizes, and of run times that became shorter.
_WEIGHT_OF_SIZE = 0.2
_WEIGHT_OF_TIME = 0.1


class InstanceLimit:
    """The limit that all names have together (`Options.instance_concurrency`)."""

    is_shared = True
    """Several names need it, so a slot of one of them is a slot for all of them."""

    def __init__(self, limit: int, workers: Workers, running: Counter[str]) -> None:
        self._limit = limit
        self._workers = workers
        self._running = running

    def covers(self, _worker: Worker[Any]) -> bool:
        """Return True: it is for all names."""
        return True

    @property
    def free(self) -> int:
        """The number of jobs that may start now."""
        return self._limit - self._running.total()

    def most_ahead(self, slots: int, run_time: float) -> int:
        """The most jobs of one name to prefetch."""
        if len(self._workers) > 1:
            return 0  # a slot is for the oldest job of all names: a prefetched one would overtake it
        return _starting_soon(min(slots, self._limit), run_time)

    def narrow(
        self, _served: Sequence[Worker[Any]], room: dict[str, int], free: int
    ) -> tuple[dict[str, int], int]:
        """Return how many jobs of each name to claim, and how many slots are free in all."""
        return room, min(free, self.free)


class ChildLimit:
    """The child processes, which all names with `mode="process"` share."""

    def __init__(
        self, options: Options, workers: Workers, running: Counter[str], held: Callable[[str], int]
    ) -> None:
        self.is_shared = False
        self._slots = options.worker_concurrency
        self._most = options.child_processes or cores()
        self._workers = workers
        self._running = running
        self._held = held

    def covers(self, worker: Worker[Any]) -> bool:
        """Return whether the handler runs in a child process."""
        return worker.address is not None

    @property
    def free(self) -> int:
        """The number of child processes that could run a job now."""
        return self._most - sum(self._running[worker.name] for worker in self._workers if self.covers(worker))

    def slots_of(self, worker: Worker[Any]) -> int:
        """The number of handlers of a worker that may run at once."""
        return min(worker.concurrency or self._slots, self._most)

    def most_ahead(self, slots: int, _run_time: float) -> int:
        """The most jobs of one name to prefetch: a used-up child is replaced, which takes long."""
        return slots

    def narrow(
        self, served: Sequence[Worker[Any]], room: dict[str, int], free: int
    ) -> tuple[dict[str, int], int]:
        """Give the names that share the children not more than these together, and nothing ahead.

        Free slots that were counted for more than one name are not counted twice.
        """
        workers = [worker for worker in served if self.covers(worker)]
        self.is_shared = len(workers) > 1
        if not self.is_shared:
            return room, free
        left = self.free - sum(self._held(worker.name) for worker in workers)
        counted = 0
        for worker in workers:
            if room.pop(worker.name, None) is None:
                continue
            own = self.slots_of(worker) - self._running[worker.name]
            counted += own
            if (wanted := min(own - self._held(worker.name), left)) > 0:
                room[worker.name] = wanted
        together = frozenset(worker.name for worker in workers if worker.name in room)
        return SharedRoom(room, together, left), free - max(counted - max(left, 0), 0)


Bound: TypeAlias = InstanceLimit | ChildLimit
"""Something that jobs of several names need, and of which there is less than they have slots."""


class Capacity:
    """Knows what runs and what waits here, by job name, which job starts next, and how many more to claim.

    A slot is taken while a handler runs, not while its result is being written. Short jobs are prefetched, so
    that one round trip to the database serves many of them. Long ones never are: they would wait here while
    another instance may be idle.

    *unsettled* holds the keys of all claims of this runner that are not settled: those that wait, those that
    run and those that are being settled. A job's next attempt waits until the one before it is settled. The
    server may have put the job back, and we have claimed it again, before we got the answer; nobody is to
    hear of the next start before the last end.

    An urgent job overtakes those that were claimed before it. *shares* says when it is the turn of the oldest
    one all the same.
    """

    def __init__(
        self,
        workers: Workers,
        options: Options,
        running: Counter[str],
        unsettled: Collection[Key],
        shares: Shares,
        control: Control,
    ) -> None:
        self._workers = workers
        self._slots = options.worker_concurrency
        self._running = running  # shared with earlier and later runners of the same instance
        self._running_here = 0  # without those that an earlier runner has started
        self._unsettled = unsettled
        self._shares = shares
        self._control = control
        self._lines: dict[str, deque[Held]] = {}
        self._urgent: dict[str, list[Held]] = {}
        """Those with a priority by name, as they start; a name without any is not in it."""
        self.waiting = 0
        """The number of claimed jobs that wait for a slot."""
        self.offers: deque[str] = deque()
        """One more job of each of these names may be able to start."""
        self._run_times: dict[str, float] = {}
        self._size = 0.0
        self._most_by_size = self._most_prefetched = _MOST_PREFETCHED
        self._longest_wait = 0.0
        self.is_awaited = True
        """The claim loop waits for room: it left jobs behind, or had no room for some name."""
        self._closed = False
        self._children = ChildLimit(options, workers, running, self.waiting_of)
        self._bounds: tuple[Bound, ...] = ()
        """The limits that names share, beside their own slots. A plain instance has none."""
        if options.instance_concurrency is not None:
            self._bounds = (InstanceLimit(options.instance_concurrency, workers, running),)
        if any(worker.address is not None for worker in workers):
            self._bounds += (self._children,)
        self._limits: Limits | None = None

    def limit_by(self, limits: Limits) -> None:
        """Claim no more jobs of limited names than have a turn."""
        self._limits = limits

    def close(self) -> None:
        """Give no slot any more; the next runner waits for those that become free."""
        self._closed = self.is_awaited = True

    def slots_of(self, worker: Worker[Any]) -> int:
        """The number of handlers of a worker that may run at once."""
        if worker.address is not None:
            return self._children.slots_of(worker)
        return worker.concurrency or self._slots

    def may_start(self, worker: Worker[Any]) -> bool:
        """Return whether a slot is free."""
        if self._closed or self._running[worker.name] >= self.slots_of(worker):
            return False
        return not self._bounds or all(bound.free > 0 for bound in self._bounds if bound.covers(worker))

    @property
    def full_names(self) -> list[str]:
        """The names served here that have no free slot; without those that are paused."""
        is_closed = self._limits.is_closed if self._limits is not None else lambda _name: False
        return [each.name for each in self._served() if is_closed(each.name) or not self.may_start(each)]

    def _served(self) -> list[Worker[Any]]:
        """The workers whose jobs are wanted here."""
        served = [worker for worker in self._workers if self._workers.serves(worker.name)]
        is_paused = self._control.is_paused
        return served if is_paused is None else [each for each in served if not is_paused(each.name)]

    # What waits for a slot, and what starts next.

    def waiting_of(self, name: str) -> int:
        """The number of jobs of a name that wait."""
        count = len(self._lines.get(name, ()))
        return count + len(self._urgent.get(name, ())) if self._urgent else count

    def held(self) -> Iterator[Held]:
        """The jobs that wait."""
        return chain.from_iterable((*self._urgent.values(), *self._lines.values()))

    def overdue(self, limit: float) -> list[Held]:
        """The jobs that have waited since before *limit* (`time.perf_counter`)."""
        # The first of each name has waited longest; urgent ones are not in the order of their claims.
        if not self._urgent and not any(line and line[0].since < limit for line in self._lines.values()):
            return []
        return [held for held in self.held() if held.since < limit]

    def hold(self, jobs: Sequence[Held]) -> None:
        """Let claimed jobs wait, and offer them the slots that are free, not counting what names share."""
        free: dict[str, int] = {}
        for held in jobs:
            name = held.worker.name
            if held.claim.priority:
                insort(self._urgent.setdefault(name, []), held, key=_rank)
            elif (line := self._lines.get(name)) is not None:
                line.append(held)
            else:
                self._lines[name] = deque((held,))
            if name not in free:
                free[name] = self.slots_of(held.worker) - self._running[name]
            if free[name] > 0:  # each of the others starts when a job ends
                free[name] -= 1
                self.offers.append(name)
        self.waiting += len(jobs)

    def offer(self, name: str) -> None:
        """A slot of this name is free, or a job of it may start that had to wait for another one."""
        self.offers.append(self._name_for(name))

    def offer_again(self, name: str) -> None:
        """A job of this name took no slot after all: the next one may have it, before others."""
        self.offers.appendleft(self._name_for(name))

    def next(self) -> Held | None:
        """The job that starts next, if a slot is free; who does not start it removes it."""
        while self.offers:
            name = self.offers.popleft()
            if self._urgent:
                held = self._next_of(self._name_for(name))
            else:
                held = self._first(self._lines.get(name, ()))
            if held is not None and self.may_start(held.worker):
                return held
        return None

    def start(self, held: Held) -> None:
        """A job leaves its line and takes a slot."""
        self.remove(held)
        name = held.worker.name
        self._running[name] += 1
        self._running_here += 1
        waited = time.perf_counter() - held.since
        if waited > self._longest_wait:
            self._longest_wait = waited
        if held.claim.priority or self._shares.is_counting:
            self._shares.of(name).started(urgent=held.claim.priority > 0, by_age=held.by_age)

    def skip(self, held: Held) -> None:
        """A job leaves its line and is settled without a call of its handler, which takes no time.

        Where thousands of jobs have to be cancelled, each claim then takes as many as it may. If the next
        ones run long again, those that were prefetched in vain are soon released, and `waited` notes it.
        """
        self.remove(held)
        self._note_run_time(held.worker.name, 0.0)

    def remove(self, held: Held) -> bool:
        """Take a job out; False if it does not wait any more."""
        name = held.worker.name
        line = self._urgent.get(name, []) if held.claim.priority else self._lines[name]
        if line and line[0] is held:  # mostly
            del line[0]
        elif held in line:
            line.remove(held)
        else:
            return False
        if held.claim.priority and not line:
            del self._urgent[name]
        self.waiting -= 1
        return True

    def end(self, name: str, seconds: float) -> None:
        """A handler has run this long, and leaves its slot.

        One slow run counts at once, quick ones lower the average gradually: to claim too few costs a round
        trip, to claim too many makes jobs wait.
        """
        self._running[name] -= 1
        self._running_here -= 1
        self._note_run_time(name, seconds)

    def _name_for(self, name: str) -> str:
        """The name whose job gets a free slot of this name; a shared slot is for the oldest of all jobs."""
        if not self._bounds or (worker := self._workers.get(name)) is None:
            return name
        for bound in self._bounds:
            if bound.is_shared and bound.covers(worker):
                oldest = self._next_of_all(bound)
                return name if oldest is None else oldest.worker.name
        return name

    def _next_of(self, name: str) -> Held | None:
        """The job of a name that starts next: the most urgent one, or the oldest one if it is its turn."""
        oldest = self._first(self._lines.get(name, ()))
        if not self._urgent or (urgent := self._first(self._urgent.get(name, ()))) is None:
            return oldest
        if self._shares.of(name).is_turn_of_oldest:
            by_age = self._first(sorted((each for each in self._urgent[name] if each.by_age), key=_age))
            return min(filter(None, (oldest, by_age)), key=_age, default=urgent)
        return urgent

    def _next_of_all(self, bound: Bound) -> Held | None:
        """The job that starts next, of all names that share something."""
        found = [self._next_of(name) for name in {*self._lines, *self._urgent}]
        ready = [held for held in found if held is not None and bound.covers(held.worker)]
        ready = [held for held in ready if self.may_start(held.worker)]
        # All names have one share here: each has offered its oldest job if it is the turn of that.
        if self._urgent and self._shares.is_turn_of_oldest:
            ready = [held for held in ready if not held.claim.priority or held.by_age] or ready
            return min(ready, key=_age, default=None)
        return min(ready, key=_rank, default=None)

    def _first(self, line: Iterable[Held]) -> Held | None:
        """The first one that may start."""
        for held in line:
            if held.earlier is None or held.earlier not in self._unsettled:
                return held
        return None

    # How many more to claim.

    @property
    def is_low(self) -> bool:
        """So few jobs wait that a claim may be worth while: few large claims, not many small."""
        return self.waiting <= self._most_prefetched // 2

    def wanted(self) -> tuple[dict[str, int], int]:
        """The number of jobs of each name to claim, and of all of them together."""
        self.is_awaited = True
        if not self.is_low:
            return {}, 0
        room: dict[str, int] = {}
        free_in_all = ahead_in_all = 0
        served = self._served()
        if self._limits is not None:  # a name without a free turn waits for that, not for a slot
            served = [worker for worker in served if self._limits.is_open(worker.name)]
        for worker in served:
            if worker.address is not None and self._children not in self._bounds:
                self._bounds += (self._children,)  # its worker was registered after the start
            name, slots = worker.name, self.slots_of(worker)
            ahead = self._ahead(worker, slots)
            free, held = slots - self._running[name], self.waiting_of(name)
            wanted = free + ahead - held
            if wanted > 0 and (free > held or wanted >= (slots + ahead) // 2):
                room[name] = wanted
                free_in_all += free
                ahead_in_all = min(ahead_in_all + ahead, self._most_prefetched)
        for bound in reversed(self._bounds):
            room, free_in_all = bound.narrow(served, room, free_in_all)
        if self._limits is not None:  # last, whatever names share
            self._limits.narrow(served, room)
        settling = len(self._unsettled) - self.waiting - self._running_here
        limit = min(free_in_all + ahead_in_all - self.waiting, _LARGEST_CLAIM, _MOST_SETTLING - settling)
        if limit <= 0:
            return {}, 0
        self._adapt()
        self.is_awaited = self._closed or len(room) < len(served)
        return room, limit

    def record_size(self, size: int) -> None:
        """Record the size of one claimed document, so that prefetched jobs stay within the limit."""
        self._size += (size - self._size) * (_WEIGHT_OF_SIZE if self._size else 1.0)
        self._most_by_size = min(max(int(_MOST_BYTES / max(self._size, 1.0)), 1), _MOST_PREFETCHED)
        self._most_prefetched = min(self._most_prefetched, self._most_by_size)

    def waited(self, name: str, seconds: float) -> None:
        """A job was held in vain: jobs of its name have become slow, and none has ended to show it."""
        self._run_times[name] = max(seconds, self._run_times.get(name, 0.0))

    def _note_run_time(self, name: str, seconds: float) -> None:
        before = self._run_times.get(name, seconds)
        self._run_times[name] = max(seconds, before + (seconds - before) * _WEIGHT_OF_TIME)

    def _adapt(self) -> None:
        """Shrink the prefetch if a job waited too long; grow it back otherwise."""
        if self._longest_wait > _LONGEST_WAIT:
            self._most_prefetched = max(int(self._most_prefetched * _LONGEST_WAIT / self._longest_wait), 1)
        elif self._longest_wait:
            self._most_prefetched = min(self._most_prefetched * 2, self._most_by_size)
        self._longest_wait = 0.0

    def _ahead(self, worker: Worker[Any], slots: int) -> int:
        """The number of jobs of a worker to prefetch beyond its free slots."""
        run_time = self._run_times.get(worker.name)
        if run_time is None or run_time > _HORIZON or worker.limit is not None:
            return 0  # one that is held here would hold a turn while another instance could use it
        ahead = min(_starting_soon(slots, run_time), self._most_prefetched)
        for bound in self._bounds:
            if bound.covers(worker):
                ahead = min(ahead, bound.most_ahead(slots, run_time))
        return ahead


def _starting_soon(slots: int, run_time: float) -> int:
    """The number of jobs with this run time that will start within the horizon."""
    return int(slots * _HORIZON / max(run_time, 1e-6))


def _rank(held: Held) -> tuple[int, datetime, Key]:
    """The place of a job among those that wait."""
    return -held.claim.priority, *_age(held)


def _age(held: Held) -> tuple[datetime, Key]:
    return held.claim.due, held.claim.key


def cores() -> int:
    """The number of cores that this process may use."""
    if sys.platform == "linux":
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
