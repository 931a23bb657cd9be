"""A declared job: a worker whose methods use the Monque of the current application."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta, tzinfo
from typing import Any, Generic, TypeVar

from flask import Flask

from monque import Job, ScheduleSettings, SyncMonque
from monque._hosting.declare import rebound
from monque.sync import SyncWorker

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class FlaskJob(SyncWorker[T], Generic[T]):
    """A function decorated with `FlaskMonque.job`: a worker, whose methods block.

    It stores jobs in the Monque of the current application. Call it like the function.

    Examples:
        >>> @monque.job("send-email")
        ... def send_email(job: Job[Email]) -> None: ...
        >>> send_email.enqueue(Email(to="ada@example.org"), delay=timedelta(minutes=5))
    """

    current: Callable[[], SyncMonque] = field(repr=False)
    """Finds the Monque of the current application."""
    cron: str | timedelta | None = None
    timezone: str | tzinfo = "UTC"
    schedule_settings: ScheduleSettings = field(default_factory=ScheduleSettings)

    def _owner(self) -> SyncMonque:
        return self.current()

    def register(self, app: Flask, monque: SyncMonque) -> None:
        """Let *monque* run these jobs, each in a context of *app*."""
        handler = self.handler if self.address is not None else _in_context(app, self)
        monque.worker(self.name, rebound(self, handler), concurrency=self.concurrency, **self.settings)


def _in_context(app: Flask, job: FlaskJob[T]) -> Callable[[Job[T]], Any]:
    """The handler, in an application context of its own; what `teardown_appcontext` registered ends it."""
    handler: Callable[[Job[T]], Any] = job.handler

    def run(job: Job[T]) -> Any:
        with app.app_context():
            return handler(job)

    async def run_async(job: Job[T]) -> Any:
        with app.app_context():
            return await handler(job)

    return functools.wraps(handler)(run_async if job.is_async else run)
