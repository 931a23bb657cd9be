"""Other instances that are after the same jobs: how they are noticed, and how to keep out of their way.

Two claims that go through the same jobs at the same time meet in a write conflict at every single one, and
stay together: the one behind finds jobs that are taken already, is faster for it, and catches up again. So
an instance that has met others takes its jobs from a place of its own further back, leaves every other few of
them out, and keeps to the place while nobody else is there.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Sequence
from datetime import datetime

from monque._store.document import Document

# For so many claims after the last trouble we stay out of the way: after much of it, and after little.
_LONG = 16
_SHORT = 8

# Losing more than one in so many to others means that they are in the same place.
_TOLERATED = 8

# With others around nobody takes more at once than this share of what there seems to be, and when all of it
# is in sight, than that share; but always this many.
_SHARE = 8
_SHARE_OF_THE_LAST = 4
_FEWEST = 16
_FEWEST_OF_THE_LAST = 4

# How far back to look for a place, at most: the server walks through all that is passed over. And in how many
# times what is looked at there: who takes one job at a time stays near the oldest.
_DEEPEST = 8192
_WIDTHS = 8

# Neighbours are taken in runs of so many: each gap costs the server another search in the index, thrice.
_RUN = 8

# How often to go to the oldest jobs all the same: with everybody further back they would wait for ever.
_TO_THE_FRONT = 1 / 16


class Others:
    """What is known of other instances."""

    def __init__(self) -> None:
        self._wary = 0
        self._expected: Document | None = None
        self._place = random.random()  # noqa: S311 - spreads contenders
        self._depth = _DEEPEST

    @property
    def are_near(self) -> bool:
        """They have taken what we were after, lately."""
        return self._wary > 0

    def learn(self, *, chosen: int, won: int) -> None:
        """So many were chosen, and so many were still there."""
        lost = chosen - won
        if lost > chosen // _TOLERATED:
            self._wary = _LONG
            self._place = random.random()  # noqa: S311 - spreads contenders
        elif lost:
            self._wary = max(self._wary, _SHORT)
        elif self._wary:
            self._wary -= 1

    def leave(self, left: Sequence[Document]) -> None:
        """These are due and were left for later, the earliest first; alone, we would meet the first again."""
        self._expected = left[0] if left and not self._wary else None

    def have_taken(self, names: Collection[str], found: Sequence[Document], *, complete: bool) -> bool:
        """Whether the job we left is gone: so somebody else seems to be here."""
        expected, self._expected = self._expected, None
        if expected is None or expected["name"] not in names:
            return False
        if not complete and place_of(found[-1]) < place_of(expected):
            return False  # older ones came before it, of names that had no room
        return all(entry["_id"] != expected["_id"] for entry in found)

    def beware(self) -> None:
        """Keep out of the way, although nothing was lost."""
        self._wary = max(self._wary, _SHORT)

    def leave_some(self, wanted: int) -> int:
        """How many of the wanted to take, so that there is something for everybody."""
        return min(wanted, max(self._depth // _SHARE, _FEWEST))

    def share(self, due: Sequence[Document]) -> int:
        """How many to take of the last ones."""
        return max(len(due) // _SHARE_OF_THE_LAST, _FEWEST_OF_THE_LAST)

    def place(self, width: int) -> int:
        """How many due jobs to pass over, to find so many others where nobody else is likely to be."""
        if random.random() < _TO_THE_FRONT:  # noqa: S311 - spreads contenders
            return 0
        return int(self._place * max(min(self._depth, width * _WIDTHS) - width, 0))

    def saw(self, due: int | None) -> None:
        """There are so many due jobs in all; without a number: more than were looked for."""
        if due is not None:
            self._depth = due
        elif self._wary:  # not far more at once: where there are none, nothing is found
            self._depth = min(max(self._depth, _FEWEST) * 5 // 4, _DEEPEST)
        else:
            self._depth = _DEEPEST

    def sample(self, due: list[Document], wanted: int) -> list[Document]:
        """All of them, so that the first *wanted* are some at random, in short runs."""
        runs = -(-len(due) // _RUN)
        picked = set(random.sample(range(runs), min(-(-wanted // _RUN), runs)))
        order = [*sorted(picked), *(run for run in range(runs) if run not in picked)]
        return [entry for run in order for entry in due[run * _RUN : (run + 1) * _RUN]]


def place_of(entry: Document) -> tuple[datetime, bytes]:
    """Where a job stands among those that are pending."""
    # The bytes of an id compare as the id does, without a call for each pair; what is no id has none.
    return entry["nextRunAt"], getattr(entry["_id"], "binary", b"")
