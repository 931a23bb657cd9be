"""The dependencies of handlers: found by parameters, refused if only requests have them, put in order."""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from enum import Enum, auto
from itertools import chain
from types import FrameType
from typing import Annotated, Any, TypeAlias, get_args, get_origin, get_type_hints

from fastapi import BackgroundTasks, Response, WebSocket, params
from fastapi.requests import HTTPConnection
from fastapi.security import SecurityScopes
from fastapi.security.base import SecurityBase

from monque import Job


class Given(Enum):
    """The values that every run has from the start."""

    JOB = auto()
    REQUEST = auto()


@dataclass(frozen=True, slots=True)
class Dependency:
    """A call whose result somebody asks for, and what it asks for itself."""

    call: Callable[..., Any]
    needs: Needs
    shared: bool = True
    """Called once a run, however many ask for it."""


Needs: TypeAlias = tuple[tuple[str, Dependency | Given], ...]
"""The needs, by parameter."""

Chain: TypeAlias = tuple[str, ...]
"""The calls that lead to the one looked at, outermost first."""


class RefusedError(Exception):
    """Something is asked for that only an HTTP request has."""

    def __init__(self, chain: Chain, problem: str) -> None:
        super().__init__(f"{' -> '.join(chain)}: {problem}")


def handler_needs(handler: Callable[..., Any], *, is_method: bool = False) -> Needs:
    """Return the needs of a handler beside the job, which its first parameter takes.

    Raises:
        RefusedError: It, or one of its dependencies, reads the HTTP request; or it is a generator function.
    """
    chain = (_label(handler),)
    if inspect.isgeneratorfunction(handler) or inspect.isasyncgenfunction(handler):
        raise RefusedError(
            chain, "it contains a yield, so calling it would run nothing of it; remove the yield"
        )
    parameters = _parameters(handler, chain)[1 if is_method else 0 :]
    if parameters and _depends(parameters[0]) is not None:
        raise RefusedError(chain, f"the first parameter takes the job; {parameters[0].name!r} cannot")
    return tuple((each.name, _need(each, chain)) for each in parameters[1:])


def dependency(call: Callable[..., Any], chain: Chain = (), *, shared: bool = True) -> Dependency:
    """A call with everything it asks for, down to the last.

    Raises:
        RefusedError: Somewhere down there the HTTP request is read.
    """
    chain = (*chain, _label(call))
    if isinstance(call, SecurityBase):
        raise RefusedError(chain, "reads the credentials of an HTTP request, and a job has none")
    return Dependency(
        call, tuple((each.name, _need(each, chain)) for each in _parameters(call, chain)), shared
    )


def _label(call: Callable[..., Any]) -> str:
    """Return the name of a call for messages."""
    call = call.func if isinstance(call, functools.partial) else call
    return getattr(call, "__qualname__", type(call).__qualname__).rpartition("<locals>.")[2]


def behaves_as(kind: Callable[[Any], bool], call: Callable[..., Any]) -> bool:
    """Return whether a call is of this kind: it itself, or what a decorator has put something around."""
    function = _function_behind(call)
    return kind(function) or kind(inspect.unwrap(function))


def _function_behind(call: Any) -> Any:
    """The function that runs when this is called: of a class, an object or a partial."""
    if isinstance(call, functools.partial):
        return _function_behind(call.func)
    if isinstance(call, type):
        return call.__init__  # type: ignore[misc]  # of this very class, not of an instance
    return call if inspect.isroutine(call) else type(call).__call__


def _need(parameter: inspect.Parameter, chain: Chain) -> Dependency | Given:
    depends = _depends(parameter)
    if isinstance(depends, params.Security):
        raise RefusedError(chain, f"{parameter.name!r} asks for security scopes, and a job has none")
    kind = _kind(parameter)
    if depends is not None:
        return dependency(depends.dependency or kind, chain, shared=depends.use_cache)
    if get_origin(kind) is Job or _is(kind, Job):
        return Given.JOB
    if _is(kind, HTTPConnection) and not _is(kind, WebSocket):
        return Given.REQUEST
    raise RefusedError(chain, _why_not(parameter, kind))


def _why_not(parameter: inspect.Parameter, kind: Any) -> str:
    for marker in _markers(parameter):
        if isinstance(marker, params.Param | params.Body):
            source = type(marker).__name__.lower()
            return f"{parameter.name!r} is read from the {source} of an HTTP request, and a job has none"
    if any(_is(kind, only) for only in (WebSocket, Response, BackgroundTasks, SecurityScopes)):
        return f"{parameter.name!r} is a {kind.__name__}, which only an HTTP request has"
    return (
        f"{parameter.name!r} is no dependency; a route would read it from the HTTP request, and a job has "
        "none: mark it with Depends(...), or put the value into the job's data"
    )


def _depends(parameter: inspect.Parameter) -> params.Depends | None:
    found = [marker for marker in _markers(parameter) if isinstance(marker, params.Depends)]
    return found[-1] if found else None


