"""The error of a shutdown that ran out of time: apart from the others, because it alone carries jobs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from monque._errors import MonqueError
from monque._job import Job


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
