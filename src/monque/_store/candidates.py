"""Which due jobs to try to claim: the oldest, as many as there are slots, each name within its own."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from pymongo.asynchronous.collection import AsyncCollection

from monque._store.contention import Contention, spread
from monque._store.document import Entry, key_of
from monque._store.idle_names import NEVER, IdleNames, aware_or_none
from monque._store.polling import Poll, Poller
from monque._store.refused import Refused
from monque._store.urgent import MOST_AT_ONCE, ONE_OF, Share, Urgent
from monque._time.clock import Clock

# A claim of this many jobs is the sign of a backlog, so it is worth reading ahead for the next ones. At half
# of it, bursts are read ahead that are over by then; at twice of it, a backlog of slow jobs is not.
_BACKLOG = 100

# During a backlog one poll feeds up to three claims within 300 ms: the server pays for each poll, because it
# walks through the entries of all jobs of these names that were claimed lately. Twice as many, or twice as
# long, and more of the entries have changed by the time they are claimed.
_CLAIMS_AHEAD = 3
_READ_AHEAD_LASTS = timedelta(milliseconds=300)

# Under contention a window further back feeds two claims within this time. It is longer: nobody else is
# likely to be there, and on a machine with more processes than cores the next claim comes late. With half of
# it, each claim of eight processes on two cores polls again; with twice of it, more are lost to others.
_APART_LASTS = timedelta(seconds=1)


class Choice(NamedTuple):
    """Which jobs to try to claim, and what else was seen."""

    ids: list[Any]
    next_due: datetime | None
    """When the earliest job that is not due yet will be."""
    more: bool
    """Due jobs are left for which there are slots."""
    backlog: bool
    """Due jobs are left, with slots for them or not."""
    rest: Poll | None = None
    """What stays pending if all of them are claimed; None if nobody knows."""
    aged: int = 0
    """So many of the ids, the first ones, are there for their age, before urgent ones."""
    urgent: int = 0
    """So many of the ids, those after them, are there for their priority."""


class Candidates:
    """Chooses among the pending jobs. All times in here are naive, and UTC, as *collection* reads them."""

    def __init__(
        self,
        collection: AsyncCollection[Any],
        clock: Clock,
        idle: IdleNames,
        refused: Refused,
        urgent: Urgent,
        *,
        use_index: bool,
    ) -> None:
        self._clock = clock
        self._urgent = urgent
        self._poller = Poller(collection, hint=use_index)
        self._idle = idle
        self._contention = Contention()
        self._refused = refused
        self._ahead: Poll | None = None
        self._apart: Poll | None = None
        """The jobs of the last window further back that its claim left."""
        self._are_alone = False
        """The last claim took urgent jobs, and no others."""
        self._expected: Entry | None = None
        """A due job that was left for later: if the next poll does not show it, somebody else is here."""

    async def choose(self, slots: Mapping[str, int], limit: int) -> Choice:
        """The oldest due jobs, at most *limit*, and of each name as many as it has slots."""
        now = self._now()
        room = {name: free for name, free in slots.items() if not self._idle.is_idle(name, now)}
        if isinstance(slots, SharedRoom):
            room = SharedRoom(room, slots.together, slots.left)
        if not room:
            return _choice([], self._idle.next_due(slots, now), more=False, backlog=False)
        if self._urgent.is_look_due():
            return await self._choose_urgent(room, min(limit, sum(room.values())), slots)
        return await self._choose_by_age(room, limit, self._idle.next_due(slots, now), [])

    async def _choose_urgent(self, room: dict[str, int], limit: int, slots: Iterable[str]) -> Choice:
        """Urgent jobs before the others; the room that they leave goes to the oldest."""
        due = self._claimable(await self._urgent.look(room, len(self._refused), self._now()), [])
        places = min(limit, MOST_AT_ONCE)
        aged: list[Entry] = []
        for share, names in self._urgent.shares.groups({entry["name"] for entry in due}) if due else ():
            await self._choose_for_age(share, names, due, places, room, aged)
        urgent: list[Entry] = []
        wanted = places - len(aged)
        left = _pick(self._urgent.some_of(_without(aged, due), wanted), wanted, room, urgent)
        chosen = [*aged, *urgent]
        self._forget_ahead(chosen)
        is_more = len(due) >= MOST_AT_ONCE or any(entry["name"] in room for entry in left)
        # A claim of a few alone is quicker. But each second claim fills the room: free slots must not wait.
        self._are_alone = 0 < len(chosen) < ONE_OF and not self._are_alone
        if chosen and (not room or len(chosen) >= limit or is_more or self._are_alone):
            # More urgent jobs come before the others, or the next poll looks for these.
            choice = _choice(chosen, NEVER, more=True, backlog=True)
        else:
            next_due = self._idle.next_due(slots, self._now())
            choice = await self._choose_by_age(room, limit, next_due, chosen)
        return choice._replace(aged=len(aged), urgent=len(urgent))

    async def _choose_for_age(
        self,
        share: Share,
        names: list[str],
        due: list[Entry],
        places: int,
        room: dict[str, int],
        aged: list[Entry],
    ) -> None:
        """Add the oldest due jobs to *aged*, if urgent ones would leave no room for those that are owed."""
        free = min(sum(room.get(name, 0) for name in names), places - len(aged))
        owed = share.for_oldest(free)
        rivals = sum(1 for entry in due if entry["name"] in names)
        if not owed or rivals + owed <= free:
            return
        among = room if self._urgent.shares.is_shared else [name for name in names if name in room]
        # Those that are taken for their priority have their turn already.
        taken = [*due[:places], *aged]
        poll = await self._poller.poll(among, owed, besides=len(taken) + len(self._refused))
        oldest, _ = poll.split(self._now())
        _pick(self._claimable(oldest, taken), owed, room, aged)

    async def _choose_by_age(
        self, room: dict[str, int], limit: int, next_due: datetime, chosen: list[Entry]
    ) -> Choice:
        """The oldest due jobs, beside those that are *chosen* for another reason."""
        taken = len(chosen)
        limit = taken + self._contention.fair_batch(min(limit - taken, sum(room.values())))
        if await self._choose_apart(room, limit, chosen):
            choice = _choice(chosen, NEVER, more=True, backlog=True)
        else:
            choice = await self._choose_oldest(room, limit, next_due, chosen)
        self._urgent.note_backlog(choice.backlog)
        return choice

    async def _choose_apart(self, room: dict[str, int], limit: int, chosen: list[Entry]) -> bool:
        """Under contention: half of a window further back, where nobody else is likely to be; or nothing."""
        limit -= len(chosen)
        window = 2 * limit
        skip = self._contention.skip(window)
        if skip and (rest := self._take_apart(room, limit)) is not None:
            return _pick_any(self._claimable(rest, chosen), limit, room, chosen)
        while skip:
            self._expected = None  # it may be among the jobs that we take here
            poll = await self._poller.poll(room, window, besides=len(self._refused), skip=skip)
            due, future = poll.split(self._now())
            self._contention.record_depth(skip + len(due), is_all=poll.complete or bool(future))
            if len(due) >= window:
                picked, rest = spread(due, limit)
                self._apart = poll._replace(entries=rest, expires=self._now() + _APART_LASTS)
                return _pick_any(self._claimable(picked, chosen), limit, room, chosen)
            skip = min(self._contention.skip(window), skip // 2)
        return False

    def _take_apart(self, names: Iterable[str], limit: int) -> list[Entry] | None:
        """The half of the last window that the claim before left, if it serves this one."""
        poll, self._apart = self._apart, None
        if poll is None or poll.expires < self._now() or not poll.names.issuperset(names):
            return None
        return poll.entries if len(poll.entries) >= limit // 2 else None

    async def _choose_oldest(
        self, room: dict[str, int], limit: int, next_due: datetime, chosen: list[Entry]
    ) -> Choice:
        """The oldest due jobs. It polls again if a poll was cut off before there were enough."""
        taken = len(chosen)
        was_left = False  # by a poll before this one; of a name that has no room, so later polls leave it out
        poll = self._take_ahead(room)
        while room and len(chosen) < limit:
            wanted = min(limit - len(chosen), sum(room.values()))
            if poll is None:
                known = sum(1 for entry in chosen if entry["name"] in room) + len(self._refused)
                poll = await self._poll(room, wanted, besides=known)
                # The poll may have shown that we are not alone.
                limit = taken + self._contention.fair_batch(limit - taken)
                wanted = min(wanted, limit)
            due, future = poll.split(self._now())
            is_all = poll.complete or bool(future)
            if is_all:
                self._idle.rest(room, poll.entries, seen_until=poll.seen_until, mark=poll.mark)
            self._contention.record_depth(len(due), is_all=is_all)
            left = _pick(self._claimable(due, chosen), wanted, room, chosen)
            self._expected = left[0] if left else None
            rest = poll._replace(entries=[*(_without(chosen, due) if self._refused else left), *future])
            is_worth_keeping = poll.complete or len(left) >= wanted // 2
            if left and is_worth_keeping and not self._contention.is_contended:
                self._ahead = rest
            next_due = min(next_due, self._refused.next_try(self._now()) or NEVER)
            if future:
                next_due = min(next_due, future[0]["nextRunAt"])
            if is_all:
                is_backlog = bool(left) or was_left
                choice = _choice(chosen, next_due, more=bool(left and room), backlog=is_backlog)
                return choice._replace(rest=rest)
            if len(chosen) >= limit // 2:
                break  # good enough: another poll would find most of these again
            poll, was_left = None, was_left or bool(left)
        return _choice(chosen, next_due, more=bool(room), backlog=True)

    def _claimable(self, due: list[Entry], chosen: list[Entry]) -> list[Entry]:
        """Leave out the entries that were chosen already, and those of jobs to be left alone."""
        if self._refused:
            paused = self._refused.paused(self._now())
            due = [entry for entry in due if key_of(entry["_id"]) not in paused]
        return _without(chosen, due) if chosen else due

    async def read_ahead(self, slots: Iterable[str], last: int) -> None:
        """Poll for the next choices, while the *last* jobs that were chosen are still being read."""
        now = self._now()
        names = [name for name in slots if not self._idle.is_idle(name, now)]
        if not names or last < _BACKLOG or self._contention.is_contended:
            return  # not worth it; or somebody else will have claimed most of it by then
        ahead = self._ahead
        if ahead is None or len(ahead.entries) <= last or ahead.expires < now + _READ_AHEAD_LASTS / 3:
            self._ahead = await self._poll(names, last * _CLAIMS_AHEAD)

    def _forget_ahead(self, chosen: list[Entry]) -> None:
        """Leave jobs that were chosen for another reason out of what was read ahead and is expected."""
        known = {key_of(entry["_id"]) for entry in chosen}
        if self._expected is not None and key_of(self._expected["_id"]) in known:
            self._expected = None
        if known and self._ahead is not None:
            entries = [entry for entry in self._ahead.entries if key_of(entry["_id"]) not in known]
            self._ahead = self._ahead._replace(entries=entries) if entries else None

    def _take_ahead(self, names: Iterable[str]) -> Poll | None:
        poll, self._ahead = self._ahead, None
        if poll is None or poll.expires < (now := self._now()) or not poll.names.issuperset(names):
            return None
        if poll.seen_until > now and self._idle.woken_since(poll.mark):
            return None  # it has all that was due, and there is more by now
        return poll

    async def _poll(self, names: Iterable[str], wanted: int, *, besides: int = 0) -> Poll:
        mark = self._idle.begin_poll()
        poll = await self._poller.poll(names, wanted, besides=besides)
        expected, self._expected = self._expected, None
        if expected is not None and expected["name"] in poll.names and not poll.shows(expected):
            self._contention.assume_contention()
        return poll._replace(mark=mark, expires=self._now() + _READ_AHEAD_LASTS)

    def record_claim(self, choice: Choice, *, won: int, won_first: int = 0) -> None:
        """Record how many of the chosen jobs a claim got; *won_first* of them for their age or priority."""
        if first := choice.aged + choice.urgent:
            self._urgent.record_claim(chosen=first, won=won_first)
        if len(choice.ids) > first or not first:
            self._contention.record_claim(chosen=len(choice.ids) - first, won=won - won_first)
        if won < len(choice.ids):
            self._ahead = None  # the lost ones may be pending still, and are not in it
            if not self._contention.tolerates(len(choice.ids), won):
                self._apart = None  # somebody else is there
        elif choice.ids and (rest := choice.rest) is not None:
            self._idle.rest(rest.names, rest.entries, seen_until=rest.seen_until, mark=rest.mark)

    def _now(self) -> datetime:
        return self._clock.now().replace(tzinfo=None)


def _pick(due: list[Entry], wanted: int, room: dict[str, int], chosen: list[Entry]) -> list[Entry]:
    """Move up to *wanted* entries to *chosen*, while there is room for their names; return the others."""
    left = []
    shared = room if isinstance(room, SharedRoom) else None
    for entry in due:
        name = entry["name"]
        if wanted and name in room:
            wanted -= 1
            chosen.append(entry)
            room[name] -= 1
            if not room[name]:
                del room[name]
            if shared is not None:
                shared.count(name)
        else:
            left.append(entry)
    return left


def _pick_any(due: list[Entry], wanted: int, room: dict[str, int], chosen: list[Entry]) -> bool:
    """As `_pick`; whether there was any."""
    before = len(chosen)
    _pick(due, wanted, room, chosen)
    return len(chosen) > before


class SharedRoom(dict[str, int]):
    """The room of each name, where some names share something of which there is less."""

    def __init__(self, room: Mapping[str, int], together: frozenset[str], left: int) -> None:
        super().__init__(room)
        self.together = together
        self.left = left
        """For how many jobs of these names there is room."""

    def count(self, name: str) -> None:
        """A job of this name was chosen: if it was the last of those that share, none has room any more."""
        if name in self.together:
            self.left -= 1
            for each in self.together if self.left <= 0 else ():
                self.pop(each, None)


def _without(chosen: list[Entry], due: list[Entry]) -> list[Entry]:
    known = {key_of(entry["_id"]) for entry in chosen}
    return [entry for entry in due if key_of(entry["_id"]) not in known]


def _choice(chosen: list[Entry], next_due: datetime, *, more: bool, backlog: bool) -> Choice:
    return Choice([entry["_id"] for entry in chosen], aware_or_none(next_due), more, backlog)
