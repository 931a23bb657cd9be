"""Declaring jobs: functions that take a job, and dependencies by their names."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta, tzinfo
from typing import Any, ClassVar, Concatenate, Generic, ParamSpec, Protocol, TypeAlias, TypeVar, Unpack, cast

from litestar.di import Provide

from monque import (
    ConfigurationError,
    Job,
    ScheduleSettings,
    Worker,
    WorkerRegistrationError,
    Workers,
    WorkerSettings,
)

T = TypeVar("T")
P = ParamSpec("P")
R = TypeVar("R")

Dependencies: TypeAlias = Mapping[str, Provide | Callable[..., Any]]
AnyHandler: TypeAlias = "JobHandler[Any, ..., Any]"


class CronSettings(WorkerSettings, ScheduleSettings, total=False):
    """The keyword arguments of `cron`: when a recurring job runs, and how its runs run."""


class Declare(Protocol):
    """A decorator: a function becomes a `JobHandler`."""

    def __call__(self, function: Callable[Concatenate[Job[T], P], R], /) -> JobHandler[T, P, R]: ...


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class JobHandler(Worker[T], Generic[T, P, R]):
    """What a decorated function becomes: a worker, whose jobs are stored with `enqueue` and `schedule`.

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
        """What the function takes beside the job."""
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
    _check_text("job takes a name, as in @job('send-email')", name)
    return _declare(name, dependencies, concurrency, settings)


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
        ConfigurationError: As in `job`; also for `expires`, because the times of a schedule go on and on.

    Examples:
        >>> @cron("0 9 * * MON-FRI", timezone="Europe/Berlin")
        ... async def morning_report(job: Job[None], mailer: Mailer) -> None: ...
    """
    if not isinstance(expression, timedelta):
        _check_text("cron takes an expression, as in @cron('@daily')", expression)
    if settings.get("expires") is not None:
        raise ConfigurationError(
            "expires cannot be given for a schedule, whose times go on and on; leave it out, or give it "
            "to a job that you enqueue"
        )
    when: Any = {each: value for each, value in settings.items() if each in ScheduleSettings.__annotations__}
    runs: Any = {each: value for each, value in settings.items() if each not in when}
    schedule = {"cron": expression, "timezone": timezone, "schedule_settings": when}
    return _declare(name, dependencies, concurrency, runs, **schedule)


def _check_text(advice: str, given: object) -> None:
    if not isinstance(given, str):
        raise ConfigurationError(f"{advice}; got {given!r}")


def _declare(
    name: str | None,
    dependencies: Dependencies | None,
    concurrency: int | None,
    settings: WorkerSettings,
    **schedule: Any,
) -> Declare:
    def declare(function: Callable[Concatenate[Job[T], P], R]) -> JobHandler[T, P, R]:
        if not inspect.isfunction(function):
            raise WorkerRegistrationError(f"a job is a function, not {function!r}", job_name=name or "")
        own_name = function.__name__ if name is None else name
        worker = Workers().worker(own_name, _with_job_alone(function), concurrency=concurrency, **settings)
        handler: JobHandler[T, P, R] = JobHandler(
            name=own_name,
            handler=function,
            concurrency=concurrency,
            settings=worker.settings,
            codec=worker.codec,
            is_async=worker.is_async,
            address=worker.address,
            dependencies=dict(dependencies or {}),
            **schedule,
        )
        if handler.address is not None and handler.parameters:
            raise WorkerRegistrationError(
                f"the handler of {own_name!r} cannot be used: mode='process' runs it in a child process, "
                "without the application and its dependencies; declare a function that takes the job alone",
                job_name=own_name,
            )
        return handler

    return declare


def _with_job_alone(function: Callable[..., Any]) -> Callable[[Job[Any]], Any]:
    """The handler as the core wants to see it, to learn the type of the payload: with the job and no more."""

    def takes_job(_job: Job[Any]) -> None: ...

    async def awaits_job(_job: Job[Any]) -> None: ...

    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        return function  # the core refuses it, and says why
    is_async = inspect.iscoroutinefunction(function)
    handler = functools.wraps(function)(awaits_job if is_async else takes_job)
    parameters = list(inspect.signature(function).parameters.values())
    # `inspect` reads the attribute; the type of functions does not name it.
    handler.__signature__ = inspect.Signature(parameters[:1])  # type: ignore[attr-defined]
    return handler
