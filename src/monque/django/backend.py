"""The backend of Django's tasks."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Any

from asgiref.sync import sync_to_async
from django.apps import apps
from django.conf import settings
from django.core import checks
from django.utils import timezone
from django.utils.asyncio import async_unsafe

from monque import SyncMonque
from monque.django import declared
from monque.django.apps import APP
from monque.django.clients import get_monque, session_of
from monque.django.conf import problems
from monque.django.interface import (
    BaseTaskBackend,
    InvalidTask,
    TaskResultDoesNotExist,
    task_enqueued,
)
from monque.django.results import (
    aware,
    job_name,
    monque_priority,
    name_problem,
    payload_of,
    queue_problem,
    result_of,
)


class MonqueBackend(BaseTaskBackend):
    """Stores Django's tasks as jobs of Monque; `manage.py monque_worker` runs them.

    It is a backend of `django.tasks` (Django 6.0 and later) or of the package `django-tasks` (Django 5.2),
    and supports whatever these offer.

    Examples:
        >>> TASKS = {
        ...     "default": {
        ...         "BACKEND": "monque.django.MonqueBackend",
        ...         "OPTIONS": {"uri": "mongodb://localhost:27017/shop"},
        ...     }
        ... }
    """

    task_class = declared.MonqueTask
    supports_defer = True
    supports_async_task = True
    supports_get_result = True
    supports_priority = True

    @property
    def monque(self) -> SyncMonque:
        """The Monque of this backend: `get_monque(alias)`."""
        return get_monque(self.alias)

    def validate_task(self, task: Any) -> None:
        """Refuse a task that cannot be stored or run.

        Raises:
            InvalidTask: The message says why.
        """
        if isinstance(task.run_after, timedelta):
            # The documentation allows it; Django's own check expects a time.
            self.validate_task(replace(task, run_after=None))
            return
        super().validate_task(task)
        problem = name_problem(task.queue_name, task.module_path) or declared.settings_problem(task)
        if problem:
            raise InvalidTask(problem)
        declared.note(task)

    @async_unsafe("enqueue() waits for the database; in async code, use: await task.aenqueue(...)")
    def enqueue(self, task: Any, args: Any, kwargs: Any) -> Any:
        """Store a task and return its result, which is not there yet.

        If the jobs are in a database of django-mongodb-backend, it is part of the transaction that this
        thread is in.
        """
        result = self._store(task, args, kwargs)
        task_enqueued.send_robust(sender=type(self), task_result=result)
        return result

    async def aenqueue(self, task: Any, args: Any, kwargs: Any) -> Any:
        """Store a task from async code. It is part of no transaction: Django has none in async code.

        All event loops of a process share one connection, which has an event loop of its own: `async_to_sync`
        makes a loop for each call, and a connection for each of these would be opened for one job.
        """
        result = await sync_to_async(self._store, thread_sensitive=False)(task, args, kwargs)
        await task_enqueued.asend_robust(sender=type(self), task_result=result)
        return result

    @async_unsafe("get_result() waits for the database; in async code, use: await task.aget_result(...)")
    def get_result(self, result_id: str) -> Any:
        """The result of a task, as it is now.

        Raises:
            TaskResultDoesNotExist: There is no such job, or it is no task.
        """
        return self._read(result_id)

    async def aget_result(self, result_id: str) -> Any:
        """As `get_result`, from async code."""
        return await sync_to_async(self._read, thread_sensitive=False)(result_id)

    def check(self, **kwargs: Any) -> Iterable[Any]:
        """Return the errors in the settings of this backend, for `manage.py check`."""
        yield from super().check(**kwargs)
        for problem in problems(self.alias, self.options):
            yield checks.Error(problem, id="monque.E001")
        for problem in filter(None, map(queue_problem, self.queues)):
            yield checks.Error(f'TASKS["{self.alias}"]["QUEUES"]: {problem}', id="monque.E002")
        if not apps.is_installed(APP):
            yield checks.Warning(
                f'the tasks of TASKS["{self.alias}"] are run by manage.py monque_worker, which the app '
                f'"{APP}" brings; add it to INSTALLED_APPS',
                id="monque.W002",
            )
        if not settings.DEBUG and not self._names_a_database():
            yield checks.Warning(
                f'TASKS["{self.alias}"]["OPTIONS"] names neither a uri nor a database, and MONQUE_URI is not '
                "set: the jobs are in an embedded server on this machine",
                id="monque.W001",
            )

    def _names_a_database(self) -> bool:
        given = self.options if isinstance(self.options, Mapping) else {}
        return bool(given.get("uri") or given.get("database") or os.environ.get("MONQUE_URI"))

    def _store(self, task: Any, args: Any, kwargs: Any) -> Any:
        task = _at_a_time(task)
        self.validate_task(task)
        job = self.monque.enqueue(
            job_name(task.queue_name, task.module_path),
            payload_of(task, args, kwargs),
            run_at=task.run_after,
            priority=monque_priority(task.priority) or None,
            session=self._session(),
        )
        return result_of(self.alias, job)

    def _session(self) -> Any:
        database = self.options.get("database")
        return None if database is None else session_of(database)

    def _read(self, result_id: str) -> Any:
        job = self.monque.get_job(result_id)
        if job is None:
            raise TaskResultDoesNotExist(result_id)
        return result_of(self.alias, job)


def _at_a_time(task: Any) -> Any:
    """The same task, with a time that has a zone: it may be relative, or naive without `USE_TZ`."""
    if isinstance(task.run_after, timedelta):
        return replace(task, run_after=aware(timezone.now() + task.run_after))
    return task if task.run_after is None else replace(task, run_after=aware(task.run_after))
