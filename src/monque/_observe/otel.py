"""OpenTelemetry: spans around storing and running a job, its context kept in the document, and metrics.

Imported only in a process that has imported OpenTelemetry itself. Uses the API alone: what comes of it is up
to the providers that the user has configured. Whatever these raise is logged and disturbs no job.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from types import TracebackType
from typing import Any, Final, Protocol, TypeVar

from opentelemetry import metrics, trace
from opentelemetry.context import Context, attach, detach
from opentelemetry.metrics import CallbackOptions, Histogram, Meter, Observation
from opentelemetry.trace import Link, NoOpTracer, Span, SpanKind, Status, StatusCode, Tracer
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from monque._observe.observer import Ending, Observer
from monque._store.document import Document, put_trace, trace_of
from monque._values.job import Job
from monque._values.verdicts import Cancel, Snooze
from monque._values.views import QueueDepth
from monque._values.words import bounded, describe, log_raised, text_of
from monque._version import __version__

logger = logging.getLogger("monque")

# One format whatever propagators a process has configured: every instance must be able to read it.
_PROPAGATOR = TraceContextTextMapPropagator()

# Where the API keeps the providers that do nothing.
_IDLE = ("opentelemetry.trace", "opentelemetry.metrics")


class Result(Protocol):
    """The end of a handler's call, as far as a span shows it."""

    @property
    def error(self) -> BaseException | None:
        """The error that the handler raised."""

    @property
    def interrupted(self) -> bool:
        """Return whether the handler was told to stop and ended by that, which is no failure of the job."""


ResultT = TypeVar("ResultT", bound=Result)


@dataclass(frozen=True, slots=True)
class OpenTelemetry:
    """The configured parts: one or both of tracing and metrics."""

    tracing: Tracing | None
    metrics: Metrics | None


def configured() -> OpenTelemetry | None:
    """Return the parts that are configured in this process, or None if nothing is."""
    global _known
    providers = (_provider(trace.get_tracer_provider), _provider(metrics.get_meter_provider))
    if providers != _known[0]:
        tracing = measuring = None
        with _undisturbed:
            tracing = None if _is_idle(providers[0]) else _tracing()
        with _undisturbed:
            measuring = None if _is_idle(providers[1]) else Metrics(metrics.get_meter(MONQUE, __version__))
        nothing = tracing is None and measuring is None
        _known = (providers, None if nothing else OpenTelemetry(tracing, measuring))
    return _known[1]


class _Undisturbed:
    """Log whatever a provider raises, and go on."""

    def __enter__(self) -> None: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> bool:
        if error is not None:
            log_raised(error, "OpenTelemetry failed; jobs are not affected")
        return True


_undisturbed = _Undisturbed()

_known: tuple[tuple[object, object], OpenTelemetry | None] = ((None, None), None)


def _provider(get: Callable[[], object]) -> object:
    """Return the provider, or why it cannot be loaded, which is logged once and not at each call."""
    try:
        return get()
    except Exception as error:  # noqa: BLE001 - whatever an entry point raises
        reason = describe(error)
        if reason not in _known[0]:
            logger.error("OpenTelemetry cannot be used: %s", reason)
        return reason


def _is_idle(provider: object) -> bool:
    return isinstance(provider, str) or type(provider).__module__.startswith(_IDLE)


def _tracing() -> Tracing | None:
    tracer = trace.get_tracer(MONQUE, __version__)
    return None if isinstance(tracer, NoOpTracer) else Tracing(tracer)


