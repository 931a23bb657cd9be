"""Metrics for Prometheus: a collector for your registry. Needs `pymonque[prometheus]`."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Sequence
from datetime import timedelta
from typing import Literal, Protocol

try:
    from prometheus_client import Counter, Gauge, Histogram, Metric
    from prometheus_client.registry import Collector
except ModuleNotFoundError as error:
    if error.name is None or not error.name.startswith("prometheus_client"):
        raise
    raise ImportError(
        "monque.prometheus needs prometheus_client; install it with: pip install 'pymonque[prometheus]'",
        name=error.name,
    ) from error

from monque import Observer, QueueDepth

_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 1800)


class Observed(Protocol):
    """A `Monque` or a `SyncMonque`."""

    def observe(self, observer: Observer) -> None:
        """Register an observer."""


class MonqueCollector(Collector, Observer):
    """Counters and gauges of one instance, for a Prometheus registry.

    Collecting asks no database: jobs are counted as they are stored and run, and those that wait every
    fifteen seconds, while the instance processes jobs.

    Args:
        monque: A `Monque` or a `SyncMonque`, open or not.
        namespace: What the names of the metrics begin with; another one for a second instance in the same
            registry.

    Examples:
        >>> prometheus_client.REGISTRY.register(MonqueCollector(monque))
    """

    def __init__(self, monque: Observed, *, namespace: str = "monque") -> None:
        self._enqueued = _counter(namespace, "jobs_enqueued", "Jobs stored.")
        self._ended = {
            "completed": _counter(namespace, "jobs_completed", "Runs that went well."),
            "retried": _counter(namespace, "jobs_retried", "Runs that failed; the job is tried again."),
            "failed": _counter(namespace, "jobs_failed", "Jobs that failed for good."),
            "cancelled": _counter(namespace, "jobs_cancelled", "Jobs cancelled in a run, or before it."),
            "snoozed": _counter(namespace, "jobs_snoozed", "Runs whose handlers put the job off."),
        }
        self._ran = _histogram(namespace, "job_run_seconds", "How long handlers ran.")
        self._waited = _histogram(
            namespace, "job_wait_seconds", "From the time a job was due to the call of its handler."
        )
        self._depth = _gauge(namespace, "queue_depth", "Jobs that wait or run, on all instances.", "state")
        self._waiting = _gauge(namespace, "jobs_waiting", "Jobs that wait, on all instances.", "reason")
        self._oldest = _gauge(
            namespace, "queue_oldest_due_seconds", "How long the first due job has been waiting."
        )
        self._paused = _gauge(namespace, "name_paused", "Whether the name is paused: 1 if so, else 0.")
        self._surveyed_at = Gauge(
            "last_survey_timestamp_seconds",
            "When the waiting jobs were last counted here, in seconds since 1970; 0 if they are not.",
            namespace=namespace,
            registry=None,
            multiprocess_mode="livemin",  # of several processes, the one that has told nothing for longest
        )
        self._stalls = Histogram(
            "event_loop_stall_seconds",
            "How long the event loop stood still, if over a second.",
            namespace=namespace,
            registry=None,
            buckets=_SECONDS,
        )
        self._stuck = Gauge(
            "jobs_stuck",
            "Handlers that were told to stop over 30 seconds ago and still run.",
            ["job_name"],
            namespace=namespace,
            registry=None,
            multiprocess_mode="livesum",
        )
        self._surveyed: set[str] = set()
        monque.observe(self)

    def collect(self) -> Iterable[Metric]:
        """Yield what is known at this moment; the registry calls this in any thread."""
        for metric in (
            *(self._enqueued, *self._ended.values(), self._ran, self._waited),
            *(self._depth, self._waiting, self._oldest, self._paused, self._surveyed_at),
            *(self._stalls, self._stuck),
        ):
            yield from metric.collect()

    # With it, the registry refuses a second collector whose metrics would have the same names.
    describe = collect

    def enqueued(self, name: str, count: int) -> None:
        """Count the jobs."""
        self._enqueued.labels(name).inc(count)

    def ended(
        self,
        name: str,
        ending: Literal["completed", "retried", "failed", "cancelled", "snoozed", "waiting"],
        *,
        waited: timedelta,
        ran: timedelta,
        error: BaseException | None,  # noqa: ARG002 - part of the interface
    ) -> None:
        """Count the run, and record how long it waited and took."""
        if ending == "waiting":
            return  # the run goes on later: it is counted once, with its end
        self._ended[ending].labels(name).inc()
        if not ran:
            return  # no handler was called here, or nobody knows for how long
        self._ran.labels(name).observe(ran.total_seconds())
        self._waited.labels(name).observe(waited.total_seconds())

    def stuck(self, name: str, count: int) -> None:
        """Set the number."""
        self._stuck.labels(name).set(count)

    def stalled(self, duration: timedelta) -> None:
        """Record the duration."""
        self._stalls.observe(duration.total_seconds())

    def surveyed(self, depths: Sequence[QueueDepth], *, collection: str) -> None:  # noqa: ARG002
        """Set the new numbers; a name that has no jobs any more gets zeros."""
        if not depths:  # it has stopped
            self._forget()
            return
        self._surveyed_at.set(time.time())
        none = None if depths[0].waiting is None else dict.fromkeys(depths[0].waiting, 0)
        names = self._surveyed - {depth.name for depth in depths}
        gone = [QueueDepth(name=name, waiting=none) for name in names]
        for depth in (*depths, *gone):
            for state in ("due", "later", "processing"):
                self._depth.labels(depth.name, state).set(getattr(depth, state))
            for reason, count in (depth.waiting or {}).items():
                self._waiting.labels(depth.name, reason).set(count)
            self._oldest.labels(depth.name).set(depth.oldest_due.total_seconds())
            self._paused.labels(depth.name).set(depth.paused)
        self._surveyed |= {depth.name for depth in depths}

    def _forget(self) -> None:
        self._surveyed_at.set(0)
        # Processes that keep their metrics in common files cannot remove any; others count on.
        if "PROMETHEUS_MULTIPROC_DIR" not in os.environ:
            self._depth.clear()
            self._waiting.clear()
            self._oldest.clear()
            self._paused.clear()
            self._surveyed.clear()


def _counter(namespace: str, name: str, meaning: str) -> Counter:
    return Counter(name, meaning, ["job_name"], namespace=namespace, registry=None)


def _histogram(namespace: str, name: str, meaning: str) -> Histogram:
    return Histogram(name, meaning, ["job_name"], namespace=namespace, registry=None, buckets=_SECONDS)


def _gauge(namespace: str, name: str, meaning: str, *labels: str) -> Gauge:
    # Of several processes that have counted, the last one knows best.
    return Gauge(
        name,
        meaning,
        ["job_name", *labels],
        namespace=namespace,
        registry=None,
        multiprocess_mode="livemostrecent",
    )
