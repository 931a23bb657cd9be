"""The states of a job, why a run is told to stop, and who cancels."""

from __future__ import annotations

from enum import StrEnum
from typing import Literal, TypeAlias


class JobStatus(StrEnum):
    """Where a job is in its life."""

    PENDING = "pending"
    PROCESSING = "processing"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"


StatusName: TypeAlias = Literal["pending", "processing", "completed", "failed", "cancelled"]
"""A `JobStatus` as text."""

Interruption: TypeAlias = Literal["requested", "timeout", "shutdown", "lost"]
"""Why a running handler was told to stop: an operator asked for it, it ran too long, the instance stops, or
the job belongs to somebody else by now."""

CancelledBy: TypeAlias = Literal["operator", "handler", "expiry"]
"""Who cancelled a job."""