class Tracing:
    """Spans of producers and consumers."""

    def __init__(self, tracer: Tracer) -> None:
        self._tracer = tracer

    @contextmanager
    def sending(self, documents: Sequence[Document]) -> Iterator[None]:
        """Make a span for each job name while jobs are stored; each document carries the context of one."""
        by_name: dict[str, list[Document]] = {}
        for document in documents:
            by_name.setdefault(document["name"], []).append(document)
        begun = [self._begin_sending(name, group) for name, group in by_name.items()]
        spans = [span for span in begun if span is not None]
        try:
            yield
        except BaseException as error:
            for span in spans:
                _fail(span, error)
            raise
        finally:
            for span in spans:
                _end(span)

    def _begin_sending(self, name: str, documents: list[Document]) -> Span | None:
        attributes = _attributes(SEND, name)
        if len(documents) == 1:
            attributes[MESSAGE_ID] = str(documents[0]["_id"])
        else:
            attributes[BATCH_COUNT] = len(documents)
        span: Span | None = None
        with _undisturbed:
            span = self._tracer.start_span(f"{SEND} {name}", kind=SpanKind.PRODUCER, attributes=attributes)
            carrier: dict[str, str] = {}
            _PROPAGATOR.inject(carrier, trace.set_span_in_context(span))
            for document in documents:
                put_trace(document, carrier)
        return span

    async def processing(self, job: Job[Any], claim: Mapping[str, Any], call: Awaitable[ResultT]) -> ResultT:
        """Await the call of a handler inside a span, current there, that is linked to the producer's."""
        span = self._begin_processing(job, trace_of(claim))
        if span is None:
            return await call
        token = None
        with _undisturbed:
            token = attach(trace.set_span_in_context(span))
        try:
            result = await call
            if result.interrupted:
                with _undisturbed:
                    span.set_attribute(JOB_INTERRUPTED, True)
            elif result.error is not None and not isinstance(result.error, Snooze | Cancel):
                _fail(span, result.error)
        finally:
            if token is not None:
                detach(token)
            _end(span)
        return result

    @contextmanager
    def stepping(self, job: Job[Any], name: str, kind: str) -> Iterator[None]:
        """Make a span for a durable step, below that of its run; a cancellation is no error of it."""
        attributes = {SYSTEM: MONQUE, DESTINATION: job.name, MESSAGE_ID: str(job.id), STEP_KIND: kind}
        span, token = None, None
        with _undisturbed:
            span = self._tracer.start_span(f"{kind} {name}", attributes=attributes)
            token = attach(trace.set_span_in_context(span))
        try:
            yield
        except Exception as error:
            if span is not None:
                _fail(span, error)
            raise
        finally:
            if token is not None:
                detach(token)
            if span is not None:
                _end(span)

    def _begin_processing(self, job: Job[Any], carrier: dict[str, str]) -> Span | None:
        attributes = _attributes(PROCESS, job.name) | {
            MESSAGE_ID: str(job.id),
            JOB_ATTEMPT: job.attempt,
            CLIENT_ID: job.claimed_by or "",
        }
        with _undisturbed:
            sent = _PROPAGATOR.extract(carrier, Context())
            producer = trace.get_current_span(sent).get_span_context()
            return self._tracer.start_span(
                f"{PROCESS} {job.name}",
                context=sent if _is_direct(job) else Context(),
                kind=SpanKind.CONSUMER,
                attributes=attributes,
                links=[Link(producer)] if producer.is_valid else [],
            )
        return None


def carrier() -> dict[str, str]:
    """The current trace context, for a child process that runs the handler."""
    current: dict[str, str] = {}
    with _undisturbed:
        _PROPAGATOR.inject(current)
    return current


@contextmanager
def continued(carrier: Mapping[str, str]) -> Iterator[None]:
    """Let the span of another process be the current one."""
    token = None
    with _undisturbed:
        token = attach(_PROPAGATOR.extract(carrier, Context()))
    try:
        yield
    finally:
        if token is not None:
            detach(token)


def _is_direct(job: Job[Any]) -> bool:
    """Return whether this run belongs to the trace that stored the job: the first one, of a job due at once.

    So do all runs that go on behind durable steps: they are one piece of work. Any other later run gets a
    trace of its own, with a link: the trace that stored the job may have ended long ago.
    """
    if job.attempt > 1 and job.steps:
        return True
    created: datetime | None = job.created_at  # None if somebody else wrote the document, as is the other
    due = job.next_run_at
    is_first = job.cron is None and job.attempt <= 1
    return is_first and created is not None and due is not None and due <= created


