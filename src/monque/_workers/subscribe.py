"""Subscribing listeners: what type checkers know of `on` and `once`, and what is refused at run time."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, Protocol, TypeAlias, TypeVar, cast, get_args, overload

from monque._values.errors import ConfigurationError
from monque._values.events import E, Event, EventBus, Listener, event_class
from monque._workers.signature import argument_type

EventKind: TypeAlias = Literal[
    "job:start",
    "job:complete",
    "job:fail",
    "job:snoozed",
    "job:waiting",
    "job:step",
    "batch:ended",
    "job:deduplicated",
    "job:error",
    "job:lost",
    "job:cancelled",
    "job:cancelling",
    "job:stuck",
    "job:retried",
    "job:deleted",
    "jobs:cancelled",
    "jobs:retried",
    "jobs:deleted",
    "stale:recovered",
    "name:paused",
    "name:resumed",
    "schedule:skipped",
    "schedule:paused",
    "schedule:resumed",
    "schedule:ended",
    "changestream:connected",
    "changestream:error",
    "changestream:closed",
    "changestream:fallback",
]
"""The kinds of events, for `Monque.on` and `Monque.off`."""

L = TypeVar("L", bound=Listener[Any])


class Subscribe(Protocol):
    """`on` and `once` for type checkers: the class of an event goes with the listeners that take it.

    A kind, which is a text, goes with every listener: what a listener's annotation says is checked when it
    subscribes.
    """

    @overload
    def __call__(self, event: type[E], listener: None = None) -> Callable[[Listener[E]], Listener[E]]: ...

    @overload
    def __call__(self, event: type[E], listener: Listener[E]) -> Listener[E]: ...

    @overload
    def __call__(self, event: EventKind, listener: None = None) -> Callable[[L], L]: ...

    @overload
    def __call__(self, event: EventKind, listener: L) -> L: ...

    def __call__(self, event: Any, listener: Any = None) -> Any: ...


class _Method(Protocol):
    def __get__(self, instance: object, owner: type, /) -> Subscribe: ...


def subscribes(method: Callable[..., Any]) -> _Method:
    """Let type checkers judge a method as `Subscribe` says. At run time it is the method itself."""
    return cast("_Method", method)


@dataclass(frozen=True, slots=True, eq=False)
class Subscription:
    """A listener that was declared apart from a Monque."""

    event: str | type[Event]
    listener: Listener[Any]


class Listeners:
    """Listeners that were declared apart from a Monque: they hear every bus that joins."""

    __slots__ = ("_buses", "declared")

    def __init__(self) -> None:
        self.declared: list[Subscription] = []
        self._buses: weakref.WeakSet[EventBus] = weakref.WeakSet()

    def add(self, event: str | type[Event], listener: Listener[Any]) -> None:
        """Call *listener* on each *event* of the buses that are here and that will come."""
        self._add(Subscription(event, listener))

    def join(self, bus: EventBus) -> None:
        """Let the listeners hear this bus, too."""
        self._buses.add(bus)
        for each in self.declared:
            bus.add(each.event, each.listener)

    def include(self, other: Listeners) -> None:
        """Take over the listeners of *other*, those that are not here yet."""
        for each in other.declared:
            if each not in self.declared:
                self._add(each)

    def _add(self, new: Subscription) -> None:
        self.declared.append(new)
        for bus in self._buses:
            bus.add(new.event, new.listener)


def subscribe(
    add: Callable[[str | type[Event], Listener[Any]], None],
    event: str | type[Event],
    listener: Listener[Any] | None,
) -> Any:
    """Add *listener*, and return it; without one, return the decorator that adds one."""
    event_class(event)  # refuses what is no event, also while there is no listener yet

    def check_and_add(listener: Listener[Any]) -> Listener[Any]:
        _check_listener(event, listener)
        add(event, listener)
        return listener

    return check_and_add if listener is None else check_and_add(listener)


def _check_listener(event: str | type[Event], listener: Callable[..., Any]) -> None:
    """Refuse a listener whose annotation names other events than the one it would be called with."""
    if not callable(listener):
        raise ConfigurationError(f"a listener must be callable, got {listener!r}")
    takes = argument_type(listener)
    classes = get_args(takes) or (takes,)
    if not all(isinstance(each, type) and issubclass(each, Event) for each in classes):
        return
    if not any(issubclass(event_class(event), each) for each in classes):
        names = " or ".join(each.__name__ for each in classes)
        raise ConfigurationError(
            f"the listener {getattr(listener, '__qualname__', repr(listener))} takes {names}, so it cannot "
            f"listen to {event_class(event).__name__}"
        )
