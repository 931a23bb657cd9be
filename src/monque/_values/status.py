"""The states of a job, how a call was answered, why a run is told to stop, and who cancels."""

from __future__ import annotations

from enum import StrEnum
from typing import Literal, TypeAlias


class JobStatus(StrEnum):
    """The state of a job."""

    PENDING = "pending"
    PROCESSING = "processing"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"


class Enqueued(StrEnum):
    """The effect of a call that stores a job.

    `new`: a job was stored. The others mean that the job was there, by its unique key: `kept` as it was,
    `replaced` (it waits with the payload and the settings of this call), `again` (it runs, and will run once
    more with the payload of this call) or `throttled` (a call was accepted within the window).
    """

    NEW = "new"
    KEPT = "kept"
    REPLACED = "replaced"
    AGAIN = "again"
    THROTTLED = "throttled"


StatusName: TypeAlias = Literal["pending", "processing", "completed", "failed", "cancelled"]
"""A `JobStatus` as text."""

Interruption: TypeAlias = Literal["requested", "timeout", "shutdown", "lost", "waiting"]
"""The reason why a running handler was told to stop: an operator asked for it, it ran too long, the instance
stops, the job belongs to somebody else by now, or the job waits and goes on in a later run."""

CancelledBy: TypeAlias = Literal["operator", "handler", "expiry", "batch"]
"""The cause of a job's cancellation; `batch`: a job of the batch that it waited for did not complete."""
