"""Monque: a job scheduler on MongoDB."""

import importlib
from typing import TYPE_CHECKING, Any

from monque._version import __version__

if TYPE_CHECKING:
    from monque._api.monque import Monque
    from monque._api.newjob import NewJob
    from monque._attempts import Attempt
    from monque._audit import AuditEntry, AuditPage
    from monque._diagnosis import Diagnosis, DueJobs, IndexView, UseView
    from monque._ended import JobCancelledError, JobFailedError
    from monque._errors import (
        AggregationTimeoutError,
        ClaimLostError,
        ConfigurationError,
        ConnectionError,
        InstanceConflictError,
        InvalidCronError,
        InvalidCursorError,
        InvalidJobIdentifierError,
        JobInterrupted,
        JobNotFoundError,
        JobStateError,
        JobTimeoutError,
        MonqueError,
        NotCommittedError,
        NotOpenError,
        PayloadError,
        PayloadTooLargeError,
        ProcessDiedError,
        ReadTimeoutError,
        RemoteError,
        ResultError,
        WaitTimeoutError,
        WorkerRegistrationError,
    )
    from monque._events import (
        ClaimLost,
        Event,
        JobCancelled,
        JobCancelling,
        JobCompleted,
        JobDeduplicated,
        JobDeleted,
        JobError,
        JobFailed,
        JobRetried,
        JobsCancelled,
        JobsDeleted,
        JobSnoozed,
        JobsRetried,
        JobStarted,
        JobStuck,
        NamePaused,
        NameResumed,
        ScheduleEnded,
        SchedulePaused,
        ScheduleResumed,
        ScheduleSkipped,
        StaleJobsRecovered,
        WatchClosed,
        WatchConnected,
        WatchFailed,
        WatchUnavailable,
    )
    from monque._explanation import Evidence, Explanation, Remedy
    from monque._instances import Instance, InstanceWorker
    from monque._job import Job
    from monque._observe.job_log import JobLogHandler
    from monque._observe.logs import JobLogFilter, current_job
    from monque._observe.observer import Observer
    from monque._options import Options, Retention, UseName
    from monque._pause import Pause
    from monque._progress import LogLine, Progress
    from monque._retry import Retry
    from monque._schedule import Overlap, RecentRun, Schedule
    from monque._scheduling import ScheduleSettings
    from monque._settings import JobSettings, WorkerSettings
    from monque._shutdown import ShutdownTimeoutError
    from monque._state import State
    from monque._status import Enqueued, JobStatus, StatusName
    from monque._time.edges import DstEdge, dst_edges
    from monque._time.plan import next_runs
    from monque._timeout import Timeout
    from monque._trends import Histogram, TrendPoint, Trends
    from monque._unique import Debounce, DuplicateJobError, Unique
    from monque._verdicts import Cancel, Fail, RetryAfter, Snooze, Verdict
    from monque._views import (
        BulkError,
        BulkResult,
        Direction,
        FailedJob,
        JobCounts,
        JobFilter,
        JobPage,
        QueueDepth,
        QueueStats,
        QueueView,
        Sort,
        WorkerView,
    )
    from monque._workers.home import EnqueueOptions, ScheduleOptions
    from monque._workers.subscribe import EventKind
    from monque._workers.workers import Worker, Workers
    from monque.embedded import EmbeddedMongo
    from monque.sync import SyncMonque, SyncWorker, SyncWorkers

__all__ = [
    "AggregationTimeoutError",
    "Attempt",
    "AuditEntry",
    "AuditPage",
    "BulkError",
    "BulkResult",
    "Cancel",
    "ClaimLost",
    "ClaimLostError",
    "ConfigurationError",
    "ConnectionError",
    "Debounce",
    "Diagnosis",
    "Direction",
    "DstEdge",
    "DueJobs",
    "DuplicateJobError",
    "EmbeddedMongo",
    "EnqueueOptions",
    "Enqueued",
    "Event",
    "EventKind",
    "Evidence",
    "Explanation",
    "Fail",
    "FailedJob",
    "Histogram",
    "IndexView",
    "Instance",
    "InstanceConflictError",
    "InstanceWorker",
    "InvalidCronError",
    "InvalidCursorError",
    "InvalidJobIdentifierError",
    "Job",
    "JobCancelled",
    "JobCancelledError",
    "JobCancelling",
    "JobCompleted",
    "JobCounts",
    "JobDeduplicated",
    "JobDeleted",
    "JobError",
    "JobFailed",
    "JobFailedError",
    "JobFilter",
    "JobInterrupted",
    "JobLogFilter",
    "JobLogHandler",
    "JobNotFoundError",
    "JobPage",
    "JobRetried",
    "JobSettings",
    "JobSnoozed",
    "JobStarted",
    "JobStateError",
    "JobStatus",
    "JobStuck",
    "JobTimeoutError",
    "JobsCancelled",
    "JobsDeleted",
    "JobsRetried",
    "LogLine",
    "Monque",
    "MonqueError",
    "NamePaused",
    "NameResumed",
    "NewJob",
    "NotCommittedError",
    "NotOpenError",
    "Observer",
    "Options",
    "Overlap",
    "Pause",
    "PayloadError",
    "PayloadTooLargeError",
    "ProcessDiedError",
    "Progress",
    "QueueDepth",
    "QueueStats",
    "QueueView",
    "ReadTimeoutError",
    "RecentRun",
    "Remedy",
    "RemoteError",
    "ResultError",
    "Retention",
    "Retry",
    "RetryAfter",
    "Schedule",
    "ScheduleEnded",
    "ScheduleOptions",
    "SchedulePaused",
    "ScheduleResumed",
    "ScheduleSettings",
    "ScheduleSkipped",
    "ShutdownTimeoutError",
    "Snooze",
    "Sort",
    "StaleJobsRecovered",
    "State",
    "StatusName",
    "SyncMonque",
    "SyncWorker",
    "SyncWorkers",
    "Timeout",
    "TrendPoint",
    "Trends",
    "Unique",
    "UseName",
    "UseView",
    "Verdict",
    "WaitTimeoutError",
    "WatchClosed",
    "WatchConnected",
    "WatchFailed",
    "WatchUnavailable",
    "Worker",
    "WorkerRegistrationError",
    "WorkerSettings",
    "WorkerView",
    "Workers",
    "__version__",
    "current_job",
    "dst_edges",
    "next_runs",
]


# Where the names are defined, those that few programs need last. They are imported when one is asked for:
# the driver takes longer to import than `monque --help` and a shell's completion may take in all.
_HOMES = (
    *(
        "_observe.logs",
        "_errors",
        "_status",
        "_state",
        "_job",
        "_instances",
        "_pause",
        "_progress",
        "_schedule",
        "_trends",
        "_shutdown",
        "_ended",
        "_options",
        "_retry",
        "_timeout",
        "_unique",
        "_settings",
        "_scheduling",
        "_verdicts",
        "_attempts",
        "_audit",
        "_explanation",
        "_views",
        "_diagnosis",
        "_events",
    ),
    "_time.plan",
    "_time.edges",
    *(
        "_workers.home",
        "_workers.workers",
        "_api.newjob",
        "_workers.subscribe",
        "_observe.observer",
        "_observe.job_log",
    ),
    *("_api.monque", "sync", "embedded"),
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
