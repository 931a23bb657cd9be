"""The choice of due jobs to claim: the oldest, as many as there are slots, each name within its own.

`Chooser` is what others call. Behind it, `IdleNames` says which names need no poll, `Poller` reads what is
pending from the index, `Contention` stays out of the way of other instances, and `Urgent` finds jobs with a
priority.

Other instances that claim the same jobs: how they are noticed, and how to stay out of their way.
Two claims that go through the same jobs at the same time meet in a write conflict at every single one, and
they stay together: the one behind finds jobs that are taken already, is faster for it, and catches up again.
So an instance that has lost jobs takes the next ones at a place of its own further back in the queue, and
keeps to that place while it loses nothing there. After some claims without a loss it returns to the oldest.

Jobs with a priority: which of them to claim before the others, and when to look for them at all.
The look is one covered find on `monque_urgent`. It is made only where the collection is used for priorities,
and then not with each poll: with each full poll, while the last look found some, after a wake-up for a job
with a priority, and during a backlog every 100 ms.
"""

from __future__ import annotations

import asyncio
import random
import time
from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from operator import itemgetter
from typing import Any, NamedTuple

from bson import ObjectId
from pymongo.asynchronous.collection import AsyncCollection

from monque._store import decoding
from monque._store.document import EARLIEST, PARKED, Document, Entry, key_of
from monque._store.indexes import ACTIVE, URGENT
from monque._store.refused import Refused, report_unclaimable
from monque._time.clock import Clock
from monque._values.options import Options

NEVER = datetime.max  # noqa: DTZ901 - naive, as all times in here


def aware_or_none(due: datetime) -> datetime | None:
    """A time of `IdleNames` for callers outside of it: aware, and None for `NEVER`."""
    return None if due == NEVER else due.replace(tzinfo=UTC)


class IdleNames:
    """Remembers which names need not be polled, and until when.

    Invariant: a name is idle until a time only if a poll that began after the last wake-up of the name saw
    every pending job of it that is due before that time. So if a name is woken while a poll is under way,
    that poll cannot put it to rest. If a hint names one new job of an idle name, that job is the only one of
    the name that may be due, a lone job: it can be claimed by its id, and the name stays idle.

    Entries of claimed jobs stay in the index for some minutes, and the server walks through them: to poll a
    name without work costs as much as to poll one with jobs. All times are naive, and UTC.
    """

    def __init__(self) -> None:
        self._until: dict[str, datetime] = {}
        self._lone: dict[str, ObjectId] = {}
        self._wakes = 0
        self._last_wakes: dict[str, int] = {}
        self._last_wake_of_all = 0

    def wake(self, name: str | None = None) -> None:
        """Have the name polled again (default: all names)."""
        self._wakes += 1
        if name is None:
            self._until.clear()
            self._last_wakes.clear()
            self._last_wake_of_all = self._wakes
        else:
            self._until.pop(name, None)
            self._last_wakes[name] = self._wakes

    def expect(self, name: str | None, due: datetime) -> None:
        """A job of the name (None: of any name) will be due at *due*: rest no longer than until then.

        A poll under way may not have seen it, so that poll puts nothing to rest.
        """
        self._wakes += 1
        if name is None:
            self._last_wake_of_all = self._wakes
        else:
            self._last_wakes[name] = self._wakes
        for each in self._until if name is None else self._until.keys() & {name}:
            self._until[each] = min(self._until[each], due)

    def wake_for(self, name: str, job_id: ObjectId) -> None:
        """A job of the name became due. Have the name polled, unless it is at rest but for this job."""
        if name in self._lone or name not in self._until:
            self.wake(name)
        else:
            self._lone[name] = job_id

    def take_lone(self, slots: Mapping[str, int], limit: int, now: datetime) -> dict[str, ObjectId]:
        """Jobs to claim by their ids, one of a name; none if another job may be due: it would come first."""
        if not self._lone:
            return {}
        lone, self._lone = self._lone, {}
        chosen: dict[str, ObjectId] = {}
        is_alone = len(lone) <= limit and all(self.is_idle(name, now) for name in slots)
        for name, job_id in lone.items():
            if is_alone and slots.get(name):
                chosen[name] = job_id
            else:
                self.wake(name)
        return chosen

    def forget_lone(self, job_ids: Iterable[Any]) -> None:
        """A poll has found these jobs, and they are claimed: they need no claim by their ids any more."""
        if self._lone:
            known = {job_id for job_id in job_ids if type(job_id) is ObjectId}
            self._lone = {name: job_id for name, job_id in self._lone.items() if job_id not in known}

    def has_lone(self, name: str) -> bool:
        """Return whether a job of the name can be claimed by its id."""
        return name in self._lone

    def begin_poll(self) -> int:
        """A mark for the moment before a poll, for `rest` and `woken_since`."""
        return self._wakes

    def woken_since(self, mark: int) -> bool:
        """Return whether any name was woken after the mark."""
        return self._wakes > mark

    def rest(self, names: Iterable[str], found: Iterable[Entry], *, seen_until: datetime, mark: int) -> None:
        """Let each name rest until its first job in *found*, or until *seen_until* if it has none there.

        The poll began at *mark*, and found all pending jobs of *names* that are due before *seen_until*, the
        earliest first. *found* may leave out those that we have claimed since. A time that has passed already
        puts nothing to rest.
        """
        if self._last_wake_of_all > mark:
            return
        first: dict[str, datetime] = {}
        for entry in found:
            first.setdefault(entry["name"], entry["nextRunAt"])
        for name in names:
            if self._last_wakes.get(name, 0) <= mark:
                self._until[name] = first.get(name, seen_until)

    def is_idle(self, name: str, now: datetime) -> bool:
        """Return whether the name has nothing due."""
        return self._until.get(name, now) > now

    def next_due(self, names: Iterable[str], now: datetime) -> datetime:
        """The time to poll the first of the idle ones among *names*; `NEVER` if none has to be."""
        times = (self._until.get(name, now) for name in names)
        return min((until for until in times if until > now), default=NEVER)