def _attributes(operation: str, name: str) -> dict[str, str | int]:
    return {
        SYSTEM: MONQUE,
        OPERATION_TYPE: operation,
        OPERATION_NAME: operation,
        DESTINATION: name,
    }


def _fail(span: Span, error: BaseException) -> None:
    kind, text = _type_of(error), text_of(error)
    with _undisturbed:
        span.record_exception(bounded(error))
    with _undisturbed:
        span.set_attribute(ERROR_TYPE, kind)
        span.set_status(Status(StatusCode.ERROR, f"{kind}: {text}" if text else kind))


def _end(span: Span) -> None:
    with _undisturbed:
        span.end()


def _type_of(error: BaseException) -> str:
    cls = type(error)
    return cls.__qualname__ if cls.__module__ == "builtins" else f"{cls.__module__}.{cls.__qualname__}"


class Metrics(Observer):
    """Counts for all instances of this process."""

    def __init__(self, meter: Meter) -> None:
        self._sent = meter.create_counter(SENT, "{message}", "Jobs stored.")
        self._consumed = meter.create_counter(
            CONSUMED,
            "{message}",
            "Runs that ended: completed, retried, failed, cancelled or snoozed.",
        )
        self._ran = _seconds(meter, PROCESS_DURATION, "How long handlers ran.")
        self._waited = _seconds(meter, JOB_WAIT, "From the time a job was due to its handler's call.")
        self._stalls = _seconds(meter, STALL, "How long the event loop stood still, if over a second.")
        self._depths: dict[str, Sequence[QueueDepth]] = {}
        self._surveyed_at: dict[str, float] = {}
        meter.create_observable_gauge(
            QUEUE_DEPTH, [self._observe_depths], "{message}", "Jobs that wait or run."
        )
        meter.create_observable_gauge(JOBS_WAITING, [self._observe_waits], "{message}", "Jobs that wait.")
        meter.create_observable_gauge(
            OLDEST_DUE, [self._observe_oldest], "s", "How long the first due job has been waiting."
        )
        meter.create_observable_gauge(
            LAST_SURVEY, [self._observe_survey], "s", "When the waiting jobs were last counted here."
        )
        meter.create_observable_gauge(
            NAME_PAUSED, [self._observe_paused], "1", "Whether the name is paused: 1 if so, else 0."
        )

        self._stuck: dict[str, int] = {}
        meter.create_observable_gauge(
            STUCK, [self._observe_stuck], "{message}", "Handlers that do not stop though told to."
        )

    def enqueued(self, name: str, count: int) -> None:
        """Count the jobs."""
        self._sent.add(count, _labels(SEND, name))

    def ended(
        self, name: str, ending: Ending, *, waited: timedelta, ran: timedelta, error: BaseException | None
    ) -> None:
        """Count the run, and record how long it waited and took."""
        if ending == "waiting":
            return  # the run goes on later: it is counted once, with its end
        labels = _labels(PROCESS, name)
        is_measured = bool(ran)  # else no handler was called here, or nobody knows for how long
        if is_measured:
            self._waited.record(waited.total_seconds(), labels)
        if error is not None:
            labels = {**labels, ERROR_TYPE: _type_of(error)}
        if is_measured:
            self._ran.record(ran.total_seconds(), labels)
        self._consumed.add(1, {**labels, JOB_ENDING: ending})

    def surveyed(self, depths: Sequence[QueueDepth], *, collection: str) -> None:
        """Keep the numbers for the reader, which asks for them in a thread."""
        self._depths = {**self._depths, collection: depths}
        times = {**self._surveyed_at, collection: time.time()}
        self._surveyed_at = {each: at for each, at in times.items() if self._depths[each]}

    def stuck(self, name: str, count: int) -> None:
        """Keep the number for the reader, which asks for it in a thread."""
        self._stuck = {**self._stuck, name: count}

    def _observe_stuck(self, _options: CallbackOptions) -> Iterable[Observation]:
        for name, count in self._stuck.items():
            yield Observation(count, {SYSTEM: MONQUE, DESTINATION: name})

    def stalled(self, duration: timedelta) -> None:
        """Record the duration."""
        self._stalls.record(duration.total_seconds(), {SYSTEM: MONQUE})

    def _observe_depths(self, _options: CallbackOptions) -> Iterable[Observation]:
        for depth, labels in self._surveyed():
            for state in ("due", "later", "processing"):
                yield Observation(getattr(depth, state), {**labels, JOB_STATE: state})

    def _observe_waits(self, _options: CallbackOptions) -> Iterable[Observation]:
        for depth, labels in self._surveyed():
            for reason, count in (depth.waiting or {}).items():
                yield Observation(count, {**labels, WAIT_REASON: reason})

    def _observe_oldest(self, _options: CallbackOptions) -> Iterable[Observation]:
        for depth, labels in self._surveyed():
            yield Observation(depth.oldest_due.total_seconds(), labels)

    def _observe_survey(self, _options: CallbackOptions) -> Iterable[Observation]:
        for collection, at in self._surveyed_at.items():
            yield Observation(at, {SYSTEM: MONQUE, COLLECTION: collection})

    def _observe_paused(self, _options: CallbackOptions) -> Iterable[Observation]:
        for depth, labels in self._surveyed():
            yield Observation(int(depth.paused), labels)

    def _surveyed(self) -> Iterator[tuple[QueueDepth, dict[str, str]]]:
        for collection, depths in self._depths.items():
            for depth in depths:
                labels = {SYSTEM: MONQUE, DESTINATION: depth.name}
                yield depth, {**labels, COLLECTION: collection}


