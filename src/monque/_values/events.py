"""Events as values, and the bus that emits them."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Set
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, ClassVar, TypeVar

from bson import ObjectId

from monque._values.errors import ConfigurationError
from monque._values.flows import Step, Wait
from monque._values.job import Job
from monque._values.schedule import Schedule
from monque._values.status import Enqueued, Interruption, JobStatus
from monque._values.views import Pause, QueueStats
from monque._values.words import is_closing, log_raised


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """Something that happened; whoever listens to `Event` itself gets all events."""

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

    Also emitted for a job that was given up because the processes that ran it died too often: its *error* is
    a `ProcessDiedError`.
    """

    kind: ClassVar[str] = "job:fail"
    job: Job[Any]
    error: BaseException
    will_retry: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSnoozed(Event):
    """A job's handler raised `Snooze`, and that is stored: the job runs again after *delay*.

    If a later call with the same key was noted, the job runs for that call, after the *delay* of that one.
    """

    kind: ClassVar[str] = "job:snoozed"
    job: Job[Any]
    delay: timedelta


@dataclass(frozen=True, slots=True, kw_only=True)
class JobWaiting(Event):
    """A job's handler waits for a time or a signal, and that is stored: it goes on in a later run."""

    kind: ClassVar[str] = "job:waiting"
    job: Job[Any]
    wait: Wait


@dataclass(frozen=True, slots=True, kw_only=True)
class StepDone(Event):
    """A durable step of a running job is done, and that is stored: it does not run again."""

    kind: ClassVar[str] = "job:step"
    job: Job[Any]
    step: Step


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchEnded(Event):
    """No job of a batch is pending or processing any more, and what waited for that is due.

    The instance that ended the last job emits it; two of them may if they end the last two at one moment. It
    comes again if somebody stores or retries a job of the batch.
    """

    kind: ClassVar[str] = "batch:ended"
    batch: str
    stats: QueueStats


@dataclass(frozen=True, slots=True, kw_only=True)
class JobDeduplicated(Event):
    """A call of this instance stored no new job: the one with the same key stands for it.

    *how*: `kept`, `replaced`, `again` or `throttled`. Calls in a transaction do not emit it: nobody knows yet
    whether that commits.
    """

    kind: ClassVar[str] = "job:deduplicated"
    job: Job[Any]
    how: Enqueued


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
    """A job was cancelled: by an operator, by its handler with `Cancel`, because it had expired, or because a
    job of the batch that it waited for did not complete.

    If an operator asked for the end of a running job, its owner emits this when the handler has ended;
    if the owner is dead, the instance that recovers the job does.

    If the handler of a schedule did so, *job* is the run that it ended; the schedule goes on.
    """

    kind: ClassVar[str] = "job:cancelled"
    job: Job[Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class JobCancelling(Event):
    """An operator asked for the end of a running job; `JobCancelled` follows when it has ended by that."""

    kind: ClassVar[str] = "job:cancelling"
    job: Job[Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class JobStuck(Event):
    """A handler has not ended within 30 seconds after it was told to stop; emitted once a run.

    *why* it was told so: `requested`, `timeout`, `shutdown`, `lost` or `waiting` (then after five minutes,
    not 30 seconds: it may clean up before its job waits). It keeps its slot and its claim.
    """

    kind: ClassVar[str] = "job:stuck"
    # One that cleans up slowly may take half of it; one that takes longer will hardly end by itself.
    _after: ClassVar[timedelta] = timedelta(seconds=30)
    job: Job[Any]
    why: Interruption
    running_for: timedelta


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
    """Jobs were taken from dead owners: put back, given up or cancelled.

    `JobFailed` and `JobCancelled` report those that do not run again as well.
    """

    kind: ClassVar[str] = "stale:recovered"
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class NamePaused(Event):
    """This instance has noticed that a name it serves is paused; *name* is None if all names are.

    Also emitted if the pause was replaced by another one.
    """

    kind: ClassVar[str] = "name:paused"
    name: str | None
    pause: Pause


@dataclass(frozen=True, slots=True, kw_only=True)
class NameResumed(Event):
    """This instance has noticed that a pause is over: somebody ended it, or its time had come.

    *name* is None if the pause was that of all names; single names may still be paused.
    """

    kind: ClassVar[str] = "name:resumed"
    name: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleSkipped(Event):
    """A schedule has passed over one of its times: it came to it later than its `grace`, or, with
    `overlap="skip"`, its last job was still active.
    """

    kind: ClassVar[str] = "schedule:skipped"
    schedule: Schedule


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulePaused(Event):
    """An operator has paused a schedule here."""

    kind: ClassVar[str] = "schedule:paused"
    schedule: Schedule


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleResumed(Event):
    """An operator has resumed a schedule here."""

    kind: ClassVar[str] = "schedule:resumed"
    schedule: Schedule


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleEnded(Event):
    """A schedule is completed: its `end` has passed, or its `limit` is reached."""

    kind: ClassVar[str] = "schedule:ended"
    schedule: Schedule


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
    """Calls listeners. Nothing that a listener does disturbs the code that emits the event."""

    def __init__(self) -> None:
        self._listeners: dict[type[Event], list[tuple[Listener[Any], bool]]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self.begun = 0
        """The number of async listeners that have begun."""

    def add(self, event: str | type[Event], listener: Listener[Any], *, once: bool = False) -> None:
        """Call *listener* on each *event*, or on the next one only."""
        self._listeners.setdefault(event_class(event), []).append((listener, once))

    def remove(self, event: str | type[Event], listener: Listener[Any]) -> None:
        """Stop calling *listener*, if it is registered."""
        cls = event_class(event)
        self._listeners[cls] = [entry for entry in self._listeners.get(cls, []) if entry[0] != listener]

    def has_listeners(self, event: type[Event]) -> bool:
        """Return whether a listener would be called for this event."""
        return bool(self._listeners.get(event) or self._listeners.get(Event))

    def emit(self, event: Event) -> None:
        """Call the listeners now; async listeners continue in tasks of their own."""
        if not self._listeners:
            return
        for cls in (type(event), Event):
            for entry in tuple(self._listeners.get(cls, ())):
                if entry not in self._listeners[cls]:
                    continue  # a listener that was called before has removed it
                if entry[1]:
                    self._listeners[cls].remove(entry)
                self._call(entry[0], event)

    def is_listener(self, task: asyncio.Task[Any] | None) -> bool:
        """Return whether an async listener runs in this task."""
        return task in self._tasks

    def is_quiet(self, *, besides: Set[asyncio.Task[Any] | None]) -> bool:
        """Tell whether no async listener runs, except those that wait for us."""
        return self._tasks <= besides

    async def settle(self, timeout: float, *, besides: Set[asyncio.Task[Any] | None]) -> bool:
        """Wait for async listeners that still run, except those that wait for us; whether they have ended."""
        if tasks := self._tasks - besides:
            _, pending = await asyncio.wait(tasks, timeout=timeout)
            return not pending
        return True

    def forget_tasks(self) -> None:
        """Do not wait for async listeners that began in an event loop which will never run again."""
        self._tasks = set()

    def _call(self, listener: Listener[Any], event: Event) -> None:
        try:
            result = listener(event)
            if result is not None and inspect.isawaitable(result):
                task = asyncio.ensure_future(self._await(result, event))
                self._tasks.add(task)
                self.begun += 1
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
