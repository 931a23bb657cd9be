"""OpenTelemetry in memory, for one test at a time; and workers as processes."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from cli.conftest import Program
from monque.embedded import EmbeddedMongo
from support.aliases import Database
from support.programs.child import uri_of

APPS = Path(__file__).parent / "apps"


class Spans:
    """What was exported, in the order it ended."""

    def __init__(self, exporter: InMemorySpanExporter) -> None:
        self._exporter = exporter

    def all(self, name: str) -> list[ReadableSpan]:
        return [span for span in self._exporter.get_finished_spans() if span.name == name]

    def one(self, name: str) -> ReadableSpan:
        found = self.all(name)
        assert len(found) == 1, self.names()
        return found[0]

    def names(self) -> list[str]:
        return [span.name for span in self._exporter.get_finished_spans()]


@pytest.fixture
def spans(monkeypatch: pytest.MonkeyPatch) -> Iterator[Spans]:
    """Tracing is configured, as a program does once, and is not any more after the test."""
    exporter = InMemorySpanExporter()
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(trace, "_TRACER_PROVIDER", provider)
    yield Spans(exporter)
    provider.shutdown()


class Numbers:
    """What a reader of metrics gets."""

    def __init__(self, reader: InMemoryMetricReader) -> None:
        self._reader = reader

    def read(self, metric: str) -> list[tuple[dict[str, Any], Any]]:
        """The points of one metric, each with its attributes."""
        data = self._reader.get_metrics_data()
        return [
            (dict(point.attributes or {}), point)
            for resource in (data.resource_metrics if data else [])
            for scope in resource.scope_metrics
            if scope.scope.name == "monque"
            for found in scope.metrics
            if found.name == metric
            for point in found.data.data_points
        ]

    def value(self, metric: str, attributes: dict[str, Any]) -> Any:
        """The value of the one point that has these attributes; of a histogram, the whole point."""
        points = [
            point
            for given, point in self.read(metric)
            if all((name, value) in given.items() for name, value in attributes.items())
        ]
        assert len(points) == 1, self.read(metric)
        return points[0].value if hasattr(points[0], "value") else points[0]


@pytest.fixture
def numbers(monkeypatch: pytest.MonkeyPatch) -> Iterator[Numbers]:
    """Metrics are configured."""
    reader = InMemoryMetricReader()
    provider = MeterProvider([reader], shutdown_on_exit=False)
    # Where the API keeps what `set_meter_provider` was given; it takes one only in the life of a process.
    internal = importlib.import_module("opentelemetry.metrics._internal")
    monkeypatch.setattr(internal, "_METER_PROVIDER", provider)
    yield Numbers(reader)
    provider.shutdown()


@pytest.fixture
def uri(server: EmbeddedMongo, database: Database) -> str:
    return uri_of(server, database)


@pytest.fixture
def start(uri: str) -> Iterator[Callable[..., Program]]:
    """Start `monque` as a process in the folder of the apps; afterwards it is gone."""
    started: list[Program] = []

    def start(*arguments: str, **options: Any) -> Program:
        started.append(Program(arguments, uri, folder=APPS, **options))
        return started[-1]

    yield start
    for program in started:
        program.kill()