def _markers(parameter: inspect.Parameter) -> tuple[Any, ...]:
    """Return the markers beside the type: in `Annotated[...]`, or as the default."""
    metadata = get_args(parameter.annotation)[1:] if get_origin(parameter.annotation) is Annotated else ()
    return (*metadata, parameter.default)


def _kind(parameter: inspect.Parameter) -> Any:
    annotation = parameter.annotation
    return get_args(annotation)[0] if get_origin(annotation) is Annotated else annotation


def _is(kind: Any, wanted: type) -> bool:
    return isinstance(kind, type) and issubclass(kind, wanted)


def _parameters(call: Callable[..., Any], chain: Chain) -> list[inspect.Parameter]:
    """The parameters that want a value, the names in their annotations looked up."""
    function = inspect.unwrap(_function_behind(call))

    def probe() -> None: ...

    try:
        parameters = inspect.signature(call).parameters
        probe.__annotations__ = {name: each.annotation for name, each in parameters.items()}
        annotations = get_type_hints(
            probe, getattr(function, "__globals__", {}), _names_around(function), include_extras=True
        )
    except (NameError, AttributeError, TypeError, ValueError, SyntaxError) as error:
        raise RefusedError(chain, f"its parameters cannot be read ({error})") from error
    open_ended = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return [
        # `type DbDep = Annotated[...]` is an alias that has a value.
        each.replace(annotation=getattr(annotations[name], "__value__", annotations[name]))
        for name, each in parameters.items()
        if each.kind not in open_ended
    ]


def _names_around(function: Any) -> dict[str, Any]:
    """The variables of the functions around this one, as far as they still run: tests define things there."""
    names: dict[str, Any] = {}
    qualname = getattr(function, "__qualname__", "")
    frame: FrameType | None = sys._getframe()
    while frame is not None:
        encloses = qualname.startswith(f"{frame.f_code.co_qualname}.<locals>.")
        if encloses and frame.f_globals is getattr(function, "__globals__", None):
            names = frame.f_locals | names
        frame = frame.f_back
    return names


Call: TypeAlias = Callable[..., Any]
Overrides: TypeAlias = Mapping[Call, Call]
Takes: TypeAlias = tuple[tuple[str, int], ...]
"""The value for each parameter; the values of a run are numbered in the order they come to be."""

JOB, REQUEST = 0, 1
_GIVEN = {Given.JOB: JOB, Given.REQUEST: REQUEST}


@dataclass(frozen=True, slots=True)
class Step:
    """One call; its result is the next value, or, if it *opens*, a context to be entered for the value."""

    call: Call
    takes: Takes
    is_async: bool = False
    opens: bool = False
    blocks: bool = False
    """It may take its time, so it must not run on the loop."""


@dataclass(frozen=True, slots=True)
class Plan:
    """The steps of one handler, and which values it takes in the end: some by position, others by name."""

    steps: tuple[Step, ...]
    first: tuple[int, ...]
    takes: Takes
    needs_request: bool
    needs_loop: bool


@dataclass(frozen=True, slots=True)
class Recipe:
    """The needs of a handler and, if it is a method, of its class."""

    needs: Needs
    owner: Dependency | None = None

    def plan(self, overrides: Overrides) -> Plan:
        """Put the calls in order, with some dependencies replaced by others."""
        order = _Order(overrides)
        first = (JOB,) if self.owner is None else (order.add(self.owner, blocks=False), JOB)
        takes = order.slots(self.needs)
        all_takes = chain(takes, *(step.takes for step in order.steps))
        return Plan(
            steps=tuple(order.steps),
            first=first,
            takes=takes,
            needs_request=any(slot == REQUEST for _, slot in all_takes),
            needs_loop=any(step.is_async for step in order.steps),
        )


class _Order:
    """Dependencies in the order of their parameters, each after what it needs itself."""

    def __init__(self, overrides: Overrides) -> None:
        self.steps: list[Step] = []
        self._overrides = overrides
        self._shared: dict[Call, int] = {}

    def slots(self, needs: Needs) -> Takes:
        return tuple((name, self._slot(need)) for name, need in needs)

    def add(self, wanted: Dependency, *, blocks: bool = True) -> int:
        step = _step(wanted.call, self.slots(wanted.needs), blocks=blocks)
        self.steps.append(step)
        return len(_GIVEN) + len(self.steps) - 1

    def _slot(self, need: Dependency | Given) -> int:
        if isinstance(need, Given):
            return _GIVEN[need]
        if need.shared and need.call in self._shared:
            return self._shared[need.call]
        override = self._overrides.get(need.call)
        slot = self.add(need if override is None else dependency(override))
        self._shared.setdefault(need.call, slot)
        return slot


def _step(call: Call, takes: Takes, *, blocks: bool) -> Step:
    if behaves_as(inspect.isasyncgenfunction, call):
        return Step(asynccontextmanager(call), takes, is_async=True, opens=True)
    if behaves_as(inspect.isgeneratorfunction, call):
        return Step(contextmanager(call), takes, opens=True, blocks=True)
    if behaves_as(inspect.iscoroutinefunction, call):
        return Step(call, takes, is_async=True)
    return Step(call, takes, blocks=blocks)
