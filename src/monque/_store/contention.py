"""Other instances that claim the same jobs: how they are noticed, and how to stay out of their way.

Two claims that go through the same jobs at the same time meet in a write conflict at every single one, and
they stay together: the one behind finds jobs that are taken already, is faster for it, and catches up again.
So an instance that has lost jobs takes the next ones at a place of its own further back in the queue, and
keeps to that place while it loses nothing there. After some claims without a loss it returns to the oldest.
"""

from __future__ import annotations

import random

from monque._store.document import Entry

# How many jobs one claim takes, at first and at most. Instances that wake together all see the same oldest
# jobs: with 32 at first they lose twice as many before they notice each other, with 8 a lone instance needs
# one more claim to reach its full batch. At most: see "Claims of 1,000" in docs/internals/performance.md.
_FIRST_BATCH = 16
_LARGEST_BATCH = 1024

# The next claim may take this many times as many. A lone instance reaches the full batch with its third
# claim; with a quarter of it, with the fifth, which took 50 ms of a drain of 20,000 jobs. Instances that
# start together notice each other by the first claim, whatever comes then.
_GROWTH = 16

# How many claims without a loss end the contention. With half as many, instances return to the oldest jobs
# twice as often and meet there; with twice as many, the oldest jobs wait longer.
_LASTS = 12

# An instance moves to another place if it loses more than this share of a claim: somebody else works there.
# With twice of it, it stays where it loses a quarter; with half of it, a few lost jobs send it away.
_TOLERATED = 1 / 8

# An instance takes at most this share of the due jobs (as far as `_DEEPEST`), but always `_FIRST_BATCH`. With
# half of it, four processes drained 0.93 of what they drain now; with twice of it, instances meet far more.
_SHARE = 1 / 8

# The same where all due jobs are in sight: the backlog is about to end. With half of it, the last claims are
# many and small, and ten instances drain about a tenth less; with twice of it, two take all and meet.
_SHARE_OF_THE_LAST = 1 / 4

# Every so many claims go to the oldest jobs all the same: with every instance further back they would wait
# for ever. With half as many, instances meet there twice as often; with twice as many, the oldest jobs wait
# longer.
_TO_THE_FRONT = 16

# How far back a place may be: in due jobs, and in windows (see `skip`). The server walks through all that are
# skipped. At twice of it that takes twice as long; at half of it fewer instances find a place of their own.
_DEEPEST = 8192
_WINDOWS = 8

# Jobs are taken in runs of this many neighbours. With half as many, each claim, its reading and its settling
# need twice as many index searches; with twice as many, two instances that meet share longer runs.
_RUN = 8


class Contention:
    """What is known of other instances, and what follows for the next claim."""

    def __init__(self) -> None:
        self._batch = _FIRST_BATCH
        self._claims = 0
        self._claims_left = 0
        self._place = random.random()  # noqa: S311 - spreads contenders
        self._depth = _DEEPEST
        self._share = _SHARE

    @property
    def is_contended(self) -> bool:
        """Whether other instances took jobs that we were after, lately."""
        return self._claims_left > 0

    def record_claim(self, *, chosen: int, won: int) -> None:
        """Record how many of the chosen jobs a claim got; the others were lost to somebody else."""
        lost = chosen - won
        self._claims += 1
        if lost:
            self._claims_left = _LASTS
        elif self._claims_left:
            self._claims_left -= 1
        if not self.tolerates(chosen, won):
            self._place = random.random()  # noqa: S311 - spreads contenders
        if chosen == 0:
            self._batch = _FIRST_BATCH
        elif won == 0:
            self._batch = max(self._batch // 2, _FIRST_BATCH)
        elif lost <= chosen // 4:
            self._batch = min(max(self._batch, chosen * _GROWTH), _LARGEST_BATCH)

    def tolerates(self, chosen: int, won: int) -> bool:
        """Whether a claim lost so few jobs that its place is still a good one."""
        return chosen - won <= chosen * _TOLERATED

    def assume_contention(self) -> None:
        """Stay out of the way of somebody else, although nothing was lost yet."""
        self._claims_left = _LASTS

    def record_depth(self, due: int, *, is_all: bool) -> None:
        """Record how many due jobs a poll saw or skipped: all that there are, or some of them."""
        self._share = _SHARE_OF_THE_LAST if is_all else _SHARE
        if is_all:
            self._depth = due
        elif self.is_contended:  # not far more at once: where there are none, nothing is found
            self._depth = min(max(self._depth, due, _FIRST_BATCH) * 5 // 4, _DEEPEST)
        else:
            self._depth = _DEEPEST

    def fair_batch(self, limit: int) -> int:
        """How many jobs to take, at most *limit*."""
        limit = min(limit, self._batch)
        return min(limit, max(int(self._depth * self._share), _FIRST_BATCH)) if self.is_contended else limit

    def skip(self, window: int) -> int:
        """How many due jobs to skip, to find a window of them where nobody else is likely to be."""
        if not self.is_contended or self._claims % _TO_THE_FRONT == 0:
            return 0
        return int(self._place * max(min(self._depth, window * _WINDOWS) - window, 0))


def spread(due: list[Entry], wanted: int) -> tuple[list[Entry], list[Entry]]:
    """About *wanted* of the due jobs, and the others.

    They are runs of neighbours at random, so that two instances share few.
    """
    runs = range(0, len(due), _RUN)
    picked = set(random.sample(runs, min(-(-wanted // _RUN), len(runs))))
    chosen, rest = list[Entry](), list[Entry]()
    for at in runs:
        (chosen if at in picked else rest).extend(due[at : at + _RUN])
    return chosen, rest
