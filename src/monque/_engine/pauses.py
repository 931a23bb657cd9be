"""What operators have set for all instances, as far as this one knows: which names are paused.

The promise: two seconds after `pause` returned, no instance starts a job of that name. So nothing starts on
knowledge that is older. There is no stream of changes: a standalone server, a mongos and a stream that was
closed for a backlog behave alike. The control document is read in parallel with a claim, at most once a
second; an instance that claims nothing does not read it, unless a name that it serves is paused.
"""

from __future__ import annotations

import asyncio
import contextvars
import logging
import math
from collections.abc import Callable, Coroutine
from datetime import datetime, timedelta
from typing import Any, Protocol, TypeVar

from pymongo.errors import OperationFailure, PyMongoError

from monque._connect.deadlines import limited, without_deadline
from monque._engine.context import Context
from monque._observe import notices
from monque._store.pauses import NOTHING, Settings, is_unreadable
from monque._time.clock import elapsed
from monque._values.events import NamePaused, NameResumed
from monque._values.views import Pause
from monque._values.words import driver_reason
from monque._workers.workers import Workers

R = TypeVar("R")

# Knowledge older than this is renewed with the next claim. With half of it, a busy instance reads twice as
# often; with twice, jobs would wait at the start for a renewal, or the promise of two seconds would not hold.
_RENEW_AFTER = 1.0

# Nothing starts on knowledge older than this. What is left of the two seconds is for the way from here into
# the handler. At half of it, prefetched jobs would wait for each renewal; at twice, the promise would not
# hold.
_TRUSTED_FOR = 1.8

# If the user may not read the control document, try again after this: somebody may grant the right. Half of
# it doubles the entries in the server's audit log; with twice, pauses begin to work later.
_REFUSED_FOR = 60.0

_BY_HANDLER = "a handler raised Snooze(whole_name=True)"


class Spawn(Protocol):
    """Starts a task that the runner owns."""

    def __call__(
        self, loop: Coroutine[Any, Any, R], /, context: contextvars.Context | None = None
    ) -> asyncio.Task[R]: ...


