"""The order in which the dependencies of a handler are called: made once, then only followed."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from itertools import chain
from typing import Any, TypeAlias

from monque.fastapi.signatures import Dependency, Given, Needs, behaves_as, dependency

Call: TypeAlias = Callable[..., Any]
Overrides: TypeAlias = Mapping[Call, Call]
Takes: TypeAlias = tuple[tuple[str, int], ...]
"""Which value goes to which parameter; the values of a run are numbered in the order they come to be."""

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
    """What a handler asks for and, if it is a method, what its class asks for."""

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
