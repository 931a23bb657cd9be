"""Jobs with a priority: which of them to claim before the others, and when to look for them at all.

The look is one covered find on `monque_urgent`. It is made only where the collection is used for priorities,
and then not with each poll: with each full poll, while the last look found some, after a wake-up for a job
with a priority, and during a backlog every 100 ms.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from typing import Any

from pymongo.asynchronous.collection import AsyncCollection

from monque._store import decoding
from monque._store.contention import spread
from monque._store.document import EARLIEST, Entry
from monque._store.indexes import URGENT
from monque._store.polling import NAMES_IN_ONE_QUERY

# How many urgent jobs one claim takes. With half as many, a flood of them needs twice as many claims; with
# twice as many, one instance holds more of them while others may have free slots.
MOST_AT_ONCE = 64

# How many are read after others were faster: some of them are taken in runs of neighbours, so that two
# instances meet less. Half of it leaves no choice; twice of it takes urgent jobs further out of their order.
_MOST_READ = 2 * MOST_AT_ONCE

# How often to look during a backlog. A look costs the server about 260 us of CPU for one name, so half of it
# becomes a visible cost; twice of it is a delay that users notice.
_LOOK_EVERY = 0.1

# One of this many jobs that start while urgent ones wait is the oldest due one, whatever its priority. With
# half as many, urgent jobs wait for more normal ones; with twice as many, normal ones wait twice as long.
ONE_OF = 8

# The share never remembers more starts than one claim can cause: an hour of urgent jobs alone must not be
# paid back with a thousand normal ones.
_MOST_REMEMBERED = MOST_AT_ONCE


class Share:
    """Keeps normal jobs from starving: counts the urgent jobs that start, and says whose turn it is.

    It is counted when jobs start, not when they are claimed: a claimed job may wait, or be released.
    """

    def __init__(self) -> None:
        self.urgent_starts = 0
        """How many urgent jobs have started since the oldest one had its turn."""

    @property
    def is_turn_of_oldest(self) -> bool:
        """Whether the next job to start is the oldest one, whatever its priority."""
        return self.urgent_starts >= ONE_OF - 1

    def started(self, *, urgent: bool, is_aged: bool = False) -> None:
        """A job has started: an *urgent* one, unless it *is_aged* and has this turn, or another one."""
        if urgent and not (is_aged and self.is_turn_of_oldest):
            self.urgent_starts = min(self.urgent_starts + 1, _MOST_REMEMBERED)
        else:
            self.urgent_starts = max(self.urgent_starts - (ONE_OF - 1), 0)

    def for_oldest(self, places: int) -> int:
        """How many of the next *places* jobs are taken for their age."""
        return min((self.urgent_starts + places) // ONE_OF, places)


class Shares:
    """The share of each name; one for all names where these share their slots, and so compete."""

    def __init__(self, *, shared: bool) -> None:
        self.is_shared = shared
        """Whether all names share their slots."""
        self._by_name: dict[str, Share] = {}
        self.is_counting = False
        """Whether urgent jobs were met here: before that, nothing is counted."""

    @property
    def is_turn_of_oldest(self) -> bool:
        """Whether that is so for all names, which share their slots."""
        return self.is_shared and self.of("").is_turn_of_oldest

    def of(self, name: str) -> Share:
        """The share that jobs of this name belong to."""
        group = "" if self.is_shared else name
        share = self._by_name.get(group)
        if share is None:
            share = self._by_name[group] = Share()
            self.is_counting = True
        return share

    def groups(self, names: Iterable[str]) -> list[tuple[Share, list[str]]]:
        """The shares of these names, each with those that belong to it."""
        if self.is_shared:
            return [(self.of(""), list(names))]
        return [(self.of(name), [name]) for name in names]


class Urgent:
    """Looks for due jobs with a priority. Times are naive, and UTC, as *collection* reads them."""

    def __init__(
        self,
        collection: AsyncCollection[Any],
        is_used: Callable[[], bool],
        shares: Shares,
        *,
        use_index: bool,
    ) -> None:
        self._collection = collection
        self._is_used = is_used
        self._hint = URGENT.document["name"] if use_index else None
        self.shares = shares
        self._is_expected = False
        self._is_backlog = True
        self._last_look = 0.0
        self._others_were_faster = False

    def expect(self) -> None:
        """Look with the next poll: a job with a priority was stored or changed, or everything is polled."""
        self._is_expected = True

    def note_backlog(self, is_backlog: bool) -> None:
        """Whether the last poll left due jobs behind: urgent ones may come to stand behind them."""
        self._is_backlog = is_backlog

    def is_look_due(self) -> bool:
        """Whether to look for urgent jobs with this poll."""
        if not self._is_expected and not self._is_backlog:
            return False
        if not self._is_used():
            return False
        return self._is_expected or time.monotonic() - self._last_look >= _LOOK_EVERY

    async def look(self, names: Iterable[str], besides: int, now: datetime) -> list[Entry]:
        """The most urgent due jobs of these names, in the order in which they should start.

        *besides* of them may be known, and left alone. There may be more if it finds `MOST_AT_ONCE`.
        """
        self._is_expected = False
        self._last_look = time.monotonic()
        names = list(names)
        limit = (_MOST_READ if self._others_were_faster else MOST_AT_ONCE) + besides
        parts = [names[at : at + NAMES_IN_ONE_QUERY] for at in range(0, len(names), NAMES_IN_ONE_QUERY)]
        found = await asyncio.gather(*(self._read(part, limit, now) for part in parts))
        entries = [entry for part in found for entry in part if _is_claimable(entry)]
        # Look again with the next poll if there may be more; or if one was stored meanwhile.
        self._is_expected = self._is_expected or bool(entries)
        if len(parts) > 1:
            entries.sort(key=_place_of)
        return entries

    def some_of(self, due: list[Entry], wanted: int) -> list[Entry]:
        """The first ones; after others were faster, runs of neighbours at random."""
        return spread(due, wanted)[0] if self._others_were_faster and len(due) > wanted else due

    def record_claim(self, *, chosen: int, won: int) -> None:
        """Record how many of the chosen urgent jobs a claim got."""
        if chosen:
            self._others_were_faster = won < chosen

    async def _read(self, names: list[str], limit: int, now: datetime) -> Sequence[Entry]:
        due = {"$gte": EARLIEST, "$lte": now}
        found: list[Any] = await decoding.find(
            self._collection,
            {"status": "pending", "name": {"$in": names}, "priority": {"$gte": 1}, "nextRunAt": due},
            {"_id": 1, "name": 1, "nextRunAt": 1, "priority": 1},
            sort={"priority": -1, "nextRunAt": 1, "_id": 1},
            limit=limit,
            batch_size=limit,  # all in one answer
            hint=self._hint,
        )
        return found


def _is_claimable(entry: Entry) -> bool:
    """Leave out arrays, which match if an element does: the poll reports them, and nobody claims them."""
    return type(entry["name"]) is str and isinstance(entry["nextRunAt"], datetime)


def _place_of(entry: Any) -> tuple[float, datetime, bytes]:
    priority = entry["priority"]
    urgency = float(priority) if isinstance(priority, int | float) else 0.0
    return -urgency, entry["nextRunAt"], getattr(entry["_id"], "binary", b"")
