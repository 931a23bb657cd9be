"""Every exception Monque raises.

MonqueError
├── ConnectionError                 the database could not be reached or refused
├── NotOpenError                    used before open() or after close()
├── ConfigurationError              a wrong option, connection or argument
│   ├── InvalidCronError
│   └── InvalidJobIdentifierError
├── WorkerRegistrationError
├── InstanceConflictError
├── PayloadError
│   └── PayloadTooLargeError
├── JobNotFoundError
├── JobStateError
│   └── JobChangedError
├── ClaimLostError
├── NotCommittedError
├── JobTimeoutError
├── ResultError
├── StepError
├── MiddlewareError
├── WaitTimeoutError
├── JobFailedError                  it carries the job, so it stands in `_ended`
├── JobCancelledError               the same
├── ProcessDiedError
├── RemoteError                     an error of a child process that could not be brought here as it was
├── InvalidCursorError
├── ReadTimeoutError
│   └── AggregationTimeoutError
├── DuplicateJobError               it carries a job, so it stands in `_unique`
└── ShutdownTimeoutError            it carries jobs, so it stands in `_shutdown`

JobInterrupted                      raised by `Job.checkpoint()`; a BaseException, and no error
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

from bson import ObjectId
from pymongo.errors import PyMongoError

from monque._values.status import Interruption, JobStatus
from monque._values.words import driver_reason

# The labels by which callers decide whether to retry.
_ERROR_LABELS = (
    "TransientTransactionError",
    "UnknownTransactionCommitResult",
    "RetryableWriteError",
    "NoWritesPerformed",
    "RetryableError",
    "SystemOverloadedError",
)


class MonqueError(Exception):
    """Base of everything Monque raises.

    Attributes:
        stored: How many of the jobs, from the first one on, `enqueue_many` had stored when it raised this
            error; None for an error of anything else.
    """

    stored: int | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        # The default calls the class with the message alone, which most of these do not take.
        return _restore, (type(self), self.args, self.__dict__)


def _restore(kind: type[MonqueError], args: tuple[Any, ...], state: dict[str, Any]) -> MonqueError:
    """Rebuild an error that was pickled or copied."""
    error = kind.__new__(kind, *args)
    error.__dict__.update(state)
    return error


class ConnectionError(MonqueError, PyMongoError):  # noqa: A001 - the name is part of the public API
    """The database could not be reached, or it refused the command.

    It is also a `PyMongoError` and keeps the driver's error labels, so that
    `ClientSession.with_transaction` can try again. `__cause__` is the driver's error.
    """

    def __init__(self, message: str, *, labels: Sequence[str] = ()) -> None:
        PyMongoError.__init__(self, message, labels)


class NotOpenError(MonqueError):
    """Used before `open()` or after `close()`."""


class ConfigurationError(MonqueError, ValueError):
    """An option, a connection or an argument is wrong; the message names it."""


class InvalidCronError(ConfigurationError):
    """The cron expression cannot be used.

    Attributes:
        expression: What was given.
    """

    def __init__(self, message: str, *, expression: object) -> None:
        super().__init__(message)
        self.expression = expression


class InvalidJobIdentifierError(ConfigurationError):
    """A job name or a unique key breaks the rules for identifiers.

    Attributes:
        field: `name` or `unique_key`.
        value: What was given.
    """

    def __init__(self, message: str, *, field: str, value: object) -> None:
        super().__init__(message)
        self.field = field
        self.value = value


class WorkerRegistrationError(MonqueError):
    """A worker cannot be registered, for instance because its name is taken.

    Attributes:
        job_name: The name it was to have.
    """

    def __init__(self, message: str, *, job_name: str) -> None:
        super().__init__(message)
        self.job_name = job_name


class InstanceConflictError(MonqueError):
    """Another live instance uses this instance id.

    Attributes:
        instance_id: The id in question.
    """

    def __init__(self, instance_id: str) -> None:
        super().__init__(
            f"instance id {instance_id!r} is alive elsewhere: a job it claimed has a fresh heartbeat; "
            "give each instance its own Options(instance_id=...), or leave it out for a random one"
        )
        self.instance_id = instance_id


class PayloadError(MonqueError, ValueError):
    """The data of a job or a signal cannot be stored, or does not fit what its handler expects.

    Attributes:
        job_name: The name of the job, or of the signal.
    """

    def __init__(self, message: str, *, job_name: str) -> None:
        super().__init__(message)
        self.job_name = job_name


class PayloadTooLargeError(PayloadError):
    """The data of a job is larger than allowed.

    Attributes:
        size: Its bytes as BSON.
        limit: How many are allowed.
    """

    def __init__(self, *, job_name: str, size: int, limit: int) -> None:
        super().__init__(
            f"the payload of {job_name!r} has {size:,} bytes as BSON; at most {limit:,} are allowed",
            job_name=job_name,
        )
        self.size = size
        self.limit = limit


class JobNotFoundError(MonqueError, LookupError):
    """There is no job with this id, or no schedule with this name and key.

    Attributes:
        job_id: The id that was looked for; of a schedule, its key.
    """

    def __init__(self, job_id: ObjectId | str, message: str | None = None) -> None:
        super().__init__(message or f"no job with id {job_id}")
        self.job_id = job_id


class JobStateError(MonqueError):
    """The job's state does not allow this action.

    Attributes:
        job_id: The job.
        current_status: The state it is in.
        attempted_action: What was to be done, for example `cancel`.
    """

    def __init__(
        self, message: str, *, job_id: ObjectId, current_status: JobStatus, attempted_action: str
    ) -> None:
        super().__init__(message)
        self.job_id = job_id
        self.current_status = current_status
        self.attempted_action = attempted_action


class JobChangedError(JobStateError):
    """The job is not what it was when the caller read it; read it again, and decide anew."""


class ClaimLostError(MonqueError):
    """The job does not belong to this run any more: what the run wrote for it must not be committed.

    Attributes:
        job_id: The job.
    """

    def __init__(self, message: str, *, job_id: ObjectId) -> None:
        super().__init__(message)
        self.job_id = job_id


class NotCommittedError(MonqueError):
    """A handler called `Job.complete_in` and returned, but the transaction was not committed.

    Attributes:
        job_id: The job.
    """

    def __init__(self, message: str, *, job_id: ObjectId) -> None:
        super().__init__(message)
        self.job_id = job_id


class JobTimeoutError(MonqueError, TimeoutError):
    """A run took longer than its time limit: the error of the attempt. `__cause__` is how the handler ended.

    Attributes:
        job_id: The job.
        limit: How long it was allowed to run, with the time that `Job.extend_timeout` added.
    """

    def __init__(self, *, job_id: ObjectId, limit: timedelta) -> None:
        super().__init__(f"ran longer than {limit.total_seconds():g} s")
        self.job_id = job_id
        self.limit = limit


class ResultError(MonqueError):
    """The result of a job was not stored: it could not be, or nobody asked for it.

    Attributes:
        job_id: The job.
    """

    def __init__(self, message: str, *, job_id: ObjectId) -> None:
        super().__init__(message)
        self.job_id = job_id


class StepError(MonqueError):
    """A durable step or wait cannot be what the handler asks for.

    Its name was used before in this run or stands for another kind, there are too many, its value is too
    large, it was called inside of another step, or this handler can have none.

    Attributes:
        job_id: The job.
        step: The name of the step, if there is one.
    """

    def __init__(self, message: str, *, job_id: ObjectId, step: str | None = None) -> None:
        super().__init__(message)
        self.job_id = job_id
        self.step = step


class MiddlewareError(MonqueError):
    """A middleware did not run its handler exactly once: the error of the attempt."""


class WaitTimeoutError(MonqueError, TimeoutError):
    """A job had not ended when the time was up that its caller wanted to wait; the job goes on.

    In a handler: the signal that it waited for with `Job.receive` did not come in time, or some of the jobs
    of `Job.run_jobs` had not ended.

    Attributes:
        job_id: The job.
        timeout: How long the caller, or the job, waited.
        signal: The name of the signal that did not come; None if it was waited for jobs.
    """

    def __init__(
        self,
        *,
        job_id: ObjectId | str,
        timeout: timedelta,
        signal: str | None = None,
        run_jobs: str | None = None,
    ) -> None:
        within = f"within {timeout.total_seconds():g} s"
        message = f"job {job_id} has not ended {within}; it goes on"
        if signal is not None:
            message = f"no signal {signal!r} came to job {job_id} {within}"
        elif run_jobs is not None:
            message = f"some jobs of {run_jobs!r} have not ended {within}; they go on (job {job_id})"
        super().__init__(message)
        self.job_id = job_id
        self.timeout = timeout
        self.signal = signal


class ProcessDiedError(MonqueError):
    """The processes that ran a job died so often that the job was given up.

    No handler raises it: recovery does not know why they died. It is the error of the `JobFailed` event.

    Attributes:
        job_id: The job.
        crashes: How many processes died while they ran it.
    """

    def __init__(self, message: str, *, job_id: ObjectId, crashes: int) -> None:
        super().__init__(message)
        self.job_id = job_id
        self.crashes = crashes


class RemoteError(MonqueError):
    """A handler in a child process raised an error that cannot be rebuilt here; this one stands for it.

    That is so for exceptions that cannot be pickled. `Retry(retry_on=...)` does not find their class.

    Attributes:
        type_name: The class of the error, with its module.
        text: Its text.
        trace: Where it was raised, at most 4,000 characters; None if nobody knows.
    """

    def __init__(self, *, type_name: str, text: str, trace: str | None = None) -> None:
        super().__init__(f"{type_name}: {text}" if text else type_name)
        self.type_name = type_name
        self.text = text
        self.trace = trace


class InvalidCursorError(MonqueError, ValueError):
    """The cursor was not made by this query, or was changed on the way."""


class ReadTimeoutError(MonqueError, TimeoutError):
    """A read took longer than the `max_time` that its caller gave it."""


class AggregationTimeoutError(ReadTimeoutError):
    """The statistics took longer than their time limit."""


class JobInterrupted(BaseException):
    """Raised by `Job.checkpoint()` in a handler that was told to stop; let it leave the handler.

    It is a `BaseException`, so that `except Exception` in a handler does not swallow it.

    Attributes:
        why: `requested`, `timeout`, `shutdown`, `lost` or `waiting`.
    """

    def __init__(self, why: Interruption) -> None:
        super().__init__(f"the run was told to stop: {_WHY[why]}")
        self.why: Interruption = why

    def __reduce__(self) -> tuple[Any, ...]:
        return JobInterrupted, (self.why,)


_WHY: dict[Interruption, str] = {
    "requested": "an operator has asked for it",
    "timeout": "it ran longer than its time limit",
    "shutdown": "the instance is stopping",
    "lost": "the job does not belong to this run any more",
    "waiting": "the job waits, and goes on in a later run",
}


def note_stored(error: BaseException, stored: int) -> None:
    """Let an error that ends `enqueue_many` say how many jobs are stored.

    Errors of the user's own iterable or callback have attributes of their own: they get a note only.
    """
    if isinstance(error, MonqueError):
        error.stored = stored
    if stored:
        jobs = "job" if stored == 1 else f"{stored:,} jobs"
        error.add_note(f"enqueue_many had stored the first {jobs}")


@contextmanager
def driver_errors(doing: str) -> Iterator[None]:
    """Turn an error of the driver into our `ConnectionError`, its labels kept."""
    try:
        yield
    except ConnectionError:
        raise
    except PyMongoError as error:
        labels = [label for label in _ERROR_LABELS if error.has_error_label(label)]
        raise ConnectionError(f"could not {doing}: {driver_reason(error)}", labels=labels) from error


# Tracebacks and logs name a class by its module: say where users import it from.
for _error in [value for value in vars().values() if isinstance(value, type)]:
    if issubclass(_error, MonqueError | JobInterrupted):
        _error.__module__ = "monque"
