"""Monque: a job scheduler on MongoDB."""

import importlib
from typing import TYPE_CHECKING, Any

from monque._version import __version__

if TYPE_CHECKING:
    from monque._binding import EnqueueOptions, ScheduleOptions
    from monque._diagnosis import Diagnosis, DueJobs, IndexView
    from monque._errors import (
        AggregationTimeoutError,
        ClaimLostError,
        ConfigurationError,
        ConnectionError,
        InstanceConflictError,
        InvalidCronError,
        InvalidCursorError,
        InvalidJobIdentifierError,
        JobNotFoundError,
        JobStateError,
        MonqueError,
        NotCommittedError,
        NotOpenError,
        PayloadError,
        PayloadTooLargeError,
        ProcessDiedError,
        ShutdownTimeoutError,
        WorkerRegistrationError,
    )
    from monque._events import (
        ClaimLost,
        Event,
        JobCancelled,
        JobCompleted,
        JobDeleted,
        JobError,
        JobFailed,
        JobRetried,
        JobsCancelled,
        JobsDeleted,
        JobsRetried,
        JobStarted,
        StaleJobsRecovered,
        WatchClosed,
        WatchConnected,
        WatchFailed,
        WatchUnavailable,
    )
    from monque._job import Job, JobStatus, StatusName
    from monque._logs import JobLogFilter, current_job
    from monque._monque import Monque
    from monque._newjob import NewJob
    from monque._options import Options, Retention
    from monque._subscribe import EventKind
    from monque._telemetry import Observer
    from monque._views import (
        BulkError,
        BulkResult,
        Direction,
        JobFilter,
        JobPage,
        QueueDepth,
        QueueStats,
        QueueView,
        Sort,
        WorkerView,
    )
    from monque._workers import Worker, Workers
    from monque.embedded import EmbeddedMongo
    from monque.sync import SyncMonque, SyncWorker, SyncWorkers

__all__ = [
    "AggregationTimeoutError",
    "BulkError",
    "BulkResult",
    "ClaimLost",
    "ClaimLostError",
    "ConfigurationError",
    "ConnectionError",
    "Diagnosis",
    "Direction",
    "DueJobs",
    "EmbeddedMongo",
    "EnqueueOptions",
    "Event",
    "EventKind",
    "IndexView",
    "InstanceConflictError",
    "InvalidCronError",
    "InvalidCursorError",
    "InvalidJobIdentifierError",
    "Job",
    "JobCancelled",
    "JobCompleted",
    "JobDeleted",
    "JobError",
    "JobFailed",
    "JobFilter",
    "JobLogFilter",
    "JobNotFoundError",
    "JobPage",
    "JobRetried",
    "JobStarted",
    "JobStateError",
    "JobStatus",
    "JobsCancelled",
    "JobsDeleted",
    "JobsRetried",
    "Monque",
    "MonqueError",
    "NewJob",
    "NotCommittedError",
    "NotOpenError",
    "Observer",
    "Options",
    "PayloadError",
    "PayloadTooLargeError",
    "ProcessDiedError",
    "QueueDepth",
    "QueueStats",
    "QueueView",
    "Retention",
    "ScheduleOptions",
    "ShutdownTimeoutError",
    "Sort",
    "StaleJobsRecovered",
    "StatusName",
    "SyncMonque",
    "SyncWorker",
    "SyncWorkers",
    "WatchClosed",
    "WatchConnected",
    "WatchFailed",
    "WatchUnavailable",
    "Worker",
    "WorkerRegistrationError",
    "WorkerView",
    "Workers",
    "__version__",
    "current_job",
]


# Where the names are defined, those that few programs need last. They are imported when one is asked for:
# the driver takes longer to import than `monque --help` and a shell's completion may take in all.
_HOMES = (
    *("_logs", "_errors", "_job", "_options", "_views", "_diagnosis", "_events", "_binding", "_workers"),
    *("_newjob", "_subscribe", "_telemetry", "_monque", "sync", "embedded"),
)


def __getattr__(name: str) -> Any:
    if name in __all__:
        for home in _HOMES:
            module = importlib.import_module(f"monque.{home}")
            if hasattr(module, name):
                globals()[name] = getattr(module, name)
                return globals()[name]
    raise AttributeError(f"module 'monque' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
