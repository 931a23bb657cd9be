"""Which names have no due job, or a single one that we know; and until when."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

from bson import ObjectId

from monque._store.document import Entry

NEVER = datetime.max  # noqa: DTZ901 - naive, as all times in here


def aware_or_none(due: datetime) -> datetime | None:
    """A time of `IdleNames` for callers outside of it: aware, and None for `NEVER`."""
    return None if due == NEVER else due.replace(tzinfo=UTC)


class IdleNames:
    """Remembers which names need not be polled, and until when.

    Invariant: a name is idle until a time only if a poll that began after the last wake-up of the name saw
    every pending job of it that is due before that time. So if a name is woken while a poll is under way,
    that poll cannot put it to rest. If a hint names one new job of an idle name, that job is the only one of
    the name that may be due: it can be claimed by its id, and the name stays idle.

    Entries of claimed jobs stay in the index for some minutes, and the server walks through them: to poll a
    name without work costs as much as to poll one with jobs. All times are naive, and UTC.
    """

    def __init__(self) -> None:
        self._until: dict[str, datetime] = {}
        self._hinted: dict[str, ObjectId] = {}
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

    def hint(self, name: str, job_id: ObjectId) -> None:
        """A job of the name became due. Have the name polled, unless it is at rest but for this job."""
        if name in self._hinted or name not in self._until:
            self.wake(name)
        else:
            self._hinted[name] = job_id

    def take_hinted(self, slots: Mapping[str, int], limit: int, now: datetime) -> dict[str, ObjectId]:
        """Jobs to claim by their ids, one of a name; none if another job may be due: it would come first."""
        if not self._hinted:
            return {}
        hinted, self._hinted = self._hinted, {}
        chosen: dict[str, ObjectId] = {}
        is_alone = len(hinted) <= limit and all(self.is_idle(name, now) for name in slots)
        for name, job_id in hinted.items():
            if is_alone and slots.get(name):
                chosen[name] = job_id
            else:
                self.wake(name)
        return chosen

    def forget_hinted(self, job_ids: Iterable[Any]) -> None:
        """A poll has found these jobs, and they are claimed: they need no claim by their ids any more."""
        if self._hinted:
            known = {job_id for job_id in job_ids if type(job_id) is ObjectId}
            self._hinted = {name: job_id for name, job_id in self._hinted.items() if job_id not in known}

    def begin_poll(self) -> int:
        """A mark for the moment before a poll, for `rest` and `woken_since`."""
        return self._wakes

    def woken_since(self, mark: int) -> bool:
        """Whether any name was woken after the mark."""
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
        """Whether the name has nothing due."""
        return self._until.get(name, now) > now

    def next_due(self, names: Iterable[str], now: datetime) -> datetime:
        """When the first of the idle ones among *names* has to be polled; `NEVER` if none has to be."""
        times = (self._until.get(name, now) for name in names)
        return min((until for until in times if until > now), default=NEVER)
