"""Declaring jobs: functions that take a job, and dependencies by their names."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta, tzinfo
from typing import Any, ClassVar, Concatenate, Generic, ParamSpec, Protocol, TypeAlias, TypeVar, Unpack, cast

from litestar.di import Provide

from monque import Job, ScheduleSettings, Worker, WorkerRegistrationError, WorkerSettings
from monque._hosting.declare import (
    CronSettings,
    Declaration,
    declaration,
    recurring,
    refused_in_child,
    with_job_alone,
)

T = TypeVar("T")
P = ParamSpec("P")
R = TypeVar("R")

Dependencies: TypeAlias = Mapping[str, Provide | Callable[..., Any]]
AnyHandler: TypeAlias = "JobHandler[Any, ..., Any]"


class Declare(Protocol):
    """A decorator: a function becomes a `JobHandler`."""

    def __call__(self, function: Callable[Concatenate[Job[T], P], R], /) -> JobHandler[T, P, R]: ...


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class JobHandler(Worker[T], Generic[T, P, R]):
    """A decorated function: a worker, whose jobs are stored with `enqueue` and `schedule`.

    Hand it to `MonquePlugin(jobs=[...])`; it belongs to that Monque once the application has started. Call
    it like the function.
    """

    dependencies: Dependencies = field(default_factory=dict)
    cron: str | timedelta | None = None
    timezone: str | tzinfo = "UTC"
    schedule_settings: ScheduleSettings = field(default_factory=ScheduleSettings)
    _advice: ClassVar[str] = "hand it to MonquePlugin(jobs=[...]) and let the application start"

    # It takes more than the worker it extends: the function's dependencies.
    def __call__(self, job: Job[T], /, *args: P.args, **kwargs: P.kwargs) -> R:  # type: ignore[override]
        """Call the function itself, its dependencies given by hand: a unit test."""
        function = cast("Callable[Concatenate[Job[T], P], R]", self.handler)
        return function(job, *args, **kwargs)

    @property
    def parameters(self) -> list[inspect.Parameter]:
        """The parameters of the function beside the job."""
        return list(inspect.signature(self.handler).parameters.values())[1:]


def job(
    name: str,
    *,
    dependencies: Dependencies | None = None,
    concurrency: int | None = None,
    **settings: Unpack[WorkerSettings],
) -> Declare:
    """Declare the handler of a job name.

    The first parameter takes the job. Each other one is a dependency, found by its name among those of the
    application and those that are given here, as in a route handler.

    Args:
        name: The job name.
        dependencies: Dependencies of this job alone, as `@get(dependencies=...)` takes them.
        concurrency: How many of these jobs run at once in this process.
        settings: How its jobs run: see `WorkerSettings`.

    Raises:
        ConfigurationError: A setting is wrong or unknown; the message names it.
        WorkerRegistrationError: It is no handler.

    Examples:
        >>> @job("send-email", concurrency=3)
        ... async def send_email(job: Job[Email], mailer: Mailer) -> None:
        ...     await mailer.send(job.data.to)
    """
    return _declare(declaration(name, concurrency, settings), dependencies)


def cron(
    expression: str | timedelta,
    name: str | None = None,
    *,
    timezone: str | tzinfo = "UTC",
    dependencies: Dependencies | None = None,
    concurrency: int | None = None,
    **settings: Unpack[CronSettings],
) -> Declare:
    """As `job`, for a recurring job: it is scheduled when an application that processes jobs starts.

    Args:
        expression: Five fields, a name such as @daily or @hourly, or an interval of at least a second.
        name: The job name; default: the name of the function.
        timezone: The IANA zone the fields are meant in, as a name or a `ZoneInfo`.
        dependencies: As in `job`.
        concurrency: How many of these jobs run at once in this process.
        settings: When it runs and how its runs run: see `ScheduleSettings` and `WorkerSettings`.

    Raises:
        ConfigurationError: As in `job`; also for `expires`, which does not apply to a schedule.

    Examples:
        >>> @cron("0 9 * * MON-FRI", timezone="Europe/Berlin")
        ... async def morning_report(job: Job[None], mailer: Mailer) -> None: ...
    """
    return _declare(recurring(expression, name, timezone, concurrency, settings), dependencies)


def _declare(given: Declaration, dependencies: Dependencies | None) -> Declare:
    def declare(function: Callable[Concatenate[Job[T], P], R]) -> JobHandler[T, P, R]:
        if not inspect.isfunction(function):
            raise WorkerRegistrationError(f"a job is a function, not {function!r}", job_name=given.name or "")
        name, own = given.name_of(function), dict(dependencies or {})
        handler = given.make(JobHandler, name, function, alone=_with_job_alone(function), dependencies=own)
        if handler.address is not None and handler.parameters:
            raise refused_in_child(name)
        return handler

    return declare


def _with_job_alone(function: Callable[..., Any]) -> Callable[[Job[Any]], Any]:
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        return function  # the core refuses it, and says why
    return with_job_alone(function, is_async=inspect.iscoroutinefunction(function))
