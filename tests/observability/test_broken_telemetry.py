"""OpenTelemetry providers and observers that raise: jobs are stored, run and settled all the same."""

from __future__ import annotations

import importlib
import logging
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.sampling import Sampler
from opentelemetry.trace import NonRecordingSpan, SpanContext, Tracer
from opentelemetry.trace import TracerProvider as AnyProvider

from monque import Job, JobLogFilter, Monque, NewJob, Observer
from support.aliases import Make
from support.options import ONE_TRY
from support.waiting import Events, eventually

# Failed jobs come back in half a minute, that is, not in these tests.


class BrokenError(Exception):
    """What broken telemetry raises."""


class Broken:
    """Raises in the one place that it was told."""

    def __init__(self, place: str) -> None:
        self.place = place
        self.reached = 0

    def meet(self, place: str) -> None:
        if place == self.place:
            self.reached += 1
            raise BrokenError(f"broken in {place}")


class BrokenSampler(Sampler):
    def __init__(self, broken: Broken) -> None:
        self._broken = broken

    def should_sample(self, *args: Any, **kwargs: Any) -> Any:
        self._broken.meet("should_sample")

    def get_description(self) -> str:
        return "broken"


class BrokenProcessor(SpanProcessor):
    def __init__(self, broken: Broken) -> None:
        self._broken = broken

    def on_start(self, *args: Any, **kwargs: Any) -> None:
        self._broken.meet("on_start")

    def on_end(self, *args: Any, **kwargs: Any) -> None:
        self._broken.meet("on_end")


class BrokenSpan(NonRecordingSpan):
    def __init__(self, broken: Broken) -> None:
        super().__init__(SpanContext(1, 1, is_remote=False))
        self._broken = broken

    def get_span_context(self) -> SpanContext:
        self._broken.meet("get_span_context")
        return super().get_span_context()

    def is_recording(self) -> bool:
        self._broken.meet("is_recording")
        return True

    def set_attribute(self, *args: Any) -> None:
        self._broken.meet("set_attribute")

    def set_status(self, *args: Any, **kwargs: Any) -> None:
        self._broken.meet("set_status")

    def record_exception(self, *args: Any, **kwargs: Any) -> None:
        self._broken.meet("record_exception")

    def end(self, *args: Any) -> None:
        self._broken.meet("end")


class BrokenTracer(Tracer):
    def __init__(self, broken: Broken) -> None:
        self._broken = broken

    def start_span(self, *args: Any, **kwargs: Any) -> Any:
        self._broken.meet("start_span")
        return BrokenSpan(self._broken)

    def start_as_current_span(self, *args: Any, **kwargs: Any) -> Any:
        self._broken.meet("start_span")
        return trace.use_span(BrokenSpan(self._broken), end_on_exit=True)


class BrokenProvider(AnyProvider):
    def __init__(self, broken: Broken) -> None:
        self._broken = broken

    def get_tracer(self, *args: Any, **kwargs: Any) -> Tracer:
        self._broken.meet("get_tracer")
        return BrokenTracer(self._broken)


def sdk_provider(broken: Broken) -> AnyProvider:
    provider = TracerProvider(
        sampler=BrokenSampler(broken) if broken.place == "should_sample" else None, shutdown_on_exit=False
    )
    provider.add_span_processor(BrokenProcessor(broken))
    return provider


async def work_through_one_of_each(monque: Monque) -> None:
    """A job that succeeds and one that fails are stored, run and settled; the instance stays healthy."""

    @monque.worker("works", concurrency=1)
    async def works(job: Job[None]) -> None: ...

    @monque.worker("fails", concurrency=1)
    async def fails(job: Job[None]) -> None:
        raise ValueError("no such address")

    events = Events(monque)
    await monque.start()
    await monque.enqueue(works)
    await monque.enqueue_many([NewJob(works), NewJob(fails)])
    completed = await events.wait("job:complete", 2, within=5)
    [failed] = await events.wait("job:fail", within=5)

    assert monque.is_healthy()
    assert {event.job.fail_count for event in completed} == {0}
    assert failed.job.fail_reason == "ValueError: no such address"


