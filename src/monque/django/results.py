"""Names, payloads and results of tasks, in Django and in Monque."""

from __future__ import annotations

import builtins
import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from django.conf import settings
from django.utils import timezone

import monque
from monque import Attempt, Job, JobStatus
from monque.django import declared
from monque.django.interface import (
    TaskError,
    TaskResult,
    TaskResultDoesNotExist,
    TaskResultMismatch,
    TaskResultStatus,
    normalize_json,
)

_LOWEST, _HIGHEST = 1, 9
_MOST_URGENT = 100
_LONGEST_NAME = 255


def job_name(queue: str, path: str) -> str:
    """The job name of a task on a queue: `default:shop.tasks.send_email`."""
    return f"{queue}:{path}"


def split_name(name: str) -> tuple[str, str] | None:
    """The queue and the path of the task function; None for a job that is no task."""
    queue, colon, path = name.partition(":")
    return (queue, path) if colon and queue and path else None


def queue_problem(queue: object) -> str | None:
    """Return the reason why this cannot be the name of a queue; None if it can."""
    if not isinstance(queue, str) or not queue or re.search(r"[\s:\x00-\x1f\x7f-\x9f\ufeff]", queue):
        return f"a queue must have a name without whitespace and ':', such as 'emails', got {queue!r}"
    return None


def name_problem(queue: str, path: str) -> str | None:
    """Return the reason why a task cannot be on this queue; None if it can."""
    if problem := queue_problem(queue):
        return problem
    if len(name := job_name(queue, path)) > _LONGEST_NAME:
        return f"queue and path of a task must have at most {_LONGEST_NAME - 1} characters, got {name!r}"
    return None


def monque_priority(priority: int) -> int:
    """Django's priority as ours: -100 to 0 is normal (0), 1 to 100 becomes 1 to 9, in the same order.

    Nothing comes after normal jobs, so below normal counts as normal.
    """
    if priority <= 0:
        return 0
    return max(_LOWEST, math.ceil(priority * _HIGHEST / _MOST_URGENT))


# The payload of a task's job.
ARGS, KWARGS, PRIORITY, RUN_AFTER = "args", "kwargs", "priority", "run_after"

# Its result. The document of a finished job does not say which worker finished it.
VALUE, WORKER = "value", "worker"

_STATUSES = {
    JobStatus.PENDING: TaskResultStatus.READY,
    JobStatus.PROCESSING: TaskResultStatus.RUNNING,
    JobStatus.COMPLETED: TaskResultStatus.SUCCESSFUL,
}

# A line of the job's log. The history of a job has the name of an exception's class and not its module.
_RAISED = re.compile(r"attempt (?P<number>\d+) raised (?P<path>\S+)")

_FIRST_LINE = "Traceback (most recent call last):\n"


