"""Which due jobs to try to claim: the oldest, as many as there are slots, each name within its own."""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from operator import itemgetter
from typing import NamedTuple

from bson import ObjectId
from pymongo.asynchronous.collection import AsyncCollection
from pymongo.asynchronous.cursor import AsyncCursor

from monque._clock import Clock
from monque._store.document import Document
from monque._store.others import Others, place_of

# More branches than this in one sorted query and the server gives up merging index scans and
# sorts everything instead.
_NAMES_IN_ONE_LOOK = 150

# How many jobs one claim may take, at first and at most.
_FIRST_REACH = 16
_FARTHEST_REACH = 1024

# With no more than so many pending for each name, all of them are looked at.
_FEW = 4

# So many in one claim are the sign of a backlog.
_MANY = 100

# In a backlog one look serves so many claims, for so long. The server pays for each look: it has to walk
# through the entries of all jobs of these names that were claimed lately.
_CLAIMS_AHEAD = 3
_LOOK_LASTS = timedelta(milliseconds=300)

# What is no date (a text, say, that somebody wrote by hand) is not looked at: it would come before all that
# is due, and be compared with times.
_ANY_DATE = {"$gte": datetime.min.replace(tzinfo=UTC)}

_NEVER = datetime.max  # noqa: DTZ901 - naive, as all times in here


class Choice(NamedTuple):
    """What to try to claim, and what else was seen."""

    ids: list[ObjectId]
    next_due: datetime | None
    """When the earliest job that is not due yet will be."""
    more: bool
    """Due jobs are left for which there are slots."""
    backlog: bool
    """Due jobs are left, with slots for them or not."""
    told: bool = False
    """Not seen in the index: somebody else may have had them long ago."""


class _Look(NamedTuple):
    """What was read ahead for the next choice."""

    names: set[str]
    found: list[Document]
    complete: bool
    until: datetime


