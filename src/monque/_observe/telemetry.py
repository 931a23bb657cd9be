"""Hooks for metrics and tracing; almost free while none is registered.

Observers count: the Prometheus collector, OpenTelemetry's meter, classes of users. OpenTelemetry's tracer
makes spans. OpenTelemetry is imported here only after somebody else in the process has imported it: before
that, nobody can have configured it.
"""

from __future__ import annotations

import logging
import sys
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, TypeAlias

from monque._observe.logs import log_start
from monque._observe.observer import Ending, Observer
from monque._store.document import Document
from monque._values.errors import ConfigurationError, ProcessDiedError
from monque._values.job import Job
from monque._values.views import QueueDepth
from monque._values.words import log_raised

if TYPE_CHECKING:  # both need OpenTelemetry, which is optional
    from monque._observe.otel import OpenTelemetry, ResultT, Tracing

logger = logging.getLogger("monque")

Stored: TypeAlias = Callable[[Sequence[Document]], None]


class Telemetry:
    """The observers of one instance, and OpenTelemetry where it is configured."""

    def __init__(self) -> None:
        self._observers: tuple[Observer, ...] = ()

    def add(self, observer: object) -> None:
        """Register an observer."""
        if not isinstance(observer, Observer):
            raise ConfigurationError(f"an observer must be a monque.Observer, got {observer!r}")
        self._observers += (observer,)

    def audience(self) -> Audience | None:
        """Return all hooks that are registered now, or None if there are none."""
        observers, tracing = self._observers, None
        imported = "opentelemetry.trace" in sys.modules or "opentelemetry.metrics" in sys.modules
        if imported and (otel := _opentelemetry()) is not None:
            tracing = otel.tracing
            observers = observers if otel.metrics is None else (*observers, otel.metrics)
        if not observers and tracing is None and not logger.isEnabledFor(logging.DEBUG):
            return None
        return Audience(observers, tracing)

    def storing(self, documents: Sequence[Document]) -> AbstractContextManager[Stored | None]:
        """Wrap the insert of new jobs; if it yields a function, call that with the documents then stored."""
        audience = self.audience()
        return _UNSEEN if audience is None else audience.storing(documents)


class Audience:
    """The hooks that were registered at one moment."""

    def __init__(self, observers: tuple[Observer, ...], tracing: Tracing | None) -> None:
        self.observers = observers
        self._tracing = tracing

    @contextmanager
    def storing(self, documents: Sequence[Document]) -> Iterator[Stored]:
        """Make a span around the insert, and count the new jobs, not those that held a unique key before."""

        def count(stored: Sequence[Document]) -> None:
            pairs = zip(documents, stored, strict=True)
            names = Counter(wanted["name"] for wanted, there in pairs if wanted["_id"] == there["_id"])
            for name, number in names.items():
                self._notify(lambda observer: observer.enqueued(name, number))  # noqa: B023 - called at once

        with nullcontext() if self._tracing is None else self._tracing.sending(documents):
            yield count

    async def attend(self, job: Job[Any], claim: Mapping[str, Any], call: Awaitable[ResultT]) -> ResultT:
        """Await the call of a handler, inside a span if there is a tracer."""
        log_start(job)
        return await (call if self._tracing is None else self._tracing.processing(job, claim, call))

    def stepping(self, job: Job[Any], name: str, kind: str) -> AbstractContextManager[None]:
        """Wrap a durable step of a run, in a span if there is a tracer."""
        return nullcontext() if self._tracing is None else self._tracing.stepping(job, name, kind)

    def ended(
        self, job: Job[Any], ending: Ending, *, ran: timedelta, error: BaseException | None, at: datetime
    ) -> None:
        """Report a run that is settled; *at* is when its handler returned."""
        due: datetime | None = job.next_run_at  # None if somebody changed the document by hand
        waited = timedelta(0) if due is None else max(at - ran - due, timedelta(0))
        self._notify(lambda observer: observer.ended(job.name, ending, waited=waited, ran=ran, error=error))

    def gave_up(self, name: str, error: ProcessDiedError) -> None:
        """Report a job that recovery has given up. Nobody knows how long it waited and ran."""
        unknown = timedelta(0)
        self._notify(
            lambda observer: observer.ended(name, "failed", waited=unknown, ran=unknown, error=error)
        )

    def surveyed(self, depths: Sequence[QueueDepth], collection: str) -> None:
        """Report how many jobs wait."""
        self._notify(lambda observer: observer.surveyed(depths, collection=collection))

    def stuck(self, name: str, count: int) -> None:
        """Report how many handlers do not stop though they were told to."""
        self._notify(lambda observer: observer.stuck(name, count))

    def stalled(self, duration: timedelta) -> None:
        """Report that the event loop was blocked."""
        self._notify(lambda observer: observer.stalled(duration))

    def _notify(self, call: Callable[[Observer], None]) -> None:
        for observer in self.observers:
            try:
                call(observer)
            except BaseException as error:  # noqa: BLE001 - whatever it is, the job has nothing to do with it
                log_raised(error, "the observer %r failed", observer)


def trace_context() -> dict[str, str]:
    """The current trace context, for a child process that runs a handler; empty without OpenTelemetry."""
    if "opentelemetry" not in sys.modules:
        return {}
    from monque._observe.otel import carrier

    return carrier()


def _opentelemetry() -> OpenTelemetry | None:
    """Return our side of OpenTelemetry, if it is configured in this process."""
    from monque._observe.otel import configured

    return configured()


_UNSEEN: AbstractContextManager[None] = nullcontext(None)
