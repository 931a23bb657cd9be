"""The pauses that operators have set for all instances, as far as this one knows.

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
from datetime import timedelta
from functools import partial
from typing import Any, Protocol, TypeVar

from pymongo.errors import OperationFailure, PyMongoError

from monque._connect.deadlines import limited, without_deadline
from monque._engine.claimed import Run
from monque._engine.context import Context
from monque._engine.decide import Outcome
from monque._observe import logs
from monque._observe.logs import about
from monque._store.pauses import NOTHING, Settings, is_unreadable
from monque._time.clock import Refusals, elapsed
from monque._values.events import JobError, NamePaused, NameResumed
from monque._values.verdicts import Snooze
from monque._values.views import Pause
from monque._values.words import driver_reason
from monque._workers.workers import Workers

logger = logging.getLogger("monque")

R = TypeVar("R")

# Knowledge older than this is renewed with the next claim, so that jobs do not wait for that at their start.
_RENEW_AFTER = 1.0

# Nothing starts on knowledge older than this. What is left of the two seconds is for the way from here into
# the handler.
_TRUSTED_FOR = 1.8

# If the user may not read the control document, try again after this: somebody may grant the right. Each try
# is an entry in the server's audit log.
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
        """The time at which the read was sent whose answer we have (`elapsed`)."""
        self.trusted_until = -math.inf
        """Until when jobs may start on what is known (`elapsed`): a majority write has confirmed the read."""
        self.is_paused: Callable[[str], bool] | None = None
        """Tells of a name whether no job of it may start now; None while nothing is paused.

        Each run reads this and the time above, so both are plain values.
        """
        self.in_force: dict[str | None, Pause] = {}
        """The pauses that concern names served here: their ends are awaited."""
        self._read_from: object = None
        """The servers that took writes when that read was sent."""
        self._reading: asyncio.Task[PyMongoError | None] | None = None
        self._refusals = Refusals()
        # A run may ask for the read. What that notices has nothing to do with its job, or with a deadline.
        self._variables = without_deadline()

    def _is_paused(self, name: str) -> bool:
        """Return whether no job of this name may start now: the gate between a claim and its start."""
        return self._settings.pause_of(name, self._context.store.clock.now()) is not None

    @property
    def seconds_to_renewal(self) -> float:
        """The time for which what is known need not be read again."""
        return max(self._read_at + _RENEW_AFTER - elapsed(), 0.0)

    def renew(self) -> float:
        """Begin to read the document if what is known is old and no read is under way; return the time.

        The read counts from this time, so a write that is sent after the call is sent after the read began.
        """
        now = elapsed()
        if self._reading is None and now >= self._read_at + _RENEW_AFTER and self._is_running():
            self._reading = self._spawn(self._read(now), self._variables.copy())
        return now

    async def renewed(self) -> None:
        """Wait for the read that is under way; raise the error with which it failed."""
        if (reading := self._reading) is None:
            return
        await asyncio.wait({reading})  # not cancelled with the caller: others may wait for it, too
        if not reading.cancelled() and (error := reading.result()) is not None:
            raise error

    async def confirm(self, sent: float) -> None:
        """Trust what is known. Call it after a majority write, with the time that `renew` returned before it.

        The write proves nothing about a read that began later: its primary may be deposed by then. The driver
        repeats a write at a new primary, not the read: then the document is read again with the next write.
        """
        if self._reading is not None:
            await self.renewed()
        until = self._read_at + _TRUSTED_FOR
        if self.trusted_until < until and self._read_from != self._context.store.server.writable:
            self._read_at = -math.inf
        elif self._read_at <= sent:
            self.trusted_until = until

    async def pause_for(self, run: Run, verdict: Snooze, outcome: Outcome) -> Outcome:
        """Pause the name of a run for all instances, as its handler wants; a pause that ends later stays.

        This comes before the settlement, so that nothing of the name starts when that is told. If it cannot
        be stored, this job waits all the same, and the others are not kept from trying.
        """
        store, sent, until = self._context.store, elapsed(), verdict.delay or verdict.until or timedelta(0)
        try:
            with limited():
                settings = await store.control.pause_at_least(
                    run.worker.name, until=until, reason=_BY_HANDLER, by=store.instance_id
                )
        except PyMongoError as error:
            message = "job %s (%s) wants its name to rest, and that could not be stored: %s"
            logger.warning(message, run.job.id, run.job.name, driver_reason(error), extra=about(run.job))
            self._context.bus.emit(JobError(error=error, job=run.job))
        else:
            self.learn_written(settings, sent)
        return outcome

    def learn_written(self, settings: Settings, sent: float) -> None:
        """A majority write of this process, sent at *sent*, has left the document like this."""
        self._learn(settings, sent)
        self.trusted_until = max(self.trusted_until, sent + _TRUSTED_FOR)

    def _learn(self, settings: Settings, sent: float, read_from: object = None) -> None:
        """Take in the document as it was at *sent* or later; answers may overtake each other."""
        if sent >= self._read_at:
            self._settings, self._read_at, self._read_from = settings, sent, read_from
            self.is_paused = self._is_paused if settings.pauses else None
            self._context.store.uses.learn(settings.uses)
            self.emit_changes()

    def emit_changes(self) -> None:
        """Emit what has changed for the names that are served here.

        A pause may have run out since the last call, or a worker may have been registered.
        """
        if self.is_paused is None and not self.in_force:
            return
        before, self.in_force = self.in_force, self._served_pauses()
        for name, pause in self.in_force.items():
            if before.get(name) != pause:
                self._context.log(logging.INFO, logs.paused(pause))
                self._context.bus.emit(NamePaused(name=name, pause=pause))
        for name in before.keys() - self.in_force.keys():
            self._context.log(logging.INFO, logs.resumed(name))
            self._context.bus.emit(NameResumed(name=name))
            if self._context.tally is not None:
                self._context.tally.resume(name)
        if before != self.in_force:
            self._on_change()

    def _served_pauses(self) -> dict[str | None, Pause]:
        now = self._context.store.clock.now()
        return {
            pause.name: pause
            for pause in self._settings.in_force(now)
            if pause.name is None or self._workers.serves(pause.name)
        }

    async def _read(self, sent: float) -> PyMongoError | None:
        """Read the document; return the error, if there is one."""
        store = self._context.store
        servers = store.server.writable
        try:
            with limited():
                settings = await store.control.read()
        except OperationFailure as error:
            if not is_unreadable(error):
                return error
            if self._refusals.add():
                why = f"so no pause of a job name has an effect here: {driver_reason(error)}"
                self._context.log(logging.WARNING, f"cannot read {store.control.place}, {why}")
            # For a while this counts as known.
            self.learn_written(NOTHING, sent + _REFUSED_FOR - _RENEW_AFTER)
            return None
        except PyMongoError as error:
            return error
        else:
            self._refusals.clear()
        finally:
            self._reading = None
        self._learn(settings, sent, servers)
        return None


def pause_if_asked(run: Run, outcome: Outcome, control: Control) -> None:
    """Have the name of the run paused before its settlement if its handler raised a `Snooze` that says so."""
    verdict = outcome.error
    if isinstance(verdict, Snooze) and verdict.whole_name and not outcome.interrupted:
        run.finish_with(partial(control.pause_for, run, verdict))