# With more branches than this in one sorted query the server gives up merging index scans, and sorts
# everything instead.
NAMES_IN_ONE_QUERY = 150

# All pending jobs are read at once, without a sort, where each name has no more than this many on average:
# such a read is in vain where it turns out to be cut off.
_FEW = 4

# Leave out values that are not dates: they sort before every date and would look due. Leave out parked jobs,
# too: they have no time that a poll could wait for.
_ANY_DATE = {"$gte": EARLIEST, "$lt": PARKED}

# An array matches if one of its elements does. These conditions need the document, so they are used only
# once an array was seen: from then on the index is multikey, and cannot answer without the document anyway.
_NO_ARRAYS = [{"name": {"$type": "array"}}, {"nextRunAt": {"$type": "array"}}]


class Poll(NamedTuple):
    """The result of one poll."""

    names: frozenset[str]
    entries: list[Entry]
    """The earliest pending jobs of these names, the earliest first."""
    complete: bool
    """Nothing comes after these entries."""
    mark: int = 0
    """The mark of its beginning, for `IdleNames`."""
    expires: datetime = NEVER
    """Until when it may serve a claim."""

    @property
    def seen_until(self) -> datetime:
        """Every pending job that is due before this time is among the entries."""
        return NEVER if self.complete else self.entries[-1]["nextRunAt"]

    def shows(self, expected: Entry) -> bool:
        """Return whether a job is among the entries, or may come after them."""
        if not self.complete and _place_of(self.entries[-1]) < _place_of(expected):
            return True
        return any(entry["_id"] == expected["_id"] for entry in self.entries)

    def split(self, now: datetime) -> tuple[list[Entry], list[Entry]]:
        """The entries that are due, and those that are not."""
        at = bisect_right(self.entries, now, key=itemgetter("nextRunAt"))
        return self.entries[:at], self.entries[at:]


