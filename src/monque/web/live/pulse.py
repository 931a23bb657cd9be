"""The pulse: one task that reads the live numbers each second, for everybody who listens.

A hundred listeners cost the database as much as one, and it costs nothing while nobody listens.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping
from contextlib import contextmanager, suppress
from contextvars import Context
from datetime import timedelta
from typing import Any, TypeAlias
from weakref import WeakKeyDictionary, WeakSet

from bson import ObjectId
from pymongo.errors import PyMongoError

from monque import AggregationTimeoutError, Monque, MonqueError
from monque._views.live import LiveReads, Snapshot, take
from monque._views.text import iso
from monque.web.live.broadcast import Bulletin, Message
from monque.web.text import words_for

# The pause after a tick is this many times what its reads took: all live views of a process together keep the
# server busy for a tenth of one core at most. With half of it they would take a fifth; with twice as much, a
# page would show numbers of 6 s ago where 200,000 jobs wait.
_GIVES_WAY = 10


Check: TypeAlias = Callable[[Coroutine[Any, Any, None]], Awaitable[None]]


async def _as_it_is(look: Coroutine[Any, Any, None]) -> None:
    await look


# All pulses of each instance.
_PULSES: WeakKeyDictionary[Monque, WeakSet[Pulse]] = WeakKeyDictionary()


class Pulse:
    """Reads the live numbers of one Monque while somebody listens, and publishes what changed.

    Args:
        monque: The instance to look at; it must be open while somebody listens.
        tick: How long it is from one look to the next, if the reads are quick.
        read_timeout: How long the server may work on one read.
        check: Awaits a look, and raises `ConnectionError` as soon as it is known that the database is away.
    """

    def __init__(
        self,
        monque: Monque,
        *,
        tick: timedelta = timedelta(seconds=1),
        read_timeout: timedelta = timedelta(seconds=5),
        check: Check | None = None,
    ) -> None:
        self._monque = monque
        self._tick = tick
        self._check = check or _as_it_is
        self._reads = LiveReads(monque, limit=read_timeout)
        self._bulletin = Bulletin()
        self._looking = asyncio.Lock()
        self._looked_at = 0.0
        self._announced_before_look = 0
        self._changed = asyncio.Event()
        self._listeners: set[Listener] = set()
        self._task: asyncio.Task[None] | None = None
        self._ending: set[asyncio.Task[None]] = set()
        self._stale_seq = 0
        _PULSES.setdefault(monque, WeakSet()).add(self)

    @property
    def epoch(self) -> str:
        """Stands before the numbers of ticks, so that nobody takes them for those of another process."""
        return self._bulletin.epoch

    @contextmanager
    def listen(self, *, last_seen: str | None = None, with_actor: bool = True) -> Iterator[Listener]:
        """Listen while the context lasts; the first listener starts the task, the last one ends it.

        Args:
            last_seen: The `<epoch>-<seq>` of the last tick that this client has seen, if it was here before.
            with_actor: Whether its `action` events say who acted, and the note.
        """
        listener = Listener(self, last_seen, with_actor)
        self._listeners.add(listener)
        self._start()
        try:
            yield listener
        finally:
            self._listeners.discard(listener)
            if not self._listeners:
                self._stop()

    async def look(self) -> Snapshot:
        """The newest snapshot; looks itself if there is none that is fresh.

        Raises:
            ConnectionError: The database does not answer.
            AggregationTimeoutError: A read took too long.
        """
        if not self._is_current():
            async with self._looking:
                if not self._is_current():
                    await self._look()
        return self._bulletin.newest

    def announce(
        self,
        *,
        action: str,
        outcome: str,
        actor: str,
        via: str = "web",
        job_id: ObjectId | str | None = None,
        name: str | None = None,
        count: int | None = None,
        note: str | None = None,
    ) -> None:
        """Tell all listeners that somebody acted, and let the next `look` be a fresh one.

        Those of other pulses of the same instance, too: a program may have two dashboards with rights of
        their own.
        """
        about = {
            "at": iso(self._monque.server_time()),
            "via": via,
            "action": action,
            "words": words_for(action),
            "outcome": outcome,
            "jobId": None if job_id is None else str(job_id),
            "name": name,
            "count": count,
        }
        who = {"actor": actor, "note": note}
        for pulse in _PULSES[self._monque]:
            pulse._pass_on(_known(about), _known(who))

    def touch(self) -> None:
        """Let the next `look` be a fresh one, without a word: a piece of an action that was announced."""
        for pulse in _PULSES[self._monque]:
            pulse._reads.begin()  # who acted sees the new counts at once, also those that are read seldom
            pulse._bulletin.announced += 1

    def _pass_on(self, about: dict[str, str | int], who: dict[str, str | int]) -> None:
        self._reads.begin()
        if not self._listeners:
            self._bulletin.announced += 1
            return
        self._bulletin.announce(about, who)
        self._wake()

    async def close(self) -> None:
        """End the task, though somebody may still listen. Afterwards it can be used again, in any loop."""
        self._stop()
        if self._ending:
            await asyncio.wait(self._ending)
        self._looking = asyncio.Lock()

    def _start(self) -> None:
        if self._task is None or self._task.done():
            self._stale_seq = self._bulletin.newest.seq
            self._reads.begin()
            # An empty context: what the first request set (a trace, a deadline) is not about the others.
            self._task = asyncio.create_task(self._run(), context=Context())
            self._task.add_done_callback(lambda _task: self._wake())

    def _stop(self) -> None:
        if self._task is not None and not self._task.done():
            self._ending.add(self._task)
            self._task.add_done_callback(self._ending.discard)
            self._task.cancel()
        self._task = None

    async def _run(self) -> None:
        while True:
            pause = await self._beat()
            await asyncio.sleep(pause)

    async def _beat(self) -> float:
        """Look once and publish it, or why that failed; the seconds until the next look."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        try:
            async with self._looking:
                await self._check(self._look())
        except AggregationTimeoutError as error:
            pause = _GIVES_WAY * (loop.time() - began)
            self._be_troubled(f"{error}; the next look is in {pause:.0f} s")
            return pause
        except (MonqueError, PyMongoError) as error:
            self._be_troubled(str(error))
            return self._tick.total_seconds()
        return max(0.0, began + self._bulletin.newest.every.total_seconds() - loop.time())

    async def _look(self) -> None:
        """Read everything and publish it as the next tick."""
        loop = asyncio.get_running_loop()
        began, announced = loop.time(), self._bulletin.announced
        was_troubled = self._bulletin.newest.trouble is not None
        reading = await self._reads.read()
        self._looked_at, self._announced_before_look = loop.time(), announced
        took = timedelta(seconds=loop.time() - began)
        # The first look after an outage has waited for its end: that says nothing about what a look costs.
        every = self._tick if was_troubled else max(self._tick, (_GIVES_WAY + 1) * took)
        self._bulletin.publish(take(reading, every=every, took=took))
        self._wake()

    def _be_troubled(self, text: str) -> None:
        if self._bulletin.be_troubled(text, self._monque.server_time()):
            self._wake()

    def _wake(self) -> None:
        # Each waits for the event that was there when it looked, so nobody has to clear it for the others.
        self._changed.set()
        self._changed = asyncio.Event()

    def _is_current(self) -> bool:
        newest, announced = self._bulletin.newest, self._bulletin.announced
        if not newest.totals or newest.trouble is not None or announced != self._announced_before_look:
            return False
        age = asyncio.get_running_loop().time() - self._looked_at
        return age < (self._tick if self._task is None else newest.every + self._tick).total_seconds()

    def _check_task(self) -> None:
        """Raise the bug that has ended the task, where somebody sees it."""
        if self._task is not None and self._task.done() and not self._task.cancelled():
            self._task.result()

    @property
    def _is_stale(self) -> bool:
        """Return whether the newest tick is from the last time that somebody listened."""
        return self._bulletin.newest.seq == self._stale_seq


