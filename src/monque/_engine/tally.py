"""How runs end, counted in memory, by job name."""

from __future__ import annotations

import time
from bisect import bisect_right
from datetime import UTC, datetime

from monque._store.trends import MOST_NAMES, OTHERS, Counts
from monque._time.clock import Clock
from monque._trends import BOUNDS

# The last bucket has no end.
_LAST = len(BOUNDS) - 1
_EPOCH = datetime.fromtimestamp(0, UTC)


class Tally:
    """Counts each run that is settled: plain numbers, because every job pays for it."""

    __slots__ = ("_by_name", "_clock", "_server_minus_counter")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._by_name: dict[str, Counts] = {}
        self._server_minus_counter = 0.0
        """The server's time in seconds since 1970, minus `time.perf_counter`; `cut` sets it."""

    def count(self, name: str, ending: str, ran: float, started: float, due: float | None) -> None:
        """Count a run that took *ran* seconds and *started* then (`time.perf_counter`; 0: it never did).

        *due* is when its time had come, in seconds since 1970, by the server's clock.
        """
        counts = self._by_name.get(name)
        if counts is None:
            counts = self._begin(name)
        counts.endings[ending] += 1
        if not started:
            return
        counts.ran += ran
        counts.ran_by_bucket[bisect_right(BOUNDS, ran * 1000, 0, _LAST)] += 1
        if due is not None:
            waited = self._server_minus_counter + started - due
            if waited < 0.0:  # the server's clock is known to some milliseconds
                waited = 0.0
            counts.waited += waited
            counts.waited_by_bucket[bisect_right(BOUNDS, waited * 1000, 0, _LAST)] += 1

    def _begin(self, name: str) -> Counts:
        if len(self._by_name) >= MOST_NAMES:
            name = OTHERS
        return self._by_name.setdefault(name, Counts())

    def cut(self) -> dict[str, Counts]:
        """Return what was counted since the last cut, and begin anew."""
        self._server_minus_counter = (self._clock.now() - _EPOCH).total_seconds() - time.perf_counter()
        counted, self._by_name = self._by_name, {}
        return counted