class Poller:
    """Polls one collection, whose handle reads naive times."""

    def __init__(self, collection: AsyncCollection[Any], *, use_index: bool) -> None:
        self._collection = collection
        self._index = ACTIVE.document["name"] if use_index else None
        self._few_pending = True
        self._without_arrays = False
        self._unreadable = 0
        """The number of jobs in one read whose ids the driver does not decode: they take no places."""

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
        unreadable: list[Any] = []
        most = limit + self._unreadable
        found: list[Any] = await decoding.find(
            self._collection,
            query,
            {"_id": 1, "name": 1, "nextRunAt": 1},
            limit=most,
            batch_size=most,  # all in one answer; the default would ask again after the first hundred
            hint=self._index,
            left_out=unreadable,
            **how,
        )
        if len(unreadable) > self._unreadable:  # others may have been cut off in their favour
            self._unreadable = len(unreadable)
            return await self._read(names, limit, **how)
        if self._unreadable:
            found = found[:limit]
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
    """The place of a job among those that are pending."""
    # The bytes of an id compare as the id does, without a call for each pair; other ids have none.
    return entry["nextRunAt"], getattr(entry["_id"], "binary", b"")


# How many jobs one claim takes, at first and at most. Instances that wake together all see the same oldest
# jobs: with 32 at first they lose twice as many before they notice each other, with 8 a lone instance needs
# one more claim to reach its full batch. At most: see "Claims of 1,000" in docs/internals/performance.md.
_FIRST_BATCH = 16
_LARGEST_BATCH = 1024

# The next claim may take this many times as many. A lone instance reaches the full batch with its third
# claim; with a quarter of it, with the fifth, which took 50 ms of a drain of 20,000 jobs. Instances that
# start together notice each other by the first claim, whatever comes then.
_GROWTH = 16

# So many claims without a loss end the contention: instances meet where they return to the oldest jobs, and
# the oldest jobs wait meanwhile.
_LASTS = 12

# An instance moves to another place if it loses more than this share of a claim: somebody else works there.
_TOLERATED = 1 / 8

# An instance takes at most this share of the due jobs (as far as `_DEEPEST`), but always `_FIRST_BATCH`. With
# half of it, four processes drained 0.93 of what they drain now; with twice of it, instances meet far more.
_SHARE = 1 / 8

# The same where all due jobs are in sight: the backlog is about to end. With half of it, the last claims are
# many and small, and ten instances drain about a tenth less; with twice of it, two take all and meet.
_SHARE_OF_THE_LAST = 1 / 4

# Every so many claims go to the oldest jobs all the same: with every instance further back they would wait
# for ever.
_TO_THE_FRONT = 16

# How far back a place may be: in due jobs, and in windows (see `skip`). The server walks through all that are
# skipped.
_DEEPEST = 8192
_WINDOWS = 8

# Jobs are taken in runs of this many neighbours: each run is one index search of a claim, of its reading and
# of its settling.
_RUN = 8


class Contention:
    """Knows of other instances that claim, and what follows for the next claim."""

    def __init__(self) -> None:
        self._batch = _FIRST_BATCH
        self._claims = 0
        self._claims_left = 0
        self._place = random.random()  # noqa: S311 - spreads contenders
        self._depth = _DEEPEST
        self._share = _SHARE

    @property
    def is_contended(self) -> bool:
        """Return whether other instances took jobs that we were after, lately."""
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
        """Return whether a claim lost so few jobs that its place is still a good one."""
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
        """The number of jobs to take, at most *limit*."""
        limit = min(limit, self._batch)
        return min(limit, max(int(self._depth * self._share), _FIRST_BATCH)) if self.is_contended else limit

    def skip(self, window: int) -> int:
        """The number of due jobs to skip, to find a window of them where nobody else is likely to be."""
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


# The number of urgent jobs that one claim takes: others may have free slots for more of them.
MOST_AT_ONCE = 64

# So many are read after others were faster: some of them are taken in runs of neighbours, so that two
# instances meet less.
_MOST_READ = 2 * MOST_AT_ONCE

# The time between two looks during a backlog. A look costs the server about 260 us of CPU for one name.
_LOOK_EVERY = 0.1

