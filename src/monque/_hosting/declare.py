"""Jobs that are declared apart from a Monque: the arguments of a decorator, and the worker that they make."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, fields
from datetime import timedelta, tzinfo
from typing import Any, TypeVar

from monque import (
    ConfigurationError,
    Job,
    Monque,
    ScheduleSettings,
    Worker,
    WorkerRegistrationError,
    Workers,
    WorkerSettings,
)

W = TypeVar("W", bound=Worker[Any])


class CronSettings(WorkerSettings, ScheduleSettings, total=False):  # type: ignore[misc]  # both have a limit
    """The keyword arguments of `cron`: when a recurring job runs, and how its runs run.

    A number as `limit` is that of the schedule: how often it runs in all. A `Limit` is that of its runs.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class Declaration:
    """The arguments of a decorator; without a name, that of what it decorates counts."""

    name: str | None
    concurrency: int | None
    settings: WorkerSettings
    cron: str | timedelta | None = None
    timezone: str | tzinfo = "UTC"
    schedule_settings: ScheduleSettings = field(default_factory=ScheduleSettings)

    def name_of(self, target: Callable[..., Any], namespace: str | None = None) -> str:
        """The job name, in its namespace."""
        name = target.__name__ if self.name is None else self.name
        return name if namespace is None else f"{namespace}.{name}"

    def make(
        self, kind: type[W], name: str, function: Callable[..., Any], *, alone: Callable[..., Any], **own: Any
    ) -> W:
        """A worker of *kind* for *function*. The core judges *alone*, which takes the job and no more.

        Raises:
            ConfigurationError: A setting is wrong.
            WorkerRegistrationError: It is no handler.
        """
        judged = Workers().worker(name, alone, concurrency=self.concurrency, **self.settings)
        when = {each: getattr(self, each) for each in ("cron", "timezone", "schedule_settings")}
        return kind(**{**_fields(judged), **when, **own, "handler": function})


def declaration(name: object, concurrency: int | None, settings: WorkerSettings) -> Declaration:
    """The arguments of a decorator `job`, checked."""
    return Declaration(name=_text(name), concurrency=concurrency, settings=settings)


def recurring(
    expression: object, name: object, timezone: str | tzinfo, concurrency: int | None, settings: CronSettings
) -> Declaration:
    """The arguments of a decorator `cron`, checked; its settings say when it runs, and how its runs run."""
    if settings.get("expires") is not None:
        raise ConfigurationError(
            "expires does not apply to a schedule; leave it out, or give it to a job that you enqueue"
        )
    when: Any = {each: value for each, value in settings.items() if each in ScheduleSettings.__annotations__}
    if not isinstance(when.get("limit", 1), int):
        del when["limit"]
    runs: Any = {each: value for each, value in settings.items() if each not in when}
    return Declaration(
        name=None if name is None else _text(name),
        concurrency=concurrency,
        settings=runs,
        cron=expression if isinstance(expression, timedelta) else _text(expression),
        timezone=timezone,
        schedule_settings=when,
    )


def _text(given: object) -> str:
    if not isinstance(given, str):
        raise ConfigurationError(
            f"job takes a name and cron an expression, as in @job('send-email'); got {given!r}"
        )
    return given


def with_job_alone(
    function: Callable[..., Any], *, is_async: bool, is_method: bool = False
) -> Callable[[Job[Any]], Any]:
    """The handler as the core wants to see it, to learn its types: with the job and no dependencies."""

    def takes_job(_job: Job[Any]) -> None: ...

    async def awaits_job(_job: Job[Any]) -> None: ...

    handler = functools.wraps(function)(awaits_job if is_async else takes_job)
    signature = inspect.signature(function)
    parameters = list(signature.parameters.values())[1 if is_method else 0 :]
    # `inspect` reads the attribute; the type of functions does not name it.
    handler.__signature__ = signature.replace(parameters=parameters[:1])  # type: ignore[attr-defined]
    return handler


def refused_in_child(name: str) -> WorkerRegistrationError:
    """The error for a handler with dependencies that runs in a child process."""
    return WorkerRegistrationError(
        f"the handler of {name!r} cannot be used: mode='process' runs it in a child process, without the "
        "application and its dependencies; declare a function that takes the job alone",
        job_name=name,
    )


def rebound(worker: Worker[Any], handler: Callable[..., Any]) -> Worker[Any]:
    """A plain worker, of no Monque yet, that calls *handler* in place of its own."""
    return Worker(**{**_fields(worker), "handler": handler})


def _fields(worker: Worker[Any]) -> dict[str, Any]:
    """The fields of a plain worker, without the Monque that it belongs to."""
    return {each.name: getattr(worker, each.name) for each in fields(Worker) if each.name != "_home"}


class Registered:
    """The declared jobs of an application in its Monque."""

    def __init__(self, monque: Monque) -> None:
        self._monque = monque
        self._names: set[str] = set()

    def add(self, declared: Worker[Any], bound: Worker[Any]) -> None:
        """Let the Monque run *bound*, and let *declared* store jobs there."""
        self._monque.worker(
            declared.name,
            bound,
            concurrency=declared.concurrency,
            replace=declared.name in self._names,  # the app was started before, as tests do
            **declared.settings,
        )
        self._names.add(declared.name)
        declared._home.share(self._monque.workers._home)

    async def schedule(self, declared: Iterable[Any]) -> None:
        """Store the recurring ones, or bring them up to date."""
        for each in declared:
            if each.cron is not None:
                await self._monque.schedule(each.cron, each, timezone=each.timezone, **each.schedule_settings)
