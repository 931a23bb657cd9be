"""Monque: a job scheduler on MongoDB."""

import importlib
from typing import TYPE_CHECKING, Any

from monque._version import __version__

if TYPE_CHECKING:
    from monque._api.enqueue import NewJob
    from monque._api.monque import Monque
    from monque._observe.logs import JobLogFilter, JobLogHandler, current_job
    from monque._observe.observer import Observer
    from monque._ops.operations import OPERATIONS, Operation, OperationOption, OperationOptions
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
        JobChangedError,
        JobInterrupted,
        JobNotFoundError,
        JobStateError,
        JobTimeoutError,
        MiddlewareError,
        MonqueError,
        NotCommittedError,
        NotOpenError,
        PayloadError,
        PayloadTooLargeError,
        ProcessDiedError,
        ReadTimeoutError,
        RemoteError,
        ResultError,
        StepError,
        WaitTimeoutError,
        WorkerRegistrationError,
    )
    from monque._values.events import (
        BatchEnded,
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
        JobWaiting,
        NamePaused,
        NameResumed,
        ScheduleEnded,
        SchedulePaused,
        ScheduleResumed,
        ScheduleSkipped,
        StaleJobsRecovered,
        StepDone,
        WatchClosed,
        WatchConnected,
        WatchFailed,
        WatchUnavailable,
    )
    from monque._values.filter import FILTERS, FilterField, JobFilter
    from monque._values.flows import FailedJob, Parent, Signal, Step, Wait
    from monque._values.history import Attempt, LogLine, Progress
    from monque._values.job import Job
    from monque._values.limits import Limit, Line, Rate, Turn
    from monque._values.options import Keep, Options, Retention, UseName
    from monque._values.records import AuditEntry, AuditPage, Instance, InstanceWorker
    from monque._values.schedule import Overlap, RecentRun, Schedule, ScheduleSettings
    from monque._values.settings import (
        Debounce,
        DuplicateJobError,
        JobSettings,
        Retry,
        Timeout,
        Unique,
        WorkerSettings,
    )
    from monque._values.state import State
    from monque._values.status import Enqueued, JobStatus, StatusName
    from monque._values.trends import Histogram, TrendPoint, Trends
    from monque._values.updates import (
        EndUpdate,
        JobUpdate,
        LogUpdate,
        ProgressUpdate,
        StateUpdate,
        StepUpdate,
        WaitUpdate,
    )
    from monque._values.verdicts import Cancel, Fail, RetryAfter, Snooze, Verdict
    from monque._values.views import (
        BulkError,
        BulkResult,
        Diagnosis,
        Direction,
        DueJobs,
        Evidence,
        Explanation,
        FailureRow,
        IndexView,
        JobCounts,
        JobPage,
        Pause,
        QueueDepth,
        QueueStats,
        QueueView,
        Remedy,
        SlowestJobs,
        Slowness,
        Sort,
        UseView,
        WorkerView,
    )
    from monque._workers.home import EnqueueOptions, ScheduleOptions
    from monque._workers.middleware import CallNext, Middleware, SyncCallNext, SyncMiddleware
    from monque._workers.subscribe import EventKind
    from monque._workers.workers import Worker, Workers
    from monque.embedded import EmbeddedMongo
    from monque.sync import SyncMonque, SyncWorker, SyncWorkers

__all__ = [
    "FILTERS",
    "OPERATIONS",
    "AggregationTimeoutError",
    "Attempt",
    "AuditEntry",
    "AuditPage",
    "BatchEnded",
    "BulkError",
    "BulkResult",
    "CallNext",
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
    "EndUpdate",
    "EnqueueOptions",
    "Enqueued",
    "Event",
    "EventKind",
    "Evidence",
    "Explanation",
    "Fail",
    "FailedJob",
    "FailureRow",
    "FilterField",
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
    "JobChangedError",
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
    "JobUpdate",
    "JobWaiting",
    "JobsCancelled",
    "JobsDeleted",
    "JobsRetried",
    "Keep",
    "Limit",
    "Line",
    "LogLine",
    "LogUpdate",
    "Middleware",
    "MiddlewareError",
    "Monque",
    "MonqueError",
    "NamePaused",
    "NameResumed",
    "NewJob",
    "NotCommittedError",
    "NotOpenError",
    "Observer",
    "Operation",
    "OperationOption",
    "OperationOptions",
    "Options",
    "Overlap",
    "Parent",
    "Pause",
    "PayloadError",
    "PayloadTooLargeError",
    "ProcessDiedError",
    "Progress",
    "ProgressUpdate",
    "QueueDepth",
    "QueueStats",
    "QueueView",
    "Rate",
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
    "Signal",
    "SlowestJobs",
    "Slowness",
    "Snooze",
    "Sort",
    "StaleJobsRecovered",
    "State",
    "StateUpdate",
    "StatusName",
    "Step",
    "StepDone",
    "StepError",
    "StepUpdate",
    "SyncCallNext",
    "SyncMiddleware",
    "SyncMonque",
    "SyncWorker",
    "SyncWorkers",
    "Timeout",
    "TrendPoint",
    "Trends",
    "Turn",
    "Unique",
    "UseName",
    "UseView",
    "Verdict",
    "Wait",
    "WaitTimeoutError",
    "WaitUpdate",
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


# The modules that define the names, those that few programs need last. They are imported when one is asked
# for: the driver takes longer to import than `monque --help` and a shell's completion may take in all.
_HOMES = (
    "_observe.logs",
    *("_values.errors", "_values.status", "_values.state", "_values.job", "_values.records", "_values.views"),
    *("_values.filter", "_values.history", "_values.schedule", "_values.trends", "_values.ended"),
    *(
        "_values.flows",
        "_values.limits",
        "_values.options",
        "_values.settings",
        "_values.verdicts",
        "_values.updates",
        "_values.events",
    ),
    *("_time.plan", "_time.edges"),
    *("_workers.home", "_workers.middleware", "_workers.workers", "_workers.subscribe", "_observe.observer"),
    *("_api.enqueue", "_api.monque", "sync", "embedded"),
)


# Homes that no search for another name may import: what operators use is loaded with its first use.
_OF = dict.fromkeys(("OPERATIONS", "Operation", "OperationOption", "OperationOptions"), "_ops.operations")


def __getattr__(name: str) -> Any:
    if name in __all__:
        for home in (_OF[name],) if name in _OF else _HOMES:
            module = importlib.import_module(f"monque.{home}")
            if hasattr(module, name):
                globals()[name] = getattr(module, name)
                return globals()[name]
    raise AttributeError(f"module 'monque' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