# One of this many jobs that start while urgent ones wait is the oldest due one, whatever its priority.
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
        """The number of urgent jobs that have started since the oldest one had its turn."""

    @property
    def is_turn_of_oldest(self) -> bool:
        """Return whether the next job to start is the oldest one, whatever its priority."""
        return self.urgent_starts >= ONE_OF - 1

    def started(self, *, urgent: bool, by_age: bool = False) -> None:
        """A job has started: an *urgent* one, unless it has the turn of the oldest (*by_age*), or another."""
        if urgent and not (by_age and self.is_turn_of_oldest):
            self.urgent_starts = min(self.urgent_starts + 1, _MOST_REMEMBERED)
        else:
            self.urgent_starts = max(self.urgent_starts - (ONE_OF - 1), 0)

    def for_oldest(self, places: int) -> int:
        """The number of the next *places* jobs that are taken for their age."""
        return min((self.urgent_starts + places) // ONE_OF, places)


class Shares:
    """The share of each name; one for all names where these share their slots, and so compete."""

    def __init__(self, *, shared: bool) -> None:
        self.is_shared = shared
        """All names share their slots."""
        self._by_name: dict[str, Share] = {}
        self.is_counting = False
        """Urgent jobs were met here: before that, nothing is counted."""

    @property
    def is_turn_of_oldest(self) -> bool:
        """Return whether that is so for all names, which share their slots."""
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
        self._index = URGENT.document["name"] if use_index else None
        self.shares = shares
        self._is_expected = False
        self._is_backlog = True
        self._last_look = 0.0
        self._others_were_faster = False

    def expect(self) -> None:
        """Look with the next poll: a job with a priority was stored or changed, or everything is polled."""
        self._is_expected = True

    def note_backlog(self, is_backlog: bool) -> None:
        """Record whether the last poll left due jobs behind: urgent ones may come to stand behind them."""
        self._is_backlog = is_backlog

    def is_look_due(self) -> bool:
        """Return whether to look for urgent jobs with this poll."""
        if not self._is_expected and not self._is_backlog:
            return False
        if not self._is_used():
            return False
        return self._is_expected or time.perf_counter() - self._last_look >= _LOOK_EVERY

    async def look(self, names: Iterable[str], besides: int, now: datetime) -> list[Entry]:
        """The most urgent due jobs of these names, in the order in which they should start.

        *besides* of them may be known, and left alone. There may be more if it finds `MOST_AT_ONCE`.
        """
        self._is_expected = False
        self._last_look = time.perf_counter()
        names = list(names)
        limit = (_MOST_READ if self._others_were_faster else MOST_AT_ONCE) + besides
        parts = [names[at : at + NAMES_IN_ONE_QUERY] for at in range(0, len(names), NAMES_IN_ONE_QUERY)]
        found = await asyncio.gather(*(self._read(part, limit, now) for part in parts))
        entries = [entry for part in found for entry in part if _is_claimable(entry)]
        # Look again with the next poll if there may be more; or if one was stored meanwhile.
        self._is_expected = self._is_expected or bool(entries)
        if len(parts) > 1:
            entries.sort(key=_urgency_of)
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
            hint=self._index,
        )
        return found


def _is_claimable(entry: Entry) -> bool:
    """Leave out arrays, which match if an element does: the poll reports them, and nobody claims them."""
    return type(entry["name"]) is str and isinstance(entry["nextRunAt"], datetime)


def _urgency_of(entry: Any) -> tuple[float, datetime, bytes]:
    priority = entry["priority"]
    urgency = float(priority) if isinstance(priority, int | float) else 0.0
    return -urgency, entry["nextRunAt"], getattr(entry["_id"], "binary", b"")


# A claim of this many jobs is the sign of a backlog, so it is worth reading ahead for the next ones.
_BACKLOG = 100

# During a backlog one poll feeds up to three claims within 300 ms: the server pays for each poll, because it
# walks through the entries of all jobs of these names that were claimed lately. Later, too many entries have
# changed by the time they are claimed.
_CLAIMS_AHEAD = 3
_READ_AHEAD_LASTS = timedelta(milliseconds=300)

