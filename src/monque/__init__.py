"""Monque: a job scheduler on MongoDB."""

import importlib
from typing import TYPE_CHECKING, Any

from monque._version import __version__

if TYPE_CHECKING:
    from monque._api.monque import Monque
    from monque._api.newjob import NewJob
    from monque._observe.job_log import JobLogHandler
    from monque._observe.logs import JobLogFilter, current_job
    from monque._observe.observer import Observer
    from monque._time.edges import DstEdge, dst_edges
    from monque._time.plan import next_runs
    from monque._values.ended import JobCancelledError, JobFailedError, ShutdownTimeoutError
    from monque._values.errors import (
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
    from monque._values.events import (
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
    from monque._values.explanation import Evidence, Explanation, Remedy
    from monque._values.history import Attempt, LogLine, Progress
    from monque._values.job import Job
    from monque._values.options import Options, Retention, UseName
    from monque._values.records import AuditEntry, AuditPage, Instance, InstanceWorker
    from monque._values.retry import Retry
    from monque._values.schedule import Overlap, RecentRun, Schedule, ScheduleSettings
    from monque._values.settings import JobSettings, Timeout, WorkerSettings
    from monque._values.state import State
    from monque._values.status import Enqueued, JobStatus, StatusName
    from monque._values.trends import Histogram, TrendPoint, Trends
    from monque._values.unique import Debounce, DuplicateJobError, Unique
    from monque._values.verdicts import Cancel, Fail, RetryAfter, Snooze, Verdict
    from monque._values.views import (
        BulkError,
        BulkResult,
        Diagnosis,
        Direction,
        DueJobs,
        FailedJob,
        IndexView,
        JobCounts,
        JobFilter,
        JobPage,
        Pause,
        QueueDepth,
        QueueStats,
        QueueView,
        Sort,
        UseView,
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
        "_values.errors",
        "_values.status",
        "_values.state",
        "_values.job",
        "_values.records",
        "_values.views",
        "_values.history",
        "_values.schedule",
        "_values.trends",
        "_values.ended",
        "_values.ended",
        "_values.options",
        "_values.retry",
        "_values.settings",
        "_values.unique",
        "_values.settings",
        "_values.schedule",
        "_values.verdicts",
        "_values.history",
        "_values.records",
        "_values.explanation",
        "_values.views",
        "_values.views",
        "_values.events",
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
