"""Which job a log line is about: fields on our own lines, and on those that handlers write."""

from __future__ import annotations

import logging
from contextvars import ContextVar
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from monque._values.verdicts import Fail
from monque._values.words import bounded

if TYPE_CHECKING:
    from monque._values.job import Job

logger = logging.getLogger("monque")

running: ContextVar[Job[Any] | None] = ContextVar("monque_job", default=None)


def current_job() -> Job[Any] | None:
    """The job that runs here, or None outside of a handler.

    It is known in `async def` and in `def` handlers, in what they call and in the tasks they start.

    Examples:
        >>> job = current_job()
        >>> print(job.id if job else "no job")
    """
    return running.get()


class JobLogFilter(logging.Filter):
    """Gives log records of any logger the fields of the job that runs here; add it to a handler.

    The fields are `job_id`, `job_name`, `job_attempt` and `instance_id`. Records written outside of a job
    pass unchanged.

    Examples:
        >>> handler = logging.StreamHandler()
        >>> handler.addFilter(JobLogFilter())
    """

    def filter(self, record: logging.LogRecord) -> bool:
        """Let every record pass, with the fields if there is a job and the record names none itself."""
        job = running.get()
        if job is not None and not hasattr(record, "job_id"):
            for name, value in about(job).items():
                setattr(record, name, value)
        return True


def about(job: Job[Any], duration: timedelta | None = None) -> dict[str, Any]:
    """The fields of a log line about a job, for `extra=`."""
    fields: dict[str, Any] = {
        "job_id": str(job.id),
        "job_name": job.name,
        "job_attempt": job.attempt,
        "instance_id": job.claimed_by,
    }
    return fields if duration is None else {**fields, "job_duration": duration.total_seconds()}


def logger_for(level: int) -> logging.Logger:
    """Our logger, or that of uvicorn if nobody set up ours and only uvicorn's is shown.

    uvicorn sets up its own loggers and no others: an application would start and stop its jobs in silence.
    """
    is_shown = logger.hasHandlers() and logger.isEnabledFor(level)
    server = logging.getLogger("uvicorn.error")
    if is_shown or logger.level != logging.NOTSET or not server.hasHandlers():
        return logger
    return server if server.isEnabledFor(level) else logger


def log_start(job: Job[Any]) -> None:
    """Log that a handler is about to be called."""
    logger.debug("job %s (%s) starts", job.id, job.name, extra=about(job))


def log_success(job: Job[Any], duration: timedelta) -> None:
    """Log that a handler succeeded, after that is stored."""
    if logger.isEnabledFor(logging.DEBUG):
        logger.debug("job %s (%s) completed", job.id, job.name, extra=about(job, duration))


def log_cancelled(job: Job[Any], duration: timedelta, how: str, reason: str | None) -> None:
    """Log that a job was cancelled, after that is stored, and why."""
    if logger.isEnabledFor(logging.INFO):
        why = f": {reason}" if reason else ""
        logger.info("job %s (%s) was %s%s", job.id, job.name, how, why, extra=about(job, duration))


def log_snoozed(job: Job[Any], duration: timedelta, when: str) -> None:
    """Log that a handler put its job off; some do it all day."""
    if logger.isEnabledFor(logging.DEBUG):
        message = "job %s (%s) was snoozed by its handler: %s"
        logger.debug(message, job.id, job.name, when, extra=about(job, duration))


def log_failure(
    job: Job[Any], duration: timedelta, reason: str, error: BaseException | None, *, will_retry: bool
) -> None:
    """Log that a run failed, after that is stored. A failure that is retried needs no operator yet.

    A bare `Fail` is a decision of the handler: its reason says more than where it was raised.
    """
    level, then = (logging.INFO, "is tried again") if will_retry else (logging.ERROR, "was given up")
    if isinstance(error, Fail) and error.__cause__ is None:
        level, error = logging.WARNING, None
    if logger.isEnabledFor(level):
        message = "job %s (%s) failed and %s: %s"
        fields = about(job, duration)
        shown = None if error is None else bounded(error)
        logger.log(level, message, job.id, job.name, then, reason, exc_info=shown, extra=fields)
