"""From the log records of a handler to the log of its job."""

from __future__ import annotations

import logging

from monque._observe.logs import running
from monque._values.errors import JobStateError


class JobLogHandler(logging.Handler):
    """Adds what handlers log to the log of their job (`Job.log`); add it to any logger.

    Records written outside of a job, or after its handler has ended, are ignored.

    Args:
        level: The least level of records, as in `logging`: a number or a name.

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
