"""The dependencies of a job: put in order, called before its handler, undone after it in reverse."""

from __future__ import annotations

import asyncio
import functools
import inspect
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import Any, TypeAlias

from litestar import Litestar
from litestar.constants import RESERVED_KWARGS
from litestar.di import Provide
from litestar.utils import is_async_callable

from monque import Job, WorkerRegistrationError
from monque._hosting.scope import LeftInThread, exit_stack, held_by
from monque.litestar.jobs import AnyHandler, Dependencies

JOB, STATE = "job", "state"
_GIVEN = frozenset({JOB, STATE})
_OF_REQUESTS = frozenset(RESERVED_KWARGS) - _GIVEN

Chain: TypeAlias = tuple[str, ...]
"""The names that lead to the one looked at, outermost first."""


@dataclass(frozen=True, slots=True)
class Step:
    """One dependency: its name, and the names of what it takes."""

    name: str
    provide: Provide
    takes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Plan:
    """The steps before a handler, and the names of what it takes beside the job."""

    steps: tuple[Step, ...]
    takes: tuple[str, ...]


def make_plan(handler: AnyHandler, dependencies: Dependencies) -> Plan:
    """Put the dependencies of a job in order; those of the job itself come before those of the application.

    Raises:
        WorkerRegistrationError: One is missing, or it reads an HTTP request.
    """
    order = _Order(handler.name, {**dependencies, **handler.dependencies})
    takes = order.add_all(handler.parameters, (handler.handler.__name__,))
    return Plan(tuple(order.steps), takes)


class _Order:
    """Dependencies in the order of the parameters, each after what it needs itself, and each once a run."""

    def __init__(self, job_name: str, dependencies: Dependencies) -> None:
        self.steps: list[Step] = []
        self._job_name = job_name
        self._dependencies = dependencies
        self._added: set[str] = set()

    def add_all(self, parameters: Iterable[inspect.Parameter], chain: Chain) -> tuple[str, ...]:
        return tuple(each.name for each in parameters if self._add(each, chain))

    def _add(self, parameter: inspect.Parameter, chain: Chain) -> bool:
        """Return whether there is a value for a parameter; without one, its default counts."""
        name = parameter.name
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            return False
        if name in self._dependencies:
            self._add_dependency(name, chain)
        elif name in _OF_REQUESTS:
            raise self._refusal(chain, f"{name!r} is of an HTTP request, and a job has none")
        elif name not in _GIVEN:
            if parameter.default is not parameter.empty:
                return False
            raise self._refusal(
                chain,
                f"the application has no dependency {name!r}; add it to its dependencies, or put the value "
                "into the job's data",
            )
        return True

    def _add_dependency(self, name: str, chain: Chain) -> None:
        if name in chain[1:]:
            raise self._refusal(chain, f"{name!r} depends on itself")
        if name not in self._added:
            provide = _provided(self._dependencies[name])
            takes = self.add_all(_parameters(provide), (*chain, name))
            self.steps.append(Step(name, provide, takes))
            self._added.add(name)

    def _refusal(self, chain: Chain, problem: str) -> WorkerRegistrationError:
        return WorkerRegistrationError(
            f"the handler of {self._job_name!r} cannot be used: {' -> '.join(chain)}: {problem}",
            job_name=self._job_name,
        )


def _provided(dependency: Provide | Callable[..., Any]) -> Provide:
    if isinstance(dependency, Provide):
        return dependency
    behind = dependency.func if isinstance(dependency, functools.partial) else dependency
    is_plain = not (
        is_async_callable(dependency)
        or inspect.isgeneratorfunction(behind)
        or inspect.isasyncgenfunction(behind)
    )
    return Provide(dependency, sync_to_thread=False if is_plain else None)


def _parameters(provide: Provide) -> Iterable[inspect.Parameter]:
    # With `sync_to_thread`, Litestar has put an object around the function, which keeps it as `func`.
    function: Any = provide.dependency
    if not inspect.isroutine(function) and not isinstance(function, type | functools.partial):
        function = getattr(function, "func", function)
    parameters: Mapping[str, inspect.Parameter] = inspect.signature(function).parameters
    return parameters.values()


def make_runner(handler: AnyHandler, plan: Plan, app: Litestar) -> Callable[[Job[Any]], Any]:
    """Return a function for Monque to call with a job: the handler, with everything it depends on.

    Dependencies are called on the event loop, as Litestar does; those with `sync_to_thread` in threads.
    """
    function: Callable[..., Any] = handler.handler
    loop = asyncio.get_running_loop()

    async def run_on_loop(job: Job[Any]) -> Any:
        values = {JOB: job, STATE: app.state}
        async with _resolved(plan, values):
            return await function(job, **_chosen(plan.takes, values))

    def run_in_thread(job: Job[Any]) -> Any:
        values = {JOB: job, STATE: app.state}
        if not plan.steps:
            return function(job, **_chosen(plan.takes, values))
        with held_by(loop, _resolved(plan, values)):
            return function(job, **_chosen(plan.takes, values))

    return run_on_loop if handler.is_async else run_in_thread


@asynccontextmanager
async def _resolved(plan: Plan, values: dict[str, Any]) -> AsyncIterator[None]:
    """Follow the plan, each step adding a value; afterwards undo it, in reverse."""
    async with exit_stack() as stack:
        for step in plan.steps:
            values[step.name] = await _perform(step, _chosen(step.takes, values), stack)
        yield


async def _perform(step: Step, arguments: dict[str, Any], stack: AsyncExitStack) -> Any:
    value = await step.provide(**arguments)
    if step.provide.has_async_generator_dependency:
        return await stack.enter_async_context(asynccontextmanager(lambda: value)())
    if step.provide.has_sync_generator_dependency:
        # Litestar has begun it on the loop, and ends it in a thread.
        context = contextmanager(lambda: value)()
        return await stack.enter_async_context(LeftInThread(context, entered_in_thread=False))
    return value


def _chosen(names: tuple[str, ...], values: dict[str, Any]) -> dict[str, Any]:
    return {name: values[name] for name in names}
