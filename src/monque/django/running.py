"""Running a task: its function, between the signals, with fresh database connections."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from functools import wraps
from inspect import iscoroutinefunction
from typing import Any

from asgiref.sync import ThreadSensitiveContext, sync_to_async
from django.db import close_old_connections, connections

from monque import (
    Job,
    JobCancelled,
    JobCompleted,
    JobFailed,
    JobInterrupted,
    SyncMonque,
    Verdict,
    Worker,
)
from monque.django.interface import (
    TaskContext,
    TaskResultDoesNotExist,
    task_backends,
    task_finished,
    task_started,
)
from monque.django.results import VALUE, WORKER, as_json, raised_line, result_of, split_name

# Exceptions that end a run and are no failure of the task.
_NO_FAILURES = (Verdict, JobInterrupted, asyncio.CancelledError, GeneratorExit)


def handler_of(alias: str, task: Any) -> Callable[[Job[Any]], Any]:
    """The handler of a task: a function in a thread, or a coroutine on the event loop."""
    sender = type(task_backends[alias])

    def run(job: Job[Any]) -> dict[str, Any]:
        with fresh_connections():
            result = result_of(alias, job)
            task_started.send_robust(sender=sender, task_result=result)
            with _noting_errors(job):
                return _returned(job, task.func(*_arguments(task, result), **result.kwargs))

    async def arun(job: Job[Any]) -> dict[str, Any]:
        async with async_fresh_connections():
            result = result_of(alias, job)
            await task_started.asend_robust(sender=sender, task_result=result)
            with _noting_errors(job):
                return _returned(job, await task.func(*_arguments(task, result), **result.kwargs))

    chosen: Callable[[Job[Any]], Any] = arun if iscoroutinefunction(task.func) else run
    setattr(chosen, _IS_WRAPPED, True)
    return chosen


def with_fresh_connections(worker: Worker[Any]) -> Callable[[Job[Any]], Any]:
    """The handler of a plain worker, with fresh database connections."""
    handler: Callable[[Job[Any]], Any] = worker.handler
    if hasattr(handler, _IS_WRAPPED):
        return handler

    @wraps(handler)
    def run(job: Job[Any]) -> Any:
        with fresh_connections():
            return handler(job)

    @wraps(handler)
    async def arun(job: Job[Any]) -> Any:
        async with async_fresh_connections():
            return await handler(job)

    wrapped: Callable[[Job[Any]], Any] = arun if worker.is_async else run
    setattr(wrapped, _IS_WRAPPED, True)
    return wrapped


_IS_WRAPPED = "__monque_django__"


def send_finished(alias: str, monque: SyncMonque) -> None:
    """Let this Monque send the signal `task_finished` when it has stored the end of a task."""

    async def finished(event: JobCompleted | JobFailed | JobCancelled) -> None:
        will_retry = isinstance(event, JobFailed) and event.will_retry
        if not will_retry and split_name(event.job.name):
            # In a thread: receivers may use the ORM.
            await asyncio.to_thread(_send_finished, alias, monque, event)

    for kind in (JobCompleted, JobFailed, JobCancelled):
        monque.on(kind, finished)


def _send_finished(alias: str, monque: SyncMonque, event: JobCompleted | JobFailed | JobCancelled) -> None:
    # Read again: the job of an event has no arguments and no tracebacks.
    job = monque.get_job(event.job.id)
    if job is None:
        return
    try:
        result = result_of(alias, job)
    except TaskResultDoesNotExist:
        return  # the job of a worker that has a colon in its name
    sender = type(task_backends[alias])
    with fresh_connections():
        if not isinstance(event, JobFailed):
            task_finished.send_robust(sender=sender, task_result=result)
            return
        try:
            raise event.error
        except BaseException:  # noqa: BLE001 - Django's receiver logs the exception that is being handled
            task_finished.send_robust(sender=sender, task_result=result)


@contextmanager
def fresh_connections() -> Iterator[None]:
    """Close what the database server may have closed meanwhile, as Django does around each request."""
    close_old_connections()
    try:
        yield
    finally:
        close_old_connections()


@asynccontextmanager
async def async_fresh_connections() -> AsyncIterator[None]:
    """The same in a coroutine, whose ORM calls share one thread, apart from those of other tasks.

    The thread ends with it, and connections belong to threads: none is left for later, whatever CONN_MAX_AGE
    says.
    """
    async with ThreadSensitiveContext():
        try:
            yield
        finally:
            await sync_to_async(connections.close_all)()


def _arguments(task: Any, result: Any) -> list[Any]:
    return [TaskContext(task_result=result), *result.args] if task.takes_context else result.args


def _returned(job: Job[Any], value: object) -> dict[str, Any]:
    return {VALUE: as_json(value), WORKER: job.claimed_by}


@contextmanager
def _noting_errors(job: Job[Any]) -> Iterator[None]:
    try:
        yield
    except _NO_FAILURES:
        raise
    except BaseException as error:
        job.add_log(raised_line(job, error), level="error")
        raise
