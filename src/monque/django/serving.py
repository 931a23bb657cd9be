"""The workers of a Django project, for a worker process."""

from __future__ import annotations

import asyncio
import json
import logging
import os
from collections.abc import Collection
from datetime import timedelta
from importlib import import_module
from typing import Any
from weakref import WeakSet

import django
from django.apps import apps
from django.conf import settings

from monque import MonqueError, SyncMonque
from monque.cli.log import TOLD
from monque.django import declared
from monque.django.clients import get_monque, make_monque
from monque.django.conf import DEFAULT_ALIAS, configuration_of
from monque.django.interface import Task, task_backends
from monque.django.results import job_name, split_name
from monque.django.running import handler_of, send_finished, with_fresh_connections

logger = logging.getLogger("monque.django")

# The environment variable in which `manage.py monque_worker` tells its child processes.
VARIABLE = "MONQUE_DJANGO_WORKER"

# How long the look at waiting jobs may take. With very many jobs it is left out.
_LOOK = timedelta(seconds=5)

_prepared: WeakSet[SyncMonque] = WeakSet()


async def served() -> SyncMonque:
    """Return what `monque worker monque.django.serving:served` runs: tasks, and the project's own workers."""
    # In a thread: apps may use the ORM while they are imported, and Django refuses that in an event loop.
    return await asyncio.to_thread(prepare, **json.loads(os.environ.get(VARIABLE, "{}")))


def prepare(alias: str = DEFAULT_ALIAS, queues: Collection[str] = ()) -> SyncMonque:
    """Set Django up, unless it is, and register the tasks.

    With *queues* only tasks of these are run. Otherwise all are, and the workers of `get_monque(alias)`, too.
    """
    if not apps.ready:
        django.setup()
    _log_once()
    if urls := getattr(settings, "ROOT_URLCONF", None):
        import_module(urls)  # which imports the views, and so the tasks that they use
    monque = SyncMonque(make_monque(alias)) if queues else get_monque(alias)
    tasks = declared.tasks_of(alias)
    chosen = {*(queues or task_backends[alias].queues or ["default", *(task.queue_name for task in tasks)])}
    for task in tasks:
        _register(monque, alias, task, chosen)
    for worker in monque.workers:
        if worker.settings.get("mode") != "process":  # whose handler a child imports by its name
            handler = with_fresh_connections(worker)
            monque.worker(
                worker.name, handler, concurrency=worker.concurrency, replace=True, **worker.settings
            )
    if monque not in _prepared:
        _prepared.add(monque)
        send_finished(alias, monque)
        monque.on_start(lambda: _warn_of_unknown_tasks(monque, chosen))
    return monque


def _log_once() -> None:
    """Let each line, and each traceback, stand on the console once.

    A worker prints what the root logger gets, with the job that it is about. Django's logger has a console of
    its own while `DEBUG` is set, and logs a failed task after Monque has logged its job with the traceback.
    """
    logging.getLogger(Task.__module__.removesuffix(".base")).addFilter(_mark_as_told)
    logger = logging.getLogger("django")
    if logger.propagate:
        for handler in [each for each in logger.handlers if type(each) is logging.StreamHandler]:
            logger.removeHandler(handler)


def _mark_as_told(record: logging.LogRecord) -> bool:
    if record.exc_info:
        setattr(record, TOLD, True)
    return True


def _register(monque: SyncMonque, alias: str, task: Any, queues: Collection[str]) -> None:
    """A task may be enqueued on any queue, so it has a job name for each."""
    handler = handler_of(alias, task)
    for queue in queues:
        monque.worker(
            job_name(queue, task.module_path),
            handler,
            concurrency=getattr(task, "concurrency", None),
            replace=True,
            **declared.worker_settings(task, max_attempts=configuration_of(alias).max_attempts),
        )


def _warn_of_unknown_tasks(monque: SyncMonque, queues: Collection[str]) -> None:
    """Say which jobs wait for a task that this process does not know; that is easily overlooked."""
    try:
        waiting = [depth.name for depth in monque.queue_depths(max_time=_LOOK) if depth.due or depth.later]
    except MonqueError:
        return
    for name in waiting:
        named = split_name(name)
        if named is not None and named[0] in queues and name not in monque.workers:
            logger.warning(
                "jobs wait for the task %s, which this worker does not know; put it into the module tasks of "
                "an app, or import its module in AppConfig.ready",
                named[1],
            )