def _labels(operation: str, name: str) -> Mapping[str, str]:
    return {
        SYSTEM: MONQUE,
        OPERATION_NAME: operation,
        DESTINATION: name,
    }


def _seconds(meter: Meter, name: str, description: str) -> Histogram:
    try:
        return meter.create_histogram(
            name, "s", description, explicit_bucket_boundaries_advisory=list(SECONDS)
        )
    except TypeError:  # an older API, where only a view of the user can set the buckets
        return meter.create_histogram(name, "s", description)


SYSTEM: Final = "messaging.system"
OPERATION_TYPE: Final = "messaging.operation.type"
OPERATION_NAME: Final = "messaging.operation.name"
DESTINATION: Final = "messaging.destination.name"
MESSAGE_ID: Final = "messaging.message.id"
BATCH_COUNT: Final = "messaging.batch.message_count"
CLIENT_ID: Final = "messaging.client.id"
ERROR_TYPE: Final = "error.type"
COLLECTION: Final = "db.collection.name"

MONQUE: Final = "monque"
SEND: Final = "send"
PROCESS: Final = "process"

JOB_ATTEMPT: Final = "monque.job.attempt"
STEP_KIND: Final = "monque.step.kind"
JOB_INTERRUPTED: Final = "monque.job.interrupted"
JOB_ENDING: Final = "monque.job.ending"
JOB_STATE: Final = "monque.job.state"
WAIT_REASON: Final = "monque.wait.reason"

SENT: Final = "messaging.client.sent.messages"
CONSUMED: Final = "messaging.client.consumed.messages"
PROCESS_DURATION: Final = "messaging.process.duration"
JOB_WAIT: Final = "monque.job.wait"
QUEUE_DEPTH: Final = "monque.queue.depth"
JOBS_WAITING: Final = "monque.jobs.waiting"
OLDEST_DUE: Final = "monque.queue.oldest_due"
LAST_SURVEY: Final = "monque.queue.last_survey"
NAME_PAUSED: Final = "monque.name.paused"
STALL: Final = "monque.event_loop.stall"
STUCK: Final = "monque.job.stuck"

# Of the conventions, in seconds; waits and runs of jobs may take longer than the requests they were made for.
SECONDS: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 1800)
