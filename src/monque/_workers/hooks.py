"""Start and stop hooks, as they are declared."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, TypeVar

from monque._values.errors import ConfigurationError
from monque._values.state import State
from monque._workers.signature import is_generator_function, name_of

calling: ContextVar[Call | None] = ContextVar("monque_hook", default=None)
"""The call of a hook that this code is part of: the hook itself, or a task or thread that it has started."""

HookT = TypeVar("HookT", bound=Callable[[], Any])
"""A hook. It is returned as it is, so that a decorated function keeps its type."""


@dataclass(frozen=True, slots=True, eq=False)
class Call:
    """One call of a hook or of a lifespan, for the Monque whose state this is."""

    state: State


@dataclass(frozen=True, slots=True, eq=False)
class Hook:
    """One hook: when it is called, and what."""

    is_stop: bool
    function: Callable[[], Any]

    def __str__(self) -> str:
        return f"{'stop' if self.is_stop else 'start'} hook {name_of(self.function)}"


class Hooks:
    """Hooks of both kinds, in the order in which they were declared.

    The order across both kinds counts: if a start hook fails, the stop hooks above it are called.
    """

    __slots__ = ("declared",)

    def __init__(self) -> None:
        # Replaced as a whole and never changed: other threads may be reading it.
        self.declared: tuple[Hook, ...] = ()

    def add(self, function: HookT, *, is_stop: bool) -> HookT:
        """Declare one; it counts from the next start on.

        Raises:
            ConfigurationError: It cannot be called without arguments, or it is a generator function.
        """
        _check(function, "on_stop" if is_stop else "on_start")
        self.declared = (*self.declared, Hook(is_stop, function))
        return function

    def include(self, other: Hooks) -> None:
        """Take over the hooks of *other*, those that are not here yet."""
        self.declared += tuple(hook for hook in other.declared if hook not in self.declared)


def _check(function: Any, decorator: str) -> None:
    if not callable(function):
        raise ConfigurationError(
            f"{decorator} takes a function, as in @monque.{decorator} without parentheses; got {function!r}"
        )
    if is_generator_function(function):
        raise ConfigurationError(
            f"{name_of(function)} contains a yield, so calling it would run nothing of it; give a function "
            "that sets up, yields and cleans up to Monque(lifespan=...)"
        )
    try:
        inspect.signature(function).bind()
    except TypeError as error:
        raise ConfigurationError(
            f"a hook takes no argument, and {name_of(function)} needs some ({error}); it reaches the state "
            "through monque.state"
        ) from error
    except ValueError:
        return  # a function written in C may not tell what it takes
