"""A declared handler: a worker that knows what it depends on."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta, tzinfo
from pathlib import Path
from typing import Any, ClassVar, Concatenate, Generic, ParamSpec, TypeVar, cast

from fastapi import FastAPI

from monque import Job, ScheduleSettings, Worker, WorkerRegistrationError
from monque._hosting.declare import Declaration, rebound, refused_in_child, with_job_alone
from monque.fastapi.inject import Surroundings, make_runner
from monque.fastapi.plan import Overrides, Recipe, RefusedError, behaves_as, dependency, handler_needs

T = TypeVar("T")
P = ParamSpec("P")
R = TypeVar("R")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class JobHandler(Worker[T], Generic[T, P, R]):
    """A decorated function: a worker, whose jobs are stored with `enqueue` and `schedule`.

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
        """The place in the code."""
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
        return rebound(self, functools.wraps(self.handler)(run))


def make_handler(
    name: str,
    function: Callable[..., Any],
    given: Declaration,
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
    is_async = behaves_as(inspect.iscoroutinefunction, function)
    alone = with_job_alone(function, is_async=is_async, is_method=owner is not None)
    handler = given.make(kind or JobHandler, name, function, alone=alone, recipe=recipe)
    if handler.address is not None and (recipe.needs or recipe.owner is not None):
        raise refused_in_child(name)
    return handler