class Listener:
    """One client of a pulse: it knows the last tick and the last announcement that it has seen."""

    def __init__(self, pulse: Pulse, last_seen: str | None, with_actor: bool) -> None:
        self._pulse = pulse
        self._bulletin = pulse._bulletin
        self._seq = self._bulletin.seq_of(last_seen)
        self._heard = self._bulletin.announced
        self._resumes = True
        self._with_actor = with_actor

    async def next(self, *, within: float) -> list[Message]:
        """The messages that this client has not seen; none if nothing came within so many seconds."""
        with suppress(TimeoutError):
            async with asyncio.timeout(within):
                while not (messages := self._take()):
                    await self._pulse._changed.wait()
                return messages
        return []

    def _take(self) -> list[Message]:
        self._pulse._check_task()
        messages = [*self._ticks(), *self._bulletin.actions(self._heard, with_actor=self._with_actor)]
        self._heard = self._bulletin.announced
        return messages

    def _ticks(self) -> Iterator[Message]:
        if self._pulse._is_stale:
            return
        news = self._bulletin.news(self._seq, resumes=self._resumes)
        if news is not None:
            self._seq, self._resumes = self._bulletin.newest.seq, False
            yield news


def _known(facts: Mapping[str, str | int | None]) -> dict[str, str | int]:
    return {name: value for name, value in facts.items() if value is not None}
