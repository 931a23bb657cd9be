"""Monque: a job scheduler on MongoDB."""

import importlib
from typing import TYPE_CHECKING, Any

from monque._diagnosis import Diagnosis, DueJobs, IndexView
from monque._errors import (
    AggregationTimeoutError,
    ConfigurationError,
    ConnectionError,
    InstanceConflictError,
    InvalidCronError,
    InvalidCursorError,
    InvalidJobIdentifierError,
    JobNotFoundError,
    JobStateError,
    MonqueError,
    NotOpenError,
    PayloadError,
    PayloadTooLargeError,
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
from monque._job import Job, JobStatus
from monque._monque import Monque
from monque._newjob import NewJob
from monque._options import Options, Retention
from monque._version import __version__
from monque._views import (
    BulkError,
    BulkResult,
    Direction,
    JobFilter,
    JobPage,
    QueueStats,
    QueueView,
    Sort,
    WorkerView,
)
from monque._workers import Worker, Workers

if TYPE_CHECKING:
    from monque.embedded import EmbeddedMongo
    from monque.sync import SyncMonque

__all__ = [
    "AggregationTimeoutError",
    "BulkError",
    "BulkResult",
    "ClaimLost",
    "ConfigurationError",
    "ConnectionError",
    "Diagnosis",
    "Direction",
    "DueJobs",
    "EmbeddedMongo",
    "Event",
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
    "NotOpenError",
    "Options",
    "PayloadError",
    "PayloadTooLargeError",
    "QueueStats",
    "QueueView",
    "Retention",
    "ShutdownTimeoutError",
    "Sort",
    "StaleJobsRecovered",
    "SyncMonque",
    "WatchClosed",
    "WatchConnected",
    "WatchFailed",
    "WatchUnavailable",
    "Worker",
    "WorkerRegistrationError",
    "WorkerView",
    "Workers",
    "__version__",
]


def __getattr__(name: str) -> Any:
    # What not every program needs is imported when it is asked for.
    homes = {"SyncMonque": "monque.sync", "EmbeddedMongo": "monque.embedded"}
    if name in homes:
        return getattr(importlib.import_module(homes[name]), name)
    raise AttributeError(f"module 'monque' has no attribute {name!r}")
