"""Which due jobs to try to claim: the oldest, as many as there are slots, each name within its own."""

from __future__ import annotations

import asyncio
import logging
from bisect import bisect_right
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from operator import itemgetter
from typing import Any, NamedTuple

from bson import ObjectId
from pymongo.asynchronous.collection import AsyncCollection

from monque._clock import Clock
from monque._store.document import EARLIEST, Document, key_of
from monque._store.others import Others, place_of
from monque._store.refused import Refused

logger = logging.getLogger("monque")

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

# Leave out values that are not dates (a text that somebody wrote by hand): they would sort before everything
# that is due, and be compared with times.
_ANY_DATE = {"$gte": EARLIEST}

# An array matches if one of its elements does. These conditions need the document, so they are used only
# once an array was seen: from then on the index is multikey, and cannot answer without the document anyway.
_NO_ARRAYS = [{"name": {"$type": "array"}}, {"nextRunAt": {"$type": "array"}}]

# A job with another kind of `_id` than ours is examined after it was chosen this often and no claim matched.
_MISSES = 3

_LONGEST_ID = 200
_LONGEST_REASON = 500

_NEVER = datetime.max  # noqa: DTZ901 - naive, as all times in here


class Choice(NamedTuple):
    """What to try to claim, and what else was seen."""

    ids: list[Any]
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
        self._refused = Refused()
        self._without_arrays = False
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
        look = await self._looked(names, wanted, besides=len(self._refused))
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
                known = sum(1 for entry in chosen if entry["name"] in room) + len(self._refused)
                look = await self._looked(list(room), wanted, besides=known)
            if look.complete:
                self._put_to_sleep(list(room), look.found)
            due, future = _split(look.found, self._now())
            if chosen or self._refused:
                now = self._now()
                seen = {*self._refused.paused(now), *(key_of(entry["_id"]) for entry in chosen)}
                due = [entry for entry in due if key_of(entry["_id"]) not in seen]
                next_due = min(next_due, self._refused.next_try(now) or _NEVER)
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
        return [job_id for job_id in told.values() if job_id not in self._refused][:limit]

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

    def suspects(self, chosen: list[Any]) -> list[Any]:
        """Those that were refused before: to be claimed one by one, for they would spoil a whole batch."""
        return [job_id for job_id in chosen if job_id in self._refused] if self._refused else []

    def refuse(self, job_id: Any, error: Exception) -> None:
        """Leave a job alone for a while that the server refuses to change; somebody may repair it."""
        if self._refused.add(job_id, now=self._now()) == 1:
            _report(job_id, f"the server refuses to change it: {error}")

    def accept(self, job_id: Any) -> None:
        """This job was claimed."""
        if self._refused:
            self._refused.remove(job_id)

    def miss(self, chosen: list[Any], claimed: list[Document]) -> list[Any]:
        """Leave jobs alone for a while that no claim matched, if their `_id` is of another kind than ours.

        Somebody else was faster; or the `_id` holds a value that Python cannot represent (a date beyond the
        year 9999), so that no query of ours can match it. It would be chosen again and again. Returns those
        that were missed so often that it is worth finding out.
        """
        odd = [job_id for job_id in chosen if type(job_id) is not ObjectId]
        won = {key_of(claim["_id"]) for claim in claimed} if odd else ()
        missed = [job_id for job_id in odd if key_of(job_id) not in won]
        return [job_id for job_id in missed if self._refused.add(job_id, now=self._now()) == _MISSES]

    def report_unreachable(self, job_id: Any) -> None:
        """There is a job with an `_id` that no query matches."""
        _report(job_id, "no query matches its _id")

    async def _apart(self, room: Mapping[str, int], limit: int) -> list[ObjectId]:
        """Some of the due jobs, where nobody else is likely to be; none, if all that is due was looked at."""
        wanted = self._others.leave_some(min(limit, sum(room.values())))
        width = wanted * 2
        while True:
            skip = self._others.place(width)
            look = await self._looked(list(room), width, besides=len(self._refused), skip=skip)
            due, _ = _split(look.found, self._now())
            self._others.saw(None if len(due) >= width else skip + len(due) if due else skip // 2)
            if skip == 0 and len(due) < width:
                self._next_look = look
                return []
            if len(due) >= min(width, _MANY):
                if self._refused:
                    paused = self._refused.paused(self._now())
                    due = [entry for entry in due if key_of(entry["_id"]) not in paused]
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
        found = await self._pending(names, few + 1)
        self._calm = len(found) <= few
        return sorted(found, key=place_of) if self._calm else None

    async def _read(self, names: list[str], limit: int, skip: int) -> list[Document]:
        return await self._pending(names, limit, skip=skip, sort={"nextRunAt": 1, "_id": 1})

    async def _pending(self, names: list[str], limit: int, **how: Any) -> list[Document]:
        query: Document = {"status": "pending", "name": {"$in": names}, "nextRunAt": _ANY_DATE}
        if self._without_arrays:
            query["$nor"] = _NO_ARRAYS
        found = await self._collection.find(
            query,
            {"_id": 1, "name": 1, "nextRunAt": 1},
            limit=limit,
            batch_size=limit,  # all in one answer; the default would ask again after the first hundred
            hint=self._hint,
            **how,
        ).to_list()
        if self._without_arrays:
            return found
        odd = [entry for entry in found if type(entry["name"]) is list or type(entry["nextRunAt"]) is list]
        if not odd:
            return found
        for entry in odd:
            _report(entry["_id"], "its name and its nextRunAt must not be arrays")
        self._without_arrays = True
        return await self._pending(names, limit, **how)


def _report(job_id: Any, why: str) -> None:
    shown = str(job_id)[:_LONGEST_ID]
    message = "job %s cannot be claimed and is left alone: %s"
    logger.error(message, shown, why[:_LONGEST_REASON], extra={"job_id": shown})


def _split(found: list[Document], now: datetime) -> tuple[list[Document], list[Document]]:
    """What is due, and what is not; both as they were found: the earliest first."""
    at = bisect_right(found, now, key=itemgetter("nextRunAt"))
    return found[:at], found[at:]


def _choice(chosen: list[Document], next_due: datetime, *, more: bool, backlog: bool) -> Choice:
    ids = [entry["_id"] for entry in chosen]
    return Choice(ids, None if next_due == _NEVER else next_due.replace(tzinfo=UTC), more, backlog)
