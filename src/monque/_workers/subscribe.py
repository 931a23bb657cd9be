"""Subscribing listeners: what type checkers know of `on` and `once`, and what is refused at run time."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, Protocol, TypeAlias, cast, get_args, overload

from monque._values.errors import ConfigurationError
from monque._values.events import (
    ClaimLost,
    E,
    Event,
    EventBus,
    JobCancelled,
    JobCancelling,
    JobCompleted,
    JobDeduplicated,
    JobDeleted,
    JobError,
    JobFailed,
    JobRetried,
    JobsCancelled,
    JobsDeleted,
    JobSnoozed,
    JobsRetried,
    JobStarted,
    JobStuck,
    Listener,
    NamePaused,
    NameResumed,
    ScheduleEnded,
    SchedulePaused,
    ScheduleResumed,
    ScheduleSkipped,
    StaleJobsRecovered,
    WatchClosed,
    WatchConnected,
    WatchFailed,
    WatchUnavailable,
    event_class,
)
from monque._workers.signature import argument_type

EventKind: TypeAlias = Literal[
    "job:start",
    "job:complete",
    "job:fail",
    "job:snoozed",
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

Listens: TypeAlias = Callable[[Listener[E]], Listener[E]]


class Subscribe(Protocol):
    """`on` and `once` for type checkers: an event, by class or by kind, goes with the listeners that take it.

    Python can say which class belongs to which kind only by a list of them all.
    """

    @overload
    def __call__(self, event: type[E], listener: None = None) -> Listens[E]: ...

    @overload
    def __call__(self, event: type[E], listener: Listener[E]) -> Listener[E]: ...

    @overload
    def __call__(self, event: Literal["job:start"], listener: None = None) -> Listens[JobStarted]: ...

    @overload
    def __call__(
        self, event: Literal["job:start"], listener: Listener[JobStarted]
    ) -> Listener[JobStarted]: ...

    @overload
    def __call__(self, event: Literal["job:complete"], listener: None = None) -> Listens[JobCompleted]: ...

    @overload
    def __call__(
        self, event: Literal["job:complete"], listener: Listener[JobCompleted]
    ) -> Listener[JobCompleted]: ...

    @overload
    def __call__(self, event: Literal["job:fail"], listener: None = None) -> Listens[JobFailed]: ...

    @overload
    def __call__(self, event: Literal["job:fail"], listener: Listener[JobFailed]) -> Listener[JobFailed]: ...

    @overload
    def __call__(self, event: Literal["job:snoozed"], listener: None = None) -> Listens[JobSnoozed]: ...

    @overload
    def __call__(
        self, event: Literal["job:snoozed"], listener: Listener[JobSnoozed]
    ) -> Listener[JobSnoozed]: ...

    @overload
    def __call__(
        self, event: Literal["job:deduplicated"], listener: None = None
    ) -> Listens[JobDeduplicated]: ...

    @overload
    def __call__(
        self, event: Literal["job:deduplicated"], listener: Listener[JobDeduplicated]
    ) -> Listener[JobDeduplicated]: ...

    @overload
    def __call__(self, event: Literal["job:error"], listener: None = None) -> Listens[JobError]: ...

    @overload
    def __call__(self, event: Literal["job:error"], listener: Listener[JobError]) -> Listener[JobError]: ...

    @overload
    def __call__(self, event: Literal["job:lost"], listener: None = None) -> Listens[ClaimLost]: ...

    @overload
    def __call__(self, event: Literal["job:lost"], listener: Listener[ClaimLost]) -> Listener[ClaimLost]: ...

    @overload
    def __call__(self, event: Literal["job:cancelled"], listener: None = None) -> Listens[JobCancelled]: ...

    @overload
    def __call__(
        self, event: Literal["job:cancelled"], listener: Listener[JobCancelled]
    ) -> Listener[JobCancelled]: ...

    @overload
    def __call__(self, event: Literal["job:cancelling"], listener: None = None) -> Listens[JobCancelling]: ...

    @overload
    def __call__(
        self, event: Literal["job:cancelling"], listener: Listener[JobCancelling]
    ) -> Listener[JobCancelling]: ...

    @overload
    def __call__(self, event: Literal["job:stuck"], listener: None = None) -> Listens[JobStuck]: ...

    @overload
    def __call__(self, event: Literal["job:stuck"], listener: Listener[JobStuck]) -> Listener[JobStuck]: ...

    @overload
    def __call__(self, event: Literal["job:retried"], listener: None = None) -> Listens[JobRetried]: ...

    @overload
    def __call__(
        self, event: Literal["job:retried"], listener: Listener[JobRetried]
    ) -> Listener[JobRetried]: ...

    @overload
    def __call__(self, event: Literal["job:deleted"], listener: None = None) -> Listens[JobDeleted]: ...

    @overload
    def __call__(
        self, event: Literal["job:deleted"], listener: Listener[JobDeleted]
    ) -> Listener[JobDeleted]: ...

    @overload
    def __call__(self, event: Literal["jobs:cancelled"], listener: None = None) -> Listens[JobsCancelled]: ...

    @overload
    def __call__(
        self, event: Literal["jobs:cancelled"], listener: Listener[JobsCancelled]
    ) -> Listener[JobsCancelled]: ...

    @overload
    def __call__(self, event: Literal["jobs:retried"], listener: None = None) -> Listens[JobsRetried]: ...

    @overload
    def __call__(
        self, event: Literal["jobs:retried"], listener: Listener[JobsRetried]
    ) -> Listener[JobsRetried]: ...

    @overload
    def __call__(self, event: Literal["jobs:deleted"], listener: None = None) -> Listens[JobsDeleted]: ...

    @overload
    def __call__(
        self, event: Literal["jobs:deleted"], listener: Listener[JobsDeleted]
    ) -> Listener[JobsDeleted]: ...

    @overload
    def __call__(
        self, event: Literal["stale:recovered"], listener: None = None
    ) -> Listens[StaleJobsRecovered]: ...

    @overload
    def __call__(
        self, event: Literal["stale:recovered"], listener: Listener[StaleJobsRecovered]
    ) -> Listener[StaleJobsRecovered]: ...

    @overload
    def __call__(self, event: Literal["name:paused"], listener: None = None) -> Listens[NamePaused]: ...

    @overload
    def __call__(
        self, event: Literal["name:paused"], listener: Listener[NamePaused]
    ) -> Listener[NamePaused]: ...

    @overload
    def __call__(self, event: Literal["name:resumed"], listener: None = None) -> Listens[NameResumed]: ...

    @overload
    def __call__(
        self, event: Literal["name:resumed"], listener: Listener[NameResumed]
    ) -> Listener[NameResumed]: ...

    @overload
    def __call__(
        self, event: Literal["schedule:skipped"], listener: None = None
    ) -> Listens[ScheduleSkipped]: ...

    @overload
    def __call__(
        self, event: Literal["schedule:skipped"], listener: Listener[ScheduleSkipped]
    ) -> Listener[ScheduleSkipped]: ...

    @overload
    def __call__(
        self, event: Literal["schedule:paused"], listener: None = None
    ) -> Listens[SchedulePaused]: ...

    @overload
    def __call__(
        self, event: Literal["schedule:paused"], listener: Listener[SchedulePaused]
    ) -> Listener[SchedulePaused]: ...

    @overload
    def __call__(
        self, event: Literal["schedule:resumed"], listener: None = None
    ) -> Listens[ScheduleResumed]: ...

    @overload
    def __call__(
        self, event: Literal["schedule:resumed"], listener: Listener[ScheduleResumed]
    ) -> Listener[ScheduleResumed]: ...

    @overload
    def __call__(self, event: Literal["schedule:ended"], listener: None = None) -> Listens[ScheduleEnded]: ...

    @overload
    def __call__(
        self, event: Literal["schedule:ended"], listener: Listener[ScheduleEnded]
    ) -> Listener[ScheduleEnded]: ...

    @overload
    def __call__(
        self, event: Literal["changestream:connected"], listener: None = None
    ) -> Listens[WatchConnected]: ...

    @overload
    def __call__(
        self, event: Literal["changestream:connected"], listener: Listener[WatchConnected]
    ) -> Listener[WatchConnected]: ...

    @overload
    def __call__(
        self, event: Literal["changestream:error"], listener: None = None
    ) -> Listens[WatchFailed]: ...

    @overload
    def __call__(
        self, event: Literal["changestream:error"], listener: Listener[WatchFailed]
    ) -> Listener[WatchFailed]: ...

    @overload
    def __call__(
        self, event: Literal["changestream:closed"], listener: None = None
    ) -> Listens[WatchClosed]: ...

    @overload
    def __call__(
        self, event: Literal["changestream:closed"], listener: Listener[WatchClosed]
    ) -> Listener[WatchClosed]: ...

    @overload
    def __call__(
        self, event: Literal["changestream:fallback"], listener: None = None
    ) -> Listens[WatchUnavailable]: ...

    @overload
    def __call__(
        self, event: Literal["changestream:fallback"], listener: Listener[WatchUnavailable]
    ) -> Listener[WatchUnavailable]: ...

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
