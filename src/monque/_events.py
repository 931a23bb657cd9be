"""What happened, as values, and the bus that tells them."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Set
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, ClassVar, TypeVar

from bson import ObjectId

from monque._errors import ConfigurationError
from monque._job import Job, JobStatus
from monque._raised import is_closing, log_raised


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """Something that happened; listening to `Event` itself hears everything."""

    kind: ClassVar[str] = "*"


@dataclass(frozen=True, slots=True, kw_only=True)
class JobStarted(Event):
    """A job was claimed and its handler begins."""

    kind: ClassVar[str] = "job:start"
    job: Job[Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class JobCompleted(Event):
    """A job's handler succeeded, and that is stored."""

    kind: ClassVar[str] = "job:complete"
    job: Job[Any]
    duration: timedelta


@dataclass(frozen=True, slots=True, kw_only=True)
class JobFailed(Event):
    """A job's handler failed, and that is stored; *will_retry* says whether it runs again by itself.

    Also told for a job that was given up because the processes that ran it died too often: its *error* is a
    `ProcessDiedError`.
    """

    kind: ClassVar[str] = "job:fail"
    job: Job[Any]
    error: BaseException
    will_retry: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class JobError(Event):
    """Something went wrong beside the handlers: in a background loop, in settling, in shutting down."""

    kind: ClassVar[str] = "job:error"
    error: BaseException
    job: Job[Any] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimLost(Event):
    """A running job no longer belongs to this instance; its handler is cancelled, its result not stored."""

    kind: ClassVar[str] = "job:lost"
    job: Job[Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class JobCancelled(Event):
    """An operator cancelled a job."""

    kind: ClassVar[str] = "job:cancelled"
    job: Job[Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRetried(Event):
    """An operator put a finished job back."""

    kind: ClassVar[str] = "job:retried"
    job: Job[Any]
    previous_status: JobStatus


@dataclass(frozen=True, slots=True, kw_only=True)
class JobDeleted(Event):
    """An operator deleted a job."""

    kind: ClassVar[str] = "job:deleted"
    job_id: ObjectId


@dataclass(frozen=True, slots=True, kw_only=True)
class JobsCancelled(Event):
    """An operator cancelled many jobs."""

    kind: ClassVar[str] = "jobs:cancelled"
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class JobsRetried(Event):
    """An operator put many finished jobs back."""

    kind: ClassVar[str] = "jobs:retried"
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class JobsDeleted(Event):
    """An operator deleted many jobs."""

    kind: ClassVar[str] = "jobs:deleted"
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StaleJobsRecovered(Event):
    """Jobs were taken from dead owners: put back, or given up and told by `JobFailed` as well."""

    kind: ClassVar[str] = "stale:recovered"
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchConnected(Event):
    """The change stream is live."""

    kind: ClassVar[str] = "changestream:connected"


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchFailed(Event):
    """The change stream broke; polling goes on while it is opened again."""

    kind: ClassVar[str] = "changestream:error"
    error: BaseException


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchClosed(Event):
    """The change stream was closed on purpose."""

    kind: ClassVar[str] = "changestream:closed"


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchUnavailable(Event):
    """This server offers no change streams; polling takes their place."""

    kind: ClassVar[str] = "changestream:fallback"
    reason: str


E = TypeVar("E", bound=Event)
Listener = Callable[[E], Awaitable[Any] | Any]
KINDS: dict[str, type[Event]] = {event.kind: event for event in Event.__subclasses__()}


def event_class(event: str | type[Event]) -> type[Event]:
    """The class of an event given by class or by kind."""
    if isinstance(event, type) and issubclass(event, Event):
        return event
    if isinstance(event, str) and event in KINDS:
        return KINDS[event]
    if callable(event) and not isinstance(event, type):
        raise ConfigurationError(
            f"say which event {getattr(event, '__name__', repr(event))} is for, by class or by kind, as in "
            "@monque.on(JobFailed) or @monque.on('job:fail')"
        )
    raise ConfigurationError(f"unknown event {event!r}; known are: {', '.join(sorted(KINDS))}")


class EventBus:
    """Tells listeners what happened. Nothing a listener does disturbs the teller."""

    def __init__(self) -> None:
        self._listeners: dict[type[Event], list[tuple[Listener[Any], bool]]] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def add(self, event: str | type[Event], listener: Listener[Any], *, once: bool = False) -> None:
        """Call *listener* on each *event*, or on the next one only."""
        if not callable(listener):
            raise ConfigurationError(f"a listener must be callable, got {listener!r}")
        self._listeners.setdefault(event_class(event), []).append((listener, once))

    def remove(self, event: str | type[Event], listener: Listener[Any]) -> None:
        """Stop calling *listener*; one that is not there is fine."""
        cls = event_class(event)
        self._listeners[cls] = [entry for entry in self._listeners.get(cls, []) if entry[0] != listener]

    def hears(self, event: type[Event]) -> bool:
        """Whether anybody would hear this event."""
        return bool(self._listeners.get(event) or self._listeners.get(Event))

    def tell(self, event: Event) -> None:
        """Call everyone who listens, now; async listeners go on as tasks of their own."""
        if not self._listeners:
            return
        for cls in (type(event), Event):
            for entry in tuple(self._listeners.get(cls, ())):
                if entry not in self._listeners[cls]:
                    continue  # a listener called before this one took it away
                if entry[1]:
                    self._listeners[cls].remove(entry)
                self._call(entry[0], event)

    def is_listener(self, task: asyncio.Task[Any] | None) -> bool:
        """Whether an async listener runs in this task."""
        return task in self._tasks

    async def settle(self, timeout: float, *, besides: Set[asyncio.Task[Any]]) -> None:
        """Wait for async listeners that are still at work, except those that wait for us."""
        if tasks := self._tasks - besides:
            await asyncio.wait(tasks, timeout=timeout)

    def forget_tasks(self) -> None:
        """Do not wait for async listeners that began in an event loop which will never run again."""
        self._tasks = set()

    def _call(self, listener: Listener[Any], event: Event) -> None:
        try:
            result = listener(event)
            if result is not None and inspect.isawaitable(result):
                task = asyncio.ensure_future(self._await(result, event))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)
        except BaseException as error:  # noqa: BLE001 - whatever it is, it must not become the job's failure
            log_raised(error, "a listener for %s failed", event.kind)

    async def _await(self, result: Awaitable[Any], event: Event) -> None:
        task = asyncio.current_task()
        try:
            await result
        except BaseException as error:  # a SystemExit that leaves a task would end the event loop
            cancelled = isinstance(error, asyncio.CancelledError) and task is not None and task.cancelling()
            if cancelled or is_closing(error, task):
                raise
            log_raised(error, "a listener for %s failed", event.kind)