def payload_of(task: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Return the stored payload of a call.

    Raises:
        TypeError: An argument cannot be expressed in JSON.
    """
    payload = {ARGS: as_json(args), KWARGS: as_json(kwargs)}
    if task.priority:
        payload[PRIORITY] = int(task.priority)
    if task.run_after is not None:
        payload[RUN_AFTER] = task.run_after
    return payload


def as_json(value: Any) -> Any:
    """The value after a round trip through JSON, as Django promises it to tasks and callers."""
    return json.loads(json.dumps(normalize_json(value)))


def raised_line(job: Job[Any], error: BaseException) -> str:
    """The line that names the class of an error in the job's log."""
    kind = type(error)
    return f"attempt {job.attempt} raised {kind.__module__}.{kind.__qualname__}"


def result_of(alias: str, job: Job[Any]) -> Any:
    """The job of a task as a `TaskResult`.

    Raises:
        TaskResultDoesNotExist: It is the job of no task.
        TaskResultMismatch: This project has no such task.
    """
    named = split_name(job.name)
    if named is None or not isinstance(job.data, Mapping) or not {ARGS, KWARGS} <= job.data.keys():
        raise TaskResultDoesNotExist(str(job.id))
    attempts = _attempts(job)
    errors = _errors(job)
    # A value that could not be stored is an error, as one that is no JSON is.
    failed = job.status in (JobStatus.FAILED, JobStatus.CANCELLED) or job.result_error is not None
    status = TaskResultStatus.FAILED if failed else _STATUSES.get(job.status, TaskResultStatus.READY)
    result = TaskResult(
        task=_task(alias, *named, job),
        id=str(job.id),
        status=status,
        enqueued_at=shown(job.created_at),
        started_at=shown(attempts[0][0]) if attempts else None,
        last_attempted_at=shown(attempts[-1][0]) if attempts else None,
        finished_at=shown(_finished_at(job)),
        args=list(job.data[ARGS]),
        kwargs=dict(job.data[KWARGS]),
        backend=alias,
        errors=errors,
        worker_ids=[worker for _, worker in attempts],
    )
    if status == TaskResultStatus.SUCCESSFUL and isinstance(job.result, Mapping):
        object.__setattr__(result, "_return_value", job.result.get(VALUE))
    return result


def aware(moment: datetime) -> datetime:
    """A time of Django's, which is naive in projects without `USE_TZ`."""
    return moment if timezone.is_aware(moment) else timezone.make_aware(moment)


def shown(moment: datetime | None) -> datetime | None:
    """A time as this project has it."""
    return moment if moment is None or settings.USE_TZ else timezone.make_naive(moment)


def _task(alias: str, queue: str, path: str, job: Job[Any]) -> Any:
    task = declared.find(alias, path)
    if task is None:
        raise TaskResultMismatch(f"the result {job.id} is one of {path!r}, which is no task of this project")
    wanted = {
        "queue_name": queue,
        "priority": job.data.get(PRIORITY, 0),
        "run_after": shown(_time(job.data.get(RUN_AFTER))),
    }
    is_as_declared = all(getattr(task, name) == value for name, value in wanted.items())
    return task if is_as_declared else replace(task, **wanted)


def _time(stored: object) -> datetime | None:
    """A time of the payload, which is in UTC."""
    if not isinstance(stored, datetime):
        return None
    return stored if stored.tzinfo else stored.replace(tzinfo=UTC)


def _attempts(job: Job[Any]) -> list[tuple[datetime | None, str]]:
    """Return the time at which each run began, and the worker that had it."""
    runs = [(attempt.started_at, attempt.instance) for attempt in job.history]
    if job.status == JobStatus.PROCESSING:
        runs.append((job.claimed_at or job.locked_at, job.claimed_by or ""))
    elif job.status == JobStatus.COMPLETED:
        worker = job.result.get(WORKER, "") if isinstance(job.result, Mapping) else ""
        runs.append((job.started_at, worker))
    return runs


def _finished_at(job: Job[Any]) -> datetime | None:
    if job.status == JobStatus.COMPLETED:
        return job.finished_at or job.updated_at
    if job.status == JobStatus.FAILED and job.history:
        return job.history[-1].finished_at or job.updated_at
    return job.updated_at if job.status in (JobStatus.FAILED, JobStatus.CANCELLED) else None


def _errors(job: Job[Any]) -> list[Any]:
    lines = (_RAISED.match(line.text) for line in job.log)
    paths = {int(line["number"]): line["path"] for line in lines if line}
    errors = [_error(attempt, paths.get(attempt.number)) for attempt in job.history]
    if job.status == JobStatus.CANCELLED:
        errors.append(_told("JobCancelledError", job.cancel_reason or "the task was cancelled"))
    if job.result_error is not None:
        errors.append(_told("ResultError", job.result_error))
    return errors


def _error(attempt: Attempt, path: str | None) -> Any:
    told = f"{attempt.error}: {attempt.message}"
    # The history leaves out the first line, by which people and tools know a traceback.
    trace = f"{_FIRST_LINE}{attempt.traceback}" if attempt.traceback else told
    return TaskError(exception_class_path=path or _path_of(attempt.error), traceback=trace)


def _told(name: str, message: str) -> Any:
    return TaskError(exception_class_path=f"monque.{name}", traceback=f"{name}: {message}")


def _path_of(name: str) -> str:
    """Return the import path of a class of which only the name is known: one of Python or of Monque."""
    if hasattr(builtins, name):
        return f"builtins.{name}"
    return f"monque.{name}" if name in monque.__all__ else name
