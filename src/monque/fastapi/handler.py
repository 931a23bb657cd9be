"""A declared handler: a worker that knows what it depends on."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta, tzinfo
from pathlib import Path
from typing import Any, ClassVar, Concatenate, Generic, ParamSpec, TypeVar, cast

from fastapi import FastAPI

from monque import (
    ConfigurationError,
    Job,
    ScheduleSettings,
    Worker,
    WorkerRegistrationError,
    Workers,
    WorkerSettings,
)
from monque.fastapi.inject import Surroundings, make_runner
from monque.fastapi.plan import Overrides, Recipe
from monque.fastapi.signatures import RefusedError, behaves_as, dependency, handler_needs

T = TypeVar("T")
P = ParamSpec("P")
R = TypeVar("R")


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """What a decorator was told; without a name, that of what it decorates counts."""

    name: str | None
    concurrency: int | None
    settings: WorkerSettings
    cron: str | timedelta | None = None
    timezone: str | tzinfo = "UTC"
    schedule: ScheduleSettings = field(default_factory=ScheduleSettings)

    def __post_init__(self) -> None:
        cron = None if isinstance(self.cron, timedelta) else self.cron
        for given in (self.name, cron):
            if given is not None and not isinstance(given, str):
                raise ConfigurationError(
                    f"job takes a name and cron an expression, as in @job('send-email'); got {given!r}"
                )

    def name_of(self, target: Callable[..., Any], namespace: str | None) -> str:
        """The job name, in its namespace."""
        name = target.__name__ if self.name is None else self.name
        return name if namespace is None else f"{namespace}.{name}"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class JobHandler(Worker[T], Generic[T, P, R]):
    """What a decorated function becomes: a worker, whose jobs are stored with `enqueue` and `schedule`.

    It belongs to the Monque of the application once that has started. Call it like the function.
    """

    recipe: Recipe
    cron: str | timedelta | None
    timezone: str | tzinfo
    schedule_settings: ScheduleSettings
    _advice: ClassVar[str] = "hand its router or package to setup_monque and let the application start"

    # It takes more than the worker it extends: the function's dependencies.
    def __call__(self, job: Job[T], /, *args: P.args, **kwargs: P.kwargs) -> R:  # type: ignore[override]
        """Call the function itself, its dependencies given by hand: a unit test."""
        function = cast("Callable[Concatenate[Job[T], P], R]", self.handler)
        return function(job, *args, **kwargs)

    @property
    def place(self) -> str:
        """Where it stands in the code."""
        function = inspect.unwrap(self.handler)
        line = function.__code__.co_firstlineno
        return (
            f"{function.__module__}.{function.__qualname__} ({Path(inspect.getfile(function)).name}:{line})"
        )

    def bound(
        self,
        app: FastAPI | None = None,
        *,
        state: Mapping[str, Any] | None = None,
        overrides: Overrides | None = None,
    ) -> Worker[T]:
        """A plain worker that finds the dependencies of each run by itself. To be made in the running loop.

        Args:
            app: What `request.app` is, and whose `dependency_overrides` count.
            state: What `request.state` holds at first.
            overrides: Dependencies to replace beside those, and by what.
        """
        around = Surroundings(app or FastAPI(), state or {}, overrides or {})
        run = make_runner(self.handler, self.recipe, around, is_async=self.is_async)
        return Worker(
            name=self.name,
            handler=functools.wraps(self.handler)(run),
            concurrency=self.concurrency,
            settings=self.settings,
            codec=self.codec,
            is_async=self.is_async,
            address=self.address,
        )


def make_handler(
    name: str,
    function: Callable[..., Any],
    wish: Wish,
    *,
    owner: type | None = None,
    kind: type[JobHandler[Any, ..., Any]] | None = None,
) -> JobHandler[Any, ..., Any]:
    """Look at a function, or at a method of *owner*, and note what it will need.

    Raises:
        WorkerRegistrationError: It is no handler, or it depends on what only an HTTP request has.
    """
    try:
        needs = handler_needs(function, is_method=owner is not None)
        recipe = Recipe(needs, None if owner is None else dependency(owner))
    except RefusedError as refused:
        raise WorkerRegistrationError(
            f"the handler of {name!r} cannot be used: {refused}", job_name=name
        ) from refused.__cause__
    alone = _with_job_alone(function, owner)
    worker = Workers().worker(name, alone, concurrency=wish.concurrency, **wish.settings)
    if worker.address is not None and (recipe.needs or recipe.owner is not None):
        raise WorkerRegistrationError(
            f"the handler of {name!r} cannot be used: mode='process' runs it in a child process, without the "
            "application and its dependencies; declare a function that takes the job alone",
            job_name=name,
        )
    return (kind or JobHandler)(
        name=name,
        handler=function,
        concurrency=wish.concurrency,
        settings=worker.settings,
        codec=worker.codec,
        is_async=worker.address is None and behaves_as(inspect.iscoroutinefunction, function),
        address=worker.address,
        recipe=recipe,
        cron=wish.cron,
        timezone=wish.timezone,
        schedule_settings=wish.schedule,
    )


def _with_job_alone(function: Callable[..., Any], owner: type | None) -> Callable[[Job[Any]], Any]:
    """The handler as the core wants to see it, to learn the type of the payload: with the job and no more."""

    def takes_job(_job: Job[Any]) -> None: ...

    async def awaits_job(_job: Job[Any]) -> None: ...

    is_async = behaves_as(inspect.iscoroutinefunction, function)
    handler = functools.wraps(function)(awaits_job if is_async else takes_job)
    parameters = list(inspect.signature(function).parameters.values())[0 if owner is None else 1 :]
    # `inspect` reads the attribute; the type of functions does not name it.
    handler.__signature__ = inspect.Signature(parameters[:1])  # type: ignore[attr-defined]
    return handler
