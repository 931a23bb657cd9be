"""The errors of jobs that ended without success: apart from the others, because they carry the job."""

from __future__ import annotations

from typing import Any

from monque._errors import MonqueError
from monque._job import Job


class JobFailedError(MonqueError):
    """A job whose result somebody waited for has failed for good.

    Attributes:
        job: The job, with `fail_reason` and `history`.
    """

    __module__ = "monque"  # where users import it from, as the other errors

    def __init__(self, job: Job[Any]) -> None:
        super().__init__(f"job {job.id} ({job.name!r}) failed: {job.fail_reason}")
        self.job = job


class JobCancelledError(MonqueError):
    """A job whose result somebody waited for was cancelled.

    Attributes:
        job: The job, with `cancelled_by` and `cancel_reason`.
    """

    __module__ = "monque"

    def __init__(self, job: Job[Any]) -> None:
        why = f": {job.cancel_reason}" if job.cancel_reason else ""
        super().__init__(f"job {job.id} ({job.name!r}) was cancelled by {job.cancelled_by}{why}")
        self.job = job
