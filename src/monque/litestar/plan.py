"""Which dependencies a job asks for, in the order of their calls; what a job cannot give is refused."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from litestar.constants import RESERVED_KWARGS
from litestar.di import Provide
from litestar.utils import is_async_callable

from monque import WorkerRegistrationError
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
        """Whether there is a value for a parameter; without one, its default counts."""
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
