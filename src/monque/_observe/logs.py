"""Log lines: the job that one is about, on our own lines and on those of handlers; starts and stops."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable, Mapping
from contextvars import ContextVar
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from monque._values.errors import JobStateError
from monque._values.verdicts import Fail
from monque._values.views import Pause
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


def log_waiting(job: Job[Any], duration: timedelta, name: str) -> None:
    """Log that a handler waits, and in which step."""
    if logger.isEnabledFor(logging.DEBUG):
        logger.debug("job %s (%s) waits in %r", job.id, job.name, name, extra=about(job, duration))


def log_step(job: Job[Any], duration: timedelta, name: str) -> None:
    """Log that a durable step is done, after that is stored."""
    if logger.isEnabledFor(logging.DEBUG):
        message = "step %r of job %s (%s) is done"
        logger.debug(message, name, job.id, job.name, extra=about(job, duration))


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


class JobLogHandler(logging.Handler):
    """Adds what handlers log to the log of their job (`Job.log`); add it to any logger.

    Records written outside of a job, or after its handler has ended, are ignored. Its *level* is the least
    level of records, as in `logging`: a number or a name.

    Examples:
        >>> logging.getLogger("shop").addHandler(JobLogHandler(logging.INFO))
    """

    DONE = "monque_in_job_log"
    """Set on a record of a child process that a handler there has added to the log of its job."""

    def emit(self, record: logging.LogRecord) -> None:
        """Add the formatted record to the log of the job that runs here."""
        if (job := running.get()) is None or hasattr(record, self.DONE):
            return
        try:
            job.add_log(self.format(record), record.levelname.lower()[:20] or "info")
        except JobStateError:
            return  # the handler has ended; a task that it left behind logs
        except Exception:  # noqa: BLE001 - as every handler of `logging`: a bad record must not end a job
            self.handleError(record)


# An instance may have a thousand names; a log line should not.
_MOST_NAMES = 20


def starts(
    concurrency: Mapping[str, int], *, place: str, instance_concurrency: int | None, poll: float | None
) -> str:
    """Say what an instance works on, where, and how it finds jobs: every *poll* seconds, or by a stream."""
    names = [f"{name} ({count} at once)" for name, count in concurrency.items()]
    what = _listed(names) or "no jobs yet (no worker is registered)"
    most = "" if instance_concurrency is None else f", at most {instance_concurrency} at once in all,"
    how = "woken by a change stream" if poll is None else f"looking for new jobs every {poll:g} s"
    return f"works on {what}{most} in {place}, {how}"


def stops(running: Iterable[str], *, timeout: float, hears_signals: bool, by_job: bool) -> str:
    """Say what a stopping instance does, given the names of the jobs that it waits for."""
    counts = Counter(running)
    if not counts:
        return (
            "stops, as a job asked for it; no other job is running" if by_job else "stops; no job is running"
        )
    names = _listed([f"{count} {name}" for name, count in sorted(counts.items())])
    jobs = f"{counts.total()} running job(s) ({names})"
    if timeout <= 0:
        return f"stops and gives back {jobs} at once"
    hint = "; a second signal gives them back at once" if hears_signals else ""
    return f"stops and waits at most {timeout:g} s for {jobs}{hint}"


def unfinished(*, put_back: list[str], still_running: list[str], not_stored: list[str]) -> str:
    """Say what became of the jobs that were not finished in time, given as "name id"."""
    fates = {
        "put back": put_back,
        "still running, because they could not be cancelled": still_running,
        "ended, but the database has not confirmed that yet": not_stored,
    }
    said = [f"{fate}: {_listed(jobs)}" for fate, jobs in fates.items() if jobs]
    return "; ".join(said) or "all of them have ended since"


def stopped(seconds: float, still_running: int, not_stored: int) -> str:
    """The last line of an instance."""
    running = f"; {still_running} job(s) still run here" if still_running else ""
    ended = f"; the end of {not_stored} job(s) is not stored yet" if not_stored else ""
    return f"stopped after {seconds:.1f} s{running}{ended}"


def paused(pause: Pause) -> str:
    """Say that a pause has begun to count here."""
    what = "any name" if pause.name is None else pause.name
    until = "" if pause.until is None else f" until {pause.until:%Y-%m-%d %H:%M:%S} UTC"
    why = "" if pause.reason is None else f": {pause.reason}"
    return f"starts no job of {what}{until}, as it is paused{why}"


def resumed(name: str | None) -> str:
    """Say that a pause does not count here any more."""
    what = "all names but those that are paused by themselves" if name is None else name
    return f"starts jobs of {what} again"


def _listed(names: list[str]) -> str:
    more = len(names) - _MOST_NAMES
    return ", ".join(names[:_MOST_NAMES]) + (f" and {more} more" if more > 0 else "")
