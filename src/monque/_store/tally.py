"""How runs end, counted in memory, by job name. Every job pays for it, so it takes no detour."""

from __future__ import annotations

import time
from bisect import bisect_right
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from monque._store.trends import MOST_NAMES, OTHERS, Counts
from monque._time.clock import Clock
from monque._trends import BOUNDS

# In seconds. The last bucket has no end.
_BOUNDS = [bound / 1000 for bound in BOUNDS[:-1]]
_FIRST = _BOUNDS[0]


class Tally:
    """Counts each run that is settled, from one cut to the next."""

    __slots__ = ("_by_name", "_clock", "_counter", "_now")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._by_name: dict[str, Counts] = {}
        # The server's time at one moment, naive as in claims, and `time.perf_counter` at the same moment. No
        # run needs a clock of its own then.
        self._now = datetime.fromtimestamp(0, UTC).replace(tzinfo=None)
        self._counter = 0.0

    def count(self, name: str, ending: str, ran: float, started: float, claim: Mapping[str, Any]) -> None:
        """Count a run that took *ran* seconds and *started* then (`time.perf_counter`; 0: it never did)."""
        counts = self._by_name.get(name) or self._begin(name)
        counts.endings[ending] += 1
        if not started:
            return
        counts.ran += ran
        counts.ran_by_bucket[0 if ran < _FIRST else bisect_right(_BOUNDS, ran)] += 1
        due: Any = claim.get("nextRunAt")
        try:
            waited = (self._now - due).total_seconds() + started - self._counter
        except TypeError:
            if type(due) is not datetime:
                return  # somebody has written something else by hand
            waited = (self._now - due.replace(tzinfo=None)).total_seconds() + started - self._counter
        if waited < 0.0:  # the server's clock is known to some milliseconds
            waited = 0.0
        counts.waited += waited
        counts.waited_by_bucket[bisect_right(_BOUNDS, waited)] += 1

    def _begin(self, name: str) -> Counts:
        if len(self._by_name) >= MOST_NAMES:
            name = OTHERS
        return self._by_name.setdefault(name, Counts())

    def cut(self) -> dict[str, Counts]:
        """Return what was counted since the last cut, and begin anew."""
        self._now, self._counter = self._clock.now().replace(tzinfo=None), time.perf_counter()
        counted, self._by_name = self._by_name, {}
        return counted
