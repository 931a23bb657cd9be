"""Whoever looks on while jobs are stored, wait, run and end; with nobody there it costs next to nothing.

Two kinds look on: observers, which count (of the Prometheus collector, of OpenTelemetry's meter, of users),
and OpenTelemetry's tracer. OpenTelemetry is never imported here before somebody else in the process has
done so: without that, nobody can have configured it.
"""

from __future__ import annotations

import logging
import sys
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from monque._errors import ConfigurationError, ProcessDiedError
from monque._job import Job
from monque._logs import log_start
from monque._raised import log_raised
from monque._views import QueueDepth

if TYPE_CHECKING:
    from collections.abc import Iterator

    from monque._execute import Outcome, Run
    from monque._otel import OpenTelemetry, Tracing
    from monque._store.document import Document

logger = logging.getLogger("monque")

Ending = Literal["completed", "retried", "failed"]
"""How a run ended: well; badly, and the job is tried again; badly, for good."""


class Observer:
    """Is told in numbers what an instance does; override what you need, and hand it to `Monque.observe`.

    The methods are called on the event loop and must be quick. One that raises is logged and disturbs
    nothing.
    """

    def enqueued(self, name: str, count: int) -> None:
        """So many jobs of this name were stored here; in a transaction, before it commits."""

    def ended(
        self,
        name: str,
        ending: Ending,
        *,
        waited: timedelta,
        ran: timedelta,
        error: BaseException | None,
    ) -> None:
        """A job of this name ran here, and how that ended is stored.

        Also called for a job that recovery gave up because the processes that ran it died too often. Then
        *error* is a `ProcessDiedError`, and both durations are zero: nobody has measured them.

        Args:
            name: The job name.
            ending: completed, retried (it failed and is tried again) or failed (for good).
            waited: From the time it was due to the call of the handler.
            ran: How long the handler took.
            error: What it raised.
        """

    def surveyed(self, depths: Sequence[QueueDepth], *, collection: str) -> None:
        """All jobs that wait or run, by name; told now and then while this instance processes jobs.

        Each time it replaces what was told before of this *collection* (`database.collection`). When the
        instance stops, an empty list is told.
        """

    def stalled(self, duration: timedelta) -> None:
        """The event loop stood still for so long: a handler, or something else in this process, blocked it.

        Told when it goes on, if it was more than a second.
        """


Stored: TypeAlias = "Callable[[Sequence[Document]], None]"


class Telemetry:
    """Knows who looks on at one instance."""

    def __init__(self) -> None:
        self._observers: tuple[Observer, ...] = ()

    def add(self, observer: object) -> None:
        """Have somebody look on from now on."""
        if not isinstance(observer, Observer):
            raise ConfigurationError(f"an observer must be a monque.Observer, got {observer!r}")
        self._observers += (observer,)

    def audience(self) -> Audience | None:
        """Everybody who looks on at this moment; None, mostly, if there is nobody."""
        observers, tracing = self._observers, None
        otel = opentelemetry()
        if otel is not None:
            tracing = otel.tracing
            observers = observers if otel.metrics is None else (*observers, otel.metrics)
        if not observers and tracing is None and not logger.isEnabledFor(logging.DEBUG):
            return None
        return Audience(observers, tracing)

    def storing(self, documents: Sequence[Document]) -> AbstractContextManager[Stored]:
        """While new jobs are stored; call what it gives with the documents that are there afterwards."""
        audience = self.audience()
        return _UNSEEN if audience is None else audience.storing(documents)


class Audience:
    """Those who look on."""

    def __init__(self, observers: tuple[Observer, ...], tracing: Tracing | None) -> None:
        self.observers = observers
        self._tracing = tracing

    @contextmanager
    def storing(self, documents: Sequence[Document]) -> Iterator[Stored]:
        """A span around it; then count what is new, not what held a unique key before."""

        def count(stored: Sequence[Document]) -> None:
            pairs = zip(documents, stored, strict=True)
            names = Counter(wanted["name"] for wanted, there in pairs if wanted["_id"] == there["_id"])
            for name, number in names.items():
                self._tell(lambda observer: observer.enqueued(name, number))  # noqa: B023 - called at once

        with nullcontext() if self._tracing is None else self._tracing.sending(documents):
            yield count

    async def attend(self, run: Run, call: Awaitable[Outcome]) -> Outcome:
        """Look on while the handler is called."""
        log_start(run.job)
        return await (call if self._tracing is None else self._tracing.processing(run, call))

    def ended(self, job: Job[Any], ending: Ending, outcome: Outcome, *, at: datetime) -> None:
        """A run is over and settled; *at* is when its handler returned."""
        ran, error = outcome.duration, outcome.error
        due: datetime | None = job.next_run_at  # None if somebody changed the document by hand
        waited = timedelta(0) if due is None else max(at - ran - due, timedelta(0))
        self._tell(lambda observer: observer.ended(job.name, ending, waited=waited, ran=ran, error=error))

    def gave_up(self, name: str, error: ProcessDiedError) -> None:
        """Recovery has given up a job. How long it waited and ran is known to nobody."""
        unknown = timedelta(0)
        self._tell(lambda observer: observer.ended(name, "failed", waited=unknown, ran=unknown, error=error))

    def surveyed(self, depths: Sequence[QueueDepth], collection: str) -> None:
        """The waiting jobs were counted."""
        self._tell(lambda observer: observer.surveyed(depths, collection=collection))

    def stalled(self, duration: timedelta) -> None:
        """The event loop stood still."""
        self._tell(lambda observer: observer.stalled(duration))

    def _tell(self, what: Callable[[Observer], None]) -> None:
        for observer in self.observers:
            try:
                what(observer)
            except BaseException as error:  # noqa: BLE001 - whatever it is, the job has nothing to do with it
                log_raised(error, "the observer %r failed", observer)


def opentelemetry() -> OpenTelemetry | None:
    """Our side of OpenTelemetry, if it is configured in this process."""
    if "opentelemetry.trace" not in sys.modules and "opentelemetry.metrics" not in sys.modules:
        return None
    from monque._otel import configured

    return configured()


def _count_nothing(_stored: Sequence[Document]) -> None: ...


_UNSEEN: AbstractContextManager[Stored] = nullcontext(_count_nothing)