# Under contention a window further back feeds two claims within this time. It is longer: nobody else is
# likely to be there, and on a machine with more processes than cores the next claim comes late: with half of
# it, each claim of eight processes on two cores polls again.
_WINDOW_LASTS = timedelta(seconds=1)


class Choice(NamedTuple):
    """The jobs to try to claim, and what else was seen."""

    ids: list[Any]
    names: frozenset[str]
    """The names of these jobs."""
    next_due: datetime | None
    """The time at which the earliest job will be due that is not."""
    more: bool
    """Due jobs are left for which there are slots."""
    backlog: bool
    """Due jobs are left, with slots for them or not."""
    rest: Poll | None = None
    """The jobs that stay pending if all of them are claimed; None if nobody knows."""
    by_age: int = 0
    """So many of the ids, the first ones, are there for their age, before urgent ones."""
    urgent: int = 0
    """So many of the ids, those after them, are there for their priority."""
    lone: bool = False
    """No poll has shown these jobs."""


class Chooser:
    """Knows where due jobs may be, and chooses which of them to claim.

    Whoever hears of a job calls `wake` or `expect`; whoever claims calls `choose`, and then `record` or
    `fail`. All times in here are naive, and UTC, as *collection* reads them.
    """

    def __init__(
        self,
        collection: AsyncCollection[Any],
        clock: Clock,
        options: Options,
        refused: Refused,
        uses_priorities: Callable[[], bool],
    ) -> None:
        self._clock = clock
        self._refused = refused
        self.shares = Shares(shared=options.instance_concurrency is not None)
        use_index = options.create_indexes
        self._urgent = Urgent(collection, uses_priorities, self.shares, use_index=use_index)
        self._poller = Poller(collection, use_index=use_index)
        self._idle = IdleNames()
        self._contention = Contention()
        self._ahead: Poll | None = None
        self._rest_of_window: Poll | None = None
        """The jobs of the last window further back that its claim left."""
        self._are_alone = False
        """The last claim took urgent jobs, and no others."""
        self._expected: Entry | None = None
        """A due job that was left for later: if the next poll does not show it, somebody else is here."""

    def wake(self, name: str | None = None, job_id: ObjectId | None = None, *, urgent: bool = False) -> None:
        """Poll for *name* with the next choice (default: all names). *job_id* allows one without a poll.

        *urgent*: look for jobs with a priority, too.
        """
        if urgent:
            self._urgent.expect()
        if name is not None and job_id is not None:
            self._idle.wake_for(name, job_id)
        else:
            self._idle.wake(name)

    def may_have(self, name: str) -> bool:
        """Return whether a job of the name may be due: it is not at rest, or one of it was told of."""
        return self._idle.has_lone(name) or not self._idle.is_idle(name, self._now())

    def expect(self, name: str | None, due: datetime, *, urgent: bool = False) -> None:
        """Poll for *name* (None: for all names) when *due* has come; until then a name at rest stays so."""
        if urgent:
            self._urgent.expect()
        self._idle.expect(name, due.astimezone(UTC).replace(tzinfo=None))

    async def choose(self, slots: Mapping[str, int], limit: int) -> Choice:
        """The oldest due jobs, at most *limit*, and of each name as many as it has slots.

        If every name with a slot is idle but for lone jobs, it is these, without a poll.
        """
        now = self._now()
        if lone := self._idle.take_lone(slots, limit, now):
            next_due = aware_or_none(self._idle.next_due(slots, now))
            ids = list(lone.values())
            return Choice(ids, frozenset(lone), next_due, more=False, backlog=False, lone=True)
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
        by_age: list[Entry] = []
        for share, names in self._urgent.shares.groups({entry["name"] for entry in due}) if due else ():
            await self._choose_owed(share, names, due, places, room, by_age)
        urgent: list[Entry] = []
        wanted = places - len(by_age)
        left = _pick(self._urgent.some_of(_without(by_age, due), wanted), wanted, room, urgent)
        chosen = [*by_age, *urgent]
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
        return choice._replace(by_age=len(by_age), urgent=len(urgent))

    async def _choose_owed(
        self,
        share: Share,
        names: list[str],
        due: list[Entry],
        places: int,
        room: dict[str, int],
        by_age: list[Entry],
    ) -> None:
        """Add the oldest due jobs to *by_age*, if urgent ones would leave no room for those that are owed."""
        free = min(sum(room.get(name, 0) for name in names), places - len(by_age))
        owed = share.for_oldest(free)
        rivals = sum(1 for entry in due if entry["name"] in names)
        if not owed or rivals + owed <= free:
            return
        among = room if self._urgent.shares.is_shared else [name for name in names if name in room]
        # Those that are taken for their priority have their turn already.
        taken = [*due[:places], *by_age]
        poll = await self._poller.poll(among, owed, besides=len(taken) + len(self._refused))
        oldest, _ = poll.split(self._now())
        _pick(self._claimable(oldest, taken), owed, room, by_age)

    async def _choose_by_age(
        self, room: dict[str, int], limit: int, next_due: datetime, chosen: list[Entry]
    ) -> Choice:
        """The oldest due jobs, beside those that are *chosen* for another reason."""
        taken = len(chosen)
        limit = taken + self._contention.fair_batch(min(limit - taken, sum(room.values())))
        await self._choose_further_back(room, limit, chosen)
        if len(chosen) > taken:
            choice = _choice(chosen, NEVER, more=True, backlog=True)
        else:
            choice = await self._choose_oldest(room, limit, next_due, chosen)
        self._urgent.note_backlog(choice.backlog)
        return choice

    async def _choose_further_back(self, room: dict[str, int], limit: int, chosen: list[Entry]) -> None:
        """Under contention: half of a window further back, where nobody else is likely to be; or nothing."""
        limit -= len(chosen)
        window = 2 * limit
        skip = self._contention.skip(window)
        if skip and (rest := self._take_rest_of_window(room, limit)) is not None:
            _pick(self._claimable(rest, chosen), limit, room, chosen)
            return
        while skip:
            self._expected = None  # it may be among the jobs that we take here
            poll = await self._poller.poll(room, window, besides=len(self._refused), skip=skip)
            due, future = poll.split(self._now())
            self._contention.record_depth(skip + len(due), is_all=poll.complete or bool(future))
            if len(due) >= window:
                picked, rest = spread(due, limit)
                self._rest_of_window = poll._replace(entries=rest, expires=self._now() + _WINDOW_LASTS)
                _pick(self._claimable(picked, chosen), limit, room, chosen)
                return
            skip = min(self._contention.skip(window), skip // 2)

    def _take_rest_of_window(self, names: Iterable[str], limit: int) -> list[Entry] | None:
        """The half of the last window that the claim before left, if it serves this one."""
        poll, self._rest_of_window = self._rest_of_window, None
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

    def record(self, choice: Choice, *, won: int, won_first: int = 0) -> None:
        """Record how many of the chosen jobs a claim got; *won_first* of them for their age or priority."""
        if choice.lone:
            if won < len(choice.ids):
                self.fail(choice)
            return
        self._idle.forget_lone(choice.ids)
        if first := choice.by_age + choice.urgent:
            self._urgent.record_claim(chosen=first, won=won_first)
        if len(choice.ids) > first or not first:
            self._contention.record_claim(chosen=len(choice.ids) - first, won=won - won_first)
        if won < len(choice.ids):
            self._ahead = None  # the lost ones may be pending still, and are not in it
            if not self._contention.tolerates(len(choice.ids), won):
                self._rest_of_window = None  # somebody else is there
        elif choice.ids and (rest := choice.rest) is not None:
            self._idle.rest(rest.names, rest.entries, seen_until=rest.seen_until, mark=rest.mark)

    def fail(self, choice: Choice) -> None:
        """Poll for lone jobs that a claim missed.

        It has failed, somebody else was faster, or the job is not due yet by the clock of a new primary.
        """
        for name in choice.names if choice.lone else ():
            self._idle.wake(name)

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
    ids, names = [entry["_id"] for entry in chosen], frozenset(entry["name"] for entry in chosen)
    return Choice(ids, names, aware_or_none(next_due), more, backlog)
