"""The tasks of the project, by the paths of their functions."""

from __future__ import annotations

import sys
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from django.utils.module_loading import autodiscover_modules

from monque import ConfigurationError, Retry, Timeout, Workers, WorkerSettings
from monque.django.interface import InvalidTask, Task

# Backends are made anew in each thread, and Django keeps no list of tasks.
_declared: dict[tuple[str, str], Any] = {}


@dataclass(frozen=True, slots=True, kw_only=True)
class MonqueTask(Task):
    """A `Task` with settings of Monque, which `@task(...)` takes beside Django's own.

    Attributes:
        max_attempts: How often it is tried; default: as *retry* says, else the option `max_attempts`, else
            once.
        retry: When and how often it is tried again.
        timeout: How long a run may take.
        concurrency: How many runs of it a worker process has at once.

    Examples:
        >>> @task(max_attempts=5, timeout=timedelta(minutes=2))
        ... def fetch(url: str) -> int: ...
    """

    max_attempts: int | None = None
    retry: Retry | None = None
    timeout: timedelta | Timeout | None = None
    concurrency: int | None = None


_SETTINGS = ("max_attempts", "retry", "timeout", "concurrency")


def worker_settings(task: Any, *, max_attempts: int) -> WorkerSettings:
    """Return the settings of a task's jobs; *max_attempts* counts if the task says nothing about it."""
    own, retry = getattr(task, "max_attempts", None), getattr(task, "retry", None)
    if own is None and retry is None:
        own = max_attempts
    timeout = getattr(task, "timeout", None)
    return WorkerSettings(max_attempts=own, retry=retry, timeout=timeout, store_result=True)


def settings_problem(task: Any) -> str | None:
    """Return the error in the settings of a task; None if they are fine."""
    if all(getattr(task, name, None) is None for name in _SETTINGS):
        return None  # so it is with most tasks, and each call of enqueue asks
    try:
        Workers().worker(
            "a-task",
            lambda _job: None,
            concurrency=getattr(task, "concurrency", None),
            **worker_settings(task, max_attempts=1),
        )
    except ConfigurationError as error:
        return str(error).replace("'a-task'", repr(task.name))
    return None


def note(task: Any) -> None:
    """Remember a task: its backend calls this whenever one is made. The first one is the declared one."""
    _declared.setdefault((task.backend, task.module_path), task)


def find(alias: str, path: str) -> Any:
    """The task of a path, as it was declared; None if no task is known by it.

    The path stands in the database. No module is imported because of it: whoever can write there could have
    any module imported.
    """
    if (alias, path) not in _declared:
        _discover(alias)
    return _declared.get((alias, path))


def tasks_of(alias: str) -> list[Any]:
    """All tasks that the backend of an alias may be asked to run."""
    _discover(alias)
    return [
        task for (backend, _), task in sorted(_declared.items(), key=lambda each: each[0]) if backend == alias
    ]


def _discover(alias: str) -> None:
    """Import the modules `tasks` of all apps, and note the tasks of other backends, too.

    Somebody may call `task.using(backend=alias)`.
    """
    autodiscover_modules("tasks")
    for module in list(sys.modules.values()):
        for value in list(getattr(module, "__dict__", {}).values()):
            # Not `isinstance`, which would evaluate Django's lazy objects.
            if issubclass(type(value), Task) and value.backend != alias:
                with suppress(InvalidTask):  # its queue is none of this backend
                    value.using(backend=alias)