class Control:
    """Knows which names are paused, and how old that knowledge is.

    A primary that was deposed, and does not know it yet, shows an old document. So a read alone is not
    trusted: it needs a majority write that the same primary has acknowledged after it, which a deposed one
    cannot do. Each claim is such a write, so it costs nothing.
    """

    def __init__(
        self,
        context: Context,
        workers: Workers,
        spawn: Spawn,
        is_running: Callable[[], bool],
        on_change: Callable[[], None],
    ) -> None:
        self._context = context
        self._workers = workers
        self._spawn = spawn
        self._is_running = is_running
        self._on_change = on_change
        self._settings = NOTHING
        self._read_at = -math.inf
        """When the read was sent whose answer we have (`elapsed`)."""
        self.trusted_until = -math.inf
        """Until when jobs may start on what is known (`elapsed`): a majority write has confirmed the read."""
        self.has_pauses = False
        """Whether anything is paused. Each run reads this and the time above, so both are plain values."""
        self._read_from: object = None
        """The servers that took writes when that read was sent."""
        self._reading: asyncio.Task[PyMongoError | None] | None = None
        self._noticed: dict[str | None, Pause] = {}
        self._is_refused = False
        # A run may ask for the read. What that notices has nothing to do with its job, or with a deadline.
        self._variables = without_deadline()

    def holds_back(self, name: object) -> bool:
        """Whether no job of this name may start now. This is the gate between a claim and its start."""
        settings = self._settings
        # Somebody may have changed the name by hand since the job was chosen; then no handler is called.
        if not settings.pauses or type(name) is not str:
            return False
        return settings.pause_of(name, self._context.store.clock.now()) is not None

    @property
    def is_watching(self) -> bool:
        """Whether a name that is served here is paused: then the end of the pause is awaited."""
        return bool(self._noticed)

    @property
    def seconds_to_renewal(self) -> float:
        """How long what is known need not be read again."""
        return max(self._read_at + _RENEW_AFTER - elapsed(), 0.0)

    @property
    def ends(self) -> list[datetime]:
        """When pauses that were noticed here end by themselves."""
        return [pause.until for pause in self._noticed.values() if pause.until is not None]

    def renew(self) -> None:
        """Begin to read the document if what is known is old and no read is under way."""
        if self._reading is None and self.seconds_to_renewal == 0 and self._is_running():
            self._reading = self._spawn(self._read(), self._variables.copy())

    async def renewed(self) -> None:
        """Wait for the read that is under way; raise the error with which it failed."""
        if (reading := self._reading) is None:
            return
        await asyncio.wait({reading})  # not cancelled with the caller: others may wait for it, too
        if not reading.cancelled() and (error := reading.result()) is not None:
            raise error

    async def confirmed(self) -> None:
        """Trust what is known. To be called after a majority write that came back after `renew` was called.

        The driver repeats a write at a new primary, not the read: then the read has to be repeated, too.
        """
        self.renew()
        await self.renewed()
        is_new = self.trusted_until < self._read_at + _TRUSTED_FOR
        if is_new and self._read_from != self._context.store.server.writable:
            self._read_at = -math.inf
            self.renew()
            await self.renewed()
        self.trusted_until = self._read_at + _TRUSTED_FOR

    async def pause(self, name: str, until: datetime | timedelta) -> None:
        """Pause a name for all instances because a handler wants it; a pause that ends later stays."""
        store, sent = self._context.store, elapsed()
        with limited():
            settings = await store.control.pause_at_least(
                name, until=until, reason=_BY_HANDLER, by=store.instance_id
            )
        self.learn_written(settings, sent)

    def learn_written(self, settings: Settings, sent: float) -> None:
        """A majority write of this process, sent at *sent*, has left the document like this."""
        self._learn(settings, sent)
        self.trusted_until = max(self.trusted_until, sent + _TRUSTED_FOR)

    def _learn(self, settings: Settings, sent: float, read_from: object = None) -> None:
        """Take in the document as it was at *sent* or later; answers may overtake each other."""
        if sent >= self._read_at:
            self._settings, self._read_at, self._read_from = settings, sent, read_from
            self.has_pauses = bool(settings.pauses)
            self._context.store.uses.learn(settings.uses)
            self.notice()

    def notice(self) -> bool:
        """Emit what has changed for the names that are served here; return whether one of them is paused.

        A pause may have run out since the last call, or a worker may have been registered.
        """
        if not self._settings.pauses and not self._noticed:
            return False
        before, self._noticed = self._noticed, self._served_pauses()
        for name, pause in self._noticed.items():
            if before.get(name) != pause:
                self._context.log(logging.INFO, notices.paused(pause))
                self._context.bus.emit(NamePaused(name=name, pause=pause))
        for name in before.keys() - self._noticed.keys():
            self._context.log(logging.INFO, notices.resumed(name))
            self._context.bus.emit(NameResumed(name=name))
        if before != self._noticed:
            self._on_change()
        return bool(self._noticed)

    def _served_pauses(self) -> dict[str | None, Pause]:
        now = self._context.store.clock.now()
        return {
            pause.name: pause
            for pause in self._settings.in_force(now)
            if pause.name is None or self._workers.serves(pause.name)
        }

    async def _read(self) -> PyMongoError | None:
        """Read the document; return the error, if there is one."""
        store = self._context.store
        sent, servers = elapsed(), store.server.writable
        try:
            with limited():
                settings = await store.control.read()
        except OperationFailure as error:
            if not is_unreadable(error):
                return error
            self._warn_once(error)
            # For a while this counts as known.
            settings, sent = NOTHING, sent + _REFUSED_FOR - _RENEW_AFTER
        except PyMongoError as error:
            return error
        finally:
            self._reading = None
        self._learn(settings, sent, servers)
        return None

    def _warn_once(self, error: OperationFailure) -> None:
        if not self._is_refused:
            self._is_refused = True
            place = self._context.store.control.place
            text = (
                f"cannot read {place}, so no pause of a job name has an effect here: {driver_reason(error)}"
            )
            self._context.log(logging.WARNING, text)