class Candidates:
    """Chooses among the pending jobs. What it reads comes from the index alone, no document is touched.

    All times in here are naive, and UTC, as *collection* gives them: see `NAIVE_CODEC_OPTIONS`.
    """

    def __init__(self, collection: AsyncCollection[Document], clock: Clock, *, hint: bool) -> None:
        self._collection = collection
        self._clock = clock
        self._hint = "monque_active" if hint else None
        self._others = Others()
        self._calm = True
        self._reach = _FIRST_REACH
        self._avoided: set[ObjectId] = set()
        self._next_look: _Look | None = None
        self._told: dict[ObjectId, str] = {}
        self._asleep: dict[str, datetime] = {}
        self._woken: set[str] = set()
        self._all_woken = False

    def wake(self, name: str | None = None, job_id: ObjectId | None = None) -> None:
        """There may be new work of this name; of any, without one.

        Where nothing else of the name is due, the job that it is about can be claimed without a look.
        """
        if self._next_look is not None and self._next_look.complete:
            self._next_look = None  # there is more by now
        if name is None:
            self._asleep.clear()
            self._all_woken = True
        else:
            self._woken.add(name)
            next_due = self._asleep.pop(name, None)
            if job_id is not None and next_due is not None and next_due > self._now():
                self._told[job_id] = name

    async def choose(self, slots: Mapping[str, int], limit: int) -> Choice:
        """The oldest due jobs, at most *limit*, and of each name as many as it has slots.

        A name that was seen to have nothing due is not looked at again before its time, or until it is
        woken: the entries of jobs that were claimed stay in the index for a while, and the server
        would walk through them for nothing.
        """
        if told := self._take_told(slots, limit):
            return Choice(told, None, more=True, backlog=False, told=True)
        self._woken.clear()
        self._all_woken = False
        limit = min(limit, self._reach)
        now = self._now()
        room = {name: free for name, free in slots.items() if self._asleep.get(name, now) <= now}
        next_due = min((self._asleep[name] for name in slots if name not in room), default=_NEVER)
        if not room:
            return _choice([], next_due, more=False, backlog=False)
        look = None if self._others.are_near else await self._first_look(room, limit)
        if self._others.are_near:
            if apart := await self._apart(room, limit):
                return Choice(apart, None, more=True, backlog=True)
            look = self._looked_ahead(list(room))
        return await self._oldest(room, limit, look, next_due)

    async def _first_look(self, room: Mapping[str, int], limit: int) -> _Look | None:
        """What was read ahead, or what is read now; None, if that shows that others are here."""
        names = list(room)
        if ahead := self._looked_ahead(names):
            return ahead
        wanted = min(limit, sum(room.values()))
        look = await self._looked(names, wanted, besides=len(self._avoided))
        gone = self._others.have_taken(look.names, look.found, complete=look.complete)
        if gone and wanted > _FIRST_REACH:
            self._others.beware()  # before we collide on so many
            return None
        return look

    async def _oldest(
        self, room: dict[str, int], limit: int, look: _Look | None, next_due: datetime
    ) -> Choice:
        """The oldest due jobs. Another look is taken if one was cut off before there were enough."""
        chosen: list[Document] = []
        while room and len(chosen) < limit:
            wanted = min(limit - len(chosen), sum(room.values()))
            if look is None:
                known = sum(1 for entry in chosen if entry["name"] in room) + len(self._avoided)
                look = await self._looked(list(room), wanted, besides=known)
            if look.complete:
                self._put_to_sleep(list(room), look.found)
            due, future = _split(look.found, self._now())
            if chosen or self._avoided:
                seen = self._avoided.union(entry["_id"] for entry in chosen)
                due = [entry for entry in due if entry["_id"] not in seen]
            if future:
                next_due = min(next_due, future[0]["nextRunAt"])
            all_seen = bool(future) or look.complete
            self._others.saw(len(due) if all_seen else None)
            if self._others.are_near and all_seen:
                wanted = min(wanted, self._others.share(due))
            left = self._pick(due, wanted, room, chosen)
            self._others.leave(left)
            if left and not self._others.are_near and (look.complete or len(left) >= wanted // 2):
                self._next_look = look._replace(found=[*left, *future])  # it serves the next choice, too
            if all_seen:
                return _choice(chosen, next_due, more=bool(left and room), backlog=bool(left))
            if len(chosen) >= limit // 2:
                break  # good enough, for a look that would find most of these again
            look = None
        return _choice(chosen, next_due, more=bool(room), backlog=True)

    def _pick(
        self, due: list[Document], wanted: int, room: dict[str, int], chosen: list[Document]
    ) -> list[Document]:
        """Add as many to the chosen as wanted, while there is room for their names; those that are left."""
        left = []
        for entry in self._others.sample(due, wanted) if self._others.are_near else due:
            name = entry["name"]
            if name in room and wanted:
                wanted -= 1
                chosen.append(entry)
                room[name] -= 1
                if not room[name]:
                    del room[name]
            else:
                left.append(entry)
        return left

    def _take_told(self, slots: Mapping[str, int], limit: int) -> list[ObjectId]:
        """What we were told of, one of each name at most; whatever else there is, the next look finds.

        Only if nothing else can be due: an older job, of any name, comes first.
        """
        told = {name: job_id for job_id, name in self._told.items() if slots.get(name)}
        self._told.clear()
        now = self._now()
        if not told or any(name not in told and self._asleep.get(name, now) <= now for name in slots):
            return []
        return [job_id for job_id in told.values() if job_id not in self._avoided][:limit]

    def _now(self) -> datetime:
        return self._clock.now().replace(tzinfo=None)

    async def look_ahead(self, slots: Iterable[str], last: int) -> None:
        """Read what the next choice will need, while the *last* ones chosen are still being claimed."""
        names = [name for name in slots if name not in self._asleep]
        if not names or last < _MANY or self._others.are_near:
            return  # not worth it; or others are after the same jobs, and what is seen now will be gone
        left = self._next_look
        if left is not None and len(left.found) > last and left.until > self._now() + _LOOK_LASTS / 3:
            return  # enough of the one before
        self._woken.clear()
        self._all_woken = False
        look = await self._looked(names, last * _CLAIMS_AHEAD, besides=0)
        if not look.complete or not (self._woken or self._all_woken):
            self._next_look = look

    async def _looked(self, names: list[str], wanted: int, *, besides: int, skip: int = 0) -> _Look:
        found, complete = await self._earliest(names, wanted, besides=besides, skip=skip)
        return _Look(set(names), found, complete, self._now() + _LOOK_LASTS)

    def _looked_ahead(self, names: list[str]) -> _Look | None:
        look, self._next_look = self._next_look, None
        if look is None or look.until < self._now() or not look.names.issuperset(names):
            return None
        return look

    def _put_to_sleep(self, names: list[str], found: list[Document]) -> None:
        """Remember when each name has its next job, unless it was woken while we looked."""
        if self._all_woken:
            return
        first: dict[str, datetime] = {}
        for entry in found:
            first.setdefault(entry["name"], entry["nextRunAt"])
        for name in names:
            if name not in self._woken:
                self._asleep[name] = first.get(name, _NEVER)

    def learn(self, *, chosen: int, won: int) -> None:
        """Reach for more, from few upwards, while few of those chosen are lost.

        Instances that wake together, all with the same oldest jobs before them, must not collide on
        hundreds.
        """
        self._others.learn(chosen=chosen, won=won)
        if won < chosen:
            self._next_look = None  # they may be pending still, and it is without them
        if chosen == 0:
            self._reach = _FIRST_REACH
        elif won == 0:
            self._reach = max(self._reach // 2, _FIRST_REACH)
        elif chosen - won <= chosen // 4:
            self._reach = min(max(self._reach, chosen * 4), _FARTHEST_REACH)

    def avoid(self, job_id: ObjectId) -> None:
        """Do not choose this one again: the server refuses to change it, and would refuse its whole batch."""
        self._avoided.add(job_id)

    async def _apart(self, room: Mapping[str, int], limit: int) -> list[ObjectId]:
        """Some of the due jobs, where nobody else is likely to be; none, if all that is due was looked at."""
        wanted = self._others.leave_some(min(limit, sum(room.values())))
        width = wanted * 2
        while True:
            skip = self._others.place(width)
            look = await self._looked(list(room), width, besides=len(self._avoided), skip=skip)
            due, _ = _split(look.found, self._now())
            self._others.saw(None if len(due) >= width else skip + len(due) if due else skip // 2)
            if skip == 0 and len(due) < width:
                self._next_look = look
                return []
            if len(due) >= min(width, _MANY):
                due = [entry for entry in due if entry["_id"] not in self._avoided]
                chosen: list[Document] = []
                self._pick(due, min(wanted, len(due) // 2), dict(room), chosen)
                return [entry["_id"] for entry in chosen]

    async def _earliest(
        self, names: list[str], wanted: int, *, besides: int, skip: int = 0
    ) -> tuple[list[Document], bool]:
        """The pending jobs of these names that are due first, and whether that is all there are.

        Very many names are asked for in parts, each for its share. Where a part was cut off, what lies
        beyond its end in the other parts is left out too: the cut-off part may have earlier ones.
        """
        if self._calm and len(names) > 1 and not skip:
            all_of_them = await self._all(names)
            if all_of_them is not None:
                return all_of_them, True
        count = -(-len(names) // _NAMES_IN_ONE_LOOK)
        # Not neighbours: names that come one after another often have jobs that do so, too, and then all
        # that is due first would be in one part, cut off.
        parts = [names[at::count] for at in range(count)]
        # One more than wanted: it tells whether there is more, or when the next one is due.
        limit = -(-wanted // len(parts)) + besides + 1
        found = await asyncio.gather(*(self._read(part, limit, skip // len(parts)) for part in parts))
        cut_off = [place_of(part[-1]) for part in found if len(part) == limit]
        self._calm = not cut_off
        if len(parts) == 1:
            return found[0], not cut_off
        entries = sorted((entry for part in found for entry in part), key=place_of)
        if cut_off:
            entries = [entry for entry in entries if place_of(entry) <= min(cut_off)]
        return entries, not cut_off

    async def _all(self, names: list[str]) -> list[Document] | None:
        """All pending jobs of these names; None if they are many.

        Unsorted, the server goes through the index once. Sorted, it goes to each name on its own, and from
        one that has nothing it walks on, through what is left of all jobs that were claimed in the last
        minutes, of the names after it too, until it meets one that is pending.
        """
        few = _FEW * len(names)
        found = await self._pending(names, few + 1).to_list()
        self._calm = len(found) <= few
        return sorted(found, key=place_of) if self._calm else None

    async def _read(self, names: list[str], limit: int, skip: int) -> list[Document]:
        return await self._pending(names, limit).sort({"nextRunAt": 1, "_id": 1}).skip(skip).to_list()

    def _pending(self, names: list[str], limit: int) -> AsyncCursor[Document]:
        return self._collection.find(
            {"status": "pending", "name": {"$in": names}, "nextRunAt": _ANY_DATE},
            {"_id": 1, "name": 1, "nextRunAt": 1},
            limit=limit,
            batch_size=limit,  # all in one answer; the default would ask again after the first hundred
            hint=self._hint,
        )


def _split(found: list[Document], now: datetime) -> tuple[list[Document], list[Document]]:
    """What is due, and what is not; both as they were found: the earliest first."""
    at = bisect_right(found, now, key=itemgetter("nextRunAt"))
    return found[:at], found[at:]


def _choice(chosen: list[Document], next_due: datetime, *, more: bool, backlog: bool) -> Choice:
    ids = [entry["_id"] for entry in chosen]
    return Choice(ids, None if next_due == _NEVER else next_due.replace(tzinfo=UTC), more, backlog)
