"""Errors that carry jobs: one that failed or was cancelled, and those that a stop left behind."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from monque._values.errors import MonqueError
from monque._values.job import Job


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


class ShutdownTimeoutError(MonqueError):
    """Jobs were still running when the time was up that they had been given to finish.

    Attributes:
        incomplete_jobs: The jobs, as they were claimed.
        timeout: How many seconds they were given; 0 if `stop(timeout=0)` or a second signal gave them none.
    """

    __module__ = "monque"  # where users import it from, as the other errors

    def __init__(self, incomplete_jobs: Sequence[Job[Any]], *, timeout: float = 0.0) -> None:
        names = ", ".join(sorted({job.name for job in incomplete_jobs}))
        when = f"at the shutdown timeout of {timeout:g} s" if timeout > 0 else "when they had to stop at once"
        super().__init__(f"{len(incomplete_jobs)} job(s) were still running {when} ({names})")
        self.incomplete_jobs = list(incomplete_jobs)
        self.timeout = timeout