@pytest.mark.parametrize(
    ("place", "provider"),
    [
        *((place, sdk_provider) for place in ("should_sample", "on_start", "on_end")),
        *(
            (place, BrokenProvider)
            for place in (
                *("get_tracer", "start_span", "get_span_context", "set_attribute"),
                *("set_status", "record_exception", "end"),
            )
        ),
    ],
)
async def test_tracing_that_raises_is_logged_and_disturbs_nothing(
    place: str,
    provider: Callable[[Broken], AnyProvider],
    make_monque: Make,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    broken = Broken(place)
    monkeypatch.setattr(trace, "_TRACER_PROVIDER", provider(broken))
    monque = await make_monque(options=ONE_TRY).open()
    with caplog.at_level(logging.ERROR, "monque"):
        await work_through_one_of_each(monque)
        await monque.stop()

    assert broken.reached
    assert f"broken in {place}" in caplog.text
    assert "the scheduler has a bug" not in caplog.text


async def test_a_provider_that_cannot_be_loaded_disturbs_nothing(
    make_monque: Make,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(trace, "_TRACER_PROVIDER", None)
    monkeypatch.setenv("OTEL_PYTHON_TRACER_PROVIDER", "nowhere")
    monque = await make_monque(options=ONE_TRY).open()
    with caplog.at_level(logging.ERROR, "monque"):
        await work_through_one_of_each(monque)

    ours = [record for record in caplog.records if record.name == "monque" and record.levelno > logging.INFO]
    assert len(ours) == 1
    assert "OpenTelemetry" in ours[0].getMessage()


class BrokenMeter:
    def __init__(self, place: str) -> None:
        self._place = place

    def create_counter(self, *args: Any, **kwargs: Any) -> Any:
        if self._place == "create_counter":
            raise BrokenError(f"broken in {self._place}")
        return self

    create_histogram = create_observable_gauge = create_counter

    def add(self, *args: Any, **kwargs: Any) -> None:
        raise BrokenError(f"broken in {self._place}")

    record = add


@pytest.mark.parametrize("place", ["get_meter", "create_counter", "add"])
async def test_a_meter_that_raises_is_logged_and_disturbs_nothing(
    place: str,
    make_monque: Make,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Provider:
        def get_meter(self, *args: Any, **kwargs: Any) -> Any:
            if place == "get_meter":
                raise BrokenError("broken in get_meter")
            return BrokenMeter(place)

    internal = importlib.import_module("opentelemetry.metrics._internal")
    monkeypatch.setattr(internal, "_METER_PROVIDER", Provider())
    monque = await make_monque(options=ONE_TRY).open()
    with caplog.at_level(logging.ERROR, "monque"):
        await work_through_one_of_each(monque)
        await monque.stop()

    assert f"broken in {place}" in caplog.text
    assert "the scheduler has a bug" not in caplog.text


@pytest.mark.parametrize("error", [SystemExit, GeneratorExit, KeyboardInterrupt])
async def test_an_observer_that_raises_what_is_no_error_disturbs_nothing(
    error: type[BaseException], make_monque: Make, caplog: pytest.LogCaptureFixture
) -> None:
    class Leaving(Observer):
        def ended(self, *args: Any, **kwargs: Any) -> None:
            raise error("the observer leaves")

        def enqueued(self, name: str, count: int) -> None:
            raise error("the observer leaves")

    monque = await make_monque(options=ONE_TRY).open()
    monque.observe(Leaving())
    await work_through_one_of_each(monque)

    assert "the observer leaves" in caplog.text


async def test_the_lines_of_an_observer_carry_the_job_that_it_is_told_of(
    make_monque: Make,
) -> None:
    """Many jobs are settled in one write, by a task that one of them has started."""
    records: list[logging.LogRecord] = []

    class Keeping(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            records.append(record)

    class Logging(Observer):
        def ended(self, name: str, *args: Any, error: BaseException | None, **kwargs: Any) -> None:
            logging.getLogger("observer").warning("%s", error)

    handler, logger = Keeping(), logging.getLogger("observer")
    handler.addFilter(JobLogFilter())
    logger.addHandler(handler)
    monque = await make_monque(options=replace(ONE_TRY, worker_concurrency=50)).open()
    monque.observe(Logging())

    @monque.worker("fails")
    async def fails(job: Job[None]) -> None:
        raise ValueError(str(job.id))

    events = Events(monque)
    jobs = await monque.enqueue_many(NewJob(fails) for _ in range(20))
    await monque.start()
    await events.wait("job:fail", 20)
    logger.removeHandler(handler)

    def all_are_there() -> None:
        assert len(records) == len(jobs)

    await eventually(all_are_there)
    assert {record.job_id for record in records} == {str(job.id) for job in jobs}
    assert all(record.getMessage() == record.job_id for record in records)
