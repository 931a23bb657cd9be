"""What operators pass and get: filters, pages, statistics, results."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Literal, get_args

from bson import ObjectId

from monque._errors import ConfigurationError
from monque._job import Job
from monque._pause import Pause
from monque._rules import HIGHEST_PRIORITY, check_count, check_time
from monque._status import CancelledBy, JobStatus, StatusName

Sort = Literal["id", "created_at", "updated_at", "next_run_at"]
Direction = Literal["forward", "backward"]

# Who spreads retries over a century has mistaken a unit. Half or twice as much would do as well; far beyond
# it, times would leave the years that Python knows.
_LONGEST_SPREAD = timedelta(days=365 * 100)
_TIMES = (
    "created_after",
    "created_before",
    "updated_after",
    "updated_before",
    "due_after",
    "due_before",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class JobFilter:
    """Which jobs are meant; without any field, all of them.

    Attributes:
        name: The job name.
        status: One state, or several.
        created_after: Stored at this time or later; the other `*_after` include their moment too.
        created_before: Stored before this time; no `*_before` includes its moment.
        updated_after: Last changed at this time or later.
        updated_before: Last changed before this time.
        due_after: With a `next_run_at` at this time or later; parked jobs have none.
        due_before: With a `next_run_at` before this time.
        expired: True: pending, and past the `expires` of the call that stored them. No worker has come to
            them; the next one cancels them. False: all others.
        cancelled_by: Cancelled by an `operator`, by their `handler` or by `expiry`.
        priority: With this priority or a higher one, from 1 to 9.

    Examples:
        >>> JobFilter(name="send-email", status=["failed", "cancelled"])
    """

    name: str | None = None
    status: JobStatus | StatusName | Iterable[JobStatus | StatusName] | None = None
    created_after: datetime | None = None
    created_before: datetime | None = None
    updated_after: datetime | None = None
    updated_before: datetime | None = None
    due_after: datetime | None = None
    due_before: datetime | None = None
    expired: bool | None = None
    cancelled_by: CancelledBy | None = None
    priority: int | None = None

    def __post_init__(self) -> None:
        if self.name is not None and not _may_be_stored(self.name):
            raise ConfigurationError(
                f"a filter's name must be a job name, got {self.name!r}; leave it out to mean all names"
            )
        if self.name is not None and type(self.name) is not str:
            object.__setattr__(self, "name", str.__str__(self.name))
        if self.status is not None:
            object.__setattr__(self, "status", _statuses(self.status))
        for field in _TIMES:
            if getattr(self, field) is not None:
                check_time(field, getattr(self, field))
        if self.expired is not None and not isinstance(self.expired, bool):
            raise ConfigurationError(f"a filter's expired must be True or False, got {self.expired!r}")
        if self.cancelled_by is not None:
            check_choice("cancelled_by", self.cancelled_by, CancelledBy)
        if self.priority is not None:
            check_count("a filter's priority", self.priority, limit=HIGHEST_PRIORITY)

    @property
    def statuses(self) -> tuple[JobStatus, ...]:
        """The statuses that are meant, in a fixed order; none means all."""
        return self.status or ()  # type: ignore[return-value]  # __post_init__ made it a tuple


def _may_be_stored(name: object) -> bool:
    """Looser than the rules for new names: whatever is there, operators must be able to find it."""
    try:
        return isinstance(name, str) and bool(name.strip()) and bool(name.encode())
    except UnicodeEncodeError:
        return False


def _statuses(given: Any) -> tuple[JobStatus, ...]:
    several = [given] if isinstance(given, str) or not isinstance(given, Iterable) else list(given)
    try:
        statuses = {JobStatus(status) for status in several}
    except ValueError:
        statuses = set()
    if not statuses:
        raise ConfigurationError(
            f"a filter's status must be one or several of {', '.join(JobStatus)}, got {given!r}; "
            "leave it out to mean all"
        )
    return tuple(sorted(statuses))


@dataclass(frozen=True, slots=True, kw_only=True)
class JobPage:
    """One page of jobs, always in the order of the sort. Iterating it gives its jobs.

    Attributes:
        jobs: The jobs of this page.
        cursor: Leads on in the direction that was asked for; None when there is nothing more that way.
        next_cursor: Leads to the page after this one, or is None.
        previous_cursor: Leads to the page before this one, or is None.
        has_next_page: Whether there are jobs after these.
        has_previous_page: Whether there are jobs before these.
    """

    jobs: list[Job[Any]]
    cursor: str | None
    next_cursor: str | None
    previous_cursor: str | None
    has_next_page: bool
    has_previous_page: bool

    def __iter__(self) -> Iterator[Job[Any]]:
        return iter(self.jobs)

    def __len__(self) -> int:
        return len(self.jobs)


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueStats:
    """How many jobs there are in each state.

    *other* counts the documents in none of these states, which somebody else must have written.
    *avg_processing_duration* is that of completed jobs: of the run itself, not of the wait before it;
    None without data.
    """

    pending: int = 0
    processing: int = 0
    completed: int = 0
    failed: int = 0
    cancelled: int = 0
    other: int = 0
    avg_processing_duration: timedelta | None = None

    @property
    def total(self) -> int:
        """All jobs, in whatever state."""
        known = self.pending + self.processing + self.completed + self.failed + self.cancelled
        return known + self.other


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerView:
    """The local worker of a job name: how many jobs it may run at once, and how many it runs now."""

    concurrency: int
    active_count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueView:
    """What an operator sees of one job name.

    Attributes:
        name: The job name.
        stats: How many jobs are in each state.
        has_persisted_jobs: Whether there are jobs of this name.
        has_registered_worker: Whether this instance has a worker for it.
        worker: That worker, or None.
        paused: The pause that keeps its jobs from starting: its own one, or that of all names; else None.
    """

    name: str
    stats: QueueStats
    has_persisted_jobs: bool
    has_registered_worker: bool
    worker: WorkerView | None
    paused: Pause | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueDepth:
    """How many jobs of one name wait or run, on all instances together.

    *due* could run now, *later* have a time in the future, *processing* run. *oldest_due* is how long the
    first of those due has been so; zero if there is none. *paused* says whether the name is paused, alone or
    with all others. Parked jobs, which have no time yet, are in none of these numbers.
    """

    name: str
    due: int = 0
    later: int = 0
    processing: int = 0
    oldest_due: timedelta = timedelta(0)
    paused: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class BulkError:
    """A job that an operation on many should have changed and could not, and why."""

    job_id: ObjectId
    error: str


@dataclass(frozen=True, slots=True, kw_only=True)
class BulkResult:
    """What an operation on many jobs did.

    Attributes:
        count: How many were changed.
        errors: Those that should have changed and could not.
        requested: Of `cancel_jobs(..., running=True)`: how many run and were asked to stop, now or before.
            They are not in *count*.
    """

    count: int
    errors: list[BulkError]
    requested: int = 0


def check_choice(label: str, value: object, choices: Any) -> None:
    """Refuse a value that is none of a Literal's."""
    if value not in get_args(choices):
        raise ConfigurationError(f"{label} must be one of {', '.join(get_args(choices))}, got {value!r}")


def check_range(label: str, value: object, low: int, high: int) -> None:
    """Refuse a value that is no whole number within bounds."""
    if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
        raise ConfigurationError(f"{label} must be a whole number from {low} to {high:,}, got {value!r}")


def check_spread(value: object) -> None:
    """Refuse a duration that would put jobs into the past, or beyond the times BSON can hold."""
    if not isinstance(value, timedelta) or not timedelta(0) <= value <= _LONGEST_SPREAD:
        raise ConfigurationError(f"spread must be a timedelta from 0 to 100 years, got {value!r}")


def check_filter(value: object) -> JobFilter:
    """Refuse anything but a filter: None or a dict must not come to mean "all jobs" by accident."""
    if not isinstance(value, JobFilter):
        raise ConfigurationError(
            f"the filter must be a JobFilter(...), got {value!r}; JobFilter() means all jobs"
        )
    return value
