"""Room for jobs: how many may run, and how many more are worth claiming ahead."""

from __future__ import annotations

from collections import Counter

from monque._options import Options
from monque._workers import Workers

# Claim ahead only what will start within this time, judging by how long jobs of the name took lately.
_HORIZON = 0.1
_MOST_AHEAD = 2_000
_MOST_BYTES_AHEAD = 16 * 2**20
_MOST_AT_ONCE = 1_000

# Handlers that have ended and whose result is not stored yet: beyond this, settling is what is slow, and
# claiming more would not help.
_MOST_SETTLING = 5_000


class Slots:
    """Counts what runs and what waits here, by job name.

    A slot is taken while a handler runs, not while its result is being written. Short jobs are
    claimed ahead of the free slots, so that one round trip to the database serves many of them; long
    ones never are, they would wait here while another instance may be idle.
    """

    def __init__(self, workers: Workers, options: Options, running: Counter[str]) -> None:
        self._workers = workers
        self._options = options
        self._running = running  # shared with earlier and later runners of the same instance
        self._held: Counter[str] = Counter()
        self._held_in_all = 0
        self._running_here = 0  # without those that an earlier runner has started
        self._pace: dict[str, float] = {}
        self._size = 0.0
        self._most_ahead = _MOST_AHEAD
        self._longest_wait = 0.0

    def weigh(self, size: int) -> None:
        """A claimed job has so many bytes: what waits here must fit into memory, however short it runs."""
        self._size += (size - self._size) * (0.2 if self._size else 1.0)
        self._most_ahead = min(self._most_ahead, self._most_by_size())

    def hold(self, name: str) -> None:
        """A claimed job waits for a slot."""
        self._held[name] += 1
        self._held_in_all += 1

    def let_go(self, name: str) -> None:
        """It was given back, or is not ours any more."""
        self._held[name] -= 1
        self._held_in_all -= 1

    def start(self, name: str, *, waited: float) -> None:
        """It waits no longer: its handler begins to run."""
        self._held[name] -= 1
        self._held_in_all -= 1
        self._running[name] += 1
        self._running_here += 1
        if waited > self._longest_wait:
            self._longest_wait = waited

    def end(self, name: str, seconds: float) -> None:
        """A handler has run this long.

        One slow run counts at once, many quick ones make up for it gradually: claiming too few
        costs a round trip, claiming too many makes jobs wait.
        """
        self._running[name] -= 1
        self._running_here -= 1
        pace = self._pace.get(name, seconds)
        self._pace[name] = max(seconds, pace + (seconds - pace) * 0.1)

    def waited(self, name: str, seconds: float) -> None:
        """A job was held this long in vain: jobs of its name have become slow, none has ended to show it."""
        self._pace[name] = max(seconds, self._pace.get(name, 0.0))

    def may_start(self, name: str) -> bool:
        """Whether a slot is free."""
        if self._running[name] >= self._concurrency(name):
            return False
        limit = self._options.instance_concurrency
        return limit is None or self._running.total() < limit

    @property
    def full_names(self) -> list[str]:
        """The names served here that have no free slot."""
        served = (worker.name for worker in self._workers if self._workers.serves(worker.name))
        return [name for name in served if not self.may_start(name)]

    @property
    def low(self) -> bool:
        """Whether so few wait here that it may be worth claiming more."""
        return self._held_in_all <= self._most_ahead // 2

    def wanted(self, unsettled: int) -> tuple[dict[str, int], int]:
        """How many jobs of each name to claim, and how many in all.

        Only when half of what may be here is gone: few large claims, not many small. *unsettled* counts all
        runs of this runner: those that wait for a slot, those that run, and those that are being settled.
        """
        if not self.low:
            return {}, 0
        room = {}
        free_in_all = ahead_in_all = 0
        for worker in self._workers:
            name = worker.name
            if not self._workers.serves(name):
                continue
            slots, ahead = self._concurrency(name), self._ahead(name)
            free = slots - self._running[name]
            held = self._held[name]
            wanted = free + ahead - held
            if wanted > 0 and (free > held or wanted >= (slots + ahead) // 2):
                room[name] = wanted
                free_in_all += free
                ahead_in_all = min(ahead_in_all + ahead, self._most_ahead)
        if self._options.instance_concurrency is not None:
            free_in_all = min(free_in_all, self._options.instance_concurrency - self._running.total())
        settling = unsettled - self._held_in_all - self._running_here
        limit = min(free_in_all + ahead_in_all - self._held_in_all, _MOST_AT_ONCE, _MOST_SETTLING - settling)
        if limit <= 0:
            return {}, 0
        self._learn()
        return room, limit

    def _learn(self) -> None:
        """However short the jobs are: what waited too long was too much, for a machine this busy."""
        if self._longest_wait > _HORIZON:
            self._most_ahead = max(int(self._most_ahead * _HORIZON / self._longest_wait), 1)
        elif self._longest_wait:
            self._most_ahead = min(self._most_ahead * 2, self._most_by_size())
        self._longest_wait = 0.0

    def _most_by_size(self) -> int:
        return min(max(int(_MOST_BYTES_AHEAD / max(self._size, 1.0)), 1), _MOST_AHEAD)

    def _ahead(self, name: str) -> int:
        pace = self._pace.get(name)
        if pace is None or pace > _HORIZON:
            return 0
        slots, shared = self._concurrency(name), self._options.instance_concurrency
        if shared is not None:
            if len(self._workers) > 1:
                return 0  # a slot is for the oldest job of all names: one held here would overtake it
            slots = min(slots, shared)
        return min(int(slots * _HORIZON / max(pace, 1e-6)), self._most_ahead)

    def _concurrency(self, name: str) -> int:
        worker = self._workers.get(name)
        return (worker.concurrency if worker else None) or self._options.worker_concurrency
