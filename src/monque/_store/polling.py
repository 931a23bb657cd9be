"""Reads which jobs are pending, and when each is due, from the index alone: no document is touched."""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections.abc import Iterable
from datetime import datetime
from operator import itemgetter
from typing import Any, NamedTuple

from pymongo.asynchronous.collection import AsyncCollection

from monque._store import decoding
from monque._store.document import EARLIEST, PARKED, Document, Entry
from monque._store.idle_names import NEVER
from monque._store.indexes import ACTIVE
from monque._store.refused import report_unclaimable

# With more branches than this in one sorted query the server gives up merging index scans, and sorts
# everything instead. Half of it would double the queries.
NAMES_IN_ONE_QUERY = 150

# All pending jobs are read at once, without a sort, where each name has no more than this many on average.
# Twice as many make such a read twice as long where it turns out to be cut off; with half as many the last
# polls of a backlog are sorted ones.
_FEW = 4

# Leave out values that are not dates: they sort before every date and would look due. Leave out parked jobs,
# too: they have no time that a poll could wait for.
_ANY_DATE = {"$gte": EARLIEST, "$lt": PARKED}

# An array matches if one of its elements does. These conditions need the document, so they are used only
# once an array was seen: from then on the index is multikey, and cannot answer without the document anyway.
_NO_ARRAYS = [{"name": {"$type": "array"}}, {"nextRunAt": {"$type": "array"}}]


class Poll(NamedTuple):
    """What one poll found."""

    names: frozenset[str]
    entries: list[Entry]
    """The earliest pending jobs of these names, the earliest first."""
    complete: bool
    """Nothing comes after these entries."""
    mark: int = 0
    """When it began, for `IdleNames`."""
    expires: datetime = NEVER
    """Until when it may serve a claim."""

    @property
    def seen_until(self) -> datetime:
        """Every pending job that is due before this time is among the entries."""
        return NEVER if self.complete else self.entries[-1]["nextRunAt"]

    def shows(self, expected: Entry) -> bool:
        """Whether a job is among the entries, or may come after them."""
        if not self.complete and _place_of(self.entries[-1]) < _place_of(expected):
            return True
        return any(entry["_id"] == expected["_id"] for entry in self.entries)

    def split(self, now: datetime) -> tuple[list[Entry], list[Entry]]:
        """The entries that are due, and those that are not."""
        at = bisect_right(self.entries, now, key=itemgetter("nextRunAt"))
        return self.entries[:at], self.entries[at:]


class Poller:
    """Polls one collection, whose handle reads naive times."""

    def __init__(self, collection: AsyncCollection[Any], *, hint: bool) -> None:
        self._collection = collection
        self._hint = ACTIVE.document["name"] if hint else None
        self._few_pending = True
        self._without_arrays = False

    async def poll(self, names: Iterable[str], wanted: int, *, besides: int = 0, skip: int = 0) -> Poll:
        """At least the *wanted* pending jobs that are due first, not counting *besides* ones known already.

        The first *skip* ones are left out, or about as many.

        Very many names are polled in parts, each for its share. Where a part was cut off, entries of other
        parts that lie beyond its end are left out too: the cut-off part may have earlier ones.
        """
        names = list(names)
        if self._few_pending and len(names) > 1 and not skip:
            everything = await self._read_everything(names)
            if everything is not None:
                return Poll(frozenset(names), everything, complete=True)
        count = -(-len(names) // NAMES_IN_ONE_QUERY)
        # Deal the names out in turns: neighbours often have jobs that follow each other, too, and then all
        # that is due first would be in one part, cut off.
        parts = [names[at::count] for at in range(count)]
        # One more than wanted: it shows whether there is more, or when the next one is due.
        limit = -(-wanted // count) + besides + 1
        found = await asyncio.gather(*(self._read_first(part, limit, skip // count) for part in parts))
        ends = [_place_of(part[-1]) for part in found if len(part) == limit]
        self._few_pending = not ends
        entries = found[0]
        if count > 1:
            entries = sorted((entry for part in found for entry in part), key=_place_of)
            if ends:
                entries = [entry for entry in entries if _place_of(entry) <= min(ends)]
        return Poll(frozenset(names), entries, complete=not ends)

    async def _read_everything(self, names: list[str]) -> list[Entry] | None:
        """All pending jobs of these names; None if they are many.

        Without a sort the server goes through the index once. With one, it goes to each name on its own, and
        from a name that has no job it walks on, through the entries of all jobs that were claimed in the last
        minutes, until it meets one that is pending.
        """
        few = _FEW * len(names)
        found = await self._read(names, few + 1)
        self._few_pending = len(found) <= few
        return sorted(found, key=_place_of) if self._few_pending else None

    async def _read_first(self, names: list[str], limit: int, skip: int) -> list[Entry]:
        return await self._read(names, limit, skip=skip, sort={"nextRunAt": 1, "_id": 1})

    async def _read(self, names: list[str], limit: int, **how: Any) -> list[Entry]:
        query: Document = {"status": "pending", "name": {"$in": names}, "nextRunAt": _ANY_DATE}
        if self._without_arrays:
            query["$nor"] = _NO_ARRAYS
        found: list[Any] = await decoding.find(
            self._collection,
            query,
            {"_id": 1, "name": 1, "nextRunAt": 1},
            limit=limit,
            batch_size=limit,  # all in one answer; the default would ask again after the first hundred
            hint=self._hint,
            **how,
        )
        if self._without_arrays:
            return found
        odd = [entry for entry in found if type(entry["name"]) is list or type(entry["nextRunAt"]) is list]
        if not odd:
            return found
        for entry in odd:
            report_unclaimable(entry["_id"], "its name and its nextRunAt must not be arrays")
        self._without_arrays = True
        return await self._read(names, limit, **how)


def _place_of(entry: Entry) -> tuple[datetime, bytes]:
    """Where a job stands among those that are pending."""
    # The bytes of an id compare as the id does, without a call for each pair; other ids have none.
    return entry["nextRunAt"], getattr(entry["_id"], "binary", b"")
